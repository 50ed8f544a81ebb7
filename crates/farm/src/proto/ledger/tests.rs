use super::balance::{SILENCE_NS_LONG, SILENCE_NS_MIN};
use super::*;
use crate::proto::wire;

mod oracle;
mod seeds;
mod workers;
mod world;

const SHARE: Share = Share { pieces: 2, grain: 3 };

/// Writes the assignment of tasks whose inputs are their own numbers.
fn message(first: u64, count: u32) -> Vec<u8> {
    message_of(Vec::new(), first..first + u64::from(count), 0, 0)
}

/// Writes it into a buffer, with this number of bytes more in each input.
fn message_of(mut message: Vec<u8>, tasks: Range<u64>, attempt: u32, bytes: usize) -> Vec<u8> {
    wire::begin_assignment(&mut message, 1, 0);
    for task in tasks.clone() {
        let Ok(()) = wire::put_item(&mut message, |out| {
            out.extend_from_slice(&task.to_le_bytes());
            out.resize(out.len() + bytes, 0);
            Ok::<_, std::convert::Infallible>(())
        });
    }
    wire::number_assignment(&mut message, tasks.start, (tasks.end - tasks.start) as u32);
    wire::set_attempt(&mut message, attempt);
    message
}

/// Returns the tasks of an assignment and its attempt, after a look at its inputs.
fn tasks(message: &[u8]) -> (Range<u64>, u32) {
    let Ok(wire::Order::Assign(assignment)) = wire::read_order(message) else { panic!() };
    let mut inputs = wire::Items::new(assignment.items, assignment.count);
    let range = assignment.first..assignment.first + u64::from(assignment.count);
    for task in range.clone() {
        let input = inputs.next().unwrap().unwrap();
        assert_eq!(input.first_chunk(), Some(&task.to_le_bytes()));
    }
    assert_eq!(inputs.next(), Ok(None));
    (range, assignment.attempt)
}

/// Gives out one piece: an open one, or the next tasks below `end`.
fn give(ledger: &mut Ledger, end: u64) -> Option<(usize, Range<u64>)> {
    let worker = ledger.poll_free()?;
    if let Some((_, _, message)) = ledger.reissue(0) {
        return Some((worker, tasks(message).0));
    }
    let first = ledger.assigned();
    let count = u64::from(ledger.grain(worker)).min(end - first) as u32;
    if first + u64::from(count) == end {
        ledger.handle_source(false, true);
    }
    if count == 0 {
        return None;
    }
    Some((worker, tasks(ledger.assign(first, count, 0, message(first, count), 0)).0))
}

fn give_all(ledger: &mut Ledger, end: u64) -> Vec<(usize, Range<u64>)> {
    std::iter::from_fn(|| give(ledger, end)).collect()
}

fn ledger(workers: usize) -> Ledger {
    let mut ledger = Ledger::new(3);
    for _ in 0..workers {
        ledger.handle_joined(SHARE, 1);
    }
    ledger
}

fn some(tasks: Range<u64>) -> Accepted {
    Accepted::Some(std::iter::once(tasks).collect())
}

#[test]
fn the_first_tasks_are_spread_evenly() {
    let mut ledger = ledger(2);
    assert_eq!(give_all(&mut ledger, 99), [(0, 0..3), (1, 3..6), (0, 6..9), (1, 9..12)]);
    assert_eq!(ledger.handle_answer(1, 3, 3, 9, 0), Ok(Accepted::All));
    assert_eq!(give_all(&mut ledger, 99), [(1, 12..15)]);
}

#[test]
fn a_stalled_worker_gets_nothing_until_its_assignment_is_sent() {
    let mut ledger = ledger(1);
    give(&mut ledger, 99).unwrap();
    ledger.handle_stalled(0);
    assert_eq!(ledger.poll_free(), None);
    ledger.handle_sent(0);
    assert_eq!(ledger.poll_free(), Some(0));
}

#[test]
fn an_answer_may_cover_part_of_an_assignment_or_several() {
    let mut ledger = ledger(1);
    give_all(&mut ledger, 6);
    assert_eq!(ledger.handle_answer(0, 1, 1, 9, 0), Ok(Accepted::All), "from the middle");
    assert_eq!(ledger.handle_answer(0, 2, 3, 9, 0), Ok(Accepted::All), "across two");
    assert_eq!(ledger.handle_answer(0, 0, 6, 9, 0), Ok(Accepted::Some(vec![0..1, 5..6])));
    assert!(ledger.is_done());
    assert_eq!(ledger.mishaps().dropped, 4);
}

