//! The receiving half: messages that came, the memory that they take, and the grants to the
//! peer.

use super::{Control, Counted, Event, Link, note_acknowledged};
use crate::Time;
use crate::credit::{REPORT_DIVISOR, Window};
use crate::error::ProtocolError;
use crate::limits::{
    ACK_FRAGMENT_DIVISOR, ANSWERS_MAX, LARGE_BYTES_MIN, SETTLED_GAP_MS, TEXT_BYTES_MAX,
    WINDOW_BYTES_INITIAL,
};
use crate::outbox::Staged;
use crate::packet::{HEADER_BYTES, Header, Item, Refusal, StreamStart};
use crate::plain::cut;

use std::time::Duration;

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) window: Window,
    received_bytes: u64,
    /// Counted from a stream's first message on, whatever channel brought the messages.
    received_messages: u64,
    /// Messages of the stream that the receiver has settled; `None` when the channel carries no
    /// stream or the last report is queued.
    pub(super) settled: Option<u64>,
    /// Whether that number is queued for a report.
    pub(super) settled_queued: bool,
    /// Whether `settled` is to be reported.
    pub(super) settled_unsaid: bool,
    /// Number of looks in a row at which no more was settled.
    pub(super) settled_vain: u32,
    large: Option<LargeIncoming>,
    /// Whether a grant was held at the end of a message until it was taken.
    had_long: bool,
    /// Whether the sender was asked to send no more.
    stopped: bool,
    /// Whether the receiver is gone: messages that still come are discarded.
    terminated: bool,
    ended: bool,
    /// Bytes that the receiver has consumed, as it reported them, of a channel with a backlog.
    pub(super) consumed: Option<u64>,
    /// Whether the channel is among those whose grant is to be sent.
    pub(super) grant_owed: bool,
}

#[derive(Debug, Clone, Copy)]
struct LargeIncoming {
    bytes: u64,
    received: u64,
    /// Bytes of the channel up to the message's end.
    end: u64,
    memory: Memory,
}

/// Memory that a large message goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// The caller's: bytes that landed are consumed.
    Callers,
    /// The channel's window.
    Window,
    /// The channel's window, until its receiver wants the message and its turn has come.
    Waiting,
    /// The channel's window, until the message's turn has come.
    Demanded,
    /// The link's.
    Granted,
}

impl Incoming {
    fn new(window: Window, stream: Option<StreamStart>, backlog: Option<u64>) -> Incoming {
        Incoming {
            window,
            received_bytes: 0,
            received_messages: stream.map_or(0, |stream| stream.first),
            settled: stream.map(|stream| stream.first),
            settled_queued: false,
            settled_unsaid: false,
            settled_vain: 0,
            large: None,
            had_long: false,
            stopped: false,
            terminated: false,
            ended: false,
            consumed: backlog.map(|_| 0),
            grant_owed: false,
        }
    }
}

/// Number of looks in vain, a gap between two reports apart, after which a receiver must tell that
/// it has settled more. At the first one it is asked to tell. It may settle at that moment without
/// having seen that, which the second look sees.
const LOOKS_IN_VAIN: u32 = 2;

impl Link {
    /// Returns the number of channels that the peer may still open.
    #[must_use]
    pub fn opens_left(&self) -> u64 {
        self.budget.opens_left()
    }

