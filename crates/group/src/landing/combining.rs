//! A landing that combines what comes with other elements, in the memory where it lands.
//!
//! ```text
//!                         own is done: in the driver's callback
//! socket -> out, leased --------------------------------------> apply(out, own) -> out is done
//!                      '-> pieces -> the landing's task, as own becomes done -'
//! ```
//!
//! - Bytes land where their result will be. The lease of them is held until they are combined, so nobody reads
//!   them before, and no second memory is needed.
//! - Bytes that were read are combined at once, in the cache, when their counterparts are done and the function may
//!   run in the driver. Else they are a *piece*, which waits for the landing's task.
//! - The task combines what is done of the pieces' counterparts, in any order, and stands for all rounds.
//! - The carrier of the counterparts rests when a round is combined: they do not begin the next one before.
//!
//! A piece is of the current round: the memory's next round begins when no byte is out. The counterparts may be a
//! round behind, and then none of them is done.

use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytemuck::Pod;
use chunkcomm::{Loss, LossKind, host};
use tokio::runtime::Handle;

use super::base::Base;
use super::{Interest, Origin};
use crate::error::{DeltaRecvError, panicked};
use crate::memory::{Carrier, Lease, Share, State};
use crate::proto::sections::Sections;

/// Bytes that are combined before others run: 64 KiB, which stay in the second-level cache together with
/// as many counterparts. Fewer cost a change of tasks for less work.
const PIECE_BYTES: usize = 64 * 1024;

/// Function of elements that came and of their counterparts here: the first hold the result after.
type Apply<T> = dyn Fn(&mut [T], &[T]) + Send + Sync;

/// The function that combines, and where it may run.
pub struct Combine<T> {
    pub(crate) apply: Box<Apply<T>>,
    /// Whether it may run between two reads of the link; else it runs in the landing's task.
    pub(crate) in_driver: bool,
}

/// The elements with which what comes is combined.
pub struct Operand<T: Pod> {
    /// Their memory.
    pub share: Share<T>,
    /// Their place there, in the order of the transfer.
    pub sections: Sections,
}

impl<T: Pod> Operand<T> {
    /// Returns the first of these positions whose elements are done in `round`, as many as are together; an
    /// error when one before them will never be.
    fn next_done(
        &self,
        positions: &Range<usize>,
        round: u32,
    ) -> Result<Option<Range<usize>>, Loss> {
        let state = self.share.state();
        if state.round != round {
            return if state.closing || state.end.is_some() { Err(gone()) } else { Ok(None) };
        }
        let mut rest = positions.clone();
        while !rest.is_empty() {
            let place = self.sections.place(&rest);
            let missing = state.extents().missing(&place).unwrap_or(place.end..place.end);
            if missing.start > place.start {
                return Ok(Some(rest.start..rest.start + (missing.start - place.start)));
            }
            if let Some(error) = state.end_of(&missing) {
                return Err(Loss::of(LossKind::Left, error.clone()));
            }
            if is_over(&state) {
                return Err(gone());
            }
            rest.start += missing.len();
        }
        Ok(None)
    }

    /// Whether all elements at these positions are done in `round`; an error when one will never be.
    fn has(&self, positions: &Range<usize>, round: u32) -> Result<bool, Loss> {
        let mut rest = positions.clone();
        while let Some(done) = self.next_done(&rest, round)?.filter(|it| it.start == rest.start) {
            rest.start = done.end;
        }
        Ok(rest.is_empty())
    }

    /// Returns the reason why an element will not be done in `round`, if there is one.
    fn failure(&self, round: u32) -> Option<Loss> {
        let state = self.share.state();
        let error = state.end_of_any(&self.sections);
        if state.round != round || (error.is_none() && !is_over(&state)) {
            return None;
        }
        // The operand is gone, whatever the reason: its own transfer says more.
        let reason = || error.map_or_else(gone, |it| Loss::of(LossKind::Left, it.clone()));
        (!state.has(&self.sections)).then(reason)
    }
}

