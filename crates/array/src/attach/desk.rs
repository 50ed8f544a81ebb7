//! The desk: where visitors wait at rank 0 of a group.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use chunkcomm::host::{self, JoinHandle};
use chunkcomm::{AcceptError, Duplex, Loss, LossKind, Node, Peer};
use chunkcomm_cluster::Cluster;
use tokio::sync::{mpsc, watch};

use super::{Ask, Word, key};
use crate::ends::error::refused;

/// Time in which a visitor that has opened its channel says what it wants: 5 s.
const ASK_WAIT: Duration = Duration::from_secs(5);

/// Number of visitors that wait at most: 1024. Further ones are refused.
const WAITING_MAX: usize = 1024;

/// Counts what is under way.
#[derive(Clone, Default)]
pub(super) struct UnderWay(Arc<watch::Sender<usize>>);

/// Something that is under way until this is dropped.
pub(super) struct Busy(UnderWay);

impl UnderWay {
    pub(super) fn begin(&self) -> Busy {
        self.0.send_modify(|count| *count += 1);
        Busy(self.clone())
    }

    /// Waits until nothing is under way.
    pub(super) async fn over(&self) {
        // The sender is in `self`.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// A word to the task of a visitor's channel.
pub(super) enum Told {
    /// The group knows of the visit, which is waited for at the end for this long after the last word.
    Taken(Busy, Arc<Held>, Duration),
    Word(Word),
}

/// The way from the group to the task of a visitor's channel.
pub(super) type Teller = mpsc::UnboundedSender<Told>;

/// Held by the task of a visitor's channel, until the visitor has ended that.
#[derive(Default)]
pub(super) struct Held {
    /// The visitor has not ended it in its time: it is slow, or does nothing.
    is_overdue: AtomicBool,
}

/// Visitors that are let in.
pub(super) struct LetIn {
    /// Number of the first one.
    pub(super) first: u64,
    pub(super) visitors: Vec<(Ask, Teller)>,
    /// Visits that are overdue while others wait.
    pub(super) doubted: Vec<u64>,
}

/// Visitors that wait, and the task that lets them in.
pub(super) struct Desk {
    cluster: Cluster,
    key: String,
    queue: Arc<Queue>,
    listener: JoinHandle<()>,
    out: UnderWay,
}

#[derive(Default)]
struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Number of the next visitor.
    next: u64,
    /// Number of those that were let in, and those among them that count as under way.
    let_in: u64,
    under_way: Vec<(u64, Weak<Held>)>,
    is_closed: bool,
}

struct Waiting {
    number: u64,
    ask: Ask,
    teller: Teller,
}

impl Desk {
    /// Opens the desk under a name, by which visitors find this node.
    pub(super) async fn open(cluster: &Cluster, name: &str) -> Result<Desk, Loss> {
        let key = key(name);
        if cluster.provides(&key) {
            return Err(refused(format!("this node offers array {name:?} already")));
        }
        let provided = cluster.provide(&key).await;
        provided.map_err(|error| Loss::of(LossKind::Refused, error))?;
        let queue = Arc::<Queue>::default();
        let node = cluster.node();
        let listening = listen(node.clone(), key.clone(), Arc::clone(&queue));
        let listener = host::spawn_on(node.runtime(), listening);
        Ok(Desk { cluster: cluster.clone(), key, queue, listener, out: UnderWay::default() })
    }

    /// Takes visitors that wait, until `visits_max` are under way.
    pub(super) fn take(&self, visits_max: usize, patience: Duration) -> LetIn {
        let mut state = self.queue.state();
        state.under_way.retain(|(_, held)| held.strong_count() > 0);
        let (first, mut visitors) = (state.let_in, Vec::new());
        while state.under_way.len() < visits_max {
            let Some(Waiting { ask, teller, .. }) = state.waiting.pop_front() else { break };
            let is_dead = self.cluster.deaths().iter().any(|death| death.id == ask.0);
            let held = Arc::<Held>::default();
            let visit = (state.let_in, Arc::downgrade(&held));
            if !is_dead && teller.send(Told::Taken(self.out.begin(), held, patience)).is_ok() {
                state.let_in += 1;
                state.under_way.push(visit);
                visitors.push((ask, teller));
            }
        }
        let is_overdue = |held: &Weak<Held>| {
            held.upgrade().is_some_and(|it| it.is_overdue.load(Ordering::Relaxed))
        };
        let overdue = state.under_way.iter().filter(|(_, held)| is_overdue(held));
        let doubted = match state.waiting.is_empty() {
            true => Vec::new(),
            false => overdue.map(|(number, _)| *number).collect(),
        };
        LetIn { first, visitors, doubted }
    }

