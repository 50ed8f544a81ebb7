//! Granularity, double buffering, and ray tracing (section 4, figures 4, 6, 8 and 9).

use chunkcomm_farm::settings::Model;

use super::farm::{AS_THERE, Changed, Farms, LINE, Setup};
use super::machines::{Machine, Tool};
use super::picture::{PIXELS, Picture};
use super::{is_near, numbers, percent, short};
use crate::commands::papers::{Curves, Found, Scene};
use crate::failure::Failure;

/// Pixels of a task in figure 4.
const SIZES: [u64; 10] = [50, 100, 200, 400, 800, 2000, 4000, 8000, 16000, 32000];

/// Loss against the best size that is substantial, or much.
const MUCH: f64 = 1.5;

/// Loss against the best size with which a size still counts as good.
const GOOD: f64 = 1.1;

/// A farm with tasks of several sizes: pixels and seconds.
type Sizes = Vec<(u64, f64)>;

fn best(sizes: &Sizes) -> (u64, f64) {
    sizes.iter().copied().min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default()
}

fn at(sizes: &Sizes, pixels: u64) -> f64 {
    sizes.iter().find(|it| it.0 == pixels).map_or(f64::NAN, |it| it.1)
}

/// Runs farms with small to large tasks.
pub(super) fn granularity(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let sizes = scene.sized(&SIZES[..], &[800, 4000][..]);
    let mut farms = Farms::new(scene);
    let mut of = |setup: Setup, sizes: &[u64]| -> Result<Sizes, Failure> {
        let of_size =
            |&pixels: &u64| Ok((pixels, farms.seconds(&Setup { pixels, ..setup.clone() })?));
        sizes.iter().map(of_size).collect()
    };
    let pvm_of = Setup::of(Tool::Pvm, Machine::Slc, 8, Model::A);
    // The paper's Strand buffers by itself.
    let strand_of = Setup { tool: Tool::Strand, held: 2, ..pvm_of.clone() };
    let [pvm, strand] = [of(pvm_of.clone(), sizes)?, of(strand_of.clone(), sizes)?];
    let p4 = of(Setup { tool: Tool::P4, ..pvm_of.clone() }, sizes)?;
    let sparc = of(Setup::of(Tool::Pvm, Machine::Sparc, 5, Model::A), sizes)?;
    let rays = of(Setup { picture: Picture::Rays, ..pvm_of.clone() }, sizes)?;
    let single = of(Setup { held: 1, ..strand_of }, &sizes[..1])?;
    let all = [&pvm, &strand, &p4, &sparc];
    farms.tell(found);
    let line = |name: &str, sizes: &Sizes| {
        (name.to_owned(), sizes.iter().map(|&(pixels, s)| (pixels as f64, s)).collect())
    };
    found.curves(Curves {
        name: "granularity",
        title: "Figure 4: fractal on 8 SLC, model A".to_owned(),
        x: ("pixels a task", true),
        y: ("s", true),
        lines: vec![line("PVM", &pvm), line("Strand", &strand), line("P4", &p4)],
    });
    let (small, large) = (sizes[0], sizes[sizes.len() - 1]);
    let losses = [&pvm, &strand].map(|it| at(it, small) / at(it, LINE));
    let ours = format!("50 pixels: {:.1}, {:.1} times", losses[0], losses[1]);
    found.verdict("small-degrades", losses.iter().all(|loss| *loss > MUCH), ours);
    let [from, to] = [0, 1].map(|at| numbers("best-grain")[at] as u64);
    let bests = all.map(|it| best(it).0);
    let holds = bests[..2].iter().all(|it| (from..=to).contains(it));
    found.verdict("best-grain", holds, format!("PVM {}, Strand {}", bests[0], bests[1]));
    // One range as wide as the paper's has all of them.
    let [least, most] = [bests.iter().min(), bests.iter().max()].map(|it| *it.unwrap_or(&0));
    let holds = most * from <= least * to;
    found.verdict("best-grain-everywhere", holds, format!("{least} to {most} pixels"));
    let losses = [&pvm, &strand].map(|it| at(it, large) / at(it, LINE));
    let ours = format!("32000 pixels: {:.2}, {:.2} times", losses[0], losses[1]);
    found.verdict("large-worse", losses.iter().all(|loss| *loss > MUCH), ours);
    let good_from = |it: &Sizes| {
        let good = it.iter().find(|(_, seconds)| *seconds < GOOD * best(it).1);
        good.map_or(0, |it| it.0)
    };
    let [fractal, traced] = [good_from(&pvm), good_from(&rays)];
    let ours = format!("good from {fractal}, rays {traced}");
    found.verdict("grain-by-problem", fractal != traced, ours);
    // The best farm with fewer tasks a node against the best one.
    let ten = numbers("ten-tasks-a-node")[0] as u64;
    let losses = all.iter().zip([8, 8, 8, 5]).map(|(sizes, nodes)| {
        let fewer = sizes.iter().filter(|(pixels, _)| PIXELS / pixels < ten * nodes);
        best(&fewer.copied().collect()).1 / best(sizes).1
    });
    let least = losses.fold(f64::INFINITY, f64::min);
    let ours = format!("fewer: {least:.2} times the best time at least");
    found.verdict("ten-tasks-a-node", least > 1.0, ours);
    let (strand, pvm, single) = (at(&strand, small), at(&pvm, small), at(&single, small));
    let ours = format!("{}, {} s", short(strand), short(pvm));
    found.verdict("strand-small-tasks", strand < pvm, ours);
    let ours =
        format!("Strand {}, without it {}, PVM {} s", short(strand), short(single), short(pvm));
    found.verdict("strand-by-buffering", strand < pvm && pvm < single, ours);
    Ok(())
}

