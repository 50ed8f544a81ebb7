use super::*;
use crate::RegistryExt;
use crate::proto::wire::{Answer, Ask, Item, Order, Told};
use chunkcomm_cluster::Registry;

mod blocked;

/// Longest time that a step may take; none takes longer on a machine that is alive.
const DEADLINE: Duration = Duration::from_secs(30);

fn entries() -> Vec<Entry> {
    let mut registry = Registry::new();
    registry.register("inverse", |number: u32| {
        assert!(number != 0, "no inverse of zero");
        1.0 / f64::from(number)
    });
    registry.entries().cloned().collect()
}

/// Starts the threads with the functions of this registry.
fn start(
    registry: &Registry,
    threads: u32,
    limit: Option<TaskTimeout>,
    each: Option<u32>,
) -> Compute {
    let entries = registry.entries().cloned().collect();
    Compute::start(entries, threads, limit, each).unwrap()
}

fn put(compute: &mut Compute, run: u32, first: u64, numbers: &[u32]) {
    let mut bytes = Vec::new();
    wire::begin_assignment(&mut bytes, run, 0);
    numbers.iter().for_each(|number| wire::put_value(&mut bytes, number).unwrap());
    wire::number_assignment(&mut bytes, first, numbers.len() as u32);
    let Ok(Order::Assign(assignment)) = wire::read_order(&bytes) else { panic!() };
    assert!(compute.put(&assignment));
}

type Results = Vec<Result<f64, String>>;

fn read(answer: &[u8]) -> (u32, u64, Results) {
    let Ok(Answer::Done { run, first, mut results, .. }) = wire::read_answer(answer) else {
        panic!("{answer:?}")
    };
    let mut read = Vec::new();
    while let Some(item) = results.next_result().unwrap() {
        read.push(match item {
            Item::Value(bytes) => Ok(f64::from_le_bytes(bytes.try_into().unwrap())),
            Item::Failure(text) => Err(text.to_owned()),
        });
    }
    (run, first, read)
}

/// Takes answers until they have this number of results.
async fn results(compute: &mut Compute, count: usize) -> Results {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(read(&compute.answered().await).2);
    }
    all
}

#[tokio::test]
async fn the_threads_answer_and_a_panic_fails_its_task_alone() {
    let mut compute = Compute::start(entries(), 1, None, None).unwrap();
    put(&mut compute, 1, 5, &[2, 0, 4]);
    let answers = results(&mut compute, 3).await;
    let panicked = "function \"inverse\" panicked: no inverse of zero".to_owned();
    assert_eq!(answers, [Ok(0.5), Err(panicked), Ok(0.25)]);
}

/// Tasks come as the thread starts, and as it is about to wait.
#[tokio::test]
async fn no_wake_up_is_missed() {
    for round in 0..1_000 {
        let mut compute = Compute::start(entries(), 1, None, None).unwrap();
        for first in 0..10 {
            (0..(round + first) % 50).for_each(|_| std::hint::spin_loop());
            put(&mut compute, 1, first, &[4]);
            let put_at = Instant::now();
            while compute.try_answered().is_none() {
                assert!(put_at.elapsed() < DEADLINE, "{round}: the thread is not awake");
                std::hint::spin_loop();
            }
        }
    }
}

#[tokio::test]
async fn a_long_task_does_not_keep_back_the_results_before_it() {
    let mut registry = Registry::new();
    registry.register("sleep", |ms: u32| {
        std::thread::sleep(Duration::from_millis(ms.into()));
        f64::from(ms)
    });
    let mut compute = start(&registry, 1, None, None);
    put(&mut compute, 1, 0, &[0, 60_000]);
    assert!(compute.is_at_work());
    let put_at = Instant::now();
    let old = loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if let Some(old) = compute.look().unwrap().pop() {
            break old;
        }
        assert!(put_at.elapsed() < DEADLINE, "the first result is kept back");
    };
    assert_eq!(read(&old), (1, 0, vec![Ok(0.0)]));
    assert!(compute.is_at_work() && compute.look().unwrap().is_empty());
}

