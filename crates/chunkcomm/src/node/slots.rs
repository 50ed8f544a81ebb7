//! The places of those who connected and are not admitted yet. Their number is
//! bounded; when all are taken and nobody gets on, a newcomer gets the place of one
//! who has not said anything, so that the silent lock nobody out. While somebody
//! gets on, newcomers wait in the system's queue: peers that were cut off together
//! would otherwise take each other's places for ever.

use crate::driver::clock;
use crate::driver::wakers::locked;
use crate::proto::Time;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

/// A place is kept so long at least, and since the last one who proved itself. A
/// peer on a LAN needs less, even beside many others; with 64 places the system's
/// queue of 1024 connections passes within a second, though all be strangers'.
const KEPT_MIN: Duration = Duration::from_millis(50);

/// How far one who connected has come. Whoever is further keeps its place longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Stage {
    /// Not a byte came.
    Silent,
    /// Some of a hello came.
    Speaking,
    /// It proved what it has to prove, if anything; TLS may follow.
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
    /// Oldest first.
    taken: VecDeque<Place>,
    next_id: u64,
    /// When somebody proved itself last.
    got_on: Time,
}

struct Place {
    id: u64,
    since: Time,
    stage: Arc<AtomicU8>,
    /// Dropped, it tells the one who has the place to leave.
    _keeps: oneshot::Sender<()>,
}

/// A place that is taken until this is dropped.
pub(super) struct Slot {
    id: u64,
    stage: Arc<AtomicU8>,
    slots: Arc<Slots>,
}

/// Tells when a place is given to another.
pub(super) struct Loss(oneshot::Receiver<()>);

impl Slots {
    pub(super) fn new(count_max: usize) -> Arc<Slots> {
        Arc::new(Slots { places: Mutex::default(), freed: Notify::new(), count_max })
    }

    /// A place, taken from another if need be; waits while those who have one get on.
    pub(super) async fn take(self: &Arc<Self>) -> (Slot, Loss) {
        if locked(&self.places).taken.len() >= self.count_max {
            // What has come meanwhile is read before anybody is judged: this process
            // may have been late.
            tokio::task::yield_now().await;
        }
        loop {
            let freed = self.freed.notified();
            match self.try_take(clock::now()) {
                Ok(taken) => return taken,
                // Either way it is looked again.
                Err(Some(wait)) => {
                    let _ = clock::within(&Handle::current(), wait, freed).await;
                }
                Err(None) => freed.await,
            }
        }
    }

    /// A place, or how long until one may be taken from another, if any may.
    fn try_take(self: &Arc<Self>, now: Time) -> Result<(Slot, Loss), Option<Duration>> {
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
    /// Takes the place of the one who came least far of those who had their time, of
    /// several the oldest.
    fn make_room(&mut self, now: Time) -> Result<(), Option<Duration>> {
        let stage = |place: &Place| place.stage.load(Ordering::Relaxed);
        let kept_until = |place: &Place| place.since.max(self.got_on).after(KEPT_MIN);
        let mut unproved = self.taken.iter().filter(|place| stage(place) < Stage::Proved as u8);
        // They stand in the order in which they came.
        let first = kept_until(unproved.next().ok_or(None)?);
        if now < first {
            return Err(Some(Duration::from_nanos(first.0 - now.0)));
        }
        let had_its_time = |&at: &usize| kept_until(&self.taken[at]) <= now;
        let least =
            (0..self.taken.len()).filter(had_its_time).min_by_key(|&at| stage(&self.taken[at]));
        if let Some(at) = least {
            self.taken.remove(at);
        }
        Ok(())
    }
}

impl Slot {
    /// Something came.
    pub(super) fn speaks(&self) {
        self.stage.store(Stage::Speaking as u8, Ordering::Relaxed);
    }

    /// What had to be proved was.
    pub(super) fn proved(&self) {
        self.proved_at(clock::now());
    }

    fn proved_at(&self, now: Time) {
        self.stage.store(Stage::Proved as u8, Ordering::Relaxed);
        locked(&self.slots.places).got_on = now;
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
    fn the_oldest_silent_one_leaves_first_and_the_proved_stay() {
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
        second.0.proved_at(Time(0));
        // Nobody is silent any more: the oldest of those who speak.
        let third = take(LATER).unwrap();
        assert!(is_lost(&mut held[1]));
        third.0.proved_at(Time(0));
        newcomer.0.proved_at(Time(0));
        assert!(!is_lost(&mut held[0]) && !is_lost(&mut newcomer));
        assert!(matches!(take(Time(u64::MAX)), Err(None)), "all have proved themselves");
        drop(second);
        assert!(take(LATER).is_ok());
    }

    #[test]
    fn everybody_has_its_time() {
        let slots = Slots::new(2);
        let mut held = [0, 5].map(|at| slots.try_take(Time(at)).unwrap());
        let wait = |outcome: Result<_, Option<Duration>>| outcome.err().flatten();
        assert_eq!(wait(slots.try_take(Time(5))), Some(KEPT_MIN - Duration::from_nanos(5)));
        held[0].0.speaks();
        // The silent one is younger: it is not it that leaves.
        let mut newcomer = slots.try_take(LATER).unwrap();
        assert!(is_lost(&mut held[0]) && !is_lost(&mut held[1]));
        assert_eq!(wait(slots.try_take(LATER)), Some(Duration::from_nanos(5)));
        assert!(!is_lost(&mut newcomer));
    }

    #[test]
    fn nobody_loses_its_place_while_others_get_on() {
        let slots = Slots::new(2);
        let mut held = [0, 0].map(|at| slots.try_take(Time(at)).unwrap());
        held[0].0.proved_at(LATER);
        assert_eq!(slots.try_take(LATER).err(), Some(Some(KEPT_MIN)));
        assert!(!is_lost(&mut held[1]));
        assert!(slots.try_take(LATER.after(KEPT_MIN)).is_ok());
        assert!(is_lost(&mut held[1]));
    }

    #[tokio::test]
    async fn who_waits_gets_the_next_free_place() {
        let slots = Slots::new(1);
        for proved in [true, false] {
            // Its time does not come in this test.
            let held = slots.try_take(clock::now().after(KEPT_MIN * 10_000)).unwrap();
            if proved {
                held.0.proved();
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
