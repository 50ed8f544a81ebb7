//! The first bytes on a connection: the identity of each end, and its limits.
//!
//! Both ends send one [`Hello`] of [`HELLO_BYTES`] at once, before they have read the other's.
//! They send nothing else until [`Hello::agree`] has found what both support. A hello has a
//! fixed size, so that a stranger gets nothing allocated.
//!
//! ```text
//!   0  magic 8 bytes
//!   8  version_min u16 | version_max u16 | codec u16 | host's lower half u16
//!  16  flags u32 | packet_bytes_max u32 | initial_window u32
//!  28  cluster's length u8 | node's length u8 | host's upper half u16
//!  32  incarnation u128
//!  48  message_bytes_max u64 | open_credit u64
//!  64  cluster 32 bytes | node 32 bytes
//! 128  nonce 32 bytes
//! 160  four layers, 8 bytes each: hash of the name u32 | oldest u16 | newest u16
//! ```
//!
//! All numbers are little-endian. Bytes without a meaning are sent as zero and not looked at,
//! and unknown flags are ignored, so that later versions can use them. The fields in the first
//! 12 bytes never move: they tell versions apart.
//!
//! A place of a layer whose hash is zero is empty. Only layers that start with the node are in
//! its hello.

mod error;
mod layers;
mod name;

pub use error::{Disagreement, HelloError};
pub use layers::{LAYERS_MAX, LayerRange, LayerVersion, layer_hash};
pub use name::{NAME_BYTES_MAX, Name};

use super::codec::CODEC_ID;

/// Size of a hello, in bytes.
pub const HELLO_BYTES: usize = 192;

/// Size of a nonce, in bytes.
pub const NONCE_BYTES: usize = 32;

/// The oldest version of the protocol that this code speaks.
///
/// The version covers the packets of a link. Each layer above has a range of its own
/// ([`Hello::layers`]). The two ends of a connection use the newest version that both speak. So a
/// release with the range 3 to 4 works with one with the range 2 to 3.
pub const VERSION_MIN: u16 = 1;

/// The newest version of the protocol that this code speaks.
pub const VERSION_MAX: u16 = 1;

/// Flag of an end that has a credential: both ends prove behind the hellos that they have the
/// same one. Either both ends set it or neither.
pub const FLAG_CREDENTIAL: u32 = 1;

/// Flag of an end that speaks TLS behind the hellos and proofs. Either both ends set it or
/// neither.
pub const FLAG_TLS: u32 = 2;

/// Flag of a node that is the only one of its name. Its peers take another incarnation of that name
/// for its successor. An end that lacks the flag is not concerned.
pub const FLAG_SOLE_NAME: u32 = 4;

/// Flag of an end that reads large messages from its peer's memory, and lets it read its own, where both are on
/// one host and the system allows it.
pub const FLAG_ONE_COPY: u32 = 8;

/// First bytes of a hello. No text, and no other protocol's first line, begins like this.
const MAGIC: [u8; 8] = *b"\x9cchunk\r\n";

const _: () = assert!(VERSION_MIN <= VERSION_MAX);

/// Identity, limits and abilities of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version of the protocol that the end speaks.
    pub version_min: u16,
    /// The newest version of the protocol that the end speaks.
    pub version_max: u16,
    /// Number of the end's codec, see [`CODEC_ID`].
    pub codec: u16,
    /// The end's cluster. Members of different clusters do not talk.
    pub cluster: Name,
    /// The node's name, for people.
    pub node: Name,
    /// A random number, drawn when the node started.
    pub incarnation: u128,
    /// The largest packet that the end takes, in bytes.
    pub packet_bytes_max: u32,
    /// The largest message that the end takes, in bytes.
    pub message_bytes_max: u64,
    /// The sum of the initial windows of the channels that may be opened to the end, in bytes.
    pub open_credit: u64,
    /// Bytes that may be sent to the end on a channel that was just opened.
    pub initial_window: u32,
    /// Abilities, a bit each; an ability that one end lacks is not used. On [`FLAG_CREDENTIAL`]
    /// and [`FLAG_TLS`] both ends must agree.
    pub flags: u32,
    /// Number of the end's host and network namespace, another for each incarnation, if it listens at a Unix
    /// socket for nodes of its host; else 0.
    pub host: u32,
    /// Random bytes, drawn anew for each connection.
    pub nonce: [u8; NONCE_BYTES],
    /// The layers that start with the end's node, and the versions of each. No hash stands twice,
    /// but for the 0 of an empty place.
    pub layers: [LayerRange; LAYERS_MAX],
}

