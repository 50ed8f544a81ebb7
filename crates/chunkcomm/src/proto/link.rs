//! One peer's whole machine: what is sent, what came, what may be sent and what
//! was acknowledged. The driver moves bytes and time; every decision is here.
//!
//! Order of calls: plain verbs whenever the caller asks; [`Link::handle`] for
//! each item that came; then [`Link::poll_transmit`] until it has nothing, and
//! [`Link::next_deadline`] for when to come back.

use super::Time;
use super::credit::{CreditError, LinkBudget, REPORT_DIVISOR, Window};
use super::flush::{FlushCounts, FlushReason, Gathering, Policy, Verdict, Yield};
use super::outbox::{OpenSpec, Outbox, Staged, packet_room};
use super::packet::{
    AppendRecords, ChannelKind, FLAG_ACK_NOW, HEADER_BYTES, Header, Item, Lane, RECORD_BYTES,
    Refusal, WireError, cut,
};
use super::session::{Carried, SequenceError, Session};
use super::limits::{TEXT_BYTES_MAX, WINDOW_BYTES_INITIAL};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// What a link is built with.
#[derive(Debug, Clone, Copy)]
pub struct LinkConfig {
    /// When packets leave.
    pub policy: Policy,
    /// Age bound of `Chunked`.
    pub age_bound: Duration,
    /// Size of our packets, header included.
    pub packet_bytes_max: usize,
    /// Memory for all windows that we grant.
    pub windows_bytes_max: u64,
    /// Largest message that we take, and the memory for one.
    pub message_bytes_max: u64,
    /// Initial windows that the peer grants us.
    pub peer_open_credit: u64,
    /// Packets are acknowledged.
    pub session: bool,
}

/// What a peer did that it must not; the session ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The bytes are no packets.
    Wire(WireError),
    /// It sent more than it was allowed to.
    Credit(CreditError),
    /// A sequence or ack that cannot be.
    Sequence(SequenceError),
    /// It named a channel that does not exist.
    UnknownChannel(u32),
    /// It opened a channel number twice.
    OpenedTwice(u32),
    /// A message's fragments do not belong together.
    Fragments,
    /// A channel ended after another number of messages than it sent.
    EndCount {
        /// As declared.
        declared: u64,
        /// As received.
        received: u64,
    },
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProtocolError::Wire(error) => error.fmt(f),
            ProtocolError::Credit(error) => error.fmt(f),
            ProtocolError::Sequence(error) => error.fmt(f),
            ProtocolError::UnknownChannel(id) => write!(f, "channel {id} does not exist"),
            ProtocolError::OpenedTwice(id) => write!(f, "channel {id} was opened twice"),
            ProtocolError::Fragments => f.write_str("fragments that are not of one message"),
            ProtocolError::EndCount { declared, received } => {
                write!(f, "a channel ended after {declared} messages where {received} came")
            }
        }
    }
}

impl From<WireError> for ProtocolError {
    fn from(error: WireError) -> Self {
        ProtocolError::Wire(error)
    }
}

impl From<CreditError> for ProtocolError {
    fn from(error: CreditError) -> Self {
        ProtocolError::Credit(error)
    }
}

impl From<SequenceError> for ProtocolError {
    fn from(error: SequenceError) -> Self {
        ProtocolError::Sequence(error)
    }
}

/// What the driver is to do about an item.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing.
    None,
    /// The peer opened a channel to us.
    Opened {
        /// Its number.
        channel: u32,
        /// Its lane.
        lane: Lane,
        /// Typed values or bytes.
        kind: ChannelKind,
        /// Of the sender's type.
        fingerprint: u64,
        /// Its name.
        name: &'a str,
    },
    /// Messages for a receiver.
    Run {
        /// Their channel.
        channel: u32,
        /// How many.
        messages: u32,
        /// Prefixes and messages.
        bytes: &'a [u8],
    },
    /// A large message begins: answer with [`Link::admit_large`].
    LargeBegins {
        /// Its channel.
        channel: u32,
        /// Its size.
        bytes: u64,
    },
    /// More of the large message of a channel.
    LargeBytes {
        /// Its channel.
        channel: u32,
        /// The bytes.
        bytes: &'a [u8],
        /// The message is complete with them, and how its memory counts.
        done: Option<Counted>,
    },
    /// A channel to us ended: everything of it was received.
    Ended {
        /// Its number.
        channel: u32,
    },
    /// Our channel's receiver is gone.
    Terminated {
        /// Our channel.
        channel: u32,
    },
    /// Our open was refused.
    Refused {
        /// Our channel.
        channel: u32,
        /// Why.
        refusal: Refusal,
        /// The receiver's type, or empty.
        text: &'a str,
    },
    /// The type of a channel that we refused.
    Described {
        /// Its number.
        channel: u32,
        /// The sender's type.
        text: &'a str,
    },
    /// The peer ended the session cleanly.
    Bye,
}

