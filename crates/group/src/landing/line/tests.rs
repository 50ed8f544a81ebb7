use super::*;
use crate::memory::{Owner, share};
use crate::proto::frame::{HEADER_BYTES, Header};

/// A transfer of four elements that is due as number `number` of call 7 of rank 2.
struct Waiting {
    owner: Owner<u16>,
    fate: watch::Receiver<LandingFate>,
    interest: Arc<Interest>,
}

fn waiting(expected: &Arc<Expected>, number: u32) -> Waiting {
    let owner = share(vec![0; 4]);
    let memory = (owner.share().clone(), Sections::whole(8));
    let origin = Origin { peer: "far".to_owned(), channel: "lines".to_owned() };
    let (sender, fate) = watch::channel(None);
    let due = Due { from: 2, call: 7, number };
    let interest = expect((expected, due), origin, memory, None, sender, &Handle::current());
    Waiting { owner, fate, interest }
}

fn line(expected: &Arc<Expected>) -> LineLanding {
    LineLanding::new(2, expected, Arc::default())
}

fn head(number: u32, bytes: u64) -> [u8; HEAD_BYTES] {
    Head { call: 7, number, bytes }.encode()
}

/// Returns the bytes of a transfer, all its elements being this one.
fn transfer(number: u32, element: u16) -> Vec<u8> {
    let header: [u8; HEADER_BYTES] = Header::Increment { round: 1, offset: 0, bytes: 8 }.encode();
    let elements = [element; 4].map(u16::to_ne_bytes);
    [&head(number, 8)[..], &header[..], elements.as_flattened()].concat()
}

/// Puts bytes on a line, at most `step` at a time; returns the number that found room.
fn put(line: &mut LineLanding, bytes: &[u8], step: usize) -> usize {
    let mut put = 0;
    while put < bytes.len() {
        let room = line.room();
        let count = room.len().min(step).min(bytes.len() - put);
        if count == 0 {
            break;
        }
        room[..count].copy_from_slice(&bytes[put..put + count]);
        line.advance(count);
        put += count;
    }
    put
}

#[tokio::test]
async fn a_line_brings_one_transfer_after_the_other_however_the_bytes_are_cut() {
    for step in [1, 7, 1000] {
        let expected = Arc::new(Expected::default());
        let [first, second] = [0, 1].map(|number| waiting(&expected, number));
        let mut line = line(&expected);
        let bytes = [transfer(1, 11), transfer(0, 10)].concat();
        assert_eq!(put(&mut line, &bytes, step), bytes.len());
        for (it, element) in [(&first, 10), (&second, 11)] {
            assert!(matches!(*it.fate.borrow(), Some(Ok(()))), "{step}");
            assert_eq!(it.owner.elements(0..4), Some(&[element; 4][..]));
        }
        // The line waits for the next call.
        drop((first.interest, second.interest));
        let third = waiting(&expected, 2);
        assert_eq!(put(&mut line, &transfer(2, 12), step), transfer(2, 12).len());
        assert!(matches!(*third.fate.borrow(), Some(Ok(()))));
        Box::new(line).end(Ok(()));
    }
}

#[tokio::test]
async fn a_line_ends_at_a_word_that_names_no_transfer() {
    let expected = Arc::new(Expected::default());
    let due = waiting(&expected, 0);
    for word in [[0; HEAD_BYTES], head(1, 8)] {
        let mut line = line(&expected);
        put(&mut line, &word, 100);
        assert!(line.room().is_empty(), "{word:?}");
    }
    assert!(due.fate.borrow().is_none(), "another line may bring it");
}

#[tokio::test]
async fn a_transfer_of_another_length_is_an_error() {
    let expected = Arc::new(Expected::default());
    let due = waiting(&expected, 0);
    let mut line = line(&expected);
    put(&mut line, &head(0, 10), 100);
    assert!(line.room().is_empty());
    let fate = due.fate.borrow().clone();
    let Some(Err(DeltaRecvError::Frame { fault, .. })) = fate else { panic!("{fate:?}") };
    assert_eq!(fault, DeltaFault::Outside { offset: 0, bytes: 10 });
}

#[tokio::test]
async fn a_transfer_that_nobody_waits_for_does_not_land() {
    let expected = Arc::new(Expected::default());
    let Waiting { owner, fate, interest } = waiting(&expected, 0);
    drop(interest);
    assert!(expected.all().is_empty() && matches!(*fate.borrow(), Some(Err(_))));
    let mut line = line(&expected);
    put(&mut line, &head(0, 8), 100);
    assert!(line.room().is_empty());
    // One that has begun stops.
    let begun = waiting(&expected, 1);
    let mut line = self::line(&expected);
    put(&mut line, &head(1, 8), 100);
    drop(begun.interest);
    assert!(line.room().is_empty());
    drop(owner);
}

#[tokio::test]
async fn the_end_of_a_line_is_that_of_the_transfer_that_it_brings() {
    let expected = Arc::new(Expected::default());
    let [first, second] = [0, 1].map(|number| waiting(&expected, number));
    let mut line = line(&expected);
    let bytes = transfer(0, 1);
    put(&mut line, &bytes[..bytes.len() - 1], 100);
    Box::new(line).end(Ok(()));
    let fate = first.fate.borrow().clone();
    let Some(Err(DeltaRecvError::Ended { landed_bytes, length_bytes: 8, .. })) = fate else {
        panic!("{fate:?}")
    };
    assert_eq!(landed_bytes, 6, "half an element has not landed");
    assert!(second.fate.borrow().is_none());
}
