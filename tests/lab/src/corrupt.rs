//! One turned bit on the way.

use std::time::Duration;

use chunkcomm_bench::failure::Failure;
use chunkcomm_bench::harness::protocol::Transport;
use chunkcomm_bench::options::values;
use chunkcomm_bench::table::Row;
use chunkcomm_testkit::proxy::{Direction, Proxy};
use clap::Args;

use super::protocol::Fault;
use super::{Lab, Promises, Stream};

/// Bytes of the stream within which a bit is turned: some packets.
const FORTH_BYTES: u64 = 200_000;

/// Bytes against the stream within which a bit is turned: acknowledgements and credit.
const BACK_BYTES: u64 = 2_000;

/// Time within which the effect of the bit shows: 300 ms.
const AFTER: Duration = Duration::from_millis(300);

/// Plan of the scenario.
#[derive(Debug, Clone, Copy, Args)]
pub struct Plan {
    /// Number of sessions, with one turned bit each
    #[arg(long, value_name = "N", default_value = "40", value_parser = values::count)]
    pub sessions: u64,
}

/// Counts of the rounds by their end.
#[derive(Debug, Default)]
struct Tally {
    ended: u64,
    undecodable: u64,
    wrong: u64,
    resumed: u64,
    unnoticed: u64,
    hung: u64,
}

/// Turns one bit in each of the sessions. On a plain link that may end the session or change a
/// message. Sealed links notice every bit and continue on a new connection.
///
/// # Errors
/// If a process cannot be started or ends.
pub async fn run(
    lab: &mut Lab,
    plan: &Plan,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    let sealed = lab.place.transport == Transport::Tls;
    let mut tally = Tally::default();
    for index in 0..plan.sessions {
        // The stream's own direction has more bytes to hit.
        let way = if index % 4 == 3 { Direction::Back } else { Direction::Forth };
        round(lab, way, sealed, &mut tally, promises).await?;
    }
    row.set("sessions", plan.sessions)
        .set("ended_with_an_error", tally.ended)
        .set("undecodable_messages", tally.undecodable)
        .set("wrong_messages", tally.wrong)
        .set("resumed", tally.resumed)
        .set("without_effect", tally.unnoticed)
        .set("hung", tally.hung);
    Ok(())
}

async fn round(
    lab: &mut Lab,
    way: Direction,
    sealed: bool,
    tally: &mut Tally,
    promises: &mut Promises,
) -> Result<(), Failure> {
    let mut pair = lab.pair().await?;
    pair.begin(&[Direction::Forth], 16).await?;
    let is_carrying =
        |proxy: &Proxy| proxy.newest().is_some_and(|wire| wire.forth.carrying().is_some());
    pair.proxy.wait_until(lab.ended(), is_carrying).await;
    let Some(wire) = pair.proxy.newest() else { return Ok(()) };
    let bytes = match way {
        Direction::Forth => FORTH_BYTES,
        Direction::Back => BACK_BYTES,
    };
    let lane = wire.lane(way);
    let at = lane.passed() + lab.random.below(bytes);
    lane.set(|conduct| conduct.flip_at = Some(at));
    tokio::time::sleep(AFTER).await;
    let Some(streams) = pair.end(&[Direction::Forth], promises).await? else {
        tally.hung += 1;
        return Ok(());
    };
    let resumed = pair.proxy.wires().len() > 1;
    for stream in &streams {
        judge(stream, sealed, resumed, tally, promises);
    }
    Ok(())
}

fn judge(stream: &Stream, sealed: bool, resumed: bool, tally: &mut Tally, promises: &mut Promises) {
    let Stream { sent, taken } = stream;
    if sealed {
        promises.exactly_once(stream);
    }
    if let Some(fault) = taken.fault {
        let noticed = matches!(fault, Fault::Undecodable { .. });
        let count = if noticed { &mut tally.undecodable } else { &mut tally.wrong };
        *count += 1;
    } else if sent.error.is_some() || taken.error.is_some() {
        tally.ended += 1;
        if !sealed {
            promises.both_know(stream);
        }
    } else {
        promises.exactly_once(stream);
        let count = if resumed { &mut tally.resumed } else { &mut tally.unnoticed };
        *count += 1;
    }
}