fn gone() -> Loss {
    Loss::new(LossKind::Left, "the elements to combine with are gone")
}

/// Whether nobody makes more elements done.
fn is_over(state: &State) -> bool {
    state.closing || state.extents().is_cut()
}

/// Elements that came and are not combined.
struct Piece<T: Pod> {
    lease: Lease<T>,
    /// Position of the first byte in the transfer.
    start: usize,
}

impl<T: Pod> Piece<T> {
    fn positions(&self) -> Range<usize> {
        self.start..self.start + self.lease.range().len()
    }

    /// Parts the piece in two, the second of which begins at this position.
    fn split_at(&mut self, position: usize) -> Self {
        Self { lease: self.lease.split_off(position - self.start), start: position }
    }
}

/// The rounds of a landing, as far as they are combined.
struct Rounds<T: Pod> {
    pieces: Vec<Piece<T>>,
    /// The round that is combined, from 1, and the number of its combined bytes.
    round: u32,
    combined: usize,
    /// Combined bytes that are done, less those of rounds that are.
    done: usize,
    /// Number of rounds that have landed and are not done.
    landed: u32,
    /// The end that came behind a round that is not done.
    end: Option<DeltaRecvError>,
    /// Mark in the counterparts' memory, as long as they are needed.
    carrier: Option<Carrier<T>>,
}

/// State that the driver and the landing's task share.
pub(super) struct Combiner<T: Pod> {
    base: Arc<Base<T>>,
    own: Operand<T>,
    /// Round of the counterparts' memory in which the transfer began.
    own_first: u32,
    combine: Combine<T>,
    interest: Weak<Interest>,
    has_rounds: bool,
    rounds: Mutex<Rounds<T>>,
    is_over: AtomicBool,
}

impl<T: Pod> Combiner<T> {
    /// Bytes of the most whole elements that are combined at a time, at least one.
    const PIECE_BYTES: usize = {
        let whole = PIECE_BYTES - PIECE_BYTES % size_of::<T>();
        if whole == 0 { size_of::<T>() } else { whole }
    };

    /// Begins, with the landing's task; `None` when there is nothing to combine. With `has_rounds`, further
    /// rounds may follow the first.
    pub(super) fn start(
        base: Arc<Base<T>>,
        (own, combine): (Operand<T>, Combine<T>),
        has_rounds: bool,
        interest: &Arc<Interest>,
        runtime: &Handle,
    ) -> Option<Arc<Self>> {
        if base.sections.bytes() == 0 {
            return None;
        }
        // From the carrier on, no round begins.
        let carrier = own.share.carrier();
        let own_first = own.share.state().round;
        let rounds = Rounds {
            pieces: Vec::new(),
            round: 1,
            combined: 0,
            done: 0,
            landed: 0,
            end: None,
            carrier: Some(carrier),
        };
        let combiner = Arc::new(Self {
            base,
            own_first,
            own,
            combine,
            interest: Arc::downgrade(interest),
            has_rounds,
            rounds: Mutex::new(rounds),
            is_over: AtomicBool::new(false),
        });
        host::spawn_on(runtime, combiner.clone().run());
        Some(combiner)
    }

    /// Takes the elements at these positions, with which `lease` begins and which have landed; false, and nothing
    /// is taken, to wait for more of the lease. `is_last` says that all of the round has landed with them.
    pub(super) fn advance(
        &self,
        lease: &mut Lease<T>,
        positions: Range<usize>,
        round: u32,
        is_last: bool,
    ) -> Result<bool, DeltaRecvError> {
        let (start, bytes) = (positions.start, positions.len());
        let own_round = self.own_first + (round - 1);
        let is_ready = self.combine.in_driver
            && self.own.has(&positions, own_round).map_err(|loss| self.error(loss))?;
        if !is_ready && bytes < lease.range().len().min(Self::PIECE_BYTES) {
            return Ok(false);
        }
        if is_ready {
            self.apply(start, &mut lease.elements_mut()[..bytes / size_of::<T>()])?;
        }
        if is_last {
            // Whoever sees the last byte may leave, and then nothing more is said.
            self.base.back.say_round(true, round);
            self.rounds().landed += 1;
        }
        if is_ready {
            self.count(bytes);
            lease.advance(bytes);
            self.settle(bytes);
        } else {
            let rest = lease.split_off(bytes);
            self.push(Piece { lease: mem::replace(lease, rest), start });
        }
        Ok(true)
    }

