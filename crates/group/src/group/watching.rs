//! Calls that wait for long: their ranks are asked, and people hear of them.

use std::mem;
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm::layer::{Wait, warn};
use chunkcomm::{Loss, LossKind};

use super::calls::Active;
use super::engine::Engine;
use super::error::GroupError;
use super::links::Links;
use super::shared::Line;
use crate::error::NO_ROOM_AFTER;
use crate::proto::talk::{self, Fault, Kind, Word};

/// Age of a call at which the rank that it waits for is asked, so that two ranks that wait for each
/// other in different calls learn it: 100 ms.
const ASK_AFTER: Duration = Duration::from_millis(100);

/// Most calls that are looked at together: 1,024. Each takes some microseconds, and the next ones have their turn
/// 100 ms later.
const LOOK_COUNT_MAX: usize = 1024;

impl Engine {
    /// Breaks the group when a call waits for a rank from which nothing comes; returns whether it did.
    pub(super) fn look_for_lost(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let full_to = if self.calls.has_fresh() { self.links.full_to() } else { None };
        let waits_for = |rank: &usize| self.calls.want(*rank) || full_to == Some(*rank);
        let silent = (0..self.links.members().len()).filter(waits_for);
        let mut waited = self.failing.into_iter().chain(silent);
        let gone = |rank| Some((rank, self.links.roster.gone(rank)?.clone()));
        let Some((rank, loss)) = waited.find_map(gone) else { return false };
        let said = format!("rank {rank} is gone: {loss:?}");
        let said = Loss::new(LossKind::Refused, said);
        let fault = Fault::Lost { rank: self.links.rank as u32, loss: said };
        self.fail_and_say(GroupError::Lost { rank, loss }, fault, |_, _| true);
        true
    }

    /// Breaks the group when its channel to a rank has not opened for [`NO_ROOM_AFTER`].
    fn look_for_room(&mut self) {
        let Some((to, time)) = self.links.waits_to_open() else { return };
        if time < NO_ROOM_AFTER {
            return;
        }
        let (rank, name) = (self.links.rank, &self.links.name);
        let why = format!(
            "its channel {name}/{to} to rank {to} has not opened for {time:.0?}: the peer has no room for one \
             more channel"
        );
        let loss = Loss::new(LossKind::Refused, why);
        let fault = Fault::Lost { rank: rank as u32, loss: loss.clone() };
        self.fail_and_say(GroupError::Lost { rank, loss }, fault, |_, _| true);
    }

    /// Looks at calls that wait for long; returns whether it did. The time may have come where a source `has_news`.
    pub(super) fn poll_tick(&mut self, has_news: bool) -> bool {
        if has_news && self.calls.is_empty() {
            self.looks_at = None;
        }
        if self.calls.is_empty() || (self.looks_at.is_some() && !has_news) {
            return false;
        }
        let now = Instant::now();
        let at = self.looks_at.get_or_insert_with(|| now + ASK_AFTER).time();
        let context = &mut self.links.rest.context();
        if self.tick.poll(context, Some(at), now.time()).is_pending() {
            return false;
        }
        self.looks_at = None;
        self.look_for_room();
        let mut lines = Vec::new();
        let mut is_first = self.looked == 0;
        let full_to = self.links.full_to();
        let old = |(_, active): &(u64, &mut Active)| active.since.elapsed() >= ASK_AFTER;
        for (number, active) in self.calls.behind(self.looked).take_while(old).take(LOOK_COUNT_MAX)
        {
            let waits_for = active.waits_for(full_to);
            lines.push((number, Line { statement: active.statement.clone(), waits_for }));
            let (Some(rank), age) = (waits_for, active.since.elapsed()) else { continue };
            if active.asked != Some(rank) {
                active.asked = Some(rank);
                let statement = &active.statement;
                let word = Word { kind: Kind::Asks, call: number, left: 0, statement };
                self.links.send(rank, &word, &[]);
                let what = waited_for(&self.links, number, statement, rank);
                active.wait = Some(Wait::begin(self.links.cluster().node(), what));
            }
            // Later calls wait for the first one, as a rule.
            if mem::take(&mut is_first) && age >= self.report_after && !active.reported {
                active.reported = true;
                let what = waited_for(&self.links, number, &active.statement, rank);
                warn(
                    self.links.cluster().node().name(),
                    &format!("waits for {what} for {age:.0?}"),
                );
            }
        }
        let is_all = lines.len() < LOOK_COUNT_MAX;
        self.looked = lines.last().filter(|_| !is_all).map_or(0, |(number, _)| *number);
        let mut state = self.shared.state();
        lines.into_iter().for_each(|(number, line)| state.lines.insert(number, line));
        true
    }
}

/// Returns a rank that a call waits for, in words.
fn waited_for(links: &Links, number: u64, statement: &[u8], rank: usize) -> String {
    let member = links.members()[rank].rank;
    let call = talk::text(statement);
    format!("rank {rank} of the group (rank {member} of the cluster) in call {number}, {call}")
}
