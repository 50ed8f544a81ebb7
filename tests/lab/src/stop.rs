//! A process that is stopped for a while, and one that is killed.

use std::time::Duration;

use chunkcomm_bench::failure::Failure;
use chunkcomm_bench::harness::machine::now_ns;
use chunkcomm_bench::options::values;
use chunkcomm_bench::table::Row;
use chunkcomm_testkit::proxy::Direction;
use clap::{Args, ValueEnum};

use super::checks::longest_ns;
use super::{Lab, Pair, Promises};

/// Time of the stream before a stop, and after a stop that its session survives: 500 ms.
const RUN: Duration = Duration::from_millis(500);

/// Process that is stopped or killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Whom {
    /// The node that was dialled and takes the stream.
    Receiver,
    /// The node that dialled and sends the stream.
    Sender,
}

/// Stops, and whether a kill follows.
#[derive(Debug, Args)]
pub struct Plan {
    /// Time for which a process is stopped; may be given several times [default: a fifth, four
    /// fifths and seven fifths of the dead time, then it is killed]
    #[arg(long = "for", value_name = "DUR", value_parser = values::some_time)]
    pub times: Vec<Duration>,
    /// Kill the process (alone, or after the stops that are named)
    #[arg(long)]
    pub kill: bool,
    /// Process that is stopped or killed: the receiver of the stream, or its sender
    #[arg(long, value_enum, default_value_t = Whom::Receiver)]
    pub whom: Whom,
}

/// Stops a process for a time. A session outlives a stop shorter than the dead time; after a longer
/// one, both ends learn of its end.
///
/// # Errors
/// If a process cannot be started or ends.
pub async fn hold(
    lab: &Lab,
    whom: Whom,
    time: Duration,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    let mut pair = lab.pair().await?;
    pair.begin(&[Direction::Forth], 16).await?;
    tokio::time::sleep(RUN).await;
    let process = |pair: &Pair, held| match whom {
        Whom::Receiver => pair.acceptor.hold(held),
        Whom::Sender => pair.dialler.hold(held),
    };
    let held_ns = now_ns();
    process(&pair, true);
    tokio::time::sleep(time).await;
    process(&pair, false);
    // A receiver waits only for the next message, and asks a silent peer only now and then. So
    // chance decides whether it gives up a sender that is stopped for long.
    let survives =
        if time < lab.dead { Some(true) } else { (whom == Whom::Receiver).then_some(false) };
    // Ends of a dead session learn of it when they wake up; a live session shows that it lives.
    tokio::time::sleep(if survives == Some(true) { RUN } else { lab.dead }).await;
    let streams = pair.end(&[Direction::Forth], promises).await?;
    row.set("stopped_seconds", time.as_secs_f64()).set("is_to_survive", survives);
    let Some(stream) = streams.as_ref().and_then(|streams| streams.first()) else { return Ok(()) };
    let survived = stream.sent.error.is_none() && stream.taken.error.is_none();
    row.set("survived", survived)
        .set("messages", stream.taken.messages)
        .set("longest_gap_us", longest_ns(&stream.taken.silences) as f64 / 1e3);
    if survives.unwrap_or(survived) {
        promises.exactly_once(stream);
        return Ok(());
    }
    promises.both_know(stream);
    if whom == Whom::Receiver {
        let learnt_us = stream.sent.ended_ns.saturating_sub(held_ns) as f64 / 1e3;
        row.set("learnt_us", learnt_us);
        promises.hold(learnt_us <= limit_us(lab), || late(learnt_us));
    }
    Ok(())
}

/// Kills a process: the other one learns of it within the dead time.
///
/// # Errors
/// If a process cannot be started or ends.
pub async fn kill(
    lab: &Lab,
    whom: Whom,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    let mut pair = lab.pair().await?;
    pair.begin(&[Direction::Forth], 16).await?;
    tokio::time::sleep(RUN).await;
    let (victim, survivor, who) = match whom {
        Whom::Receiver => (&mut pair.acceptor, &mut pair.dialler, "sender"),
        Whom::Sender => (&mut pair.dialler, &mut pair.acceptor, "receiver"),
    };
    let killed_ns = now_ns();
    victim.kill();
    let collected = survivor.collect(lab.ended()).await?;
    promises.no_panic(collected.as_ref());
    let Some(outcome) = collected.and_then(|mut collected| collected.outcomes.pop()) else {
        promises.hold(false, || format!("the {who} still waits {} s later", lab.ended().as_secs()));
        return Ok(());
    };
    let learnt_us = outcome.ended_ns.saturating_sub(killed_ns) as f64 / 1e3;
    row.set("survived", false).set("messages", outcome.messages).set("learnt_us", learnt_us);
    promises.told(&outcome.error, who);
    promises.hold(learnt_us <= limit_us(lab), || late(learnt_us));
    if let Some(error) = outcome.error {
        row.set("error", error.text);
    }
    Ok(())
}

fn limit_us(lab: &Lab) -> f64 {
    (lab.dead + lab.late_max).as_secs_f64() * 1e6
}

fn late(learnt_us: f64) -> String {
    format!("the other node learnt of it after {learnt_us} us, later than the dead time")
}
