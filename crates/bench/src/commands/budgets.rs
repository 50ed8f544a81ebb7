//! `chunkperf budgets`: every budget of `budgets.txt` measured, with its limit and its aim.

use std::fmt;
use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use chunkcomm_testkit::proc::Program;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::Verdict;
use super::coupled::program;
use crate::baseline::nats;
use crate::failure::{Doing, Failure};
use crate::harness::machine::{self, DIES_WITH_PARENT};
use crate::harness::slices::name_of;
use crate::options::{Common, values};
use crate::peers::PeersDir;
use crate::table::{Column, Form, Row, Table, column, significant, write_out};

/// The list.
const LIST: &str = include_str!("../../budgets.txt");

/// Longest time of a measurement: 90 s. After that it hangs.
const DEADLINE: Duration = Duration::from_secs(90);

/// Beginning of the names of the budgets against other systems.
const OF_PEERS: &str = "peers-";

/// Pause between two looks whether a measurement has ended: 20 ms.
const LOOK: Duration = Duration::from_millis(20);

/// Columns for people.
const COLUMNS: [Column; 6] = [
    column("name", "name", 31),
    column("figure", "figure", 9),
    column("limit", "budget", 9),
    column("reached", "aim", 9),
    column("end", "met", 4),
    column("what", "what", 0),
];

/// Options of `chunkperf budgets`.
#[derive(Debug, Args)]
pub struct BudgetsArgs {
    /// Options of every budget whose own options do not say otherwise
    #[command(flatten)]
    common: Common,
    /// Budgets to run, by name or by a pattern such as `array-*`; a wrong name prints all names
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Limit of these budgets instead of their own, also with tiny sizes
    #[arg(long, value_name = "X", requires = "only", value_parser = values::limit)]
    limit: Option<f64>,
    /// Tiny sizes: only shows that everything runs; figures mean nothing and no budget is missed
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    peers: PeersDir,
}

/// Limit of a figure, or its aim.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bound {
    figure: f64,
    /// Whether larger figures are better.
    at_least: bool,
}

impl Bound {
    /// Parses `>=0.9` or `<=2`.
    fn parse(text: &str) -> Option<Self> {
        let (sign, figure) = text.split_at_checked(2)?;
        let figure = figure.parse().ok()?;
        matches!(sign, ">=" | "<=").then_some(Self { figure, at_least: sign == ">=" })
    }

    fn is_met(self, figure: f64) -> bool {
        if self.at_least { figure >= self.figure } else { figure <= self.figure }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.at_least { ">=" } else { "<=" }, significant(self.figure))
    }
}

/// A line of the list.
#[derive(Debug, Clone, Copy)]
struct Budget {
    name: &'static str,
    needs: &'static str,
    /// The command and its options, a blank between two words.
    command: &'static str,
    /// The key whose value counts.
    key: &'static str,
    /// The limit; without one the figure is published.
    limit: Option<Bound>,
    aim: Bound,
    /// Further options for tiny sizes.
    quick: &'static str,
}

impl Budget {
    fn parse(line: &'static str) -> Option<Self> {
        let mut cells = line.split('|').map(str::trim);
        let [name, needs, command, key, limit, aim, quick] = [(); 7].map(|()| cells.next());
        let (limit, aim) = (limit?, Bound::parse(aim?)?);
        let limit = if limit == "-" { None } else { Some(Bound::parse(limit)?) };
        let (name, needs, command, key, quick) = (name?, needs?, command?, key?, quick?);
        Some(Self { name, needs, command, key, limit, aim, quick })
    }

    /// Returns all budgets.
    fn all() -> impl Iterator<Item = Self> {
        let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(|line| Self::parse(line).unwrap_or_else(|| panic!("a test reads {line}")))
    }

    /// Returns the first of its needs that this machine or this build has not.
    fn missing(&self) -> Option<Need> {
        self.needs.split_whitespace().filter_map(Need::of).find(|need| !need.is_here())
    }
}

/// Something that a budget needs, besides the program itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Need {
    /// The feature of the build.
    Peers,
    /// The feature of the build.
    Virtual,
    /// The compiler of MPICH.
    Mpich,
    /// The compiler of Open MPI.
    Openmpi,
    /// One of these compilers.
    Mpi,
    /// The server of NATS.
    Nats,
    /// The built examples beside this program.
    Examples,
}

impl Need {
    fn of(word: &str) -> Option<Self> {
        Self::from_str(word, false).ok()
    }

