//! Costs of a message on its way in and out of a packet, without any socket, each beside the same
//! by hand.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::codec::{decode, encode_into_slice, encode_into_vec};
use chunkcomm::proto::Time;
use chunkcomm::proto::limits::PACKET_BYTES_DEFAULT;
use chunkcomm::proto::message::{next_in_run, prefix_bytes, write_prefix};
use chunkcomm::proto::outbox::{Beside, OpenSpec, Outbox, Staged, View, packet_room};
use chunkcomm::proto::packet::{AppendRecords, ChannelKind, Decoder, Header, Item, Lane};
use chunkcomm::proto::session::Session;
use chunkcomm::proto::tuning::flush::{Gathering, Policy};
use chunkcomm::proto::tuning::without::Without;
use chunkcomm_bench::baseline::gathered::{Batch, Unframer};
use chunkcomm_bench::message::{self, Long, Message, Record};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Bytes of the small message.
const SMALL_BYTES: usize = 16;

/// Number of messages of one full packet.
const MESSAGES: usize = 3_800;

fn stamped<M: Message>(bytes: usize) -> M {
    let mut message = M::with_size(bytes);
    message.stamp(7);
    message
}

/// Measures encoding and decoding one message, against copying as many bytes.
fn encode(c: &mut Criterion) {
    let (record, long): (Record, Long) = (stamped(SMALL_BYTES), stamped(1024));
    let mut group = c.benchmark_group("encode");
    let mut out = Vec::with_capacity(4096);
    group.bench_function("16 B", |b| {
        b.iter(|| {
            out.clear();
            encode_into_vec(black_box(&record), &mut out).expect("a record encodes");
        });
    });
    group.bench_function("1 KiB", |b| {
        b.iter(|| {
            out.clear();
            encode_into_vec(black_box(&long), &mut out).expect("a long message encodes");
        });
    });
    for bytes in [SMALL_BYTES, 1024] {
        let source = vec![7_u8; bytes];
        group.bench_function(format!("by hand {bytes} B"), |b| {
            b.iter(|| {
                out.clear();
                out.extend_from_slice(black_box(&source));
            });
        });
    }
    group.finish();
}

fn decoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    let (mut small, mut large) = (Vec::new(), Vec::new());
    encode_into_vec(&stamped::<Record>(SMALL_BYTES), &mut small).expect("a record encodes");
    encode_into_vec(&stamped::<Long>(1024), &mut large).expect("a long message encodes");
    group.bench_function("16 B", |b| b.iter(|| decode::<Record>(black_box(&small))));
    group.bench_function("1 KiB", |b| b.iter(|| decode::<Long>(black_box(&large))));
    group.bench_function("by hand 1024 B", |b| b.iter(|| black_box(&large).clone()));
    group.finish();
}

/// Returns messages as a channel stages them: each behind its prefix.
fn staged_messages() -> Vec<u8> {
    let mut bytes = vec![0; MESSAGES * (prefix_bytes(SMALL_BYTES) + SMALL_BYTES)];
    stage(&mut bytes);
    bytes
}

fn stage(bytes: &mut [u8]) {
    let prefix = prefix_bytes(SMALL_BYTES);
    let mut record = Record::with_size(SMALL_BYTES);
    for (sequence, slot) in bytes.chunks_exact_mut(prefix + SMALL_BYTES).enumerate() {
        record.stamp(sequence as u64);
        write_prefix(SMALL_BYTES, slot);
        encode_into_slice(&record, &mut slot[prefix..]).expect("a record encodes");
    }
}

/// Messages that a channel has staged, as its ring presents them.
struct Ring(Vec<u8>);

impl Staged for Ring {
    fn view(&mut self, _channel: u32) -> View<'_> {
        View { front: &self.0, back: &[], messages: MESSAGES as u32, large: false }
    }

    fn consume(&mut self, _channel: u32, _bytes: usize, _messages: u32) {}

    fn take_beside(&mut self, _channel: u32) -> Beside {
        Beside::Large(Bytes::new())
    }
}

/// Channels that have staged nothing.
struct Nothing;

impl Staged for Nothing {
    fn view(&mut self, _channel: u32) -> View<'_> {
        View { front: &[], back: &[], messages: 0, large: false }
    }

    fn consume(&mut self, _channel: u32, _bytes: usize, _messages: u32) {}

    fn take_beside(&mut self, _channel: u32) -> Beside {
        Beside::Large(Bytes::new())
    }
}

/// Opens a channel that has all the credit it can use.
fn open(outbox: &mut Outbox) -> u32 {
    let spec = OpenSpec {
        lane: Lane::Bulk,
        system: false,
        kind: ChannelKind::Typed,
        fingerprint: 1,
        stream: None,
        backlog: None,
        name: "bench".to_owned(),
    };
    let channel = outbox.open(spec, Time(0));
    outbox.handle_credit(channel, u64::MAX);
    channel
}

