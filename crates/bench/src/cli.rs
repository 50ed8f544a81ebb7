//! Command line: the commands and options, and the combinations that are refused.

mod copy;
pub mod values;
mod words;

use std::process::ExitCode;

use chunkcomm::proto::tuning::without::Controller;
use clap::{Args, Parser, Subcommand};

use crate::commands::{self, Verdict};
use crate::failure::Failure;
use crate::harness::machine;
use crate::harness::near::Setting;
use crate::harness::protocol::{OnOff, RuntimeKind, Transport};
use crate::harness::slices::name_of;
use crate::table::Row;

/// Exit status 2, of a command that could not be done.
pub(crate) const STATUS_FAILED: u8 = 2;

/// Environment variable of the measurements that `budgets` starts: they end when it does.
pub(crate) const DIES_WITH_PARENT: &str = "CHUNKPERF_DIES_WITH_PARENT";

/// Exit status 1, of a missed budget or a broken promise.
const STATUS_MISSED: u8 = 1;

/// Measures the workspace between two processes, one a core, beside baselines in the same run.
#[derive(Debug, Parser)]
#[command(name = "chunkperf", version, max_term_width = 100, args_override_self = true)]
#[command(after_help = "Errors: exit status 2, on stderr; a missed budget, a broken promise: 1.")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Many small messages one way.
    Stream(commands::stream::StreamArgs),
    /// Round trips of one message.
    Latency(commands::latency::LatencyArgs),
    /// Large messages one way.
    Bandwidth(commands::bandwidth::BandwidthArgs),
    /// Requests to a service and their answers.
    Calls(commands::calls::CallsArgs),
    /// Costs of links that carry nothing.
    Idle(commands::idle::IdleArgs),
    /// Deliveries to a runtime whose other workers compute; nothing is pinned.
    Starve(commands::starve::StarveArgs),
    /// Tasks from a farmer to workers and their results back.
    Farm(commands::farm::FarmArgs),
    /// Memory of a farmer in which many tasks wait.
    FarmQueue(commands::farm_queue::FarmQueueArgs),
    /// A farm without a setting against fixed prefetch and grain, over lengths of tasks.
    FarmSweep(commands::farm_sweep::FarmSweepArgs),
    /// The number of workers from which sub-farmers pay, in virtual time.
    #[cfg(feature = "virtual")]
    FarmTree(commands::farm_tree::FarmTreeArgs),
    /// The farms of a paper in virtual time, its numbers beside ours.
    #[cfg(feature = "virtual")]
    LanStudy(commands::lan_study::LanStudyArgs),
    /// Tasks that wait, with several begun at a time, as in a paper.
    #[cfg(feature = "virtual")]
    GdhStudy(commands::gdh_study::GdhStudyArgs),
    /// The deltas of a paper in virtual time, its numbers beside ours.
    #[cfg(feature = "virtual")]
    DeltaStudy(commands::delta_study::DeltaStudyArgs),
    /// Times in which a cluster of processes on this machine starts and ends.
    Cluster(commands::cluster::ClusterArgs),
    /// A buffer sent while it is computed, against the whole buffer.
    Delta(commands::delta::DeltaArgs),
    /// Costs of page protection by engine, and the size from which ordinary code gains by it.
    Tracked(commands::tracked::TrackedArgs),
    /// Parts of the library's costs, and the saving by gathering messages.
    Model(commands::model::ModelArgs),
    /// The library without a setting against fixed packet sizes and lingers, over sizes and rates.
    Sweep(commands::sweep::SweepArgs),
    /// Real faults between processes, and the promises that held.
    Lab(commands::lab::LabArgs),
    /// A node process of the lab, started by it.
    #[command(name = crate::lab::node::NODE_COMMAND, hide = true)]
    LabNode,
    /// A node of the lab's farm, started by it.
    #[command(name = crate::lab::subfarmers::NODE_COMMAND, hide = true)]
    LabFarmNode,
    /// A farmer of the lab, started by it.
    #[command(name = crate::lab::farmer::FARMER_COMMAND, hide = true)]
    LabFarmer {
        /// Its journal
        journal: std::path::PathBuf,
        /// Number of its tasks
        tasks: u64,
    },
    /// Runs every budget and reports which are met.
    Budgets(commands::budgets::BudgetsArgs),
    /// The far end for measurements from another host.
    Serve(commands::serve::ServeArgs),
    /// The far end of a pair, started by the near one.
    #[command(name = crate::harness::near::FAR_COMMAND, hide = true)]
    Far(commands::serve::FarArgs),
    /// Any other word: refused with the names that are allowed.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Transport between the two ends
    #[arg(long, value_enum, default_value_t = Transport::Tcp)]
    pub transport: Transport,
    /// Runtime that drives the library; busy-poll is the program's own, polled without sleeping
    #[arg(long, value_enum, default_value_t = RuntimeKind::Ambient)]
    pub runtime: RuntimeKind,
    /// Workers of the tokio runtime; 1 is its current-thread flavour
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::threads)]
    pub threads: usize,
    /// The library's session (sequence, acknowledgements); off only to measure its cost
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub session: OnOff,
    /// Address of a `chunkperf serve` to use as the far end [default: a child process]
    #[arg(long, value_name = "HOST:PORT", value_parser = values::host_port)]
    pub connect: Option<String>,
    /// Controllers of the library to switch off, to measure the worth of each
    #[arg(long, value_name = "CONTROLLER,..", value_delimiter = ',',
          value_parser = Controller::ALL.map(|(_, name)| name))]
    pub without: Vec<String>,
    /// One JSON object a row on stdout, and nothing else
    #[arg(long)]
    pub json: bool,
}

