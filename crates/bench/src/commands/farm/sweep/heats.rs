//! One length of tasks: the heats of the fixed settings, and the final against the best of them.

use std::time::Duration;

use chunkcomm_farm::settings::{Grain, Prefetch};

use crate::failure::Failure;
use crate::harness::near::Bench;
use crate::harness::slices::{self, Outcome, Plan, Side, Slice, median_of};
use crate::ours::farm::{FarmKind, Ready, farmer_address, start};

/// Numbers of assignments that are tried.
const PREFETCHES: [u32; 5] = [1, 2, 4, 16, 64];

/// Numbers of tasks an assignment that are tried.
const GRAINS: [u32; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// Least tasks of a run. With fewer, the ends of the runs would decide.
const TASKS_MIN: u64 = 100;

/// Tasks of the first try.
const FIRST_TRY: u64 = 16;

/// Part of the tasks of a run that a fixed setting begins with: 1/64.
const HEAT_PARTS: u64 = 64;

/// Part of the best rate so far below which a setting leaves its heat early. The first runs are
/// short and favour small grains.
const HOPELESS: f64 = 0.5;

/// Fixed settings in the semi-final.
const SEMI_FINALISTS: usize = 4;

/// Workers of the final are started anew this often, since the place of their memory matters.
const OPENINGS: usize = 3;

/// Lengths of heats and finals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    /// Runs of each setting in the semi-final.
    rounds: usize,
    /// Pairs of runs on each opening of the final.
    pairs: usize,
    /// Tasks of a run; `None` if the time decides.
    tasks: Option<u64>,
    /// Largest setting of the grid.
    prefetch_max: u32,
    grain_max: u32,
}

impl Lengths {
    pub(super) const USUAL: Self =
        Self { rounds: 3, pairs: 4, tasks: None, prefetch_max: u32::MAX, grain_max: u32::MAX };
    pub(super) const QUICK: Self =
        Self { rounds: 1, pairs: 1, tasks: Some(20), prefetch_max: 2, grain_max: 4 };
}

/// A setting that a user might choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed {
    pub(super) prefetch: u32,
    pub(super) grain: u32,
}

impl Fixed {
    /// Returns the settings that are tried. Each worker gets at least one assignment.
    pub(super) fn all(tasks: u64, workers: usize, lengths: &Lengths) -> Vec<Self> {
        let most = lengths.grain_max.min(u32::try_from(tasks / workers as u64).unwrap_or(u32::MAX));
        let grains = GRAINS.into_iter().filter(|&grain| grain == 1 || grain <= most);
        let prefetches = PREFETCHES.into_iter().filter(|&depth| depth <= lengths.prefetch_max);
        let with = |grain| prefetches.clone().map(move |prefetch| Self { prefetch, grain });
        grains.flat_map(with).collect()
    }

    fn kind(self, measured: &FarmKind) -> FarmKind {
        FarmKind {
            prefetch: Prefetch::Fixed(self.prefetch),
            grain: Grain::Fixed(self.grain),
            ..measured.clone()
        }
    }
}

/// Returns the tasks of a run: those of the usual time with measured settings, at least 100.
///
/// # Errors
/// If a run fails.
pub(super) fn tasks_of_run(
    bench: &mut Bench,
    kind: &FarmKind,
    work: Duration,
    lengths: &Lengths,
) -> Result<u64, Failure> {
    if let Some(tasks) = lengths.tasks {
        return Ok(tasks);
    }
    let mut ours = open(bench, kind)?;
    let first_try = if work < Duration::from_millis(1) { FIRST_TRY * 64 } else { FIRST_TRY };
    let plan = Plan { slices: 1, total: None, first_try };
    let tasks = slices::warm_up(&plan, |count| slice(&mut *ours, bench, count.messages))?;
    ours.finish(&bench.runtime)?;
    Ok(tasks.max(TASKS_MIN))
}

/// Starts a farm that listens at an address of its own, beside others.
fn open(bench: &Bench, kind: &FarmKind) -> Result<Box<dyn Ready>, Failure> {
    let listen = farmer_address(bench.place.transport)?;
    start(&bench.runtime, &FarmKind { listen, ..kind.clone() })
}

