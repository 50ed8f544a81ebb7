//! Agreements of members.

use super::*;
use crate::proto::cluster::agreement::{
    AGREEMENTS_A_MEMBER_MAX, Among, DECISIONS_MAX, MEETING_BYTES_MAX, Proposed, VALUE_BYTES_MAX,
};

/// A member of the clusters of [`running`].
fn id(rank: u32) -> NodeId {
    NodeId { rank, incarnation: 100 + u128::from(rank) }
}

fn ids(ranks: &[u32]) -> Vec<NodeId> {
    ranks.iter().copied().map(id).collect()
}

fn proposal(number: u64, name: &str, among: &[u32], value: u8) -> Proposal {
    let (name, among) = (name.to_owned(), Among::All(ids(among)));
    Proposal { number, name, among, value: vec![value] }
}

fn meeting(number: u64, among: Among, value: u8) -> Proposal {
    Proposal { number, name: "x".to_owned(), among, value: vec![value] }
}

fn heard(manager: &mut Manager, rank: u32, number: u64) {
    manager.handle_message(Line(rank.into()), Up::Heard(number));
}

fn propose(manager: &mut Manager, rank: u32, proposal: Proposal) {
    manager.handle_message(Line(rank.into()), Up::Agree(proposal));
}

fn decision(name: &str, values: &[(u32, u64, u8)], gone: &[u32]) -> Decision {
    let values = values.iter().map(|&(rank, number, value)| {
        let by = id(rank);
        Proposed { by, number, value: vec![value] }
    });
    Decision { name: name.to_owned(), values: values.collect(), gone: ids(gone) }
}

#[test]
fn all_get_the_values_of_all_once_the_last_has_proposed() {
    let mut manager = running(3);
    propose(&mut manager, 2, proposal(1, "x", &[2, 0, 1, 0], 12));
    // A later value replaces the earlier one.
    propose(&mut manager, 0, proposal(5, "x", &[0, 1, 2], 9));
    propose(&mut manager, 0, proposal(5, "x", &[0, 1, 2], 10));
    // Other names and members are other agreements.
    propose(&mut manager, 1, proposal(1, "y", &[1, 2], 0));
    assert_eq!(said(&mut manager), []);
    propose(&mut manager, 1, proposal(2, "x", &[0, 1, 2], 11));
    let agreed = decision("x", &[(0, 5, 10), (1, 2, 11), (2, 1, 12)], &[]);
    let told = [0, 1, 2].map(|line| (line, Down::Agreed(agreed.clone())));
    assert_eq!(said(&mut manager), told);
    // A member that sends its proposal again gets the decision that was made of it. The name is free.
    propose(&mut manager, 1, proposal(3, "x", &[0, 1], 21));
    assert_eq!(said(&mut manager), []);
    propose(&mut manager, 2, proposal(1, "x", &[0, 1, 2], 13));
    assert_eq!(said(&mut manager), [(2, Down::Agreed(agreed))]);
    propose(&mut manager, 0, proposal(6, "x", &[0, 1], 20));
    let agreed = decision("x", &[(0, 6, 20), (1, 3, 21)], &[]);
    assert_eq!(said(&mut manager), [0, 1].map(|line| (line, Down::Agreed(agreed.clone()))));
}

