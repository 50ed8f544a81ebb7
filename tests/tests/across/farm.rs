//! Farms end to end, with processes and threads as workers.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use chunkcomm::Address;
use chunkcomm::codec::decode;
use chunkcomm_cluster::Registry;
use chunkcomm_cluster::launch::Launcher;
use chunkcomm_farm::settings::{Grain, Messaging, Model, Prefetch, Runtime, WorkersAs};
use chunkcomm_farm::{Farm, FarmBuilder, RunError, StartError, TaskError, WorkerEnd};
use chunkcomm_testkit::events::Events;
use chunkcomm_testkit::proc::{self, is_gone, wait_until_gone};
use chunkcomm_testkit::{Scratch, blocking};
use chunkcomm_tests::farm_tasks::{
    FEWER, FORGETS, Functions, Job, OTHER_TYPES, STILLBORN, printed, registry,
};
use tokio::time::timeout;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_farm-program");

/// Longest time that a step may take; none takes longer on a machine that is alive.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Returns a farm whose worker processes are `farm-program`: copies of this test's own program
/// would run the tests again.
pub(crate) fn builder() -> (FarmBuilder, Functions) {
    let (registry, functions) = registry();
    let builder = Farm::builder(registry).workers(2).launcher(|launcher| launcher.program(PROGRAM));
    (builder, functions)
}

pub(crate) fn pids(farm: &Farm) -> Vec<u32> {
    farm.workers().iter().filter_map(|worker| worker.pid).collect()
}

pub(crate) fn kill(pid: u32) {
    proc::signal(pid, rustix::process::Signal::KILL);
    wait_until_gone(&[pid]);
}

#[tokio::test]
async fn results_are_those_of_the_tasks_in_every_shape_of_farm() {
    for workers_as in [WorkersAs::Process, WorkersAs::Thread] {
        for model in [Model::A, Model::B] {
            for prefetch in [1, 2, 8].map(Prefetch::Fixed).into_iter().chain([Prefetch::Auto]) {
                for grain in [Grain::Fixed(1), Grain::Fixed(7), Grain::Auto] {
                    let (builder, functions) = builder();
                    let builder = builder.workers_as(workers_as).model(model);
                    let mut farm = builder.prefetch(prefetch).grain(grain).start().await.unwrap();
                    let outcome = farm.run(&functions.double, 0..100).await.unwrap();
                    let shape = format!("{workers_as:?} {model:?} {prefetch:?} {grain:?}");
                    let expected: Vec<u64> = (0..100).map(|number| number * 2).collect();
                    assert_eq!(outcome.results, expected, "{shape}");

                    let stats = outcome.stats;
                    assert_eq!(stats.tasks, 100, "{shape}");
                    let by_worker = stats.workers.iter().map(|worker| worker.tasks);
                    assert_eq!(by_worker.sum::<u64>(), 100 + stats.mishaps.dropped, "{shape}");
                    assert_eq!(stats.mishaps.reissued, 0, "{shape}");
                    farm.finish(DEADLINE).await.unwrap();
                }
            }
        }
    }
}