/// Limits and abilities that both ends share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The newest version that both speak.
    pub version: u16,
    /// The largest packet that both take, in bytes.
    pub packet_bytes_max: u32,
    /// The largest message that both take, in bytes.
    pub message_bytes_max: u64,
    /// The abilities that both have.
    pub flags: u32,
    /// The newest common version of each layer that both hellos have, in the order of their
    /// hashes, behind empty places.
    pub layers: [LayerVersion; LAYERS_MAX],
}

impl Agreement {
    /// Returns the version of the layer with this hash; `None` when a hello lacks the layer.
    #[must_use]
    pub fn layer(&self, hash: u32) -> Option<u16> {
        let found = self.layers.iter().find(|it| it.hash != 0 && it.hash == hash);
        found.map(|it| it.version)
    }
}

impl Hello {
    /// Creates a hello with the versions and the codec of this code. The limits are 0; the
    /// caller sets them.
    #[must_use]
    pub fn new(cluster: Name, node: Name, incarnation: u128) -> Hello {
        Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            codec: CODEC_ID,
            cluster,
            node,
            incarnation,
            packet_bytes_max: 0,
            message_bytes_max: 0,
            open_credit: 0,
            initial_window: 0,
            flags: 0,
            host: 0,
            nonce: [0; NONCE_BYTES],
            layers: [LayerRange::default(); LAYERS_MAX],
        }
    }

    /// Whether the first bytes of a connection, however few, can be those of a hello. So
    /// another protocol can be turned away before it has sent [`HELLO_BYTES`].
    #[must_use]
    pub fn may_start_with(bytes: &[u8]) -> bool {
        bytes.iter().zip(&MAGIC).all(|(found, expected)| found == expected)
    }

    /// Returns the bytes of this hello.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        let mut rest = &mut bytes[..];
        put(&mut rest, MAGIC);
        put(&mut rest, self.version_min.to_le_bytes());
        put(&mut rest, self.version_max.to_le_bytes());
        put(&mut rest, self.codec.to_le_bytes());
        let [a, b, c, d] = self.host.to_le_bytes();
        put(&mut rest, [a, b]);
        put(&mut rest, self.flags.to_le_bytes());
        put(&mut rest, self.packet_bytes_max.to_le_bytes());
        put(&mut rest, self.initial_window.to_le_bytes());
        put(&mut rest, [self.cluster.len, self.node.len, c, d]);
        put(&mut rest, self.incarnation.to_le_bytes());
        put(&mut rest, self.message_bytes_max.to_le_bytes());
        put(&mut rest, self.open_credit.to_le_bytes());
        put(&mut rest, self.cluster.bytes);
        put(&mut rest, self.node.bytes);
        put(&mut rest, self.nonce);
        for layer in &self.layers {
            put(&mut rest, layer.hash.to_le_bytes());
            put(&mut rest, layer.oldest.to_le_bytes());
            put(&mut rest, layer.newest.to_le_bytes());
        }
        bytes
    }

    /// Reads a hello from its bytes.
    ///
    /// # Errors
    /// See [`HelloError`].
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, HelloError> {
        let mut rest = &bytes[..];
        let magic = take(&mut rest);
        if magic != MAGIC {
            return Err(HelloError::Magic { found: magic });
        }
        let version_min = u16::from_le_bytes(take(&mut rest));
        let version_max = u16::from_le_bytes(take(&mut rest));
        if version_min > version_max {
            return Err(HelloError::Versions { min: version_min, max: version_max });
        }
        let codec = u16::from_le_bytes(take(&mut rest));
        let [a, b] = take(&mut rest);
        let flags = u32::from_le_bytes(take(&mut rest));
        let packet_bytes_max = u32::from_le_bytes(take(&mut rest));
        let initial_window = u32::from_le_bytes(take(&mut rest));
        let [cluster_len, node_len, c, d] = take(&mut rest);
        Ok(Hello {
            version_min,
            version_max,
            codec,
            flags,
            packet_bytes_max,
            initial_window,
            host: u32::from_le_bytes([a, b, c, d]),
            incarnation: u128::from_le_bytes(take(&mut rest)),
            message_bytes_max: u64::from_le_bytes(take(&mut rest)),
            open_credit: u64::from_le_bytes(take(&mut rest)),
            cluster: Name::decode(cluster_len, take(&mut rest)).ok_or(HelloError::Cluster)?,
            node: Name::decode(node_len, take(&mut rest)).ok_or(HelloError::Node)?,
            nonce: take(&mut rest),
            layers: take_layers(&mut rest)?,
        })
    }

    /// Returns the limits and abilities of both ends. Either end comes to the same result.
    ///
    /// # Errors
    /// See [`Disagreement`]; checked in the order versions, codec, cluster, credential, TLS,
    /// layers.
    pub fn agree(ours: &Hello, theirs: &Hello) -> Result<Agreement, Disagreement> {
        let version = ours.version_max.min(theirs.version_max);
        if version < ours.version_min.max(theirs.version_min) {
            return Err(Disagreement::Versions {
                ours: (ours.version_min, ours.version_max),
                theirs: (theirs.version_min, theirs.version_max),
            });
        }
        if ours.codec != theirs.codec {
            return Err(Disagreement::Codec { ours: ours.codec, theirs: theirs.codec });
        }
        if ours.cluster != theirs.cluster {
            return Err(Disagreement::Cluster { ours: ours.cluster, theirs: theirs.cluster });
        }
        let differ = ours.flags ^ theirs.flags;
        if differ & FLAG_CREDENTIAL != 0 {
            return Err(Disagreement::Credential { ours: ours.flags & FLAG_CREDENTIAL != 0 });
        }
        if differ & FLAG_TLS != 0 {
            return Err(Disagreement::Tls { ours: ours.flags & FLAG_TLS != 0 });
        }
        Ok(Agreement {
            version,
            packet_bytes_max: ours.packet_bytes_max.min(theirs.packet_bytes_max),
            message_bytes_max: ours.message_bytes_max.min(theirs.message_bytes_max),
            flags: ours.flags & theirs.flags,
            layers: layers::agree(&ours.layers, &theirs.layers)?,
        })
    }
}

