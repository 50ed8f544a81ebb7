//! A farm in which things go wrong: one task returns an error, one panics, and one worker is
//! killed in the middle. The program reports each mishap, and gives every task an outcome.
//!
//! ```text
//! cargo run --release --example mishaps
//! ```
//!
//! The exit status is 1, since two tasks have no result.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use chunkcomm::with_causes;
use chunkcomm_cluster::{Function, Registry};
use chunkcomm_farm::{Farm, RunError, WorkerName, serve_if_started};

const TASKS: u64 = 20_000;
const REFUSED: u64 = 3_000;
const UNLUCKY: u64 = 7_000;
const DEADLINE: Duration = Duration::from_secs(60);

/// The outcome of each task, by its number.
type Outcomes = BTreeMap<u64, Result<u64, String>>;

/// The number of steps by the rule of Collatz from a number to 1.
fn steps(start: u64) -> Result<u64, String> {
    if start == REFUSED {
        return Err(format!("refused, in process {}", std::process::id()));
    }
    assert!(start != UNLUCKY, "{start} is unlucky");
    Ok(collatz(start))
}

fn collatz(start: u64) -> u64 {
    let mut number = start.max(1);
    let mut steps = 0;
    while number != 1 {
        number = if number.is_multiple_of(2) { number / 2 } else { 3 * number + 1 };
        steps += 1;
    }
    steps
}

fn main() -> ExitCode {
    let mut registry = Registry::new();
    let function = registry.register("steps", steps);
    serve_if_started(&registry); // a worker process goes no further

    let started = Instant::now();
    match farm_out(&registry, &function) {
        Ok(outcomes) => {
            let failed = report(&outcomes);
            println!("{failed} of {TASKS} tasks failed, {:.1} s", started.elapsed().as_secs_f64());
            ExitCode::from(u8::from(failed > 0))
        }
        Err(error) => {
            eprintln!("mishaps: {}", with_causes(&*error));
            ExitCode::from(2)
        }
    }
}

/// Runs the tasks without an outcome until none is left: a panic ends a run, a death also the
/// farm.
#[tokio::main(flavor = "current_thread")]
async fn farm_out(
    registry: &Registry,
    function: &Function<u64, Result<u64, String>>,
) -> Result<Outcomes, Box<dyn Error>> {
    let start = || Farm::builder(registry.clone()).workers(3).start();
    let mut farm = start().await?;
    let victim = farm.workers()[1].clone();
    let mut outcomes = Outcomes::new();
    loop {
        let tasks: Vec<u64> = (0..TASKS).filter(|task| !outcomes.contains_key(task)).collect();
        let run = farm.run_as_completed(function, tasks.iter().copied(), |index, outcome| {
            outcomes.insert(tasks[index as usize], outcome);
            if outcomes.len() as u64 == TASKS / 2 {
                kill(&victim);
            }
        });
        match run.await {
            Ok(_) => break,
            Err(RunError::Task { index, worker, text, .. }) => {
                outcomes.insert(tasks[index as usize], Err(format!("{text}, at {worker}")));
            }
            Err(error @ RunError::Lost { .. }) => {
                println!("{error}");
                if let Err(error) = farm.finish(DEADLINE).await {
                    println!("{error}");
                }
                farm = start().await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    farm.finish(DEADLINE).await?;
    Ok(outcomes)
}

/// Kills a worker, as the system does when memory is short.
fn kill(victim: &WorkerName) {
    let pid = victim.pid.unwrap_or_default().to_string();
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    println!("killed {victim}: {}", killed.is_ok_and(|status| status.success()));
}

/// Prints the failures and checks the other outcomes; returns the number of failures.
fn report(outcomes: &Outcomes) -> usize {
    for (task, outcome) in outcomes {
        match outcome {
            Ok(steps) => assert_eq!(*steps, collatz(*task)),
            Err(text) => println!("task {task}: {text}"),
        }
    }
    outcomes.values().filter(|outcome| outcome.is_err()).count()
}