#[test]
fn the_dead_and_those_that_left_are_not_waited_for() {
    let mut manager = running(4);
    let among = [0, 1, 2, 3, 9];
    propose(&mut manager, 0, proposal(1, "x", &among, 10));
    // Its value goes with it.
    propose(&mut manager, 1, proposal(1, "x", &among, 11));
    manager.handle_lost(Line(1), "silent");
    propose(&mut manager, 2, proposal(1, "x", &among, 12));
    let told = said(&mut manager);
    assert!(told.iter().all(|(_, down)| matches!(down, Down::Died(_))), "{told:?}");
    // The second death is the last that is waited for; nobody knows rank 9.
    manager.handle_lost(Line(3), "silent");
    let agreed = decision("x", &[(0, 1, 10), (2, 1, 12)], &[1, 3, 9]);
    let told = [0, 2].map(|line| (line, Down::Agreed(agreed.clone())));
    assert_eq!(said(&mut manager)[2..], told);
    propose(&mut manager, 0, proposal(2, "y", &[0, 2], 20));
    manager.handle_message(Line(2), Up::Leave);
    let agreed = decision("y", &[(0, 2, 20)], &[2]);
    assert_eq!(said(&mut manager)[1..], [(0, Down::Agreed(agreed))]);
    // Nobody is left to hear of an agreement of the dead.
    let mut manager = running(2);
    propose(&mut manager, 1, proposal(1, "x", &[0, 1], 10));
    manager.handle_lost(Line(1), "silent");
    said(&mut manager);
    propose(&mut manager, 0, proposal(1, "x", &[0], 11));
    assert_eq!(said(&mut manager), [(0, Down::Agreed(decision("x", &[(0, 1, 11)], &[])))]);
}

#[test]
fn a_member_that_was_taken_for_dead_hears_what_was_decided_without_it() {
    let mut manager = running(2);
    propose(&mut manager, 1, proposal(1, "x", &[0, 1], 11));
    manager.handle_lost(Line(1), "silent");
    propose(&mut manager, 0, proposal(1, "x", &[0, 1], 10));
    said(&mut manager);
    let before = Before { members: ids(&[0, 1]), ..Before::default() };
    let again = Ready { again: Some(Box::new(before)), ..ready(1, 2, 101) };
    manager.handle_message(Line(7), Up::Ready(again));
    said(&mut manager);
    let again = || Up::Agree(proposal(1, "x", &[0, 1], 11));
    manager.handle_message(Line(7), again());
    assert_eq!(said(&mut manager), [(7, Down::Agreed(decision("x", &[(0, 1, 10)], &[1])))]);
    // Once: the next of that name is another.
    manager.handle_message(Line(7), Up::Agree(proposal(2, "x", &[0, 1], 21)));
    propose(&mut manager, 0, proposal(2, "x", &[0, 1], 20));
    let agreed = decision("x", &[(0, 2, 20), (1, 2, 21)], &[]);
    assert_eq!(said(&mut manager), [0, 7].map(|line| (line, Down::Agreed(agreed.clone()))));
}

#[test]
fn proposals_that_do_not_fit_are_refused() {
    let mut manager = running(3);
    let long = Proposal { value: vec![0; VALUE_BYTES_MAX + 1], ..proposal(4, "x", &[0], 0) };
    for (proposal, why) in [
        (proposal(2, "", &[0], 0), Objection::Name),
        (proposal(3, &"n".repeat(256), &[0], 0), Objection::Name),
        (long, Objection::Value { bytes: 1025, max: 1024 }),
        (proposal(5, "x", &[1, 2], 0), Objection::NotAmong),
    ] {
        let number = proposal.number;
        propose(&mut manager, 0, proposal);
        assert_eq!(said(&mut manager), [(0, Down::NotAgreed { number, why })]);
    }
    // The first agreement goes on.
    propose(&mut manager, 1, proposal(1, "x", &[0, 1, 2], 1));
    propose(&mut manager, 0, proposal(7, "x", &[0, 1], 1));
    let why = Objection::Differs { count: 2, first: id(1), first_count: 3 };
    let text = "this node names 2 members, and rank 1 named 3, not the same ones";
    assert_eq!(why.to_string(), text);
    assert_eq!(said(&mut manager), [(0, Down::NotAgreed { number: 7, why })]);
    for number in 0..=AGREEMENTS_A_MEMBER_MAX as u64 {
        propose(&mut manager, 0, proposal(10 + number, &number.to_string(), &[0, 1], 0));
    }
    let number = 10 + AGREEMENTS_A_MEMBER_MAX as u64;
    let why = Objection::TooMany;
    assert_eq!(said(&mut manager), [(0, Down::NotAgreed { number, why })]);
    // One of them can be proposed to again, and another once it has heard of one.
    propose(&mut manager, 0, proposal(10, "0", &[0, 1], 0));
    propose(&mut manager, 1, proposal(2, "0", &[0, 1], 0));
    heard(&mut manager, 0, 10);
    propose(&mut manager, 0, proposal(number, "another", &[0, 1], 0));
    let told = said(&mut manager);
    assert!(told.iter().all(|(_, down)| matches!(down, Down::Agreed(_))), "{told:?}");
    assert_eq!(told.len(), 2);
    // All values with which a member waits to meet are counted together.
    let half = |number: u64| {
        let value = vec![0; MEETING_BYTES_MAX / 2 + 1];
        Proposal { number, name: number.to_string(), among: Among::Another, value }
    };
    propose(&mut manager, 2, half(1));
    propose(&mut manager, 2, half(1));
    assert_eq!(said(&mut manager), []);
    propose(&mut manager, 2, half(2));
    assert_eq!(said(&mut manager), [(2, Down::NotAgreed { number: 2, why: Objection::TooMany })]);
}

