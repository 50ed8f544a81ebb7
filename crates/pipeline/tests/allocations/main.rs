//! Allocations of a further round of a standing request, counted by the program's allocator.

#![allow(clippy::unwrap_used)]

#[path = "../../../group/tests/clusters/mod.rs"]
mod clusters;
mod flows;
mod memory;

use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;

use chunkcomm::{Address, Node};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
use chunkcomm_testkit::counting::{ALLOCATIONS, Counting};
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Held by the test that counts.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const LEN: usize = 16 * 1024;
const ROUNDS: u64 = 100;

/// Most allocations of a whole round of 64 KiB at both ends and in both drivers: the handle of the
/// message's bytes, and those of the link.
const ROUND_ALLOCATIONS_MAX: u64 = 12;

fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Awaits `future` and returns the number of allocations in its polls. The runtime has one thread, so
/// that nothing else runs meanwhile.
async fn counted<R>(future: impl Future<Output = R>) -> (R, u64) {
    let mut future = pin!(future);
    let mut count = 0;
    let result = poll_fn(|context| {
        let before = allocations();
        let polled = future.as_mut().poll(context);
        count += allocations() - before;
        polled
    });
    (result.await, count)
}

async fn fill(sender: &mut DeltaSender<u32>) -> Result<(), Box<dyn Error>> {
    let round = sender.round();
    let mut chunk = sender.next(LEN)?.ok_or("all is free")?;
    chunk.fill(round);
    chunk.commit().await?;
    Ok(sender.finish().await?)
}

#[tokio::test]
async fn starting_a_further_round_allocates_nothing() -> Result<(), Box<dyn Error>> {
    let _alone = ALONE.lock().await;
    let address = "tcp://127.0.0.1:0".parse::<Address>()?;
    let near = Node::builder().name("near").listen(address).build().await?;
    let far = Node::builder().name("far").build().await?;
    let peer = far.connect(&near.addresses()[0]).await?;
    let increment = Increment::default();
    let mut sender = DeltaSender::open(&far, &peer, "rounds", vec![0; LEN], increment).await?;
    let mut receiver = DeltaReceiver::accept(&near, "rounds", vec![0_u32; LEN]).await?;
    let (mut first, mut starts) = (0, 0);
    for round in 1..=2 * ROUNDS {
        if round == ROUNDS {
            first = allocations();
        }
        let (sent, landed) = tokio::join!(fill(&mut sender), receiver.finish());
        sent?;
        assert!(landed?.iter().all(|element| u64::from(*element) == round));
        let (there, here) = tokio::join!(counted(sender.start()), counted(receiver.start()));
        there.0?;
        here.0?;
        if round >= ROUNDS {
            starts += there.1 + here.1;
        }
    }
    let each = (allocations() - first) as f64 / (ROUNDS + 1) as f64;
    println!("{starts} allocations in {ROUNDS} starts at both ends, {each:.2} a whole round");
    assert_eq!(starts, 0);
    assert!(each <= ROUND_ALLOCATIONS_MAX as f64, "{each} allocations a round");
    Ok(())
}
