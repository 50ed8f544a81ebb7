//! The driver of one peer: a task that moves bytes between the transport and the link's machine
//! until the session ends.

use super::buffers::{Buffers, ReadBuffers};
use super::channels::Channels;
use super::clock::{self, Alarm};
use super::connection::{Dial, Redial};
use super::cycles::SharedBoard;
use super::events::Acceptor;
use super::mail::{LinkShared, PeerInfo, Taken, thread_token};
use super::one_copy::OneCopy;
use super::reading::{Ask, Inbound, ReadError, Reader};
use super::waking::TransportWaker;
use super::writing::poll_write;
use crate::error::{LinkCause, LinkError};
use crate::proto::Time;
use crate::proto::endpoint::{AfterLoss, Endpoint, Output, SessionEnd, SessionId};
use crate::proto::link::LinkConfig;
use crate::proto::tuning::flush::Yield;
use crate::proto::tuning::watching::Watch;
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
    /// For a session whose connection is dialled again from here.
    pub(crate) redial: Option<Arc<dyn Redial>>,
    pub(crate) acceptor: Arc<dyn Acceptor>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) board: SharedBoard,
    /// Whether the runtime has one thread: producers on it need no fence.
    pub(crate) one_thread: bool,
    /// Whether both ends allow that large messages are read from the sender's memory.
    pub(crate) one_copy: bool,
}

