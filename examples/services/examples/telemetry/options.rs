//! The command line of the program.

use std::net::SocketAddr;
use std::path::PathBuf;

use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::numbers;
use clap::Parser;

use super::NODES;

#[derive(Parser)]
#[command(
    name = "telemetry",
    about = "An HTTP service (rank 0) that ships events to a collector (rank 1)"
)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,

    /// Address at which the service listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = http_address)]
    pub(crate) http: SocketAddr,

    /// File to which the collector appends events [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,

    /// Seconds at the end for requests that have begun
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = numbers::<u64>(0..=3600))]
    pub(crate) drain_seconds: u64,

    /// Demonstration: listen at any free port, send this number of events, end, and compare with the
    /// number collected; without --events they are only counted
    #[arg(long, value_name = "EVENTS", value_parser = numbers::<u64>(1..=1_000_000_000))]
    pub(crate) demo: Option<u64>,
}

fn http_address(text: &str) -> Result<SocketAddr, String> {
    let allowed = "allowed is IP:PORT, such as 127.0.0.1:8080 or [::1]:8080";
    text.parse().map_err(|_| allowed.to_owned())
}

impl Options {
    /// Checks whether options that are each right go together.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.cluster
            .needs_the_real_lan("telemetry has HTTP clients, which no virtual host reaches")?;
        match self.cluster.nodes {
            Some(nodes) if nodes != NODES => {
                Err(format!("--nodes {nodes}: allowed are {NODES}, service and collector"))
            }
            _ => Ok(()),
        }
    }
}
