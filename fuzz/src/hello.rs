//! The first bytes of a connection: hellos, proofs, and the text of a credential.

use std::sync::LazyLock;

use chunkcomm::proto::credential::{Hellos, PROOF_BYTES, ProofKey, Role, SEED_BYTES, Seed};
use chunkcomm::proto::hello::{
    Disagreement, HELLO_BYTES, Hello, HelloError, LAYERS_MAX, LayerRange, Name,
};

use crate::deeds::Deeds;

const EDGES: [u64; 6] = [1, 1024, 65_536, u16::MAX as u64, u32::MAX as u64, u64::MAX];

/// Runs by the first byte: the bytes as a hello, two hellos that judge each other, proofs with one
/// bit turned, or the text of a credential.
pub fn run(data: &[u8]) {
    let mut deeds = Deeds::new(data);
    match deeds.byte() % 4 {
        0 => as_hello(deeds.bytes(HELLO_BYTES)),
        1 => judged(&mut deeds),
        2 => proved(&mut deeds),
        _ => as_credential(deeds.bytes(usize::MAX)),
    }
}

/// Writes and reads back what was read as a hello, which must be the same and agree with itself. The
/// first bytes show another protocol.
fn as_hello(data: &[u8]) {
    let bytes = filled(data);
    match Hello::decode(&bytes) {
        Ok(hello) => {
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            assert!(Hello::agree(&hello, &hello).is_ok());
        }
        Err(HelloError::Magic { found }) => {
            assert_eq!(found[..], bytes[..8]);
            assert!(!Hello::may_start_with(&bytes));
            return;
        }
        Err(_) => {}
    }
    assert!((0..=HELLO_BYTES).all(|end| Hello::may_start_with(&bytes[..end])));
}

