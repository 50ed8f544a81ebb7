//! Processors and waits of nodes that share a machine.

use chunkcomm::host::{self, Instant};
#[cfg(target_os = "linux")]
use chunkcomm::portable_only;

/// Pins this thread, and those that it starts from now on, to the processor for the node with
/// `index` in a chain on this machine. Processors are given in turn, one to each node. Returns the
/// processor.
///
/// For processes whose thread computes and drives its node. On a machine without an idle core the
/// kernel pulls a process that is woken over loopback to the processor of its waker. Two neighbours
/// that could compute side by side then take turns: measured as a speed-up of 1.1, against 1.8 when
/// pinned.
///
/// Processes started from a pinned thread are pinned with it: start them before. Returns `None` and
/// does nothing where the system cannot pin or refuses to, where
/// [only portable means](chunkcomm::portable_only) are to be used, and in a simulation.
#[cfg(target_os = "linux")]
pub fn pin(index: usize) -> Option<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    if portable_only() || host::is_virtual() {
        return None;
    }
    let allowed = sched_getaffinity(None).ok()?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let cpu = *cpus.get(index.checked_rem(cpus.len())?)?;
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).ok()?;
    Some(cpu)
}

/// Does nothing and returns `None`; on Linux it pins the thread.
#[cfg(not(target_os = "linux"))]
pub fn pin(_index: usize) -> Option<usize> {
    None
}

/// Blocks the thread until `deadline`, as a computation does. Returns at once in a simulation, where
/// computations declare their time.
///
/// A thread sleeps some 50 us too long (the system's slack): an error of each wait, but not of a sum of
/// waits whose deadlines are absolute.
pub(super) fn block_until(deadline: Instant) {
    let left = deadline - Instant::now();
    if !left.is_zero() && !host::is_virtual() {
        std::thread::sleep(left);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_processor_and_keeps_it() {
        let pinned = std::thread::spawn(|| (pin(1), pin(0), pin(7))).join();
        let (first, second, third) = pinned.expect("pinning does not panic");
        assert_eq!(first.is_some(), !portable_only());
        assert_eq!((first, first), (second, third), "only one processor is left to choose");
    }
}
