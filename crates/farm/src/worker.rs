//! A worker: takes assignments, runs them, answers.
//!
//! The I/O loop is one async task beside the link's own. It takes assignments and sends answers;
//! `compute.rs` has what lies between. The loop runs tiny tasks itself, in slices, so that packets
//! are read and written in between; `proto/placement.rs` decides which. While an answer waits for
//! room, the loop takes no assignment. The farmer always takes answers, and the compute threads never
//! wait for the loop. So two full channels cannot block each other.

use std::error::Error;
use std::fmt;
use std::future::pending;
use std::pin::{Pin, pin};

use chunkcomm::codec::decode;
use chunkcomm::host::{self, Instant};
use chunkcomm::layer::Owed;
use chunkcomm::{
    Address, BytesReceiver, BytesSender, Node, Peer, SendError, TryRecvError, with_causes,
};
use chunkcomm_cluster::Registry;
use chunkcomm_cluster::launch::Token;
use chunkcomm_cluster::registry::Entry;

use crate::compute::{Compute, SLICE};
use crate::error::ServeError;
use crate::proto::handover::Holding;
use crate::proto::split;
use crate::proto::wire::{self, Hello, Order, Role, Seat, Seated, Terms, Who};
use crate::remains::Remains;
use crate::settings::NodeSettings;

/// Reason why a worker stopped: one line, with all sources.
#[derive(Debug)]
pub(crate) struct Stopped(pub(crate) String);

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: Error> From<E> for Stopped {
    fn from(error: E) -> Stopped {
        Stopped(with_causes(&error))
    }
}

/// The way from a worker to its farmer.
#[derive(Clone, Debug)]
pub(crate) enum Farmer {
    /// At this address, reached by a node that the worker builds.
    At(Address),
    /// On this node itself.
    Here(Node),
}

/// Workplace of a worker, and its identity for the farmer.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) farmer: Farmer,
    pub(crate) index: usize,
    pub(crate) token: Token,
    /// The farm's name.
    pub(crate) farm: String,
    pub(crate) settings: NodeSettings,
    /// Number of threads that compute.
    pub(crate) threads: u32,
    /// Whether the worker explains its node on a signal; a worker process does.
    pub(crate) explains: bool,
}

