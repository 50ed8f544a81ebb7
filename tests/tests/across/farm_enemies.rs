//! Farms whose workers are killed and stopped, and whose farmer is disturbed by strangers.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::farm::{DEADLINE, PROGRAM, builder, pids};
use super::farm_cluster;
use super::nodes::free_address;
use chunkcomm::Loss;
use chunkcomm::codec::encode_into_vec;
use chunkcomm::{BytesDuplex, Node, SendError};
use chunkcomm_farm::settings::{Messaging, Model, Prefetch, TaskTimeout};
use chunkcomm_farm::{Farm, FarmBuilder, StartError, TaskError, WorkerEnd};
use chunkcomm_testkit::events::Events;
use chunkcomm_testkit::proc;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{Scratch, blocking, until_some};
use chunkcomm_tests::farm_tasks::Functions;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use tokio::time::timeout;

/// Name of the variable that marks the workers of one round.
const ROUND: &str = "FARM_TEST_ROUND";

/// Checks the error of a step that a killed worker ended, and the name in it.
fn killed(victims: &[u32], pid: Option<u32>, loss: &Loss, told: &str) {
    assert!(pid.is_some_and(|pid| victims.contains(&pid)), "{victims:?}: {told}");
    assert!(matches!(loss.cause(), Some(WorkerEnd::Exited(_))), "{told}");
    assert!(told.contains("signal: 9 (SIGKILL)"), "{told}");
}

/// Runs a farm from its start to its end, whatever is done to it.
async fn whole_life(builder: FarmBuilder, functions: &Functions, victims: impl Fn() -> Vec<u32>) {
    let mut farm = match builder.start().await {
        Ok(farm) => farm,
        Err(error) => {
            let StartError::Lost { worker, loss, .. } = &error else { panic!("{error}") };
            return killed(&victims(), worker.pid, loss, &error.to_string());
        }
    };
    let started = pids(&farm);
    let outcome = farm.run(&functions.spin, (0..400).map(|at| at % 100)).await.unwrap();
    assert_eq!(outcome.results.len(), 400);
    for worker in &outcome.stats.workers {
        if let Some(loss) = &worker.lost {
            killed(&victims(), worker.worker.pid, loss, &loss.to_string());
        }
    }
    if let Err(error) = farm.finish(DEADLINE).await {
        for (worker, loss) in &error.workers {
            killed(&victims(), worker.pid, loss, &error.to_string());
        }
    }
    assert!(started.iter().all(|&pid| proc::is_gone(pid)), "{started:?}");
}

#[tokio::test]
async fn workers_killed_at_any_moment_lose_no_task_and_are_named_with_the_signal() {
    let mut random = seeded(15);
    for round in 0..40 {
        let mark = format!("{}-{round}", std::process::id());
        let (builder, functions) = builder();
        let depth = u32::try_from(1 + random.below(4)).unwrap();
        let builder = builder.workers(3).prefetch(Prefetch::Fixed(depth)).launcher({
            let mark = mark.clone();
            move |launcher| launcher.program(PROGRAM).env(ROUND, mark)
        });
        let (after_us, mut count) = (random.below(120_000), 1 + random.below(3));
        let victims = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let killer = std::thread::spawn({
            let victims = victims.clone();
            move || {
                std::thread::sleep(Duration::from_micros(after_us));
                for pid in proc::with_variable(ROUND, &mark) {
                    if count > 0 {
                        victims.lock().unwrap().push(pid);
                        proc::try_signal(pid, Signal::KILL);
                        count -= 1;
                    }
                }
            }
        });
        let victims = || victims.lock().unwrap().clone();
        let life = timeout(DEADLINE, whole_life(builder, &functions, victims)).await;
        assert!(life.is_ok(), "round {round}: the farm does not end");
        killer.join().unwrap();
    }
}

/// Silence is no death: a stopped worker may go on, as does one that computes. Another does its
/// tasks meanwhile.
#[tokio::test]
async fn the_tasks_of_a_stopped_worker_are_copied_and_finishing_names_it() {
    let (builder, functions) = builder();
    let mut farm = builder.start().await.unwrap();
    let (started, victim) = (pids(&farm), farm.workers()[1].clone());
    proc::signal(started[1], Signal::STOP);
    let run = timeout(DEADLINE, farm.run(&functions.spin, [100; 200])).await;
    let outcome = run.expect("the other goes on").unwrap();
    assert!(outcome.stats.mishaps.copied > 0);
    assert_eq!(outcome.stats.workers[1].tasks, 0);
    proc::signal(started[1], Signal::CONT);
    let outcome = timeout(DEADLINE, farm.run(&functions.double, 0..200)).await;
    assert_eq!(outcome.expect("it goes on").unwrap().results[199], 398);

    proc::signal(started[1], Signal::STOP);
    let events = Events::default();
    let _listening = events.listen();
    farm.finish(Duration::from_secs(3)).await.expect("all results are there");
    let told = format!("{victim} had not ended after 3 s: it is killed");
    assert_eq!(events.count(&["WARN", &told]), 1, "{events:?}");
    assert!(started.iter().all(|&pid| proc::is_gone(pid)), "{started:?}");
}

