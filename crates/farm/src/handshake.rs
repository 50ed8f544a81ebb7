//! Arrival of the workers: the farmer checks who each is and whether it has the same functions, and
//! measures the round trip.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::codec::{decode, encode_into_vec};
use chunkcomm::host::{Instant, timeout};
use chunkcomm::{AcceptError, BytesDuplex, Loss, Node, Peer};
use chunkcomm_cluster::registry::{Difference, Signature};
use chunkcomm_proto::sorted::{SortedMap, SortedSet};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};

use crate::crew::Crew;
use crate::error::{StartError, WorkerEnd, is_a_cause};
use crate::link::Link;
use crate::name::WorkerName;
use crate::proto::record::{Finished, RunHead};
use crate::proto::wire::{self, Handed, Hello, HelloError, Reply, Role, Setup, VERSIONS};
use crate::settings::{WORKER_COUNT_MAX, Ways};
use crate::threads::spawn_among;

/// Number of duplexes whose hello is awaited; one more closes the oldest. A worker sends its hello
/// as it opens its duplex, so the oldest are silent strangers. With far fewer, a burst of strangers
/// could push a worker out; more cost memory.
const UNHEARD_MAX: usize = WORKER_COUNT_MAX + 256;

/// Time in which an unwanted worker must hear that it is not wanted.
const PARTING: Duration = Duration::from_secs(1);

/// Most bytes of results that a worker may hand over. Further results are dropped, and their tasks
/// run again.
const HANDED_BYTES_MAX: usize = 256 << 20;

/// Number of round trips measured with a new worker; the shortest counts.
const PINGS: usize = 5;

enum Greeted {
    /// The peer sent its hello; both sides use this version.
    Hello(Hello, u16, BytesDuplex),
    /// The peer speaks other versions.
    Versions((u16, u16), Peer),
    /// The worker has results for an earlier farmer.
    Results(Handed),
    /// The conversation is over.
    Met(Met),
}

/// Arrival of the workers, also of those that come later.
pub(crate) struct Reception {
    node: Node,
    functions: Vec<Signature>,
    ways: Ways,
    greetings: UnboundedReceiver<Greeted>,
    greets: UnboundedSender<Greeted>,
    /// Tasks that accept duplexes and speak with the nodes that opened them.
    tasks: JoinSet<()>,
    /// Indices of the workers that have said hello.
    arrived: SortedSet<usize>,
    /// Results for an earlier farmer that workers have handed over.
    handed: Vec<Finished>,
}

/// Outcome of a worker's arrival.
pub(crate) enum Met {
    Ready(Link),
    /// The worker has the same functions, and goes on to its sub-farmer.
    Placed(WorkerName),
    /// The farm does not take the worker. A worker with other functions ends only when its duplex
    /// is closed, by a drop of this. Otherwise the farmer would hear of its end before its reply.
    Not(StartError, Option<BytesDuplex>),
}

impl Reception {
    /// Takes workers that have these functions.
    pub(crate) fn open(node: Node, farm: &str, functions: Vec<Signature>, ways: Ways) -> Reception {
        let (greets, greetings) = unbounded_channel();
        let mut tasks = JoinSet::new();
        let accepting = accept(node.clone(), wire::duplex(farm), greets.clone());
        spawn_among(&mut tasks, Box::pin(accepting));
        Reception {
            node,
            functions,
            ways,
            greetings,
            greets,
            tasks,
            arrived: SortedSet::new(),
            handed: Vec::new(),
        }
    }

