//! A chain of nodes that each compute on every element of an array, over deltas.

use chunkcomm::Node;
use chunkcomm_coupled::patterns::{Chain, serve};
use tokio::runtime::Runtime;

use super::{address, listening_node};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::near::Bench;
use crate::harness::protocol::{End, NodeKind, Order};

/// The first node of a chain whose others are the far ends of a bench.
pub struct Head {
    /// The chain.
    pub chain: Chain,
    /// Holds its links open.
    _node: Node,
}

impl Head {
    /// Gathers the chain: one node at the near end, one at each far end.
    ///
    /// # Errors
    /// If a node does not join.
    pub fn open(bench: &mut Bench, nodes: usize, kind: NodeKind) -> Result<Self, Failure> {
        let (node, head) = bench.runtime.block_on(listening_node(kind, &bench.place, 0))?;
        for index in 1..nodes {
            let end = End::ChainNode { head: head.clone(), index, node: kind };
            bench.open_at(index - 1, end, |_, _, _| Ok(()))?;
        }
        let chain = bench.runtime.block_on(Chain::gather(&node, nodes));
        Ok(Self { chain: chain.doing("gathering the chain")?, _node: node })
    }
}

struct Far {
    _node: Node,
}

/// Opens a node of the chain that is not its first: it takes part until the chain ends.
///
/// # Errors
/// If the first node is not reached.
pub fn far(
    head: &str,
    index: usize,
    kind: NodeKind,
    mut opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    let runtime = opening.runtime;
    let (node, own) = runtime.block_on(listening_node(kind, opening.place, 0))?;
    let peer = runtime.block_on(node.connect(&address(head)?)).doing("connecting to the head")?;
    opening.announce(own)?;
    let serving = node.clone();
    runtime.spawn(async move {
        // A failure reaches the head, whose run ends with it.
        let _ = serve(&serving, &peer, index).await;
    });
    Ok(Box::new(Far { _node: node }))
}

impl FarEnd for Far {
    fn slice(&mut self, _runtime: &Runtime, _order: &Order) -> Result<Vec<u64>, Failure> {
        Err(Failure::broken("running a slice", "a chain is run by its head"))
    }
}