/// A time that no task of these tests needs.
const TIMEOUT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_stopped_worker_is_replaced_where_tasks_have_a_time() {
    let (builder, functions) = builder();
    let mut farm = builder.task_timeout(TIMEOUT).start().await.unwrap();
    let victim = farm.workers()[1].clone();
    proc::signal(victim.pid.unwrap(), Signal::STOP);
    let run = timeout(DEADLINE, farm.run(&functions.double, 0..200)).await;
    let outcome = run.expect("it does not wait for ever").unwrap();
    assert_eq!(outcome.results, (0..200).map(|number| number * 2).collect::<Vec<u64>>());
    let lost = outcome.stats.workers[1].lost.clone().unwrap();
    assert!(matches!(lost.cause(), Some(WorkerEnd::Silent(_))), "{lost}");
    assert_eq!(lost.to_string(), "it had tasks and answered nothing for 5 s");
    proc::wait_until_gone(&[victim.pid.unwrap()]);
    farm.finish(DEADLINE).await.unwrap();
}

/// The farm did not start it, so it cannot end it. When it goes on it may come again.
#[tokio::test]
async fn a_stopped_node_is_dropped_where_tasks_have_a_time() {
    let (cluster, others) = farm_cluster::cluster(3, &[]).await;
    let (builder, functions) = farm_cluster::builder();
    let limit = TaskTimeout { timeout: TIMEOUT, grace: Duration::from_millis(10) };
    let builder = builder.task_timeout(limit);
    let mut farm = builder.start_in(&cluster).await.unwrap();
    let victim = others.pids()[1];
    proc::signal(victim, Signal::STOP);
    let run = timeout(DEADLINE, farm.run(&functions.double, 0..200)).await;
    let outcome = run.expect("it does not wait for ever").unwrap();
    assert_eq!(outcome.results, (0..200).map(|number| number * 2).collect::<Vec<u64>>());
    let lost = outcome.stats.workers[1].lost.clone().unwrap();
    assert!(matches!(lost.cause(), Some(WorkerEnd::Silent(_))), "{lost}");
    proc::signal(victim, Signal::CONT);
    let comes = async {
        while !farm.run(&functions.sleep, [20; 20]).await.unwrap().results.contains(&victim) {}
    };
    timeout(DEADLINE, comes).await.expect("it comes again");
    farm.finish(DEADLINE).await.unwrap();
    others.end_with(cluster).await;
}

#[tokio::test]
async fn a_task_that_stops_its_process_ends_as_one_that_took_too_long() {
    let (builder, functions) = builder();
    let limit = TaskTimeout { timeout: TIMEOUT, grace: Duration::from_millis(10) };
    let builder = builder.task_timeout(limit);
    let mut farm = builder.start().await.unwrap();
    let run = timeout(DEADLINE, farm.run_to_end(&functions.stops, 0..100)).await;
    let outcome = run.expect("it does not wait for ever").unwrap();
    for (number, result) in outcome.results.iter().enumerate() {
        match result {
            Ok(result) => assert_eq!((*result, number != 13), (number as u64, true)),
            Err(error) => {
                assert!(matches!(error, TaskError::TimedOut { index: 13, .. }), "{error}");
            }
        }
    }
    assert!(outcome.results[13].is_err());
    let next = timeout(DEADLINE, farm.run(&functions.double, 0..100)).await.unwrap();
    assert_eq!(next.unwrap().results[99], 198);
    farm.finish(DEADLINE).await.unwrap();
}

/// As Ctrl-Z and `fg` do. The stop is longer than tasks and workers have time.
#[test]
fn a_stop_of_all_processes_costs_no_task_and_no_worker() {
    let mut command = Command::new(PROGRAM);
    command.arg("timed").stdout(Stdio::piped()).process_group(0);
    let mut farmer = proc::Program(command.spawn().unwrap());
    let mut lines = BufReader::new(farmer.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("it runs"));
    let group = Pid::from_child(&farmer.0);
    std::thread::sleep(Duration::from_millis(700));
    kill_process_group(group, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_secs(7));
    kill_process_group(group, Signal::CONT).unwrap();
    assert_eq!(lines.next().as_deref(), Some("24 results, 0 lost"));
}

