//! The receiving end of a transfer.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use chunkcomm::host;
use chunkcomm::host::memory;
use chunkcomm_group::{CollectiveError, Element, Group, Pair, Region};

use super::sender::open;
use super::{Array, stored};
use crate::ends::error::ArrayError;
use crate::ends::inlet::{Inlet, Slabs};
use crate::ends::opening::{End, Link, Rows};
use crate::ends::report::{ArrayReport, Timings};
use crate::ends::settings::Transfer;
use crate::ends::shared::{Round, State};
use crate::ends::way::Way;
use crate::layout::Layout;
use crate::plan::Side;

/// Receives an [`Array`] that another group of nodes sends, round by round.
///
/// The other end is an [`ArraySender`](crate::ArraySender); its text says how both are opened. Elements are
/// unpacked into this rank's storage in the background. Slabs of rows are handed out as they are complete, in any
/// order:
///
/// ```no_run
/// use chunkcomm_array::{Array, ArrayError};
/// use chunkcomm_group::{Group, Pair};
///
/// # async fn example(group: &Group, pair: &mut Pair) -> Result<(), ArrayError> {
/// let columns = Array::<f64>::zeros(group, "(*,block)", [1024, 1024])?;
/// let mut receiver = columns.receiver(pair).await?;
/// let mut sum = 0.0;
/// while let Some((_rows, elements)) = receiver.next_slab().await? {
///     sum += elements.iter().sum::<f64>(); // while others arrive
/// }
/// let columns = receiver.into_array().await?;
/// # let _ = (sum, columns);
/// # Ok(())
/// # }
/// ```
///
/// When it is dropped before all has come, the transfer ends, and all ranks of the other group get an error with
/// this rank.
#[must_use = "a transfer ends when its receiver is dropped"]
pub struct ArrayReceiver<T: Element> {
    /// Its storage is that of the rounds.
    array: Array<T>,
    end: End<Slabs<T>>,
    /// Storage of the rounds that have begun, the program's first.
    rounds: VecDeque<Round<Region<T>>>,
    /// Number of elements that come to each slab.
    missing: Vec<usize>,
    /// Number of slabs of this round that the program has seen.
    seen: usize,
}

impl<T: Element> Array<T> {
    /// Receives an array that the other group of the pair [sends](Self::send), in this layout.
    ///
    /// # Errors
    ///
    /// As [`receiver`](Self::receiver), also when a rank has no memory for its part; [`ArrayError::Peer`] when a rank of
    /// the other group is gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the other ranks get an error or wait for this one.
    pub async fn receive(
        group: &Group,
        pair: &mut Pair,
        layout: &Layout,
    ) -> Result<Array<T>, ArrayError> {
        match stored(group, layout) {
            Ok(storage) => {
                let array = Array::made(group, layout.clone(), storage);
                Ok(array.receiver(pair).await?.into_array().await?)
            }
            Err(why) => {
                let among = (group, pair, Transfer::default());
                let told = open::<T, Slabs<T>>(among, layout, Side::Receiver, Some(why.clone()));
                Err(told.await.err().unwrap_or_else(|| ArrayError::refused(group.rank(), why)))
            }
        }
    }

    /// Accepts a transfer into this array. All ranks of both groups open or accept it.
    ///
    /// Margins get their elements as well; a margin beyond the edge of the array stays as it is.
    ///
    /// # Errors
    ///
    /// As [`sender`](Self::sender).
    ///
    /// # Cancel safety
    ///
    /// As `sender`.
    pub async fn receiver(
        self,
        pair: &mut Pair,
    ) -> Result<ArrayReceiver<T>, CollectiveError<Array<T>, ArrayError>> {
        self.receiver_with(pair, Transfer::default()).await
    }

    /// Accepts a transfer as [`receiver`](Self::receiver) does, with settings.
    ///
    /// # Errors
    ///
    /// As `receiver`.
    ///
    /// # Cancel safety
    ///
    /// As `receiver`.
    pub async fn receiver_with(
        mut self,
        pair: &mut Pair,
        settings: Transfer,
    ) -> Result<ArrayReceiver<T>, CollectiveError<Array<T>, ArrayError>> {
        let among = (&self.group, pair, settings);
        let (end, ways) = match open::<T, _>(among, &self.layout, Side::Receiver, None).await {
            Ok(opened) => opened,
            Err(cause) => return Err(CollectiveError::new(self, cause)),
        };
        let missing = missing(&ways, self.layout.memory()[0], end.rows, end.slab_rows);
        for (index, (way, link)) in ways.into_iter().enumerate() {
            let (shared, settings) = (Arc::clone(&end.shared), end.settings.clone());
            let inlet = Inlet { shared, index, settings };
            host::spawn_on(end.node.runtime(), inlet.run(way, link));
        }
        // Elements that nothing comes to are the same in both rounds.
        let mut further = Vec::new();
        for _ in 1..end.settings.depth {
            further.push(Region::new(memory::copied(&self.storage).await));
        }
        let region = Region::new(std::mem::take(self.storage_mut()));
        let rounds = VecDeque::new();
        let mut receiver = ArrayReceiver { array: self, end, rounds, missing, seen: 0 };
        receiver.begin(1, region);
        for (number, region) in (2..).zip(further) {
            receiver.begin(number, region);
        }
        Ok(receiver)
    }
}

