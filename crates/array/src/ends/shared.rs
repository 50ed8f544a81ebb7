//! State that an end of a transfer shares with its tasks: rounds, counters, the fault.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::host;
use chunkcomm::layer::{Bell, warn};
use chunkcomm::{Loss, LossKind};
use chunkcomm_group::{Element, Region};

use super::error::ArrayError;
use super::line::LineSender;
use super::way::Way;
use super::wire;
use crate::plan::Side;

/// Time in which a peer may take the word that the transfer has ended: 1 s.
pub(crate) const LAST_WORD: Duration = Duration::from_secs(1);

/// Time in which a link usually releases what has landed: 100 ms. Then it is copied before it is written.
const RELEASE_WAIT: Duration = Duration::from_millis(100);

/// Returns the loss of a rank whose program has dropped its end.
pub(crate) fn dropped() -> Loss {
    Loss::new(LossKind::Left, "it dropped its end")
}

/// The state of one end, and the bell that tells of its changes.
pub(crate) struct Shared<R> {
    state: Mutex<State<R>>,
    bell: Bell,
    pub(crate) times: Times,
}

/// State of one end.
pub(crate) struct State<R> {
    /// Rounds that the program has begun and whose tasks are not all done with them, by number.
    pub(crate) rounds: VecDeque<(u32, Arc<R>)>,
    /// Of each task, in the order of the plan.
    pub(crate) tasks: Vec<Progress>,
    /// The reason why the transfer cannot go on.
    fault: Option<Broken>,
    /// Number of the last round that the program has begun, 0 where its peers need no word of the end.
    pub(crate) begun: u32,
    /// The program has dropped its end.
    pub(crate) dropped: bool,
}

/// A fault, and the first round that it concerns.
struct Broken {
    round: u32,
    error: ArrayError,
    /// Its form for the peers.
    told: Fault,
}

/// Reason why the task of a peer cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) loss: Loss,
    /// The rank that is lost, and the end of its group, where a peer has told of another one than itself.
    pub(crate) of: Option<(Side, usize)>,
}

impl Fault {
    /// Returns the loss as an error names it that has the peer.
    pub(crate) fn loss(&self) -> Loss {
        match self.of {
            None => self.loss.clone(),
            Some((side, rank)) => {
                let words = format!("rank {rank} of the {side} group: {:?}", self.loss);
                Loss::new(self.loss.kind(), words)
            }
        }
    }
}

impl From<Loss> for Fault {
    fn from(loss: Loss) -> Fault {
        Fault { loss, of: None }
    }
}

impl<R> State<R> {
    /// Returns the reason why this round cannot be finished.
    pub(crate) fn fault(&self, round: u32) -> Option<&ArrayError> {
        self.fault.as_ref().filter(|broken| broken.round <= round).map(|broken| &broken.error)
    }

    /// Whether all tasks are done with this round, or it cannot be finished.
    pub(crate) fn is_released(&self, round: u32) -> bool {
        self.fault(round).is_some() || self.tasks.iter().all(|task| task.released >= round)
    }
}

/// Progress of the task of one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The last round whose elements it needs no more.
    pub(crate) released: u32,
    /// The last round that has landed.
    pub(crate) landed: u32,
    /// The last round that is packed, or has come, where nothing leaves or is unpacked before all is there.
    pub(crate) packed: u32,
}

/// Time that an end spent, in nanoseconds.
#[derive(Default)]
pub(crate) struct Times {
    pub(super) inquiry: AtomicU64,
    pub(crate) exchange: AtomicU64,
    pub(super) schedule: AtomicU64,
    /// Packing or unpacking.
    pub(super) packing: AtomicU64,
    /// Waiting for room on the way to a peer, or for what it sends.
    pub(crate) transfer: AtomicU64,
    /// Waiting of the program for its peers.
    pub(crate) waiting: AtomicU64,
}