    fn is_here(self) -> bool {
        let any = |names: &[&str]| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|it| names.iter().any(|name| it.join(name).is_file()))
        };
        match self {
            Self::Peers => cfg!(feature = "peers"),
            Self::Virtual => cfg!(feature = "virtual"),
            Self::Mpich => any(&["mpicc.mpich", "mpicc"]),
            Self::Openmpi => any(&["mpicc.openmpi", "mpicc"]),
            Self::Mpi => any(&["mpicc.mpich", "mpicc.openmpi", "mpicc"]),
            Self::Nats => any(&[nats::SERVER]),
            Self::Examples => program::beside().is_ok_and(|it| it.join("fft2d").is_file()),
        }
    }

    /// Returns the command that brings it.
    fn brought_by(self) -> &'static str {
        match self {
            Self::Peers | Self::Virtual => {
                "cargo build --release -p chunkcomm-bench --features peers,virtual"
            }
            Self::Nats => nats::BROUGHT_BY,
            Self::Examples => program::BUILD,
            _ => "apt-get install libmpich-dev libopenmpi-dev libscalapack-openmpi-dev",
        }
    }
}

/// End of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Met,
    Missed,
    /// Without a figure, for a reason.
    NotHere,
}

impl End {
    fn word(self) -> &'static str {
        match self {
            Self::Met => "yes",
            Self::Missed => "NO",
            Self::NotHere => "-",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// If a name is unknown, or a measurement fails.
pub fn run(args: &BudgetsArgs) -> Result<Verdict, Failure> {
    let chosen = choose(&args.only, args.limit)?;
    args.common.setting()?;
    let json = args.common.json;
    if args.quick && !json {
        write_out("tiny sizes: the figures mean nothing\n");
    }
    tell_missing(&chosen);
    let mut table = Table::new(&COLUMNS, Form::of(json));
    let (mut ends, mut broken) = (Vec::new(), Vec::new());
    for budget in &chosen {
        let measured = match budget.missing() {
            None => measure(budget, args),
            Some(need) => {
                let reason = format!("no {}", name_of(need));
                Ok(Map::from_iter([("reason".to_owned(), reason.into())]))
            }
        };
        let measured = measured.unwrap_or_else(|failure| {
            eprintln!("chunkperf: {}: {failure}", budget.name);
            broken.push(budget.name);
            Map::new()
        });
        let figure = measured.get(budget.key).and_then(Value::as_f64);
        let reason = measured.get("reason").and_then(Value::as_str);
        if let (Some(reason), None) = (reason, budget.missing()) {
            eprintln!("chunkperf: {}: no figure: {reason}", budget.name);
        }
        let end = match figure {
            Some(figure) if budget.limit.is_none_or(|limit| limit.is_met(figure)) => End::Met,
            _ if reason.is_some() => End::NotHere,
            _ => End::Missed,
        };
        table.add(row_of(budget, &measured, end, json));
        ends.push(end);
    }
    let count = |end| ends.iter().filter(|it| **it == end).count();
    let [met, missed, left] = [End::Met, End::Missed, End::NotHere].map(count);
    let small = if args.quick { "; at tiny size this means nothing" } else { "" };
    eprintln!("chunkperf: {met} met, {missed} missed, {left} not measured here{small}");
    if !broken.is_empty() {
        return Err(Failure::broken("measuring", format!("no figure for {}", broken.join(", "))));
    }
    let is_missed = missed > 0 && (!args.quick || args.limit.is_some());
    Ok(if is_missed { Verdict::Missed } else { Verdict::Fine })
}

/// Tells in one line what these budgets lack here, and the commands that bring it.
fn tell_missing(chosen: &[Budget]) {
    let mut told: Vec<(Need, usize)> = Vec::new();
    let mut commands = Vec::new();
    for need in chosen.iter().filter_map(Budget::missing) {
        match told.iter_mut().find(|(known, _)| *known == need) {
            Some((_, count)) => *count += 1,
            None => told.push((need, 1)),
        }
        if !commands.contains(&need.brought_by()) {
            commands.push(need.brought_by());
        }
    }
    if told.is_empty() {
        return;
    }
    let each = told.iter().map(|(need, count)| format!("{} ({count})", name_of(*need)));
    let (each, commands) = (each.collect::<Vec<_>>().join(", "), commands.join("; "));
    eprintln!("chunkperf: budgets that lack something here: {each}; {commands}");
}

fn choose(only: &[String], limit: Option<f64>) -> Result<Vec<Budget>, Failure> {
    for pattern in only {
        if !Budget::all().any(|budget| is_like(pattern, budget.name)) {
            let names: Vec<&str> = Budget::all().map(|budget| budget.name).collect();
            return Err(Failure::Refused(format!(
                "there is no budget '{pattern}'; allowed are patterns with * and {}",
                names.join(", ")
            )));
        }
    }
    let is_chosen = |name| only.is_empty() || only.iter().any(|pattern| is_like(pattern, name));
    let limited = |budget: Budget| match limit {
        Some(figure) => Budget { limit: Some(Bound { figure, ..budget.aim }), ..budget },
        None => budget,
    };
    Ok(Budget::all().filter(|budget| is_chosen(budget.name)).map(limited).collect())
}

/// Whether a name is of a pattern, in which `*` stands for any letters.
fn is_like(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == name };
    let rest = name.strip_prefix(head);
    rest.is_some_and(|rest| rest.char_indices().any(|(at, _)| is_like(tail, &rest[at..])))
        || rest.is_some_and(|_| tail.is_empty())
}

/// Runs a budget in processes of its own, started clean, as a user would run it.
fn measure(budget: &Budget, args: &BudgetsArgs) -> Result<Map<String, Value>, Failure> {
    let (command, options): (Vec<_>, Vec<_>) = budget
        .command
        .split(' ')
        .enumerate()
        .partition(|(at, word)| *at < 2 && !word.starts_with('-'));
    let small = args.quick.then(|| budget.quick.split(' '));
    let of_peers = budget.name.starts_with(OF_PEERS).then(|| args.peers.to_arguments());
    // If an option is given twice, the later one holds.
    let child = machine::this_program()?
        .args(command.into_iter().map(|(_, word)| word))
        .args(args.common.to_arguments())
        .args(options.into_iter().map(|(_, word)| word))
        .args(small.into_iter().flatten())
        .args(of_peers.into_iter().flatten())
        .arg("--json")
        .env(DIES_WITH_PARENT, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .doing("starting a measurement")?;
    let output = output_of(Program(child))?;
    serde_json::from_str(&output).doing("understanding a row")
}

/// Returns the output of a measurement, which is killed if it hangs.
fn output_of(mut program: Program) -> Result<String, Failure> {
    let child = &mut program.0;
    let started = Instant::now();
    let status = loop {
        match child.try_wait().doing("waiting for a measurement")? {
            Some(status) => break status,
            None if started.elapsed() > DEADLINE => {
                let why = format!("it did not end within {} s", DEADLINE.as_secs());
                return Err(Failure::broken("measuring", why));
            }
            None => thread::sleep(LOOK),
        }
    };
    let mut output = String::new();
    // A row is far smaller than a pipe: all of it is there when the process has ended.
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut output).doing("reading a row")?;
    }
    if !status.success() {
        return Err(Failure::broken("measuring", format!("it ended with {status}")));
    }
    Ok(output)
}

