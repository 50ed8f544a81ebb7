//! Receivers that take less than is sent, for a long time.

use std::time::{Duration, Instant};

use chunkcomm_bench::failure::Failure;
use chunkcomm_bench::fit::{Line, Point};
use chunkcomm_bench::options::values;
use chunkcomm_bench::table::Row;
use chunkcomm_testkit::proxy::Direction;
use clap::Args;

use super::protocol::Work;
use super::{Lab, Pair, Promises};

/// Pause between two readings of memory: 250 ms.
const SAMPLE: Duration = Duration::from_millis(250);

/// Number of samples that are printed as they are taken.
const TOLD: u32 = 20;

/// Divisor of the time: in its first third windows grow and buffers are pooled.
const WARM_UP_DIVISOR: u32 = 3;

/// Most slow channels: more are a typing error.
const CHANNELS_MAX: usize = 1000;

/// Plan of the scenario.
#[derive(Debug, Clone, Copy, Args)]
pub struct Plan {
    /// Seconds of the run
    #[arg(long = "seconds", value_name = "S", default_value = "60", value_parser = seconds)]
    pub time: Duration,
    /// Channels with a slow receiver, beside a brisk one
    #[arg(long, value_name = "N", default_value = "4", value_parser = channels)]
    pub channels: usize,
    /// Messages a second that a slow receiver takes
    #[arg(long, value_name = "R", default_value = "1000", value_parser = values::rate)]
    pub rate: u64,
    /// Encoded bytes of a message, at least 8
    #[arg(long = "size", value_name = "B", default_value = "1KiB", value_parser = values::message_bytes)]
    pub bytes: usize,
    /// Most bytes by which a process's memory may grow in the last two thirds of the time
    #[arg(long, value_name = "B", default_value = "4MiB", value_parser = values::bytes)]
    pub growth_max: usize,
}

fn seconds(text: &str) -> Result<Duration, String> {
    values::count(text).map(Duration::from_secs)
}

fn channels(text: &str) -> Result<usize, String> {
    values::up_to(text, CHANNELS_MAX)
}

/// One sample of both processes.
struct Sample {
    seconds: f64,
    sender_bytes: f64,
    receiver_bytes: f64,
    /// Messages taken since the start by each channel, first the brisk one.
    taken: Vec<u64>,
}

/// Runs the scenario.
///
/// # Errors
/// If a process cannot be started or ends.
pub async fn run(
    lab: &mut Lab,
    plan: &Plan,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    row.set("payload_bytes", plan.bytes);
    let mut pair = lab.pair().await?;
    begin(&mut pair, plan).await?;
    let samples = watch(&mut pair, plan).await?;
    let directions = vec![Direction::Forth; 1 + plan.channels];
    let streams = pair.end(&directions, promises).await?.unwrap_or_default();
    streams.iter().for_each(|stream| promises.exactly_once(stream));
    growth(plan, &samples, promises, row);
    progress(plan, &samples, promises, row);
    Ok(())
}

/// Begins a brisk channel and the slow ones; the slow ones must not stop the brisk one.
async fn begin(pair: &mut Pair, plan: &Plan) -> Result<(), Failure> {
    for index in 0..=plan.channels {
        let channel = format!("channel-{index}");
        let (bytes, rate) = (plan.bytes, (index > 0).then_some(plan.rate));
        // A growing list would be taken for a leak of the library.
        let silences = false;
        let work = Work::Consume { channel: channel.clone(), bytes, rate, silences };
        pair.acceptor.work(work).await?;
        pair.dialler.work(Work::Produce { channel, bytes }).await?;
    }
    Ok(())
}

async fn watch(pair: &mut Pair, plan: &Plan) -> Result<Vec<Sample>, Failure> {
    let started = Instant::now();
    let mut samples = Vec::new();
    let mut told = 0;
    while started.elapsed() < plan.time {
        tokio::time::sleep(SAMPLE).await;
        let (sender, _) = pair.dialler.usage().await?;
        let (receiver, taken) = pair.acceptor.usage().await?;
        let seconds = started.elapsed().as_secs_f64();
        let bytes = |resident: Option<u64>| resident.map_or(f64::NAN, |bytes| bytes as f64);
        let sender_bytes = bytes(sender.resident_bytes);
        let receiver_bytes = bytes(receiver.resident_bytes);
        if seconds >= plan.time.as_secs_f64() / f64::from(TOLD) * f64::from(told) {
            told += 1;
            let [sender, receiver] = [sender_bytes, receiver_bytes].map(|bytes| bytes / 1024.0);
            eprintln!("lab: {seconds:.0} s: sender {sender} KiB, receiver {receiver} KiB");
        }
        samples.push(Sample { seconds, sender_bytes, receiver_bytes, taken });
    }
    Ok(samples)
}

/// Checks the slope of memory over the time after the warm-up.
fn growth(plan: &Plan, samples: &[Sample], promises: &mut Promises, row: &mut Row) {
    let warm = (plan.time / WARM_UP_DIVISOR).as_secs_f64();
    let watched = plan.time.as_secs_f64() - warm;
    let samples: Vec<&Sample> = samples.iter().filter(|sample| sample.seconds >= warm).collect();
    row.set("seconds", plan.time.as_secs_f64()).set("samples", samples.len());
    let mut side = |name: &str, keys: [&'static str; 2], bytes: &dyn Fn(&Sample) -> f64| {
        let points: Vec<_> =
            samples.iter().map(|sample| Point::new(sample.seconds, bytes(sample))).collect();
        let slope = Line::through(&points).map(|line| line.slope);
        row.set(keys[0], samples.last().map(|sample| bytes(sample))).set(keys[1], slope);
        let grown = slope.unwrap_or(f64::NAN) * watched;
        promises.hold(grown <= plan.growth_max as f64 || grown.is_nan(), || {
            format!("the {name}'s memory grew by {grown} bytes in {watched} s")
        });
    };
    let sender = ["sender_resident_bytes", "sender_growth_bytes_per_second"];
    side("sender", sender, &|sample| sample.sender_bytes);
    let receiver = ["receiver_resident_bytes", "receiver_growth_bytes_per_second"];
    side("receiver", receiver, &|sample| sample.receiver_bytes);
}

/// Checks that no channel stands still, and that the slow ones do not slow the brisk one down to
/// their rate.
fn progress(plan: &Plan, samples: &[Sample], promises: &mut Promises, row: &mut Row) {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return };
    let seconds = last.seconds - first.seconds;
    let rates: Vec<f64> = first
        .taken
        .iter()
        .zip(&last.taken)
        .map(|(first, last)| last.saturating_sub(*first) as f64 / seconds)
        .collect();
    let (brisk, slow) = rates.split_first().map_or((0.0, &[][..]), |(brisk, slow)| (*brisk, slow));
    let slowest = slow.iter().copied().reduce(f64::min);
    row.set("channels", plan.channels)
        .set("brisk_messages_per_second", brisk)
        .set("slowest_messages_per_second", slowest);
    if samples.len() > 1 {
        let is_brisk = slowest.is_none_or(|slowest| brisk > slowest);
        promises.hold(is_brisk, || {
            format!("slow channels held up the brisk one: {brisk} messages a second")
        });
        promises.hold(slowest.is_none_or(|slowest| slowest > 0.0), || {
            "a slow channel stands still".to_owned()
        });
    }
}
