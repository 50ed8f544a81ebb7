//! Secrets derived from a seed, and the proofs made with them.

use super::{Hellos, PROOF_BYTES, Role, SEED_BYTES, Seed};
use ring::{digest, hkdf, hmac};
use std::fmt;

/// Separates this use of a seed from any other.
const SALT: &[u8] = b"chunkcomm credential 1";

impl Hellos {
    /// Returns a digest of both hellos (SHA-256), which names this connection.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&self.dialler);
        context.update(&self.acceptor);
        fixed(context.finish().as_ref())
    }
}

/// The key by which an end proves that it has the credential.
#[derive(Clone)]
pub struct ProofKey(hmac::Key);

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey(..)")
    }
}

impl ProofKey {
    /// Returns the key of the credential with this seed.
    #[must_use]
    pub fn of(seed: &Seed) -> ProofKey {
        ProofKey(hmac::Key::new(hmac::HMAC_SHA256, &derived(seed, b"proof")))
    }

    /// Returns the proof of the end in `role`.
    #[must_use]
    pub fn prove(&self, role: Role, hellos: &Hellos) -> [u8; PROOF_BYTES] {
        fixed(hmac::sign(&self.0, &self.message(role, hellos)).as_ref())
    }

    /// Whether the end in `role` made this proof. Takes the same time whatever is wrong with
    /// the proof.
    #[must_use]
    pub fn verify(&self, role: Role, hellos: &Hellos, proof: &[u8; PROOF_BYTES]) -> bool {
        hmac::verify(&self.0, &self.message(role, hellos), proof).is_ok()
    }

    fn message(&self, role: Role, hellos: &Hellos) -> Vec<u8> {
        [&label(role)[..], &hellos.dialler, &hellos.acceptor].concat()
    }
}

/// Returns the seed of the Ed25519 key that the members of the cluster show in TLS.
#[must_use]
pub fn identity_seed(seed: &Seed) -> [u8; 32] {
    derived(seed, b"tls identity")
}

fn label(role: Role) -> [u8; 16] {
    match role {
        Role::Dialler => *b"chunkcomm 1 dial",
        Role::Acceptor => *b"chunkcomm 1 acpt",
    }
}

fn derived(seed: &Seed, label: &'static [u8]) -> [u8; SEED_BYTES] {
    let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(&seed.0);
    let mut bytes = [0; SEED_BYTES];
    secret
        .expand(&[label], hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut bytes))
        .expect("HKDF gives up to 8160 bytes, and the length asked for is that of the digest");
    bytes
}

/// Returns a digest of 256 bits as an array.
fn fixed(bytes: &[u8]) -> [u8; 32] {
    bytes.try_into().expect("SHA-256 gives 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::HELLO_BYTES;

    fn hellos() -> Hellos {
        Hellos { dialler: [1; HELLO_BYTES], acceptor: [2; HELLO_BYTES] }
    }

    fn key() -> ProofKey {
        ProofKey::of(&Seed::new([7; SEED_BYTES]))
    }

    #[test]
    fn a_proof_fits_its_role_and_its_hellos_only() {
        let proof = key().prove(Role::Dialler, &hellos());
        assert!(key().verify(Role::Dialler, &hellos(), &proof));
        assert!(!key().verify(Role::Acceptor, &hellos(), &proof));
        let Hellos { dialler, acceptor } = hellos();
        let turned = Hellos { dialler: acceptor, acceptor: dialler };
        assert!(!key().verify(Role::Dialler, &turned, &proof));
        assert!(!key().verify(Role::Acceptor, &turned, &proof));
        let other = ProofKey::of(&Seed::new([8; SEED_BYTES]));
        assert!(!other.verify(Role::Dialler, &hellos(), &proof));
    }

    #[test]
    fn every_bit_counts() {
        let proof = key().prove(Role::Acceptor, &hellos());
        for bit in 0..HELLO_BYTES * 8 {
            for dialler in [true, false] {
                let mut changed = hellos();
                let half = if dialler { &mut changed.dialler } else { &mut changed.acceptor };
                half[bit / 8] ^= 1 << (bit % 8);
                assert!(!key().verify(Role::Acceptor, &changed, &proof), "bit {bit}");
                assert_ne!(changed.digest(), hellos().digest());
            }
        }
        for bit in 0..PROOF_BYTES * 8 {
            let mut changed = proof;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!key().verify(Role::Acceptor, &hellos(), &changed), "bit {bit}");
        }
    }

    #[test]
    fn what_is_derived_is_not_the_seed_and_not_each_other() {
        let seed = Seed::new([7; SEED_BYTES]);
        let (proof, identity) = (derived(&seed, b"proof"), identity_seed(&seed));
        assert_ne!(proof, identity);
        assert_ne!(proof, seed.0);
        assert_ne!(identity, seed.0);
        // The numbers were computed by another program, from the description of the module
        // above.
        assert_eq!(identity[..8], [143, 44, 158, 192, 91, 115, 118, 87]);
        assert_eq!(proof[..8], [230, 147, 231, 96, 138, 45, 202, 154]);
        let proof = key().prove(Role::Dialler, &hellos());
        assert_eq!(proof[..8], [193, 147, 143, 140, 167, 243, 152, 200]);
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(format!("{:?}", key()), "ProofKey(..)");
    }
}
