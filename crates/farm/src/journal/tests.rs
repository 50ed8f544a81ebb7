use super::*;

/// A file of its own in the system's folder for such, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let file = format!("chunkcomm-journal-{name}-{}", std::process::id());
        let scratch = Scratch(std::env::temp_dir().join(file));
        let _ = std::fs::remove_file(&scratch.0);
        scratch
    }

    fn open(&self) -> Journal {
        Journal::open(&self.0, Durability::Batched).unwrap()
    }

    fn cause(&self) -> JournalCause {
        let Err(error) = Journal::open(&self.0, Durability::None) else { panic!("it opens") };
        assert!(error.to_string().contains(&*self.0.to_string_lossy()), "{error}");
        error.cause
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn head(run: u32) -> RunHead {
    RunHead { run, types: (1, 2), function: "double".into() }
}

/// Meets these inputs in turn; returns the stored results.
fn meet(journal: &mut Journal, inputs: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    inputs.iter().map(|input| journal.meet(input).unwrap()).collect()
}

#[test]
fn a_later_farmer_finds_each_result_once_by_its_input() {
    let scratch = Scratch::new("finds");
    let mut journal = scratch.open();
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

    let mut journal = scratch.open();
    journal.begin(&head(1)).unwrap();
    let found = meet(&mut journal, &[b"c", b"a", b"b", b"a", b"a"]);
    let some = |value: &[u8]| Some(value.to_vec());
    assert_eq!(found, [some(b""), some(b"first a"), None, some(b"second a"), None]);
    // Those that are missing get their results now, beside those that were found.
    journal.add(4, b"third a");
    journal.add(2, b"b");
    drop(journal);

    let mut journal = scratch.open();
    journal.begin(&head(2)).unwrap();
    assert_eq!(meet(&mut journal, &[b"a"]), [some(b"of the second run")]);
    journal.begin(&head(1)).unwrap();
    let found = meet(&mut journal, &[b"a", b"a", b"a", b"a", b"b"]);
    assert_eq!(found.iter().filter(|found| found.is_some()).count(), 4);
    assert_eq!(found[4], some(b"b"));
}

#[test]
fn what_is_not_whole_at_the_end_is_cut_off() {
    let scratch = Scratch::new("torn");
    let mut journal = scratch.open();
    journal.begin(&head(1)).unwrap();
    meet(&mut journal, &[b"a", b"b"]);
    journal.add(0, b"one");
    journal.end_turn().unwrap();
    let first = std::fs::metadata(&scratch.0).unwrap().len();
    journal.add(1, b"two");
    drop(journal);
    let whole = std::fs::read(&scratch.0).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&scratch.0, &whole[..length]).unwrap();
        let mut journal = scratch.open();
        journal.begin(&head(1)).unwrap();
        let found = meet(&mut journal, &[b"a", b"b"]);
        let kept = length as u64 >= first;
        assert_eq!((found[0].is_some(), found[1].is_some()), (kept, false), "{length}");
        // It goes on behind the whole records.
        journal.add(1, b"two");
        drop(journal);
        let mut journal = scratch.open();
        journal.begin(&head(1)).unwrap();
        assert_eq!(meet(&mut journal, &[b"b"]), [Some(b"two".to_vec())], "{length}");
    }
    for at in 8..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        std::fs::write(&scratch.0, &damaged).unwrap();
        let mut journal = scratch.open();
        journal.begin(&head(1)).unwrap();
        assert_eq!(meet(&mut journal, &[b"b"]), [None], "{at}");
    }
}

#[test]
fn files_that_are_no_journal_of_this_program_are_refused() {
    let scratch = Scratch::new("refused");
    std::fs::write(&scratch.0, b"the diary of a nobody").unwrap();
    assert!(matches!(scratch.cause(), JournalCause::NotAJournal));
    assert_eq!(std::fs::read(&scratch.0).unwrap(), b"the diary of a nobody");
    std::fs::remove_file(&scratch.0).unwrap();

    let mut journal = scratch.open();
    assert!(matches!(scratch.cause(), JournalCause::InUse));
    journal.begin(&head(1)).unwrap();
    drop(journal);
    let mut journal = scratch.open();
    let other = RunHead { types: (1, 3), ..head(1) };
    let error = journal.begin(&other).unwrap_err();
    let JournalCause::OtherRun { run: 1, function } = &error.cause else { panic!("{error}") };
    assert_eq!(function, "double");
    let nowhere = Scratch(scratch.0.join("in a file"));
    assert!(matches!(nowhere.cause(), JournalCause::Io(_)));
}
