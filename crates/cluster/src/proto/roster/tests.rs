use super::*;
use chunkcomm_proto::random::Random;

fn id(rank: u32) -> NodeId {
    NodeId { rank, incarnation: 100 + u128::from(rank) }
}

fn roster(seats: u32) -> Roster {
    Roster::new((0..seats).map(id))
}

fn verdicts(roster: &mut Roster) -> Vec<Verdict> {
    std::iter::from_fn(|| roster.poll_verdict()).collect()
}

fn dropped() -> Loss {
    Loss::new(LossKind::Left, "it has dropped the group")
}

fn cut() -> Loss {
    "the link broke".into()
}

fn death() -> Loss {
    "its process ended".into()
}

#[test]
fn a_death_counts_at_once_whatever_was_heard_before() {
    let mut roster = roster(2);
    roster.handle_channel(0);
    roster.handle_end(0, dropped(), Time(0));
    assert!(roster.poll_timeout().is_some() && roster.gone(0).is_none());
    roster.handle_death(id(0), &death());
    assert_eq!(verdicts(&mut roster), [Verdict::Lost(0, death())]);
    // Nothing counts after the verdict.
    roster.handle_failure(0, cut(), Time(0));
    roster.handle_death(id(0), &cut());
    assert!(!roster.handle_left(id(0), true, Time(0)));
    assert_eq!((roster.poll_timeout(), verdicts(&mut roster)), (None, vec![]));
    assert_eq!(roster.gone(0), Some(&death()));
}

#[test]
fn a_lost_link_is_a_loss_when_the_manager_had_its_time() {
    type Hear = fn(&mut Roster, Loss);
    let (end, fail): (Hear, Hear) = (
        |roster, loss| roster.handle_end(0, loss, Time(7)),
        |roster, loss| roster.handle_failure(0, loss, Time(7)),
    );
    let cut_off: Hear = |roster, loss| roster.handle_break(0, loss, Time(7));
    for (loss, hear) in [
        (cut(), fail),
        (cut(), cut_off),
        (dropped(), cut_off),
        (dropped(), end),
        // It has stopped, and another's death may be why.
        (dropped(), fail),
    ] {
        let mut roster = roster(1);
        roster.handle_channel(0);
        hear(&mut roster, loss.clone());
        // The first that was heard is told.
        roster.handle_failure(0, "later".into(), Time(7));
        let until = Time(7).after(VERDICT);
        assert_eq!(roster.poll_timeout(), Some(until));
        roster.handle_timeout(Time(until.0 - 1));
        assert_eq!(verdicts(&mut roster), []);
        roster.handle_timeout(until);
        let expected = match loss.kind() {
            LossKind::Left => Verdict::Left(0, loss),
            _ => Verdict::Lost(0, loss),
        };
        assert_eq!(verdicts(&mut roster), [expected]);
    }
    let mut roster = roster(1);
    roster.handle_channel(0);
    end(&mut roster, dropped());
    assert_eq!(roster.poll_timeout(), Some(Time(7).after(LAST_WORDS)));
}

#[test]
fn who_leaves_is_heard_to_the_end() {
    let now = Time(5);
    let soon = now.after(LAST_WORDS);
    // All channels are read before.
    let mut roster = roster(5);
    roster.handle_channel(0);
    roster.handle_end(0, dropped(), now);
    assert!(!roster.handle_left(id(0), true, now));
    assert_eq!(verdicts(&mut roster), [Verdict::Left(0, left())]);
    // It has one that is not, and the session ends before.
    roster.handle_channel(1);
    assert!(roster.handle_left(id(1), true, now));
    roster.handle_session_over(id(1), now);
    roster.handle_end(1, cut(), now);
    assert_eq!(verdicts(&mut roster), [Verdict::Left(1, left())]);
    // It never opened one; it has no session; its channel was not taken yet.
    assert!(roster.handle_left(id(2), true, now));
    assert_eq!(roster.poll_timeout(), None);
    roster.handle_session_over(id(2), now);
    roster.handle_failure(2, cut(), now);
    assert!(!roster.handle_left(id(3), false, now));
    assert!(!roster.handle_left(id(4), false, now));
    assert_eq!((roster.poll_timeout(), verdicts(&mut roster)), (Some(soon), vec![]));
    roster.handle_channel(4);
    roster.handle_timeout(soon);
    assert_eq!(verdicts(&mut roster), [Verdict::Left(2, left()), Verdict::Left(3, left())]);
    assert_eq!(roster.poll_timeout(), None);
    roster.handle_end(4, dropped(), soon);
    assert_eq!(verdicts(&mut roster), [Verdict::Left(4, left())]);
}

#[test]
fn who_leaves_and_cannot_be_reached_is_heard_all_the_same() {
    let mut roster = roster(1);
    roster.handle_channel(0);
    roster.handle_left(id(0), true, Time(0));
    roster.handle_failure(0, cut(), Time(0));
    assert_eq!(roster.poll_timeout(), Some(Time(0).after(VERDICT)));
    roster.handle_end(0, dropped(), Time(9));
    assert_eq!(verdicts(&mut roster), [Verdict::Left(0, left())]);
}

/// The life of a node, and what others may hear of it.
struct Life {
    /// Time of its end, and whether it leaves in order.
    end: Option<(Time, bool)>,
    /// The signs of it, with their times.
    signs: Vec<(Time, Sign)>,
    /// Whether the manager never reports its end: the node and the manager died together.
    is_untold: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Channel,
    EndOfChannel(bool),
    Failure(bool),
    Death,
    Left(bool),
    SessionOver,
}

