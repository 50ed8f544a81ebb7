//! The channels of one session with one peer: what is sent and received, what may be sent, what
//! was acknowledged.
//!
//! Its [`Endpoint`](super::endpoint::Endpoint) hands it items, time and connections. A driver calls
//! the verbs about channels.
//!
//! Reading order: this file (what the caller asks), `events` (what comes out),
//! `incoming` and `outgoing` (the two halves), `stats`.

mod events;
mod incoming;
mod outgoing;
mod stats;

pub(crate) use events::Transmit;
pub use events::{Counted, Event};
pub use stats::PeerStats;

use super::Time;
use super::credit::LinkBudget;
use super::cycle::Told;
use super::error::ProtocolError;
use super::ids::IdMap;
use super::limits::{ANSWER_BYTES, CHANNEL_BYTES, SESSION_BYTES, WINDOW_BYTES_INITIAL};
use super::liveness::{Alive, Liveness, Silence};
use super::outbox::{ChannelCounters, ChannelState, OpenSpec, Outbox, packet_room};
use super::packet::{Header, Refusal};
use super::session::{Carried, Session};
use super::spares::Spares;
use super::tuning::flush::{Gathering, Policy};
use super::tuning::pace::Pace;
use super::tuning::packet_size::PacketSize;
use super::tuning::without::Without;
use incoming::Incoming;
use std::collections::VecDeque;
use std::time::Duration;

/// Configuration of a link.
#[derive(Debug, Clone, Copy)]
pub struct LinkConfig {
    /// Rule by which packets leave.
    pub policy: Policy,
    /// Age bound of `Chunked`.
    pub age_bound: Duration,
    /// Size of our full packets before a stream saturates the link, header included. The
    /// longest message of a ring fits.
    pub packet_bytes_small: usize,
    /// First size of our full packets once a stream saturates the link; a channel's ring holds
    /// as much.
    pub packet_bytes_max: usize,
    /// Size that they may then grow to ([`packet_size`](super::tuning::packet_size)). The size
    /// is not tuned when all three are the same.
    pub packet_bytes_tuned: usize,
    /// Memory for all windows that we grant.
    pub windows_bytes_max: u64,
    /// Largest message that we take, and the memory for one.
    pub message_bytes_max: u64,
    /// Initial windows that the peer grants us.
    pub peer_open_credit: u64,
    /// Whether packets are acknowledged.
    pub session: bool,
    /// Approximate bytes that are kept of packets that are not acknowledged.
    pub resend_bytes_max: usize,
    /// Limits of the peer's silence, for messages up to the default size.
    pub silence: Silence,
    /// Time when the session begins.
    pub now: Time,
    /// Controllers that are switched off, for measuring only.
    #[doc(hidden)]
    pub without: Without,
}

#[derive(Debug)]
enum Control {
    /// The last word of a stream's receiver: messages that it has settled.
    Settled(u32, u64),
    Terminate(u32),
    Refuse(u32, Refusal, String),
    Describe(u32, String),
    Bye,
}

/// The channels of one session with one peer.
#[derive(Debug)]
pub struct Link {
    outbox: Outbox,
    session: Session,
    pace: Pace,
    budget: LinkBudget,
    incoming: IdMap<Incoming>,
    control: VecDeque<Control>,
    /// Channels whose grant rose, each once.
    grants: VecDeque<u32>,
    /// Channels with more settled messages; then the time when the next report is due, and the
    /// time of the last report.
    settles: VecDeque<u32>,
    settles_due: Option<Time>,
    settles_said: Time,
    open_credit_told: u64,
    opened_before: u64,
    sizing: PacketSize,
    packet: Header,
    /// Bytes of fragments in the packet that is coming in.
    packet_fragment_bytes: u64,
    sync_wanted: bool,
    closing: bool,
    probe: bool,
    wait_until: Option<Time>,
    acknowledged: Vec<Carried>,
    counters: PeerStats,
    spares: Spares,
    liveness: Liveness,
    /// Whether the next packet asks for a sign of life.
    asking: bool,
    /// Chains of waits to be sent to the peer.
    told: Vec<Told>,
    says: Says,
    /// Whether the peer was told of our memory, on this connection.
    is_offered: bool,
}

