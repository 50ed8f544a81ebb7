//! Faults of the network as nodes see them, in the model's time.

use super::{connect, node};
use chunkcomm::{LinkEvent, LinkEvents, Node};
use chunkcomm_simulation::{HostId, LinkSpec, Network, Simulation};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LATENCY: Duration = Duration::from_millis(1);

fn two_hosts() -> (Network, [HostId; 2]) {
    let mut network = Network::new(7);
    let hosts = ["left", "right"].map(|name| network.add_host(name));
    network.link(hosts[0], hosts[1], LinkSpec { latency: LATENCY, ..LinkSpec::default() });
    (network, hosts)
}

fn partition(simulation: &Simulation, hosts: [HostId; 2]) {
    simulation.with(|network, now| {
        network.partition(now, hosts[0], hosts[1]);
        network.partition(now, hosts[1], hosts[0]);
    });
}

fn heal(simulation: &Simulation, hosts: [HostId; 2]) {
    simulation.with(|network, now| {
        network.heal(now, hosts[0], hosts[1]);
        network.heal(now, hosts[1], hosts[0]);
    });
}

#[test]
fn what_a_partition_held_arrives_after_it() {
    let (network, hosts) = two_hosts();
    chunkcomm_simulation::run(network, async |simulation| {
        let (left, right) =
            (node(&simulation, hosts[0], "left").await, node(&simulation, hosts[1], "right").await);
        let peer = connect(&left, &right).await;
        let mut sender = left.open::<u64>(&peer, "numbers").await.unwrap();
        let (_, mut receiver) = right.accept::<u64>("numbers").await.unwrap();
        sender.send(&0).await.unwrap();
        assert_eq!(receiver.recv().await.unwrap(), Some(0));
        partition(&simulation, hosts);
        sender.send(&1).await.unwrap();
        let second = Duration::from_secs(1);
        assert!(simulation.within(second, receiver.recv()).await.is_none());
        let start = simulation.now();
        heal(&simulation, hosts);
        assert_eq!(receiver.recv().await.unwrap(), Some(1));
        assert_eq!(simulation.now() - start, LATENCY);
    });
}

#[test]
fn who_says_nothing_is_turned_away_after_five_seconds_of_the_model() {
    let (network, hosts) = two_hosts();
    chunkcomm_simulation::run(network, async |simulation| {
        let right = node(&simulation, hosts[1], "right").await;
        let left = node(&simulation, hosts[0], "left").await;
        let address = right.addresses()[0].clone();
        let dialling = tokio::spawn(async move { left.connect(&address).await.map(drop) });
        // The connection is open; the dialler's hello is on its way.
        simulation.sleep(LATENCY * 5 / 2).await;
        simulation.with(|network, now| network.partition(now, hosts[0], hosts[1]));
        simulation.sleep(Duration::from_millis(4990)).await;
        assert_eq!(right.refusals(), [""; 0]);
        simulation.sleep(Duration::from_millis(20)).await;
        assert_eq!(right.refusals().len(), 1, "{:?}", right.refusals());
        dialling.abort();
    });
}

#[test]
fn closing_gives_up_at_its_deadline() {
    let (network, hosts) = two_hosts();
    chunkcomm_simulation::run(network, async |simulation| {
        let (left, right) =
            (node(&simulation, hosts[0], "left").await, node(&simulation, hosts[1], "right").await);
        let peer = connect(&left, &right).await;
        let mut sender = left.open::<u64>(&peer, "numbers").await.unwrap();
        partition(&simulation, hosts);
        sender.send(&1).await.unwrap();
        let start = simulation.now();
        let closed = left.close(Duration::from_secs(2)).await;
        assert_eq!(closed.unwrap_err().channels.len(), 1);
        assert_eq!(simulation.now() - start, Duration::from_secs(2));
    });
}

/// The events of a node's links, with their times.
type Told = Vec<(Duration, String)>;

async fn note_events(mut events: LinkEvents, simulation: Simulation, told: Arc<Mutex<Told>>) {
    while let Some(event) = events.next().await {
        let text = match event {
            LinkEvent::Connected { peer } => format!("{} connected", peer.name()),
            LinkEvent::CutOff { error, .. } => error.to_string(),
            LinkEvent::Resumed { attempt, after, .. } => format!("{attempt} after {after:?}"),
            other => panic!("{other:?}"),
        };
        told.lock().unwrap().push((simulation.now(), text));
    }
}

