//! `chunkperf tracked`: costs of page protection by engine, and the size from which ordinary code gains
//! by it.

use chunkcomm_pipeline::tracked::costs::{recv_costs, send_costs};
use chunkcomm_pipeline::tracked::{
    INCREMENT_PAGES, INCREMENT_PAGES_MAX, RecvEngine, SendEngine, SetupError,
};
use clap::Args;

use super::Verdict;
use crate::cli::values;
use crate::failure::Failure;
use crate::harness::slices::name_of;
use crate::ours::tracked::{Pair, Way, Work};
use crate::stats::median;
use crate::table::Row;

/// Sizes of the comparison, in pages of 4 KiB; from about the paper's break-even of ten pages on.
const PAGES: [usize; 6] = [4, 10, 25, 64, 256, 1024];

/// Bytes of a page of the sizes.
const PAGE_BYTES: usize = 4096;

/// Options of `chunkperf tracked`.
#[derive(Debug, Args)]
pub struct TrackedArgs {
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
    /// One JSON object a row on stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If the measurement fails. An engine that does not work here gets a row with its reason.
pub fn run(args: &TrackedArgs) -> Result<Verdict, Failure> {
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    let pages = usize::try_from(args.pages).unwrap_or(usize::MAX).min(INCREMENT_PAGES_MAX);
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
        row.print(args.json);
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
        row.print(args.json);
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
        let mut pairs = Vec::new();
        for way in &ways {
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
            row.print(self.json);
        }
        Ok(())
    }
}
