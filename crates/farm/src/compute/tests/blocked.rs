//! Tasks that block their thread, and the threads that stand in for it.

use std::sync::atomic::{AtomicBool, AtomicU32};

use super::*;

#[tokio::test]
async fn other_threads_run_tasks_while_some_are_blocked() {
    for (threads, each, meet) in [(1, None, 16), (2, None, 32), (1, Some(3), 3)] {
        let mut registry = Registry::new();
        let all = Arc::new(std::sync::Barrier::new(meet));
        let (blocked, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let seen = most.clone();
        registry.register_task("meet", move |task, number: u32| {
            task.blocking(|| {
                let now = blocked.fetch_add(1, Ordering::Relaxed) + 1;
                seen.fetch_max(now, Ordering::Relaxed);
                // So long that a thread takes the tasks one by one.
                std::thread::sleep(Duration::from_millis(1));
                // A wait within a wait is the same one.
                task.blocking(|| all.wait());
                blocked.fetch_sub(1, Ordering::Relaxed);
            });
            f64::from(number)
        });
        let mut compute = start(&registry, threads, None, each);
        put(&mut compute, 1, 0, &vec![4; 5 * meet]);
        let (all, told) = results_of_waits(&mut compute, 5 * meet).await;
        assert_eq!((all, told), (vec![Ok(4.0); 5 * meet], meet as u32));
        assert_eq!(most.load(Ordering::Relaxed), meet as u32, "no more than virtual workers");
        let queue = compute.shared.queue();
        assert_eq!((queue.aside, queue.back, queue.runners), (0, 0, meet as u32));
        drop(queue);
        // All threads end.
        let shared = Arc::downgrade(&compute.shared);
        drop(compute);
        let begun = Instant::now();
        while shared.strong_count() > 0 {
            assert!(begun.elapsed() < DEADLINE, "{} threads are left", shared.strong_count());
            std::thread::yield_now();
        }
    }
}

/// The first task computes a value and blocks, the second waits for the value, the third ends the wait
/// of the first.
#[tokio::test]
async fn a_task_that_waits_for_a_value_has_another_in_its_place() {
    let mut registry = Registry::new();
    let (ends, ended) = std::sync::mpsc::channel();
    let ended = Mutex::new(ended);
    registry.register_task("value", move |task, number: u32| {
        let wait = || task.blocking(|| ended.lock().unwrap().recv().is_ok());
        match number {
            3 => ends.send(()).unwrap(),
            _ => assert!(*task.once_blocking(&"value", wait)),
        }
        f64::from(number)
    });
    let mut compute = start(&registry, 1, None, None);
    put(&mut compute, 1, 0, &[1, 2, 3]);
    let (mut all, _) = results_of_waits(&mut compute, 3).await;
    all.sort_by(|a, b| a.as_ref().unwrap().total_cmp(b.as_ref().unwrap()));
    assert_eq!(all, [Ok(1.0), Ok(2.0), Ok(3.0)]);
}

/// Four tasks wait at a time, and then compute in turn.
#[tokio::test]
async fn a_task_whose_wait_is_over_goes_before_those_not_begun() {
    let mut registry = Registry::new();
    let (computing, most) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let seen = most.clone();
    registry.register_task("turns", move |task, number: u32| {
        task.blocking(|| std::thread::sleep(Duration::from_millis(1)));
        let now = computing.fetch_add(1, Ordering::Relaxed) + 1;
        seen.fetch_max(now, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(5));
        computing.fetch_sub(1, Ordering::Relaxed);
        f64::from(number)
    });
    let mut compute = start(&registry, 1, None, Some(4));
    {
        let patience = &mut compute.shared.queue().patience;
        patience.least = DEADLINE;
        patience.handle_place(Instant::now(), false);
    }
    put(&mut compute, 1, 0, &[0; 40]);
    assert_eq!(results_of_waits(&mut compute, 40).await.0, vec![Ok(0.0); 40]);
    assert_eq!(most.load(Ordering::Relaxed), 1, "one thread is to compute");
}

/// The first task blocks until the second has begun, which waits for the first without a word.
#[tokio::test]
async fn a_task_goes_on_after_its_wait_and_no_other_begins_in_its_place() {
    let mut registry = Registry::new();
    let (began, ended) = ([false; 3].map(AtomicBool::new), AtomicBool::new(false));
    registry.register_task("begin", move |task, number: u32| {
        let has_begun = |task: usize| began[task].load(Ordering::Relaxed);
        began[number as usize].store(true, Ordering::Relaxed);
        match number {
            0 => {
                task.blocking(|| {
                    while !has_begun(1) {
                        std::hint::spin_loop();
                    }
                });
                ended.store(true, Ordering::Relaxed);
            }
            1 => {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                std::thread::sleep(Duration::from_millis(30));
                assert!(!has_begun(2), "there are two tasks for one thread");
            }
            _ => {}
        }
        1.0
    });
    let mut compute = start(&registry, 1, None, None);
    put(&mut compute, 1, 0, &[0, 1, 2]);
    assert_eq!(results_of_waits(&mut compute, 3).await.0, [Ok(1.0), Ok(1.0), Ok(1.0)]);
}

#[tokio::test]
async fn a_blocked_thread_that_is_given_up_leaves_no_place_behind() {
    let mut registry = Registry::new();
    let (ends, ended) = std::sync::mpsc::channel();
    let ended = Mutex::new(ended);
    registry.register_task("wait", move |task, number: u32| {
        if number == 7 {
            task.blocking(|| ended.lock().unwrap().recv().unwrap());
        }
        f64::from(number)
    });
    let limit = TaskTimeout { timeout: Duration::from_secs(1), grace: Duration::from_millis(1) };
    let mut compute = start(&registry, 1, Some(limit), None);
    put(&mut compute, 1, 0, &[7, 5, 5]);
    // The others do not wait for the time to be over.
    let (all, _) = results_of_waits(&mut compute, 2).await;
    assert_eq!((all, compute.stuck.len()), (vec![Ok(5.0); 2], 0));
    let mut late = Vec::new();
    while late.is_empty() {
        tokio::time::sleep(compute.look_after()).await;
        late = compute.look().unwrap();
    }
    assert_eq!(late, [wire::late(1, 0, true)]);
    for comes_back in [false, true] {
        if comes_back {
            ends.send(()).unwrap();
            while Arc::strong_count(&compute.stuck[0]) > 1 {
                tokio::task::yield_now().await;
            }
        }
        put(&mut compute, 1, 3, &[5]);
        assert_eq!(results_of_waits(&mut compute, 1).await.0, [Ok(5.0)]);
        let queue = compute.shared.queue();
        let counted = (queue.aside, queue.back, queue.runners);
        assert_eq!(counted, (0, 0, 2), "comes back: {comes_back}");
    }
}

/// An async task blocks its thread, as it does without a word.
#[tokio::test]
async fn nobody_stands_in_for_an_async_task() {
    let mut registry = Registry::new();
    registry.register_async_task("blocks", |task, number: u32| async move {
        task.blocking(|| std::thread::sleep(Duration::from_millis(1)));
        f64::from(number)
    });
    let mut compute = start(&registry, 1, None, None);
    put(&mut compute, 1, 0, &[4; 20]);
    assert_eq!(results_of_waits(&mut compute, 20).await.0, vec![Ok(4.0); 20]);
    assert_eq!(compute.shared.queue().runners, 1);
}
