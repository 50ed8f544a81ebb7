//! Models A and B (sections 2 and 4, table 4, figure 7).

use chunkcomm_farm::settings::Model;

use super::farm::{AS_THERE, Changed, Farms, Setup};
use super::machines::{Machine, Tool};
use super::{is_near, numbers, percent, short};
use crate::commands::papers::{Curves, Found, Scene};
use crate::failure::Failure;

/// Difference of a farm's time at which it counts as the paper's.
const NEAR: f64 = 0.25;

/// Tools of figure 7.
const TOOLS: [Tool; 3] = [Tool::P4, Tool::Ansa, Tool::Pvm];

/// Stations up to which a crossing is looked for, beyond the paper's.
const COUNT_MAX: usize = 14;

/// Seconds of both models, with some stations and all of [`TOOLS`].
type Grid = Vec<(usize, [[f64; 2]; 3])>;

/// Runs farms of both models with several tools and stations.
pub(super) fn a_and_b(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let slc_counts = scene.sized(&[2, 3, 4, 5, 6, 8, 10][..], &[2, 5][..]);
    let sparc_counts = scene.sized(&[2, 5][..], &[2, 5][..]);
    let mut farms = Farms::new(scene);
    let pvm = |machine, count| Setup::of(Tool::Pvm, machine, count, Model::A);
    for (id, machine) in [("sparc", Machine::Sparc), ("rs", Machine::Rs)] {
        let mut ratios = Vec::new();
        for (count, theirs) in (2..=5).zip(numbers(id)) {
            ratios.push(farms.seconds(&pvm(machine, count))? / theirs);
        }
        ratios.push(farms.both(&pvm(machine, 5))?[1] / numbers(id)[4]);
        let holds = ratios.iter().all(|ratio| is_near(*ratio, 1.0, NEAR));
        let [low, high] = [f64::min, f64::max].map(|of| ratios.iter().copied().reduce(of));
        let ours = format!("{:.2} to {:.2} times", low.unwrap_or(0.0), high.unwrap_or(0.0));
        found.verdict(id, holds, ours);
    }
    let mut grid = |machine, counts: &[usize]| -> Result<Grid, Failure> {
        let of = |&count: &usize| {
            let mut both = |tool| farms.both(&Setup { tool, ..pvm(machine, count) });
            Ok((count, [both(TOOLS[0])?, both(TOOLS[1])?, both(TOOLS[2])?]))
        };
        counts.iter().map(of).collect()
    };
    let [slc, sparc] = [grid(Machine::Slc, slc_counts)?, grid(Machine::Sparc, sparc_counts)?];
    curves(found, &slc);
    tools(found, &slc, &sparc);
    let few = [&slc, &sparc].map(|grid| grid[0].1).concat();
    let gain = few.iter().map(|[a, b]| b / a).fold(f64::INFINITY, f64::min);
    found.verdict("a-for-few", gain > 1.0, format!("two stations: {gain:.2} times"));
    crossings(scene, &mut farms, found, &slc)?;
    let [rs, sparc_pvm] = [farms.both(&pvm(Machine::Rs, 5))?, farms.both(&pvm(Machine::Sparc, 5))?];
    let told = |[a, b]: [f64; 2]| format!("A {}, B {} s", short(a), short(b));
    found.verdict("rs-b-wins", rs[1] < rs[0], told(rs));
    found.verdict("sparc-a-wins", sparc_pvm[0] < sparc_pvm[1], told(sparc_pvm));
    let ours = format!("{}, {} s", short(sparc_pvm[0]), short(rs[0]));
    found.verdict("five-equal", is_near(sparc_pvm[0], rs[0], 0.1), ours);
    // As many workers, one of them beside the farmer or none.
    let beside = farms.done(&pvm(Machine::Rs, 5))?.idle;
    let apart = farms.done(&Setup { model: Model::B, ..pvm(Machine::Rs, 6) })?.idle;
    let ours = format!("RS6000 wait {}; else {}", percent(beside), percent(apart));
    found.verdict("local-worker-disturbs", beside > apart, ours);
    parallelism(scene, &mut farms, found)?;
    farms.tell(found);
    Ok(())
}

