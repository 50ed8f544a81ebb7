//! Questions of a worker's tasks for values that another worker may have: the worker's side of
//! `proto/once.rs`.
//!
//! ```text
//!            ask                 value
//!   nothing ─────▶ asked ─────────────────▶ nothing: the task has it
//!      ▲             │ compute
//!      │             ▼
//!      └────────── computing: the value, or given up
//! ```
//!
//! A task that ends its wait leaves its question: the next task that needs the value takes the
//! reply.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use chunkcomm_proto::sorted::SortedMap;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::proto::wire::{self, Ask, Key, Told};

/// Values that a worker's tasks have asked for; none if the worker has no way to a farmer.
#[derive(Clone, Default)]
pub(crate) struct Needs(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    run: u32,
    keys: SortedMap<Key, Need>,
    /// Way of words to the farmer.
    answers: Option<UnboundedSender<Vec<u8>>>,
    /// Longest message to the farmer, in bytes.
    bytes_max: u64,
}

enum Need {
    /// The task of this index waits for the reply.
    Asked(u64, oneshot::Sender<Found>),
    /// The task of this index computes the value.
    Computing(u64),
}

/// Questions that get no reply. Dropping them wakes the tasks that wait, which locks their queue.
#[must_use = "it is dropped while no queue is locked"]
pub(crate) struct Unanswered(
    #[expect(dead_code, reason = "it is held to be dropped")] SortedMap<Key, Need>,
);

/// Reply of the farmer to a task.
pub(crate) enum Found {
    Compute(Computing),
    /// The encoded value.
    Value(Bytes),
}

/// Duty to compute a value. Dropped before [`finish`](Computing::finish), it tells the farmer to
/// have another worker compute.
pub(crate) struct Computing {
    needs: Needs,
    run: u32,
    key: Key,
}

impl Needs {
    /// Sets the way to the farmer.
    pub(crate) fn connect(&self, answers: UnboundedSender<Vec<u8>>, bytes_max: u64) {
        let mut state = self.state();
        (state.answers, state.bytes_max) = (Some(answers), bytes_max);
    }

    /// Begins a run. Tasks of the previous run get no reply.
    pub(crate) fn enter(&self, run: u32) -> Unanswered {
        let mut state = self.state();
        state.run = run;
        Unanswered(std::mem::take(&mut state.keys))
    }

    /// Ends the way to the farmer. Tasks get no reply.
    pub(crate) fn close(&self) -> Unanswered {
        let mut state = self.state();
        state.answers = None;
        Unanswered(std::mem::take(&mut state.keys))
    }

    /// Asks the farmer for a value that a task of this run and index needs, and waits for the
    /// reply.
    ///
    /// Returns `None` if there is no farmer to reply.
    ///
    /// # Cancel safety
    /// The next call for this key takes the reply.
    pub(crate) async fn ask(&self, (run, task): (u32, u64), key: Key) -> Option<Found> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            let answers = state.answers.clone().filter(|_| state.run == run)?;
            if state.keys.insert(key, Need::Asked(task, sender)).is_none() {
                // A failed send means that the worker has ended, and the reply never comes.
                let _ = answers.send(wire::once_answer(run, key, &Ask::Need));
            }
        }
        receiver.await.ok()
    }

    /// Takes the farmer's reply.
    pub(crate) fn handle_reply(&self, run: u32, key: Key, reply: Told) {
        let mut state = self.state();
        if state.run != run || !matches!(state.keys.get(&key), Some(Need::Asked(..))) {
            return;
        }
        let Some(Need::Asked(task, sender)) = state.keys.remove(&key) else { return };
        let found = match reply {
            Told::Compute => {
                state.keys.insert(key, Need::Computing(task));
                Found::Compute(Computing { needs: self.clone(), run, key })
            }
            Told::Value(value) => Found::Value(value),
        };
        drop(state);
        // If no task waits, dropping the duty gives it up.
        let _ = sender.send(found);
    }

    /// Gives up the values that a task was to compute: its thread was given up.
    ///
    /// If the task waits for a value, the wait ends. A reply that tells the task to compute is
    /// given up.
    pub(crate) fn give_up(&self, run: u32, task: u64) {
        let mut state = self.state();
        if state.run != run {
            return;
        }
        for need in state.keys.values_mut() {
            if let Need::Asked(by, sender) = need
                && *by == task
            {
                *sender = oneshot::channel().0;
            }
        }
        let is_its = |need: &Need| matches!(need, Need::Computing(by) if *by == task);
        let given_up = state.keys.iter().filter(|(_, need)| is_its(need));
        let given_up: Vec<Key> = given_up.map(|(&key, _)| key).collect();
        drop(state);
        given_up.into_iter().for_each(|key| self.end(run, key, &Ask::GivenUp));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics with the needs locked")
    }

    /// Ends a duty with this word.
    fn end(&self, run: u32, key: Key, ask: &Ask) {
        let mut state = self.state();
        let is_due = state.run == run && matches!(state.keys.get(&key), Some(Need::Computing(_)));
        if is_due {
            state.keys.remove(&key);
            if let Some(answers) = &state.answers {
                let _ = answers.send(wire::once_answer(run, key, ask));
            }
        }
    }
}

