//! The places of those who connected and are not admitted yet. Their number is
//! bounded; when all are taken, a newcomer gets the place of one who has not said
//! anything, so that the silent lock nobody out.

use crate::driver::wakers::locked;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, oneshot};

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
}

struct Place {
    id: u64,
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

    /// A place, taken from another if need be; waits only when all who have one
    /// have proved themselves.
    pub(super) async fn take(self: &Arc<Self>) -> (Slot, Loss) {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            self.freed.notified().await;
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<(Slot, Loss)> {
        let mut places = locked(&self.places);
        if places.taken.len() >= self.count_max && !places.make_room() {
            return None;
        }
        let id = places.next_id;
        places.next_id += 1;
        let stage = Arc::new(AtomicU8::new(Stage::Silent as u8));
        let (keeps, lost) = oneshot::channel();
        places.taken.push_back(Place { id, stage: Arc::clone(&stage), _keeps: keeps });
        Some((Slot { id, stage, slots: Arc::clone(self) }, Loss(lost)))
    }
}

impl Places {
    /// Takes the place of the one who came least far, of several the oldest.
    fn make_room(&mut self) -> bool {
        let stage = |place: &Place| place.stage.load(Ordering::Relaxed);
        let least = (0..self.taken.len()).min_by_key(|&at| stage(&self.taken[at]));
        match least.filter(|&at| stage(&self.taken[at]) < Stage::Proved as u8) {
            Some(at) => self.taken.remove(at).is_some(),
            None => false,
        }
    }
}

impl Slot {
    /// Something came.
    pub(super) fn speaks(&self) {
        self.stage.store(Stage::Speaking as u8, Ordering::Relaxed);
    }

    /// What had to be proved was.
    pub(super) fn proved(&self) {
        self.stage.store(Stage::Proved as u8, Ordering::Relaxed);
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
    use std::task::{Context, Poll, Waker};

    fn is_lost((_, loss): &mut (Slot, Loss)) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(loss.happens()).poll(&mut context).is_ready()
    }

    #[test]
    fn the_oldest_silent_one_leaves_first_and_the_proved_stay() {
        let slots = Slots::new(4);
        let mut held: Vec<_> = (0..4).map(|_| slots.try_take().unwrap()).collect();
        held[0].0.proved();
        held[1].0.speaks();
        let mut newcomer = slots.try_take().unwrap();
        assert_eq!(held.iter_mut().map(is_lost).collect::<Vec<_>>(), [false, false, true, false]);
        newcomer.0.speaks();
        let second = slots.try_take().unwrap();
        assert!(is_lost(&mut held[3]));
        second.0.proved();
        // Nobody is silent any more: the oldest of those who speak.
        let third = slots.try_take().unwrap();
        assert!(is_lost(&mut held[1]));
        third.0.proved();
        newcomer.0.proved();
        assert!(!is_lost(&mut held[0]) && !is_lost(&mut newcomer));
        assert!(slots.try_take().is_none(), "all have proved themselves");
        drop(second);
        assert!(slots.try_take().is_some());
    }

    #[test]
    fn who_waits_gets_the_next_free_place() {
        let slots = Slots::new(1);
        let held = slots.try_take().unwrap();
        held.0.proved();
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting = pin!(slots.take());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(held);
        let Poll::Ready(slot) = waiting.as_mut().poll(&mut context) else { panic!("still waits") };
        drop(slot);
    }
}
