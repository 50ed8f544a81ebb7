//! Every tuned number of the controllers. A limit is in [`limits`](crate::limits).
//!
//! Each number has four lines:
//!
//! - *measured*: the figure that speaks for it, as it was recorded; "nothing recorded" where only
//!   an argument does;
//! - *less*, *more*: the damage of a smaller and of a larger number;
//! - *command*: a measurement that shows the damage. `--without CONTROLLER` beside it shows the
//!   controller's worth.

use crate::limits::{FRAGMENT_BYTES_MAX, INLINE_BYTES_MAX, PACKET_OVERHEAD_BYTES};
use std::time::Duration;

// Size of a packet.

/// Largest part of the time between two full packets that a write may cost: a twelfth.
///
/// - measured: nothing recorded for this number
/// - less: packets grow where bytes are dear
/// - more: packets stay small where the system call is dear
/// - command: `chunkperf stream sweep --sizes 512,4KiB --rates max`
pub const WRITE_SHARE_DIVISOR: u64 = 12;

/// Full packets in a row before the cost of a byte is measured.
///
/// - measured: nothing recorded
/// - less: bursts pass for a saturated link
/// - more: packets grow later
/// - command: `chunkperf stream sweep --sizes 4KiB --rates 1000000,max`
pub const FULL_IN_ROW: u32 = 16;

/// Rows of full packets before a size is judged, by the cheapest of them.
///
/// - measured: nothing recorded; a test has another process on the machine in every second row
/// - less: other processes decide about the size
/// - more: a size that costs more is kept longer
/// - command: `chunkperf stream sweep --sizes 4KiB --rates max`
pub const ROWS: u32 = 8;

/// Part by which a byte must be cheaper for a larger packet to stay: 1/24.
///
/// - measured: `echo` with 300 words, 10 ms with 64 KiB; 15 ms with what it grew to before
/// - less: noise makes packets large
/// - more: nothing recorded
/// - command: `cargo run --release --example echo -- --repeat 9`
pub const CHEAPER_DIVISOR: u64 = 24;

/// Number of times [`ROWS`] for which a size that stays is not questioned. At 64 KiB that is a
/// quarter of a gigabyte.
///
/// - measured: nothing recorded
/// - less: more packets have a size that only is tried
/// - more: a link whose cost changed keeps its size longer
/// - command: `chunkperf stream sweep --sizes 4KiB --rates max`
pub const RESTS: u32 = 32;

/// Packets in a row, less than half full or with nothing waiting behind them, after which the
/// size is small again.
///
/// - measured: nothing recorded
/// - less: a short pause costs a stream its size
/// - more: the first pause after a stream meets large packets
/// - command: `chunkperf stream sweep --sizes 512 --rates 1000000`
pub const PART_IN_ROW: u32 = 256;

/// Weight against saturation of a packet behind which nothing waited, in full packets.
///
/// - measured: 4 KiB at 1 M/s, p99 78 us before bursts were told from saturation, 61 us since
/// - less: bursts keep large packets
/// - more: a saturated stream whose ring runs empty now and then has smaller packets
/// - command: `chunkperf stream sweep --sizes 4KiB --rates 1000000,max`
pub const DRAINED_WEIGHT: u32 = 16;

/// Sum of these weights from which a size larger than the first is given up.
///
/// - measured: as [`DRAINED_WEIGHT`]
/// - less, more: as [`DRAINED_WEIGHT`], turned round
/// - command: `chunkperf stream sweep --sizes 4KiB --rates 1000000,max`
pub const DRAINED_MAX: u32 = 16 * DRAINED_WEIGHT;

/// Largest packet whose write shows the cost of a system call, in bytes.
///
/// - measured: nothing recorded
/// - less: fewer writes are timed
/// - more: the copy of the bytes counts as the call
/// - command: `chunkperf stream sweep --sizes 4KiB --rates max`
pub const SMALL_WRITE_BYTES: usize = 2 * 1024;

/// Small writes of which one is timed.
///
/// - measured: reading the clock twice costs a hundredth of a write
/// - less: the clock costs more
/// - more: the cost is learnt later
/// - command: `chunkperf latency --size 16 --against raw`
pub const TIMED_EVERY: u32 = 16;

/// Cost of a write until one is timed, in nanoseconds.
///
/// - measured: about that over loopback
/// - less, more: the first packets of a stream grow late, or needlessly
/// - command: `chunkperf stream --size 4KiB`
pub const WRITE_NS: u64 = 4_000;

