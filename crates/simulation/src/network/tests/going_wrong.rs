//! Leaving, partitions, stalls, cuts and crashes.

use super::*;

#[test]
fn what_was_written_before_leaving_arrives() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.write(end, &[1; 3000]);
    lab.network.leave(lab.network.now(), end);
    lab.run();
    assert_eq!(lab.got(end.peer(), Time(0)).0, 3000);
    let now = lab.network.now();
    assert_eq!(lab.network.read(now, end.peer(), &mut [0; 8]), Ok(Read::End));
    // The other direction has no reader: the first bytes break it.
    lab.write(end.peer(), b"late");
    lab.run();
    assert!(lab.saw(Event::Broken(end.peer())).is_some());
    assert_eq!(lab.network.write(lab.network.now(), end.peer(), b"x"), Err(NetworkError::Broken));
    lab.network.leave(lab.network.now(), end.peer());
    assert!(lab.network.connections.iter().all(Option::is_none), "nothing is left of it");
}

#[test]
fn leaving_with_bytes_unread_breaks_the_connection() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.lazy.insert(end.peer());
    lab.write(end, b"unread");
    lab.run();
    lab.network.leave(lab.network.now(), end.peer());
    lab.run();
    assert!(lab.saw(Event::Broken(end)).is_some());
}

#[test]
fn half_a_connection_can_end() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.write(end, &[1; 500]);
    lab.network.finish(lab.network.now(), end);
    assert_eq!(lab.network.write(lab.network.now(), end, b"x"), Err(NetworkError::Finished));
    lab.run();
    lab.write(end.peer(), &[2; 700]);
    lab.run();
    assert_eq!((lab.got(end.peer(), Time(0)).0, lab.got(end, Time(0)).0), (500, 700));
}

#[test]
fn a_one_way_partition_holds_one_way_until_it_heals() {
    let (mut lab, end) = Lab::pair(SLOW);
    let [left, right] = [end, end.peer()].map(|end| lab.network.host_of(end).unwrap());
    let start = lab.network.now();
    lab.network.partition(start, left, right);
    lab.write(end, &[1; 100]);
    lab.write(end.peer(), &[2; 3000]);
    lab.run_until(Time(start.0 + 10 * MS));
    assert_eq!(lab.got(end.peer(), start).0, 0);
    assert_eq!(lab.got(end, start).0, 2000, "a window, whose acknowledgements are lost");
    lab.network.heal(Time(start.0 + 10 * MS), left, right);
    // Behind the held bytes, though sent when none are held any more.
    lab.write(end, &[3; 100]);
    lab.run();
    assert_eq!(lab.got(end, start).0, 3000);
    let (bytes, _) = &lab.read[&end.peer()];
    assert_eq!(bytes[..], [[1; 100], [3; 100]].concat()[..]);
    assert_eq!(lab.got(end.peer(), start).1, 10 * MS + (50 + 100 + 100) * US);
}

#[test]
fn a_stall_delays_everything_behind_it() {
    let (mut lab, end) = Lab::pair(SLOW);
    let start = lab.network.now();
    lab.network.stall(start, end.peer(), Duration::from_millis(5));
    lab.write(end, &[1; 100]);
    lab.run();
    assert_eq!(lab.got(end.peer(), start), (100, 5 * MS));
}

#[test]
fn a_cut_is_noticed_at_either_end_in_its_own_time() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.write(end, &[1; 1000]);
    let start = lab.network.now();
    let cut = Time(start.0 + (50 + 250 + 100) * US);
    lab.run_until(cut);
    assert_eq!(lab.got(end.peer(), start).0, 200, "full frames only");
    let ms = Duration::from_millis;
    lab.network.cut(cut, end, ms(3), ms(1));
    assert_eq!(lab.write(end, b"into the void"), 13);
    lab.run();
    assert_eq!(lab.saw(Event::Broken(end)), Some(cut.after(ms(3))));
    assert_eq!(lab.saw(Event::Broken(end.peer())), Some(cut.after(ms(1))));
    // Bytes on their way at the cut arrived before it was noticed.
    assert_eq!(lab.got(end.peer(), start).0, 300);
    let now = lab.network.now();
    assert_eq!(lab.network.read(now, end.peer(), &mut [0; 8]), Err(NetworkError::Broken));
}

