//! The fastest of several settings, and of several systems: measured in turns for a moment.

use super::{Discipline, Flavour, PeersDir, System, Task, open_within, start, versions};
use crate::failure::Failure;
use crate::harness::near::Bench;
use crate::harness::slices::{
    Contender, Plan, SLICES_MIN, Slice, best_of, median_of, name_of, warm_up,
};

/// Turns of each side in a contest.
const TURNS: usize = 3;

/// Part of a full slice that a turn is: a quarter.
const TURNS_A_SLICE: u64 = 4;

/// A system that is ready to be measured.
pub struct Opened {
    /// The side.
    pub contender: Box<dyn Contender>,
    /// The system.
    pub system: System,
    /// Name and version, as the system tells them.
    pub version: String,
    /// The settings.
    pub flavour: Flavour,
    /// Names of the systems that took part.
    pub tried: Vec<String>,
}

/// Opens a system with the faster of its settings. The other is closed.
///
/// # Errors
/// If it is not built, or fails with all settings; then the cause of the last.
pub fn open(
    bench: &mut Bench,
    system: System,
    task: &Task,
    folder: &PeersDir,
) -> Result<Opened, Failure> {
    let mut failed = None;
    let mut opened = Vec::new();
    for &flavour in Flavour::of(system, task.discipline) {
        match open_as(bench, system, task, flavour, folder) {
            Ok(side) => opened.push(side),
            Err(failure) => failed = Some(failure),
        }
    }
    fastest(bench, task, opened, failed)
}

/// Opens the fastest of these systems that are there.
///
/// # Errors
/// If none is; then with the cause of each.
pub fn open_best(
    bench: &mut Bench,
    systems: &[System],
    task: &Task,
    folder: &PeersDir,
) -> Result<Opened, Failure> {
    let (mut best, mut tried, mut missing) = (None, Vec::new(), Vec::new());
    for &system in systems {
        let side = match open(bench, system, task, folder) {
            Ok(side) => side,
            Err(failure) => {
                missing.push(failure.to_string());
                continue;
            }
        };
        tried.push(name_of(system));
        let sides = best.take().into_iter().chain([side]).collect();
        best = Some(fastest(bench, task, sides, None)?);
    }
    match best {
        Some(best) => Ok(Opened { tried, ..best }),
        None => Err(Failure::broken("looking for other systems", missing.join("; "))),
    }
}

fn open_as(
    bench: &mut Bench,
    system: System,
    task: &Task,
    flavour: Flavour,
    folder: &PeersDir,
) -> Result<Opened, Failure> {
    let (contender, version): (Box<dyn Contender>, _) = if system.is_within() {
        (open_within(bench, system, task, flavour)?, versions::within(system))
    } else {
        let external = start(bench, system, task, flavour, folder)?;
        let version = external.version().to_owned();
        (Box::new(external), version)
    };
    Ok(Opened { contender, system, version, flavour, tried: vec![name_of(system)] })
}

/// Returns the fastest side. One that fails is out.
fn fastest(
    bench: &mut Bench,
    task: &Task,
    mut sides: Vec<Opened>,
    mut failed: Option<Failure>,
) -> Result<Opened, Failure> {
    if sides.len() > 1 {
        let warm =
            |side: &mut Opened| or_failed(warm(bench, &mut *side.contender, task), &mut failed);
        let counts: Vec<Option<u64>> = sides.iter_mut().map(warm).collect();
        let slice = |index: usize| {
            let Some(count) = counts[index] else { return Ok(None) };
            Ok(or_failed(sides[index].contender.slice(bench, count), &mut failed))
        };
        let merit = |slices: &[Slice]| median_of(slices, |slice| figure(slice, task.discipline));
        let best = best_of(counts.len(), TURNS, slice, merit).unwrap_or_default();
        sides = best.map(|index| sides.swap_remove(index)).into_iter().collect();
    }
    sides.pop().ok_or_else(|| {
        failed.unwrap_or_else(|| Failure::broken("comparing settings", "there are none"))
    })
}

fn or_failed<T>(result: Result<T, Failure>, failed: &mut Option<Failure>) -> Option<T> {
    result.map_err(|failure| *failed = Some(failure)).ok()
}

/// Returns the messages of a turn.
fn warm(bench: &mut Bench, side: &mut dyn Contender, task: &Task) -> Result<u64, Failure> {
    let plan = Plan { slices: SLICES_MIN, total: None, first_try: task.first_try };
    let full = warm_up(&plan, |count| side.slice(bench, count.messages))?;
    Ok((full / TURNS_A_SLICE).max(1))
}

/// Returns the figure of a slice that is larger for the faster side.
fn figure(slice: &Slice, discipline: Discipline) -> f64 {
    if discipline.is_timed() { -slice.p50_us() } else { slice.rate() }
}