/// Time above which a write counts as interrupted, in nanoseconds.
///
/// - measured: nothing recorded
/// - less: slow system calls are not believed
/// - more: a pause of the process counts as a dear call
/// - command: `chunkperf stream sweep --sizes 4KiB --rates max`
pub const WRITE_NS_MAX: u64 = 50_000;

// Pace.

/// Time that bulk data on its way may delay a message beyond its round trip, on the shortest ways,
/// where messages talk beside bulk.
///
/// - measured: nothing recorded
/// - less: a link of several channels stands still between acknowledgements
/// - more: express messages wait longer behind bulk
/// - command: `chunkperf latency --size 16 --load bulk --lane express --against load-idle`
pub const QUEUE_MIN: Duration = Duration::from_micros(10);

/// The same where channels share a link and do not talk.
///
/// - measured: an all-reduce of 4 ranks on 2 cores moves 1.5 times as much with 100 us as with 10,
///   and not more with 5 ms
/// - less: a link stands still while its peer waits for a core
/// - more: a message now and then waits for more than a write of 256 KiB on 10 Gbit/s
/// - command: `chunkperf collective --op all-reduce --size 16MiB --against relay`
pub const QUEUE_SHARED: Duration = Duration::from_micros(100);

/// Most bytes of a turn in which a channel of the bulk lane talks.
///
/// - measured: nothing recorded
/// - less: longer requests wait behind bulk
/// - more: ends of large messages count as talk
/// - command: `chunkperf latency --size 16 --load bulk --lane express --against load-idle`
pub const TALK_BYTES_MAX: u64 = 4 * 1024;

/// Turns within [`SHARED_FOR`] by which a channel talks.
///
/// - measured: nothing recorded; a conversation beside bulk has 50 and more on the shortest ways
/// - less: the small messages of a collective call count as talk, and hold its data to [`QUEUE_MIN`]
/// - more: a slower conversation waits for [`QUEUE_SHARED`]
/// - command: `chunkperf latency --size 16 --load bulk --lane express --against load-idle`
pub const TALK_TURNS: u32 = 8;

/// Time that bulk data of a channel that has the link to itself may wait.
///
/// - measured: nothing recorded
/// - less: more acknowledgements are asked for
/// - more: the first express message after a while waits longer
/// - command: `lab namespaces --mbit 100`
pub const QUEUE_MAX: Duration = Duration::from_millis(5);

/// Time for which a link counts as shared after two channels shared it. A message that comes
/// more rarely may wait for [`QUEUE_MAX`], which is as long.
///
/// - measured: nothing recorded; it follows from [`QUEUE_MAX`]
/// - less: an express message now and then waits behind much
/// - more: a channel alone is bounded without need
/// - command: `chunkperf latency --size 16 --load bulk --lane express --against load-idle`
pub const SHARED_FOR: Duration = QUEUE_MAX;

/// Bytes that bulk may always have on their way.
///
/// - measured: nothing recorded
/// - less: a slow link with a long round trip does not come off the ground, as the rate seen is
///   the amount that was on its way
/// - more: express messages wait longer on slow links: 64 KiB take 5 ms at 100 Mbit/s
/// - command: `lab namespaces --mbit 100`
pub const BOUND_BYTES_MIN: usize = 64 * 1024;

/// As [`BOUND_BYTES_MIN`], of a link whose peer reads fragments from the sender's memory, unless a conversation
/// shares it: two fragments of the largest size, one that is read and one that waits.
///
/// - measured: with the bound of a socket, fragments of 38 KB on average, and twice the context switches
/// - less: more packets and acknowledgements, each with a wake-up
/// - more: a message now and then waits for the reading of more than 512 KiB, 100 us
/// - command: `chunkperf collective --op all-reduce --size 16MiB --same-host on --one-copy on`
pub const ELSEWHERE_BOUND_BYTES_MIN: usize = 2 * FRAGMENT_BYTES_MAX;

/// Least room that is worth a packet; the longest message of a ring fits.
///
/// - measured: nothing recorded
/// - less: a message of a ring may never leave
/// - more: bulk waits for more acknowledgements
/// - command: `chunkperf stream --size 4KiB`
pub const ROOM_BYTES_MIN: usize = INLINE_BYTES_MAX + PACKET_OVERHEAD_BYTES;

/// Divisor of the bound: the part that must be free before bulk sends again.
///
/// - measured: nothing recorded
/// - less: bulk leaves in fewer, later packets
/// - more: bulk leaves in small packets
/// - command: `chunkperf stream --size 1024`
pub const ROOM_DIVISOR: usize = 8;