    /// Lets a visit count no more: nothing at the group waits for its visitor.
    pub(super) fn give_up(&self, number: u64) {
        self.queue.state().under_way.retain(|(it, _)| *it != number);
    }

    /// Waits until the visitors that were served have ended their channels, or the patience is over.
    pub(super) async fn over(&self) {
        self.out.over().await;
    }

    /// Lets no one in any more.
    pub(super) fn close(&self) {
        let mut state = self.queue.state();
        if state.is_closed {
            return;
        }
        state.is_closed = true;
        self.listener.abort();
        self.cluster.withdraw(&self.key);
        for Waiting { teller, .. } in state.waiting.drain(..) {
            // Its task may have ended.
            let _ = teller.send(Told::Word(Err(None)));
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a visitor wait, or says why it may not.
    fn enter(self: &Arc<Self>, ask: Ask, teller: Teller) -> Result<Place, Word> {
        let mut state = self.state();
        if state.is_closed {
            return Err(Err(None));
        }
        if state.waiting.len() >= WAITING_MAX {
            return Err(Err(Some(format!("{WAITING_MAX} visitors wait already"))));
        }
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(Waiting { number, ask, teller });
        Ok(Place { queue: Arc::clone(self), number })
    }
}

/// A visitor's place among those that wait, until this is dropped.
struct Place {
    queue: Arc<Queue>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.state().waiting.retain(|it| it.number != self.number);
    }
}

/// Lets visitors in.
async fn listen(node: Node, key: String, queue: Arc<Queue>) {
    loop {
        match node.accept_duplex::<Word, Ask>(&*key).await {
            Ok((peer, duplex)) => {
                host::spawn_on(node.runtime(), attend(Arc::clone(&queue), peer, duplex));
            }
            // Somebody who speaks otherwise was refused.
            Err(AcceptError::Mismatch { .. }) => {}
            Err(_) => return,
        }
    }
}

/// Attends to one visitor, until it ends its channel.
async fn attend(queue: Arc<Queue>, peer: Peer, mut duplex: Duplex<Word, Ask>) {
    let Ok(Ok(Some(ask))) = host::timeout(ASK_WAIT, duplex.recv()).await else { return };
    if ask.0.incarnation != peer.incarnation() {
        return;
    }
    let (teller, mut told) = mpsc::unbounded_channel();
    let place = match queue.enter(ask, teller) {
        Ok(place) => place,
        Err(word) => {
            if say(&mut duplex, &word, ASK_WAIT).await {
                // The channel's end is the visitor's.
                let _ = duplex.recv().await;
            }
            return;
        }
    };
    let (mut taken, mut patience, mut is_told) = (None, ASK_WAIT, false);
    loop {
        let word = tokio::select! {
            biased;
            word = told.recv() => word,
            // It has given up, or is gone.
            _ = duplex.recv() => return,
        };
        match word {
            Some(Told::Taken(busy, held, time)) => (taken, patience) = (Some((busy, held)), time),
            Some(Told::Word(word)) => {
                is_told = true;
                if !say(&mut duplex, &word, patience).await {
                    return;
                }
            }
            None => break,
        }
    }
    drop(place);
    let let_go = Err(Some("it was let go".to_owned()));
    if !is_told && !say(&mut duplex, &let_go, patience).await {
        return;
    }
    let ended = host::timeout(patience, duplex.recv()).await;
    // The port's end waits no longer.
    let held = taken.map(|(_, held)| held);
    if ended.is_err() {
        if let Some(held) = &held {
            held.is_overdue.store(true, Ordering::Relaxed);
        }
        let _ = duplex.recv().await;
    }
    drop(held);
}

/// Says a word; returns whether it left in time. A peer that is gone, and not yet known to be, takes nothing.
async fn say(duplex: &mut Duplex<Word, Ask>, word: &Word, patience: Duration) -> bool {
    let said = async {
        duplex.send(word).await?;
        duplex.flush().await
    };
    matches!(host::timeout(patience, said).await, Ok(Ok(())))
}