/// Lets everything that the member says arrive at the manager, and the answers at the member.
fn exchange(member: &mut Membership, manager: &mut Manager) {
    while let Some(word) = member.poll_transmit() {
        manager.handle_message(Line(0), word);
        while let Some((_, down)) = manager.poll_transmit() {
            member.handle_message(down).unwrap();
        }
    }
}

/// The only member of a cluster.
fn alone() -> (Membership, Manager) {
    let mut member = Membership::new(ready(0, 1, 100), SECOND);
    member.announce();
    let mut manager = Manager::new(77, 1, SECOND, Time(0));
    exchange(&mut member, &mut manager);
    (member, manager)
}

fn value_of(member: &Membership, number: u64) -> Option<u8> {
    Some(member.agreement(number)?.as_ref().unwrap().values[0].value[0])
}

#[test]
fn a_caller_that_comes_back_gets_the_outcome_of_its_first_call() {
    let (mut member, mut manager) = alone();
    let among = [id(0)];
    // Gone before the decision: the last value counts.
    let number = member.propose("x", &among, &[1]).unwrap();
    member.leave_agreement(number, false);
    assert_eq!(member.propose("x", &among, &[2]), Ok(number));
    // Gone after the decision.
    member.leave_agreement(number, false);
    exchange(&mut member, &mut manager);
    let first = value_of(&member, number);
    assert_eq!(member.propose("x", &among, &[3]), Ok(number));
    assert_eq!(value_of(&member, number), first);
    // Two callers of one proposal both get it; the next call is another.
    assert_eq!(member.propose("x", &among, &[4]), Ok(number));
    member.leave_agreement(number, true);
    assert_eq!(value_of(&member, number), first);
    let next = member.propose("x", &among, &[5]).unwrap();
    assert_ne!(next, number);
    member.leave_agreement(number, true);
    assert_eq!(member.agreement(number), None);
    exchange(&mut member, &mut manager);
    assert_eq!(value_of(&member, next), Some(5));
}

#[test]
fn an_agreement_among_nobody_is_refused() {
    let (mut member, _) = alone();
    assert_eq!(member.propose("x", &[], &[0]), Err(Objection::NotAmong));
}

