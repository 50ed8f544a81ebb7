//! The streams of a node. They end with it; closing the node waits for those with a log.

use super::accepting::AcceptTable;
use super::redelivering::give_up;
use crate::driver::ending::LostChannel;
use crate::driver::mail::LinkShared;
use crate::driver::staging::TxShared;
use crate::driver::wakers::locked;
use crate::error::{Account, LinkCause, LinkError};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

impl AcceptTable {
    /// Adds the sender of a stream that is given up when the node closes. False if the node has
    /// closed or its runtime is gone.
    pub(super) fn add_stream(&self, sender: &Arc<TxShared>) -> bool {
        let mut table = locked(&self.table);
        table.streams.retain(|known| known.strong_count() > 0);
        table.streams.push(Arc::downgrade(sender));
        !table.closed && !table.runtime_gone
    }

    /// Adds the messages that are lost with a stream that was given up.
    pub(super) fn add_lost(&self, lost: Option<LostChannel>) {
        locked(&self.table).losses.add(lost.into_iter().collect(), true);
    }

    /// Waits for a session with a peer of this name.
    pub(super) fn poll_named(
        &self,
        name: &str,
        context: &mut Context<'_>,
    ) -> Poll<Arc<LinkShared>> {
        locked(&self.table).links.poll_named(name, context)
    }

    /// Returns the senders of the streams that have a log.
    pub(super) fn logs(&self) -> Vec<Arc<TxShared>> {
        let table = locked(&self.table);
        table.streams.iter().filter_map(Weak::upgrade).filter(|it| it.is_logged()).collect()
    }

    /// Adds as lost the messages of these senders that their logs have not stored.
    pub(super) fn add_unstored(&self, logs: &[Arc<TxShared>]) {
        let mut table = locked(&self.table);
        for sender in logs.iter().filter(|it| it.stored() < it.storing()) {
            let link = LinkError::new(String::new(), LinkCause::Closed);
            let acknowledged = sender.acked().max(sender.stored());
            let account = Account { accepted: sender.storing(), acknowledged, settles: false };
            let lost = LostChannel::new(sender, account, &link);
            table.losses.add_new(lost);
        }
    }

    /// Ends the streams. Those that have no channel lose their unsettled messages, unless a log has
    /// them.
    pub(super) fn give_up_streams(&self) {
        let streams = std::mem::take(&mut locked(&self.table).streams);
        let lost: Vec<LostChannel> =
            streams.iter().filter_map(Weak::upgrade).filter_map(|it| give_up(&it)).collect();
        locked(&self.table).losses.add(lost, true);
    }
}
