//! The command line of the program.

use chunkcomm_coupled::by_policy::TeamOptions;
use chunkcomm_examples::command_line::numbers;
use clap::Parser;

#[derive(Parser)]
#[command(
    name = "echo",
    about = "Sends items to another node and back, gathered and each at once, and compares",
    after_help = "By default there are 4 nodes: for each policy one that sends and one that sends back. Started by the program itself, on Linux, these two have a processor each where there are two."
)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) teams: TeamOptions,

    /// Items sent
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = numbers::<u32>(1..=10_000_000))]
    pub(crate) items: u32,

    /// Words of 32 bits in an item, one size after the other
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_values_t = [1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 700, 1000],
        value_parser = numbers::<u32>(0..=1_000_000)
    )]
    pub(crate) words: Vec<u32>,

    /// Rounds of each size; the medians count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = numbers::<u32>(1..=1000))]
    pub(crate) repeat: u32,

    /// Least gain that counts: the crossover is where chunking gains less
    #[arg(long, value_name = "X", default_value_t = 1.1, value_parser = gain)]
    pub(crate) gain: f64,
}

fn gain(text: &str) -> Result<f64, String> {
    let gain = text.parse().ok().filter(|gain| (0.01..=1000.0).contains(gain));
    gain.ok_or_else(|| "allowed are numbers from 0.01 to 1000".to_owned())
}

impl Options {
    /// Checks whether options that are each right go together.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.teams.check()
    }
}