/// Parts of the bound: a packet holds at most one, and the peer is asked for an acknowledgement
/// after each.
///
/// - measured: with more, acknowledgements cost a shared medium 1 % of its time
/// - less: a link stands still in between
/// - more: acknowledgements
/// - command: `lab namespaces --mbit 100`
pub const BOUND_PACKETS: usize = 4;

/// Time for which a shortest round trip is believed, and as long again.
///
/// - measured: nothing recorded; BBR has the same
/// - less: the queue runs empty more often
/// - more: a way that became longer is seen later
/// - command: `lab namespaces --mbit 100`
pub const ROUND_TRIP_WINDOW: Duration = Duration::from_secs(10);

/// Number of round trips for which a highest rate is believed, and as many again.
///
/// - measured: nothing recorded
/// - less: a moment of little to send lowers the bound
/// - more: a link that became slow keeps a long queue
/// - command: `lab namespaces --mbit 100`
pub const RATE_ROUNDS: u32 = 4;

/// Shortest round trip that can be measured: the clock is read once a turn of the driver.
///
/// - measured: nothing recorded
/// - less: rates without bound
/// - more: the bound of short ways is too large
/// - command: `chunkperf latency --size 16 --load bulk --lane express --against load-idle`
pub const ROUND_TRIP_MIN: Duration = Duration::from_micros(10);

// Flush.

/// Divisor of a packet: the part that may be left when it counts as full, 1/64.
///
/// - measured: nothing recorded; waiting could gain as much at most
/// - less: packets leave with more room
/// - more: a packet waits for a message that hardly fits
/// - command: `chunkperf stream --size 16 --api many`
pub const FULL_SLACK_DIVISOR: usize = 64;

/// Most yields of the writer while its packet still grows.
///
/// - measured: a yield costs about 0.1 us when nothing else is runnable
/// - less: fewer messages share a packet
/// - more: a busy producer on another thread holds the packet back until its age bound
/// - command: `chunkperf stream --size 16 --threads 2`
pub const GROWTH_YIELDS_MAX: u32 = 64;

/// Default age at which the oldest message of a packet makes it leave, in milliseconds.
///
/// - measured: nothing recorded; tokio's timers step one millisecond
/// - less: impossible with these timers
/// - more: messages of a busy node wait longer
/// - command: `chunkperf stream sweep --rates 10000`
pub const AGE_BOUND_MS_DEFAULT: u64 = 1;

/// Messages of the last packet from which a stream counts as under way, so that a yield gives
/// the core to other threads ...
///
/// - measured: nothing recorded
/// - less: conversations pay for a yield to the system
/// - more: a producer on another thread waits for this core
/// - command: `chunkperf stream --size 16 --threads 2`
pub const STREAM_MESSAGES_MIN: u32 = 64;

/// ... if that packet left less than this long ago.
///
/// - measured: nothing recorded
/// - less, more: as [`STREAM_MESSAGES_MIN`]
/// - command: `chunkperf stream --size 16 --threads 2`
pub const STREAM_GAP: Duration = Duration::from_millis(1);

// Shares.

/// Number of packets of which one begins with the bulk lane while both lanes wait.
///
/// - measured: nothing recorded; bulk keeps a sixteenth of the link
/// - less: express waits behind bulk more often
/// - more: bulk has less of a link that express fills
/// - command: `chunkperf latency --size 16 --load bulk --lane express --against load-idle`
pub const BULK_FIRST_EVERY: u64 = 16;

/// Least share of a channel in a packet, in bytes.
///
/// - measured: nothing recorded
/// - less: many channels cut packets into crumbs
/// - more: a turn of one of many channels is longer than its share
/// - command: `lab slow`
pub const SHARE_BYTES_MIN: usize = 2 * 1024;

/// Bytes that a channel of the system may get before the others that wait: 64 KiB.
///
/// - measured: 64 KiB take 5 ms at 100 Mbit/s
/// - less: the words that the system says at once do not fit one packet
/// - more: the others feel it
/// - command: `chunkperf cluster --nodes 16`
pub const SYSTEM_AHEAD_BYTES: u64 = 64 * 1024;

// Watching.

/// Bytes of a read that shows a peer with much to send.
///
/// - measured: nothing recorded for this number
/// - less: peers with little to say are watched
/// - more: a conversation of large items sleeps
/// - command: `cargo run --release --example echo -- --repeat 9`
pub const MUCH_BYTES: usize = 16 * 1024;

