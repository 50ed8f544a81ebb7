//! Collective calls of a group whose nodes are hosts of a virtual LAN.

use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::Cluster;
use chunkcomm_group::Algorithm;

use crate::failure::Failure;
use crate::harness::calls::{CallKind, Operation};
use crate::harness::ranks::Player;
use crate::lan::{LanArgs, Ran};
use crate::ours::collective::Member;

/// Virtual time within which all ranks leave a barrier: 100 ms. They begin a call at the next multiple
/// but one, so that the times of small calls have no part of the barrier.
const BEGINNING: Duration = Duration::from_millis(100);

/// Uncounted calls of each algorithm, in which links are opened and windows grow.
pub(crate) const WARM_UP_CALLS: u64 = 2;

/// Start and end of the counted call of each way, as one rank saw them.
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
    let count = ways.len();
    let ran = crate::lan::run(lan, spec, kind.ranks, move |cluster| {
        let ways = ways.clone();
        async move { all_ways(&cluster, kind, &ways).await }
    })?;
    Ok((seconds_of(&ran.results, count), ran))
}

/// Returns the seconds of each way, from the earliest start to the latest end.
pub(crate) fn seconds_of(results: &[Times], count: usize) -> Vec<f64> {
    let seconds = (0..count).map(|way| {
        let start = results.iter().map(|times| times[way][0]).min();
        let end = results.iter().map(|times| times[way][1]).max();
        start.zip(end).map_or(f64::NAN, |(start, end)| (end - start).as_secs_f64())
    });
    seconds.collect()
}

/// Returns the start and the end of the calls by each algorithm, as one rank saw them.
async fn all_ways(cluster: &Cluster, kind: CallKind, ways: &[Algorithm]) -> Result<Times, Failure> {
    let mut member = Member::join(cluster, kind).await?;
    let mut times = Vec::new();
    let mut next = 0;
    for &way in ways {
        member.set_algorithm(way);
        for _ in 0..WARM_UP_CALLS {
            once(&mut member, next).await?;
            next += 1;
        }
        times.push(once(&mut member, next).await?);
        next += 1;
    }
    Ok(times)
}

/// Does one call, which all ranks begin at the same time.
pub(crate) async fn once(member: &mut impl Player, call: u64) -> Result<[Instant; 2], Failure> {
    member.fill(call).await?;
    member.meet().await?;
    let each_ns = BEGINNING.as_nanos() as u64;
    let now = Instant::now();
    let past_ns = now.time().0 % each_ns;
    let start = now + (2 * BEGINNING - Duration::from_nanos(past_ns));
    host::sleep_until(start).await;
    member.call().await?;
    let end = Instant::now();
    if member.is_right(call).await? {
        return Ok([start, end]);
    }
    let cause = format!("that of call {call} is wrong");
    Err(Failure::broken("verifying a result", cause))
}
