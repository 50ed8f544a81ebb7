//! Farms whose workers are killed and stopped, and whose farmer is disturbed by strangers.

use std::time::Duration;

use super::farm::{DEADLINE, PROGRAM, builder, pids};
use super::nodes::free_address;
use chunkcomm::codec::encode_into_vec;
use chunkcomm::{BytesDuplex, Node, SendError};
use chunkcomm_farm::{Farm, FarmBuilder, Loss, Model, Prefetch, StartError};
use chunkcomm_testkit::proc;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{Scratch, until_some};
use chunkcomm_tests::farm_tasks::Functions;
use rustix::process::Signal;
use serde::Serialize;
use tokio::time::timeout;

/// Name of the variable that marks the workers of one round.
const ROUND: &str = "FARM_TEST_ROUND";

/// Checks the error of a step that a killed worker ended, and the name in it.
fn killed(victims: &[u32], pid: Option<u32>, loss: &Loss, told: &str) {
    assert!(pid.is_some_and(|pid| victims.contains(&pid)), "{victims:?}: {told}");
    assert!(matches!(loss, Loss::Exited(_)), "{told}");
    assert!(told.contains("signal: 9 (SIGKILL)"), "{told}");
}

/// Runs a farm from its start to its end, whatever is done to it.
async fn whole_life(builder: FarmBuilder, functions: &Functions, victims: impl Fn() -> Vec<u32>) {
    let mut farm = match builder.start().await {
        Ok(farm) => farm,
        Err(error) => {
            let StartError::Lost { worker, loss } = &error else { panic!("{error}") };
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
    let error = farm.finish(Duration::from_secs(3)).await.unwrap_err();
    let told = format!("the farm did not end well: {victim}: it was still at work after 3 s");
    assert_eq!(error.to_string(), told);
    assert!(started.iter().all(|&pid| proc::is_gone(pid)), "{started:?}");
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
        let mut duplex = node.open_duplex_bytes(&peer, "farm.default").await.unwrap();
        if let Some(guess) = guess {
            // The farmer may have closed the duplex, which is its answer to other guesses.
            let _ = duplex.sender().send_slice_now(guess).await;
        }
        duplexes.push(duplex);
    }
    // Workers before version 4 opened a channel of one direction.
    let mut old = node.open_bytes(&peer, "farm.default").await.unwrap();
    let refused = timeout(DEADLINE, old.closed()).await.expect("it is not left waiting");
    assert!(matches!(refused, SendError::Refused(_)), "{refused}");
    (node, duplexes)
}

/// The first message of a worker.
#[derive(Serialize)]
enum Hello {
    Started { token: [u8; 16], index: u64 },
}

#[tokio::test]
async fn strangers_that_say_nothing_or_guess_do_not_keep_the_workers_out() {
    // The oldest and the newest version, then the identity of a worker.
    let mut guess = vec![4, 0, 4, 0];
    encode_into_vec(&Hello::Started { token: [7; 16], index: 0 }, &mut guess).unwrap();
    for guess in [Some(&guess[..]), None] {
        let file = Scratch::new("farm-enemies");
        let wait =
            format!("until [ -e '{}' ]; do sleep 0.05; done; exec {PROGRAM}", file.display());
        let address = free_address();
        let (builder, functions) = builder();
        let builder = builder
            .listen(format!("tcp://{address}").parse().unwrap())
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