/// Adds a time.
pub(super) fn add(sum: &AtomicU64, time: Duration) {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    sum.fetch_add(nanos, Ordering::Relaxed);
}

impl<R> Shared<R> {
    pub(crate) fn new(tasks: usize, times: Times) -> Shared<R> {
        let state = State {
            rounds: VecDeque::new(),
            tasks: vec![Progress::default(); tasks],
            fault: None,
            begun: 0,
            dropped: false,
        };
        Shared { state: Mutex::new(state), bell: Bell::default(), times }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and tells all who wait.
    pub(crate) fn tell<O>(&self, change: impl FnOnce(&mut State<R>) -> O) -> O {
        let outcome = change(&mut self.state());
        self.bell.ring();
        outcome
    }

    /// Begins a round.
    pub(crate) fn begin(&self, number: u32, round: Arc<R>) {
        self.tell(|state| {
            state.rounds.push_back((number, round));
            state.begun = number;
        });
    }

    /// Notes that the task of this peer cannot go on with its round, and the number of its elements that have landed. Rounds
    /// before go on.
    pub(super) fn fail(&self, index: usize, way: &Way, fault: Fault, landed: usize) {
        let (error, told) = way.broken(fault, landed);
        self.tell(|state| {
            let round = state.tasks[index].landed + 1;
            if state.fault.as_ref().is_none_or(|broken| round < broken.round) {
                state.fault = Some(Broken { round, error, told });
            }
        });
    }

    /// Waits until the task of this peer is to stop: the program has dropped its end, or the peer's present
    /// round cannot be finished.
    pub(super) async fn stopped(&self, index: usize) {
        self.until(|state| {
            let round = state.tasks[index].landed + 1;
            (state.dropped || state.fault(round).is_some()).then_some(())
        })
        .await;
    }

    /// Notes that the task of this peer has packed its elements, or that they have come, and waits until all have.
    pub(super) async fn all_packed(&self, index: usize, round: u32) {
        self.tell(|state| state.tasks[index].packed = round);
        let packed = |task: &Progress| task.packed >= round;
        self.until(|state| state.tasks.iter().all(packed).then_some(())).await;
    }

    /// Tells the peer of a stopped task, if it waits for more, that none comes, and why.
    pub(super) async fn say_last(&self, index: usize, words: &mut LineSender, landed: usize) {
        if let Some(fault) = self.last_word(index) {
            let word = wire::failed(landed as u64, &fault);
            let _ = host::timeout(LAST_WORD, words.send(word.into())).await;
        }
    }

    fn last_word(&self, index: usize) -> Option<Fault> {
        let state = self.state();
        let landed = state.tasks[index].landed;
        match state.fault.as_ref().filter(|broken| broken.round <= landed + 1) {
            Some(broken) => Some(broken.told.clone()),
            None => (state.begun > landed).then(|| dropped().into()),
        }
    }

    /// Waits until `look` finds something.
    pub(crate) async fn until<O>(&self, mut look: impl FnMut(&mut State<R>) -> Option<O>) -> O {
        self.bell.until(|| look(&mut self.state())).await
    }

    /// Waits for a round that the program begins; `None` when it begins none any more.
    pub(crate) async fn round(&self, number: u32) -> Option<Arc<R>> {
        self.until(|state| {
            if state.fault(number).is_some() || state.dropped {
                return Some(None);
            }
            state
                .rounds
                .iter()
                .find(|(it, _)| *it == number)
                .map(|(_, round)| Some(Arc::clone(round)))
        })
        .await
    }
}

/// Waits for `future`. Reports the wait to the people who run the node, once, after `report_after`.
pub(crate) async fn reported<F: Future>(
    node: &str,
    report_after: Duration,
    what: impl FnOnce() -> String,
    future: F,
) -> F::Output {
    let mut future = std::pin::pin!(future);
    tokio::select! {
        biased;
        outcome = &mut future => return outcome,
        () = host::sleep(report_after) => warn(node, &what()),
    }
    future.await
}

/// A round of one end.
pub(crate) struct Round<S> {
    pub(crate) number: u32,
    pub(crate) storage: S,
    /// Rows that leave, or that have come.
    pub(crate) log: Arc<Log>,
}

/// A storage from which rows leave once they are committed.
pub(crate) trait Source: Send + Sync + 'static {
    type Element: Element;

