//! The desk: where visitors wait at rank 0 of a group.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chunkcomm::host::{self, JoinHandle};
use chunkcomm::{AcceptError, Duplex, Node, Peer, with_causes};
use chunkcomm_cluster::Cluster;
use tokio::sync::{mpsc, watch};

use super::{Ask, Word, key};

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

    fn count(&self) -> usize {
        *self.0.borrow()
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
    /// The group knows of the visit, which counts as under way for this long after the last word.
    Taken(Busy, Duration),
    Word(Word),
}

/// The way from the group to the task of a visitor's channel.
pub(super) type Teller = mpsc::UnboundedSender<Told>;

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
    is_closed: bool,
}

struct Waiting {
    number: u64,
    ask: Ask,
    teller: Teller,
}

impl Desk {
    /// Opens the desk under a name, by which visitors find this node.
    pub(super) async fn open(cluster: &Cluster, name: &str) -> Result<Desk, String> {
        let key = key(name);
        if cluster.provides(&key) {
            return Err(format!("this node offers array {name:?} already"));
        }
        cluster.provide(&key).await.map_err(|error| with_causes(&error))?;
        let queue = Arc::<Queue>::default();
        let node = cluster.node();
        let listening = listen(node.clone(), key.clone(), Arc::clone(&queue));
        let listener = host::spawn_on(node.runtime(), listening);
        Ok(Desk { cluster: cluster.clone(), key, queue, listener, out: UnderWay::default() })
    }

    /// Takes visitors that wait, until `visits_max` are under way.
    pub(super) fn take(&self, visits_max: usize, patience: Duration) -> Vec<(Ask, Teller)> {
        let mut state = self.queue.state();
        let mut taken = Vec::new();
        while self.out.count() < visits_max {
            let Some(Waiting { ask, teller, .. }) = state.waiting.pop_front() else { break };
            let is_dead = self.cluster.deaths().iter().any(|death| death.id == ask.0);
            if !is_dead && teller.send(Told::Taken(self.out.begin(), patience)).is_ok() {
                taken.push((ask, teller));
            }
        }
        taken
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
        Err(word) => return say_last(duplex, &word).await,
    };
    let (mut busy, mut patience, mut is_told) = (None, ASK_WAIT, false);
    loop {
        let word = tokio::select! {
            biased;
            word = told.recv() => word,
            // It has given up, or is gone.
            _ = duplex.recv() => return,
        };
        match word {
            Some(Told::Taken(counted, time)) => (busy, patience) = (Some(counted), time),
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
    drop(busy);
    if ended.is_err() {
        let _ = duplex.recv().await;
    }
}

/// Says a word; returns whether it left in time. A peer that is gone, and not yet known to be, takes nothing.
async fn say(duplex: &mut Duplex<Word, Ask>, word: &Word, patience: Duration) -> bool {
    let said = async {
        duplex.send(word).await?;
        duplex.flush().await
    };
    matches!(host::timeout(patience, said).await, Ok(Ok(())))
}

/// Says a word, and leaves the channel's end to the visitor.
async fn say_last(mut duplex: Duplex<Word, Ask>, word: &Word) {
    if say(&mut duplex, word, ASK_WAIT).await {
        let _ = duplex.recv().await;
    }
}
