//! Format of a chain of waits, as it travels and as it is kept.
//!
//! ```text
//! hop    node u64 | channel u32 | position u64 | u8, the node's name | u8, the channel's name
//! chain  1 to 16 hops: each waits for the next one, the last one for the node that gets it
//! ```

use crate::plain::cut;

/// Most hops of a chain: a longer cycle is not found.
pub const HOPS_MAX: usize = 16;

/// Most bytes of a name, which is cut there.
pub const HOP_NAME_BYTES_MAX: usize = 32;

/// Bytes of a hop beside its names.
const HOP_BYTES: usize = 8 + 4 + 8 + 1 + 1;

/// Longest chain in bytes.
pub const CHAIN_BYTES_MAX: usize = HOPS_MAX * (HOP_BYTES + 2 * HOP_NAME_BYTES_MAX);

/// A node that waits for credit of a channel to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop<'a> {
    /// The node: the lower half of its incarnation.
    pub node: u64,
    /// The node's number of the channel.
    pub channel: u32,
    /// Bytes that the node has sent on the channel: the same as long as it waits.
    pub position: u64,
    /// The node's name, cut.
    pub node_name: &'a str,
    /// The channel's name, cut.
    pub channel_name: &'a str,
}

impl Hop<'_> {
    /// Appends the hop to `chain`.
    pub fn append_to(&self, chain: &mut Vec<u8>) {
        chain.extend_from_slice(&self.node.to_le_bytes());
        chain.extend_from_slice(&self.channel.to_le_bytes());
        chain.extend_from_slice(&self.position.to_le_bytes());
        for name in [self.node_name, self.channel_name] {
            let name = cut(name, HOP_NAME_BYTES_MAX);
            chain.push(name.len() as u8);
            chain.extend_from_slice(name.as_bytes());
        }
    }
}

/// Returns the hops of `chain` up to its end, or to the first malformed one.
pub fn hops(chain: &[u8]) -> impl Iterator<Item = Hop<'_>> {
    let mut rest = chain;
    std::iter::from_fn(move || take_hop(&mut rest))
}

/// Whether `bytes` are a chain: 1 to `HOPS_MAX` hops and nothing behind them.
#[must_use]
pub fn is_chain(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut count = 0;
    while count < HOPS_MAX && take_hop(&mut rest).is_some() {
        count += 1;
    }
    count > 0 && rest.is_empty()
}

fn take_hop<'a>(rest: &mut &'a [u8]) -> Option<Hop<'a>> {
    let mut at = *rest;
    let hop = Hop {
        node: u64::from_le_bytes(take(&mut at)?),
        channel: u32::from_le_bytes(take(&mut at)?),
        position: u64::from_le_bytes(take(&mut at)?),
        node_name: take_name(&mut at)?,
        channel_name: take_name(&mut at)?,
    };
    *rest = at;
    Some(hop)
}

fn take<const BYTES: usize>(rest: &mut &[u8]) -> Option<[u8; BYTES]> {
    let (bytes, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*bytes)
}

fn take_name<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let bytes = usize::from(u8::from_le_bytes(take(rest)?));
    if bytes > HOP_NAME_BYTES_MAX {
        return None;
    }
    let (name, behind) = rest.split_at_checked(bytes)?;
    *rest = behind;
    std::str::from_utf8(name).ok()
}
