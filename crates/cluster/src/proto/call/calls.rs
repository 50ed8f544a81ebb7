//! A client's calls in flight, by slot.

use super::IN_FLIGHT_MAX;
use chunkcomm_proto::Time;
use std::collections::VecDeque;

/// A service answered a call that is not in flight.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("call {slot} was answered, and it is not in flight")]
pub struct Unasked {
    /// The slot in the answer.
    pub slot: u32,
}

chunkcomm_proto::debug_with_causes!(Unasked);

/// State of a call, as its caller finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look<A> {
    /// No answer yet.
    Waiting,
    /// The answer; the slot is free.
    Answered(A),
    /// The deadline has passed; the caller is done with the call.
    Late,
}

/// Consequence of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then<W, A> {
    /// The caller is to be woken.
    Wake(W),
    /// The caller has been woken before.
    Nothing,
    /// Nobody waits for the answer.
    Drop(A),
}

/// One slot. `W` wakes a caller, `A` is the outcome of a call.
///
/// ```text
///   Free -> Reserved -> Waiting -> Answered -> Free
///              |           |-> Late (cancelled; the caller has not looked) -> Abandoned
///              v           '-> Abandoned (cancelled; nobody waits)         -> Free
///            Free
/// ```
#[derive(Debug)]
enum Slot<W, A> {
    Free,
    /// Nothing was sent.
    Reserved,
    Waiting {
        wake: W,
        deadline: Option<Time>,
    },
    Answered(A),
    /// `owed`: the cancellation is still to be sent.
    Late {
        owed: bool,
    },
    Abandoned {
        owed: bool,
    },
}

/// The calls of one client to one provider. Order of calls for each: [`Calls::reserve`], then
/// [`Calls::sent`] or [`Calls::give_back`]; then [`Calls::look`] until it has an outcome, or
/// [`Calls::abandon`].
#[derive(Debug)]
pub struct Calls<W, A> {
    slots: Vec<Slot<W, A>>,
    free: Vec<u32>,
    /// Calls sent, and neither answered nor lost.
    in_flight: usize,
    /// Lower bound of all deadlines.
    earliest: Option<Time>,
    owed: VecDeque<u32>,
}

impl<W, A> Default for Calls<W, A> {
    fn default() -> Calls<W, A> {
        let (slots, free, owed) = (Vec::new(), Vec::new(), VecDeque::new());
        Calls { slots, free, in_flight: 0, earliest: None, owed }
    }
}

