//! One end of a session: its endpoint, and the parts of a driver and an application around it.
//! Incoming items are checked against what the other end must have sent.

mod application;
mod incoming;

use super::arrivals::{Arrivals, Content};
use super::plan::Wrong;
use super::rings::Rings;
use chunkcomm_proto::Time;
use chunkcomm_proto::endpoint::{AfterLoss, Endpoint, SessionEnd, SessionId};
use chunkcomm_proto::limits::{INLINE_BYTES_MAX, PACKET_BYTES_TUNED, PACKET_OVERHEAD_BYTES};
use chunkcomm_proto::link::LinkConfig;
use chunkcomm_proto::message::PREFIX_BYTES_MAX;
use chunkcomm_proto::packet::{Decoder, Header};
use chunkcomm_proto::random::Random;
use std::time::Duration;

/// A channel at its sender.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) messages: u64,
    pub(super) left: u64,
    pub(super) burst: u64,
    pub(super) gap: Duration,
    /// Whether its sender ends it; otherwise the close does.
    ends: bool,
    pub(super) ended: bool,
    /// Whether the receiver is gone, or never was there.
    pub(super) terminated: bool,
    /// Whether its producer waits for room.
    pub(super) waits: bool,
    pub(super) acked: u64,
    pub(super) end_acked: bool,
    /// Number of messages whose acknowledgement a call waits for.
    pub(super) sync: Option<u64>,
}

/// Way in which a receiver takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// At once.
    Eager,
    /// One item, then nothing for this time.
    Slow(Duration),
    /// At once; the receiver is dropped after this many messages.
    Drops(u64),
}

/// A channel at its receiver.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) style: Style,
    /// Whether large messages land in its own memory.
    lands: bool,
    pub(super) arrivals: Arrivals,
    callers: bool,
    large_waits: bool,
    unreported: u64,
    pub(super) ended: bool,
    pub(super) finished: bool,
    pub(super) dropped: bool,
    /// Whether it will look again by itself.
    pub(super) resting: bool,
}

pub(super) const OVER_NAMES: [&str; 7] =
    ["closed", "closed by peer", "dead", "forgotten", "restarted", "protocol", "crashed"];

/// Returns the index in `OVER_NAMES` of a session's end.
pub(super) fn over_index(over: SessionEnd) -> usize {
    match over {
        SessionEnd::Closed => 0,
        SessionEnd::ClosedByPeer => 1,
        SessionEnd::Dead => 2,
        SessionEnd::Forgotten => 3,
        SessionEnd::Restarted => 4,
        SessionEnd::Protocol(_) => 5,
        // The node is gone: no end goes on without a connection for ever.
        SessionEnd::GivenUp | SessionEnd::Lost => 6,
    }
}

/// One end of a session.
#[derive(Debug)]
pub(super) struct End {
    pub(super) session: usize,
    pub(super) side: usize,
    pub(super) node: usize,
    pub(super) endpoint: Endpoint,
    pub(super) rings: Rings,
    pub(super) connection: Option<usize>,
    /// Whether the connection may have something to read.
    pub(super) may_read: bool,
    /// Whether the connection may have room to write.
    pub(super) may_write: bool,
    pub(super) unread: Vec<u8>,
    pub(super) decoder: Decoder,
    pub(super) sent: Vec<Sent>,
    pub(super) inboxes: Vec<Inbox>,
    pub(super) over: Option<SessionEnd>,
    /// A violation that this end found.
    pub(super) wrong: Option<String>,
    /// Channels whose receivers have something new.
    pub(super) touched: Vec<u32>,
    pub(super) stopped_until: Time,
    pub(super) wake_at: Option<Time>,
    /// Departure from the protocol that it makes with the next packet or word.
    pub(super) departs: Option<Wrong>,
    /// Whether it departed; the other end may then end the session with an error.
    pub(super) departed: bool,
    /// Time of the departure.
    pub(super) departed_at: Time,
    /// Whether it was asked for an acknowledgement and has not answered.
    pub(super) asked: bool,
    /// The highest acknowledgement that it sent.
    pub(super) said: u64,
    /// Number of the last packet that was written as a whole.
    pub(super) written: u64,
    /// Header of the numbered packet that came in part.
    open: Option<Header>,
    /// Header of the packet in which the last connection broke off.
    broken_off: Option<Header>,
    theirs: Content,
    ours: Content,
    inline_max: usize,
    config: LinkConfig,
    large_held: u64,
    /// Whether it reads fragments from the memory of the other end.
    reads: bool,
    pub(super) random: Random,
    pub(super) quiet: Quiet,
}

