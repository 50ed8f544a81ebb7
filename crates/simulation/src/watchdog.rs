//! A thread that looks whether virtual time moves on.
//!
//! A task that blocks the thread of a simulation, or never waits, stops it for ever. Nothing can
//! interrupt such a task, so the process ends with an error that names its host.

use std::env;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Environment variable with the real seconds that [`STUCK_DEFAULT`] replaces; 0 for no limit.
pub const STUCK_VARIABLE: &str = "CHUNKCOMM_STUCK_SECONDS";

/// Real time for which virtual time may stand still: two minutes.
pub const STUCK_DEFAULT: Duration = Duration::from_secs(120);

/// Exit status of a process whose simulation is stuck: that of a panic.
const STATUS_STUCK: i32 = 101;

/// Virtual time and the last program of a simulation, for its watchdog.
#[derive(Debug, Default)]
pub(crate) struct Doings {
    /// Virtual time in nanoseconds.
    now: AtomicU64,
    /// The program that was polled last.
    program: Mutex<Option<Arc<str>>>,
}

impl Doings {
    pub(crate) fn moved(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    pub(crate) fn polls(&self, program: &Arc<str>) {
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(program));
    }

    fn stuck(&self, limit: Duration) -> String {
        let program = self.program.lock().unwrap_or_else(PoisonError::into_inner);
        let program = program.as_deref().unwrap_or("the main program");
        let now = Duration::from_nanos(self.now.load(Ordering::Relaxed));
        format!(
            "a simulation is stuck: its time has stood at {now:?} for {limit:?} of real time. The \
             last program that ran is {program}. It blocks the thread, computes for too long, or \
             never waits. {STUCK_VARIABLE} sets the limit"
        )
    }
}

/// Watches until it is dropped.
pub(crate) struct Watchdog {
    _over: Sender<()>,
}

impl Watchdog {
    /// Starts the thread; without one nobody watches.
    pub(crate) fn start(doings: Arc<Doings>) -> Watchdog {
        let (over, ended) = channel();
        let set = env::var(STUCK_VARIABLE).ok().and_then(|text| text.parse().ok());
        let limit = set.map_or(STUCK_DEFAULT, Duration::from_secs_f64);
        let watch = move || {
            let mut before = doings.now.load(Ordering::Relaxed);
            loop {
                match ended.recv_timeout(limit) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
                let now = doings.now.load(Ordering::Relaxed);
                if now == before {
                    eprintln!("{}", doings.stuck(limit));
                    process::exit(STATUS_STUCK);
                }
                before = now;
            }
        };
        if !limit.is_zero() {
            // Fails where the system has no thread left.
            let _ = thread::Builder::new().name("simulation-watchdog".to_owned()).spawn(watch);
        }
        Watchdog { _over: over }
    }
}
