//! Transfers between groups whose ranks are hosts of a virtual LAN.

use chunkcomm::host::Instant;
use chunkcomm_cluster::Cluster;

use crate::commands::collective::world::once;
use crate::failure::Failure;
use crate::harness::ranks::{Player, Steps};
use crate::harness::transfers::Transfer;
use crate::lan::{LanArgs, Ran};
use crate::ours::arrays::{ArraysKind, Member};

/// Uncounted transfers of each kind behind the first, in which windows grow.
const WARM_UP_TRANSFERS: u64 = 2;

/// Start and end of the counted transfer of each kind, as one rank saw them, and its steps.
pub(crate) type Times = Vec<([Instant; 2], Steps)>;

/// Virtual seconds of a transfer, and the nanoseconds of its steps.
pub(crate) type Timed = (f64, Steps);

/// Makes one transfer of each kind; returns their virtual seconds and the nanoseconds of their steps.
///
/// # Errors
/// If there is no such LAN, a program fails, or an element is wrong.
pub(crate) fn timed(
    lan: &LanArgs,
    spec: &str,
    transfer: &Transfer,
    kinds: &[ArraysKind],
) -> Result<(Vec<Timed>, Ran<Times>), Failure> {
    let (of_all, count) = ((transfer.clone(), kinds.to_vec()), kinds.len());
    let ran = crate::lan::run(lan, spec, transfer.ranks(), move |cluster| {
        let (transfer, kinds) = of_all.clone();
        async move { all_kinds(&cluster, &transfer, &kinds).await }
    })?;
    let of_kind = |kind: usize| {
        let start = ran.results.iter().map(|times| times[kind].0[0]).min();
        let end = ran.results.iter().map(|times| times[kind].0[1]).max();
        let seconds = start.zip(end).map_or(f64::NAN, |(start, end)| (end - start).as_secs_f64());
        (seconds, ran.results[0][kind].1)
    };
    Ok(((0..count).map(of_kind).collect(), ran))
}

async fn all_kinds(
    cluster: &Cluster,
    transfer: &Transfer,
    kinds: &[ArraysKind],
) -> Result<Times, Failure> {
    let mut times = Vec::new();
    for &kind in kinds {
        let rank = cluster.rank() as usize;
        let mut member = Member::join(cluster, rank, transfer.clone(), kind).await?;
        // The first one makes the plan.
        for call in 0..=WARM_UP_TRANSFERS {
            once(&mut member, call).await?;
        }
        let ran = once(&mut member, WARM_UP_TRANSFERS + 1).await?;
        times.push((ran, member.steps_ns().await?));
    }
    Ok(times)
}