#[test]
fn two_meet_and_the_manager_decides_it_once() {
    let mut manager = running(4);
    let meets = |manager: &mut Manager, rank: u32, number: u64, value: u8| {
        propose(manager, rank, meeting(number, Among::Another, value));
    };
    let gives_up = |manager: &mut Manager, rank: u32, number: u64, value: u8| {
        propose(manager, rank, meeting(number, Among::Nobody, value));
    };
    meets(&mut manager, 3, 1, 13);
    // Said again, it does not meet itself.
    meets(&mut manager, 3, 1, 13);
    assert_eq!(said(&mut manager), []);
    meets(&mut manager, 1, 4, 11);
    let met = Down::Agreed(decision("x", &[(1, 4, 11), (3, 1, 13)], &[]));
    assert_eq!(said(&mut manager), [1, 3].map(|line| (line, met.clone())));
    // The one that gave up in the meantime has met all the same.
    gives_up(&mut manager, 3, 1, 13);
    assert_eq!(said(&mut manager), [(3, met)]);
    // One that gives up first is alone, and is met no more.
    meets(&mut manager, 0, 2, 10);
    gives_up(&mut manager, 0, 2, 10);
    assert_eq!(said(&mut manager), [(0, Down::Agreed(decision("x", &[(0, 2, 10)], &[])))]);
    meets(&mut manager, 2, 1, 12);
    assert_eq!(said(&mut manager), []);
    // So does one whose first word this manager has not heard, beside another that waits.
    gives_up(&mut manager, 1, 5, 21);
    assert_eq!(said(&mut manager), [(1, Down::Agreed(decision("x", &[(1, 5, 21)], &[])))]);
    // The dead are met no more either.
    manager.handle_lost(Line(2), "silent");
    said(&mut manager);
    meets(&mut manager, 3, 2, 23);
    assert_eq!(said(&mut manager), []);
    // An agreement of the name is another thing.
    propose(&mut manager, 0, proposal(3, "x", &[0], 0));
    assert_eq!(said(&mut manager), [(0, Down::Agreed(decision("x", &[(0, 3, 0)], &[])))]);
    // Two of one member meet each other, and it hears of that once.
    meets(&mut manager, 3, 3, 33);
    let met = Down::Agreed(decision("x", &[(3, 2, 23), (3, 3, 33)], &[]));
    assert_eq!(said(&mut manager), [(3, met)]);
}

/// Returns the announcement of a member to another manager of a cluster of three.
fn again(rank: u32, decisions: Vec<Decision>, open: Vec<u64>) -> Up {
    let before = Before { members: ids(&[0, 1, 2]), decisions, open, ..Before::default() };
    let ready = ready(rank, 3, 100 + u128::from(rank));
    Up::Ready(Ready { again: Some(Box::new(before)), ..ready })
}

#[test]
fn a_decision_is_settled_once_all_have_heard_it() {
    let mut manager = running(3);
    for (rank, number) in [(0, 4), (1, 5), (2, 6)] {
        propose(&mut manager, rank, proposal(number, "x", &[0, 1, 2], 10));
    }
    said(&mut manager);
    heard(&mut manager, 0, 4);
    heard(&mut manager, 2, 6);
    // Of a word that another line brings again, nothing is known.
    heard(&mut manager, 2, 7);
    assert_eq!(said(&mut manager), []);
    heard(&mut manager, 1, 5);
    assert_eq!(said(&mut manager), [0, 1, 2].map(|line| (line, Down::Settled((id(0), 4)))));
    // Not while one of its members is gone, for that one may come back.
    for rank in 0..3 {
        propose(&mut manager, rank, proposal(8, "y", &[0, 1, 2], 10));
    }
    said(&mut manager);
    heard(&mut manager, 0, 8);
    manager.handle_lost(Line(2), "silent");
    heard(&mut manager, 1, 8);
    assert!(said(&mut manager).iter().all(|(_, down)| matches!(down, Down::Died(_))));
}

#[test]
fn a_new_manager_settles_what_the_other_did_not() {
    let agreed = decision("x", &[(0, 4, 10), (1, 5, 11), (2, 6, 12)], &[]);
    for waits in [true, false] {
        let mut manager = Manager::new(78, 3, SECOND, Time(0));
        manager.handle_message(Line(0), again(0, vec![agreed.clone()], vec![]));
        manager.handle_message(Line(1), again(1, vec![], if waits { vec![5] } else { vec![] }));
        assert_eq!(said(&mut manager), []);
        manager.handle_message(Line(2), again(2, vec![], vec![]));
        let told = said(&mut manager);
        let settled = |told: &[(u64, Down)]| {
            told.iter().filter(|it| it.1 == Down::Settled((id(0), 4))).count()
        };
        assert_eq!(settled(&told), if waits { 0 } else { 3 });
        if waits {
            propose(&mut manager, 1, proposal(5, "x", &[0, 1, 2], 11));
            assert_eq!(said(&mut manager), [(1, Down::Agreed(agreed.clone()))]);
            heard(&mut manager, 1, 5);
            assert_eq!(settled(&said(&mut manager)), 3);
        }
    }
}

