//! Errors of a hello, and disagreements between two of them.

use super::{MAGIC, Name};

/// Reason why the first bytes of a peer are no hello, or name no session.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// The bytes do not begin with the magic number: the peer speaks another protocol.
    #[error(
        "the peer speaks another protocol: it begins with \"{}\" instead of \"{}\"",
        .found.escape_ascii(), MAGIC.escape_ascii()
    )]
    Magic {
        /// First bytes of the peer.
        found: [u8; 8],
    },
    /// The oldest version is newer than the newest.
    #[error("the peer names protocol versions from {min} to {max}")]
    Versions {
        /// The oldest version named.
        min: u16,
        /// The newest version named.
        max: u16,
    },
    /// The cluster's name is too long or not UTF-8.
    #[error("the peer's cluster name is too long or not UTF-8")]
    Cluster,
    /// The node's name is too long or not UTF-8.
    #[error("the peer's node name is too long or not UTF-8")]
    Node,
    /// The oldest version of a layer is newer than its newest.
    #[error("the peer names versions from {oldest} to {newest} of layer {hash:#010x}")]
    Layer {
        /// Hash of the layer's name.
        hash: u32,
        /// The oldest version named.
        oldest: u16,
        /// The newest version named.
        newest: u16,
    },
    /// A layer is named twice.
    #[error("the peer names layer {hash:#010x} twice")]
    LayerTwice {
        /// Hash of the layer's name.
        hash: u32,
    },
    /// The bytes after the hello do not begin as a [word of a session](crate::resume::Resume) does.
    #[error("the peer does not say which session it means")]
    NoSession,
    /// The kind of that word is unknown, or not the speaker's to send.
    #[error("the peer says something of kind {0} about a session")]
    SessionWord(u8),
}

crate::debug_with_causes!(HelloError);

/// Reason why two ends cannot talk.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disagreement {
    /// There is no version of the protocol that both speak.
    #[error(
        "no common protocol version: we speak {} to {}, the peer {} to {}",
        .ours.0, .ours.1, .theirs.0, .theirs.1
    )]
    Versions {
        /// Our oldest and newest.
        ours: (u16, u16),
        /// The peer's oldest and newest.
        theirs: (u16, u16),
    },
    /// The ends encode values differently.
    #[error("different codecs: ours is {ours}, the peer's is {theirs}")]
    Codec {
        /// Ours, see [`CODEC_ID`](crate::codec::CODEC_ID).
        ours: u16,
        /// The peer's.
        theirs: u16,
    },
    /// The peer does not take packets of the smallest size that exists.
    #[error("the peer takes packets of {theirs} bytes, the smallest have {smallest}")]
    Packets {
        /// The smallest size, in bytes.
        smallest: u32,
        /// The largest size that the peer takes, in bytes.
        theirs: u32,
    },
    /// The ends belong to different clusters.
    #[error("different clusters: ours is {ours:?}, the peer's is {theirs:?}")]
    Cluster {
        /// Ours.
        ours: Name,
        /// The peer's.
        theirs: Name,
    },
    /// One end has a credential and the other has none.
    #[error(
        "{}",
        if *.ours {
            "the peer has no credential, this node admits nobody without"
        } else {
            "the peer wants a credential, this node has none"
        }
    )]
    Credential {
        /// Whether we have a credential.
        ours: bool,
    },
    /// One end speaks TLS and the other does not.
    #[error(
        "{}",
        if *.ours {
            "the peer does not speak TLS, this node speaks nothing else"
        } else {
            "the peer wants TLS, this node was not told to speak it"
        }
    )]
    Tls {
        /// Whether we speak TLS.
        ours: bool,
    },
    /// There is no version of a layer that both ends speak.
    #[error(
        "no common version of {}: we speak {} to {}, the peer {} to {}",
        layer(*.hash, *.name), .ours.0, .ours.1, .theirs.0, .theirs.1
    )]
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

crate::debug_with_causes!(Disagreement);

/// Returns the name of a layer, or its hash.
fn layer(hash: u32, name: Option<&str>) -> String {
    name.map_or_else(|| format!("layer {hash:#010x}"), str::to_owned)
}
