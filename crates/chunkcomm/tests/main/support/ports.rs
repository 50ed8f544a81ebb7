//! Ports for programs that are told one before they listen at it.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// How many a process of this program takes at most before it begins again.
const EACH: u16 = 100;

/// A port that nobody listens at, outside of those that the system gives to whoever names none:
/// between now and the moment at which a program listens there, nobody gets it by chance.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 100) as u16 * EACH;
    for _ in 0..EACH {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % EACH;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("the ports from {first} on are taken")
}