#[tokio::test]
async fn a_task_that_does_not_end_loses_its_thread_and_no_other_task() {
    let mut registry = Registry::new();
    registry.register("sleep", |ms: u32| {
        std::thread::sleep(Duration::from_millis(ms.into()));
        f64::from(ms)
    });
    let limit = TaskTimeout { timeout: Duration::from_secs(1), grace: Duration::from_millis(1) };
    let mut compute = start(&registry, 1, Some(limit), None);
    // Tasks known as short share a slice.
    (0..99).for_each(|_| compute.shared.queue().placements[0].handle_done(1, 1_000));
    put(&mut compute, 1, 5, &[0, 0, 3_600_000, 0]);
    let put_at = Instant::now();
    let messages = loop {
        tokio::time::sleep(compute.look_after()).await;
        let messages = compute.look().unwrap();
        if !messages.is_empty() {
            break messages;
        }
        assert!(put_at.elapsed() < DEADLINE, "the task goes on");
    };
    let expected = [wire::late(1, 7, true), wire::returned(1, 5, 2), wire::returned(1, 8, 1)];
    assert_eq!(messages, expected);
    put(&mut compute, 1, 5, &[0, 0]);
    assert_eq!(results(&mut compute, 2).await, [Ok(0.0), Ok(0.0)]);
    assert_eq!((compute.stuck.len(), compute.look().unwrap().len()), (1, 0));
}

#[tokio::test]
async fn a_thread_that_is_given_up_computes_no_value_for_others() {
    let mut registry = Registry::new();
    registry.register_async_task("value", |task, key: u32| async move {
        let forever = async || std::thread::sleep(Duration::from_secs(3600));
        task.once_for_all(&key, forever).await;
    });
    computes_no_value_for_others(&registry).await;
    let mut registry = Registry::new();
    registry.register_task("value", |task, key: u32| {
        let forever = || std::thread::sleep(Duration::from_secs(3600));
        task.once_for_all_blocking(&key, forever);
    });
    computes_no_value_for_others(&registry).await;
}

/// Lets the only function of this registry compute a value, until its thread is given up.
async fn computes_no_value_for_others(registry: &Registry) {
    let limit = TaskTimeout { timeout: Duration::from_secs(1), grace: Duration::from_millis(1) };
    let mut compute = start(registry, 1, Some(limit), None);
    compute.connect(1000);
    put(&mut compute, 1, 5, &[7]);
    let said = |word: Vec<u8>| match wire::read_answer(&word) {
        Ok(Answer::Once { run: 1, key, ask }) => Some((key, ask)),
        _ => None,
    };
    let (key, ask) = loop {
        if let Some(said) = said(compute.answered().await) {
            break said;
        }
    };
    assert_eq!(ask, Ask::Need);
    compute.needs().handle_reply(1, key, Told::Compute);
    let begun = Instant::now();
    while compute.stuck.is_empty() {
        tokio::time::sleep(compute.look_after()).await;
        compute.look().unwrap();
        assert!(begun.elapsed() < DEADLINE, "the task goes on");
    }
    let words: Vec<_> = std::iter::from_fn(|| compute.try_answered()).filter_map(said).collect();
    assert_eq!(words, [(key, Ask::GivenUp)]);
}

/// Tasks end at about the time at which they are given up.
#[tokio::test]
async fn no_task_is_lost_when_it_ends_as_its_thread_is_given_up() {
    let mut registry = Registry::new();
    registry.register("spin", |us: u64| {
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_micros(us) {}
    });
    let entries: Vec<Entry> = registry.entries().cloned().collect();
    let limit = TaskTimeout { timeout: Duration::from_millis(1), grace: Duration::from_millis(1) };
    let mut ended = 0;
    for round in 0..60_u64 {
        let mut compute = Compute::start(entries.clone(), 2, Some(limit), None).unwrap();
        (0..99).for_each(|_| compute.shared.queue().placements[0].handle_done(1, 100_000));
        let mut bytes = Vec::new();
        for first in [0, 50] {
            wire::begin_assignment(&mut bytes, 1, 0);
            for at in 0..50 {
                let long = at % 10 == 2;
                let us = if long { 1_900 + (round * 37 + at * 11) % 200 } else { 5 };
                wire::put_value(&mut bytes, &us).unwrap();
            }
            wire::number_assignment(&mut bytes, first, 50);
            let Ok(Order::Assign(assignment)) = wire::read_order(&bytes) else { panic!() };
            assert!(compute.put(&assignment));
        }
        let (mut told, begun) = ([false; 100], Instant::now());
        while told.contains(&false) {
            assert!(begun.elapsed() < DEADLINE, "round {round}: {told:?}");
            let mut messages = compute.look().unwrap();
            messages.extend(std::iter::from_fn(|| compute.try_answered()));
            for message in messages {
                let (first, count) = match wire::read_answer(&message).unwrap() {
                    Answer::Done { first, count, .. } => (first, count),
                    Answer::Returned { first, count, .. } => (first, count),
                    Answer::Late { index, .. } => (index, 1),
                    other => panic!("{other:?}"),
                };
                told[first as usize..first as usize + count as usize].fill(true);
            }
            tokio::task::yield_now().await;
        }
        ended += compute.stuck.len();
    }
    assert!(ended > 0, "no task was late");
}

