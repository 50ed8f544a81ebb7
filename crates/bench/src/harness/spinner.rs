//! Threads that keep the cores from halting, one a core, at idle priority.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::machine;
use crate::failure::{Doing, Failure};

/// The spinning threads; they end when this is dropped.
#[derive(Debug)]
pub struct Spinners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinners {
    /// Starts a spinner on each core that the process was given.
    ///
    /// # Errors
    /// If the system gives no idle priority.
    pub fn start() -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut spinners = Self { stop, threads: Vec::new() };
        for core in 0..machine::cores().len().max(1) {
            let (ready, is_idle) = std::sync::mpsc::channel();
            let stop = Arc::clone(&spinners.stop);
            spinners.threads.push(thread::spawn(move || {
                machine::pin(core);
                let idle = machine::become_idle();
                let spins = idle.is_ok();
                // The starting thread waits for this.
                let _ = ready.send(idle);
                while spins && !stop.load(Ordering::Relaxed) {
                    // No pause instruction: on a virtual machine it may give the core away.
                    black_box(());
                }
            }));
            let idle = is_idle.recv().doing("starting a spinner")?;
            idle.doing("giving a spinner idle priority by chrt")?;
        }
        Ok(spinners)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A spinner that panicked has ended as well.
            let _ = thread.join();
        }
    }
}
