//! Links that carry nothing, or carried a feed before.

use std::time::Duration;

use chunkcomm::feed::{Feed, Subscription};
use chunkcomm::{Address, Node, Peer, feed};
use tokio::runtime::Runtime;

use super::{ended, far_node, linked_node};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::machine;
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, NodeKind, Order};

/// Open files of a process without its links.
const OTHER_FILES: u64 = 64;

/// Most open files that a link and its node take.
const FILES_PER_LINK: u64 = 4;

/// Name and backlog of the feed.
const FEED: &str = "fed";
const BACKLOG_BYTES: u64 = 256 * 1024;

/// Encoded bytes of its messages, about.
const FED_BYTES: usize = 1000;

/// Messages behind which the feed pauses for 10 ms: most readers keep up.
const PAUSE_EVERY: u64 = 100;

/// Nodes of the near end, each linked to the one node of the far end.
pub struct Links {
    bench: Bench,
    kind: NodeKind,
    address: String,
    links: Vec<(Node, Peer)>,
    end: EndId,
    stopped: Vec<Subscription<Vec<u8>>>,
}

impl Links {
    /// Opens the far node, without links.
    ///
    /// # Errors
    /// If the node does not open, or the system does not allow the files of `count` links.
    pub fn open(
        mut bench: Bench,
        count: usize,
        feeds: bool,
        kind: NodeKind,
    ) -> Result<Self, Failure> {
        allow_files(count)?;
        let end = End::Links { count, feeds, node: kind };
        let (end, address) = bench.open(end, |_, _, address| Ok(address.to_owned()))?;
        Ok(Self { bench, kind, address, links: Vec::new(), end, stopped: Vec::new() })
    }

    /// Links `count` further nodes.
    ///
    /// # Errors
    /// If a node cannot connect.
    pub fn add(&mut self, count: usize) -> Result<(), Failure> {
        self.links.reserve(count);
        for _ in 0..count {
            let link = linked_node(self.kind, &self.bench.place, 0, &self.address);
            self.links.push(self.bench.runtime.block_on(link)?);
        }
        Ok(())
    }

    /// Subscribes at the last `count` links, of which `stopped` read nothing, and lets the far node feed
    /// them about `bytes`.
    ///
    /// # Errors
    /// If a node cannot subscribe, or the feed fails.
    pub fn feed(&mut self, bytes: usize, count: usize, stopped: usize) -> Result<(), Failure> {
        let address = self.address.parse::<Address>().doing("reading the far node's address")?;
        let mut reading = Vec::new();
        for (number, (node, _)) in self.links.iter().rev().take(count).enumerate() {
            let subscribed = self.bench.runtime.block_on(node.subscribe(FEED, &address));
            let mut subscription = subscribed.doing("subscribing")?;
            if number < stopped {
                self.stopped.push(subscription);
                continue;
            }
            reading.push(self.bench.runtime.spawn(async move {
                while let Ok(Some(message)) = subscription.recv().await {
                    drop::<Vec<u8>>(message);
                }
            }));
        }
        let messages = (bytes / FED_BYTES) as u64;
        let order = Order { first: 0, messages, mark_every: 0 };
        self.bench.begin(self.end, &order)?;
        self.bench.finish(self.end)?;
        if reading.iter().any(tokio::task::JoinHandle::is_finished) {
            return Err(ended());
        }
        Ok(())
    }

    /// Returns the bench of the two processes.
    pub fn bench(&mut self) -> &mut Bench {
        &mut self.bench
    }
}

fn allow_files(links: usize) -> Result<(), Failure> {
    machine::allow_open_files(links as u64 * FILES_PER_LINK + OTHER_FILES)
        .doing(&format!("allowing open files for {links} links"))
}

struct Far {
    _node: Node,
    feed: Option<Feed<Vec<u8>>>,
}

/// Opens the far end: one node that listens.
///
/// # Errors
/// If the node does not open, or the system does not allow the files.
pub fn far(
    count: usize,
    feeds: bool,
    node: NodeKind,
    mut opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    allow_files(count)?;
    let node = far_node(node, &mut opening, 0)?;
    let options = || feed(FEED).backlog(BACKLOG_BYTES).skip();
    let feed = feeds.then(|| node.feed(options()).doing("making a feed")).transpose()?;
    Ok(Box::new(Far { _node: node, feed }))
}

impl FarEnd for Far {
    fn slice(&mut self, runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        let Some(feed) = &mut self.feed else {
            return Err(Failure::broken("running a slice", "idle links carry none"));
        };
        runtime.block_on(async {
            for number in 0..order.messages {
                feed.send(&vec![number as u8; FED_BYTES]).await.doing("feeding")?;
                if number.is_multiple_of(PAUSE_EVERY) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            Ok(Vec::new())
        })
    }
}
