//! Nodes that are killed or stopped at any moment, from the start of their cluster to its end. The
//! others end, in order or with an error that names a rank, and no process is left. A seed, which
//! is printed, draws the moments.

use super::nodes::{NODES, free_address};
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{Scratch, blocking, proc};
use rustix::process::Signal;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Name of the variable of the seed; another number draws other moments.
const SEED: &str = "CHUNKCOMM_TEST_SEED";

/// Name of the variable by which all processes of a run are found.
pub(crate) const TOKEN: &str = "CHUNKCOMM_TEST_RUN";

const SIZE: usize = 3;

/// Time in which copies must be ready, in milliseconds.
const READY_MS: &str = "8000";

pub(crate) fn seed() -> u64 {
    std::env::var(SEED).map_or(1, |text| text.parse().unwrap())
}

pub(crate) fn token(round: impl std::fmt::Display) -> String {
    format!("{}-{round}", std::process::id())
}

/// Starts rank 0, which starts the others.
fn start(token: &str, arguments: &[&str]) -> proc::Program {
    let mut command = NODES.command(&[]);
    command.args(["--nodes", &SIZE.to_string()]).args(arguments);
    command.env(TOKEN, token).env("CHUNKCOMM_READY_MS", READY_MS);
    proc::Program(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
}

/// Starts one of three nodes that nobody waits for.
fn start_alone(token: &str, rank: usize, manager: &str) -> proc::Program {
    let mut command = NODES.command(&[]);
    command.args(SHORT).env(TOKEN, token).env("CHUNKCOMM_READY_MS", READY_MS);
    command.env("CHUNKCOMM_RANK", rank.to_string()).env("CHUNKCOMM_SIZE", SIZE.to_string());
    command.env("CHUNKCOMM_MANAGER", manager);
    proc::Program(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
}

/// Waits for the end of a program; returns its status and its standard error.
pub(crate) fn end_of(program: &mut proc::Program) -> (ExitStatus, String) {
    let status = blocking::until_some("the program does not end", || program.0.try_wait().unwrap());
    let mut told = String::new();
    program.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    (status, told)
}

/// Checks that a program ended in order, or with an error that names a rank.
fn assert_clear(status: ExitStatus, told: &str, context: &str) {
    let named =
        ["rank 0", "rank 1", "rank 2", "ranks ", "rank-"].iter().any(|it| told.contains(it));
    match status.code() {
        Some(0) => {}
        Some(1) => assert!(named, "{context}: nobody is named in {told:?}"),
        _ => panic!("{context}: {status}, {told:?}"),
    }
    assert!(!told.contains("panicked"), "{context}: {told}");
}

pub(crate) fn wait_until_nobody_has(token: &str, context: &str) {
    let what = format!("{context}: processes are left");
    blocking::until_some(&what, || proc::with_variable(TOKEN, token).is_empty().then_some(()));
}

/// Returns the time of a run without a fault.
fn undisturbed(arguments: &[&str]) -> Duration {
    let begun = Instant::now();
    let (status, told) = end_of(&mut start(&token("undisturbed"), arguments));
    assert!(status.success(), "{told}");
    begun.elapsed()
}

pub(crate) const SHORT: [&str; 4] = ["--round-trips", "20", "--mebibytes", "1"];

#[test]
fn a_copy_or_its_parent_killed_at_any_moment_leaves_nobody() {
    let whole = undisturbed(&SHORT);
    let mut random = seeded(seed());
    for round in 0..24 {
        let token = token(format!("copies-{round}"));
        let delay = whole.mul_f64(random.below(1200) as f64 / 1000.0);
        let choice = random.below(SIZE as u64) as usize;
        let mut program = start(&token, &SHORT);
        std::thread::sleep(delay);
        let context = format!("round {round}, process {choice} killed after {delay:?}");
        println!("{context}");
        // The victim is a copy that is there by then, otherwise the parent.
        let mut there = proc::with_variable(TOKEN, &token);
        there.retain(|pid| *pid != program.0.id());
        let victim = match choice {
            0 => program.0.id(),
            _ => there.get(choice - 1).copied().unwrap_or_else(|| program.0.id()),
        };
        proc::try_signal(victim, Signal::KILL);
        let killed = victim == program.0.id();
        let (status, told) = end_of(&mut program);
        if !killed {
            assert_clear(status, &told, &context);
        }
        wait_until_nobody_has(&token, &context);
    }
}

/// Runs all nodes of a cluster that nobody started; returns the time from the first start to the
/// last end.
fn undisturbed_alone() -> Duration {
    let manager = free_address();
    let begun = Instant::now();
    let mut nodes: Vec<proc::Program> =
        (0..SIZE).map(|rank| start_alone(&token("undisturbed-alone"), rank, &manager)).collect();
    for node in &mut nodes {
        let (status, told) = end_of(node);
        assert!(status.success(), "{told}");
    }
    begun.elapsed()
}

/// Started by variables, as by systemd: no launcher reports an end, nor cleans up.
#[test]
fn a_node_of_its_own_killed_at_any_moment_is_missed_by_the_others() {
    let whole = undisturbed_alone();
    let seed = seed();
    let mut random = seeded(seed);
    for round in 0..12 {
        let token = token(format!("alone-{round}"));
        let delay = whole.mul_f64(random.below(1200) as f64 / 1000.0);
        let victim = random.below(SIZE as u64) as usize;
        let manager = free_address();
        let mut nodes: Vec<proc::Program> =
            (0..SIZE).map(|rank| start_alone(&token, rank, &manager)).collect();
        std::thread::sleep(delay);
        proc::try_signal(nodes[victim].0.id(), Signal::KILL);
        let context = format!("seed {seed}, round {round}, rank {victim} killed after {delay:?}");
        println!("{context}");
        for (rank, node) in nodes.iter_mut().enumerate().filter(|(rank, _)| *rank != victim) {
            let (status, told) = end_of(node);
            assert_clear(status, &told, &format!("{context}: rank {rank}"));
        }
        let (status, told) = end_of(&mut nodes[victim]);
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        assert!(killed || status.success(), "{context}: {status}, {told:?}");
        wait_until_nobody_has(&token, &context);
    }
}

/// Arguments for measuring longer than the test lasts.
const BUSY: [&str; 2] = ["--round-trips", "1000000"];

fn copies_of(program: &proc::Program) -> Vec<u32> {
    proc::children(program.0.id(), SIZE - 1)
}

#[test]
fn a_copy_that_is_stopped_for_long_is_given_up_and_killed() {
    // The copy is stopped once while it starts and once while it works.
    for (round, starting) in [true, false].into_iter().enumerate() {
        let token = token(format!("stopped-copy-{round}"));
        let mut program = start(&token, &BUSY);
        let copies = copies_of(&program);
        let victim = proc::placed(&copies, 0);
        if !starting {
            proc::wait_until_placed(victim);
            std::thread::sleep(Duration::from_millis(300));
        }
        proc::signal(victim, Signal::STOP);
        let (status, told) = end_of(&mut program);
        assert_eq!(status.code(), Some(1), "{told}");
        let named = ["rank 1", "rank-1", "ranks 1"].iter().any(|it| told.contains(it));
        assert!(named, "{told}");
        wait_until_nobody_has(&token, "a stopped copy");
    }
}

#[test]
fn copies_do_not_wait_for_a_parent_that_is_stopped() {
    let token = token("stopped-parent");
    let mut program = start(&token, &BUSY);
    let copies = copies_of(&program);
    copies.iter().copied().for_each(proc::wait_until_placed);
    std::thread::sleep(Duration::from_millis(300));
    proc::signal(program.0.id(), Signal::STOP);
    proc::wait_until_gone(&copies);
    // Once the parent goes on, it learns the ends of its copies.
    proc::signal(program.0.id(), Signal::CONT);
    let (status, told) = end_of(&mut program);
    assert_eq!(status.code(), Some(1), "{told}");
    assert_clear(status, &told, "a parent that was stopped");
    wait_until_nobody_has(&token, "a stopped parent");
}

#[test]
fn who_is_stopped_for_a_moment_is_no_loss() {
    let token = token("stopped-briefly");
    let mut program = start(&token, &["--round-trips", "2000", "--mebibytes", "8"]);
    let mut victims = copies_of(&program);
    victims.push(program.0.id());
    for victim in victims {
        proc::try_signal(victim, Signal::STOP);
        std::thread::sleep(Duration::from_millis(300));
        proc::try_signal(victim, Signal::CONT);
    }
    let (status, told) = end_of(&mut program);
    assert!(status.success(), "{told}");
    wait_until_nobody_has(&token, "processes stopped for a moment");
}

/// Hydra sends this signal to the rest when a process dies, also to those that still join.
#[test]
fn a_node_that_waits_for_rank_0_outlives_sigusr1() {
    let token = token("sigusr1");
    let mut node = start_alone(&token, 1, &free_address());
    let pid = node.0.id();
    let handled = blocking::until_some("it neither handles the signal nor ends", || {
        let ended = node.0.try_wait().unwrap().is_some();
        (ended || proc::handles(pid, Signal::USR1)).then_some(!ended)
    });
    assert!(handled, "it never handles SIGUSR1");
    proc::signal(pid, Signal::USR1);
    let (status, told) = end_of(&mut node);
    assert_eq!(status.code(), Some(1), "{status}: {told}");
    assert!(told.contains("rank 0 was not reached"), "{told}");
}

/// `srun` leaves the other tasks alone, and nobody informs them. A shell by the name `slurmstepd` has
/// tasks as the real one has; `tests/launchers/run slurm` runs the real one.
#[test]
fn tasks_of_srun_do_not_wait_for_a_rank_0_that_was_killed_before_it_met_them() {
    let token = token("srun");
    let folder = Scratch::folder("srun");
    let stepd = folder.join("slurmstepd");
    std::os::unix::fs::symlink("/bin/sh", &stepd).unwrap();
    let tasks = "for SLURM_PROCID in 1 2; do export SLURM_PROCID; \"$PROGRAM\" & done; wait";
    let mut command = Command::new(&stepd);
    command.args(["-c", tasks]).env("PROGRAM", NODES.file()).env("TMPDIR", &*folder);
    command.env("SLURM_STEP_NUM_TASKS", "3").env("SLURM_STEP_NODELIST", "here");
    command.env("SLURM_JOB_ID", "7").env("SLURM_STEP_ID", "0").env(TOKEN, &token);
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let expected = "nodes: rank 0 ended before all were ready: srun has no task of it any more\n";
    assert_eq!(told, expected.repeat(2));
}