impl<W, A> Calls<W, A> {
    /// Calls that were sent and have no answer yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Reserves a slot for a call that is about to be sent; `None` when all [`IN_FLIGHT_MAX`] are
    /// in use.
    pub fn reserve(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Slot::Reserved;
            return Some(slot);
        }
        if self.slots.len() >= IN_FLIGHT_MAX {
            return None;
        }
        self.slots.push(Slot::Reserved);
        Some(self.slots.len() as u32 - 1)
    }

    /// Frees a reserved slot whose call was not sent.
    pub fn give_back(&mut self, slot: u32) {
        debug_assert!(matches!(self.slots[slot as usize], Slot::Reserved));
        self.release(slot);
    }

    /// Notes that the call in a reserved slot was sent.
    pub fn sent(&mut self, slot: u32, wake: W, deadline: Option<Time>) {
        debug_assert!(matches!(self.slots[slot as usize], Slot::Reserved));
        self.slots[slot as usize] = Slot::Waiting { wake, deadline };
        self.in_flight += 1;
        if let Some(deadline) = deadline {
            self.earliest = Some(self.earliest.map_or(deadline, |known| known.min(deadline)));
        }
    }

    /// Returns the state of the call; while it waits, `again` may change its waker.
    pub fn look(&mut self, slot: u32, again: impl FnOnce(&mut W)) -> Look<A> {
        let it = &mut self.slots[slot as usize];
        match it {
            Slot::Waiting { wake, .. } => {
                again(wake);
                Look::Waiting
            }
            Slot::Late { owed } => {
                *it = Slot::Abandoned { owed: *owed };
                Look::Late
            }
            _ => match std::mem::replace(it, Slot::Free) {
                Slot::Answered(answer) => {
                    self.free.push(slot);
                    Look::Answered(answer)
                }
                other => {
                    // No caller looks at another's slot.
                    self.slots[slot as usize] = other;
                    Look::Late
                }
            },
        }
    }

    /// Gives a call up: its caller does not wait any more, and the service is to be informed. An
    /// answer that has come meanwhile is returned, to be dropped by the caller.
    pub fn abandon(&mut self, slot: u32) -> Option<A> {
        let it = &mut self.slots[slot as usize];
        match it {
            Slot::Waiting { .. } => {
                *it = Slot::Abandoned { owed: true };
                self.owed.push_back(slot);
            }
            Slot::Late { owed } => *it = Slot::Abandoned { owed: *owed },
            Slot::Answered(_) => {
                if let Look::Answered(answer) = self.look(slot, |_| {}) {
                    return Some(answer);
                }
            }
            Slot::Free | Slot::Reserved | Slot::Abandoned { .. } => {}
        }
        None
    }

    /// Whether there may be calls to be cancelled.
    #[must_use]
    pub fn owes_cancels(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Returns a call whose cancellation is to be sent; each once.
    pub fn poll_cancel(&mut self) -> Option<u32> {
        while let Some(slot) = self.owed.pop_front() {
            // Otherwise the call was answered meanwhile.
            if let Slot::Late { owed } | Slot::Abandoned { owed } = &mut self.slots[slot as usize]
                && std::mem::take(owed)
            {
                return Some(slot);
            }
        }
        None
    }

    /// Handles an answer; returns what is to be done.
    ///
    /// # Errors
    ///
    /// That call is not in flight.
    pub fn handle_answer(&mut self, slot: u32, answer: A) -> Result<Then<W, A>, Unasked> {
        let it = self.slots.get_mut(slot as usize).ok_or(Unasked { slot })?;
        let then = match it {
            Slot::Waiting { .. } => match std::mem::replace(it, Slot::Answered(answer)) {
                Slot::Waiting { wake, .. } => Then::Wake(wake),
                _ => Then::Nothing,
            },
            // The answer is late, but the caller has not looked yet.
            Slot::Late { .. } => {
                *it = Slot::Answered(answer);
                Then::Nothing
            }
            Slot::Abandoned { .. } => {
                self.release(slot);
                Then::Drop(answer)
            }
            Slot::Free | Slot::Reserved | Slot::Answered(_) => return Err(Unasked { slot }),
        };
        self.in_flight -= 1;
        Ok(then)
    }

    /// Returns the latest time for the next [`Calls::handle_timeout`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.earliest
    }

    /// Marks calls whose deadline has passed as late and to be cancelled; their callers' wakers go
    /// to `wakes`. Looks at all slots. That is rare, since deadlines are far apart compared with
    /// the time of a call.
    pub fn handle_timeout(&mut self, now: Time, wakes: &mut Vec<W>) {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return;
        }
        self.earliest = None;
        for (index, it) in self.slots.iter_mut().enumerate() {
            let Slot::Waiting { deadline: Some(deadline), .. } = it else { continue };
            if *deadline > now {
                let earliest = self.earliest.map_or(*deadline, |known| known.min(*deadline));
                self.earliest = Some(earliest);
            } else if let Slot::Waiting { wake, .. } =
                std::mem::replace(it, Slot::Late { owed: true })
            {
                wakes.push(wake);
                self.owed.push_back(index as u32);
            }
        }
    }

    /// Ends all calls in flight with `outcome`, since none will be answered; their callers' wakers
    /// go to `wakes`.
    pub fn handle_loss(&mut self, mut outcome: impl FnMut() -> A, wakes: &mut Vec<W>) {
        self.owed.clear();
        self.earliest = None;
        self.in_flight = 0;
        for index in 0..self.slots.len() {
            match &mut self.slots[index] {
                it @ (Slot::Waiting { .. } | Slot::Late { .. }) => {
                    let before = std::mem::replace(it, Slot::Answered(outcome()));
                    if let Slot::Waiting { wake, .. } = before {
                        wakes.push(wake);
                    }
                }
                Slot::Abandoned { .. } => self.release(index as u32),
                Slot::Free | Slot::Reserved | Slot::Answered(_) => {}
            }
        }
    }

    fn release(&mut self, slot: u32) {
        self.slots[slot as usize] = Slot::Free;
        self.free.push(slot);
    }
}
