//! The places of connections that are not admitted yet.
//!
//! Their number is bounded. When all are taken and no connection gets on, a newcomer gets the
//! place of the connection that came least far. So neither silent strangers nor members that stall
//! lock anybody out. While a connection gets on, newcomers wait in the system's queue. Otherwise
//! peers that were cut off together would take each other's places for ever.

use crate::driver::clock;
use crate::driver::wakers::locked;
use crate::proto::Time;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

/// Least time for which a place is kept: 50 ms after its own last step and after the last step of
/// any connection. A peer on a LAN needs less, even beside many others. With 64 places the system's
/// queue of 1024 connections passes within a second, even if all of them are strangers'.
const KEPT_MIN: Duration = Duration::from_millis(50);

/// Most time for which a place is kept without a step of its own, while newcomers wait and others
/// get on: 150 ms. So the system's queue passes through 64 places within the 3 s of a peer's
/// attempt to dial again, whatever the connections do. Bytes that came are read before a place is
/// taken away, so that slowness of this node does not count against a peer.
const KEPT_MAX: Duration = Duration::from_millis(150);

/// Progress of a connection. One that is further keeps its place longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Stage {
    /// No byte came.
    Silent,
    /// Some of a hello came.
    Speaking,
    /// The peer gave its proof, if one is asked for; TLS may follow.
    Proved,
}

/// The places at one address.
pub(super) struct Slots {
    places: Mutex<Places>,
    freed: Notify,
    count_max: usize,
}

#[derive(Default)]
struct Places {
    /// The places, in the order in which their connections came.
    taken: VecDeque<Place>,
    next_id: u64,
    /// Time of the last step of any connection.
    got_on: Time,
}

struct Place {
    id: u64,
    /// Time when the connection came, or last proved itself.
    since: Time,
    stage: Arc<AtomicU8>,
    /// Makes the connection leave the place when this is dropped.
    _keeps: oneshot::Sender<()>,
}

/// A place that is taken until this is dropped.
pub(super) struct Slot {
    id: u64,
    stage: Arc<AtomicU8>,
    slots: Arc<Slots>,
}

/// The loss of a place to another connection.
pub(super) struct Loss(oneshot::Receiver<()>);

impl Slots {
    pub(super) fn new(count_max: usize) -> Arc<Slots> {
        Arc::new(Slots { places: Mutex::default(), freed: Notify::new(), count_max })
    }

    /// Waits for a place. If none is free, takes one from a connection whose time is over.
    pub(super) async fn take(self: &Arc<Self>) -> (Slot, Loss) {
        loop {
            let freed = self.freed.notified();
            if locked(&self.places).taken.len() >= self.count_max {
                // Bytes that came meanwhile are read before a place is taken away: this process
                // may have been late.
                tokio::task::yield_now().await;
            }
            match self.try_take(clock::now()) {
                Ok(taken) => return taken,
                // A place may be free, or the time has come: try again.
                Err(wait) => {
                    let _ = clock::within(&Handle::current(), wait, freed).await;
                }
            }
        }
    }

    /// Returns a place, or the time until one may be taken from another connection.
    fn try_take(self: &Arc<Self>, now: Time) -> Result<(Slot, Loss), Duration> {
        let mut places = locked(&self.places);
        if places.taken.len() >= self.count_max {
            places.make_room(now)?;
        }
        let id = places.next_id;
        places.next_id += 1;
        let stage = Arc::new(AtomicU8::new(Stage::Silent as u8));
        let (keeps, lost) = oneshot::channel();
        let place = Place { id, since: now, stage: Arc::clone(&stage), _keeps: keeps };
        places.taken.push_back(place);
        Ok((Slot { id, stage, slots: Arc::clone(self) }, Loss(lost)))
    }
}

impl Places {
    /// Removes the place of the connection that came least far, of those that had their time; of
    /// several the one whose last step is longest ago.
    fn make_room(&mut self, now: Time) -> Result<(), Duration> {
        let kept_until = |place: &Place| {
            let by_others = place.since.max(self.got_on).after(KEPT_MIN);
            by_others.min(place.since.after(KEPT_MAX))
        };
        let first = self.taken.iter().map(kept_until).min().unwrap_or(now);
        if now < first {
            return Err(Duration::from_nanos(first.0 - now.0));
        }
        let had_its_time = |&at: &usize| kept_until(&self.taken[at]) <= now;
        let least = (0..self.taken.len())
            .filter(had_its_time)
            .min_by_key(|&at| (self.taken[at].stage.load(Ordering::Relaxed), self.taken[at].since));
        if let Some(at) = least {
            self.taken.remove(at);
        }
        Ok(())
    }
}

impl Slot {
    /// Notes that bytes came.
    pub(super) fn speaks(&self) {
        self.stage.store(Stage::Speaking as u8, Ordering::Relaxed);
    }

