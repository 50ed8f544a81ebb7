use super::*;
use chunkcomm_testkit::Scratch;

const SKIPPING: JournalOptions =
    JournalOptions { fsync: Fsync::EverySecond, skip_damaged_records: true };

fn open(file: &Path) -> Journal {
    Journal::open(file, Fsync::EverySecond.into()).unwrap()
}

fn cause(file: &Path) -> JournalError {
    let Err(error) = Journal::open(file, Fsync::Never.into()) else { panic!("it opens") };
    assert!(error.to_string().contains(&*file.to_string_lossy()), "{error}");
    error
}

fn head(run: u32) -> RunHead {
    RunHead { run, types: (1, 2), function: "double".into() }
}

/// Meets these inputs in turn; returns the stored results.
fn meet(journal: &mut Journal, inputs: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    inputs.iter().map(|input| journal.meet(input, |bytes| Some(bytes.to_vec())).unwrap()).collect()
}

#[test]
fn a_later_farmer_finds_each_result_once_by_its_input() {
    let scratch = Scratch::new("journal-finds");
    let mut journal = open(&scratch);
    journal.begin(&head(1)).unwrap();
    assert_eq!(meet(&mut journal, &[b"a", b"b", b"a", b"c"]), [None, None, None, None]);
    journal.add(2, b"second a");
    journal.end_answer().unwrap();
    journal.skip(1);
    journal.add(0, b"first a");
    journal.add(3, b"");
    journal.end_turn().unwrap();
    journal.begin(&head(2)).unwrap();
    meet(&mut journal, &[b"a"]);
    journal.add(0, b"of the second run");
    drop(journal);

    let mut journal = open(&scratch);
    journal.begin(&head(1)).unwrap();
    let found = meet(&mut journal, &[b"c", b"a", b"b", b"a", b"a"]);
    let some = |value: &[u8]| Some(value.to_vec());
    assert_eq!(found, [some(b""), some(b"first a"), None, some(b"second a"), None]);
    // Those that are missing get their results now, beside those that were found.
    journal.add(4, b"third a");
    journal.add(2, b"b");
    drop(journal);

    let mut journal = open(&scratch);
    journal.begin(&head(2)).unwrap();
    assert_eq!(meet(&mut journal, &[b"a"]), [some(b"of the second run")]);
    journal.begin(&head(1)).unwrap();
    let found = meet(&mut journal, &[b"a", b"a", b"a", b"a", b"b"]);
    assert_eq!(found.iter().filter(|found| found.is_some()).count(), 4);
    assert_eq!(found[4], some(b"b"));
}

#[test]
fn what_is_not_whole_at_the_end_is_cut_off() {
    let scratch = Scratch::new("journal-torn");
    let mut journal = open(&scratch);
    journal.begin(&head(1)).unwrap();
    meet(&mut journal, &[b"a", b"b"]);
    journal.add(0, b"one");
    journal.end_turn().unwrap();
    journal.writer.wait().unwrap();
    let first = std::fs::metadata(&scratch).unwrap().len();
    journal.add(1, b"two");
    drop(journal);
    let whole = std::fs::read(&scratch).unwrap();
    // The end of a run says what is permanent.
    let second = whole.len() - record::HEAD - 1;
    for length in 0..whole.len() {
        std::fs::write(&scratch, &whole[..length]).unwrap();
        let mut journal = open(&scratch);
        journal.begin(&head(1)).unwrap();
        let found = meet(&mut journal, &[b"a", b"b"]);
        let kept = (length as u64 >= first, length >= second);
        assert_eq!((found[0].is_some(), found[1].is_some()), kept, "{length}");
        // It goes on behind the whole records.
        if !kept.1 {
            journal.add(1, b"two");
        }
        drop(journal);
        let mut journal = open(&scratch);
        journal.begin(&head(1)).unwrap();
        assert_eq!(meet(&mut journal, &[b"b"]), [Some(b"two".to_vec())], "{length}");
    }
}

/// Returns the places of the records, each with the length that it says is permanent.
fn records(bytes: &[u8]) -> Vec<(usize, u64)> {
    let (mut at, mut found) = (record::MAGIC.len(), Vec::new());
    while at < bytes.len() {
        let head = bytes[at..at + record::HEAD].try_into().unwrap();
        let head = record::read_head(head, at as u64).expect("a whole record");
        found.push((at, head.permanent));
        at = head.end(at as u64) as usize;
    }
    found
}

/// Of each three results one is on the disk before the next is accepted.
fn three_results(file: &Path) -> Vec<u8> {
    let mut journal = open(file);
    journal.begin(&head(1)).unwrap();
    meet(&mut journal, &[b"a", b"b", b"c"]);
    for (index, result) in [b"one", b"two", b"six"].into_iter().enumerate() {
        journal.add(index as u64, result);
        journal.settle().unwrap();
    }
    drop(journal);
    std::fs::read(file).unwrap()
}

