//! The command line, and the numbers to sort.

use std::error::Error;
use std::path::PathBuf;

use chunkcomm_coupled::by_policy::TeamOptions;
use chunkcomm_examples::command_line::numbers;
use clap::Parser;

use super::ways::Way;

/// Sizes of chunks that `--sweep` tries.
const SWEPT: [u32; 5] = [10, 100, 1_000, 10_000, 100_000];

#[derive(Parser)]
#[command(
    name = "parsort",
    about = "Sorts numbers by processes on other nodes: one by one and in chunks by hand, gathered \
             and not",
    after_help = "The workers are processes at the other nodes of each policy, in turn. By default \
                  each has its node: 6 for --workers 2 and both policies."
)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) teams: TeamOptions,

    /// Processes that sort
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = numbers::<u32>(1..=1000))]
    pub(super) workers: u32,

    /// Random numbers to sort
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = numbers::<u32>(0..=1_000_000_000))]
    count: u32,

    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = numbers::<u64>(0..=u64::MAX))]
    seed: u64,

    /// Sort the whole numbers in this file of rank 0 instead; white space separates them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["count", "seed"])]
    file: Option<PathBuf>,

    /// Numbers in a chunk, for the two ways with chunks
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = numbers::<u32>(1..=1_000_000))]
    chunk: u32,

    /// Try chunks of 10 to 100000 numbers
    #[arg(long, conflicts_with = "chunk")]
    sweep: bool,

    /// Rounds of sorting; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = numbers::<u32>(1..=1000))]
    pub(super) repeat: u32,
}

impl Options {
    /// Checks whether options that are each right go together.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.teams.check()
    }

    pub(super) fn ways(&self) -> Vec<Way> {
        let one = [self.chunk];
        let sizes = if self.sweep { &SWEPT[..] } else { &one[..] };
        let mut ways = vec![Way::Plain];
        ways.extend(sizes.iter().map(|&size| Way::ChunkedInput(size)));
        ways.extend(sizes.iter().map(|&size| Way::ChunkedBoth(size)));
        ways
    }

    /// Returns the numbers of the file, or random ones.
    pub(super) fn numbers(&self) -> Result<Vec<i64>, Box<dyn Error>> {
        let Some(file) = &self.file else { return Ok(random(self.seed, self.count)) };
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        let parsed = text
            .lines()
            .enumerate()
            .flat_map(|(line, text)| text.split_whitespace().map(move |word| (line + 1, word)));
        parsed
            .map(|(line, word)| {
                word.parse().map_err(|error| {
                    format!("{}, line {line}: {word:?}: {error}", file.display()).into()
                })
            })
            .collect()
    }
}

/// Returns numbers that follow from the seed (SplitMix64, of Steele, Lea and Flood, 2014).
fn random(seed: u64, count: u32) -> Vec<i64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    (0..count).map(|_| (next() >> 33) as i64).collect()
}
