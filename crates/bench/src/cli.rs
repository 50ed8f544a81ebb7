//! Command line: the commands, and the program that runs one.

mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{self, Verdict};
use crate::failure::{Failure, STATUS_FAILED};
use crate::harness::machine::{self, DIES_WITH_PARENT};

/// Exit status 1, of a missed budget or a broken promise.
const STATUS_MISSED: u8 = 1;

/// Measures the workspace between two processes, one a core, beside baselines in the same run.
#[derive(Debug, Parser)]
#[command(name = "chunkperf", version, max_term_width = 100, args_override_self = true)]
#[command(after_help = "Errors: exit status 2, on stderr; a missed budget: 1.")]
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
    /// Instructions and lines of code of one message, call or task, by valgrind.
    Instructions(commands::instructions::InstructionsArgs),
    /// A message to several subscribers; nothing is pinned.
    Feed(commands::feed::FeedArgs),
    /// Deliveries to a runtime whose other workers compute; nothing is pinned.
    Starve(commands::starve::StarveArgs),
    /// Tasks from a farmer to workers and their results back.
    Farm(commands::farm::FarmArgs),
    /// Times in which a cluster of processes on this machine starts and ends.
    Cluster(commands::cluster::ClusterArgs),
    /// Collective calls of a group of processes.
    Collective(commands::collective::CollectiveArgs),
    /// A matrix from one distribution to another, between groups of processes.
    Redistribute(commands::redistribute::RedistributeArgs),
    /// A built example of coupled groups of nodes, beside a model or another form of it.
    Coupled(commands::coupled::CoupledArgs),
    /// A rank of a collective call or of a transfer, started by the near end.
    #[command(name = crate::ranks::RANK_COMMAND, hide = true)]
    Rank {
        /// Its orders
        orders: String,
    },
    /// A buffer sent while it is computed, against the whole buffer.
    Delta(commands::delta::DeltaArgs),
    /// Costs of page protection by engine, and the size from which ordinary code gains by it.
    Tracked(commands::tracked::TrackedArgs),
    /// Parts of the library's costs, and the saving by gathering messages.
    Model(commands::model::ModelArgs),
    /// Ours beside other systems, in one table.
    Peers(commands::peers::PeersArgs),
    /// The statements of five papers beside ours.
    #[cfg(feature = "virtual")]
    Reproduce(commands::reproduce::ReproduceArgs),
    /// Runs every budget and reports which are met.
    Budgets(commands::budgets::BudgetsArgs),
    /// The far end for measurements from another host.
    Serve(commands::serve::ServeArgs),
    /// The far end of a pair, started by the near one.
    #[command(name = crate::pair::FAR_COMMAND, hide = true)]
    Far(commands::serve::FarArgs),
    /// Any other word: refused with the names that are allowed.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// Runs the program: parses, measures, prints.
pub fn main() -> ExitCode {
    // Nodes of a cluster and workers of a farm are copies of this program: they part from it here.
    crate::ours::cluster::serve_if_node();
    crate::ours::farm::serve_if_worker();
    run_program(|cli: Cli| run(cli.command))
}

/// Parses the command line, runs it, and returns the exit status. A failure is printed.
pub fn run_program<C: Parser>(run: impl FnOnce(C) -> Result<Verdict, Failure>) -> ExitCode {
    if std::env::var_os(DIES_WITH_PARENT).is_some() {
        machine::die_with_parent();
    }
    // A wrong option ends the program here, with status 2 and a message of the allowed values.
    match run(C::parse_from(words::negative_as_values(std::env::args_os()))) {
        Ok(Verdict::Fine) => ExitCode::SUCCESS,
        Ok(Verdict::Missed) => ExitCode::from(STATUS_MISSED),
        Err(failure) => {
            eprintln!("{}: {failure}", machine::program_name());
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
        Command::Instructions(args) => commands::instructions::run(&args),
        Command::Feed(args) => commands::feed::run(&args),
        Command::Starve(args) => commands::starve::run(&args),
        Command::Farm(args) => commands::farm::run(&args),
        Command::Cluster(args) => commands::cluster::run(&args),
        Command::Collective(args) => commands::collective::run(&args),
        Command::Redistribute(args) => commands::redistribute::run(&args),
        Command::Coupled(args) => commands::coupled::run(&args),
        Command::Rank { orders } => crate::ranks::serve(&orders).map(|()| Verdict::Fine),
        Command::Delta(args) => commands::delta::run(&args),
        Command::Tracked(args) => commands::tracked::run(&args),
        Command::Model(args) => commands::model::run(&args),
        Command::Peers(args) => commands::peers::run(&args),
        #[cfg(feature = "virtual")]
        Command::Reproduce(args) => commands::reproduce::run(&args),
        Command::Budgets(args) => commands::budgets::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Far(args) => commands::serve::far(&args),
        Command::Other(words) => {
            let all = Cli::command();
            let shown = all.get_subcommands().filter(|command| !command.is_hide_set());
            let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
            let (word, names) = (words.first().map_or("", String::as_str), names.join(", "));
            Err(Failure::Refused(format!("there is no command '{word}'; allowed are {names}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

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
            if is_of(crate::pair::FAR_COMMAND) || is_of("budgets") {
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
