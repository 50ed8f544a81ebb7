//! `chunkperf idle`: costs of links that carry nothing, or carried a feed before.

use std::time::Duration;

use clap::Args;

use super::Verdict;
use crate::failure::Failure;
use crate::harness::protocol::{PolicyKind, Transport};
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
    /// Bytes that the one node feeds to all others first, in messages of 1000 B; 0 is no feed
    #[arg(long, value_name = "B", default_value = "0", value_parser = values::bytes)]
    fed: usize,
    /// Links whose subscribers read nothing; the feed then leaves messages out for them
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::stopped)]
    stopped: usize,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &IdleArgs) -> Result<Verdict, Failure> {
    if args.stopped > args.links || args.stopped > 0 && args.fed == 0 {
        let why = "--stopped needs --fed, and as many --links";
        return Err(Failure::Refused(why.to_owned()));
    }
    let setting = args.common.setting()?;
    if args.fed > 0 && setting.place("127.0.0.1").transport == Transport::Memory {
        let why = "--fed needs two processes: allowed with --transport tcp and unix";
        return Err(Failure::Refused(why.to_owned()));
    }
    let bench = pair::start(&setting)?;
    let node = setting.node(PolicyKind::Chunked);
    let mut links = Links::open(bench, args.links + LINKS_BEFORE, args.fed > 0, node)?;
    links.add(LINKS_BEFORE)?;
    links.bench().rest(SETTLE);
    let (before, feeder_before) = (links.bench().usage()?, links.bench().far_usage(0)?);
    links.add(args.links)?;
    if args.fed > 0 {
        links.feed(args.fed, args.links, args.stopped)?;
    }
    links.bench().rest(SETTLE);
    let (settled, feeder) = (links.bench().usage()?, links.bench().far_usage(0)?);
    links.bench().rest(WATCH);
    let watched = links.bench().usage()?;
    let mut row = args.common.row("idle");
    let a_link = |grown: Option<f64>| grown.map(|bytes| bytes / args.links as f64);
    row.set("links", args.links)
        .set("bytes_per_link", a_link(settled.grown_bytes(before)))
        .set("wakeups_per_second", watched.wakeups_per_second(settled, WATCH))
        .set("session", name_of(args.common.session));
    if args.fed > 0 {
        row.set("stopped", args.stopped)
            .set("feeder_bytes_per_link", a_link(feeder.grown_bytes(feeder_before)));
    }
    row.print(args.common.json);
    Ok(Verdict::Fine)
}