fn row_of(budget: &Budget, measured: &Map<String, Value>, end: End, json: bool) -> Row {
    let Budget { name, command, key, limit, aim, .. } = *budget;
    let from_measured = |key: &str| measured.get(key).cloned().unwrap_or_default();
    let figure = measured.get(key).and_then(Value::as_f64);
    let mut row = Row::default();
    row.set("bench", "budgets")
        .set("transport", from_measured("transport"))
        .set("runtime", from_measured("runtime"))
        .set("name", name)
        .set("figure", figure)
        .set("budget", limit.map(|limit| limit.figure))
        .set("aim", aim.figure)
        .set("met", end == End::Met)
        .set("reason", from_measured("reason"))
        .set("key", key)
        .set("direction", if aim.at_least { "at least" } else { "at most" })
        .set("aim_met", figure.is_some_and(|figure| aim.is_met(figure)))
        .set("ratio_low", from_measured("ratio_low"))
        .set("ratio_high", from_measured("ratio_high"))
        .set("command", command);
    if !json {
        row.set("limit", limit.map(|limit| limit.to_string()))
            .set("reached", aim.to_string())
            .set("end", end.word())
            .set("what", format!("{key} of {command}"));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_budget_and_aims_lie_beyond_limits() {
        let all: Vec<Budget> = Budget::all().collect();
        assert!(all.len() > 100, "of these few are left: {}", all.len());
        for (index, budget) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other.name != budget.name));
            assert!(!budget.key.is_empty() && !budget.quick.is_empty(), "{}", budget.name);
            assert!(budget.limit.is_none_or(|limit| limit.is_met(budget.aim.figure)));
            assert!(budget.limit.is_none_or(|limit| limit.at_least == budget.aim.at_least));
            assert!(budget.needs.split_whitespace().all(|need| Need::of(need).is_some()));
            assert!(budget.name.len() <= 31, "{} is wider than its column", budget.name);
        }
    }

    #[test]
    fn a_pattern_has_any_letters_for_its_stars() {
        assert!(is_like("array-*", "array-rows") && is_like("*", "idle") && is_like("i*e", "idle"));
        assert!(is_like("idle", "idle") && is_like("idle*", "idle") && is_like("*-*-*", "a-b-c"));
        assert!(!is_like("array-*", "arrays") && !is_like("i*x", "idle") && !is_like("", "idle"));
    }
}
