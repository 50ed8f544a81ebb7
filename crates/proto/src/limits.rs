//! Every limit by its name. The relations between them are checked when the crate is compiled.
//! Numbers of the controllers are in [`tuning::constants`](crate::tuning::constants).

/// Smallest packet size that may be set: an `Open` with the longest name fits.
pub const PACKET_BYTES_MIN: usize = 1024;

/// Largest packet size that may be set.
pub const PACKET_BYTES_LARGEST: usize = 1024 * 1024;

/// Size of a full packet before a stream saturates its link, where none was set: 16 KiB.
/// Messages that waited behind a pause leave in parts: the peer takes the first while the next
/// is written.
///
/// - measured: 512 B at 1 M/s with slow wake-ups, p99 1.02 to 1.13 of the best fixed size's; with
///   64 KiB 1.03 to 1.37
/// - less: the longest message of a ring no longer fits
/// - more: what waited behind a pause arrives later
/// - command: `chunkperf stream sweep --sizes 512 --rates 1000000`
pub const PACKET_BYTES_SMALL: usize = 16 * 1024;

/// Default size of a full packet of a stream that saturates its link, header included: 64 KiB.
///
/// - measured: 4 KiB at 1 M/s, p99 61 us; with 128 and 256 KiB 78 us
/// - less: a system call more often
/// - more: latency of bursts; 64 KiB still lies in a core's second-level cache
/// - command: `chunkperf stream sweep --sizes 4KiB --rates 1000000`
pub const PACKET_BYTES_DEFAULT: usize = 64 * 1024;

/// Largest size that a full packet grows to where none was set: 256 KiB.
///
/// - measured: 4 KiB messages at saturation, 64 KiB packets had 0.88 of the best fixed size's rate
/// - less: the rate of messages of some hundred bytes and more
/// - more: nothing recorded; bytes on their way leave the cache
/// - command: `chunkperf stream sweep --sizes 4KiB --rates max`
pub const PACKET_BYTES_TUNED: usize = 256 * 1024;

/// Bytes of a packet beside a channel's whole ring: the header, a record header and some
/// records of credit. A saturated ring and the grants of the other direction thus leave
/// together.
pub const PACKET_OVERHEAD_BYTES: usize = 256;

/// Longest message that is staged in its channel's ring; a larger one leaves in fragments. Two
/// of them fit in the initial window, so that a message never waits for a window that cannot
/// come.
pub const INLINE_BYTES_MAX: usize = 8 * 1024;

/// Lower bound of messages in fragments, in bytes: even with the smallest packets, fragments
/// begin above it.
pub const LARGE_BYTES_MIN: u64 = 512;

/// Largest fragment of a large message. It costs one header and one write:
/// at 256 KiB that is below 1 % of the copy in the kernel.
pub const FRAGMENT_BYTES_MAX: usize = 256 * 1024;

/// Bytes of a fragment from which it may stay in its sender's memory, to be read there: 32 KiB. Below, a system
/// call for it takes longer than to copy it twice.
pub const ELSEWHERE_BYTES_MIN: usize = 32 * 1024;

/// Smallest fragment that is worth a packet while credit is short.
pub const FRAGMENT_BYTES_MIN: usize = 4 * 1024;

/// Smallest backlog of a channel, in bytes. Its eighth is the step of the receiver's reports.
pub const BACKLOG_BYTES_MIN: u64 = 4 * 1024;

/// Bytes that a channel may send before the receiver has granted any.
pub const WINDOW_BYTES_INITIAL: u64 = 16 * 1024;

/// Largest window of a channel, reached while its receiver keeps up.
pub const WINDOW_BYTES_CHANNEL_MAX: u64 = 4 * 1024 * 1024;

/// Default sum of all windows of a link.
pub const WINDOW_BYTES_LINK_DEFAULT: u64 = 16 * 1024 * 1024;

/// Part of a link's windows that is set aside for the initial windows of channels: one half.
pub const OPEN_CREDIT_DIVISOR: u64 = 2;

