//! `chunkperf idle`: costs of links that carry nothing.

use std::time::Duration;

use clap::Args;

use super::Verdict;
use crate::failure::Failure;
use crate::harness::protocol::PolicyKind;
use crate::harness::slices::name_of;
use crate::options::{Common, values};
use crate::ours::idle::Links;
use crate::pair;

/// Time for which all links are idle before memory is read: 1.5 s.
const SETTLE: Duration = Duration::from_millis(1500);

/// Time in which wake-ups are counted: 3 s.
const WATCH: Duration = Duration::from_secs(3);

/// Links made before memory is first read, so that one-time setup is not counted.
const LINKS_BEFORE: usize = 2;

/// Options of `chunkperf idle`.
#[derive(Debug, Args)]
pub struct IdleArgs {
    #[command(flatten)]
    common: Common,
    /// Number of links, each to a node of its own
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::links)]
    links: usize,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &IdleArgs) -> Result<Verdict, Failure> {
    let setting = args.common.setting()?;
    let bench = pair::start(&setting)?;
    let node = setting.node(PolicyKind::Chunked);
    let mut links = Links::open(bench, args.links + LINKS_BEFORE, node)?;
    links.add(LINKS_BEFORE)?;
    links.bench().rest(SETTLE);
    let before = links.bench().usage()?;
    links.add(args.links)?;
    links.bench().rest(SETTLE);
    let settled = links.bench().usage()?;
    links.bench().rest(WATCH);
    let watched = links.bench().usage()?;
    let mut row = args.common.row("idle");
    row.set("links", args.links)
        .set("bytes_per_link", settled.grown_bytes(before).map(|bytes| bytes / args.links as f64))
        .set("wakeups_per_second", watched.wakeups_per_second(settled, WATCH))
        .set("session", name_of(args.common.session))
        .print(args.common.json);
    Ok(Verdict::Fine)
}
