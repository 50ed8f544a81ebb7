//! Tracked buffers under each engine that the kernel offers; others are named as skipped.

mod processes;
mod receiving;
mod sending;

use std::error::Error;
use std::time::Duration;

use bytemuck::Pod;
use chunkcomm_testkit::random::seeded;

use super::*;

/// Time after which a test that hangs fails.
const SOON: Duration = Duration::from_secs(20);

/// Runs `test` under each sending engine.
fn each_output<T: Pod>(len: usize, settings: &Tracking, test: impl Fn(TrackedOutput<T>)) {
    for engine in SendEngine::ALL {
        match TrackedOutput::new(len, settings.with_engine(*engine)) {
            Ok(output) => test(output),
            Err(error) => skipped(*engine, &error),
        }
    }
}

/// Runs `test` under each receiving engine.
fn each_input<T: Pod>(len: usize, settings: &Awaiting, test: impl Fn(TrackedInput<T>)) {
    for engine in RecvEngine::ALL {
        match TrackedInput::new(len, settings.with_engine(*engine)) {
            Ok(input) => test(input),
            Err(error) => skipped(*engine, &error),
        }
    }
}

fn skipped(engine: impl std::fmt::Display, error: &SetupError) {
    eprintln!("skipped {engine}: {error}: {:?}", error.source());
}

#[test]
fn engines_have_names() {
    for engine in SendEngine::ALL {
        assert_eq!(engine.to_string().parse(), Ok(*engine));
    }
    for engine in RecvEngine::ALL {
        assert_eq!(engine.to_string().parse(), Ok(*engine));
    }
    let error = "fast".parse::<SendEngine>().expect_err("no such engine");
    assert_eq!(error.to_string(), "no engine \"fast\"; allowed are: wp-async, wp, mprotect");
}

#[test]
fn costs_are_measured_with_every_engine() {
    let bytes = 100 * 4096;
    each_output::<u8>(1, &Tracking::default(), |output| {
        let costs = costs::send_costs(output.engine(), bytes, 5).expect("it works");
        for cost in [costs.look_ns, costs.protect_ns, costs.read_ns] {
            assert!(cost > 0.0, "{}: {costs:?}", output.engine());
        }
    });
    each_input::<u8>(1, &Awaiting::default(), |input| {
        let costs = costs::recv_costs(input.engine(), bytes, 5).expect("it works");
        assert!(costs.open_ns > 0.0 && costs.stall_ns > 0.0, "{}: {costs:?}", input.engine());
    });
}
