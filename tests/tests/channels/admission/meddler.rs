//! A man in the middle of two honest nodes, who changes the bytes that pass.

use super::{cause, guarded, honest, refused, refused_at_once};
use chunkcomm::error::HelloCause;
use chunkcomm::proto::hello::{FLAG_CREDENTIAL, FLAG_TLS, HELLO_BYTES};
use chunkcomm::{Address, Node};
use chunkcomm_testkit::raw::socket_address;
use chunkcomm_testkit::still::StandsStill;
use chunkcomm_testkit::{Pair, limited, on_one_thread, until};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Bits that are turned over: place in the stream, mask.
type Flips = &'static [(usize, u8)];

/// Turns over both flags that admit.
const FLAGS: Flips = &[(16, (FLAG_CREDENTIAL | FLAG_TLS) as u8)];

/// Passes the bytes of one connection on to `node`, with `up` turned over on the way there and
/// `down` on the way back. Keeps the bytes that went up.
async fn meddling(node: SocketAddr, up: Flips, down: Flips) -> (Address, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    let went_up = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&went_up);
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let (from_near, to_near) = near.into_split();
        let (from_far, to_far) = TcpStream::connect(node).await.unwrap().into_split();
        tokio::join!(pass(from_near, to_far, up, Some(kept)), pass(from_far, to_near, down, None));
    });
    (address, went_up)
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    flips: Flips,
    kept: Option<Arc<Mutex<Vec<u8>>>>,
) {
    let mut at = 0;
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let bytes = &mut buffer[..count];
        for (place, bits) in flips.iter().filter(|(place, _)| (at..at + count).contains(place)) {
            bytes[place - at] ^= bits;
        }
        if let Some(kept) = &kept {
            kept.lock().unwrap().extend_from_slice(bytes);
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
        at += count;
    }
}

/// Lets an honest node dial another through somebody who turns over these bits; returns the
/// dialler's error.
async fn dialled_through(pair: &Pair, up: Flips, down: Flips) -> HelloCause {
    let (address, _) = meddling(socket_address(&pair.a), up, down).await;
    let third = guarded().name("third").build().await.unwrap();
    cause(third.connect_within(&address, Duration::ZERO).await.unwrap_err())
}

/// Places in each field of a hello that fit whatever their bits are: only the proofs notice a
/// change.
const FIELDS: &[(&str, Flips)] = &[
    ("the newest version", &[(10, 4)]),
    ("what was zero", &[(14, 1)]),
    ("an ability", &[(19, 0x80)]),
    ("the largest packet", &[(22, 2)]),
    ("the first window", &[(25, 1)]),
    ("what was zero behind the lengths", &[(31, 0x10)]),
    ("the incarnation", &[(40, 1)]),
    ("the largest message", &[(55, 0x40)]),
    ("the credit for opens", &[(60, 1)]),
    ("the node's name", &[(96, 1)]),
    ("the nonce", &[(128, 1)]),
    ("the end of the nonce", &[(159, 0x80)]),
    ("the last byte", &[(191, 1)]),
];

#[test]
fn a_bit_turned_over_in_a_hello_is_noticed_by_both_ends() {
    on_one_thread(async {
        for (field, flips) in FIELDS {
            for up in [true, false] {
                let pair = honest().await;
                let (up, down): (Flips, Flips) = if up { (flips, &[]) } else { (&[], flips) };
                let still = StandsStill::begin();
                let cause = dialled_through(&pair, up, down).await;
                assert!(matches!(cause, HelloCause::WrongProof), "{field}: {cause}");
                refused_at_once(still, &pair, field, &["did not prove"]).await;
            }
        }
    });
}

#[test]
fn a_bit_turned_over_in_a_proof_is_noticed() {
    on_one_thread(async {
        let pair = honest().await;
        let still = StandsStill::begin();
        let cause = dialled_through(&pair, &[(HELLO_BYTES + 7, 4)], &[]).await;
        // The dialler had a good proof: it learns of the refusal in its handshake.
        assert!(matches!(cause, HelloCause::Tls(_)), "{cause}");
        refused_at_once(still, &pair, "up", &["did not prove"]).await;
        let pair = honest().await;
        let still = StandsStill::begin();
        let cause = dialled_through(&pair, &[], &[(HELLO_BYTES + 31, 128)]).await;
        assert!(matches!(cause, HelloCause::WrongProof), "{cause}");
        refused_at_once(still, &pair, "down", &["the tls handshake failed"]).await;
    });
}