impl Computing {
    /// Sends the encoded value to the farmer.
    ///
    /// # Panics
    /// The value is larger than a message.
    pub(crate) fn finish(self, value: Vec<u8>) {
        let bytes_max = self.needs.state().bytes_max.saturating_sub(wire::ONCE_HEAD_MAX);
        let bytes = value.len() as u64;
        assert!(
            bytes <= bytes_max,
            "a value for all workers has {bytes} bytes, allowed are {bytes_max} (message_bytes_max)"
        );
        self.needs.end(self.run, self.key, &Ask::Value(Bytes::from(value)));
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        self.needs.end(self.run, self.key, &Ask::GivenUp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use tokio::sync::mpsc::unbounded_channel;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> std::task::Poll<T> {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }

    #[test]
    fn a_task_that_no_longer_waits_leaves_its_question_or_gives_up() {
        let (sender, mut words) = unbounded_channel();
        let needs = Needs::default();
        needs.connect(sender, 1000);
        drop(needs.enter(3));
        let said = |ask| wire::once_answer(3, 7, &ask);
        {
            let mut first = pin!(needs.ask((3, 0), 7));
            assert!(poll(first.as_mut()).is_pending());
            assert_eq!(words.try_recv(), Ok(said(Ask::Need)));
        }
        let mut second = Box::pin(needs.ask((3, 0), 7));
        assert!(poll(second.as_mut()).is_pending());
        assert!(words.try_recv().is_err(), "it was asked already");
        // The reply has come, and is dropped with the task before that has seen it.
        needs.handle_reply(3, 7, Told::Compute);
        drop(second);
        assert_eq!(words.try_recv(), Ok(said(Ask::GivenUp)));

        let mut third = pin!(needs.ask((3, 0), 7));
        assert!(poll(third.as_mut()).is_pending());
        assert_eq!(words.try_recv(), Ok(said(Ask::Need)));
        needs.handle_reply(3, 7, Told::Compute);
        let std::task::Poll::Ready(Some(Found::Compute(duty))) = poll(third.as_mut()) else {
            panic!()
        };
        duty.finish(vec![5]);
        assert_eq!(words.try_recv(), Ok(said(Ask::Value(Bytes::from_static(&[5])))));
        assert!(words.try_recv().is_err(), "it is not given up as well");

        // Another run has begun, and then the worker ends.
        let mut fourth = pin!(needs.ask((3, 0), 8));
        assert!(poll(fourth.as_mut()).is_pending());
        drop(needs.enter(4));
        assert!(matches!(poll(fourth.as_mut()), std::task::Poll::Ready(None)));
        assert!(matches!(poll(pin!(needs.ask((3, 0), 8))), std::task::Poll::Ready(None)));
        drop(needs.close());
        assert!(matches!(poll(pin!(needs.ask((4, 0), 8))), std::task::Poll::Ready(None)));
    }

    #[test]
    fn a_thread_that_is_given_up_while_it_waits_keeps_no_value() {
        let (sender, mut words) = unbounded_channel();
        let needs = Needs::default();
        needs.connect(sender, 1000);
        drop(needs.enter(3));
        let mut waits = pin!(needs.ask((3, 5), 7));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(words.try_recv(), Ok(wire::once_answer(3, 7, &Ask::Need)));
        // Of another run, or another task.
        [(2, 5), (3, 4)].into_iter().for_each(|(run, task)| needs.give_up(run, task));
        assert!(poll(waits.as_mut()).is_pending());
        needs.give_up(3, 5);
        assert!(matches!(poll(waits.as_mut()), std::task::Poll::Ready(None)));
        needs.handle_reply(3, 7, Told::Compute);
        assert_eq!(words.try_recv(), Ok(wire::once_answer(3, 7, &Ask::GivenUp)));
    }

    #[test]
    #[should_panic(expected = "has 1000 bytes, allowed are 936 (message_bytes_max)")]
    fn a_value_larger_than_a_message_fails_its_task() {
        let (sender, _words) = unbounded_channel();
        let needs = Needs::default();
        needs.connect(sender, 1000);
        Computing { needs, run: 0, key: 7 }.finish(vec![0; 1000]);
    }
}