#[test]
fn what_was_never_assigned_or_comes_from_the_dead_is_refused() {
    let mut ledger = ledger(1);
    give_all(&mut ledger, 6);
    assert_eq!(ledger.handle_answer(0, 5, 2, 9, 0), Err(Malformed));
    assert_eq!(ledger.handle_answer(7, 0, 1, 9, 0), Err(Malformed));
    ledger.handle_lost(0, true);
    assert_eq!(ledger.handle_answer(0, 0, 1, 9, 0), Err(Malformed));
    assert_eq!(ledger.handle_returned(0, 0, 1, 0), Err(Malformed));
}

#[test]
fn the_tasks_of_a_lost_worker_go_to_others() {
    let mut ledger = ledger(1);
    give_all(&mut ledger, 6);
    ledger.handle_answer(0, 0, 1, 9, 0).unwrap();
    assert_eq!(ledger.handle_lost(0, true), []);
    assert_eq!(give(&mut ledger, 6), None);
    assert_eq!((ledger.present(), ledger.mishaps().reissued), (0, 5));
    assert_eq!(ledger.handle_joined(Share { pieces: 9, grain: 3 }, 1), 1);
    // The piece that was at work comes in parts.
    assert_eq!(give_all(&mut ledger, 6), [(1, 1..2), (1, 2..3), (1, 3..6)]);
    assert_eq!(ledger.handle_lost(1, true), []);
    ledger.handle_joined(Share { pieces: 9, grain: 3 }, 1);
    // After a second death each task comes alone.
    for task in 1..6 {
        assert_eq!(give_all(&mut ledger, 6), [(2, task..task + 1)]);
        ledger.handle_answer(2, task, 1, 9, 0).unwrap();
    }
    assert!(ledger.is_done());
}

#[test]
fn a_task_that_kills_three_workers_is_set_aside_alone() {
    let mut ledger = Ledger::new(3);
    let share = Share { pieces: 500, grain: 200 };
    let mut done = Vec::new();
    let mut aside = Vec::new();
    while !ledger.is_done() {
        let worker = ledger.handle_joined(share, 1);
        'life: loop {
            let given = give_all(&mut ledger, 400);
            if given.is_empty() {
                break;
            }
            // Results that were not sent before the death are lost with it.
            let tasks: Vec<_> = given.into_iter().flat_map(|(_, range)| range).collect();
            if tasks.contains(&77) {
                aside.extend(ledger.handle_lost(worker, true));
                break 'life;
            }
            for task in tasks {
                ledger.handle_answer(worker, task, 1, 9, 0).unwrap();
                done.push(task);
            }
        }
    }
    let mut input = Vec::new();
    chunkcomm::codec::encode_into_vec(&77u64, &mut input).unwrap();
    assert_eq!(aside, [SetAside { task: 77, deaths: 3, input }]);
    done.sort_unstable();
    assert_eq!(done, (0..400).filter(|&task| task != 77).collect::<Vec<_>>());
}

#[test]
fn who_has_nothing_gets_half_of_what_another_has_not_begun() {
    let mut ledger = ledger(2);
    ledger.set_share(0, Share { pieces: 1, grain: 9 }, Some(1e9));
    assert_eq!(give_all(&mut ledger, 9), [(0, 0..9)]);
    assert_eq!(ledger.poll_victim(0), Some((0, 4)));
    assert_eq!(ledger.poll_victim(0), None, "it was asked");
    ledger.handle_returned(0, 5, 4, 0).unwrap();
    ledger.handle_returned(0, 0, 0, 0).unwrap();
    assert_eq!(give_all(&mut ledger, 9), [(1, 5..9)]);
    ledger.handle_answer(1, 5, 4, 9, 0).unwrap();
    assert_eq!(ledger.poll_victim(0), Some((0, 2)));
    ledger.handle_returned(0, 0, 0, 0).unwrap();
    assert_eq!(ledger.poll_victim(0), None, "it had nothing");
    assert_eq!(ledger.mishaps().returned, 4);
}

/// A question and what is given back cost both sides messages: one worker without tasks is no reason to
/// ask all others.
#[test]
fn no_more_are_asked_at_a_time_than_have_nothing_to_do() {
    let mut ledger = ledger(5);
    for worker in 0..4 {
        ledger.set_share(worker, Share { pieces: 1, grain: 9 }, Some(1e9));
    }
    ledger.keep_off(4, true);
    assert_eq!(give_all(&mut ledger, 36).len(), 4);
    ledger.handle_answer(3, 27, 9, 9, 0).unwrap();
    assert_eq!(ledger.poll_victim(0).map(|(_, count)| count), Some(4));
    assert_eq!(ledger.poll_victim(0), None, "one is idle, and one was asked");
    ledger.keep_off(4, false);
    let (second, _) = ledger.poll_victim(0).unwrap();
    assert_eq!(ledger.poll_victim(0), None, "two are");
    // Of one that is silent nothing more is expected.
    assert!(ledger.poll_victim(SILENCE_NS_MIN as u64).is_some());
    assert_eq!(ledger.poll_victim(SILENCE_NS_MIN as u64), None, "all were asked");
    ledger.handle_returned(second, 0, 0, 0).unwrap();
    assert_eq!(ledger.poll_victim(0), None, "it had nothing");
}