#[test]
fn flags_that_are_taken_away_admit_nobody() {
    on_one_thread(async {
        let none: Flips = &[];
        for (up, down, ours, theirs) in [
            (FLAGS, none, "before the peer proved", "peer has no credential"),
            (none, FLAGS, "peer has no credential", "peer proved that it has"),
            (FLAGS, FLAGS, "peer has no credential", "peer has no credential"),
        ] {
            let pair = honest().await;
            let still = StandsStill::begin();
            let cause = dialled_through(&pair, up, down).await.to_string();
            assert!(cause.contains(ours), "{cause}");
            refused_at_once(still, &pair, "taken away", &[theirs]).await;
        }
    });
}

#[test]
fn flags_that_are_added_admit_nobody() {
    on_one_thread(async {
        let pair = honest().await;
        let (address, _) = meddling(socket_address(&pair.a), FLAGS, FLAGS).await;
        let plain = Node::builder().name("plain").build().await.unwrap();
        // The plain node takes the other for one of its kind, and learns better from its proof.
        let still = StandsStill::begin();
        let outcome = plain.connect_within(&address, Duration::ZERO).await;
        refused_at_once(still, &pair, "added", &["prove", "that it has"]).await;
        drop(outcome);
    });
}

#[test]
fn what_was_overheard_cannot_be_said_again() {
    on_one_thread(async {
        let pair = honest().await;
        let (address, went_up) = meddling(socket_address(&pair.a), &[], &[]).await;
        let third = guarded().name("third").build().await.unwrap();
        let peer = limited(third.connect(&address)).await.unwrap();
        Pair { a: pair.a.clone(), b: third, peer }.is_well("overheard").await;
        let overheard = went_up.lock().unwrap().clone();
        assert!(overheard.len() > HELLO_BYTES + 32);
        let mut again = std::net::TcpStream::connect(socket_address(&pair.a)).unwrap();
        let still = StandsStill::begin();
        again.write_all(&overheard).unwrap();
        refused_at_once(still, &pair, "said again", &["did not prove"]).await;
    });
}

/// Passes on the hellos and proofs of two connections to `node` as they are, and then the TLS of
/// each as the other's.
async fn crossing(node: SocketAddr) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    tokio::spawn(async move {
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = TcpStream::connect(node).await.unwrap();
            for bytes in [HELLO_BYTES, 32] {
                let mut buffer = vec![0; bytes];
                near.read_exact(&mut buffer).await.unwrap();
                far.write_all(&buffer).await.unwrap();
                far.read_exact(&mut buffer).await.unwrap();
                near.write_all(&buffer).await.unwrap();
            }
            ends.push((near, far));
        }
        let (mut near, mut far) = ends.remove(0);
        let (mut other_near, mut other_far) = ends.remove(0);
        let _ = tokio::join!(
            tokio::io::copy_bidirectional(&mut near, &mut other_far),
            tokio::io::copy_bidirectional(&mut other_near, &mut far)
        );
    });
    address
}

#[test]
fn tls_belongs_to_its_hellos() {
    on_one_thread(async {
        let pair = honest().await;
        let address = crossing(socket_address(&pair.a)).await;
        let one = guarded().name("one").build().await.unwrap();
        let other = guarded().name("other").build().await.unwrap();
        let both = async {
            tokio::join!(
                one.connect_within(&address, Duration::ZERO),
                other.connect_within(&address, Duration::ZERO)
            )
        };
        let (one, other) = limited(both).await;
        for outcome in [one, other] {
            let cause = cause(outcome.map(drop).unwrap_err());
            assert!(matches!(cause, HelloCause::Tls(_)), "{cause}");
        }
        until(|| pair.a.refusals().len() == 2).await;
        refused(&pair, "crossed", &["belongs to another connection"]).await;
    });
}
