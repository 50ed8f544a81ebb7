use super::*;
use crate::limits::{PACKET_BYTES_DEFAULT, WINDOW_BYTES_INITIAL};
use crate::link::{Counted, Event};
use crate::liveness::Silence;
use crate::outbox::OpenSpec;
use crate::outbox::tests::Rings;
use crate::packet::{ChannelKind, Decoder, Item, Lane};
use crate::resume::{Kind, Resume};
use crate::tuning::flush::Policy;
use crate::tuning::without::Without;

const PEER: u128 = 7;
const NOW: Time = Time(1_000_000_000);

fn endpoint(after_loss: AfterLoss) -> Endpoint {
    Endpoint::new(&config(), SessionId { number: 1, peer: PEER }, after_loss)
}

fn config() -> LinkConfig {
    let seconds = Duration::from_secs;
    LinkConfig {
        policy: Policy::Chunked,
        age_bound: Duration::from_millis(1),
        packet_bytes_small: PACKET_BYTES_DEFAULT,
        packet_bytes_max: PACKET_BYTES_DEFAULT,
        packet_bytes_tuned: PACKET_BYTES_DEFAULT,
        windows_bytes_max: 64 * WINDOW_BYTES_INITIAL,
        message_bytes_max: 1 << 20,
        peer_open_credit: 8 * WINDOW_BYTES_INITIAL,
        session: true,
        resend_bytes_max: 1 << 20,
        silence: Silence { probe: seconds(1), suspect: seconds(3), dead: seconds(10) },
        now: NOW,
        without: Without::default(),
    }
}

fn open(endpoint: &mut Endpoint, rings: &mut Rings, now: Time) -> u32 {
    let spec = OpenSpec {
        lane: Lane::Bulk,
        system: false,
        kind: ChannelKind::Bytes,
        fingerprint: 1,
        stream: None,
        backlog: None,
        name: "name".to_owned(),
    };
    let channel = endpoint.link.open(spec, now);
    if rings.stage(channel, b"a message", usize::MAX) {
        endpoint.link.staged(channel, now);
    }
    channel
}

/// Writes everything that leaves now; returns the bytes, and the step after them.
fn output(endpoint: &mut Endpoint, rings: &mut Rings, now: Time) -> (Vec<u8>, Output) {
    let mut bytes = Vec::new();
    loop {
        match endpoint.poll_output(rings, now) {
            Output::Write => {
                let unwritten = endpoint.unwritten().concat();
                // In small writes.
                let count = unwritten.len().min(7);
                bytes.extend_from_slice(&unwritten[..count]);
                endpoint.wrote(count);
            }
            Output::Yield(_) => {}
            output => return (bytes, output),
        }
    }
}

fn begin_to_write(endpoint: &mut Endpoint, rings: &mut Rings) {
    while endpoint.poll_output(rings, NOW) != Output::Write {}
}

fn input(endpoint: &mut Endpoint, bytes: &[u8], now: Time) -> Result<(), SessionEnd> {
    let mut decoder = Decoder::new(PACKET_BYTES_DEFAULT);
    let mut at = 0;
    while let Some(item) = decoder.next(bytes, &mut at).unwrap() {
        match endpoint.handle(item, now)? {
            Event::Run { channel, bytes, .. } => {
                endpoint.link.consumed(channel, bytes.len() as u64);
            }
            Event::LargeBytes { done: Some(Counted::Large), channel, .. } => {
                endpoint.link.large_taken(channel);
            }
            Event::Ended { channel } => endpoint.link.finished(channel),
            _ => {}
        }
    }
    endpoint.heard(now)
}

/// Returns the next dial, and the time of it.
fn next_dial(endpoint: &mut Endpoint, mut now: Time) -> (u32, Time) {
    loop {
        match endpoint.poll(now) {
            Action::Dial { attempt } => return (attempt, now),
            Action::Wait(until) => now = until,
            Action::Unanswered => {}
            action => panic!("{action:?}"),
        }
    }
}

fn word(kind: Kind, attempt: u32, received: u64) -> Resume {
    Resume { kind, session: 1, attempt, received, addressee: 1 }
}

