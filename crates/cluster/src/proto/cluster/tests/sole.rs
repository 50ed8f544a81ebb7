//! Names that one member provides alone.

use super::*;

fn id(rank: u32) -> NodeId {
    NodeId { rank, incarnation: 100 + u128::from(rank) }
}

fn name() -> String {
    "n".to_owned()
}

/// Asks for the name on the line of this rank; returns the answer.
fn ask(manager: &mut Manager, rank: u64, number: u64) -> NameAnswer {
    manager.handle_message(Line(rank), Up::ProvideSole { number, name: name() });
    let told = said(manager);
    let own = |(line, down): &(u64, Down)| match down {
        Down::Sole { number: its, answer } if *line == rank && *its == number => Some(*answer),
        _ => None,
    };
    told.iter().find_map(own).unwrap_or_else(|| panic!("{told:?}"))
}

#[test]
fn one_gets_the_name_and_the_others_hear_who_has_it() {
    let mut manager = running(3);
    manager.handle_message(Line(1), Up::ProvideSole { number: 1, name: name() });
    let provided = [0, 1, 2].map(|line| (line, Down::Provided(name(), id(1))));
    let granted = (1, Down::Sole { number: 1, answer: NameAnswer::Granted });
    assert_eq!(said(&mut manager), [&provided[..], &[granted]].concat());
    assert_eq!(ask(&mut manager, 2, 7), NameAnswer::Held(id(1)));
    manager.handle_message(Line(0), Up::Provide(name()));
    assert_eq!(said(&mut manager), [(0, Down::NameHeld(name(), id(1)))]);
    // Its provider may say it again, in both ways.
    manager.handle_message(Line(1), Up::Provide(name()));
    assert_eq!(said(&mut manager), []);
    assert_eq!(ask(&mut manager, 1, 2), NameAnswer::Granted);
    let long = Up::ProvideSole { number: 8, name: "n".repeat(256) };
    manager.handle_message(Line(2), long);
    let refused = Down::Sole { number: 8, answer: NameAnswer::Refused };
    assert_eq!(said(&mut manager), [(2, refused)]);
}

#[test]
fn a_name_that_others_provide_is_not_had_alone() {
    let mut manager = running(3);
    manager.handle_message(Line(0), Up::Provide(name()));
    said(&mut manager);
    assert_eq!(ask(&mut manager, 1, 1), NameAnswer::Held(id(0)));
    manager.handle_message(Line(2), Up::Provide(name()));
    assert_eq!(said(&mut manager).len(), 3, "it is provided by several all the same");
}

#[test]
fn a_provider_that_withdraws_leaves_or_dies_frees_the_name() {
    let ends: [fn(&mut Manager); 3] = [
        |manager| manager.handle_message(Line(1), Up::Withdraw(name())),
        |manager| manager.handle_message(Line(1), Up::Leave),
        |manager| manager.handle_lost(Line(1), "silent"),
    ];
    for end in ends {
        let mut manager = running(3);
        assert_eq!(ask(&mut manager, 1, 1), NameAnswer::Granted);
        assert_eq!(ask(&mut manager, 2, 1), NameAnswer::Held(id(1)));
        end(&mut manager);
        said(&mut manager);
        assert_eq!(ask(&mut manager, 2, 2), NameAnswer::Granted);
        assert_eq!(ask(&mut manager, 0, 1), NameAnswer::Held(id(2)));
    }
}