/// What is to be written.
#[derive(Debug)]
pub enum Transmit {
    /// A packet: what was put in `head`, then this.
    Packet {
        /// Ends the packet, without copy.
        tail: Option<Bytes>,
    },
    /// Nothing yet: let others run once, then ask again.
    Yield(Yield),
    /// Nothing before [`Link::next_deadline`] or a further call.
    Nothing,
}

/// Counters of a link; a plain value.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkCounters {
    /// Messages put in packets.
    pub messages_sent: u64,
    /// Numbered packets and others.
    pub packets_sent: u64,
    /// Packets that carried messages.
    pub message_packets: u64,
    /// Bytes of all packets.
    pub bytes_sent: u64,
    /// Most messages in one packet.
    pub messages_per_packet_max: u64,
    /// Packets with messages by the reason why they left.
    pub flushes: FlushCounts,
    /// Sum over packets of how long the oldest message waited.
    pub queueing_us_total: u64,
    /// Longest of these.
    pub queueing_us_max: u64,
    /// Waits for credit.
    pub credit_waits: u64,
    /// Packets that came.
    pub packets_received: u64,
    /// Bytes of their bodies.
    pub bytes_received: u64,
    /// Messages that came.
    pub messages_received: u64,
}

/// How the memory of a complete large message counts until it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Not at all: it is the caller's.
    Not,
    /// In the channel's window: [`Link::consumed`] when it is taken.
    Window,
    /// As the link's one large message: [`Link::large_taken`] when it is taken.
    Large,
}

#[derive(Debug)]
struct Incoming {
    window: Window,
    received_bytes: u64,
    received_messages: u64,
    large: Option<LargeIncoming>,
    /// The receiver is gone: what still comes is discarded.
    terminated: bool,
    ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct LargeIncoming {
    bytes: u64,
    received: u64,
    memory: Memory,
}

/// Whose memory a large message goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// The caller's: what landed is consumed.
    Callers,
    /// The channel's window.
    Window,
    /// The link's, when its turn comes; until then the channel's window.
    Waiting,
    /// The link's.
    Granted,
}

#[derive(Debug)]
enum Control {
    Terminate(u32),
    Refuse(u32, Refusal, String),
    Describe(u32, String),
    Bye,
}

/// The machine of one session with one peer.
#[derive(Debug)]
pub struct Link {
    outbox: Outbox,
    session: Session,
    budget: LinkBudget,
    incoming: HashMap<u32, Incoming>,
    control: VecDeque<Control>,
    /// Channels whose grant rose.
    grants: VecDeque<u32>,
    open_credit_told: u64,
    opened_before: u64,
    packet_bytes_max: usize,
    packet: Header,
    sync_wanted: bool,
    closing: bool,
    probe: bool,
    wait_until: Option<Time>,
    acknowledged: Vec<Carried>,
    counters: LinkCounters,
}

impl Link {
    /// A session at its start, both hellos exchanged.
    #[must_use]
    pub fn new(config: &LinkConfig) -> Link {
        let gathering = Gathering::new(config.policy, config.age_bound);
        let room = packet_room(config.packet_bytes_max);
        let budget = LinkBudget::new(config.windows_bytes_max, config.message_bytes_max);
        Link {
            outbox: Outbox::new(gathering, room, config.peer_open_credit),
            session: Session::new(config.session),
            open_credit_told: budget.open_total(),
            opened_before: 0,
            budget,
            incoming: HashMap::new(),
            control: VecDeque::new(),
            grants: VecDeque::new(),
            packet_bytes_max: config.packet_bytes_max,
            packet: Header::default(),
            sync_wanted: false,
            closing: false,
            probe: false,
            wait_until: None,
            acknowledged: Vec::new(),
            counters: LinkCounters::default(),
        }
    }

