//! Messages that were encoded for many channels.

use super::shared::QUEUED;
use super::{Staged, TxEnd};
use crate::driver::wakers::locked;
use crate::error::SendError;
use crate::proto::limits::{PACKET_BYTES_DEFAULT, PACKET_OVERHEAD_BYTES};
use crate::proto::message::{self, TAG_LARGE};
use crate::proto::outbox::Beside;
use bytes::Bytes;
use std::sync::atomic::Ordering;

/// Bytes from which a run goes to each channel without a copy: 4 KiB. Shorter ones are gathered in the ring.
pub(crate) const SHARED_RUN_BYTES_MIN: usize = 4 * 1024;

/// Bytes of a ring on a link whose packets can have [`PACKET_BYTES_DEFAULT`].
const PACKETS_OF_RUNS_MIN: usize = PACKET_BYTES_DEFAULT - PACKET_OVERHEAD_BYTES;

impl TxEnd {
    /// Stages the first of the `messages` in `run`, each behind its prefix: as many as have room. Returns
    /// their bytes and their number.
    pub(crate) fn stage_run(
        &mut self,
        run: &[u8],
        messages: u32,
    ) -> Result<(usize, u32), SendError> {
        self.check_alive()?;
        let (mut bytes, mut count) = (run.len(), messages);
        if self.producer.free_seen() < bytes {
            let room = self.room_for(bytes);
            if room < bytes {
                (bytes, count) = whole(run, room);
            }
        }
        if count == 0 {
            return self.stage_first(run);
        }
        self.producer.push_run(&run[..bytes], count);
        self.committed(bytes, count)?;
        Ok((bytes, count))
    }

    /// As [`TxEnd::stage_run`], for a run behind `at` that other channels share. A long one is not copied.
    pub(crate) fn stage_shared_run(
        &mut self,
        run: &Bytes,
        at: usize,
        messages: u32,
    ) -> Result<(usize, u32), SendError> {
        let rest = &run[at..];
        if rest.len() < SHARED_RUN_BYTES_MIN || self.ring_size.bytes_max() < PACKETS_OF_RUNS_MIN {
            return self.stage_run(rest, messages);
        }
        self.check_alive()?;
        let room = self.producer.backlog_room();
        let (bytes, count) =
            if rest.len() <= room { (rest.len(), messages) } else { whole(rest, room) };
        if bytes < SHARED_RUN_BYTES_MIN {
            // More room comes: the receiver reports each eighth of the backlog that it has consumed.
            if room < SHARED_RUN_BYTES_MIN.min(self.producer.backlog_bytes_max() / 4) {
                self.tell_no_room();
                return Ok((0, 0));
            }
            return self.stage_run(rest, messages);
        }
        if !self.make_room(1) || !self.shared.admits_large(bytes) {
            return Ok((0, 0));
        }
        let mut slow = locked(&self.shared.slow);
        slow.large_bytes += bytes;
        slow.beside.push_back(Beside::Run(run.slice(at..at + bytes), count));
        self.shared.large_pending.fetch_add(1, Ordering::Release);
        drop(slow);
        self.producer.push_run(&[TAG_LARGE], count);
        // The mark is no byte of the run.
        self.producer.count_large(bytes - 1);
        self.committed(bytes, count)?;
        Ok((bytes, count))
    }

    /// Returns the room for small messages, at most `bytes` where the ring grows for them.
    fn room_for(&mut self, bytes: usize) -> usize {
        self.look();
        let wanted = bytes.min(self.producer.backlog_room());
        while self.producer.free() < wanted
            && let Some(grown) = self.grown()
        {
            self.producer.replace(grown);
        }
        self.producer.free_seen()
    }

    /// Stages the first message of a run, for which the ring has no room now or never.
    #[cold]
    fn stage_first(&mut self, run: &[u8]) -> Result<(usize, u32), SendError> {
        let range = message::next_in_run(run, 0).expect("a run holds whole messages");
        let end = range.end;
        let staged = self.stage_slice(&run[range])?;
        Ok(if staged == Staged::Done { (end, 1) } else { (0, 0) })
    }

    /// Stages a message that other channels share, whatever its size, without a copy.
    pub(crate) fn stage_shared(&mut self, message: &Bytes) -> Result<Staged, SendError> {
        match self.takes_large(message.len())? {
            Staged::Full => Ok(Staged::Full),
            Staged::Done => self.push_large(message.clone()),
        }
    }

    /// Whether the driver has no turn before this thread's tasks, or knows that something is staged.
    pub(crate) fn is_home_or_queued(&self) -> bool {
        self.link.is_home() || self.shared.flags.load(Ordering::Relaxed) & QUEUED != 0
    }

    /// Returns the bytes that are accepted and not consumed, of a channel with a backlog.
    pub(crate) fn backlog_held(&mut self) -> u64 {
        self.producer.backlog_held()
    }
}

/// Returns the bytes and the number of the whole messages in the first `room` bytes of `run`.
fn whole(run: &[u8], room: usize) -> (usize, u32) {
    let (mut bytes, mut count) = (0, 0);
    while let Some(range) = message::next_in_run(run, bytes)
        && range.end <= room
    {
        (bytes, count) = (range.end, count + 1);
    }
    (bytes, count)
}
