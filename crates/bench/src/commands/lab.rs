//! `chunkperf lab`: real faults between processes of this machine.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::Verdict;
use crate::cli::{Common, values};
use crate::failure::Failure;
use crate::harness::protocol::{OnOff, Transport};
use crate::harness::slices::name_of;
use crate::harness::{far, machine};
use crate::lab::stop::{self, Whom};
use crate::lab::{
    Lab, Promises, corrupt, cuts, farm, farmer, idle_links, namespaces, resumes, slow, subfarmers,
};
use crate::table::Row;

/// Options of `chunkperf lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// A saturated stream whose connection is cut again and again
    Cuts(CutsArgs),
    /// A process that is stopped for a while, and one that is killed
    Stop(StopArgs),
    /// Very many links that carry nothing
    IdleLinks(IdleLinksArgs),
    /// Many links whose connections are cut at the same moment
    Resumes(ResumesArgs),
    /// Receivers that take less than is sent
    Slow(SlowArgs),
    /// One turned bit a session
    Corrupt(CorruptArgs),
    /// A network that is unplugged and destroys sockets, in namespaces (needs root)
    Namespaces(NamespacesArgs),
    /// A farm whose worker processes are killed, or stopped for a while
    Farm(FarmArgs),
    /// A farmer that is killed, and started again with its journal
    Farmer(FarmerArgs),
    /// A farm of a cluster whose sub-farmers are killed
    Subfarmers(SubfarmersArgs),
    /// Any other word: refused with the names that are allowed.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(Debug, Args)]
struct LabCommon {
    #[command(flatten)]
    common: Common,
    /// Seed of the faults, their places and times [default: another one each time]
    #[arg(long, value_name = "N", value_parser = values::seed)]
    seed: Option<u64>,
    /// Time after which a silent peer is given up for dead; it is asked after a tenth of that time,
    /// and suspected after three tenths
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = values::dead)]
    dead: Duration,
    /// Delay that still counts as in time
    #[arg(long, value_name = "DUR", default_value = "2s", value_parser = values::duration)]
    late_max: Duration,
}

#[derive(Debug, Args)]
struct CutsArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Number of cuts of the connection
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::times)]
    cuts: usize,
    /// Mean time for which a connection carries data before it is cut
    #[arg(long, value_name = "DUR", default_value = "20ms", value_parser = values::some_time)]
    every: Duration,
    /// Fault of the connection; one-way, blackhole and stall take seconds each to be noticed
    #[arg(long, value_enum, default_value_t = cuts::How::Mixed)]
    how: cuts::How,
    /// Added time of each byte from node to node; a resume takes it several times
    #[arg(long, value_name = "DUR", default_value = "0s", value_parser = values::duration)]
    delay: Duration,
    /// Direction of the stream, as the node that dialled sees it
    #[arg(long, value_enum, default_value_t = cuts::Flow::Forth)]
    direction: cuts::Flow,
    /// Encoded bytes of a message, at least 8
    #[arg(long, value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    size: usize,
    /// Longest time of a resume beyond the backoff (99th percentile)
    #[arg(long, value_name = "DUR", default_value = "50ms", value_parser = values::duration)]
    resume_max: Duration,
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
struct IdleLinksArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Number of links, each to a node of its own
    #[arg(long, value_name = "N", default_value = "10000", value_parser = values::links)]
    links: usize,
    /// Time in which wake-ups are counted
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = values::some_time)]
    watch: Duration,
    /// Most bytes of memory that a link may take, both ends together
    #[arg(long, value_name = "B", default_value = "32KiB", value_parser = values::bytes)]
    bytes_max: usize,
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
struct SlowArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Seconds of the run
    #[arg(long, value_name = "S", default_value = "60", value_parser = values::count)]
    seconds: u64,
    /// Channels with a slow receiver, beside a brisk one
    #[arg(long, value_name = "N", default_value = "4", value_parser = values::channels)]
    channels: usize,
    /// Messages a second that a slow receiver takes
    #[arg(long, value_name = "R", default_value = "1000", value_parser = values::rate)]
    rate: u64,
    /// Encoded bytes of a message, at least 8
    #[arg(long, value_name = "B", default_value = "1KiB", value_parser = values::message_bytes)]
    size: usize,
    /// Most bytes by which a process's memory may grow in the last two thirds of the time
    #[arg(long, value_name = "B", default_value = "4MiB", value_parser = values::bytes)]
    growth_max: usize,
}

#[derive(Debug, Args)]
struct CorruptArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Number of sessions, with one turned bit each
    #[arg(long, value_name = "N", default_value = "40", value_parser = values::count)]
    sessions: u64,
}

#[derive(Debug, Args)]
struct NamespacesArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Number of faults of the network
    #[arg(long, value_name = "N", default_value = "20", value_parser = values::times)]
    faults: usize,
    /// Mean time for which messages pass before a fault
    #[arg(long, value_name = "DUR", default_value = "300ms", value_parser = values::some_time)]
    every: Duration,
    /// Mean time for which the network is unplugged
    #[arg(long, value_name = "DUR", default_value = "700ms", value_parser = values::some_time)]
    outage: Duration,
    /// Megabits a second that pass [default: as many as go]
    #[arg(long, value_name = "N", value_parser = values::count)]
    mbit: Option<u64>,
    /// Encoded bytes of a message, at least 8
    #[arg(long, value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    size: usize,
}