/// Checks that both ends judge alike, and agree on nothing that one of them cannot do.
fn judged(deeds: &mut Deeds<'_>) {
    let mut ours = hello(deeds);
    let mut theirs = hello(deeds);
    if deeds.one_in(2) {
        // The hellos differ in little, so that the last judgements are reached too.
        theirs = Hello { node: theirs.node, incarnation: theirs.incarnation, ..ours };
        ours.packet_bytes_max = deeds.number(&EDGES) as u32;
        theirs.flags ^= u32::from(deeds.byte() % 8);
        theirs.layers = layers(deeds);
    }
    match (Hello::agree(&ours, &theirs), Hello::agree(&theirs, &ours)) {
        (Ok(agreement), Ok(other)) => {
            assert_eq!(agreement, other);
            for end in [ours, theirs] {
                assert!((end.version_min..=end.version_max).contains(&agreement.version));
                assert!(agreement.packet_bytes_max <= end.packet_bytes_max);
                assert!(agreement.message_bytes_max <= end.message_bytes_max);
                assert_eq!(agreement.flags & !end.flags, 0);
            }
            assert_eq!((ours.codec, ours.cluster), (theirs.codec, theirs.cluster));
            for layer in ours.layers {
                let its = range_of(&theirs, layer.hash);
                assert_eq!(its.is_some(), agreement.layer(layer.hash).is_some());
                let (Some(its), Some(version)) = (its, agreement.layer(layer.hash)) else {
                    continue;
                };
                assert_eq!(version, layer.newest.min(its.newest));
                assert!(layer.oldest <= version && its.oldest <= version);
            }
        }
        (Err(Disagreement::Layer { hash, .. }), Err(Disagreement::Layer { .. })) => {
            let (ours, theirs) = (range_of(&ours, hash), range_of(&theirs, hash));
            let (ours, theirs) = (ours.expect("it is named"), theirs.expect("both have it"));
            assert!(ours.newest < theirs.oldest || theirs.newest < ours.oldest);
        }
        (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("one end agrees: {ours:?}, {theirs:?}"),
    }
    for hello in [ours, theirs] {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
}

/// Returns the versions of a layer in a hello.
fn range_of(hello: &Hello, hash: u32) -> Option<LayerRange> {
    hello.layers.into_iter().find(|it| it.hash != 0 && it.hash == hash)
}

/// Returns layers whose hashes and versions are small, so that two hellos often share some.
fn layers(deeds: &mut Deeds<'_>) -> [LayerRange; LAYERS_MAX] {
    let mut layers = [LayerRange::default(); LAYERS_MAX];
    let mut hash = 0;
    for layer in &mut layers {
        hash += 1 + u32::from(deeds.one_in(2));
        if deeds.one_in(2) {
            let versions = [deeds.below(4) as u16, deeds.below(4) as u16];
            let (oldest, newest) = (versions[0].min(versions[1]), versions[0].max(versions[1]));
            *layer = LayerRange { hash, oldest, newest };
        }
    }
    layers
}

fn hello(deeds: &mut Deeds<'_>) -> Hello {
    let name = |deeds: &mut Deeds<'_>| {
        let count = deeds.below(40);
        Name::truncated(&String::from_utf8_lossy(deeds.bytes(count)))
    };
    let versions = [1 + deeds.below(3) as u16, deeds.number(&EDGES) as u16];
    Hello {
        version_min: versions[0].min(versions[1]),
        version_max: versions[0].max(versions[1]),
        codec: 1 + u16::from(deeds.one_in(8)),
        packet_bytes_max: deeds.number(&EDGES) as u32,
        message_bytes_max: deeds.number(&EDGES),
        open_credit: deeds.number(&EDGES),
        initial_window: deeds.number(&EDGES) as u32,
        flags: u32::from(deeds.byte()),
        nonce: [deeds.byte(); 32],
        layers: layers(deeds),
        ..Hello::new(name(deeds), name(deeds), u128::from(deeds.number(&EDGES)))
    }
}

/// Checks that a proof fits the role, the key and the hellos of its making, and nothing else. It does
/// not fit the other role, another cluster or bytes with a bit turned; a stranger's invention does
/// not fit either.
fn proved(deeds: &mut Deeds<'_>) {
    static KEYS: LazyLock<[ProofKey; 2]> =
        LazyLock::new(|| [1, 2].map(|byte| ProofKey::of(&Seed::new([byte; SEED_BYTES]))));
    let role = if deeds.one_in(2) { Role::Dialler } else { Role::Acceptor };
    let (at, bit) = (usize::from(deeds.byte()) * 2 + deeds.below(2), deeds.below(8));
    let made_up: [u8; PROOF_BYTES] = filled(deeds.bytes(PROOF_BYTES));
    let said: [u8; HELLO_BYTES] = filled(deeds.bytes(HELLO_BYTES));
    let heard: [u8; HELLO_BYTES] = filled(deeds.bytes(HELLO_BYTES));
    let hellos = Hellos::new(role, said, heard);
    let proof = KEYS[0].prove(role, &hellos);
    assert!(KEYS[0].verify(role, &hellos, &proof));
    assert!(!KEYS[0].verify(role.other(), &hellos, &proof));
    assert!(!KEYS[1].verify(role, &hellos, &proof));
    assert!(!KEYS[0].verify(role, &hellos, &made_up));
    let (mut turned, mut other) = (hellos, proof);
    match at {
        0..HELLO_BYTES => turned.dialler[at] ^= 1 << bit,
        at if at < 2 * HELLO_BYTES => turned.acceptor[at - HELLO_BYTES] ^= 1 << bit,
        at => other[at % PROOF_BYTES] ^= 1 << bit,
    }
    assert!(!KEYS[0].verify(role, &turned, &other));
}

/// Writes and reads back what was read as a credential; both must be the same.
fn as_credential(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(seed) = Seed::from_text(text) {
        assert_eq!(Seed::from_text(&seed.to_text()), Ok(seed));
    }
}

/// Returns the front of `data`, and zeros behind it.
fn filled<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(data) {
        *to = *from;
    }
    bytes
}

/// Returns an input of each kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let names = (Name::truncated("cluster"), Name::truncated("node"));
    let mut hello = Hello { packet_bytes_max: 65_536, ..Hello::new(names.0, names.1, 7) };
    hello.layers[1] = LayerRange::new("layer", (1, 2));
    let hello = hello.encode();
    let credential = Seed::new([7; SEED_BYTES]).to_text();
    vec![
        [&[0], &hello[..]].concat(),
        [&[1], &hello[..80]].concat(),
        [&[2, 1, 77, 1, 3], &hello[..], &hello[..]].concat(),
        [&[3], credential.as_bytes()].concat(),
    ]
}
