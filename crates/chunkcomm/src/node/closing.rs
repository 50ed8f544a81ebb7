//! The end of a node and of its sessions.

use super::accepting::AcceptTable;
use super::owed::HEARD_WITHIN;
use super::{Node, NodeShared};
use crate::driver::clock;
use crate::driver::mail::{Command, LinkShared};
use crate::driver::tasks;
use crate::driver::wakers::locked;
use crate::error::{CloseError, LinkCause, LinkError};
use crate::transport::BoxFuture;
use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

impl Node {
    /// Ends all sessions, after all accepted messages are acknowledged. Nothing can be
    /// opened or accepted afterwards, and the node's addresses are free; if its runtime has one thread and
    /// another runtime awaits this, once that thread runs. A peer hangs up first: one that is stopped, or
    /// whose thread computes, makes this last up to 100 ms longer.
    ///
    /// Before the sessions end, the layers of the node say what they owe by now, within half of
    /// `deadline`: the last value of a [watch](crate::watch) and its end, the answers of handlers that
    /// have returned ([`layer::Owed`](crate::layer::Owed)). A handler that still runs is not waited for.
    ///
    /// # Errors
    ///
    /// After `deadline` the sessions are cut. The error names what layers have not said. It has the
    /// accounts of the channels with unacknowledged messages, and of earlier losses that no call on a
    /// sender has reported: messages lost with an earlier session, or by a refusal, after their sender
    /// was dropped.
    /// Messages that a log has stored ([`Redelivery::log`](crate::Redelivery::log)) are not lost.
    /// The next process that opens the log sends those that are not settled.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, closing goes on without deadline.
    pub async fn close(&self, deadline: Duration) -> Result<(), CloseError> {
        self.closing(deadline).await
    }

    /// Closes the node. On the heap, so that the code is compiled with this crate and not with each
    /// program that awaits it.
    fn closing(&self, deadline: Duration) -> BoxFuture<'_, Result<(), CloseError>> {
        Box::pin(self.close_all(deadline))
    }

    async fn close_all(&self, deadline: Duration) -> Result<(), CloseError> {
        let wait =
            self.waits().begin("the last words of its layers: the node is closed".to_owned());
        let (begun, logs) = (clock::now(), self.shared.table.logs());
        let left =
            || deadline.saturating_sub(Duration::from_micros(clock::now().micros_since(begun)));
        let (links, unsaid) = self.close_links(deadline).await;
        wait.goes_on_for("all sessions to end: the node is closed".to_owned());
        // The connections keep the spinner while they last.
        drop(locked(&self.shared.spinner).take());
        let all_ended = self.shared.table.gone(&links);
        let in_time = clock::within(&self.shared.runtime, left(), all_ended);
        if in_time.await.is_none() {
            for link in &links {
                let error = LinkError::new(link.peer.name.clone(), LinkCause::CloseDeadline);
                link.command(Command::Abort(error));
            }
            self.shared.table.gone(&links).await;
        }
        let closed = async {
            for stream in logs.iter().filter_map(|sender| sender.settling.stream()) {
                poll_fn(|context| stream.poll_log_closed(context)).await;
            }
        };
        let _ = clock::within(&self.shared.runtime, left(), closed).await;
        self.shared.table.add_unstored(&logs);
        // Until now peers that were cut off could come back.
        for task in locked(&self.shared.tasks).iter() {
            task.abort();
        }
        // They end as soon as the runtime runs, which it may not while another one waits here.
        if self.shared.is_driven() {
            let listening = self.shared.taken.closed();
            let _ = clock::within(&self.shared.runtime, left().max(HEARD_WITHIN), listening).await;
        }
        match self.shared.table.tell_losses() {
            Ok(()) if unsaid.is_empty() => Ok(()),
            Ok(()) => Err(CloseError { channels: Vec::new(), forgotten: 0, unsaid }),
            Err(error) => Err(CloseError { unsaid, ..error }),
        }
    }

    /// Closes the links once layers have staged what they owe, at the latest after half of `deadline`: a
    /// debt that cannot be staged leaves time for the ends of the other links. Returns the links, and what
    /// was not staged.
    async fn close_links(&self, deadline: Duration) -> (Vec<Arc<LinkShared>>, Vec<String>) {
        let NodeShared { runtime, table, debts, .. } = &*self.shared;
        debts.set_due();
        if debts.are_said() {
            return (table.close(), Vec::new());
        }
        // A task of its own: closing goes on without the one who waits here.
        let (all_said, table_then) = (Arc::clone(debts), Arc::clone(table));
        let heard = clock::within(runtime, HEARD_WITHIN, pending::<()>());
        let closing = tasks::spawn_on(runtime, async move {
            tokio::select! {
                biased;
                () = all_said.all_said() => return table_then.close(),
                _ = heard => all_said.set_heard(),
            }
            all_said.all_said().await;
            table_then.close()
        });
        if let Some(Ok(links)) = clock::within(runtime, deadline / 2, closing).await {
            return (links, Vec::new());
        }
        let unsaid = debts.left();
        (table.close(), unsaid)
    }
}

impl NodeShared {
    /// Whether the node's runtime runs while this task waits.
    fn is_driven(&self) -> bool {
        let is_here = || Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id());
        !self.one_thread || self.io_thread.is_some() || is_here()
    }
}

impl Drop for NodeShared {
    fn drop(&mut self) {
        for task in locked(&self.tasks).iter() {
            task.abort();
        }
        self.table.close();
    }
}

/// Lasts until the runtime or the node ends. It then ends the calls that wait in the node, since
/// nobody drives it any more.
pub(super) fn until_the_runtime_ends(table: &Arc<AcceptTable>) -> impl Future<Output = ()> + use<> {
    let ends = EndsWithIt(Arc::clone(table));
    async move {
        let _ends = ends;
        pending::<()>().await;
    }
}

/// Reports the end of the runtime: a runtime that ends drops its tasks, and one of them holds this.
struct EndsWithIt(Arc<AcceptTable>);

impl Drop for EndsWithIt {
    fn drop(&mut self) {
        self.0.runtime_gone();
    }
}
