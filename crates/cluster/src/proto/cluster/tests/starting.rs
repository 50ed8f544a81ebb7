//! The time until all nodes are there.

use super::*;

#[test]
fn everybody_is_told_names_and_addresses_once_all_are_there() {
    let mut manager = Manager::new(77, 3, SECOND, Time(0));
    let named = |rank: u32, name: &str| {
        Up::Ready(Ready { name: Some(name.to_owned()), ..ready(rank, 3, 100 + u128::from(rank)) })
    };
    manager.handle_message(Line(2), named(2, "two"));
    // An empty name is none.
    manager.handle_message(Line(0), named(0, ""));
    assert_eq!(said(&mut manager), []);
    manager.handle_message(Line(1), named(1, "one"));
    let told = said(&mut manager);
    assert_eq!(told.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [0, 1, 2]);
    for (rank, down) in told {
        let Down::TaskIds(ids) = down else { panic!("{down:?}") };
        assert_eq!((u64::from(ids.rank), ids.size, ids.manager), (rank, 3, 77));
        let addresses: Vec<_> = ids.members.iter().map(|it| it.addresses[0].as_str()).collect();
        assert_eq!(addresses, ["memory:100", "memory:101", "memory:102"]);
        let names: Vec<_> = ids.members.iter().map(|it| it.name.as_deref()).collect();
        assert_eq!(names, [None, Some("one"), Some("two")]);
    }
}

#[test]
fn who_is_not_ready_in_time_is_named() {
    let mut manager = Manager::new(77, 4, Duration::from_millis(1500), Time(0));
    manager.handle_message(Line(2), Up::Ready(ready(2, 4, 1)));
    let until = manager.poll_timeout().unwrap();
    manager.handle_timeout(Time(until.0 - 1));
    assert_eq!(said(&mut manager), []);
    manager.handle_timeout(until);
    let why = Refusal::Missing { ranks: vec![0, 1, 3], waited_ms: 1500 };
    assert_eq!(why.to_string(), "not ready within 1500 ms: ranks 0, 1, 3");
    assert_eq!(said(&mut manager), [(2, Down::Refused(why.clone()))]);
    assert_eq!((manager.phase(), manager.poll_timeout()), (&Phase::Failed(why.clone()), None));
    manager.handle_message(Line(9), Up::Ready(ready(0, 4, 2)));
    assert_eq!(said(&mut manager), [(9, Down::Refused(why))]);
}

#[test]
fn ranks_that_disagree_about_the_size_are_named_to_everybody() {
    let mut manager = Manager::new(77, 3, SECOND, Time(0));
    manager.handle_message(Line(0), Up::Ready(ready(0, 3, 1)));
    manager.handle_message(Line(5), Up::Ready(ready(1, 4, 2)));
    let why = Refusal::Size { rank: Some(1), theirs: 4, ours: 3 };
    let text = "rank 1 was told that the cluster has 4 nodes, rank 0 that it has 3";
    assert_eq!(why.to_string(), text);
    assert_eq!(said(&mut manager), [5, 0].map(|line| (line, Down::Refused(why.clone()))));
    // A running cluster is not concerned.
    let mut manager = running(2);
    manager.handle_message(Line(5), Up::Ready(ready(1, 3, 9)));
    let why = Refusal::Size { rank: Some(1), theirs: 3, ours: 2 };
    assert_eq!(said(&mut manager), [(5, Down::Refused(why))]);
    assert_eq!(*manager.phase(), Phase::Running);
}

#[test]
fn other_functions_are_named_on_both_sides() {
    let ours = functions(&[("sort", 1), ("merge", 2)]);
    for (theirs, text) in [
        (
            &[("sort", 3), ("merge", 2)][..],
            "function \"sort\" is T3 -> T1 on rank 1, and T1 -> T1 on rank 0",
        ),
        (&[("sort", 1)], "rank 0 has function \"merge\" (T2 -> T1), which rank 1 lacks"),
        (
            &[("count", 9), ("sort", 1), ("merge", 2)],
            "rank 1 has function \"count\" (T9 -> T1), which rank 0 lacks",
        ),
        (
            &[("sort", 1), ("merge", 2), ("zip", 9)],
            "rank 1 has function \"zip\" (T9 -> T1), which rank 0 lacks",
        ),
    ] {
        let theirs = functions(theirs);
        let difference = Difference::find(&ours, &theirs).unwrap();
        let why = Refusal::Functions { rank: Some(1), other: 0, difference: Box::new(difference) };
        assert_eq!(why.to_string(), text);
        // At the start no other node waits for it in vain.
        let with = |rank, functions: &[Signature]| Ready {
            functions: Some(functions.to_vec()),
            ..ready(rank, 2, 10 + u128::from(rank))
        };
        let manager = || Manager::new(77, 2, SECOND, Time(0)).comparing("p", Some(ours.clone()));
        let mut starting = manager();
        starting.handle_message(Line(0), Up::Ready(with(0, &ours)));
        starting.handle_message(Line(1), Up::Ready(with(1, &theirs)));
        assert_eq!(said(&mut starting), [1, 0].map(|line| (line, Down::Refused(why.clone()))));
        // Later only the node itself is concerned.
        let mut running = manager();
        running.handle_message(Line(0), Up::Ready(with(0, &ours)));
        let mut other_order = ours.clone();
        other_order.reverse();
        running.handle_message(Line(1), Up::Ready(with(1, &other_order)));
        assert_eq!(*running.phase(), Phase::Running);
        running.handle_message(Line(1), Up::Leave);
        said(&mut running);
        running.handle_message(Line(2), Up::Ready(with(1, &theirs)));
        assert_eq!(said(&mut running), [(2, Down::Refused(why))]);
        // A node without functions is not compared.
        running.handle_message(Line(3), Up::Ready(ready(1, 2, 30)));
        assert_eq!(running.members().count(), 2);
    }
}