#[tokio::test]
async fn several_threads_share_an_assignment_and_the_loop_takes_none() {
    let mut compute = Compute::start(entries(), 3, None, None).unwrap();
    (0..20).for_each(|_| compute.shared.queue().placements[0].handle_done(1, 100));
    for first in 0..10 {
        put(&mut compute, 1, first * 100, &[4; 100]);
        assert!(!compute.run_here(Duration::from_micros(50)).await.0);
    }
    assert_eq!(results(&mut compute, 1000).await, vec![Ok(0.25); 1000]);
}

/// No threads: the queue stays as it is.
fn compute_without_threads() -> Compute {
    let mut compute = Compute::start(entries(), 1, None, None).unwrap();
    let mut queue = compute.shared.queue();
    queue.closed = true;
    drop(queue);
    compute.shared.wake();
    compute.report = Report::default();
    compute
}

#[tokio::test]
async fn what_is_given_back_is_the_end_of_the_queue() {
    let mut compute = compute_without_threads();
    put(&mut compute, 1, 0, &[1; 5]);
    put(&mut compute, 1, 5, &[1; 3]);
    assert_eq!(compute.give_back(1, 5), [(5, 3), (3, 2)]);
    assert_eq!(compute.shared.queue().pieces.front().unwrap().items.len(), 3 * 8);
    assert_eq!(compute.give_back(1, u64::MAX), [(0, 3)]);
    assert_eq!(compute.give_back(1, 1), []);
}

#[tokio::test]
async fn a_new_run_drops_what_an_earlier_one_left() {
    let mut compute = compute_without_threads();
    put(&mut compute, 1, 0, &[1; 5]);
    assert_eq!(compute.give_back(0, 0), [], "a question about the round trip is of no run");
    put(&mut compute, 2, 9, &[1]);
    assert_eq!(compute.give_back(2, 100), [(9, 1)]);
}

#[tokio::test]
async fn tiny_tasks_run_in_the_loop_and_gather_in_an_answer() {
    let mut compute = compute_without_threads();
    put(&mut compute, 1, 0, &[2; 50]);
    let mut answers = Vec::new();
    loop {
        // However long they took here.
        (0..20).for_each(|_| compute.shared.queue().placements[0].handle_done(1, 100));
        let (ran, sent) = compute.run_here(Duration::from_micros(1)).await;
        answers.extend(sent.into_iter().flatten());
        if !ran {
            break;
        }
    }
    let (run, first, results) = read(&answers[0]);
    assert_eq!((run, first, results, answers.len()), (1, 0, vec![Ok(0.5); 50], 1));
}

/// Threads whose function waits until as many others have begun as its input says, and is woken by
/// the last of them.
fn meeting(threads: u32, each: Option<u32>) -> Compute {
    let mut registry = Registry::new();
    let (begun, met) = (Arc::new(Mutex::new(0)), Arc::new(Notify::new()));
    registry.register_async("meet", move |others: u32| {
        let (begun, met) = (begun.clone(), met.clone());
        async move {
            let woken = met.notified();
            *begun.lock().unwrap() += 1;
            if *begun.lock().unwrap() < others {
                woken.await;
            } else {
                met.notify_waiters();
            }
            f64::from(others)
        }
    });
    start(&registry, threads, None, each)
}

#[tokio::test]
async fn a_thread_runs_others_while_a_task_waits() {
    for (threads, each, count) in [(1, None, 16), (3, None, 48), (1, Some(100), 100)] {
        let mut compute = meeting(threads, each);
        put(&mut compute, 1, 0, &vec![count; count as usize]);
        let (_, told) = results_of_waits(&mut compute, count as usize).await;
        assert_eq!((told, compute.shared.queue().left()), (count, 0), "{threads} threads");
    }
}

