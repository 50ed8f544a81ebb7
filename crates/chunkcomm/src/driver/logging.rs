//! The thread that stores the messages of a stream in its log before they leave.
//!
//! ```text
//! sender -> ring -> the ring's tail: write, fsync -> the ring's consumer: the driver of the link
//!        -> words (flush, end, ...) -> wait for their messages -> words to that driver
//! ```
//!
//! To the sender this thread is the driver of a link that leads nowhere else. While the thread
//! writes, the sender stages on, and the next write takes all of that.

use super::clock;
use super::keeping::Stream;
use super::mail::{Command, LinkShared, Notice, Taken};
use super::ring::Tail;
use super::staging::{Failure, TxShared};
use super::wakers::thread_waker;
use crate::error::{LinkCause, LinkError, LogError};
use crate::log::Log;
use crate::proto::message;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::Context;
use std::thread;
use std::time::{Duration, Instant};

/// Shortest interval, while nothing is stored, between two records of the number of settled
/// messages. A process that is killed sends again the messages that were settled in this time.
const MARK_EACH: Duration = Duration::from_millis(10);

/// A stream's log and what its thread needs.
pub(crate) struct Logger {
    /// The link to which the sender sends its commands.
    pub(crate) link: Arc<LinkShared>,
    pub(crate) shared: Arc<TxShared>,
    pub(crate) stream: Arc<Stream>,
    pub(crate) tail: Tail,
    pub(crate) log: Log,
    /// Number of messages that are stored.
    pub(crate) stored: u64,
}

struct Logging {
    logger: Logger,
    /// Commands of the sender about messages that are not stored.
    words: Vec<Command>,
    /// Whether the end of the sender was among its commands.
    end_came: bool,
    /// The stream's channel.
    channel: Option<(Arc<LinkShared>, u32)>,
    taken: Taken,
    /// Time of the last record, if there was one.
    marked_at: Option<Instant>,
}

impl Logger {
    /// Begins the thread, which ends with the stream.
    pub(crate) fn begin(self) -> io::Result<()> {
        let thread = thread::Builder::new().name("chunkcomm-log".to_owned());
        thread.spawn(|| Logging::new(self).run()).map(drop)
    }
}

impl Logging {
    fn new(logger: Logger) -> Logging {
        let (words, taken) = (Vec::new(), Taken::default());
        Logging { logger, words, end_came: false, channel: None, taken, marked_at: None }
    }

    fn run(mut self) {
        let waker = thread_waker();
        self.logger.link.driver_runs(&waker);
        let context = &mut Context::from_waker(&waker);
        let worked = catch_unwind(AssertUnwindSafe(|| self.work(context)));
        let Logger { shared, tail, log, stored, .. } = &mut self.logger;
        let worked =
            worked.unwrap_or_else(|_| Err(log.failed(io::Error::other("a bug: panicked"))));
        if let Err(error) = worked.and_then(|()| log.finish(shared.settled())) {
            tracing::error!(channel = ?shared.name, error = ?error, "the log cannot be written");
            shared.set_storing(*stored + u64::from(tail.messages()));
            shared.refuse_more(Failure::Log(Arc::new(error)));
            // Stored messages are still delivered. Until then no other sender may open the log. The
            // sender's commands are not taken any more.
            self.end_came = true;
            while !self.is_over(context) {
                thread::park();
            }
        }
        let Logger { link, shared, stream, log, .. } = self.logger;
        drop(log);
        link.end(&LinkError::new(link.peer.name.clone(), LinkCause::Closed));
        stream.set_log_closed();
        shared.progress();
    }

    /// Stores what is staged until the stream is over.
    fn work(&mut self, context: &mut Context<'_>) -> Result<(), LogError> {
        loop {
            if self.logger.link.take_mail(&mut self.taken) {
                self.taken.staged.clear();
                let words = self.taken.commands.drain(..);
                self.words.extend(words.filter(|word| behind(word).is_some()));
                self.end_came |= self.words.iter().any(|word| matches!(word, Command::End { .. }));
            }
            let stored = self.store()?;
            self.tell_driver(stored);
            if stored || self.logger.shared.is_staged_again(&mut self.logger.tail) {
                continue;
            }
            if self.is_over(context) {
                // Pairs with the fence of a sender that did not see the end, so that its message is
                // seen here.
                fence(Ordering::SeqCst);
                while self.store()? {}
                return Ok(());
            }
            self.rest(context);
        }
    }

