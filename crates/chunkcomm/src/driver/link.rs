//! The driver of one peer: a task that moves bytes between the transport and the link's machine
//! until the session ends.

use super::buffers::{Buffers, ReadBuffers};
use super::clock::{self, Alarm};
use super::connection::AfterLoss;
use super::cycles::{Looks, SharedBoard};
use super::events::{Acceptor, Others};
use super::mail::{LinkShared, PeerInfo, Taken, thread_token};
use super::reading::{Ask, Inbound, ReadError, Reader, RxSlot};
use super::watching::Watch;
use super::writing::{TxSlots, Writer};
use crate::error::{LinkCause, LinkError};
use crate::proto::Time;
use crate::proto::attempts::Attempts;
use crate::proto::flush::Yield;
use crate::proto::ids::IdMap;
use crate::proto::link::{Event, Link, LinkConfig, Transmit};
use crate::transport::Transport;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Turns of reading and writing before the driver lets other tasks run.
const TURNS_MAX: usize = 8;

/// Bytes written since the last read after which the driver asks the system itself whether
/// something arrived. A runtime whose tasks are always ready looks every 60 turns or so. By then
/// megabytes may have left, and be kept although they are acknowledged. To ask costs a microsecond;
/// to write this many bytes costs a hundred.
const UNREAD_BYTES_MAX: usize = 256 * 1024;

/// Time after a move of the runtime to another thread at which the rings are looked at once more: a
/// producer on the old thread may have taken itself for the driver's.
const MOVED_RECHECK: Duration = Duration::from_millis(1);

/// The parts of its node that a driver needs.
pub(crate) struct DriverSetup {
    pub(crate) shared: Arc<LinkShared>,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) config: LinkConfig,
    pub(crate) after_loss: AfterLoss,
    pub(crate) acceptor: Arc<dyn Acceptor>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) board: SharedBoard,
    /// Whether the runtime has one thread: producers on it need no fence.
    pub(crate) one_thread: bool,
}

/// Time in which the peer's last bytes before it hung up arrive: they lie in this machine's kernel
/// or were lost with the connection.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The cause why a turn failed.
enum Broken {
    /// The connection is of no use.
    Connection(LinkCause),
    /// The session is over.
    Session(LinkError),
}

impl From<LinkError> for Broken {
    fn from(error: LinkError) -> Broken {
        Broken::Session(error)
    }
}

pub(super) enum Closing {
    No,
    /// Everything staged is to be acknowledged first.
    Draining,
    /// The last packet is on its way.
    Bye,
    /// The transport learns that nothing follows.
    Shutdown,
}

/// The driver as a future that ends with the session.
pub(crate) struct Driver {
    pub(super) shared: Arc<LinkShared>,
    /// `None` between two connections.
    pub(super) transport: Option<Box<dyn Transport>>,
    pub(super) after_loss: AfterLoss,
    pub(super) attempts: Attempts,
    pub(super) dead_ms: u64,
    pub(super) acceptor: Arc<dyn Acceptor>,
    pub(super) link: Link,
    pub(super) senders: TxSlots,
    pub(super) receivers: IdMap<RxSlot>,
    pub(super) reader: Reader,
    /// The transport was asked in this poll and had nothing; it wakes this task when something
    /// arrives.
    pub(super) read_waits: bool,
    /// Bytes written since the transport was last read from, or the system asked.
    pub(super) written_unread: usize,
    pub(super) watch: Watch,
    pub(super) writer: Writer,
    pub(super) alarm: Alarm,
    pub(super) taken: Taken,
    pub(super) closing: Closing,
    pub(super) one_thread: bool,
    pub(super) recheck: Option<Time>,
    pub(super) looks: Looks,
    /// The cause with which the peer ended the session.
    pub(super) last_word: Option<LinkCause>,
    /// The cause why nothing can be written to the connection, and the time until which it is still
    /// read.
    pub(super) unwritable: Option<(LinkCause, Time)>,
    pub(super) over: bool,
    /// Span of the session's events.
    pub(super) span: tracing::Span,
    #[cfg(feature = "metrics")]
    /// Time of the next publication, and the number of packets that had passed at the last one.
    pub(super) metrics: (Time, u64),
}