#[tokio::test]
async fn no_more_tasks_are_begun_than_virtual_workers() {
    let mut compute = meeting(1, Some(2));
    put(&mut compute, 1, 0, &[3; 5]);
    while compute.shared.queue().waits.begun() < 2 || compute.shared.queue().waiting < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(compute.give_back(1, 100), [(2, 3)]);
    // Those that were begun end with another run.
    put(&mut compute, 2, 0, &[0]);
    loop {
        let answer = compute.answered().await;
        if matches!(wire::read_answer(&answer), Ok(Answer::Done { run: 2, .. })) {
            break;
        }
    }
    assert_eq!(compute.shared.queue().left(), 0);
}

/// Threads whose function sleeps for its input in milliseconds, with the largest for ever; without time
/// it wakes itself some times.
fn sleeping(limit: Option<TaskTimeout>) -> Compute {
    let mut registry = Registry::new();
    registry.register_async_task("sleep", |task, ms: u32| async move {
        for _ in 0..if ms == 0 { 100 } else { 0 } {
            tokio::task::yield_now().await;
        }
        if ms == u32::MAX {
            while !task.is_cancelled() {
                tokio::task::yield_now().await;
            }
            pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(ms.into())).await;
        assert!(ms != 3, "no luck");
        f64::from(ms)
    });
    start(&registry, 1, limit, Some(50))
}

#[tokio::test]
async fn tasks_that_wake_themselves_wait_or_panic_end_in_any_order() {
    let mut compute = sleeping(None);
    put(&mut compute, 1, 0, &[20, 0, 3, 1, 0]);
    let mut all = vec![None; 5];
    while all.contains(&None) {
        let answer = tokio::select! {
            biased;
            answer = compute.answered() => answer,
            () = tokio::time::sleep(Duration::from_millis(1)) => continue,
        };
        if let Ok(Answer::Done { first, .. }) = wire::read_answer(&answer) {
            for (at, result) in read(&answer).2.into_iter().enumerate() {
                assert_eq!(all[first as usize + at].replace(result), None);
            }
        }
    }
    let panicked = Err("function \"sleep\" panicked: no luck".to_owned());
    let all: Vec<_> = all.into_iter().flatten().collect();
    assert_eq!(all, [Ok(20.0), Ok(0.0), panicked, Ok(1.0), Ok(0.0)]);
}

