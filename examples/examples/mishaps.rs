//! A farm in which things go wrong: one task returns an error, one panics, one ends its process,
//! and one worker is killed in the middle. Every task has an outcome all the same.
//!
//! ```text
//! cargo run --release --example mishaps
//! ```
//!
//! The exit status is 1, since three tasks have no result.

use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use chunkcomm::with_causes;
use chunkcomm_cluster::{Function, Registry};
use chunkcomm_farm::{Farm, Outcome, TaskError, WorkerName, serve_if_started};

const TASKS: u64 = 20_000;
const REFUSED: u64 = 3_000;
const UNLUCKY: u64 = 7_000;
const DEADLY: u64 = 11_000;
const DEADLINE: Duration = Duration::from_secs(60);

/// Outcome of each task: the farm's error, or the value that the function returned.
type Outcomes = Outcome<Result<Result<u64, String>, TaskError>>;

/// The number of steps by the rule of Collatz from a number to 1.
fn steps(start: u64) -> Result<u64, String> {
    if start == REFUSED {
        return Err(format!("refused, in process {}", std::process::id()));
    }
    assert!(start != UNLUCKY, "{start} is unlucky");
    if start == DEADLY {
        std::process::exit(9);
    }
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

#[tokio::main(flavor = "current_thread")]
async fn farm_out(
    registry: &Registry,
    function: &Function<u64, Result<u64, String>>,
) -> Result<Outcomes, Box<dyn Error>> {
    let mut farm = Farm::builder(registry.clone()).workers(3).start().await?;
    let victim = farm.workers()[1].clone();
    let tasks = (0..TASKS).inspect(|task| {
        if *task == TASKS / 2 {
            kill(&victim);
        }
    });
    let outcomes = farm.run_to_end(function, tasks).await?;
    farm.finish(DEADLINE).await?;
    Ok(outcomes)
}

/// Kills a worker, as the system does when memory is short.
fn kill(victim: &WorkerName) {
    let pid = victim.pid.unwrap_or_default().to_string();
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    println!("killed {victim}: {}", killed.is_ok_and(|status| status.success()));
}

/// Prints the mishaps and checks the other outcomes; returns the number of tasks that failed.
fn report(outcomes: &Outcomes) -> usize {
    let mut failed = 0;
    for (task, outcome) in (0..).zip(&outcomes.results) {
        let why = match outcome {
            Ok(Ok(steps)) => {
                assert_eq!(*steps, collatz(task));
                continue;
            }
            Ok(Err(refused)) => refused.clone(),
            Err(error) => with_causes(error),
        };
        println!("task {task}: {why}");
        failed += 1;
    }
    for worker in &outcomes.stats.workers {
        if let Some(loss) = &worker.lost {
            println!("{} was lost: {loss}", worker.worker);
        }
    }
    println!("{} tasks were given out again", outcomes.stats.mishaps.reissued);
    failed
}
