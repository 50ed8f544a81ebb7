//! The driver of one peer: a task that moves bytes between the transport and
//! the link's machine until the session ends.

use super::buffers::{Buffers, ReadBuffers};
use super::clock::{self, Alarm};
use super::events::{Acceptor, Others};
use super::inbox::Outcome;
use super::mail::{Command, LinkShared, Taken, thread_token};
use super::reading::{Inbound, ReadError, Reader, RxSlot};
use super::staging::Failure;
use super::taking::{RxEnd, land_rest};
use super::writing::{TxSlot, TxSlots, Writer};
use crate::error::{Account, LinkCause, LinkError, Unacknowledged};
use crate::proto::Time;
use crate::proto::attempts::{Attempts, Offer};
use crate::proto::flush::Yield;
use crate::proto::ids::IdMap;
use crate::proto::link::{Event, Link, LinkConfig, Transmit};
use crate::proto::liveness::Alive;
use crate::stats::PeerStats;
use crate::transport::Transport;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Turns of reading and writing before the driver lets other tasks run.
const TURNS_MAX: usize = 8;

/// After the runtime moved to another thread the rings are looked at once more:
/// a producer on the old thread may have taken itself for the driver's.
const MOVED_RECHECK: Duration = Duration::from_millis(1);

/// What a driver needs of its node.
pub(crate) struct DriverSetup {
    pub(crate) shared: Arc<LinkShared>,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) config: LinkConfig,
    pub(crate) after_loss: AfterLoss,
    pub(crate) acceptor: Arc<dyn Acceptor>,
    pub(crate) buffers: Arc<Buffers>,
    /// The runtime has one thread: producers on it need no fence.
    pub(crate) one_thread: bool,
}

/// What is done about a lost connection.
pub(crate) enum AfterLoss {
    /// The session ends with it.
    End,
    /// The peer dials again.
    Wait,
    /// It is dialled again.
    Dial(Arc<dyn Redial>),
}

/// Who dials a peer again.
pub(crate) trait Redial: Send + Sync {
    /// Connection `attempt` was lost: sees to the next one, until the session
    /// ends.
    fn redial(&self, link: &Arc<LinkShared>, attempt: u32);
}

/// What stands in the way.
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
    /// Everything staged is to be acknowledged.
    Draining,
    /// The last packet is on its way.
    Bye,
    /// The transport is told that nothing follows.
    Shutdown,
}

/// The driver as a future that ends with the session.
pub(crate) struct Driver {
    pub(super) shared: Arc<LinkShared>,
    /// `None` between two connections.
    pub(super) transport: Option<Box<dyn Transport>>,
    after_loss: AfterLoss,
    pub(super) attempts: Attempts,
    dead_ms: u64,
    acceptor: Arc<dyn Acceptor>,
    pub(super) link: Link,
    pub(super) senders: TxSlots,
    pub(super) receivers: IdMap<RxSlot>,
    reader: Reader,
    pub(super) writer: Writer,
    alarm: Alarm,
    taken: Taken,
    pub(super) closing: Closing,
    one_thread: bool,
    recheck: Option<Time>,
    /// What the peer ended the session with.
    last_word: Option<LinkCause>,
    over: bool,
    #[cfg(feature = "metrics")]
    /// When to publish next, and how many packets had passed last time.
    pub(super) metrics: (Time, u64),
}

impl Driver {
    pub(crate) fn new(setup: DriverSetup) -> Driver {
        let lent_bytes_max = usize::try_from(setup.config.windows_bytes_max / 4).unwrap_or(0);
        let read_buffers = ReadBuffers::new(setup.buffers, lent_bytes_max);
        let packet_bytes_max = setup.shared.peer.packet_bytes_max;
        Driver {
            link: Link::new(&setup.config),
            reader: Reader::new(packet_bytes_max, read_buffers),
            shared: setup.shared,
            transport: Some(setup.transport),
            after_loss: setup.after_loss,
            attempts: Attempts::default(),
            dead_ms: u64::try_from(setup.config.silence.dead.as_millis()).unwrap_or(u64::MAX),
            acceptor: setup.acceptor,
            senders: TxSlots::default(),
            receivers: IdMap::default(),
            writer: Writer::default(),
            alarm: Alarm::default(),
            taken: Taken::default(),
            closing: Closing::No,
            one_thread: setup.one_thread,
            recheck: None,
            last_word: None,
            over: false,
            #[cfg(feature = "metrics")]
            metrics: (Time(0), 0),
        }
    }

