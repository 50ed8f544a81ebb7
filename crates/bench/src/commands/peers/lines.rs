//! Lines of the table: a discipline at a size, ours and each system in turns.

use super::{Cell, Column, Measured, PeersArgs, idle};
use crate::failure::Failure;
use crate::harness::near::{Bench, Setting};
use crate::harness::protocol::{Api, PolicyKind, RuntimeKind, Transport};
use crate::harness::slices::{self, Contender, Plan, SLICES_MIN, Slice};
use crate::ours::bandwidth::{BandwidthKind, Near};
use crate::ours::calls::{CallsKind, Form};
use crate::ours::latency::EchoKind;
use crate::ours::stream::StreamKind;
use crate::ours::{calls, latency, stream};
use crate::pair;
use crate::peers::{Discipline, IN_FLIGHT, System, Task, open};

/// Bytes of the large payload: 64 MiB.
const PAYLOAD_BYTES: usize = 64 << 20;

/// Bytes of the payload of a tiny run: 1 MiB.
const PAYLOAD_BYTES_QUICK: usize = 1 << 20;

/// Most bytes of the messages of a first slice: 10 MiB.
const FIRST_TRY_BYTES: usize = 10 << 20;

/// A line of the table.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) discipline: Discipline,
    bytes: usize,
    /// Whether both sides poll without sleeping.
    pub(super) spinning: bool,
}

const fn line(
    name: &'static str,
    unit: &'static str,
    discipline: Discipline,
    bytes: usize,
    spinning: bool,
) -> Line {
    Line { name, unit, discipline, bytes, spinning }
}

/// All lines, in their order.
pub(super) static LINES: &[Line] = &[
    line("one way 16 B", "messages/s", Discipline::OneWay, 16, false),
    line("one way 1 KiB", "messages/s", Discipline::OneWay, 1024, false),
    line("one way 64 KiB", "messages/s", Discipline::OneWay, 64 << 10, false),
    line("round trip asleep, p50", "us", Discipline::RoundTrip, 16, false),
    line("round trip spinning, p50", "us", Discipline::RoundTrip, 16, true),
    line("calls, 256 in flight", "calls/s", Discipline::Calls, 16, false),
    line("bandwidth, 64 MiB", "B/s", Discipline::Bandwidth, PAYLOAD_BYTES, false),
    line("memory of an idle connection", "B", Discipline::Idle, 0, false),
];

impl Line {
    /// Whether the system is compared in this line.
    pub(super) fn has(&self, system: System) -> bool {
        system.has(self.discipline)
            && (self.discipline != Discipline::RoundTrip || system.spins() == self.spinning)
    }

    /// Whether ours is measured with many messages a call, too.
    pub(super) fn has_many(&self) -> bool {
        self.discipline == Discipline::OneWay
    }

    /// Whether the smaller figure is the better one.
    pub(super) fn less_is_better(&self) -> bool {
        matches!(self.discipline, Discipline::RoundTrip | Discipline::Idle)
    }

    pub(super) fn setting(&self) -> Setting {
        let runtime = if self.spinning { RuntimeKind::BusyPoll } else { RuntimeKind::Ambient };
        Setting { transport: Transport::Tcp, runtime, threads: 1, session: true, connect: None }
    }

    fn task(&self, quick: bool) -> Task {
        let is_tiny = quick && self.discipline == Discipline::Bandwidth;
        let bytes = if is_tiny { PAYLOAD_BYTES_QUICK } else { self.bytes };
        let first_try = match self.discipline {
            Discipline::OneWay => (FIRST_TRY_BYTES / bytes).min(10_000) as u64,
            Discipline::RoundTrip => 50,
            Discipline::Calls => 4 * IN_FLIGHT,
            Discipline::Bandwidth | Discipline::Idle => 1,
        };
        Task { discipline: self.discipline, bytes, in_flight: IN_FLIGHT, first_try }
    }

    /// Measures the line, a cell after the other.
    ///
    /// # Errors
    /// If ours fails.
    pub(super) fn measure(
        &'static self,
        columns: &[Column],
        args: &PeersArgs,
        each: &mut dyn FnMut(Cell),
    ) -> Result<(), Failure> {
        if self.discipline == Discipline::Idle {
            return idle::measure(self, columns, args, each);
        }
        for &column in columns {
            // Connections differ in speed while they last: each cell has its own.
            let mut bench = pair::start(&self.setting())?;
            let measured = self.pairs(&mut bench, column, args)?;
            each(Cell { line: self, column, measured });
        }
        Ok(())
    }

    fn pairs(
        &self,
        bench: &mut Bench,
        column: Column,
        args: &PeersArgs,
    ) -> Result<Result<Measured, String>, Failure> {
        let task = self.task(args.quick);
        let mut ours = self.ours(bench, &task, Api::One)?;
        let (mut side, version, flavour): (Box<dyn Contender>, _, _) = match column {
            Column::Many => {
                let version = concat!("chunkcomm ", env!("CARGO_PKG_VERSION")).to_owned();
                (self.ours(bench, &task, Api::Many)?, version, "many")
            }
            Column::Of(system) => match open(bench, system, &task, &args.peers) {
                Ok(opened) => (opened.contender, opened.version, opened.flavour.word()),
                Err(failure) => return Ok(Err(failure.to_string())),
            },
        };
        let total = args.quick.then_some(SLICES_MIN as u64 * task.first_try.min(20));
        let plan = Plan { slices: SLICES_MIN, total, first_try: task.first_try };
        let outcome = match slices::run(bench, &mut *ours, Some(&mut side), &plan) {
            Ok(outcome) => outcome,
            Err(failure) => return Ok(Err(failure.to_string())),
        };
        let figures = |slices: &[Slice]| slices.iter().map(|one| self.figure(one, &task)).collect();
        let (ours, theirs) = (figures(&outcome.ours), figures(&outcome.baseline));
        Ok(Ok(Measured { version, flavour, ours, theirs }))
    }

    fn figure(&self, slice: &Slice, task: &Task) -> f64 {
        match self.discipline {
            Discipline::RoundTrip => slice.p50_us(),
            Discipline::Bandwidth => slice.rate() * task.bytes as f64,
            _ => slice.rate(),
        }
    }

    fn ours(
        &self,
        bench: &mut Bench,
        task: &Task,
        api: Api,
    ) -> Result<Box<dyn Contender>, Failure> {
        let (bytes, node) = (task.bytes, self.setting().node(PolicyKind::Chunked));
        match self.discipline {
            Discipline::RoundTrip => latency::near(bench, EchoKind::of(bytes, node)),
            Discipline::Calls => {
                let form = Form::Closure;
                calls::near(bench, CallsKind { bytes, in_flight: IN_FLIGHT, form, node })
            }
            Discipline::Bandwidth => {
                Ok(Box::new(Near::open(bench, BandwidthKind { bytes, fresh: false, node })?))
            }
            Discipline::OneWay | Discipline::Idle => {
                stream::near(bench, StreamKind { api, ..StreamKind::of(bytes, node) })
            }
        }
    }
}
