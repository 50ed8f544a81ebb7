//! Services of the operating system: clock, cores, memory, switches.

use std::io;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::failure::{Doing, Failure};

fn read_clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the nanoseconds of the host's monotonic clock, the same in all its processes.
#[inline]
pub fn now_ns() -> u64 {
    read_clock(ClockId::Monotonic)
}

/// Returns the nanoseconds of processor time that this process has used, all threads.
pub fn cpu_ns() -> u64 {
    read_clock(ClockId::ProcessCPUTime)
}

#[cfg(target_os = "linux")]
mod cores {
    use std::sync::OnceLock;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// Returns the cores that the process was given, before it pinned anything.
    fn given() -> Option<&'static CpuSet> {
        static GIVEN: OnceLock<Option<CpuSet>> = OnceLock::new();
        GIVEN.get_or_init(|| sched_getaffinity(None).ok()).as_ref()
    }

    pub(super) fn list() -> Vec<usize> {
        let Some(given) = given() else { return Vec::new() };
        (0..CpuSet::MAX_CPU).filter(|&core| given.is_set(core)).collect()
    }

    pub(super) fn pin_to(core: usize) {
        let mut set = CpuSet::new();
        set.set(core);
        // A container may forbid pinning; figures are then noisier, not wrong.
        let _ = sched_setaffinity(None, &set);
    }

    pub(super) fn unpin() {
        if let Some(given) = given() {
            // A container may forbid it, as above.
            let _ = sched_setaffinity(None, given);
        }
    }
}

/// Without a way to pin: the system places the threads.
#[cfg(not(target_os = "linux"))]
mod cores {
    pub(super) fn list() -> Vec<usize> {
        Vec::new()
    }

    pub(super) fn pin_to(_core: usize) {}

    pub(super) fn unpin() {}
}

/// Returns the cores that this process was given; empty if the system does not report them.
pub fn cores() -> Vec<usize> {
    cores::list()
}

/// Returns the number of cores that this process was given.
pub fn core_count() -> usize {
    let reported = cores().len();
    if reported > 0 {
        reported
    } else {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

/// Keeps the calling thread, and the threads that it starts from now on, on one core: the
/// `index`-th of the process's cores, counted round.
pub fn pin(index: usize) {
    if let Some(core) = nth_core(index) {
        cores::pin_to(core);
    }
}

/// Returns the number of the core on which [`pin`] with this index keeps a thread; `None` if the
/// system does not report the cores.
pub fn nth_core(index: usize) -> Option<usize> {
    let cores = cores();
    (!cores.is_empty()).then(|| cores[index % cores.len()])
}

/// Lets the calling thread, and the threads that it starts from now on, run on every core again.
pub fn unpin() {
    cores::unpin();
}

/// Gives the calling thread idle priority: it runs when no other thread wants the core.
///
/// # Errors
/// If there is no `chrt`, or the system refuses.
#[cfg(target_os = "linux")]
pub fn become_idle() -> io::Result<()> {
    // No safe call sets the priority: `chrt` of util-linux does it for a thread's number.
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let status = Command::new("chrt").args(["--idle", "--pid", "0", thread.as_str()]).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("chrt: {status}"))) }
}

