//! Messages that were encoded for many channels.

use super::shared::QUEUED;
use super::{Staged, TxEnd};
use crate::error::SendError;
use crate::proto::message;
use bytes::Bytes;
use std::sync::atomic::Ordering;

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
