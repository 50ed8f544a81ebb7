use super::*;
use crate::driver::keeping::Stream;
use crate::driver::logging::Logger;
use crate::driver::mail::LinkShared;
use crate::driver::staging::{Settling, TxEnd, TxShared};
use crate::driver::wakers::thread_waker;
use crate::error::SendError;
use crate::proto::message::{TAG_LARGE, prefix_bytes, write_prefix};
use chunkcomm_testkit::Scratch;
use proptest::prelude::*;
use std::task::Context;

fn open(directory: &Path) -> Result<(Log, Recovered), LogError> {
    Log::open(directory, &identity(), Fsync::Never, 7)
}

fn identity() -> Identity {
    Identity { channel: "events".to_owned(), fingerprint: 3 }
}

/// Returns messages as they are staged; those above 300 bytes are large ones.
fn staged(messages: &[Vec<u8>]) -> (Vec<u8>, Vec<Bytes>) {
    let (mut staged, mut large) = (Vec::new(), Vec::new());
    for message in messages {
        if message.len() > 300 {
            staged.push(TAG_LARGE);
            large.push(Bytes::copy_from_slice(message));
        } else {
            let mut prefix = [0; 5];
            write_prefix(message.len(), &mut prefix);
            staged.extend(&prefix[..prefix_bytes(message.len())]);
            staged.extend(message);
        }
    }
    (staged, large)
}

fn append(log: &mut Log, messages: &[Vec<u8>], settled: u64) {
    let (bytes, large) = staged(messages);
    let (front, back) = bytes.split_at(bytes.len() / 3);
    log.append((front, back, messages.len() as u32), &large, settled).unwrap();
}

/// Returns the unsettled messages of a log.
fn messages(recovered: &Recovered) -> Vec<Vec<u8>> {
    let (mut found, mut large) = (Vec::new(), recovered.large.iter());
    for (staged, count) in &recovered.staged {
        let mut rest = &staged[..];
        for _ in 0..*count {
            let walk = crate::proto::message::walk(rest, &[], usize::MAX, 1);
            if walk.at_large {
                found.push(large.next().unwrap().to_vec());
                rest = &rest[1..];
            } else {
                let prefix = match rest[0] {
                    0..=0xF9 => 1,
                    _ => 3,
                };
                found.push(rest[prefix..walk.bytes].to_vec());
                rest = &rest[walk.bytes..];
            }
        }
        assert!(rest.is_empty());
    }
    assert!(large.next().is_none());
    found
}

fn message(number: u64) -> Vec<u8> {
    vec![number as u8; (number as usize * 37) % 400]
}

