//! Collective calls of a group whose nodes are hosts of a virtual LAN.

use chunkcomm::host::Instant;
use chunkcomm_cluster::Cluster;
use chunkcomm_pipeline::Algorithm;

use super::TOGETHER_BYTES_MAX;
use crate::failure::Failure;
use crate::harness::calls::{CallKind, Operation};
use crate::harness::ranks::Player;
use crate::lan::{LanArgs, Ran};
use crate::ours::collective::Member;

/// Calls one after the other of small vectors, timed as a whole.
const CALLS_TOGETHER: u64 = 10;

/// Uncounted calls of each algorithm, in which links are opened and windows grow.
const WARM_UP_CALLS: u64 = 2;

/// Start and end of the calls by each algorithm, as one rank saw them.
pub(crate) type Times = Vec<[Instant; 2]>;

/// Returns the algorithms that an operation has.
pub(crate) fn algorithms(operation: Operation) -> &'static [Algorithm] {
    match operation {
        Operation::Barrier => &[Algorithm::Dissemination, Algorithm::Doubling],
        Operation::Broadcast | Operation::Reduce => {
            &[Algorithm::Chain, Algorithm::Binomial, Algorithm::Binary]
        }
        Operation::AllReduce => &[Algorithm::Doubling, Algorithm::Ring, Algorithm::Chains],
        Operation::AllGather => &[Algorithm::Ring, Algorithm::Doubling],
        Operation::AllToAll => &[Algorithm::Pairwise],
        Operation::Scan => &[Algorithm::Doubling, Algorithm::Chain],
    }
}

/// Runs calls of each of these algorithms; returns the virtual seconds of a call by each.
///
/// # Errors
/// If there is no such LAN, a program fails, or a result is wrong.
pub(crate) fn timed(
    lan: &LanArgs,
    spec: &str,
    kind: CallKind,
    ways: &[Algorithm],
) -> Result<(Vec<f64>, Ran<Times>), Failure> {
    let ways = ways.to_vec();
    let calls = calls_together(kind);
    let count = ways.len();
    let ran = crate::lan::run(lan, spec, kind.ranks, move |cluster| {
        let ways = ways.clone();
        async move { all_ways(&cluster, kind, &ways).await }
    })?;
    let seconds = (0..count).map(|way| {
        let start = ran.results.iter().map(|times| times[way][0]).min();
        let end = ran.results.iter().map(|times| times[way][1]).max();
        start.zip(end).map_or(f64::NAN, |(start, end)| (end - start).as_secs_f64() / calls as f64)
    });
    Ok((seconds.collect(), ran))
}

fn calls_together(kind: CallKind) -> u64 {
    if kind.bytes <= TOGETHER_BYTES_MAX { CALLS_TOGETHER } else { 1 }
}

/// Returns the start and the end of the calls by each algorithm, as one rank saw them.
async fn all_ways(cluster: &Cluster, kind: CallKind, ways: &[Algorithm]) -> Result<Times, Failure> {
    let mut member = Member::join(cluster, kind).await?;
    let mut times = Vec::new();
    let mut next = 0;
    for &way in ways {
        member.set_algorithm(way);
        several(&mut member, &mut next, WARM_UP_CALLS).await?;
        times.push(several(&mut member, &mut next, calls_together(kind)).await?);
    }
    Ok(times)
}

async fn several(member: &mut Member, next: &mut u64, calls: u64) -> Result<[Instant; 2], Failure> {
    member.meet().await?;
    let start = Instant::now();
    for call in *next..*next + calls {
        member.fill(call);
        member.call().await?;
        if !member.is_right(call) {
            let cause = format!("that of call {call} is wrong");
            return Err(Failure::broken("verifying a result", cause));
        }
    }
    *next += calls;
    Ok([start, Instant::now()])
}