pub(crate) async fn work(post: &Post, registry: &Registry) -> Result<(), Stopped> {
    let (node, farmer) = match &post.farmer {
        Farmer::At(address) => {
            let name = format!("farm-worker-{}", post.index);
            let node = post.settings.node().name(name).build().await?;
            let farmer = node.connect(address).await?;
            (node, farmer)
        }
        Farmer::Here(node) => (node.clone(), node.local().await?),
    };
    #[cfg(unix)]
    if post.explains {
        node.explain_on_sigusr1()?;
    }
    let who = Who::Started { token: post.token, index: post.index as u64 };
    let (farm, threads) = (&post.farm, post.threads);
    let service = Service { node: &node, farm, registry, threads, outlives: false };
    match serve(&service, &farmer, who, &mut None, pin!(pending())).await {
        // The farmer reports the difference.
        Ok(_) | Err(ServeError::Differs(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A worker as a farm sees it.
pub(crate) struct Service<'a> {
    pub(crate) node: &'a Node,
    /// The farm's name.
    pub(crate) farm: &'a str,
    pub(crate) registry: &'a Registry,
    /// Number of threads that compute.
    pub(crate) threads: u32,
    /// Whether the tasks that it holds outlive its farmer.
    pub(crate) outlives: bool,
}

/// Outcome of a worker's service.
pub(crate) enum Served {
    /// The farm is done.
    Done,
    /// The farm ended, or was about to, before it took the worker.
    NotTaken,
    /// The node of this rank is the worker's farmer, in the farm of this token.
    Below(u32, Token),
    /// The worker is to be a sub-farmer.
    Farmer(Box<Upper>),
    /// The tasks ended without the word that the farm is done.
    Cut,
    /// The farmer is gone, and the tasks that it had given out outlive it.
    Lost(ServeError, Box<Remains>),
}

/// A sub-farmer's duplex to its farmer.
pub(crate) struct Upper {
    pub(crate) answers: BytesSender,
    pub(crate) tasks: BytesReceiver,
    pub(crate) seat: Seat,
}

/// Serves the farmer at the other end of this link, until its farm is done.
///
/// The farmer takes the worker before `unwanted` is over, or not at all. It gets the results of the
/// `remains`.
pub(crate) async fn serve(
    service: &Service<'_>,
    farmer: &Peer,
    who: Who,
    remains: &mut Option<Box<Remains>>,
    unwanted: Pin<&mut (dyn Future<Output = ()> + Send)>,
) -> Result<Served, ServeError> {
    let &Service { node, farm, registry, threads, .. } = service;
    let duplex = node.open_duplex_bytes(farmer, &wire::duplex(farm)).await?;
    let (mut answers, mut tasks, _) = duplex.split();
    let hello = Hello { who, threads, functions: registry.signatures() };
    let said = answers.send_slice_now(&wire::hello(&hello)?).await;
    if let Err(error) = said
        && !matches!(error, SendError::Terminated(_))
    {
        return Err(error.into());
    }
    let heard = tokio::select! {
        biased;
        heard = tasks.recv() => heard,
        () = unwanted => return Ok(Served::NotTaken),
    };
    let Ok(Some(seated)) = heard else {
        return match answers.closed().await {
            SendError::Terminated(_) => Ok(Served::NotTaken),
            error => Err(error.into()),
        };
    };
    let seated: Seated = decode(&seated).map_err(|_| ServeError::Malformed)?;
    let seat = match seated {
        Ok(seat) => seat,
        Err(difference) => {
            // The farmer notes the difference and closes, or is gone.
            while matches!(tasks.recv().await, Ok(Some(_))) {}
            return Err(ServeError::Differs(difference));
        }
    };
    if !(wire::VERSIONS.0..=wire::VERSIONS.1).contains(&seat.version) {
        return Err(ServeError::Malformed);
    }
    let entry = |&at: &u32| registry.entries().nth(at as usize).cloned();
    let entries: Option<Vec<Entry>> = seat.functions.iter().map(entry).collect();
    let entries = entries.ok_or(ServeError::Malformed)?;
    if let Some(old) = remains.take() {
        for results in old.handed(&seat.functions) {
            match answers.send_slice_now(&wire::handed(&results)?).await {
                // A result that does not fit fails its task, when the task runs again.
                Ok(()) | Err(SendError::TooLarge { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    match seat.role {
        Role::Work => {}
        Role::Farm { .. } => {
            return Ok(Served::Farmer(Box::new(Upper { answers, tasks, seat })));
        }
        // The end of this duplex tells the farmer that the node has heard it.
        Role::Below { rank, token } => return Ok(Served::Below(rank, token)),
    }
    let Terms { limit, virtual_workers, .. } = seat.terms;
    let compute = Compute::start(entries, threads, limit, virtual_workers);
    let compute = compute.map_err(ServeError::Thread)?;
    compute.connect(farmer.message_bytes_max());
    let holding = service.outlives.then(Holding::default);
    let owed = Owed::standing(node, format!("results of a worker of farm {farm:?}"));
    let (is_taken, is_done) = (false, false);
    let mut desk = Desk { answers, compute, holding, owed, is_taken, is_done };
    match desk.serve(tasks).await {
        Ok(()) if desk.is_done => Ok(Served::Done),
        Ok(()) if !desk.is_taken => Ok(Served::NotTaken),
        Ok(()) => Ok(Served::Cut),
        Err(error) => match desk.holding {
            Some(holding) if error.is_loss() => {
                let acknowledged = desk.answers.stats().acknowledged;
                let remains = Remains::new(desk.compute, holding, seat.functions, acknowledged);
                Ok(Served::Lost(error, Box::new(remains)))
            }
            _ => Err(error),
        },
    }
}

/// State of a worker at work.
struct Desk {
    answers: BytesSender,
    compute: Compute,
    /// The tasks that the worker holds, if they are to outlive the farmer.
    holding: Option<Holding>,
    /// The results that are there when the node closes.
    owed: Owed,
    /// Whether the worker has answered a ping, and so is ready.
    is_taken: bool,
    /// Whether the farmer has said that the farm is done.
    is_done: bool,
}

impl Desk {
    /// Works until the farmer ends the tasks.
    async fn serve(&mut self, mut tasks: BytesReceiver) -> Result<(), ServeError> {
        loop {
            loop {
                match tasks.try_recv_with(|order| self.take(order)) {
                    Ok(given) => self.give_back(given?).await?,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Ended) => return Ok(()),
                    Err(TryRecvError::Failed(error)) => return Err(error.into()),
                    Err(_) => return Err(ServeError::Malformed),
                }
            }
            while let Some(answer) = self.compute.try_answered() {
                self.send(answer).await?;
            }
            if self.run_tiny().await? {
                if self.owed.is_due() {
                    self.send_rest().await?;
                }
                host::yield_now().await;
                continue;
            }
            let look = self.compute.due();
            tokio::select! {
                biased;
                received = tasks.recv() => match received? {
                    Some(order) => {
                        let given = self.take(&order)?;
                        self.give_back(given).await?;
                    }
                    None => return Ok(()),
                },
                answer = self.compute.answered() => self.send(answer).await?,
                () = self.owed.due() => self.send_rest().await?,
                () = Compute::wait_until(look) => {
                    for answer in self.compute.look().map_err(ServeError::Thread)? {
                        self.send(answer).await?;
                    }
                    if self.compute.is_stuck() {
                        return Err(ServeError::Stuck);
                    }
                }
            }
        }
    }

    /// Runs tasks in the loop for about a slice; returns `false` when none is to run here.
    async fn run_tiny(&mut self) -> Result<bool, ServeError> {
        let begun = Instant::now();
        loop {
            let left = SLICE.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(true);
            }
            let (ran, answers) = self.compute.run_here(left).await;
            for answer in answers.into_iter().flatten() {
                self.send(answer).await?;
            }
            if !ran {
                return Ok(false);
            }
        }
    }

    /// Sends all results, since the node closes. Tasks that still run are lost with their worker.
    async fn send_rest(&mut self) -> Result<(), ServeError> {
        for answer in self.compute.rest() {
            self.send(answer).await?;
        }
        self.owed.said();
        Ok(())
    }

    /// Takes a message of the farmer; returns the tasks to give back, with their run.
    fn take(&mut self, bytes: &[u8]) -> Result<Option<Given>, ServeError> {
        let makes_sense = match wire::read_order(bytes).map_err(|_| ServeError::Malformed)? {
            Order::Assign(assignment) => {
                if let Some(holding) = &mut self.holding {
                    holding.put(&assignment);
                }
                self.compute.put(&assignment)
            }
            Order::Value(part) => self.compute.values().put(&part),
            Order::End => {
                self.is_done = true;
                true
            }
            Order::Forget { digest } => {
                self.compute.values().forget(digest);
                true
            }
            Order::Once { run, key, reply } => {
                self.compute.needs().handle_reply(run, key, reply);
                true
            }
            Order::TakeBack { run, count } => {
                return Ok(Some(Given { run, tasks: self.compute.give_back(run, count) }));
            }
        };
        if makes_sense { Ok(None) } else { Err(ServeError::Malformed) }
    }

    async fn give_back(&mut self, given: Option<Given>) -> Result<(), ServeError> {
        let Some(Given { run, tasks }) = given else { return Ok(()) };
        for (first, count) in tasks {
            if let Some(holding) = &mut self.holding {
                holding.give_back(first, count);
            }
            let returned = wire::returned(run, first, count);
            self.owed.beside(self.answers.send_slice(&returned)).await?;
        }
        match self.owed.beside(self.answers.send_slice(&wire::returned(run, 0, 0))).await {
            // The farm has ended, as the end of the tasks will say.
            Err(SendError::Terminated(_)) => return Ok(()),
            sent => sent?,
        }
        self.is_taken = true;
        Ok(())
    }

    /// Sends an answer. Results too large to be sent together go one by one; a single result that
    /// is too large fails its task.
    async fn send(&mut self, answer: Vec<u8>) -> Result<(), ServeError> {
        let sent = self.try_send(&answer).await;
        if let Some(holding) = &mut self.holding {
            let stats = self.answers.stats();
            let number = stats.accepted + u64::from(sent.is_err());
            let noted = holding.sent(number, answer, stats.acknowledged);
            noted.map_err(|_| ServeError::Malformed)?;
        }
        sent
    }

    async fn try_send(&mut self, answer: &[u8]) -> Result<(), ServeError> {
        let error = match self.owed.beside(self.answers.send_slice(answer)).await {
            Err(error @ SendError::TooLarge { .. }) => error,
            sent => return Ok(sent?),
        };
        let parts = split::instead(answer, &error).map_err(|_| ServeError::Malformed)?;
        for part in &parts {
            match parts.len() {
                1 => self.answers.send_slice(part).await?,
                _ => Box::pin(self.try_send(part)).await?,
            }
        }
        Ok(())
    }
}

/// Tasks of a run that are given back, as ranges of a first task and a number.
struct Given {
    run: u32,
    tasks: Vec<(u64, u32)>,
}
