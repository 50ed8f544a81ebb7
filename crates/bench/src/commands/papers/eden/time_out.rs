//! The two settings of gathering: the size of a buffer and its time-out (sections 4.1 and 4.2).

use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm::proto::limits::PACKET_OVERHEAD_BYTES;

use super::pool::{BUFFER_BYTES, Pool, Sending, Sent, WORD_BYTES, word};
use crate::commands::papers::{Found, Scene};
use crate::failure::{Doing, Failure};
use crate::table::{Row, column, significant};

/// Microseconds in which an item is computed. *Assumed.*
const COMPUTE_US: f64 = 300.0;

/// Bytes of a message of one word in a packet: its length comes first.
const MESSAGE_BYTES: usize = 1 + WORD_BYTES;

/// Settings whose savings are compared with the prediction.
const BUFFERS: [usize; 2] = [1024, BUFFER_BYTES];
const TIME_OUTS_MS: [u64; 4] = [2, 10, 50, 500];

/// Relative error that the prediction may have.
const NEAR: f64 = 0.1;

/// Items that may be on their way and back when the next one needs the result of the first.
const WINDOW: usize = 64;

/// Time-outs among which the best is looked for.
const TRIED_MS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Loss against the best time-out with which one counts as found.
const LOSS: f64 = 0.02;

/// A stream whose items are computed.
#[derive(Debug, Clone, Copy)]
struct Flow {
    /// Microseconds in which an item is computed.
    compute_us: f64,
    /// An item needs the result of the one this far before it, which the receiver computes as long.
    window: Option<usize>,
}

/// Outcome of a flow.
#[derive(Debug, Clone, Copy)]
struct Flowed {
    seconds: f64,
    messages_per_packet: f64,
    /// Mean time from the computation of an item to its receipt.
    latency_us: f64,
}

impl Flow {
    fn run(self, pool: &Pool, sending: Sending, items: usize) -> Result<Flowed, Failure> {
        let results = pool.run(2, sending, |pe| async move {
            if pe.rank == 1 {
                let (peer, mut from) = pe.accept("items").await?;
                let mut back = [pe.open_to(&peer, "results").await?];
                let (mut count, mut latency_us) = (0, 0.0);
                while let Some(item) = pe.take(&mut from, &mut back).await? {
                    latency_us += f64::from(now_us().wrapping_sub(word(&item)));
                    count += 1;
                    if self.window.is_some() {
                        pe.work(self.compute_us).await;
                        pe.send(&mut back[0], &item).await?;
                    }
                }
                return Ok((0.0, latency_us / f64::from(count)));
            }
            let mut to = [pe.open(1, "items").await?];
            let (peer, mut results) = pe.accept("results").await?;
            let (begun, before) = (Instant::now(), Sent::to(&peer));
            for number in 0..items {
                if self.window.is_some_and(|window| number >= window) {
                    pe.take(&mut results, &mut to).await?;
                }
                pe.work(self.compute_us).await;
                pe.send(&mut to[0], &now_us().to_be_bytes()).await?;
            }
            let [mut to] = to;
            to.sync().await.doing("ending a stream")?;
            let seconds = begun.elapsed().as_secs_f64();
            let sent = Sent::to(&peer).since(before);
            drop(to);
            while pe.take(&mut results, &mut []).await?.is_some() {}
            Ok((seconds, sent.messages / sent.packets))
        })?;
        let [(seconds, messages_per_packet), (_, latency_us)] = results[..] else {
            unreachable!("two ranks")
        };
        Ok(Flowed { seconds, messages_per_packet, latency_us })
    }
}

/// Returns the virtual microseconds since the run began, which end after an hour.
fn now_us() -> u32 {
    (Instant::now().time().0 / 1000) as u32
}

/// Returns the messages of a packet by the rate of a stream and the settings of a buffer, of which our
/// library keeps a part for headers.
fn predicted(buffer_bytes: usize, time_out: Duration, item_us: f64) -> f64 {
    let fits = ((buffer_bytes - PACKET_OVERHEAD_BYTES) / MESSAGE_BYTES) as f64;
    (1.0 + (time_out.as_secs_f64() * 1e6 / item_us).floor()).min(fits)
}