/// Fails: there is no idle priority elsewhere.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn become_idle() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the name of this program's file.
pub fn program_name() -> String {
    let file = std::env::current_exe().unwrap_or_default();
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns a command that runs this program.
///
/// # Errors
/// If its file is not known.
pub fn this_program() -> Result<Command, Failure> {
    std::env::current_exe().doing("finding this program's file").map(Command::new)
}

/// Stops a process, or lets it continue.
pub fn hold(pid: u32, held: bool) {
    use rustix::process::Signal;
    signal(pid, if held { Signal::STOP } else { Signal::CONT });
}

/// Kills a process.
pub fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

/// Asks a process to end.
pub fn terminate(pid: u32) {
    signal(pid, rustix::process::Signal::TERM);
}

/// Returns the processes that any thread of a process has started and that are still there; none if
/// the system does not report them.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut pids = Vec::new();
    for thread in threads.flatten() {
        // A thread that has ended meanwhile has left its children to another.
        let Ok(listed) = std::fs::read_to_string(thread.path().join("children")) else { continue };
        pids.extend(listed.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    pids
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        // A process that is gone needs no signal; its parent will report the end.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Environment variable of children that end when this process does.
pub(crate) const DIES_WITH_PARENT: &str = "CHUNKPERF_DIES_WITH_PARENT";

/// Ends this process when the one that started it dies.
pub fn die_with_parent() {
    #[cfg(target_os = "linux")]
    // If this fails, the end of the control pipe still ends the process, a little later.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

fn status_number(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the resident bytes of this process, if the system reports them.
pub fn resident_bytes() -> Option<u64> {
    status_number("VmRSS:").map(|kib| kib * 1024)
}

/// Returns how often the threads of this process have left the processor, if the system reports it.
pub fn switches() -> Option<u64> {
    switches_of("self")
}

fn switches_of(process: &str) -> Option<u64> {
    let of_task = |status: &str| {
        let lines = status.lines().filter(|line| line.contains("ctxt_switches:"));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    };
    sum_of_tasks(process, "status", of_task)
}

/// Sums a figure over the threads of a process, from a file that the system has for each.
fn sum_of_tasks(process: &str, file: &str, figure: impl Fn(&str) -> u64) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    // A thread that has ended meanwhile does not count.
    let texts = tasks.flatten().filter_map(|it| std::fs::read_to_string(it.path().join(file)).ok());
    Some(texts.map(|text| figure(&text)).sum())
}

/// Returns what a process has taken of the machine so far: processor time in nanoseconds, the number of
/// times that its threads have left the processor, and that of its page faults without a read of a disk.
/// Zeros for what the system does not report.
pub fn taken(pid: u32) -> [u64; 3] {
    let process = pid.to_string();
    let number = |text: &str, at: usize| text.split_whitespace().nth(at)?.parse::<u64>().ok();
    let cpu_ns = sum_of_tasks(&process, "schedstat", |text| number(text, 0).unwrap_or_default());
    // The program's name, which may have spaces, ends with a parenthesis.
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let faults = stat.rsplit_once(')').and_then(|(_, rest)| number(rest, 7));
    [cpu_ns, switches_of(&process), faults].map(Option::unwrap_or_default)
}

/// Lets this process open `count` files, if the hard limit allows it.
///
/// # Errors
/// If the hard limit is lower.
pub fn allow_open_files(count: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    let current = limit.maximum.map_or(count, |maximum| maximum.min(count));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum })?;
    if current < count {
        let why = format!("{count} are needed and {current} are allowed");
        return Err(io::Error::other(why));
    }
    Ok(())
}

/// Returns the model of the processor, the number of cores that this process was given, and the kernel.
pub fn description() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model.trim());
    let uname = rustix::system::uname();
    let (system, release) = (uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
    format!("{model}, {} cores, {system} {release}", core_count())
}

/// Returns the day of today by the calendar of Greenwich, as 2026-01-31.
pub fn today() -> String {
    date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()))
}

/// Returns the day of a time, in seconds since 1970, by the calendar of Greenwich.
fn date(seconds: u64) -> String {
    let mut days = seconds / 86_400;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

/// Returns the boot's id: two processes with the same one read the same clock.
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_follow_the_calendar() {
        let days = [(0, "1970-01-01"), (951_782_400, "2000-02-29"), (1_795_824_000, "2026-11-28")];
        for (seconds, day) in days {
            assert_eq!((date(seconds).as_str(), date(seconds + 86_399).as_str()), (day, day));
        }
        assert_eq!(date(951_782_400 + 86_400), "2000-03-01");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_answers() {
        let before = (now_ns(), cpu_ns());
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000));
        assert!(switches().is_some());
        assert!(taken(std::process::id()).iter().all(|it| *it > 0));
        assert!(boot_id().is_some());
        assert!(now_ns() > before.0 && cpu_ns() >= before.1);
    }
}
