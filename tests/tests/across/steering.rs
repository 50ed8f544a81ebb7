//! The example program `steering`, a viewer of a running `multiblock`: both as processes, and a plain HTTP client.

use super::example::Example;
use super::nodes::free_address;
use chunkcomm_examples::picture;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{blocking, proc};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Cursor, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

const SIMULATION: Example = Example { name: "multiblock" };
const VIEWER: Example = Example { name: "steering" };

/// Longest wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// Rows and columns of the left block.
const SIDE: &str = "16";

/// Sides of a picture of it: each point is a square of 15 pixels.
const SIZE: (u32, u32) = (600, 240);

type Variables = Vec<(String, String)>;

/// A simulation that viewers may look at: four processes, of which this is rank 0.
struct Simulation {
    program: proc::Program,
    err: BufReader<ChildStderr>,
    /// Those with which a viewer finds it.
    variables: Variables,
}

impl Simulation {
    fn start(name: &str, options: &[&str]) -> Simulation {
        let mut command = SIMULATION.command(&["--steered", "--side", SIDE, "--no-progress"]);
        command.args(["--nodes", "4", "--output"]).arg(output(name)).args(options);
        let mut program = spawned(command);
        let mut err = BufReader::new(program.0.stderr.take().unwrap());
        let mut told = String::new();
        // The first line announces the second one.
        for _ in 0..2 {
            err.read_line(&mut told).unwrap();
        }
        let line = told.lines().nth(1).unwrap_or_else(|| panic!("{told}"));
        let variables = line.split(' ').filter_map(|word| word.split_once('='));
        let variables =
            variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Simulation { program, err, variables }
    }

    fn viewer(&self, options: &[&str]) -> Viewer {
        Viewer::start(&self.variables, options)
    }

    /// Returns the process of a rank from 1.
    fn rank(&self, rank: usize) -> u32 {
        proc::placed(&proc::children(self.program.0.id(), 3), rank - 1)
    }

    /// Waits until it ends well; returns its report and what it told of viewers.
    fn ends(mut self) -> (String, String) {
        let report = read(self.program.0.stdout.take().unwrap());
        let mut told = String::new();
        self.err.read_to_string(&mut told).unwrap();
        assert!(self.program.0.wait().unwrap().success(), "{report}{told}");
        (report, told)
    }

    /// Asks it to end, and waits until it has ended well.
    fn stop(self) -> (String, String) {
        proc::signal(self.program.0.id(), Signal::TERM);
        self.ends()
    }
}

/// A viewer, and the address of its page.
struct Viewer {
    program: proc::Program,
    prints: BufReader<ChildStdout>,
    at: SocketAddr,
}

/// An answer to a request.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

/// A picture of the field, and the number of its sweep.
struct Field {
    size: (u32, u32),
    /// Column and row of the warmest place, in sides of the left block.
    hottest: [f64; 2],
    sweep: usize,
}

impl Viewer {
    fn start(variables: &Variables, options: &[&str]) -> Viewer {
        let mut command = VIEWER.command(&["--listen", "127.0.0.1:0"]);
        command.args(options).envs(variables.iter().cloned());
        Viewer::listening(spawned(command))
    }

    /// Waits until the viewer has joined the cluster.
    fn listening(mut program: proc::Program) -> Viewer {
        let mut prints = BufReader::new(program.0.stdout.take().unwrap());
        let mut line = String::new();
        prints.read_line(&mut line).unwrap();
        let Some(at) = line.trim_end().strip_prefix("listening at http://") else {
            panic!("{line}{}", read(program.0.stderr.take().unwrap()));
        };
        Viewer { program, prints, at: at.parse().unwrap() }
    }

    fn get(&self, path: &str) -> Answer {
        ask(self.at, "GET", path, "", "").unwrap()
    }

    /// Gives the parameter as the fields of a form.
    fn post(&self, body: &str) -> Answer {
        ask(self.at, "POST", "/parameter", "application/x-www-form-urlencoded", body).unwrap()
    }

    fn field(&self) -> Field {
        self.get("/field.png").field()
    }