    /// This end dials when the connection is lost.
    pub(super) fn dials(&self) -> bool {
        matches!(self.after_loss, AfterLoss::Dial(_))
    }

    fn error(&self, cause: LinkCause) -> LinkError {
        LinkError::new(self.shared.peer.name.clone(), cause)
    }

    fn note_thread(&mut self, now: Time) {
        if self.one_thread && self.shared.set_home(thread_token()) {
            self.recheck = Some(now.after(MOVED_RECHECK));
        }
        if self.recheck.is_some_and(|at| now >= at) {
            self.recheck = None;
            for (id, slot) in &mut self.senders.slots {
                if !slot.ring.is_empty() {
                    self.link.staged(*id, now);
                }
            }
        }
    }

    /// Takes what the ends of channels want.
    fn handle_mail(&mut self, now: Time) -> Result<(), LinkError> {
        if !self.shared.take_mail(&mut self.taken) {
            return Ok(());
        }
        let mut taken = std::mem::take(&mut self.taken);
        let mut commands = taken.commands.drain(..);
        let failed = commands.try_for_each(|command| self.command(command, now));
        if let Err(error) = failed {
            // Whoever sent the rest is told why the session ended.
            self.taken.commands.extend(commands);
            return Err(error);
        }
        drop(commands);
        for notice in taken.staged.drain(..) {
            self.link.woken_for(notice.id, notice.at, notice.bytes);
        }
        self.taken = taken;
        Ok(())
    }

    fn command(&mut self, command: Command, now: Time) -> Result<(), LinkError> {
        match command {
            Command::Open { id, spec, tx, ring } => {
                let given = self.link.open(spec, now);
                assert_eq!(given, id, "channels are numbered where they are posted");
                self.senders.slots.insert(id, TxSlot { shared: tx, ring, discard: false });
            }
            Command::Urgent { id, until, at } => self.link.urgent(id, until, at),
            Command::NoRoom { id, until, at } => self.link.no_room(id, until, at),
            Command::Flush { id, until, at, sync } => self.link.flush(id, until, at, sync),
            Command::End { id, messages, at } => self.link.end(id, messages, at),
            Command::Consumed { id, bytes } => {
                self.link.consumed(id, bytes);
                if let Some(slot) = self.receivers.get(&id) {
                    slot.shared.set_report_step(self.link.report_step(id));
                }
            }
            Command::LargeDemanded { id } => self.link.demand_large(id),
            Command::LargeTaken { id } => self.link.large_taken(id),
            Command::Finished { id } => {
                self.receivers.remove(&id);
                self.link.finished(id);
            }
            Command::Terminate { id } => {
                self.receivers.remove(&id);
                self.link.terminate(id);
            }
            Command::Refuse { id, refusal, text } => {
                self.receivers.remove(&id);
                self.link.refuse(id, refusal, &text);
            }
            Command::Land { id, landing, taken } => self.land(id, landing, &taken),
            Command::Corrupt { id } => {
                return Err(self.error(LinkCause::CorruptRun { channel: id }));
            }
            Command::Close => self.close(now),
            Command::Abort(error) => return Err(error),
            Command::Explain { answer } => {
                let _ = answer.send(Box::new(self.report(now)));
            }
            Command::Offer { attempt, answer } => {
                let offer = self.offer(attempt, now);
                let _ = answer.send((offer, self.link.received()));
            }
            Command::Adopt { attempt, received, transport } => {
                self.adopt(attempt, received, transport, now)?;
            }
        }
        Ok(())
    }

    fn land(&mut self, id: u32, landing: Box<dyn crate::channel::Landing>, taken: &[bytes::Bytes]) {
        let Some(slot) = self.receivers.get_mut(&id) else { return };
        slot.landing = Some(landing);
        // A large message may have waited for a receiver that waits.
        self.link.demand_large(id);
        let mut fits = taken.iter().all(|bytes| slot.put_taken(bytes));
        let mut rest = RxEnd::new(Arc::clone(&slot.shared), Arc::clone(&self.shared));
        while let Some(fit) = rest.take_with(|bytes| slot.put_taken(bytes)) {
            fits &= fit;
        }
        let outcome = slot.shared.with_queue(|queue| queue.outcome());
        rest.disarm();
        if !fits {
            slot.landing_full();
            self.receivers.remove(&id);
            self.link.terminate(id);
        } else if let Some(outcome) = outcome {
            slot.end(outcome);
            self.receivers.remove(&id);
            self.link.finished(id);
        }
    }

