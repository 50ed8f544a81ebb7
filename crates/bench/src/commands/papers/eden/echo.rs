//! `echo`: a list goes to a process that sends it back (section 4.2, figure 5).

use std::time::Duration;

use chunkcomm::host::Instant;

use super::pool::{BUFFER_BYTES, Costs, Pool, Sending, Sent, item};
use crate::commands::papers::{Curves, Found, Scene};
use crate::failure::Failure;
use crate::table::{Row, column, significant};

/// Words of the items of figure 5.
const WORDS: [usize; 12] = [1, 10, 50, 100, 150, 200, 250, 300, 350, 400, 600, 1000];

/// Time-outs beside the usual one.
const TIME_OUTS_MS: [u64; 3] = [5, 20, 80];

/// Effect of the time-out that counts as none.
const NO_EFFECT: f64 = 0.03;

/// An echo of a list.
#[derive(Debug, Clone, Copy)]
struct Echoed {
    seconds: f64,
    /// By the caller.
    sent: Sent,
}

/// Sends items there and back; the process computes for this many microseconds on each.
fn echo(
    pool: &Pool,
    sending: Sending,
    items: usize,
    words: usize,
    compute_us: f64,
) -> Result<Echoed, Failure> {
    let mut results = pool.run(2, sending, |pe| async move {
        if pe.rank == 1 {
            let (peer, mut from) = pe.accept("there").await?;
            let mut back = [pe.open_to(&peer, "back").await?];
            while let Some(item) = pe.take(&mut from, &mut back).await? {
                pe.work(compute_us).await;
                pe.send(&mut back[0], &item).await?;
            }
            return Ok(None);
        }
        let mut there = pe.open(1, "there").await?;
        let (peer, mut back) = pe.accept("back").await?;
        let (begun, before) = (Instant::now(), Sent::to(&peer));
        let sending = async {
            for number in 0..items {
                pe.send(&mut there, &item(number, words)).await?;
            }
            drop(there);
            Ok::<_, Failure>(())
        };
        let taking = async {
            for number in 0..items {
                let same = pe.take(&mut back, &mut []).await?;
                if same.is_none_or(|same| same[..] != item(number, words)[..]) {
                    return Err(Failure::wrong_message(number as u64));
                }
            }
            Ok(begun.elapsed().as_secs_f64())
        };
        let ((), seconds) = tokio::try_join!(sending, taking)?;
        Ok(Some(Echoed { seconds, sent: Sent::to(&peer).since(before) }))
    })?;
    Ok(results.swap_remove(0).expect("rank 0 has it"))
}

/// Returns the words at which the ratios of both times cross 1, between the sizes that were run.
fn crossover(ratios: &[(f64, f64)]) -> Option<f64> {
    let crossing = ratios.windows(2).find(|pair| pair[0].1 > 1.0 && pair[1].1 <= 1.0)?;
    let [(x0, y0), (x1, y1)] = [crossing[0], crossing[1]];
    Some(x0 + (x1 - x0) * (y0 - 1.0) / (y0 - y1))
}

