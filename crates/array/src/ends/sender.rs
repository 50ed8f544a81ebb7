//! The sending end.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use chunkcomm::host;
use chunkcomm::host::memory;
use chunkcomm_group::{Element, Pair, Region};

use super::error::ArrayError;
use super::opening::End;
use super::outlet::Outlet;
use super::report::{ArrayReport, Timings};
use super::settings::Transfer;
use super::shared::{Round, State};
use super::slab::Slab;
use crate::layout::Layout;
use crate::plan::Side;

/// Sends an array that a group of nodes has to another group, round by round.
///
/// The pair of groups opens it together: every rank of one calls [`open`](Self::open), every rank of the other
/// [`ArrayReceiver::accept`](crate::ArrayReceiver::accept). From then on the ranks know which elements go from whom to
/// whom, and each works alone. The opened pair is the plan: [`start`](Self::start) begins the next round of
/// the same transfer.
///
/// The end owns this rank's part of the array, its *storage*. Rows that are committed leave in the background, as
/// soon as those that share a message with them are committed as well, while the program computes further ones:
///
/// ```text
/// rows, next_slab -> Slab -> commit -> packed for each peer -> channel ~~~ unpacked -> slabs of the receiver
/// ```
///
/// ```no_run
/// use chunkcomm_array::{ArraySender, Layout};
/// use chunkcomm_group::Pair;
///
/// # async fn example(pair: &mut Pair) -> Result<(), Box<dyn std::error::Error>> {
/// let layout = Layout::parse("(block,*)@4x1", &[1024, 1024])?;
/// let storage = vec![0.0_f64; layout.local_len(pair.rank())];
/// let mut sender = ArraySender::open(pair, &layout, storage).await?;
/// for step in 0..100 {
///     while let Some(mut slab) = sender.next_slab() {
///         slab.fill(f64::from(step));
///         sender.commit(slab).await?; // leaves while the next slab is computed
///     }
///     sender.start().await?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// When it is dropped before [`finish`](Self::finish), the transfer ends, and all ranks of the other group get
/// an error with this rank.
#[must_use = "a transfer ends when its sender is dropped"]
pub struct ArraySender<T: Element> {
    end: End<Round<T>>,
    /// Storage of the present round, and of the one before where two may be under way.
    rounds: VecDeque<Arc<Round<T>>>,
    /// First row that `next_slab` has not handed out.
    position: usize,
}

impl<T: Element> ArraySender<T> {
    /// Opens a transfer from this rank's group to the other group of `pair`. All ranks of both groups open or accept.
    ///
    /// `storage` is this rank's part of the array, [`layout.local_len`](Layout::local_len) elements in the order of
    /// its memory, margins included; what a margin holds is not sent. Its elements stay until they are written.
    ///
    /// Costs one all-reduce over both groups and the plan; channels are opened without a round trip.
    ///
    /// # Errors
    ///
    /// At all ranks of both groups alike: [`ArrayError::Rank`] when a rank's arguments make no sense,
    /// [`ArrayError::Differs`] when ranks of a group state different layouts, [`ArrayError::Mismatch`] when the groups
    /// state other shapes or element types. [`ArrayError::Group`] when a rank died. `storage` is dropped. Only after
    /// `Group` the pair is of no more use.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the other ranks get an error or wait for this one.
    pub async fn open(
        pair: &mut Pair,
        layout: &Layout,
        storage: Vec<T>,
    ) -> Result<Self, ArrayError> {
        Self::open_with(pair, layout, storage, Transfer::default()).await
    }