/// Records about this connection that are to be sent.
#[derive(Debug, Default)]
struct Says {
    memory: Option<(u64, u128)>,
    reads: bool,
}

impl Says {
    #[inline]
    fn is_empty(&self) -> bool {
        self.memory.is_none() && !self.reads
    }
}

impl Link {
    /// Starts a session, both hellos exchanged.
    #[must_use]
    pub fn new(config: &LinkConfig) -> Link {
        let gathering = Gathering::new(config.policy, config.age_bound);
        let sizes = [config.packet_bytes_small, config.packet_bytes_max, config.packet_bytes_tuned];
        let sizing = PacketSize::new(sizes);
        let room = packet_room(sizing.bytes());
        let budget = LinkBudget::new(config.windows_bytes_max, config.message_bytes_max);
        let mut liveness = Liveness::new(config.silence, config.now);
        liveness.messages_of(config.message_bytes_max);
        Link {
            outbox: Outbox::new(gathering, room, config.peer_open_credit, config.without),
            session: Session::new(config.session, config.resend_bytes_max),
            pace: Pace::new(config.now, config.without),
            open_credit_told: budget.open_total(),
            opened_before: 0,
            budget,
            incoming: IdMap::default(),
            control: VecDeque::new(),
            grants: VecDeque::new(),
            settles: VecDeque::new(),
            settles_due: None,
            settles_said: Time(0),
            sizing,
            packet: Header::default(),
            packet_fragment_bytes: 0,
            sync_wanted: false,
            closing: false,
            probe: false,
            wait_until: None,
            acknowledged: Vec::new(),
            counters: PeerStats::default(),
            spares: Spares::default(),
            liveness,
            asking: false,
            told: Vec::new(),
            says: Says::default(),
            is_offered: false,
        }
    }

    /// Tells the peer where in our memory there is which word, on this connection.
    pub fn say_memory(&mut self, address: u64, word: u128) {
        self.says.memory = Some((address, word));
        self.is_offered = true;
    }

    /// Tells the peer that its word was read, on this connection.
    pub fn say_reads(&mut self) {
        self.says.reads = true;
    }

    /// Limits the growth of each window that we grant to `bytes`.
    pub fn limit_windows(&mut self, bytes: u64) {
        self.budget.limit_windows(bytes);
    }

    /// Returns the number of messages of `channel` that were taken from its ring, sent or not.
    #[must_use]
    pub fn sent_messages(&self, channel: u32) -> u64 {
        self.outbox.sent_messages(channel) + self.outbox.unsent_messages(channel)
    }

    /// Begins a channel to the peer; returns its number.
    pub fn open(&mut self, spec: OpenSpec, now: Time) -> u32 {
        self.opened_before += WINDOW_BYTES_INITIAL;
        self.outbox.open(spec, now)
    }

    /// Notes that `channel` staged something at `at`, where there was nothing.
    #[inline]
    pub fn staged(&mut self, channel: u32, at: Time) {
        self.outbox.staged(channel, at);
    }

    /// As `staged`, with the driver woken for `bytes`. Everything that was runnable then has
    /// run since.
    #[inline]
    pub fn woken_for(&mut self, channel: u32, at: Time, bytes: usize) {
        self.outbox.woken_for(channel, at, bytes);
    }

    /// Notes that a message waits for room behind those of `channel` up to number `until`.
    pub fn no_room(&mut self, channel: u32, until: u64, at: Time) {
        self.outbox.no_room(channel, until, at);
    }

    /// Makes messages of `channel` up to number `until` leave at once.
    pub fn urgent(&mut self, channel: u32, until: u64, at: Time) {
        self.outbox.urgent(channel, until, at);
    }

