//! Chains of tasks (figure 2 (a) and (d)).

use chunkcomm_coupled::patterns::{Compute, Pattern};

use super::curve::{Curve, listed};
use super::{
    CASCADE_CLUSTER, CASCADE_REGATTA, FULL, NEAR, NODES, PAGE_BYTES, REGATTA, Shape, Sizes,
    more_gains_more, ms, show,
};
use crate::commands::delta::world::Way;
use crate::commands::papers::{Found, Scene};
use crate::failure::Failure;
use crate::lan::load;
use crate::options::values::Auto;

/// Tasks up to which the links of the Regatta are not full: two below its limit.
const BEFORE_LIMIT: usize = 25;

/// Chains on both machines.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let sizes = Sizes::of(scene);
    let regatta = sizes.points(CASCADE_REGATTA)?;
    let cluster = sizes.points(CASCADE_CLUSTER)?;
    show(found, CASCADE_REGATTA, &regatta, Some("2a"));
    show(found, CASCADE_CLUSTER, &cluster, None);
    let on_regatta = Curve::all(&regatta);
    let on_cluster = Curve::all(&cluster);
    let saturation = |id: &str| scene.numbers(id)[0] as usize;

    // Until two tasks before the first one bends.
    let before = saturation("cascade-regatta-saturates-empty") - 2;
    let ids = ["cascade-regatta-empty", "cascade-regatta-random", "cascade-regatta-trig"];
    let saturate = [
        "cascade-regatta-saturates-empty",
        "cascade-regatta-saturates-random",
        "cascade-regatta-saturates-trig",
    ];
    proportional(found, ids, &on_regatta, before);
    for (id, curve) in saturate.into_iter().zip(&on_regatta) {
        let at = curve.saturation(before);
        let told = at.map_or("not up to 32".to_owned(), |at| format!("at {at}"));
        found.verdict(id, at == Some(saturation(id)), told);
    }
    more_gains_more(found, "cascade-regatta-more-computing", &on_regatta);

    let at = saturation("cascade-cluster-saturates");
    let ids = ["cascade-cluster-empty", "cascade-cluster-random", "cascade-cluster-trig"];
    proportional(found, ids, &on_cluster, at - 2);
    let ends = on_cluster.each_ref().map(|curve| curve.saturation(at - 2));
    let told = format!("at {}", listed(&ends));
    found.verdict("cascade-cluster-saturates", ends.iter().all(|end| *end == Some(at)), told);
    more_gains_more(found, "cascade-cluster-more-computing", &on_cluster);

    let &[times, tasks] = scene.numbers("cascade-23-times") else {
        return Err(Failure::broken("reading the list", "cascade-23-times has two numbers"));
    };
    let gains = on_regatta.each_ref().map(|curve| curve.at(tasks as usize));
    let told = gains.map(|gain| format!("{gain:.1}")).join(", ");
    // The largest gain is that of the largest computation, and grows in proportion to the tasks.
    let holds = on_regatta[2].slope(BEFORE_LIMIT) >= times / tasks;
    found.verdict("cascade-23-times", holds, told);

    let shares =
        [sizes.shares(CASCADE_REGATTA, &regatta)?, sizes.shares(CASCADE_CLUSTER, &cluster)?];
    let [empty, _, trig] = shares[0];
    // Without computing, which thins the traffic.
    let holds = empty >= FULL && shares[1][0] >= FULL;
    found.verdict("bandwidth-limits", holds, format!("{empty:.2}, {:.2}", shares[1][0]));
    let told = format!("trig {trig:.2}, empty {empty:.2}");
    found.verdict("computing-spaces-messages", trig < empty * (1.0 - NEAR), told);
    chains_of_trig(scene, found, sizes)
}

/// Chains on the Regatta with trig: with independent computing, all at once, and of many tasks.
fn chains_of_trig(scene: &Scene<'_>, found: &mut Found, sizes: Sizes) -> Result<(), Failure> {
    const TASKS: [usize; 3] = [2, 8, 29];
    // Longer ones than the Regatta has.
    const MANY: [usize; 4] = [2, 24, 48, 96];
    let world = load(REGATTA)?;
    let way = |nodes, independent, ways: &[Way]| {
        let ran =
            sizes.chain((&world, Pattern::Cascade, Compute::Trig), (nodes, independent), ways)?;
        Ok::<_, Failure>(ran[0].0 / ran[1].0)
    };
    let mut gains = Vec::new();
    for nodes in TASKS.into_iter().filter(|tasks| *tasks <= sizes.tasks_max) {
        gains.push(way(nodes, 1, &[Way::Whole, Way::Overlapped])?);
    }
    let most = gains.iter().copied().fold(0.0, f64::max);
    // Two things at a time are at most twice as fast.
    found.verdict("overlap-bounded", most <= 2.0, format!("at most {most:.2} times"));

    let [transfer, _] = sizes.both((REGATTA, Shape::Cascade), Compute::Empty, 2)?;
    let [whole, _] = sizes.both((REGATTA, Shape::Cascade), Compute::Trig, 2)?;
    let compute = (whole - transfer) / 2.0;
    let nodes = NODES.min(sizes.tasks_max);
    let [_, deltas] = sizes.both((REGATTA, Shape::Cascade), Compute::Trig, nodes)?;
    // Each further task begins an increment later, computed and sent.
    let increment = sizes.delta_bytes as f64 / sizes.array_bytes as f64;
    let start = (nodes - 1) as f64 * increment * (compute + transfer);
    let told = format!("{}, start {}", ms(deltas), ms(start));
    let is_near = (deltas / (compute + start) - 1.0).abs() <= NEAR;
    found.verdict("chain-all-at-once", is_near, told);

    // Increments of a page, since as many of them as tasks is a limit, too.
    let mut unlimited = world.clone();
    unlimited.segments[0].spec.total_bytes_per_second = u64::MAX;
    unlimited.hosts[0].count = MANY[MANY.len() - 1];
    let most = scene.sized(MANY[MANY.len() - 1], 8);
    let mut curve = Curve(Vec::new());
    for nodes in MANY.into_iter().filter(|nodes| *nodes <= most) {
        let ways = [Way::Whole, Way::Delta(Auto::Fixed(PAGE_BYTES))];
        let trig = (&unlimited, Pattern::Cascade, Compute::Trig);
        let ran = sizes.chain(trig, (nodes, 0), &ways)?;
        curve.0.push((nodes, ran[0].0 / ran[1].0));
    }
    let told = format!("{:.0} times with {most}", curve.last());
    found.verdict("chain-unbounded", curve.is_linear(most), told);
    Ok(())
}

fn proportional(found: &mut Found, ids: [&'static str; 3], curves: &[Curve; 3], until: usize) {
    for (id, curve) in ids.into_iter().zip(curves) {
        found.verdict(id, curve.is_linear(until), format!("{:.2} a task", curve.slope(until)));
    }
}
