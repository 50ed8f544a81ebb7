//! Arrival of the workers: the farmer checks who each is and whether it has the same functions,
//! gives it a seat, and measures the round trip.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use chunkcomm::codec::encode_into_vec;
use chunkcomm::host::{Instant, timeout};
use chunkcomm::{AcceptError, BytesDuplex, Loss, Node, Peer};
use chunkcomm_cluster::registry::Signature;
use chunkcomm_proto::sorted::{SortedMap, SortedSet};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};

use crate::crew::Crew;
use crate::error::{StartError, WorkerEnd, is_a_cause};
use crate::link::Link;
use crate::name::WorkerName;
use crate::proto::record::{Finished, RunHead};
use crate::proto::wire::{self, Answer, Handed, Hello, Role, Seat, Seated, Terms, VERSIONS};
use crate::settings::times::PARTING;
use crate::settings::{WORKER_COUNT_MAX, nanos};
use crate::threads::spawn_among;

/// Number of duplexes whose hello is awaited; one more closes the oldest. A worker sends its hello
/// as it opens its duplex, so the oldest are silent strangers. With far fewer, a burst of strangers
/// could push a worker out; more cost memory.
const UNHEARD_MAX: usize = WORKER_COUNT_MAX + 256;

/// Most bytes of results that a worker may hand over. Further results are dropped, and their tasks
/// run again.
const HANDED_BYTES_MAX: usize = 256 << 20;

/// Number of round trips measured with a new worker; the shortest counts. The first one waits until
/// the worker is ready.
const PINGS: usize = 6;

enum Greeted {
    /// The peer sent its hello; both sides use this version.
    Hello(Hello, u16, Box<BytesDuplex>),
    /// The peer speaks other versions.
    Versions((u16, u16), Peer),
    /// The worker has results for an earlier farmer.
    Handed(Handed),
    /// The conversation is over.
    Met(Met),
}

/// Arrival of the workers, also of those that come later.
pub(crate) struct Reception {
    node: Node,
    functions: Vec<Signature>,
    terms: Terms,
    greetings: UnboundedReceiver<Greeted>,
    greets: UnboundedSender<Greeted>,
    /// Tasks that accept duplexes and speak with the nodes that opened them.
    tasks: JoinSet<()>,
    /// Results for an earlier farmer that workers have handed over.
    handed: Vec<Finished>,
}

/// Outcome of a worker's arrival.
pub(crate) enum Met {
    Ready(Box<Link>),
    /// The worker has the same functions, and goes on to its sub-farmer.
    Placed(WorkerName),
    /// The farm does not take the worker. A worker with other functions ends only when its duplex
    /// is closed, by a drop of this. Otherwise the farmer would hear of its end before the reason.
    Not(StartError, Option<Box<BytesDuplex>>),
}