#[tokio::test]
async fn a_task_that_waits_too_long_is_dropped_and_its_thread_goes_on() {
    let limit = TaskTimeout { timeout: Duration::from_secs(1), grace: Duration::from_secs(1) };
    let mut compute = sleeping(Some(limit));
    put(&mut compute, 1, 5, &[1, u32::MAX, 1]);
    let (mut late, mut ended, put_at) = (Vec::new(), 0, Instant::now());
    while late.is_empty() || ended < 2 {
        tokio::time::sleep(compute.look_after()).await;
        let mut messages = compute.look().unwrap();
        messages.extend(std::iter::from_fn(|| compute.try_answered()));
        for message in messages {
            match wire::read_answer(&message).unwrap() {
                Answer::Done { count, .. } => ended += count,
                Answer::Late { run: 1, index, is_stuck } => late.push((index, is_stuck)),
                Answer::Virtual { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(put_at.elapsed() < DEADLINE, "{late:?}, {ended}");
    }
    assert_eq!((late, compute.stuck.len()), (vec![(6, false)], 0));
    put(&mut compute, 1, 6, &[1]);
    while !matches!(wire::read_answer(&compute.answered().await), Ok(Answer::Done { first: 6, .. }))
    {
    }
}

#[tokio::test]
async fn a_late_look_asks_a_task_to_end_before_it_gives_it_up() {
    let mut registry = Registry::new();
    let (ends, is_to_end) = std::sync::mpsc::channel::<()>();
    let is_to_end = Mutex::new(is_to_end);
    registry.register("stuck", move |_: u32| {
        let _ = is_to_end.lock().unwrap().recv();
        0.0
    });
    let limit = TaskTimeout { timeout: Duration::from_millis(1), grace: Duration::from_millis(1) };
    let mut compute = start(&registry, 1, Some(limit), None);
    put(&mut compute, 1, 5, &[0]);
    let at_work = |compute: &Compute| locked(&compute.shared.seats)[0].work.now().is_some();
    let put_at = Instant::now();
    while !at_work(&compute) {
        assert!(put_at.elapsed() < DEADLINE);
        tokio::task::yield_now().await;
    }
    std::thread::sleep(Duration::from_millis(5));
    assert!(compute.look().unwrap().is_empty());
    let told = compute.look().unwrap();
    let is_late = |it: &Vec<u8>| {
        matches!(wire::read_answer(it), Ok(Answer::Late { run: 1, index: 5, is_stuck: true }))
    };
    assert!(told.iter().any(is_late), "{told:?}");
    drop(ends);
}

/// As one after Ctrl-Z and `fg`.
#[tokio::test]
async fn the_time_of_a_stop_is_no_time_of_a_task() {
    let mut registry = Registry::new();
    let (ends, is_to_end) = std::sync::mpsc::channel::<()>();
    let is_to_end = Mutex::new(is_to_end);
    registry.register("waits", move |_: u32| {
        let _ = is_to_end.lock().unwrap().recv();
        0.0
    });
    let limit = TaskTimeout { timeout: Duration::from_millis(150), grace: Duration::ZERO };
    let mut compute = start(&registry, 1, Some(limit), None);
    put(&mut compute, 1, 5, &[0]);
    let put_at = Instant::now();
    while compute.due().is_none() || locked(&compute.shared.seats)[0].work.now().is_none() {
        assert!(put_at.elapsed() < DEADLINE);
        tokio::task::yield_now().await;
    }
    // In the place of a stop.
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(compute.shared.stopped_ns.load(Ordering::Relaxed), 0);
    compute.look().unwrap();
    assert!(compute.shared.stopped_ns.load(Ordering::Relaxed) >= 300_000_000);
    // No look was due here, so none is late.
    std::thread::sleep(Duration::from_millis(200));
    compute.look().unwrap();
    assert!(
        compute.shared.stopped_ns.load(Ordering::Relaxed)
            < put_at.elapsed().as_nanos() as u64 - 200_000_000
    );
    drop(ends);
}

/// It is with a thread at nearly every look, each time in another poll.
#[tokio::test]
async fn a_task_that_wakes_itself_for_ever_is_given_up() {
    let mut registry = Registry::new();
    registry.register_async("busy", |_: u32| {
        std::future::poll_fn(|context| {
            std::thread::sleep(Duration::from_millis(1));
            context.waker().wake_by_ref();
            std::task::Poll::<f64>::Pending
        })
    });
    let limit =
        TaskTimeout { timeout: Duration::from_millis(50), grace: Duration::from_millis(50) };
    let mut compute = start(&registry, 1, Some(limit), None);
    put(&mut compute, 1, 5, &[0]);
    let put_at = Instant::now();
    loop {
        tokio::time::sleep(compute.look_after()).await;
        let told = compute.look().unwrap();
        let is_late = |it: &Vec<u8>| {
            matches!(wire::read_answer(it), Ok(Answer::Late { run: 1, index: 5, .. }))
        };
        if told.iter().any(is_late) {
            break;
        }
        assert!(put_at.elapsed() < DEADLINE);
    }
}

/// Takes answers until they have this number of results; returns the virtual workers that were told.
async fn results_of_waits(compute: &mut Compute, count: usize) -> (Results, u32) {
    let (mut all, mut told) = (Vec::new(), 0);
    while all.len() < count {
        let answer = compute.answered().await;
        match wire::read_answer(&answer).unwrap() {
            Answer::Virtual { run: 1, workers } => told = workers,
            _ => all.extend(read(&answer).2),
        }
    }
    (all, told)
}

/// Calls that block go to the runtime's threads for them.
#[tokio::test]
async fn calls_that_block_overlap_on_one_thread() {
    let mut registry = Registry::new();
    let all = Arc::new(std::sync::Barrier::new(8));
    registry.register_async("meet", move |number: u32| {
        let all = all.clone();
        async move {
            let met = tokio::task::spawn_blocking(move || all.wait());
            met.await.map(|_| f64::from(number)).unwrap()
        }
    });
    let mut compute = start(&registry, 1, None, None);
    put(&mut compute, 1, 0, &[4; 8]);
    let mut ended = 0;
    while ended < 8 {
        if let Answer::Done { count, .. } = wire::read_answer(&compute.answered().await).unwrap() {
            ended += count;
        }
    }
}
