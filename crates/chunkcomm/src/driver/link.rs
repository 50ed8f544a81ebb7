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

/// A link at rest keeps a packet buffer of at most this size.
const KEPT_HEAD_BYTES: usize = 256;

/// After the runtime moved to another thread the rings are looked at once more:
/// a producer on the old thread may have taken itself for the driver's.
const MOVED_RECHECK: Duration = Duration::from_millis(1);

/// What a driver needs of its node.
pub(crate) struct DriverSetup {
    pub(crate) shared: Arc<LinkShared>,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) config: LinkConfig,
    pub(crate) acceptor: Arc<dyn Acceptor>,
    pub(crate) buffers: Arc<Buffers>,
    /// The runtime has one thread: producers on it need no fence.
    pub(crate) one_thread: bool,
}

enum Closing {
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
    shared: Arc<LinkShared>,
    transport: Box<dyn Transport>,
    acceptor: Arc<dyn Acceptor>,
    buffers: Arc<Buffers>,
    link: Link,
    senders: TxSlots,
    receivers: IdMap<RxSlot>,
    reader: Reader,
    writer: Writer,
    alarm: Alarm,
    taken: Taken,
    closing: Closing,
    one_thread: bool,
    recheck: Option<Time>,
    said_bye: bool,
    over: bool,
}

impl Driver {
    pub(crate) fn new(setup: DriverSetup) -> Driver {
        let lent_bytes_max = usize::try_from(setup.config.windows_bytes_max / 4).unwrap_or(0);
        let read_buffers = ReadBuffers::new(Arc::clone(&setup.buffers), lent_bytes_max);
        let packet_bytes_max = setup.shared.peer.packet_bytes_max;
        Driver {
            link: Link::new(&setup.config),
            reader: Reader::new(packet_bytes_max, read_buffers),
            shared: setup.shared,
            transport: setup.transport,
            acceptor: setup.acceptor,
            buffers: setup.buffers,
            senders: TxSlots::default(),
            receivers: IdMap::default(),
            writer: Writer::default(),
            alarm: Alarm::default(),
            taken: Taken::default(),
            closing: Closing::No,
            one_thread: setup.one_thread,
            recheck: None,
            said_bye: false,
            over: false,
        }
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

    /// Reads once; true when something came.
    fn poll_read(&mut self, context: &mut Context<'_>, now: Time) -> Poll<Result<(), LinkError>> {
        let acceptor = &self.acceptor;
        let shared = &self.shared;
        let senders = &mut self.senders;
        let said_bye = &mut self.said_bye;
        let mut others = |link: &mut Link, receivers: &mut IdMap<RxSlot>, event: Event<'_>| {
            Others { acceptor, shared, senders, link, receivers, said_bye }.handle(event);
        };
        let mut inbound = Inbound {
            link: &mut self.link,
            receivers: &mut self.receivers,
            shared,
            others: &mut others,
            now,
        };
        let outcome = ready!(self.reader.poll_read(context, &mut *self.transport, &mut inbound));
        self.note_acknowledged();
        Poll::Ready(match outcome {
            Ok(()) if self.said_bye => Err(self.error(LinkCause::ClosedByPeer)),
            Ok(()) => Ok(()),
            Err(ReadError::End) => Err(self.lost(LinkCause::ConnectionLost)),
            Err(ReadError::Io(error)) => Err(self.lost(LinkCause::Io(Arc::new(error)))),
            Err(ReadError::Protocol(error)) => Err(self.error(LinkCause::Protocol(error))),
        })
    }

