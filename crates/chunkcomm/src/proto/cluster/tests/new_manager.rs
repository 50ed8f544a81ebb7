//! A manager that is gone, and the one behind it.

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
            // Attempts that fail do not win time.
            member.announce();
            assert!(member.handle_manager_lost("silent again", Time(9)));
            assert_eq!(member.poll_timeout(), Some(Time(7).after(SECOND)));
            member.handle_timeout(Time(7).after(SECOND));
        }
        let End::ManagerLost { why } = member.end().unwrap() else { panic!() };
        assert!(why.starts_with("silent"), "{why}");
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
