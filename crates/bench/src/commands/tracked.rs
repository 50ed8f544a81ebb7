//! `chunkperf tracked`: costs of page protection by engine, and the size from which ordinary code gains
//! by it.

use chunkcomm_pipeline::tracked::costs::{recv_costs, send_costs};
use chunkcomm_pipeline::tracked::{
    Awaiting, INCREMENT_PAGES, INCREMENT_PAGES_MAX, RecvEngine, SendEngine, SetupError,
    TrackedInput, TrackedOutput, Tracking,
};
use clap::{Args, ValueEnum};

use super::Verdict;
use crate::failure::Failure;
use crate::harness::protocol::{OnOff, RuntimeKind, Transport};
use crate::harness::slices::name_of;
use crate::options::{Common, values};
use crate::ours::tracked::{Pair, Way, Work};
use crate::stats::{Ratio, median};
use crate::table::Row;

/// Sizes of the comparison, in pages of 4 KiB; from about the paper's break-even of ten pages on.
const PAGES: [usize; 6] = [4, 10, 25, 64, 256, 1024];

/// Bytes of a page of the sizes.
const PAGE_BYTES: usize = 4096;

/// Options of `chunkperf tracked`.
#[derive(Debug, Args)]
pub struct TrackedArgs {
    /// Options of every measurement; only JSON is a choice here: two nodes over TCP, two threads
    #[command(flatten)]
    common: Common,
    /// Bytes of the buffer whose faults, scans and protections are measured
    #[arg(long, value_name = "B", default_value = "4MiB", value_parser = values::bytes)]
    bytes: usize,
    /// Pages of an increment, up to 256
    #[arg(long, value_name = "N", default_value_t = INCREMENT_PAGES as u64, value_parser = values::count)]
    pages: u64,
    /// Computation at both ends of the pair
    #[arg(long, value_enum, default_value_t = Work::Trig)]
    compute: Work,
    /// Rounds of each size and way, of which the median counts
    #[arg(long, value_name = "N", default_value = "15", value_parser = values::times)]
    rounds: usize,
    /// One row alone: a buffer of --bytes, with the first engines that work here, against this
    #[arg(long, value_enum)]
    against: Option<Baseline>,
}

/// Baseline of ordinary code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Baseline {
    /// A loop over parts.
    Explicit,
}

/// Runs the command.
///
/// # Errors
/// If the measurement fails. An engine that does not work here gets a row with its reason.
pub fn run(args: &TrackedArgs) -> Result<Verdict, Failure> {
    let Common { transport, runtime, session, .. } = args.common;
    args.common.needs_this_host("tracked")?;
    if (transport, runtime, session) != (Transport::Tcp, RuntimeKind::Ambient, OnOff::On) {
        let words = "tracked is measured with --transport tcp --runtime ambient --session on";
        return Err(Failure::Refused(words.to_owned()));
    }
    args.common.switch_off()?;
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    let pages = usize::try_from(args.pages).unwrap_or(usize::MAX).min(INCREMENT_PAGES_MAX);
    if args.against == Some(Baseline::Explicit) {
        args.against_explicit(pages)?;
        return Ok(Verdict::Fine);
    }
    for engine in SendEngine::ALL {
        let mut row = args.row("send", &engine.to_string());
        match send_costs(*engine, args.bytes.max(1), pages) {
            Ok(costs) => {
                senders.push(*engine);
                row.set("fault_us", costs.fault_ns / 1e3)
                    .set("look_us", costs.look_ns / 1e3)
                    .set("protect_us", costs.protect_ns / 1e3)
                    .set("read_us", costs.read_ns / 1e3);
            }
            Err(error) => skip(&mut row, &error),
        }
        row.print(args.common.json);
    }
    for engine in RecvEngine::ALL {
        let mut row = args.row("recv", &engine.to_string());
        match recv_costs(*engine, args.bytes.max(1), pages) {
            Ok(costs) => {
                receivers.push(*engine);
                row.set("open_us", costs.open_ns / 1e3)
                    .set("load_us", costs.load_ns / 1e3)
                    .set("stall_us", costs.stall_ns / 1e3);
            }
            Err(error) => skip(&mut row, &error),
        }
        row.print(args.common.json);
    }
    // The fastest of each side together, and so on.
    let engines: Vec<_> = senders.into_iter().zip(receivers).collect();
    for size in PAGES {
        args.compare(size * PAGE_BYTES, pages, &engines)?;
    }
    Ok(Verdict::Fine)
}

