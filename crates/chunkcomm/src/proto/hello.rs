//! The first bytes on a connection: who is there, and what it can take.
//!
//! Both ends send one [`Hello`] of [`HELLO_BYTES`] at once, before they have read the other's, and
//! send nothing else until [`Hello::agree`] has found what both can do. It has a fixed size, so
//! that a stranger gets nothing allocated.
//!
//! ```text
//!   0  magic 8 bytes
//!   8  version_min u16 | version_max u16 | codec u16 | 0 u16
//!  16  flags u32 | packet_bytes_max u32 | initial_window u32
//!  28  cluster's length u8 | node's length u8 | 0 u16
//!  32  incarnation u128
//!  48  message_bytes_max u64 | open_credit u64
//!  64  cluster 32 bytes | node 32 bytes
//! 128  nonce 32 bytes
//! 160  32 bytes that are zero today
//! ```
//!
//! All numbers are little-endian. Bytes without a meaning are sent as zero and not looked at, and
//! unknown flags are left alone, so that later versions can use them. What stands in the first 12
//! bytes never moves: it is what tells versions apart.

use std::fmt;

use super::codec::CODEC_ID;

/// Size of a hello, in bytes.
pub const HELLO_BYTES: usize = 192;

/// Longest name of a cluster or node, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 32;

/// Size of a nonce, in bytes.
pub const NONCE_BYTES: usize = 32;

/// The oldest version of the protocol that this code speaks.
pub const VERSION_MIN: u16 = 1;

/// The newest version of the protocol that this code speaks.
pub const VERSION_MAX: u16 = 1;

/// The flag of an end that has a credential: both ends prove behind the hellos that they have the
/// same one. Either both ends set it or neither.
pub const FLAG_CREDENTIAL: u32 = 1;

/// The flag of an end that speaks TLS behind the hellos and proofs. Either both ends set it or
/// neither.
pub const FLAG_TLS: u32 = 2;

/// No text, and no other protocol's first line, begins like this.
const MAGIC: [u8; 8] = *b"\x9cchunk\r\n";

const _: () = assert!(VERSION_MIN <= VERSION_MAX);

/// A name of at most [`NAME_BYTES_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

impl Name {
    /// This name, or `None` when it is longer than [`NAME_BYTES_MAX`].
    #[must_use]
    pub fn new(text: &str) -> Option<Name> {
        (text.len() <= NAME_BYTES_MAX).then(|| Name::truncated(text))
    }

    /// As much of `text` as fits, cut between characters. For names that people read; names that
    /// are compared would become equal.
    #[must_use]
    pub fn truncated(text: &str) -> Name {
        let mut name = Name { bytes: [0; NAME_BYTES_MAX], len: 0 };
        let ends = text.char_indices().map(|(start, char)| start + char.len_utf8());
        let end = ends.take_while(|&end| end <= NAME_BYTES_MAX).last().unwrap_or(0);
        for (to, from) in name.bytes.iter_mut().zip(text.bytes().take(end)) {
            *to = from;
            name.len += 1;
        }
        name
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        str::from_utf8(bytes).unwrap_or_default()
    }

    fn decode(len: u8, field: [u8; NAME_BYTES_MAX]) -> Option<Name> {
        let text = str::from_utf8(field.get(..usize::from(len))?).ok()?;
        Name::new(text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What one end says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version of the protocol that it speaks.
    pub version_min: u16,
    /// The newest version of the protocol that it speaks.
    pub version_max: u16,
    /// How it encodes values, see [`CODEC_ID`].
    pub codec: u16,
    /// The cluster that it belongs to. Members of different clusters do not talk.
    pub cluster: Name,
    /// What people call it.
    pub node: Name,
    /// A random number that it drew when it started.
    pub incarnation: u128,
    /// The largest packet that it takes, in bytes.
    pub packet_bytes_max: u32,
    /// The largest message that it takes, in bytes.
    pub message_bytes_max: u64,
    /// The sum of the initial windows of the channels that may be opened to it, in bytes.
    pub open_credit: u64,
    /// What may be sent to it on a channel that was just opened, in bytes.
    pub initial_window: u32,
    /// Abilities, a bit each; what one end does not have is not used. But for [`FLAG_CREDENTIAL`]
    /// and [`FLAG_TLS`], on which both ends must agree.
    pub flags: u32,
    /// Random bytes, drawn anew for each connection.
    pub nonce: [u8; NONCE_BYTES],
}

/// What both ends can do.
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
}

/// Why bytes are not a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HelloError {
    /// They do not begin with the magic number: the peer speaks another protocol.
    Magic {
        /// What they begin with.
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
        }
    }
}

