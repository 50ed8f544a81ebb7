//! The loss of a manager, and its successor.

use super::*;

#[test]
fn a_member_ends_with_its_manager_unless_it_may_wait() {
    for window in [Duration::ZERO, SECOND] {
        let mut member = Membership::new(ready(0, 1, 5), window);
        member.announce();
        let mut manager = Manager::new(77, 1, SECOND, Time(0));
        manager.handle_message(Line(0), member.poll_transmit().unwrap());
        member.handle_message(manager.poll_transmit().unwrap().1).unwrap();
        assert_eq!(member.id(), Some(NodeId { rank: 0, incarnation: 5 }));
        let waits = member.handle_manager_lost("silent", Time(7));
        assert_eq!(waits, !window.is_zero());
        if waits {
            // Failed attempts do not extend the wait.
            member.announce();
            assert!(member.handle_manager_lost("silent again", Time(9)));
            assert_eq!(member.poll_timeout(), Some(Time(7).after(SECOND)));
            member.handle_timeout(Time(7).after(SECOND));
        }
        let End::ManagerLost { loss } = member.end().unwrap() else { panic!() };
        assert!(loss.to_string().starts_with("silent"), "{loss}");
    }
}

#[test]
fn a_manager_that_speaks_out_of_turn_is_an_error() {
    let mut member = Membership::new(ready(0, 1, 5), SECOND);
    member.announce();
    assert!(member.handle_message(Down::Finish { by: None }).is_err());
    let mut manager = Manager::new(77, 1, SECOND, Time(0));
    manager.handle_message(Line(0), Up::Ready(ready(0, 1, 6)));
    assert!(member.handle_message(manager.poll_transmit().unwrap().1).is_err());
}

/// Announcement of an earlier manager's member to another manager.
fn again(rank: u32, before: &Before) -> Up {
    let ready = ready(rank, 3, 100 + u128::from(rank));
    Up::Ready(Ready { again: Some(Box::new(before.clone())), ..ready })
}

#[test]
fn who_died_or_left_before_is_not_waited_for_and_is_known_as_it_was() {
    let id = |rank, incarnation| NodeId { rank, incarnation };
    let dead = |id, why: &str| Death { id, loss: why.into() };
    // Rank 2 died twice, for the same reason; no barrier was passed since the second death.
    let deaths = vec![dead(id(2, 7), "silent"), dead(id(2, 8), "silent")];
    let before = Before {
        passed: 4,
        members: vec![id(0, 50), id(1, 101)],
        deaths: deaths.clone(),
        unnamed: vec![id(2, 8)],
        ..Before::default()
    };
    let mut manager = Manager::new(78, 3, SECOND, Time(0));
    manager.handle_message(Line(0), Up::Ready(ready(0, 3, 100)));
    manager.handle_message(Line(1), again(1, &before));
    assert_eq!(*manager.phase(), Phase::Running, "all are there who were");
    for (line, down) in said(&mut manager) {
        let Down::TaskIds(ids) = down else { panic!("{down:?}") };
        // Rank 0 is another node, and goes on at the barrier of the other member.
        assert_eq!((line, ids.barrier, &ids.deaths[..2]), (u64::from(ids.rank), 4, &deaths[..]));
        assert_eq!((ids.deaths.len(), ids.deaths[2].id), (3, id(0, 50)));
    }
    for line in [1, 0] {
        manager.handle_message(Line(line), Up::Barrier(5));
    }
    let released = Down::Released { number: 5, died: vec![id(0, 50), id(2, 8)] };
    assert_eq!(said(&mut manager), [0, 1].map(|line| (line, released.clone())));
}

#[test]
fn a_manager_of_one_rank_listens_for_members_of_an_earlier_one_before_it_starts() {
    let id = |rank, incarnation| NodeId { rank, incarnation };
    let members = vec![id(0, 50), id(1, 101), id(2, 102)];
    let before = Before { members, ..Before::default() };
    // They had come later, without a size.
    let later = |rank: u32| {
        let ready = ready(rank, 1, 100 + u128::from(rank));
        Up::Ready(Ready { size: None, again: Some(Box::new(before.clone())), ..ready })
    };
    let wait = SECOND / 2;
    let new = || Manager::new(78, 1, SECOND, Time(0)).succeeding(wait);
    let mut manager = new();
    manager.handle_message(Line(0), Up::Ready(ready(0, 1, 100)));
    assert_eq!(*manager.phase(), Phase::Gathering, "others may know better");
    assert_eq!(manager.poll_timeout(), Some(Time(0).after(wait)));
    manager.handle_message(Line(1), later(1));
    assert_eq!(*manager.phase(), Phase::Gathering, "rank 2 lived");
    manager.handle_timeout(Time(0).after(wait));
    assert_eq!(*manager.phase(), Phase::Gathering);
    manager.handle_message(Line(2), later(2));
    assert_eq!(*manager.phase(), Phase::Running);
    for (_, down) in said(&mut manager) {
        let Down::TaskIds(ids) = down else { panic!("{down:?}") };
        let there: Vec<_> = ids.members.iter().map(|member| member.id).collect();
        assert_eq!(there, [id(0, 100), id(1, 101), id(2, 102)]);
        let died: Vec<_> = ids.deaths.iter().map(|death| death.id).collect();
        assert_eq!(died, [id(0, 50)]);
    }
    // When no member comes, the manager begins alone.
    let mut manager = new();
    manager.handle_message(Line(0), Up::Ready(ready(0, 1, 100)));
    manager.handle_timeout(Time(0).after(wait));
    assert_eq!(*manager.phase(), Phase::Running);
}

#[test]
fn a_death_while_the_members_come_back_is_one_and_not_the_end() {
    let id = |rank| NodeId { rank, incarnation: 100 + u128::from(rank) };
    let before = Before { members: [0, 1, 2].map(id).to_vec(), ..Before::default() };
    let mut manager = Manager::new(78, 3, SECOND, Time(0));
    manager.handle_message(Line(0), again(0, &before));
    manager.handle_message(Line(1), again(1, &before));
    // Too early: rank 1 is not a member of this manager yet.
    manager.handle_message(Line(1), Up::Withdraw("name".to_owned()));
    manager.handle_lost(Line(1), "silent");
    assert_eq!(said(&mut manager), []);
    assert_eq!(*manager.phase(), Phase::Gathering);
    manager.handle_message(Line(2), again(2, &before));
    assert_eq!(*manager.phase(), Phase::Running);
    let told = said(&mut manager);
    let death = Death { id: id(1), loss: "silent".into() };
    assert_eq!(told.len(), 2);
    for (_, down) in told {
        let Down::TaskIds(ids) = down else { panic!("{down:?}") };
        assert_eq!(ids.deaths, std::slice::from_ref(&death));
    }
}

#[test]
fn who_comes_back_after_the_start_brings_its_barrier_along() {
    let mut manager = Manager::new(78, 1, SECOND, Time(0));
    manager.handle_message(Line(0), Up::Ready(ready(0, 1, 50)));
    said(&mut manager);
    let id = NodeId { rank: 2, incarnation: 102 };
    let before = Before { passed: 4, members: vec![id], ..Before::default() };
    let ready = Ready { size: None, again: Some(Box::new(before)), ..ready(2, 0, 102) };
    manager.handle_message(Line(2), Up::Ready(ready));
    let released = |number| Down::Released { number, died: vec![] };
    assert!(said(&mut manager).contains(&(0, released(4))));
    for line in [0, 2] {
        manager.handle_message(Line(line), Up::Barrier(5));
    }
    assert_eq!(said(&mut manager), [0, 2].map(|line| (line, released(5))));
}
