//! Figures 6 and 7: a matrix from one group to another and back, with plans that are made each time or kept.
//!
//! The paper's elements have 4 bytes, ours 8: a matrix of `N` rows has half as many columns here, and as many bytes.

use super::{NEAR, SIGNIFICANT, is_near};
use crate::commands::papers::{Curves, Found, Scene};
use crate::commands::redistribute::ping_pong::{OneWay, one_way_on_sp2};
use crate::failure::Failure;
use crate::fit::{Line, Point};
use crate::harness::transfers::ELEMENT_BYTES;
use crate::table::{Row, column, significant};

/// Rows of the matrices.
const ROWS: [usize; 7] = [16, 32, 64, 128, 256, 512, 1024];

/// Ranks of each group.
const RANKS: [usize; 4] = [1, 2, 4, 8];

/// Times of one way in seconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    rows: usize,
    ranks: usize,
    bytes: f64,
    fresh: f64,
    kept: f64,
    /// Kept, without the copies of an interface.
    tighter: f64,
    /// Kept, without packing, too.
    bare: f64,
    /// Inquiry, exchange and schedule of a fresh plan, and of a kept one.
    planning: [f64; 2],
    /// Exchange of layouts of a fresh plan.
    exchange: f64,
}

impl Times {
    fn of(rows: usize, ranks: usize) -> Result<Self, Failure> {
        let shape = [rows, rows / 2];
        let way =
            |fresh, packs, copies| one_way_on_sp2(shape, ranks, OneWay { fresh, packs, copies });
        let (fresh, steps) = way(true, true, true)?;
        let (kept, kept_steps) = way(false, true, true)?;
        let (tighter, _) = way(false, true, false)?;
        let (bare, _) = way(false, false, false)?;
        let planning = [steps, kept_steps].map(|it| it[..3].iter().sum::<u64>() as f64 * 1e-9);
        let bytes = (rows * rows / 2 * ELEMENT_BYTES) as f64;
        let exchange = steps[1] as f64 * 1e-9;
        Ok(Self { rows, ranks, bytes, fresh, kept, tighter, bare, planning, exchange })
    }

    /// Part of the time that a kept plan saves.
    fn saved(&self) -> f64 {
        1.0 - self.kept / self.fresh
    }

    /// Part of the rest that copies and packing take.
    fn overheads(&self) -> f64 {
        1.0 - self.bare / self.kept
    }

    fn row(&self) -> Row {
        let mut row = Row::default();
        row.set("rows", self.rows).set("ranks", self.ranks);
        let times = [
            ("fresh_ms", self.fresh),
            ("exchange_ms", self.exchange),
            ("kept_ms", self.kept),
            ("tighter_ms", self.tighter),
            ("bare_ms", self.bare),
        ];
        for (key, seconds) in times {
            row.set(key, seconds * 1e3);
        }
        row.set("saved", self.saved());
        row
    }
}

/// Runs all sizes and numbers of ranks.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let rows_max = scene.sized(ROWS[ROWS.len() - 1], 32);
    let mut times = Vec::new();
    for rows in ROWS.into_iter().filter(|rows| *rows <= rows_max) {
        for ranks in RANKS {
            times.push(Times::of(rows, ranks)?);
        }
    }
    show(found, &times);
    let of_rows = |rows| times.iter().filter(move |it| it.rows == rows).copied().collect();
    let (small, large): (Vec<Times>, Vec<Times>) = (of_rows(ROWS[0]), of_rows(rows_max));
    costs(found, &small, &large);
    steps(found, &small, &large);
    model(found, &times, (&small, &large));
    saving(scene, found, &times, &small);
    overheads(scene, found, &times, &large);
    Ok(())
}

fn show(found: &mut Found, times: &[Times]) {
    let columns = [
        column("rows", "rows", 4),
        column("ranks", "ranks", 5),
        column("fresh_ms", "fresh, ms", 9),
        column("exchange_ms", "of it exchange", 9),
        column("kept_ms", "kept, ms", 9),
        column("tighter_ms", "no copies", 9),
        column("bare_ms", "no packing", 9),
        column("saved", "kept saves", 9),
    ];
    found.table("one way", &columns, times.iter().map(Times::row).collect());
    let line = |rows: usize, name: &str, seconds: fn(&Times) -> f64| {
        let of_rows = times.iter().filter(|it| it.rows == rows);
        let points = of_rows.map(|it| (it.ranks as f64, seconds(it) * 1e3)).collect();
        (format!("N {rows}, {name}"), points)
    };
    let lines = [16, 128, 1024]
        .into_iter()
        .flat_map(|rows| [line(rows, "fresh", |it| it.fresh), line(rows, "kept", |it| it.kept)]);
    found.curves(Curves {
        name: "7",
        title: "Figure 7: one way between two groups".to_owned(),
        x: ("processors P of a group", true),
        y: ("ms", true),
        lines: lines.filter(|(_, points): &(_, Vec<_>)| !points.is_empty()).collect(),
    });
}

/// Returns milliseconds as a text.
fn ms(seconds: f64) -> String {
    significant(seconds * 1e3)
}