impl Driver {
    pub(crate) fn new(setup: DriverSetup) -> Driver {
        let lent_bytes_max = usize::try_from(setup.config.windows_bytes_max / 4).unwrap_or(0);
        let read_buffers = ReadBuffers::new(setup.buffers, lent_bytes_max);
        let packet_bytes_max = setup.shared.peer.packet_bytes_max;
        let link = Link::new(&setup.config);
        setup.shared.set_ring_bytes(link.ring_bytes());
        let PeerInfo { name, session, .. } = &setup.shared.peer;
        let span = tracing::debug_span!(parent: None, "session", peer = %name, number = session);
        Driver {
            span,
            link,
            reader: Reader::new(packet_bytes_max, read_buffers),
            shared: setup.shared,
            transport: Some(setup.transport),
            after_loss: setup.after_loss,
            attempts: Attempts::default(),
            dead_ms: u64::try_from(setup.config.silence.dead.as_millis()).unwrap_or(u64::MAX),
            acceptor: setup.acceptor,
            senders: TxSlots::default(),
            receivers: IdMap::default(),
            read_waits: false,
            written_unread: 0,
            watch: Watch::default(),
            writer: Writer::default(),
            alarm: Alarm::default(),
            taken: Taken::default(),
            closing: Closing::No,
            one_thread: setup.one_thread,
            recheck: None,
            looks: Looks::new(setup.board),
            last_word: None,
            unwritable: None,
            over: false,
            #[cfg(feature = "metrics")]
            metrics: (Time(0), 0),
        }
    }

    pub(super) fn error(&self, cause: LinkCause) -> LinkError {
        LinkError::new(self.shared.peer.name.clone(), cause)
    }

