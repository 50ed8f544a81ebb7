//! Many links whose connections are cut at the same moment.

use std::time::Duration;

use chunkcomm_bench::failure::{Doing, Failure};
use chunkcomm_bench::harness::machine::now_ns;
use chunkcomm_bench::options::values;
use chunkcomm_bench::stats::percentile_us;
use chunkcomm_bench::table::Row;
use chunkcomm_testkit::proxy::{Cut, Proxy};
use clap::Args;

use super::protocol::Work;
use super::{Lab, Promises};
use crate::processes::Process;

/// Pause between two cuts: 200 ms.
const REST: Duration = Duration::from_millis(200);

/// Number of links and cuts.
#[derive(Debug, Clone, Copy, Args)]
pub struct Plan {
    /// Number of links, each to a node of its own
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::links)]
    pub links: usize,
    /// Number of times that all links are cut
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::times)]
    pub cuts: usize,
}

/// Links between two processes, all through one proxy.
struct Links {
    dialler: Process,
    acceptor: Process,
    proxy: Proxy,
    count: usize,
    rounds: u64,
    ended: Duration,
}

/// Cuts all links as often as planned.
///
/// # Errors
/// If a process cannot be started or ends.
pub async fn run(
    lab: &mut Lab,
    &Plan { links: count, cuts: times }: &Plan,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    let mut links = Links::open(lab, count).await?;
    links.round(promises).await?;
    let mut resumed = Vec::new();
    let mut all_resumed = Vec::new();
    for _ in 0..times {
        tokio::time::sleep(REST).await;
        let cut_ns = now_ns();
        let cut = links.proxy.cut_all(Cut::Reset);
        promises.hold(cut == count, || format!("{cut} of {count} connections were there to cut"));
        let acknowledged_ns = links.round(promises).await?;
        let since_cut = acknowledged_ns.iter().map(|at_ns| at_ns.saturating_sub(cut_ns));
        all_resumed.extend(since_cut.clone().max());
        resumed.extend(since_cut);
    }
    links.round(promises).await?;
    let dialled = links.proxy.wires().len();
    links.end(promises).await?;
    row.set("links", count)
        .set("cuts", times)
        .set("connections", dialled)
        .set("resume_p50_us", percentile_us(&resumed, 50))
        .set("resume_p99_us", percentile_us(&resumed, 99))
        .set("all_resumed_p50_us", percentile_us(&all_resumed, 50))
        .set("all_resumed_max_us", percentile_us(&all_resumed, 100));
    Ok(())
}

impl Links {
    async fn open(lab: &Lab, count: usize) -> Result<Self, Failure> {
        let mut dialler = Process::start(lab, 0).await?;
        let mut acceptor = Process::start(lab, 1).await?;
        super::node::allow_files();
        let proxy = Proxy::start(acceptor.listen().await?).doing("starting the proxy")?;
        let (dialled, met) =
            tokio::join!(dialler.dial(count, &proxy.address), acceptor.meet(count));
        dialled.and(met)?;
        acceptor.work(Work::ConsumeRounds { links: count }).await?;
        Ok(Self { dialler, acceptor, proxy, count, rounds: 0, ended: lab.ended() })
    }

    /// Sends one number over each link; returns the times of the acknowledgements.
    async fn round(&mut self, promises: &mut Promises) -> Result<Vec<u64>, Failure> {
        let (acknowledged_ns, failures) = self.dialler.round(self.rounds).await?;
        self.rounds += 1;
        promises.hold(acknowledged_ns.len() == self.count, || {
            format!(
                "{} of {} links answered in round {}; others: {}",
                acknowledged_ns.len(),
                self.count,
                self.rounds,
                failures.join("; ")
            )
        });
        Ok(acknowledged_ns)
    }

    /// Ends the rounds' channels and counts the numbers that came.
    async fn end(mut self, promises: &mut Promises) -> Result<(), Failure> {
        promises.no_panic(self.dialler.collect(self.ended).await?.as_ref());
        let collected = self.acceptor.collect(self.ended).await?;
        promises.no_panic(collected.as_ref());
        let Some(taken) = collected.and_then(|mut collected| collected.outcomes.pop()) else {
            promises.hold(false, || "the rounds' channels do not end".to_owned());
            return Ok(());
        };
        promises.hold(taken.fault.is_none(), || format!("a number was wrong: {:?}", taken.fault));
        let due = self.rounds * self.count as u64;
        promises.hold(taken.messages == due, || {
            format!("{due} numbers were sent and {} came", taken.messages)
        });
        Ok(())
    }
}