/// Runs a stream over connections that are cut again and again; returns the digest, the time and
/// the events of its run.
fn cut_again_and_again(seed: u64) -> (u64, Duration, Told) {
    const NUMBERS: u64 = 1000;
    let mut network = Network::new(seed);
    let hosts = ["left", "right"].map(|name| network.add_host(name));
    let jitter = Duration::from_micros(100);
    network.link(hosts[0], hosts[1], LinkSpec { jitter, ..LinkSpec::default() });
    chunkcomm_simulation::run(network, async |simulation| {
        let (left, right) =
            (node(&simulation, hosts[0], "left").await, node(&simulation, hosts[1], "right").await);
        let told = Arc::default();
        tokio::spawn(note_events(right.events(), simulation.clone(), Arc::clone(&told)));
        let peer = connect(&left, &right).await;
        let mut sender = left.open::<u64>(&peer, "numbers").await.unwrap();
        let (_, mut receiver) = right.accept::<u64>("numbers").await.unwrap();
        let pace = simulation.clone();
        let sending = tokio::spawn(async move {
            for number in 0..NUMBERS {
                pace.sleep(Duration::from_micros(500)).await;
                sender.send(&number).await.unwrap();
            }
        });
        let cutter = simulation.clone();
        let cutting = tokio::spawn(async move {
            loop {
                cutter.sleep(Duration::from_millis(20)).await;
                cutter.with(|network, now| {
                    for end in network.ends_of(hosts[0]) {
                        network.cut(now, end, Duration::from_millis(1), Duration::from_millis(2));
                    }
                });
            }
        });
        for number in 0..NUMBERS {
            assert_eq!(receiver.recv().await.unwrap(), Some(number));
        }
        sending.await.unwrap();
        cutting.abort();
        let told = std::mem::take(&mut *told.lock().unwrap());
        (simulation.with(|network, _| network.digest()), simulation.now(), told)
    })
}

#[test]
fn cuts_lose_nothing_and_a_seed_repeats_them() {
    let (digest, took, told) = cut_again_and_again(7);
    assert!(took > Duration::from_millis(500));
    assert!(told.len() > 20 && told[0].1 == "left connected", "{told:?}");
    for cut in told[1..].chunks_exact(2) {
        let [lost, resumed] = cut else { panic!("{cut:?}") };
        assert!(lost.1.starts_with("the connection with left "), "{cut:?}");
        assert!(resumed.1.ends_with(&format!("after {:?}", resumed.0 - lost.0)), "{cut:?}");
    }
    assert_eq!(cut_again_and_again(7), (digest, took, told));
    assert_ne!(cut_again_and_again(8).0, digest);
}

#[test]
fn wrong_places_are_errors() {
    let (network, hosts) = two_hosts();
    chunkcomm_simulation::run(network, async |simulation| {
        let nowhere = Node::builder().listen("sim:nowhere/0".parse().unwrap()).build().await;
        assert!(nowhere.is_err(), "there is no such host");
        let left = node(&simulation, hosts[0], "left").await;
        let again = Node::builder().listen(left.addresses()[0].clone()).build().await;
        assert!(again.is_err(), "the port is taken");
        let start = simulation.now();
        let nobody = simulation.address(hosts[1], 80);
        assert!(
            left.connect_within(&nobody, Duration::ZERO).await.is_err(),
            "nobody listens there"
        );
        assert_eq!(simulation.now() - start, LATENCY * 2);
        let homeless = Node::builder().build().await.unwrap();
        let there = left.addresses()[0].clone();
        let dialled = homeless.connect_within(&there, Duration::ZERO);
        let error = format!("{:?}", dialled.await.err().unwrap());
        assert!(error.contains("on no simulated host"), "{error}");
    });
    let outside = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let node = Node::builder().listen("sim:left/0".parse().unwrap());
    assert!(outside.block_on(node.build()).is_err(), "no simulation runs");
}

#[test]
fn a_program_that_waits_for_nothing_is_noticed_at_once() {
    let limit = Duration::from_secs(1000);
    assert_eq!(
        chunkcomm_simulation::run_within(Network::new(7), limit, async |_| pending().await),
        None::<()>
    );
}

#[test]
#[should_panic(expected = "wakes itself for ever")]
fn a_task_that_never_rests_is_noticed() {
    chunkcomm_simulation::run(Network::new(7), async |simulation| {
        while simulation.now() < Duration::from_secs(1) {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn model_time_is_a_thousandth_of_tokios() {
    chunkcomm_simulation::run(Network::new(7), async |simulation| {
        let begin = tokio::time::Instant::now();
        simulation.sleep(Duration::from_micros(5)).await;
        assert_eq!(simulation.now(), Duration::from_micros(5));
        assert_eq!(begin.elapsed(), Duration::from_millis(5));
    });
}
