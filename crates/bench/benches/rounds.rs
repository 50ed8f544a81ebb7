//! A further round of a standing delta against a plain message of the same bytes, in turns: both there
//! and acknowledged, over loopback TCP between two threads with a runtime each.
//!
//! `cargo bench --bench rounds`, with `-- --test` once for a look.

use std::error::Error;
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use chunkcomm::{Address, Node};
use chunkcomm_bench::stats::median;
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
use tokio::runtime::{Builder, Runtime};

type Outcome<R> = Result<R, Box<dyn Error + Send + Sync>>;

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Serves `count` rounds of each kind for each of `slices` slices.
async fn far(node: &Node, bytes: usize, slices: u32, count: u32) -> Outcome<()> {
    let (_, messages) = node.accept_duplex_bytes("messages").await?;
    let (mut replies, mut messages, _) = messages.split();
    let mut rounds = DeltaReceiver::accept(node, "rounds", vec![0_u8; bytes]).await?;
    let mut buffer = vec![0; bytes];
    for _ in 0..slices {
        for _ in 0..count {
            rounds.start().await?;
        }
        for _ in 0..count {
            let received = messages.recv_into(buffer).await?;
            buffer = received.ok_or("the near end is gone")?;
            replies.send_slice_now(&[1]).await?;
        }
    }
    rounds.finish().await?;
    // The near end ends first.
    while messages.recv().await?.is_some() {}
    Ok(())
}

/// Returns the microseconds of a round and of a message, for each slice.
async fn near(to: &Address, bytes: usize, slices: u32, count: u32) -> Outcome<Vec<[f64; 2]>> {
    let node = Node::builder().name("near").build().await?;
    let peer = node.connect(to).await?;
    let messages = node.open_duplex_bytes(&peer, "messages").await?;
    let (mut messages, mut replies, _) = messages.split();
    let buffer = vec![0_u8; bytes];
    let mut rounds =
        DeltaSender::open(&node, &peer, "rounds", buffer, Increment::default()).await?;
    let message = Bytes::from(vec![0_u8; bytes]);
    let each = |since: Instant| since.elapsed().as_secs_f64() * 1e6 / f64::from(count);
    let mut times = Vec::new();
    for _ in 0..slices {
        let since = Instant::now();
        for _ in 0..count {
            let mut all = rounds.part(..)?;
            all[0] = 1;
            all.commit();
            rounds.start().await?;
        }
        let round = each(since);
        let since = Instant::now();
        for _ in 0..count {
            messages.send_now(message.clone()).await?;
            replies.recv().await?.ok_or("the far end is gone")?;
        }
        times.push([round, each(since)]);
    }
    rounds.part(..)?.commit();
    rounds.finish().await?;
    Ok(times)
}

fn run(bytes: usize, slices: u32, count: u32) -> Outcome<Vec<[f64; 2]>> {
    let (runtime_far, runtime_near) = (runtime()?, runtime()?);
    let listen = "tcp://127.0.0.1:0".parse()?;
    let node = runtime_far.block_on(Node::builder().name("far").listen(listen).build())?;
    let address = node.addresses()[0].clone();
    let serving = thread::spawn(move || runtime_far.block_on(far(&node, bytes, slices, count)));
    let times = runtime_near.block_on(near(&address, bytes, slices, count))?;
    drop(runtime_near);
    // Its last words may be lost with the near end.
    let _ = serving.join();
    Ok(times)
}

fn main() -> Outcome<()> {
    let once = std::env::args().any(|argument| argument == "--test");
    let (slices, count) = if once { (1, 10) } else { (21, 2000) };
    for bytes in [4 * 1024, 64 * 1024, 1024 * 1024] {
        let count = if bytes > 100_000 { count / 10 } else { count };
        let times = run(bytes, slices, count)?;
        let column = |kind: usize| median(&times.iter().map(|it| it[kind]).collect::<Vec<_>>());
        let ratio = median(&times.iter().map(|it| it[0] / it[1]).collect::<Vec<_>>());
        println!(
            "{bytes:>8} bytes: round {:>8.1} us, message {:>8.1} us, ratio {ratio:.2}",
            column(0),
            column(1)
        );
    }
    Ok(())
}
