//! The sending end of a line: a channel to a rank that carries one transfer after the other.
//!
//! A line that has brought its transfer is idle. The next transfer to the rank takes it, in whatever call: nothing is
//! opened for it, and its first bytes have the window that the last ones had.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm::{BytesReceiver, BytesSender};
use tokio::runtime::Handle;

use super::Target;
use crate::error::DeltaSendError;

/// Most idle lines to a rank: 4, as many as a call has transfers to one.
const IDLE_MAX: usize = 4;

/// Time for which an idle line is kept: 1 s. Its window is a part of the link's.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// A channel between two transfers.
pub(crate) struct Line {
    pub(super) channel: BytesSender,
    pub(super) replies: BytesReceiver,
    /// Number of messages that the channel has taken.
    pub(super) messages: u64,
}

impl Line {
    /// Opens a line.
    pub(crate) async fn open(target: &Target<'_>) -> Result<Line, DeltaSendError> {
        let opened = target.node.open_duplex_bytes(target.peer, target.channel).await;
        let (channel, replies, _) = opened.map_err(DeltaSendError::Open)?.split();
        Ok(Line { channel, replies, messages: 0 })
    }
}

/// The idle lines of a rank to the others of its group.
#[derive(Default)]
pub(crate) struct IdleLines(Mutex<Idle>);

#[derive(Default)]
struct Idle {
    /// Rank at the other end, time at which the line became idle. The last one became so last.
    lines: Vec<(usize, Instant, Line)>,
    /// A task looks for those that were idle for long enough.
    is_kept: bool,
}

impl IdleLines {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an idle line to a rank.
    pub(crate) fn take(&self, to: usize) -> Option<Line> {
        let mut idle = self.idle();
        let at = idle.lines.iter().rposition(|(rank, _, _)| *rank == to)?;
        Some(idle.lines.remove(at).2)
    }

    /// Keeps a line for the next transfer to its rank.
    pub(crate) fn give(self: &Arc<Self>, to: usize, line: Line, runtime: &Handle) {
        let mut idle = self.idle();
        if idle.lines.iter().filter(|(rank, _, _)| *rank == to).count() >= IDLE_MAX {
            drop(idle);
            return drop(line);
        }
        idle.lines.push((to, Instant::now(), line));
        if mem::replace(&mut idle.is_kept, true) {
            return;
        }
        drop(idle);
        let all = Arc::downgrade(self);
        host::spawn_on(runtime, async move {
            loop {
                host::sleep(KEPT_FOR).await;
                let Some(all) = all.upgrade() else { return };
                if all.rest() {
                    return;
                }
            }
        });
    }

    /// Ends the lines that were idle for long enough; returns whether none is left.
    fn rest(&self) -> bool {
        let mut idle = self.idle();
        let is_old = |it: &(usize, Instant, Line)| it.1.elapsed() >= KEPT_FOR;
        let kept = idle.lines.iter().take_while(|it| is_old(it)).count();
        let old: Vec<_> = idle.lines.drain(..kept).collect();
        idle.is_kept = !idle.lines.is_empty();
        let is_empty = !idle.is_kept;
        drop(idle);
        drop(old);
        is_empty
    }
}

/// The place to which a line goes back when its transfer has landed.
pub(crate) struct Home {
    pub(crate) idle: Arc<IdleLines>,
    /// Rank at the other end.
    pub(crate) to: usize,
}