/// A member keeps every decision of which another may not have heard, however many.
#[test]
fn a_slow_member_hears_the_first_of_many_decisions_from_a_new_manager() {
    let mut member = Membership::new(ready(0, 3, 100), SECOND);
    member.announce();
    let mut manager = Manager::new(77, 3, SECOND, Time(0));
    manager.handle_message(Line(0), member.poll_transmit().unwrap());
    for rank in [1, 2] {
        let ready = ready(rank, 3, 100 + u128::from(rank));
        manager.handle_message(Line(rank.into()), Up::Ready(ready));
    }
    let tell = |manager: &mut Manager, member: &mut Membership| {
        let downs = said(manager).into_iter().filter(|(line, _)| *line == 0);
        downs.for_each(|(_, down)| member.handle_message(down).unwrap());
    };
    tell(&mut manager, &mut member);
    let first = member.propose("first", &ids(&[0, 1]), &[10]).unwrap();
    propose(&mut manager, 1, proposal(1, "first", &[0, 1], 11));
    for number in 0..3 * DECISIONS_MAX as u64 {
        let name = number.to_string();
        member.propose(&name, &ids(&[0, 2]), &[0]).unwrap();
        propose(&mut manager, 2, proposal(number, &name, &[0, 2], 0));
        while let Some(word) = member.poll_transmit() {
            manager.handle_message(Line(0), word);
        }
        heard(&mut manager, 2, number);
        tell(&mut manager, &mut member);
    }
    while let Some(word) = member.poll_transmit() {
        manager.handle_message(Line(0), word);
    }
    tell(&mut manager, &mut member);
    let heard = member.heard();
    assert_eq!(heard.iter().map(|it| &it.name[..]).collect::<Vec<_>>(), ["first"]);
    let mut manager = Manager::new(78, 3, SECOND, Time(0));
    assert!(member.handle_manager_lost("it died", Time(0)));
    member.announce();
    manager.handle_message(Line(0), member.poll_transmit().unwrap());
    manager.handle_message(Line(1), again(1, vec![], vec![1]));
    manager.handle_message(Line(2), again(2, vec![], vec![]));
    said(&mut manager);
    propose(&mut manager, 1, proposal(1, "first", &[0, 1], 11));
    let agreed = decision("first", &[(0, first, 10), (1, 1, 11)], &[]);
    assert_eq!(said(&mut manager), [(1, Down::Agreed(agreed))]);
}

#[test]
fn a_meeting_that_one_of_two_has_heard_of_stays_under_a_new_manager() {
    let met = decision("x", &[(0, 4, 10), (1, 5, 11)], &[]);
    let mut manager = Manager::new(78, 3, SECOND, Time(0));
    manager.handle_message(Line(0), again(0, vec![met.clone()], vec![]));
    manager.handle_message(Line(1), again(1, vec![], vec![5]));
    manager.handle_message(Line(2), again(2, vec![], vec![]));
    said(&mut manager);
    // Rank 1 has given up before it heard; rank 2 is another.
    propose(&mut manager, 2, meeting(1, Among::Another, 12));
    propose(&mut manager, 1, meeting(5, Among::Nobody, 11));
    assert_eq!(said(&mut manager), [(1, Down::Agreed(met))]);
}

