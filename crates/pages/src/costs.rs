//! Costs of the engines on this machine.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::error::{AccessError, SetupError};
pub use super::runs::{RecvCosts, SendCosts};
use super::settings::{Awaiting, RecvEngine, SendEngine, Tracking};
use super::sys::page_bytes;
use super::{TrackedInput, TrackedOutput};

/// Runs of a measurement, of which the median counts.
const RUNS: usize = 9;

/// Measures a sending engine with a buffer of `bytes` and increments of `pages`.
///
/// # Errors
/// When the engine does not work here. When the system refuses a call, the costs are NaN.
pub fn send_costs(engine: SendEngine, bytes: usize, pages: usize) -> Result<SendCosts, SetupError> {
    let settings = Tracking::default().with_engine(engine).with_increment_pages(pages);
    // Nothing is finished before the end, so that faults are measured alone.
    let settings = settings.with_open_increments(usize::MAX);
    let mut output = TrackedOutput::<u8>::new(bytes, settings)?;
    let step = output.increment_bytes();
    let touch = |elements: &mut [u8]| {
        let started = Instant::now();
        for first in (0..elements.len()).step_by(step) {
            elements[first] = elements[first].wrapping_add(1);
        }
        started.elapsed()
    };
    let count = bytes.div_ceil(step).max(1) as f64;
    output.elements_mut().fill(1);
    let plain = median(|| Ok::<_, AccessError>(touch(output.elements_mut())));
    let tracked =
        median(|| output.track(touch, |_| Ok::<_, AccessError>(())).map(|(time, _)| time));
    let parts = output.part_costs().unwrap_or([f64::NAN; 3]);
    let [look_ns, protect_ns, read_ns] = parts;
    let fault_ns = (tracked - plain) / count;
    Ok(SendCosts { fault_ns, look_ns, protect_ns, read_ns })
}

/// Measures a receiving engine with a buffer of `bytes` and increments of `pages`.
///
/// # Errors
/// When the engine does not work here. When the system refuses a call, the costs are NaN.
pub fn recv_costs(engine: RecvEngine, bytes: usize, pages: usize) -> Result<RecvCosts, SetupError> {
    let bytes = bytes.max(1);
    let mut input = TrackedInput::<u8>::new(bytes, Awaiting::default().with_engine(engine))?;
    let step = pages.max(1) * page_bytes();
    let (count, data) = (bytes.div_ceil(step) as f64, vec![1; bytes]);
    let load = |elements: &[u8]| {
        let started = Instant::now();
        for element in elements.iter().step_by(page_bytes()) {
            black_box(element);
            black_box(*element);
        }
        started.elapsed()
    };
    let mut opening = Vec::new();
    let first = median(|| {
        let mut took = Duration::ZERO;
        let run = input.track(
            |elements, arrivals| arrivals.wait(0..bytes).map(|()| load(elements)),
            |filler| {
                let started = Instant::now();
                for (index, part) in data.chunks(step).enumerate() {
                    filler.put(index * step, part)?;
                }
                took = started.elapsed();
                Ok(())
            },
        );
        opening.push(took);
        run.and_then(|(time, _)| time)
    });
    let plain = median(|| Ok::<_, AccessError>(load(input.elements())));
    let last = (bytes - 1) / page_bytes() * page_bytes();
    let stall_ns = median(|| {
        let run = input.track(
            |elements, _| {
                let started = Instant::now();
                black_box(elements[bytes - 1]);
                started.elapsed()
            },
            |filler| {
                while filler.stalls() == 0 {
                    std::thread::yield_now();
                }
                filler.put(last, &data[last..])?;
                filler.put(0, &data[..last])
            },
        );
        run.map(|(time, _)| time)
    });
    let open_ns = middle(&mut opening) / count;
    let load_ns = (first - plain) / bytes.div_ceil(page_bytes()) as f64;
    Ok(RecvCosts { open_ns, load_ns, stall_ns })
}

/// Returns the median of several runs in nanoseconds; NaN when one failed.
fn median<E>(mut run: impl FnMut() -> Result<Duration, E>) -> f64 {
    let times: Result<Vec<_>, E> = (0..RUNS).map(|_| run()).collect();
    times.map_or(f64::NAN, |mut times| middle(&mut times))
}

fn middle(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_nanos() as f64
}
