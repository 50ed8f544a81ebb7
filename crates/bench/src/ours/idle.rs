//! Links that carry nothing.

use chunkcomm::{Node, Peer};
use tokio::runtime::Runtime;

use super::{far_node, linked_node};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::machine;
use crate::harness::near::Bench;
use crate::harness::protocol::{End, NodeKind, Order};

/// Open files of a process without its links.
const OTHER_FILES: u64 = 64;

/// Most open files that a link and its node take.
const FILES_PER_LINK: u64 = 4;

/// Nodes of the near end, each linked to the one node of the far end.
pub struct Links {
    bench: Bench,
    kind: NodeKind,
    address: String,
    links: Vec<(Node, Peer)>,
}

impl Links {
    /// Opens the far node, without links.
    ///
    /// # Errors
    /// If the node does not open, or the system does not allow the files of `count` links.
    pub fn open(mut bench: Bench, count: usize, kind: NodeKind) -> Result<Self, Failure> {
        allow_files(count)?;
        let end = End::Links { count, node: kind };
        let (_, address) = bench.open(end, |_, _, address| Ok(address.to_owned()))?;
        Ok(Self { bench, kind, address, links: Vec::new() })
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
}

/// Opens the far end: one node that listens.
///
/// # Errors
/// If the node does not open, or the system does not allow the files.
pub fn far(
    count: usize,
    node: NodeKind,
    mut opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    allow_files(count)?;
    Ok(Box::new(Far { _node: far_node(node, &mut opening, 0)? }))
}

impl FarEnd for Far {
    fn slice(&mut self, _runtime: &Runtime, _order: &Order) -> Result<Vec<u64>, Failure> {
        Err(Failure::broken("running a slice", "idle links carry none"))
    }
}