/// Nobody ends it: it may compute. But the farmer says which one it waits for.
#[test]
fn a_stopped_worker_is_named_where_tasks_have_no_time() {
    let said = Scratch::new("farm-stopped");
    let mut command = Command::new(PROGRAM);
    command.stdout(Stdio::piped()).stderr(std::fs::File::create(&said).unwrap());
    let mut farmer = proc::Program(command.spawn().unwrap());
    let mut lines = BufReader::new(farmer.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pids: Vec<u32> = (0..2).map(|_| lines.next().unwrap().parse().unwrap()).collect();
    proc::signal(pids[1], Signal::STOP);
    let warning =
        format!("worker 1 (process {}) has 1 task and has answered nothing for 10 s", pids[1]);
    let said = || std::fs::read_to_string(&said).unwrap();
    blocking::until("the worker is named", || said().contains(&warning));
    assert!(!said().contains("worker 0"), "{}", said());
    proc::signal(farmer.0.id(), Signal::USR1);
    let waits = format!("waits for an answer of worker 1 (process {}), which has 1 task", pids[1]);
    blocking::until("the report names it", || said().contains(&waits));
    assert_eq!(said().matches(&warning).count(), 1);
}

/// The task must not read the pipe from the farmer.
#[tokio::test]
async fn a_task_that_reads_standard_input_finds_its_end() {
    let (builder, functions) = builder();
    let mut farm = builder.start().await.unwrap();
    let run = timeout(DEADLINE, farm.run(&functions.input, [(), ()])).await;
    assert_eq!(run.expect("it does not wait").unwrap().results, [b"", b""]);
    farm.finish(DEADLINE).await.unwrap();
}

/// Started after the farmer's own worker, this one has another index than its place.
#[tokio::test]
async fn a_worker_that_stops_says_its_own_name() {
    let file = Scratch::new("farm-told");
    let script = format!("CHUNKCOMM_FARM_WORKER=x exec {PROGRAM} 2>'{}'", file.display());
    let (builder, _) = builder();
    let builder = builder
        .model(Model::A)
        .launcher(|launcher| launcher.program("/bin/sh").args(["-c".to_owned(), script]));
    let error = builder.start().await.unwrap_err();
    let StartError::Lost { worker, .. } = &error else { panic!("{error}") };
    let told = std::fs::read_to_string(&file).unwrap();
    assert!(told.starts_with(&format!("{worker} stops: ")), "{worker}: {told}");
}

/// Opens duplexes as workers do, and sends nothing or a guess on each.
async fn bother(farmer: &str, guess: Option<&[u8]>) -> (Node, Vec<BytesDuplex>) {
    let node = Node::builder().name("enemy").build().await.unwrap();
    let farmer = farmer.parse().unwrap();
    let peer = until_some(|| async { node.connect(&farmer).await.ok() }).await;
    let mut duplexes = Vec::new();
    for _ in 0..300 {
        let mut duplex = node.open_duplex_bytes(&peer, "chunkcomm-farm.default").await.unwrap();
        if let Some(guess) = guess {
            // The farmer may have closed the duplex, which is its answer to other guesses.
            let _ = duplex.sender().send_slice_now(guess).await;
        }
        duplexes.push(duplex);
    }
    // A channel of one direction.
    let mut half = node.open_bytes(&peer, "chunkcomm-farm.default").await.unwrap();
    let refused = timeout(DEADLINE, half.closed()).await.expect("it is not left waiting");
    assert!(matches!(refused, SendError::Refused(_)), "{refused}");
    (node, duplexes)
}

/// The first message of a worker.
#[derive(Serialize)]
struct Hello {
    who: Who,
    threads: u32,
    functions: Vec<()>,
}

#[derive(Serialize)]
enum Who {
    Started { token: [u8; 16], index: u64 },
}

#[tokio::test]
async fn strangers_that_say_nothing_or_guess_do_not_keep_the_workers_out() {
    // The oldest and the newest version, then the statement of a worker.
    let mut guess = vec![1, 0, 1, 0];
    let who = Who::Started { token: [7; 16], index: 0 };
    encode_into_vec(&Hello { who, threads: 1, functions: Vec::new() }, &mut guess).unwrap();
    for guess in [Some(&guess[..]), None] {
        let file = Scratch::new("farm-enemies");
        let wait =
            format!("until [ -e '{}' ]; do sleep 0.05; done; exec {PROGRAM}", file.display());
        let address = free_address();
        let (builder, functions) = builder();
        let builder = builder
            .messaging(Messaging {
                listen: Some(format!("tcp://{address}").parse().unwrap()),
                ..Messaging::default()
            })
            .launcher(|launcher| launcher.program("/bin/sh").args(["-c".to_owned(), wait]));
        let farmer = format!("tcp://{address}");
        let enemy = async {
            let enemies = bother(&farmer, guess).await;
            // The workers come only now.
            std::fs::write(&file, "").unwrap();
            enemies
        };
        let (farm, _enemies) = tokio::join!(builder.start(), enemy);
        let mut farm: Farm = farm.unwrap();
        assert_eq!(farm.run(&functions.double, [21]).await.unwrap().results, [42]);
        farm.finish(DEADLINE).await.unwrap();
    }
}