/// Announcement of a member that knows all three, had the name alone by question 1, and provides
/// other names.
fn again(rank: u32, has: bool, names: &[&str]) -> Up {
    let before = Before {
        members: [0, 1, 2].map(id).to_vec(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        sole: if has { vec![(1, name())] } else { Vec::new() },
        ..Before::default()
    };
    let ready = ready(rank, 3, 100 + u128::from(rank));
    Up::Ready(Ready { again: Some(Box::new(before)), ..ready })
}

#[test]
fn a_new_manager_leaves_the_name_to_its_provider() {
    let mut manager = Manager::new(78, 3, SECOND, Time(0));
    // Rank 0 has asked for the name while no manager was there.
    manager.handle_message(Line(0), again(0, false, &["n", ""]));
    manager.handle_message(Line(1), again(1, true, &[]));
    manager.handle_message(Line(2), again(2, false, &["m"]));
    assert_eq!(*manager.phase(), Phase::Running);
    let told = said(&mut manager);
    for (_, down) in &told[..3] {
        // Before this word members understand no other.
        let Down::TaskIds(ids) = down else { panic!("{down:?}") };
        assert_eq!(ids.names, [("m".to_owned(), id(2)), (name(), id(1))]);
    }
    let answers = [
        (1, Down::Sole { number: 1, answer: NameAnswer::Granted }),
        (0, Down::NameHeld(name(), id(1))),
        (0, Down::NameRefused(String::new())),
    ];
    assert_eq!(told[3..], answers);
    assert_eq!(ask(&mut manager, 0, 5), NameAnswer::Held(id(1)));
}

#[test]
fn a_provider_that_comes_back_too_late_hears_who_has_its_name() {
    let mut manager = running(3);
    assert_eq!(ask(&mut manager, 1, 1), NameAnswer::Granted);
    manager.handle_lost(Line(1), "silent");
    said(&mut manager);
    assert_eq!(ask(&mut manager, 2, 1), NameAnswer::Granted);
    manager.handle_message(Line(5), again(1, true, &[]));
    let told = said(&mut manager);
    let lost = Down::Sole { number: 1, answer: NameAnswer::Held(id(2)) };
    assert_eq!(told.last(), Some(&(5, lost)));
}

#[test]
fn a_name_that_was_withdrawn_without_a_line_is_free() {
    let mut manager = running(3);
    assert_eq!(ask(&mut manager, 1, 1), NameAnswer::Granted);
    manager.handle_message(Line(1), Up::Provide("m".to_owned()));
    said(&mut manager);
    // The loss of the old line is not known yet.
    manager.handle_message(Line(5), again(1, false, &["m"]));
    let told = said(&mut manager);
    let (5, Down::TaskIds(_)) = &told[0] else { panic!("{told:?}") };
    assert_eq!(told[1..], [0, 5, 2].map(|line| (line, Down::Withdrawn(name(), id(1)))));
    assert_eq!(ask(&mut manager, 2, 1), NameAnswer::Granted);
}

/// A member on the line of its rank to this manager.
fn member(manager: &mut Manager, rank: u32) -> Membership {
    let mut member = Membership::new(ready(rank, 1, 100 + u128::from(rank)), SECOND);
    member.announce();
    talk(manager, &mut member, rank);
    member
}

/// Delivers all words of both.
fn talk(manager: &mut Manager, member: &mut Membership, rank: u32) {
    while let Some(up) = member.poll_transmit() {
        manager.handle_message(Line(rank.into()), up);
        for (_, down) in said(manager) {
            member.handle_message(down).unwrap();
        }
    }
}

#[test]
fn an_answer_to_a_question_that_was_given_up_is_none_to_the_next() {
    let mut manager = Manager::new(77, 1, SECOND, Time(0));
    let mut member = member(&mut manager, 0);
    let first = member.provide_sole("n").unwrap();
    let Some(up) = member.poll_transmit() else { panic!() };
    member.leave_sole(first);
    let second = member.provide_sole("n").unwrap();
    manager.handle_message(Line(0), up);
    for (_, down) in said(&mut manager) {
        member.handle_message(down).unwrap();
    }
    assert_eq!((member.sole(first), member.sole(second)), (Asked::Withdrawn, Asked::Open));
    talk(&mut manager, &mut member, 0);
    assert_eq!(member.sole(second), Asked::Answered(NameAnswer::Granted));
    assert_eq!(member.provide_sole("n"), None, "it has the name");
    member.withdraw("n");
    assert_eq!(member.sole(second), Asked::Withdrawn);
    assert!(!member.provides("n"));
    assert!(member.provide_sole("n").is_some());
}