/// A meeting of which one has heard, who comes too late to the next manager, where the other met a third.
#[test]
fn who_comes_back_with_another_meeting_is_refused_also_when_that_is_settled() {
    let first = decision("x", &[(0, 4, 10), (1, 5, 11)], &[]);
    let mut manager = Manager::new(78, 3, SECOND, Time(0));
    manager.handle_message(Line(1), again(1, vec![], vec![5]));
    manager.handle_message(Line(2), again(2, vec![], vec![]));
    manager.handle_timeout(Time(0).after(SECOND));
    propose(&mut manager, 1, meeting(5, Among::Another, 11));
    propose(&mut manager, 2, meeting(6, Among::Another, 12));
    said(&mut manager);
    heard(&mut manager, 1, 5);
    heard(&mut manager, 2, 6);
    assert_eq!(said(&mut manager).len(), 2, "it is settled");
    manager.handle_message(Line(0), again(0, vec![first], vec![]));
    let why = Refusal::Decided { name: "x".to_owned() };
    assert_eq!(said(&mut manager), [(0, Down::Refused(why))]);
    // One that knows the same as the others, and not that it is settled, hears that.
    let same = decision("x", &[(1, 5, 11), (2, 6, 12)], &[]);
    manager.handle_message(Line(7), again(1, vec![same], vec![]));
    let told = said(&mut manager);
    let settled = told.iter().filter(|it| it.1 == Down::Settled((id(1), 5)));
    assert_eq!(settled.map(|it| it.0).collect::<Vec<_>>(), [7, 2]);
}

#[test]
fn a_proposal_that_was_dropped_while_the_line_was_lost_is_met_no_more() {
    let mut manager = running(3);
    propose(&mut manager, 1, meeting(5, Among::Another, 11));
    propose(&mut manager, 1, proposal(6, "y", &[0, 1], 11));
    propose(&mut manager, 1, proposal(7, "z", &[0, 1], 11));
    manager.handle_message(Line(8), again(1, vec![], vec![7]));
    said(&mut manager);
    propose(&mut manager, 0, meeting(1, Among::Another, 10));
    propose(&mut manager, 0, proposal(2, "y", &[0, 1], 10));
    assert_eq!(said(&mut manager), []);
    propose(&mut manager, 0, proposal(3, "z", &[0, 1], 10));
    assert_eq!(said(&mut manager).len(), 2);
}

/// A decision of its own open proposal, which no member of this code brings.
#[test]
fn a_member_that_brings_the_decision_for_which_it_asks_harms_nobody() {
    let mut manager = running(3);
    propose(&mut manager, 1, meeting(5, Among::Another, 11));
    let brought = decision("x", &[(1, 5, 11)], &[]);
    manager.handle_message(Line(8), again(1, vec![brought], vec![5]));
    let told = said(&mut manager);
    assert!(told.iter().all(|(_, down)| !matches!(down, Down::Refused(_))), "{told:?}");
    propose(&mut manager, 0, proposal(1, "z", &[0], 10));
    assert_eq!(said(&mut manager).len(), 1);
}

#[test]
fn a_member_that_waits_for_nobody_any_more_keeps_its_number() {
    let (mut member, mut manager) = alone();
    let number = member.meet("x", &[1]).unwrap();
    exchange(&mut member, &mut manager);
    assert_eq!(member.agreement(number), None);
    member.meet_nobody(number);
    exchange(&mut member, &mut manager);
    assert_eq!(value_of(&member, number), Some(1));
    // It was decided, and nothing is said.
    member.meet_nobody(number);
    assert_eq!(member.poll_transmit(), None);
}

#[test]
fn outcomes_that_nobody_takes_are_bounded() {
    let (mut member, mut manager) = alone();
    let among = [id(0)];
    let mut numbers = Vec::new();
    let kept = member.propose("kept", &among, &[0]).unwrap();
    for name in 0..2 * DECISIONS_MAX {
        let number = member.propose(&name.to_string(), &among, &[0]).unwrap();
        member.leave_agreement(number, false);
        exchange(&mut member, &mut manager);
        numbers.push(number);
    }
    let (gone, left) = numbers.split_at(DECISIONS_MAX);
    assert!(gone.iter().all(|number| member.agreement(*number).is_none()));
    assert!(left.iter().all(|number| member.agreement(*number).is_some()));
    assert!(member.agreement(kept).is_some(), "a caller waits for it");
}