fn curves(found: &mut Found, slc: &Grid) {
    let alone = Machine::Slc.seconds()[0];
    let line = |(tool, model): (usize, usize)| {
        let points = slc.iter().map(|(count, of)| (*count as f64, alone / of[tool][model]));
        (format!("{} {}", TOOLS[tool], ["A", "B"][model]), points.collect())
    };
    found.curves(Curves {
        name: "models",
        title: "Figure 7: speed-up of the fractal on SLC".to_owned(),
        x: ("stations", false),
        y: ("speed-up", false),
        lines: [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)].map(line).to_vec(),
    });
}

/// Judges the tools of figure 7.
fn tools(found: &mut Found, slc: &Grid, sparc: &Grid) {
    let best = |of: &[[f64; 2]; 3], model: usize| {
        let by_time = |one: &usize, other: &usize| of[*one][model].total_cmp(&of[*other][model]);
        TOOLS[(0..TOOLS.len()).min_by(by_time).unwrap_or(0)]
    };
    // Of each model, as the stations grow in number.
    let bests = [0, 1].map(|model| {
        let mut bests: Vec<_> = slc.iter().map(|(_, of)| best(of, model).to_string()).collect();
        bests.dedup();
        bests
    });
    let holds = bests.iter().any(|bests| bests.len() > 1);
    let told = bests.map(|bests| bests.join(", then "));
    found.verdict("no-best-tool", holds, format!("A {}; B {}", told[0], told[1]));
    // Loss of P4 against the better one of the others, in model A with the fewest stations.
    let loss = |grid: &Grid| grid[0].1[0][0] / grid[0].1[1][0].min(grid[0].1[2][0]);
    let [on_slc, on_sparc] = [loss(slc), loss(sparc)];
    let loses = grid_loses(slc);
    found.verdict("p4-a-few", loses, format!("P4 takes {on_slc:.2} of the better's time"));
    let ours = format!("{on_sparc:.2} of the better's time, SLC {on_slc:.2}");
    found.verdict("p4-a-few-sparc", on_slc > 1.0 && on_sparc > on_slc, ours);
    let most = &slc[slc.len() - 1].1;
    let told = |model: usize| {
        let seconds = most.map(|of| short(of[model])).join(", ");
        format!("{seconds} s")
    };
    found.verdict("p4-a-many", best(most, 0) == Tool::P4, told(0));
    let holds = slc.iter().all(|(_, of)| best(of, 1) == Tool::P4);
    found.verdict("p4-b", holds, told(1));
    let ansa = slc.iter().map(|(_, of)| of[1][1] / of[0][1]).fold(0.0, f64::max);
    let holds = slc.iter().all(|(_, of)| (of[0][1]..=of[2][1]).contains(&of[1][1]));
    found.verdict("ansa-b", holds && ansa < 1.1, format!("at most {} slower", percent(ansa - 1.0)));
    let spread = |grid: &Grid| {
        let five = grid.iter().find(|it| it.0 == 5).map_or([[1.0; 2]; 3], |it| it.1);
        let seconds = five.map(|of| of[0]);
        seconds.into_iter().fold(0.0, f64::max) / seconds.into_iter().fold(f64::MAX, f64::min)
    };
    let [on_slc, on_sparc] = [spread(slc), spread(sparc)].map(|it| it - 1.0);
    let ours = format!("{}, {}", percent(on_slc), percent(on_sparc));
    found.verdict("tools-differ-on-slc", on_slc > on_sparc, ours);
    // Efficiency of PVM as B, with few and with more stations.
    let efficiency = |at: &(usize, [[f64; 2]; 3]), model: usize| {
        Machine::Slc.seconds()[0] / at.1[2][model] / at.0 as f64
    };
    let (few, more) = (&slc[0], &slc[slc.len() / 2]);
    let [a, b, later] = [efficiency(few, 0), efficiency(few, 1), efficiency(more, 1)];
    let ours = format!("two: {}, {}: {}", percent(b), more.0, percent(later));
    found.verdict("b-few-drops", b < a && b < later, ours);
}

