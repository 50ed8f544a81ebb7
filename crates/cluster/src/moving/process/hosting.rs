//! Processes that a node runs for others, and processes that it asked others for.

use super::words::{Create, ProcessWord};
use crate::moving::{LineWord, Moving, Saying};
use crate::proto::custody::{Fate, Origin, cut};
use crate::registry::Registry;
use crate::registry::processes::{End, Entry, ProcessContext, Running, catch};
use crate::sync::locked;
use crate::tasks::spawn_on;
use chunkcomm::LinkError;
use chunkcomm::layer::arriving_by;
use chunkcomm_proto::sorted::SortedMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

/// Most processes that a node runs at a time. Each costs its future and its ends; a program with
/// more creates them without end.
const HOSTED_MAX: usize = 65_536;

/// End of a process, or the error that hides it.
pub(super) type Outcome = Result<End, LinkError>;

/// State of one node about processes.
pub(crate) struct Processes {
    registry: Option<Arc<Registry>>,
    runtime: Handle,
    /// Whether processes begin only when the node is a member of its cluster.
    of_cluster: bool,
    asked: Mutex<Asked>,
    hosted: Mutex<SortedMap<Key, Hosted>>,
}

/// Key of a process that runs here: its creator's line and number.
type Key = (u64, u64);

#[derive(Default)]
struct Asked {
    last: u64,
    /// The last chosen rank.
    turn: u32,
    waiting: SortedMap<u64, (u64, oneshot::Sender<Outcome>)>,
}

struct Hosted {
    stop: watch::Sender<bool>,
    detached: bool,
}

impl Processes {
    pub(crate) fn new(
        registry: Option<Arc<Registry>>,
        runtime: Handle,
        of_cluster: bool,
    ) -> Processes {
        let (asked, hosted) = (Mutex::default(), Mutex::default());
        Processes { registry, runtime, of_cluster, asked, hosted }
    }

    /// Returns the number of a new process on this line, and the receiver of its end.
    pub(super) fn created(&self, line: &Saying) -> (u64, oneshot::Receiver<Outcome>) {
        let (told, ended) = oneshot::channel();
        let mut asked = locked(&self.asked);
        asked.last += 1;
        let id = asked.last;
        asked.waiting.insert(id, (line.number, told));
        drop(asked);
        if let Some(error) = line.link.ended() {
            // If the line ended before, its end has not found this process.
            self.ended(line.number, id, Err(error));
        }
        (id, ended)
    }

    /// Forgets a process whose end nobody waits for.
    pub(super) fn forget(&self, id: u64) {
        locked(&self.asked).waiting.remove(&id);
    }

    /// Returns the rank after the last chosen one, among these without our own.
    pub(crate) fn next_turn(&self, ranks: &[u32], own: u32) -> Option<u32> {
        let mut asked = locked(&self.asked);
        let others = || ranks.iter().copied().filter(|rank| *rank != own);
        let turn = others().find(|rank| *rank > asked.turn).or_else(|| others().next())?;
        asked.turn = turn;
        Some(turn)
    }

    fn ended(&self, line: u64, id: u64, outcome: Outcome) {
        let mut asked = locked(&self.asked);
        if asked.waiting.get(&id).is_some_and(|(its, _)| *its == line) {
            let waiting = asked.waiting.remove(&id);
            drop(asked);
            if let Some((_, told)) = waiting {
                let _ = told.send(outcome);
            }
        }
    }

    /// Ends a process that was asked of a node without processes.
    pub(crate) fn refused(&self, line: u64, id: u64) {
        self.ended(line, id, Ok(End::Differs(None)));
    }

    /// Ends a line: processes that this node asked for on it are lost, and processes that run for
    /// its peer end.
    pub(crate) fn line_ended(&self, line: u64, error: &LinkError) {
        let mut asked = locked(&self.asked);
        let mut lost = Vec::new();
        for (id, (its, told)) in std::mem::take(&mut asked.waiting) {
            if its == line {
                lost.push(told);
            } else {
                asked.waiting.insert(id, (its, told));
            }
        }
        drop(asked);
        for told in lost {
            let _ = told.send(Err(error.clone()));
        }
        for (key, hosted) in locked(&self.hosted).iter() {
            if key.0 == line && !hosted.detached {
                hosted.stop.send_replace(true);
            }
        }
    }

    fn stop(&self, key: Key) {
        if let Some(hosted) = locked(&self.hosted).get(&key) {
            hosted.stop.send_replace(true);
        }
    }

    fn detach(&self, key: Key) {
        if let Some(hosted) = locked(&self.hosted).get_mut(&key) {
            hosted.detached = true;
        }
    }

