//! The example program `telemetry`: service and collector as processes that are started by hand, and
//! clients over real connections.

use super::example::Example;
use super::nodes::free_address;
use chunkcomm_services::Client;
use chunkcomm_testkit::{blocking, proc};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

const TELEMETRY: Example = Example { name: "telemetry" };

struct Running {
    service: proc::Program,
    collector: proc::Program,
    at: SocketAddr,
    /// Standard output of the service after its first line.
    prints: BufReader<std::process::ChildStdout>,
    file: PathBuf,
}

impl Running {
    fn start(name: &str) -> Running {
        let manager = free_address();
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("telemetry-{name}"));
        let _ = std::fs::remove_file(&file);
        let start = |rank: &str| {
            let mut command = TELEMETRY.command(&[]);
            command.args(["--http", "127.0.0.1:0", "--events"]).arg(&file);
            command.env("CHUNKCOMM_RANK", rank).env("CHUNKCOMM_SIZE", "2");
            command.env("CHUNKCOMM_MANAGER", &manager);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            proc::Program(command.spawn().unwrap())
        };
        let (mut service, collector) = (start("0"), start("1"));
        let mut prints = BufReader::new(service.0.stdout.take().unwrap());
        let mut line = String::new();
        prints.read_line(&mut line).unwrap();
        let at = line.trim_end().strip_prefix("listening at http://").unwrap().parse().unwrap();
        Running { service, collector, at, prints, file }
    }

    fn client(&self) -> Client {
        Client::connect(self.at).unwrap()
    }

    fn stop(&self) {
        proc::signal(self.service.0.id(), Signal::TERM);
    }

    /// Waits until both end well; returns the names of the events that were written.
    fn ends(mut self) -> Vec<String> {
        let mut out = String::new();
        self.prints.read_to_string(&mut out).unwrap();
        for program in [&mut self.service, &mut self.collector] {
            let mut told = String::new();
            program.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            assert!(program.0.wait().unwrap().success(), "{out}{told}");
            assert_eq!(told, "");
        }
        let lines = std::fs::read_to_string(&self.file).unwrap();
        let one = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["name"].as_str().unwrap().to_owned()
        };
        let names: Vec<String> = lines.lines().map(one).collect();
        assert!(out.starts_with(&format!("{} events are collected, ", names.len())), "{out}");
        names
    }
}

fn json(name: &str) -> String {
    format!(r#"{{"source":"test","name":"{name}","value":0.5}}"#)
}

fn times(names: &[String]) -> HashMap<&str, u64> {
    let mut times = HashMap::new();
    for name in names {
        *times.entry(name.as_str()).or_default() += 1;
    }
    times
}

/// Returns the samples of a text in Prometheus' format, by their names with labels.
fn samples(text: &str) -> HashMap<&str, f64> {
    let mut types = HashSet::new();
    let mut samples = HashMap::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            assert_eq!(kind, "counter");
            assert!(types.insert(name), "{name} comes twice");
        } else if !line.starts_with("# HELP ") {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').unwrap();
            assert!(types.contains(name), "{line}");
            assert!(labels.ends_with("\"}"), "{line}");
            assert!(samples.insert(sample, value.parse().unwrap()).is_none(), "{line}");
        }
    }
    samples
}

#[test]
fn events_one_by_one_and_many_arrive_and_metrics_are_text() {
    let running = Running::start("arrive");
    let mut client = running.client();
    assert_eq!(client.post("/events", &json("one")).unwrap().body, "{\"accepted\":1}\n");
    let many: Vec<_> = (0..500).map(|number| json(&format!("many-{number}"))).collect();
    let answer = client.post("/events", &format!("[{}]", many.join(","))).unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (202, "{\"accepted\":500}\n"));
    for (body, status, told) in [
        ("{}", 400, "no events: missing field `source`"),
        ("[1]", 400, "no events: invalid type"),
        ("", 400, "no events: EOF"),
        (&*"x".repeat((1 << 20) + 1), 413, "length limit exceeded"),
    ] {
        let answer = running.client().post("/events", body).unwrap();
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.body.contains(told), "{}", answer.body);
    }
    assert_eq!(client.get("/nothing").unwrap().status, 404);
    assert_eq!(client.get("/events").unwrap().status, 405);
    let metrics = client.get("/metrics").unwrap();
    assert_eq!(metrics.status, 200);
    let samples = samples(&metrics.body);
    assert_eq!(samples["telemetry_requests_total{answer=\"accepted\"}"], 2.0);
    let accepted = samples.iter().find(|(name, _)| name.starts_with("telemetry_events_accepted"));
    assert_eq!(*accepted.unwrap().1, 501.0);
    assert!(samples.keys().any(|name| name.contains("reason=\"idle\"")), "{}", metrics.body);
    running.stop();
    let names = running.ends();
    assert_eq!(names.len(), 501);
    assert!(times(&names).values().all(|&times| times == 1));
}

