//! Counts of what the seeds met.

use super::end::OVER_NAMES;
use super::plan::{FAULT_NAMES, FAULTS_MIN, MESSAGES_MIN, STATE_NAMES};
use std::fmt;

/// Counts of one seed or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Seeds.
    pub seeds: u64,
    /// Events, the simulation's own and the network's.
    pub events: u64,
    /// Messages that arrived.
    pub messages: u64,
    /// Packets that were written, repeated ones among them.
    pub packets: u64,
    /// Packets that came again.
    pub again: u64,
    /// Packets that came again as a whole and were skipped.
    pub duplicates: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Connections that took the place of a lost one.
    pub resumes: u64,
    /// Connections that were dialled.
    pub dials: u64,
    /// Answers `Stale` and `Unknown`.
    pub turned_away: [u64; 2],
    /// Sessions that died at their acceptor while the dialler did not know that its connection was
    /// of no use. Such a dialler waited for nothing.
    pub unaware: u64,
    /// Seeds by their network: links, a shared medium, a switch.
    pub wirings: [u64; 3],
    /// Writes that found the buffers full.
    pub full: u64,
    /// Bytes that were read from the memory of the other end.
    pub read: u64,
    /// Losses of a part, but not all, of the bytes on one way of a connection.
    pub torn: u64,
    /// Seeds with too few faults that found an end, and seeds with too few messages that arrived.
    /// Both are to be 0.
    pub short_of: [u64; 2],
    /// Faults that found an end; a burst counts once.
    pub met: u64,
    /// Sessions in which an end departed from the protocol.
    pub departures: u64,
    /// Sessions of those that ended with an error for the departure.
    pub found_out: u64,
    /// Sessions of those that were given up because nobody found the departure out.
    pub left: u64,
    /// Faults by kind, and by the state in which they found an end.
    pub(super) faults: [[u64; STATE_NAMES.len() + 1]; FAULT_NAMES.len()],
    /// Ends of sessions by their cause.
    pub(super) over: [u64; OVER_NAMES.len()],
}

impl Coverage {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Coverage) {
        let Coverage { seeds, events, messages, packets, again, .. } = other;
        self.seeds += seeds;
        self.events += events;
        self.messages += messages;
        self.packets += packets;
        self.again += again;
        self.duplicates += other.duplicates;
        self.sessions += other.sessions;
        self.resumes += other.resumes;
        self.dials += other.dials;
        self.unaware += other.unaware;
        self.full += other.full;
        self.torn += other.torn;
        self.read += other.read;
        let pairs = self.wirings.iter_mut().zip(other.wirings);
        pairs.for_each(|(mine, theirs)| *mine += theirs);
        let pairs = self.turned_away.iter_mut().zip(other.turned_away);
        pairs.for_each(|(mine, theirs)| *mine += theirs);
        let pairs = self.short_of.iter_mut().zip(other.short_of);
        pairs.for_each(|(mine, theirs)| *mine += theirs);
        self.met += other.met;
        self.departures += other.departures;
        self.found_out += other.found_out;
        self.left += other.left;
        let pairs = self.faults.iter_mut().flatten().zip(other.faults.iter().flatten());
        pairs.for_each(|(mine, theirs)| *mine += theirs);
        let pairs = self.over.iter_mut().zip(other.over);
        pairs.for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Whether every seed had its faults and messages, and, from 2,000 seeds on, at least half of
    /// the departures from the protocol were found out.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        let few = self.seeds < 2_000;
        let found_out = self.found_out > 0 && self.departures <= 2 * self.found_out;
        self.short_of == [0, 0] && (few || found_out)
    }

    /// Returns the number of cuts in each state of an end, by the state's name.
    pub fn cuts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        STATE_NAMES.into_iter().chain(["handshake"]).zip(self.faults[0])
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [stale, unknown] = self.turned_away;
        writeln!(
            f,
            "{} seeds, {} events, {} sessions, {} dials, {} resumes, {stale} stale, {unknown} unknown",
            self.seeds, self.events, self.sessions, self.dials, self.resumes,
        )?;
        writeln!(
            f,
            "{} messages in {} packets, {} of them again, {} of these skipped as a whole",
            self.messages, self.packets, self.again, self.duplicates,
        )?;
        let [links, media, switches] = self.wirings;
        writeln!(
            f,
            "networks: {links} of links, {media} of a shared medium, {switches} of a switch; \
             {} writes found no room, {} ways lost a part of what was on them, {} bytes were read from memory",
            self.full, self.torn, self.read,
        )?;
        write!(f, "ends:")?;
        for (name, count) in OVER_NAMES.iter().zip(self.over) {
            write!(f, " {name} {count};")?;
        }
        writeln!(f, " {} dead because an idle dialler did not know", self.unaware)?;
        let [faults, messages] = self.short_of;
        writeln!(
            f,
            "\n{} faults found an end; fewer than {FAULTS_MIN} in {faults} seeds, fewer than \
             {MESSAGES_MIN} messages arrived in {messages}",
            self.met,
        )?;
        writeln!(
            f,
            "in {} sessions an end departed from the protocol: {} found it out, {} were given up",
            self.departures, self.found_out, self.left,
        )?;
        writeln!(f, "faults by the state in which they found an end:")?;
        write!(f, "{:>15}", "")?;
        for name in FAULT_NAMES {
            write!(f, "{name:>9}")?;
        }
        writeln!(f)?;
        for (index, state) in STATE_NAMES.iter().chain(&["handshake"]).enumerate() {
            write!(f, "{state:>15}")?;
            for row in &self.faults {
                write!(f, "{:>9}", row[index])?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
