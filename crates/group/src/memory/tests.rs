use super::*;
use chunkcomm::host;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Writes `range`, in elements, with each element's index.
fn fill(share: &Share<u32>, range: Range<usize>) {
    let mut lease = share.lease(range.start * 4..range.end * 4).expect("it is free");
    for (index, element) in range.zip(lease.bytes_mut().chunks_mut(4)) {
        element.copy_from_slice(&(index as u32).to_ne_bytes());
    }
    lease.commit();
}

fn is_pending(future: impl Future) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[test]
fn readers_see_what_is_done_and_no_more() {
    let owner = share(vec![9_u32; 10]);
    fill(owner.share(), 4..6);
    assert_eq!(owner.elements(4..6), Some(&[4, 5][..]));
    assert_eq!((owner.elements(3..5), owner.elements(5..7)), (None, None));
    assert!(owner.prefix().is_empty() && owner.share().view(15..20).is_none());
    assert_eq!(owner.share().view(16..20).expect("it is done"), 4_u32.to_ne_bytes()[..]);
    fill(owner.share(), 0..4);
    assert_eq!(owner.prefix(), [0, 1, 2, 3, 4, 5]);
    assert_eq!((owner.elements(5..11), owner.elements(10..10)), (None, Some(&[][..])));
}

#[test]
fn half_an_element_is_not_shown() {
    let owner = share(vec![0_u32; 2]);
    let mut lease = owner.share().lease(0..8).expect("it is free");
    lease.bytes_mut()[..6].copy_from_slice(&[1, 1, 1, 1, 2, 2]);
    lease.advance(6);
    assert_eq!(owner.prefix(), [0x0101_0101]);
    assert_eq!(lease.bytes().len(), 2);
}

#[test]
fn a_byte_has_one_writer_and_is_free_again_when_it_is_dropped() {
    let owner = share(vec![0_u32; 4]);
    let mut lease = owner.share().lease(4..12).expect("it is free");
    assert_eq!(owner.share().lease(8..16).err(), Some(Taken::Out(8..12)));
    let rest = lease.split_off(4);
    drop(lease);
    let again = owner.share().lease(0..8).expect("it is free again");
    rest.commit();
    assert_eq!(owner.share().lease(8..16).err(), Some(Taken::Done(8..12)));
    again.commit();
    assert_eq!(owner.share().lease(12..20).err(), Some(Taken::Outside));
}

#[test]
fn bytes_outlive_the_owner() {
    let owner = share(vec![0_u32; 8]);
    fill(owner.share(), 0..8);
    let bytes = owner.share().view(4..12).expect("it is done");
    drop(owner);
    assert_eq!(bytes[..4], 1_u32.to_ne_bytes());
    assert_eq!(bytes.slice(4..), 2_u32.to_ne_bytes()[..]);
}

#[test]
fn a_round_begins_when_nobody_reads_the_last() {
    let mut owner = share(vec![0_u32; 4]);
    fill(owner.share(), 0..3);
    assert!(is_pending(owner.reset(false)), "one element is missing");
    fill(owner.share(), 3..4);
    let mut carrier = owner.share().carrier();
    let view = owner.share().view(0..4).expect("it is done").slice(1..2);
    assert!(is_pending(owner.reset(false)));
    carrier.rest();
    assert!(is_pending(owner.reset(false)), "a view is left");
    drop(view);
    assert!(!is_pending(owner.reset(false)));
    assert_eq!(owner.share().state().round, 2);
    assert!(owner.prefix().is_empty());
    fill(owner.share(), 0..4);
    assert!(is_pending(owner.reset(false)), "the carrier has not seen the second round");
}