/// Default size of the largest message, in bytes. A link may spend as much memory on one
/// message that is being put together.
pub const MESSAGE_BYTES_DEFAULT: u64 = 32 * 1024 * 1024;

/// Bytes of large messages that a channel may have accepted and not yet sent. One message is
/// always admitted.
pub const LARGE_STAGED_BYTES_MAX: usize = 1024 * 1024;

/// Default bound on the encoded bytes that a stream keeps until its receiver has settled them:
/// 4 MiB, as much as a window lets leave before they are settled.
pub const KEPT_BYTES_DEFAULT: usize = 4 * 1024 * 1024;

/// Largest ring, in bytes: its counters wrap at twice this size.
pub const RING_BYTES_LARGEST: usize = 1 << 30;

/// Longest name of a channel in bytes.
pub const CHANNEL_NAME_BYTES_MAX: usize = 255;

/// Longest text of a refusal or a type's description on the wire.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Divisor of a link's reserve of channels for those that an `accept` waits for: 8.
///
/// It divides the channels that a link may have beside the accepted ones. The rest, by default
/// 448, is for channels that nobody accepts yet. Each costs about 1 KiB beside the initial
/// window that it has anyway. Without the reserve the rest could use up the open credit. A
/// channel that an `accept` waits for could then not be opened.
pub const OPEN_RESERVE_DIVISOR: u64 = 8;

/// Most channels of all links of a node that peers have opened and nobody accepted yet: 4096.
/// That is one from each of thousands of peers, or nine links full of them. With full initial
/// windows they hold 64 MiB.
pub const HELD_OPENS_NODE_MAX: usize = 4096;

/// Default of the most live sessions that peers may have begun with a node. It is twice the
/// number that a cluster of eight thousand nodes needs, whichever side dials. A session at rest
/// costs about 6 KiB.
pub const SESSIONS_MAX_DEFAULT: usize = 16 * 1024;

/// Default of the memory that sessions without a connection may hold, of those that peers began:
/// 512 MiB. That is 5 times what as many sessions at rest cost as a node has, or the largest messages
/// of 16 peers, half received.
pub const CUT_OFF_BYTES_DEFAULT: u64 = 512 * 1024 * 1024;

/// Memory of a session without channels, in bytes, as it counts when the session is cut off.
pub const SESSION_BYTES: u64 = 6 * 1024;

/// Memory of a channel without messages, in bytes, as it counts when its session is cut off.
pub const CHANNEL_BYTES: u64 = 1024;

/// Memory of an answer that waits to be sent, in bytes, as it counts when its session is cut off.
pub const ANSWER_BYTES: u64 = 64;

/// Most answers that may wait for a peer, beside one and a grant for each of its channels. A
/// peer that makes us answer and does not read ends its session.
pub const ANSWERS_MAX: usize = 4096;

/// Packets after which an acknowledgement leaves at the latest.
pub const ACK_PACKETS_MAX: u64 = 64;

/// Received bytes after which an acknowledgement leaves at the latest. Until then the sender
/// keeps them, and they compete for its core's second-level cache: with 640 KiB a stream of
/// small messages was 2 to 3 % slower. An acknowledgement in a packet of its own costs a tenth
/// of a full packet.
pub const ACK_BYTES_MAX: u64 = 256 * 1024;

/// Least time between two packets that leave only to report settled messages, in milliseconds.
/// Without it, a receiver that settles each run of a saturated stream would answer each with a
/// packet. The first report after a pause leaves at once. A packet that leaves for another reason
/// takes the report along.
pub const SETTLED_GAP_MS: u64 = 1;

/// Divisor of a fragment's bytes when they count towards `ACK_BYTES_MAX`: the sender keeps
/// fragments in the user's own memory.
pub const ACK_FRAGMENT_DIVISOR: u64 = 4;

