//! The example program `kv`, started as its unit file and its manifest say: its servers, followers and clients
//! while each of them is killed, and restarted one by one.

use super::example::Example;
use chunkcomm::Credential;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{own_host, proc};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

const KV: Example = Example { name: "kv" };
const COUNTERS: u32 = 3;
const COUNT: u32 = 500;

/// A server's variables, and its address for clients.
type Server = (Vec<(String, String)>, String);

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kv-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn manifest(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kv");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// Returns the servers of two instances of the unit.
fn of_unit(folder: &Path) -> Vec<Server> {
    let (unit, host) = (manifest("kv@.service"), own_host());
    assert!(unit.contains("\nExecStart=/usr/local/bin/kv serve\n"));
    let server = |port: &str| {
        let here = |value: &str| {
            let value = value.replace("%i", port).replace("127.0.0.1", &host);
            value.replace("/var/lib/kv", folder.to_str().unwrap())
        };
        let variables = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
        let variables = variables.map(|line| line.split_once('=').unwrap());
        (
            variables.map(|(name, value)| (name.to_owned(), here(value))).collect(),
            format!("{host}:{port}"),
        )
    };
    ["7701", "7702"].map(server).into()
}

/// Returns the servers of the pods, on this host: each has a port.
fn of_manifest(folder: &Path) -> Vec<Server> {
    let (text, host) = (manifest("kubernetes.yaml"), own_host());
    assert!(text.contains("command: [\"/kv\", \"serve\"]") && text.contains("replicas: 2"));
    Credential::generate().unwrap().save(folder.join("cluster.credential")).unwrap();
    let server = |port: &str| {
        let at = format!("{host}:{port}");
        let here = |value: &str| {
            let value = value.replace("$(POD).kv:7700", &at).replace("0.0.0.0:7700", &at);
            let value = value.replace("0.0.0.0:9100", "127.0.0.1:0");
            ["/data", "/run/cluster"]
                .iter()
                .fold(value, |it, mount| it.replace(mount, folder.to_str().unwrap()))
        };
        let mut lines = text.lines().map(str::trim);
        let mut variables = Vec::new();
        while let Some(line) = lines.next() {
            let Some(name) = line.strip_prefix("- name: KV__") else { continue };
            let value = lines.next().and_then(|line| line.strip_prefix("value: ")).unwrap();
            variables.push((format!("KV__{name}"), here(value.trim_matches('"'))));
        }
        let file = folder.join("cluster.credential").to_str().unwrap().to_owned();
        variables.push(("CHUNKCOMM_CREDENTIAL_FILE".to_owned(), file));
        (variables, at)
    };
    ["7703", "7704"].map(server).into()
}

fn spawn(mut command: Command) -> proc::Program {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    proc::Program(command.spawn().unwrap())
}

/// Starts a server; returns when it has its address.
fn serve((variables, _): &Server) -> proc::Program {
    let mut command = KV.command(&["serve"]);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let mut program = spawn(command);
    let mut printed = BufReader::new(program.0.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    if !line.starts_with("stands by at ") {
        panic!("it did not start: {line}{}", told(&mut program));
    }
    program.0.stdout = Some(printed.into_inner());
    program
}

fn told(program: &mut proc::Program) -> String {
    let mut told = String::new();
    program.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    told
}

fn end(mut program: proc::Program, by: Signal) {
    proc::signal(program.0.id(), by);
    let told = told(&mut program);
    let status = program.0.wait().unwrap();
    let as_asked = if by == Signal::KILL { status.signal() == Some(9) } else { status.success() };
    assert!(as_asked, "{by:?}: {status}, {told}");
}

struct Clients<'a> {
    servers: &'a [Server],
}

impl Clients<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = KV.command(&[]);
        for (_, at) in self.servers {
            command.args(["--at", at]);
        }
        command.envs(self.servers[0].0.iter().filter(|it| it.0.starts_with("CHUNKCOMM")).cloned());
        command.args(arguments);
        command
    }

    /// Follows from behind a change until the program ends; its lines come as they are printed.
    fn follow(&self, after: u64) -> (proc::Program, mpsc::Receiver<String>) {
        let mut program = spawn(self.command(&["follow", "--after", &after.to_string()]));
        let mut printed = BufReader::new(program.0.stdout.take().unwrap());
        let (line, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut text = String::new();
            // A killed follower may have printed a part of a line.
            while printed.read_line(&mut text).is_ok() && text.ends_with('\n') {
                line.send(text.trim_end().to_owned()).unwrap();
                text.clear();
            }
        });
        (program, lines)
    }

    fn count(&self, key: &str, to: u32) -> JoinHandle<String> {
        let mut counting = spawn(self.command(&["count", key, &to.to_string()]));
        thread::spawn(move || {
            let mut out = String::new();
            counting.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
            let told = told(&mut counting);
            assert!(counting.0.wait().unwrap().success(), "{told}");
            out
        })
    }
}

