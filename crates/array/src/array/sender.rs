//! The sending end of a transfer.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use chunkcomm::host;
use chunkcomm::host::memory;
use chunkcomm_group::{CollectiveError, Element, Group, Pair, Region};

use super::Array;
use super::slab::Slab;
use crate::ends::error::ArrayError;
use crate::ends::opening::{End, Link};
use crate::ends::outlet::Outlet;
use crate::ends::report::{ArrayReport, Timings};
use crate::ends::settings::Transfer;
use crate::ends::shared::{Lent, Log, Round, Source, State};
use crate::ends::way::Way;
use crate::layout::Layout;
use crate::plan::Side;

/// Sends an [`Array`] of one group to another group, round by round.
///
/// The pair of groups opens it together: every rank of one calls [`Array::sender`], every rank of the other
/// [`Array::receiver`]. From then on the ranks know which elements go from whom to whom, and each works alone. The opened
/// pair is the plan: [`start`](Self::start) begins the next round of the same transfer.
///
/// The end owns the array. Rows that are committed leave in the background, as soon as those that share a message with
/// them are committed as well, while the program computes further ones:
///
/// ```text
/// rows, next_slab -> Slab -> commit -> packed for each peer -> channel ~~~ unpacked -> slabs of the receiver
/// ```
///
/// ```no_run
/// use chunkcomm_array::{Array, ArrayError};
/// use chunkcomm_group::{Group, Pair};
///
/// # async fn example(group: &Group, pair: &mut Pair) -> Result<(), ArrayError> {
/// let field = Array::<f64>::zeros(group, "(block,*)", [1024, 1024])?;
/// let mut sender = field.sender(pair).await?;
/// for step in 1..=100 {
///     while let Some(mut slab) = sender.next_slab() {
///         slab.fill(f64::from(step));
///         sender.commit(slab).await?; // leaves while the next slab is computed
///     }
///     if step < 100 {
///         sender.start().await?;
///     }
/// }
/// sender.finish().await?; // all have landed
/// let field = sender.into_array().await;
/// # drop(field);
/// # Ok(())
/// # }
/// ```
///
/// When it is dropped before [`finish`](Self::finish), the transfer ends, and all ranks of the other group get
/// an error with this rank.
#[must_use = "a transfer ends when its sender is dropped"]
pub struct ArraySender<T: Element> {
    /// Its storage is that of the rounds.
    array: Array<T>,
    end: End<Round<Region<T>>>,
    /// Storage of the present round, and of the one before where two may be under way.
    rounds: VecDeque<Arc<Round<Region<T>>>>,
    /// First row that `next_slab` has not handed out.
    position: usize,
}

impl<T: Element> Array<T> {
    /// Sends the array to the other group, whose ranks [`receive`](Self::receive) it, and waits until it is there.
    ///
    /// Costs an agreement of both groups; an array that travels again and again has a [`sender`](Self::sender).
    ///
    /// # Errors
    ///
    /// Those of `sender` as plain errors; [`ArrayError::Peer`] when a rank of the other group is gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the other ranks get an error or wait for this one. Links may then hold the elements for a
    /// while, as after an error: a write to the array meanwhile first copies all of them.
    pub async fn send(&self, pair: &mut Pair) -> Result<(), ArrayError> {
        let among = (&self.group, pair, Transfer::default());
        let (end, ways) = open::<T, _>(among, &self.layout, Side::Sender, None).await?;
        self.serve(&end, ways);
        let log = Arc::<Log>::default();
        if end.rows.count > 0 {
            log.push(0..end.rows.count);
        }
        let others = Arc::strong_count(&self.storage);
        let storage = Lent::new(&self.storage);
        end.shared.begin(1, Arc::new(Round { number: 1, storage: storage.clone(), log }));
        let landed = end.landed(1).await;
        if landed.is_ok() {
            end.released(1).await;
            end.ends_well();
        }
        drop(end);
        storage.returned(others).await;
        landed
    }

    /// Opens a transfer of this array, which is written slab by slab while it travels. All ranks of both groups open or
    /// accept it.
    ///
    /// Margins are not sent. Of an array whose layout has a [region](crate::Layout::region), that is sent.
    /// Costs one all-reduce over both groups and the plan; channels are opened without a round trip.
    ///
    /// # Errors
    ///
    /// The error has the array, as `data`. All ranks of both groups get the same one: [`ArrayError::Rank`] when a rank's array is one
    /// of another group than its side of the pair, [`ArrayError::Differs`] when ranks of a group state different layouts,
    /// [`ArrayError::Mismatch`] when the groups state other shapes or element types. After these the pair may be used
    /// again; not after [`ArrayError::Group`]: a rank died.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, so is the array, and the other ranks get an error or wait for this one.
    pub async fn sender(
        self,
        pair: &mut Pair,
    ) -> Result<ArraySender<T>, CollectiveError<Array<T>, ArrayError>> {
        self.sender_with(pair, Transfer::default()).await
    }