impl Reception {
    /// Takes workers that have these functions.
    pub(crate) fn open(
        node: Node,
        farm: &str,
        functions: Vec<Signature>,
        terms: Terms,
    ) -> Reception {
        let (greets, greetings) = unbounded_channel();
        let mut tasks = JoinSet::new();
        let accepting = accept(node.clone(), wire::duplex(farm), greets.clone());
        spawn_among(&mut tasks, Box::pin(accepting));
        Reception { node, functions, terms, greetings, greets, tasks, handed: Vec::new() }
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
                    let Some(name) = crew.known(hello.who, duplex.peer()) else { continue };
                    let places = wire::places(&self.functions, &hello.functions);
                    let seated = places.map(|functions| {
                        let role = crew.role(&name, hello.who);
                        Seat { version, functions, terms: self.terms, role }
                    });
                    let greets = self.greets.clone();
                    let numbers = (hello.threads, crew.arrival(name.index));
                    let meeting = async move {
                        let met = meet(name, *duplex, numbers, seated, &greets).await;
                        // A failed send means that the farm is gone and needs no word.
                        let _ = greets.send(Greeted::Met(met));
                    };
                    spawn_among(&mut self.tasks, Box::pin(meeting));
                }
                Greeted::Versions(theirs, peer) => {
                    // A peer that is no node of the cluster is a stranger.
                    if let Some(worker) = crew.known_member(&peer) {
                        let error = StartError::Versions { worker, ours: VERSIONS, theirs };
                        return Poll::Ready(Met::Not(error, None));
                    }
                }
                Greeted::Handed(Handed { run, function, results }) => {
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
                    Ok(Met::Ready(link)) => drop(links.insert(link.name.index, *link)),
                    Ok(Met::Placed(name)) => drop(placed.insert(name.index)),
                    // An earlier call left this word; the node may come again.
                    Ok(Met::Not(StartError::Lost { worker, loss, .. }, _))
                        if worker.member.is_some() && !is_a_cause(&loss) => {}
                    Ok(Met::Not(mut error, duplex)) => {
                        if let StartError::Lost { refusals, .. } = &mut error {
                            *refusals = self.refusals();
                        }
                        if let Some(duplex) = duplex {
                            // The worker may be gone by now: its failure changes nothing.
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
        Ok((hello, version)) => Some(Greeted::Hello(hello, version, Box::new(duplex))),
        Err(theirs) => Some(Greeted::Versions(theirs?, duplex.peer().clone())),
    }
}

/// Gives a worker its seat. One with other functions hears the difference first.
async fn meet(
    name: WorkerName,
    mut duplex: BytesDuplex,
    (threads, arrival): (u32, u32),
    seated: Seated,
    greets: &UnboundedSender<Greeted>,
) -> Met {
    let met = try_meet(&mut duplex, &seated, threads, greets).await;
    match (seated, met) {
        (Err(difference), _) => {
            let error = StartError::Differs { worker: name, difference };
            Met::Not(error, Some(Box::new(duplex)))
        }
        (_, Err(loss)) => {
            Met::Not(StartError::Lost { worker: name, loss, refusals: Vec::new() }, None)
        }
        (_, Ok(None)) => Met::Placed(name),
        (Ok(seat), Ok(Some((round_trip_ns, threads)))) => {
            let farms = matches!(seat.role, Role::Farm { .. });
            let link = Link::new(name, duplex, round_trip_ns, threads, farms, arrival);
            Met::Ready(Box::new(link))
        }
    }
}

/// Returns the round trip in nanoseconds, and the number of the worker's threads; `None` for a
/// worker of another node, or one that is refused.
async fn try_meet(
    duplex: &mut BytesDuplex,
    seated: &Seated,
    mut threads: u32,
    greets: &UnboundedSender<Greeted>,
) -> Result<Option<(u64, u32)>, Loss> {
    let mut said = Vec::new();
    encode_into_vec(seated, &mut said).expect("names and numbers can be encoded");
    duplex.sender().send_slice_now(&said).await?;
    let Ok(seat) = seated else { return Ok(None) };
    let is_below = matches!(seat.role, Role::Below { .. });
    let (mut shortest, mut bytes) = (Duration::MAX, 0);
    for _ in 0..PINGS {
        let asked = Instant::now();
        if !is_below {
            duplex.sender().send_slice_now(&wire::take_back(0, 0)).await?;
        }
        loop {
            let answer = match duplex.recv().await? {
                Some(answer) => answer,
                None if is_below => return Ok(None),
                None => return Err(WorkerEnd::Closed.into()),
            };
            match wire::read_answer(&answer) {
                Ok(Answer::Returned { .. }) if !is_below => break,
                Ok(Answer::Threads { count, .. }) => threads = count,
                Ok(Answer::Handed(handed)) if (handed.function as usize) < seat.functions.len() => {
                    bytes += answer.len();
                    if bytes <= HANDED_BYTES_MAX {
                        let _ = greets.send(Greeted::Handed(handed));
                    }
                }
                _ => return Err(WorkerEnd::Malformed.into()),
            }
        }
        shortest = shortest.min(asked.elapsed());
    }
    Ok(Some((nanos(shortest), threads)))
}
