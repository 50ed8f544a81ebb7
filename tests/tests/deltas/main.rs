//! Deltas in any order, in rounds and to their ends, and whole patterns of nodes, over loopback TCP;
//! the nodes in one process.
#![allow(clippy::unwrap_used)]

#[path = "../../../crates/group/tests/clusters/mod.rs"]
mod clusters;
mod ends;
mod flows;
mod groups;
mod overlap;
mod parts;
mod patterns;
mod region;
mod rounds;
mod streams;

use std::error::Error;
use std::ops::Range;

use chunkcomm::{Address, Node, Peer};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
use chunkcomm_testkit::limited;

type Outcome = Result<(), Box<dyn Error>>;

async fn node(name: &str) -> Node {
    let address = "tcp://127.0.0.1:0".parse::<Address>().unwrap();
    Node::builder().name(name).listen(address).build().await.unwrap()
}

async fn link(from: &Node, to: &Node) -> Peer {
    from.connect(&to.addresses()[0]).await.unwrap()
}

/// Two nodes and the second as the first one's peer.
struct Pair {
    left: Node,
    right: Node,
    peer: Peer,
}

impl Pair {
    async fn new() -> Self {
        let (left, right) = (node("left").await, node("right").await);
        let peer = link(&left, &right).await;
        Self { left, right, peer }
    }

    /// Opens a delta of `len` elements at both ends.
    async fn delta(
        &self,
        len: usize,
        increment: Increment,
    ) -> (DeltaSender<u32>, DeltaReceiver<u32>) {
        let sender = DeltaSender::open(&self.left, &self.peer, "delta", vec![0; len], increment);
        let sender = limited(sender).await.unwrap();
        let receiver = limited(DeltaReceiver::accept(&self.right, "delta", vec![7; len])).await;
        (sender, receiver.unwrap())
    }
}

/// The element with this index in a round.
fn value(round: u32, index: usize) -> u32 {
    (index as u32).wrapping_add(round << 20).wrapping_mul(2_654_435_761).rotate_left(7)
}

fn values(round: u32, range: Range<usize>) -> Vec<u32> {
    range.map(|index| value(round, index)).collect()
}

/// Computes elements that begin with index `start`.
fn compute(round: u32, start: usize, elements: &mut [u32]) {
    for (index, element) in (start..).zip(elements) {
        *element = value(round, index);
    }
}

/// Computes the next elements of a round, `count` at most, and commits them.
async fn commit(round: u32, sender: &mut DeltaSender<u32>, count: usize) -> Outcome {
    let mut chunk = sender.next(count)?.ok_or("all elements are committed")?;
    compute(round, chunk.range().start, &mut chunk);
    Ok(chunk.commit().await?)
}
