//! Runs the simulator over seeds, or shows one of them.

use chunkcomm::simulation::seeds::{Bug, Coverage, GraphOutcome, Outcome, run, run_graph};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const HELP: &str = "\
usage: chunkcomm-simulate [--seeds COUNT] [--from SEED] [--threads COUNT]
                          [--planted NAME|all|list]
       chunkcomm-simulate --seed SEED [--planted NAME] [--trace]
       chunkcomm-simulate --graphs COUNT [--from SEED] | --graph SEED [--planted NAME]

Runs both ends of sessions under virtual time, with faults, by seed; or graphs of
channels with the smallest windows, some of which nobody receives from.

  --seeds COUNT   seeds in a row, 20000 by default
  --from SEED     the first of them, 0 by default
  --threads COUNT on so many threads, 1 by default
  --seed SEED     one seed alone, run twice
  --planted NAME  with a bug switched on, which is to be found; `all` one after
                  the other, each up to COUNT seeds; `list` names them
  --trace         prints what happens
  --graphs COUNT  seeds of graphs in a row
  --graph SEED    one graph alone, run twice

Exit status: 0 when all is well (with --planted: when all were found), 1 when
not, when a seed met fewer than five faults or a thousand messages, or when in
2000 seeds or more fewer than half of the ends in the wrong were found out, 2
for bad usage. Each tenth of the seeds is told on standard error.
";

struct Options {
    seeds: u64,
    from: u64,
    threads: u64,
    one: Option<u64>,
    graphs: Option<u64>,
    graph: Option<u64>,
    planted: Option<String>,
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
        planted: None,
        trace: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seeds" => options.seeds = number(value()?)?,
            "--from" => options.from = number(value()?)?,
            "--threads" => options.threads = number(value()?)?,
            "--seed" => options.one = Some(number(value()?)?),
            "--graphs" => options.graphs = Some(number(value()?)?),
            "--graph" => options.graph = Some(number(value()?)?),
            "--planted" => options.planted = Some(value()?),
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

fn bugs(name: &str) -> Result<Vec<Bug>, String> {
    match name {
        "all" | "list" => Ok(Bug::ALL.to_vec()),
        _ => Ok(vec![Bug::named(name).ok_or_else(|| format!("no bug is called {name}"))?]),
    }
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
    let bugs = match options.planted.as_deref().map(bugs).transpose() {
        Ok(bugs) => bugs,
        Err(error) => return usage(&error),
    };
    // The machine's own assertions are violations too, and reported as such.
    std::panic::set_hook(Box::new(|_| {}));
    let good = match (options.one, bugs) {
        (_, Some(bugs)) if options.planted.as_deref() == Some("list") => {
            bugs.iter().for_each(|bug| println!("{bug:?}"));
            true
        }
        (_, bugs) if options.graph.is_some() => {
            let bug = bugs.and_then(|bugs| bugs.first().copied());
            one_graph(options.graph.unwrap_or_default(), bug)
        }
        (_, None) if options.graphs.is_some() => many_graphs(&options),
        (Some(seed), bugs) => one(seed, bugs.and_then(|bugs| bugs.first().copied()), options.trace),
        (None, None) => many(&options),
        // Every bug is hunted, also after one that is not found.
        (None, Some(bugs)) => bugs.iter().filter(|bug| !hunt(&options, **bug)).count() == 0,
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage(error: &str) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(2)
}

/// Runs one seed twice; returns whether all is well.
fn one(seed: u64, bug: Option<Bug>, trace: bool) -> bool {
    let mut print = |line: String| println!("{line}");
    let first = run(seed, bug, if trace { Some(&mut print) } else { None });
    let second = run(seed, bug, None);
    println!("{}\nseed {seed}: trace {:016x}", first.coverage, first.trace);
    if first.trace != second.trace {
        println!("and {:016x} the second time", second.trace);
    }
    tell(&first, bug);
    let enough = bug.is_some() || first.coverage.is_enough();
    first.violation.is_none() && first.trace == second.trace && enough
}

fn tell(outcome: &Outcome, bug: Option<Bug>) {
    let Outcome { seed, violation: Some(violation), .. } = outcome else { return };
    let planted = bug.map(|bug| format!(" --planted {bug:?}")).unwrap_or_default();
    println!(
        "seed {seed}: {violation}\n  replay: chunkcomm-simulate --seed {seed}{planted} --trace"
    );
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
        let outcome = run(options.from + count, None, None);
        coverage.add(&outcome.coverage);
        if outcome.violation.is_some() {
            found.fetch_add(1, Ordering::Relaxed);
            tell(&outcome, None);
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

/// Runs seeds in a row until the bug is found; returns whether it was.
fn hunt(options: &Options, bug: Bug) -> bool {
    for count in 0..options.seeds {
        let seed = options.from.saturating_add(count);
        // Each bug runs in the simulation that shows it.
        let violation = match Bug::GRAPHS.contains(&bug) {
            true => run_graph(seed, Some(bug)).violation,
            false => run(seed, Some(bug), None).violation,
        };
        if let Some(violation) = violation {
            let text: String = violation.chars().take(110).collect();
            println!("{bug:?}: found by seed {seed}, after {}: {text}", count + 1);
            return true;
        }
    }
    println!("{bug:?}: not found in {} seeds", options.seeds);
    false
}

/// Runs one graph twice; returns whether all is well.
fn one_graph(seed: u64, bug: Option<Bug>) -> bool {
    let first = run_graph(seed, bug);
    let second = run_graph(seed, bug);
    println!("{first:?}");
    if first.trace != second.trace {
        println!("and {:016x} the second time", second.trace);
    }
    first.violation.is_none() && first.trace == second.trace
}

/// Runs graphs in a row; returns whether every channel whose receiver goes on brings everything.
fn many_graphs(options: &Options) -> bool {
    let start = Instant::now();
    let count = options.graphs.unwrap_or_default();
    let (mut sum, mut violations) = (GraphOutcome::default(), 0);
    for seed in options.from..options.from.saturating_add(count) {
        let outcome = run_graph(seed, None);
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