impl std::error::Error for HelloError {}

/// Why two ends cannot talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disagreement {
    /// There is no version of the protocol that both speak.
    Versions {
        /// Our oldest and newest.
        ours: (u16, u16),
        /// The peer's oldest and newest.
        theirs: (u16, u16),
    },
    /// They encode values differently.
    Codec {
        /// Ours, see [`CODEC_ID`].
        ours: u16,
        /// The peer's.
        theirs: u16,
    },
    /// The peer takes no packets of the smallest size that there is.
    Packets {
        /// The smallest size, in bytes.
        smallest: u32,
        /// What the peer takes, in bytes.
        theirs: u32,
    },
    /// They belong to different clusters.
    Cluster {
        /// Ours.
        ours: Name,
        /// The peer's.
        theirs: Name,
    },
    /// One of them has a credential and the other has none.
    Credential {
        /// Whether we have one.
        ours: bool,
    },
    /// One of them speaks TLS and the other does not.
    Tls {
        /// Whether we do.
        ours: bool,
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
        }
    }
}

impl std::error::Error for Disagreement {}

impl Hello {
    /// A hello with the versions and the codec of this code; the caller fills in the limits, which
    /// are 0 here.
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
            nonce: [0; NONCE_BYTES],
        }
    }

    /// Whether the first bytes of a connection, however few, can be those of a hello. Lets another
    /// protocol be turned away before it has sent [`HELLO_BYTES`].
    #[must_use]
    pub fn may_start_with(bytes: &[u8]) -> bool {
        bytes.iter().zip(&MAGIC).all(|(found, expected)| found == expected)
    }

    /// The bytes of this hello.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        let mut rest = &mut bytes[..];
        put(&mut rest, MAGIC);
        put(&mut rest, self.version_min.to_le_bytes());
        put(&mut rest, self.version_max.to_le_bytes());
        put(&mut rest, self.codec.to_le_bytes());
        put(&mut rest, [0; 2]);
        put(&mut rest, self.flags.to_le_bytes());
        put(&mut rest, self.packet_bytes_max.to_le_bytes());
        put(&mut rest, self.initial_window.to_le_bytes());
        put(&mut rest, [self.cluster.len, self.node.len, 0, 0]);
        put(&mut rest, self.incarnation.to_le_bytes());
        put(&mut rest, self.message_bytes_max.to_le_bytes());
        put(&mut rest, self.open_credit.to_le_bytes());
        put(&mut rest, self.cluster.bytes);
        put(&mut rest, self.node.bytes);
        put(&mut rest, self.nonce);
        bytes
    }

    /// The hello that these bytes are.
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
        let _: [u8; 2] = take(&mut rest);
        let flags = u32::from_le_bytes(take(&mut rest));
        let packet_bytes_max = u32::from_le_bytes(take(&mut rest));
        let initial_window = u32::from_le_bytes(take(&mut rest));
        let [cluster_len, node_len, _, _] = take(&mut rest);
        Ok(Hello {
            version_min,
            version_max,
            codec,
            flags,
            packet_bytes_max,
            initial_window,
            incarnation: u128::from_le_bytes(take(&mut rest)),
            message_bytes_max: u64::from_le_bytes(take(&mut rest)),
            open_credit: u64::from_le_bytes(take(&mut rest)),
            cluster: Name::decode(cluster_len, take(&mut rest)).ok_or(HelloError::Cluster)?,
            node: Name::decode(node_len, take(&mut rest)).ok_or(HelloError::Node)?,
            nonce: take(&mut rest),
        })
    }

    /// What both ends can do. Either end comes to the same result.
    ///
    /// # Errors
    /// See [`Disagreement`]; they are looked for in the order in which it lists them.
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