impl<T: Element> ArrayReceiver<T> {
    fn begin(&mut self, number: u32, region: Region<T>) {
        let log = Arc::default();
        let whole = region.part(..).expect("nothing is out in a new round");
        let slabs = (self.end.rows, self.end.slab_rows);
        let slabs = Slabs::new(whole, slabs, &self.missing, &log);
        self.end.shared.begin(number, Arc::new(slabs));
        self.rounds.push_back(Round { number, storage: region, log });
    }

    fn round(&self) -> &Round<Region<T>> {
        self.rounds.front().expect("there is always a round")
    }

    /// Waits for the next slab that is complete, in whatever order; `None` when all of this round were shown.
    ///
    /// Returns the rows in the rank's storage and their elements.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Peer`] when a rank of the other group is gone or has dropped its end; slabs that were complete
    /// are shown first.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn next_slab(&mut self) -> Result<Option<(Range<usize>, &[T])>, ArrayError> {
        if self.seen == self.missing.len() {
            return Ok(None);
        }
        let (seen, log) = (self.seen, Arc::clone(&self.round().log));
        if log.get(seen).is_none() {
            self.wait_for(log.more_than(seen)).await?;
        }
        let rows = log.get(seen).expect("there are more");
        self.seen += 1;
        let elements = self.end.rows.elements(&rows);
        let elements = self.round().storage.done(elements).expect("the slab is complete");
        Ok(Some((rows, elements)))
    }

    /// Waits until these rows of the rank's storage are complete and returns their elements.
    ///
    /// # Errors
    ///
    /// As [`next_slab`](Self::next_slab); [`ArrayError::Rows`] when they are not within the storage.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn wait(&self, rows: Range<usize>) -> Result<&[T], ArrayError> {
        let elements = self.end.rows.checked(&rows)?;
        let region = &self.round().storage;
        if region.done(elements.clone()).is_none() {
            self.wait_for(region.wait(elements.clone())).await?.expect("nothing lands in it");
        }
        Ok(region.done(elements).expect("they are complete"))
    }

    /// Waits until all elements of this round have come and returns the rank's storage.
    ///
    /// # Errors
    ///
    /// As [`next_slab`](Self::next_slab).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn finish(&mut self) -> Result<&[T], ArrayError> {
        self.wait(0..self.end.rows.count).await
    }

    /// Waits for elements of this round, as long as the transfer goes on. Reports a long wait.
    async fn wait_for<F: Future>(&self, future: F) -> Result<F::Output, ArrayError> {
        let number = self.round().number;
        let failed = self.end.shared.until(|state| state.fault(number).cloned());
        let outcome = async {
            tokio::select! {
                biased;
                outcome = future => Ok(outcome),
                fault = failed => Err(fault),
            }
        };
        self.end.wait(number, outcome).await
    }

    /// Waits until this round has come, and begins the next one.
    ///
    /// With [`depth`](Transfer::depth) 1 it comes in the same memory: the sender sends nothing of it before this
    /// call. With 2 it may have come already, and the present storage takes the round behind it.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the round has not begun; call it again.
    pub async fn start(&mut self) -> Result<(), ArrayError> {
        self.finish().await?;
        let number = self.round().number;
        let released = |state: &mut State<Slabs<T>>| {
            state.is_released(number).then(|| state.rounds.retain(|(it, _)| *it > number))
        };
        self.end.shared.until(released).await;
        let round = self.rounds.front_mut().expect("there is always a round");
        round.storage.start().await;
        let Round { storage, .. } = self.rounds.pop_front().expect("there is always a round");
        self.seen = 0;
        self.begin(number + self.end.settings.depth as u32, storage);
        Ok(())
    }

    /// Waits until all elements of this round have come, ends the transfer, and returns the array.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish), with the array, which has some of the elements.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, so is the array.
    pub async fn into_array(mut self) -> Result<Array<T>, CollectiveError<Array<T>, ArrayError>> {
        let failed = self.finish().await.err();
        let Round { storage, .. } = self.rounds.pop_front().expect("there is always a round");
        self.end.shared.tell(|state| {
            state.dropped = true;
            state.rounds.clear();
        });
        *self.array.storage_mut() = storage.into_buffer().await;
        match failed {
            None => Ok(self.array),
            Some(cause) => Err(CollectiveError::new(self.array, cause)),
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

    /// Returns what this rank gets from whom, and whom it waits for.
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

impl<T: Element> fmt::Debug for ArrayReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayReceiver")
            .field("round", &self.rounds.front().map(|round| round.number))
            .field("rows", &self.end.rows.count)
            .finish_non_exhaustive()
    }
}

/// Returns the number of elements that come to each slab.
fn missing(ways: &[(Way, Link)], slowest: usize, rows: Rows, slab_rows: usize) -> Vec<usize> {
    let mut missing = vec![0; rows.count.div_ceil(slab_rows)];
    for (way, _) in ways {
        let meeting = &way.plan.meetings[slowest];
        let each = way.plan.elements() / meeting.total.max(1);
        for run in meeting.runs(0..meeting.total) {
            let mut row = run.at_receiver;
            let end = row + run.length;
            while row < end {
                let slab = row / slab_rows;
                let count = end.min((slab + 1) * slab_rows) - row;
                missing[slab] += count * each;
                row += count;
            }
        }
    }
    missing
}
