//! Ours beside tokio-util's `Framed` and tarpc: `cargo bench -p chunkcomm-bench --features peers
//! --bench comparisons`.
//!
//! All run between the same two processes, one a core, and both ends verify every message. The far
//! end is a copy of this program. `chunkperf peers` has the other systems.

mod slices;

use std::process::ExitCode;

use chunkcomm_bench::baseline::framed::{BOUNDARY_BYTES, NearFramed};
use chunkcomm_bench::baseline::tarpc::Tarpc;
use chunkcomm_bench::cli;
use chunkcomm_bench::failure::Failure;
use chunkcomm_bench::harness::near::Bench;
use chunkcomm_bench::harness::protocol::{Api, FramedKind, FramedUse, LaneKind, Pace, PolicyKind};
use chunkcomm_bench::ours::{calls, latency, stream};
use chunkcomm_bench::pair::{self, FAR_COMMAND};
use criterion::{Criterion, Throughput};
use slices::{bench_slices, criterion, setting};

/// Bytes of a small message.
const SMALL_BYTES: usize = 16;

/// Calls under way at a time.
const IN_FLIGHT: u64 = 256;

fn framed(
    bench: &mut Bench,
    bytes: usize,
    used: FramedUse,
    boundary: Option<usize>,
) -> Result<NearFramed, Failure> {
    NearFramed::open(bench, FramedKind { bytes, used, boundary })
}

fn one_way(c: &mut Criterion) -> Result<(), Failure> {
    for bytes in [SMALL_BYTES, 1024] {
        let mut group = c.benchmark_group(format!("one-way/{bytes}"));
        group.throughput(Throughput::Elements(1));
        let mut bench = pair::start(&setting())?;
        for (name, api) in [("ours", Api::One), ("ours, many", Api::Many)] {
            let kind = stream::StreamKind {
                bytes,
                api,
                rate: None,
                pace: Pace::Spin,
                delivery: stream::Delivery::Plain,
                idle: 0,
                node: setting().node(PolicyKind::Chunked),
            };
            let mut ours = stream::near(&mut bench, kind)?;
            bench_slices(&mut group, name, &mut bench, &mut *ours);
        }
        for (name, boundary) in [("framed", None), ("framed, 64 KiB", Some(BOUNDARY_BYTES))] {
            let mut side = framed(&mut bench, bytes, FramedUse::OneWay, boundary)?;
            bench_slices(&mut group, name, &mut bench, &mut side);
        }
        group.finish();
    }
    Ok(())
}

fn round_trips(c: &mut Criterion) -> Result<(), Failure> {
    let mut group = c.benchmark_group(format!("round-trip/{SMALL_BYTES}"));
    let mut bench = pair::start(&setting())?;
    let kind = latency::EchoKind {
        bytes: SMALL_BYTES,
        load: None,
        lane: LaneKind::Bulk,
        count_max: u64::MAX,
        node: setting().node(PolicyKind::Chunked),
    };
    let mut ours = latency::near(&mut bench, kind)?;
    bench_slices(&mut group, "ours", &mut bench, &mut *ours);
    let mut side = framed(&mut bench, SMALL_BYTES, FramedUse::RoundTrip, None)?;
    bench_slices(&mut group, "framed", &mut bench, &mut side);
    let mut side = Tarpc::open(&mut bench, SMALL_BYTES, 1)?;
    bench_slices(&mut group, "tarpc", &mut bench, &mut side);
    group.finish();
    Ok(())
}

fn calls_in_flight(c: &mut Criterion) -> Result<(), Failure> {
    let mut group = c.benchmark_group(format!("calls/{IN_FLIGHT}"));
    group.throughput(Throughput::Elements(1));
    let mut bench = pair::start(&setting())?;
    let node = setting().node(PolicyKind::Chunked);
    let kind = calls::CallsKind {
        bytes: SMALL_BYTES,
        in_flight: IN_FLIGHT,
        form: calls::Form::Closure,
        node,
    };
    let mut ours = calls::near(&mut bench, kind)?;
    bench_slices(&mut group, "ours", &mut bench, &mut *ours);
    let mut side = Tarpc::open(&mut bench, SMALL_BYTES, IN_FLIGHT)?;
    bench_slices(&mut group, "tarpc", &mut bench, &mut side);
    group.finish();
    Ok(())
}

fn all() -> Result<(), Failure> {
    let mut criterion = criterion();
    one_way(&mut criterion)?;
    round_trips(&mut criterion)?;
    calls_in_flight(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(FAR_COMMAND) {
        return cli::main();
    }
    match all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("comparisons: {failure}");
            ExitCode::FAILURE
        }
    }
}
