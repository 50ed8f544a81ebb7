//! The transfers of a region on lines: channels between the ranks of a group, which stay from call to call.

use std::ops::Range;
use std::sync::Arc;

use chunkcomm::Peer;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::{Operand, Region, RegionLanding, RegionSend};
use crate::Element;
use crate::error::DeltaSendError;
use crate::landing::{Combine, Due, Expected, Origin, expect};
use crate::proto::increment::Increment;
use crate::proto::line::Head;
use crate::pump::{self, Home, IdleLines, Line, Target};

/// The lines of a rank in its group.
#[derive(Default)]
pub(crate) struct Lines {
    /// The transfers that lines are to bring to this rank.
    pub(crate) expected: Arc<Expected>,
    /// The lines to others that carry nothing.
    pub(crate) idle: Arc<IdleLines>,
}

impl<T: Element> Region<T> {
    /// Receives in these sections what a line of `peer` brings, combined or as it comes. The peer may send from now
    /// on. `name` is that of its lines.
    pub(crate) fn expect(
        &self,
        (lines, due): (&Lines, Due),
        (peer, name): (&Peer, &str),
        sections: &[Range<usize>],
        combine: Option<(Operand<'_, T>, Combine<T>)>,
        runtime: &Handle,
    ) -> RegionLanding {
        let sections = self.sections(sections);
        let combine = combine.map(|(own, combine)| (own.beside(&sections), combine));
        let memory = (self.owner.share().clone(), sections);
        let origin = Origin { peer: peer.name().to_owned(), channel: name.to_owned() };
        let (fate, outcome) = watch::channel(None);
        let interest = expect((&lines.expected, due), origin, memory, combine, fate, runtime);
        self.landings.hold(interest, outcome, peer.clone(), name)
    }

    /// Sends the elements of these sections as transfer `number` of a call to rank `to`, which expects it, as they
    /// become done: on an idle line, else on a new one.
    pub(crate) async fn send_on(
        &self,
        lines: &Lines,
        target: Target<'_>,
        to: usize,
        (call, number): (u64, u32),
        sections: &[Range<usize>],
    ) -> Result<RegionSend, DeltaSendError> {
        let (sections, manner) = self.sent(sections, Increment::default(), true);
        let line = match lines.idle.take(to) {
            Some(line) => line,
            None => Line::open(&target).await?,
        };
        let head = Head { call, number, bytes: sections.bytes() as u64 };
        let home = Home { idle: Arc::clone(&lines.idle), to };
        let share = self.owner.share();
        let pump = pump::start_on(line, &target, share, sections, manner, (head, home));
        Ok(RegionSend::new(pump))
    }
}
