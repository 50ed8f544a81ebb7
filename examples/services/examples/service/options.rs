//! The command line of the program, and the signals that end it.

use std::io;
use std::path::PathBuf;

use chunkcomm::Address;
use clap::Parser;
use tokio::signal;

#[derive(Parser)]
#[command(
    name = "service",
    about = "Ships lines to a collector that stores each of them once",
    subcommand_value_name = "collector|shipper"
)]
pub(crate) enum Role {
    /// Appends lines to a file, as ["SOURCE",NUMBER,"TEXT",STREAM,DELIVERY]
    Collector {
        /// Address to listen at, as 127.0.0.1:7700 or unix:/tmp/collector
        #[arg(long, value_name = "ADDRESS")]
        listen: Address,
        /// File of the lines; a collector that is started again goes on in it
        #[arg(long)]
        file: PathBuf,
    },
    /// Ships those lines of standard input that are not stored yet
    Shipper {
        /// Address of the collector
        #[arg(long, value_name = "ADDRESS")]
        to: Address,
        /// Name under which the collector counts the lines; of several shippers each has its own
        #[arg(long, value_name = "NAME", default_value = "shipper")]
        source: String,
        /// Ships this number of generated lines instead
        #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
        count: Option<u64>,
    },
}

fn count(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "allowed are whole numbers from 0")
}

/// Waits for SIGTERM or ctrl-c.
pub(crate) async fn stop() -> io::Result<()> {
    #[cfg(not(unix))]
    return signal::ctrl_c().await;
    #[cfg(unix)]
    {
        let mut terminate = signal::unix::signal(signal::unix::SignalKind::terminate())?;
        tokio::select! { _ = terminate.recv() => Ok(()), done = signal::ctrl_c() => done }
    }
}