#[tokio::test]
async fn a_farm_runs_one_function_after_the_other() {
    let (builder, functions) = builder();
    let mut farm = builder.grain(3).start().await.unwrap();
    let jobs = (0..20).map(|number| Job { number, text: "ab".into() });
    let outcome = farm.run(&functions.repeat, jobs).await.unwrap();
    assert!(outcome.results.iter().enumerate().all(|(at, text)| *text == "ab".repeat(at)));
    assert_eq!(farm.run(&functions.double, [4, 5]).await.unwrap().results, [8, 10]);
    assert_eq!(farm.run(&functions.double, []).await.unwrap().results, [0u64; 0]);
    farm.finish(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn as_completed_gives_each_result_once_when_it_comes() {
    let (builder, functions) = builder();
    let mut farm = builder.prefetch(Prefetch::Fixed(1)).start().await.unwrap();
    let mut order = Vec::new();
    // The first task keeps one worker busy while the other does the rest.
    let tasks = std::iter::once(5_000).chain([0; 30]);
    let results = farm.stream(&functions.sleep, tasks).unwrap().as_completed();
    let stats = results.for_each(|index, _| order.push(index)).await;
    assert_eq!(stats.unwrap().tasks, 31);
    assert_eq!(order.last(), Some(&0), "{order:?}");
    assert_eq!(order.iter().copied().collect::<BTreeSet<u64>>(), (0..31).collect());
    assert_eq!(order.len(), 31);

    let mut order = Vec::new();
    let tasks = std::iter::once(300).chain([0; 30]);
    let results = farm.stream(&functions.sleep, tasks).unwrap();
    results.for_each(|index, _| order.push(index)).await.unwrap();
    assert_eq!(order, (0..31).collect::<Vec<u64>>());
}

/// Far less than a farm waits for workers, or for the end of their sessions.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Its processes are of no more use, and replacing them would lead nowhere.
#[test]
fn a_farm_whose_runtime_is_gone_says_so_at_once() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("there is one")
    };
    for runs in [true, false] {
        let first = runtime();
        let (builder, functions) = builder();
        let mut farm = first.block_on(builder.start()).unwrap();
        let started = pids(&farm);
        drop(first);
        let second = runtime();
        if runs {
            for _ in 0..2 {
                let run = farm.run(&functions.double, 0..10);
                let run = second.block_on(async { timeout(AT_ONCE, run).await });
                let error = run.expect("it answers at once").unwrap_err();
                assert!(matches!(error, RunError::Lost { .. }), "{error}");
                assert!(error.to_string().contains("the runtime that drove the link"), "{error}");
            }
            assert!(started.iter().all(|&pid| is_gone(pid)), "{started:?}");
            assert_eq!(farm.workers().len(), started.len(), "none is replaced");
        } else {
            let finish = farm.finish(DEADLINE);
            let finish = second.block_on(async { timeout(AT_ONCE, finish).await });
            let error = finish.expect("it answers at once").unwrap_err();
            assert_eq!(error.workers.len(), started.len(), "{error}");
        }
        assert!(started.iter().all(|&pid| is_gone(pid)), "{started:?}");
    }
}

/// The first task ends when no further one is taken.
#[tokio::test]
async fn large_results_that_wait_for_an_earlier_one_stop_the_source() {
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    const MIB: usize = 1 << 20;
    for collects in [false, true] {
        TAKEN.store(0, Relaxed);
        let mut registry = Registry::new();
        let expected = if collects { 120..=120 } else { 64..=70 };
        let least = *expected.start();
        let function = registry.register("large", move |index: usize| {
            if index == 0 {
                blocking::until("too few are taken", || TAKEN.load(Relaxed) >= least);
                let mut taken = 0;
                while taken < TAKEN.load(Relaxed) {
                    taken = TAKEN.load(Relaxed);
                    std::thread::sleep(Duration::from_secs(1));
                }
                return vec![taken as u8];
            }
            vec![7; MIB]
        });
        let builder = Farm::builder(registry).workers(2).workers_as(WorkersAs::Thread).grain(1);
        let mut farm = builder.prefetch(Prefetch::Fixed(2)).start().await.unwrap();
        let tasks = (0..120).inspect(|index| TAKEN.store(index + 1, Relaxed));
        let (mut first, mut next) = (0, 0);
        if collects {
            // They are kept in any case.
            first = farm.run(&function, tasks).await.unwrap().results[0][0];
        } else {
            let each = |index, bytes: Vec<u8>| {
                assert_eq!(index, next);
                next += 1;
                if index == 0 {
                    first = bytes[0];
                }
            };
            farm.stream(&function, tasks).unwrap().for_each(each).await.unwrap();
            assert_eq!(next, 120);
        }
        assert!(expected.contains(&usize::from(first)), "{first} of {expected:?}");
        farm.finish(DEADLINE).await.unwrap();
    }
}

#[tokio::test]
async fn in_model_a_the_farmers_process_works_too() {
    let here = std::process::id();
    for model in [Model::A, Model::B] {
        let (builder, functions) = builder();
        let mut farm = builder.model(model).start().await.unwrap();
        let started = pids(&farm);
        let outcome = farm.run(&functions.sleep, [20; 20]).await.unwrap();
        let worked: BTreeSet<u32> = outcome.results.into_iter().collect();
        let own = if model == Model::A { vec![here] } else { vec![] };
        assert_eq!(worked, started.iter().copied().chain(own).collect(), "{model:?}");
        assert_eq!(farm.workers().len(), 2);
        drop(farm);
        assert!(started.iter().all(|&pid| is_gone(pid)), "{started:?}");
    }
}

