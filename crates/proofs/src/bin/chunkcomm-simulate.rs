//! Runs the simulator over seeds, or shows one of them.

use chunkcomm_proofs::{Coverage, GraphOutcome, Outcome, run, run_graph};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const HELP: &str = "\
usage: chunkcomm-simulate [--seeds COUNT] [--from SEED] [--threads COUNT]
       chunkcomm-simulate --seed SEED [--trace]
       chunkcomm-simulate --graphs COUNT [--from SEED] | --graph SEED

Runs both ends of sessions under virtual time, with faults, by seed; or graphs of
channels with the smallest windows, some of which nobody receives from.

  --seeds COUNT   seeds in a row, 20000 by default
  --from SEED     the first of them, 0 by default
  --threads COUNT on so many threads, 1 by default
  --seed SEED     one seed alone, run twice
  --trace         prints what happens
  --graphs COUNT  seeds of graphs in a row
  --graph SEED    one graph alone, run twice

Exit status: 0 when all is well, 1 when not, when a seed met fewer than five
faults or a thousand messages, or when in 2000 seeds or more fewer than half of
the ends in the wrong were found out, 2 for bad usage. Each tenth of the seeds is told on standard error.
";

struct Options {
    seeds: u64,
    from: u64,
    threads: u64,
    one: Option<u64>,
    graphs: Option<u64>,
    graph: Option<u64>,
    trace: bool,
}

fn parse() -> Result<Option<Options>, String> {
    let mut options = Options {
        seeds: 20_000,
        from: 0,
        threads: 1,
        one: None,
        graphs: None,
        graph: None,
        trace: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| {
            let wrong = format!("{word} {text}: allowed are whole numbers from 0");
            text.parse().map_err(|_| wrong)
        };
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seeds" => options.seeds = number(value()?)?,
            "--from" => options.from = number(value()?)?,
            "--threads" => options.threads = number(value()?)?,
            "--seed" => options.one = Some(number(value()?)?),
            "--graphs" => options.graphs = Some(number(value()?)?),
            "--graph" => options.graph = Some(number(value()?)?),
            "--trace" => options.trace = true,
            other => return Err(format!("{other} is not known; try --help")),
        }
    }
    if options.trace && options.one.is_none() {
        return Err("--trace shows one seed: name it with --seed".to_owned());
    }
    if options.from.checked_add(options.seeds).is_none() {
        return Err("so many seeds do not follow --from".to_owned());
    }
    if options.seeds == 0 || options.threads == 0 || options.graphs == Some(0) {
        return Err("--seeds, --threads and --graphs need at least one".to_owned());
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    let options = match parse() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return usage(&error),
    };
    // The machine's own assertions are violations too, and reported as such.
    std::panic::set_hook(Box::new(|_| {}));
    let good = match options {
        Options { graph: Some(seed), .. } => one_graph(seed),
        Options { graphs: Some(count), .. } => many_graphs(options.from, count),
        Options { one: Some(seed), .. } => one(seed, options.trace),
        _ => many(&options),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage(error: &str) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(2)
}

/// Runs one seed twice; returns whether all is well.
fn one(seed: u64, trace: bool) -> bool {
    let mut print = |line: String| println!("{line}");
    let first = run(seed, if trace { Some(&mut print) } else { None });
    let second = run(seed, None);
    println!("{}\nseed {seed}: trace {:016x}", first.coverage, first.trace);
    if first.trace != second.trace {
        println!("and {:016x} the second time", second.trace);
    }
    tell(&first);
    first.violation.is_none() && first.trace == second.trace && first.coverage.is_enough()
}

fn tell(outcome: &Outcome) {
    let Outcome { seed, violation: Some(violation), .. } = outcome else { return };
    println!("seed {seed}: {violation}\n  replay: chunkcomm-simulate --seed {seed} --trace");
}

/// Runs seeds in a row; returns whether none shows a violation and the coverage is enough.
fn many(options: &Options) -> bool {
    let start = Instant::now();
    let found = AtomicU64::new(0);
    let next = AtomicU64::new(0);
    let mut coverage = Coverage::default();
    thread::scope(|scope| {
        let work = || some(options, &next, &found, start);
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            // A seed's own panics are violations; this one would be the command's.
            coverage.add(&thread.join().expect("a thread runs seeds to the end"));
        }
    });
    let (violations, seconds) = (found.into_inner(), start.elapsed().as_secs_f64());
    println!("{coverage}");
    println!(
        "{violations} violations in seeds {} to {}; {seconds:.1} s, {:.0} seeds/s",
        options.from,
        options.from + options.seeds - 1,
        options.seeds as f64 / seconds,
    );
    violations == 0 && coverage.is_enough()
}

/// Takes seeds as they come until there are none; returns their coverage.
fn some(options: &Options, next: &AtomicU64, found: &AtomicU64, start: Instant) -> Coverage {
    let mut coverage = Coverage::default();
    loop {
        let count = next.fetch_add(1, Ordering::Relaxed);
        if count >= options.seeds {
            return coverage;
        }
        let outcome = run(options.from + count, None);
        coverage.add(&outcome.coverage);
        if outcome.violation.is_some() {
            found.fetch_add(1, Ordering::Relaxed);
            tell(&outcome);
        } else if !outcome.coverage.is_enough() {
            let seed = outcome.seed;
            println!(
                "seed {seed}: fewer faults or messages than a seed is to have\n  replay: \
                 chunkcomm-simulate --seed {seed} --trace"
            );
        }
        if (count + 1).is_multiple_of(options.seeds.div_ceil(10)) {
            let (seconds, found) = (start.elapsed().as_secs_f64(), found.load(Ordering::Relaxed));
            eprintln!("{} seeds, {found} violations, {seconds:.0} s", count + 1);
        }
    }
}

/// Runs one graph twice; returns whether all is well.
fn one_graph(seed: u64) -> bool {
    let first = run_graph(seed);
    let second = run_graph(seed);
    println!("{first:?}");
    if first.trace != second.trace {
        println!("and {:016x} the second time", second.trace);
    }
    first.violation.is_none() && first.trace == second.trace
}

/// Runs graphs in a row; returns whether every channel whose receiver goes on brings everything.
fn many_graphs(from: u64, count: u64) -> bool {
    let start = Instant::now();
    let (mut sum, mut violations) = (GraphOutcome::default(), 0);
    for seed in from..from.saturating_add(count) {
        let outcome = run_graph(seed);
        sum.add(&outcome);
        if let Some(violation) = outcome.violation {
            violations += 1;
            println!("graph {seed}: {violation}\n  replay: chunkcomm-simulate --graph {seed}");
        }
    }
    let [channels, live] = sum.channels;
    println!(
        "{count} graphs, {channels} channels, {live} with a receiver that goes on, {} with a \
         sender that waits for ever, {} messages",
        sum.waiting, sum.messages
    );
    println!("{violations} violations; {:.1} s", start.elapsed().as_secs_f64());
    violations == 0
}
