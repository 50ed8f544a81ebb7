//! Command line: the scenarios, and the commands of the processes that they start.

use std::path::PathBuf;
use std::time::Duration;

use chunkcomm_bench::commands::Verdict;
use chunkcomm_bench::failure::Failure;
use chunkcomm_bench::harness::protocol::{OnOff, Transport};
use chunkcomm_bench::harness::{machine, runtime};
use chunkcomm_bench::options::{Common, values};
use chunkcomm_bench::table::Row;
use clap::{Args, Parser, Subcommand};

use crate::{
    Lab, Promises, corrupt, cuts, farm, farmer, idle_links, namespaces, node, resumes, slow, stop,
    subfarmers,
};

/// Least dead time: a silent peer is probed after a tenth of it, by the library after 10 ms at least.
const DEAD_MIN: Duration = Duration::from_millis(100);

/// Exposes node processes to real faults, and reports which promises of the library held.
#[derive(Debug, Parser)]
#[command(name = "lab", version, max_term_width = 100, args_override_self = true)]
#[command(after_help = "Errors: exit status 2, on stderr; a broken promise: 1.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// A saturated stream whose connection is cut again and again
    Cuts(With<cuts::Plan>),
    /// A process that is stopped for a while, and one that is killed
    Stop(With<stop::Plan>),
    /// Very many links that carry nothing
    IdleLinks(With<idle_links::Plan>),
    /// Many links whose connections are cut at the same moment
    Resumes(With<resumes::Plan>),
    /// Receivers that take less than is sent
    Slow(With<slow::Plan>),
    /// One turned bit a session
    Corrupt(With<corrupt::Plan>),
    /// A network that is unplugged and destroys sockets, in namespaces (needs root)
    Namespaces(With<namespaces::Plan>),
    /// A farm whose worker processes are killed, or stopped for a while
    Farm(With<farm::Plan>),
    /// A farmer that is killed, and started again with its journal
    Farmer(With<farmer::Plan>),
    /// A farm of a cluster whose sub-farmers are killed
    Subfarmers(With<subfarmers::Plan>),
    /// A node process, started by a scenario
    #[command(name = node::NODE_COMMAND, hide = true)]
    Node,
    /// A node of a farm, started by a scenario
    #[command(name = subfarmers::NODE_COMMAND, hide = true)]
    FarmNode,
    /// A farmer, started by a scenario
    #[command(name = farmer::FARMER_COMMAND, hide = true)]
    FarmOut {
        /// Its journal
        journal: PathBuf,
        /// Number of its tasks
        tasks: u64,
    },
    /// Any other word: refused with the names that are allowed.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(Debug, Args)]
struct LabCommon {
    #[command(flatten)]
    common: Common,
    /// Seed of the faults, their places and times [default: another one each time]
    #[arg(long, value_name = "N", value_parser = seed)]
    seed: Option<u64>,
    /// Time after which a silent peer is given up for dead; it is asked after a tenth of that time,
    /// and suspected after three tenths
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = dead)]
    dead: Duration,
    /// Delay that still counts as in time
    #[arg(long, value_name = "DUR", default_value = "2s", value_parser = values::duration)]
    late_max: Duration,
}

fn seed(text: &str) -> Result<u64, String> {
    values::up_to(text, u64::MAX)
}

fn dead(text: &str) -> Result<Duration, String> {
    let time = Some(values::duration(text)?).filter(|time| *time >= DEAD_MIN);
    time.ok_or_else(|| format!("allowed are durations from {} ms", DEAD_MIN.as_millis()))
}

