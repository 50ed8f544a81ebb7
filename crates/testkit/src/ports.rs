//! Ports for programs that get one before they listen at it.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports that a process of this program takes at most before it begins again.
const EACH: u16 = 100;

/// Returns a port at which nobody listens, outside of the range from which the system gives ports
/// to anybody who names none. So no other program gets it by chance before one listens there.
pub fn free_port() -> u16 {
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
