//! A worker: takes assignments, runs them, answers.
//!
//! ```text
//!   tasks ──▶ I/O loop ──▶ tiny task: here ──────────────┐
//!                ▲  │                                    ▼
//!                │  └────▶ other: compute thread ──▶ answers
//!                └──────────────┘ answer
//! ```
//!
//! The loop is one async task beside the link's own. It runs tiny tasks itself, in slices, so
//! that packets are read and written in between; `proto/placement.rs` decides which. It never
//! stops taking answers from the compute thread, and the farmer never stops taking answers from
//! it, so that two full channels cannot block each other.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use chunkcomm::codec::{decode, encode_into_vec};
use chunkcomm::host::{self, Instant, Work};
use chunkcomm::{
    Address, BytesReceiver, BytesSender, Node, Peer, SendError, TryRecvError, with_causes,
};
use chunkcomm_cluster::Registry;
use chunkcomm_cluster::launch::Token;
use chunkcomm_cluster::registry::Entry;

use crate::compute::{ComputeThread, Computed, nanos, run_tasks, settle};
use crate::proto::placement::{Place, Placement};
use crate::proto::wire::{self, Hello, Reply, Setup};
use crate::serving::ServeError;
use crate::settings::NodeSettings;

/// Time that tasks run in the I/O loop before it looks after packets again.
/// Shorter, and a packet holds few answers of tiny tasks; longer, and the farmer
/// waits for the answers to the first of them.
const SLICE: Duration = Duration::from_micros(50);

/// Why a worker stopped: one line, with all sources.
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