    /// Returns whether nothing more is to be stored or sent; otherwise the thread is woken at that
    /// time.
    fn is_over(&self, context: &mut Context<'_>) -> bool {
        let Logger { shared, stream, stored, .. } = &self.logger;
        // The command comes after `ended` is set, and is passed on first: the receiver waits for it.
        let all_settled = shared.settled() == *stored && shared.ended() == Some(*stored);
        stream.poll_ended(context).is_ready() || (all_settled && self.end_came)
    }

    /// Stores all messages that are staged; returns whether there were any.
    fn store(&mut self) -> Result<bool, LogError> {
        let Logger { shared, tail, log, stored, .. } = &mut self.logger;
        let (front, back, messages) = tail.peek();
        let bytes = front.len() + back.len();
        if bytes == 0 {
            return Ok(false);
        }
        let large = match shared.has_large_unstored() {
            true => shared.take_large_unstored(message::marks(front, back)),
            false => Vec::new(),
        };
        shared.set_storing(*stored + u64::from(messages));
        log.append((front, back, messages), &large, shared.settled())?;
        self.marked_at = Some(Instant::now());
        tail.store(bytes, messages);
        *stored += u64::from(messages);
        shared.set_stored(*stored, log.counters);
        Ok(true)
    }

    /// Tells the driver of the stream's channel whether messages were `stored`, and passes the
    /// sender's commands on. A stream without a channel drops them: its next channel sends all
    /// messages.
    fn tell_driver(&mut self, stored: bool) {
        if stored || !self.words.is_empty() {
            // After the messages were stored: a task that opens a channel meanwhile sees them.
            self.channel = self.logger.shared.take_moved().or_else(|| self.channel.take());
        }
        let ready = |word: &mut Command| behind(word) <= Some(self.logger.stored);
        let words = self.words.extract_if(.., ready);
        let Some((link, id)) = &self.channel else { return words.for_each(drop) };
        if stored {
            link.staged(Notice { id: *id, at: clock::now(), bytes: 0 });
        }
        for word in words {
            link.command(for_channel(word, *id));
        }
    }

    /// Rests until a message is staged or settled, or the sender has a command.
    fn rest(&mut self, context: &mut Context<'_>) {
        let Logger { shared, log, .. } = &mut self.logger;
        let (settled, marked) = (shared.settled(), log.marked());
        if settled == marked {
            let news = |shared: &TxShared| shared.settled() > marked;
            if shared.poll_watch(context, news).is_pending() {
                thread::park();
            }
            return;
        }
        let since = self.marked_at.map_or(MARK_EACH, |at| at.elapsed());
        let wait = MARK_EACH.saturating_sub(since);
        if !wait.is_zero() {
            return thread::park_timeout(wait);
        }
        self.marked_at = Some(Instant::now());
        if let Err(error) = log.mark(settled) {
            // The failure costs repeats, no messages; the record is tried again.
            tracing::debug!(channel = ?shared.name, ?error, "settled messages cannot be noted");
        }
    }
}

/// Returns the number of messages accepted before the sender's command.
fn behind(word: &Command) -> Option<u64> {
    match word {
        Command::Urgent { until, .. }
        | Command::NoRoom { until, .. }
        | Command::Flush { until, .. } => Some(*until),
        Command::End { messages, .. } => Some(*messages),
        _ => None,
    }
}

/// Returns a sender's command, addressed to the channel `to`.
fn for_channel(mut word: Command, to: u32) -> Command {
    if let Command::Urgent { id, .. }
    | Command::NoRoom { id, .. }
    | Command::Flush { id, .. }
    | Command::End { id, .. } = &mut word
    {
        *id = to;
    }
    word
}
