//! Farmers that die and are started again with their journal.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use chunkcomm_farm::{Durability, JournalCause, Order, RunError, StartError, WorkersAs};
use chunkcomm_testkit::blocking::until;
use chunkcomm_testkit::{Scratch, proc};

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
    // Each square has 28 bytes in the journal, and each turn 9 more.
    assert!((80..=250).contains(&number), "{recalled}");

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
    for durability in [Durability::Sync, Durability::Batched] {
        let (builder, functions) = builder();
        let builder = builder.workers_as(WorkersAs::Thread).journal(&*file, durability);
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
    let file = Scratch::new("journal-other");
    let (first, functions) = builder();
    let mut farm = first.journal(&*file, Durability::None).start().await.unwrap();
    farm.run(&functions.double, [1, 2]).await.unwrap();

    let (second, _) = builder();
    let error = second.journal(&*file, Durability::None).start().await.unwrap_err();
    let StartError::Journal(error) = error else { panic!("{error}") };
    assert!(matches!(error.cause, JournalCause::InUse), "{error}");
    farm.finish(DEADLINE).await.unwrap();

    let (third, functions) = builder();
    let mut farm = third.journal(&*file, Durability::None).start().await.unwrap();
    let error = farm.run(&functions.unlucky, [1, 2]).await.unwrap_err();
    let RunError::Journal(error) = error else { panic!("{error}") };
    assert!(error.to_string().contains("its run 1 had function \"double\""), "{error}");
    farm.finish(DEADLINE).await.unwrap();
}