#[test]
fn a_close_drains_says_bye_shuts_down_and_leaves_nothing_to_report() {
    let (mut one, mut other) = (endpoint(AfterLoss::Dial), endpoint(AfterLoss::Wait));
    let (mut rings, mut none) = (Rings::default(), Rings::default());
    open(&mut one, &mut rings, NOW);
    one.close(NOW);
    let (sent, then) = output(&mut one, &mut rings, NOW);
    assert_eq!(then, Output::Nothing, "the message is not acknowledged");
    assert!(one.is_closing() && !one.has_said_bye());
    input(&mut other, &sent, NOW).unwrap();
    let (answer, _) = output(&mut other, &mut none, NOW);
    input(&mut one, &answer, NOW).unwrap();
    let (bye, then) = output(&mut one, &mut rings, NOW);
    assert_eq!(then, Output::Shutdown);
    one.stop_writing(NOW);
    assert_eq!(one.poll(NOW), Action::Wait(NOW.after(LAST_WORDS)), "the peer hangs up first");
    assert_eq!(input(&mut other, &bye, NOW), Err(SessionEnd::ClosedByPeer));
    assert_eq!(other.end(SessionEnd::ClosedByPeer), None, "the peer knows");
    assert_eq!(one.poll(NOW.after(LAST_WORDS)), Action::End(SessionEnd::Closed));
    assert_eq!(one.end(SessionEnd::Closed), None);
}

#[test]
fn two_that_close_at_once_both_have_closed() {
    let mut ends = [endpoint(AfterLoss::Dial), endpoint(AfterLoss::Wait)];
    let byes = ends.each_mut().map(|end| {
        end.close(NOW);
        let (bye, then) = output(end, &mut Rings::default(), NOW);
        assert_eq!(then, Output::Shutdown);
        end.stop_writing(NOW);
        bye
    });
    for (end, bye) in ends.iter_mut().zip(byes.iter().rev()) {
        assert_eq!(input(end, bye, NOW), Err(SessionEnd::Closed));
    }
}

#[test]
fn the_writes_of_a_packet_are_counted_when_all_of_it_is_written() {
    let (mut endpoint, mut rings) = (endpoint(AfterLoss::Dial), Rings::default());
    open(&mut endpoint, &mut rings, NOW);
    begin_to_write(&mut endpoint, &mut rings);
    assert!(!endpoint.wrote(1));
    assert!(!endpoint.wrote(2));
    assert_eq!(endpoint.writes(), 0);
    let left = endpoint.unwritten().concat().len();
    assert!(endpoint.wrote(left));
    assert_eq!(endpoint.writes(), 3);
}

#[test]
fn the_loss_of_the_connection_after_bye_is_a_close() {
    let mut one = endpoint(AfterLoss::Dial);
    one.close(NOW);
    let (_, then) = output(&mut one, &mut Rings::default(), NOW);
    assert_eq!((then, one.lost(NOW)), (Output::Shutdown, Err(SessionEnd::Closed)));
    assert_eq!(one.offered(&word(Kind::Again, 2, 0), NOW).kind, Kind::Unknown);
}

#[test]
fn a_lost_connection_is_dialled_again_until_one_is_there() {
    let mut one = endpoint(AfterLoss::Dial);
    let mut rings = Rings::default();
    open(&mut one, &mut rings, NOW);
    let (first, _) = output(&mut one, &mut rings, NOW);
    one.lost(NOW).unwrap();
    assert_eq!(output(&mut one, &mut rings, NOW), (Vec::new(), Output::Nothing));
    let (attempt, dialled) = next_dial(&mut one, NOW);
    assert_eq!(attempt, 2);
    // Nobody answers for three seconds, then the next attempt follows.
    assert_eq!(one.poll(dialled.after(Duration::from_secs(3))), Action::Unanswered);
    let (attempt, dialled) = next_dial(&mut one, dialled.after(Duration::from_secs(3)));
    assert_eq!(attempt, 3);
    assert_eq!(one.greeted(2, PEER, dialled), Ok(None), "the attempt before came too late");
    assert!(!one.dial_failed(2, dialled));
    let said = one.greeted(3, PEER, dialled).unwrap().unwrap();
    assert_eq!((said.kind, said.attempt, said.received), (Kind::Again, 3, 0));
    assert_eq!(one.answered(3, &word(Kind::Stale, 3, 0), dialled), Ok(false));
    let (attempt, dialled) = next_dial(&mut one, dialled);
    assert_eq!(attempt, 4);
    one.greeted(4, PEER, dialled).unwrap().unwrap();
    assert_eq!(one.answered(4, &word(Kind::Agreed, 4, 0), dialled), Ok(true));
    assert!(one.is_connected());
    let (again, _) = output(&mut one, &mut rings, dialled);
    assert!(again.ends_with(&first), "what was not acknowledged comes again");
}