/// The driver as a future that ends with the session.
pub(crate) struct Driver {
    pub(super) endpoint: Endpoint,
    pub(super) channels: Channels,
    /// `None` between two connections.
    pub(super) transport: Option<Box<dyn Transport>>,
    /// `None` before the first poll, and within a poll.
    transport_waker: Option<TransportWaker>,
    /// The cause why nothing can be written to the connection.
    pub(super) write_error: Option<LinkCause>,
    /// For a session whose connection is dialled again from here.
    pub(super) redial: Option<Arc<dyn Redial>>,
    /// The dial under way.
    pub(super) dial: Option<Dial>,
    pub(super) reader: Reader,
    pub(super) one_copy: OneCopy,
    pub(super) watch: Watch,
    pub(super) alarm: Alarm,
    pub(super) taken: Taken,
    pub(super) one_thread: bool,
    pub(super) recheck: Option<Time>,
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
        let PeerInfo { name, session, incarnation, packet_bytes_max, .. } = &setup.shared.peer;
        let id = SessionId { number: *session, peer: *incarnation };
        let mut endpoint = Endpoint::new(&setup.config, id, setup.after_loss);
        let mut one_copy = OneCopy::new(setup.one_copy);
        one_copy.begin(&*setup.transport, &mut endpoint.link);
        setup.shared.set_ring_bytes(endpoint.link.ring_bytes());
        let span = tracing::debug_span!(parent: None, "session", peer = %name, number = session);
        Driver {
            span,
            endpoint,
            reader: Reader::new(*packet_bytes_max, read_buffers),
            one_copy,
            channels: Channels::new(setup.shared, setup.acceptor, setup.board),
            transport: Some(setup.transport),
            transport_waker: None,
            write_error: None,
            redial: setup.redial,
            dial: None,
            watch: Watch::new(setup.config.without),
            alarm: Alarm::default(),
            taken: Taken::default(),
            one_thread: setup.one_thread,
            recheck: None,
            over: false,
            #[cfg(feature = "metrics")]
            metrics: (Time(0), 0),
        }
    }

    pub(super) fn error(&self, cause: LinkCause) -> LinkError {
        LinkError::new(self.channels.shared.peer.name.clone(), cause)
    }

    /// Returns the error of a session that ends so.
    #[cold]
    pub(super) fn error_of(&self, end: SessionEnd) -> LinkError {
        self.error(match end {
            SessionEnd::Closed | SessionEnd::GivenUp => LinkCause::Closed,
            SessionEnd::ClosedByPeer => LinkCause::ClosedByPeer,
            SessionEnd::Forgotten => LinkCause::Forgotten,
            SessionEnd::Restarted => LinkCause::Restarted,
            SessionEnd::Lost => LinkCause::ConnectionLost,
            SessionEnd::Protocol(error) => LinkCause::Protocol(error),
            SessionEnd::Dead => {
                let dead = self.endpoint.link.silence().dead;
                let silence_ms = u64::try_from(dead.as_millis()).unwrap_or(u64::MAX);
                LinkCause::Dead { silence_ms, trouble: self.channels.shared.trouble() }
            }
        })
    }

    #[inline]
    fn note_thread(&mut self, now: Time) {
        if self.one_thread && self.channels.shared.set_home(thread_token()) {
            self.recheck = Some(now.after(MOVED_RECHECK));
        }
        if self.recheck.is_some_and(|at| now >= at) {
            self.recheck = None;
            self.channels.recheck(&mut self.endpoint.link, now);
        }
    }

    #[inline]
    fn whom_to_ask(&self) -> Ask {
        let seldom = self.reader.written_unread < UNREAD_BYTES_MAX && !self.watch.is_on();
        if seldom { Ask::Runtime } else { Ask::System }
    }

    /// Reads once, from the transport to the inboxes.
    #[inline]
    fn poll_read(&mut self, context: &mut Context<'_>, now: Time) -> Poll<Result<(), LinkError>> {
        let ask = self.whom_to_ask();
        let Some(transport) = &mut self.transport else { return Poll::Pending };
        let (endpoint, channels) = (&mut self.endpoint, &mut self.channels);
        let mut inbound = Inbound { endpoint, channels, one_copy: &mut self.one_copy, now };
        let outcome = self.reader.poll_read(context, &mut **transport, &mut inbound, ask);
        if ask == Ask::System || outcome.is_ready() {
            self.reader.written_unread = 0;
        }
        let outcome = ready!(outcome);
        self.watch.heard(self.reader.gathered());
        #[cfg(feature = "simulation")]
        clock::moves();
        let heard = self.endpoint.heard(now);
        self.channels.note_acknowledged(&mut self.endpoint.link);
        self.one_copy.report(&mut self.channels.senders, &self.endpoint.link);
        match (outcome, heard) {
            (Ok(()), Ok(())) => Poll::Ready(Ok(())),
            (outcome, heard) => Poll::Ready(self.read_ended(outcome, heard, now)),
        }
    }

    /// Handles the end of reading: the connection's, or the session's.
    #[cold]
    #[inline(never)]
    fn read_ended(
        &mut self,
        outcome: Result<(), ReadError>,
        heard: Result<(), SessionEnd>,
        now: Time,
    ) -> Result<(), LinkError> {
        match outcome {
            Ok(()) => heard.map_err(|end| self.error_of(end)),
            Err(ReadError::End) => self.connection_lost(now, LinkCause::ConnectionLost),
            Err(ReadError::Io(error)) => self.connection_lost(now, LinkCause::Io(Arc::new(error))),
            Err(ReadError::Protocol(error)) => Err(self.error(LinkCause::Protocol(error))),
        }
    }

    /// Writes packets that are to leave, one at most.
    fn poll_write(&mut self, context: &mut Context<'_>, now: Time) -> Result<Turn, LinkError> {
        let Some(transport) = &mut self.transport else { return Ok(Turn::Rest) };
        match self.endpoint.poll_output(&mut self.channels.senders, now) {
            Output::Write => {}
            Output::Yield(whom) => {
                if whom == Yield::Core && !self.one_thread {
                    std::thread::yield_now();
                }
                return Ok(Turn::Yield);
            }
            Output::Nothing => return Ok(Turn::Rest),
            Output::Shutdown => {
                if transport.poll_shutdown(context).is_ready() {
                    self.endpoint.stop_writing(now);
                }
                return Ok(Turn::Rest);
            }
        }
        let (bytes, leaving) = (self.endpoint.packet_bytes(), self.endpoint.leaving_bytes());
        let timed = self.endpoint.link.times_write(bytes).then(clock::now);
        let wrote = poll_write(context, &mut **transport, &mut self.endpoint);
        if let Some(started) = timed {
            self.endpoint.link.wrote(clock::now().0.saturating_sub(started.0));
        }
        match wrote {
            Poll::Pending => return Ok(Turn::Blocked),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                self.write_error.get_or_insert(LinkCause::Io(Arc::new(error)));
                self.endpoint.stop_writing(now);
                return Ok(Turn::Rest);
            }
        }
        self.reader.written_unread += leaving;
        let carried = self.endpoint.carried();
        match self.endpoint.left_in_memory() {
            0 => self.channels.senders.written(carried, &self.endpoint.link),
            left => self.one_copy.hold(left, carried),
        }
        if !carried.is_empty() {
            self.watch.told();
        }
        self.channels.shared.set_ring_bytes(self.endpoint.link.ring_bytes());
        if self.endpoint.link.has_acknowledged() {
            self.channels.note_acknowledged(&mut self.endpoint.link);
        }
        Ok(Turn::Progress)
    }

    /// Takes turns until there is nothing to do, or other tasks should run.
    fn turns(&mut self, waker: &TransportWaker, now: Time) -> Result<Next, LinkError> {
        let context = &mut Context::from_waker(waker.waker());
        self.note_thread(now);
        let is_connected = self.transport.is_some();
        self.channels.look_if_due(&mut self.endpoint.link, is_connected, now);
        self.reader.waits &= !waker.take_woken();
        for _ in 0..TURNS_MAX {
            self.handle_mail(now)?;
            self.channels.look_at_opens(&self.endpoint.link);
            if self.transport.is_none() {
                return Ok(Next::Rest);
            }
            match self.turn(context, now)? {
                Turn::Progress => self.watch.pause(),
                Turn::Yield => return Ok(Next::Again),
                Turn::Blocked => {
                    self.watch.pause();
                    return Ok(Next::Rest);
                }
                Turn::Rest if self.looks_on(now) => return Ok(Next::Again),
                Turn::Rest => return Ok(Next::Rest),
            }
        }
        Ok(Next::Again)
    }

    /// Writes once; reads once too, unless a read already waits. A read that took all is followed by
    /// one that waits.
    fn turn(&mut self, context: &mut Context<'_>, now: Time) -> Result<Turn, LinkError> {
        let wrote = self.poll_write(context, now)?;
        if self.reader.waits && self.whom_to_ask() == Ask::Runtime && !self.reader.fetches() {
            return Ok(wrote);
        }
        let mut has_read = false;
        loop {
            match self.poll_read(context, now) {
                Poll::Ready(read) => read?,
                Poll::Pending => {
                    self.reader.waits = true;
                    break;
                }
            }
            // Receivers run before more is read: their answers then leave.
            // With several threads the next poll also stands in the queue for other workers, behind the
            // receivers: one of them then looks after the sockets while these compute.
            let again = has_read || !self.one_thread || !self.reader.took_all();
            if again || self.whom_to_ask() == Ask::System {
                return Ok(Turn::Yield);
            }
            has_read = true;
        }
        // Their answers may take along whatever else is to be said.
        let yields = has_read && !self.endpoint.has_nothing(now);
        Ok(if yields { Turn::Yield } else { wrote })
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
        this.channels.shared.driver_runs(context.waker());
        // The time is read once a poll: a poll is short compared with all deadlines.
        let now = clock::now();
        let waker = this.transport_waker.take();
        let waker = waker.unwrap_or_else(|| TransportWaker::here(context.waker()));
        let done = this.turns(&waker, now).and_then(|next| match next {
            Next::Rest => this.poll_rest(context, now),
            Next::Again => {
                context.waker().wake_by_ref();
                Ok(())
            }
        });
        this.transport_waker = Some(waker);
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