    /// Notes that a step of the proof was made.
    pub(super) fn proved(&self) {
        self.proved_at(clock::now());
    }

    fn proved_at(&self, now: Time) {
        self.stage.store(Stage::Proved as u8, Ordering::Relaxed);
        let mut places = locked(&self.slots.places);
        places.got_on = now;
        if let Some(place) = places.taken.iter_mut().find(|place| place.id == self.id) {
            place.since = now;
        }
    }
}

impl Loss {
    /// Waits until the place is given to another.
    pub(super) async fn happens(&mut self) {
        // Nothing is ever sent: this ends when the other side is dropped.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut places = locked(&self.slots.places);
        places.taken.retain(|place| place.id != self.id);
        drop(places);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn is_lost((_, loss): &mut (Slot, Loss)) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(loss.happens()).poll(&mut context).is_ready()
    }

    const LATER: Time = Time(KEPT_MIN.as_nanos() as u64);

    #[test]
    fn the_oldest_silent_one_leaves_first_and_those_that_proved_something_last() {
        let slots = Slots::new(4);
        let take = |at| slots.try_take(at);
        let mut held: Vec<_> = (0..4).map(|_| take(Time(0)).unwrap()).collect();
        held[0].0.proved_at(Time(0));
        held[1].0.speaks();
        let mut newcomer = take(LATER).unwrap();
        assert_eq!(held.iter_mut().map(is_lost).collect::<Vec<_>>(), [false, false, true, false]);
        newcomer.0.speaks();
        let second = take(LATER).unwrap();
        assert!(is_lost(&mut held[3]));
        second.0.proved_at(Time(1));
        // No connection is silent any more: the oldest speaking one leaves.
        let third = take(LATER.after(Duration::from_nanos(1))).unwrap();
        assert!(is_lost(&mut held[1]));
        third.0.proved_at(Time(2));
        newcomer.0.proved_at(Time(3));
        assert!(!is_lost(&mut held[0]) && !is_lost(&mut newcomer));
        drop(third);
        let at = Time(3).after(KEPT_MIN);
        assert!(take(at).is_ok());
        assert!(!is_lost(&mut held[0]), "there was a free place");
    }

    #[test]
    fn those_that_proved_something_and_stall_leave_too_the_longest_first() {
        let slots = Slots::new(2);
        let mut held = [0, 0].map(|at| slots.try_take(Time(at)).unwrap());
        held[1].0.proved_at(Time(5));
        held[0].0.proved_at(Time(9));
        assert_eq!(slots.try_take(Time(9)).err(), Some(KEPT_MIN));
        let mut newcomer = slots.try_take(Time(9).after(KEPT_MIN)).unwrap();
        assert!(is_lost(&mut held[1]) && !is_lost(&mut held[0]));
        // One that makes steps all the time protects no other for ever.
        for step in 1..=20 {
            newcomer.0.proved_at(Time(9).after(KEPT_MIN * step / 2));
        }
        assert!(slots.try_take(Time(9).after(KEPT_MIN * 10)).is_ok());
        assert!(is_lost(&mut held[0]) && !is_lost(&mut newcomer));
    }

    #[test]
    fn everybody_has_its_time() {
        let slots = Slots::new(2);
        let mut held = [0, 5].map(|at| slots.try_take(Time(at)).unwrap());
        assert_eq!(slots.try_take(Time(5)).err(), Some(KEPT_MIN - Duration::from_nanos(5)));
        held[0].0.speaks();
        // The silent connection is younger and stays.
        let mut newcomer = slots.try_take(LATER).unwrap();
        assert!(is_lost(&mut held[0]) && !is_lost(&mut held[1]));
        assert_eq!(slots.try_take(LATER).err(), Some(Duration::from_nanos(5)));
        assert!(!is_lost(&mut newcomer));
    }

    #[test]
    fn nobody_loses_its_place_while_others_get_on() {
        let slots = Slots::new(2);
        let mut held = [0, 0].map(|at| slots.try_take(Time(at)).unwrap());
        held[0].0.proved_at(LATER);
        assert_eq!(slots.try_take(LATER).err(), Some(KEPT_MIN));
        assert!(!is_lost(&mut held[1]));
        assert!(slots.try_take(LATER.after(KEPT_MIN)).is_ok());
        assert!(is_lost(&mut held[1]));
    }

    #[tokio::test]
    async fn who_waits_gets_the_next_free_place() {
        let slots = Slots::new(1);
        for proved in [true, false] {
            // Its time is never over in this test.
            let at = clock::now().after(KEPT_MIN * 10_000);
            let held = slots.try_take(at).unwrap();
            if proved {
                held.0.proved_at(at);
            }
            let waiter = tokio::spawn({
                let slots = Arc::clone(&slots);
                async move { slots.take().await }
            });
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            assert!(!waiter.is_finished());
            drop(held);
            drop(waiter.await.unwrap());
        }
    }
}