/// The farmer above wants tasks of each of its workers: none is left with nothing.
#[test]
fn who_gives_to_the_farmer_above_keeps_a_half() {
    let mut ledger = ledger(2);
    for worker in 0..2 {
        ledger.set_share(worker, Share { pieces: 1, grain: 9 }, Some(1e9));
    }
    assert_eq!(give_all(&mut ledger, 18).len(), 2);
    let asked = [ledger.poll_spare(7, 0), ledger.poll_spare(3, 0)];
    assert_eq!(asked.map(|it| it.map(|(_, count)| count)), [Some(4), Some(3)]);
}

#[test]
fn what_workers_gave_back_goes_up_and_may_come_again() {
    let mut ledger = ledger(1);
    ledger.set_share(0, Share { pieces: 1, grain: 9 }, Some(1e9));
    // The farmer above numbers its tasks.
    assert_eq!(ledger.poll_free(), Some(0));
    ledger.assign(40, 9, 2, message(40, 9), 0);
    ledger.handle_source(true, false);
    assert_eq!(ledger.poll_spare(0, 0), None);
    assert_eq!(ledger.poll_spare(5, 0), Some((0, 4)));
    assert_eq!(ledger.poll_spare(5, 0), None, "it was asked");
    ledger.handle_returned(0, 45, 4, 0).unwrap();
    ledger.handle_returned(0, 0, 0, 0).unwrap();
    assert_eq!((ledger.give_up(5), ledger.give_up(5)), (vec![(45, 4)], vec![]));
    assert_eq!(ledger.unanswered(), 5);
    assert_eq!(ledger.handle_answer(0, 40, 5, 0, 0), Ok(Accepted::All));
    assert_eq!(ledger.poll_free(), None);
    ledger.handle_source(false, false);
    assert_eq!(ledger.poll_free(), Some(0));
    ledger.assign(45, 4, 3, message(45, 4), 0);
    assert_eq!(ledger.handle_answer(0, 45, 4, 0, 0), Ok(Accepted::All));
    assert_eq!(ledger.unanswered(), 0);
}

#[test]
fn a_task_may_be_set_aside_below_a_sub_farmer() {
    let mut ledger = ledger(2);
    give_all(&mut ledger, 6);
    let aside = ledger.handle_aside(0, 1, 3).unwrap().unwrap();
    assert_eq!((aside.task, aside.deaths), (1, 3));
    assert_eq!(chunkcomm::codec::decode::<u64>(&aside.input).unwrap(), 1);
    assert_eq!(ledger.handle_aside(0, 1, 3), Ok(None), "it is set aside");
    assert_eq!(ledger.handle_aside(0, 4, 3), Ok(None), "another worker has it");
    assert_eq!(ledger.handle_aside(0, 6, 3), Err(Malformed));
    assert_eq!(ledger.unanswered(), 5);
}

#[test]
fn what_is_soon_done_is_not_moved() {
    let mut ledger = ledger(2);
    ledger.set_share(0, Share { pieces: 1, grain: 9 }, Some(1e3));
    give_all(&mut ledger, 9);
    assert_eq!(ledger.poll_victim(0), None);
}

/// A sub-farmer that sets a task aside has answered, as one that has run it.
#[test]
fn who_sets_a_copied_task_aside_gets_more() {
    let mut ledger = ledger(2);
    ledger.set_share(0, Share { pieces: 1, grain: 1 }, None);
    assert_eq!(give_all(&mut ledger, 1), [(0, 0..1)]);
    let late = SILENCE_NS_LONG as u64 + 1;
    assert_eq!(
        ledger.poll_straggler(late).map(|(worker, first, ..)| (worker, first)),
        Some((1, 0))
    );
    let aside = ledger.handle_aside(0, 0, 3).unwrap().unwrap();
    assert_eq!((aside.task, aside.deaths), (0, 3));
    assert_eq!(ledger.handle_aside(1, 0, 3), Ok(None), "the other was quicker");
    assert!(ledger.is_done());
    ledger.handle_source(false, false);
    let mut got: Vec<usize> =
        give_all(&mut ledger, 20).into_iter().map(|(worker, _)| worker).collect();
    got.sort_unstable();
    assert_eq!(got, [0, 1, 1]);
}

