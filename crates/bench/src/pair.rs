//! The two processes of a measurement: the near one starts the far one, which opens ends of all kinds.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use tokio::runtime::Runtime;

use crate::failure::{Doing, Failure};
use crate::harness::control::Control;
use crate::harness::far::{FarEnd, Opening, usage};
use crate::harness::near::{Bench, Far, Setting};
use crate::harness::protocol::{End, GREETING, Order, Place, Reply, Report, Request, Transport};
use crate::harness::slices::name_of;
use crate::harness::{machine, runtime};
use crate::{baseline, ours};

/// Hidden subcommand that makes a process the far end.
pub const FAR_COMMAND: &str = "far";

/// Pins this process to the first core and starts the far end on the second, or dials it.
///
/// # Errors
/// If a process cannot be started, or no far end answers.
pub fn start(setting: &Setting) -> Result<Bench, Failure> {
    start_many(setting, 1)
}

/// As [`start`], with `count` far ends, on the cores that follow.
///
/// # Errors
/// As [`start`].
pub fn start_many(setting: &Setting, count: usize) -> Result<Bench, Failure> {
    // Children inherit the cores that this process may use, and an earlier bench has pinned it.
    machine::unpin();
    let started: Result<Vec<_>, _> = (0..count).map(|_| far(setting)).collect();
    let (fars, hosts): (Vec<_>, Vec<_>) = started?.into_iter().unzip();
    machine::pin(0);
    Bench::over(setting, fars, hosts.first().map_or("", String::as_str))
}

/// Returns the far end with the address that its ends listen on.
fn far(setting: &Setting) -> Result<(Far, String), Failure> {
    let loopback = || "127.0.0.1".to_owned();
    match (&setting.connect, setting.transport) {
        (Some(server), Transport::Tcp) => dial(server),
        (Some(_), other) => Err(Failure::Refused(format!(
            "--connect goes with --transport tcp, not {}",
            name_of(other)
        ))),
        (None, Transport::Memory) => Ok((in_thread()?, loopback())),
        (None, _) => Ok((child()?, loopback())),
    }
}

fn child() -> Result<Far, Failure> {
    let mut program = machine::this_program()?;
    program.arg(FAR_COMMAND);
    let (child, control) = Control::of_child(program, "starting the far end")?;
    Ok(Far::new(control, Some(child)))
}

fn in_thread() -> Result<Far, Failure> {
    let (far_reader, near_writer) = std::io::pipe().doing("making a pipe")?;
    let (near_reader, far_writer) = std::io::pipe().doing("making a pipe")?;
    thread::spawn(move || {
        if let Err(failure) = serve(far_reader, far_writer, None) {
            eprintln!("chunkperf: far end: {failure}");
        }
    });
    Ok(Far::new(Control::new(near_reader, near_writer), None))
}

fn dial(server: &str) -> Result<(Far, String), Failure> {
    let mut stream = TcpStream::connect(server).doing(&format!("connecting to {server}"))?;
    stream.set_nodelay(true).doing("setting up the control connection")?;
    let host = stream.peer_addr().doing("asking for the far end's address")?.ip().to_string();
    writeln!(stream, "{GREETING}").doing("greeting the server")?;
    let reader = stream.try_clone().doing("setting up the control connection")?;
    Ok((Far::new(Control::new(reader, stream), None), host))
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
    let runtime = runtime::start(place.threads)?;
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

fn greet(control: &mut Control) -> Result<Place, Failure> {
    let waiting = runtime::start(1)?;
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
        End::Links { count, feeds, node } => ours::idle::far(count, feeds, node, opening),
        End::ChainNode { head, index, node } => ours::chain::far(&head, index, node, opening),
        End::RawStream { bytes } => baseline::raw::far_stream(bytes, opening),
        End::RawEcho { bytes, spin } => baseline::raw::far_echo(bytes, spin, opening),
        End::RawCalls { bytes, spin } => baseline::raw_calls::far(bytes, spin, opening),
        #[cfg(feature = "peers")]
        End::Tarpc { bytes } => baseline::tarpc::far(bytes, opening),
        #[cfg(feature = "peers")]
        End::Framed(kind) => baseline::framed::far(kind, opening),
        #[cfg(feature = "peers")]
        End::Held(kind) => baseline::held::far(kind, opening),
        #[cfg(not(feature = "peers"))]
        End::Tarpc { .. } | End::Framed(_) | End::Held(_) => Err(crate::failure::no_peers()),
        End::Gathered { bytes } => baseline::gathered::far(bytes, opening),
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
