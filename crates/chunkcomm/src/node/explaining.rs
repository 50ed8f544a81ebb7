//! A node's report of itself, for people who ask why it waits.

use super::Node;
use crate::driver::clock;
use crate::driver::mail::LinkShared;
use crate::driver::tasks;
use crate::driver::wakers::locked;
use crate::explain::{Explanation, LinkReport};
use crate::report::Report;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;

/// Time in which a running driver answers: 1 s.
const EXPLAIN_DEADLINE: Duration = Duration::from_secs(1);

type Answer = Option<LinkReport>;

/// Asks the drivers of all links before it waits for one, so that those that do not run share the time; these have no
/// answer.
async fn answers(timer: &Handle, links: &[Arc<LinkShared>]) -> Vec<Answer> {
    let mut asked: Vec<_> = links.iter().map(|link| (Box::pin(link.explain()), None)).collect();
    look_at_all(&mut asked).await;
    let mut answered = 0;
    let all = poll_fn(|context| {
        while let Some(next) = asked.get_mut(answered) {
            if !look(next, context) {
                return Poll::Pending;
            }
            answered += 1;
        }
        Poll::Ready(())
    });
    if clock::within(timer, EXPLAIN_DEADLINE, all).await.is_none() {
        look_at_all(&mut asked).await;
    }
    asked.into_iter().map(|(_, answer)| answer.flatten()).collect()
}

/// An answer that is awaited, or has come.
type Asked<F> = (Pin<Box<F>>, Option<Answer>);

async fn look_at_all<F: Future<Output = Answer>>(asked: &mut [Asked<F>]) {
    poll_fn(|context| {
        for one in &mut *asked {
            look(one, context);
        }
        Poll::Ready(())
    })
    .await;
}

/// Returns whether the answer has come.
fn look<F: Future<Output = Answer>>(asked: &mut Asked<F>, context: &mut Context<'_>) -> bool {
    let (awaited, answer) = asked;
    if answer.is_none()
        && let Poll::Ready(come) = awaited.as_mut().poll(context)
    {
        *answer = Some(come);
    }
    answer.is_some()
}

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
        let all = self.shared.table.links();
        // The node's own runtime may be the one that is blocked.
        let timer = Handle::try_current().unwrap_or_else(|_| self.shared.runtime.clone());
        let answers = answers(&timer, &all).await;
        let mut links = Vec::new();
        for (link, answer) in all.iter().zip(answers) {
            let stuck = || LinkReport {
                peer: link.peer.name.clone(),
                state: "its driver does not run: is the runtime blocked?".to_owned(),
                trouble: link.trouble(),
                way: link.way(),
                stats: link.stats(),
                ..LinkReport::default()
            };
            links.push(answer.unwrap_or_else(stuck));
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
