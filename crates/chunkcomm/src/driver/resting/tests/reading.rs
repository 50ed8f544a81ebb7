//! Reads of large messages, and of what is behind them.

use super::{Node, locked};
use crate::driver::staging::Staged;
use crate::driver::taking::{Found, Next};

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
