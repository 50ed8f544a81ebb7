//! The command line of the program.

use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::numbers;
use clap::Parser;

#[derive(Parser)]
#[command(name = "nodes", about = "Prints the nodes of a cluster and how far they are from rank 0")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,

    /// Round trips to each node
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = numbers::<u32>(1..=1_000_000))]
    pub(crate) round_trips: u32,

    /// Mebibytes sent to each node
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = numbers::<u32>(1..=65_536))]
    pub(crate) mebibytes: u32,

    /// Seconds that the other nodes wait for another rank 0 when theirs is gone; one that is started
    /// by hand with the same variables prints the table again
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = numbers::<u64>(0..=86_400))]
    pub(crate) rejoin: u64,
}
