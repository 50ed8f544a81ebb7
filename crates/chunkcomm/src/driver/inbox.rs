//! The inbox of a channel: the driver puts runs in. The receiver takes them out, and finds the
//! messages in them when it wants them.
//!
//! A small run that is not taken at once is copied to the end of the last waiting run. So it costs
//! its bytes, and does not pin the buffer that it was read to.

use super::landing::Landing;
use super::memory::free_vec;
use super::wakers::locked;
use crate::error::{ChannelRefused, LinkError, RecvError};
use crate::proto::credit::REPORT_DIVISOR;
use crate::proto::limits::BACKLOG_BYTES_MIN;
use crate::proto::link::Counted;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// Largest size in bytes up to which copied runs are joined: 16 KiB.
const COPIED_BYTES_MAX: usize = 16 * 1024;

/// An entry of an inbox; entries wait in order of arrival.
pub(crate) enum Run {
    /// A slice of the buffer that it was read to.
    Shared { bytes: Bytes, messages: u32 },
    /// Runs that were copied together.
    Copied { bytes: Vec<u8>, messages: u32 },
    /// One large message.
    Large { bytes: Vec<u8>, counted: Counted },
}

/// How a channel ended for its receiver.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The sender is done.
    Done,
    /// The session ended before, when this many messages had arrived.
    Lost(LinkError, u64),
    /// The peer refused the duplex that this channel is the way back of.
    Refused(Arc<ChannelRefused>),
}

impl Outcome {
    /// Returns the end of `channel` as a receiver reports it.
    pub(crate) fn result(self, channel: &Arc<str>) -> Result<(), RecvError> {
        match self {
            Outcome::Done => Ok(()),
            Outcome::Lost(link, arrived) => {
                Err(RecvError::Lost { channel: Arc::clone(channel), link, arrived })
            }
            Outcome::Refused(refused) => Err(RecvError::Refused(refused)),
        }
    }
}

/// The party to tell when something comes.
pub(crate) enum Notify {
    Nobody,
    Task(Waker),
    /// Tells a `SelectAll`, at the receiver's place in it.
    SelectAll(Arc<dyn Fn() + Send + Sync>),
}

/// State that the driver shares with the receiver of a channel; locked once a run.
pub(crate) struct RxQueue {
    pub(crate) runs: VecDeque<Run>,
    outcome: Option<Outcome>,
    pub(crate) notify: Notify,
    /// The receiver's memory for the next large message.
    pub(crate) into: Option<Vec<u8>>,
    /// A large message begins to arrive, and goes on when the receiver waits.
    pub(crate) large_wanted: bool,
    /// An emptied vector for the next copied run.
    pub(crate) spare: Vec<u8>,
    /// The receiver is gone.
    pub(crate) dropped: bool,
    /// Wishes of the receiver of a channel that is not open yet.
    pub(crate) early: Early,
}

/// Wishes of a receiver whose channel the peer has not opened yet.
#[derive(Default)]
pub(crate) struct Early {
    /// The receiver wants no more than what is on its way.
    pub(crate) stopped: bool,
    /// The receiver handed over to this landing.
    pub(crate) landing: Option<Box<dyn Landing>>,
}

/// State that the driver shares with the receiver of a channel.
pub(crate) struct RxShared {
    pub(crate) name: Arc<str>,
    /// The channel's number; 0 while the channel is not open.
    id: AtomicU32,
    queue: Mutex<RxQueue>,
    /// Step in bytes at which the receiver reports the consumed ones.
    report_step: AtomicU64,
    /// Step in bytes at which the receiver of a channel with a backlog reports the consumed ones; 0
    /// without a backlog.
    backlog_step: AtomicU64,
    /// Number of messages of the stream that the receiver has settled.
    settled: AtomicU64,
    /// Whether the driver was told of settled messages and looks by itself since then.
    settled_told: AtomicBool,
}

impl RxShared {
    pub(crate) fn new(name: &str, id: u32) -> Arc<RxShared> {
        Arc::new(RxShared {
            name: Arc::from(name),
            id: AtomicU32::new(id),
            queue: Mutex::new(RxQueue {
                runs: VecDeque::new(),
                outcome: None,
                notify: Notify::Nobody,
                into: None,
                large_wanted: false,
                spare: Vec::new(),
                dropped: false,
                early: Early::default(),
            }),
            report_step: AtomicU64::new(0),
            backlog_step: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            settled_told: AtomicBool::new(false),
        })
    }