/// A worker's place of work, and its identity for the farmer.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) farmer: Farmer,
    pub(crate) index: usize,
    pub(crate) token: Token,
    pub(crate) settings: NodeSettings,
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
    let hello = Hello::Started { token: post.token, index: post.index as u64 };
    match serve(&node, &farmer, &hello, registry).await {
        // The farmer reports the difference.
        Ok(()) | Err(ServeError::Differs(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Serves the farmer at the other end of this link, until its farm is done.
pub(crate) async fn serve(
    node: &Node,
    farmer: &Peer,
    hello: &Hello,
    registry: &Registry,
) -> Result<(), ServeError> {
    let duplex = node.open_duplex_bytes(farmer, wire::DUPLEX).await?;
    let (mut answers, mut tasks, _) = duplex.split();
    answers.send_slice_now(&wire::hello(hello)?).await?;
    let Ok(Some(setup)) = tasks.recv().await else {
        return Err(answers.closed().await.into());
    };
    let setup: Setup = decode(&setup).map_err(|_| ServeError::Malformed)?;
    if !(wire::VERSIONS.0..=wire::VERSIONS.1).contains(&setup.version) {
        return Err(ServeError::Malformed);
    }
    if let Some(difference) = registry.difference(&setup.functions) {
        say(&mut answers, &Reply::Differs(difference.clone())).await?;
        // The farmer reads the reply and closes, or is gone; without this wait the reply could
        // be lost with the process.
        while matches!(tasks.recv().await, Ok(Some(_))) {}
        return Err(ServeError::Differs(Box::new(difference)));
    }
    say(&mut answers, &Reply::Ready).await?;
    let entry = |name: &str| registry.lookup(name).expect("there is no difference").clone();
    let entries: Vec<Entry> = setup.functions.iter().map(|print| entry(&print.name)).collect();
    let desk = Desk::new(answers, entries).map_err(ServeError::Thread)?;
    desk.serve(tasks).await
}

async fn say<T: serde::Serialize>(to: &mut BytesSender, word: &T) -> Result<(), ServeError> {
    let mut bytes = Vec::new();
    encode_into_vec(word, &mut bytes)?;
    to.send_slice_now(&bytes).await?;
    Ok(())
}

/// A function and where its tasks run.
struct Workbench {
    entry: Entry,
    placement: Placement,
}

/// State of an assignment that was taken.
enum Taken {
    /// This many tasks of a function are done since then; the answer is to be sent.
    Answered { function: u32, count: u32, ended: Instant, work: Work },
    /// The compute thread has the assignment.
    HandedOver,
}

/// State of a worker at work.
struct Desk {
    answers: BytesSender,
    benches: Vec<Workbench>,
    thread: ComputeThread,
    /// Buffer of the current answer, kept for its memory.
    answer: Vec<u8>,
    /// When the last task ended, or the wait for the next one. The clock is read once a
    /// task, so that the time of a task in the loop includes the sending of the answer
    /// before it.
    now: Instant,
}

impl Desk {
    fn new(answers: BytesSender, entries: Vec<Entry>) -> std::io::Result<Desk> {
        let thread = ComputeThread::start(entries.clone())?;
        let bench = |entry| Workbench { entry, placement: Placement::new() };
        let benches = entries.into_iter().map(bench).collect();
        Ok(Desk { answers, benches, thread, answer: Vec::new(), now: Instant::now() })
    }

    /// Works until the farmer ends the tasks.
    async fn serve(mut self, mut tasks: BytesReceiver) -> Result<(), ServeError> {
        loop {
            self.now = Instant::now();
            let slice = self.now;
            let all_taken = loop {
                match tasks.try_recv_with(|assignment| self.take(assignment)) {
                    Ok(taken) => self.answer(taken?).await?,
                    Err(TryRecvError::Empty) => break true,
                    Err(TryRecvError::Ended) => return Ok(()),
                    Err(TryRecvError::Failed(error)) => return Err(error.into()),
                    Err(_) => return Err(ServeError::Malformed),
                }
                if self.now - slice >= SLICE {
                    break false;
                }
            };
            while let Some(computed) = self.thread.try_computed() {
                self.pass_on(computed).await?;
            }
            if !all_taken {
                host::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                received = tasks.recv() => match received? {
                    Some(assignment) => {
                        self.now = Instant::now();
                        let taken = self.take(&assignment)?;
                        self.answer(taken).await?;
                    }
                    None => return Ok(()),
                },
                computed = self.thread.computed() => self.pass_on(computed).await?,
            }
        }
    }

    /// Runs an assignment here or hands it to the compute thread.
    fn take(&mut self, bytes: &[u8]) -> Result<Taken, ServeError> {
        let assignment = wire::read_assignment(bytes).map_err(|_| ServeError::Malformed)?;
        let bench = self.benches.get_mut(assignment.function as usize);
        let bench = bench.ok_or(ServeError::Malformed)?;
        // An assignment without tasks only asks whether the worker is there.
        if bench.placement.place() == Place::Thread && assignment.count > 0 {
            self.thread.hand_over(assignment.run, bytes.to_vec());
            return Ok(Taken::HandedOver);
        }
        let (function, count) = (assignment.function, assignment.count);
        let (now, answer) = (self.now, &mut self.answer);
        let (ended, work) = host::working(|| run_tasks(&bench.entry, assignment, now, answer));
        Ok(Taken::Answered { function, count, ended, work })
    }

    async fn answer(&mut self, taken: Taken) -> Result<(), ServeError> {
        let Taken::Answered { function, count, ended, work } = taken else { return Ok(()) };
        let ended = settle(work, self.now, ended, &mut self.answer).await;
        if count > 0 {
            let placement = &mut self.benches[function as usize].placement;
            placement.handle_done(count, nanos(ended - self.now));
        }
        self.now = ended;
        self.send_answer().await
    }

    /// Sends an answer of the compute thread.
    async fn pass_on(&mut self, computed: Computed) -> Result<(), ServeError> {
        let bench = &mut self.benches[computed.function as usize];
        bench.placement.handle_done(computed.count, nanos(computed.busy));
        self.answer = computed.answer;
        self.send_answer().await
    }

    async fn send_answer(&mut self) -> Result<(), ServeError> {
        let Err(error) = self.answers.send_slice(&self.answer).await else {
            return Ok(());
        };
        if !matches!(error, SendError::TooLarge { .. }) {
            return Err(error.into());
        }
        // An answer too large to be sent is the task's fault: the run ends, not the worker.
        let Ok(wire::Answer::Done { run, first, count, .. }) = wire::read_answer(&self.answer)
        else {
            return Err(error.into());
        };
        let results = match count {
            1 => "its result".to_owned(),
            _ => format!("the results of the {count} tasks from this one on"),
        };
        let text = format!("{results} could not be sent: {}", Stopped::from(error));
        wire::write_failure(&mut self.answer, run, first, &text);
        Ok(self.answers.send_slice(&self.answer).await?)
    }
}