    /// Waits until the warmest place is near this one.
    fn until_hottest(&self, x: f64, y: f64) {
        let mut last = [f64::NAN; 2];
        blocking::until(&format!("the source does not come to {x}, {y}"), || {
            last = self.field().hottest;
            (last[0] - x).hypot(last[1] - y) < 0.15
        });
    }

    fn kill(&mut self) {
        proc::signal(self.program.0.id(), Signal::KILL);
        proc::wait_until_ended(&self.program.0);
    }

    /// Asks the viewer to end, which it does well; returns what it has printed.
    fn stop(mut self) -> String {
        proc::signal(self.program.0.id(), Signal::TERM);
        let mut printed = String::new();
        self.prints.read_to_string(&mut printed).unwrap();
        let told = read(self.program.0.stderr.take().unwrap());
        assert!(self.program.0.wait().unwrap().success(), "{printed}{told}");
        printed
    }
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(it, _)| it.eq_ignore_ascii_case(name));
        found.next().unwrap_or_else(|| panic!("{name} is not in {}", self.head)).1
    }

    fn field(&self) -> Field {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.header("content-type"), "image/png");
        let (size, pixels) = picture::decode(Cursor::new(&self.body)).unwrap();
        let heat = |[red, _, blue]: [u8; 3]| i32::from(red) - i32::from(blue);
        let most = pixels.iter().map(|pixel| heat(*pixel)).max().unwrap();
        let (mut sum, mut count) = ([0.0; 2], 0.0);
        for (at, pixel) in pixels.iter().enumerate() {
            if heat(*pixel) == most {
                let width = size.0 as usize;
                sum = [sum[0] + (at % width) as f64 + 0.5, sum[1] + (at / width) as f64 + 0.5];
                count += 1.0;
            }
        }
        let hottest = sum.map(|it| it / count / f64::from(size.1));
        Field { size, hottest, sweep: self.header("x-sweep").parse().unwrap() }
    }
}

/// Sends a request and reads the answer; `None` when the connection ends before.
fn ask(at: SocketAddr, method: &str, path: &str, kind: &str, body: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
    let bytes = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: viewer\r\nConnection: close\r\nContent-Type: {kind}\r\n\
         Content-Length: {bytes}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("no answer to {method} {path}: {error}"),
    }
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n")?;
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1)?.parse().unwrap();
    Some(Answer { status, head, body: answer[end + 4..].to_vec() })
}

fn output(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("steering-{name}.png"))
}

fn spawned(mut command: Command) -> proc::Program {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child: Child = command.spawn().unwrap();
    proc::Program(child)
}

fn read(mut from: impl std::io::Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_picture_follows_the_parameter_and_the_end_is_told() {
    let simulation = Simulation::start("follows", &[]);
    let viewer = simulation.viewer(&[]);
    let field = viewer.field();
    assert_eq!(field.size, SIZE);
    viewer.until_hottest(0.4, 0.35);
    let answer = viewer.post("x=2.0&y=0.7&strength=50");
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "{\"x\":2.0,\"y\":0.7,\"strength\":50.0}\n")
    );
    viewer.until_hottest(2.0, 0.7);
    assert_eq!(viewer.get("/field.png").header("x-strength"), "50");
    let json = r#"{"x": 0.5, "y": 0.6, "strength": 1}"#;
    let answer = ask(viewer.at, "POST", "/parameter", "application/json", json).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    viewer.until_hottest(0.5, 0.6);
    assert!(viewer.field().sweep > field.sweep);
    let page = viewer.get("/").text();
    assert_eq!(page.matches("<canvas").count(), 1, "{page}");

    let (report, told) = simulation.stop();
    assert!(report.contains("written"), "{report}");
    assert_eq!(told, "");
    for answer in [viewer.get("/field.png"), viewer.post("x=2.0&y=0.7&strength=50")] {
        assert_eq!(answer.status, 503);
        assert!(answer.text().starts_with("the simulation has ended"), "{}", answer.text());
    }
    let printed = viewer.stop();
    assert!(printed.starts_with("the simulation has ended"), "{printed}");
}