    /// Returns the most bytes to read before they are combined: those that the driver combines are still in the
    /// cache.
    pub(super) fn read_bytes_max(&self) -> usize {
        if self.combine.in_driver { Self::PIECE_BYTES } else { usize::MAX }
    }

    /// Whether the landing has ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Ends the landing, as soon as what has landed of a whole round is done.
    pub(super) fn over(&self, error: DeltaRecvError) {
        let mut rounds = self.rounds();
        if rounds.landed > 0 && !self.is_over() {
            rounds.end.get_or_insert(error);
            return;
        }
        drop(rounds);
        self.close(error);
    }

    /// Ends the landing for a reason of which the sender is told.
    pub(super) fn fail(&self, error: DeltaRecvError) {
        self.base.refuse(&error);
        self.close(error);
    }

    /// Ends the landing, and with it the task. The memory is released before the end is reported. The first
    /// error counts: from then on there is no room for what comes, which is an error of the driver.
    fn close(&self, error: DeltaRecvError) {
        let (round, pieces, carrier) = {
            let mut rounds = self.rounds();
            if self.is_over.swap(true, Ordering::AcqRel) {
                return;
            }
            (rounds.round, mem::take(&mut rounds.pieces), rounds.carrier.take())
        };
        drop((pieces, carrier));
        self.base.over(round, error);
        self.base.back.wake();
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds<T>> {
        self.rounds.lock().expect("no holder of the lock panics")
    }

    fn error(&self, loss: Loss) -> DeltaRecvError {
        let Origin { peer, channel } = self.base.origin.clone();
        DeltaRecvError::Combine { peer, channel, loss }
    }

    /// Leaves a piece to the task.
    fn push(&self, piece: Piece<T>) {
        let mut rounds = self.rounds();
        // After the end, it is released here.
        if self.is_over() {
            return;
        }
        let Piece { lease, start } = piece;
        let rest = match rounds.pieces.last_mut() {
            Some(last) if last.positions().end == start => last.lease.join(lease),
            _ => Some(lease),
        };
        rounds.pieces.extend(rest.map(|lease| Piece { lease, start }));
        drop(rounds);
        self.base.back.wake();
    }

    /// Combines elements from position `start` on, whose counterparts are done.
    fn apply(&self, start: usize, out: &mut [T]) -> Result<(), DeltaRecvError> {
        let (mut rest, mut out) = (start..start + size_of_val(out), out);
        while !rest.is_empty() {
            let place = self.own.sections.place(&rest);
            rest.start += place.len();
            let (first, later) = out.split_at_mut(place.len() / size_of::<T>());
            let Some(own) = self.own.share.read(place) else {
                return Err(self.error(gone()));
            };
            let applied = catch_unwind(AssertUnwindSafe(|| {
                (self.combine.apply)(first, own.elements());
            }));
            applied.map_err(|panic| self.error(panicked("the operator", &*panic)))?;
            out = later;
        }
        Ok(())
    }

    /// Counts combined bytes that are not done yet: with the last of them the next round may begin.
    fn count(&self, bytes: usize) {
        let mut rounds = self.rounds();
        rounds.combined += bytes;
        assert!(rounds.combined <= self.base.sections.bytes(), "each byte is combined once");
        if rounds.combined == self.base.sections.bytes() {
            (rounds.round, rounds.combined) = (rounds.round + 1, 0);
            if let Some(carrier) = &mut rounds.carrier {
                carrier.rest();
            }
            if !self.has_rounds {
                rounds.carrier = None;
            }
        }
    }

    /// Counts bytes that are done, and tells the end that waits for the last of a round.
    fn settle(&self, bytes: usize) {
        let end = {
            let mut rounds = self.rounds();
            rounds.done += bytes;
            // Bytes of the next round may be counted before the last of this one, but are done after it.
            if rounds.done < self.base.sections.bytes() {
                return;
            }
            rounds.done -= self.base.sections.bytes();
            rounds.landed -= 1;
            // A whole round may have landed since, in front of the end.
            if rounds.landed == 0 { rounds.end.take() } else { None }
        };
        if !self.has_rounds {
            self.base.done();
            self.is_over.store(true, Ordering::Release);
            self.base.back.wake();
        } else if let Some(end) = end {
            self.close(end);
        }
    }

    /// Combines what waits, as its counterparts become done, until the landing has ended.
    async fn run(self: Arc<Self>) {
        let mut bell = self.own.share.bell();
        while !self.is_over() {
            bell.mark_unchanged();
            let done_bytes = self.own.share.state().extents().done_bytes();
            if let Err(error) = self.turn().await {
                return self.fail(error);
            }
            if self.interest.strong_count() == 0 || self.base.back.has_ended() {
                let combined = self.rounds().combined;
                return self.close(self.base.ended(combined, None));
            }
            let waits = !self.rounds().pieces.is_empty();
            if self.is_over() || (waits && self.own.share.ring_from(done_bytes + 1)) {
                continue;
            }
            tokio::select! {
                biased;
                () = bell.changed() => {}
                () = self.base.back.woken() => {}
            }
        }
    }

    /// Combines all that can be combined now.
    async fn turn(&self) -> Result<(), DeltaRecvError> {
        self.release();
        let own_round = self.own_first + (self.rounds().round - 1);
        if let Some(loss) = self.own.failure(own_round) {
            return Err(self.error(loss));
        }
        let mut index = 0;
        while let Some(Piece { mut lease, start }) = self.next_ready(&mut index)? {
            let bytes = lease.range().len();
            self.apply(start, lease.elements_mut())?;
            self.count(bytes);
            lease.commit();
            self.settle(bytes);
            host::yield_now().await;
        }
        Ok(())
    }

    /// Lets go of counterparts whose owner is gone: their memory begins no round, and may be taken back.
    fn release(&self) {
        let is_closing = self.own.share.state().closing;
        let mut rounds = self.rounds();
        let is_done_with =
            |it: &mut Carrier<T>| is_closing && (!self.has_rounds || it.has_rested());
        drop(rounds.carrier.take_if(is_done_with));
    }

    /// Takes the next part of a piece that can be combined, at most one piece's bytes. The pieces before `index`
    /// were looked at.
    fn next_ready(&self, index: &mut usize) -> Result<Option<Piece<T>>, DeltaRecvError> {
        let mut rounds = self.rounds();
        let own_round = self.own_first + (rounds.round - 1);
        while let Some(piece) = rounds.pieces.get_mut(*index) {
            let done = self.own.next_done(&piece.positions(), own_round);
            let Some(done) = done.map_err(|loss| self.error(loss))? else {
                *index += 1;
                continue;
            };
            let mut ready = piece.split_at(done.start);
            let rest = ready.split_at(done.start + done.len().min(Self::PIECE_BYTES));
            let has_first = !piece.positions().is_empty();
            match (has_first, !rest.positions().is_empty()) {
                (false, false) => drop(rounds.pieces.remove(*index)),
                (false, true) => *piece = rest,
                (true, has_rest) => {
                    *index += 1;
                    if has_rest {
                        rounds.pieces.insert(*index, rest);
                    }
                }
            }
            return Ok(Some(ready));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
