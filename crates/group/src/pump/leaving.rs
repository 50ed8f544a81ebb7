//! The bytes of a round that have left the node.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use chunkcomm::layer::Written;
use chunkcomm::{BytesSender, host};

/// Counts the bytes of a round that were handed to the transport. The pump notes what it gives to the channel;
/// any thread may ask.
#[derive(Debug)]
pub(super) struct Leaving {
    written: Written,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    /// Number of the message with which these bytes have left.
    waiting: VecDeque<(u64, usize)>,
    left_bytes: usize,
}

impl Leaving {
    pub(super) fn of(channel: &mut BytesSender) -> Self {
        Self { written: Written::of(channel), given: Mutex::default() }
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().expect("no holder of the lock panics")
    }

    /// Waits until the peer has had no room for the channel, nor for one before it, for `time`. Waits for ever where
    /// the channel is open by then.
    pub(super) async fn has_no_room_for(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            host::sleep(left).await;
            match self.written.waits_in_vain() {
                Some(waited) => left = time.saturating_sub(waited),
                None => pending().await,
            }
        }
    }

    /// Begins a round.
    pub(super) fn begin(&self) {
        *self.given() = Given::default();
    }

    /// Notes that message `number` of the channel, counted from 1, has `bytes` of the round.
    pub(super) fn give(&self, number: u64, bytes: usize) {
        self.given().waiting.push_back((number, bytes));
    }

    /// Returns the bytes of the round that have left.
    pub(super) fn left_bytes(&self) -> usize {
        let written = self.written.messages();
        let mut given = self.given();
        let left = given.waiting.partition_point(|(number, _)| *number <= written);
        let bytes: usize = given.waiting.drain(..left).map(|(_, bytes)| bytes).sum();
        given.left_bytes += bytes;
        given.left_bytes
    }
}