#[test]
fn a_new_manager_knows_what_some_have_heard() {
    let agreed = decision("x", &[(0, 4, 10), (1, 5, 11), (2, 6, 12)], &[]);
    let mut manager = Manager::new(78, 3, SECOND, Time(0));
    manager.handle_message(Line(0), again(0, vec![agreed.clone()], vec![]));
    manager.handle_message(Line(1), again(1, vec![], vec![5]));
    manager.handle_message(Line(2), again(2, vec![], vec![6]));
    assert_eq!(said(&mut manager).len(), 3);
    // Rank 0 goes on to the next of that name; the others still wait for the first.
    propose(&mut manager, 0, proposal(5, "x", &[0, 1, 2], 20));
    for (rank, number) in [(1, 5), (2, 6)] {
        propose(&mut manager, rank, proposal(number, "x", &[0, 1, 2], 0));
        assert_eq!(said(&mut manager), [(u64::from(rank), Down::Agreed(agreed.clone()))]);
        propose(&mut manager, rank, proposal(number + 1, "x", &[0, 1, 2], 20));
    }
    let second = decision("x", &[(0, 5, 20), (1, 6, 20), (2, 7, 20)], &[]);
    assert_eq!(said(&mut manager), [0, 1, 2].map(|line| (line, Down::Agreed(second.clone()))));
}

/// The manager dies when one member has heard its decision; that one comes too late to the next manager.
#[test]
fn who_comes_back_when_all_was_decided_anew_is_refused_if_it_has_heard_otherwise() {
    for has_heard in [true, false] {
        let first = decision("x", &[(0, 4, 10), (1, 5, 11), (2, 6, 12)], &[]);
        let mut manager = Manager::new(78, 3, SECOND, Time(0));
        manager.handle_message(Line(0), again(0, vec![], vec![4]));
        manager.handle_message(Line(1), again(1, vec![], vec![5]));
        manager.handle_timeout(Time(0).after(SECOND));
        said(&mut manager);
        propose(&mut manager, 0, proposal(4, "x", &[0, 1, 2], 10));
        propose(&mut manager, 1, proposal(5, "x", &[0, 1, 2], 11));
        let second = decision("x", &[(0, 4, 10), (1, 5, 11)], &[2]);
        assert_eq!(said(&mut manager), [0, 1].map(|line| (line, Down::Agreed(second.clone()))));
        let heard = if has_heard { vec![first] } else { vec![] };
        manager.handle_message(Line(2), again(2, heard, vec![]));
        if has_heard {
            let why = Refusal::Decided { name: "x".to_owned() };
            assert_eq!(said(&mut manager), [(2, Down::Refused(why))]);
        } else {
            said(&mut manager);
            propose(&mut manager, 2, proposal(6, "x", &[0, 1, 2], 12));
            assert_eq!(said(&mut manager), [(2, Down::Agreed(second))]);
        }
    }
}

#[test]
fn who_comes_back_late_brings_its_decisions_to_those_that_wait() {
    let mut manager = running(3);
    propose(&mut manager, 1, proposal(5, "x", &[0, 1, 2], 11));
    propose(&mut manager, 2, proposal(7, "x", &[0, 1, 2], 22));
    assert_eq!(said(&mut manager), []);
    let agreed = decision("x", &[(0, 4, 10), (1, 5, 11), (2, 6, 12)], &[]);
    let before = Before { decisions: vec![agreed.clone()], ..Before::default() };
    let again = Ready { again: Some(Box::new(before)), ..ready(0, 3, 100) };
    manager.handle_message(Line(8), Up::Ready(again));
    let told = said(&mut manager);
    let told: Vec<_> = told.iter().filter(|it| matches!(it.1, Down::Agreed(_))).collect();
    assert_eq!(told, [&(1, Down::Agreed(agreed))]);
}
