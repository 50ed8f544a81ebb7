//! Errors of a hello, and disagreements between two of them.

use super::{MAGIC, Name};
use std::fmt;

/// Reason why bytes are not a hello.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HelloError {
    /// The bytes do not begin with the magic number: the peer speaks another protocol.
    Magic {
        /// First bytes of the peer.
        found: [u8; 8],
    },
    /// The oldest version is newer than the newest.
    Versions {
        /// The oldest version named.
        min: u16,
        /// The newest version named.
        max: u16,
    },
    /// The cluster's name is too long or not UTF-8.
    Cluster,
    /// The node's name is too long or not UTF-8.
    Node,
    /// The oldest version of a layer is newer than its newest.
    Layer {
        /// Hash of the layer's name.
        hash: u32,
        /// The oldest version named.
        oldest: u16,
        /// The newest version named.
        newest: u16,
    },
    /// A layer is named twice.
    LayerTwice {
        /// Hash of the layer's name.
        hash: u32,
    },
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelloError::Magic { found } => write!(
                f,
                "the peer speaks another protocol: it begins with \"{}\" instead of \"{}\"",
                found.escape_ascii(),
                MAGIC.escape_ascii()
            ),
            HelloError::Versions { min, max } => {
                write!(f, "the peer names protocol versions from {min} to {max}")
            }
            HelloError::Cluster => f.write_str("the peer's cluster name is too long or not UTF-8"),
            HelloError::Node => f.write_str("the peer's node name is too long or not UTF-8"),
            HelloError::Layer { hash, oldest, newest } => {
                write!(f, "the peer names versions from {oldest} to {newest} of layer {hash:#010x}")
            }
            HelloError::LayerTwice { hash } => {
                write!(f, "the peer names layer {hash:#010x} twice")
            }
        }
    }
}

crate::debug_with_causes!(HelloError);

impl std::error::Error for HelloError {}

/// Reason why two ends cannot talk.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disagreement {
    /// There is no version of the protocol that both speak.
    Versions {
        /// Our oldest and newest.
        ours: (u16, u16),
        /// The peer's oldest and newest.
        theirs: (u16, u16),
    },
    /// The ends encode values differently.
    Codec {
        /// Ours, see [`CODEC_ID`](crate::codec::CODEC_ID).
        ours: u16,
        /// The peer's.
        theirs: u16,
    },
    /// The peer does not take packets of the smallest size that exists.
    Packets {
        /// The smallest size, in bytes.
        smallest: u32,
        /// The largest size that the peer takes, in bytes.
        theirs: u32,
    },
    /// The ends belong to different clusters.
    Cluster {
        /// Ours.
        ours: Name,
        /// The peer's.
        theirs: Name,
    },
    /// One end has a credential and the other has none.
    Credential {
        /// Whether we have a credential.
        ours: bool,
    },
    /// One end speaks TLS and the other does not.
    Tls {
        /// Whether we speak TLS.
        ours: bool,
    },
    /// There is no version of a layer that both ends speak.
    Layer {
        /// Hash of the layer's name, see [`layer_hash`](super::layer_hash).
        hash: u32,
        /// The layer's name, where it is known.
        name: Option<&'static str>,
        /// Our oldest and newest.
        ours: (u16, u16),
        /// The peer's oldest and newest.
        theirs: (u16, u16),
    },
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disagreement::Versions { ours, theirs } => write!(
                f,
                "no common protocol version: we speak {} to {}, the peer {} to {}",
                ours.0, ours.1, theirs.0, theirs.1
            ),
            Disagreement::Codec { ours, theirs } => {
                write!(f, "different codecs: ours is {ours}, the peer's is {theirs}")
            }
            Disagreement::Packets { smallest, theirs } => {
                write!(f, "the peer takes packets of {theirs} bytes, the smallest have {smallest}")
            }
            Disagreement::Cluster { ours, theirs } => {
                write!(f, "different clusters: ours is {ours:?}, the peer's is {theirs:?}")
            }
            Disagreement::Credential { ours: true } => {
                f.write_str("the peer has no credential, this node admits nobody without")
            }
            Disagreement::Credential { ours: false } => {
                f.write_str("the peer wants a credential, this node has none")
            }
            Disagreement::Tls { ours: true } => {
                f.write_str("the peer does not speak TLS, this node speaks nothing else")
            }
            Disagreement::Tls { ours: false } => {
                f.write_str("the peer wants TLS, this node was not told to speak it")
            }
            Disagreement::Layer { hash, name, ours, theirs } => {
                f.write_str("no common version of ")?;
                match name {
                    Some(name) => f.write_str(name)?,
                    None => write!(f, "layer {hash:#010x}")?,
                }
                let ((oldest, newest), (least, most)) = (ours, theirs);
                write!(f, ": we speak {oldest} to {newest}, the peer {least} to {most}")
            }
        }
    }
}

crate::debug_with_causes!(Disagreement);

impl std::error::Error for Disagreement {}
