//! Behaviour of the protocol, by counters and results of small runs (section 3.2).

use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm::stats::{FlushCounts, FlushReason};
use chunkcomm::{Address, BytesReceiver, BytesSender, Node, SelectAll};

use super::maps::{Map, Picture};
use super::pool::{BUFFER_BYTES, Pe, Pool, Sending, Sent, TIME_OUT, item, word};
use super::sorting::{Sorting, Way};
use crate::commands::papers::{Found, Scene};
use crate::failure::{Doing, Failure};
use crate::table::significant;

/// A time-out that does not come: nothing leaves but full or urgent packets.
const NEVER: Duration = Duration::from_secs(3600);

/// Time after which two elements count as blocked.
const BLOCKED: Duration = Duration::from_secs(10);

/// Channels between two elements.
const CHANNELS: usize = 8;

/// Decides the statements about the protocol.
///
/// # Errors
/// If a run fails.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let pool = &Pool::of(scene)?;
    let count = scene.sized(1000, 50);
    let (same, results) = same_results(scene, pool)?;
    found.verdict("same-results", same, format!("{results} results alike"));
    let seen = reasons(pool)?;
    found.verdict("reasons", seen.len() == 5, seen.join(", "));
    let [urgent, waiting] = [exchange(pool, true, count)?, exchange(pool, false, count)?];
    let ours = format!("values: {} times slower", significant((waiting / urgent).round()));
    found.verdict("waiting-slows", waiting > 1.1 * urgent, ours);
    let never = Sending::Gathered { buffer_bytes: BUFFER_BYTES, time_out: NEVER };
    let [without, with] = [both_wait(pool, never)?, both_wait(pool, Sending::Own)?];
    let ours = if without && !with { "blocked; not when idle" } else { "not so" };
    found.verdict("idle-prevents-deadlock", without && !with, ours);
    let [bytes, packets] = large(pool)?;
    let ours = format!("{bytes} B, {packets} packets");
    found.verdict("largest-message", bytes <= BUFFER_BYTES as f64, ours);
    let [one, each] = [gathered(pool, true, count)?, gathered(pool, false, count)?];
    let ours = format!("{each:.1} a packet against {one:.1}");
    found.verdict("buffer-per-channel", each < 0.9 * one, ours);
    let shares = fair(pool, count)?;
    let [least, most] = [shares.iter().min(), shares.iter().max()].map(|it| *it.unwrap_or(&0));
    let ours = format!("{least} to {most} items each");
    found.verdict("fair-receiving", most as f64 <= 1.1 * least as f64, ours);
    let [plain, gathered] =
        [demand(pool, Sending::Plain, count)?, demand(pool, Sending::USUAL, count)?];
    let ours = format!("{:.2} times slower", gathered / plain);
    found.verdict("on-demand", gathered > 1.05 * plain, ours);
    let tried = scene.sized(100_000, 1_000);
    let accepted = eager(pool, tried)?;
    let ours = format!("stopped after {accepted} messages");
    found.verdict("eager-unlimited", accepted == tried, ours);
    Ok(())
}

/// Decides whether the transport matters to the layers above, on this machine.
///
/// # Errors
/// If a run fails.
pub(super) fn layers(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let same = any_middleware(&Pool::of(scene)?, scene.sized(1000, 50))?;
    let ours = if same { "virtual, memory, TCP: one result" } else { "results differ" };
    found.verdict("any-middleware", same, ours);
    Ok(())
}

/// Whether all programs have the same results, however they send; and the number of results.
fn same_results(scene: &Scene<'_>, pool: &Pool) -> Result<(bool, usize), Failure> {
    let (mut same, mut sorted, mut maps) = (true, Vec::new(), Vec::new());
    for sending in [Sending::Plain, Sending::USUAL, Sending::Own] {
        for way in [Way::Single, Way::Input(10), Way::Both(10)] {
            let usual = Sorting::usual(scene, sending);
            let numbers = scene.sized(1000, 200);
            sorted.push(Sorting { way, numbers, ..usual }.run(pool)?.numbers);
        }
        maps.push(
            Map { side: scene.sized(30, 10), ..Map::usual(scene, Picture::Mandelbrot, sending) }
                .run(pool)?
                .results,
        );
    }
    same &= sorted.iter().all(|it| *it == sorted[0]) && sorted[0].is_sorted();
    same &= maps.iter().all(|it| *it == maps[0]);
    Ok((same, sorted.len() * sorted[0].len() + maps.len() * maps[0].len()))
}

