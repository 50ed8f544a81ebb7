//! Several ranks a host: processes that share its name, cores and wires, and nothing else.

use chunkcomm::{LinkEvent, Node, host};
use chunkcomm_simulation::{HostId, HostSpec, LinkSpec, Network, Simulation, WorldSpec, run};
use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Hosts at a switch, and an entry of each for each of its ranks, in blocks or in turns.
fn ranks(seed: u64, hosts: usize, each: usize, in_turns: bool) -> (Network, Vec<HostId>) {
    let mut network = Network::new(seed);
    let hosts: Vec<_> = (0..hosts).map(|at| network.add_host(&format!("h{at}"))).collect();
    network.switch(&hosts, LinkSpec { jitter: MS / 100, ..LinkSpec::default() });
    let count = hosts.len() * each;
    let host_of = |rank| hosts[if in_turns { rank % hosts.len() } else { rank / each }];
    (network, (0..count).map(host_of).collect())
}

/// Returns the value of this variable of the process.
fn variable(name: &str) -> String {
    let all = host::variables();
    all.into_iter().find(|(it, _)| it == name).unwrap().1
}

/// Builds a node that listens at this port of the process's host.
async fn node_at(port: u16) -> Node {
    let at = host::virtual_address(port).unwrap();
    let name = format!("rank-{}", variable("CHUNKCOMM_RANK"));
    Node::builder().name(&name).listen(at).build().await.unwrap()
}

#[test]
fn ranks_of_a_host_are_processes_and_a_seed_repeats_them() {
    for in_turns in [false, true] {
        let once = || {
            let (mut network, hosts) = ranks(7, 4, 4, in_turns);
            network.keep_deliveries();
            run(network, async |simulation| {
                let places = hosts.clone();
                let each = simulation.clone();
                let tasks = simulation.launch(&hosts, |rank| {
                    let (simulation, places) = (each.clone(), places.clone());
                    async move {
                        assert_eq!(variable("CHUNKCOMM_RANK"), rank.to_string());
                        assert_eq!(variable("CHUNKCOMM_SIZE"), "16");
                        assert_eq!(variable("CHUNKCOMM_MANAGER"), "sim:h0/17700");
                        let node = node_at(7000 + rank as u16).await;
                        let next = (rank + 1) % 16;
                        let there = simulation.address(places[next], 7000 + next as u16);
                        let peer = node.connect(&there).await.unwrap();
                        let mut sender = node.open::<usize>(&peer, "ring").await.unwrap();
                        sender.send(&rank).await.unwrap();
                        let (_, mut receiver) = node.accept::<usize>("ring").await.unwrap();
                        let before = receiver.recv().await.unwrap().unwrap();
                        simulation.sleep(1000 * MS).await;
                        (host::virtual_name().unwrap(), host::process_id(), before)
                    }
                });
                let mut pids = BTreeSet::new();
                for (rank, task) in tasks.into_iter().enumerate() {
                    let (name, pid, before) = task.await.unwrap();
                    assert_eq!(before, (rank + 15) % 16);
                    assert_eq!(name, simulation.with(|it, _| it.host_name(hosts[rank]).to_owned()));
                    assert!(pids.insert((name, pid)), "each process of a host has its own number");
                }
                simulation.with(|it, now| (it.digest(), now, it.deliveries().to_vec()))
            })
        };
        assert_eq!(once(), once());
    }
}

#[test]
fn ranks_of_a_host_share_its_cores() {
    let mut network = Network::new(1);
    let two = network.add_host_of("two", HostSpec { cores: 2, ..HostSpec::default() });
    run(network, async |simulation| {
        for (count, time) in [(1, MS), (2, MS), (4, 2 * MS)] {
            let began = simulation.now();
            let places = vec![two; count];
            let works = |_| async { host::compute(MS, || assert_eq!(host::cores(), 2)).await };
            for task in simulation.launch(&places, works) {
                task.await.unwrap();
            }
            assert_eq!(simulation.now() - began, time, "{count} ranks");
        }
    });
}

/// A message between ranks of a host takes the way of the host to itself, and the host's costs.
#[test]
fn ranks_of_a_host_talk_over_its_loopback() {
    const LOOPBACK: Duration = Duration::from_micros(10);
    let world = WorldSpec::preset("lan-1g").unwrap();
    let (network, hosts) = world.build(7, 2);
    let spec = world.hosts[0].spec;
    run(network, async |simulation| {
        let here = hosts[0];
        let (sent, mut arrived) = tokio::sync::mpsc::unbounded_channel();
        let tasks = simulation.launch(&[here, here], |rank| {
            let (simulation, sent) = (simulation.clone(), sent.clone());
            async move {
                let node = node_at([80, 0][rank]).await;
                if rank == 0 {
                    let (_, mut receiver) = node.accept::<u64>("numbers").await.unwrap();
                    assert_eq!(receiver.recv().await.unwrap(), Some(7));
                    sent.send((simulation.now(), 0)).unwrap();
                    return pending::<()>().await;
                }
                let peer = node.connect(&simulation.address(here, 80)).await.unwrap();
                let mut sender = node.open::<u64>(&peer, "numbers").await.unwrap();
                simulation.sleep(1000 * MS).await;
                let (before, began) = (peer.stats().packet_bytes_sent, simulation.now());
                sender.send(&7).await.unwrap();
                simulation.sleep(MS).await;
                sent.send((began, peer.stats().packet_bytes_sent - before)).unwrap();
                pending::<()>().await;
            }
        });
        let (end, _) = arrived.recv().await.unwrap();
        let (began, bytes) = arrived.recv().await.unwrap();
        let picos = bytes * (spec.send_picos_per_byte + spec.receive_picos_per_byte);
        let costs = spec.send_cost_per_packet + spec.receive_cost_per_packet;
        let expected = LOOPBACK + costs + Duration::from_nanos(picos / 1000);
        let took = end - began;
        println!("{bytes} B take {took:?}, by the formula {expected:?}");
        assert!(
            !costs.is_zero() && took.abs_diff(expected) <= Duration::from_micros(2),
            "{took:?}"
        );
        drop(tasks);
    });
}

