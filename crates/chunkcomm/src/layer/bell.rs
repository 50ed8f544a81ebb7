//! A bell for tasks that wait.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Wakes all tasks that wait, in the order in which they began to: a simulation is the same each time.
///
/// A `watch` channel wakes its receivers in a random order.
#[derive(Debug, Default)]
pub struct Bell(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rings: AtomicU64,
    waiting: Notify,
}

impl Bell {
    /// Wakes all that hear it.
    pub fn ring(&self) {
        self.0.rings.fetch_add(1, Ordering::Release);
        self.0.waiting.notify_waiters();
    }

    /// Waits until `look` finds something. It looks at once, and each time that the bell rings.
    ///
    /// # Cancel safety
    ///
    /// No ring is lost when the future is dropped.
    pub async fn until<O>(&self, mut look: impl FnMut() -> Option<O>) -> O {
        loop {
            // Made before the look, so that it hears of a change that follows.
            let rung = self.0.waiting.notified();
            if let Some(found) = look() {
                return found;
            }
            rung.await;
        }
    }

    /// Returns what hears the bell from now on.
    #[must_use]
    pub fn hearer(&self) -> Hearer {
        let heard = self.0.rings.load(Ordering::Acquire);
        Hearer { bell: Arc::clone(&self.0), heard }
    }
}

/// Hears a [`Bell`].
#[derive(Debug)]
pub struct Hearer {
    bell: Arc<Shared>,
    heard: u64,
}

impl Hearer {
    /// Takes no notice of the rings so far.
    pub fn mark_unchanged(&mut self) {
        self.heard = self.bell.rings.load(Ordering::Acquire);
    }

    /// Waits until the bell has rung since the last call.
    ///
    /// # Cancel safety
    ///
    /// No ring is lost when the future is dropped.
    pub async fn changed(&mut self) {
        loop {
            let mut rung = pin!(self.bell.waiting.notified());
            rung.as_mut().enable();
            let rings = self.bell.rings.load(Ordering::Acquire);
            if rings != self.heard {
                self.heard = rings;
                return;
            }
            rung.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn a_bell_wakes_in_the_order_of_the_waits() {
        let (bell, is_rung) = (Arc::new(Bell::default()), Arc::new(Mutex::new(false)));
        let woken = Arc::new(Mutex::new(Vec::new()));
        let waits: Vec<_> = (0..32)
            .map(|number| {
                let (bell, is_rung, woken) =
                    (Arc::clone(&bell), Arc::clone(&is_rung), Arc::clone(&woken));
                tokio::spawn(async move {
                    bell.until(|| is_rung.lock().unwrap().then_some(())).await;
                    woken.lock().unwrap().push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        bell.ring(); // nothing has changed: all wait on
        tokio::task::yield_now().await;
        *is_rung.lock().unwrap() = true;
        bell.ring();
        for wait in waits {
            wait.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), (0..32).collect::<Vec<_>>());
    }
}