    /// Returns results for an earlier farmer that have come since the last call.
    pub(crate) fn handed(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.handed)
    }

    /// Takes no more workers; workers that come wait for the next farm.
    pub(crate) fn close(&mut self) {
        self.tasks.abort_all();
        self.greetings.close();
    }

    /// Returns a worker that has become ready, or that failed to.
    pub(crate) fn poll_met(&mut self, crew: &mut Crew, context: &mut Context<'_>) -> Poll<Met> {
        while let Poll::Ready(Some(greeted)) = self.greetings.poll_recv(context) {
            match greeted {
                Greeted::Hello(hello, version, duplex) => {
                    let Some(name) = crew.known(&hello, duplex.peer()) else { continue };
                    // A node may come again after it has left.
                    if self.arrived.insert(name.index) || name.member.is_some() {
                        let role = crew.role(&name, &hello, &self.ways);
                        let Ways { limit, virtual_workers, .. } = self.ways;
                        let functions = self.functions.clone();
                        let setup = Setup { version, functions, limit, virtual_workers, role };
                        let (greets, arrival) = (self.greets.clone(), crew.arrival(name.index));
                        let meeting = async move {
                            let mut met = make_ready(name, duplex, setup, &greets).await;
                            if let Met::Ready(link) = &mut met {
                                link.arrival = arrival;
                            }
                            // A failed send means that the farm is gone and needs no word.
                            let _ = greets.send(Greeted::Met(met));
                        };
                        spawn_among(&mut self.tasks, Box::pin(meeting));
                    }
                }
                Greeted::Versions(theirs, peer) => {
                    // A peer that is no node of the cluster is a stranger.
                    if let Some(worker) = crew.known_member(&peer) {
                        let error = StartError::Versions { worker, ours: VERSIONS, theirs };
                        return Poll::Ready(Met::Not(error, None));
                    }
                }
                Greeted::Results(Handed { run, function, results }) => {
                    let of = &self.functions[function as usize];
                    let output = of.output.as_ref().map_or(0, |output| output.hash);
                    let types = (of.input.hash, output);
                    let head = RunHead { run, types, function: of.name.clone() };
                    self.handed.push(Finished { head, results });
                }
                Greeted::Met(met) => return Poll::Ready(met),
            }
        }
        while let Poll::Ready(Some(_)) = self.tasks.poll_join_next(context) {}
        Poll::Pending
    }

    /// Waits until every worker of the crew is ready; returns their links by index.
    pub(crate) async fn meet_all(
        &mut self,
        crew: &mut Crew,
        deadline: Duration,
    ) -> Result<Vec<Link>, StartError> {
        let (mut links, mut placed) = (SortedMap::<usize, Link>::new(), SortedSet::new());
        let meeting = async {
            while links.len() + placed.len() < crew.names().len() {
                let event = poll_fn(|context| {
                    if let Poll::Ready(met) = self.poll_met(crew, context) {
                        return Poll::Ready(Ok(met));
                    }
                    crew.poll_ended(context).map(Err)
                });
                match event.await {
                    Ok(Met::Ready(link)) => drop(links.insert(link.name.index, link)),
                    Ok(Met::Placed(name)) => drop(placed.insert(name.index)),
                    // An earlier call left this word; the node may come again.
                    Ok(Met::Not(StartError::Lost { worker, loss, .. }, _))
                        if worker.member.is_some() && !is_a_cause(&loss) => {}
                    Ok(Met::Not(mut error, duplex)) => {
                        if let StartError::Lost { refusals, .. } = &mut error {
                            *refusals = self.refusals();
                        }
                        if let Some(duplex) = duplex {
                            // The worker may be gone by then: its failure changes nothing.
                            let _ = duplex.close(PARTING).await;
                        }
                        return Err(error);
                    }
                    Err((worker, loss)) => {
                        let refusals = self.refusals();
                        return Err(StartError::Lost { worker, loss, refusals });
                    }
                }
            }
            Ok(())
        };
        if let Ok(met) = timeout(deadline, meeting).await {
            met?;
            crew.has_started();
            return Ok(links.into_iter().map(|(_, link)| link).collect());
        }
        let absent = crew
            .names()
            .iter()
            .filter(|name| !links.contains_key(&name.index) && !placed.contains(&name.index));
        let missing = absent.cloned().collect();
        Err(StartError::Late { waited: deadline, missing, refusals: self.refusals() })
    }

    /// Returns the reasons for which the node has refused connections, each once.
    fn refusals(&self) -> Vec<String> {
        let refusals: SortedSet<String> = self.node.refusals().into_iter().collect();
        refusals.iter().cloned().collect()
    }
}