    #[inline]
    fn note_thread(&mut self, now: Time) {
        if self.one_thread && self.shared.set_home(thread_token()) {
            self.recheck = Some(now.after(MOVED_RECHECK));
        }
        if self.recheck.is_some() {
            self.recheck_if_due(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn recheck_if_due(&mut self, now: Time) {
        if self.recheck.is_some_and(|at| now >= at) {
            self.recheck = None;
            for (id, slot) in self.senders.slots.iter_mut() {
                if !slot.ring.is_empty() {
                    self.link.staged(id, now);
                }
            }
        }
    }

    #[inline]
    fn whom_to_ask(&self) -> Ask {
        let seldom = self.written_unread < UNREAD_BYTES_MAX && !self.watch.is_on();
        if seldom { Ask::Runtime } else { Ask::System }
    }

    /// Reads once, from the transport to the inboxes.
    #[inline]
    fn poll_read(&mut self, context: &mut Context<'_>, now: Time) -> Poll<Result<(), Broken>> {
        let ask = self.whom_to_ask();
        let Some(transport) = &mut self.transport else { return Poll::Pending };
        let acceptor = &self.acceptor;
        let shared = &self.shared;
        let senders = &mut self.senders;
        let last_word = &mut self.last_word;
        let board = &*self.looks.board;
        let mut others = |link: &mut Link, receivers: &mut IdMap<RxSlot>, event: Event<'_>| {
            Others { acceptor, shared, senders, link, receivers, last_word, board }
                .handle(event, now);
        };
        let mut inbound = Inbound {
            link: &mut self.link,
            receivers: &mut self.receivers,
            shared,
            others: &mut others,
            now,
        };
        let outcome = self.reader.poll_read(context, &mut **transport, &mut inbound, ask);
        if ask == Ask::System || outcome.is_ready() {
            self.written_unread = 0;
        }
        let outcome = ready!(outcome);
        self.watch.heard(self.reader.gathered());
        self.link.heard(now);
        self.note_acknowledged();
        match outcome {
            Ok(()) if self.last_word.is_none() => Poll::Ready(Ok(())),
            outcome => Poll::Ready(Err(self.broken(outcome))),
        }
    }

    /// Returns why reading cannot go on, from the outcome of a read or from the peer's last record.
    #[cold]
    #[inline(never)]
    fn broken(&self, outcome: Result<(), ReadError>) -> Broken {
        match outcome {
            Ok(()) => match self.last_word.clone() {
                Some(word) => self.error(word).into(),
                None => Broken::Connection(LinkCause::ConnectionLost),
            },
            Err(ReadError::End) => Broken::Connection(LinkCause::ConnectionLost),
            Err(ReadError::Io(error)) => Broken::Connection(LinkCause::Io(Arc::new(error))),
            Err(ReadError::Protocol(error)) => self.error(LinkCause::Protocol(error)).into(),
        }
    }

    /// Reads on when nothing can be written any more: the peer's last record may tell more than the
    /// failed write. A runtime that has not yet seen the arrived bytes reports none. So the driver
    /// waits for the connection's end.
    #[cold]
    #[inline(never)]
    fn read_last(&mut self, context: &mut Context<'_>, now: Time) -> Result<Turn, Broken> {
        let Some((cause, until)) = self.unwritable.clone() else { return Ok(Turn::Rest) };
        match self.poll_read(context, now) {
            Poll::Ready(Ok(())) => Ok(Turn::Yield),
            Poll::Ready(Err(Broken::Session(error))) => Err(Broken::Session(error)),
            Poll::Pending if now < until => Ok(Turn::Rest),
            _ => Err(Broken::Connection(cause)),
        }
    }

    /// Writes packets that are to leave, one at most.
    fn poll_write(&mut self, context: &mut Context<'_>, now: Time) -> Result<Turn, Broken> {
        if !self.writer.is_busy() {
            match self.next_packet(now) {
                Transmit::Packet { number, again } => {
                    self.writer.number = number;
                    self.writer.carried.clear();
                    if !again {
                        self.writer.carried.extend_from_slice(self.link.carried());
                    }
                }
                Transmit::Yield(whom) => {
                    if whom == Yield::Core && !self.one_thread {
                        std::thread::yield_now();
                    }
                    return Ok(Turn::Yield);
                }
                Transmit::Nothing if matches!(self.closing, Closing::No) => return Ok(Turn::Rest),
                Transmit::Nothing => return self.poll_close(context),
            }
        }
        let Some(transport) = &mut self.transport else { return Ok(Turn::Rest) };
        let bytes = self.writer.packet.bytes();
        let timed = self.link.times_write(bytes).then(clock::now);
        let wrote = self.writer.poll_write(context, &mut **transport);
        if let Some(started) = timed {
            self.link.wrote(clock::now().0.saturating_sub(started.0));
        }
        match wrote {
            Poll::Pending => Ok(Turn::Blocked),
            Poll::Ready(Err(error)) => Err(Broken::Connection(LinkCause::Io(Arc::new(error)))),
            Poll::Ready(Ok(())) => {
                self.written_unread += bytes;
                self.link.written(self.writer.number, &mut self.writer.packet);
                self.link.count_writes(self.writer.packet_writes);
                self.senders.written(&self.writer.carried, &self.link);
                if !self.writer.carried.is_empty() {
                    self.watch.told();
                }
                self.shared.set_ring_bytes(self.link.ring_bytes());
                if self.link.has_acknowledged() {
                    self.note_acknowledged();
                }
                Ok(Turn::Progress)
            }
        }
    }

    pub(super) fn note_acknowledged(&mut self) {
        for carried in self.link.poll_acknowledged() {
            self.senders.acknowledged(carried);
        }
        self.senders.forget_ended();
    }

    fn next_packet(&mut self, now: Time) -> Transmit {
        let packet = &mut self.writer.packet;
        let transmit = self.link.poll_transmit(&mut self.senders, now, packet);
        while let Some(channel) = self.senders.restaged.pop() {
            self.link.staged(channel, now);
        }
        transmit
    }

    /// Takes the next step of closing, if the node closes and nothing is to be sent.
    #[cold]
    #[inline(never)]
    fn poll_close(&mut self, context: &mut Context<'_>) -> Result<Turn, Broken> {
        match self.closing {
            Closing::Draining if self.link.is_quiet() => {
                self.closing = Closing::Bye;
                self.link.bye();
                return Ok(Turn::Progress);
            }
            Closing::Bye => self.closing = Closing::Shutdown,
            _ => {}
        }
        if matches!(self.closing, Closing::Shutdown)
            && let Some(transport) = &mut self.transport
            && transport.poll_shutdown(context).is_ready()
        {
            return Err(self.error(LinkCause::Closed).into());
        }
        Ok(Turn::Rest)
    }

    /// Takes turns until there is nothing to do, or other tasks should run.
    fn turns(&mut self, context: &mut Context<'_>, now: Time) -> Result<Next, LinkError> {
        self.note_thread(now);
        self.look_if_due(now);
        self.read_waits = false;
        for _ in 0..TURNS_MAX {
            self.handle_mail(now)?;
            if self.transport.is_none() {
                return Ok(Next::Rest);
            }
            match self.turn(context, now) {
                Ok(Turn::Progress) => self.watch.pause(),
                Ok(Turn::Yield) => return Ok(Next::Again),
                Ok(Turn::Blocked) => {
                    self.watch.pause();
                    return Ok(Next::Rest);
                }
                Ok(Turn::Rest) if self.looks_on(now) => return Ok(Next::Again),
                Ok(Turn::Rest) => return Ok(Next::Rest),
                Err(Broken::Session(error)) => return Err(error),
                Err(Broken::Connection(cause)) => self.disconnect(now, cause)?,
            }
        }
        Ok(Next::Again)
    }

    /// Writes once; reads once too, unless a read already waits.
    fn turn(&mut self, context: &mut Context<'_>, now: Time) -> Result<Turn, Broken> {
        if self.unwritable.is_some() {
            return self.read_last(context, now);
        }
        let wrote = match self.poll_write(context, now) {
            Ok(wrote) => wrote,
            Err(Broken::Connection(cause)) => {
                self.unwritable = Some((cause, now.after(LAST_WORDS)));
                return self.read_last(context, now);
            }
            Err(over) => return Err(over),
        };
        if self.read_waits && self.whom_to_ask() == Ask::Runtime {
            return Ok(wrote);
        }
        match self.poll_read(context, now) {
            // Receivers run before more is read: their answers then leave.
            Poll::Ready(read) => read.map(|()| Turn::Yield),
            Poll::Pending => {
                self.read_waits = true;
                Ok(wrote)
            }
        }
    }
}

/// The outcome of a turn.
enum Turn {
    Progress,
    /// Other tasks should run before the driver goes on, so that a packet may grow.
    Yield,
    /// The transport takes nothing at the moment.
    Blocked,
    /// Nothing to do.
    Rest,
}

/// The time at which the driver is to be polled next.
enum Next {
    /// After all tasks that are runnable now.
    Again,
    /// When it is woken.
    Rest,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.shared.driver_runs(context.waker());
        // The time is read once a poll: a poll is short compared with all deadlines.
        let now = clock::now();
        let done = this.turns(context, now).and_then(|next| match next {
            Next::Rest => this.poll_rest(context, now),
            Next::Again => {
                context.waker().wake_by_ref();
                Ok(())
            }
        });
        match done {
            Ok(()) => Poll::Pending,
            Err(error) => {
                this.end(&error);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let error = self.error(LinkCause::DriverGone);
        self.end(&error);
    }
}