    /// Returns the number of processes that run here, and of asked ones that have not ended.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (locked(&self.hosted).len(), locked(&self.asked).waiting.len())
    }

    fn find(&self, create: &Create) -> Result<&Entry, End> {
        let Some(registry) = &self.registry else { return Err(End::Differs(None)) };
        registry.processes.find(&create.name, create.print).map_err(End::Differs)
    }

    fn host(&self, key: Key) -> Result<watch::Receiver<bool>, End> {
        let mut hosted = locked(&self.hosted);
        if hosted.len() >= HOSTED_MAX {
            return Err(End::Full(HOSTED_MAX as u64));
        }
        let (stop, stopped) = watch::channel(false);
        hosted.insert(key, Hosted { stop, detached: false });
        Ok(stopped)
    }
}

/// Handles a word about a process from the other side of `line`.
pub(crate) fn heard(moving: &Arc<Moving>, line: &Saying, word: ProcessWord) {
    let processes = &moving.processes;
    match word {
        ProcessWord::Create(create) => begin(moving, line, create),
        ProcessWord::Stop(id) => processes.stop((line.number, id)),
        ProcessWord::Detach(id) => processes.detach((line.number, id)),
        ProcessWord::Ended(id, end) => processes.ended(line.number, id, Ok(end)),
    }
}

/// Reports the end of a process, at the latest when its task is dropped.
struct Report {
    moving: Arc<Moving>,
    line: Saying,
    id: u64,
    end: End,
    /// Ends in an input that was not decoded.
    hops: Vec<u64>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let link = self.line.number;
        for &hop in &self.hops {
            let fate = Fate::Dropped { by: self.moving.name.clone() };
            self.moving.custody(|it| it.release(Origin::Hop { link, hop }, fate));
        }
        locked(&self.moving.processes.hosted).remove(&(link, self.id));
        let end = std::mem::replace(&mut self.end, End::Stopped);
        let end = match end {
            End::Failed(message) => End::Failed(cut(&message)),
            End::Panicked { message, place } => End::Panicked { message: cut(&message), place },
            end => end,
        };
        self.line.say(LineWord::Process(ProcessWord::Ended(self.id, end)));
    }
}

fn begin(moving: &Arc<Moving>, line: &Saying, mut create: Create) {
    let hops = std::mem::take(&mut create.hops);
    let mut report = Report {
        moving: Arc::clone(moving),
        line: Arc::clone(line),
        id: create.id,
        end: End::Stopped,
        hops,
    };
    let Some(node) = moving.node() else { return };
    let found = moving.processes.find(&create).cloned();
    let key = (line.number, create.id);
    let hosted = found.and_then(|entry| Ok((entry, moving.processes.host(key)?)));
    let (entry, stopped) = match hosted {
        Ok(hosted) => hosted,
        Err(end) => {
            report.end = end;
            return;
        }
    };
    let creator = line.link.peer(&node);
    let context = ProcessContext { node, creator, stopped };
    spawn_on(&moving.processes.runtime, Box::pin(run(entry, context, create, report)));
}

async fn run(entry: Entry, context: ProcessContext, create: Create, mut report: Report) {
    let mut stopped = context.stopped.clone();
    let until_stopped = async move {
        // The sender is there as long as the process is.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let mut until_stopped = std::pin::pin!(until_stopped);
    let moving = Arc::clone(&report.moving);
    if moving.processes.of_cluster {
        let mut member = moving.member();
        tokio::select! {
            biased;
            () = &mut until_stopped => return,
            _ = member.wait_for(|member| *member) => {}
        }
    }
    let mut running = match start(&entry, context, &create, &mut report) {
        Ok(running) => running,
        Err(end) => {
            report.end = end;
            return;
        }
    };
    drop(create);
    let end = tokio::select! {
        biased;
        () = &mut until_stopped => End::Stopped,
        end = poll_fn(|context| match catch(|| running.as_mut().poll(context)) {
            Ok(polled) => polled,
            Err(panicked) => Poll::Ready(panicked.into()),
        }) => end,
    };
    // The values that the process holds may panic when they are dropped.
    report.end = catch(|| drop(running)).map_or_else(End::from, |()| end);
}

fn start(
    entry: &Entry,
    context: ProcessContext,
    create: &Create,
    report: &mut Report,
) -> Result<Running, End> {
    let node = context.node().clone();
    let input = &create.input.0;
    let decode = || arriving_by(&node, &report.line.link, || (entry.start)(context, input));
    match catch(decode) {
        Ok(Ok(running)) => {
            // From here on the ends belong to the process.
            report.hops.clear();
            Ok(running)
        }
        Ok(Err(error)) => Err(End::Input(error.to_string())),
        Err(panicked) => Err(panicked.into()),
    }
}
