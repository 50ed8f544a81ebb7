//! What comes out of the machine: events, packets, counters.

use crate::proto::flush::{FlushCounts, Yield};
use crate::proto::packet::{ChannelKind, Lane, Refusal, StreamStart};

/// How the memory of a complete large message counts until it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Not at all: it is the caller's.
    Not,
    /// In the channel's window: [`Link::consumed`](super::Link::consumed) when it is taken.
    Window,
    /// As the link's one large message: [`Link::large_taken`](super::Link::large_taken) when it is taken.
    Large,
}

/// What the driver is to do about an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        /// Its part of a stream, if its receiver is to settle.
        stream: Option<StreamStart>,
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
    /// A large message begins: answer with [`Link::admit_large`](super::Link::admit_large).
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
    /// The receiver of our channel has settled messages.
    Settled {
        /// Our channel.
        channel: u32,
        /// Messages of its stream in all, as the receiver says.
        total: u64,
        /// The receiver is gone and settles no more.
        last: bool,
    },
    /// Our open was refused.
    Refused {
        /// Our channel.
        channel: u32,
        /// Why.
        refusal: Refusal,
        /// The receiver's type, or empty.
        text: &'a str,
        /// Messages of it that were put in packets, one in fragments included.
        sent: u64,
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
    /// The peer gave the session up.
    Gone,
    /// The peer waits for us, and others for it: see [`cycle`](crate::proto::cycle).
    Wait {
        /// Counted where the chain begins.
        number: u64,
        /// The chain of waits.
        chain: &'a [u8],
    },
}

/// What is to be written.
#[derive(Debug)]
pub enum Transmit {
    /// The packet; [`Link::written`](super::Link::written) when all of it is.
    Packet {
        /// Its number; 0 for one without.
        number: u64,
        /// It was written before, on a connection that was lost.
        again: bool,
    },
    /// Nothing yet: let others run once, then ask again.
    Yield(Yield),
    /// Nothing before [`Link::next_deadline`](super::Link::next_deadline) or a further call.
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
    /// Connections that took the place of a lost one.
    pub resumes: u64,
    /// Packets that were written again.
    pub packets_resent: u64,
    /// Cycles of waits that came to light by the peer's word.
    pub cycles: u64,
}