/// Returns those of the paper's five reasons for which packets left.
fn reasons(pool: &Pool) -> Result<Vec<&'static str>, Failure> {
    let mut seen = Vec::new();
    for sending in [Sending::USUAL, Sending::Own] {
        let counts = pool.run(2, sending, |pe| async move {
            if pe.rank == 1 {
                let mut all = SelectAll::new();
                for name in ["items", "more"] {
                    all.add(pe.accept(name).await?.1);
                }
                take_all(&mut all).await?;
                return Ok(FlushCounts::default());
            }
            let (mut to, mut more) = (pe.open(1, "items").await?, pe.open(1, "more").await?);
            pe.send_now(&mut to, &item(1, 1)).await?;
            // One that waits for longer than the time-out, or leaves when idle.
            pe.send(&mut to, &item(2, 1)).await?;
            host::sleep(2 * TIME_OUT).await;
            // Two that leave less room in a packet than another needs, then more than it holds.
            to.send_slice(&item(3, 950)).await.doing("sending an item")?;
            more.send_slice(&item(3, 55)).await.doing("sending an item")?;
            host::sleep(2 * TIME_OUT).await;
            for _ in 0..5000 {
                to.send_slice(&item(3, 1)).await.doing("sending an item")?;
                more.send_slice(&item(3, 1)).await.doing("sending an item")?;
            }
            to.sync().await.doing("ending a stream")?;
            Ok(to.peer().stats().flushes)
        })?;
        seen.push(counts[0]);
    }
    use FlushReason::{Fit, Full, Idle, Old, Urgent};
    let all = [Urgent, Fit, Full, Old, Idle].into_iter();
    Ok(all
        .filter(|it| seen.iter().any(|counts| counts.get(*it) > 0))
        .map(FlushReason::name)
        .collect())
}

async fn take_all(all: &mut SelectAll<BytesReceiver>) -> Result<(), Failure> {
    while all.recv().await.map_err(|(_, error)| error).doing("taking an item")?.is_some() {}
    Ok(())
}

