//! Farmers that die and are started again with their journal.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use chunkcomm_cluster::Registry;
use chunkcomm_farm::settings::{Fsync, WorkersAs};
use chunkcomm_farm::{Farm, JournalError, RunError, StartError, TaskError};
use chunkcomm_testkit::blocking::until;
use chunkcomm_testkit::{Scratch, proc};

use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::mpsc::channel;

use crate::farm::{DEADLINE, PROGRAM, builder};
use crate::farm_streams::Sent;

/// Squares and halves as `farm-program journal` prints them at its end.
const EXPECTED: &str = "8955050 599 2788";

fn farmer(journal: &Path) -> Child {
    let mut command = Command::new(PROGRAM);
    command.arg("journal").arg(journal).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn bytes_of(journal: &Path) -> u64 {
    std::fs::metadata(journal).map_or(0, |file| file.len())
}

/// Each farmer is killed as soon as the journal has grown by a number of bytes.
#[test]
fn a_farmer_that_is_started_again_goes_on_where_it_was_killed() {
    let folder = Scratch::folder("journal-killed");
    let file = folder.join("journal");
    for growth in [1_000, 1_000, 500, 1_000] {
        let before = bytes_of(&file);
        let mut farmer = proc::Program(farmer(&file));
        until("the farmer goes on", || bytes_of(&file) >= before + growth);
        farmer.0.kill().unwrap();
        farmer.0.wait().unwrap();
    }
    std::fs::write(folder.join("journal.goes-on"), "").unwrap();
    let output = farmer(&file).wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (recalled, rest) = text.split_once('\n').unwrap();
    assert_eq!(rest.trim_end(), EXPECTED);
    let number = recalled.split(' ').nth(1).unwrap().parse::<u32>().unwrap();
    // Each square has 21 bytes in the journal, and each turn 25 more.
    assert!((70..=250).contains(&number), "{recalled}");

    // Now all is there.
    let output = farmer(&file).wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("recalled 300 599\n{EXPECTED}\n")
    );
}

#[tokio::test]
async fn results_of_the_journal_come_in_order_and_as_a_stream() {
    let file = Scratch::new("journal-stream");
    for fsync in [Fsync::Always, Fsync::EverySecond] {
        let (builder, functions) = builder();
        let builder = builder.workers_as(WorkersAs::Thread).journal(&*file, fsync);
        let mut farm = builder.start().await.unwrap();
        let tasks = tasks(fsync == Fsync::EverySecond);
        let mut results = farm.stream(&functions.unlucky, tasks).unwrap();
        let mut found = Vec::new();
        loop {
            match results.next().await {
                Ok(Some((index, result))) => {
                    assert_eq!(index, found.len() as u64);
                    found.push(Some(result));
                }
                Ok(None) => break,
                Err(RunError::Task(failed)) => {
                    assert_eq!(failed.index(), found.len() as u64);
                    found.push(None);
                }
                Err(error) => panic!("{error}"),
            }
        }
        let recalled = results.stats().unwrap().recalled;
        drop(results);
        if fsync == Fsync::Always {
            assert_eq!(
                found,
                (0..20).map(|number| (number != 13).then_some(number)).collect::<Vec<_>>()
            );
            assert_eq!(recalled, 0);
        } else {
            // The other order finds them too; the one that failed is run again.
            assert_eq!(found[6], None);
            assert_eq!(found.iter().flatten().sum::<u64>(), 190 - 13);
            assert_eq!(recalled, 19);
        }
        farm.finish(DEADLINE).await.unwrap();
    }
}

fn tasks(backwards: bool) -> Sent {
    let (tasks, sent) = channel(20);
    for number in 0..20 {
        tasks.try_send(if backwards { 19 - number } else { number }).unwrap();
    }
    Sent(sent)
}

/// Whether [`NeverFive`] insists.
static STRICT: AtomicBool = AtomicBool::new(false);

/// A number whose type panics at 5.
#[derive(Debug, Serialize, Deserialize)]
#[serde(from = "u64")]
struct NeverFive(#[serde(serialize_with = "not_seven")] u64);

impl From<u64> for NeverFive {
    fn from(number: u64) -> NeverFive {
        assert!(number != 5 || !STRICT.load(Relaxed), "never five");
        NeverFive(number)
    }
}

fn not_seven<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    assert!(*number != 7, "nor seven");
    serializer.serialize_u64(*number)
}

#[tokio::test]
async fn a_type_that_panics_fails_its_task_alone() {
    let file = Scratch::new("journal-panics");
    for (is_strict, recalled) in [(false, 0), (true, 6), (true, 6)] {
        STRICT.store(is_strict, Relaxed);
        let mut registry = Registry::new();
        let function = registry.register("echo", |number: u64| NeverFive(number));
        let next = registry.register("take", |NeverFive(number)| number);
        let builder = Farm::builder(registry).workers(2).workers_as(WorkersAs::Thread);
        let mut farm = builder.journal(&*file, Fsync::Always).start().await.unwrap();
        let outcome = farm.run_to_end(&function, 0..7).await.unwrap();
        for (index, result) in outcome.results.iter().enumerate() {
            match result {
                Ok(NeverFive(number)) => assert_eq!(*number, index as u64),
                Err(error) => {
                    assert!(matches!(error, TaskError::ResultPanicked { index: 5, .. }));
                    assert!(
                        error.to_string().ends_with("its type panicked: never five"),
                        "{error}"
                    );
                }
            }
        }
        assert_eq!(outcome.results[5].is_err(), is_strict);
        assert_eq!(outcome.stats.recalled, recalled);

        let error = farm.run(&next, [1, 7, 2].map(NeverFive)).await.unwrap_err();
        let RunError::Input { index: 1, source } = &error else { panic!("{error}") };
        assert!(source.to_string().ends_with("its type panicked: nor seven"), "{source}");
        assert_eq!(farm.run(&next, [1, 2].map(NeverFive)).await.unwrap().results, [1, 2]);
        farm.finish(DEADLINE).await.unwrap();
    }
}

#[tokio::test]
async fn a_journal_of_another_program_is_refused() {
    let file = Scratch::new("journal-other");
    let (first, functions) = builder();
    let mut farm = first.journal(&*file, Fsync::Never).start().await.unwrap();
    farm.run(&functions.double, [1, 2]).await.unwrap();

    let (second, _) = builder();
    let error = second.journal(&*file, Fsync::Never).start().await.unwrap_err();
    let StartError::Journal(error) = error else { panic!("{error}") };
    assert!(matches!(error, JournalError::InUse { .. }), "{error}");
    farm.finish(DEADLINE).await.unwrap();

    let (third, functions) = builder();
    let mut farm = third.journal(&*file, Fsync::Never).start().await.unwrap();
    let error = farm.run(&functions.unlucky, [1, 2]).await.unwrap_err();
    let RunError::Journal(error) = error else { panic!("{error}") };
    assert!(error.to_string().contains("its run 1 had function \"double\""), "{error}");
    // The next run would be the second one of the other program.
    let before = std::fs::read(&*file).unwrap();
    let error = farm.run(&functions.double, [1, 2]).await.unwrap_err();
    assert!(matches!(error, RunError::Journal(_)), "{error}");
    assert_eq!(std::fs::read(&*file).unwrap(), before);
    farm.finish(DEADLINE).await.unwrap();
}
