//! Streams, round trips and a farm between two processes, each beside the same by hand.
//!
//! The far end is a copy of this program, as it is of `chunkperf`.

mod slices;

use std::process::ExitCode;
use std::time::Duration;

use chunkcomm_bench::baseline::gathered::Gathered;
use chunkcomm_bench::baseline::hand_farm::{HandFarm, HandFarmKind};
use chunkcomm_bench::baseline::raw::RawEcho;
use chunkcomm_bench::baseline::raw_calls::RawCalls;
use chunkcomm_bench::cli;
use chunkcomm_bench::failure::Failure;
use chunkcomm_bench::harness::protocol::{Api, LaneKind, NodeKind, Pace, PolicyKind};
use chunkcomm_bench::harness::work::Work;
use chunkcomm_bench::ours::farm::{self, FarmKind, start};
use chunkcomm_bench::ours::{calls, latency, stream};
use chunkcomm_bench::pair::{self, FAR_COMMAND};
use chunkcomm_farm::settings::{Grain, Model, Prefetch, Runtime as FarmRuntime, Tree, WorkersAs};
use criterion::{Criterion, Throughput};
use slices::{bench_slices, criterion, setting};

/// Channels that are open and idle beside a stream.
const IDLE_CHANNELS: usize = 10_000;

fn streams(c: &mut Criterion) -> Result<(), Failure> {
    for bytes in [16, 1024] {
        let mut group = c.benchmark_group(format!("stream {bytes} B"));
        group.throughput(Throughput::Elements(1));
        let mut bench = pair::start(&setting())?;
        let node = setting().node(PolicyKind::Chunked);
        for api in [Api::One, Api::Many] {
            let kind = stream::StreamKind {
                bytes,
                api,
                rate: None,
                pace: Pace::Spin,
                delivery: stream::Delivery::Plain,
                idle: 0,
                node,
            };
            let mut ours = stream::near(&mut bench, kind)?;
            bench_slices(&mut group, &format!("{api:?}"), &mut bench, &mut *ours);
        }
        let mut hand = Gathered::open(&mut bench, bytes, true)?;
        bench_slices(&mut group, "hand-batched", &mut bench, &mut hand);
        let mut hand = Gathered::open(&mut bench, bytes, false)?;
        bench_slices(&mut group, "unbatched", &mut bench, &mut hand);
        group.finish();
    }
    Ok(())
}

/// Measures a stream alone, and on a link with channels that carry nothing.
fn idle_channels(c: &mut Criterion) -> Result<(), Failure> {
    let mut group = c.benchmark_group("stream 16 B on a link with idle channels");
    group.throughput(Throughput::Elements(1));
    let mut bench = pair::start(&setting())?;
    let node = NodeKind { channels: Some(IDLE_CHANNELS), ..setting().node(PolicyKind::Chunked) };
    for idle in [0, IDLE_CHANNELS] {
        let kind = stream::StreamKind {
            bytes: 16,
            api: Api::One,
            rate: None,
            pace: Pace::Spin,
            delivery: stream::Delivery::Plain,
            idle,
            node,
        };
        let mut ours = stream::near(&mut bench, kind)?;
        bench_slices(&mut group, &idle.to_string(), &mut bench, &mut *ours);
    }
    group.finish();
    Ok(())
}

fn round_trips(c: &mut Criterion) -> Result<(), Failure> {
    for bytes in [16, 1024, 64 * 1024] {
        let mut group = c.benchmark_group(format!("round trip {bytes} B"));
        let mut bench = pair::start(&setting())?;
        let node = setting().node(PolicyKind::Chunked);
        let kind = latency::EchoKind {
            bytes,
            load: None,
            lane: LaneKind::Bulk,
            count_max: u64::MAX,
            node,
        };
        let mut ours = latency::near(&mut bench, kind)?;
        bench_slices(&mut group, "ours", &mut bench, &mut *ours);
        let mut raw = RawEcho::open(&mut bench, bytes, false)?;
        bench_slices(&mut group, "raw", &mut bench, &mut raw);
        group.finish();
    }
    Ok(())
}

/// Forms of a service in this build.
const FORMS: &[(&str, calls::Form)] = &[
    ("ours", calls::Form::Closure),
    #[cfg(feature = "peers")]
    ("a trait's", calls::Form::Trait),
];

fn calls_in_flight(c: &mut Criterion) -> Result<(), Failure> {
    for in_flight in [1, 256] {
        let mut group = c.benchmark_group(format!("calls 16 B, {in_flight} in flight"));
        group.throughput(Throughput::Elements(1));
        let mut bench = pair::start(&setting())?;
        let node = setting().node(PolicyKind::Chunked);
        for &(name, form) in FORMS {
            let kind = calls::CallsKind { bytes: 16, in_flight, form, node };
            let mut ours = calls::near(&mut bench, kind)?;
            bench_slices(&mut group, name, &mut bench, &mut *ours);
        }
        let mut raw = RawCalls::open(&mut bench, 16, in_flight, false)?;
        bench_slices(&mut group, "raw", &mut bench, &mut raw);
        #[cfg(feature = "peers")]
        {
            use chunkcomm_bench::baseline::tarpc::Tarpc;
            let mut tarpc = Tarpc::open(&mut bench, 16, in_flight)?;
            bench_slices(&mut group, "tarpc", &mut bench, &mut tarpc);
        }
        group.finish();
    }
    Ok(())
}

fn farms(c: &mut Criterion) -> Result<(), Failure> {
    let mut group = c.benchmark_group("farm overhead");
    group.throughput(Throughput::Elements(1));
    let mut bench = pair::start(&setting())?;
    let kind = HandFarmKind {
        task_bytes: 16,
        work_iterations: 0,
        prefetch: 64,
        workers: 1,
        threads: false,
    };
    let mut hand = HandFarm::open(&mut bench, kind)?;
    let seconds = |seconds: Result<f64, Failure>| {
        Duration::from_secs_f64(seconds.expect("farmer and worker are alive"))
    };
    group.bench_function("hand-farm", |b| {
        b.iter_custom(|tasks| seconds(hand.run(&mut bench, tasks)));
    });
    let kind = FarmKind {
        task_bytes: 16,
        work: Work::Iterations(0),
        workers: 1,
        workers_as: WorkersAs::Process,
        model: Model::B,
        prefetch: Prefetch::Fixed(64),
        grain: Grain::Fixed(1),
        tree: Tree::Off,
        runtime: FarmRuntime::Ambient,
        listen: "127.0.0.1:0".parse().expect("an address"),
        journal: None,
    };
    let mut ours = start(&bench.runtime, &kind)?;
    group.bench_function("ours", |b| {
        b.iter_custom(|tasks| seconds(ours.run(&bench.runtime, tasks)));
    });
    group.finish();
    ours.finish(&bench.runtime)
}

fn all() -> Result<(), Failure> {
    let mut criterion = criterion();
    streams(&mut criterion)?;
    idle_channels(&mut criterion)?;
    round_trips(&mut criterion)?;
    calls_in_flight(&mut criterion)?;
    farms(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn main() -> ExitCode {
    farm::serve_if_worker();
    if std::env::args().nth(1).as_deref() == Some(FAR_COMMAND) {
        return cli::main();
    }
    match all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("wire: {failure}");
            ExitCode::FAILURE
        }
    }
}