/// The front of `rest`, which then begins behind it; zeros where nothing is left. The fields take
/// 160 of 192 bytes, so that does not happen.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> impl Strategy<Value = Hello> {
        let limits = any::<(u32, u64, u64, u32, u32)>();
        let names = ("[a-z\u{e4}\u{20ac}]{0,10}", "\\PC{0,8}");
        (any::<(u16, u16, u16, u128)>(), limits, names).prop_map(|(numbers, limits, names)| {
            let (one, other, codec, incarnation) = numbers;
            Hello {
                version_min: one.min(other),
                version_max: one.max(other),
                codec,
                packet_bytes_max: limits.0,
                message_bytes_max: limits.1,
                open_credit: limits.2,
                initial_window: limits.3,
                flags: limits.4,
                nonce: [limits.4 as u8; NONCE_BYTES],
                ..Hello::new(Name::truncated(&names.0), Name::truncated(&names.1), incarnation)
            }
        })
    }

    fn sample() -> Hello {
        let names = (Name::new("lab").unwrap(), Name::new("node-1").unwrap());
        Hello {
            packet_bytes_max: 65_536,
            message_bytes_max: 1 << 40,
            open_credit: 1 << 33,
            initial_window: 16_384,
            flags: 21,
            nonce: [9; NONCE_BYTES],
            ..Hello::new(names.0, names.1, 0x0102_0304)
        }
    }

    proptest! {
        #[test]
        fn round_trip(hello in hello()) {
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }

        #[test]
        fn any_bytes_are_a_hello_or_an_error(
            mut bytes in proptest::array::uniform32(any::<u8>()),
            tail in any::<[u8; 32]>(),
            magic in any::<bool>(),
        ) {
            if magic {
                bytes[..8].copy_from_slice(&MAGIC);
            }
            let whole: [u8; HELLO_BYTES] =
                [bytes, tail, tail, bytes, tail, bytes].concat().try_into().unwrap();
            if let Ok(hello) = Hello::decode(&whole) {
                prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            }
        }

        #[test]
        fn both_ends_agree_alike(one in hello(), other in hello()) {
            let fixed = FLAG_CREDENTIAL | FLAG_TLS;
            let flags = other.flags & !fixed | one.flags & fixed;
            let other = Hello { cluster: one.cluster, codec: one.codec, flags, ..other };
            let (ours, theirs) = (Hello::agree(&one, &other), Hello::agree(&other, &one));
            prop_assert_eq!(ours.ok(), theirs.ok());
            if let Ok(agreement) = ours {
                for end in [one, other] {
                    prop_assert!(end.version_min <= agreement.version);
                    prop_assert!(agreement.version <= end.version_max);
                }
            }
        }
    }

    #[test]
    fn the_fields_lie_where_the_module_says() {
        let bytes = sample().encode();
        assert_eq!(bytes[..8], MAGIC);
        assert_eq!(bytes[8..14], [1, 0, 1, 0, 1, 0]);
        assert_eq!(bytes[16], 21);
        assert_eq!(bytes[20..28], [0, 0, 1, 0, 0, 64, 0, 0]);
        assert_eq!(bytes[28..32], [3, 6, 0, 0]);
        assert_eq!(bytes[32..36], [4, 3, 2, 1]);
        assert_eq!((bytes[53], bytes[60]), (1, 2));
        assert_eq!((&bytes[64..67], &bytes[96..102]), (&b"lab"[..], &b"node-1"[..]));
        assert_eq!(bytes[128..160], [9; 32]);
        assert_eq!(bytes[160..], [0; 32]);
    }

    #[test]
    fn what_has_no_meaning_yet_is_not_looked_at() {
        let mut bytes = sample().encode();
        for place in [14, 15, 30, 31].into_iter().chain(160..HELLO_BYTES) {
            bytes[place] = 0xff;
        }
        assert_eq!(Hello::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn bytes_that_are_no_hello_are_named() {
        let change = |place: usize, value: u8| {
            let mut bytes = sample().encode();
            bytes[place] = value;
            Hello::decode(&bytes)
        };
        let mut http = [0; HELLO_BYTES];
        http[..16].copy_from_slice(b"GET / HTTP/1.1\r\n");
        let error = Hello::decode(&http).unwrap_err();
        assert_eq!(error, HelloError::Magic { found: *b"GET / HT" });
        assert!(error.to_string().contains("GET / HT"), "{error}");
        assert_eq!(change(8, 2), Err(HelloError::Versions { min: 2, max: 1 }));
        assert_eq!(change(28, 33), Err(HelloError::Cluster));
        assert_eq!(change(64, 0xff), Err(HelloError::Cluster));
        assert_eq!(change(29, 255), Err(HelloError::Node));
        assert_eq!(change(96, 0xff), Err(HelloError::Node));
    }

    #[test]
    fn the_start_is_enough_to_turn_others_away() {
        let bytes = sample().encode();
        assert!((0..HELLO_BYTES).all(|end| Hello::may_start_with(&bytes[..end])));
        assert!(!Hello::may_start_with(b"G"));
        assert!(!Hello::may_start_with(b"\x9cchunk\n"));
    }

    #[test]
    fn disagreements_name_both_values() {
        let ours = sample();
        let newer = Hello { version_min: 7, version_max: 9, ..ours };
        let error = Hello::agree(&ours, &newer).unwrap_err();
        assert_eq!(error, Disagreement::Versions { ours: (1, 1), theirs: (7, 9) });
        assert_eq!(
            error.to_string(),
            "no common protocol version: we speak 1 to 1, the peer 7 to 9"
        );

        let foreign = Hello { codec: 9, ..ours };
        let error = Hello::agree(&ours, &foreign).unwrap_err();
        assert_eq!(error, Disagreement::Codec { ours: CODEC_ID, theirs: 9 });

        let elsewhere = Hello { cluster: Name::new("hall\n").unwrap(), ..ours };
        let error = Hello::agree(&ours, &elsewhere).unwrap_err();
        assert_eq!(
            error.to_string(),
            "different clusters: ours is \"lab\", the peer's is \"hall\\n\""
        );
    }

    #[test]
    fn what_admits_peers_is_not_negotiated() {
        let plain = Hello { flags: 0, ..sample() };
        for (flags, ours, theirs) in [
            (FLAG_CREDENTIAL, "this node admits nobody without", "the peer wants a credential"),
            (FLAG_CREDENTIAL | FLAG_TLS, "the peer has no credential", "this node has none"),
            (FLAG_TLS, "the peer does not speak TLS", "the peer wants TLS"),
        ] {
            let admitting = Hello { flags, ..plain };
            assert!(Hello::agree(&admitting, &admitting).is_ok());
            let error = Hello::agree(&admitting, &plain).unwrap_err().to_string();
            assert!(error.contains(ours), "{error}");
            let error = Hello::agree(&plain, &admitting).unwrap_err().to_string();
            assert!(error.contains(theirs), "{error}");
        }
    }

    #[test]
    fn an_agreement_is_what_both_can_do() {
        let theirs = Hello {
            version_max: 4,
            packet_bytes_max: 1024,
            message_bytes_max: u64::MAX,
            flags: 25,
            node: Name::new("other").unwrap(),
            ..sample()
        };
        let agreement = Agreement {
            version: VERSION_MAX,
            packet_bytes_max: 1024,
            message_bytes_max: 1 << 40,
            flags: 17,
        };
        assert_eq!(Hello::agree(&sample(), &theirs), Ok(agreement));
    }

    #[test]
    fn names_are_cut_between_characters_or_refused() {
        let exact = "a".repeat(NAME_BYTES_MAX);
        assert_eq!(Name::new(&exact).unwrap().as_str(), exact);
        assert_eq!(Name::new(&(exact.clone() + "b")), None);
        assert_eq!(Name::truncated(&(exact.clone() + "b")).as_str(), exact);
        let wide = "\u{20ac}".repeat(20);
        assert_eq!(Name::truncated(&wide).as_str(), "\u{20ac}".repeat(10));
        assert_eq!(Name::new("").unwrap().as_str(), "");
    }
}