fn no_change_is_missed_or_doubled(servers: &[Server], changes: &Path, seed: u64) {
    let mut random = seeded(seed);
    let clients = Clients { servers };
    let mut serving: Vec<_> = servers.iter().map(|it| Some(serve(it))).collect();
    let mut followed: Vec<String> = Vec::new();
    let (mut following, mut lines) = clients.follow(0);
    let mut counts: Vec<_> =
        (0..COUNTERS).map(|it| clients.count(&format!("counter-{it}"), COUNT)).collect();
    for round in 0..8 {
        sleep(Duration::from_millis(100 + random.below(400)));
        // Each server in turn, so that most often it is the one that leads; and sometimes both.
        let by = if random.below(3) > 0 { Signal::KILL } else { Signal::TERM };
        let both = random.below(4) == 0;
        for (at, server) in servers.iter().enumerate().filter(|it| both || it.0 == round % 2) {
            end(serving[at].take().unwrap(), by);
            serving[at] = Some(serve(server));
        }
        if random.below(2) == 0 {
            end(following, Signal::KILL);
            followed.extend(lines.iter());
            (following, lines) = clients.follow(followed.len() as u64);
        }
    }
    for count in counts.drain(..) {
        println!("{}", count.join().unwrap().trim_end());
    }
    // The last change is put when nothing fails any more.
    let put = clients.command(&["put", "last", "one"]).output().unwrap();
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
    while !followed.last().is_some_and(|line| line.ends_with(" last one")) {
        followed.push(lines.recv_timeout(Duration::from_secs(60)).unwrap());
    }
    end(following, Signal::KILL);
    for server in serving.into_iter().flatten() {
        end(server, Signal::TERM);
    }
    let stored = fs::read_to_string(changes).unwrap();
    let stored = stored.lines().map(|line| {
        let change: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| change[key].as_str().unwrap();
        format!("{} {} {}", change["number"], text("key"), text("value"))
    });
    assert!(followed.len() > (COUNT * COUNTERS) as usize);
    assert_eq!(followed, Vec::from_iter(stored));
}

#[test]
fn servers_of_a_unit_file_are_killed_and_no_change_is_missed_or_doubled() {
    let folder = folder("unit");
    let servers = of_unit(&folder);
    no_change_is_missed_or_doubled(&servers, &folder.join("changes"), 62);
}

#[test]
fn servers_of_a_manifest_are_killed_and_no_change_is_missed_or_doubled() {
    let folder = folder("manifest");
    let servers = of_manifest(&folder);
    no_change_is_missed_or_doubled(&servers, &folder.join("changes"), 63);
}

#[test]
fn settings_that_are_wrong_are_named() {
    let folder = folder("settings");
    let file = folder.join("kv.toml");
    for (text, wanted) in [
        ("changes = \"/nowhere/at/all\"\n[node]\nlisten = \"127.0.0.1:0\"\n", "/nowhere/at/all: "),
        ("changes = \"c\"\nport = 7\n[node]\n", "port"),
        ("changes = \"c\"\n[node]\n", "node.listen: "),
    ] {
        fs::write(&file, text).unwrap();
        let output = KV.command(&["serve", file.to_str().unwrap()]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.starts_with("kv: ") && told.contains(wanted), "{told}");
    }
}