    /// Returns the inbox of a channel that the peer is still to open.
    pub(crate) fn unopened(name: &str) -> Arc<RxShared> {
        RxShared::new(name, 0)
    }

    /// Returns the channel's number, or 0 while it is not open. No link knows a channel 0: it
    /// ignores commands for it.
    pub(crate) fn id(&self) -> u32 {
        // Whoever takes a message or an end has seen it put in, under the lock.
        self.id.load(Ordering::Relaxed)
    }

    /// Notes that the peer has opened the channel, with this number. Returns the wishes that the
    /// receiver has uttered; `None` when it is gone.
    pub(crate) fn begin(&self, id: u32) -> Option<Early> {
        let mut queue = locked(&self.queue);
        self.id.store(id, Ordering::Relaxed);
        if queue.dropped { None } else { Some(std::mem::take(&mut queue.early)) }
    }

    /// Keeps a landing for a channel that is not open yet; gives it back if it is open or over.
    pub(crate) fn land_later(&self, landing: Box<dyn Landing>) -> Option<Box<dyn Landing>> {
        let mut queue = locked(&self.queue);
        if self.id() != 0 || queue.outcome.is_some() {
            return Some(landing);
        }
        queue.early.landing = Some(landing);
        None
    }

    /// Notes that the receiver has settled `total` messages of its stream. Returns whether the
    /// driver must be told: it does not look by itself.
    ///
    /// The number is stored before the flag is read, and the driver clears the flag before it
    /// reads the number. Either the receiver sees the cleared flag, or the driver sees the number
    /// at its last look:
    ///
    /// - The compiler keeps the order, so a thread that is stopped between the two has stored.
    /// - The processor may read the flag while the store is on its way to the other cores. That
    ///   takes far less than the millisecond between the look that asks and the last one. A barrier
    ///   against it would cost each message 8 ns, more than all the rest.
    #[inline]
    pub(crate) fn settle(&self, total: u64) -> bool {
        self.settled.store(total, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        !self.settled_told.load(Ordering::Relaxed)
            && !self.settled_told.swap(true, Ordering::SeqCst)
    }

    /// Returns the number of settled messages.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Asks the receiver to tell when it settles more. The driver reads the number after this, and
    /// once more after some time ([`RxShared::settle`]).
    pub(crate) fn ask_settled(&self) {
        self.settled_told.swap(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn report_step(&self) -> u64 {
        self.report_step.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_report_step(&self, bytes: u64) {
        self.report_step.store(bytes, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn backlog_step(&self) -> u64 {
        self.backlog_step.load(Ordering::Relaxed)
    }

    /// Notes the channel's backlog, if it has one, when the peer opens it.
    pub(crate) fn set_backlog(&self, bytes: Option<u64>) {
        let step = bytes.map_or(0, |bytes| bytes.max(BACKLOG_BYTES_MIN) / REPORT_DIVISOR);
        self.backlog_step.store(step, Ordering::Relaxed);
    }

    /// Changes the queue with `put` and tells the receiver. `None` when there is no receiver any
    /// more.
    #[inline]
    fn put(&self, put: impl FnOnce(&mut RxQueue)) -> Option<()> {
        let mut queue = locked(&self.queue);
        if queue.dropped {
            return None;
        }
        put(&mut queue);
        let tell = match &queue.notify {
            Notify::SelectAll(tell) => Notify::SelectAll(Arc::clone(tell)),
            _ => std::mem::replace(&mut queue.notify, Notify::Nobody),
        };
        drop(queue);
        match tell {
            Notify::Nobody => {}
            Notify::Task(waker) => waker.wake(),
            Notify::SelectAll(tell) => tell(),
        }
        Some(())
    }

    /// Puts in a run that is kept as a slice.
    pub(crate) fn put_shared(&self, bytes: Bytes, messages: u32) -> Option<()> {
        self.put(|queue| queue.runs.push_back(Run::Shared { bytes, messages }))
    }

    /// Puts in a copy of a run.
    #[inline]
    pub(crate) fn put_copied(&self, run: &[u8], count: u32) -> Option<()> {
        self.put(|queue| {
            if let Some(Run::Copied { bytes, messages }) = queue.runs.back_mut()
                && bytes.len() + run.len() <= COPIED_BYTES_MAX
            {
                bytes.extend_from_slice(run);
                *messages = messages.saturating_add(count);
                return;
            }
            let mut bytes = std::mem::take(&mut queue.spare);
            bytes.extend_from_slice(run);
            queue.runs.push_back(Run::Copied { bytes, messages: count });
        })
    }

    pub(crate) fn put_large(&self, bytes: Vec<u8>, counted: Counted) -> Option<()> {
        self.put(|queue| queue.runs.push_back(Run::Large { bytes, counted }))
    }

    /// Notes the channel's end; only the first call counts.
    pub(crate) fn end(&self, outcome: Outcome) {
        self.put(|queue| {
            queue.outcome.get_or_insert(outcome);
        });
    }

    /// Takes the receiver's memory for a large message of `bytes`, if the receiver gave enough and
    /// takes this message next.
    pub(crate) fn take_into(&self, bytes: u64) -> Option<Vec<u8>> {
        let mut queue = locked(&self.queue);
        // Behind another message this one is not the next.
        let next = queue.runs.is_empty();
        let fits = queue.into.as_ref().is_some_and(|buffer| buffer.len() as u64 >= bytes);
        if next && fits { queue.into.take() } else { None }
    }

    /// Asks the receiver for a large message, which goes on when the receiver waits for it. The
    /// receiver is woken; one that no longer waits does not answer.
    pub(crate) fn want_large(&self) {
        self.put(|queue| queue.large_wanted = true);
    }

    /// Returns the bytes that were not taken, and whether a task waits for more.
    pub(crate) fn waiting(&self) -> (usize, bool) {
        let queue = locked(&self.queue);
        let bytes = queue.runs.iter().map(|run| match run {
            Run::Shared { bytes, .. } => bytes.len(),
            Run::Copied { bytes, .. } | Run::Large { bytes, .. } => bytes.len(),
        });
        (bytes.sum(), !matches!(queue.notify, Notify::Nobody))
    }

    /// Whether the receiver takes nothing: something lies in the inbox, or no task waits for more.
    pub(crate) fn is_left_alone(&self) -> bool {
        let queue = locked(&self.queue);
        !queue.runs.is_empty() || matches!(queue.notify, Notify::Nobody)
    }

    #[inline]
    pub(crate) fn with_queue<R>(&self, look: impl FnOnce(&mut RxQueue) -> R) -> R {
        look(&mut locked(&self.queue))
    }
}

impl Run {
    /// Drops the run, whose message nobody takes.
    pub(crate) fn free(self) {
        if let Run::Large { bytes, .. } = self {
            free_vec(bytes);
        }
    }
}

impl RxQueue {
    /// Takes the waiting runs into `runs`, which is empty and whose memory is used again, as that of
    /// `spare` is.
    #[inline]
    pub(crate) fn drain(&mut self, runs: &mut VecDeque<Run>, spare: &mut Vec<u8>) {
        std::mem::swap(&mut self.runs, runs);
        let spare = std::mem::take(spare);
        if self.spare.capacity() < spare.capacity() {
            self.spare = spare;
        }
    }

    #[inline]
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome.clone()
    }

    /// Keeps `buffer` for a large message; returns it if another message waits.
    pub(crate) fn give_into(&mut self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        if !self.runs.is_empty() {
            return Some(buffer);
        }
        free_vec(self.into.replace(buffer).unwrap_or_default());
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_runs_are_joined_up_to_a_size() {
        let shared = RxShared::new("numbers", 1);
        let run = [0; COPIED_BYTES_MAX / 4];
        for _ in 0..10 {
            shared.put_copied(&run, 7).unwrap();
        }
        let sizes = shared.with_queue(|queue| {
            let size = |run: &Run| match run {
                Run::Copied { bytes, messages } => (bytes.len(), *messages),
                Run::Shared { .. } | Run::Large { .. } => panic!("runs are copied"),
            };
            queue.runs.iter().map(size).collect::<Vec<_>>()
        });
        let full = (COPIED_BYTES_MAX, 4 * 7);
        assert_eq!(sizes, [full, full, (COPIED_BYTES_MAX / 2, 2 * 7)]);
    }
}
