//! The far end: opens ends as the near end orders and receives slice after slice.

use std::io::{Read, Write};

use tokio::runtime::Runtime;

use super::control::Control;
use super::machine;
use super::protocol::{End, GREETING, Order, Place, Reply, Report, Request, Usage};
use crate::failure::{Doing, Failure};
use crate::{baseline, ours};

/// One opened end that can receive slices.
pub trait FarEnd {
    /// Receives and verifies one slice; returns the times of the marked messages.
    ///
    /// # Errors
    /// If the connection breaks or a message is wrong; the end is then closed.
    fn slice(&mut self, runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure>;
}

/// Place, runtime and control connection for opening an end.
pub struct Opening<'a> {
    /// Place and settings of the far end.
    pub place: &'a Place,
    /// Runtime of the process.
    pub runtime: &'a Runtime,
    control: &'a mut Control,
}

impl Opening<'_> {
    /// Sends the near end the address to connect to.
    ///
    /// # Errors
    /// If the near end is gone.
    pub fn announce(&mut self, address: String) -> Result<(), Failure> {
        self.control.send(&Reply::Opened { address })
    }
}

/// Builds the tokio runtime of a process: one worker is the current-thread flavour.
///
/// # Errors
/// If the system refuses.
pub fn runtime(threads: usize) -> Result<Runtime, Failure> {
    let mut builder = if threads == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder.worker_threads(threads).enable_all().build().doing("starting the tokio runtime")
}

/// Serves one near end until it closes the control connection. If `host` is given, the far end
/// listens on it instead of the address that the near end names.
///
/// # Errors
/// If the control connection breaks or its first line is not a greeting.
pub fn serve(
    reader: impl Read + Send + 'static,
    writer: impl Write + Send + 'static,
    host: Option<String>,
) -> Result<(), Failure> {
    let mut control = Control::new(reader, writer);
    let mut place = greet(&mut control)?;
    if let Some(host) = host {
        place.host = host;
    }
    machine::pin(place.core);
    let runtime = runtime(place.threads)?;
    // Values dropped with their end may still want to spawn.
    let _entered = runtime.enter();
    let mut ends: Vec<Option<Box<dyn FarEnd>>> = Vec::new();
    // The wait is inside the runtime, so that open connections stay driven between slices.
    while let Some(request) = runtime.block_on(control.receive::<Request>())? {
        let outcome = match request {
            Request::Setup { .. } => Err(Failure::broken("setting up", "it was done before")),
            Request::Open(end) => {
                let opening = Opening { place: &place, runtime: &runtime, control: &mut control };
                open(end, opening).map(|end| {
                    ends.push(Some(end));
                    Reply::Ready
                })
            }
            Request::Slice { end, order } => slice(&mut ends, end, &order, &runtime, &mut control),
            Request::Usage => Ok(Reply::Usage(usage())),
            Request::Cpu => Ok(Reply::Cpu(machine::cpu_ns())),
        };
        let reply = outcome.unwrap_or_else(|failure| Reply::Failed(failure.to_string()));
        control.send(&reply)?;
    }
    Ok(())
}

/// Returns the memory and switches of this process.
pub fn usage() -> Usage {
    Usage { resident_bytes: machine::resident_bytes(), switches: machine::switches() }
}

fn greet(control: &mut Control) -> Result<Place, Failure> {
    let waiting = runtime(1)?;
    match waiting.block_on(control.receive::<Request>())? {
        Some(Request::Setup { greeting, place }) if greeting == GREETING => {
            control.send(&Reply::Greeting { boot_id: machine::boot_id() })?;
            Ok(place)
        }
        _ => Err(Failure::broken("greeting", "the other end is no chunkperf of this version")),
    }
}

fn open(end: End, opening: Opening<'_>) -> Result<Box<dyn FarEnd>, Failure> {
    match end {
        End::Stream { bytes, api, idle, node } => {
            ours::stream::far(bytes, api, idle, node, opening)
        }
        End::Echo { bytes, load, lane, node } => {
            ours::latency::far(bytes, load, lane, node, opening)
        }
        End::Bandwidth { bytes, fresh, node } => ours::bandwidth::far(bytes, fresh, node, opening),
        End::Calls { bytes, node } => ours::calls::far(bytes, node, opening),
        End::Links { count, node } => ours::idle::far(count, node, opening),
        End::ChainNode { head, index, node } => ours::chain::far(&head, index, node, opening),
        End::RawStream { bytes } => baseline::raw::far_stream(bytes, opening),
        End::RawEcho { bytes, spin } => baseline::raw::far_echo(bytes, spin, opening),
        End::RawCalls { bytes, spin } => baseline::raw_calls::far(bytes, spin, opening),
        #[cfg(feature = "peers")]
        End::Tarpc { bytes } => baseline::tarpc::far(bytes, opening),
        #[cfg(not(feature = "peers"))]
        End::Tarpc { .. } => Err(baseline::no_tarpc()),
        End::Framed { bytes } => baseline::framed::far(bytes, opening),
        End::HandWorker { task_bytes, work_iterations } => {
            baseline::hand_farm::far(task_bytes, work_iterations, opening)
        }
    }
}

fn slice(
    ends: &mut [Option<Box<dyn FarEnd>>],
    index: usize,
    order: &Order,
    runtime: &Runtime,
    control: &mut Control,
) -> Result<Reply, Failure> {
    let slot = ends.get_mut(index).ok_or_else(|| no_such_end(index))?;
    let end = slot.as_mut().ok_or_else(|| no_such_end(index))?;
    control.send(&Reply::Started)?;
    let cpu_before_ns = machine::cpu_ns();
    match end.slice(runtime, order) {
        Ok(marks_ns) => Ok(Reply::Finished(Report {
            finished_ns: machine::now_ns(),
            cpu_ns: machine::cpu_ns() - cpu_before_ns,
            marks_ns,
        })),
        Err(failure) => {
            // Closed at once, so that a near end that waits to write learns of the failure.
            *slot = None;
            Err(failure)
        }
    }
}

fn no_such_end(index: usize) -> Failure {
    Failure::broken("running a slice", format!("there is no open end {index}"))
}
