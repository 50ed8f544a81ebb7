use std::task::{Context, Poll, Waker};

use super::*;

fn fill<T: Pod + From<u16>>(writer: &mut Writer<T>, range: Range<usize>) {
    for (index, element) in writer.elements_mut(range.clone()).iter_mut().enumerate() {
        *element = T::from((range.start + index) as u16);
    }
    writer.publish(range.end * size_of::<T>());
}

#[test]
fn readers_see_what_is_published_and_no_more() {
    let (mut writer, reader) = share(vec![0_u32; 10]);
    assert_eq!((reader.len(), reader.len_bytes(), reader.published()), (10, 40, 0));
    writer.elements_mut(0..4).copy_from_slice(&[1, 2, 3, 4]);
    assert_eq!(reader.elements(), [0_u32; 0]);
    writer.publish(16);
    assert_eq!(reader.elements(), [1, 2, 3, 4]);
    assert_eq!(writer.rest_mut().len(), 24);
    assert_eq!(&reader.bytes(4..6)[..], &2_u32.to_ne_bytes()[..2]);
    assert!(!reader.is_whole());
}

#[test]
fn half_an_element_is_not_shown() {
    let (mut writer, reader) = share(vec![0_u32; 2]);
    writer.rest_mut()[..6].copy_from_slice(&[1, 1, 1, 1, 2, 2]);
    writer.publish(6);
    assert_eq!(reader.elements(), [0x0101_0101]);
    assert_eq!(reader.bytes(4..6), [2, 2][..]);
    assert_eq!(writer.rest_mut().len(), 2);
}

#[test]
fn bytes_outlive_writer_and_reader() {
    let (mut writer, reader) = share(vec![0_u64; 8]);
    fill_u64(&mut writer);
    let bytes = reader.bytes(8..24);
    drop((writer, reader));
    assert_eq!(bytes[..8], 1_u64.to_ne_bytes());
    assert_eq!(bytes.slice(8..), 2_u64.to_ne_bytes()[..]);
}

fn fill_u64(writer: &mut Writer<u64>) {
    fill(writer, 0..8);
}

#[test]
#[should_panic(expected = "assertion")]
fn published_elements_are_not_handed_out() {
    let (mut writer, _reader) = share(vec![0_u8; 4]);
    writer.publish(2);
    let _ = writer.elements_mut(1..3);
}

#[test]
#[should_panic(expected = "assertion")]
fn unpublished_bytes_are_not_shown() {
    let (_writer, reader) = share(vec![0_u8; 4]);
    let _ = reader.bytes(0..1);
}

#[test]
#[should_panic(expected = "assertion")]
fn what_is_published_stays_so() {
    let (mut writer, _reader) = share(vec![0_u8; 4]);
    writer.publish(2);
    writer.publish(1);
}

#[test]
fn the_buffer_comes_back_when_nobody_holds_it() {
    let mut buffer = Vec::with_capacity(100);
    buffer.extend(0..20_u16);
    let address = buffer.as_ptr();
    let (mut writer, reader) = share(buffer);
    writer.publish(40);
    let bytes = reader.bytes(0..40);
    let mut back = Box::pin(reader.into_buffer());
    let mut poll = || back.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    drop(writer);
    assert!(poll().is_pending());
    let slice = bytes.slice(3..5);
    drop(bytes);
    assert!(poll().is_pending());
    drop(slice);
    let Poll::Ready(buffer) = poll() else { panic!("nobody holds the memory") };
    assert_eq!((buffer.as_ptr(), buffer.capacity()), (address, 100));
    assert!(buffer.into_iter().eq(0..20));
}

#[test]
fn no_elements_are_whole_at_once() {
    let (mut writer, reader) = share(Vec::<f64>::new());
    assert!(reader.is_whole() && reader.elements().is_empty());
    assert!(writer.rest_mut().is_empty() && writer.elements_mut(0..0).is_empty());
    assert!(reader.bytes(0..0).is_empty());
}

#[test]
fn threads_read_while_one_writes() {
    const LEN: usize = 40_000;
    let (mut writer, reader) = share(vec![0_u64; LEN]);
    let check = |reader: Reader<u64>| {
        let mut seen = 0;
        while seen < LEN {
            let elements = reader.elements();
            assert!(elements[seen..].iter().zip(seen..).all(|(e, i)| *e == i as u64 + 1));
            if elements.len() > seen {
                let bytes = reader.bytes(seen * 8..elements.len() * 8);
                assert_eq!(bytes[..8], (seen as u64 + 1).to_ne_bytes());
            }
            seen = elements.len();
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let reader = reader.clone();
            scope.spawn(move || check(reader));
        }
        scope.spawn(move || {
            let mut start = 0;
            while start < LEN {
                let end = (start + 1 + start % 977).min(LEN);
                let part = writer.elements_mut(start..end);
                part.iter_mut().zip(start..).for_each(|(e, i)| *e = i as u64 + 1);
                writer.publish(end * 8);
                start = end;
            }
        });
    });
    assert!(reader.is_whole());
}