/// Measures the questions that are asked for each packet, and the packet, beside channels that are
/// open and idle.
fn idle_channels(c: &mut Criterion) {
    let mut group = c.benchmark_group("packet of one channel");
    let mut ring = Ring(staged_messages());
    let bytes_max = packet_room(PACKET_BYTES_DEFAULT);
    let mut packet = Vec::with_capacity(PACKET_BYTES_DEFAULT);
    for idle in [0, 10_000] {
        let gathering = Gathering::new(Policy::Chunked, Duration::from_millis(1));
        let mut outbox = Outbox::new(gathering, bytes_max, u64::MAX, Without::default());
        let mut session = Session::new(true, usize::MAX);
        for _ in 0..idle {
            open(&mut outbox);
        }
        let channel = open(&mut outbox);
        while !outbox.is_idle() {
            packet.clear();
            outbox.fill(&mut Nothing, &mut session, &mut packet, bytes_max, Time(2));
        }
        group.bench_function(format!("beside {idle} idle ones"), |b| {
            b.iter(|| {
                packet.clear();
                outbox.staged(channel, Time(1));
                let verdict = outbox.decide(&mut ring, Time(2));
                let filled =
                    outbox.fill(&mut ring, &mut session, &mut packet, bytes_max, Time(2)).messages;
                (verdict, filled, outbox.waits_for_credit(), outbox.has_ended())
            });
        });
    }
    group.finish();
}

/// Measures staging messages and filling a packet from them, against batching as many by hand.
fn outbox(c: &mut Criterion) {
    let mut group = c.benchmark_group("outbox");
    group.throughput(Throughput::Elements(MESSAGES as u64));
    let mut ring = Ring(staged_messages());
    let gathering = Gathering::new(Policy::Chunked, Duration::from_millis(1));
    let bytes_max = packet_room(PACKET_BYTES_DEFAULT);
    let mut outbox = Outbox::new(gathering, bytes_max, u64::MAX, Without::default());
    let mut session = Session::new(true, usize::MAX);
    let channel = open(&mut outbox);
    let mut packet = Vec::with_capacity(PACKET_BYTES_DEFAULT);
    group.bench_function("append and fill", |b| {
        b.iter(|| {
            stage(&mut ring.0);
            packet.clear();
            outbox.staged(channel, Time(1));
            outbox.fill(&mut ring, &mut session, &mut packet, bytes_max, Time(2)).messages
        });
    });
    group.bench_function("fill", |b| {
        b.iter(|| {
            packet.clear();
            outbox.staged(channel, Time(1));
            outbox.fill(&mut ring, &mut session, &mut packet, bytes_max, Time(2)).messages
        });
    });
    let mut batch = Batch::for_messages_of(SMALL_BYTES);
    let mut bytes = [0; SMALL_BYTES];
    group.bench_function("by hand: batch as many", |b| {
        b.iter(|| {
            for sequence in 0..MESSAGES as u64 {
                message::stamp(&mut bytes, sequence);
                if !batch.fits(bytes.len()) {
                    black_box(batch.take());
                }
                batch.append(&bytes);
            }
            batch.take().len()
        });
    });
    group.finish();
}

/// Measures splitting a full packet into verified messages, against parsing as many by hand.
fn packet_split(c: &mut Criterion) {
    let mut group = c.benchmark_group("packet split");
    group.throughput(Throughput::Elements(MESSAGES as u64));
    let run = staged_messages();
    let mut body = Vec::new();
    body.run(1, run.len() as u32, MESSAGES as u32);
    body.extend_from_slice(&run);
    let header = Header { body_bytes: body.len() as u32, sequence: 1, ..Header::default() };
    let mut packet = header.encode().to_vec();
    packet.extend_from_slice(&body);
    group.bench_function("decode every message", |b| b.iter(|| split(black_box(&packet))));
    let mut batch = Batch::for_messages_of(4 * MESSAGES * SMALL_BYTES);
    let mut bytes = [0; SMALL_BYTES];
    for sequence in 0..MESSAGES as u64 {
        message::stamp(&mut bytes, sequence);
        batch.append(&bytes);
    }
    let framed = batch.take().to_vec();
    let mut unframer = Unframer::for_messages_of(SMALL_BYTES);
    group.bench_function("by hand: parse as many", |b| {
        b.iter(|| {
            let mut sequence = 0;
            let mut rest = &framed[..];
            while !rest.is_empty() {
                let each = |message: &[u8]| {
                    assert!(message::verify(message, sequence));
                    sequence += 1;
                    Ok(())
                };
                unframer.read(&mut rest, each).expect("whole messages");
            }
            sequence
        });
    });
    group.finish();
}

fn split(packet: &[u8]) -> u64 {
    let mut decoder = Decoder::new(PACKET_BYTES_DEFAULT);
    let (mut at, mut sequence) = (0, 0);
    while let Some(item) = decoder.next(packet, &mut at).expect("a packet") {
        let Item::Run { bytes, .. } = item else { continue };
        let mut start = 0;
        while let Some(range) = next_in_run(bytes, start) {
            start = range.end;
            let record: Record = decode(&bytes[range]).expect("a record");
            assert!(record.verify(sequence, SMALL_BYTES));
            sequence += 1;
        }
    }
    sequence
}

criterion_group! {
    name = micro;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = encode, decoding, outbox, idle_channels, packet_split
}
criterion_main!(micro);
