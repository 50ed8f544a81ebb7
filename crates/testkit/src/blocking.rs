//! Waits of plain threads.

use std::time::{Duration, Instant};

/// Longest time of a wait. None takes longer on a machine that is alive: a silent peer that nothing
/// waits for is asked after 30 s and given up 10 s later.
const DEADLINE: Duration = Duration::from_secs(180);

/// Time between two looks at a condition.
const LOOK: Duration = Duration::from_millis(1);

/// Time in which a process would do what it must not do.
const QUIET: Duration = Duration::from_millis(200);

/// Time without a change after which a value has settled.
const SETTLED: Duration = Duration::from_millis(30);

/// Waits until `look` finds something; `what` says what is wrong when it never does.
#[track_caller]
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(LOOK);
    }
}

/// Waits until `done` returns true; `what` says what is wrong when it never does.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    until_some(what, || done().then_some(()));
}

/// Waits until `read` has returned the same value for some time; returns it. `what` says what is
/// wrong when it never does.
#[track_caller]
pub fn settled<T: PartialEq>(what: &str, mut read: impl FnMut() -> T) -> T {
    let (mut value, mut since) = (read(), Instant::now());
    until(what, || {
        let now = read();
        if now != value {
            (value, since) = (now, Instant::now());
        }
        since.elapsed() >= SETTLED
    });
    value
}

/// Checks that `holds` stays true, for nothing tells when a thing will never happen.
#[track_caller]
pub fn stays(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < QUIET {
        assert!(holds(), "no longer true: {what}");
        std::thread::sleep(LOOK);
    }
}
