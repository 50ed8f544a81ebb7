//! Facts about processes, as Linux reports them.

use crate::blocking::{until, until_some};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::read_to_string;
use std::process::Child;

/// Returns the children that any thread of a process has started, once they are `count`, by their
/// numbers.
pub fn children(pid: u32, count: usize) -> Vec<u32> {
    until_some("there are not that many children", || {
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
pub fn variable(pid: u32, name: &str) -> usize {
    until_some("the process does not start", || {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment);
        let mut values = environment.split('\0').filter_map(|one| one.strip_prefix(name));
        values.find_map(|value| value.strip_prefix('=')?.parse().ok())
    })
}

/// Returns the process with this place among the children of a launcher.
pub fn placed(pids: &[u32], place: usize) -> u32 {
    let found = pids.iter().find(|&&pid| variable(pid, "CHUNKCOMM_INDEX") == place);
    *found.expect("a place each")
}

/// Returns all processes of this machine with this variable that have not ended.
pub fn with_variable(name: &str, value: &str) -> Vec<u32> {
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
pub fn wait_until_placed(pid: u32) {
    until("the process does not learn its place", || has_thread(pid, "chunkcomm-paren"));
}

/// Whether the process has a thread whose name begins with `name`.
pub fn has_thread(pid: u32, name: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut names = threads.flatten().filter_map(|it| read_to_string(it.path().join("comm")).ok());
    names.any(|found| found.starts_with(name))
}

/// A program that is killed when this is dropped, also by a test that fails.
pub struct Program(pub Child);

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have ended, which is no matter.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the process has ended, whether or not its status was fetched.
pub fn is_gone(pid: u32) -> bool {
    state(&format!("/proc/{pid}")).is_none_or(|state| state == 'Z')
}

/// Returns the state of the process or thread with this folder in `/proc`; `None` when it is gone.
fn state(folder: &str) -> Option<char> {
    let stat = read_to_string(format!("{folder}/stat")).ok()?;
    stat.rsplit(')').next()?.trim().chars().next()
}

/// Waits until every thread of the process is stopped, or has ended: some run on for a while after the
/// signal.
fn wait_until_stopped(pid: u32) {
    let tasks = format!("/proc/{pid}/task");
    until("the process does not stop", || {
        let mut threads = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
        threads.all(|thread| {
            state(&thread.path().display().to_string()).is_none_or(|state| "TZX".contains(state))
        })
    });
}

/// Waits until all these processes have ended.
pub fn wait_until_gone(pids: &[u32]) {
    until(&format!("of {pids:?} some are left"), || pids.iter().all(|&pid| is_gone(pid)));
}

/// Waits until all threads of a child have ended, and with them its sockets. Its status is not
/// fetched.
pub fn wait_until_ended(child: &Child) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(child)), options).unwrap();
}

/// Whether the process handles this signal; otherwise the signal would end it.
pub fn handles(pid: u32, signal: Signal) -> bool {
    let bit = 1_u64 << (signal.as_raw() - 1);
    let status = read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & bit != 0)
}

/// Waits until the process handles this signal.
pub fn wait_until_handled(pid: u32, signal: Signal) {
    until("the signal is not handled", || handles(pid, signal));
}

/// Sends a signal. After [`Signal::STOP`] the process stands still.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
    if signal == Signal::STOP {
        wait_until_stopped(pid);
    }
}

/// Sends a signal to a process that may have ended.
pub fn try_signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}
