//! A program with a farm: the worker process of the farm tests, and, started by
//! hand, a farmer that prints the process ids of its workers and then waits for
//! a task that takes an hour.

use std::error::Error;
use std::io::Write as _;

use chunkcomm_farm::{Farm, serve_if_started};
use chunkcomm_tests::farm_tasks::{FORGETS, registry, worker_registry};

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os(FORGETS).is_none() {
        serve_if_started(&worker_registry());
    }
    let (registry, functions) = registry();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut farm = Farm::builder(registry).workers(2).start().await?;
        for worker in farm.workers() {
            println!("{}", worker.pid.ok_or("a worker is no process")?);
        }
        std::io::stdout().flush()?;
        farm.run(&functions.sleep, [3_600_000; 2]).await?;
        Ok(())
    })
}
