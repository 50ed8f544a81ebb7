//! A farm of worker processes, one a processor: counts the primes below a million.
//!
//! ```text
//! cargo run --release --example pool
//! ```

use std::error::Error;
use std::time::Duration;

use chunkcomm_cluster::{Function, Registry};
use chunkcomm_farm::{Farm, serve_if_started};

const BLOCK: u64 = 1_000;
const BLOCKS: u64 = 1_000;
/// Number of primes below `BLOCK * BLOCKS`.
const PRIMES: u64 = 78_498;
const DEADLINE: Duration = Duration::from_secs(10);

/// Counts the primes of a block: the task of a worker.
fn primes_in(block: u64) -> u64 {
    let is_prime = |number: &u64| {
        *number > 1
            && (2..).take_while(|it| it * it <= *number).all(|it| !number.is_multiple_of(it))
    };
    (block * BLOCK..(block + 1) * BLOCK).filter(is_prime).count() as u64
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut registry = Registry::new();
    let function = registry.register("primes", primes_in);
    serve_if_started(&registry); // a worker process goes no further
    farm_out(registry, &function)
}

#[tokio::main(flavor = "current_thread")]
async fn farm_out(registry: Registry, function: &Function<u64, u64>) -> Result<(), Box<dyn Error>> {
    let mut farm = Farm::builder(registry).start().await?;
    let outcome = farm.run(function, 0..BLOCKS).await?;
    farm.finish(DEADLINE).await?;
    assert_eq!(outcome.results.iter().sum::<u64>(), PRIMES);
    println!("{PRIMES} primes, counted by {} workers", outcome.stats.workers.len());
    Ok(())
}