#[test]
fn dials_end_with_a_session_that_the_peer_does_not_know() {
    let ends = [
        |one: &mut Endpoint, attempt, now| one.greeted(attempt, PEER + 1, now).map(|_| ()),
        |one: &mut Endpoint, attempt, now| {
            one.greeted(attempt, PEER, now)?;
            one.answered(attempt, &word(Kind::Unknown, attempt, 0), now).map(|_| ())
        },
        |one: &mut Endpoint, attempt, now| {
            one.greeted(attempt, PEER, now)?;
            one.answered(attempt, &word(Kind::Agreed, attempt, 1 << 40), now).map(|_| ())
        },
    ];
    let causes = ends.map(|end| {
        let mut one = endpoint(AfterLoss::Dial);
        one.lost(NOW).unwrap();
        let (attempt, now) = next_dial(&mut one, NOW);
        end(&mut one, attempt, now).unwrap_err()
    });
    assert_eq!(causes[..2], [SessionEnd::Restarted, SessionEnd::Forgotten]);
    assert!(matches!(causes[2], SessionEnd::Protocol(_)), "{causes:?}");
}

#[test]
fn the_highest_attempt_counts() {
    let mut one = endpoint(AfterLoss::Wait);
    let offer = |one: &mut Endpoint, attempt| one.offered(&word(Kind::Again, attempt, 0), NOW).kind;
    assert_eq!(offer(&mut one, 1), Kind::Stale);
    assert!(one.is_connected());
    assert_eq!(offer(&mut one, 3), Kind::Agreed);
    assert!(!one.is_connected());
    assert_eq!(offer(&mut one, 3), Kind::Stale);
    assert_eq!(offer(&mut one, 5), Kind::Agreed);
    assert_eq!(one.adopt(3, 0, NOW), Ok(false), "a later one was taken");
    assert_eq!(one.adopt(5, 0, NOW), Ok(true));
    assert_eq!(one.adopt(5, 0, NOW), Ok(false), "once");
    one.lost(NOW).unwrap();
    assert_eq!((one.attempt(), offer(&mut one, 4)), (5, Kind::Stale));
    assert!(matches!(one.poll(NOW), Action::Wait(_)), "the peer dials");
}

#[test]
fn a_session_without_another_connection_ends_with_its_first() {
    let mut one = endpoint(AfterLoss::End);
    assert_eq!(one.offered(&word(Kind::Again, 2, 0), NOW).kind, Kind::Unknown);
    assert_eq!(one.lost(NOW), Err(SessionEnd::Lost));
}

#[test]
fn a_connection_that_cannot_be_written_to_is_read_for_a_while() {
    let mut one = endpoint(AfterLoss::Wait);
    let mut rings = Rings::default();
    open(&mut one, &mut rings, NOW);
    begin_to_write(&mut one, &mut rings);
    one.wrote(3);
    one.stop_writing(NOW);
    assert_eq!(one.poll_output(&mut rings, NOW), Output::Nothing, "it is not written to again");
    let until = NOW.after(LAST_WORDS);
    assert_eq!(one.poll(NOW), Action::Wait(until));
    assert_eq!((one.poll(until), one.is_connected()), (Action::Drop, false));
    assert!(!one.is_within_packet() && !one.is_writing());
}

#[test]
fn a_silent_peer_is_asked_then_dropped_then_dead() {
    for (after_loss, drops) in [(AfterLoss::Dial, true), (AfterLoss::Wait, false)] {
        let mut one = endpoint(after_loss);
        let mut rings = Rings::default();
        open(&mut one, &mut rings, NOW);
        let (mut now, mut asked, mut dropped, mut dials) = (NOW, 0, None, 0);
        loop {
            match one.poll(now) {
                Action::Wait(until) => now = until,
                Action::Write => {
                    output(&mut one, &mut rings, now);
                    asked += 1;
                }
                Action::Drop => dropped = Some(now),
                Action::Dial { .. } => dials += 1,
                Action::Unanswered => {}
                Action::End(end) => {
                    assert_eq!(end, SessionEnd::Dead);
                    break;
                }
            }
        }
        assert_eq!((dropped.is_some(), dials > 1), (drops, drops));
        assert!(asked >= 2 && now >= NOW.after(Duration::from_secs(10)), "{asked} {now:?}");
        // The peer learns of it only over a connection.
        assert_eq!(one.end(SessionEnd::Dead).is_some(), !drops);
    }
}