/// Decides the statements about the echo.
///
/// # Errors
/// If an echo fails.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let pool = Pool::of(scene)?;
    let items = scene.numbers("pool")[1] as usize / scene.sized(1, 100);
    let (mut rows, mut runs) = (Vec::new(), Vec::new());
    for words in WORDS {
        let plain = echo(&pool, Sending::Plain, items, words, 0.0)?;
        let gathered = echo(&pool, Sending::USUAL, items, words, 0.0)?;
        let ratio = plain.seconds / gathered.seconds;
        let mut row = Row::default();
        row.set("words", words)
            .set("plain_seconds", plain.seconds)
            .set("gathered_seconds", gathered.seconds)
            .set("gain", ratio)
            .set("plain_packets", plain.sent.packets)
            .set("plain_all", plain.sent.all_packets)
            .set("gathered_packets", gathered.sent.packets)
            .set("gathered_all", gathered.sent.all_packets);
        rows.push(row);
        runs.push((words as f64, plain, gathered, ratio));
    }
    let columns = [
        column("words", "words", 5),
        column("plain_seconds", "plain s", 8),
        column("gathered_seconds", "gathered s", 8),
        column("gain", "gain", 6),
        column("plain_packets", "packets", 7),
        column("plain_all", "all", 7),
        column("gathered_packets", "gathered", 7),
        column("gathered_all", "all", 7),
    ];
    found.table("echo, figure 5", &columns, rows);
    let line = |of: fn(&Echoed) -> f64, gathered: bool| -> Vec<(f64, f64)> {
        runs.iter().map(|it| (it.0, of(if gathered { &it.2 } else { &it.1 }))).collect()
    };
    found.curves(Curves {
        name: "echo",
        title: format!("Echo of {items} items (figure 5)"),
        x: ("words", false),
        y: ("s", false),
        lines: vec![
            ("each at once".to_owned(), line(|it| it.seconds, false)),
            ("gathered".to_owned(), line(|it| it.seconds, true)),
        ],
    });
    let (first, last) = (&runs[0], &runs[runs.len() - 1]);
    let packets = first.1.sent.packets / first.2.sent.packets;
    found.verdict("fewer-packets", packets > 10.0, format!("{} times fewer", significant(packets)));
    found.verdict("small-items-gain", first.3 > 1.5, format!("1 word: {:.2} times", first.3));
    let slower = 1.0 / last.3 - 1.0;
    let ours = format!("1000 words: {:+.0} %", slower * 100.0);
    found.verdict("large-items-lose", (0.02..1.0).contains(&slower), ours);
    let ratios: Vec<_> = runs.iter().map(|it| (it.0, it.3)).collect();
    let usual = crossover(&ratios);
    let paper = scene.numbers("crossover")[0];
    let near = usual.is_some_and(|words| (paper / 1.25..paper * 1.25).contains(&words));
    found.verdict("crossover", near, told(usual));
    if let Some(words) = usual {
        found.figure("eden_crossover_words", words);
    }
    moves(scene, found, &pool, usual)?;
    let mut times = Vec::new();
    for ms in TIME_OUTS_MS {
        let time_out = Duration::from_millis(ms);
        let sending = Sending::Gathered { buffer_bytes: BUFFER_BYTES, time_out };
        times.push(echo(&pool, sending, items, 1, 0.0)?.seconds);
    }
    let most = times.iter().copied().fold(0.0, f64::max);
    let spread = most / times.iter().copied().fold(f64::INFINITY, f64::min) - 1.0;
    let ours = format!("{:.1} % apart", spread * 100.0);
    found.verdict("echo-ignores-time-out", spread < NO_EFFECT, ours);
    Ok(())
}

fn told(words: Option<f64>) -> String {
    words.map_or_else(|| "none".to_owned(), |words| format!("{words:.0} words"))
}

/// Looks for the crossover of other machines, another network, and a process that computes.
fn moves(
    scene: &Scene<'_>,
    found: &mut Found,
    pool: &Pool,
    usual: Option<f64>,
) -> Result<(), Failure> {
    let machines = Costs { lambda: pool.costs.lambda / 2.0, ..pool.costs };
    let kinds = [
        ("half of lambda", pool.clone().with_costs(machines), 0.0),
        ("a tenth of the network", pool.clone().with_network(0.1), 0.0),
        ("1 ms computed an item", pool.clone(), 1000.0),
    ];
    let (mut rows, mut others) = (Vec::new(), Vec::new());
    for (kind, pool, compute_us) in kinds {
        let mut ratios = Vec::new();
        for words in WORDS {
            let items = scene.sized(2000, 100);
            let plain = echo(&pool, Sending::Plain, items, words, compute_us)?;
            let gathered = echo(&pool, Sending::USUAL, items, words, compute_us)?;
            ratios.push((words as f64, plain.seconds / gathered.seconds));
        }
        let words = crossover(&ratios);
        let mut row = Row::default();
        row.set("kind", kind)
            .set("one_word", ratios[0].1)
            .set("thousand_words", ratios[ratios.len() - 1].1)
            .set("crossover_words", words);
        rows.push(row);
        others.push(words);
    }
    let columns = [
        column("kind", "other", 22),
        column("one_word", "gain, 1 word", 8),
        column("thousand_words", "1000 words", 8),
        column("crossover_words", "crossover", 8),
    ];
    found.table("echo elsewhere", &columns, rows);
    let moved = |words: &Option<f64>| match (words, usual) {
        (Some(words), Some(usual)) => (words / usual - 1.0).abs() > 0.1,
        (words, usual) => words.is_some() != usual.is_some(),
    };
    let ours =
        others.iter().map(|it| it.map_or_else(|| "none".to_owned(), |it| format!("{it:.0}")));
    let ours = ours.collect::<Vec<_>>().join(", ");
    found.verdict("crossover-moves", others.iter().all(moved), format!("{ours} words"));
    Ok(())
}