    /// Opens a transfer as [`sender`](Self::sender) does, with settings.
    ///
    /// # Errors
    ///
    /// As `sender`.
    ///
    /// # Cancel safety
    ///
    /// As `sender`.
    pub async fn sender_with(
        mut self,
        pair: &mut Pair,
        settings: Transfer,
    ) -> Result<ArraySender<T>, CollectiveError<Array<T>, ArrayError>> {
        let among = (&self.group, pair, settings);
        let (end, ways) = match open::<T, _>(among, &self.layout, Side::Sender, None).await {
            Ok(opened) => opened,
            Err(cause) => return Err(CollectiveError::new(self, cause)),
        };
        self.serve(&end, ways);
        let region = Region::new(std::mem::take(self.storage_mut()));
        let mut sender = ArraySender { array: self, end, rounds: VecDeque::new(), position: 0 };
        sender.begin(1, region);
        Ok(sender)
    }

    /// Starts the task of each peer.
    fn serve<S: Source>(&self, end: &End<Round<S>>, ways: Vec<(Way, Link)>) {
        let slowest = self.layout.memory()[0];
        for (index, (way, link)) in ways.into_iter().enumerate() {
            let outlet = Outlet::new(&end.shared, index, way, (slowest, end.rows), &end.settings);
            host::spawn_on(end.node.runtime(), outlet.run(link));
        }
    }
}

/// Agrees with all ranks of the pair on a transfer, unless one names a fault.
pub(super) async fn open<T: Element, R: Send + Sync + 'static>(
    (group, pair, settings): (&Group, &mut Pair, Transfer),
    layout: &Layout,
    side: Side,
    fault: Option<String>,
) -> Result<(End<R>, Vec<(Way, Link)>), ArrayError> {
    let first = pair.both().rank() - pair.rank();
    let is_ours = pair.size() == group.size()
        && (0..pair.size()).all(|rank| pair.both().member(first + rank) == group.member(rank));
    let why = "its array is one of another group than its side of the pair";
    let fault = fault.or_else(|| (!is_ours).then(|| why.to_owned()));
    End::open::<T>(pair, (layout, fault), side, settings).await
}

impl<T: Element> ArraySender<T> {
    fn begin(&mut self, number: u32, region: Region<T>) {
        let round = Arc::new(Round { number, storage: region, log: Arc::default() });
        self.end.shared.begin(number, Arc::clone(&round));
        self.rounds.push_back(round);
        self.position = 0;
    }

    fn round(&self) -> &Round<Region<T>> {
        self.rounds.back().expect("there is always a round")
    }

    /// Hands out the next rows to write: as many as a slab has, fewer at the end and where rows are out,
    /// `None` behind the last. A slab that was dropped is not handed out again: [`slab`](Self::slab) does.
    pub fn next_slab(&mut self) -> Option<Slab<T>> {
        while self.position < self.end.rows.count {
            let start = self.position;
            let end = start.saturating_add(self.end.slab_rows).min(self.end.rows.count);
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
        let part = round.storage.part(elements).map_err(ArrayError::Part)?;
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
        self.end.landed(self.round().number).await
    }

    /// Begins the next round: all rows may be written again. They have the elements of the last round; with
    /// [`depth`](Transfer::depth) 2, from the third round on, those of the last but one.
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
            let present = self.round().storage.done(..).expect("all rows are committed");
            let region = Region::new(memory::copied(present).await);
            self.begin(next, region);
            return Ok(());
        }
        let oldest = self.rounds.front().expect("there is always a round").number;
        self.end.landed(oldest).await?;
        let released = |state: &mut State<Round<Region<T>>>| {
            state.is_released(oldest).then(|| state.rounds.retain(|(number, _)| *number > oldest))
        };
        self.end.wait(next - 1, self.end.shared.until(released)).await;
        let round = self.rounds.front_mut().expect("there is always a round");
        let Round { storage, .. } = Arc::get_mut(round).expect("the tasks have released it");
        storage.start().await;
        let round = self.rounds.pop_front().expect("there is always a round");
        let Round { storage, .. } = Arc::into_inner(round).expect("the tasks have released it");
        self.begin(next, storage);
        Ok(())
    }

    /// Ends the transfer and returns the array with the elements of the present round; after an error, too.
    ///
    /// Waits until committed rounds have left, and until slabs that are out are committed or dropped. If rows are not
    /// committed when it is called, the present round ends at once: receivers get an error with this rank. Does not say
    /// whether the elements have landed: [`finish`](Self::finish) does. The array is a copy if a link does not release the
    /// elements in 100 ms.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, so is the array.
    pub async fn into_array(mut self) -> Array<T> {
        let number = self.round().number;
        if self.all_committed().is_ok() {
            self.end.released(number).await;
            self.end.ends_well();
        } else {
            self.end.released(number - 1).await;
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
                Ok(Round { storage, .. }) => {
                    *self.array.storage_mut() = self.end.wait(number, storage.into_buffer()).await;
                    return self.array;
                }
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
