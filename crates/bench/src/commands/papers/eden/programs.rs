//! The three programs (section 4.2, the table).

use super::maps::{Map, Picture};
use super::pool::{Pool, Sending};
use super::sorting::{Sort, Sorting};
use crate::commands::papers::{Found, Scene};
use crate::failure::Failure;
use crate::table::{Row, column, significant};

/// Relative error by which a time may differ from the paper's.
const NEAR: f64 = 0.1;

/// Elements that compute, from the fewest on.
const ELEMENTS: [usize; 4] = [1, 2, 4, 7];

/// Speed-up of seven elements that counts as poor.
const POOR: f64 = 3.5;

/// Times of a program by the elements that compute: plain and gathered.
type Times = Vec<[f64; 2]>;

/// Decides the statements about the programs.
///
/// # Errors
/// If a program fails.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let pool = Pool::of(scene)?;
    let sorted = |elements: usize, sort: Sort, sending: Sending| {
        let usual = Sorting::usual(scene, sending);
        Ok::<_, Failure>(Sorting { sort, sorters: elements, ..usual }.run(&pool)?.seconds)
    };
    let mapped = |workers: usize, picture: Picture, sending: Sending| {
        Map { workers, ..Map::usual(scene, picture, sending) }.run(&pool)
    };
    let (mut parsort, mut mandelbrot, mut raytracer) = (Times::new(), Times::new(), Times::new());
    let mut interleaved = true;
    for elements in ELEMENTS {
        let (mut sorts, mut sets, mut scenes) = ([0.0; 2], [0.0; 2], [0.0; 2]);
        for (at, sending) in Sending::BOTH.into_iter().enumerate() {
            sorts[at] = sorted(elements, Sort::Merge, sending)?;
            let map = mapped(elements, Picture::Mandelbrot, sending)?;
            (sets[at], interleaved) = (map.seconds, interleaved && map.interleaved);
            scenes[at] = mapped(elements, Picture::Raytracer, sending)?.seconds;
        }
        parsort.push(sorts);
        mandelbrot.push(sets);
        raytracer.push(scenes);
    }
    // It sends as the others do, and computes for so long that the way of sending does not matter.
    let inserted =
        [1, ELEMENTS[3]].map(|elements| sorted(elements, Sort::Insertion, Sending::USUAL));
    let [alone, together] = inserted;
    let inserted = [alone?, together?];
    let mut rows = Vec::new();
    for (program, times) in
        [("parsort", &parsort), ("mandelbrot", &mandelbrot), ("raytracer", &raytracer)]
    {
        for (elements, [plain, gathered]) in ELEMENTS.iter().zip(times) {
            let mut row = Row::default();
            row.set("program", program)
                .set("computing", *elements)
                .set("plain_seconds", *plain)
                .set("gathered_seconds", *gathered)
                .set("gain", plain / gathered);
            rows.push(row);
        }
    }
    let columns = [
        column("program", "program", 10),
        column("computing", "computing", 4),
        column("plain_seconds", "plain s", 8),
        column("gathered_seconds", "gathered s", 8),
        column("gain", "gain", 6),
    ];
    found.table("programs", &columns, rows);
    times(scene, found, [&parsort, &mandelbrot, &raytracer]);
    // Against one element that computes, both gathered.
    let speedup = |times: &Times| times[0][1] / times[times.len() - 1][1];
    let [sorts, sets, scenes] = [&parsort, &mandelbrot, &raytracer].map(speedup);
    let insertion = inserted[0] / inserted[1];
    found.verdict(
        "streams-interleave",
        interleaved,
        if interleaved { "they did" } else { "not all" },
    );
    found.verdict("sorting-scales-badly", sorts < POOR, format!("{sorts:.1} of 7"));
    let ours = format!("{} against {sorts:.1}", significant(insertion));
    found.verdict("insertion-scales", insertion > sorts, ours);
    let longer = inserted[1] / parsort[parsort.len() - 1][1];
    found.verdict("insertion-slow", longer > 2.0, format!("{longer:.0} times as long"));
    let ours = format!("{sets:.1} and {scenes:.1} of 7");
    found.verdict("maps-scale", sets.min(scenes) > sorts, ours);
    let gain = |times: &[f64; 2]| times[0] / times[1];
    let few = [&parsort, &mandelbrot].map(|it| [gain(&it[0]), gain(&it[it.len() - 1])]);
    let ours = format!("parsort: {:.2}, then {:.2} times", few[0][0], few[0][1]);
    found.verdict("few-processors", few.iter().all(|[few, many]| few > many), ours);
    Ok(())
}

/// Compares the times of 8 elements with the table's.
fn times(scene: &Scene<'_>, found: &mut Found, programs: [&Times; 3]) {
    let ours = programs.map(|times| times[times.len() - 1]);
    let near = |ours: f64, theirs: f64| (ours / theirs - 1.0).abs() < NEAR;
    let gathered = scene.numbers("gathered-times");
    let holds = ours.iter().zip(gathered).all(|([_, ours], theirs)| near(*ours, *theirs));
    let told = ours.map(|[_, gathered]| format!("{gathered:.1}")).join(", ");
    found.verdict("gathered-times", holds, format!("{told} s"));
    for (id, [plain, gathered]) in
        ["parsort-time", "mandelbrot-time", "raytracer-time"].into_iter().zip(ours)
    {
        // The raytracer's two times are nearly equal; those of the others far apart.
        let is_equal = near(plain, gathered) == (id == "raytracer-time");
        let holds = near(plain, scene.numbers(id)[0]) && is_equal;
        found.verdict(id, holds, format!("{plain:.1} s, {:.2} times", plain / gathered));
    }
    let [plain, gathered] = ours[1];
    let faster = (1.0 - gathered / plain) * 100.0;
    let holds = near(faster, scene.numbers("mandelbrot-gain")[0]);
    found.verdict("mandelbrot-gain", holds, format!("{faster:.1} %"));
}
