//! Slurm's `srun`: a step of a job. Without PMI the nodes of one machine meet by a file. Those of
//! several meet at the first host of the step, at a port that job and step choose. The cluster's
//! name has job and step, so that another job at the same port is recognised.

use super::{Launcher, Look, Meet, Place};
use crate::launch::LaunchError;

const RANK: &str = "SLURM_PROCID";
const STEP_SIZE: &str = "SLURM_STEP_NUM_TASKS";
const SIZE: &str = "SLURM_NTASKS";
const JOB: &str = "SLURM_JOB_ID";
const STEP: &str = "SLURM_STEP_ID";
const STEP_HOSTS: &str = "SLURM_STEP_NODELIST";
const HOSTS: &str = "SLURM_NODELIST";

/// Most hosts that a list may expand to.
const HOST_COUNT_MAX: usize = 65_536;

/// Highest number of a step of tasks; batch scripts and `salloc` itself have higher ones.
const STEP_MAX: u32 = 0xFFFF_FFF0 - 1;

/// Returns the job and step of a process that `srun` started.
fn step(look: &mut Look<'_>) -> Result<Option<(u32, u32)>, LaunchError> {
    if !look.has(RANK) || !look.has(STEP) {
        return Ok(None);
    }
    let step = look.number(STEP, 0..=u32::MAX)?;
    if step > STEP_MAX {
        return Ok(None);
    }
    Ok(Some((look.number(JOB, 0..=u32::MAX)?, step)))
}

/// Whether all tasks of the step are on one machine; `None` outside of a step.
pub(super) fn is_one_machine(look: &mut Look<'_>) -> Result<Option<bool>, LaunchError> {
    match step(look)? {
        Some(_) => Ok(Some(hosts(look)?.len() == 1)),
        None => Ok(None),
    }
}

pub(super) fn place(look: &mut Look<'_>) -> Result<Option<Place>, LaunchError> {
    let Some((job, step)) = step(look)? else { return Ok(None) };
    let size = if look.has(STEP_SIZE) { STEP_SIZE } else { SIZE };
    let (rank, size) = look.rank_and_size(RANK, size)?;
    let hosts = hosts(look)?;
    let one_machine = hosts.len() == 1;
    let meet = match look.manager()? {
        Some(manager) => manager,
        None if one_machine => Meet::File(format!("slurm-{job}.{step}")),
        None => {
            let seed = u64::from(job) * 31 + u64::from(step);
            Meet::at(&hosts[0], look.ports_from(seed)?)
        }
    };
    let cluster = Some(format!("slurm-{job}.{step}"));
    let place = Place { one_machine, cluster, ..Place::new(Launcher::Slurm, meet) };
    Ok(Some(place.of(rank, size)))
}

/// Refuses a task of a step without the step's variables. A batch script has rank 0 and belongs to
/// no step: it counts as started by its user, and the explanation names it.
pub(super) fn check_nobody(look: &mut Look<'_>) -> Result<(), LaunchError> {
    match look.environment.get(RANK) {
        None => Ok(()),
        Some("0") => {
            let what = "0, of no step that srun started, as in a batch script";
            look.found.push((RANK.to_owned(), what.to_owned()));
            Ok(())
        }
        Some(_) => {
            let why = "SLURM_PROCID is that of a task of a step, whose other variables are needed";
            look.needed(STEP, why).map(drop)
        }
    }
}

fn hosts(look: &mut Look<'_>) -> Result<Vec<String>, LaunchError> {
    let name = if look.has(STEP_HOSTS) { STEP_HOSTS } else { HOSTS };
    let list = look.needed(name, "the hosts of the step are needed")?;
    let hosts = expand(&list).filter(|hosts| !hosts.is_empty());
    let hosts = hosts.ok_or_else(|| look.wrong(name, "a list such as n[1,7-9],other is needed"))?;
    hosts.iter().try_for_each(|host| look.host(name, host))?;
    Ok(hosts)
}

/// Returns whether the task of rank 0 has ended, as far as another task of the same machine can
/// see. The step has `size` tasks on this machine. By default `srun` does not end the other tasks
/// then, and does not inform them. So the tasks are looked for among the children of `slurmstepd`,
/// which starts all before any of them runs.
#[cfg(target_os = "linux")]
pub(super) fn rank_0_has_ended(size: u32) -> bool {
    let parent = std::os::unix::process::parent_id();
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
    let may_be_rank_0 = |pid: &String| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.is_empty()
            || environment.split(|byte| *byte == 0).any(|it| it == b"SLURM_PROCID=0")
    };
    // The list is read twice: it may lack some when another child ends meanwhile.
    name.trim_end() == "slurmstepd"
        && (0..2).all(|_| {
            let tasks = children(parent);
            !tasks.is_empty() && tasks.len() < size as usize && !tasks.iter().any(may_be_rank_0)
        })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn rank_0_has_ended(_size: u32) -> bool {
    false
}

/// Returns the children of all threads of a process; none if the system does not list them.
#[cfg(target_os = "linux")]
fn children(pid: u32) -> Vec<String> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|it| std::fs::read_to_string(it.path().join("children")));
    let words = |list: String| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    lists.flatten().flat_map(words).collect()
}

/// Returns the hosts of a list such as `n[001,007-015],h2`; several brackets in a host are
/// multiplied out. `None` if it is no list, or has too many hosts.
pub(super) fn expand(list: &str) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for part in split_outside_brackets(list)? {
        let some = expand_one(part)?;
        if hosts.len() + some.len() > HOST_COUNT_MAX {
            return None;
        }
        hosts.extend(some);
    }
    Some(hosts)
}

fn split_outside_brackets(list: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (index, letter) in list.char_indices() {
        match letter {
            '[' if inside => return None,
            '[' => inside = true,
            ']' if !inside => return None,
            ']' => inside = false,
            ',' if !inside => {
                parts.push(&list[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    (!inside && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

fn expand_one(part: &str) -> Option<Vec<String>> {
    let Some((head, rest)) = part.split_once('[') else { return Some(vec![part.to_owned()]) };
    let (numbers, tail) = rest.split_once(']')?;
    let numbers = expand_numbers(numbers)?;
    let tails = if tail.is_empty() { vec![String::new()] } else { expand_one(tail)? };
    if numbers.len().checked_mul(tails.len())? > HOST_COUNT_MAX {
        return None;
    }
    let mut hosts = Vec::with_capacity(numbers.len() * tails.len());
    for number in &numbers {
        hosts.extend(tails.iter().map(|tail| format!("{head}{number}{tail}")));
    }
    Some(hosts)
}

/// Returns the numbers of `001,007-015`, with their leading zeros.
fn expand_numbers(text: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        if !digits(first) || !digits(last) {
            return None;
        }
        let (from, to): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if from > to || to - from >= HOST_COUNT_MAX - numbers.len() {
            return None;
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
}