#[derive(Debug, Args)]
struct FarmArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Number of workers that are killed; each is replaced
    #[arg(long, value_name = "N", default_value = "20", value_parser = values::times)]
    kills: usize,
    /// Number of workers that are stopped, each for up to a second
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::times)]
    stops: usize,
    /// Mean time between two faults
    #[arg(long, value_name = "DUR", default_value = "100ms", value_parser = values::some_time)]
    every: Duration,
    /// Number of different tasks, of 50 us to 5 ms each; a run has a tenth of them to all
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::count)]
    tasks: u64,
}

#[derive(Debug, Args)]
struct FarmerArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Number of farmers that are killed
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::times)]
    kills: usize,
    /// Mean time from a farmer's start to its death
    #[arg(long, value_name = "DUR", default_value = "300ms", value_parser = values::some_time)]
    every: Duration,
    /// Tasks of a run, of 50 us to 5 ms each
    #[arg(long, value_name = "N", default_value = "2000", value_parser = values::count)]
    tasks: u64,
}

#[derive(Debug, Args)]
struct SubfarmersArgs {
    #[command(flatten)]
    lab: LabCommon,
    /// Number of sub-farmers that are killed, one a run
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::times)]
    kills: usize,
    /// Tasks of a run, of 50 us to 5 ms each
    #[arg(long, value_name = "N", default_value = "2000", value_parser = values::count)]
    tasks: u64,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or a process cannot be started or ends.
pub fn run(args: &LabArgs) -> Result<Verdict, Failure> {
    match &args.scenario {
        Scenario::Cuts(args) => {
            let plan = cuts::Plan {
                cuts: args.cuts,
                every: args.every,
                how: args.how,
                delay: args.delay,
                flow: args.direction,
                bytes: args.size,
                resume_max: args.resume_max,
            };
            args.lab.scenario("cuts", async |lab, promises, row| {
                row.set("how", name_of(args.how))
                    .set("direction", name_of(args.direction))
                    .set("delay_us", args.delay.as_secs_f64() * 1e6)
                    .set("payload_bytes", args.size);
                cuts::run(lab, &plan, promises, row).await
            })
        }
        Scenario::Stop(args) => args.run(),
        Scenario::IdleLinks(args) => {
            let (links, watch, bytes_max) = (args.links, args.watch, args.bytes_max);
            let plan = idle_links::Plan { links, watch, bytes_max };
            args.lab.scenario("idle-links", async |lab, promises, row| {
                idle_links::run(lab, &plan, promises, row).await
            })
        }
        Scenario::Resumes(args) => args.lab.scenario("resumes", async |lab, promises, row| {
            resumes::run(lab, args.links, args.cuts, promises, row).await
        }),
        Scenario::Slow(args) => {
            let plan = slow::Plan {
                time: Duration::from_secs(args.seconds),
                channels: args.channels,
                rate: args.rate,
                bytes: args.size,
                growth_max: args.growth_max,
            };
            args.lab.scenario("slow", async |lab, promises, row| {
                row.set("payload_bytes", args.size);
                slow::run(lab, &plan, promises, row).await
            })
        }
        Scenario::Namespaces(args) => args.run(),
        Scenario::Corrupt(args) => args.lab.scenario("corrupt", async |lab, promises, row| {
            corrupt::run(lab, args.sessions as usize, args.is_sealed(), promises, row).await
        }),
        Scenario::Farm(args) => {
            let &FarmArgs { kills, stops, every, tasks, .. } = args;
            let plan = farm::Plan { kills, stops, every, tasks };
            args.lab.scenario("farm", async |lab, promises, row| {
                farm::run(lab, plan, promises, row).await
            })
        }
        Scenario::Farmer(args) => {
            let &FarmerArgs { kills, every, tasks, .. } = args;
            let plan = farmer::Plan { kills, every, tasks };
            args.lab.scenario("farmer", async |lab, promises, row| {
                farmer::run(lab, plan, promises, row).await
            })
        }
        Scenario::Subfarmers(args) => {
            let &SubfarmersArgs { kills, tasks, .. } = args;
            let plan = subfarmers::Plan { kills, tasks };
            args.lab.scenario("subfarmers", async |lab, promises, row| {
                subfarmers::run(lab, plan, promises, row).await
            })
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

impl NamespacesArgs {
    fn run(&self) -> Result<Verdict, Failure> {
        if let Some(why) = namespaces::why_not() {
            eprintln!("chunkperf: lab namespaces is skipped: {why}");
            return Ok(Verdict::Fine);
        }
        let &Self { faults, every, outage, mbit, size: bytes, .. } = self;
        let plan = namespaces::Plan { faults, every, outage, mbit, bytes };
        self.lab.scenario("namespaces", async |lab, promises, row| {
            row.set("payload_bytes", bytes).set("mbit", mbit);
            namespaces::run(lab, &plan, promises, row).await
        })
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
            eprintln!("chunkperf: lab {name} --seed {seed}");
        }
        let mut lab = Lab::new(&setting, seed, self.dead, self.late_max);
        let mut row = self.common.row("lab");
        row.set("scenario", name).set("seed", seed);
        let mut promises = Promises::default();
        // The runtime is dropped here with all its tasks, the proxy's connections too.
        far::runtime(1)?.block_on(run(&mut lab, &mut promises, &mut row))?;
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