#[test]
fn a_crashed_host_is_silent_and_a_restarted_one_knows_nobody() {
    let (mut lab, end) = Lab::pair(SLOW);
    let host = lab.network.host_of(end.peer()).unwrap();
    let from = lab.network.host_of(end).unwrap();
    lab.network.crash(lab.network.now(), host);
    lab.write(end, b"anybody there?");
    let silent = lab.network.dial(lab.network.now(), from, host, 80).unwrap();
    lab.run();
    assert_eq!(lab.events, [], "not a word");
    lab.network.restart(lab.network.now(), host);
    lab.run();
    assert!(lab.saw(Event::Broken(end)).is_some());
    assert!(lab.saw(Event::Connected(silent)).is_none());
    lab.connect(from, host);
}

#[test]
fn a_cut_can_break_a_frame_anywhere() {
    for kept in [0, 1, 99, 100, 150, 250, 1000] {
        let (mut lab, end) = Lab::pair(SLOW);
        let start = lab.network.now();
        lab.write(end, &[1; 1000]);
        // One frame arrived, one is on its way, one is being put on the wire.
        let cut = Time(start.0 + (50 + 240) * US);
        lab.run_until(cut);
        let (here, there) = (lab.got(end.peer(), start).0, lab.network.on_the_way(end.peer()));
        assert_eq!((here, there), (100, 200));
        lab.network.lose(cut, end.peer(), kept);
        lab.network.cut(cut, end, Duration::MAX, Duration::from_millis(1));
        lab.run();
        // The third frame never left as a whole.
        assert_eq!(lab.got(end.peer(), start).0, 100 + kept.min(100), "{kept} kept");
        assert_eq!(lab.saw(Event::Broken(end.peer())), Some(cut.after(Duration::from_millis(1))));
        assert_eq!(lab.saw(Event::Broken(end)), None, "who is never told never knows");
    }
}

#[test]
fn behind_what_was_lost_nothing_comes_but_the_break() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.write(end, &[1; 300]);
    lab.network.lose(lab.network.now(), end.peer(), 7);
    lab.network.finish(lab.network.now(), end);
    lab.run();
    assert_eq!(lab.got(end.peer(), Time(0)).0, 7);
    let now = lab.network.now();
    assert_eq!(lab.network.read(now, end.peer(), &mut [0; 8]), Ok(Read::Nothing), "no end of it");
    // The other direction is whole.
    lab.write(end.peer(), &[2; 300]);
    lab.run();
    assert_eq!(lab.got(end, Time(0)).0, 300);
    lab.network.give_up(lab.network.now(), end);
    lab.run();
    assert!(lab.saw(Event::Broken(end.peer())).is_some());
}

#[test]
fn a_stall_for_ever_tells_nobody_until_a_system_gives_up() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.network.stall(lab.network.now(), end, Duration::MAX);
    lab.write(end, b"one way");
    lab.write(end.peer(), b"the other");
    lab.run();
    assert_eq!((lab.got(end.peer(), Time(0)).0, lab.got(end, Time(0)).0), (7, 0));
    assert!(lab.events.iter().all(|(_, event)| *event == Event::Readable(end.peer())));
    let gives_up = lab.network.now();
    lab.network.give_up(gives_up, end);
    lab.run();
    assert_eq!(lab.saw(Event::Broken(end)), Some(gives_up));
    // That way is free: the peer learns of it.
    let told = gives_up.after(Duration::from_micros(100));
    assert_eq!(lab.saw(Event::Broken(end.peer())), Some(told));
    assert_eq!(lab.network.write(lab.network.now(), end, b"x"), Err(NetworkError::Broken));
}

#[test]
fn a_dial_can_be_accepted_late_and_by_then_be_given_up() {
    for gives_up in [false, true] {
        let mut network = Network::new(7);
        let (left, right) = (network.add_host("left"), network.add_host("right"));
        network.link(left, right, SLOW);
        network.listen(right, 80).unwrap();
        let end = network.dial(Time(0), left, right, 80).unwrap();
        network.stall(Time(0), end.peer(), Duration::from_millis(4));
        if gives_up {
            network.leave(Time(3 * MS), end);
        }
        let accepted = Event::Incoming { host: right, port: 80, end: end.peer() };
        assert_eq!(network.next_event(), Some((Time(4 * MS), accepted)));
        let then = match gives_up {
            false => (Time(4 * MS + 100 * US), Event::Connected(end)),
            true => (Time(4 * MS), Event::Broken(end.peer())),
        };
        assert_eq!(network.next_event(), Some(then));
    }
}
