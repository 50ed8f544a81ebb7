//! Facts about processes, as Linux reports them.

use std::fs::read_to_string;
use std::process::Child;
use std::time::{Duration, Instant};

/// Longest time of a wait. None takes longer on a machine that is alive: a silent peer that nothing
/// waits for is asked after 30 s and given up 10 s later.
const DEADLINE: Duration = Duration::from_secs(180);

/// Waits until `look` finds something.
pub(crate) fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the children that any thread of a process has started, once they are `count`, by their
/// numbers.
pub(crate) fn children(pid: u32, count: usize) -> Vec<u32> {
    until_some("there are no children", || {
        let mut pids: Vec<u32> = Vec::new();
        for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
            let listed = read_to_string(thread.ok()?.path().join("children")).ok()?;
            pids.extend(listed.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
        }
        pids.sort_unstable();
        (pids.len() == count).then_some(pids)
    })
}

/// Returns the number in a variable of the process's environment. Waits until it runs its own
/// program: before, it is a copy of the process that starts it.
pub(crate) fn variable(pid: u32, name: &str) -> usize {
    until_some("the process does not start", || {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment);
        let mut values = environment.split('\0').filter_map(|one| one.strip_prefix(name));
        values.find_map(|value| value.strip_prefix('=')?.parse().ok())
    })
}

/// Returns the process with this place among the children of a launcher.
pub(crate) fn placed(pids: &[u32], place: usize) -> u32 {
    let found = pids.iter().find(|&&pid| variable(pid, "CHUNKCOMM_INDEX") == place);
    *found.expect("a place each")
}

/// Returns all processes of this machine with this variable that have not ended.
pub(crate) fn with_variable(name: &str, value: &str) -> Vec<u32> {
    let wanted = format!("{name}={value}");
    let mut pids: Vec<u32> = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The environment of a process that has ended cannot be read.
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        let has = environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes());
        if has && !is_gone(pid) {
            pids.push(pid);
        }
    }
    pids.sort_unstable();
    pids
}

/// Waits until a thread of the process reads its standard input, which it does once it
/// knows its place.
pub(crate) fn wait_until_placed(pid: u32) {
    until_some("the process does not learn its place", || {
        has_thread(pid, "chunkcomm-paren").then_some(())
    });
}

/// Whether the process has a thread whose name begins with `name`.
pub(crate) fn has_thread(pid: u32, name: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut names = threads.flatten().filter_map(|it| read_to_string(it.path().join("comm")).ok());
    names.any(|found| found.starts_with(name))
}

/// A program that is killed when this is dropped, also by a test that fails.
pub(crate) struct Program(pub(crate) Child);

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have ended, which is no matter.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the process has ended, whether or not its status was fetched.
pub(crate) fn is_gone(pid: u32) -> bool {
    match read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z')),
        Err(_) => true,
    }
}

/// Waits until all these processes have ended.
pub(crate) fn wait_until_gone(pids: &[u32]) {
    until_some(&format!("of {pids:?} some are left"), || {
        pids.iter().all(|&pid| is_gone(pid)).then_some(())
    });
}

/// Whether the process handles this signal; otherwise the signal would end it.
pub(crate) fn handles(pid: u32, signal: rustix::process::Signal) -> bool {
    let bit = 1_u64 << (signal.as_raw() - 1);
    let status = read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & bit != 0)
}

/// Waits until the process handles this signal.
pub(crate) fn wait_until_handled(pid: u32, signal: rustix::process::Signal) {
    until_some("the signal is not handled", || handles(pid, signal).then_some(()));
}

/// Sends a signal.
pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Sends a signal to a process that may have ended.
pub(crate) fn try_signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}
