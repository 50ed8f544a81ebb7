//! The command line of the program.

use chunkcomm_coupled::patterns::Compute;
use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::numbers;
use clap::Parser;

const SIZE_BYTES_MAX: usize = 4 << 30;
const REPEATS_MAX: u64 = 1000;

#[derive(Parser)]
#[command(
    name = "cascade",
    about = "A chain of nodes filters an array: whole buffers against deltas; 3 nodes on this \
             machine if nothing else is said"
)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,

    /// Bytes of the array, 4 a number, such as 4MiB
    #[arg(long, value_name = "BYTES", default_value = "4MiB", value_parser = parse_size)]
    pub(crate) size: usize,
    /// Bytes of an increment, or auto: computed from measured costs
    #[arg(long, value_name = "BYTES|auto", default_value = "auto", value_parser = parse_delta)]
    pub(crate) delta: Delta,
    /// Work of every node on every element: empty, random, trig, or a wait such as wait:21ms
    #[arg(long, default_value = "trig")]
    pub(crate) compute: Compute,
    /// Timed runs of each kind, after an untimed one of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = numbers::<u64>(1..=REPEATS_MAX))]
    pub(crate) repeats: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum Delta {
    Auto,
    Bytes(usize),
}

fn parse_bytes(text: &str) -> Option<usize> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let shift = match &text[digits..] {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    text[..digits].parse::<usize>().ok()?.checked_mul(1 << shift)
}

fn parse_size(text: &str) -> Result<usize, String> {
    parse_bytes(text)
        .filter(|bytes| (4..=SIZE_BYTES_MAX).contains(bytes) && bytes % 4 == 0)
        .ok_or_else(|| "allowed are 4 to 4GiB in steps of 4, in B, KiB, MiB or GiB".to_owned())
}

fn parse_delta(text: &str) -> Result<Delta, String> {
    if text == "auto" {
        return Ok(Delta::Auto);
    }
    parse_bytes(text)
        .filter(|bytes| (4..=SIZE_BYTES_MAX).contains(bytes))
        .map(Delta::Bytes)
        .ok_or_else(|| "allowed are auto and 4 to 4GiB, in B, KiB, MiB or GiB".to_owned())
}

impl Options {
    /// Checks whether options that are each right go together.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.cluster.nodes {
            Some(1) => Err("--nodes 1 is no chain: allowed are 2 and more".to_owned()),
            _ => Ok(()),
        }
    }
}
