//! One rank's part in the rounds of a flowing collective, from buffer to buffer.
//!
//! The transfers move the elements by themselves. The lane follows them: it tells the operand's sender which
//! rounds are over, and begins the rounds of the memories that no program sees.

use std::cmp::Ordering;
use std::future::pending;
use std::ops::Range;
use std::sync::Arc;

use chunkcomm::host::memory::{self, Slices};
use chunkcomm::{Loss, LossKind, host};
use chunkcomm_group::layer::{
    Cursor, Fated, Interest, LAST_WORDS, Owner, PumpHandle, Share, State, Trouble,
};
use chunkcomm_group::{DeltaRecvError, DeltaSendError, Element, GroupError};
use tokio::sync::watch;

/// Reason for which a lane stops.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The group breaks.
    Broken(GroupError),
    /// A rank's program has ended the collective in order, and this rank's goes on.
    Left(usize),
}

/// Memory that no program sees: sums on their way.
pub(super) struct Inner<T: Element> {
    pub(super) owner: Owner<T>,
    pub(super) landings: Vec<Arc<Interest>>,
}

/// The buffers and transfers of a rank, of all rounds or of every second one.
pub(super) struct Lane<T: Element> {
    /// This rank.
    pub(super) rank: usize,
    pub(super) input: Option<Share<T>>,
    pub(super) result: Option<Share<T>>,
    pub(super) inner: Vec<Inner<T>>,
    /// Landings in the result.
    pub(super) landings: Vec<Arc<Interest>>,
    pub(super) sends: Vec<PumpHandle>,
    /// Place of the input in the result, in bytes, where it stays at this rank.
    pub(super) own_place: Option<Range<usize>>,
    pub(super) trouble: Arc<Trouble>,
    /// Followed by the operand's sender.
    pub(super) fate: watch::Sender<Fated>,
}

impl<T: Element> Lane<T> {
    /// Runs until the program has dropped its ends, a transfer fails, or `stopped` says so.
    pub(super) async fn run(
        mut self,
        mut stopped: watch::Receiver<bool>,
    ) -> (Self, Result<(), Fault>) {
        let trouble = self.trouble.clone();
        let copy = copying(self.input.clone(), self.result.clone(), self.own_place.clone());
        let outcome = tokio::select! {
            biased;
            outcome = self.rounds() => outcome,
            _ = stopped.wait_for(|it| *it) => Ok(()),
            (rank, loss) = trouble.until(|found| found.failed.clone()) => {
                Err(Fault::Broken(GroupError::Lost { rank, loss }))
            }
            () = copy => Ok(()),
        };
        (self, outcome)
    }

    async fn rounds(&mut self) -> Result<(), Fault> {
        for round in 1.. {
            let (trouble, result) = (self.trouble.clone(), self.result.clone());
            let receiver_left = async {
                let Some(result) = &result else { return pending().await };
                // The memory of the next of two rounds has begun without the program, and was given up.
                let is_before = |state: &State| match state.round.cmp(&round) {
                    Ordering::Less => true,
                    Ordering::Equal => state.end.is_some(),
                    Ordering::Greater => false,
                };
                result.until(|state| (state.closing && is_before(state)).then_some(())).await;
            };
            let left = async {
                let rank = trouble.until(|found| found.left.filter(|it| it.1 <= round)).await.0;
                // The group may say meanwhile why the rank ended its transfers.
                host::sleep(LAST_WORDS).await;
                rank
            };
            let takes_part = async {
                if !self.begins(round).await {
                    return Ok(false);
                }
                tokio::select! {
                    biased;
                    complete = self.complete(round) => complete,
                    rank = left => Err(Fault::Left(rank)),
                }
            };
            let goes_on = tokio::select! {
                biased;
                took_part = takes_part => took_part?,
                () = receiver_left => false,
            };
            if !goes_on {
                break;
            }
            let is_over = self.memories().any(|memory| memory.state().extents().is_cut());
            self.fate.send_modify(|fate| (fate.landed, fate.is_over) = (round, is_over));
            if is_over {
                break;
            }
            self.begin_next(round + 1).await;
        }
        Ok(())
    }

    fn memories(&self) -> impl Iterator<Item = &Share<T>> {
        self.input.iter().chain(&self.result)
    }

