//! Task of rank 0 that drives the manager: its lines to the members, and the copies that it
//! started.

use super::{EndError, State, lines};
use crate::launch::{ChildExit, Children};
use crate::proto::cluster::manager::{Line, Manager, Phase};
use crate::proto::cluster::membership::End;
use crate::proto::cluster::{Down, Up};
use crate::proto::signature::Signature;
use crate::tasks::{spawn, spawn_among};
use chunkcomm::host::{self, Instant, JoinHandle};
use chunkcomm::{Address, Duplex, Loss, Node, Peer, Receiver, Sender};
use chunkcomm_proto::sorted::SortedMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Most words of members that wait for the manager; more wait in their channels.
const WORDS_WAITING_MAX: usize = 256;

/// Most words that wait for one member; with more, the member counts as gone.
const WORDS_FOR_ONE_MAX: usize = 4096;

/// The manager at work. Dropping it ends it, and kills the processes that it started.
pub(super) struct Keeper {
    task: JoinHandle<()>,
    progress: watch::Receiver<Progress>,
    /// Signal that ends the task.
    closing: watch::Sender<bool>,
}

/// Settings of the manager to be started.
pub(super) struct Start {
    /// Number of nodes.
    pub(super) size: u32,
    pub(super) ready_within: Duration,
    /// Wait for members of an earlier manager, if no other node is expected.
    pub(super) succeeds_within: Duration,
    /// Name of rank 0's program.
    pub(super) program: String,
    /// Functions that rank 0 runs for others.
    pub(super) functions: Option<Vec<Signature>>,
}

/// State of the keeper's work that others may read.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// Number of members other than that of this process. In a cluster that did not start: nodes
    /// that have not yet heard the reason and gone.
    others: usize,
    /// Number of processes that were started here and have not ended.
    children: usize,
    /// Rank and status of each process that ended badly.
    failures: Vec<String>,
}

/// Event for the manager.
enum Event {
    Came(Peer, Box<Duplex<Down, Up>>),
    Word(Line, Up),
    Lost(Line, Loss),
}

struct Wire {
    /// Words to the member; `None` after the last word, when the member goes.
    words: Option<mpsc::Sender<Down>>,
    peer: Peer,
}

struct Work {
    state: Arc<State>,
    manager: Manager,
    wires: SortedMap<Line, Wire>,
    next_line: u64,
    events: mpsc::Sender<Event>,
    /// Tasks of readers and writers; they end with the keeper.
    tasks: JoinSet<()>,
    children: Option<Children>,
    progress: watch::Sender<Progress>,
}

impl Keeper {
    /// Starts the manager. `children` have ranks 1 and up by index.
    pub(super) fn start(
        state: &Arc<State>,
        start: Start,
        children: Option<Children>,
    ) -> io::Result<Keeper> {
        let mut incarnation = [0; 16];
        host::fill_random(&mut incarnation)?;
        let incarnation = u128::from_le_bytes(incarnation);
        let Start { size, ready_within, succeeds_within, program, functions } = start;
        let manager = Manager::new(incarnation, size, ready_within, Instant::now().time());
        let manager = manager.succeeding(succeeds_within).comparing(&program, functions);
        let (progress, seen) = watch::channel(Progress {
            others: 0,
            children: children.as_ref().map_or(0, |children| children.pids().len()),
            failures: Vec::new(),
        });
        let (events, happens) = mpsc::channel(WORDS_WAITING_MAX);
        let (closing, closes) = watch::channel(false);
        let work = Work {
            state: Arc::clone(state),
            manager,
            wires: SortedMap::new(),
            next_line: 0,
            events,
            tasks: JoinSet::new(),
            children,
            progress,
        };
        let task = spawn(Box::pin(work.run(happens, closes)));
        Ok(Keeper { task, progress: seen, closing })
    }

    /// Dismisses a cluster that did not start. All present nodes get up to 2 s to hear the reason
    /// and go; then this node is closed.
    pub(super) async fn dismiss(&mut self, state: &State) {
        const SOON: Duration = Duration::from_secs(2);
        let others_gone = self.progress.wait_for(|it| it.others == 0);
        let _ = host::timeout(SOON, others_gone).await;
        let _ = state.close(SOON).await;
    }