const SECOND: u64 = 1_000_000_000;

impl Life {
    fn of(random: &mut Random) -> Life {
        let mut at = |from: u64, to: u64| Time(random.range(from, to));
        let opened = at(0, 10 * SECOND);
        let end = at(11 * SECOND, 20 * SECOND);
        let broken = at(end.0, end.0 + 12 * SECOND);
        let told = at(end.0, end.0 + 40 * SECOND);
        let over = at(end.0, end.0 + 20 * SECOND);
        let read = at(end.0, end.0 + 30 * SECOND);
        let (talks, fate, is_late) = (random.one_in(2), random.below(6), random.one_in(4));
        let mut signs = Vec::new();
        signs.extend(talks.then_some((opened, Sign::Channel)));
        match fate {
            // It lives.
            0 => Life { end: None, signs, is_untold: false },
            // It leaves; its session ends once all is sent, and a channel when it was read.
            1 | 2 => {
                let has_session = talks || fate == 1;
                signs.push((told, Sign::Left(has_session)));
                // Its channel may be taken only after the report, and after the end of the session.
                if talks && is_late {
                    let late = Time(told.0 + SECOND / 2);
                    let signs = vec![
                        (told, Sign::Left(false)),
                        (late, Sign::Channel),
                        (late.after(LAST_WORDS), Sign::EndOfChannel(true)),
                    ];
                    let end = Some((end, true));
                    return Life { end, signs, is_untold: false };
                }
                signs.extend(talks.then_some((read, Sign::EndOfChannel(true))));
                let over = Time(over.0.max(told.0 + 1));
                signs.extend(has_session.then_some((over, Sign::SessionOver)));
                Life { end: Some((end, true)), signs, is_untold: false }
            }
            // It dies, and its link or a channel breaks before the manager reports it, or after.
            3 | 4 => {
                signs.extend(talks.then_some((broken, Sign::EndOfChannel(false))));
                signs.extend((!talks).then_some((broken, Sign::Failure(false))));
                signs.push((told, Sign::Death));
                Life { end: Some((end, false)), signs, is_untold: false }
            }
            // Nobody reports its end.
            _ => {
                let sign = if talks { Sign::EndOfChannel(false) } else { Sign::Failure(false) };
                signs.push((broken, sign));
                Life { end: Some((end, false)), signs, is_untold: true }
            }
        }
    }
}

/// Seats with lives of their own, whose signs come in the order of their times.
fn live(seed: u64) {
    let mut random = Random::new(seed);
    let lives: Vec<Life> = (0..random.range(1, 6)).map(|_| Life::of(&mut random)).collect();
    let mut signs: Vec<(Time, usize, Sign)> = Vec::new();
    for (seat, life) in lives.iter().enumerate() {
        signs.extend(life.signs.iter().map(|(at, sign)| (*at, seat, *sign)));
    }
    signs.sort_by_key(|(at, seat, _)| (*at, *seat));
    let mut roster = roster(lives.len() as u32);
    let mut told: Vec<Option<Verdict>> = vec![None; lives.len()];
    let mut open = vec![0; lives.len()];
    let mut signs = signs.into_iter().peekable();
    loop {
        let next = signs.peek().map(|(at, ..)| *at);
        let now = match (next, roster.poll_timeout()) {
            (None, None) => break,
            (Some(next), Some(until)) => next.min(until),
            (next, until) => next.or(until).unwrap(),
        };
        roster.handle_timeout(now);
        if next == Some(now) {
            let (_, seat, sign) = signs.next().unwrap();
            let name = id(seat as u32);
            match sign {
                Sign::Channel => {
                    open[seat] += 1;
                    roster.handle_channel(seat);
                }
                Sign::EndOfChannel(in_order) => {
                    open[seat] -= 1;
                    match in_order {
                        true => roster.handle_end(seat, dropped(), now),
                        false => roster.handle_break(seat, cut(), now),
                    }
                }
                Sign::Failure(in_order) => {
                    roster.handle_failure(seat, if in_order { dropped() } else { cut() }, now);
                }
                Sign::Death => roster.handle_death(name, &death()),
                Sign::Left(has_session) => drop(roster.handle_left(name, has_session, now)),
                Sign::SessionOver => roster.handle_session_over(name, now),
            }
        }
        while let Some(verdict) = roster.poll_verdict() {
            let (Verdict::Left(seat, _) | Verdict::Lost(seat, _)) = verdict;
            let life = &lives[seat];
            let (end, in_order) = life.end.unwrap_or_else(|| panic!("{seed}: {verdict:?} lives"));
            assert!(now >= end, "{seed}: {verdict:?} before its end");
            assert!(roster.gone(seat).is_some());
            if in_order {
                assert_eq!(open[seat], 0, "{seed}: {verdict:?} is not heard to the end");
                assert!(matches!(verdict, Verdict::Left(..)), "{seed}: {verdict:?}");
            }
            let is_death = verdict == Verdict::Lost(seat, death());
            assert!(in_order || life.is_untold || is_death, "{seed}: {verdict:?}");
            assert_eq!(told[seat].replace(verdict), None, "{seed}: it has its verdict");
        }
    }
    for (life, told) in lives.iter().zip(&told) {
        assert_eq!(life.end.is_some(), told.is_some(), "{seed}: who is gone has a verdict");
    }
}

#[test]
fn each_seat_that_is_gone_has_its_one_verdict() {
    (0..20_000).for_each(live);
}
