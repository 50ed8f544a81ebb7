//! Programs and tasks that panic: a run fails by each that nobody saw.

use chunkcomm::host;
use chunkcomm_simulation::{HostId, LinkSpec, Network, Simulation, run, run_within};
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn pair() -> (Network, [HostId; 2]) {
    let mut network = Network::new(1);
    let hosts = ["server", "client"].map(|name| network.add_host(name));
    network.link(hosts[0], hosts[1], LinkSpec::default());
    (network, hosts)
}

/// Fails after a millisecond.
async fn fails() {
    host::sleep(MS).await;
    assert_eq!(host::Instant::now().elapsed(), MS, "an invariant is broken");
}

/// Runs a program of the main task that gets the server, and returns the text of its panic.
fn panic_of(program: impl AsyncFnOnce(Simulation, HostId)) -> Option<String> {
    let (network, [server, _]) = pair();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        run(network, async |simulation| program(simulation, server).await);
    }));
    ran.err().map(|panic| panic.downcast_ref::<String>().expect("it has a text").clone())
}

/// Checks that a program fails by the panic of `fails` on the host.
fn assert_fails(whose: &str, program: impl AsyncFnOnce(Simulation, HostId)) {
    let panic = panic_of(program).expect("a panic was hidden");
    let begins = format!("a task of {whose} panicked, and nobody awaited it: assertion");
    assert!(panic.starts_with(&begins) && panic.contains("an invariant is broken"), "{panic}");
}

#[test]
fn a_panic_whose_handle_was_dropped_fails_the_run_at_once() {
    assert_fails("the host server", async |simulation, server| {
        simulation.spawn_on(server, fails());
        // A run of its whole hour would end by its limit.
        pending::<()>().await;
    });
}

#[test]
fn a_panic_whose_handle_is_dropped_afterwards_fails_the_run() {
    assert_fails("the host server", async |simulation, server| {
        let task = simulation.spawn_on(server, fails());
        simulation.sleep(5 * MS).await;
        drop(task);
        pending::<()>().await;
    });
    assert_fails("the host server", async |simulation, server| {
        let task = simulation.spawn_on(server, fails());
        simulation.within(MS / 2, task).await.ok_or(()).expect_err("it sleeps");
        pending::<()>().await;
    });
}

#[test]
fn a_panic_whose_handle_somebody_still_has_fails_the_run_at_its_end() {
    assert_fails("the host server", async |simulation, server| {
        let parent = async {
            let _child = host::spawn(fails());
            pending::<()>().await;
        };
        let _parent = simulation.spawn_on(server, parent);
        simulation.sleep(5 * MS).await;
    });
    let (network, [server, _]) = pair();
    let outlives = || run(network, async |simulation| simulation.spawn_on(server, pending::<()>()));
    drop(outlives());
    let (network, [server, _]) = pair();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        run(network, async |simulation| {
            let task = simulation.spawn_on(server, fails());
            simulation.sleep(5 * MS).await;
            [task]
        })
    }));
    assert!(ran.is_err(), "the handle outlives the run");
}

#[test]
fn a_panic_counts_in_a_run_that_reaches_its_limit() {
    let (network, [server, _]) = pair();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        run_within(network, 10 * MS, async |simulation| {
            let _task = simulation.spawn_on(server, fails());
            pending::<()>().await;
        })
    }));
    assert!(ran.is_err());
}

#[test]
fn a_panic_of_a_spawned_task_fails_the_run() {
    assert_fails("the host server", async |simulation, server| {
        let program = async {
            host::spawn(fails());
            pending::<()>().await;
        };
        simulation.on(server, program).await;
    });
    assert_fails("no host", async |_, _| {
        host::spawn(fails());
        pending::<()>().await;
    });
    assert_fails("the host server", async |simulation, server| {
        simulation.launch(&[server], |_| fails()).clear();
        pending::<()>().await;
    });
}

#[test]
fn a_panic_that_is_awaited_is_the_callers() {
    let panic = panic_of(async |simulation, server| {
        let task = simulation.spawn_on(server, fails());
        assert!(task.await.expect_err("it fails").is_panic());
        let parent = async { host::spawn(fails()).await.expect_err("it fails").is_panic() };
        assert_eq!(simulation.spawn_on(server, parent).await.ok(), Some(true));
        let all = simulation.launch_local(&[server], |_| fails()).await;
        assert!(all[0].as_ref().expect_err("it fails").is_panic());
    });
    assert_eq!(panic, None);
}

#[test]
fn the_end_of_a_killed_program_is_no_failure() {
    let panic = panic_of(async |simulation, server| {
        simulation.spawn_on(server, fails());
        let task = simulation.spawn_on(server, fails());
        simulation.sleep(MS / 2).await;
        simulation.kill(server);
        simulation.sleep(5 * MS).await;
        assert!(task.await.expect_err("it was killed").is_cancelled());
    });
    assert_eq!(panic, None);
}

#[test]
fn the_panic_of_a_run_is_not_that_of_the_next() {
    let first = panic_of(async |simulation, server| {
        let _task = simulation.spawn_on(server, fails());
        simulation.sleep(5 * MS).await;
        panic!("{}", "of the program itself");
    });
    assert_eq!(first.as_deref(), Some("of the program itself"));
    assert_eq!(panic_of(async |simulation, _| simulation.sleep(MS).await), None);
}