/// Fills the front of `rest`, which then begins behind it.
fn put<const N: usize>(rest: &mut &mut [u8], field: [u8; N]) {
    if let Some((head, tail)) = std::mem::take(rest).split_first_chunk_mut() {
        *head = field;
        *rest = tail;
    }
}

/// Takes the layers from the front of `rest`, which then begins behind them.
fn take_layers(rest: &mut &[u8]) -> Result<[LayerRange; LAYERS_MAX], HelloError> {
    let layers = [(); LAYERS_MAX].map(|()| LayerRange {
        hash: u32::from_le_bytes(take(rest)),
        oldest: u16::from_le_bytes(take(rest)),
        newest: u16::from_le_bytes(take(rest)),
    });
    for (index, &LayerRange { hash, oldest, newest }) in layers.iter().enumerate() {
        if hash == 0 {
            continue;
        }
        if oldest > newest {
            return Err(HelloError::Layer { hash, oldest, newest });
        }
        if layers.iter().take(index).any(|it| it.hash == hash) {
            return Err(HelloError::LayerTwice { hash });
        }
    }
    Ok(layers.map(|it| if it.hash == 0 { LayerRange::default() } else { it }))
}

/// Takes the front of `rest`, which then begins behind it; zeros where nothing is left. That
/// does not happen: the fields take all 192 bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    match rest.split_first_chunk() {
        Some((head, tail)) => {
            *rest = tail;
            *head
        }
        None => [0; N],
    }
}

#[cfg(test)]
mod tests;
