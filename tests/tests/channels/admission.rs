//! Admission of peers and refusal of strangers: credentials, proofs and TLS, with everything that a
//! stranger may try. Each attempt is refused with an error of its own, and the link of honest peers
//! works afterwards.

mod acceptors;
mod diallers;
mod meddler;
mod nodes;
mod pki;
mod stranger;

use chunkcomm::error::HelloCause;
use chunkcomm::proto::credential::Seed;
use chunkcomm::{ConnectError, Credential, Node, NodeBuilder};
use chunkcomm_testkit::still::StandsStill;
use chunkcomm_testkit::{Pair, pair_of, tcp, until};
use std::time::Duration;

/// Returns the credential of the honest nodes.
fn seed() -> Seed {
    Seed::new([7; 32])
}

/// Returns some other credential.
fn other_seed() -> Seed {
    Seed::new([8; 32])
}

fn credential(seed: &Seed) -> Credential {
    seed.to_text().parse().unwrap()
}

/// Returns a node that admits every peer with the credential, and stays with TCP.
fn guarded() -> NodeBuilder {
    Node::builder().credential(credential(&seed())).same_host(false)
}

/// Returns two honest nodes with a link over TCP.
async fn honest() -> Pair {
    pair_of(tcp(), guarded(), guarded()).await
}

/// Checks that the listening honest node has refused a connection with these words, and that its
/// link works.
async fn refused(pair: &Pair, case: &str, words: &[&str]) {
    let is_there = until(|| has_refused(pair, words));
    if tokio::time::timeout(Duration::from_secs(10), is_there).await.is_err() {
        panic!("{case}: {words:?} are not in {:?}", pair.a.refusals());
    }
    pair.is_well(case).await;
}

/// Checks as [`refused`] does, and that nothing waited: time stands still, so no deadline came, no
/// pause ended and nobody dialled once more. The refusal is done within the second that it may
/// take, which is the time of a few short messages and of one handshake.
async fn refused_at_once(still: StandsStill, pair: &Pair, case: &str, words: &[&str]) {
    still.until(|| !pair.a.refusals().is_empty()).await;
    still.end(case);
    assert!(has_refused(pair, words), "{case}: {words:?} are not in {:?}", pair.a.refusals());
    pair.is_well(case).await;
}

fn has_refused(pair: &Pair, words: &[&str]) -> bool {
    let is_it = |refusal: &String| words.iter().all(|word| refusal.contains(word));
    pair.a.refusals().iter().any(is_it)
}

/// Returns the cause why there is no session with the dialled peer.
fn cause(error: ConnectError) -> HelloCause {
    match error {
        ConnectError::Hello { cause, .. } => cause,
        other => panic!("{other}"),
    }
}