    /// Makes messages of `channel` up to number `until` leave as soon as they can. With
    /// `acknowledged` the peer is asked to answer at once.
    pub fn flush(&mut self, channel: u32, until: u64, at: Time, acknowledged: bool) {
        self.outbox.explicit(channel, until, at);
        if acknowledged {
            self.sync_wanted = true;
            self.probe |= self.outbox.sent_messages(channel) >= until;
        }
    }

    /// Notes that the sender of `channel` is done after `messages`.
    pub fn end(&mut self, channel: u32, messages: u64, at: Time) {
        self.outbox.end(channel, messages, at);
    }

    /// Returns the counters of our `channel`, while it lasts.
    #[must_use]
    #[inline]
    pub fn channel_counters(&self, channel: u32) -> Option<&ChannelCounters> {
        self.outbox.counters(channel)
    }

    /// Returns the states of the channels after the last packet that carries messages.
    #[must_use]
    #[inline]
    pub fn carried(&self) -> &[Carried] {
        self.outbox.carried()
    }

    /// Makes everything staged leave, ends every channel after it, and asks the peer to
    /// acknowledge it.
    pub(crate) fn close(&mut self, at: Time) {
        self.outbox.close(at);
        self.closing = true;
        self.sync_wanted = true;
        self.probe = true;
    }

    /// Ends the session cleanly with the next packet.
    pub(crate) fn bye(&mut self) {
        self.control.push_back(Control::Bye);
    }

    /// Whether everything was sent and acknowledged, also messages that waited for credit.
    /// Asked after [`Link::close`].
    #[must_use]
    pub(crate) fn is_quiet(&self) -> bool {
        self.outbox.has_ended() && self.control.is_empty() && !self.session.in_flight()
    }

