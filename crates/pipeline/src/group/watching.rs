//! Calls that wait for long: their ranks are asked, and people hear of them.

use std::mem;
use std::task::Context;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm::layer::{Wait, warn};

use super::engine::Engine;
use super::links::Links;
use super::shared::Line;
use crate::error::group::GroupError;
use crate::proto::talk::{self, Fault, Kind, Word};

/// Age of a call at which the rank that it waits for is asked, so that two ranks that wait for each
/// other in different calls learn it: 100 ms.
const ASK_AFTER: Duration = Duration::from_millis(100);

impl Engine {
    /// Breaks the group when a call waits for a rank from which nothing comes; returns whether it did.
    pub(super) fn look_for_lost(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let lost = self.active.iter().find_map(|active| {
            if let Some((rank, lost)) = &active.lost {
                return lost.is_final().then(|| (*rank, lost.why.clone()));
            }
            let rank = active.waits_for(&self.links)?;
            let has_word = self.inbox.iter().any(|it| it.call == active.number && it.from == rank);
            let lost = self.links.lost(rank)?;
            (lost.is_final() && !has_word).then_some((rank, lost.why))
        });
        let Some((rank, why)) = lost else { return false };
        let said = format!("rank {rank} is gone: {why}");
        let fault = Fault::Said { rank: self.links.rank as u32, why: said };
        self.fail(GroupError::Gone { rank, why }, Some(fault));
        true
    }

    /// Looks at calls that wait for long; returns whether it did.
    pub(super) fn poll_tick(&mut self, context: &mut Context<'_>) -> bool {
        if self.active.is_empty() {
            return false;
        }
        let tick = self.tick.get_or_insert_with(|| Box::pin(host::sleep(ASK_AFTER)));
        if tick.as_mut().poll(context).is_pending() {
            return false;
        }
        self.tick = None;
        let mut lines = Vec::new();
        let mut is_first = true;
        for active in &mut self.active {
            let (number, waits_for) = (active.number, active.waits_for(&self.links));
            lines.push(Line { number, statement: active.statement.clone(), waits_for });
            let (Some(rank), age) = (waits_for, active.since.elapsed()) else { continue };
            if age >= ASK_AFTER && active.asked != Some(rank) {
                active.asked = Some(rank);
                let statement = &active.statement;
                let word = Word { kind: Kind::Asks, call: number, left: 0, statement };
                self.links.send(rank, &word, &[]);
                let what = waited_for(&self.links, number, statement, rank);
                active.wait = Some(Wait::begin(self.links.cluster.node(), what));
            }
            // Later calls wait for the first one, as a rule.
            if mem::take(&mut is_first) && age >= self.report_after && !active.reported {
                active.reported = true;
                let what = waited_for(&self.links, number, &active.statement, rank);
                warn(self.links.cluster.node().name(), &format!("waits for {what} for {age:.0?}"));
            }
        }
        self.shared.state().lines = lines;
        true
    }
}

/// Returns a rank that a call waits for, in words.
fn waited_for(links: &Links, number: u64, statement: &[u8], rank: usize) -> String {
    let member = links.members[rank].rank;
    let call = talk::text(statement);
    format!("rank {rank} of the group (rank {member} of the cluster) in call {number}, {call}")
}
