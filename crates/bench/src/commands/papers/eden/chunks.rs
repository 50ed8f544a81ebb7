//! Static chunks in `parsort`, with gathering and without (sections 2.2 and 4.2, figure 6).

use super::pool::{Pool, Sending};
use super::sorting::{Sorted, Sorting, Way};
use crate::commands::papers::{Curves, Found, Scene};
use crate::failure::Failure;
use crate::table::{Row, column, significant};

/// Numbers of a chunk; the last of a run is a sorter's whole list.
const SIZES: [usize; 4] = [10, 100, 1000, 5000];

/// Chunks that differ so little that their times should, too.
const NEAR_SIZES: [usize; 5] = [92, 96, 100, 104, 108];

/// Factor from which on a time counts as much better.
const MUCH: f64 = 1.2;

/// Factor from which on a time counts as different.
const DIFFERENT: f64 = 1.03;

/// Decides the statements about static chunks.
///
/// # Errors
/// If a sorting fails.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let pool = Pool::of(scene)?;
    let usual = Sorting::usual(scene, Sending::Plain);
    let sort = |way: Way| {
        let both = Sending::BOTH.map(|sending| Sorting { sending, way, ..usual }.run(&pool));
        let [plain, gathered] = both;
        Ok::<_, Failure>([plain?, gathered?])
    };
    let single = sort(Way::Single)?;
    let whole = usual.numbers.div_ceil(usual.sorters);
    let sizes: Vec<usize> = SIZES.into_iter().filter(|size| *size < whole).chain([whole]).collect();
    let (mut input, mut both) = (Vec::new(), Vec::new());
    for &size in &sizes {
        input.push(sort(Way::Input(size))?);
        both.push(sort(Way::Both(size))?);
    }
    show(found, &sizes, &single, &input, &both);
    let seconds = |runs: &[[Sorted; 2]], at: usize| -> Vec<f64> {
        runs.iter().map(|it| it[at].seconds).collect()
    };
    let best = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let (input_plain, both_plain) = (seconds(&input, 0), seconds(&both, 0));
    let [best_input, best_both] = [best(&input_plain), best(&both_plain)];
    let gains = [best_input, best_both].map(|best| single[0].seconds / best);
    let ours = format!("{:.2} and {:.2} times", gains[0], gains[1]);
    found.verdict("static-gains", gains.iter().all(|gain| *gain > DIFFERENT), ours);
    let last = both.len() - 1;
    let slower = both_plain[last] / best_both;
    let overlap = |runs: &[[Sorted; 2]]| runs.iter().map(|it| it[0].overlap).fold(0.0, f64::max);
    let serial = slower > DIFFERENT && both[last][0].overlap < overlap(&both) / 10.0;
    found.verdict("large-chunks-serialise", serial, format!("{slower:.2} times the best"));
    let ours = format!("{:.2} times as fast", best_input / best_both);
    found.verdict("both-beats-input", best_input / best_both > MUCH, ours);
    let [one, other] = [overlap(&both), overlap(&input)].map(|it| it * 100.0);
    found.verdict("both-overlaps", one > other + 5.0, format!("{one:.0} % against {other:.0} %"));
    let ours = format!("{best_both:.1} s against {:.1} s", single[1].seconds);
    found.verdict("no-replacement", best_both * DIFFERENT < single[1].seconds, ours);
    let gain = |runs: &[Sorted; 2]| runs[0].seconds / runs[1].seconds;
    let [one, other] = [gain(&input[0]), gain(&both[0])];
    let ours = format!("10: {one:.2} and {other:.2} times");
    found.verdict("wrong-sizes-gain", one.min(other) > DIFFERENT, ours);
    let gains: Vec<f64> = input.iter().map(gain).collect();
    let ours = format!("{:.2} times at least", best(&gains));
    found.verdict("input-gains", best(&gains) > MUCH, ours);
    let changes = both[2.min(last)..].iter().map(|it| (gain(it) - 1.0).abs()).fold(0.0, f64::max);
    let ours = format!("{:.1} % at most", changes * 100.0);
    found.verdict("both-unchanged", changes < DIFFERENT - 1.0, ours);
    let waiting = [&input[1.min(last)], &single].map(|runs| runs[0].waiting_max);
    let ours = format!("{} wait, plain {}", waiting[0], waiting[1]);
    found.verdict("flood", waiting[0] > 2 * waiting[1].max(1), ours);
    let mut near = Vec::new();
    for size in NEAR_SIZES {
        near.push(sort(Way::Input(size))?);
    }
    let [plain, gathered] = [0, 1].map(|at| {
        let times = seconds(&near, at);
        times.iter().copied().fold(0.0, f64::max) / best(&times) - 1.0
    });
    let ours = format!("{:.1} %, gathered {:.1} %", plain * 100.0, gathered * 100.0);
    found.verdict("input-unstable", plain > 0.05 && plain > 2.0 * gathered, ours);
    Ok(())
}

fn show(
    found: &mut Found,
    sizes: &[usize],
    single: &[Sorted; 2],
    input: &[[Sorted; 2]],
    both: &[[Sorted; 2]],
) {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    let mut add = |way: &str, size: usize, [plain, gathered]: &[Sorted; 2]| {
        let mut row = Row::default();
        row.set("way", way)
            .set("chunk", size)
            .set("plain_seconds", plain.seconds)
            .set("gathered_seconds", gathered.seconds)
            .set("plain_packets", plain.sent.packets)
            .set("gathered_packets", gathered.sent.packets)
            .set("overlap", plain.overlap)
            .set("waiting", plain.waiting_max);
        rows.push(row);
    };
    add("plain", 1, single);
    for (way, runs) in [("input", input), ("both", both)] {
        for (size, runs) in sizes.iter().zip(runs) {
            add(way, *size, runs);
        }
        for (at, name) in ["each at once", "gathered"].into_iter().enumerate() {
            let points = sizes.iter().zip(runs).map(|(size, it)| (*size as f64, it[at].seconds));
            lines.push((format!("{way}, {name}"), points.collect()));
        }
    }
    let columns = [
        column("way", "chunks", 6),
        column("chunk", "of", 6),
        column("plain_seconds", "plain s", 8),
        column("gathered_seconds", "gathered s", 8),
        column("plain_packets", "packets", 8),
        column("gathered_packets", "gathered", 8),
        column("overlap", "overlap", 8),
        column("waiting", "waiting", 8),
    ];
    found.table("static chunks, figure 6", &columns, rows);
    let shortest = single.iter().map(|it| it.seconds).fold(f64::INFINITY, f64::min);
    found.curves(Curves {
        name: "chunks",
        title: format!("parsort in chunks (figure 6); without: {} s", significant(shortest)),
        x: ("numbers of a chunk", true),
        y: ("s", false),
        lines,
    });
}