fn skip(row: &mut Row, error: &SetupError) {
    row.set("skipped", chunkcomm::with_causes(error));
}

impl TrackedArgs {
    fn row(&self, side: &str, engine: &str) -> Row {
        let mut row = Row::default();
        row.set("bench", "tracked")
            .set("transport", "tcp")
            .set("runtime", "ambient:2")
            .set("side", side)
            .set("engine", engine)
            .set("buffer_bytes", self.bytes)
            .set("increment_pages", self.pages);
        row
    }

    /// Measures one size in all ways, in turn, and prints a row for each engine.
    fn compare(
        &self,
        bytes: usize,
        pages: usize,
        engines: &[(SendEngine, RecvEngine)],
    ) -> Result<(), Failure> {
        let tracked = engines.iter().map(|(send, recv)| Way::Tracked(*send, *recv));
        let ways: Vec<Way> = [Way::Whole, Way::Explicit].into_iter().chain(tracked).collect();
        let times = self.times(&ways, bytes, pages)?;
        let of = |index: usize| median(&times[index]) * 1e6;
        for (index, way) in ways.iter().enumerate() {
            let Way::Tracked(send, recv) = way else { continue };
            let mut row = self.row("pair", &format!("{send}, {recv}"));
            row.set("buffer_bytes", bytes)
                .set("compute", name_of(self.compute))
                .set("whole_us", of(0))
                .set("explicit_us", of(1))
                .set("tracked_us", of(index))
                .set("speed_up", of(0) / of(index))
                .set("against_explicit", of(index) / of(1));
            row.print(self.common.json);
        }
        Ok(())
    }

    /// Prints the row of ordinary code against a loop over parts.
    fn against_explicit(&self, pages: usize) -> Result<(), Failure> {
        let output = TrackedOutput::<u8>::new(1, Tracking::default());
        let input = TrackedInput::<u8>::new(1, Awaiting::default());
        let engines = output.and_then(|output| Ok((output.engine(), input?.engine())));
        let mut row = self.row("pair", "none");
        match engines {
            Ok((send, recv)) => {
                let ways = [Way::Explicit, Way::Tracked(send, recv)];
                let times = self.times(&ways, self.bytes.max(1), pages)?;
                let ratio = Ratio::of_pairs(&times[1], &times[0]);
                row.set("engine", format!("{send}, {recv}"))
                    .set("compute", name_of(self.compute))
                    .set("seconds", median(&times[1]))
                    .set("baseline", "explicit")
                    .set("baseline_seconds", median(&times[0]))
                    .set("ratio", ratio.median)
                    .set("ratio_low", ratio.low)
                    .set("ratio_high", ratio.high);
            }
            Err(error) => {
                row.set("reason", chunkcomm::with_causes(&error));
            }
        }
        row.print(self.common.json);
        Ok(())
    }

    /// Returns the seconds of each round by way; the ways run in turn.
    fn times(&self, ways: &[Way], bytes: usize, pages: usize) -> Result<Vec<Vec<f64>>, Failure> {
        let mut pairs = Vec::new();
        for way in ways {
            pairs.push(Pair::start(*way, self.compute, bytes, pages)?);
        }
        let mut times = vec![Vec::new(); ways.len()];
        for round in 0..=self.rounds {
            for (pair, times) in pairs.iter_mut().zip(&mut times) {
                let seconds = pair.round()?;
                // The first round maps the memory.
                if round > 0 {
                    times.push(seconds);
                }
            }
        }
        Ok(times)
    }
}
