//! Very many links that carry nothing.

use std::time::{Duration, Instant};

use chunkcomm_bench::failure::Failure;
use chunkcomm_bench::harness::protocol::Usage;
use chunkcomm_bench::options::values;
use chunkcomm_bench::table::Row;
use clap::Args;

use super::protocol::Work;
use super::{Lab, Promises};
use crate::processes::Process;

/// Time for which all links are idle before memory is read: 1.5 s.
const SETTLE: Duration = Duration::from_millis(1500);

/// Links made before memory is first read, so that one-time setup is not counted.
const LINKS_BEFORE: usize = 2;

/// Open files of a process without its links.
const OTHER_FILES: u64 = 64;

/// Plan of the scenario.
#[derive(Debug, Clone, Copy, Args)]
pub struct Plan {
    /// Number of links, each to a node of its own
    #[arg(long, value_name = "N", default_value = "10000", value_parser = values::links)]
    pub links: usize,
    /// Time in which wake-ups are counted
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = values::some_time)]
    pub watch: Duration,
    /// Most bytes of memory that a link may take, both ends together
    #[arg(long, value_name = "B", default_value = "32KiB", value_parser = values::bytes)]
    pub bytes_max: usize,
}

/// Two processes and the links between them.
struct Couple {
    dialler: Process,
    acceptor: Process,
    address: std::net::SocketAddr,
    links: usize,
}

/// Runs the scenario.
///
/// # Errors
/// If a process cannot be started or ends.
pub async fn run(
    lab: &mut Lab,
    plan: &Plan,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    let mut couples = Vec::new();
    let mut left = plan.links;
    while left > 0 {
        let couple = Couple::open(lab, left).await?;
        left -= couple.links;
        couples.push(couple);
    }
    let before = usage(&mut couples).await?;
    let started = Instant::now();
    for couple in &mut couples {
        couple.link(couple.links).await?;
    }
    let linked = started.elapsed();
    tokio::time::sleep(SETTLE).await;
    let settled = usage(&mut couples).await?;
    tokio::time::sleep(plan.watch).await;
    let watched = usage(&mut couples).await?;
    for couple in &mut couples {
        couple.are_alive(lab, promises).await?;
    }
    let bytes_per_link = settled.grown_bytes(before).map(|bytes| bytes / plan.links as f64);
    row.set("links", plan.links)
        .set("processes", 2 * couples.len())
        .set("linked_seconds", linked.as_secs_f64())
        .set("bytes_per_link", bytes_per_link)
        .set("wakeups_per_second", watched.wakeups_per_second(settled, plan.watch));
    if let Some(bytes) = bytes_per_link {
        promises.hold(bytes <= plan.bytes_max as f64, || {
            format!("an idle link takes {bytes} bytes, more than {}", plan.bytes_max)
        });
    }
    Ok(())
}

impl Couple {
    /// Starts two processes with as many links as their open files allow, at most `wanted`.
    async fn open(lab: &Lab, wanted: usize) -> Result<Self, Failure> {
        let dialler = Process::start(lab, 0).await?;
        let mut acceptor = Process::start(lab, 1).await?;
        let files = dialler.files.min(acceptor.files).saturating_sub(OTHER_FILES);
        let links = wanted.min(usize::try_from(files).unwrap_or(usize::MAX));
        if links == 0 {
            return Err(Failure::broken("opening links", "no process may open files"));
        }
        let address = acceptor.listen().await?;
        let mut couple = Self { dialler, acceptor, address, links };
        couple.link(LINKS_BEFORE).await?;
        Ok(couple)
    }

    async fn link(&mut self, count: usize) -> Result<(), Failure> {
        let (dialled, met) =
            tokio::join!(self.dialler.dial(count, &self.address), self.acceptor.meet(count));
        dialled.and(met)
    }

    /// Sends a number over each link.
    async fn are_alive(&mut self, lab: &Lab, promises: &mut Promises) -> Result<(), Failure> {
        let links = self.links + LINKS_BEFORE;
        self.acceptor.work(Work::ConsumeRounds { links }).await?;
        let (acknowledged_ns, failures) = self.dialler.round(0).await?;
        let alive = acknowledged_ns.len();
        promises.hold(alive == links, || {
            format!("{alive} of {links} links are alive: {}", failures.join("; "))
        });
        for process in [&mut self.dialler, &mut self.acceptor] {
            let collected = process.collect(lab.ended()).await?;
            promises.hold(collected.is_some(), || "the links' channels do not end".to_owned());
            promises.no_panic(collected.as_ref());
        }
        Ok(())
    }
}

/// Returns the usage of all processes together.
async fn usage(couples: &mut [Couple]) -> Result<Usage, Failure> {
    let mut sum = Usage { resident_bytes: Some(0), switches: Some(0) };
    for couple in couples {
        for process in [&mut couple.dialler, &mut couple.acceptor] {
            sum = sum.plus(process.usage().await?.0);
        }
    }
    Ok(sum)
}