/// Accepts duplexes, and waits for the hello of each.
async fn accept(node: Node, name: String, greets: UnboundedSender<Greeted>) {
    let mut hearing = JoinSet::new();
    let mut unheard: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = hearing.join_next() => {}
            accepted = node.accept_duplex_bytes(&name) => match accepted {
                Ok((_, duplex)) => {
                    unheard.retain(|greeting| !greeting.is_finished());
                    if unheard.len() >= UNHEARD_MAX {
                        unheard.pop_front().inspect(AbortHandle::abort);
                    }
                    let greets = greets.clone();
                    let hears = async move {
                        if let Some(greeted) = hear_hello(duplex).await {
                            let _ = greets.send(greeted);
                        }
                    };
                    unheard.push_back(spawn_among(&mut hearing, Box::pin(hears)));
                }
                // A stranger opened a channel of another kind.
                Err(AcceptError::Mismatch { .. }) => {}
                Err(error) => {
                    let _ = greets.send(Greeted::Met(Met::Not(StartError::Accept(error), None)));
                    return;
                }
            },
        }
    }
}

/// Waits for a peer's hello; `None` for a stranger, whose duplex is closed.
async fn hear_hello(mut duplex: BytesDuplex) -> Option<Greeted> {
    let bytes = duplex.recv().await.ok().flatten()?;
    match wire::read_hello(&bytes) {
        Ok((hello, version)) => Some(Greeted::Hello(hello, version, duplex)),
        Err(HelloError::Versions(theirs)) => Some(Greeted::Versions(theirs, duplex.peer().clone())),
        Err(HelloError::Malformed) => None,
    }
}

async fn make_ready(
    name: WorkerName,
    mut duplex: BytesDuplex,
    setup: Setup,
    greets: &UnboundedSender<Greeted>,
) -> Met {
    match try_make_ready(&mut duplex, &setup, greets).await {
        Ok(None) => Met::Placed(name),
        Ok(Some((round_trip_ns, threads))) => {
            let farms = matches!(setup.role, Role::Farm { .. });
            Met::Ready(Link::new(name, duplex, round_trip_ns, threads, farms))
        }
        Err(Failure::Differs(difference)) => {
            Met::Not(StartError::Differs { worker: name, difference }, Some(duplex))
        }
        Err(Failure::Lost(loss)) => {
            Met::Not(StartError::Lost { worker: name, loss, refusals: Vec::new() }, None)
        }
    }
}

enum Failure {
    Differs(Box<Difference>),
    Lost(Loss),
}

/// Returns the round trip in nanoseconds, and the number of the worker's threads; `None` for a
/// worker of another node.
async fn try_make_ready(
    duplex: &mut BytesDuplex,
    setup: &Setup,
    greets: &UnboundedSender<Greeted>,
) -> Result<Option<(u64, u32)>, Failure> {
    let mut said = Vec::new();
    encode_into_vec(setup, &mut said).expect("names and numbers can be encoded");
    let (mut reply, mut bytes) = (ask(duplex, &said).await?, 0);
    let threads = loop {
        match decode::<Reply>(&reply) {
            Ok(Reply::Ready { threads }) => break threads,
            Ok(Reply::Differs(difference)) => return Err(Failure::Differs(Box::new(difference))),
            Ok(Reply::Results(results)) if (results.function as usize) < setup.functions.len() => {
                bytes += reply.len();
                if bytes <= HANDED_BYTES_MAX {
                    let _ = greets.send(Greeted::Results(results));
                }
            }
            _ => return Err(Failure::Lost(WorkerEnd::Malformed.into())),
        }
        reply = hear(duplex).await?;
    };
    if matches!(setup.role, Role::Below { .. }) {
        return Ok(None);
    }
    let mut shortest = Duration::MAX;
    for _ in 0..PINGS {
        let sent = Instant::now();
        ask(duplex, &wire::take_back(0, 0)).await?;
        shortest = shortest.min(sent.elapsed());
    }
    Ok(Some((u64::try_from(shortest.as_nanos()).unwrap_or(u64::MAX), threads)))
}

/// Sends a message and returns the next one of the worker.
async fn ask(duplex: &mut BytesDuplex, message: &[u8]) -> Result<Bytes, Failure> {
    let sent = duplex.sender().send_slice_now(message).await;
    sent.map_err(|error| Failure::Lost(error.into()))?;
    hear(duplex).await
}

async fn hear(duplex: &mut BytesDuplex) -> Result<Bytes, Failure> {
    match duplex.recv().await {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(Failure::Lost(WorkerEnd::Closed.into())),
        Err(error) => Err(Failure::Lost(error.into())),
    }
}