/// Decides the statements about the settings.
///
/// # Errors
/// If a stream fails.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let pool = Pool::of(scene)?;
    let items = scene.sized(20_000, 200);
    let free = Flow { compute_us: COMPUTE_US, window: None };
    let (mut rows, mut worst, mut by_time_out) = (Vec::new(), 0.0_f64, Vec::new());
    for buffer_bytes in BUFFERS {
        for ms in TIME_OUTS_MS {
            let time_out = Duration::from_millis(ms);
            let sending = Sending::Gathered { buffer_bytes, time_out };
            let flowed = free.run(&pool, sending, items)?;
            let item_us = flowed.seconds * 1e6 / items as f64;
            let predicted = predicted(buffer_bytes, time_out, item_us);
            worst = worst.max((predicted / flowed.messages_per_packet - 1.0).abs());
            let mut row = Row::default();
            row.set("buffer_bytes", buffer_bytes)
                .set("time_out_ms", ms)
                .set("messages_per_packet", flowed.messages_per_packet)
                .set("predicted", predicted)
                .set("latency_us", flowed.latency_us);
            rows.push(row);
            if buffer_bytes == BUFFER_BYTES {
                by_time_out.push(flowed);
            }
        }
    }
    let columns = [
        column("buffer_bytes", "buffer B", 8),
        column("time_out_ms", "time-out ms", 8),
        column("messages_per_packet", "a packet", 8),
        column("predicted", "predicted", 8),
        column("latency_us", "latency us", 8),
    ];
    found.table("messages of a packet by both settings", &columns, rows);
    let ours = format!("predicted within {:.0} %", (worst * 100.0).ceil());
    found.verdict("saved-by-settings", worst < NEAR, ours);
    let grows = by_time_out.windows(2).all(|pair| {
        pair[1].messages_per_packet > pair[0].messages_per_packet
            && pair[1].latency_us > pair[0].latency_us
    });
    let [first, last] = [by_time_out[0], by_time_out[by_time_out.len() - 1]];
    let ours = format!(
        "{} and {} ms late",
        significant((first.latency_us / 100.0).round() / 10.0),
        significant((last.latency_us / 100.0).round() / 10.0)
    );
    found.verdict("long-delays", grows, ours);
    let bound = Flow { window: Some(8), ..free }.run(&pool, Sending::USUAL, items)?;
    let slow = Flow { compute_us: 2.0 * COMPUTE_US, ..free }.run(&pool, Sending::USUAL, items)?;
    let usual = free.run(&pool, Sending::USUAL, items)?;
    let [usual, bound, slow] = [usual, bound, slow].map(|it| it.messages_per_packet);
    let ours = format!("{usual:.0} a packet; {bound:.0}; {slow:.0}");
    let changed = [bound, slow].iter().all(|it| (it / usual - 1.0).abs() > NEAR);
    found.verdict("saved-by-synchronisation", changed, ours);
    best(scene, found, &pool)
}

/// Looks for the best time-out of a program whose items depend on results, and runs it with none.
fn best(scene: &Scene<'_>, found: &mut Found, pool: &Pool) -> Result<(), Failure> {
    let flow = Flow { compute_us: COMPUTE_US, window: Some(WINDOW) };
    let items = scene.sized(5000, 200);
    let mut runs = vec![("own".to_owned(), flow.run(pool, Sending::Own, items)?)];
    for ms in TRIED_MS {
        let time_out = Duration::from_millis(ms);
        let sending = Sending::Gathered { buffer_bytes: BUFFER_BYTES, time_out };
        runs.push((ms.to_string(), flow.run(pool, sending, items)?));
    }
    let rows = runs.iter().map(|(name, flowed)| {
        let mut row = Row::default();
        row.set("time_out_ms", name.as_str())
            .set("seconds", flowed.seconds)
            .set("messages_per_packet", flowed.messages_per_packet);
        row
    });
    let columns = [
        column("time_out_ms", "time-out ms", 8),
        column("seconds", "s", 8),
        column("messages_per_packet", "a packet", 8),
    ];
    found.table("a program whose items depend on results", &columns, rows.collect());
    let tried = runs[1..].iter().map(|(_, flowed)| flowed.seconds);
    let least = tried.fold(f64::INFINITY, f64::min);
    let own = runs[0].1.seconds / least;
    let ours = format!("without: {:+.1} %", (own - 1.0) * 100.0);
    found.verdict("only-experiments", own > 1.0 + LOSS, ours);
    Ok(())
}
