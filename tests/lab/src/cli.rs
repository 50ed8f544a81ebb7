//! Command line: the scenarios, and the commands of the processes that they start.

use std::path::PathBuf;
use std::time::Duration;

use chunkcomm_bench::commands::Verdict;
use chunkcomm_bench::failure::Failure;
use chunkcomm_bench::harness::protocol::{OnOff, Transport};
use chunkcomm_bench::harness::slices::name_of;
use chunkcomm_bench::harness::{machine, runtime};
use chunkcomm_bench::options::{Common, values};
use chunkcomm_bench::table::Row;
use clap::{Args, Parser, Subcommand};

use crate::stop::{self, Whom};
use crate::{
    Lab, Promises, corrupt, cuts, farm, farmer, idle_links, namespaces, node, resumes, slow,
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
    Stop(StopArgs),
    /// Very many links that carry nothing
    IdleLinks(With<idle_links::Plan>),
    /// Many links whose connections are cut at the same moment
    Resumes(ResumesArgs),
    /// Receivers that take less than is sent
    Slow(With<slow::Plan>),
    /// One turned bit a session
    Corrupt(CorruptArgs),
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
    let time = values::duration(text).ok().filter(|time| *time >= DEAD_MIN);
    time.ok_or_else(|| format!("allowed are durations from {} ms", DEAD_MIN.as_millis()))
}

/// A scenario's own options, and those of all.
#[derive(Debug, Args)]
struct With<P: Args> {
    #[command(flatten)]
    lab: LabCommon,
    #[command(flatten)]
    plan: P,
}

#[derive(Debug, Args)]
struct StopArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Time for which a process is stopped; may be given several times [default: a fifth, four
    /// fifths and seven fifths of the dead time, then it is killed]
    #[arg(long = "for", value_name = "DUR", value_parser = values::some_time)]
    times: Vec<Duration>,
    /// Kill the process (alone, or after the stops that are named)
    #[arg(long)]
    kill: bool,
    /// Process that is stopped or killed: the receiver of the stream, or its sender
    #[arg(long, value_enum, default_value_t = Whom::Receiver)]
    whom: Whom,
}

#[derive(Debug, Args)]
struct ResumesArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Number of links, each to a node of its own
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::links)]
    links: usize,
    /// Number of times that all links are cut
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::times)]
    cuts: usize,
}

#[derive(Debug, Args)]
struct CorruptArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Number of sessions, with one turned bit each
    #[arg(long, value_name = "N", default_value = "40", value_parser = values::count)]
    sessions: u64,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or a process cannot be started or ends.
pub(crate) fn run(cli: &Cli) -> Result<Verdict, Failure> {
    match &cli.scenario {
        Scenario::Cuts(With { lab, plan }) => lab.scenario("cuts", async |lab, promises, row| {
            row.set("how", name_of(plan.how))
                .set("direction", name_of(plan.flow))
                .set("delay_us", plan.delay.as_secs_f64() * 1e6)
                .set("payload_bytes", plan.bytes);
            cuts::run(lab, plan, promises, row).await
        }),
        Scenario::Stop(args) => args.run(),
        Scenario::IdleLinks(With { lab, plan }) => lab
            .scenario("idle-links", async |lab, promises, row| {
                idle_links::run(lab, plan, promises, row).await
            }),
        Scenario::Resumes(args) => args.lab.scenario("resumes", async |lab, promises, row| {
            resumes::run(lab, args.links, args.cuts, promises, row).await
        }),
        Scenario::Slow(With { lab, plan }) => lab.scenario("slow", async |lab, promises, row| {
            row.set("payload_bytes", plan.bytes);
            slow::run(lab, plan, promises, row).await
        }),
        Scenario::Namespaces(With { lab, plan }) => {
            if let Some(why) = namespaces::why_not() {
                eprintln!("lab: namespaces is skipped: {why}");
                return Ok(Verdict::Fine);
            }
            lab.scenario("namespaces", async |lab, promises, row| {
                row.set("payload_bytes", plan.bytes).set("mbit", plan.mbit);
                namespaces::run(lab, plan, promises, row).await
            })
        }
        Scenario::Corrupt(args) => args.lab.scenario("corrupt", async |lab, promises, row| {
            corrupt::run(lab, args.sessions as usize, args.is_sealed(), promises, row).await
        }),
        Scenario::Farm(With { lab, plan }) => lab.scenario("farm", async |lab, promises, row| {
            farm::run(lab, *plan, promises, row).await
        }),
        Scenario::Farmer(With { lab, plan }) => lab
            .scenario("farmer", async |lab, promises, row| {
                farmer::run(lab, *plan, promises, row).await
            }),
        Scenario::Subfarmers(With { lab, plan }) => lab
            .scenario("subfarmers", async |lab, promises, row| {
                subfarmers::run(lab, *plan, promises, row).await
            }),
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

impl CorruptArgs {
    /// Whether the transport notices a turned bit, as all but plain ones do.
    fn is_sealed(&self) -> bool {
        let transport = self.lab.common.transport;
        !matches!(transport, Transport::Tcp | Transport::Unix | Transport::Memory)
    }
}

impl StopArgs {
    fn run(&self) -> Result<Verdict, Failure> {
        let asked = !self.times.is_empty() || self.kill;
        let usual = [1, 4, 7].map(|fifths| self.lab.dead * fifths / 5);
        let times = if asked { &self.times[..] } else { &usual };
        let mut worst = Verdict::Fine;
        for &time in times {
            let verdict = self.lab.scenario("stop", async |lab, promises, row| {
                stop::hold(lab, self.whom, time, promises, row).await
            })?;
            worst = worse(worst, verdict);
        }
        if self.kill || !asked {
            let verdict = self.lab.scenario("kill", async |lab, promises, row| {
                stop::kill(lab, self.whom, promises, row).await
            })?;
            worst = worse(worst, verdict);
        }
        Ok(worst)
    }
}

fn worse(one: Verdict, other: Verdict) -> Verdict {
    if one == Verdict::Fine { other } else { one }
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
        if matches!(self.common.transport, Transport::Unix | Transport::Memory) {
            return Err(Failure::Refused(
                "the lab's proxy carries TCP: --transport unix and memory are not allowed"
                    .to_owned(),
            ));
        }
        if self.common.session == OnOff::Off {
            return Err(Failure::Refused(
                "sessions are what the lab is about: --session off is not allowed".to_owned(),
            ));
        }
        Ok(())
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
