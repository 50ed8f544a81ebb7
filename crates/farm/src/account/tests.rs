//! Answers that are not accepted, or in part.

use super::*;
use crate::name::WorkerName;
use crate::proto::ledger::Share;
use crate::proto::record::RunHead;
use crate::settings::Fsync;
use chunkcomm_testkit::Scratch;

fn plan() -> Plan {
    let terms = Terms {
        prefetch: None,
        grain: Grain::Auto,
        deaths_max: 3,
        limit: None,
        virtual_workers: None,
    };
    let ways = Ways { terms, start: Duration::MAX, end: None, spans_max: 0 };
    Plan::new(1, 0, ways)
}

fn worker() -> Worker {
    Worker {
        pace: Pace::new(None, Grain::Auto, 0, 1),
        threads: 1,
        below: 0,
        farms: false,
        stats: WorkerStats::new(WorkerName::thread(0)),
        waiting: Waiting::new(1, 0),
        speed: 0.0,
    }
}

/// Gives worker 0, which stands first in line, tasks 0 to `count`.
fn assign<O: Output, S: Sink<O>>(account: &mut Account<'_, O, S>, count: u32) {
    let mut message = Vec::new();
    wire::begin_assignment(&mut message, 1, 0);
    (0..count).for_each(|task| wire::put_value(&mut message, &task).unwrap());
    wire::number_assignment(&mut message, 0, count);
    assert_eq!(account.ledger.poll_free(), Some(0));
    account.ledger.assign(0, count, 0, message, 0);
}

/// Returns an answer for `count` tasks, which has these results.
fn answer<O: serde::Serialize>(first: u64, count: u32, results: &[O]) -> Vec<u8> {
    let mut answer = Vec::new();
    wire::begin_answer(&mut answer, 1, first);
    results.iter().for_each(|result| wire::put_value(&mut answer, result).unwrap());
    wire::finish_answer(&mut answer, count, 1000);
    answer
}

/// Of an answer that ends too early nothing is accepted: its tasks stay in the ledger.
#[test]
fn an_answer_that_is_not_whole_loses_no_task() {
    let sink = |_: u64, _: Result<u64, TaskError>| panic!("nothing is accepted");
    let mut account = Account::new(plan(), "f", sink, None, None);
    account.ledger.handle_joined(Share { pieces: 1, grain: 5 }, 1);
    assign(&mut account, 5);
    let short = answer(0, 5, &[0u64, 1, 2]);
    assert!(matches!(account.take_answer(0, &short), Err(Refused::Worker)));
    assert_eq!(account.ledger.unanswered(), 5);
    // A worker that is no sub-farmer has no number of threads to tell, and nobody who died.
    account.workers.push(worker());
    for answer in [wire::threads(u32::MAX, 0).to_vec(), wire::aside(1, 2, 3, &"gone".into())] {
        assert!(matches!(account.take_answer(0, &answer), Err(Refused::Worker)));
    }
    // A return of tasks that were not given to it ends no fraction of those that were.
    let fractions = [(4, 500)];
    assert!(account.take_answer(0, &wire::progress(1, &fractions)).is_ok());
    let returned = wire::returned(1, 0, 6);
    assert!(matches!(account.take_answer(0, &returned), Err(Refused::Worker)));
    assert!((account.underway.sum() - 0.5).abs() < 1e-9);
    assert_eq!(account.ledger.unanswered(), 5);
}

/// Two workers hold the same tasks.
#[test]
fn of_a_reduced_answer_all_is_accepted_or_nothing() {
    let (all, half) = ((0, 10), (0, 5));
    for (farms, reduces, answered, by, left) in [
        (true, true, all, None, Some(0)),
        (true, true, half, None, Some(5)),
        // The other one was quicker with one of the tasks.
        (true, true, all, Some((4, 1)), Some(9)),
        (true, true, half, Some((5, 5)), Some(0)),
        // Nobody may send such an answer.
        (false, true, all, None, None),
        (true, false, all, None, None),
    ] {
        let mut taken = 0;
        let sink = |_: u64, result: Result<u64, TaskError>| taken += result.unwrap();
        let mut plan = plan();
        plan.reduces = reduces;
        let mut account = Account::new(plan, "f", sink, None, None);
        let share = Share { pieces: 1, grain: 10 };
        for _ in 0..2 {
            account.ledger.handle_joined(share, 1);
            account.workers.push(Worker { farms, ..worker() });
        }
        assign(&mut account, 10);
        let ones = |(first, count): (u64, u32)| answer(first, count, &vec![1u64; count as usize]);
        account.ledger.handle_source(false, true);
        let late_ns = 10_000_000_000;
        assert!(account.ledger.poll_straggler(late_ns).is_some_and(|(copied, ..)| copied == 1));
        if let Some(by) = by {
            assert!(account.take_answer(1, &ones(by)).is_ok());
        }
        let mut reduced = ones(answered);
        wire::mark_reduced(&mut reduced);
        let outcome = account.take_answer(0, &reduced);
        let Some(left) = left else {
            assert!(matches!(outcome, Err(Refused::Worker)));
            continue;
        };
        assert!(outcome.is_ok());
        assert_eq!(account.ledger.unanswered(), left);
        assert!(account.take_answer(1, &ones(all)).is_ok());
        assert_eq!(account.ledger.unanswered(), 0);
        drop(account);
        assert_eq!(taken, 10);
    }
}

/// The next farmer runs its task again.
#[test]
fn a_result_that_cannot_be_decoded_is_not_kept() {
    let file = Scratch::new("journal-account");
    for round in 0..2 {
        let mut journal = Journal::open(&file, Fsync::Always.into()).unwrap();
        let function = "f".to_owned();
        journal.begin(&RunHead { run: 1, types: (0, 0), function }).unwrap();
        let known: Vec<bool> =
            (0..2u8).map(|at| journal.meet(&[at], |_| Some(())).unwrap().is_some()).collect();
        assert_eq!(known, [round == 1, false]);
        if round == 1 {
            break;
        }
        let mut taken = Vec::new();
        let sink = |_: u64, result: Result<bool, TaskError>| taken.push(result.ok());
        let mut account = Account::new(plan(), "f", sink, None, Some(&mut journal));
        account.ledger.handle_joined(Share { pieces: 1, grain: 2 }, 1);
        account.workers.push(worker());
        assign(&mut account, 2);
        // No truth value is 7.
        assert!(account.take_answer(0, &answer(0, 2, &[1u8, 7])).is_ok());
        drop(account);
        assert_eq!(taken, [Some(true), None]);
    }
}