    /// Opens a transfer as [`open`](Self::open) does, with settings.
    ///
    /// # Errors
    ///
    /// As `open`.
    ///
    /// # Cancel safety
    ///
    /// As `open`.
    pub async fn open_with(
        pair: &mut Pair,
        layout: &Layout,
        storage: Vec<T>,
        settings: Transfer,
    ) -> Result<Self, ArrayError> {
        // From now on it is not freed beside the tasks of the runtime.
        let region = Region::new(storage);
        let given = (layout, region.len());
        let (end, ways) = End::open::<T>(pair, given, Side::Sender, settings).await?;
        let slowest = layout.memory()[0];
        for (index, (way, link)) in ways.into_iter().enumerate() {
            let rows = (slowest, end.rows);
            let outlet = Outlet::new(&end.shared, index, way, rows, &end.settings);
            host::spawn_on(end.node.runtime(), outlet.run(link));
        }
        let mut sender = Self { end, rounds: VecDeque::new(), position: 0 };
        sender.begin(1, region);
        Ok(sender)
    }

    fn begin(&mut self, number: u32, region: Region<T>) {
        let round = Arc::new(Round { number, region, log: Arc::default() });
        self.end.shared.begin(number, Arc::clone(&round));
        self.rounds.push_back(round);
        self.position = 0;
    }

    fn round(&self) -> &Round<T> {
        self.rounds.back().expect("there is always a round")
    }

    /// Hands out the next rows to write: as many as a slab has, fewer at the end and before rows that are out,
    /// `None` behind the last.
    pub fn next_slab(&mut self) -> Option<Slab<T>> {
        while self.position < self.end.rows.count {
            let start = self.position;
            let end = (start + self.end.slab_rows).min(self.end.rows.count);
            self.position = end;
            if let Ok(slab) = self.slab(start..end) {
                return Some(slab);
            }
            // Some of them are out or committed: look at each.
            for row in start..end {
                if let Ok(slab) = self.slab(row..row + 1) {
                    self.position = row + 1;
                    return Some(slab);
                }
            }
        }
        None
    }

    /// Hands out these rows, to be written and committed on any thread, in any order.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Rows`] when they are not within the storage, [`ArrayError::Part`] when some are out or committed.
    /// The transfer goes on.
    pub fn slab(&self, rows: Range<usize>) -> Result<Slab<T>, ArrayError> {
        let round = self.round();
        let elements = self.end.rows.checked(&rows)?;
        let part = round.region.part(elements).map_err(ArrayError::Part)?;
        Ok(Slab { part, rows, log: Arc::clone(&round.log) })
    }

    /// Commits a slab, and lets the runtime send.
    ///
    /// # Errors
    ///
    /// The fault of the transfer, if it has failed.
    ///
    /// # Cancel safety
    ///
    /// The first poll has committed.
    pub async fn commit(&mut self, slab: Slab<T>) -> Result<(), ArrayError> {
        slab.commit();
        host::yield_now().await;
        let number = self.round().number;
        self.end.shared.state().fault(number).cloned().map_or(Ok(()), Err)
    }

    /// Commits all rows that are not committed, as they are; never waits.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Uncommitted`] when some are out; the others are committed.
    pub fn commit_all(&mut self) -> Result<(), ArrayError> {
        if let Ok(all) = self.slab(0..self.end.rows.count) {
            all.commit();
            return Ok(());
        }
        self.position = 0;
        while let Some(slab) = self.next_slab() {
            slab.commit();
        }
        self.all_committed()
    }

    /// Checks that all rows of this round are committed.
    fn all_committed(&self) -> Result<(), ArrayError> {
        match self.end.rows.count - self.round().log.count() {
            0 => Ok(()),
            rows => Err(ArrayError::Uncommitted { rows, all: self.end.rows.count }),
        }
    }

    /// Waits until all elements of this round are in the receivers' storage.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Uncommitted`] when rows are not committed; the transfer goes on. [`ArrayError::Peer`] when a
    /// rank of the other group is gone or has dropped its end.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the transfer goes on; call it again.
    pub async fn finish(&mut self) -> Result<(), ArrayError> {
        self.all_committed()?;
        self.landed(self.round().number).await
    }

