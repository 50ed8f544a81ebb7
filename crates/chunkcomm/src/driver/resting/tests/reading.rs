//! Reads of large messages, and of what is behind them.

use super::{Comes, Node, locked};
use crate::driver::one_copy::OneCopy;
use crate::driver::staging::Staged;
use crate::driver::taking::{Found, Next};
use crate::error::LinkCause;
use crate::proto::error::ProtocolError;
use crate::proto::packet::{
    ADDRESS_BYTES, AppendRecords, ChannelKind, FLAG_ELSEWHERE, Header, Lane,
};
use crate::transport::PeerMemory;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Waker};

/// Sends a large message, with reads of at most `most` bytes; returns it as it came.
fn pass(from: &mut Node, to: &mut Node, message: &[u8], most: usize) -> Option<Vec<u8>> {
    assert_eq!(from.sender.stage_bytes(&message.to_vec().into()).unwrap(), Staged::Done);
    (0..10_000).find_map(|_| {
        from.settle();
        to.hear(from, most);
        from.hear(to, most);
        taken(to)
    })
}

/// Returns the next large message that has come.
fn taken(to: &Node) -> Option<Vec<u8>> {
    let mut opened = locked(&to.opens.0);
    let receiver = &mut opened.first_mut()?.receiver;
    if !matches!(receiver.next(), Next::Message) {
        return None;
    }
    match receiver.take()? {
        Found::Large(bytes) => Some(bytes),
        _ => None,
    }
}

#[tokio::test]
async fn a_large_message_goes_from_the_connection_straight_to_its_memory() {
    let (mut from, mut to) = (Node::new(true), Node::new(true));
    let message: Vec<u8> = (0..40_000u32).map(|at| at as u8).collect();
    assert_eq!(pass(&mut from, &mut to, &message, 1000).as_ref(), Some(&message));
    // Some bytes come with the head of their packet, and the last ones are too few.
    let direct = to.connection.with(|state| state.direct);
    assert!((30_000..40_000).contains(&direct), "{direct}");
}

#[tokio::test]
async fn behind_the_last_bytes_of_a_large_fragment_the_next_one_goes_straight_to_its_memory() {
    let (mut from, mut to) = (Node::new(true), Node::new(true));
    // The window grows until two messages leave at once.
    for _ in 0..20 {
        assert!(pass(&mut from, &mut to, &[0; 40_000], usize::MAX).is_some());
    }
    // A word is no fragment: what comes next is read to the buffer.
    from.say();
    from.settle();
    to.hear(&from, usize::MAX);
    assert_eq!(taken(&to), None);
    for byte in [1, 2] {
        let message = vec![byte; 25_000];
        assert_eq!(from.sender.stage_bytes(&message.into()).unwrap(), Staged::Done);
    }
    from.settle();
    let packets = from.connection.with(|state| std::mem::take(&mut state.written));
    let ends = packets.windows(99).rposition(|bytes| bytes.iter().all(|byte| *byte == 1)).unwrap();
    to.connection.with(|state| state.direct = 0);
    for part in [&packets[..ends], &packets[ends..]] {
        to.connection.with(|state| state.packets.extend(part));
        to.settle();
    }
    for byte in [1, 2] {
        assert_eq!(taken(&to), Some(vec![byte; 25_000]));
    }
    let direct = to.connection.with(|state| state.direct);
    assert!((24_800..25_000).contains(&direct), "{direct}");
}

#[tokio::test]
async fn a_long_run_stays_in_the_buffer_that_it_was_read_to() {
    let (mut from, mut to) = (Node::new(true), Node::new(true));
    // The window grows until its messages fill a part of a buffer.
    let slice = (0..10_000).find_map(|_| {
        while from.sender.stage_slice(b"word").unwrap() == Staged::Done {}
        from.settle();
        to.hear(&from, usize::MAX);
        let mut slice = None;
        while let Some(opened) = locked(&to.opens.0).first_mut()
            && let Some(found) = opened.receiver.take()
        {
            if let Found::SmallOf(bytes, _) = found {
                slice = Some(bytes.len());
            }
        }
        from.hear(&to, usize::MAX);
        slice
    });
    assert!(slice.is_some_and(|bytes| bytes >= 2048), "{slice:?}");
}