/// Exchanges single values between elements that have other threads to run; returns the seconds.
fn exchange(pool: &Pool, urgent: bool, values: usize) -> Result<f64, Failure> {
    let seconds = pool.run(2, Sending::USUAL, |pe| async move {
        let other = 1 - pe.rank;
        let mut to = pe.open(other, "values").await?;
        let (_, mut from) = pe.accept("values").await?;
        let begun = Instant::now();
        for number in 0..values {
            // Of two turns of an exchange each has one.
            if pe.rank == 0 || number > 0 {
                send(&pe, &mut to, urgent).await?;
            }
            if pe.rank == 1 || number + 1 < values {
                pe.take(&mut from, &mut []).await?;
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    })?;
    Ok(seconds[0])
}

async fn send(pe: &Pe, to: &mut BytesSender, urgent: bool) -> Result<(), Failure> {
    if urgent { pe.send_now(to, &item(0, 1)).await } else { pe.send(to, &item(0, 1)).await }
}

/// Whether two elements block that each hold a message for the other.
fn both_wait(pool: &Pool, sending: Sending) -> Result<bool, Failure> {
    let blocked = pool.run(2, sending, |pe| async move {
        let mut to = pe.open(1 - pe.rank, "values").await?;
        let (_, mut from) = pe.accept("values").await?;
        pe.send(&mut to, &item(0, 1)).await?;
        // Nothing leaves because of the wait.
        Ok(host::timeout(BLOCKED, pe.take(&mut from, &mut [])).await.is_err())
    })?;
    Ok(blocked.into_iter().all(|it| it))
}

/// Sends one message that is larger than a buffer; returns its bytes and its packets.
fn large(pool: &Pool) -> Result<[f64; 2], Failure> {
    let sizes = pool.run(2, Sending::USUAL, |pe| async move {
        if pe.rank == 1 {
            let (_, mut from) = pe.accept("large").await?;
            let item = pe.take(&mut from, &mut []).await?;
            return Ok([item.map_or(0, |item| item.len()) as f64, 0.0]);
        }
        let mut to = pe.open(1, "large").await?;
        to.sync().await.doing("opening a stream")?;
        let before = Sent::to(to.peer());
        pe.send(&mut to, &item(0, 8 * BUFFER_BYTES)).await?;
        to.sync().await.doing("ending a stream")?;
        Ok([0.0, Sent::to(to.peer()).since(before).packets])
    })?;
    Ok([sizes[1][0], sizes[0][1]])
}

/// Sends items on several channels in turns, of one node or of a node each: so each has a buffer of its
/// own. Returns the messages of a packet.
fn gathered(pool: &Pool, one_node: bool, items: usize) -> Result<f64, Failure> {
    let packed = pool.run(2, Sending::USUAL, |pe| async move {
        if pe.rank == 1 {
            let mut all = SelectAll::new();
            for number in 0..CHANNELS {
                all.add(pe.accept(&format!("items {number}")).await?.1);
            }
            take_all(&mut all).await?;
            return Ok(0.0);
        }
        let (mut nodes, mut to) = (vec![pe.node.clone()], Vec::new());
        for number in 0..CHANNELS {
            if !one_node {
                nodes.push(pe.another_node().await?);
            }
            let peer = pe.peer(&nodes[nodes.len() - 1], 1).await?;
            to.push(pe.open_to(&peer, &format!("items {number}")).await?);
        }
        for number in 0..items {
            pe.work(500.0).await;
            pe.send(&mut to[number % CHANNELS], &item(number, 1)).await?;
        }
        let mut sum = Sent::default();
        for (number, stream) in to.iter_mut().enumerate() {
            stream.sync().await.doing("ending a stream")?;
            if number == 0 || !one_node {
                sum = sum.plus(Sent::to(stream.peer()));
            }
        }
        Ok(sum.messages / sum.packets)
    })?;
    Ok(packed[0])
}

/// Takes items of three elements that send all they can, one of them in larger items; returns the
/// numbers taken of each.
fn fair(pool: &Pool, items: usize) -> Result<Vec<usize>, Failure> {
    let mut taken = pool.run(4, Sending::USUAL, |pe| async move {
        let mut counts = vec![0; 3];
        if pe.rank == 0 {
            let mut all = SelectAll::new();
            for rank in 1..=3 {
                all.add(pe.accept(&format!("items {rank}")).await?.1);
            }
            for _ in 0..items {
                let taken = all.recv().await.map_err(|(_, error)| error).doing("taking an item")?;
                counts[taken.map_or(0, |(index, _)| index)] += 1;
                pe.work(200.0).await;
            }
            take_all(&mut all).await?;
            return Ok(counts);
        }
        let mut to = pe.open(0, &format!("items {}", pe.rank)).await?;
        for number in 0..items {
            pe.send(&mut to, &item(number, if pe.rank == 3 { 100 } else { 1 })).await?;
        }
        Ok(counts)
    })?;
    Ok(taken.swap_remove(0))
}

/// Whether a program of nodes has the same result in a simulation, through memory and over TCP.
fn any_middleware(pool: &Pool, items: usize) -> Result<bool, Failure> {
    let virtually = pool.run(1, Sending::Own, |pe| async move {
        let address = host::virtual_address(0).expect("it is a virtual host");
        summed(pe.another_node().await?, address, items).await
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing("starting a runtime")?;
    let mut really = Vec::new();
    for address in ["memory:eden-layers", "127.0.0.1:0"] {
        let address = address.parse().doing("reading an address")?;
        really.push(runtime.block_on(async {
            let client = Node::builder().quiet().build().await.doing("building a node")?;
            summed(client, address, items).await
        })?);
    }
    Ok(really.iter().all(|sum| *sum == virtually[0]))
}

/// Sends items from one node to another at this address; returns a sum that depends on their order.
async fn summed(client: Node, at: Address, items: usize) -> Result<u32, Failure> {
    let server = Node::builder().quiet().listen(at).build().await.doing("building a node")?;
    let peer = client.connect(&server.addresses()[0]).await.doing("reaching a node")?;
    let mut to = client.open_bytes(&peer, "items").await.doing("opening a stream")?;
    let (_, mut from) = server.accept_bytes("items").await.doing("taking a stream")?;
    let sending = async {
        for number in 0..items {
            to.send_slice(&item(number, 1)).await.doing("sending an item")?;
        }
        drop(to);
        Ok::<_, Failure>(())
    };
    let taking = async {
        let mut sum = 0_u32;
        while let Some(item) = from.recv().await.doing("taking an item")? {
            sum = sum.wrapping_mul(31).wrapping_add(word(&item));
        }
        Ok(sum)
    };
    Ok(tokio::try_join!(sending, taking)?.1)
}

/// Fetches values one after another from an element that waits for requests; returns the seconds.
fn demand(pool: &Pool, sending: Sending, fetches: usize) -> Result<f64, Failure> {
    let seconds = pool.run(2, sending, |pe| async move {
        if pe.rank == 1 {
            let (peer, mut asked) = pe.accept("asked").await?;
            let mut to = [pe.open_to(&peer, "fetched").await?];
            while let Some(request) = pe.take(&mut asked, &mut to).await? {
                pe.send(&mut to[0], &item(word(&request) as usize, 10)).await?;
            }
            return Ok(0.0);
        }
        let mut ask = [pe.open(1, "asked").await?];
        let (_, mut fetched) = pe.accept("fetched").await?;
        let begun = Instant::now();
        for number in 0..fetches {
            pe.send(&mut ask[0], &item(number, 1)).await?;
            pe.take(&mut fetched, &mut ask).await?;
        }
        Ok(begun.elapsed().as_secs_f64())
    })?;
    Ok(seconds[0])
}

/// Sends items of 100 words that nobody takes, until none is accepted for long; returns their number.
fn eager(pool: &Pool, items: usize) -> Result<usize, Failure> {
    let accepted = pool.run(2, Sending::Plain, |pe| async move {
        if pe.rank == 1 {
            let (_, from) = pe.accept("items").await?;
            let _closed = pe.accept("done").await?;
            drop(from);
            return Ok(0);
        }
        let mut to = pe.open(1, "items").await?;
        let mut accepted = 0;
        while accepted < items {
            let item = item(accepted, 100);
            match host::timeout(BLOCKED, pe.send(&mut to, &item)).await {
                Ok(sent) => sent?,
                Err(_) => break,
            }
            accepted += 1;
        }
        drop(pe.open(1, "done").await?);
        Ok(accepted)
    })?;
    Ok(accepted[0])
}