    fn close(&mut self, now: Time) {
        if !matches!(self.closing, Closing::No) {
            return;
        }
        self.closing = Closing::Draining;
        let error = self.error(LinkCause::Closed);
        for (id, slot) in &mut self.senders.slots {
            slot.shared.refuse_more(Failure::Lost(error.clone()));
            self.link.end_when_drained(*id, now);
        }
        self.link.close();
    }

    /// Reads once.
    fn poll_read(&mut self, context: &mut Context<'_>, now: Time) -> Poll<Result<(), Broken>> {
        let Some(transport) = &mut self.transport else { return Poll::Pending };
        let acceptor = &self.acceptor;
        let shared = &self.shared;
        let senders = &mut self.senders;
        let last_word = &mut self.last_word;
        let mut others = |link: &mut Link, receivers: &mut IdMap<RxSlot>, event: Event<'_>| {
            Others { acceptor, shared, senders, link, receivers, last_word }.handle(event);
        };
        let mut inbound = Inbound {
            link: &mut self.link,
            receivers: &mut self.receivers,
            shared,
            others: &mut others,
            now,
        };
        let outcome = ready!(self.reader.poll_read(context, &mut **transport, &mut inbound));
        self.link.heard(now);
        self.note_acknowledged();
        Poll::Ready(match outcome {
            Ok(()) => self.last_word.clone().map_or(Ok(()), |word| Err(self.error(word).into())),
            Err(ReadError::End) => Err(Broken::Connection(LinkCause::ConnectionLost)),
            Err(ReadError::Io(error)) => Err(Broken::Connection(LinkCause::Io(Arc::new(error)))),
            Err(ReadError::Protocol(error)) => Err(self.error(LinkCause::Protocol(error)).into()),
        })
    }

    /// Nothing can be written any more: what the peer said last may tell more
    /// than `broken`.
    fn read_last(&mut self, context: &mut Context<'_>, now: Time, broken: Broken) -> Broken {
        loop {
            match self.poll_read(context, now) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Broken::Session(error))) => return Broken::Session(error),
                _ => return broken,
            }
        }
    }

    /// The connection is of no use any more: the session waits for another one,
    /// or ends.
    fn disconnect(&mut self, now: Time, cause: LinkCause) -> Result<(), LinkError> {
        // After our bye, when everything is acknowledged, the peer may hang up
        // first.
        if matches!(self.closing, Closing::Bye | Closing::Shutdown) {
            return Err(self.error(LinkCause::Closed));
        }
        if matches!(self.after_loss, AfterLoss::End) {
            return Err(self.error(cause));
        }
        let trouble = trouble_of(&cause);
        tracing::info!(peer = %self.shared.peer.name, attempt = self.attempts.last(), %trouble,
            "the connection was lost");
        self.shared.set_trouble(trouble);
        self.cut(now);
        if let AfterLoss::Dial(dialler) = &self.after_loss {
            dialler.redial(&self.shared, self.attempts.last());
        }
        Ok(())
    }

    /// What was under way on the connection is as if it had not left.
    fn cut(&mut self, now: Time) {
        self.transport = None;
        self.attempts.lost();
        self.writer.cut(&mut self.link);
        self.reader.cut(self.link.received());
        self.link.cut(now);
    }

    fn offer(&mut self, attempt: u32, now: Time) -> Offer {
        let closes = matches!(self.closing, Closing::Bye | Closing::Shutdown);
        let over = closes || matches!(self.after_loss, AfterLoss::End);
        let offer = self.attempts.offer(attempt, over);
        if offer == Offer::Taken && self.transport.is_some() {
            self.cut(now);
        }
        offer
    }

    fn adopt(
        &mut self,
        attempt: u32,
        received: u64,
        transport: Box<dyn Transport>,
        now: Time,
    ) -> Result<(), LinkError> {
        if !self.attempts.adopt(attempt) {
            return Ok(());
        }
        let resumed = self.link.resume(received, now);
        resumed.map_err(|error| self.error(LinkCause::Protocol(error)))?;
        self.transport = Some(transport);
        self.note_acknowledged();
        tracing::info!(peer = %self.shared.peer.name, attempt, received, "the session goes on");
        Ok(())
    }

    /// Writes what is to leave, one packet at most.
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
                Transmit::Nothing => return self.poll_close(context),
            }
        }
        let Some(transport) = &mut self.transport else { return Ok(Turn::Rest) };
        match self.writer.poll_write(context, &mut **transport) {
            Poll::Pending => Ok(Turn::Blocked),
            Poll::Ready(Err(error)) => Err(Broken::Connection(LinkCause::Io(Arc::new(error)))),
            Poll::Ready(Ok(())) => {
                self.link.written(self.writer.number, &mut self.writer.packet);
                self.senders.written(&self.writer.carried, &self.link);
                if self.link.has_acknowledged() {
                    self.note_acknowledged();
                }
                Ok(Turn::Progress)
            }
        }
    }

    fn note_acknowledged(&mut self) {
        for carried in self.link.poll_acknowledged() {
            self.senders.acknowledged(carried);
        }
    }

    fn next_packet(&mut self, now: Time) -> Transmit {
        let packet = &mut self.writer.packet;
        let transmit = self.link.poll_transmit(&mut self.senders, now, packet);
        while let Some(channel) = self.senders.restaged.pop() {
            self.link.staged(channel, now);
        }
        transmit
    }

    /// Nothing is to be sent: the next step of closing, if the node closes.
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

    /// Turns until there is nothing to do; `Ok(true)` wants to be asked again.
    fn turns(&mut self, context: &mut Context<'_>, now: Time) -> Result<bool, LinkError> {
        self.note_thread(now);
        for _ in 0..TURNS_MAX {
            self.handle_mail(now)?;
            if self.transport.is_none() {
                return Ok(false);
            }
            match self.turn(context, now) {
                Ok(Turn::Progress) => {}
                Ok(turn) => return Ok(matches!(turn, Turn::Yield)),
                Err(Broken::Session(error)) => return Err(error),
                Err(Broken::Connection(cause)) => self.disconnect(now, cause)?,
            }
        }
        Ok(true)
    }

    /// Writes once and reads once.
    fn turn(&mut self, context: &mut Context<'_>, now: Time) -> Result<Turn, Broken> {
        let wrote = match self.poll_write(context, now) {
            Ok(wrote) => wrote,
            Err(broken) => return Err(self.read_last(context, now, broken)),
        };
        match self.poll_read(context, now) {
            // Receivers run before more is read: what they answer leaves then.
            Poll::Ready(read) => read.map(|()| Turn::Yield),
            Poll::Pending => Ok(wrote),
        }
    }

    /// There is nothing to do: rests until woken.
    fn poll_rest(&mut self, context: &mut Context<'_>, now: Time) -> Result<(), LinkError> {
        self.rest();
        #[cfg(feature = "metrics")]
        let metrics = self.publish_metrics(now);
        #[cfg(not(feature = "metrics"))]
        let metrics = None;
        let (alive, at) = self.link.poll_alive(now);
        if alive != Alive::Fine {
            tracing::debug!(peer = %self.shared.peer.name, ?alive, "the peer is silent");
        }
        match alive {
            Alive::Dead => return Err(self.dead()),
            Alive::Suspect if self.dials() => {
                let silent = std::io::Error::from(std::io::ErrorKind::TimedOut);
                self.disconnect(now, LinkCause::Io(Arc::new(silent)))?;
            }
            _ => {}
        }
        // What the link has to say waits for the packet that is being written, or
        // for a connection.
        let can_write = self.transport.is_some() && !self.writer.is_busy();
        let link = if can_write { self.link.next_deadline() } else { None };
        let rest = self.transport.as_ref().and_then(|_| self.reader.rest_deadline());
        let deadlines = [link, self.recheck, rest, Some(at), metrics];
        let deadline = deadlines.into_iter().flatten().min();
        let probes = alive == Alive::Probe && can_write;
        if probes || self.alarm.poll(context, deadline, now).is_ready() {
            context.waker().wake_by_ref();
        }
        Ok(())
    }

    fn dead(&self) -> LinkError {
        let (silence_ms, trouble) = (self.dead_ms, self.shared.trouble());
        self.error(LinkCause::Dead { silence_ms, trouble })
    }

    /// Everything was done that could be: publishes and gives back.
    fn rest(&mut self) {
        let (counters, writer) = (self.link.counters(), &self.writer);
        let duplicates = self.reader.duplicates();
        let stats =
            PeerStats::from_counters(&counters, writer.writes, self.reader.reads, duplicates);
        self.shared.publish_stats(stats);
        if self.reader.is_at_rest() {
            self.link.rest();
        }
    }

    /// The channels with messages that are not known to have arrived.
    fn unacknowledged(&mut self) -> Vec<Unacknowledged> {
        let mut channels = Vec::new();
        for (id, slot) in &mut self.senders.slots {
            let staged = slot.ring.messages();
            let accepted = self.link.sent_messages(*id) + u64::from(staged);
            let acknowledged = slot.shared.acked();
            if accepted > acknowledged && !slot.discard {
                channels.push(Unacknowledged {
                    channel: slot.shared.name.clone(),
                    peer: self.shared.peer.name.clone(),
                    account: Account { accepted, acknowledged },
                    cause: None,
                });
            }
        }
        channels
    }

    /// Tells the peer that the session was given up, if that can be done at once.
    fn say_gone(&mut self) {
        let Some(transport) = &mut self.transport else { return };
        if self.last_word.is_none() && !self.writer.is_within_packet() {
            let packet = self.link.farewell();
            let mut context = Context::from_waker(std::task::Waker::noop());
            let _ = transport.poll_write(&mut context, &[std::io::IoSlice::new(&packet)]);
        }
    }

    /// The session is over: everybody on it learns why.
    fn end(&mut self, error: &LinkError) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.rest();
        #[cfg(feature = "metrics")]
        self.publish_last_metrics();
        if !error.is_closed() || matches!(self.closing, Closing::No | Closing::Draining) {
            self.say_gone();
        }
        let unacknowledged = self.unacknowledged();
        log_end(&self.shared.peer.name, error, &unacknowledged);
        self.shared.set_unacknowledged(unacknowledged);
        let left = self.shared.end(error);
        for slot in self.senders.slots.values() {
            slot.shared.fail(Failure::Lost(error.clone()));
        }
        for slot in self.receivers.values_mut() {
            slot.end(Outcome::Lost(error.clone()));
        }
        for command in std::mem::take(&mut self.taken.commands).into_iter().chain(left.commands) {
            match command {
                Command::Open { tx, .. } => tx.fail(Failure::Lost(error.clone())),
                Command::Land { id, landing, taken } => {
                    if let Some(slot) = self.receivers.get(&id) {
                        land_rest(&slot.shared, landing, &taken, None);
                    }
                }
                _ => {}
            }
        }
        self.acceptor.ended(&self.shared);
    }
}