/// Number of looks after a large read. Each is a system call that finds nothing, and takes half a
/// microsecond or so; a sleep takes tens.
///
/// - measured: `echo` with items of 300 words takes a fifth less time for the watch
/// - less: the driver sleeps just before the next bytes
/// - more: looks in vain cost more than the sleep
/// - command: `cargo run --release --example echo -- --repeat 9`
pub const LOOKS_MAX: u32 = 64;

/// Number of sleeps without looks after looks in vain: the first time, and at most. Looks that
/// are always in vain then take a microsecond of each sleep.
///
/// - measured: nothing recorded for these numbers
/// - less: looks in vain cost more
/// - more: a peer that became brisk is slept at for longer
/// - command: `cargo run --release --example echo -- --repeat 9`
pub const SLEEPS: [u32; 2] = [4, 32];

/// Large reads without a message of ours between them, after which the peer alone is talking.
///
/// - measured: a stream of 8 B messages lost a tenth by looks of its receiver
/// - less: a conversation whose item takes several reads is not watched
/// - more: streams are watched for longer
/// - command: `chunkperf stream --size 16 --api many`
pub const ALONE_READS: u32 = 8;

// Reading buffers.

/// Sizes of reading buffers: the first for a link that just woke up, the last for one that
/// streams.
///
/// - measured: beyond 256 KiB a larger one saves less than 1 % of the system calls' cost
/// - less: system calls
/// - more: the buffer leaves the cache
/// - command: `chunkperf stream --size 1024`
pub const READ_BYTES: [usize; 3] = [4 * 1024, 64 * 1024, 256 * 1024];

/// Reads in a row that would have fitted a smaller buffer before a smaller one is used.
///
/// - measured: nothing recorded
/// - less: the size follows every pause of a stream
/// - more: a link that has little to take keeps a large buffer for longer
/// - command: `chunkperf stream --size 1024`
pub const SMALL_READS_MAX: u32 = 64;

/// Divisor of a buffer's size: the part that must be filled for its slices to stay in inboxes.
///
/// - measured: nothing recorded
/// - less: messages are copied that could stay where they are
/// - more: few bytes in an inbox pin a large buffer
/// - command: `chunkperf stream --size 1024`
pub const LENT_FILL_DIVISOR: usize = 4;

/// Buffers of one size that a node keeps.
///
/// - measured: nothing recorded
/// - less: allocations
/// - more: memory of a node that had many busy links
/// - command: `chunkperf idle`
pub const BUFFERS_KEPT_MAX: usize = 8;

// Rings.

/// Smallest ring of a channel, in bytes.
///
/// - measured: nothing recorded
/// - less: the first messages of a channel replace its ring more often
/// - more: memory of channels that say little
/// - command: `chunkperf idle`
pub const RING_BYTES_INITIAL: usize = 1024;

/// Factor by which a full ring grows, up to a full packet of a saturated link.
///
/// - measured: nothing recorded for the factor. A ring of 256 KiB for packets of 128 KiB cost a
///   stream a third of its rate, so a ring larger than a packet is replaced once it is empty.
/// - less: more replacements
/// - more: memory of channels that say little
/// - command: `chunkperf stream --size 16`
pub const RING_GROWTH: usize = 4;

/// Parts of a full ring: the producer wakes the driver after each.
///
/// - measured: nothing recorded
/// - less: the driver of another thread begins late
/// - more: wake-ups
/// - command: `chunkperf stream --size 16 --threads 2`
pub const RING_WAKES: usize = 4;

const _: () = assert!(BOUND_PACKETS * ROOM_BYTES_MIN < BOUND_BYTES_MIN);

#[cfg(test)]
mod tests {
    #[test]
    fn every_number_has_its_reason() {
        let text = include_str!("constants.rs");
        let mut docs = String::new();
        let mut count = 0;
        for line in text.lines() {
            if let Some(doc) = line.strip_prefix("/// ") {
                docs += doc;
                docs.push('\n');
            } else if let Some(constant) = line.strip_prefix("pub const ") {
                for part in ["- measured: ", "- less", "- command: `"] {
                    assert!(docs.contains(part), "{constant} does not say '{part}'");
                }
                assert!(docs.contains("- more: ") || docs.contains("- less, more: "), "{constant}");
                count += 1;
                docs.clear();
            }
        }
        assert!(count > 40, "{count}");
    }
}
