//! A self-signed certificate for an Ed25519 key, in DER (RFC 5280, RFC 8410).
//!
//! Nodes compare certificates byte by byte: to change a byte here shuts older nodes out. Nothing is
//! random or depends on the time. The signatures of Ed25519 are deterministic, too.
//!
//! ```text
//! Certificate
//! |- TBSCertificate                         the signed part
//! |  |- version, serial number, algorithm
//! |  |- issuer, validity, subject           issuer and subject are the same
//! |  |- public key
//! |  `- extension: the subject's DNS name
//! |- algorithm
//! `- signature
//! ```

use ring::digest::{SHA256, digest};
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::CertificateDer;

// The tags of the elements (X.690, 8.1.2).
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// The tag of a DNS name among the kinds of names (RFC 5280, 4.2.1.6).
const DNS_NAME: u8 = 0x82;

/// The number of version 3, the first with extensions (RFC 5280, 4.1.2.1).
const VERSION_3: u8 = 2;

/// The first and the last second of the validity. From 2050 on the type of a time is another
/// (RFC 5280, 4.1.2.5).
const VALIDITY: [(u8, &[u8]); 2] =
    [(UTC_TIME, b"750101000000Z"), (GENERALIZED_TIME, b"40960101000000Z")];

/// Largest serial number in bytes (RFC 5280, 4.1.2.2).
const SERIAL_BYTES_MAX: usize = 20;

/// Object identifier 1.3.101.112, Ed25519 (RFC 8410, section 3).
const ED25519: [u8; 5] = [0x06, 0x03, 0x2b, 0x65, 0x70];

/// Object identifier 2.5.4.3, a common name (RFC 5280, appendix A.1).
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];

/// Object identifier 2.5.29.17, other names of the subject (RFC 5280, 4.2.1.6).
const SUBJECT_ALT_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x11];

/// Returns the certificate of the key with this seed, for the DNS name `name` (RFC 5280, 4.1).
pub(super) fn self_signed(seed: &[u8; 32], name: &str) -> CertificateDer<'static> {
    let key = Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed has 32 bytes");
    let signed = signed_part(key.public_key().as_ref(), name.as_bytes());
    let signature = key.sign(&signed);
    element(SEQUENCE, &[&signed, &algorithm(), &bit_string(signature.as_ref())]).into()
}

/// Returns the part of the certificate under the signature (RFC 5280, 4.1.2).
fn signed_part(public_key: &[u8], name: &[u8]) -> Vec<u8> {
    let version = element(VERSION, &[&element(INTEGER, &[&[VERSION_3]])]);
    let identity = distinguished_name(name);
    let validity = VALIDITY.map(|(kind, time)| element(kind, &[time])).concat();
    let key_info = element(SEQUENCE, &[&algorithm(), &bit_string(public_key)]);
    element(
        SEQUENCE,
        &[
            &version,
            &serial_number(public_key),
            &algorithm(),
            &identity,
            &element(SEQUENCE, &[&validity]),
            &identity,
            &key_info,
            &element(EXTENSIONS, &[&element(SEQUENCE, &[&dns_name(name)])]),
        ],
    )
}

/// Returns the serial number, the beginning of the key's digest. It is positive and without
/// leading zeros (RFC 5280, 4.1.2.2).
fn serial_number(public_key: &[u8]) -> Vec<u8> {
    let digest = digest(&SHA256, public_key);
    let mut number = digest.as_ref()[..SERIAL_BYTES_MAX].to_vec();
    number[0] &= 0x7f;
    integer(&number)
}

/// Returns a number that is not negative, of big-endian `bytes`.
fn integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    match &bytes[zeros..] {
        digits @ [..0x80, ..] => element(INTEGER, &[digits]),
        // The first bit would make the number negative.
        digits => element(INTEGER, &[&[0], digits]),
    }
}

/// Returns the identifier of Ed25519, without parameters (RFC 8410, section 3).
fn algorithm() -> Vec<u8> {
    element(SEQUENCE, &[&ED25519])
}

/// Returns a name that is a common name alone (RFC 5280, 4.1.2.4).
fn distinguished_name(name: &[u8]) -> Vec<u8> {
    let attribute = element(SEQUENCE, &[&COMMON_NAME, &element(UTF8_STRING, &[name])]);
    element(SEQUENCE, &[&element(SET, &[&attribute])])
}

/// Returns the extension that names the subject for DNS (RFC 5280, 4.2.1.6).
fn dns_name(name: &[u8]) -> Vec<u8> {
    let names = element(SEQUENCE, &[&element(DNS_NAME, &[name])]);
    element(SEQUENCE, &[&SUBJECT_ALT_NAME, &element(OCTET_STRING, &[&names])])
}

/// Returns a string of whole bytes: no bit of the last one is unused.
fn bit_string(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes])
}

/// Returns the element of DER with this tag and content. A length from 128 on follows the number
/// of its bytes (X.690, 8.1.3).
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let zeros = (content.len() | 1).leading_zeros() as usize / 8;
    let mut out = vec![tag];
    if content.len() >= 0x80 {
        out.push(0x80 | (length.len() - zeros) as u8);
    }
    out.extend_from_slice(&length[zeros..]);
    out.extend_from_slice(&content);
    out
}