/// Memory that is full of sevens, with this word behind.
struct Sevens([u8; 16]);

impl PeerMemory for Sevens {
    fn read(&self, _: u64, into: &mut [u8], _: u64, word: &mut [u8; 16]) -> io::Result<usize> {
        into.fill(7);
        *word = self.0;
        Ok(into.len() + word.len())
    }
}

/// Returns a node that reads memory with this word, and the first packet of its peer, which opens a channel and
/// has a message in memory.
fn reader_of(word: [u8; 16]) -> (Node, Vec<u8>) {
    let mut node = Node::new(true);
    node.driver.one_copy = OneCopy::reading(Box::new(Sevens(word)), [1; 16]);
    node.hear_much(true);
    node.connection.with(|state| state.comes = Comes::Rest);
    while !node.driver.reader.waits {
        node.poll();
    }
    let mut body = Vec::new();
    body.open(1, Lane::Bulk, ChannelKind::Bytes, 0, "large");
    body.fragment(1, 10_000, 10_000);
    let body_bytes = body.len() as u32 + 10_000;
    let header = Header { body_bytes, flags: FLAG_ELSEWHERE, sequence: 1, ack: 0 };
    (node, [&header.encode()[..], &body, &[0; ADDRESS_BYTES]].concat())
}

/// Lets bytes come without a word to the task that waits, which looks at the connection all the same.
fn arrive(node: &mut Node, bytes: Vec<u8>) {
    node.driver.reader.written_unread = 1 << 20;
    let mut state = locked(&node.connection.0);
    state.packets.extend(bytes);
    (state.comes, state.waiting) = (Comes::Packets(usize::MAX), None);
}

#[tokio::test]
async fn bytes_in_the_peers_memory_are_fetched_though_nothing_wakes_for_them() {
    for one_thread in [true, false] {
        let (mut node, packet) = reader_of([1; 16]);
        node.driver.one_thread = one_thread;
        arrive(&mut node, packet);
        node.settle();
        assert!(!node.driver.reader.fetches());
        assert_eq!(node.driver.endpoint.link.numbers()[2], 1, "the packet came as a whole");
    }
}

#[tokio::test]
async fn behind_memory_that_the_peer_let_go_of_its_last_word_is_heard_and_nothing_else() {
    let (mut node, mut packets) = reader_of([2; 16]);
    let mut last = Vec::new();
    last.gone();
    let header = Header { body_bytes: last.len() as u32, ..Header::default() };
    packets.extend([&header.encode()[..], &last].concat());
    arrive(&mut node, packets);
    let mut context = Context::from_waker(Waker::noop());
    let polled = (0..100).find(|_| Pin::new(&mut node.driver).poll(&mut context).is_ready());
    assert!(polled.is_some(), "the session ends");
    let ended = node.driver.channels.shared.ended().unwrap();
    assert!(matches!(ended.cause(), LinkCause::Forgotten), "{ended}");
    assert_eq!(node.driver.endpoint.link.numbers()[2], 0, "the packet did not come");
}

#[tokio::test]
async fn a_peer_that_was_not_told_of_reading_leaves_nothing_in_its_memory() {
    let (mut node, packet) = reader_of([1; 16]);
    node.driver.one_copy = OneCopy::new(true);
    arrive(&mut node, packet);
    let mut context = Context::from_waker(Waker::noop());
    let polled = (0..100).find(|_| Pin::new(&mut node.driver).poll(&mut context).is_ready());
    assert!(polled.is_some(), "the session ends");
    let ended = node.driver.channels.shared.ended().unwrap();
    assert!(matches!(ended.cause(), LinkCause::Protocol(ProtocolError::Elsewhere)), "{ended}");
}