#[test]
fn damage_of_what_was_permanent_is_refused_or_skipped() {
    let scratch = Scratch::new("journal-damaged");
    let whole = three_results(&scratch);
    let records = records(&whole);
    // The run, three results, and what the end of the run says.
    assert_eq!(records.len(), 5);
    let (last, permanent) = records[4];
    assert_eq!(permanent, last as u64, "all before it");
    for at in record::MAGIC.len()..whole.len() {
        for bit in [0x01, 0x80] {
            let mut damaged = whole.clone();
            damaged[at] ^= bit;
            std::fs::write(&scratch, &damaged).unwrap();
            let number = records.iter().rposition(|&(place, _)| place <= at).unwrap();
            if number == 4 {
                let mut journal = open(&scratch);
                journal.begin(&head(1)).unwrap();
                assert!(meet(&mut journal, &[b"a", b"b", b"c"]).iter().all(Option::is_some));
                continue;
            }
            let JournalError::Damaged { offset, .. } = cause(&scratch) else { panic!("{at}") };
            assert_eq!(offset, records[number].0 as u64, "{at}");
            assert_eq!(std::fs::read(&scratch).unwrap(), damaged, "nothing is changed");

            let mut journal = Journal::open(&scratch, SKIPPING).unwrap();
            journal.begin(&head(1)).unwrap();
            let found = meet(&mut journal, &[b"a", b"b", b"c"]);
            let lost = |index: usize| number == 0 || number == index + 1;
            (0..3).for_each(|index| assert_eq!(found[index].is_none(), lost(index), "{at}"));
            (0..3)
                .filter(|&index| lost(index))
                .for_each(|index| journal.add(index as u64, b"again"));
            drop(journal);
            let mut journal = Journal::open(&scratch, SKIPPING).unwrap();
            journal.begin(&head(1)).unwrap();
            assert!(meet(&mut journal, &[b"a", b"b", b"c"]).iter().all(Option::is_some), "{at}");
        }
    }
}

/// As a power cut leaves it.
#[test]
fn zeros_at_the_end_are_cut_off() {
    let scratch = Scratch::new("journal-zeros");
    let whole = three_results(&scratch);
    std::fs::write(&scratch, [&whole[..], &[0; 70_000]].concat()).unwrap();
    let mut journal = open(&scratch);
    assert_eq!(std::fs::metadata(&scratch).unwrap().len(), whole.len() as u64);
    journal.begin(&head(1)).unwrap();
    assert!(meet(&mut journal, &[b"a", b"b", b"c"]).iter().all(Option::is_some));
}

/// The last result was not on the disk when its machine stopped; a record behind it came there.
#[test]
fn damage_of_what_was_not_permanent_is_cut_off_with_what_follows() {
    let scratch = Scratch::new("journal-hole");
    let mut journal = Journal::open(&scratch, Fsync::Never.into()).unwrap();
    journal.begin(&head(1)).unwrap();
    meet(&mut journal, &[b"a", b"b", b"c"]);
    for index in 0..3 {
        journal.add(index, b"some");
        journal.end_turn().unwrap();
    }
    drop(journal);
    let mut bytes = std::fs::read(&scratch).unwrap();
    let records = records(&bytes);
    let hole = records[2].0;
    bytes[hole..records[3].0].fill(0);
    std::fs::write(&scratch, &bytes).unwrap();
    let mut journal = open(&scratch);
    assert_eq!(std::fs::metadata(&scratch).unwrap().len(), hole as u64);
    journal.begin(&head(1)).unwrap();
    let found = meet(&mut journal, &[b"a", b"b", b"c"]);
    assert_eq!(found, [Some(b"some".to_vec()), None, None]);
}

#[test]
fn files_that_are_no_journal_of_this_program_are_refused() {
    let scratch = Scratch::new("journal-refused");
    std::fs::write(&scratch, b"the diary of a nobody").unwrap();
    assert!(matches!(cause(&scratch), JournalError::NotAJournal { .. }));
    assert_eq!(std::fs::read(&scratch).unwrap(), b"the diary of a nobody");
    std::fs::write(&scratch, b"note").unwrap();
    assert!(matches!(cause(&scratch), JournalError::NotAJournal { .. }));
    assert_eq!(std::fs::read(&scratch).unwrap(), b"note");
    std::fs::remove_file(&scratch).unwrap();

    let mut journal = open(&scratch);
    assert!(matches!(cause(&scratch), JournalError::InUse { .. }));
    journal.begin(&head(1)).unwrap();
    drop(journal);
    let mut journal = open(&scratch);
    let other = RunHead { types: (1, 3), ..head(1) };
    let error = journal.begin(&other).unwrap_err();
    let JournalError::OtherRun { run: 1, function, .. } = &error else { panic!("{error}") };
    assert_eq!(function, "double");
    // Nor is anything of this program put into it.
    let error = journal.begin(&head(2)).unwrap_err();
    assert!(matches!(error, JournalError::OtherRun { run: 1, .. }), "{error}");
    let before = std::fs::read(&scratch).unwrap();
    drop(journal);
    assert_eq!(std::fs::read(&scratch).unwrap(), before);
    let nowhere = scratch.join("in a file");
    assert!(matches!(cause(&nowhere), JournalError::Io { .. }));
}