/// Echoes numbers at port 7000 + rank, and computes beside it.
async fn echo(rank: usize) {
    host::spawn(host::compute(3600 * 1000 * MS, || ()));
    let node = node_at(7000 + rank as u16).await;
    while let Ok((peer, mut receiver)) = node.accept::<u64>("there").await {
        let node = node.clone();
        host::spawn(async move {
            let mut back = node.open::<u64>(&peer, "back").await.unwrap();
            while let Ok(Some(number)) = receiver.recv().await {
                back.send(&(number + rank as u64)).await.unwrap();
            }
        });
    }
}

/// Asks the rank at this place for an echo; `None` without an answer.
async fn ask(simulation: &Simulation, from: HostId, host: HostId, rank: usize) -> Option<u64> {
    let there = simulation.address(host, 7000 + rank as u16);
    let asks = async {
        let node = Node::builder().build().await.unwrap();
        let peer = node.connect_within(&there, Duration::ZERO).await.ok()?;
        let mut sender = node.open::<u64>(&peer, "there").await.unwrap();
        sender.send(&100).await.unwrap();
        let (_, mut back) = node.accept::<u64>("back").await.unwrap();
        let answer = back.recv().await.unwrap();
        // Beside the answering process, which computes too.
        host::compute(MS, move || answer).await
    };
    simulation.within(5000 * MS, simulation.on(from, asks)).await.flatten()
}

#[test]
fn one_rank_is_killed_and_the_others_of_its_host_go_on() {
    let once = || {
        let (network, places) = ranks(3, 2, 4, false);
        run(network, async |simulation| {
            let (here, there) = (places[0], places[4]);
            let mut tasks = simulation.launch(&places, echo);
            simulation.sleep(10 * MS).await;
            for rank in 0..4 {
                assert_eq!(ask(&simulation, there, here, rank).await, Some(100 + rank as u64));
            }

            // A session with the rank that dies, and one with its neighbour.
            let node = simulation.on(there, Node::builder().build()).await.unwrap();
            let address = |rank: u16| simulation.address(here, 7000 + rank);
            let (dies, lives) = (node.connect(&address(1)).await, node.connect(&address(2)).await);
            let _peers = (dies.unwrap(), lives.unwrap());
            let mut events = node.events();
            let ends = simulation.with(|network, _| network.ends_of(here).len());
            simulation.kill_rank(1);
            let left = simulation.with(|network, _| network.ends_of(here).len());
            assert_eq!(left, ends - 1, "its connections are closed, and no others");
            simulation.sleep(10 * MS).await;
            let mut cut = Vec::new();
            while let Some(event) = simulation.within(MS, events.next()).await.flatten() {
                if let LinkEvent::CutOff { peer, .. } = event {
                    cut.push(peer.name().to_owned());
                }
            }
            assert_eq!(cut, ["rank-1"]);
            assert!(tasks.remove(1).await.unwrap_err().is_cancelled());
            assert_eq!(ask(&simulation, there, here, 1).await, None, "nobody listens there");
            for rank in [0, 2, 3] {
                assert_eq!(ask(&simulation, there, here, rank).await, Some(100 + rank as u64));
            }

            // Another process with the same variables takes its port.
            let again = simulation.spawn_rank(1, async {
                assert_eq!(variable("CHUNKCOMM_RANK"), "1");
                let pid = host::process_id();
                host::spawn(echo(1));
                pid
            });
            let pid = again.await.unwrap();
            simulation.sleep(10 * MS).await;
            assert_eq!(ask(&simulation, there, here, 1).await, Some(101));

            simulation.kill(here);
            for rank in 0..4 {
                assert_eq!(ask(&simulation, there, here, rank).await, None);
            }
            assert_eq!(ask(&simulation, here, there, 5).await, Some(105), "another host lives");
            simulation.crash(there);
            assert_eq!(ask(&simulation, here, there, 5).await, None);
            (pid, simulation.report().digest, simulation.now())
        })
    };
    assert_eq!(once(), once());
}

/// The work of a killed rank no longer takes a part of the cores.
#[test]
fn a_killed_rank_computes_no_more() {
    let mut network = Network::new(1);
    let one = network.add_host("one");
    run(network, async |simulation| {
        let mut tasks = simulation.launch(&[one, one], |_| host::compute(10 * MS, || ()));
        simulation.sleep(10 * MS).await;
        simulation.kill_rank(0);
        tasks.pop().unwrap().await.unwrap();
        assert_eq!(simulation.now(), 15 * MS);
        assert!(tasks.pop().unwrap().await.unwrap_err().is_cancelled());
    });
}
