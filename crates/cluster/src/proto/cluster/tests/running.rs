//! A cluster that runs, and its end.

use super::*;

#[test]
fn a_rank_is_had_by_one() {
    let mut manager = running(2);
    manager.handle_message(Line(5), Up::Ready(ready(1, 2, 9)));
    let told = said(&mut manager);
    let [(5, Down::Refused(Refusal::Taken(member)))] = &told[..] else { panic!("{told:?}") };
    assert_eq!(member.id, NodeId { rank: 1, incarnation: 101 });
    manager.handle_message(Line(6), Up::Ready(ready(7, 2, 9)));
    assert_eq!(said(&mut manager), [(6, Down::Refused(Refusal::Rank { rank: 7, size: 2 }))]);
    // After its death another node takes the rank, and all members hear of both.
    manager.handle_lost(Line(1), "silent");
    let death = Death { id: NodeId { rank: 1, incarnation: 101 }, loss: "silent".into() };
    assert_eq!(said(&mut manager), [(0, Down::Died(death.clone()))]);
    manager.handle_message(Line(7), Up::Ready(ready(1, 2, 9)));
    let told = said(&mut manager);
    let [(0, Down::Joined(joined)), (7, Down::TaskIds(ids))] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(joined.id, NodeId { rank: 1, incarnation: 9 });
    assert_eq!((&ids.deaths, ids.members.len()), (&vec![death], 2));
}

#[test]
fn later_comers_get_the_lowest_free_rank_behind_the_first() {
    let mut manager = running(2);
    let mut come = |line: u64| {
        let later = Ready { size: None, ..ready(None, 0, u128::from(line)) };
        manager.handle_message(Line(line), Up::Ready(later));
        let told = said(&mut manager);
        let (_, Down::TaskIds(ids)) = told.last().unwrap() else { panic!("{told:?}") };
        assert_eq!(told.len(), ids.members.len(), "everybody is told");
        ids.rank
    };
    assert_eq!([come(10), come(11), come(12)], [2, 3, 4]);
    manager.handle_message(Line(11), Up::Leave);
    let told = said(&mut manager);
    let left = Down::Left(NodeId { rank: 3, incarnation: 11 });
    assert_eq!(told, [0, 1, 10, 12].map(|line| (line, left.clone())));
    let later = Ready { size: None, ..ready(None, 0, 13) };
    manager.handle_message(Line(13), Up::Ready(later));
    let told = said(&mut manager);
    let (13, Down::TaskIds(ids)) = told.last().unwrap() else { panic!("{told:?}") };
    assert_eq!(ids.rank, 3);
}

#[test]
fn a_barrier_waits_for_all_and_names_the_dead() {
    let mut manager = running(3);
    for line in [2, 0] {
        manager.handle_message(Line(line), Up::Barrier(1));
        assert_eq!(said(&mut manager), []);
    }
    manager.handle_message(Line(1), Up::Barrier(1));
    let released = Down::Released { number: 1, died: vec![] };
    assert_eq!(said(&mut manager), [0, 1, 2].map(|line| (line, released.clone())));
    manager.handle_message(Line(2), Up::Barrier(2));
    manager.handle_message(Line(0), Up::Barrier(9));
    manager.handle_message(Line(0), Up::Barrier(2));
    manager.handle_lost(Line(1), "silent");
    let id = NodeId { rank: 1, incarnation: 101 };
    let died = Down::Died(Death { id, loss: "silent".into() });
    let released = Down::Released { number: 2, died: vec![id] };
    let told = [died, released].map(|down| [0, 2].map(|line| (line, down.clone())));
    assert_eq!(said(&mut manager), told.concat());
    // The next barrier is passed by the remaining members.
    for line in [0, 2] {
        manager.handle_message(Line(line), Up::Barrier(3));
    }
    assert_eq!(said(&mut manager).len(), 2);
}

#[test]
fn all_stop_when_one_asks_or_everybody_is_done() {
    let mut manager = running(2);
    manager.handle_message(Line(1), Up::Finish);
    let by = Some(NodeId { rank: 1, incarnation: 101 });
    assert_eq!(said(&mut manager), [0, 1].map(|line| (line, Down::Finish { by })));
    manager.handle_lost(Line(1), "bye");
    assert_eq!((said(&mut manager), manager.members().count()), (vec![], 1));
    manager.handle_message(Line(9), Up::Ready(ready(1, 2, 2)));
    assert_eq!(said(&mut manager), [(9, Down::Refused(Refusal::Over))]);
    let mut manager = running(3);
    manager.handle_message(Line(1), Up::Done);
    manager.handle_message(Line(0), Up::Done);
    assert_eq!(said(&mut manager), []);
    // A dead member has no more to do either.
    manager.handle_lost(Line(2), "silent");
    let told = said(&mut manager);
    assert_eq!(told[2..], [0, 1].map(|line| (line, Down::Finish { by: None })));
}

#[test]
fn names_are_bounded() {
    let mut manager = running(1);
    for name in ["", &"n".repeat(256)] {
        manager.handle_message(Line(0), Up::Provide(name.to_owned()));
        assert_eq!(said(&mut manager), [(0, Down::NameRefused(name.to_owned()))]);
    }
    for number in 0..=NAMES_A_MEMBER_MAX {
        manager.handle_message(Line(0), Up::Provide(number.to_string()));
    }
    let told = said(&mut manager);
    assert_eq!(told.last().unwrap(), &(0, Down::NameRefused("1024".to_owned())));
}