    /// Waits until the program has begun the round at its ends, or has dropped a sender that has begun; false
    /// when it has dropped its sender before. That of its receiver is seen beside this.
    async fn begins(&self, round: u32) -> bool {
        let begins = async |memory: &Share<T>| {
            let begins = memory.until(|state| {
                let begun = state.round >= round;
                (begun || state.closing).then_some(begun)
            });
            begins.await
        };
        if let Some(input) = &self.input
            && !begins(input).await
        {
            return false;
        }
        let dropped = async {
            let Some(input) = &self.input else { return pending().await };
            input.until(|state| state.closing.then_some(())).await;
        };
        let Some(result) = &self.result else { return true };
        tokio::select! {
            biased;
            begun = begins(result) => begun,
            // Its committed elements of the round are looked at.
            () = dropped => true,
        }
    }

    /// Waits until this rank's part of the round is done; false when the program has dropped its sender instead
    /// of computing.
    async fn complete(&mut self, round: u32) -> Result<bool, Fault> {
        if let Some(input) = &self.input {
            let committed = input.until(|state| {
                let (extents, bytes) = (state.extents(), state.extents().done_bytes());
                (extents.is_whole() || state.closing).then(|| (extents.is_whole(), bytes))
            });
            match committed.await {
                (true, _) => {}
                (false, 0) => return Ok(false),
                (false, bytes) => {
                    let (elements, all) = (bytes / size_of::<T>(), input.len());
                    let why = format!("its sender was dropped after {elements} of {all} elements");
                    let loss = Loss::new(LossKind::Refused, why);
                    return Err(Fault::Broken(GroupError::Lost { rank: self.rank, loss }));
                }
            }
        }
        for send in &mut self.sends {
            if send.landed().await.is_err() {
                // The transfer has told its trouble.
                pending::<()>().await;
            }
        }
        for memory in self.inner.iter().map(|inner| inner.owner.share()).chain(&self.result) {
            let is_done = |state: &State| match state.round.cmp(&round) {
                // The program has not begun the round at its receiver.
                Ordering::Less => false,
                Ordering::Equal => state.extents().is_whole(),
                Ordering::Greater => true,
            };
            memory.until(|state| is_done(state).then_some(())).await;
        }
        Ok(true)
    }

    async fn begin_next(&mut self, round: u32) {
        for send in &mut self.sends {
            send.round = round;
        }
        for Inner { owner, landings } in &mut self.inner {
            owner.reset(false).await;
            landings.iter().for_each(|landing| landing.say_begun(round));
        }
    }

    /// Ends the transfers, and the collective at the program's ends: rounds that are not over fail.
    pub(super) fn fail(&mut self, cause: &GroupError) {
        self.sends.clear();
        // The program may keep the result, and with it the interest.
        self.landings.iter().for_each(|landing| landing.end());
        let error = DeltaSendError::Collective(cause.clone().into());
        self.fate.send_modify(|fate| {
            fate.error.get_or_insert(error);
        });
        if let Some(result) = &self.result {
            let error = DeltaRecvError::Collective(cause.clone().into());
            result.change(|state| {
                state.end.get_or_insert(error);
            });
        }
    }
}

impl<T: Element> Drop for Lane<T> {
    fn drop(&mut self) {
        self.fail(&GroupError::Closed);
    }
}

/// Copies the input to its place in the result as it is committed, round by round. Ends never.
async fn copying<T: Element>(
    input: Option<Share<T>>,
    result: Option<Share<T>>,
    place: Option<Range<usize>>,
) {
    let (Some(input), Some(result), Some(place)) = (input, result, place) else {
        return pending().await;
    };
    let mut carrier = input.carrier();
    let slice_bytes = memory::elements_of_slice::<T>() * size_of::<T>();
    for round in 1.. {
        for memory in [&input, &result] {
            memory.until(|state| (state.round >= round).then_some(())).await;
        }
        let (mut cursor, mut copied) = (Cursor::default(), 0);
        let mut slices = Slices::default();
        while copied < place.len() {
            input.until(|state| (state.extents().done_bytes() > copied).then_some(())).await;
            while let Some(range) = input.next_done(&mut cursor, round) {
                copied += range.len();
                for start in range.clone().step_by(slice_bytes) {
                    let slice = start..range.end.min(start + slice_bytes);
                    let (bytes, at) = (slice.len(), place.start + start);
                    {
                        let (Ok(mut into), Some(from)) =
                            (result.lease(at..at + bytes), input.read(slice))
                        else {
                            return pending().await;
                        };
                        into.elements_mut().copy_from_slice(from.elements());
                        into.commit();
                    }
                    slices.worked(bytes).await;
                }
            }
            host::yield_now().await;
        }
        carrier.rest();
    }
}