    /// Ends rank 0, after all others have gone.
    pub(super) async fn end(
        mut self,
        state: &State,
        end: Option<End>,
        until: Instant,
    ) -> Result<(), EndError> {
        let others_gone = self.progress.wait_for(|it| it.others == 0);
        let _ = host::timeout_at(until, others_gone).await;
        let closed = state.close(until - Instant::now()).await;
        let children_gone = self.progress.wait_for(|it| it.children == 0);
        let in_time = matches!(host::timeout_at(until, children_gone).await, Ok(Ok(_)));
        let Progress { children, failures, .. } = self.progress.borrow().clone();
        // Ending the task kills the processes that are left.
        self.closing.send_replace(true);
        let _ = (&mut self.task).await;
        EndError::of(end)?;
        if !in_time && children > 0 {
            return Err(EndError::Killed { count: children });
        }
        if !failures.is_empty() {
            return Err(EndError::Failed(failures));
        }
        closed.map_err(EndError::Close)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts lines for as long as the node does.
async fn accept(node: Node, events: mpsc::Sender<Event>) {
    loop {
        match lines::accept(&node).await {
            Ok((peer, duplex)) => {
                if events.send(Event::Came(peer, Box::new(duplex))).await.is_err() {
                    return;
                }
            }
            // Another program opened a channel of that name with a different schema.
            Err(chunkcomm::AcceptError::Mismatch { .. }) => {}
            Err(_) => return,
        }
    }
}

/// Passes on the words of a member.
async fn read(line: Line, mut up: Receiver<Up>, events: mpsc::Sender<Event>) {
    let loss = loop {
        match up.recv().await {
            Ok(Some(word)) => {
                if events.send(Event::Word(line, word)).await.is_err() {
                    return;
                }
            }
            Ok(None) => break "it ended without a word".into(),
            Err(error) => break error.into(),
        }
    };
    let _ = events.send(Event::Lost(line, loss)).await;
}

/// Sends the manager's words to a member.
async fn write(mut down: Sender<Down>, mut words: mpsc::Receiver<Down>) {
    while let Some(word) = words.recv().await {
        // On a failure, the other half of the line learns the reason.
        if down.send_now(&word).await.is_err() {
            return;
        }
    }
}

/// Waits for the next end of a child; forever, when there is none.
async fn exit_of(children: &mut Option<Children>) -> ChildExit {
    if let Some(children) = children
        && let Some(exit) = children.exited().await
    {
        return exit;
    }
    std::future::pending().await
}

impl Work {
    async fn run(mut self, mut happens: mpsc::Receiver<Event>, mut closes: watch::Receiver<bool>) {
        let accepting = accept(self.state.node.clone(), self.events.clone());
        spawn_among(&mut self.tasks, Box::pin(accepting));
        loop {
            let until = self.manager.poll_timeout();
            let now = Instant::now().time();
            let rest = until.map_or(0, |until| until.micros_since(now));
            let rest = Duration::from_micros(rest) + Duration::from_millis(1);
            tokio::select! {
                biased;
                _ = closes.wait_for(|closing| *closing) => return,
                exit = exit_of(&mut self.children) => self.child_ended(&exit),
                Some(event) = happens.recv() => self.handle(event),
                () = host::sleep(rest), if until.is_some() => {
                    self.manager.handle_timeout(Instant::now().time());
                }
            }
            self.deliver();
            self.tell_progress();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Came(peer, duplex) => self.add_line(peer, *duplex),
            Event::Word(line, word) => {
                // A late word of a line that is over is dropped.
                if !self.wires.contains_key(&line) {
                    return;
                }
                if let Up::Ready(ready) = &word {
                    self.watch(line, &ready.addresses);
                }
                self.manager.handle_message(line, word);
            }
            Event::Lost(line, loss) => {
                let wire = self.wires.remove(&line);
                self.manager.handle_lost(line, loss.clone());
                // A lost member is reported as dead; a node that never became one is marked gone
                // here.
                if let (Some(wire), Phase::Failed(_)) = (wire, self.manager.phase()) {
                    wire.peer.declare_dead(loss);
                }
            }
        }
    }

    fn add_line(&mut self, peer: Peer, duplex: Duplex<Down, Up>) {
        let line = Line(self.next_line);
        self.next_line += 1;
        let (words, to_say) = mpsc::channel(WORDS_FOR_ONE_MAX);
        let (down, up) = duplex.split();
        spawn_among(&mut self.tasks, Box::pin(write(down, to_say)));
        spawn_among(&mut self.tasks, Box::pin(read(line, up, self.events.clone())));
        self.wires.insert(line, Wire { words: Some(words), peer });
        // Removes the tasks that have ended.
        while self.tasks.try_join_next().is_some() {}
    }

    /// Notices the end of a process of this machine at once. For another machine that is not
    /// possible: the member dialled, and this node may be unable to reach it.
    fn watch(&mut self, line: Line, addresses: &[String]) {
        let Some(wire) = self.wires.get(&line) else { return };
        let mut addresses = addresses.iter().filter_map(|it| it.parse::<Address>().ok());
        let Some(address) = addresses.find(Address::is_loopback_only) else { return };
        let (peer, events) = (wire.peer.clone(), self.events.clone());
        if peer.incarnation() == self.state.node.incarnation() {
            return;
        }
        spawn_among(
            &mut self.tasks,
            Box::pin(async move {
                if let Some(loss) = lines::desertion(&peer, &address).await {
                    let _ = events.send(Event::Lost(line, loss)).await;
                }
            }),
        );
    }

    /// Counts the end of a child. Children have the ranks behind this one's. An end without a status
    /// is no failure: a member that ended too early is missed.
    fn child_ended(&mut self, exit: &ChildExit) {
        let over = matches!(self.manager.phase(), Phase::Finished { .. });
        let well = exit.status.is_none_or(|status| status.success());
        let rank = exit.index as u32 + 1;
        let why = match exit.status {
            Some(status) => format!("its process {} ended: {status}", exit.pid),
            None => format!("its process {} ended", exit.pid),
        };
        let failure = (over && !well).then(|| format!("rank {rank}: {why}"));
        self.progress.send_modify(|it| {
            it.children -= 1;
            it.failures.extend(failure);
        });
        self.manager.handle_exit(rank, why);
    }

    fn deliver(&mut self) {
        while let Some((line, word)) = self.manager.poll_transmit() {
            let last = matches!(word, Down::Refused(_));
            let Some(wire) = self.wires.get_mut(&line) else { continue };
            let Some(words) = &wire.words else { continue };
            if words.try_send(word).is_err() {
                wire.peer.declare_dead("it does not take the manager's words");
            }
            if last {
                // The writer sends the last word before it ends the line.
                wire.words = None;
            }
        }
    }

    fn tell_progress(&self) {
        let own = self.state.node.incarnation();
        let others = match self.manager.phase() {
            Phase::Failed(_) => {
                let wires = self.wires.values();
                let there = wires.filter(|it| it.peer.incarnation() != own).count();
                there + self.manager.untold()
            }
            _ => self.manager.members().filter(|it| it.id.incarnation != own).count(),
        };
        self.progress.send_if_modified(|it| std::mem::replace(&mut it.others, others) != others);
    }
}