#[test]
fn a_result_that_cannot_be_read_is_not_known() {
    let scratch = Scratch::new("journal-unreadable");
    let mut journal = open(&scratch);
    journal.begin(&head(1)).unwrap();
    meet(&mut journal, &[b"a"]);
    journal.add(0, b"x");
    drop(journal);

    let mut journal = open(&scratch);
    journal.begin(&head(1)).unwrap();
    assert_eq!(journal.meet(b"a", |_| None::<u8>).unwrap(), None);
    // It gets its result as any other.
    journal.add(0, b"y");
    drop(journal);
    let mut journal = open(&scratch);
    journal.begin(&head(1)).unwrap();
    assert_eq!(meet(&mut journal, &[b"a"]), [Some(b"y".to_vec())]);
}

#[test]
fn the_digests_of_tasks_with_results_are_dropped() {
    let scratch = Scratch::new("journal-window");
    let mut journal = open(&scratch);
    journal.begin(&head(1)).unwrap();
    for index in 0..1000 {
        meet(&mut journal, &[b"a"]);
        journal.add(index, b"x");
    }
    drop(journal);
    let mut journal = open(&scratch);
    journal.begin(&head(1)).unwrap();
    (0..1000).for_each(|_| drop(meet(&mut journal, &[b"a"])));
    assert_eq!((journal.inputs.base, journal.inputs.window.len()), (1000, 0));
}

/// The end of the run has few bytes to wait for then.
#[test]
fn large_amounts_are_given_to_the_disk_before_a_second_is_over() {
    for (fsync, is_left) in [(Fsync::EverySecond, false), (Fsync::Never, true)] {
        let scratch = Scratch::new("journal-amount");
        let mut journal = Journal::open(&scratch, fsync.into()).unwrap();
        journal.begin(&head(1)).unwrap();
        journal.settle().unwrap();
        meet(&mut journal, &[b"a", b"b"]);
        journal.add(0, &vec![7; SYNC_BYTES]);
        journal.end_answer().unwrap();
        assert_eq!(journal.unsynced > 0, is_left, "{fsync:?}");
        journal.add(1, b"b");
        journal.settle().unwrap();
        assert_eq!(journal.unsynced > 0, is_left, "{fsync:?}");
    }
}

/// `/dev/full` takes no byte.
#[cfg(target_os = "linux")]
#[test]
fn nothing_is_written_behind_a_torn_record() {
    let scratch = Scratch::new("journal-full");
    let mut journal = open(&scratch);
    journal.begin(&head(1)).unwrap();
    journal.end_turn().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let writer = std::mem::replace(&mut journal.writer, Writer::start(Arc::new(full), 0).unwrap());
    meet(&mut journal, &[b"a"]);
    journal.add(0, b"x");
    // The thread that writes may tell its error later.
    assert!(journal.end_turn().is_err() || journal.settle().is_err());
    journal.writer = writer;
    let error = journal.begin(&head(2)).unwrap_err();
    assert!(matches!(error, JournalError::Io { .. }), "{error}");
    assert!(journal.settle().is_err() && journal.buffer.is_empty(), "there is nothing to write");
}

#[test]
fn results_that_workers_hand_over_are_found_and_kept() {
    let scratch = Scratch::new("journal-handed");
    let of = |run: u32, results: &[(&[u8], &[u8])]| {
        let digested =
            results.iter().map(|(input, value)| (record::input_digest(input), value.to_vec()));
        Finished { head: head(run), results: digested.collect() }
    };
    let some = |value: &[u8]| Some(value.to_vec());
    let mut journal = open(&scratch);
    journal.take_over(vec![of(1, &[(b"a", b"early")]), of(2, &[(b"c", b"of run 2")])]).unwrap();
    journal.begin(&head(1)).unwrap();
    assert_eq!(meet(&mut journal, &[b"a", b"b"]), [some(b"early"), None]);
    // In the middle of the run, also of another one; the rest of the run is still found.
    let other = Finished {
        head: RunHead { function: "triple".into(), ..head(1) },
        results: vec![(record::input_digest(b"f"), b"of another program".to_vec())],
    };
    let rest = vec![of(1, &[(b"d", b"late")]), other, of(2, &[(b"e", b"")])];
    journal.take_over(rest).unwrap();
    assert_eq!(meet(&mut journal, &[b"d", b"f"]), [some(b"late"), None]);
    journal.add(1, b"own");
    drop(journal);

    let mut journal = open(&scratch);
    journal.begin(&head(1)).unwrap();
    let found = meet(&mut journal, &[b"a", b"b", b"c", b"d"]);
    assert_eq!(found, [some(b"early"), some(b"own"), None, some(b"late")]);
    journal.begin(&head(2)).unwrap();
    assert_eq!(meet(&mut journal, &[b"c", b"e"]), [some(b"of run 2"), some(b"")]);
}