/// A scenario's own options, and those of all.
#[derive(Debug, Args)]
struct With<P: Args> {
    #[command(flatten)]
    common: LabCommon,
    #[command(flatten)]
    plan: P,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or a process cannot be started or ends.
pub(crate) fn run(cli: &Cli) -> Result<Verdict, Failure> {
    match &cli.scenario {
        Scenario::Cuts(it) => it.run("cuts", cuts::run),
        Scenario::Stop(it) => it.stop(),
        Scenario::IdleLinks(it) => it.run("idle-links", idle_links::run),
        Scenario::Resumes(it) => it.run("resumes", resumes::run),
        Scenario::Slow(it) => it.run("slow", slow::run),
        Scenario::Corrupt(it) => it.run("corrupt", corrupt::run),
        Scenario::Namespaces(it) => match namespaces::why_not() {
            Some(why) => {
                eprintln!("lab: namespaces is skipped: {why}");
                Ok(Verdict::Fine)
            }
            None => it.run("namespaces", namespaces::run),
        },
        Scenario::Farm(it) => it.run("farm", farm::run),
        Scenario::Farmer(it) => it.run("farmer", farmer::run),
        Scenario::Subfarmers(it) => it.run("subfarmers", subfarmers::run),
        Scenario::Node => node::serve().map(|()| Verdict::Fine),
        Scenario::FarmNode => subfarmers::serve().map(|()| Verdict::Fine),
        Scenario::FarmOut { journal, tasks } => {
            farmer::farm_out(journal, *tasks).map(|()| Verdict::Fine)
        }
        Scenario::Other(words) => Err(Failure::Refused(format!(
            "the lab has no scenario '{}'; allowed are cuts, stop, idle-links, resumes, slow, \
             corrupt, namespaces, farm, farmer and subfarmers",
            words.first().map_or("", String::as_str)
        ))),
    }
}

impl<P: Args> With<P> {
    fn run(
        &self,
        name: &str,
        run: impl AsyncFnOnce(&mut Lab, &P, &mut Promises, &mut Row) -> Result<(), Failure>,
    ) -> Result<Verdict, Failure> {
        self.common
            .scenario(name, async |lab, promises, row| run(lab, &self.plan, promises, row).await)
    }
}

impl With<stop::Plan> {
    /// Runs each stop as a scenario, then the kill.
    fn stop(&self) -> Result<Verdict, Failure> {
        let Self { common, plan } = self;
        let asked = !plan.times.is_empty() || plan.kill;
        let usual = [1, 4, 7].map(|fifths| common.dead * fifths / 5);
        let times = if asked { &plan.times[..] } else { &usual };
        let kill = (plan.kill || !asked).then_some(None);
        let mut worst = Verdict::Fine;
        for held in times.iter().copied().map(Some).chain(kill) {
            let name = if held.is_some() { "stop" } else { "kill" };
            worst = worst.max(common.scenario(name, async |lab, promises, row| match held {
                Some(time) => stop::hold(lab, plan.whom, time, promises, row).await,
                None => stop::kill(lab, plan.whom, promises, row).await,
            })?);
        }
        Ok(worst)
    }
}

impl LabCommon {
    /// Runs one scenario and prints its row.
    fn scenario(
        &self,
        name: &str,
        run: impl AsyncFnOnce(&mut Lab, &mut Promises, &mut Row) -> Result<(), Failure>,
    ) -> Result<Verdict, Failure> {
        self.check()?;
        let setting = self.common.setting()?;
        let seed = self.seed.unwrap_or_else(machine::now_ns);
        if self.seed.is_none() {
            // Printed before anything can hang.
            eprintln!("lab {name} --seed {seed}");
        }
        let mut lab = Lab::new(&setting, seed, self.dead, self.late_max);
        let mut row = self.common.row("lab");
        row.set("scenario", name).set("seed", seed);
        let mut promises = Promises::default();
        // The runtime is dropped here with all its tasks, the proxy's connections too.
        runtime::start(1)?.block_on(run(&mut lab, &mut promises, &mut row))?;
        promises.report(&mut row);
        row.print(self.common.json);
        Ok(if promises.are_held() { Verdict::Fine } else { Verdict::Missed })
    }

    fn check(&self) -> Result<(), Failure> {
        self.common.needs_this_host("lab")?;
        let refused = match (self.common.transport, self.common.session) {
            (Transport::Unix | Transport::Memory, _) => {
                "the lab's proxy carries TCP: --transport unix and memory are not allowed"
            }
            (_, OnOff::Off) => "sessions are what the lab is about: --session off is not allowed",
            _ => return Ok(()),
        };
        Err(Failure::Refused(refused.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_option_says_what_is_allowed() {
        let (mut options, mut wrongs) = (0, Vec::new());
        for command in Cli::command().get_subcommands() {
            let takes_values = command.get_arguments().filter(|it| it.get_action().takes_values());
            for option in takes_values.filter_map(|it| it.get_long()) {
                options += 1;
                for wrong in ["nope", "", "-1", "99999999999999999999999", "1:2:3"] {
                    let word = format!("--{option}={wrong}");
                    let told = match Cli::try_parse_from(["lab", command.get_name(), &word]) {
                        Err(error) if error.exit_code() == 2 => error.to_string(),
                        _ => "it is taken".to_owned(),
                    };
                    if !told.contains("allowed") && !told.contains("possible values: ") {
                        wrongs.push(format!("{} {word}: {told}", command.get_name()));
                    }
                }
            }
        }
        assert!(options > 60, "of these few are left: {options}");
        assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
    }
}