    /// Returns committed elements.
    fn elements(&self, elements: Range<usize>) -> &[Self::Element];

    /// Returns committed elements as bytes that keep the storage.
    fn bytes(&self, elements: Range<usize>) -> Bytes;
}

impl<T: Element> Source for Region<T> {
    type Element = T;

    fn elements(&self, elements: Range<usize>) -> &[T] {
        self.done(elements).expect("the rows are committed")
    }

    fn bytes(&self, elements: Range<usize>) -> Bytes {
        Region::bytes(self, elements).expect("the rows are committed")
    }
}

/// A storage that is lent to a transfer; all of its rows are committed.
pub(crate) struct Lent<T> {
    storage: Arc<Vec<T>>,
    returned: Arc<Bell>,
}

impl<T> Lent<T> {
    pub(crate) fn new(storage: &Arc<Vec<T>>) -> Lent<T> {
        Lent { storage: Arc::clone(storage), returned: Arc::default() }
    }

    /// Waits until links have released the storage, of which this many others are to stay: 100 ms at most.
    pub(crate) async fn returned(self, others: usize) {
        let Lent { storage, returned } = self;
        let look = || (Arc::strong_count(&storage) <= others + 1).then_some(());
        let _ = host::timeout(RELEASE_WAIT, returned.until(look)).await;
    }
}

impl<T> Clone for Lent<T> {
    fn clone(&self) -> Lent<T> {
        Lent { storage: Arc::clone(&self.storage), returned: Arc::clone(&self.returned) }
    }
}

impl<T: Element> Source for Lent<T> {
    type Element = T;

    fn elements(&self, elements: Range<usize>) -> &[T] {
        &self.storage[elements]
    }

    fn bytes(&self, elements: Range<usize>) -> Bytes {
        struct Kept<T>(Option<Arc<Vec<T>>>, Range<usize>, Arc<Bell>);
        impl<T: Element> AsRef<[u8]> for Kept<T> {
            fn as_ref(&self) -> &[u8] {
                self.0
                    .as_ref()
                    .map_or(&[], |storage| bytemuck::cast_slice(&storage[self.1.clone()]))
            }
        }
        impl<T> Drop for Kept<T> {
            fn drop(&mut self) {
                self.0 = None;
                self.2.ring();
            }
        }
        let storage = Some(Arc::clone(&self.storage));
        Bytes::from_owner(Kept(storage, elements, Arc::clone(&self.returned)))
    }
}

/// Rows of one round that are done, in the order in which they became so.
#[derive(Default)]
pub(crate) struct Log {
    rows: Mutex<Vec<Range<usize>>>,
    bell: Bell,
}

impl Log {
    /// Notes rows.
    pub(crate) fn push(&self, rows: Range<usize>) {
        self.rows().push(rows);
        self.bell.ring();
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the entries from number `seen` on.
    pub(crate) fn since(&self, seen: usize) -> Vec<Range<usize>> {
        self.rows().get(seen..).unwrap_or_default().to_vec()
    }

    /// Returns the entry with this number, if there is one.
    pub(crate) fn get(&self, number: usize) -> Option<Range<usize>> {
        self.rows().get(number).cloned()
    }

    /// Waits until there are more than `seen` entries.
    pub(crate) async fn more_than(&self, seen: usize) {
        self.bell.until(|| (self.rows().len() > seen).then_some(())).await;
    }

    /// Returns the number of rows in all entries.
    pub(crate) fn count(&self) -> usize {
        self.rows().iter().map(ExactSizeIterator::len).sum()
    }
}
