//! Streams that nobody answers: the costs of sending, and equations (2) to (5).

use chunkcomm::host::Instant;

use super::pool::{Costs, Pool, Sending, Sent, WORD_BYTES, item};
use crate::commands::papers::{Curves, Found, Scene};
use crate::failure::{Doing, Failure};
use crate::fit::{Line, Point};
use crate::table::{Row, column, significant};

/// Words of the messages of figures 1 and 4. *Assumed* up to 1000, as in figure 5.
const WORDS: [usize; 7] = [1, 50, 100, 250, 500, 750, 1000];

/// Words of gathered messages: in a buffer fit many of the first, and three of the last.
const GATHERED_WORDS: [usize; 4] = [1, 10, 100, 300];

/// Relative error by which a number may differ from the paper's.
const NEAR: f64 = 0.05;

/// A stream that has been sent.
#[derive(Debug, Clone, Copy)]
struct Streamed {
    sent: Sent,
    /// Microseconds of all messages.
    micros: f64,
}

/// Sends messages of this many words, each at once if they are urgent.
fn stream(
    pool: &Pool,
    sending: Sending,
    words: usize,
    messages: usize,
    urgent: bool,
) -> Result<Streamed, Failure> {
    let results = pool.run(2, sending, |pe| async move {
        if pe.rank == 1 {
            let (_, mut from) = pe.accept("items").await?;
            let mut last = Instant::now();
            while from.recv().await.doing("taking an item")?.is_some() {
                last = Instant::now();
            }
            return Ok((last, Sent::default()));
        }
        let mut to = pe.open(1, "items").await?;
        to.sync().await.doing("opening a stream")?;
        let (begun, before) = (Instant::now(), Sent::to(to.peer()));
        for number in 0..messages {
            let item = item(number, words);
            if urgent {
                pe.send_now(&mut to, &item).await?;
                to.flush().await.doing("sending a value")?;
            } else {
                pe.send(&mut to, &item).await?;
            }
        }
        to.sync().await.doing("ending a stream")?;
        Ok((begun, Sent::to(to.peer()).since(before)))
    })?;
    let [(begun, sent), (ended, _)] = results[..] else { unreachable!("two ranks") };
    Ok(Streamed { sent, micros: (ended - begun).as_secs_f64() * 1e6 })
}

/// Equations (1) and (2), without the part of the start.
fn predicted(costs: &Costs, streamed: &Streamed, words: f64, gathered: bool) -> f64 {
    let Sent { messages, packets, .. } = streamed.sent;
    let size = messages * words;
    let buffers = costs.copy * size + costs.variable * messages;
    costs.lambda * packets + costs.beta * size + if gathered { buffers } else { 0.0 }
}

/// Decides the statements about the model.
///
/// # Errors
/// If a stream fails.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    // The paper's test does not care for the network and the receiver.
    let pool = Pool::of(scene)?.with_network(100.0).with_free_receiving();
    let messages = scene.sized(2000, 100);
    let mut lines = Vec::new();
    for (name, sending, urgent) in
        [("as they are", Sending::Plain, false), ("through the buffers", Sending::USUAL, true)]
    {
        let points = WORDS.map(|words| {
            let streamed = stream(&pool, sending, words, messages, urgent)?;
            Ok(Point::new(words as f64, streamed.micros / messages as f64))
        });
        let points = points.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        let line = Line::through(&points).expect("there are several sizes");
        let worst = points.iter().map(|it| (line.at(it.x) / it.y - 1.0).abs()).fold(0.0, f64::max);
        lines.push((name, points, line, worst));
    }
    let points = |points: &[Point]| points.iter().map(|it| (it.x, it.y)).collect();
    found.curves(Curves {
        name: "sending",
        title: "Microseconds a message (figures 1 and 4)".to_owned(),
        x: ("words", false),
        y: ("us", false),
        lines: lines.iter().map(|it| (it.0.to_owned(), points(&it.1))).collect(),
    });
    let (plain, through) = (&lines[0], &lines[1]);
    let numbers = scene.numbers("overhead-line");
    let near = |ours: f64, theirs: f64| (ours / theirs - 1.0).abs() < NEAR;
    let holds = near(through.2.intercept, numbers[0]) && near(through.2.slope, numbers[1]);
    let ours = format!("{:.1} us + {:.3} us", through.2.intercept, through.2.slope);
    found.verdict("overhead-line", holds, ours);
    let hundredfold = plain.1[2].y / plain.1[0].y;
    let ours = format!("100 words cost {hundredfold:.2}x one");
    found.verdict("size-matters-little", hundredfold < 1.5, ours);
    let off = format!("{:.1} % off at most", plain.3 * 100.0);
    found.verdict("line-suffices", plain.3 < NEAR, off);
    equations(scene, found, &pool)
}

/// Compares gathered streams with the equations.
fn equations(scene: &Scene<'_>, found: &mut Found, pool: &Pool) -> Result<(), Failure> {
    let messages = scene.sized(5000, 100);
    let (mut rows, mut most, mut least) = (Vec::new(), 0.0_f64, f64::INFINITY);
    for words in GATHERED_WORDS {
        let mut both = Vec::new();
        for sending in Sending::BOTH {
            both.push(stream(pool, sending, words, messages, false)?);
        }
        let (plain, gathered) = (both[0], both[1]);
        let costs = &pool.costs;
        let time = predicted(costs, &gathered, words as f64, true);
        let saved = messages as f64 - gathered.sent.packets;
        let equation = (costs.lambda - costs.variable) * saved
            - costs.variable * gathered.sent.packets
            - costs.copy * (messages * words) as f64;
        let measured = plain.micros - gathered.micros;
        most = most.max(gathered.micros / time);
        // As a share of the run: at 300 words both are about nothing.
        least = least.min((measured - equation) / plain.micros);
        let each = |micros: f64| micros / messages as f64;
        let mut row = Row::default();
        row.set("words", words)
            .set("payload_bytes", words * WORD_BYTES)
            .set("messages_per_packet", messages as f64 / gathered.sent.packets)
            .set("plain_us", each(plain.micros))
            .set("gathered_us", each(gathered.micros))
            .set("predicted_us", each(time))
            .set("saving_us", each(measured))
            .set("saving_predicted_us", each(equation));
        rows.push(row);
    }
    let columns = [
        column("words", "words", 5),
        column("messages_per_packet", "a packet", 8),
        column("plain_us", "plain us", 8),
        column("gathered_us", "gathered us", 8),
        column("predicted_us", "by (2)", 8),
        column("saving_us", "saved us", 8),
        column("saving_predicted_us", "by (5)", 8),
    ];
    found.table("equations (2) and (5) beside measured, a message", &columns, rows);
    found.verdict(
        "buffered-time",
        most < 1.0 + NEAR,
        format!("{} of (2) at most", significant(most)),
    );
    // A packet's way to the receiver is no part of the equation.
    let ours = format!("{:+.1} % at least", least * 100.0);
    found.verdict("saving", least > -NEAR / 2.0, ours);
    Ok(())
}