    /// Waits until a round has landed at all peers.
    async fn landed(&self, number: u32) -> Result<(), ArrayError> {
        let look = |state: &mut State<Round<T>>| {
            if state.tasks.iter().all(|task| task.landed >= number) {
                return Some(Ok(()));
            }
            state.fault(number).cloned().map(Err)
        };
        self.until(look).await
    }

    /// Waits until `look` finds something, and reports a long wait.
    async fn until<O>(&self, look: impl FnMut(&mut State<Round<T>>) -> Option<O>) -> O {
        self.end.wait(self.round().number, self.end.shared.until(look)).await
    }

    /// Begins the next round: all rows may be written again. Their elements are those of the round before, with
    /// [`depth`](Transfer::depth) 2 of the round before that if there was one.
    ///
    /// Waits until the present round has landed, with depth 2 until the one before has. Opens nothing.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the round has not begun; call it again.
    pub async fn start(&mut self) -> Result<(), ArrayError> {
        self.all_committed()?;
        let next = self.round().number + 1;
        if self.rounds.len() < self.end.settings.depth {
            let present = self.round().region.done(..).expect("all rows are committed");
            let region = Region::new(memory::copied(present).await);
            self.begin(next, region);
            return Ok(());
        }
        let oldest = self.rounds.front().expect("there is always a round").number;
        self.landed(oldest).await?;
        let released = |state: &mut State<Round<T>>| {
            state.is_released(oldest).then(|| state.rounds.retain(|(number, _)| *number > oldest))
        };
        self.until(released).await;
        let round = self.rounds.front_mut().expect("there is always a round");
        let Round { region, .. } = Arc::get_mut(round).expect("the tasks have released it");
        region.start().await;
        let round = self.rounds.pop_front().expect("there is always a round");
        let Round { region, .. } = Arc::into_inner(round).expect("the tasks have released it");
        self.begin(next, region);
        Ok(())
    }

    /// Ends the transfer and returns the storage of the present round, once nothing is sent from it any more.
    ///
    /// When rows are not committed, the round ends at once: receivers get an error with this rank.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, so is the storage.
    pub async fn into_buffer(mut self) -> Vec<T> {
        let number = self.round().number;
        if self.all_committed().is_ok() {
            let released =
                |state: &mut State<Round<T>>| state.is_released(number).then(|| state.begun = 0);
            self.until(released).await;
        }
        let mut round = self.rounds.pop_back().expect("there is always a round");
        self.rounds.clear();
        self.end.shared.tell(|state| {
            state.dropped = true;
            state.rounds.clear();
        });
        loop {
            // After a fault the tasks release it when they next look.
            match Arc::try_unwrap(round) {
                Ok(Round { region, .. }) => return region.into_buffer().await,
                Err(shared) => round = shared,
            }
            host::yield_now().await;
        }
    }

    /// Returns the number of rows of this rank's storage, and of the elements of each.
    #[must_use]
    pub fn rows(&self) -> (usize, usize) {
        (self.end.rows.count, self.end.rows.length)
    }

    /// Returns the number of the round, from 1.
    #[must_use]
    pub fn round_number(&self) -> u32 {
        self.round().number
    }

    /// Returns what this rank sends to whom, and whom it waits for.
    #[must_use]
    pub fn explain(&self) -> ArrayReport {
        self.end.explain(self.round().number)
    }

    /// Returns where the time went, as the largest of all ranks of both groups, which call it together.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Group`] when a rank is gone.
    ///
    /// # Cancel safety
    ///
    /// As a call of the group.
    pub async fn timings(&self, pair: &mut Pair) -> Result<Timings, ArrayError> {
        Timings::of(&self.end.shared.times, pair).await
    }
}

impl<T: Element> fmt::Debug for ArraySender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArraySender")
            .field("round", &self.round().number)
            .field("rows", &self.end.rows.count)
            .finish_non_exhaustive()
    }
}
