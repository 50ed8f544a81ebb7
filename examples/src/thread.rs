//! The thread of a node on a virtual host.

use std::time::Duration;

use chunkcomm::host;
use tokio::sync::Mutex;

/// Least work that is done at a time, in nanoseconds. A simulation steps a microsecond, and each
/// computation is an event of it: shorter ones would take too long in both times.
const AT_ONCE_NANOS: u64 = 10_000;

/// A thread whose work comes in small parts. On a virtual host it keeps one core busy, however many
/// futures share it; on a real machine the work takes its time by itself, and nothing is done here.
#[derive(Debug, Default)]
pub struct Thread {
    nanos_to_do: Mutex<u64>,
}

impl Thread {
    /// Works for these nanoseconds of the reference machine: now, or with later parts.
    #[inline]
    pub async fn work(&self, nanos: impl FnOnce() -> u64) {
        if host::is_virtual() {
            self.work_virtually(nanos()).await;
        }
    }

    async fn work_virtually(&self, nanos: u64) {
        let mut to_do = self.nanos_to_do.lock().await;
        *to_do += nanos;
        if *to_do >= AT_ONCE_NANOS {
            // The rest stays: a part of a microsecond would last a whole one.
            let now = *to_do - *to_do % 1_000;
            *to_do -= now;
            host::compute(Duration::from_nanos(now), || ()).await;
        }
    }
}
