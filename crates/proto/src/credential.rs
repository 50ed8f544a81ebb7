//! The secret that the members of a cluster share: its text, and the keys derived from it.
//!
//! A credential is a [`Seed`] of 32 random bytes. In a file it is one line:
//!
//! ```text
//! chunkcomm-credential-1 <64 hexadecimal digits> <8 hexadecimal digits>
//! ```
//!
//! The last word is a checksum (CRC-32 of the seed's bytes), so that a damaged file is told
//! apart from a wrong one. HKDF-SHA256 (RFC 5869) derives two secrets from the seed, each under
//! a label of its own: a key for the proofs behind the hellos ([`ProofKey`]) and a seed for the
//! TLS identity ([`identity_seed`]). Both need the feature `tls`.
//!
//! Both ends of a connection prove that they have the credential. A proof is HMAC-SHA256 over a
//! label that names the prover's role and over both hellos, the dialler's first.
//!
//! - Both hellos hold a fresh nonce, so a proof fits one connection only.
//! - The roles differ, so a proof that is sent back fits nothing.
//! - The hellos are covered as a whole, so a change on the way is noticed.

use super::hello::HELLO_BYTES;
use std::fmt;

#[cfg(feature = "tls")]
mod keys;

#[cfg(feature = "tls")]
pub use keys::{ProofKey, identity_seed};

/// Size of a seed, in bytes.
pub const SEED_BYTES: usize = 32;

/// Size of a proof, in bytes.
pub const PROOF_BYTES: usize = 32;

/// Start of every credential line, whatever its version.
const PREFIX: &str = "chunkcomm-credential-";

/// The version that is written and read here.
const VERSION: &str = "1";

/// The random bytes of a credential. Only [`Seed::to_text`] shows them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed([u8; SEED_BYTES]);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// Reason why a text is not a credential.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeedTextError {
    /// The text is something else.
    #[error("it is not a credential: it does not begin with {PREFIX}{VERSION}")]
    Foreign,
    /// The text is a credential of another version.
    #[error("it is a credential of another version than {VERSION}")]
    Version,
    /// The text was a credential, and was cut or changed since.
    #[error("the credential is damaged: its checksum does not fit")]
    Damaged,
}

crate::debug_with_causes!(SeedTextError);

impl Seed {
    /// Creates a seed from these bytes, which must be random.
    #[must_use]
    pub fn new(bytes: [u8; SEED_BYTES]) -> Seed {
        Seed(bytes)
    }

    /// Returns the line that the module describes, with its line end.
    #[must_use]
    pub fn to_text(&self) -> String {
        let checksum = crc32(&self.0).to_be_bytes();
        format!("{PREFIX}{VERSION} {} {}\n", hex(&self.0), hex(&checksum))
    }

    /// Reads the text of [`Seed::to_text`]; space around it does not matter.
    ///
    /// # Errors
    /// See [`SeedTextError`].
    pub fn from_text(text: &str) -> Result<Seed, SeedTextError> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(SeedTextError::Foreign)?;
        let mut words = rest.split_ascii_whitespace();
        if words.next() != Some(VERSION) {
            return Err(SeedTextError::Version);
        }
        let seed = words.next().and_then(bytes_of_hex);
        let checksum = words.next().and_then(bytes_of_hex).map(u32::from_be_bytes);
        match (seed, checksum, words.next()) {
            (Some(seed), Some(checksum), None) if checksum == crc32(&seed) => Ok(Seed(seed)),
            _ => Err(SeedTextError::Damaged),
        }
    }
}

/// Role of the end that proves. The labels have one length, so that no proof of one role is one
/// of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that connected.
    Dialler,
    /// The end that was connected to.
    Acceptor,
}

impl Role {
    /// Returns the role of the other end.
    #[must_use]
    pub fn other(self) -> Role {
        match self {
            Role::Dialler => Role::Acceptor,
            Role::Acceptor => Role::Dialler,
        }
    }
}