/// Time after the first packet that it acknowledges in which an acknowledgement leaves at the latest,
/// in milliseconds. One that is asked for leaves at once: `sync`, `close` and bulk that waits ask.
/// - less: an answer that takes 30 ms, as that of a farm's worker, comes too late to take it along. A
///   packet of its own wakes both processes, and costs each thread that computes there some 0.1 ms.
/// - more: the sender keeps its last messages for longer, and knows later that they have arrived
pub const ACK_DELAY_MS: u64 = 40;

/// Default bound on the packets that are kept until they are acknowledged, in bytes: a round
/// trip of 4 ms at 1 GB/s.
pub const RESEND_BYTES_DEFAULT: usize = 4 * 1024 * 1024;

/// Smallest bound on kept packets that may be set: the largest packet with its fragment.
pub const RESEND_BYTES_MIN: usize = PACKET_BYTES_LARGEST + FRAGMENT_BYTES_MAX;

/// Largest packet that is built in a buffer that grows with it, in bytes. It thus pins no large
/// buffer until it is acknowledged.
pub const SMALL_PACKET_BYTES: usize = 4 * 1024;

/// Memory of the empty buffers of small packets that a busy link keeps, in bytes: 64 KiB, some hundreds
/// of a tiny message each.
pub const SPARE_SMALL_BYTES_MAX: usize = 16 * SMALL_PACKET_BYTES;

/// Empty buffers of large packets that a busy link keeps.
pub const SPARE_LARGE_MAX: usize = 32;

/// Silence after which a peer is asked for a sign of life, in milliseconds, while something
/// waits for the peer.
pub const PROBE_MS_DEFAULT: u64 = 1_000;

/// Silence after which a connection is given up and dialled anew, in milliseconds.
pub const SUSPECT_MS_DEFAULT: u64 = 3_000;

/// Silence after which a session is dead, in milliseconds.
pub const DEAD_MS_DEFAULT: u64 = 10_000;

/// Default of the time for which `connect` tries, in milliseconds. A peer that is just
/// starting, or that starts again, is there by then.
pub const CONNECT_MS_DEFAULT: u64 = 10_000;

/// Least rate at which a value is encoded or decoded, in bytes a second. It is thirty times
/// below that of a sequence of single bytes. That leaves time for short strings, for new pages
/// and for a build without optimisation.
pub const VALUE_BYTES_A_SECOND: u64 = 32 * 1024 * 1024;

/// Longest time that a peer gets for one value, in milliseconds, whatever it may send.
pub const VALUE_MS_MAX: u64 = 600_000;

/// Silence after which a peer is asked for a sign of life when nothing waits for the peer, in
/// milliseconds.
pub const IDLE_PROBE_MS: u64 = 30_000;

const _: () = {
    assert!(2 * INLINE_BYTES_MAX as u64 <= WINDOW_BYTES_INITIAL);
    assert!(WINDOW_BYTES_INITIAL <= WINDOW_BYTES_CHANNEL_MAX);
    assert!(FRAGMENT_BYTES_MIN <= FRAGMENT_BYTES_MAX);
    // A message that no backlog takes as one of many leaves in fragments.
    assert!(LARGE_BYTES_MIN + 5 < BACKLOG_BYTES_MIN);
    assert!(FRAGMENT_BYTES_MIN as u64 <= WINDOW_BYTES_INITIAL / 2);
    assert!(PACKET_OVERHEAD_BYTES + CHANNEL_NAME_BYTES_MAX < PACKET_BYTES_MIN);
    assert!(INLINE_BYTES_MAX + 2 * PACKET_OVERHEAD_BYTES <= PACKET_BYTES_SMALL);
    assert!(PACKET_BYTES_MIN <= PACKET_BYTES_SMALL);
    assert!(PACKET_BYTES_SMALL <= PACKET_BYTES_DEFAULT);
    assert!(PACKET_BYTES_DEFAULT <= PACKET_BYTES_TUNED);
    assert!(PACKET_BYTES_TUNED <= PACKET_BYTES_LARGEST);
    assert!(LARGE_BYTES_MIN as usize + PACKET_OVERHEAD_BYTES + 5 < PACKET_BYTES_MIN);
};