#[tokio::test]
async fn a_farm_of_the_farmers_own_worker_alone() {
    let (builder, functions) = builder();
    let mut farm = builder.workers(1).model(Model::A).start().await.unwrap();
    assert_eq!(farm.workers()[0].to_string(), "worker 0 (thread)");
    assert_eq!(farm.run(&functions.double, [21]).await.unwrap().results, [42]);
    farm.finish(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_task_that_panics_ends_the_run_with_its_message_and_index() {
    for workers_as in [WorkersAs::Process, WorkersAs::Thread] {
        let (builder, functions) = builder();
        let mut farm = builder.workers_as(workers_as).grain(4).start().await.unwrap();
        let error = farm.run(&functions.unlucky, 0..1_000).await.unwrap_err();
        let RunError::Task(TaskError::Failed { index: 13, worker, .. }) = &error else {
            panic!("{error}")
        };
        let text = "function \"unlucky\" panicked: 13 is unlucky";
        assert_eq!(error.to_string(), format!("task 13 of \"unlucky\" failed at {worker}: {text}"));
        // The farm goes on, whatever tasks the workers still held.
        assert_eq!(farm.run(&functions.double, 0..50).await.unwrap().results[49], 98);
        farm.finish(DEADLINE).await.unwrap();
    }
}

#[tokio::test]
async fn the_tasks_of_a_killed_worker_are_run_by_others() {
    for model in [Model::A, Model::B] {
        let (builder, functions) = builder();
        let mut farm = builder.workers(2).model(model).start().await.unwrap();
        let victim = farm.workers()[1].clone();
        let kill_in_the_middle = |at: &u64| {
            if *at == 500 {
                kill(victim.pid.unwrap());
            }
        };
        let tasks = (0..1_000).inspect(kill_in_the_middle);
        let outcome = farm.run(&functions.double, tasks).await.unwrap();
        assert_eq!(outcome.results, (0..1_000).map(|number| number * 2).collect::<Vec<u64>>());
        let lost = outcome.stats.workers.iter().find(|worker| worker.worker == victim).unwrap();
        // The run may be over before the death is told.
        if let Some(loss) = &lost.lost {
            assert_eq!(loss.to_string(), "its process ended: signal: 9 (SIGKILL)");
        }
        farm.finish(DEADLINE).await.ok();
    }
}

#[tokio::test]
async fn a_dead_process_is_replaced() {
    let (builder, functions) = builder();
    let mut farm = builder.workers(2).start().await.unwrap();
    let started = pids(&farm);
    started.iter().for_each(|&pid| kill(pid));
    // Nobody of the first workers is left.
    let outcome = farm.run(&functions.sleep, [5; 100]).await.unwrap();
    assert!(outcome.results.iter().all(|pid| !started.contains(pid)), "{started:?}");
    assert_eq!(farm.workers()[2].index, 2);
    assert!(farm.workers().len() >= 3, "{:?}", farm.workers());
    let all = pids(&farm);
    farm.finish(DEADLINE).await.unwrap();
    assert!(all.iter().all(|&pid| is_gone(pid)), "{all:?}");
}

/// Copies the program by another process: a file that this one has open for writing cannot be run while
/// another test forks.
fn copied_program(name: &str) -> Scratch {
    let file = Scratch::new(name);
    assert!(Command::new("cp").arg(PROGRAM).arg(&*file).status().unwrap().success());
    file
}

/// As an upgrade or a rebuild does it.
#[test]
fn a_dead_process_is_replaced_also_when_the_file_of_the_program_has_been() {
    let file = copied_program("farm-replaced");
    let output = Command::new(&*file).arg("replaced").output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told, "40 results of 2 others\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_run_without_workers_names_its_own_last_one_and_why_none_came() {
    let file = copied_program("farm-removed");
    let (builder, functions) = builder();
    let program = file.to_path_buf();
    let mut farm = builder.launcher(|launcher| launcher.program(program)).start().await.unwrap();
    std::fs::remove_file(&*file).unwrap();
    let (pids, first) = (pids(&farm), farm.workers()[0].clone());
    kill(pids[1]);
    assert_eq!(farm.run(&functions.sleep, [5; 10]).await.unwrap().results, [pids[0]; 10]);
    let kill_at_the_second = |(at, _): &(usize, u64)| {
        if *at == 1 {
            kill(pids[0]);
        }
    };
    let tasks = [3_600_000; 50].into_iter().enumerate().inspect(kill_at_the_second);
    let error = farm.run(&functions.sleep, tasks.map(|(_, ms)| ms)).await.unwrap_err();
    let told = format!(
        "no worker is left and 50 tasks without a result: {first} was lost: its process ended: \
         signal: 9 (SIGKILL); none is started in its place: could not start a process for {}: No \
         such file or directory (os error 2)",
        file.display()
    );
    assert_eq!(error.to_string(), told);
}

#[tokio::test]
async fn a_process_that_dies_before_it_is_ready_is_replaced_too() {
    let (builder, functions) = builder();
    let stillborn = |launcher: Launcher| launcher.program(PROGRAM).env(STILLBORN, "3");
    let mut farm = builder.workers(1).launcher(stillborn).start().await.unwrap();
    kill(pids(&farm)[0]);
    let outcome = farm.run(&functions.sleep, [5; 10]).await.unwrap();
    assert!(outcome.results.iter().all(|&pid| pid == pids(&farm)[4]), "{:?}", farm.workers());
    assert_eq!(farm.workers().len(), 5);
}

#[tokio::test]
async fn processes_that_never_get_ready_are_not_replaced_for_ever() {
    let (builder, functions) = builder();
    let stillborn = |launcher: Launcher| launcher.program(PROGRAM).env(STILLBORN, "1000");
    let mut farm = builder.workers(1).launcher(stillborn).start().await.unwrap();
    kill(pids(&farm)[0]);
    let error = farm.run(&functions.sleep, [5; 10]).await.unwrap_err();
    assert!(matches!(error, RunError::Lost { .. }), "{error}");
    let told = "none is started in its place: 17 processes in a row ended before they were ready";
    assert!(error.to_string().ends_with(told), "{error}");
    assert_eq!(farm.workers().len(), 18);
}

#[tokio::test]
async fn a_task_that_ends_its_workers_is_set_aside_with_its_input() {
    let (builder, functions) = builder();
    let mut farm = builder.workers(1).start().await.unwrap();
    let error = farm.run(&functions.exit, [7]).await.unwrap_err();
    let RunError::Task(TaskError::SetAside { index: 0, deaths: 3, worker, input, .. }) = &error
    else {
        panic!("{error}")
    };
    assert_eq!(decode::<i32>(input).unwrap(), 7);
    let told = format!(
        "task 0 of \"exit\" is set aside since 3 workers died of it, {worker} last: its process \
         ended: exit status: 7"
    );
    assert_eq!(error.to_string(), told);
    // An orderly end in the middle of a task is a loss all the same.
    let error = farm.run(&functions.exit, [0]).await.unwrap_err();
    assert!(error.to_string().ends_with("its process ended: exit status: 0"), "{error}");
    // The farm goes on.
    assert_eq!(farm.run(&functions.double, [3]).await.unwrap().results, [6]);
    farm.finish(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_run_to_the_end_has_an_outcome_for_every_task() {
    let (builder, functions) = builder();
    let mut farm = builder.deaths_max(1).start().await.unwrap();
    let outcome = farm.run_to_end(&functions.unlucky, 0..100).await.unwrap();
    for (task, result) in (0..).zip(&outcome.results) {
        match result {
            Ok(_) => assert!(task != 13),
            Err(error) => assert_eq!((task, error.index()), (13, 13), "{error}"),
        }
    }
    assert_eq!(outcome.results.len(), 100);
    let outcome = farm.run_to_end(&functions.exit, [1, 2]).await.unwrap();
    let aside =
        |result: &Result<_, _>| matches!(result, Err(TaskError::SetAside { deaths: 1, .. }));
    assert!(outcome.results.iter().all(aside));
    farm.finish(DEADLINE).await.unwrap();
}

/// Of two workers one has two long tasks, the other has done its two short ones.
#[tokio::test]
async fn who_has_nothing_to_do_gets_what_another_has_not_begun() {
    let (builder, functions) = builder();
    let mut farm = builder.prefetch(Prefetch::Fixed(2)).grain(1).start().await.unwrap();
    let started = std::time::Instant::now();
    let outcome = farm.run(&functions.sleep, [2_000, 1, 2_000, 1]).await.unwrap();
    assert!(outcome.stats.mishaps.returned > 0, "{:?}", started.elapsed());
    farm.finish(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn finishing_tells_the_truth_of_each_worker_and_waits_for_those_that_live() {
    // A worker is dead after the last run; the others end by themselves.
    let (one, _) = builder();
    let farm = one.workers(3).start().await.unwrap();
    let victim = farm.workers()[2].clone();
    kill(victim.pid.unwrap());
    let error = farm.finish(Duration::MAX).await.unwrap_err();
    let told =
        format!("the farm did not end well: {victim}: its process ended: signal: 9 (SIGKILL)");
    assert_eq!(error.to_string(), told);

    // A loss that a run has reported is not reported again.
    let (two, functions) = builder();
    let mut farm = two.workers(2).model(Model::A).start().await.unwrap();
    kill(farm.workers()[1].pid.unwrap());
    let outcome = farm.run(&functions.sleep, vec![1; 1_000]).await.unwrap();
    assert!(outcome.stats.workers[1].lost.is_some());
    farm.finish(Duration::MAX).await.unwrap();
}

#[tokio::test]
async fn finishing_and_dropping_leave_no_process() {
    let (one, _) = builder();
    let farm = one.workers(2).start().await.unwrap();
    let started = pids(&farm);
    assert!(!started.iter().any(|&pid| is_gone(pid)));
    farm.finish(DEADLINE).await.unwrap();
    assert!(started.iter().all(|&pid| is_gone(pid)), "{started:?}");

    let (two, functions) = builder();
    let mut farm = two.workers(2).start().await.unwrap();
    let started = pids(&farm);
    // The run is dropped while its workers are at work.
    let run = farm.run(&functions.sleep, [3_600_000; 2]);
    assert!(timeout(Duration::from_millis(200), run).await.is_err());
    drop(farm);
    assert!(started.iter().all(|&pid| is_gone(pid)), "{started:?}");
}

#[tokio::test]
async fn finishing_names_workers_that_do_not_end() {
    // Tiny tasks run in the worker's I/O loop, and the last one stays there. On a busy
    // machine they may not look tiny, so the test tries more than once.
    for _ in 0..10 {
        let (builder, functions) = builder();
        let mut farm = builder.workers(1).start().await.unwrap();
        let started = pids(&farm);
        let run = farm.run(&functions.sleep, [0; 200].into_iter().chain([3_600_000]));
        assert!(timeout(Duration::from_millis(500), run).await.is_err());
        let events = Events::default();
        let _listening = events.listen();
        farm.finish(Duration::from_millis(200)).await.unwrap();
        assert!(started.iter().all(|&pid| is_gone(pid)), "{started:?}");
        let name = format!("worker 0 (process {})", started[0]);
        if events.count(&["WARN", &format!("{name} had not ended after 0.2 s")]) == 1 {
            return;
        }
    }
    panic!("no worker was found at work");
}

fn killed_farmer_leaves_nobody(portable: &str) {
    let mut farmer = Command::new(PROGRAM)
        .env("CHUNKCOMM_PORTABLE", portable)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(farmer.stdout.take().unwrap()).lines().take(2);
    let workers: Vec<u32> = lines.map(|line| line.unwrap().parse().unwrap()).collect();
    assert_eq!(workers.len(), 2);
    assert!(!workers.iter().any(|&pid| is_gone(pid)));
    kill(farmer.id());
    farmer.wait().unwrap();
    wait_until_gone(&workers);
}

#[test]
fn workers_end_with_a_killed_farmer() {
    killed_farmer_leaves_nobody("0");
}

#[test]
fn workers_end_with_a_killed_farmer_by_portable_means() {
    killed_farmer_leaves_nobody("1");
}

#[test]
fn workers_have_the_programs_arguments_or_those_they_are_given() {
    let output = Command::new(PROGRAM).args(["arguments", "5"]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told, "arguments 5\nothers\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// Those inherit the environment of a worker or a node.
#[tokio::test]
async fn a_program_that_a_task_or_a_node_starts_may_farm_and_cluster_itself() {
    let (builder, functions) = builder();
    let mut farm = builder.workers(1).start().await.unwrap();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let within = [words(&[PROGRAM, "arguments", "5"]), words(&[PROGRAM, "nest", "0"])];
    let outcome = farm.run(&functions.program, within).await.unwrap();
    assert_eq!(outcome.results, ["arguments 5\nothers\n", "level 0\n"]);

    let told = printed(&words(&[PROGRAM, "nest", "2"]));
    assert_eq!(told, "level 0\narguments 5\nothers\nlevel 1\narguments 5\nothers\nlevel 2\n");
}

#[tokio::test]
async fn registries_that_differ_are_refused_naming_both_sides() {
    for (told, theirs) in [
        (OTHER_TYPES, "has \"repeat\": Job{number: u32, text: str} -> str"),
        (FEWER, "has no function of that name"),
    ] {
        let (builder, _) = builder();
        let builder = builder.launcher(move |launcher| launcher.program(PROGRAM).env(told, "1"));
        let error = builder.start().await.unwrap_err();
        assert!(matches!(error, StartError::Differs { .. }), "{error}");
        let text = error.to_string();
        let ours = "the farmer registered \"repeat\": Job{number: u64, text: str} -> str, worker ";
        assert!(text.starts_with(ours), "{text}");
        assert!(text.ends_with(theirs), "{text}");
    }
}

#[tokio::test]
async fn a_function_of_another_registry_is_refused() {
    let (builder, _) = builder();
    let mut farm = builder.workers_as(WorkersAs::Thread).workers(1).start().await.unwrap();
    let mut other = Registry::new();
    let strange = other.register("strange", |number: u8| number);
    let error = farm.run(&strange, [1]).await.unwrap_err();
    assert_eq!(error.to_string(), "function \"strange\" is not in the farm's registry");
    let other_types = other.register("double", |number: u8| number);
    assert!(farm.run(&other_types, [1]).await.is_err());
}

#[tokio::test]
async fn programs_that_are_no_workers_are_told_apart() {
    let with = |program: &'static str| {
        let (builder, _) = builder();
        builder.launcher(move |launcher| launcher.program(program).args(["60"]))
    };
    let error = with("/bin/true").start().await.unwrap_err();
    let StartError::Lost { loss, .. } = &error else { panic!("{error}") };
    assert!(matches!(loss.cause(), Some(WorkerEnd::Exited(_))), "{error}");
    let told = "its process ended: exit status: 0 (a worker process must call serve_if_started";
    assert!(error.to_string().contains(told), "{error}");

    let late = with("/bin/sleep").start_deadline(Duration::from_millis(300));
    let error = late.start().await.unwrap_err();
    let StartError::Late { missing, .. } = &error else { panic!("{error}") };
    assert!(missing.iter().all(|worker| is_gone(worker.pid.unwrap())));
    let text = error.to_string();
    assert!(text.starts_with("not ready after 0.3 s: worker 0 (process "), "{text}");

    let error = with("/nowhere/at-all").start().await.unwrap_err();
    assert_eq!(error.to_string(), "the worker processes could not be started");
    assert!(Path::new(PROGRAM).exists());
}

/// Without a loopback interface, or without the socket, as here.
#[cfg(unix)]
#[tokio::test]
async fn a_farmer_that_nobody_reaches_says_so() {
    let folder = Scratch::folder("no-way");
    let socket = folder.join("farmer");
    let script = format!("rm {}; exit 1", socket.display());
    let listen = Some(Address::Unix(socket.clone()));
    let (builder, _) = builder();
    let builder = builder.messaging(Messaging { listen, ..Messaging::default() }).workers(1);
    let builder =
        builder.launcher(move |launcher| launcher.program("/bin/sh").args(["-c", &script]));
    let error = builder.start().await.unwrap_err();
    let StartError::Unreachable { cause, .. } = &error else { panic!("{error}") };
    let told = format!("{} cannot be reached", Address::Unix(socket));
    assert!(cause.to_string().starts_with(&told), "{cause}");
    assert!(!format!("{error:?}").contains("serve_if_started"), "{error:?}");
}

/// Runs `farm-program workers 40` with this limit of descriptors; returns what it prints.
fn forty_workers_with(descriptors: u32) -> (String, String) {
    let script = format!("ulimit -n {descriptors}; exec {PROGRAM} workers 40");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn a_farm_with_too_few_descriptors_names_the_limit() {
    let limit = |count| {
        format!(
            "Too many open files (os error 24): this process may have {count} at a time (ulimit -n)"
        )
    };
    // Too few for the children's pipes.
    let (told, _) = forty_workers_with(50);
    assert!(told.starts_with("the worker processes could not be started: "), "{told}");
    assert!(told.ends_with(&(limit(50) + "\n")), "{told}");
    // Enough for the children, but not for their connections.
    let (told, warned) = forty_workers_with(100);
    assert!(told.starts_with("not ready after 5 s: worker "), "{told}");
    assert!(!told.contains("serve_if_started"), "{told}");
    for text in [&told, &warned] {
        assert!(text.contains("no connection can be accepted at tcp://127.0.0.1:"), "{text}");
        assert!(text.contains(&limit(100)), "{text}");
    }
}

/// Otherwise the program would start copies of itself that start copies of themselves.
#[tokio::test]
async fn a_program_that_forgets_to_serve_ends_at_its_own_farm() {
    let (builder, _) = builder();
    let builder = builder.launcher(|launcher| launcher.program(PROGRAM).env(FORGETS, "1"));
    let error = builder.workers(1).start().await.unwrap_err();
    let told = "its process ended: exit status: 1 (a worker process must call serve_if_started";
    assert!(error.to_string().contains(told), "{error}");
}

#[tokio::test]
async fn impossible_settings_say_what_is_allowed() {
    let refused = [
        (builder().0.workers(0), "a farm with workers 0: allowed is 1 to 1024"),
        (builder().0.workers(5_000), "a farm with workers 5000: allowed is 1 to 1024"),
        (builder().0.prefetch(Prefetch::Fixed(0)), "a farm with prefetch 0: allowed is 1 or more"),
        (builder().0.grain(0), "a farm with grain 0: allowed is 1 or more"),
    ];
    for (builder, text) in refused {
        assert_eq!(builder.start().await.unwrap_err().to_string(), text);
    }
}

#[tokio::test]
async fn a_dropped_run_does_not_show_in_the_next() {
    for workers_as in [WorkersAs::Process, WorkersAs::Thread] {
        let (builder, functions) = builder();
        let builder = builder.workers_as(workers_as).prefetch(Prefetch::Fixed(8));
        let mut farm = builder.start().await.unwrap();
        for _ in 0..3 {
            let run = farm.run(&functions.sleep, [20; 1_000]);
            assert!(timeout(Duration::from_millis(100), run).await.is_err());
            let outcome = farm.run(&functions.double, 0..500).await.unwrap();
            assert_eq!(outcome.results, (0..500).map(|number| number * 2).collect::<Vec<u64>>());
        }
        farm.finish(DEADLINE).await.unwrap();
    }
}

#[tokio::test]
async fn large_tasks_and_large_results_pass_each_other() {
    // The bytes are more than either channel holds, so both ends must go on reading.
    let (builder, functions) = builder();
    let mut farm = builder.prefetch(Prefetch::Fixed(8)).start().await.unwrap();
    let task = |at: usize| vec![at as u8; 1 << 18];
    let outcome = farm.run(&functions.echo, (0..20).map(task)).await.unwrap();
    assert!(outcome.results.iter().enumerate().all(|(at, result)| *result == task(at)));
    farm.finish(DEADLINE).await.unwrap();
}

/// Messages of at most these bytes.
fn of_bytes(bytes: usize) -> Messaging {
    Messaging { message_bytes_max: Some(bytes), ..Messaging::default() }
}

#[tokio::test]
async fn what_is_too_large_is_an_error_that_names_the_task() {
    let (builder, functions) = builder();
    let mut farm = builder.messaging(of_bytes(1 << 20)).start().await.unwrap();
    let error = farm.run(&functions.bytes, [1, 2, 3 << 20, 4]).await.unwrap_err();
    let RunError::Task(TaskError::Failed { index: 2, text, .. }) = &error else {
        panic!("{error}")
    };
    let told = text.strip_prefix("its result could not be sent: a message of ").unwrap();
    let (bytes, told) = told.split_once(' ').unwrap();
    assert!((3 << 20..3 << 20 | 64).contains(&bytes.parse::<u64>().unwrap()), "{text}");
    assert_eq!(told, "bytes, where the peer takes at most 1048576");

    let tasks = [1, 3 << 20].map(|bytes| vec![0; bytes]);
    let error = farm.run(&functions.echo, tasks).await.unwrap_err();
    let RunError::TooLarge { index: 1, worker, bytes, .. } = &error else { panic!("{error}") };
    let sizes = format!("{bytes} bytes, allowed are 1048576 (message_bytes_max)");
    assert_eq!(error.to_string(), format!("task 1 is too large for {worker}: {sizes}"));
    assert!((3 << 20..3 << 20 | 64).contains(bytes), "{bytes}");
    assert_eq!(farm.run(&functions.double, [3]).await.unwrap().results, [6]);
    farm.finish(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn measured_assignments_stay_within_a_message() {
    let (builder, functions) = builder();
    let mut farm = builder.messaging(of_bytes(20_000)).start().await.unwrap();
    let task = |at: usize| vec![at as u8; 1 + at % 3 * 7_000];
    let outcome = farm.run(&functions.echo, (0..2_000).map(task)).await.unwrap();
    assert!(outcome.results.iter().enumerate().all(|(at, result)| *result == task(at)));
    farm.finish(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn tiny_tasks_that_turn_out_long_are_done_too() {
    // The tasks move into the worker's I/O loop and out of it again.
    let (builder, functions) = builder();
    let mut farm = builder.prefetch(Prefetch::Fixed(16)).start().await.unwrap();
    let us = |at: u64| if at % 500 == 499 { 3_000 } else { 0 };
    let outcome = farm.run(&functions.spin, (0..4_000).map(us)).await.unwrap();
    assert_eq!(outcome.results.len(), 4_000);
    assert!(outcome.stats.busy() >= Duration::from_millis(8 * 3));
    farm.finish(DEADLINE).await.unwrap();
}

/// The loop is held up for longer than the silence that ends other sessions.
#[tokio::test]
async fn a_worker_whose_loop_is_held_up_for_long_is_not_given_up() {
    let (builder, functions) = builder();
    let mut farm = builder.prefetch(Prefetch::Fixed(4)).start().await.unwrap();
    let tasks = [0; 200].into_iter().chain([12_000]).chain([0; 50]);
    let outcome = farm.run(&functions.sleep, tasks).await.unwrap();
    assert_eq!(outcome.results.len(), 251);
    farm.finish(DEADLINE).await.unwrap();
}

#[test]
fn every_runtime_runs_a_farm() {
    let run = |runtime: Runtime| async move {
        let (builder, functions) = builder();
        let mut farm =
            builder.messaging(Messaging { runtime, ..Messaging::default() }).start().await.unwrap();
        let outcome = farm.run(&functions.double, 0..5_000).await.unwrap();
        assert_eq!(outcome.results[4_999], 9_998, "{runtime:?}");
        farm.finish(DEADLINE).await.unwrap();
    };
    let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let multi = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for runtime in [Runtime::Ambient, Runtime::IoThread, Runtime::BusyPoll] {
        current.block_on(run(runtime));
    }
    for runtime in [Runtime::Ambient, Runtime::IoThread] {
        multi.block_on(run(runtime));
    }
    // A task that moves between threads may also hold a farm.
    multi.block_on(async { tokio::spawn(run(Runtime::Ambient)).await.unwrap() });
}