#[test]
fn a_session_that_is_given_up_within_a_packet_says_nothing() {
    for within in [true, false] {
        let mut one = endpoint(AfterLoss::Wait);
        let mut rings = Rings::default();
        open(&mut one, &mut rings, NOW);
        begin_to_write(&mut one, &mut rings);
        let bytes = if within { 1 } else { one.packet_bytes() };
        one.wrote(bytes);
        let farewell = one.end(SessionEnd::GivenUp);
        assert_eq!(farewell.is_none(), within);
        if let Some(bytes) = farewell {
            let mut other = endpoint(AfterLoss::Dial);
            assert_eq!(input(&mut other, &bytes, NOW), Err(SessionEnd::Forgotten));
        }
    }
}

/// Begins a channel with a message of 200,000 bytes, for which there is credit.
fn open_large(endpoint: &mut Endpoint, rings: &mut Rings) {
    let channel = open(endpoint, rings, NOW);
    let credit = Item::Credit { channel, total: 1 << 20 };
    endpoint.handle(credit, NOW).unwrap();
    rings.stage(channel, &[7; 200_000], 100);
}

#[test]
fn a_fragment_stays_where_it_is_for_a_peer_that_reads_it_and_comes_whole_to_another() {
    for reads in [false, true] {
        let (mut one, mut rings) = (endpoint(AfterLoss::Dial), Rings::default());
        if reads {
            one.link.say_memory(1 << 40, 5);
        }
        // A peer that was told of no memory reads none.
        one.handle(Item::Reads, NOW).unwrap();
        open_large(&mut one, &mut rings);
        let (sent, _) = output(&mut one, &mut rings, NOW);
        if !reads {
            assert_eq!(one.left_in_memory(), 0);
            assert!(sent.len() > 60_000, "{} bytes", sent.len());
            continue;
        }
        assert!(sent.len() < 1000, "{} bytes", sent.len());
        let [last, ..] = one.link.numbers();
        assert_eq!(one.left_in_memory(), last, "it counts as written when it was read");
        let mut decoder = Decoder::new(PACKET_BYTES_DEFAULT);
        let mut at = 0;
        while decoder.next(&sent, &mut at).unwrap().is_some() {}
        let part = decoder.elsewhere().unwrap();
        // The peer has read some of it when the connection is lost.
        decoder.skip_fragment(20_000);
        decoder.cut(0);
        one.lost(NOW).unwrap();
        let (attempt, now) = next_dial(&mut one, NOW);
        one.greeted(attempt, PEER, now).unwrap().unwrap();
        one.answered(attempt, &word(Kind::Agreed, attempt, 0), now).unwrap();
        let (again, _) = output(&mut one, &mut rings, now);
        let (mut at, mut came) = (0, 0);
        while let Some(item) = decoder.next(&again, &mut at).unwrap() {
            if let Item::FragmentBytes { bytes, .. } = item {
                assert!(bytes.iter().all(|byte| *byte == 7));
                came += bytes.len();
            }
        }
        assert_eq!((came, at), (part.bytes as usize - 20_000, again.len()));
    }
}

#[test]
fn a_session_that_keeps_nothing_leaves_nothing_behind() {
    let mut one = endpoint(AfterLoss::End);
    one.link = {
        let mut config = config();
        config.session = false;
        Link::new(&config)
    };
    one.link.say_memory(1 << 40, 5);
    one.handle(Item::Reads, NOW).unwrap();
    let mut rings = Rings::default();
    open_large(&mut one, &mut rings);
    let (sent, _) = output(&mut one, &mut rings, NOW);
    assert!(sent.len() > 60_000, "{} bytes", sent.len());
}

#[test]
fn words_of_one_connection_are_not_said_on_the_next() {
    let mut one = endpoint(AfterLoss::Dial);
    let mut none = Rings::default();
    one.link.say_memory(1 << 40, 5);
    one.link.say_reads();
    one.lost(NOW).unwrap();
    let (attempt, now) = next_dial(&mut one, NOW);
    one.greeted(attempt, PEER, now).unwrap().unwrap();
    one.answered(attempt, &word(Kind::Agreed, attempt, 0), now).unwrap();
    let items = |bytes: &[u8]| {
        let (mut decoder, mut at, mut items) = (Decoder::new(PACKET_BYTES_DEFAULT), 0, Vec::new());
        while let Some(item) = decoder.next(bytes, &mut at).unwrap() {
            items.push(format!("{item:?}"));
        }
        items.join(" ")
    };
    let first = items(&output(&mut one, &mut none, now).0);
    assert!(!first.contains("Memory") && !first.contains("Reads"), "{first}");
    one.link.say_memory(1 << 40, 5);
    one.link.say_reads();
    let second = items(&output(&mut one, &mut none, now).0);
    assert!(second.contains("Memory { address: 1099511627776, word: 5 } Reads"), "{second}");
}
