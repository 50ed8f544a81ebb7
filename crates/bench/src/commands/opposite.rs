//! The processes of a baseline beside ours, and the ratio of their times.

use super::set_ratio;
use crate::baseline::mpi_calls::Form;
use crate::failure::Failure;
use crate::harness::ranks::Ranks;
use crate::harness::slices::{Outcome, Plan, Side, Slice, alternate, median_of};
use crate::stats::Ratio;
use crate::table::{Row, significant};

/// Number of slices of a heat.
const HEAT_SLICES: usize = 4;

/// The baseline's ranks.
pub(super) struct Opposite {
    pub(super) ranks: Ranks,
    pub(super) name: String,
    /// The way of calling of an MPI.
    pub(super) request: Option<&'static str>,
}

/// Name of the baseline that was measured, and its way of calling.
pub(super) type Told = (String, Option<&'static str>);

impl Opposite {
    pub(super) fn told(&self) -> Told {
        (self.name.clone(), self.request)
    }
}

/// Returns the median time of a call, in seconds.
pub(super) fn seconds_a_call(slices: &[Slice]) -> f64 {
    median_of(slices, |slice| 1.0 / slice.rate())
}

/// Adds the baseline's time and the ratios; `missing` is the reason why there is no baseline although
/// the one of this name was asked for.
pub(super) fn set_times(
    row: &mut Row,
    asked: &str,
    outcome: &Outcome,
    told: Option<Told>,
    missing: Option<String>,
) {
    let (name, request) = told.unwrap_or_else(|| (asked.to_owned(), None));
    let seconds = seconds_a_call(&outcome.baseline);
    let times: Vec<_> = [&outcome.ours, &outcome.baseline]
        .map(|slices| slices.iter().map(|slice| 1.0 / slice.rate()).collect::<Vec<f64>>())
        .into();
    set_ratio(row, &name, outcome.ratio(Slice::rate));
    row.set("time_ratio", Ratio::of_pairs(&times[0], &times[1]).median)
        .set("baseline_seconds", seconds)
        .set("baseline_request", request);
    if let Some(reason) = missing {
        row.set("ratio", None::<f64>).set("time_ratio", None::<f64>).set("reason", reason);
    }
}

/// Runs a heat of each form, and starts the ranks of the fastest again. A form that does not start or
/// hangs is out, unless it is the only one.
pub(super) fn fastest(
    forms: &[Form],
    first_calls: u64,
    mut start: impl FnMut(Form) -> Result<Ranks, Failure>,
    slice: impl Fn(&mut Ranks, u64) -> Result<Slice, Failure>,
) -> Result<Opposite, Failure> {
    let plan = Plan { slices: HEAT_SLICES, total: None, first_try: first_calls };
    let mut heat = |form| {
        let mut ranks = start(form)?;
        let sides = Side::against(false);
        let outcome = alternate(&plan, sides, |_, count| slice(&mut ranks, count.messages))?;
        Ok(seconds_a_call(&outcome.ours))
    };
    let mut best: Option<(Form, f64)> = None;
    let mut out: Option<Failure> = None;
    for &form in forms {
        match heat(form) {
            Ok(seconds) => {
                let told = significant(seconds * 1e6);
                eprintln!("chunkperf: {} {}: {told} us", form.name, form.request);
                if best.is_none_or(|(_, least)| seconds < least) {
                    best = Some((form, seconds));
                }
            }
            Err(failure) => {
                eprintln!("chunkperf: {} {} is out: {failure}", form.name, form.request);
                out = Some(failure);
            }
        }
    }
    let none = || out.unwrap_or_else(|| Failure::broken("looking for an MPI", "there is none"));
    let (form, _) = best.ok_or_else(none)?;
    Ok(Opposite { ranks: start(form)?, name: form.name.to_owned(), request: Some(form.request) })
}
