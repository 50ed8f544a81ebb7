//! A node's report of itself, for people who ask why it waits.

use super::Node;
use crate::driver::clock;
use crate::driver::tasks;
use crate::driver::wakers::locked;
use crate::explain::{Explanation, LinkReport};
use crate::report::Report;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Time in which a running driver answers: 1 s.
const EXPLAIN_DEADLINE: Duration = Duration::from_secs(1);

impl Node {
    /// Returns a report for people: the work and the waits of every link and channel of the node.
    ///
    /// Nodes that wait in `send` for each other in a ring, and do not receive, are named as a
    /// cycle, on each of these nodes. The report begins some 2 s, plus 2 s for each node, after the
    /// last wait began. It ends with the first of the waits, or up to 4 s later. All of these waits
    /// were there at one time.
    ///
    /// A cycle is a report and no verdict, since it shows nodes and not tasks. If one task sends
    /// and another one receives and is only slow, the cycle ends by itself.
    ///
    /// Only waits in `send`, `sync` and `close` are seen. These close no cycle:
    ///
    /// - a task that waits elsewhere (for a lock, a call, a timer);
    /// - a node that waits for itself;
    /// - a ring of more than 16 nodes;
    /// - a channel with an empty inbox at which somebody waits in `recv`, its own or that of a `SelectAll`.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn explain(&self) -> Explanation {
        let mut links = Vec::new();
        // The node's own runtime may be the one that is blocked.
        let timer = Handle::try_current().unwrap_or_else(|_| self.shared.runtime.clone());
        for link in self.shared.table.links() {
            let report = clock::within(&timer, EXPLAIN_DEADLINE, link.explain());
            let stuck = || LinkReport {
                peer: link.peer.name.clone(),
                state: "its driver does not run: is the runtime blocked?".to_owned(),
                trouble: link.trouble(),
                way: link.way(),
                stats: link.stats(),
                ..LinkReport::default()
            };
            links.push(report.await.flatten().unwrap_or_else(stuck));
        }
        let node = self.name().to_owned();
        let cycles = locked(&self.shared.board).cycles(clock::now());
        let (waits, layers) = (self.waits().report(), self.layers().explain());
        Explanation { node, links, cycles, refusals: self.refusals(), waits, layers }
    }

    /// Returns what the layers of the node do, as typed values: calls, groups, arrays, farms. Bounded by the constants
    /// of [`crate::report`]. Things that gather nothing until they are asked may be in it from the next call on.
    #[must_use]
    pub fn report(&self) -> Report {
        self.layers().report()
    }

    /// Prints the report of [`Node::explain`] to standard error whenever the process
    /// gets the signal SIGUSR1, as long as the node lives. Does nothing in a simulation,
    /// whose hosts have no signals.
    ///
    /// # Errors
    ///
    /// The system does not let the signal be handled.
    #[cfg(unix)]
    pub fn explain_on_sigusr1(&self) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if crate::transport::world::is_entered() {
            return Ok(());
        }
        let entered = self.shared.runtime.enter();
        let kind = tokio::signal::unix::SignalKind::user_defined1();
        let mut signals = tokio::signal::unix::signal(kind)?;
        drop(entered);
        let node = Arc::downgrade(&self.shared);
        let explaining = async move {
            while signals.recv().await.is_some() {
                let Some(shared) = node.upgrade() else { return };
                eprint!("{}", Node { shared }.explain().await);
            }
        };
        tasks::spawn_boxed(&self.shared.runtime, Box::pin(explaining));
        Ok(())
    }
}
