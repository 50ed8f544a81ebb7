//! Runs the simulator over seeds, or shows one of them.

use chunkcomm::proto::simulation::{Bug, Coverage, Outcome, run};
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
usage: chunkcomm-simulate [--seeds COUNT] [--from SEED] [--planted NAME|all|list]
       chunkcomm-simulate --seed SEED [--planted NAME] [--trace]

Runs both ends of sessions under virtual time, with faults, by seed.

  --seeds COUNT   seeds in a row, 20000 by default
  --from SEED     the first of them, 0 by default
  --seed SEED     one seed alone, run twice
  --planted NAME  with a bug switched on, which is to be found; `all` one after
                  the other, each up to COUNT seeds; `list` names them
  --trace         prints what happens

Exit status: 0 when all is well (with --planted: when all were found), 1 when
not, 2 for bad usage.
";

struct Options {
    seeds: u64,
    from: u64,
    one: Option<u64>,
    planted: Option<String>,
    trace: bool,
}

fn parse() -> Result<Option<Options>, String> {
    let mut options = Options { seeds: 20_000, from: 0, one: None, planted: None, trace: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seeds" => options.seeds = number(value()?)?,
            "--from" => options.from = number(value()?)?,
            "--seed" => options.one = Some(number(value()?)?),
            "--planted" => options.planted = Some(value()?),
            "--trace" => options.trace = true,
            other => return Err(format!("{other} is not known; try --help")),
        }
    }
    if options.trace && options.one.is_none() {
        return Err("--trace shows one seed: name it with --seed".to_owned());
    }
    if options.seeds == 0 {
        return Err("--seeds needs at least one".to_owned());
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
    // The machine's own assertions are violations too, and told as such.
    std::panic::set_hook(Box::new(|_| {}));
    let good = match (options.one, bugs) {
        (_, Some(bugs)) if options.planted.as_deref() == Some("list") => {
            bugs.iter().for_each(|bug| println!("{bug:?}"));
            true
        }
        (Some(seed), bugs) => one(seed, bugs.and_then(|bugs| bugs.first().copied()), options.trace),
        (None, None) => many(&options),
        // Every one is tried, also behind one that is not found.
        (None, Some(bugs)) => bugs.iter().filter(|bug| !hunt(&options, **bug)).count() == 0,
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage(error: &str) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(2)
}

/// One seed, twice.
fn one(seed: u64, bug: Option<Bug>, trace: bool) -> bool {
    let mut print = |line: String| println!("{line}");
    let first = run(seed, bug, if trace { Some(&mut print) } else { None });
    let second = run(seed, bug, None);
    println!("{}\nseed {seed}: trace {:016x}", first.coverage, first.trace);
    if first.trace != second.trace {
        println!("and {:016x} the second time", second.trace);
    }
    tell(&first, bug);
    first.violation.is_none() && first.trace == second.trace
}

fn tell(outcome: &Outcome, bug: Option<Bug>) {
    let Outcome { seed, violation: Some(violation), .. } = outcome else { return };
    let planted = bug.map(|bug| format!(" --planted {bug:?}")).unwrap_or_default();
    println!(
        "seed {seed}: {violation}\n  replay: chunkcomm-simulate --seed {seed}{planted} --trace"
    );
}

/// Seeds in a row, none of which may show anything.
fn many(options: &Options) -> bool {
    let start = Instant::now();
    let mut coverage = Coverage::default();
    let mut violations = 0;
    for seed in options.from..options.from.saturating_add(options.seeds) {
        let outcome = run(seed, None, None);
        coverage.add(&outcome.coverage);
        if outcome.violation.is_some() {
            violations += 1;
            tell(&outcome, None);
        }
    }
    println!("{coverage}");
    println!("{violations} violations; {:.1} s", start.elapsed().as_secs_f64());
    violations == 0
}

/// Seeds in a row until the bug is found.
fn hunt(options: &Options, bug: Bug) -> bool {
    for count in 0..options.seeds {
        let outcome = run(options.from.saturating_add(count), Some(bug), None);
        if let Some(violation) = outcome.violation {
            let text: String = violation.chars().take(110).collect();
            println!("{bug:?}: found by seed {}, after {}: {text}", outcome.seed, count + 1);
            return true;
        }
    }
    println!("{bug:?}: not found in {} seeds", options.seeds);
    false
}