fn slice(farm: &mut dyn Ready, bench: &Bench, tasks: u64) -> Result<Slice, Failure> {
    Ok(Slice::timed(tasks, farm.run(&bench.runtime, tasks)?))
}

/// Returns the best of the fixed settings.
///
/// # Errors
/// If a run fails.
pub(super) fn heats(
    bench: &mut Bench,
    kind: &FarmKind,
    tasks: u64,
    settings: &[Fixed],
    lengths: &Lengths,
) -> Result<Fixed, Failure> {
    let mut rates: Vec<(f64, Fixed)> = Vec::new();
    let mut best = 0.0;
    for &fixed in settings {
        let mut farm = open(bench, &fixed.kind(kind))?;
        let rate = heat(&mut *farm, bench, tasks, best)?;
        farm.finish(&bench.runtime)?;
        best = f64::max(best, rate);
        rates.push((rate, fixed));
    }
    rates.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut runners = Vec::new();
    for &(_, fixed) in rates.iter().take(SEMI_FINALISTS) {
        runners.push(open(bench, &fixed.kind(kind))?);
    }
    let slice = |index: usize| slice(&mut *runners[index], bench, tasks).map(Some);
    let merit = |slices: &[Slice]| median_of(slices, Slice::rate);
    let best = slices::best_of(rates.len().min(SEMI_FINALISTS), lengths.rounds, slice, merit)?;
    for farm in runners {
        farm.finish(&bench.runtime)?;
    }
    let none = || Failure::broken("sweeping", "there are no fixed settings");
    best.map(|index| rates[index].1).ok_or_else(none)
}

/// Returns the rate of a setting: of a full run, or of a shorter one if that is hopeless.
fn heat(farm: &mut dyn Ready, bench: &Bench, tasks: u64, best: f64) -> Result<f64, Failure> {
    let mut count = (tasks / HEAT_PARTS).max(FIRST_TRY).min(tasks);
    loop {
        let rate = slice(farm, bench, count)?.rate();
        if count == tasks || rate < HOPELESS * best * (count as f64 / tasks as f64).powf(0.25) {
            return Ok(rate);
        }
        count = (count * 8).min(tasks);
    }
}

/// Runs measured settings and the best fixed one in turns.
///
/// # Errors
/// If a run fails.
pub(super) fn final_of(
    bench: &mut Bench,
    kind: &FarmKind,
    tasks: u64,
    best: Fixed,
    lengths: &Lengths,
) -> Result<Outcome, Failure> {
    let total = Some(tasks * lengths.pairs as u64);
    let plan = Plan { slices: lengths.pairs, total, first_try: FIRST_TRY };
    let mut outcome = Outcome::default();
    for _ in 0..OPENINGS {
        let mut ours = open(bench, kind)?;
        let mut fixed = open(bench, &best.kind(kind))?;
        let sides = Side::against(true);
        outcome.extend(slices::alternate(&plan, sides, |side, count| match side {
            Side::Baseline => slice(&mut *fixed, bench, count.messages),
            _ => slice(&mut *ours, bench, count.messages),
        })?);
        ours.finish(&bench.runtime)?;
        fixed.finish(&bench.runtime)?;
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_leave_each_worker_an_assignment() {
        let all = Fixed::all(100, 2, &Lengths::USUAL);
        assert_eq!(all.len(), 3 * PREFETCHES.len(), "grains 1, 4 and 16");
        assert_eq!(Fixed::all(1_000_000, 2, &Lengths::USUAL).len(), 35);
        assert_eq!(Fixed::all(1, 2, &Lengths::USUAL).len(), PREFETCHES.len(), "one of 1 is left");
        assert_eq!(Fixed::all(20, 2, &Lengths::QUICK).len(), 4);
        for (index, fixed) in all.iter().enumerate() {
            assert!(!all[..index].contains(fixed), "{fixed:?}");
        }
    }
}
