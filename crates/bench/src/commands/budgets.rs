//! `chunkperf budgets`: every budget measured, with its limit and its aim.

mod list;

use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use chunkcomm_testkit::proc::Program;
use clap::Args;
use serde_json::Value;

use self::list::{BUDGETS, Bound, Budget};
use super::Verdict;
use crate::failure::{Doing, Failure};
use crate::harness::machine::{self, DIES_WITH_PARENT};
use crate::options::{Common, values};
use crate::peers::PeersDir;
use crate::table::{Row, aligned, significant, write_out};

/// Longest time of a measurement: 90 s. After that it hangs.
const DEADLINE: Duration = Duration::from_secs(90);

/// Beginning of the names of the budgets against other systems.
const OF_PEERS: &str = "peers-";

/// Pause between two looks whether a measurement has ended: 20 ms.
const LOOK: Duration = Duration::from_millis(20);

/// Options of `chunkperf budgets`.
#[derive(Debug, Args)]
pub struct BudgetsArgs {
    /// Options of every budget whose own options do not say otherwise
    #[command(flatten)]
    common: Common,
    /// Name of the one budget to run; a wrong name prints all names
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Limit of that budget instead of its own, also with tiny sizes
    #[arg(long, value_name = "X", requires = "only", value_parser = values::limit)]
    limit: Option<f64>,
    /// Tiny sizes: only shows that everything runs; figures mean nothing and no budget is missed
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    peers: PeersDir,
}

/// Runs the command.
///
/// # Errors
/// If a name is unknown, or a measurement fails.
pub fn run(args: &BudgetsArgs) -> Result<Verdict, Failure> {
    let chosen = choose(args.only.as_deref(), args.limit)?;
    args.common.setting()?;
    if args.quick && !args.common.json {
        write_out("tiny sizes: the figures mean nothing\n");
    }
    let mut verdict = Verdict::Fine;
    let mut broken = Vec::new();
    let mut lines = vec![heading()];
    for budget in &chosen {
        let measured = measure(budget, args);
        if let Err(failure) = &measured {
            eprintln!("chunkperf: {}: {failure}", budget.name);
            broken.push(budget.name);
        }
        let (row, figure) = measured.map_or((None, None), |row| {
            let figure = row.get(budget.key).and_then(Value::as_f64);
            (Some(row), figure)
        });
        let met = figure.is_some_and(|figure| budget.is_met(figure));
        let reason = row.as_ref().and_then(|row| row.get("reason")).and_then(Value::as_str);
        if let Some(reason) = reason {
            eprintln!("chunkperf: {}: no figure: {reason}", budget.name);
        }
        if !met && reason.is_none() && (!args.quick || args.limit.is_some()) {
            verdict = Verdict::Missed;
        }
        if args.common.json {
            json_row(budget, row.as_ref(), figure, met).print(true);
        } else {
            lines.push(line(budget, figure, met || reason.is_some()));
        }
    }
    if !args.common.json {
        write_out(&aligned(&lines));
    }
    if broken.is_empty() {
        return Ok(verdict);
    }
    Err(Failure::broken("measuring", format!("no figure for {}", broken.join(", "))))
}

fn choose(only: Option<&str>, limit: Option<f64>) -> Result<Vec<Budget>, Failure> {
    let chosen: Vec<Budget> = BUDGETS
        .iter()
        .filter(|budget| only.is_none_or(|only| budget.name == only))
        .map(|&budget| Budget { bound: budget.bound.at(limit), ..budget })
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = BUDGETS.iter().map(|budget| budget.name).collect();
        return Err(Failure::Refused(format!(
            "there is no budget '{}'; allowed are {}",
            only.unwrap_or_default(),
            names.join(", ")
        )));
    }
    Ok(chosen)
}

/// Runs a budget in processes of its own, started clean, as a user would run it.
fn measure(budget: &Budget, args: &BudgetsArgs) -> Result<serde_json::Map<String, Value>, Failure> {
    let mut words = budget.command.split(' ');
    let small = args.quick.then(|| budget.quick.split(' '));
    let of_peers = budget.name.starts_with(OF_PEERS).then(|| args.peers.to_arguments());
    // If an option is given twice, the later one holds.
    let child = machine::this_program()?
        .args(words.next())
        .args(args.common.to_arguments())
        .args(words)
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

fn json_row(
    budget: &Budget,
    measured: Option<&serde_json::Map<String, Value>>,
    figure: Option<f64>,
    met: bool,
) -> Row {
    let from_measured =
        |key: &str| measured.and_then(|row| row.get(key)).cloned().unwrap_or(Value::Null);
    let mut row = Row::default();
    row.set("bench", "budgets")
        .set("transport", from_measured("transport"))
        .set("runtime", from_measured("runtime"))
        .set("name", budget.name)
        .set("figure", figure)
        .set("budget", budget.bound.figure())
        .set("aim", budget.aim)
        .set("met", met)
        .set("reason", from_measured("reason"))
        .set("key", budget.key)
        .set("direction", budget.bound.direction())
        .set("aim_met", figure.is_some_and(|figure| budget.aim_is_met(figure)))
        .set("ratio_low", from_measured("ratio_low"))
        .set("ratio_high", from_measured("ratio_high"))
        .set("command", budget.command);
    row
}

fn heading() -> Vec<String> {
    ["name", "figure", "budget", "aim", "met", "what"].map(str::to_owned).to_vec()
}

/// Returns a line of the table. A budget that cannot be measured here has no figure, and `met`
/// holds.
fn line(budget: &Budget, figure: Option<f64>, met: bool) -> Vec<String> {
    let sign = match budget.bound {
        Bound::AtLeast(_) | Bound::Printed => ">=",
        Bound::AtMost(_) => "<=",
    };
    let limit = budget
        .bound
        .figure()
        .map_or("-".to_owned(), |limit| format!("{sign} {}", significant(limit)));
    vec![
        budget.name.to_owned(),
        figure.map_or("-".to_owned(), significant),
        limit,
        format!("{sign} {}", significant(budget.aim)),
        if !met {
            "NO"
        } else if figure.is_some() {
            "yes"
        } else {
            "-"
        }
        .to_owned(),
        format!("{} of {}", budget.key, budget.command),
    ]
}
