//! Hunts the planted bugs by seed. `.ci/planted` builds this program in a copy of the sources
//! that has the bugs.

use chunkcomm_proofs::{run, run_graph};
use chunkcomm_proto::planted::{Bug, plant};
use std::ops::RangeInclusive;
use std::process::ExitCode;

const HELP: &str = "\
usage: .ci/planted [NAME ...]
       .ci/planted --seed SEED NAME [--trace]
       .ci/planted --list

Hunts bugs of the protocol, all or those named, in a build that has them: runs
seeds until one shows a violation with the bug, and none without.

  --seed SEED     this seed alone
  --trace         prints what happens in it
  --list          names the bugs

Exit status: 0 when each bug was found, 1 when one was not, 2 for bad usage.
";

#[derive(Default)]
struct Options {
    seed: Option<u64>,
    trace: bool,
    list: bool,
    help: bool,
    bugs: Vec<Bug>,
}

fn parse(words: impl IntoIterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" | "-h" => options.help = true,
            "--list" => options.list = true,
            "--trace" => options.trace = true,
            "--seed" => {
                let seed = words.next().ok_or("--seed needs a value")?;
                options.seed = Some(seed.parse().map_err(|_| format!("{seed} is no number"))?);
            }
            name => {
                let bug = Bug::ALL.iter().find(|bug| format!("{bug:?}") == name);
                options.bugs.push(*bug.ok_or_else(|| format!("no bug is called {name}"))?);
            }
        }
    }
    if options.seed.is_some() && options.bugs.len() != 1 {
        return Err("--seed needs the name of one bug".to_owned());
    }
    if options.trace && (options.seed.is_none() || options.bugs[0].is_of_graphs()) {
        return Err("--trace shows one seed of sessions: name it with --seed".to_owned());
    }
    if options.bugs.is_empty() {
        options.bugs = Bug::ALL.to_vec();
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    // Assertions of the machines are violations too, and reported as such.
    std::panic::set_hook(Box::new(|_| {}));
    if options.help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if options.list {
        options.bugs.iter().for_each(|bug| println!("{bug:?}"));
        return ExitCode::SUCCESS;
    }
    let seeds = |bug: Bug| options.seed.map_or(0..=bug.seeds_max() - 1, |seed| seed..=seed);
    let all = options.bugs.len();
    let found = options.bugs.iter().filter(|bug| hunt(**bug, seeds(**bug), options.trace)).count();
    println!("{found} of {all} planted bugs found");
    if found == all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs seeds until one shows a violation with the bug; returns whether it shows none without.
fn hunt(bug: Bug, seeds: RangeInclusive<u64>, trace: bool) -> bool {
    for seed in seeds.clone() {
        let Some(violation) = violation_of(bug, seed, true, trace) else { continue };
        let own = violation_of(bug, seed, false, false);
        if let Some(own) = &own {
            println!("{bug:?}: seed {seed} shows a violation without the bug: {own}");
        } else {
            let text: String = violation.chars().take(110).collect();
            println!("{bug:?}: found by seed {seed}: {text}");
        }
        return own.is_none();
    }
    println!("{bug:?}: not found in the seeds {} to {}", seeds.start(), seeds.end());
    false
}

/// Runs `seed` in the simulation that shows `bug`, with or without it.
fn violation_of(bug: Bug, seed: u64, with: bool, trace: bool) -> Option<String> {
    let mut print = |line: String| println!("{line}");
    plant(with.then_some(bug));
    let violation = match bug.is_of_graphs() {
        true => run_graph(seed).violation,
        false if trace => run(seed, Some(&mut print)).violation,
        false => run(seed, None).violation,
    };
    plant(None);
    violation
}
