//! Output of the machine: events and packets.

use crate::packet::{Opening, Refusal};
use crate::tuning::flush::Yield;

/// Account on which the memory of a complete large message counts until it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// None: the memory is the caller's.
    Not,
    /// The channel's window: [`Link::consumed`](super::Link::consumed) when the message is
    /// taken.
    Window,
    /// The link's one large message: [`Link::large_taken`](super::Link::large_taken) when it is
    /// taken.
    Large,
}

/// The driver's task for an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing.
    None,
    /// The peer opened a channel to us.
    Opened(Box<Opening<'a>>),
    /// Messages for a receiver.
    Run {
        /// The channel of the messages.
        channel: u32,
        /// Number of messages.
        messages: u32,
        /// Prefixes and messages.
        bytes: &'a [u8],
    },
    /// A large message begins: answer with [`Link::admit_large`](super::Link::admit_large).
    LargeBegins {
        /// The message's channel.
        channel: u32,
        /// The message's size.
        bytes: u64,
    },
    /// More of the large message of a channel.
    LargeBytes {
        /// The message's channel.
        channel: u32,
        /// The bytes.
        bytes: &'a [u8],
        /// Account of the message's memory, if these bytes complete the message.
        done: Option<Counted>,
    },
    /// A channel to us ended: everything of it was received.
    Ended {
        /// The channel's number.
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
        /// Messages of the stream in all, as the receiver reports.
        total: u64,
        /// Whether the receiver is gone and settles no more.
        last: bool,
    },
    /// The receiver of our channel with a backlog has consumed bytes.
    Consumed {
        /// Our channel.
        channel: u32,
        /// Bytes since the channel began. After a cut a lower number may follow a higher one.
        total: u64,
    },
    /// Our open was refused.
    Refused {
        /// Our channel.
        channel: u32,
        /// The reason.
        refusal: Refusal,
        /// Description of the receiver's type, or empty.
        text: &'a str,
        /// Messages of the channel that were put in packets, one in fragments included.
        sent: u64,
    },
    /// The type of a channel that we refused.
    Described {
        /// The channel's number.
        channel: u32,
        /// Description of the sender's type.
        text: &'a str,
    },
    /// The peer ended the session cleanly.
    Bye,
    /// The peer gave the session up.
    Gone,
    /// The peer waits for us, and others wait for the peer: see [`cycle`](crate::cycle).
    Wait {
        /// Number of the word, counted where the chain begins.
        number: u64,
        /// The chain of waits.
        chain: &'a [u8],
    },
    /// The peer has a word in its memory: read it and answer with
    /// [`Link::say_reads`](super::Link::say_reads), if that can be done.
    Memory {
        /// The word's address there.
        address: u64,
        /// The word.
        word: u128,
    },
    /// The peer has read our word.
    Reads,
}

/// The driver's next step in writing.
#[derive(Debug)]
pub(crate) enum Transmit {
    /// Write the packet; [`Link::written`](super::Link::written) when all of it is.
    Packet {
        /// The packet's number; 0 for one without.
        number: u64,
        /// Whether it was written before, on a connection that was lost.
        again: bool,
    },
    /// Let others run once, then ask again.
    Yield(Yield),
    /// Write nothing before [`Link::next_deadline`](super::Link::next_deadline) or a further
    /// call.
    Nothing,
}