    /// Nothing can be written any more: what the peer said last may tell more
    /// than `error`.
    fn read_last(&mut self, context: &mut Context<'_>, now: Time, error: LinkError) -> LinkError {
        loop {
            match self.poll_read(context, now) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(last)) if last.is_closed() => return last,
                _ => return error,
            }
        }
    }

    /// The connection ended. After our bye, when everything is acknowledged, the
    /// peer may hang up first.
    fn lost(&self, cause: LinkCause) -> LinkError {
        let said = matches!(self.closing, Closing::Bye | Closing::Shutdown);
        self.error(if said { LinkCause::Closed } else { cause })
    }

    /// Writes what is to leave, one packet at most.
    fn poll_write(&mut self, context: &mut Context<'_>, now: Time) -> Result<Turn, LinkError> {
        if !self.writer.is_busy() {
            match self.next_packet(now) {
                Transmit::Packet { tail } => {
                    self.writer.tail = tail;
                    self.writer.carried.clear();
                    self.writer.carried.extend_from_slice(self.link.carried());
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
        match self.writer.poll_write(context, &mut *self.transport) {
            Poll::Pending => Ok(Turn::Blocked),
            Poll::Ready(Err(error)) => Err(self.lost(LinkCause::Io(Arc::new(error)))),
            Poll::Ready(Ok(())) => {
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
        if self.writer.head.capacity() == 0 {
            self.writer.head = self.buffers.packet();
        }
        let transmit = self.link.poll_transmit(&mut self.senders, now, &mut self.writer.head);
        while let Some(channel) = self.senders.restaged.pop() {
            self.link.staged(channel, now);
        }
        transmit
    }

    /// Nothing is to be sent: the next step of closing, if the node closes.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Result<Turn, LinkError> {
        match self.closing {
            Closing::Draining if self.link.is_quiet() => {
                self.closing = Closing::Bye;
                self.link.bye();
                return Ok(Turn::Progress);
            }
            Closing::Bye => self.closing = Closing::Shutdown,
            _ => {}
        }
        if matches!(self.closing, Closing::Shutdown) {
            let done = self.transport.poll_shutdown(context);
            if done.is_ready() {
                return Err(self.error(LinkCause::Closed));
            }
        }
        Ok(Turn::Rest)
    }

    /// Turns until there is nothing to do; `Ok(true)` wants to be asked again.
    fn turns(&mut self, context: &mut Context<'_>, now: Time) -> Result<bool, LinkError> {
        self.note_thread(now);
        for _ in 0..TURNS_MAX {
            self.handle_mail(now)?;
            let wrote = match self.poll_write(context, now) {
                Ok(wrote) => wrote,
                Err(error) => return Err(self.read_last(context, now, error)),
            };
            let read = match self.poll_read(context, now) {
                Poll::Ready(read) => read.map(|()| true)?,
                Poll::Pending => false,
            };
            if read || matches!(wrote, Turn::Yield) {
                // Receivers run before more is read: what they answer leaves then.
                return Ok(true);
            }
            if !matches!(wrote, Turn::Progress) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// There is nothing to do: rests until woken.
    fn poll_rest(&mut self, context: &mut Context<'_>, now: Time) {
        self.rest();
        // What the link has to say waits for the packet that is being written.
        let link = if self.writer.is_busy() { None } else { self.link.next_deadline() };
        let deadlines = [link, self.recheck, self.reader.rest_deadline()];
        let deadline = deadlines.into_iter().flatten().min();
        if self.alarm.poll(context, deadline, now).is_ready() {
            context.waker().wake_by_ref();
        }
    }

    /// Everything was done that could be: publishes and gives back.
    fn rest(&mut self) {
        self.shared.publish_stats(&self.link.counters(), self.writer.writes, self.reader.reads);
        if !self.writer.is_busy() && self.writer.head.capacity() > KEPT_HEAD_BYTES {
            self.buffers.give_packet(std::mem::take(&mut self.writer.head));
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

    /// The session is over: everybody on it learns why.
    fn end(&mut self, error: &LinkError) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.rest();
        let unacknowledged = self.unacknowledged();
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
        this.poll_rest(context, now);
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let error = self.error(LinkCause::DriverGone);
        self.end(&error);
    }
}
