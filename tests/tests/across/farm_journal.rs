//! Farmers that die and are started again with their journal.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use chunkcomm_farm::{Durability, JournalCause, Order, RunError, StartError, WorkersAs};
use chunkcomm_testkit::proc;

use tokio::sync::mpsc::channel;

use crate::farm::{DEADLINE, PROGRAM, builder};
use crate::farm_streams::Sent;

/// Squares and halves as `farm-program journal` prints them at its end.
const EXPECTED: &str = "8955050 599 2788";

/// A journal in the system's folder for temporary files, removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        let name = format!("chunkcomm-farm-journal-{name}-{}", std::process::id());
        let file = File(std::env::temp_dir().join(name));
        let _ = std::fs::remove_file(&file.0);
        file
    }

    fn farmer(&self) -> Child {
        let mut command = Command::new(PROGRAM);
        command.arg("journal").arg(&self.0).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.0).map_or(0, |file| file.len())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Each farmer is killed as soon as the journal has grown by a number of bytes.
#[test]
fn a_farmer_that_is_started_again_goes_on_where_it_was_killed() {
    let file = File::new("killed");
    for growth in [1_000, 2_000, 500, 3_000] {
        let before = file.bytes();
        let mut farmer = file.farmer();
        while file.bytes() < before + growth {
            thread::sleep(Duration::from_millis(1));
            assert!(farmer.try_wait().unwrap().is_none(), "it is still at work");
        }
        proc::signal(farmer.id(), rustix::process::Signal::KILL);
        farmer.wait().unwrap();
    }
    let goes_on = File(format!("{}.goes-on", file.0.display()).into());
    std::fs::write(&goes_on.0, "").unwrap();
    let output = file.farmer().wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (recalled, rest) = text.split_once('\n').unwrap();
    assert_eq!(rest.trim_end(), EXPECTED);
    let number = recalled.split(' ').nth(1).unwrap().parse::<u32>().unwrap();
    // Each square has 28 bytes in the journal, and each turn 9 more.
    assert!((150..=250).contains(&number), "{recalled}");

    // Now all is there.
    let output = file.farmer().wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("recalled 300 599\n{EXPECTED}\n")
    );
}

#[tokio::test]
async fn results_of_the_journal_come_in_order_and_as_a_stream() {
    let file = File::new("stream");
    for durability in [Durability::Sync, Durability::Batched] {
        let (builder, functions) = builder();
        let builder = builder.workers_as(WorkersAs::Thread).journal(&file.0, durability);
        let mut farm = builder.start().await.unwrap();
        let tasks = tasks(durability == Durability::Batched);
        let mut results = farm.stream(&functions.unlucky, tasks, Order::Tasks).unwrap();
        let mut found = Vec::new();
        while let Some(next) = results.next().await {
            let (index, result) = next.unwrap();
            assert_eq!(index, found.len() as u64);
            found.push(result.ok());
        }
        let recalled = results.stats().unwrap().recalled;
        drop(results);
        if durability == Durability::Sync {
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

#[tokio::test]
async fn a_journal_of_another_program_is_refused() {
    let file = File::new("other");
    let (first, functions) = builder();
    let mut farm = first.journal(&file.0, Durability::None).start().await.unwrap();
    farm.run(&functions.double, [1, 2]).await.unwrap();

    let (second, _) = builder();
    let error = second.journal(&file.0, Durability::None).start().await.unwrap_err();
    let StartError::Journal(error) = error else { panic!("{error}") };
    assert!(matches!(error.cause, JournalCause::InUse), "{error}");
    farm.finish(DEADLINE).await.unwrap();

    let (third, functions) = builder();
    let mut farm = third.journal(&file.0, Durability::None).start().await.unwrap();
    let error = farm.run(&functions.unlucky, [1, 2]).await.unwrap_err();
    let RunError::Journal(error) = error else { panic!("{error}") };
    assert!(error.to_string().contains("its run 1 had function \"double\""), "{error}");
    farm.finish(DEADLINE).await.unwrap();
}