    /// Messages of `channel` that were put in packets, and whether one more is
    /// on its way in fragments.
    #[must_use]
    pub fn sent_messages(&self, channel: u32) -> u64 {
        self.outbox.sent_messages(channel) + u64::from(self.outbox.in_fragments(channel))
    }

    /// Begins a channel to the peer; says its number.
    pub fn open(&mut self, spec: OpenSpec, now: Time) -> u32 {
        self.opened_before += WINDOW_BYTES_INITIAL;
        self.outbox.open(spec, now)
    }

    /// `channel` staged something at `at` where there was nothing.
    pub fn staged(&mut self, channel: u32, at: Time) {
        self.outbox.staged(channel, at);
    }

    /// Messages of `channel` up to number `until` leave at once.
    pub fn urgent(&mut self, channel: u32, until: u64, at: Time) {
        self.outbox.urgent(channel, until, at);
    }

    /// Messages of `channel` up to number `until` leave as soon as they can; with
    /// `acknowledged` the peer is asked to answer at once.
    pub fn flush(&mut self, channel: u32, until: u64, at: Time, acknowledged: bool) {
        self.outbox.explicit(channel, until, at);
        if acknowledged {
            self.sync_wanted = true;
            self.probe |= self.outbox.sent_messages(channel) >= until;
        }
    }

    /// The sender of `channel` is done after `messages`.
    pub fn end(&mut self, channel: u32, messages: u64, at: Time) {
        self.outbox.end(channel, messages, at);
    }

    /// `channel` ends after what is staged now.
    pub fn end_when_drained(&mut self, channel: u32, at: Time) {
        self.outbox.end_when_drained(channel, at);
    }

    /// What the last packet that carries messages brought its channels to.
    #[must_use]
    pub fn carried(&self) -> &[Carried] {
        self.outbox.carried()
    }

    /// Everything staged leaves, and the peer is asked to acknowledge it.
    pub fn close(&mut self) {
        self.outbox.close();
        self.closing = true;
        self.sync_wanted = true;
        self.probe = true;
    }

    /// The session ends cleanly with the next packet.
    pub fn bye(&mut self) {
        self.control.push_back(Control::Bye);
    }