/// The values are compared, bit for bit, with those of one process that changes the source after the same sweeps.
/// They would differ if a rank had a source earlier or later than the others.
#[test]
fn all_ranks_have_a_source_at_the_same_sweep() {
    let simulation = Simulation::start("same", &["--check", "--offer", "3"]);
    let viewer = simulation.viewer(&[]);
    for body in ["x=2.0&y=0.7&strength=50", "x=0.7&y=0.3&strength=8", "x=1.2&y=0.5&strength=90"] {
        assert_eq!(viewer.post(body).status, 200);
    }
    // The sweeps since have not brought the values to rest.
    let (report, _) = simulation.stop();
    assert!(report.contains("values equal those of one process"), "{report}");
    viewer.stop();
}

/// The residual is small long before.
#[test]
fn a_steered_run_ends_at_its_sweeps() {
    let (report, told) = Simulation::start("sweeps", &["--sweeps", "555", "--every", "5"]).ends();
    assert!(report.contains("\nsweeps          555\n"), "{report}");
    assert_eq!(told, "");
}

/// A rank stands still, so that a visit has begun and cannot end.
#[test]
fn a_viewer_that_is_killed_within_a_visit_harms_nothing() {
    let simulation = Simulation::start("killed", &[]);
    let stays = simulation.viewer(&[]);
    for posts in [false, true] {
        let mut dies = simulation.viewer(&["--rate", "1000"]);
        dies.field();
        let rank = simulation.rank(3);
        proc::signal(rank, Signal::STOP);
        let at = dies.at;
        std::thread::scope(|scope| {
            let asking = scope.spawn(move || match posts {
                true => ask(at, "POST", "/parameter", "", "x=2&y=0.7&strength=1"),
                false => ask(at, "GET", "/field.png", "", ""),
            });
            blocking::stays("the request waits", || !asking.is_finished());
            dies.kill();
            assert!(asking.join().unwrap().is_none());
        });
        proc::signal(rank, Signal::CONT);
        let before = stays.field().sweep;
        blocking::until("the simulation stands still", || stays.field().sweep > before);
    }
    let comes = simulation.viewer(&[]);
    assert_eq!(comes.post("x=2.1&y=0.3&strength=9").status, 200);
    comes.until_hottest(2.1, 0.3);
    stays.until_hottest(2.1, 0.3);
    comes.stop();
    simulation.stop();
    stays.stop();
}

#[test]
fn viewers_that_are_killed_at_any_time_harm_nothing() {
    let mut random = seeded(46);
    let simulation = Simulation::start("anytime", &["--offer", "1"]);
    for _ in 0..8 {
        let mut viewer = simulation.viewer(&["--rate", "1000"]);
        let (at, pause) = (viewer.at, Duration::from_micros(random.below(60_000)));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || while ask(at, "GET", "/field.png", "", "").is_some() {});
                let body = "x=0.4&y=0.35&strength=100";
                scope.spawn(move || while ask(at, "POST", "/parameter", "", body).is_some() {});
            }
            std::thread::sleep(pause);
            viewer.kill();
        });
    }
    let comes = simulation.viewer(&[]);
    assert_eq!(comes.post("x=2.1&y=0.3&strength=9").status, 200);
    comes.until_hottest(2.1, 0.3);
    simulation.stop();
    comes.stop();
}

#[test]
fn requests_that_come_at_once_share_a_visit() {
    let simulation = Simulation::start("share", &[]);
    let viewer = simulation.viewer(&["--rate", "1"]);
    // While a rank stands still, all requests wait for the same visit.
    let rank = simulation.rank(2);
    proc::signal(rank, Signal::STOP);
    let sweeps: Vec<usize> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| viewer.field().sweep)).collect();
        blocking::stays("the requests wait", || asking.iter().all(|it| !it.is_finished()));
        proc::signal(rank, Signal::CONT);
        asking.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(sweeps.iter().all(|sweep| *sweep == sweeps[0]), "{sweeps:?}");
    // A later one does not, once the picture is a second old.
    blocking::until("the picture stays", || viewer.field().sweep > sweeps[0]);
    simulation.stop();
    viewer.stop();
}