impl Common {
    /// Returns the setting of the two processes. With `--transport tls` this may end the process,
    /// after a copy that has a credential has done the work.
    ///
    /// # Errors
    /// If the options do not go together.
    pub fn setting(&self) -> Result<Setting, Failure> {
        if self.runtime == RuntimeKind::BusyPoll && self.threads != 1 {
            return Err(Failure::Refused(format!(
                "--runtime busy-poll polls a current-thread runtime: --threads {} is not allowed, \
                 only --threads 1",
                self.threads
            )));
        }
        if self.connect.is_some() && self.transport != Transport::Tcp {
            return Err(Failure::Refused(format!(
                "--connect reaches another host by --transport tcp, not {}",
                name_of(self.transport)
            )));
        }
        self.switch_off()?;
        copy::prepare_transport(self.transport)?;
        Ok(Setting {
            transport: self.transport,
            runtime: self.runtime,
            threads: self.threads,
            session: self.session == OnOff::On,
            connect: self.connect.clone(),
        })
    }

    /// Makes sure that the nodes of this process and of its children do without the controllers
    /// that are to be switched off. This may end the process, after a copy has done the work.
    ///
    /// # Errors
    /// If the far end is on another host, or the copy cannot be started.
    pub fn switch_off(&self) -> Result<(), Failure> {
        if !self.without.is_empty() && self.connect.is_some() {
            return Err(Failure::Refused(
                "--without switches off both ends: allowed without --connect".to_owned(),
            ));
        }
        copy::prepare_without(&self.without)
    }

    /// Refuses options of real processes, for nodes that are virtual hosts.
    ///
    /// # Errors
    /// If one of them is set.
    pub fn check_virtual(&self) -> Result<(), Failure> {
        let plain = self.transport == Transport::Tcp
            && self.runtime == RuntimeKind::Ambient
            && self.threads == 1
            && self.session == OnOff::On
            && self.connect.is_none()
            && self.without.is_empty();
        if plain {
            return Ok(());
        }
        Err(Failure::Refused(
            "--lan virtual: the hosts have a network and a runtime of their own; --transport, \
             --runtime, --threads, --session, --connect and --without are allowed with --lan real"
                .to_owned(),
        ))
    }

    /// Returns the options as arguments, for a command that runs others.
    pub fn to_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--transport={}", name_of(self.transport)),
            format!("--runtime={}", name_of(self.runtime)),
            format!("--threads={}", self.threads),
            format!("--session={}", name_of(self.session)),
        ];
        arguments.extend(self.connect.as_ref().map(|server| format!("--connect={server}")));
        let without = self.without.join(",");
        arguments.extend((!without.is_empty()).then(|| format!("--without={without}")));
        arguments
    }

    /// Returns a row with the keys that every row has.
    pub fn row(&self, bench: &str) -> Row {
        let mut row = Row::default();
        row.set("bench", bench)
            .set("transport", name_of(self.transport))
            .set("runtime", format!("{}:{}", name_of(self.runtime), self.threads));
        if !self.without.is_empty() {
            row.set("without", self.without.join(","));
        }
        row
    }

    /// Refuses a baseline over sockets where the row's transport has none.
    ///
    /// # Errors
    /// If the transport is memory.
    pub fn needs_sockets(&self, baseline: &str) -> Result<(), Failure> {
        if self.transport == Transport::Memory {
            return Err(Failure::Refused(format!(
                "--against {baseline} needs sockets: allowed with --transport tcp and unix, and \
                 with tls, where it uses plain TCP; not memory"
            )));
        }
        Ok(())
    }

    /// Refuses `--session off` for a command that always keeps its sessions.
    ///
    /// # Errors
    /// If it was given.
    pub fn needs_session(&self, command: &str) -> Result<(), Failure> {
        match self.session {
            OnOff::On => Ok(()),
            OnOff::Off => Err(Failure::Refused(format!(
                "{command} always keeps its session: only --session on is allowed"
            ))),
        }
    }

    /// Refuses `--connect` for a command that runs on this machine only.
    ///
    /// # Errors
    /// If another host was named.
    pub fn needs_this_host(&self, command: &str) -> Result<(), Failure> {
        match &self.connect {
            Some(_) => Err(Failure::Refused(format!(
                "{command} starts its processes on this machine: --connect is allowed with \
                 stream, latency, bandwidth, calls and idle"
            ))),
            None => Ok(()),
        }
    }
}