/// Runs SR's farm without and with double buffering, and with two workers a station.
pub(super) fn buffering(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let counts = scene.sized(&[1, 2, 4, 6, 9][..], &[2][..]);
    let mut farms = Farms::new(scene);
    let setup = |workers, held, each| {
        let stations = [vec![Machine::Sparc], vec![Machine::Slc; workers]].concat();
        let farm = Setup::of(Tool::Sr, Machine::Slc, 0, Model::B);
        Setup { stations, held, each, ..farm }
    };
    let mut gains = Vec::new();
    for &workers in counts {
        let [one, two] = [1, 2].map(|held| farms.seconds(&setup(workers, held, 1)));
        farms.seconds(&setup(workers, 2, 2))?;
        gains.push(one? / two?);
    }
    let most = counts[counts.len() - 1];
    let [few, many] = [gains[0], gains[gains.len() - 1]];
    found.verdict(
        "buffering-gains",
        many > few.max(1.0),
        format!("{many:.3}, one worker {few:.3}"),
    );
    // Without any cost of messages there is nothing to overcome.
    let free = |held| {
        let changed = Changed { costs: 0.01, wire: 100.0, ..AS_THERE };
        Setup { changed, ..setup(most, held, 1) }
    };
    let without = farms.seconds(&free(1))? / farms.seconds(&free(2))?;
    let ours = format!("messages free: {without:.3}");
    found.verdict("buffering-cause", many > 1.0 && without - 1.0 < (many - 1.0) / 4.0, ours);
    let [one, held, two] = [(1, 1), (2, 1), (2, 2)].map(|(held, each)| setup(most, held, each));
    let [one, held, two] = [farms.done(&one)?, farms.done(&held)?, farms.done(&two)?];
    let ours = format!("{}, buffered {} s", short(two.seconds), short(held.seconds));
    let holds = two.seconds < one.seconds && is_near(two.seconds, held.seconds, 0.05);
    found.verdict("two-processes", holds, ours);
    let ours = format!("{}, one worker {}", percent(two.idle), percent(one.idle));
    found.verdict("rarely-both-wait", two.idle < one.idle / 2.0 && two.idle < 0.1, ours);
    farms.tell(found);
    Ok(())
}

/// Runs ray tracing on fast and slow stations, beside fractals.
pub(super) fn rays(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let mut farms = Farms::new(scene);
    let mut of = |stations: Vec<Machine>, picture| {
        let farm = Setup::of(Tool::Pvm, Machine::Slc, 0, Model::A);
        let farm = Setup { stations, picture, ..farm };
        farms.seconds(&farm).map(|seconds| (seconds, farm.speed_up(seconds)))
    };
    let [sparc, rs] = [vec![Machine::Sparc; 7], vec![Machine::Rs; 5]];
    let all = [sparc.clone(), rs.clone(), vec![Machine::Hp]].concat();
    let slc = vec![Machine::Slc; scene.sized(10, 4)];
    let [(sparc_rays, _), (rs_rays, _)] =
        [of(sparc.clone(), Picture::Rays)?, of(rs.clone(), Picture::Rays)?];
    let ours = format!("RS6000 {}, SPARC {} s", short(rs_rays), short(sparc_rays));
    found.verdict("rays-rs-win", rs_rays < sparc_rays, ours);
    let [(sparc, _), (rs, _)] = [of(sparc, Picture::Fractal)?, of(rs, Picture::Fractal)?];
    found.verdict(
        "fractal-opposite",
        sparc < rs,
        format!("RS6000 {}, SPARC {} s", short(rs), short(sparc)),
    );
    let transputer = numbers("table-5")[4];
    let times = transputer / of(all, Picture::Rays)?.0;
    let holds = is_near(times, numbers("fifty-one")[0], 0.25);
    found.verdict("fifty-one", holds, format!("{times:.1} times"));
    let [(_, rays), (_, fractal)] = [of(slc.clone(), Picture::Rays)?, of(slc, Picture::Fractal)?];
    found.verdict("rays-gain-more", rays > fractal, format!("{rays:.2}, {fractal:.2}, ten SLC"));
    farms.tell(found);
    Ok(())
}