    /// Ends the peer's `channel` behind the messages that have left already: its receiver wants no
    /// more.
    pub fn stop(&mut self, channel: u32) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        if !incoming.stopped && !incoming.terminated && !incoming.ended {
            incoming.stopped = true;
            self.control.push_back(Control::Terminate(channel));
        }
    }

    /// Notes that the receiver of the peer's `channel` is gone.
    pub fn terminate(&mut self, channel: u32) {
        self.settled_last(channel);
        self.stop(channel);
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        incoming.terminated = true;
        self.abandon_large(channel);
        self.release_if_done(channel);
    }

    /// Refuses the peer's `channel`; `text` describes our type, if that is the reason.
    pub fn refuse(&mut self, channel: u32, refusal: Refusal, text: &str) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        incoming.terminated = true;
        let text = cut(text, TEXT_BYTES_MAX).to_owned();
        self.control.push_back(Control::Refuse(channel, refusal, text));
        self.abandon_large(channel);
        self.release_if_done(channel);
    }

    /// Answers a refusal of our `channel` with our type.
    pub fn describe(&mut self, channel: u32, text: &str) {
        self.control.push_back(Control::Describe(channel, cut(text, TEXT_BYTES_MAX).to_owned()));
    }

    /// Queues the grant of `channel`. It is in the queue once, however often the grant rises
    /// meanwhile: the packet has the total of its own time.
    pub(super) fn owe_grant(&mut self, channel: u32) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        if !std::mem::replace(&mut incoming.grant_owed, true) {
            self.grants.push_back(channel);
        }
    }

    /// Notes that the receiver of the peer's `channel` took runs of `bytes`.
    pub fn consumed(&mut self, channel: u32, bytes: u64) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        if incoming.window.consume(bytes, &mut self.budget) {
            self.owe_grant(channel);
        }
    }

    /// Notes that the receiver of the peer's `channel` has consumed `bytes` more; for channels with
    /// a backlog, whose sender is told at once. A large message counts one byte more than it has: that
    /// of its mark among the others.
    pub fn consumed_of_backlog(&mut self, channel: u32, bytes: u64) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        if let Some(consumed) = &mut incoming.consumed {
            *consumed += bytes;
            self.owe_grant(channel);
        }
    }

    /// Notes that the receiver of the peer's `channel` has settled the messages below number
    /// `total` of its stream. More may be settled without a call, until [`Staged::settled`] has
    /// asked for one.
    pub fn settle(&mut self, channel: u32, total: u64, now: Time) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        let Some(settled) = incoming.settled.as_mut() else { return };
        if *settled < total {
            *settled = total;
            self.say_settled(channel, now);
        } else if !incoming.settled_queued {
            // It was seen before this word of it came.
            self.look_at_settled(channel, now);
        }
    }

    /// Queues a report to the peer of the settled messages of `channel`.
    pub(super) fn say_settled(&mut self, channel: u32, now: Time) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        if incoming.settled.is_some() {
            incoming.settled_unsaid = true;
            self.look_at_settled(channel, now);
        }
    }

    fn look_at_settled(&mut self, channel: u32, now: Time) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        incoming.settled_vain = 0;
        if !std::mem::replace(&mut incoming.settled_queued, true) {
            self.settles.push_back(channel);
        }
        let due = now.max(self.settles_said.after(Duration::from_millis(SETTLED_GAP_MS)));
        self.settles_due = Some(self.settles_due.map_or(due, |known| known.min(due)));
    }

    /// Looks at what the receiver of the peer's `channel` has settled; returns the total to report,
    /// if any. At a `due` look it also decides whether another one follows.
    pub(super) fn seen_settled(
        &mut self,
        staged: &mut impl Staged,
        channel: u32,
        due: bool,
    ) -> Option<u64> {
        let incoming = self.incoming.get_mut(channel)?;
        incoming.settled_queued = false;
        let known = incoming.settled?;
        let mut seen = staged.settled(channel, false);
        let mut is_news = std::mem::take(&mut incoming.settled_unsaid);
        if due && !is_news && seen.is_some_and(|seen| seen <= known) {
            seen = staged.settled(channel, true);
        }
        let total = seen.map_or(known, |seen| seen.max(known));
        is_news |= total > known;
        incoming.settled = Some(total);
        incoming.settled_vain = if is_news { 0 } else { incoming.settled_vain + u32::from(due) };
        let is_watched = seen.is_some() && incoming.settled_vain < LOOKS_IN_VAIN;
        if is_watched || !is_news && !due {
            incoming.settled_queued = true;
            self.settles.push_back(channel);
        }
        is_news.then_some(total)
    }

    /// Reports the total of a channel for the last time, by a record that cannot get lost.
    /// Other totals are repeated as long as their channel is known.
    fn settled_last(&mut self, channel: u32) {
        if let Some(incoming) = self.incoming.get_mut(channel)
            && let Some(total) = incoming.settled.take()
        {
            self.control.push_back(Control::Settled(channel, total));
        }
    }

    /// Notes that the receiver of the peer's `channel` has taken everything of it, its end
    /// included.
    pub fn finished(&mut self, channel: u32) {
        self.settled_last(channel);
        if let Some(incoming) = self.incoming.get_mut(channel) {
            incoming.terminated = true;
        }
        self.release_if_done(channel);
    }

    /// Chooses the memory for the large message that begins on `channel`: the caller's; else
    /// the channel's window if it can hold the message; else the link's memory for one such
    /// message. Returns true in the last case: the message waits until [`Link::demand_large`]
    /// reports that it is wanted.
    pub fn admit_large(&mut self, channel: u32, callers: bool) -> bool {
        let Some(incoming) = self.incoming.get_mut(channel) else { return false };
        let Some(large) = &mut incoming.large else { return false };
        if callers {
            large.memory = Memory::Callers;
            return false;
        }
        let granted = incoming.window.granted();
        let fits = incoming.window.fits_large(large.bytes, &mut self.budget);
        large.memory = if fits { Memory::Window } else { Memory::Waiting };
        if incoming.window.granted() > granted {
            self.owe_grant(channel);
        }
        !fits
    }

    /// Notes that the receiver of `channel` waits for its large message: the message gets the
    /// link's memory when its turn comes. A message that nobody waits for would keep that
    /// memory from all others.
    pub fn demand_large(&mut self, channel: u32) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        let Some(large) = &mut incoming.large else { return };
        if large.memory != Memory::Waiting {
            return;
        }
        large.memory = Memory::Demanded;
        // A message before it may be taken already, with the receiver's report still to come.
        if self.budget.large_begins(channel) {
            self.grant_large(channel);
        }
    }

    /// Gives the link's memory to the large message of `channel`: its turn has come.
    fn grant_large(&mut self, channel: u32) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        let Some(large) = &mut incoming.large else { return };
        large.memory = Memory::Granted;
        incoming.had_long |= incoming.window.admit_large(large.bytes, large.end);
        self.owe_grant(channel);
    }

    /// Notes that the receiver took the large message of `channel` from the link's memory.
    pub fn large_taken(&mut self, channel: u32) {
        let window = self.incoming.get_mut(channel).map(|incoming| &mut incoming.window);
        if window.is_some_and(Window::large_taken) {
            self.owe_grant(channel);
        }
        if let Some(next) = self.budget.large_done(channel) {
            self.grant_large(next);
        }
    }

    /// Returns the bytes after which the receiver of the peer's `channel` reports that it
    /// consumed them.
    #[must_use]
    #[inline]
    pub fn report_step(&self, channel: u32) -> u64 {
        self.incoming.get(channel).map_or(0, |incoming| incoming.window.size() / REPORT_DIVISOR)
    }

    /// Returns the number of messages of a channel that arrived.
    pub fn received_messages(&self, channel: u32) -> u64 {
        self.incoming.get(channel).map_or(0, |incoming| incoming.received_messages)
    }

    /// Handles one item of a packet.
    ///
    /// # Errors
    ///
    /// The peer broke the protocol; the session is over.
    #[inline(always)]
    pub(crate) fn handle<'a>(
        &mut self,
        item: Item<'a>,
        now: Time,
    ) -> Result<Event<'a>, ProtocolError> {
        if self.packet.sequence == 0 && item.is_numbered() {
            // On another connection the item would come twice, or not at all.
            return Err(ProtocolError::Unnumbered);
        }
        match item {
            Item::Packet(header) => self.handle_header(header, now),
            Item::PacketEnd { sequence, ack_now } => {
                let fragment = std::mem::take(&mut self.packet_fragment_bytes);
                let run = u64::from(self.packet.body_bytes).saturating_sub(fragment);
                let bytes = run + fragment / ACK_FRAGMENT_DIVISOR;
                self.session.handle_packet(sequence, bytes, ack_now, now)?;
                Ok(Event::None)
            }
            Item::Run { channel, messages, bytes } => self.handle_run(channel, messages, bytes),
            item => self.handle_other(item, now),
        }
    }

    /// Handles items that are not in every packet.
    #[inline(never)]
    fn handle_other<'a>(&mut self, item: Item<'a>, now: Time) -> Result<Event<'a>, ProtocolError> {
        match item {
            Item::Packet(_) | Item::PacketEnd { .. } | Item::Run { .. } => Ok(Event::None),
            Item::Repeated(header) => {
                self.count_packet(&header);
                Ok(Event::None)
            }
            Item::Fragment { channel, message_bytes, bytes } => {
                self.handle_fragment(channel, message_bytes, bytes)
            }
            Item::FragmentBytes { channel, bytes } => {
                let done = self.fragment_landed(channel, bytes.len() as u64);
                if self.is_terminated(channel) {
                    return Ok(Event::None);
                }
                Ok(Event::LargeBytes { channel, bytes, done })
            }
            Item::Open(opening) => {
                let channel = opening.channel;
                if self.incoming.contains(channel) {
                    return Err(ProtocolError::OpenedTwice(channel));
                }
                let waiting = self.control.len() + self.grants.len();
                if waiting > ANSWERS_MAX + 2 * self.incoming.len() {
                    return Err(ProtocolError::Answers { waiting });
                }
                let window = self.budget.open()?;
                self.incoming
                    .insert(channel, Incoming::new(window, opening.stream, opening.backlog));
                Ok(Event::Opened(opening))
            }
            Item::End { channel, messages } => self.handle_end(channel, messages),
            Item::Terminate { channel } => {
                let known = self.outbox.terminate(channel, now);
                Ok(if known { Event::Terminated { channel } } else { Event::None })
            }
            Item::Credit { channel, total } => {
                self.outbox.handle_credit(channel, total);
                Ok(Event::None)
            }
            Item::OpenCredit { total } => {
                let taken = self.opened_before - self.unopened_bytes();
                self.outbox.handle_open_credit(total, taken);
                Ok(Event::None)
            }
            Item::Refuse { channel, refusal, text } => {
                let sent = self.sent_messages(channel);
                self.outbox.terminate(channel, now);
                Ok(Event::Refused { channel, refusal, text, sent })
            }
            Item::Describe { channel, text } => Ok(Event::Described { channel, text }),
            Item::Bye => Ok(Event::Bye),
            Item::Gone => Ok(Event::Gone),
            Item::Wait { number, chain } => Ok(Event::Wait { number, chain }),
            Item::Settled { channel, total, last } => Ok(Event::Settled { channel, total, last }),
            Item::Consumed { channel, total } => Ok(Event::Consumed { channel, total }),
            Item::Memory { address, word } => Ok(Event::Memory { address, word }),
            Item::Reads => Ok(Event::Reads),
        }
    }

    /// Returns the number of our channels whose open waits for credit.
    #[must_use]
    #[inline]
    pub fn unopened(&self) -> usize {
        self.outbox.unopened()
    }

    fn unopened_bytes(&self) -> u64 {
        self.outbox.unopened() as u64 * WINDOW_BYTES_INITIAL
    }

    #[inline]
    fn handle_header<'a>(&mut self, header: Header, now: Time) -> Result<Event<'a>, ProtocolError> {
        self.packet = header;
        self.count_packet(&header);
        // The number is checked before any record of the packet is handled.
        self.session.check_next(header.sequence)?;
        let (acknowledged, outbox) = (&mut self.acknowledged, &mut self.outbox);
        let note = |carried| note_acknowledged(carried, acknowledged, outbox);
        self.session.handle_ack(header.ack, &mut self.spares, note)?;
        self.pace.acknowledged(header.ack, self.session.acknowledged_bytes(), now);
        if !self.session.in_flight() && self.outbox.is_idle() {
            self.sync_wanted = self.closing;
        }
        Ok(Event::None)
    }

    #[inline]
    fn count_packet(&mut self, header: &Header) {
        self.counters.packets_received += 1;
        self.counters.packet_bytes_received += u64::from(header.body_bytes) + HEADER_BYTES as u64;
    }

    #[inline]
    fn handle_run<'a>(
        &mut self,
        channel: u32,
        messages: u32,
        bytes: &'a [u8],
    ) -> Result<Event<'a>, ProtocolError> {
        if u64::from(messages) > bytes.len() as u64 || messages == 0 {
            return Err(ProtocolError::RunCount { messages, bytes: bytes.len() });
        }
        let incoming = self.incoming_of(channel)?;
        incoming.received_bytes += bytes.len() as u64;
        incoming.received_messages += u64::from(messages);
        incoming.window.check_received(incoming.received_bytes)?;
        let terminated = incoming.terminated;
        self.counters.messages_received += u64::from(messages);
        if terminated {
            self.consumed(channel, bytes.len() as u64);
            return Ok(Event::None);
        }
        Ok(Event::Run { channel, messages, bytes })
    }

    fn handle_fragment<'a>(
        &mut self,
        channel: u32,
        message_bytes: u64,
        bytes: u32,
    ) -> Result<Event<'a>, ProtocolError> {
        let bytes_max = self.budget.message_bytes_max();
        let incoming = self.incoming_of(channel)?;
        incoming.received_bytes += u64::from(bytes);
        incoming.window.check_received(incoming.received_bytes)?;
        self.packet_fragment_bytes = u64::from(bytes);
        let incoming = self.incoming_of(channel)?;
        match incoming.large {
            Some(large) => {
                let passes = large.received + u64::from(bytes) > large.bytes;
                if large.bytes != message_bytes || passes {
                    return Err(ProtocolError::Fragments);
                }
                Ok(Event::None)
            }
            // No sender fragments such a short message: the bookkeeping would cost more than
            // the message.
            None if message_bytes < LARGE_BYTES_MIN => Err(ProtocolError::Fragments),
            None if message_bytes > bytes_max => {
                Err(ProtocolError::MessageTooLarge { bytes: message_bytes, bytes_max })
            }
            None => {
                let end = incoming.received_bytes - u64::from(bytes) + message_bytes;
                let memory = Memory::Callers;
                let large = LargeIncoming { bytes: message_bytes, received: 0, end, memory };
                incoming.large = Some(large);
                if incoming.terminated {
                    return Ok(Event::None);
                }
                Ok(Event::LargeBegins { channel, bytes: message_bytes })
            }
        }
    }

    /// Notes that `bytes` of the current fragment of `channel` are where they belong. Returns
    /// the account of the message's memory when the message is complete.
    pub fn fragment_landed(&mut self, channel: u32, bytes: u64) -> Option<Counted> {
        let incoming = self.incoming.get_mut(channel)?;
        let large = incoming.large.as_mut()?;
        large.received += bytes;
        let last = large.received == large.bytes;
        let memory = if incoming.terminated { Memory::Callers } else { large.memory };
        let whole = large.bytes;
        if last {
            incoming.large = None;
            incoming.received_messages += 1;
            self.counters.messages_received += 1;
        }
        if memory == Memory::Callers {
            self.consumed(channel, bytes);
        }
        if last && memory == Memory::Callers {
            self.consumed_of_backlog(channel, whole + 1);
        }
        if last && memory == Memory::Demanded {
            // The message came within the window before its turn.
            self.budget.large_given_up(channel);
        }
        last.then_some(match memory {
            Memory::Callers => Counted::Not,
            Memory::Window | Memory::Waiting | Memory::Demanded => Counted::Window,
            Memory::Granted => Counted::Large,
        })
    }

    fn handle_end<'a>(&mut self, channel: u32, messages: u64) -> Result<Event<'a>, ProtocolError> {
        let incoming = self.incoming_of(channel)?;
        incoming.ended = true;
        let received = incoming.received_messages;
        if incoming.terminated {
            self.release_if_done(channel);
            return Ok(Event::None);
        }
        if received != messages {
            return Err(ProtocolError::EndCount { declared: messages, received });
        }
        self.cut_large_short(channel);
        Ok(Event::Ended { channel })
    }

    /// Drops a large message whose rest does not come: its sender was stopped.
    fn cut_large_short(&mut self, channel: u32) {
        let Some(incoming) = self.incoming.get_mut(channel) else { return };
        match incoming.large.take().map(|large| large.memory) {
            Some(Memory::Granted) => self.large_taken(channel),
            Some(Memory::Demanded) => self.budget.large_given_up(channel),
            Some(Memory::Callers | Memory::Window | Memory::Waiting) | None => {}
        }
    }

    fn is_terminated(&self, channel: u32) -> bool {
        self.incoming.get(channel).is_none_or(|incoming| incoming.terminated)
    }

    #[inline]
    fn incoming_of(&mut self, channel: u32) -> Result<&mut Incoming, ProtocolError> {
        self.incoming.get_mut(channel).ok_or(ProtocolError::UnknownChannel(channel))
    }

    /// Gives the window back when both ends are done with the channel.
    fn release_if_done(&mut self, channel: u32) {
        let done = self
            .incoming
            .get(channel)
            .is_some_and(|incoming| incoming.terminated && incoming.ended);
        if done {
            self.abandon_large(channel);
            if let Some(incoming) = self.incoming.remove(channel) {
                self.budget.close(&incoming.window);
                if incoming.had_long {
                    // No grant says any more that the message was taken.
                    self.control.push_back(Control::Terminate(channel));
                }
            }
        }
    }

    /// Gives up every large message of `channel` that has the link's memory or waits for it.
    fn abandon_large(&mut self, channel: u32) {
        while self.budget.has_large(channel) {
            self.large_taken(channel);
        }
    }
}