#[test]
fn a_silent_workers_piece_is_copied_and_the_first_result_mishaps() {
    let mut ledger = ledger(2);
    assert_eq!(give_all(&mut ledger, 6), [(0, 0..3), (1, 3..6)]);
    ledger.handle_answer(1, 3, 3, 3_000_000, 1_000_000).unwrap();
    assert_eq!(ledger.poll_straggler(2_000_000), None);
    let (worker, first, count, message) = ledger.poll_straggler(300_000_000).unwrap();
    assert_eq!((worker, first, count, tasks(message)), (1, 0, 3, (0..3, 1)));
    assert_eq!(ledger.poll_straggler(310_000_000), None, "once");
    assert_eq!(ledger.handle_answer(1, 0, 2, 9, 0), Ok(Accepted::All));
    assert_eq!(ledger.handle_answer(0, 0, 3, 9, 0), Ok(some(2..3)));
    assert!(ledger.is_done());
    assert_eq!(ledger.handle_answer(1, 2, 1, 9, 0), Ok(Accepted::Some(Vec::new())), "too late");
}

/// Each copy costs a worker if the piece is to blame for the death.
#[test]
fn a_slow_worker_keeps_a_piece_whose_copy_was_at_a_death() {
    let mut ledger = ledger(3);
    assert_eq!(give_all(&mut ledger, 9), [(0, 0..3), (1, 3..6), (2, 6..9)]);
    ledger.handle_answer(1, 3, 3, 3_000, 1_000_000).unwrap();
    ledger.handle_answer(2, 6, 3, 3_000, 2_000_000).unwrap();
    assert_eq!(ledger.poll_straggler(300_000_000).unwrap().0, 2);
    assert_eq!(ledger.poll_straggler(900_000_000), None, "it is copied already");
    assert!(ledger.handle_lost(2, true).is_empty());
    assert_eq!(ledger.poll_straggler(4_900_000_000), None);
    let (other, first, ..) = ledger.poll_straggler(5_100_000_000).unwrap();
    assert_eq!((other, first), (1, 0), "the slow one may be stopped");
}

/// A stopped worker whose tasks another did looks as if it had nothing to do.
#[test]
fn a_copy_goes_to_a_worker_that_answers() {
    let mut ledger = ledger(3);
    assert_eq!(give_all(&mut ledger, 9), [(0, 0..3), (1, 3..6), (2, 6..9)]);
    ledger.handle_answer(1, 3, 3, 3_000, 1_000_000).unwrap();
    assert_eq!(ledger.poll_straggler(300_000_000).unwrap().0, 1);
    ledger.handle_answer(1, 0, 3, 3_000, 301_000_000).unwrap();
    assert_eq!(ledger.poll_straggler(600_000_000).unwrap().0, 1, "not to 0, which owes its answer");
    ledger.handle_answer(1, 6, 3, 3_000, 601_000_000).unwrap();
    assert!(ledger.is_done());
}

/// It may be its task that has stopped it.
#[test]
fn a_worker_that_is_asked_keeps_its_piece_until_it_gives_a_sign() {
    let mut ledger = ledger(2);
    (0..2).for_each(|worker| ledger.ask_before_copies(worker));
    assert_eq!(give_all(&mut ledger, 6), [(0, 0..3), (1, 3..6)]);
    ledger.handle_answer(1, 3, 3, 3_000, 1_000_000).unwrap();
    assert_eq!(ledger.poll_straggler(1_900_000_000), None);
    ledger.handle_sign(0, 2_000_000_000);
    assert_eq!(ledger.poll_straggler(4_000_000_000), None, "the sign is old");
    ledger.handle_sign(0, 4_000_000_000);
    assert_eq!(ledger.poll_straggler(4_100_000_000).map(|copy| copy.0), Some(1));
}

#[test]
fn a_worker_that_gets_no_copies_gets_all_else() {
    let mut ledger = ledger(2);
    ledger.give_no_copies(1);
    assert_eq!(give_all(&mut ledger, 6), [(0, 0..3), (1, 3..6)]);
    ledger.handle_answer(1, 3, 3, 3_000, 1_000_000).unwrap();
    assert_eq!(ledger.poll_straggler(300_000_000), None);
    assert!(ledger.handle_lost(0, false).is_empty());
    assert_eq!(ledger.poll_free(), Some(1));
    assert!(ledger.reissue(301_000_000).is_some());
}

#[test]
fn a_copy_is_made_before_any_task_was_answered_and_copied_again() {
    let mut ledger = ledger(3);
    assert_eq!(give_all(&mut ledger, 3), [(0, 0..3)]);
    assert_eq!(ledger.poll_straggler(1_000_000_000), None);
    assert_eq!(ledger.poll_straggler(6_000_000_000).unwrap().1, 0);
    assert_eq!(ledger.poll_straggler(7_000_000_000), None, "the second is not silent yet");
    let (third, ..) = ledger.poll_straggler(12_000_000_000).unwrap();
    assert_eq!(ledger.handle_answer(third, 0, 3, 9, 0), Ok(Accepted::All));
    assert!(ledger.is_done());
}