/// 1,000 events go over four connections, and the end comes in their midst.
#[test]
fn what_was_answered_before_the_end_is_collected_once() {
    let running = Running::start("midst");
    let answered = AtomicU64::new(0);
    let names = |thread: u64| (0..250).map(move |number| format!("{thread}-{number}"));
    let sent: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|thread| {
                let (mut client, answered) = (running.client(), &answered);
                scope.spawn(move || {
                    let mut sent = Vec::new();
                    for name in names(thread) {
                        match client.post("/events", &json(&name)) {
                            Ok(answer) if answer.status == 202 => sent.push(name),
                            // The service has ended the connection, or is ending.
                            Ok(answer) => assert_eq!(answer.status, 503),
                            Err(_) => break,
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    sent
                })
            })
            .collect();
        blocking::until_some("nothing is answered", || {
            (answered.load(Ordering::Relaxed) >= 300).then_some(())
        });
        running.stop();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert!(sent.len() >= 300);
    let collected = running.ends();
    let times = times(&collected);
    assert!(times.values().all(|&times| times == 1), "{times:?}");
    for name in &sent {
        assert!(times.contains_key(name.as_str()), "{name} was answered with 202 and is lost");
    }
}

/// The collector stands still: a request with events waits for it, one for the counters does not.
#[test]
fn metrics_are_given_while_events_wait_for_the_collector() {
    let running = Running::start("slow");
    let (mut posts, mut looks) = (running.client(), running.client());
    let text = "x".repeat(1_000);
    let many: Vec<_> = (0..900).map(|number| json(&format!("{text}-{number}"))).collect();
    let body = format!("[{}]", many.join(","));
    proc::signal(running.collector.0.id(), Signal::STOP);
    let sent = AtomicU64::new(0);
    let answered = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            // More than the link keeps and the sockets hold, so that some events wait.
            let mut answered = 0;
            for _ in 0..40 {
                sent.fetch_add(1, Ordering::SeqCst);
                assert_eq!(posts.post("/events", &body).unwrap().status, 202);
                answered += 1;
            }
            answered
        });
        let requests = || sent.load(Ordering::SeqCst);
        let waiting = blocking::settled("no request waits for the collector", requests);
        assert!(waiting < 40, "no request waits for the collector");
        let metrics = looks.get("/metrics").unwrap();
        assert_eq!(metrics.status, 200);
        assert!(!sending.is_finished());
        proc::signal(running.collector.0.id(), Signal::CONT);
        sending.join().unwrap()
    });
    running.stop();
    assert_eq!((answered, running.ends().len()), (40, 36_000));
}

/// The request has begun before the end, and its body comes after.
#[test]
fn a_request_that_has_begun_is_finished() {
    let running = Running::start("begun");
    let mut client = running.client();
    let body = json("late");
    let (first, rest) = body.split_at(9);
    let bytes = body.len();
    // The service has answered one request first, so it reads the connection.
    assert_eq!(client.post("/events", &json("early")).unwrap().status, 202);
    client
        .write(&format!(
            "POST /events HTTP/1.1\r\nHost: it\r\nContent-Length: {bytes}\r\n\
             Expect: 100-continue\r\n\r\n"
        ))
        .unwrap();
    // With this answer the service waits for the body.
    assert_eq!(client.answer().unwrap().status, 100);
    client.write(first).unwrap();
    running.stop();
    blocking::until_some("it takes connections still", || {
        TcpStream::connect(running.at).is_err().then_some(())
    });
    let service = running.service.0.id();
    blocking::stays("the service waits for the request", || !proc::is_gone(service));
    client.write(rest).unwrap();
    assert_eq!(client.answer().unwrap().status, 202);
    assert_eq!(running.ends(), ["early", "late"]);
}

/// The collector is asked to end: the service ends, and the collector gets everything before.
#[test]
fn the_collector_can_be_asked_to_end() {
    let running = Running::start("asked");
    assert_eq!(running.client().post("/events", &json("one")).unwrap().status, 202);
    proc::signal(running.collector.0.id(), Signal::TERM);
    assert_eq!(running.ends(), ["one"]);
}

#[test]
fn a_collector_that_dies_ends_the_service_with_its_name() {
    let mut running = Running::start("dies");
    proc::signal(running.collector.0.id(), Signal::KILL);
    let mut told = String::new();
    running.service.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(running.service.0.wait().unwrap().code(), Some(1), "{told}");
    assert!(told.contains("rank-1") || told.contains("rank 1"), "{told}");
}

#[test]
fn the_demonstration_compares() {
    let output = TELEMETRY.command(&["--demo", "1003"]).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("\n1003 events are collected, by "), "{out}");
}

#[test]
fn what_cannot_be_had_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_at = taken.local_addr().unwrap().to_string();
    for (arguments, status, part) in [
        (["--http", &taken_at], 1, &*format!("cannot listen at {taken_at}: ")),
        (["--http", "here"], 2, "allowed is IP:PORT"),
        (["--demo", "0"], 2, "whole numbers from 1 to"),
        (["--nodes", "3"], 2, "--nodes 3: allowed are 2"),
    ] {
        let output = TELEMETRY.command(&arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

/// The service does not wait for a report that the collector will never send.
#[test]
fn a_collector_that_cannot_open_its_file_ends_both_with_its_reason() {
    for further in [&["--demo", "1000"][..], &[]] {
        let mut command = TELEMETRY.command(&[]);
        command.args(["--http", "127.0.0.1:0", "--events", "/nowhere/at/all"]).args(further);
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("telemetry: /nowhere/at/all: No such file"), "{told}");
        assert!(!told.contains("longer than"), "{told}");
    }
}
