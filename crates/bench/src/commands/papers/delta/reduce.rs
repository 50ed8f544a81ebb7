//! Reductions and broadcasts (figure 2 (c) and (f)).

use chunkcomm_coupled::patterns::Compute;

use super::curve::{Curve, is_near, last_flat, listed};
use super::{Point, REDUCE_CLUSTER, REDUCE_REGATTA, REGATTA, Shape, Sizes, more_gains_more, show};
use crate::commands::papers::{Found, Scene};
use crate::failure::Failure;

/// Reductions on both machines, and a broadcast.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let sizes = Sizes::of(scene);
    let regatta = sizes.points(REDUCE_REGATTA)?;
    let cluster = sizes.points(REDUCE_CLUSTER)?;
    show(found, REDUCE_REGATTA, &regatta, Some("2c"));
    show(found, REDUCE_CLUSTER, &cluster, Some("2f"));
    let at = scene.numbers("reduce-cluster-saturates")[0] as usize;
    let on_regatta = Curve::all(&regatta).each_ref().map(Curve::doublings);
    let on_cluster = Curve::all(&cluster).each_ref().map(Curve::doublings);
    let ids = ["reduce-regatta-empty", "reduce-regatta-random", "reduce-regatta-trig"];
    logarithmic(found, ids, &on_regatta, 32);
    let ids = ["reduce-cluster-empty", "reduce-cluster-random", "reduce-cluster-trig"];
    logarithmic(found, ids, &on_cluster, at);
    longest_chain(found, "reduce-regatta-chain", &regatta);
    longest_chain(found, "reduce-cluster-chain", &cluster);
    more_gains_more(found, "reduce-regatta-more-computing", &on_regatta);
    more_gains_more(found, "reduce-cluster-more-computing", &on_cluster);
    let ends = on_regatta.each_ref().map(Curve::bend);
    let holds = ends.iter().all(Option::is_none);
    found.verdict("reduce-regatta-sufficient", holds, format!("saturates: {}", listed(&ends)));
    let ends = on_cluster.each_ref().map(Curve::bend);
    let holds = ends.iter().all(|end| *end == Some(at));
    // Two streams share a parent's port.
    let full = last_flat(&Curve::seconds(Compute::Empty, &cluster));
    let told = format!("bends at {}; its switch is full at {}", listed(&ends), listed(&[full]));
    found.verdict("reduce-cluster-saturates", holds, told);
    broadcast(found, sizes)
}

/// Decides whether the gains grow in proportion to the logarithm of the tasks.
fn logarithmic(found: &mut Found, ids: [&'static str; 3], curves: &[Curve; 3], until: usize) {
    let until = until.ilog2() as usize;
    for (id, curve) in ids.into_iter().zip(curves) {
        let slope = curve.slope(until);
        let holds = slope > 0.0 && curve.is_linear(until);
        found.verdict(id, holds, format!("{slope:.2} a doubling"));
    }
}

/// Counts the transfers of the longest chain, in those of a tree of four: whole messages without computing.
fn longest_chain(found: &mut Found, id: &'static str, points: &[Point]) {
    let is_doubling = |it: &&Point| it.compute == Compute::Empty && it.tasks.is_power_of_two();
    let empty: Vec<_> = points.iter().filter(is_doubling).collect();
    let transfers = |point: &Point| {
        let levels = f64::from(empty[0].tasks.ilog2());
        point.whole_seconds / empty[0].whole_seconds * levels
    };
    let transfers: Vec<_> = empty.iter().map(|it| (it.tasks.ilog2(), transfers(it))).collect();
    let holds = transfers.iter().all(|(levels, found)| is_near(*found, f64::from(*levels)));
    let told: Vec<_> = transfers.iter().map(|(_, found)| format!("{found:.2}")).collect();
    found.verdict(id, holds, told.join(", "));
}

/// Broadcasts on the Regatta without computing.
fn broadcast(found: &mut Found, sizes: Sizes) -> Result<(), Failure> {
    let mut curve = Curve(Vec::new());
    for nodes in [4, 8, 16, 32].into_iter().filter(|nodes| *nodes <= sizes.tasks_max) {
        let [whole, deltas] = sizes.both((REGATTA, Shape::Broadcast), Compute::Empty, nodes)?;
        curve.0.push((nodes, whole / deltas));
    }
    // Two of the steps at a time, or more, and more of them the more there are.
    let holds = curve.0.is_sorted_by(|(_, less), (_, more)| less < more)
        && curve.0.iter().all(|(nodes, gain)| *gain >= f64::from(nodes.ilog2()) / 2.0);
    let told = format!("{:.2} to {:.2} times", curve.first(), curve.last());
    found.verdict("broadcast-chains", holds, told);
    Ok(())
}