/// The viewer is there before the simulation, whose processes are started by hand.
#[test]
fn a_viewer_may_come_first() {
    let manager = ("CHUNKCOMM_MANAGER".to_owned(), free_address());
    let mut command = VIEWER.command(&["--listen", "127.0.0.1:0"]);
    command.envs([manager.clone()]);
    let viewer = spawned(command);
    let ranks: Vec<proc::Program> = (0..3)
        .map(|rank| {
            let mut command = SIMULATION.command(&["--steered", "--side", SIDE, "--output"]);
            command.arg(output("first")).envs([manager.clone()]);
            command.env("CHUNKCOMM_RANK", rank.to_string()).env("CHUNKCOMM_SIZE", "3");
            spawned(command)
        })
        .collect();
    let viewer = Viewer::listening(viewer);
    viewer.until_hottest(0.4, 0.35);
    proc::signal(ranks[0].0.id(), Signal::TERM);
    for mut rank in ranks {
        let told = read(rank.0.stderr.take().unwrap());
        assert!(rank.0.wait().unwrap().success(), "{told}");
    }
    viewer.stop();
}

#[test]
fn a_viewer_leaves_and_the_simulation_goes_on() {
    let simulation = Simulation::start("leaves", &[]);
    let first = simulation.viewer(&[]);
    first.field();
    assert_eq!(first.stop(), "");
    let second = simulation.viewer(&[]);
    second.until_hottest(0.4, 0.35);
    simulation.stop();
    second.stop();
}

#[test]
fn bad_requests_are_told_what_is_allowed() {
    let simulation = Simulation::start("bad", &[]);
    let viewer = simulation.viewer(&[]);
    for (body, allowed) in [
        ("", "allowed are three numbers"),
        ("x=1&y=0.5", "allowed are three numbers"),
        ("x=1&y=0.5&strength=much", "allowed are three numbers"),
        ("x=3&y=0.5&strength=1", "x from 0 to 2.5"),
        ("x=1.2&y=0.1&strength=1", "from 0.25 to 0.75"),
        ("x=1&y=0.5&strength=-1", "allowed are numbers from 1e-6 to 1e6"),
    ] {
        let answer = viewer.post(body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        assert!(answer.text().contains(allowed), "{body}: {}", answer.text());
    }
    let json = ask(viewer.at, "POST", "/parameter", "application/json", "{}").unwrap();
    assert_eq!(json.status, 400);
    assert!(json.text().contains(r#"allowed is {"x": 0.4"#), "{}", json.text());
    for (method, path, status) in [
        ("GET", "/nothing", 404),
        ("GET", "/parameter", 405),
        ("POST", "/field.png", 405),
        ("DELETE", "/", 405),
    ] {
        let answer = ask(viewer.at, method, path, "", "").unwrap();
        assert_eq!(answer.status, status, "{method} {path}");
    }
    assert_eq!(viewer.post(&"x".repeat(5000)).status, 413);
    viewer.until_hottest(0.4, 0.35);
    simulation.stop();
    viewer.stop();
}

#[test]
fn command_lines_that_make_no_sense_are_refused() {
    VIEWER.refuses(&[
        (["--listen", "here"], "allowed is IP:PORT"),
        (["--rate", "0"], "whole numbers from 1 to 1000"),
    ]);
    SIMULATION.refuses(&[
        (["--steered", "--data-parallel"], "cannot be used with"),
        (["--offer", "5"], "--steered"),
        (["--steered", "--offer=0"], "whole numbers from 1 to"),
        (["--steered", "--lan=virtual:lan-1g"], "allowed is --lan real"),
        (["--steered", "--hosts=/nowhere"], "allowed with CHUNKCOMM_CREDENTIAL_FILE"),
    ]);
    let output = VIEWER.command(&[]).env_remove("CHUNKCOMM_MANAGER").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("allowed are CHUNKCOMM_MANAGER and"), "{told}");
}