#[test]
fn functions_are_compared_among_nodes_of_one_program() {
    let (a, b) = (functions(&[("sort", 1)]), functions(&[("count", 2), ("sort", 3)]));
    let later = functions(&[("count", 2)]);
    let with = |rank, program: &str, functions: &[Signature]| {
        Up::Ready(Ready {
            program: program.to_owned(),
            functions: Some(functions.to_vec()),
            ..ready(rank, 4, 10 + u128::from(rank))
        })
    };
    let mut manager = Manager::new(77, 4, SECOND, Time(0)).comparing("a", Some(a.clone()));
    // In any order: rank 0 may be the last.
    manager.handle_message(Line(3), with(3, "b", &b));
    manager.handle_message(Line(1), with(1, "a", &a));
    manager.handle_message(Line(2), with(2, "b", &b));
    manager.handle_message(Line(0), with(0, "a", &a));
    assert_eq!(*manager.phase(), Phase::Running);
    for line in [2, 1] {
        manager.handle_message(Line(line), Up::Leave);
    }
    said(&mut manager);
    for (rank, program, functions, text) in [
        (2, "b", &later, "rank 3 has function \"sort\" (T3 -> T1), which rank 2 lacks"),
        (1, "a", &b, "rank 1 has function \"count\" (T2 -> T1), which rank 0 lacks"),
    ] {
        manager.handle_message(Line(9), with(rank, program, functions));
        let told = said(&mut manager);
        let [(9, Down::Refused(why))] = &told[..] else { panic!("{told:?}") };
        assert_eq!(why.to_string(), text);
    }
    // Another version of a program may come when no node has the earlier one. Rank 0 stays.
    manager.handle_lost(Line(3), "silent");
    manager.handle_message(Line(4), with(2, "b", &later));
    assert_eq!(manager.members().count(), 2);
    manager.handle_message(Line(9), with(3, "b", &b));
    let told = said(&mut manager);
    let (9, Down::Refused(Refusal::Functions { other: 2, .. })) = told.last().unwrap() else {
        panic!("{told:?}")
    };
}

#[test]
fn a_death_before_the_start_ends_it() {
    for by_exit in [false, true] {
        let mut manager = Manager::new(77, 2, SECOND, Time(0));
        manager.handle_message(Line(0), Up::Ready(ready(0, 2, 1)));
        let why = if by_exit {
            manager.handle_exit(1, "status 1");
            Refusal::DiedEarly { rank: 1, loss: "status 1".into() }
        } else {
            manager.handle_lost(Line(0), "silent");
            Refusal::DiedEarly { rank: 0, loss: "silent".into() }
        };
        assert_eq!(*manager.phase(), Phase::Failed(why.clone()));
        let told = if by_exit { vec![(0, Down::Refused(why))] } else { vec![] };
        assert_eq!(said(&mut manager), told);
    }
}

#[test]
fn a_start_that_failed_is_over_when_everybody_has_heard_of_it() {
    let mut manager = Manager::new(77, 4, SECOND, Time(0));
    manager.handle_message(Line(0), Up::Ready(ready(0, 4, 1)));
    manager.handle_message(Line(1), Up::Ready(ready(1, 4, 2)));
    assert_eq!(manager.untold(), 0, "nothing has failed");
    manager.handle_exit(3, "status 1");
    said(&mut manager);
    // Rank 2 may be on its way.
    assert_eq!(manager.untold(), 1);
    manager.handle_message(Line(2), Up::Ready(ready(2, 4, 3)));
    let why = Refusal::DiedEarly { rank: 3, loss: "status 1".into() };
    assert_eq!(said(&mut manager), [(2, Down::Refused(why))]);
    assert_eq!(manager.untold(), 0);
    // Ranks that were waited for in vain are not waited for again.
    let mut manager = Manager::new(77, 4, SECOND, Time(0));
    manager.handle_message(Line(0), Up::Ready(ready(0, 4, 1)));
    manager.handle_timeout(Time(0).after(SECOND));
    assert!(matches!(manager.phase(), Phase::Failed(Refusal::Missing { .. })));
    assert_eq!(manager.untold(), 0);
}
