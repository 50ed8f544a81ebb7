//! A bare thread that is woken once a delivery: by an eventfd, as cheaply as the system can, or over
//! TCP by a thread that sends it as many bytes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use crate::failure::{Doing, Failure};
use crate::harness::machine::now_ns;
use crate::ours::starve::{PAUSE, samples};

/// Bytes that an eventfd takes and gives at once.
const EVENT: [u8; 8] = 1_u64.to_ne_bytes();

/// Wakes a thread `count` times by an eventfd; returns the nanoseconds from each write to its read.
///
/// # Errors
/// If the system has no eventfd or pipe, or it breaks.
pub fn by_eventfd(count: u64) -> Result<Vec<u64>, Failure> {
    let (reads, writes) = eventfd().doing("making an eventfd")?;
    deliveries(reads, writes, &EVENT, count)
}

/// Sends a thread `count` messages of `bytes` bytes over TCP; returns the nanoseconds from each write
/// to its read.
///
/// # Errors
/// If the connection cannot be made, or breaks.
pub fn over_tcp(bytes: usize, count: u64) -> Result<Vec<u64>, Failure> {
    let connected = || -> io::Result<_> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let writes = TcpStream::connect(listener.local_addr()?)?;
        writes.set_nodelay(true)?;
        Ok((listener.accept()?.0, writes))
    };
    let (reads, writes) = connected().doing("connecting two threads")?;
    deliveries(reads, writes, &vec![0x5a; bytes], count)
}

fn deliveries(
    mut reads: impl Read + Send + 'static,
    mut writes: impl Write,
    message: &[u8],
    count: u64,
) -> Result<Vec<u64>, Failure> {
    let mut read = vec![0; message.len()];
    let woken = thread::spawn(move || -> io::Result<Vec<u64>> {
        let mut times_ns = Vec::with_capacity(count as usize);
        for _ in 0..count {
            reads.read_exact(&mut read)?;
            times_ns.push(now_ns());
        }
        Ok(times_ns)
    });
    let mut sent_ns = Vec::with_capacity(count as usize);
    for _ in 0..count {
        thread::sleep(PAUSE);
        sent_ns.push(now_ns());
        writes.write_all(message).doing("waking a thread")?;
    }
    let came_ns = woken.join().map_err(|_| Failure::broken("waking", "the thread panicked"))?;
    Ok(samples(&sent_ns, &came_ns.doing("reading in a thread")?))
}

/// Returns both ends; each read takes one write.
#[cfg(target_os = "linux")]
fn eventfd() -> io::Result<(File, File)> {
    use rustix::event::{EventfdFlags, eventfd};
    let reads = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
    let writes = reads.try_clone()?;
    Ok((reads.into(), writes.into()))
}

/// Returns both ends; each read takes one write.
#[cfg(not(target_os = "linux"))]
fn eventfd() -> io::Result<(File, File)> {
    use std::os::fd::OwnedFd;
    let (reads, writes) = io::pipe()?;
    Ok((OwnedFd::from(reads).into(), OwnedFd::from(writes).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wake_is_noted() {
        assert_eq!(by_eventfd(20).unwrap().len(), 20);
        assert_eq!(over_tcp(16, 20).unwrap().len(), 20);
    }
}
