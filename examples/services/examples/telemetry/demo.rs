//! The demonstration: clients of this process over real connections.

use std::net::SocketAddr;
use std::ops::Range;
use std::thread;

use chunkcomm_examples::command_line::write_out;
use chunkcomm_services::Client;

use super::Failure;

const CONNECTIONS: u64 = 4;
/// Most events in a request.
const EVENTS_MAX: u64 = 100;

/// Error of a thread.
type Broken = Box<dyn std::error::Error + Send + Sync>;

/// Sends this number of events over a few connections and prints the service's counters. Returns the
/// number of events that were answered with 202.
pub(crate) async fn run(at: SocketAddr, events: u64) -> Result<u64, Failure> {
    let running = tokio::task::spawn_blocking(move || drive(at, events)).await?;
    let (answered, metrics) = running.map_err(|broken| -> Failure { broken })?;
    let counters = metrics.lines().filter(|line| line.starts_with("telemetry_"));
    write_out(&counters.map(|line| format!("{line}\n")).collect::<String>())?;
    Ok(answered)
}

fn drive(at: SocketAddr, events: u64) -> Result<(u64, String), Broken> {
    let share = move |index: u64| index * events / CONNECTIONS..(index + 1) * events / CONNECTIONS;
    let clients: Vec<_> =
        (0..CONNECTIONS).map(|index| thread::spawn(move || send(at, share(index)))).collect();
    let mut answered = 0;
    for client in clients {
        answered += client.join().map_err(|_| "a client has panicked")??;
    }
    let metrics = Client::connect(at)?.get("/metrics")?;
    Ok((answered, metrics.body))
}

/// Sends one event alone, the others many a request; returns the number answered with 202.
fn send(at: SocketAddr, events: Range<u64>) -> Result<u64, Broken> {
    let mut client = Client::connect(at)?;
    let json = |number| format!(r#"{{"source":"demo","name":"number","value":{number}}}"#);
    let (mut next, mut answered) = (events.start, 0);
    while next < events.end {
        let end = events.end.min(next + EVENTS_MAX);
        let (body, count) = if next == events.start {
            (json(next), 1)
        } else {
            let all: Vec<_> = (next..end).map(json).collect();
            (format!("[{}]", all.join(",")), end - next)
        };
        let answer = client.post("/events", &body)?;
        if answer.status != 202 {
            return Err(format!("answered {}: {}", answer.status, answer.body).into());
        }
        next += count;
        answered += count;
    }
    Ok(answered)
}

/// Checks that as many events are collected as were answered with 202.
pub(crate) fn compare(answered: u64, collected: u64) -> Result<(), Failure> {
    if answered == collected {
        return Ok(());
    }
    Err(format!("{answered} events were answered with 202, {collected} are collected").into())
}