/// Runs the program: parses, measures, prints.
pub fn main() -> ExitCode {
    // Nodes of a cluster and workers of a farm are copies of this program: they part from it here.
    crate::ours::cluster::serve_if_node();
    crate::ours::farm::serve_if_worker();
    if std::env::var_os(DIES_WITH_PARENT).is_some() {
        machine::die_with_parent();
    }
    // A wrong option ends the program here, with status 2 and a message of the allowed values.
    let cli = Cli::parse_from(words::negative_as_values(std::env::args_os()));
    match run(cli.command) {
        Ok(Verdict::Fine) => ExitCode::SUCCESS,
        Ok(Verdict::Missed) => ExitCode::from(STATUS_MISSED),
        Err(failure) => {
            eprintln!("chunkperf: {failure}");
            ExitCode::from(STATUS_FAILED)
        }
    }
}

fn run(command: Command) -> Result<Verdict, Failure> {
    match command {
        Command::Stream(args) => commands::stream::run(&args),
        Command::Latency(args) => commands::latency::run(&args),
        Command::Bandwidth(args) => commands::bandwidth::run(&args),
        Command::Calls(args) => commands::calls::run(&args),
        Command::Idle(args) => commands::idle::run(&args),
        Command::Starve(args) => commands::starve::run(&args),
        Command::Farm(args) => commands::farm::run(&args),
        Command::FarmQueue(args) => commands::farm_queue::run(&args),
        Command::FarmSweep(args) => commands::farm_sweep::run(&args),
        #[cfg(feature = "virtual")]
        Command::FarmTree(args) => commands::farm_tree::run_all(&args),
        #[cfg(feature = "virtual")]
        Command::LanStudy(args) => commands::lan_study::run(&args),
        #[cfg(feature = "virtual")]
        Command::GdhStudy(args) => commands::gdh_study::run(&args),
        #[cfg(feature = "virtual")]
        Command::DeltaStudy(args) => commands::delta_study::run(&args),
        Command::Cluster(args) => commands::cluster::run(&args),
        Command::Delta(args) => commands::delta::run(&args),
        Command::Tracked(args) => commands::tracked::run(&args),
        Command::Model(args) => commands::model::run(&args),
        Command::Sweep(args) => commands::sweep::run(&args),
        Command::Lab(args) => commands::lab::run(&args),
        Command::LabNode => crate::lab::node::serve(),
        Command::LabFarmNode => crate::lab::subfarmers::serve().map(|()| Verdict::Fine),
        Command::LabFarmer { journal, tasks } => {
            crate::lab::farmer::farm_out(&journal, tasks).map(|()| Verdict::Fine)
        }
        Command::Budgets(args) => commands::budgets::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Far(args) => commands::serve::far(&args),
        Command::Other(words) => Err(Failure::Refused(format!(
            "there is no command '{}'; allowed are stream, latency, bandwidth, calls, idle, \
             starve, farm, farm-queue, farm-sweep, cluster, delta, tracked, model, sweep, lab, \
             budgets and serve",
            words.first().map_or("", String::as_str)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, CommandFactory};

    /// Returns the options of a command and of those below it, each with the words that lead to it.
    fn options(command: &clap::Command, path: &[String]) -> Vec<(Vec<String>, Arg)> {
        let own = command.get_arguments().filter(|it| it.get_action().takes_values());
        let own = own.filter(|it| it.get_long().is_some()).map(|it| (path.to_vec(), it.clone()));
        let below = command
            .get_subcommands()
            .flat_map(|below| options(below, &[path, &[below.get_name().to_owned()]].concat()));
        own.chain(below).collect()
    }

    #[test]
    fn every_option_says_what_is_allowed() {
        let all = options(&Cli::command(), &["chunkperf".to_owned()]);
        assert!(all.len() > 60, "of these few are left: {}", all.len());
        let mut wrongs = Vec::new();
        for (path, option) in all {
            // The far end's options come from a near end, never from a user. `budgets` checks its
            // two options itself.
            let is_of = |name| path.last().is_some_and(|it| it == name);
            if is_of(crate::harness::near::FAR_COMMAND) || is_of("budgets") {
                continue;
            }
            // Any text is the path of a file.
            if option.get_long() == Some("trace") {
                continue;
            }
            for wrong in ["nope", "", "-1", "99999999999999999999999", "1:2:3"] {
                let value = format!("--{}={wrong}", option.get_long().unwrap_or_default());
                let words = path.iter().chain([&value]);
                let Err(error) = Cli::try_parse_from(words) else {
                    wrongs.push(format!("{path:?} takes {value}"));
                    continue;
                };
                let told = error.to_string();
                let allowed = told.contains("allowed") || told.contains("possible values: ");
                if error.exit_code() != 2 || !allowed {
                    wrongs.push(format!("{path:?} {value}: {told}"));
                }
            }
        }
        assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
    }
}