    /// Everything was sent and acknowledged.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.outbox.is_idle() && self.control.is_empty() && !self.session.in_flight()
    }

    /// The receiver of the peer's `channel` is gone.
    pub fn terminate(&mut self, channel: u32) {
        let Some(incoming) = self.incoming.get_mut(&channel) else { return };
        if !incoming.terminated && !incoming.ended {
            self.control.push_back(Control::Terminate(channel));
        }
        incoming.terminated = true;
        self.abandon_large(channel);
        self.release_if_done(channel);
    }

    /// The peer's `channel` is refused; `text` describes our type, if that is why.
    pub fn refuse(&mut self, channel: u32, refusal: Refusal, text: &str) {
        let Some(incoming) = self.incoming.get_mut(&channel) else { return };
        incoming.terminated = true;
        let text = cut(text, TEXT_BYTES_MAX).to_owned();
        self.control.push_back(Control::Refuse(channel, refusal, text));
        self.abandon_large(channel);
    }

    /// Answers a refusal of our `channel` with our type.
    pub fn describe(&mut self, channel: u32, text: &str) {
        self.control.push_back(Control::Describe(channel, cut(text, TEXT_BYTES_MAX).to_owned()));
    }

    /// The receiver of the peer's `channel` took runs of `bytes`.
    pub fn consumed(&mut self, channel: u32, bytes: u64) {
        let Some(incoming) = self.incoming.get_mut(&channel) else { return };
        if incoming.window.consume(bytes, &mut self.budget) {
            self.grants.push_back(channel);
        }
    }

    /// The receiver of the peer's `channel` has taken everything of it, its end
    /// included.
    pub fn finished(&mut self, channel: u32) {
        if let Some(incoming) = self.incoming.get_mut(&channel) {
            incoming.terminated = true;
        }
        self.release_if_done(channel);
    }

    /// Decides whose memory takes the large message that begins on `channel`: the
    /// caller's, or else the channel's window if that can hold it, or else the
    /// link's memory for one such message, in turn.
    ///
    /// # Errors
    ///
    /// The message is above the size that was agreed.
    pub fn admit_large(&mut self, channel: u32, callers: bool) -> Result<(), ProtocolError> {
        let Some(incoming) = self.incoming.get_mut(&channel) else { return Ok(()) };
        let Some(large) = &mut incoming.large else { return Ok(()) };
        if callers {
            large.memory = Memory::Callers;
            return Ok(());
        }
        let granted = incoming.window.granted();
        if incoming.window.fits_large(large.bytes, &mut self.budget) {
            large.memory = Memory::Window;
        } else if self.budget.large_begins(channel, large.bytes)? {
            large.memory = Memory::Granted;
            incoming.window.admit_large(large.bytes);
        } else {
            large.memory = Memory::Waiting;
        }
        if incoming.window.granted() > granted {
            self.grants.push_back(channel);
        }
        Ok(())
    }

    /// The receiver took the large message of `channel` from the link's memory.
    pub fn large_taken(&mut self, channel: u32) {
        let Some(next) = self.budget.large_done(channel) else { return };
        let Some(incoming) = self.incoming.get_mut(&next) else { return };
        let Some(large) = &mut incoming.large else { return };
        large.memory = Memory::Granted;
        incoming.window.admit_large(large.bytes);
        self.grants.push_back(next);
    }

    /// Takes in one item of a packet.
    ///
    /// # Errors
    ///
    /// The peer did what it must not; the session is over.
    pub fn handle<'a>(&mut self, item: Item<'a>, now: Time) -> Result<Event<'a>, ProtocolError> {
        match item {
            Item::Packet(header) => self.handle_header(header),
            Item::PacketEnd { sequence, ack_now } => {
                let bytes = u64::from(self.packet.body_bytes);
                self.session.handle_packet(sequence, bytes, ack_now, now)?;
                Ok(Event::None)
            }
            Item::Run { channel, messages, bytes } => self.handle_run(channel, messages, bytes),
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
            Item::Open { channel, lane, kind, fingerprint, name } => {
                if self.incoming.contains_key(&channel) {
                    return Err(ProtocolError::OpenedTwice(channel));
                }
                let window = self.budget.open()?;
                self.incoming.insert(channel, Incoming::new(window));
                Ok(Event::Opened { channel, lane, kind, fingerprint, name })
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
                self.outbox.terminate(channel, now);
                Ok(Event::Refused { channel, refusal, text })
            }
            Item::Describe { channel, text } => Ok(Event::Described { channel, text }),
            Item::Bye => Ok(Event::Bye),
        }
    }

    fn unopened_bytes(&self) -> u64 {
        self.outbox.unopened() as u64 * WINDOW_BYTES_INITIAL
    }

    fn handle_header<'a>(&mut self, header: Header) -> Result<Event<'a>, ProtocolError> {
        self.packet = header;
        self.counters.packets_received += 1;
        self.counters.bytes_received += u64::from(header.body_bytes) + HEADER_BYTES as u64;
        let acknowledged = &mut self.acknowledged;
        let outbox = &mut self.outbox;
        self.session.handle_ack(header.ack, |carried| {
            if carried.end {
                outbox.remove(carried.channel);
            }
            acknowledged.push(carried);
        })?;
        if !self.session.in_flight() && self.outbox.is_idle() {
            self.sync_wanted = self.closing;
        }
        Ok(Event::None)
    }

    fn handle_run<'a>(
        &mut self,
        channel: u32,
        messages: u32,
        bytes: &'a [u8],
    ) -> Result<Event<'a>, ProtocolError> {
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
        let incoming = self.incoming_of(channel)?;
        incoming.received_bytes += u64::from(bytes);
        incoming.window.check_received(incoming.received_bytes)?;
        match incoming.large {
            Some(large) => {
                let passes = large.received + u64::from(bytes) > large.bytes;
                if large.bytes != message_bytes || passes {
                    return Err(ProtocolError::Fragments);
                }
                Ok(Event::None)
            }
            None => {
                let memory = Memory::Callers;
                incoming.large =
                    Some(LargeIncoming { bytes: message_bytes, received: 0, memory });
                if incoming.terminated {
                    return Ok(Event::None);
                }
                Ok(Event::LargeBegins { channel, bytes: message_bytes })
            }
        }
    }

    /// `bytes` of the fragment at hand of `channel` are where they belong. Says
    /// how the message counts when it is complete.
    pub fn fragment_landed(&mut self, channel: u32, bytes: u64) -> Option<Counted> {
        let incoming = self.incoming.get_mut(&channel)?;
        let large = incoming.large.as_mut()?;
        large.received += bytes;
        let last = large.received == large.bytes;
        let memory = if incoming.terminated { Memory::Callers } else { large.memory };
        if last {
            incoming.large = None;
            incoming.received_messages += 1;
            self.counters.messages_received += 1;
        }
        if memory == Memory::Callers {
            self.consumed(channel, bytes);
        }
        if last && memory == Memory::Waiting {
            // It came within the window before its turn.
            self.large_taken(channel);
        }
        last.then_some(match memory {
            Memory::Callers => Counted::Not,
            Memory::Window | Memory::Waiting => Counted::Window,
            Memory::Granted => Counted::Large,
        })
    }

    fn handle_end<'a>(
        &mut self,
        channel: u32,
        messages: u64,
    ) -> Result<Event<'a>, ProtocolError> {
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
        Ok(Event::Ended { channel })
    }

    fn is_terminated(&self, channel: u32) -> bool {
        self.incoming.get(&channel).is_none_or(|incoming| incoming.terminated)
    }

    fn incoming_of(&mut self, channel: u32) -> Result<&mut Incoming, ProtocolError> {
        self.incoming.get_mut(&channel).ok_or(ProtocolError::UnknownChannel(channel))
    }

    /// Both ends are done with the channel: its window goes back.
    fn release_if_done(&mut self, channel: u32) {
        let done =
            self.incoming.get(&channel).is_some_and(|incoming| incoming.terminated && incoming.ended);
        if done {
            self.abandon_large(channel);
            if let Some(incoming) = self.incoming.remove(&channel) {
                self.budget.close(&incoming.window);
            }
        }
    }

    /// No large message of `channel` needs the link's memory any more.
    fn abandon_large(&mut self, channel: u32) {
        while self.budget.has_large(channel) {
            self.large_taken(channel);
        }
    }

    /// What was acknowledged since the last call, in the order it was sent.
    pub fn poll_acknowledged(&mut self) -> std::vec::Drain<'_, Carried> {
        self.acknowledged.drain(..)
    }

    /// Something was acknowledged since [`Link::poll_acknowledged`].
    #[must_use]
    pub fn has_acknowledged(&self) -> bool {
        !self.acknowledged.is_empty()
    }

    /// The next packet, if one is to leave: its bytes are appended to `head`,
    /// which is empty. Called when the transport can take one.
    pub fn poll_transmit(
        &mut self,
        staged: &mut impl Staged,
        now: Time,
        head: &mut Vec<u8>,
    ) -> Transmit {
        self.wait_until = None;
        let verdict = self.outbox.decide(staged, now);
        let reason = match verdict {
            Some(Verdict::Leave(reason)) => Some(reason),
            _ => None,
        };
        let sequenced_control = !self.control.is_empty();
        if let Some(Verdict::Yield(whom)) = verdict {
            // What is due besides leaves with the packet that is growing.
            return Transmit::Yield(whom);
        }
        if reason.is_none() && !sequenced_control && !self.totals_due(now) {
            match verdict {
                Some(Verdict::WaitUntil(time)) => self.wait_until = Some(time),
                _ => {}
            }
            return Transmit::Nothing;
        }
        self.fill(staged, now, head, reason)
    }

    fn totals_due(&self, now: Time) -> bool {
        !self.grants.is_empty()
            || self.probe
            || self.open_credit_told < self.budget.open_total()
            || self.session.ack_due(now)
    }

    fn fill(
        &mut self,
        staged: &mut impl Staged,
        now: Time,
        head: &mut Vec<u8>,
        reason: Option<FlushReason>,
    ) -> Transmit {
        head.extend_from_slice(&[0; HEADER_BYTES]);
        self.write_totals(head);
        let mut sequenced = self.write_control(head);
        let mut filled = super::outbox::Filled::default();
        if reason.is_some() {
            let bytes_max = self.packet_bytes_max;
            filled = self.outbox.fill(staged, &mut self.session, head, bytes_max, now);
            sequenced |= filled.entries > 0;
        }
        let empty = head.len() == HEADER_BYTES && filled.tail.is_none();
        if empty && !self.probe && !self.session.ack_due(now) {
            head.clear();
            return Transmit::Nothing;
        }
        let last = self.outbox.is_idle();
        let ack_now = self.sync_wanted && last;
        self.probe = false;
        let sequence = if sequenced { self.session.sent(filled.entries) } else { 0 };
        let tail_bytes = filled.tail.as_ref().map_or(0, Bytes::len);
        let header = Header {
            body_bytes: (head.len() - HEADER_BYTES + tail_bytes) as u32,
            flags: if ack_now { FLAG_ACK_NOW } else { 0 },
            sequence,
            ack: self.session.ack(),
        };
        head[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.count(&filled, reason, head.len() + tail_bytes, now);
        Transmit::Packet { tail: filled.tail }
    }

    fn write_totals(&mut self, head: &mut Vec<u8>) {
        if self.open_credit_told < self.budget.open_total() {
            self.open_credit_told = self.budget.open_total();
            head.open_credit(self.open_credit_told);
        }
        while head.len() + 2 * RECORD_BYTES <= self.packet_bytes_max / 2 {
            let Some(channel) = self.grants.pop_front() else { break };
            if let Some(incoming) = self.incoming.get(&channel) {
                head.credit(channel, incoming.window.granted());
            }
        }
    }

    /// True when a record was written that must not be repeated.
    fn write_control(&mut self, head: &mut Vec<u8>) -> bool {
        let mut wrote = false;
        while head.len() + RECORD_BYTES + TEXT_BYTES_MAX <= self.packet_bytes_max || !wrote {
            let Some(control) = self.control.pop_front() else { break };
            wrote = true;
            match control {
                Control::Terminate(channel) => head.terminate(channel),
                Control::Refuse(channel, refusal, text) => head.refuse(channel, refusal, &text),
                Control::Describe(channel, text) => head.describe(channel, &text),
                Control::Bye => head.bye(),
            }
        }
        wrote
    }

    fn count(
        &mut self,
        filled: &super::outbox::Filled,
        reason: Option<FlushReason>,
        bytes: usize,
        now: Time,
    ) {
        let counters = &mut self.counters;
        counters.packets_sent += 1;
        counters.bytes_sent += bytes as u64;
        let messages = u64::from(filled.messages);
        let Some(reason) = reason.filter(|_| filled.entries > 0 || filled.tail.is_some()) else {
            return;
        };
        counters.messages_sent += messages;
        counters.message_packets += 1;
        counters.messages_per_packet_max = counters.messages_per_packet_max.max(messages);
        let fit = reason == FlushReason::Full && filled.fit;
        counters.flushes.add(if fit { FlushReason::Fit } else { reason });
        if let Some(oldest) = filled.oldest {
            let waited = now.micros_since(oldest);
            counters.queueing_us_total += waited;
            counters.queueing_us_max = counters.queueing_us_max.max(waited);
        }
    }

    /// When [`Link::poll_transmit`] is to be asked again at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        match (self.wait_until, self.session.ack_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        LinkCounters { credit_waits: self.outbox.credit_waits(), ..self.counters }
    }

    /// The receiver of the peer's `channel` reports what it consumed in steps of
    /// this many bytes.
    #[must_use]
    pub fn report_step(&self, channel: u32) -> u64 {
        self.incoming.get(&channel).map_or(0, |incoming| incoming.window.size() / REPORT_DIVISOR)
    }
}

impl Incoming {
    fn new(window: Window) -> Incoming {
        Incoming {
            window,
            received_bytes: 0,
            received_messages: 0,
            large: None,
            terminated: false,
            ended: false,
        }
    }
}