/// Whether P4 loses to both others in model A, with the fewest stations.
fn grid_loses(grid: &Grid) -> bool {
    let of = grid[0].1;
    of[0][0] > of[1][0] && of[0][0] > of[2][0]
}

/// Judges where A and B cross, and why.
fn crossings(
    scene: &Scene<'_>,
    farms: &mut Farms,
    found: &mut Found,
    slc: &Grid,
) -> Result<(), Failure> {
    let pvm = |machine| Setup::of(Tool::Pvm, machine, 2, Model::A);
    let to = scene.sized(COUNT_MAX, 3);
    let told = |crossing: Option<usize>| crossing.map_or("none".to_owned(), |it| it.to_string());
    let mut of_pixels = Vec::new();
    for pixels in [400, 800, 3200] {
        of_pixels.push(farms.crossing(&Setup { pixels, ..pvm(Machine::Rs) }, 2..=to)?);
    }
    let is_moved = of_pixels.iter().any(|it| *it != of_pixels[0]);
    let ours = of_pixels.iter().map(|it| told(*it)).collect::<Vec<_>>().join(", ");
    found.verdict("crossing-by-grain", is_moved, format!("RS6000: {ours}"));
    let rs = of_pixels[1];
    let sparc = farms.crossing(&pvm(Machine::Sparc), 2..=to)?;
    let on_slc = farms.crossing(&pvm(Machine::Slc), 2..=to)?;
    let ours = format!("{}, {}, {}", told(rs), told(sparc), told(on_slc));
    found.verdict("crossing-by-machine", rs != sparc || sparc != on_slc, ours);
    let later = sparc.is_some_and(|count| count > 5);
    found.verdict("sparc-b-later", later, format!("from {} stations", told(sparc)));
    let crosses = |tool: usize| slc.iter().any(|(_, of)| of[tool][1] < of[tool][0]);
    let crossed: Vec<String> = (0..TOOLS.len())
        .filter(|tool| crosses(*tool))
        .map(|tool| TOOLS[tool].to_string())
        .collect();
    found.verdict("slc-crosses", !crossed.is_empty(), format!("with {}", crossed.join(", ")));
    // As fast as a SPARCstation 2, with messages too.
    let power = Machine::Slc.seconds()[0] / Machine::Sparc.seconds()[0];
    let fast = Setup { changed: Changed { power, ..AS_THERE }, ..pvm(Machine::Slc) };
    let fast = farms.crossing(&fast, 2..=to)?;
    let holds = on_slc.is_some_and(|slow| fast.is_none_or(|fast| fast > slow));
    let ours = format!("four times faster: {}", told(fast));
    found.verdict("crossing-slow-processor", holds, ours);
    Ok(())
}

/// Judges the tools with internal parallelism: their workers hold two tasks.
fn parallelism(scene: &Scene<'_>, farms: &mut Farms, found: &mut Found) -> Result<(), Failure> {
    let count = scene.sized(10, 4);
    let mut of = |tool, held| {
        farms.seconds(&Setup { held, ..Setup::of(tool, Machine::Slc, count, Model::A) })
    };
    let [strand, ansa, sr] = [of(Tool::Strand, 2)?, of(Tool::Ansa, 2)?, of(Tool::Sr, 2)?];
    let [pvm, p4] = [of(Tool::Pvm, 1)?, of(Tool::P4, 1)?];
    let holds = [strand, ansa, sr].into_iter().all(|it| it < pvm && it < p4);
    let ours = format!("{}, {}, {}; P4 {} s", short(strand), short(ansa), short(sr), short(p4));
    found.verdict("advanced-parallel", holds, ours);
    // Strand's small messages take longest of all.
    let [slow, fast] = [Tool::Strand, Tool::Pvm].map(|tool| tool.times_ms(Machine::Slc)[0]);
    let ours = format!("Strand {}, PVM {} s", short(strand), short(pvm));
    found.verdict("ping-misleads", slow > fast && strand < pvm, ours);
    Ok(())
}