    /// Returns the entries acknowledged since the last call, in the order in which they were
    /// sent.
    #[inline]
    pub fn poll_acknowledged(&mut self) -> std::vec::Drain<'_, Carried> {
        self.acknowledged.drain(..)
    }

    /// Whether something was acknowledged since [`Link::poll_acknowledged`].
    #[must_use]
    #[inline]
    pub fn has_acknowledged(&self) -> bool {
        !self.acknowledged.is_empty()
    }

    /// Returns the time at which a packet may have to leave at the latest.
    #[must_use]
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        let mut first = self.wait_until;
        for due in [self.session.ack_deadline(), self.settles_due].into_iter().flatten() {
            first = Some(first.map_or(due, |first| first.min(due)));
        }
        first
    }

    /// Notes that bytes of the peer came.
    #[inline]
    pub(crate) fn heard(&mut self, now: Time) {
        self.liveness.heard(now);
    }

    /// Returns the reaction to the peer's silence, and the time to ask again at the latest. A
    /// request for a sign of life leaves with the next packet.
    #[inline]
    pub(crate) fn poll_alive(&mut self, now: Time) -> (Alive, Time) {
        // The peer cannot lengthen this: it counts the messages that we allow, and that we sent.
        if let Some(bytes) = self.outbox.poll_largest_untaken() {
            self.liveness.messages_of(bytes.max(self.budget.message_bytes_max()));
        }
        let waits = self.session.in_flight() || !self.outbox.is_idle();
        self.liveness.waits(waits || self.outbox.waits_for_credit(), now);
        let alive = self.liveness.poll(now);
        if alive == Alive::Probe {
            self.ask();
        }
        (alive, self.liveness.deadline())
    }

    /// Asks the peer for an acknowledgement, in a packet of its own if no other leaves.
    fn ask(&mut self) {
        self.probe = true;
        self.asking = true;
    }

    /// Notes that the connection is gone. Unacknowledged packets are kept for the next one.
    pub(crate) fn cut(&mut self, now: Time) {
        self.says = Says::default();
        self.is_offered = false;
        self.liveness.offline(now);
    }

    /// Returns the memory of the session that the peer's opens and requests have made, in bytes,
    /// estimated: without messages.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let channels = (self.incoming.len() + self.outbox.channels()) as u64;
        let answers = (self.control.len() + self.grants.len()) as u64;
        SESSION_BYTES + CHANNEL_BYTES * channels + ANSWER_BYTES * answers
    }

    /// Returns the numbers of the last packet sent, the last one acknowledged, the last one
    /// received.
    #[must_use]
    pub fn numbers(&self) -> [u64; 3] {
        self.session.numbers()
    }

    /// Notes that the peer reads fragments from the memory of this end. Returns whether it may: it was told of
    /// that, and the memory is kept until it is read.
    pub(crate) fn is_read(&mut self) -> bool {
        let may = self.is_offered && self.session.is_enabled();
        if may {
            self.pace.is_read();
        }
        may
    }

    /// Returns the shortest round trip of late, if one was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.pace.round_trip()
    }

    /// Returns the bytes that are kept until they are acknowledged.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.session.kept_bytes()
    }

    /// Whether nothing further is sent, because of the bytes that are kept.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.session.is_full()
    }

    /// Returns the bytes on their way below which bulk channels go on, if they wait.
    #[must_use]
    pub fn bulk_waits(&self) -> Option<usize> {
        self.outbox.bulk_waits().then(|| self.pace.bound())
    }

    /// Returns the limits of the peer's silence.
    #[must_use]
    pub fn silence(&self) -> Silence {
        self.liveness.silence()
    }

    /// Returns the time when the peer was last heard.
    #[must_use]
    pub fn heard_at(&self) -> Time {
        self.liveness.heard_at()
    }

    /// Whether the peer is silent for longer than it should be, or has no connection.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.liveness.is_suspect()
    }

    /// Whether a channel has something staged and no credit for it.
    #[must_use]
    #[inline]
    pub fn waits_for_credit(&self) -> bool {
        self.outbox.waits_for_credit()
    }

    /// Sets the chains of waits to send to the peer. They replace older ones that were not sent
    /// yet.
    pub fn tell(&mut self, told: Vec<Told>) {
        self.told = told;
    }

    /// Counts a cycle of waits that came to light.
    pub fn count_cycle(&mut self) {
        self.counters.cycles += 1;
    }

    /// Returns the state of our `channel`.
    #[must_use]
    pub fn channel_state(&self, channel: u32) -> ChannelState {
        self.outbox.state(channel)
    }

    /// Returns the number of the last packet that came as a whole.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.session.received()
    }

    /// Starts on a new connection, on which the peer reports that it has our packets up to
    /// `received`. All totals are sent anew.
    ///
    /// # Errors
    ///
    /// The peer cannot have these packets; the session is over.
    pub(crate) fn resume(&mut self, received: u64, now: Time) -> Result<(), ProtocolError> {
        let (acknowledged, outbox) = (&mut self.acknowledged, &mut self.outbox);
        let note = |carried| note_acknowledged(carried, acknowledged, outbox);
        self.session.resume(received, &mut self.spares, note)?;
        self.open_credit_told = 0;
        self.grants.clear();
        let mut channels: Vec<u32> = self.incoming.keys().collect();
        channels.sort_unstable();
        for incoming in self.incoming.values_mut() {
            incoming.grant_owed = false;
        }
        channels.iter().for_each(|channel| self.owe_grant(*channel));
        for channel in channels {
            self.say_settled(channel, now);
        }
        self.probe |= self.sync_wanted;
        // The new connection may take another way.
        self.pace.restart(now);
        self.liveness.online(now);
        self.counters.resumes += 1;
        Ok(())
    }

    /// Frees memory that the link does not need while it rests.
    #[inline]
    pub fn rest(&mut self) {
        self.spares.rest();
    }

    /// Returns the counters so far, without those of the driver: `writes`, `reads` and
    /// `packets_duplicate` are 0.
    #[must_use]
    #[inline]
    pub fn counters(&self) -> PeerStats {
        PeerStats { credit_waits: self.outbox.credit_waits(), ..self.counters }
    }
}

#[inline]
fn note_acknowledged(carried: Carried, acknowledged: &mut Vec<Carried>, outbox: &mut Outbox) {
    if carried.end {
        outbox.remove(carried.channel);
    }
    acknowledged.push(carried);
}

#[cfg(test)]
mod tests;
