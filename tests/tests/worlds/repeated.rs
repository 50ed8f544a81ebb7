//! Runs by seed, programs that are not the same twice, and programs that stop time.

use chunkcomm::host;
use chunkcomm_simulation::{
    HostId, LinkSpec, Network, SEED_VARIABLE, STUCK_VARIABLE, Simulation, check, each_seed, run,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{connect, node};

fn pair(seed: u64) -> (Network, [HostId; 2]) {
    let mut network = Network::new(seed);
    let hosts = ["left", "right"].map(|name| network.add_host(name));
    network.link(hosts[0], hosts[1], LinkSpec::default());
    (network, hosts)
}

/// Sends a message of this many bytes between two nodes.
async fn send(simulation: &Simulation, bytes: usize) {
    send_all(simulation, vec![7; bytes]).await;
}

async fn send_all(simulation: &Simulation, message: Vec<u8>) {
    let hosts = ["left", "right"];
    let [left, right] = hosts.map(|name| simulation.with(|network, _| network.host(name).unwrap()));
    let (left, right) = (node(simulation, left, "l").await, node(simulation, right, "r").await);
    let peer = connect(&left, &right).await;
    let mut sender = left.open_bytes(&peer, "bytes").await.unwrap();
    sender.send_slice(&message).await.unwrap();
    let (_, mut receiver) = right.accept_bytes("bytes").await.unwrap();
    assert_eq!(receiver.recv().await.unwrap().unwrap(), message);
}

#[test]
fn a_program_that_is_the_same_twice_passes_the_check() {
    let result = check(
        || pair(3).0,
        async |simulation| {
            send(&simulation, 100).await;
            7
        },
    );
    assert_eq!(result, Ok(7));
}

#[test]
fn a_program_that_uses_something_of_the_real_world_does_not() {
    static RUNS: AtomicU64 = AtomicU64::new(100);
    let program = async |simulation: Simulation| {
        // As a pid or the system's clock would be.
        send(&simulation, RUNS.fetch_add(1, Ordering::Relaxed) as usize).await;
    };
    let differs = check(|| pair(3).0, program).unwrap_err();
    assert_ne!(differs.first, differs.second);
    let text = differs.to_string();
    assert!(text.contains("from left to right after"), "{text}");
}

#[test]
fn the_seed_that_fails_is_named() {
    let mut seen = Vec::new();
    each_seed(5..8, |seed| seen.push(seed));
    let replayed = std::env::var(SEED_VARIABLE).is_ok();
    assert!(replayed || seen == [5, 6, 7], "{seen:?}");
}

/// Variable of a copy of this test that stops time, by its way.
const WAY: &str = "CHUNKCOMM_TEST_STOPS_TIME";

/// Runs a copy of a test that stops time; returns what it said.
fn said_by(way: &str, stuck_seconds: &str) -> String {
    let mut command = chunkcomm_testkit::itself("repeated::a_program_that_stops_time_is_named");
    let command =
        command.env(WAY, way).env(STUCK_VARIABLE, stuck_seconds).env("RUST_BACKTRACE", "0");
    let output = command.arg("--nocapture").output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn stop_time(way: String) {
    host::sleep(Duration::from_micros(5)).await;
    if way != "yields" {
        std::thread::sleep(Duration::from_secs(60));
    }
    loop {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_program_that_stops_time_is_named() {
    if let Ok(way) = std::env::var(WAY) {
        let (network, [left, right]) = pair(1);
        run(network, async |simulation| {
            // Another program that was polled before.
            simulation.on(right, host::sleep(Duration::from_micros(1))).await;
            if way == "spawned" {
                let task = async { host::spawn(stop_time(way)).await.unwrap() };
                simulation.on(left, task).await;
            } else {
                // The program itself would wait for ever for the task that is found.
                simulation.spawn_on(left, stop_time(way));
                std::future::pending::<()>().await;
            }
        });
        return;
    }
    let said = said_by("spawned", "0.3");
    assert!(said.contains("It runs the program of the host left"), "{said}");
    let said = said_by("blocks", "0.3");
    assert!(said.contains("its time has stood at 6µs for 300ms of real time"), "{said}");
    assert!(said.contains("It runs the program of the host left"), "{said}");
    let said = said_by("yields", "60");
    assert!(said.contains("a task of the host left wakes itself for ever 6000 ns"), "{said}");
}

#[test]
fn a_node_that_needs_a_thread_is_an_error() {
    run(pair(1).0, async |_| {
        let builders =
            [chunkcomm::Node::builder().io_thread(), chunkcomm::Node::builder().busy_poll()];
        for builder in builders {
            let error = builder.build().await.unwrap_err().to_string();
            assert!(error.contains("outside a simulation"), "{error}");
        }
    });
}

#[test]
fn bytes_of_one_length_that_differ_are_found() {
    static RUNS: AtomicU64 = AtomicU64::new(1);
    let differs = check(
        || pair(3).0,
        async |simulation: Simulation| {
            let content = RUNS.fetch_add(1, Ordering::Relaxed) as u8;
            send_all(&simulation, vec![content; 100]).await;
        },
    );
    assert!(differs.unwrap_err().first.contains("Bytes"));
}

#[test]
fn a_killed_process_drops_its_tasks_and_its_successor_keeps_its_port() {
    let (network, [left, right]) = pair(1);
    run(network, async |simulation| {
        let at = simulation.address(left, 7000);
        let (held, mut ended) = tokio::sync::mpsc::channel::<()>(1);
        let listen = async |at| chunkcomm::Node::builder().listen(at).build().await.unwrap();
        let first = simulation.on(left, listen(at.clone())).await;
        let waits = async {
            host::spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
        };
        simulation.on(left, waits).await;
        simulation.kill(left);
        assert_eq!(ended.recv().await, None, "the task is dropped");
        let second = simulation.on(left, listen(at)).await;
        // Late, as by the end of a test.
        drop(first);
        simulation.sleep(Duration::from_millis(10)).await;
        let right = node(&simulation, right, "right").await;
        connect(&right, &second).await;
    });
}

#[test]
fn what_is_not_simulated_is_an_error_that_says_so() {
    run(pair(1).0, async |simulation| {
        let left = simulation.with(|network, _| network.host("left").unwrap());
        let real = || chunkcomm::Node::builder().listen("127.0.0.1:0".parse().unwrap()).build();
        let error = chunkcomm::with_causes(&simulation.on(left, real()).await.unwrap_err());
        assert!(error.contains("sim:host/port"), "{error}");
        let node = node(&simulation, left, "left").await;
        let folder = std::env::temp_dir().join("no-log-here");
        let log = chunkcomm::Redelivery::to(&"sim:right/1".parse().unwrap())
            .log(folder, chunkcomm::Fsync::Never);
        let error = node.open_redelivering::<u8>("log", log).unwrap_err();
        assert!(chunkcomm::with_causes(&error).contains("no disk"), "{error}");
    });
}

#[test]
fn many_free_tasks_do_not_count_as_standing_still() {
    let (network, [left, right]) = pair(1);
    run(network, async |simulation| {
        let (left, right) =
            (node(&simulation, left, "left").await, node(&simulation, right, "right").await);
        let peer = connect(&left, &right).await;
        let mut sender = left.open::<u32>(&peer, "numbers").await.unwrap();
        let (_, mut receiver) = right.accept::<u32>("numbers").await.unwrap();
        let sends = async {
            for number in 0..300_000 {
                sender.send(&number).await.unwrap();
            }
        };
        let receives = async {
            for number in 0..300_000 {
                assert_eq!(receiver.recv().await.unwrap(), Some(number));
            }
        };
        tokio::join!(biased; sends, receives);
    });
}

/// The message of the panic of `program`.
fn panic_of(program: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(program).unwrap_err();
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap()
}

#[test]
fn mistakes_of_a_test_are_named() {
    let on_a_host_that_is_off = || {
        let (network, [left, _]) = pair(1);
        run(network, async |simulation| {
            simulation.crash(left);
            simulation.spawn_on(left, async {});
        });
    };
    assert_eq!(panic_of(on_a_host_that_is_off), "the host left is off: restart it first");
    let a_rank_too_many = || {
        let (network, [left, _]) = pair(1);
        run(network, async |simulation| {
            drop(simulation.launch(&[left, left], |_| async {}));
            simulation.kill_rank(2);
        });
    };
    assert_eq!(panic_of(a_rank_too_many), "rank 2 of 2 was not launched");
    let within_another = || run(pair(1).0, async |_| run(pair(2).0, async |_| ()));
    assert_eq!(panic_of(within_another), "a simulation is run within another");
    let an_old_handle = || {
        let old = run(pair(1).0, async |simulation| simulation);
        let (network, [left, _]) = pair(2);
        run(network, async |_| old.kill(left));
    };
    assert!(panic_of(an_old_handle).contains("within the run of its simulation"));
    let nobody_comes = || run(pair(1).0, async |_| std::future::pending::<()>().await);
    assert!(panic_of(nobody_comes).contains("everybody waits for somebody"));
    let off_host = || run(pair(1).0, async |_| host::compute(Duration::from_secs(1), || ()).await);
    assert!(panic_of(off_host).contains("is run on a host"));
    // The thread is free for the next simulation.
    run(pair(1).0, async |_| host::sleep(Duration::from_secs(1)).await);
}

#[test]
fn waits_of_a_host_are_those_of_the_model() {
    let (network, [left, _]) = pair(1);
    let program = async {
        let started = host::Instant::now();
        let mut ticks = host::interval(Duration::from_micros(250));
        for _ in 0..5 {
            ticks.tick().await;
        }
        assert_eq!(started.elapsed(), Duration::from_millis(1));
        host::sleep_until(started + Duration::from_secs(3600 / 2)).await;
        let late = host::timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
        assert_eq!(late.unwrap_err().to_string(), "the time is over");
        let past = host::timeout_at(started, std::future::pending::<()>()).await;
        assert!(past.is_err());
        assert_eq!(started.elapsed(), Duration::from_secs(1801));
        (host::random().unwrap(), host::cores(), host::process_id())
    };
    let run_it = |network| run(network, async |simulation| simulation.on(left, program).await);
    let (_, cores, pid) = run_it(network);
    assert_eq!((cores, pid), (1, 1));
    let randoms = [7, 7, 8].map(|seed| {
        let (network, [left, _]) = pair(seed);
        run(network, async |simulation| {
            simulation.on(left, async { host::random().unwrap() }).await
        })
    });
    assert!(randoms[0] == randoms[1] && randoms[0] != randoms[2], "{randoms:?}");
}

#[test]
fn a_node_explains_itself() {
    let (network, [left, right]) = pair(1);
    run(network, async |simulation| {
        let (left, right) =
            (node(&simulation, left, "left").await, node(&simulation, right, "right").await);
        let peer = connect(&left, &right).await;
        let _sender = left.open::<u8>(&peer, "numbers").await.unwrap();
        let text = left.explain().await.to_string();
        assert!(text.contains("right: connected") && text.contains("\"numbers\""), "{text}");
    });
}
