//! Figures 6 and 7 of Foster, Kohr, Krishnaiyer and Choudhary ("Bringing Task Parallelism to HPF via the
//! Message Passing Interface", 1996): a matrix goes from one group to another and back, `(block,*)` to
//! `(*,block)` each time; the time of one way is half of that, by steps.

use super::{PlanKind, RANKS_MAX, RedistributeArgs, slice};
#[cfg(feature = "virtual")]
use super::{SP2_COPIES_NS, SP2_PACKING_NS};
use crate::commands::Verdict;
use crate::commands::opposite::seconds_a_call;
use crate::failure::Failure;
#[cfg(feature = "virtual")]
use crate::harness::protocol::RuntimeKind;
use crate::harness::ranks::Steps;
use crate::harness::slices::{Plan, Side, alternate, name_of};
use crate::harness::transfers::{ELEMENT_BYTES, Transfer, TransferKind};
#[cfg(feature = "virtual")]
use crate::lan::LanArgs;
#[cfg(feature = "virtual")]
use crate::ours::arrays::ArraysKind;
use crate::table::{Column, Form, Row, Table, column};

/// Least rows of a matrix.
const ROWS_MIN: usize = 16;

/// Slices of a cell.
const SLICES: usize = 6;

/// Transfers of the first warm-up.
const FIRST_TRANSFERS: u64 = 20;

/// Names of the steps; the paper's step 2 is a call from Fortran, which has no counterpart.
const STEPS: [&str; 6] =
    ["inquiry_us", "exchange_us", "schedule_us", "packing_us", "transfer_us", "waiting_us"];

/// Columns for people.
const COLUMNS: [Column; 9] = [
    column("rows", "rows", 5),
    column("ranks", "ranks", 5),
    column("plan", "plan", 5),
    column("seconds", "one way s", 9),
    column("bytes_per_second", "B/s", 9),
    column("exchange_us", "exchange us", 11),
    column("schedule_us", "schedule us", 11),
    column("packing_us", "packing us", 10),
    column("transfer_us", "transfer us", 11),
];

/// One way of a matrix between two groups of as many ranks.
struct Cell {
    rows: usize,
    columns: usize,
    ranks: usize,
    plan: PlanKind,
}

/// Runs all cells.
pub(super) fn run(args: &RedistributeArgs) -> Result<Verdict, Failure> {
    args.check_processes()?;
    if args.against.is_some() || args.side.is_some() || args.within || args.transposed {
        return Err(Failure::Refused(
            "--ping-pong: allowed without --against, --side, --within and --transposed".to_owned(),
        ));
    }
    let group_max = args.group_max as usize;
    if group_max > RANKS_MAX / 2 {
        return Err(Failure::Refused(format!("--group-max: allowed are 1 to {}", RANKS_MAX / 2)));
    }
    args.common.setting()?;
    let cells = cells(args.rows_max as usize, group_max);
    let mut table = Table::new(&COLUMNS, Form::of(args.common.json));
    for cell in &cells {
        let (seconds, steps_ns) = cell.measure(args)?;
        let bytes = cell.rows * cell.columns * ELEMENT_BYTES;
        let mut row: Row = args.common.row("redistribute");
        row.set("rows", cell.rows)
            .set("ranks", cell.ranks)
            .set("plan", name_of(cell.plan))
            .set("bytes", bytes)
            .set("seconds", seconds)
            .set("bytes_per_second", bytes as f64 / seconds)
            .set("messages", cell.ranks * cell.ranks);
        set_steps(&mut row, steps_ns);
        table.add(row);
    }
    Ok(Verdict::Fine)
}

/// Parts of one way.
#[cfg(feature = "virtual")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneWay {
    /// Whether its plan is made anew.
    pub(crate) fresh: bool,
    /// Whether packing takes the time of that world.
    pub(crate) packs: bool,
    /// Whether an interface copies at both ends.
    pub(crate) copies: bool,
}

/// Returns the virtual seconds of one way between two groups of `ranks` on the world `sp2`, and the nanoseconds of its
/// steps.
///
/// # Errors
/// If a run fails.
#[cfg(feature = "virtual")]
pub(crate) fn one_way_on_sp2(
    [rows, columns]: [usize; 2],
    ranks: usize,
    OneWay { fresh, packs, copies }: OneWay,
) -> Result<(f64, Steps), Failure> {
    let lan = LanArgs { lan: String::new(), trace: None, check: false };
    let plan = if fresh { PlanKind::Fresh } else { PlanKind::Kept };
    let cell = Cell { rows, columns, ranks, plan };
    let kind = ArraysKind {
        fresh,
        copies_ns: if copies { SP2_COPIES_NS } else { 0.0 },
        ..ArraysKind::kept(RuntimeKind::Ambient, if packs { SP2_PACKING_NS } else { 0.0 })
    };
    let (times, _) = super::world::timed(&lan, "sp2", &cell.transfer()?, &[kind])?;
    Ok((times[0].0 / 2.0, times[0].1))
}

/// Adds the microseconds of the steps.
pub(super) fn set_steps(row: &mut Row, steps_ns: Steps) {
    for (name, nanos) in STEPS.into_iter().zip(steps_ns) {
        row.set(name, nanos as f64 / 1e3);
    }
}

/// Returns the cells: rows by powers of two, groups, both plans.
fn cells(rows_max: usize, ranks_max: usize) -> Vec<Cell> {
    let sizes = std::iter::successors(Some(ROWS_MIN), |rows| Some(rows * 2));
    let sizes = sizes.take_while(|rows| *rows <= rows_max.max(ROWS_MIN));
    let of_size = |rows| (1..=ranks_max).map(move |ranks| (rows, ranks));
    let plans = |(rows, ranks)| {
        [PlanKind::Fresh, PlanKind::Kept].map(|plan| Cell { rows, columns: rows, ranks, plan })
    };
    sizes.flat_map(of_size).flat_map(plans).collect()
}

impl Cell {
    fn transfer(&self) -> Result<Transfer, Failure> {
        let kind = TransferKind {
            shape: [self.rows, self.columns],
            from: format!("(block,*)@{}x1", self.ranks),
            to: format!("(*,block)@1x{}", self.ranks),
            within: false,
            transposed: false,
            there_and_back: true,
        };
        kind.parse()
    }

    /// Returns the seconds of one way, and the nanoseconds of its steps.
    fn measure(&self, args: &RedistributeArgs) -> Result<(f64, Steps), Failure> {
        #[cfg(feature = "virtual")]
        if let Some(spec) = args.lan.spec() {
            let kinds = [args.kind(self.plan)];
            let (times, _) = super::world::timed(&args.lan, spec, &self.transfer()?, &kinds)?;
            return Ok((times[0].0 / 2.0, times[0].1));
        }
        let mut ranks = args.start_ours(&self.transfer()?, self.plan)?;
        ranks.run(1, 1)?;
        let plan = Plan { slices: SLICES, total: args.repeat, first_try: FIRST_TRANSFERS };
        let sides = Side::against(false);
        let outcome = alternate(&plan, sides, |_, count| slice(&mut ranks, count.messages))?;
        Ok((seconds_a_call(&outcome.ours) / 2.0, ranks.steps_ns()?))
    }
}