/// What a turn came to.
enum Turn {
    Progress,
    /// Others should run before the driver goes on, so that a packet may grow.
    Yield,
    /// The transport takes nothing just now.
    Blocked,
    /// Nothing to do.
    Rest,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.shared.set_waker(context.waker());
        // Asked once a poll: that is short against all deadlines.
        let now = clock::now();
        match this.turns(context, now) {
            Err(error) => {
                this.end(&error);
                return Poll::Ready(());
            }
            Ok(true) => {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Ok(false) => {}
        }
        if let Err(error) = this.poll_rest(context, now) {
            this.end(&error);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

fn log_end(peer: &str, error: &LinkError, unacknowledged: &[Unacknowledged]) {
    if unacknowledged.is_empty() {
        return tracing::debug!(peer, cause = %error, "the session ended");
    }
    for channel in unacknowledged {
        let (name, account) = (&channel.channel, &channel.account);
        tracing::warn!(peer, channel = %name, %account, cause = %error,
            "the session ended with messages that are not acknowledged");
    }
}

fn trouble_of(cause: &LinkCause) -> String {
    match cause {
        LinkCause::Io(error) => error.to_string(),
        _ => "the connection ended".to_owned(),
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let error = self.error(LinkCause::DriverGone);
        self.end(&error);
    }
}
