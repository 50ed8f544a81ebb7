//! A bare thread that is woken once a delivery, as cheaply as the system can.

use std::fs::File;
use std::io::{self, Read, Write};
use std::thread;

use crate::failure::{Doing, Failure};
use crate::harness::machine::now_ns;
use crate::ours::starve::{PAUSE, samples};

/// Bytes of one ring: written by the bell's ringer, read by its hearer.
const RING: [u8; 8] = 1_u64.to_ne_bytes();

/// Wakes a thread `count` times; returns the nanoseconds from each ring to its hearing.
///
/// # Errors
/// If the system has no eventfd or pipe, or it breaks.
pub fn deliveries(count: u64) -> Result<Vec<u64>, Failure> {
    let (mut heard, mut rung) = bell().doing("making an eventfd")?;
    let hears = thread::spawn(move || -> io::Result<Vec<u64>> {
        let mut times_ns = Vec::with_capacity(count as usize);
        for _ in 0..count {
            heard.read_exact(&mut [0; RING.len()])?;
            times_ns.push(now_ns());
        }
        Ok(times_ns)
    });
    let mut rung_ns = Vec::with_capacity(count as usize);
    for _ in 0..count {
        thread::sleep(PAUSE);
        rung_ns.push(now_ns());
        rung.write_all(&RING).doing("writing to an eventfd")?;
    }
    let heard_ns = hears.join().map_err(|_| Failure::broken("hearing", "the thread panicked"))?;
    Ok(samples(&rung_ns, &heard_ns.doing("reading from an eventfd")?))
}

/// Returns both ends of the bell; each read hears one ring.
#[cfg(target_os = "linux")]
fn bell() -> io::Result<(File, File)> {
    use rustix::event::{EventfdFlags, eventfd};
    let heard = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
    let rung = heard.try_clone()?;
    Ok((heard.into(), rung.into()))
}

/// Returns both ends of the bell; each read hears one ring.
#[cfg(not(target_os = "linux"))]
fn bell() -> io::Result<(File, File)> {
    use std::os::fd::OwnedFd;
    let (heard, rung) = io::pipe()?;
    Ok((OwnedFd::from(heard).into(), OwnedFd::from(rung).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ring_is_heard() {
        assert_eq!(deliveries(20).unwrap().len(), 20);
    }
}