#[test]
fn the_buffer_comes_back_when_nobody_holds_it() {
    let mut buffer = Vec::with_capacity(100);
    buffer.extend(0..20_u32);
    let address = buffer.as_ptr();
    let owner = share(buffer);
    fill(owner.share(), 0..20);
    let stays = owner.share().clone();
    let (carrier, bytes) = (owner.share().carrier(), owner.share().view(0..40).expect("done"));
    let mut back = Box::pin(owner.into_vec());
    let mut poll = || back.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    drop(carrier);
    assert!(poll().is_pending());
    drop(bytes);
    let Poll::Ready(buffer) = poll() else { panic!("nobody uses the memory") };
    assert_eq!((buffer.as_ptr(), buffer.capacity()), (address, 100));
    assert!(buffer.into_iter().eq(0..20));
    // A handle that stays gives nothing out.
    assert_eq!(stays.lease(0..4).err(), Some(Taken::Outside));
    assert!(stays.view(0..4).is_none() && stays.lease(0..0).expect("none").bytes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_buffer_that_is_read_for_long_comes_back_as_a_copy() {
    let owner = share(vec![9_u32; 20]);
    fill(owner.share(), 0..10);
    let address = owner.elements(0..1).expect("it is done").as_ptr().addr();
    let (view, lease) = (owner.share().view(0..40).expect("done"), owner.share().lease(40..44));
    let stays = owner.share().clone();
    let releasing = tokio::spawn(async move {
        host::sleep(Duration::from_secs(3)).await;
        drop(lease);
    });
    let copy = owner.into_vec_or_copy(Duration::from_secs(1)).await;
    assert!(releasing.await.is_ok(), "what is written is waited for");
    assert!(copy[..10].iter().copied().eq(0..10) && copy[10..] == [9; 10]);
    assert!(copy.as_ptr().addr() != address && view[36..] == 9_u32.to_ne_bytes());
    assert!(stays.view(0..4).is_none() && stays.lease(0..4).is_err());
    // Without a reader it is the buffer itself.
    let owner = share(copy);
    let address = owner.elements(0..0).expect("none").as_ptr().addr();
    let same = owner.into_vec_or_copy(Duration::ZERO).await;
    assert_eq!(same.as_ptr().addr(), address);
}

#[test]
fn no_elements_are_whole_at_once() {
    let owner = share(Vec::<f64>::new());
    assert!(owner.share().state().extents().is_whole() && owner.prefix().is_empty());
    assert!(owner.share().view(0..0).expect("nothing is missing").is_empty());
}

#[test]
fn a_sleeping_thread_wakes_or_gives_up() {
    let owner = share(vec![0_u32; 4]);
    let whole = |state: &mut State| state.extents().is_whole().then_some(());
    let soon = Some(Duration::from_millis(1));
    assert_eq!(owner.share().until_blocking(soon, whole), None);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| owner.share().until_blocking(None, whole));
        while owner.share().state().sleepers == 0 {
            std::thread::yield_now();
        }
        fill(owner.share(), 0..2);
        fill(owner.share(), 2..4);
        assert_eq!(sleeper.join().expect("it does not panic"), Some(()));
    });
}

/// Several threads write parts in a scattered order while others read what is done.
#[test]
fn threads_read_while_others_write() {
    const PARTS: usize = 600;
    const PART: usize = 61;
    let owner = share(vec![u32::MAX; PARTS * PART]);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let share = owner.share().clone();
            scope.spawn(move || {
                for part in (0..PARTS).filter(|part| part % 3 == thread) {
                    // 7 and 600 have no common factor: each part comes once.
                    let part = part * 7 % PARTS;
                    fill(&share, part * PART..(part + 1) * PART);
                }
            });
        }
        let check = || {
            let (mut cursor, mut seen) = (Cursor::default(), 0);
            while seen < owner.len() {
                match owner.share().next_done(&mut cursor, 1) {
                    Some(range) => {
                        let indices = range.start / 4..range.end / 4;
                        let part = owner.elements(indices.clone()).expect("the journal has it");
                        assert!(part.iter().copied().eq(indices.map(|index| index as u32)));
                        seen += part.len();
                    }
                    None => std::thread::yield_now(),
                }
            }
        };
        scope.spawn(check);
        scope.spawn(check);
    });
    assert_eq!(owner.prefix().len(), owner.len());
}

#[tokio::test]
async fn corrections_wait_until_no_view_is_left() {
    let mut owner = share(vec![0_u32; 4]);
    fill(owner.share(), 0..4);
    let later = Bytes::copy_from_slice(&[7; 5]);
    owner.share().state().corrections.note(4, later);
    let view = owner.share().view(4..8).expect("it is done");
    assert!(is_pending(owner.correct()));
    assert_eq!(view, 1_u32.to_ne_bytes()[..]);
    drop(view);
    owner.correct().await;
    assert_eq!(owner.prefix()[1], 0x0707_0707);
    assert_eq!(owner.prefix()[3], 3);
    // Once: a later owner of the vector keeps what it writes.
    owner.share().state().corrections.note(0, Bytes::from_static(&[1; 4]));
    assert_eq!(owner.into_vec().await[..2], [0x0101_0101, 0x0707_0707]);
}
