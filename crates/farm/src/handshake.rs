//! The farmer meets its workers: checks who each is and whether it has the same
//! functions, and measures how far away it is.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::codec::{decode, encode_into_vec};
use chunkcomm::host::{Instant, here, timeout};
use chunkcomm::{AcceptError, BytesDuplex, Node, Peer};
use chunkcomm_cluster::Registry;
use chunkcomm_cluster::registry::Difference;
use tokio::task::{AbortHandle, JoinSet};

use crate::crew::Crew;
use crate::error::{Loss, StartError};
use crate::link::Link;
use crate::name::WorkerName;
use crate::proto::wire::{self, Hello, HelloError, Reply, Setup, VERSIONS};

/// Number of duplexes, beyond that of the workers, whose hello is awaited; one more closes the
/// oldest. A worker sends its hello as it opens its duplex, so the oldest are silent strangers.
/// With far fewer, a burst of strangers could push a worker out; more cost memory.
const STRANGERS_MAX: usize = 256;

/// Time in which an unwanted worker must hear that it is not wanted.
const PARTING: Duration = Duration::from_secs(1);

/// Number of round trips measured with a new worker; the shortest counts.
const PINGS: usize = 5;

enum Greeted {
    /// A peer that the farmer does not know; its duplex is closed again.
    Stranger,
    /// The peer sent its hello; both sides use this version.
    Hello(Hello, u16, BytesDuplex),
    /// The peer speaks other versions.
    Versions((u16, u16), Peer),
    /// The worker is ready.
    Ready(Link),
    Failed(StartError),
    /// The worker has other functions. It ends only when this duplex is closed; otherwise the
    /// farmer would hear of its end before its reply.
    Differs(StartError, BytesDuplex),
}

/// Waits until every worker of the crew is ready; returns their links by index.
pub(crate) async fn shake_hands(
    node: &Node,
    crew: &mut Crew,
    registry: &Registry,
    deadline: Duration,
) -> Result<Vec<Link>, StartError> {
    let mut links: Vec<Option<Link>> = crew.names().iter().map(|_| None).collect();
    let all = meet_all(node, crew, registry, &mut links);
    if let Ok(met) = timeout(deadline, all).await {
        met?;
        return Ok(links.into_iter().flatten().collect());
    }
    let absent = crew.names().iter().zip(&links).filter(|(_, link)| link.is_none());
    Err(StartError::Late {
        waited: deadline,
        missing: absent.map(|(name, _)| name.clone()).collect(),
    })
}

async fn meet_all(
    node: &Node,
    crew: &mut Crew,
    registry: &Registry,
    links: &mut [Option<Link>],
) -> Result<(), StartError> {
    let mut greetings = JoinSet::new();
    let mut unheard: VecDeque<AbortHandle> = VecDeque::new();
    let mut arrived = vec![false; links.len()];
    while links.iter().any(Option::is_none) {
        let greeted = tokio::select! {
            biased;
            Some(greeted) = greetings.join_next() => match greeted {
                Err(error) if error.is_cancelled() => continue,
                greeted => greeted.expect("a greeting does not panic"),
            },
            (worker, loss) = crew.ended() => return Err(StartError::Lost { worker, loss }),
            accepted = node.accept_duplex_bytes(wire::DUPLEX) => {
                match accepted {
                    Ok((_, duplex)) => {
                        unheard.retain(|greeting| !greeting.is_finished());
                        if unheard.len() >= links.len() + STRANGERS_MAX {
                            unheard.pop_front().inspect(AbortHandle::abort);
                        }
                        unheard.push_back(greetings.spawn(here(hear_hello(duplex))));
                    }
                    // A stranger's channel of another kind.
                    Err(AcceptError::Mismatch { .. }) => {}
                    Err(error) => return Err(StartError::Accept(error)),
                }
                continue;
            }
        };
        match greeted {
            Greeted::Stranger => {}
            Greeted::Hello(hello, version, duplex) => {
                let known = crew.known(&hello, duplex.peer());
                if let Some(name) = known.filter(|name| !arrived[name.index]) {
                    arrived[name.index] = true;
                    let setup = Setup { version, functions: registry.fingerprints() };
                    greetings.spawn(here(make_ready(name.clone(), duplex, setup)));
                }
            }
            Greeted::Versions(theirs, peer) => {
                // A peer that is no node of the cluster is a stranger.
                if let Some(name) = crew.known_member(&peer) {
                    let (worker, ours) = (name.clone(), VERSIONS);
                    return Err(StartError::Versions { worker, ours, theirs });
                }
            }
            Greeted::Ready(link) => {
                let at = link.name.index;
                links[at] = Some(link);
            }
            Greeted::Failed(error) => return Err(error),
            Greeted::Differs(error, duplex) => {
                // The worker may be gone by then, which is no matter.
                let _ = duplex.close(PARTING).await;
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Waits for a peer's hello; with any other message the peer is a stranger.
async fn hear_hello(mut duplex: BytesDuplex) -> Greeted {
    let Ok(Some(bytes)) = duplex.recv().await else {
        return Greeted::Stranger;
    };
    match wire::read_hello(&bytes) {
        Ok((hello, version)) => Greeted::Hello(hello, version, duplex),
        Err(HelloError::Versions(theirs)) => Greeted::Versions(theirs, duplex.peer().clone()),
        Err(HelloError::Malformed) => Greeted::Stranger,
    }
}

async fn make_ready(name: WorkerName, mut duplex: BytesDuplex, setup: Setup) -> Greeted {
    match try_make_ready(&mut duplex, &setup).await {
        Ok(round_trip_ns) => Greeted::Ready(Link::new(name, duplex, round_trip_ns)),
        Err(Failure::Differs(difference)) => {
            Greeted::Differs(StartError::Differs { worker: name, difference }, duplex)
        }
        Err(Failure::Lost(loss)) => Greeted::Failed(StartError::Lost { worker: name, loss }),
    }
}

enum Failure {
    Differs(Box<Difference>),
    Lost(Loss),
}

/// Returns the time of a round trip in nanoseconds.
async fn try_make_ready(duplex: &mut BytesDuplex, setup: &Setup) -> Result<u64, Failure> {
    let mut said = Vec::new();
    encode_into_vec(setup, &mut said).expect("names and numbers can be encoded");
    match decode::<Reply>(&ask(duplex, &said).await?) {
        Ok(Reply::Ready) => {}
        Ok(Reply::Differs(difference)) => return Err(Failure::Differs(Box::new(difference))),
        Err(_) => return Err(Failure::Lost(Loss::Malformed)),
    }
    let mut shortest = Duration::MAX;
    let mut ping = Vec::new();
    wire::begin_assignment(&mut ping, 0, 0, 0);
    for _ in 0..PINGS {
        let sent = Instant::now();
        ask(duplex, &ping).await?;
        shortest = shortest.min(sent.elapsed());
    }
    Ok(u64::try_from(shortest.as_nanos()).unwrap_or(u64::MAX))
}

/// Sends a message and returns the next one of the worker.
async fn ask(duplex: &mut BytesDuplex, message: &[u8]) -> Result<Bytes, Failure> {
    let sent = duplex.sender().send_slice_now(message).await;
    sent.map_err(|error| Failure::Lost(Loss::Send(error)))?;
    match duplex.recv().await {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(Failure::Lost(Loss::Closed)),
        Err(error) => Err(Failure::Lost(Loss::Link(error))),
    }
}