/// Returns a figure of the first and of the last group as a text.
fn ends(times: &[Times], figure: impl Fn(&Times) -> f64) -> String {
    let end = |times: Option<&Times>| ms(times.map_or(f64::NAN, &figure));
    format!("{} to {} ms", end(times.first()), end(times.last()))
}

fn costs(found: &mut Found, small: &[Times], large: &[Times]) {
    let grows =
        |figure: fn(&Times) -> f64| small.is_sorted_by(|one, other| figure(one) < figure(other));
    let falls =
        |figure: fn(&Times) -> f64| large.is_sorted_by(|one, other| figure(one) > figure(other));
    let grow = grows(|it| it.fresh) && grows(|it| it.kept);
    let fall = falls(|it| it.fresh) && falls(|it| it.kept);
    found.verdict("small-cost-grows", grow, ends(small, |it| it.kept));
    found.verdict("large-cost-falls", fall, ends(large, |it| it.kept));
}

fn steps(found: &mut Found, small: &[Times], large: &[Times]) {
    let most = small.iter().chain(large).map(|it| it.planning[1]).fold(0.0, f64::max);
    found.verdict("kept-skips-steps", most == 0.0, format!("they take {} ms", ms(most)));
}

/// Puts `P t_s + (N^2 / P) t_w` through the times without packing and copies.
fn model(found: &mut Found, times: &[Times], (small, large): (&[Times], &[Times])) {
    let length = |it: &Times| it.bytes / (it.ranks * it.ranks) as f64;
    // Divided by P it is a line.
    let points: Vec<_> =
        times.iter().map(|it| Point::relative(length(it), it.bare / it.ranks as f64)).collect();
    let Some(line) = Line::through(&points) else { return };
    let error = line.relative_error(&points);
    found.verdict("direct-model", error <= NEAR, format!("off by {:.0} %", error * 1e2));
    // Of the parts of the model, those of startup.
    let startup = |it: &Times| line.intercept / line.at(length(it));
    let percent = |times: &[Times]| {
        let all: Vec<_> = times.iter().map(|it| format!("{:.0}", startup(it) * 1e2)).collect();
        format!("startup {} %", all.join(", "))
    };
    found.verdict("small-is-startup", small.iter().all(|it| startup(it) > 0.5), percent(small));
    let growth = large.iter().filter_map(|it| {
        let half = times.iter().find(|half| half.ranks == it.ranks && 2 * half.rows == it.rows)?;
        Some(it.bare / half.bare)
    });
    let growth: Vec<_> = growth.collect();
    let holds = large.iter().all(|it| startup(it) < 0.5)
        && growth.iter().all(|growth| is_near(*growth, 4.0));
    let told: Vec<_> = growth.iter().map(|growth| format!("{growth:.1}")).collect();
    found.verdict("large-is-transfer", holds, format!("doublings: {} times", told.join(", ")));
}

fn saving(scene: &Scene<'_>, found: &mut Found, times: &[Times], small: &[Times]) {
    // Two percent more is the same.
    const SAME: f64 = 0.02;
    let percent = |saved: f64| format!("{:.0}", saved * 1e2);
    let range = scene.numbers("kept-saves-small");
    let range = range[0] * (1.0 - NEAR)..=range[1] * (1.0 + NEAR);
    let told: Vec<_> = small.iter().map(|it| percent(it.saved())).collect();
    let holds = small.iter().all(|it| range.contains(&it.saved()));
    found.verdict("kept-saves-small", holds, format!("{} %", told.join(", ")));
    let falls = |ranks: &usize| {
        let of_ranks = times.iter().filter(|it| it.ranks == *ranks);
        // A loss is no saving.
        let saved = of_ranks.map(|it| it.saved().max(0.0));
        saved.is_sorted_by(|before, after| *after <= before + SAME)
    };
    let last = &times[times.len() - RANKS.len()..];
    let both = small.iter().zip(last);
    let told: Vec<_> = both
        .map(|(first, last)| percent(first.saved()) + " to " + &percent(last.saved()))
        .collect();
    found.verdict("kept-saves-less", RANKS.iter().all(falls), format!("{} %", told.join(", ")));
    let &[most, rows] = scene.numbers("kept-saves-large") else { return };
    let large = times.iter().filter(|it| it.rows as f64 >= rows).map(Times::saved);
    let saved = large.fold(0.0, f64::max);
    found.verdict("kept-saves-large", saved < most, format!("at most {} %", percent(saved)));
}

fn overheads(scene: &Scene<'_>, found: &mut Found, times: &[Times], large: &[Times]) {
    let peak = times.iter().map(Times::overheads).fold(0.0, f64::max);
    let holds = is_near(peak, scene.numbers("overheads-peak")[0]);
    found.verdict("overheads-peak", holds, format!("{:.0} %", peak * 1e2));
    let rate = large[0].bytes / large[0].fresh / 1e6;
    let holds = is_near(rate, scene.numbers("fresh-rate")[0]);
    found.verdict("fresh-rate", holds, format!("{rate:.1} MB/s"));
    let gains = large.iter().map(|it| it.kept / it.tighter);
    let (least, most) = gains
        .fold((f64::INFINITY, 0.0_f64), |(least, most), gain| (least.min(gain), most.max(gain)));
    let told = format!("{least:.2} to {most:.2} times");
    found.verdict("tighter-coupling", least >= SIGNIFICANT, told);
}
