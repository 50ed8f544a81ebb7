//! Bytes leave while the only thread of the program computes.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use chunkcomm::{Address, Node};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
use tokio::runtime::Builder;

use super::{Outcome, compute, node};

const LEN: usize = 4_000_000;
/// The elements whose landing is told.
const FIRST: usize = 100_000;
/// Longest wait on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(120);

/// Receives a delta on a thread of its own; tells its address, and when the first elements have landed.
fn receive(tells: &Sender<Option<Address>>) -> Outcome {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let right = node("right").await;
        tells.send(Some(right.addresses()[0].clone()))?;
        let mut delta = DeltaReceiver::accept(&right, "delta", vec![0_u32; LEN]).await?;
        delta.wait(..FIRST).await?;
        tells.send(None)?;
        delta.finish().await?;
        Ok(right.close(SOON).await?)
    })
}

/// Starts the receiver; returns a sender to it on `left`, and the words of [`receive`].
async fn open(left: &Node) -> (DeltaSender<u32>, Receiver<Option<Address>>) {
    let (tells, told) = mpsc::channel();
    thread::spawn(move || receive(&tells).unwrap());
    let address = told.recv_timeout(SOON).unwrap().expect("the address comes first");
    let peer = left.connect(&address).await.unwrap();
    let increment = Increment::Fixed(20_000);
    (DeltaSender::open(left, &peer, "delta", vec![0; LEN], increment).await.unwrap(), told)
}

#[tokio::test]
async fn commits_let_a_computing_thread_send() -> Outcome {
    let (mut sender, first) = open(&node("left").await).await;
    let (mut start, mut landed, begun) = (0, false, Instant::now());
    // Most elements are left until the first have landed.
    while let Some(mut chunk) = sender.next(if start > FIRST && !landed { 5 } else { 5000 })? {
        compute(1, start, &mut chunk);
        start = chunk.range().end;
        chunk.commit().await?;
        if start > FIRST && !landed {
            // This thread computes: nothing else runs on it.
            thread::sleep(Duration::from_millis(1));
            landed = first.try_recv().is_ok();
            assert!(begun.elapsed() < SOON, "nothing left before the end");
        }
    }
    assert!(landed);
    sender.finish().await?;
    Ok(())
}

#[tokio::test]
async fn a_node_with_a_thread_of_its_own_sends_while_the_runtime_is_blocked() -> Outcome {
    let left = Node::builder().name("left").io_thread().build().await?;
    let (mut sender, first) = open(&left).await;
    let mut part = sender.part(..FIRST)?;
    compute(1, 0, &mut part);
    part.commit();
    first.recv_timeout(SOON).expect("they have landed");
    sender.part(FIRST..)?.commit();
    sender.finish().await?;
    Ok(())
}