/// The hellos of one connection, byte by byte as they were sent.
#[derive(Clone, Copy, Debug)]
pub struct Hellos {
    /// Hello of the end that connected.
    pub dialler: [u8; HELLO_BYTES],
    /// Hello of the end that was connected to.
    pub acceptor: [u8; HELLO_BYTES],
}

impl Hellos {
    /// Orders the hellos from the view of the end in `role`.
    #[must_use]
    pub fn new(role: Role, said: [u8; HELLO_BYTES], heard: [u8; HELLO_BYTES]) -> Hellos {
        match role {
            Role::Dialler => Hellos { dialler: said, acceptor: heard },
            Role::Acceptor => Hellos { dialler: heard, acceptor: said },
        }
    }

    /// Returns the hello that the end in `role` sent, or is about to send.
    pub fn of_mut(&mut self, role: Role) -> &mut [u8; HELLO_BYTES] {
        match role {
            Role::Dialler => &mut self.dialler,
            Role::Acceptor => &mut self.acceptor,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of exactly `2 N` hexadecimal digits.
fn bytes_of_hex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits: Option<Vec<u32>> = digits.chars().map(|digit| digit.to_digit(16)).collect();
    let (pairs, rest) = digits.as_ref()?.as_chunks::<2>();
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| u8::try_from(high * 16 + low).ok()).collect();
    if rest.is_empty() { bytes?.try_into().ok() } else { None }
}

/// Returns the CRC-32 as in Ethernet and zip (reflected polynomial 0xEDB88320).
fn crc32(bytes: &[u8]) -> u32 {
    let of_byte = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { (sum >> 1) ^ 0xEDB8_8320 } else { sum >> 1 }
        })
    };
    !bytes.iter().fold(!0, of_byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Seed {
        Seed::new(std::array::from_fn(|index| index as u8))
    }

    #[test]
    fn the_text_is_one_line_with_a_checksum() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(
            sample().to_text(),
            "chunkcomm-credential-1 \
             000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 91267e8a\n"
        );
    }

    #[test]
    fn a_seed_is_not_shown() {
        assert_eq!(format!("{:?}", sample()), "Seed(..)");
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
        let text = sample().to_text();
        let other_version = text.replace("-1 ", "-2 ");
        assert_eq!(Seed::from_text(""), Err(SeedTextError::Foreign));
        assert_eq!(Seed::from_text("ssh-ed25519 AAAA"), Err(SeedTextError::Foreign));
        assert_eq!(Seed::from_text(&other_version), Err(SeedTextError::Version));
        assert_eq!(Seed::from_text(&text.replace('f', "e")), Err(SeedTextError::Damaged));
        assert_eq!(Seed::from_text(&text.replace('f', "g")), Err(SeedTextError::Damaged));
        assert_eq!(Seed::from_text(&text[..60]), Err(SeedTextError::Damaged));
        assert_eq!(Seed::from_text(&format!("{text} more")), Err(SeedTextError::Damaged));
        assert_eq!(Seed::from_text(&format!("\n {text}\r\n")), Ok(sample()));
    }

    proptest! {
        #[test]
        fn text_is_read_back(bytes in any::<[u8; SEED_BYTES]>()) {
            let seed = Seed::new(bytes);
            prop_assert_eq!(Seed::from_text(&seed.to_text()), Ok(seed));
        }

        #[test]
        fn a_changed_character_is_noticed(
            bytes in any::<[u8; SEED_BYTES]>(),
            at in 0..96_usize,
            to in "[ -~]",
        ) {
            let seed = Seed::new(bytes);
            let mut text = seed.to_text();
            prop_assume!(!text[at..=at].eq_ignore_ascii_case(&to));
            text.replace_range(at..=at, &to);
            prop_assert!(Seed::from_text(&text).is_err(), "{text:?}");
        }

        #[test]
        fn any_text_is_a_seed_or_an_error(text in "\\PC{0,40}", tail in "[0-9a-f ]{0,80}") {
            let _ = Seed::from_text(&text);
            let _ = Seed::from_text(&format!("{PREFIX}{VERSION} {tail}"));
        }
    }
}
