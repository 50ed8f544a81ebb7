//! The two ends' words at the start of every connection, after the hellos: the session that is
//! meant, and the last packet received of it.
//!
//! ```text
//!   0  magic 4 bytes | kind u8 | 0 u8 | 0 u16
//!   8  session u64 | attempt u32 | 0 u32
//!  24  received u64
//!  32  incarnation of the addressee u128
//!  48  16 bytes that are zero today
//! ```
//!
//! The dialler speaks first, with `New` or `Again`; the answer is `Agreed`,
//! `Unknown` or `Stale`. All numbers are little-endian.

use super::hello::HelloError;

/// Size of a word, in bytes.
pub const RESUME_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"\x9cses";

/// Kind of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The dialler begins a session.
    New,
    /// The dialler resumes a session.
    Again,
    /// The acceptor agrees.
    Agreed,
    /// The acceptor has no such session: it was given up, or this node never had it.
    Unknown,
    /// The acceptor has taken a later connection before. Of a session that was to be the only one:
    /// the acceptor has another with the dialler, or begins one.
    Stale,
}

/// Number in a `New` that asks for the only session of the two nodes.
const ONLY: u64 = 1;

const KINDS: [Kind; 5] = [Kind::New, Kind::Again, Kind::Agreed, Kind::Unknown, Kind::Stale];

/// One end's word at the start of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// The word's kind.
    pub kind: Kind,
    /// The session's number, drawn by its dialler.
    pub session: u64,
    /// The connection's number within the session, from 1.
    pub attempt: u32,
    /// Number of the last packet that lies in the speaker's inbox as a whole. In a `New`: 1 if the
    /// session is to be the only one of the two nodes, else 0. In an `Unknown` that answers `New`:
    /// the number of sessions that the speaker may have, when that is the reason; else 0.
    pub received: u64,
    /// Incarnation of the node that the speaker means.
    pub addressee: u128,
}

/// The wish of a dialler, as its peer's node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Begin the session.
    Begin,
    /// Go on with the session, which the node has an end of.
    GoOn,
    /// Something that is not possible: the answer is [`Kind::Unknown`].
    Impossible,
}

impl Resume {
    /// Returns the first word of session `session`, on its first connection.
    #[must_use]
    pub fn new_session(session: u64, addressee: u128) -> Resume {
        Resume { kind: Kind::New, session, attempt: 1, received: 0, addressee }
    }

    /// As [`Resume::new_session`], for a session that is to be the only one of the two nodes. A node
    /// that does not know this wish begins the session in any case.
    #[must_use]
    pub fn only_session(session: u64, addressee: u128) -> Resume {
        Resume { received: ONLY, ..Resume::new_session(session, addressee) }
    }

    /// Whether the word begins a session that is to be the only one of the two nodes.
    #[must_use]
    pub fn is_only(&self) -> bool {
        self.kind == Kind::New && self.received == ONLY
    }

    /// Returns what a dialler wishes with this word from node `incarnation`, which has an end of
    /// the session or not (`known`).
    ///
    /// # Errors
    ///
    /// The word is not a dialler's.
    pub fn wish(&self, incarnation: u128, known: bool) -> Result<Wish, HelloError> {
        let meant = self.addressee == incarnation;
        match (self.kind, known) {
            (Kind::New, false) if meant => Ok(Wish::Begin),
            (Kind::Again, true) if meant => Ok(Wish::GoOn),
            (Kind::New | Kind::Again, _) => Ok(Wish::Impossible),
            (kind, _) => Err(HelloError::SessionWord(kind as u8)),
        }
    }

    /// Returns the answer to this word, which node `dialler` said.
    #[must_use]
    pub fn answer(&self, kind: Kind, received: u64, dialler: u128) -> Resume {
        Resume { kind, received, addressee: dialler, ..*self }
    }

    /// Returns the bytes of this word.
    #[must_use]
    pub fn encode(&self) -> [u8; RESUME_BYTES] {
        let mut bytes = [0; RESUME_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[8..16].copy_from_slice(&self.session.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.received.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.addressee.to_le_bytes());
        bytes
    }

    /// Reads a word from its bytes.
    ///
    /// # Errors
    ///
    /// See [`HelloError`].
    pub fn decode(bytes: &[u8; RESUME_BYTES]) -> Result<Resume, HelloError> {
        let (magic, rest) = bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(HelloError::NoSession);
        }
        let number = rest.first().copied().unwrap_or_default();
        let kind = KINDS.get(usize::from(number)).ok_or(HelloError::SessionWord(number))?;
        Ok(Resume {
            kind: *kind,
            session: u64::from_le_bytes(field(bytes, 8)),
            attempt: u32::from_le_bytes(field(bytes, 16)),
            received: u64::from_le_bytes(field(bytes, 24)),
            addressee: u128::from_le_bytes(field(bytes, 32)),
        })
    }
}

fn field<const N: usize>(bytes: &[u8; RESUME_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_comes_back_and_others_are_refused() {
        for kind in KINDS {
            let word = Resume {
                kind,
                session: u64::MAX - 1,
                attempt: 77,
                received: 1 << 40,
                addressee: u128::MAX / 3,
            };
            assert_eq!(Resume::decode(&word.encode()), Ok(word));
        }
        let only = Resume::only_session(7, 8);
        assert!(only.is_only() && !Resume::new_session(7, 8).is_only());
        assert!(!only.answer(Kind::Agreed, 1, 9).is_only());
        assert_eq!(Resume::decode(&only.encode()), Ok(only));
        assert_eq!(Resume::decode(&[0; RESUME_BYTES]), Err(HelloError::NoSession));
        let mut bytes = [0; RESUME_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = 5;
        assert_eq!(Resume::decode(&bytes), Err(HelloError::SessionWord(5)));
    }
}