proptest! {
    /// After any appends and settlements, and with the last file cut anywhere: all messages behind
    /// the settled ones are there, except those of the record that was cut.
    #[test]
    fn what_was_stored_is_found_again(
        batches in prop::collection::vec((0u64..20, 0u64..25), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let directory = Scratch::new("log");
        let (mut log, nothing) = open(&directory).unwrap();
        prop_assert_eq!((nothing.stream, nothing.settled, nothing.next()), (7, 0, 0));
        let (mut next, mut settled, mut ends) = (0, 0, vec![(log.file.metadata().unwrap().len(), 0, 0)]);
        for (count, more_settled) in batches {
            settled = (settled + more_settled).min(next);
            let batch: Vec<Vec<u8>> = (next..next + count).map(message).collect();
            if count == 0 { log.mark(settled).unwrap() } else { append(&mut log, &batch, settled) }
            next += count;
            ends.push((log.file.metadata().unwrap().len(), settled, next));
        }
        drop(log);
        let file = segment(&directory, 0);
        let begin = ends[0].0;
        let whole = std::fs::read(&file).unwrap();
        let length = begin + cut.index((whole.len() as u64 - begin + 1) as usize) as u64;
        std::fs::write(&file, &whole[..length as usize]).unwrap();
        let &(_, settled, next) = ends.iter().rev().find(|(end, ..)| *end <= length).unwrap();
        for _ in 0..2 {
            let (mut log, found) = open(&directory).unwrap();
            prop_assert_eq!((found.stream, found.settled, found.next()), (7, settled, next));
            prop_assert_eq!(messages(&found), (settled..next).map(message).collect::<Vec<_>>());
            // The log goes on behind these messages.
            append(&mut log, &[message(next)], settled);
            drop(log);
            std::fs::write(&file, &whole[..length as usize]).unwrap();
        }
    }

    /// A changed byte before the last record is an error; nothing is changed.
    #[test]
    fn damage_is_an_error(at in any::<prop::sample::Index>(), bit in 0u8..8, synced in any::<bool>()) {
        let directory = Scratch::new("log");
        let (mut log, _) = open(&directory).unwrap();
        if synced {
            log.fsync = Fsync::Always;
        }
        for number in 0..20 {
            append(&mut log, &[message(number)], 0);
        }
        let end = log.file.metadata().unwrap().len();
        log.finish(0).unwrap();
        drop(log);
        let file = segment(&directory, 0);
        let mut bytes = std::fs::read(&file).unwrap();
        let at = at.index(end as usize);
        bytes[at] ^= 1 << bit;
        std::fs::write(&file, &bytes).unwrap();
        let Err(error) = open(&directory) else { panic!("byte {at} of {end} is damaged") };
        prop_assert!(matches!(error, LogError::Damaged { .. }), "{}", error);
        prop_assert_eq!(std::fs::read(&file).unwrap(), bytes);
    }
}

#[test]
fn records_that_were_being_written_are_cut_off_whatever_is_there_of_them() {
    let directory = Scratch::new("log");
    let (mut log, _) = open(&directory).unwrap();
    log.fsync = Fsync::Always;
    for number in 0..5 {
        append(&mut log, &[message(number)], 0);
    }
    let synced = log.file_bytes as usize;
    // Neither the mark nor the record behind it was made permanent.
    log.mark(3).unwrap();
    let behind = log.file_bytes as usize;
    append(&mut log, &[message(5)], 3);
    drop(log);
    let file = segment(&directory, 0);
    let whole = std::fs::read(&file).unwrap();
    for (broken, settled, next) in [(synced + 1, 0, 5), (behind + 1, 3, 5), (whole.len() - 1, 3, 5)]
    {
        let mut bytes = whole.clone();
        bytes[broken] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        let (log, found) = open(&directory).unwrap();
        assert_eq!((found.settled, found.next()), (settled, next), "byte {broken}");
        assert!(log.cut[0].contains("bytes are cut off"), "{:?}", log.cut);
    }
}

#[test]
fn segments_are_begun_and_removed() {
    let directory = Scratch::new("log");
    let (mut log, _) = open(&directory).unwrap();
    for number in 0..10 {
        append(&mut log, &[message(number)], 0);
        log.file_bytes = SEGMENT_BYTES;
    }
    log.mark(4).unwrap();
    assert_eq!(recovery::segments(&directory).unwrap().first(), Some(&4));
    drop(log);
    let (mut log, found) = open(&directory).unwrap();
    assert_eq!((found.settled, found.next()), (4, 10));
    assert_eq!(messages(&found), (4..10).map(message).collect::<Vec<_>>());
    log.finish(10).unwrap();
    drop(log);
    let (mut log, found) = open(&directory).unwrap();
    assert_eq!((found.stream, found.settled, found.next()), (7, 10, 10));
    append(&mut log, &[message(10)], 10);
    drop(log);
    // The head of a new segment was being written, or a crash of the machine left zeros.
    for (bytes, said) in [(vec![b'c'; 20], 1), (vec![0; 79 * 1024], 1), (vec![], 0)] {
        std::fs::write(segment(&directory, 11), &bytes).unwrap();
        let (log, found) = open(&directory).unwrap();
        assert_eq!((found.settled, found.next()), (10, 11));
        assert!(!segment(&directory, 11).exists());
        let words = format!("its {} bytes are removed", bytes.len());
        assert_eq!(log.cut.iter().filter(|cut| cut.contains(&words)).count(), said, "{words}");
    }
    // A segment that is missing.
    let (mut log, _) = open(&directory).unwrap();
    for number in 11..14 {
        log.file_bytes = SEGMENT_BYTES;
        append(&mut log, &[message(number)], 0);
    }
    drop(log);
    std::fs::remove_file(segment(&directory, 12)).unwrap();
    let Err(error) = open(&directory) else { panic!("it is missing") };
    assert!(matches!(error, LogError::Damaged { .. }), "{error}");
}

#[test]
fn a_log_belongs_to_one_sender_and_one_type() {
    let directory = Scratch::new("log");
    let (log, _) = open(&directory).unwrap();
    let Err(error) = open(&directory) else { panic!("it is open") };
    assert!(matches!(error, LogError::InUse { .. }), "{error}");
    // As a child of this process has it for a moment.
    let _inherited = log.lock.try_clone().unwrap();
    drop(log);
    for other in [
        Identity { fingerprint: 4, ..identity() },
        Identity { channel: "others".to_owned(), ..identity() },
    ] {
        let Err(error) = Log::open(&directory, &other, Fsync::Never, 7) else {
            panic!("it is another's")
        };
        assert!(error.to_string().contains("channel \"events\""), "{error}");
    }
    // A file stands in the way of the directory.
    std::fs::write(directory.join("file"), "").unwrap();
    let Err(error) = Log::open(&directory.join("file"), &identity(), Fsync::Never, 7) else {
        panic!("it is a file")
    };
    assert!(matches!(error, LogError::Io { .. }), "{error}");
}

#[test]
fn messages_that_cannot_be_stored_are_counted_for_the_node_that_closes() {
    let directory = Scratch::new("log");
    let (mut log, _) = open(&directory).unwrap();
    append(&mut log, &[message(0)], 0);
    drop(log);
    let (mut log, recovered) = open(&directory).unwrap();
    let stream = Stream::new(7, 1000, true);
    let settling = Settling::Kept(Arc::clone(&stream));
    let shared = TxShared::new("events".into(), "bytes".into(), settling);
    let link = LinkShared::undriven(1 << 16);
    let (mut sender, _ring, tail) = TxEnd::logged(&link, &shared, &recovered);
    shared.begin_with(0, 1);
    sender.stage_slice(b"one").unwrap();
    sender.stage_slice(b"two").unwrap();
    // The next segment cannot be made.
    log.file_bytes = SEGMENT_BYTES;
    std::fs::remove_dir_all(&directory).unwrap();
    stream.end();
    let (link, known) = (Arc::clone(&link), Arc::clone(&shared));
    Logger { link, shared: known, stream: Arc::clone(&stream), tail, log, stored: 1 }
        .begin()
        .unwrap();
    let waker = thread_waker();
    while stream.poll_log_closed(&mut Context::from_waker(&waker)).is_pending() {
        std::thread::park();
    }
    assert!(matches!(sender.check_alive(), Err(SendError::Log(_))));
    assert_eq!((shared.stored(), shared.storing()), (1, 3));
}
