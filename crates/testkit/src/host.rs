//! Hosts of a test's own.

use std::sync::atomic::{AtomicU8, Ordering};

/// Returns a host of this machine's own on which nobody else takes ports (Linux): a port whose
/// listener is gone stays free for the next one there.
pub fn own_host() -> String {
    static HOSTS: AtomicU8 = AtomicU8::new(1);
    let host = HOSTS.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    let own = cfg!(target_os = "linux").then(|| format!("127.{}.{high}.{low}", 100 + host % 100));
    own.unwrap_or_else(|| "127.0.0.1".to_owned())
}
