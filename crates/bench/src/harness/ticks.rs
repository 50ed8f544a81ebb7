//! A timer that ticks up to a million times a second while the thread sleeps in between: tokio's
//! own timers step in milliseconds.

use crate::failure::{Doing, Failure};

pub use system::Ticks;

/// Returns the nanoseconds between two of `rate` ticks a second.
fn gap_ns(rate: u64) -> u64 {
    (1_000_000_000 / rate.max(1)).max(1)
}

#[cfg(target_os = "linux")]
mod system {
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::{Doing, Failure, gap_ns};

    /// A timer of the system.
    #[derive(Debug)]
    pub struct Ticks(AsyncFd<OwnedFd>);

    impl Ticks {
        /// Starts a timer of `rate` ticks a second.
        ///
        /// # Errors
        /// If the system has no timer left.
        pub fn start(rate: u64) -> Result<Self, Failure> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags).doing("making a timer")?;
            let gap_ns = gap_ns(rate);
            let gap = Timespec {
                tv_sec: (gap_ns / 1_000_000_000) as i64,
                tv_nsec: (gap_ns % 1_000_000_000) as i64,
            };
            let times = Itimerspec { it_interval: gap, it_value: gap };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times).doing("setting a timer")?;
            // `new` is deprecated because a descriptor may change or be closed elsewhere, which an
            // owned one does not. Its replacement is unsafe.
            #[allow(deprecated)]
            let timer = AsyncFd::new(timer);
            Ok(Self(timer.doing("waiting for a timer")?))
        }

        /// Waits for a tick; returns the number of ticks since the last call, at least one.
        ///
        /// # Errors
        /// If the timer cannot be read.
        ///
        /// # Cancel safety
        /// No tick is lost.
        pub async fn due(&mut self) -> Result<u64, Failure> {
            loop {
                let mut ready = self.0.readable().await.doing("waiting for a timer")?;
                let mut count = [0; 8];
                let read = rustix::io::read(ready.get_inner(), &mut count);
                // Either way the timer is read to its end: the next readiness is a new tick.
                ready.clear_ready();
                match read {
                    Ok(_) => return Ok(u64::from_ne_bytes(count)),
                    Err(rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(Failure::broken("reading a timer", error)),
                }
            }
        }
    }
}

/// Without such a timer, tokio's: all messages that came due within a millisecond leave at once.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::{Failure, gap_ns};

    /// Tokio's clock, counted in ticks.
    #[derive(Debug)]
    pub struct Ticks {
        started: Instant,
        gap_ns: u64,
        told: u64,
    }

    impl Ticks {
        /// Starts a timer of `rate` ticks a second.
        ///
        /// # Errors
        /// Never.
        pub fn start(rate: u64) -> Result<Self, Failure> {
            Ok(Self { started: Instant::now(), gap_ns: gap_ns(rate), told: 0 })
        }

        /// Waits for a tick; returns the number of ticks since the last call, at least one.
        ///
        /// # Errors
        /// Never.
        ///
        /// # Cancel safety
        /// No tick is lost.
        pub async fn due(&mut self) -> Result<u64, Failure> {
            loop {
                let ticks = self.started.elapsed().as_nanos() as u64 / self.gap_ns;
                if ticks > self.told {
                    return Ok(ticks - std::mem::replace(&mut self.told, ticks));
                }
                sleep(Duration::from_nanos(self.gap_ns)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ticks_add_up_and_none_comes_early() {
        let started = std::time::Instant::now();
        let mut ticks = Ticks::start(10_000).unwrap();
        let mut count = 0;
        while count < 100 {
            let due = ticks.due().await.unwrap();
            assert!(due > 0);
            count += due;
            assert!(started.elapsed().as_micros() as u64 >= count * 100);
        }
    }
}
