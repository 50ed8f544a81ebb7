//! A thread that looks whether virtual time moves on.
//!
//! A task that blocks the thread of a simulation, or never waits, stops it for ever. Nothing can
//! interrupt such a task, so the process ends with an error that names its host.

use crate::HostId;
use crate::lan::Lan;
use std::env;
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Environment variable with the real seconds that [`STUCK_DEFAULT`] replaces; 0 for no limit.
pub const STUCK_VARIABLE: &str = "CHUNKCOMM_STUCK_SECONDS";

/// Real time for which virtual time may stand still: two minutes.
pub const STUCK_DEFAULT: Duration = Duration::from_secs(120);

/// Exit status of a process whose simulation is stuck: that of a panic.
const STATUS_STUCK: i32 = 101;

fn stuck(lan: &Lan, limit: Duration) -> String {
    let host = lan.doings.host();
    let program = host.map_or_else(
        || "the main program, or a task of no host".to_owned(),
        |host| match lan.try_name(HostId::of_number(host)) {
            Some(name) => format!("the program of the host {name}"),
            None => format!("the program of the host with number {host}"),
        },
    );
    let now = Duration::from_nanos(lan.doings.now());
    format!(
        "a simulation is stuck: its time has stood at {now:?} for {limit:?} of real time. It runs \
         {program}, which blocks the thread, computes for too long, or never waits. \
         {STUCK_VARIABLE} sets the limit"
    )
}

/// Watches until it is dropped.
pub(crate) struct Watchdog {
    _over: Sender<()>,
}

impl Watchdog {
    /// Starts the thread; without one nobody watches.
    ///
    /// # Panics
    ///
    /// The variable holds no time.
    pub(crate) fn start(lan: &Arc<Lan>) -> Watchdog {
        let (over, ended) = channel();
        let limit = env::var(STUCK_VARIABLE).map_or(STUCK_DEFAULT, |text| {
            let seconds = text.parse().ok().map(Duration::try_from_secs_f64).and_then(Result::ok);
            seconds.unwrap_or_else(|| panic!("{STUCK_VARIABLE}={text}: seconds are needed"))
        });
        let lan = Arc::downgrade(lan);
        let watch = move || {
            let mut before = 0;
            loop {
                match ended.recv_timeout(limit) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
                let Some(lan) = lan.upgrade() else { return };
                let now = lan.doings.now();
                if now == before {
                    eprintln!("{}", stuck(&lan, limit));
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