/// Memory of the checks of silence.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quiet {
    /// Time when bytes came last, or when the connection was lost or found.
    pub(super) since: Time,
    /// Time when the last connection was lost.
    pub(super) lost: Time,
    /// Time that this end was stopped since `since`.
    pub(super) stopped: Duration,
    /// Number of stops since `since`, jumps of its clock included.
    pub(super) stops: u32,
    /// Start of the time in which an acknowledgement is missing, and the last packet acknowledged.
    pub(super) lag: Option<(Time, u64)>,
    /// The virtual second of the last look, and the looks in it.
    pub(super) looks: (u64, u32),
}

impl End {
    pub(super) fn new(
        place: [usize; 3],
        key: u64,
        id: SessionId,
        config: &LinkConfig,
        random: Random,
        now: Time,
    ) -> End {
        let [session, side, node] = place;
        let after_loss = if side == 0 { AfterLoss::Dial } else { AfterLoss::Wait };
        let inline = config.packet_bytes_max - PACKET_OVERHEAD_BYTES - PREFIX_BYTES_MAX;
        End {
            session,
            side,
            node,
            endpoint: Endpoint::new(config, id, after_loss),
            rings: Rings::default(),
            connection: None,
            may_read: false,
            may_write: false,
            unread: Vec::new(),
            decoder: Decoder::new(PACKET_BYTES_TUNED),
            sent: Vec::new(),
            inboxes: Vec::new(),
            over: None,
            wrong: None,
            touched: Vec::new(),
            stopped_until: Time(0),
            wake_at: None,
            departs: None,
            departed: false,
            departed_at: Time(0),
            asked: false,
            said: 0,
            written: 0,
            open: None,
            broken_off: None,
            theirs: Content(key ^ (1 - side) as u64),
            ours: Content(key ^ side as u64),
            inline_max: INLINE_BYTES_MAX.min(inline),
            config: *config,
            large_held: 0,
            reads: Random::fork(key, 2000 + side as u64).one_in(3),
            random,
            quiet: Quiet { since: now, ..Quiet::default() },
        }
    }

    pub(super) fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    /// Gives the end a connection.
    pub(super) fn link_to(&mut self, connection: usize) {
        self.connection = Some(connection);
        (self.may_read, self.may_write) = (true, true);
        self.endpoint.link.say_memory(0, 0);
        if self.reads {
            self.endpoint.link.say_reads();
        }
    }

    /// Checks that the ring of kept packets is within its bound.
    pub(super) fn check_kept(&mut self, packet_bytes: usize) {
        let (kept, max) = (self.endpoint.link.kept_bytes(), self.config.resend_bytes_max);
        if kept > max + packet_bytes {
            self.fail(|| format!("{kept} bytes are kept where {max} are allowed"));
        }
    }

    /// Drops the connection, which the endpoint has given up.
    pub(super) fn cut(&mut self) {
        self.connection = None;
        let received = self.endpoint.link.received();
        self.decoder.cut(received);
        self.unread.clear();
        if let Some(open) = self.open.take().filter(|open| open.sequence > received) {
            self.broken_off = Some(open);
        }
        self.asked = false;
    }

    /// Returns the index in `plan::STATE_NAMES` of the end's state, as a fault finds it.
    pub(super) fn state(&self) -> usize {
        let numbers = self.endpoint.link.numbers();
        let full = self.endpoint.link.kept_bytes() >= self.config.resend_bytes_max;
        match self.endpoint.is_closing() {
            _ if self.endpoint.has_said_bye() => 0,
            _ if self.connection.is_none() => 1,
            _ if full => 2,
            _ if self.decoder.fragment_left().is_some() => 3,
            _ if self.open.is_some() || !self.unread.is_empty() => 4,
            _ if self.endpoint.is_writing() => 5,
            true => 6,
            _ if (1..=self.sent.len() as u32).any(|id| self.rings.messages(id) > 0) => 7,
            _ if numbers[0] > numbers[1] => 8,
            false => 9,
        }
    }

    /// Checks at the session's end that the machine's account of its channels is true.
    pub(super) fn check_account(&mut self) {
        for index in 0..self.sent.len() {
            let channel = index as u32 + 1;
            let sent = &self.sent[index];
            if sent.terminated || sent.end_acked {
                continue;
            }
            let accepted = self.endpoint.link.sent_messages(channel) + self.rings.messages(channel);
            let (messages, acked) = (sent.messages, sent.acked);
            if accepted != messages || acked > accepted {
                self.fail(|| {
                    format!(
                        "channel {channel}: {accepted} accepted and {acked} arrived of {messages}"
                    )
                });
            }
        }
    }
}
