//! Counts primes with a farm: workers try the numbers of ranges one by one, and add up the counts of
//! neighbouring ranges; the farmer adds up the rest. A sieve checks the sum.
//!
//! ```text
//! cargo run --release --example primes -- --up-to 5000000 --range 10000
//! ```

use std::error::Error;
use std::process::ExitCode;

use chunkcomm_cluster::Registry;
use chunkcomm_examples::command_line::{numbers, parse, write_out};
use chunkcomm_examples::farm_options::FarmOptions;
use chunkcomm_examples::farm_report::Report;
use chunkcomm_examples::farming::{FINISH_DEADLINE, start};
use chunkcomm_examples::program::failed;
use chunkcomm_farm::{MapReduce, RegistryExt as _, serve_if_started};
use clap::Parser;

/// A byte each is the memory of the sieve.
const NUMBER_MAX: u64 = 1_000_000_000;

/// Counts the primes up to a number with a farm, and checks the count with a sieve.
#[derive(Parser, Clone, Debug)]
#[command(name = "primes", version)]
struct Options {
    /// Last number to try
    #[arg(long, value_name = "N", value_parser = numbers::<u64>(1..=NUMBER_MAX), default_value_t = 5_000_000)]
    up_to: u64,

    /// Numbers in a range
    #[arg(long, value_name = "N", value_parser = numbers::<u64>(1..=NUMBER_MAX), default_value_t = 10_000)]
    range: u64,

    /// See [`FarmOptions`].
    #[command(flatten)]
    farm: FarmOptions,
}

/// Counts the primes of a range by trial division.
fn primes_in((first, last): (u64, u64)) -> u64 {
    (first..=last).filter(|number| is_prime(*number)).count() as u64
}

fn is_prime(number: u64) -> bool {
    let mut divisors = (3..).step_by(2).take_while(|divisor| divisor * divisor <= number);
    number == 2
        || number > 2
            && !number.is_multiple_of(2)
            && divisors.all(|divisor| !number.is_multiple_of(divisor))
}

/// Counts the primes up to `last` by the sieve of Eratosthenes.
fn sieved(last: u64) -> u64 {
    let mut is_crossed = vec![false; last as usize + 1];
    let mut count = 0;
    for number in 2..=last as usize {
        if !is_crossed[number] {
            count += 1;
            let multiples = is_crossed.iter_mut().skip(number * number).step_by(number);
            multiples.for_each(|is_crossed| *is_crossed = true);
        }
    }
    count
}

fn main() -> ExitCode {
    let mut registry = Registry::new();
    let count = registry.register_map_reduce("primes", primes_in, |one, next| one + next);
    serve_if_started(&registry); // a worker process goes no further

    let options = parse::<Options>();
    match farm_out(options, registry, &count) {
        Ok(is_right) => ExitCode::from(u8::from(!is_right)),
        Err(error) => failed("primes", &*error),
    }
}

/// Counts with the farm and by the sieve; returns whether the counts are equal.
#[tokio::main(flavor = "current_thread")]
async fn farm_out(
    options: &Options,
    registry: Registry,
    count: &MapReduce<(u64, u64), u64>,
) -> Result<bool, Box<dyn Error>> {
    let Options { up_to, range, .. } = *options;
    let mut farm = start(&options.farm, registry, None).await?;
    let firsts = (1..=up_to).step_by(range as usize);
    let ranges = firsts.map(|first| (first, up_to.min(first + range - 1)));
    let counted = farm.map_reduce(count, ranges).await?;
    farm.finish(FINISH_DEADLINE).await?;
    options.farm.write_timeline(&counted.stats)?;

    let (primes, expected) = (counted.value.unwrap_or(0), sieved(up_to));
    let mut report = Report::default();
    report.row("primes", format_args!("{primes} up to {up_to}, by ranges of {range} numbers"));
    report.run(&options.farm, false, None, &counted.stats);
    report.row("check", format_args!("the sieve finds {expected}"));
    write_out(report.text())?;
    Ok(primes == expected)
}
