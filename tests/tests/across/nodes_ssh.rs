//! The example `nodes` on the hosts of a file, with a program in the place of ssh that fails as ssh
//! does. The error names a host that cannot be reached and the reason, and nobody is left. The real
//! ssh is run by `tests/launchers/run ssh`.

use super::nodes::{NODES, waited};
use super::nodes_faults::{SHORT, TOKEN, end_of, seed, token, wait_until_nobody_has};
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{Scratch, proc};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Variable and value of another time than the default, to be found in errors.
const READY: (&str, &str) = ("CHUNKCOMM_READY_MS", "1700");

/// Time by which rank 0 has begun to wait and some others are there, in milliseconds.
const PATIENT_MS: u64 = 6_000;

/// A folder with a hosts file, and the variables of a program that uses the stand-in for ssh.
struct Lab {
    folder: Scratch,
    token: String,
    variables: Vec<(&'static str, String)>,
}

impl Lab {
    fn new(name: &str, hosts: &str) -> Lab {
        let token = token(format_args!("ssh-{name}"));
        let folder = Scratch::folder("ssh");
        std::fs::write(folder.join("hosts"), hosts).unwrap();
        Lab { folder, token, variables: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Lab {
        self.variables.push((name, value.into()));
        self
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/across/nodes_ssh/ssh.sh");
        let mut command = Command::new(program);
        // Run by a shell, since not every copy of the sources keeps a file's permission to be run.
        command.env("CHUNKCOMM_SSH", format!("sh {}", script.display())).env(TOKEN, &self.token);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn start(&self, arguments: &[&str]) -> proc::Program {
        let mut command = self.command(NODES.file());
        command.arg("--hosts").arg(self.folder.join("hosts")).args(arguments);
        proc::Program(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Checks that the program fails, leaves nobody, and has these parts in its last line. Returns
    /// its whole standard error.
    fn assert_fails(&self, parts: &[&str]) -> String {
        self.assert_fails_with(1, parts)
    }

    fn assert_fails_with(&self, code: i32, parts: &[&str]) -> String {
        let (status, told) = end_of(&mut self.start(&SHORT));
        assert_eq!(status.code(), Some(code), "{told}");
        let last = told.lines().last().unwrap_or_default();
        assert!(last.starts_with("nodes: "), "{told}");
        for part in parts {
            assert!(last.contains(part), "{part:?} is not in the last line of\n{told}");
        }
        wait_until_nobody_has(&self.token, &self.token);
        told
    }

    /// Checks that rank 0 waits for [`PATIENT_MS`], by default 30 s, and names who is not ready.
    fn assert_waits_and_names(self, who: &str) {
        let told = self.with(READY.0, PATIENT_MS.to_string()).assert_fails(&[who]);
        let allowed = Duration::from_millis(PATIENT_MS)..Duration::from_secs(30);
        assert!(allowed.contains(&waited(&told)), "{told}");
    }
}

/// Returns a hosts file of three hosts, in which the one of this rank has this name.
fn hosts_with(host: &str, rank: usize) -> String {
    let name = |index| if index == rank { host.to_owned() } else { format!("near{index}") };
    (0..3).map(|index| format!("{} address=127.0.0.1\n", name(index))).collect()
}

#[test]
fn nodes_run_on_the_hosts_of_a_file() {
    let lab = Lab::new("well", &hosts_with("near1", 1));
    let mut program = lab.start(&SHORT);
    let mut table = String::new();
    std::io::Read::read_to_string(program.0.stdout.as_mut().unwrap(), &mut table).unwrap();
    let (status, told) = end_of(&mut program);
    assert!(status.success(), "{told}");
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 4, "{table}");
    assert!(rows.iter().all(|row| row.starts_with("[0] ")), "{table}");
    wait_until_nobody_has(&lab.token, "a cluster that ended");
}

#[test]
fn a_program_that_a_node_over_ssh_starts_may_be_a_cluster_itself() {
    let lab = Lab::new("nest", &hosts_with("near1", 1));
    let mut command = lab.command(super::farm::PROGRAM);
    let output = command.args(["nest", "1"]).arg(lab.folder.join("hosts")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let expected =
        ["level 0", "arguments 5", "others", "level 1"].map(|line| format!("[1] {line}\n"));
    assert_eq!(told, expected.concat(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_host_that_cannot_be_had_is_named_with_what_ssh_said() {
    for (host, said) in [
        ("absent", "Could not resolve hostname absent"),
        ("far", "connect to host far port 22: Connection timed out"),
        ("locked", "locked: Permission denied (publickey,password)"),
        ("replaced", "Host key verification failed"),
    ] {
        for rank in [0, 2] {
            let lab = Lab::new(&format!("{host}-{rank}"), &hosts_with(host, rank));
            let named = format!("rank {rank} on {host} ended before all were ready: ssh failed");
            let mends = format!("nodes_ssh/ssh.sh -o BatchMode=yes {host} true");
            lab.assert_fails(&[&named, said, &mends, "CHUNKCOMM_SSH"]);
        }
    }
}

#[test]
fn a_program_that_is_not_on_the_host_is_named_with_the_command_that_copies_it() {
    for (host, said) in [("bare", "No such file or directory"), ("barred", "Permission denied")] {
        for rank in [0, 1] {
            let lab = Lab::new(&format!("{host}-{rank}"), &hosts_with(host, rank));
            let named = format!(
                "rank {rank} on {host} ended before all were ready: {}",
                NODES.file().display()
            );
            // The command names the ssh that was used, with its options.
            let copies = format!("nodes_ssh/ssh.sh {host} 'mkdir -p ");
            lab.assert_fails(&[&named, said, &copies]);
        }
    }
}

#[test]
fn a_node_that_ends_before_it_is_ready_is_named_with_its_last_words() {
    for (index, (script, how)) in [
        ("echo ignored; echo 'no licence' >&2; exit 3", "exit status: 3: no licence"),
        // The stand-in prints nothing about this.
        ("kill -9 $$", "a signal ended the program there"),
        ("exit 0", "exit status: 0"),
    ]
    .into_iter()
    .enumerate()
    {
        for rank in [0, 1] {
            let lab = Lab::new(&format!("early-{index}-{rank}"), &hosts_with("early", rank));
            let early = lab.folder.join("early");
            // Run by a shell: a file just written cannot always be run at once.
            std::fs::write(&early, script).unwrap();
            let lab = lab.with("EARLY", early.display().to_string());
            // A rank 1 that ends with 0 might have been ready, and have left.
            if (rank, how) == (1, "exit status: 0") {
                lab.assert_waits_and_names("rank 1 is on early");
            } else {
                let named = format!("rank {rank} on early ended before all were ready: ");
                lab.assert_fails(&[&named, how]);
            }
        }
    }
}

#[test]
fn a_host_that_stays_silent_is_named_after_the_settable_time() {
    let lab = Lab::new("frozen-0", &hosts_with("frozen", 0)).with(READY.0, READY.1);
    lab.assert_fails(&["rank 0 on frozen did not say where it listens", "1.7s"]);
    let lab = Lab::new("frozen-2", &hosts_with("frozen", 2));
    lab.assert_waits_and_names("rank 2 is on frozen");
    // Rank 0 names the others, so it has longer.
    let lab = Lab::new("mute", "mute address=127.0.0.1\n").with(READY.0, READY.1);
    lab.assert_fails(&["rank 0 on mute did not say that all are ready within 16.7s"]);
}

#[test]
fn an_ssh_that_is_not_here_is_named() {
    let lab = Lab::new("no-ssh", "near\n").with("CHUNKCOMM_SSH", "/nowhere/ssh -p 22");
    let error = "/nowhere/ssh cannot be started (CHUNKCOMM_SSH names another ssh): No such file";
    lab.assert_fails(&[error]);
}

#[test]
fn a_hosts_file_with_a_bad_line_is_an_error_with_its_number() {
    for (index, (hosts, parts)) in [
        ("near\n\nnear2 slot=2\n", ["hosts, line 3: ", "\"slot=2\" is neither slots=N nor"]),
        ("near slots=many\n", ["hosts, line 1: ", "slots are a number from 1 to 4096"]),
        ("# the lab\nnear # one\n-oProxyCommand=id\n", ["hosts, line 3: ", "is no host"]),
        ("near\nnear\n", ["hosts, line 2: ", "several nodes are slots=N"]),
        ("# nobody\n", ["hosts: ", "it names no host"]),
    ]
    .into_iter()
    .enumerate()
    {
        Lab::new(&format!("line-{index}"), hosts).assert_fails_with(2, &parts);
    }
    let lab = Lab::new("bytes", "");
    std::fs::write(lab.folder.join("hosts"), b"near\n\xFF\n").unwrap();
    lab.assert_fails_with(2, &["hosts, line 2: ", "is no host"]);
}

#[test]
fn more_nodes_than_slots_are_an_error() {
    let lab = Lab::new("slots", "near slots=2\n");
    let (status, told) = end_of(&mut lab.start(&["--nodes", "3"]));
    assert_eq!(status.code(), Some(2), "{told}");
    assert!(told.contains("3 nodes were asked for") && told.contains("has slots for 2"), "{told}");
}

/// The victim is the starter, the stand-in for ssh, or a node started by it.
#[test]
fn who_is_killed_at_any_moment_leaves_nobody() {
    let hosts = hosts_with("near1", 1);
    let begun = Instant::now();
    let (status, told) = end_of(&mut Lab::new("undisturbed", &hosts).start(&SHORT));
    assert!(status.success(), "{told}");
    let whole = begun.elapsed();
    let seed = seed();
    let mut random = seeded(seed);
    for round in 0..24 {
        let lab = Lab::new(&format!("killed-{round}"), &hosts).with(READY.0, READY.1);
        let delay = whole.mul_f64(random.below(1200) as f64 / 1000.0);
        let choice = random.below(1000) as usize;
        let mut program = lab.start(&SHORT);
        std::thread::sleep(delay);
        let there = proc::with_variable(TOKEN, &lab.token);
        let victim = there.get(choice % there.len().max(1)).copied();
        let Some(victim) = victim else { continue };
        let starter = program.0.id();
        let context = format!(
            "seed {seed}, round {round}, process {} of {} killed after {delay:?}",
            choice % there.len(),
            there.len()
        );
        println!("{context}");
        proc::try_signal(victim, Signal::KILL);
        let (status, told) = end_of(&mut program);
        if victim != starter {
            // 137: ssh was killed; 255: ssh reports that a node was killed.
            let ended = matches!(status.code(), Some(1 | 137 | 255));
            let named = ended && told.contains(" on near");
            assert!(status.success() || named, "{context}: {status}, {told}");
            assert!(!told.contains("panicked"), "{context}: {told}");
        }
        wait_until_nobody_has(&lab.token, &context);
    }
}
