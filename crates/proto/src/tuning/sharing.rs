//! How the channels of a link share it. [`pace`](super::pace) bounds the data on its way by that.
//!
//! A turn begins when another channel than the last one puts data in a packet. A link is shared until
//! [`SHARED_FOR`] after the last turn. After [`TALK_TURNS`] turns within [`SHARED_FOR`] that are express, or
//! at most [`TALK_BYTES_MAX`](super::constants::TALK_BYTES_MAX), the channels *talk*: messages wait behind
//! the data of others so often that these must be few. A collective call has fewer small messages between
//! its large ones.

use super::constants::{SHARED_FOR, TALK_TURNS};
use crate::Time;

/// How channels share a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// One channel has the link to itself.
    #[default]
    Alone,
    /// Several channels share the link.
    Shared,
    /// Channels talk beside others.
    Talks,
}

/// The latest turns of a link's channels.
#[derive(Debug, Default)]
pub struct Turns {
    last: u32,
    shared_until: Time,
    /// Turns of talk since a time.
    talk: u32,
    talk_since: Time,
    talks_until: Time,
}

impl Turns {
    /// Notes a turn of `channel`, which is not 0, at `now`: whether it `talks`.
    #[inline]
    pub fn took(&mut self, channel: u32, talks: bool, now: Time) {
        if self.last == channel {
            return;
        }
        if self.last != 0 {
            self.shared(talks, now);
        }
        self.last = channel;
    }

    fn shared(&mut self, talks: bool, now: Time) {
        self.shared_until = now.after(SHARED_FOR);
        if !talks {
            return;
        }
        if now >= self.talk_since.after(SHARED_FOR) {
            (self.talk, self.talk_since) = (0, now);
        }
        self.talk += 1;
        if self.talk >= TALK_TURNS {
            self.talks_until = now.after(SHARED_FOR);
        }
    }

    /// Returns how the link is shared at `now`.
    #[must_use]
    #[inline]
    pub fn sharing(&self, now: Time) -> Sharing {
        if now >= self.shared_until {
            return Sharing::Alone;
        }
        if now < self.talks_until { Sharing::Talks } else { Sharing::Shared }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: bool = true;
    const LARGE: bool = false;
    const EACH_NS: u64 = 100_000;

    /// Returns the sharing after each of `turns`, which are `each_ns` apart.
    fn after(turns: &[(u32, bool)], each_ns: u64) -> Vec<Sharing> {
        let (mut latest, mut now) = (Turns::default(), Time(1 << 40));
        let each = turns.iter().map(|&(channel, talks)| {
            now.0 += each_ns;
            latest.took(channel, talks, now);
            latest.sharing(now)
        });
        each.collect()
    }

    #[test]
    fn a_channel_alone_shares_nothing_and_two_that_send_much_do_not_talk() {
        assert_eq!(after(&[(1, LARGE); 100], EACH_NS), [Sharing::Alone; 100]);
        assert_eq!(after(&[(1, SMALL); 100], EACH_NS), [Sharing::Alone; 100]);
        let two = [(1, LARGE), (2, LARGE)].repeat(50);
        assert_eq!(after(&two, EACH_NS)[1..], [Sharing::Shared; 99]);
    }

    #[test]
    fn channels_of_small_turns_talk_if_they_do_so_often() {
        let two = [(1, LARGE), (2, SMALL)].repeat(50);
        let sharing = after(&two, EACH_NS);
        let first = sharing.iter().position(|it| *it == Sharing::Talks).unwrap();
        assert_eq!(first, 2 * TALK_TURNS as usize - 1);
        assert_eq!(sharing[first..], vec![Sharing::Talks; 100 - first]);
        let seldom = SHARED_FOR.as_nanos() as u64 / u64::from(TALK_TURNS);
        assert_eq!(after(&two, seldom)[1..], [Sharing::Shared; 99]);
    }

    #[test]
    fn what_was_shared_is_forgotten() {
        let (mut latest, mut now) = (Turns::default(), Time(1 << 40));
        for (channel, talks) in [(1, LARGE), (2, SMALL)].repeat(50) {
            latest.took(channel, talks, now);
        }
        assert_eq!(latest.sharing(now), Sharing::Talks);
        now = now.after(SHARED_FOR);
        assert_eq!(latest.sharing(now), Sharing::Alone);
        latest.took(1, LARGE, now);
        assert_eq!(latest.sharing(now), Sharing::Shared);
    }
}
