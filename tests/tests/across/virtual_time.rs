//! Clusters, calls, farms and deltas as programs of virtual hosts, in virtual time.

use chunkcomm::{BytesDuplex, host};
use chunkcomm_cluster::prelude::*;
use chunkcomm_cluster::{
    Cluster, ClusterConfig, Function, Registry, TravellingReceiver, ValueWriter,
};
use chunkcomm_coupled::patterns::{self, Chain, Compute, Pattern, Run, Transfer};
use chunkcomm_farm::settings::{Grain, Prefetch};
use chunkcomm_farm::{Farm, serve_in};
use chunkcomm_simulation::{HostId, HostSpec, LinkSpec, Network, Simulation, run};
use std::time::Duration;

use super::virtual_cluster::{join, switched};

const MS: Duration = Duration::from_millis(1);

/// A way that costs next to nothing.
fn fast() -> LinkSpec {
    LinkSpec {
        latency: Duration::from_micros(1),
        cost_per_packet: Duration::ZERO,
        ..LinkSpec::default()
    }
}

/// Runs `program` on each host; returns its results by rank, and the digest of the run.
async fn all<R: Send + 'static, F: Future<Output = R> + Send + 'static>(
    simulation: &Simulation,
    hosts: &[HostId],
    program: impl FnMut(usize) -> F,
) -> Vec<R> {
    let mut results = Vec::new();
    for task in simulation.launch(hosts, program) {
        results.push(task.await.unwrap());
    }
    results
}

#[test]
fn a_cluster_joins_calls_and_ends() {
    let once = || {
        let (network, hosts) = switched(7, 5, LinkSpec::default());
        run(network, async |simulation| {
            let names = all(&simulation, &hosts, |rank| async move {
                let cluster = join().await;
                assert_eq!(cluster.rank() as usize, rank);
                assert_eq!(cluster.members().len(), 5);
                let _service = cluster
                    .node()
                    .serve("name", |(): ()| async {
                        Ok::<_, String>(host::virtual_name().unwrap())
                    })
                    .unwrap();
                cluster.barrier().await.unwrap();
                let next = cluster.peer((rank as u32 + 1) % 5).await.unwrap();
                let client = cluster.node().call_client::<(), String>(&next, "name").unwrap();
                let name = client.call(&()).await.unwrap();
                cluster.barrier().await.unwrap();
                cluster.end(Duration::from_secs(5)).await.unwrap();
                name
            })
            .await;
            assert_eq!(names, ["host-1", "host-2", "host-3", "host-4", "host-0"]);
            simulation.with(|network, now| (network.digest(), now))
        })
    };
    assert_eq!(once(), once());
}

/// Processes run on the hosts that they are asked of, with streams between them.
#[test]
fn processes_stream_between_hosts() {
    let (network, hosts) = switched(7, 4, LinkSpec::default());
    let sums = run(network, async |simulation| {
        all(&simulation, &hosts, |rank| async move {
            let mut registry = Registry::new();
            type Ends = (TravellingReceiver<u64>, ValueWriter<(String, u64)>);
            let sum = registry.process("sum", |_, (numbers, total): Ends| async move {
                let (mut numbers, mut sum) = (numbers.connect().await?, 0);
                while let Some(number) = numbers.recv().await? {
                    sum += host::compute(MS, move || number * number).await;
                }
                total.write(&(host::virtual_name().unwrap(), sum)).await?;
                Ok(())
            });
            let config = ClusterConfig::new().registry(&registry);
            let cluster = Cluster::join(config).await.unwrap();
            let mut totals = Vec::new();
            if rank == 0 {
                let mut running = Vec::new();
                for to in 1..4 {
                    let (numbers, sender) = cluster.node().travelling_receiver::<u64>().unwrap();
                    let (writer, total) = cluster.node().value().unwrap();
                    let process = cluster.instantiate(to, &sum, (numbers, writer)).await.unwrap();
                    running.push((sender, total, process));
                }
                for (sender, total, process) in running {
                    let mut sender = sender.connect().await.unwrap();
                    sender.send_all(1..=10).await.unwrap();
                    sender.close(MS * 5000).await.unwrap();
                    totals.push(total.get().await.unwrap().clone());
                    process.await.unwrap();
                }
            }
            cluster.end(Duration::from_secs(5)).await.unwrap();
            totals
        })
        .await
    });
    let expected: Vec<_> = (1..4).map(|host| (format!("host-{host}"), 385)).collect();
    assert_eq!(sums[0], expected);
}

#[test]
fn a_cluster_needs_hosts_that_were_launched() {
    let (network, hosts) = switched(1, 1, LinkSpec::default());
    let error = run(network, async |simulation| {
        simulation.on(hosts[0], Cluster::join(ClusterConfig::new())).await.unwrap_err()
    });
    assert!(error.to_string().contains("Simulation::launch"), "{error}");
}

/// A registry with a function that takes this long.
fn working(work: Duration) -> (Registry, Function<u64, u64>) {
    let mut registry = Registry::new();
    let function = registry.register("work", move |number: u64| {
        host::spend(work);
        number + 1
    });
    (registry, function)
}

/// Farms tasks of a millisecond out to `workers` hosts; returns the time of the run, and the digest.
fn farm(workers: usize, tasks: u64, prefetch: Prefetch) -> (Duration, u64) {
    let (elapsed, digest, _) = farm_until(workers, tasks, prefetch);
    (elapsed, digest)
}

/// Farms as [`farm`] does, and returns the end of the program as well.
fn farm_until(workers: usize, tasks: u64, prefetch: Prefetch) -> (Duration, u64, Duration) {
    farm_of(workers, tasks, MS, prefetch, fast())
}

fn farm_of(
    workers: usize,
    tasks: u64,
    work: Duration,
    prefetch: Prefetch,
    spec: LinkSpec,
) -> (Duration, u64, Duration) {
    let (network, hosts) = switched(3, workers + 1, spec);
    run(network, async |simulation| {
        let times = all(&simulation, &hosts, |rank| async move {
            let (registry, function) = working(work);
            let cluster = join().await;
            let mut elapsed = Duration::ZERO;
            if rank == 0 {
                let grain = match prefetch {
                    Prefetch::Fixed(_) => Grain::Fixed(1),
                    Prefetch::Auto => Grain::Auto,
                };
                let builder = Farm::builder(registry).prefetch(prefetch).grain(grain);
                let mut farm = builder.start_in(&cluster).await.unwrap();
                let outcome = farm.run(&function, 0..tasks).await.unwrap();
                assert_eq!(outcome.results, (1..=tasks).collect::<Vec<_>>());
                let busy: Duration = outcome.stats.workers.iter().map(|it| it.busy).sum();
                assert_eq!(busy, work * tasks as u32);
                elapsed = outcome.stats.elapsed;
                farm.finish(Duration::from_secs(5)).await.unwrap();
            } else {
                serve_in(&cluster, &registry).await.unwrap();
            }
            cluster.end(Duration::from_secs(5)).await.unwrap();
            elapsed
        })
        .await;
        (times[0], simulation.with(|network, _| network.digest()), simulation.now())
    })
}

#[test]
fn a_farm_keeps_all_hosts_busy() {
    let (elapsed, digest) = farm(8, 400, Prefetch::Fixed(2));
    let ideal = MS * 400 / 8;
    assert!(elapsed >= ideal && elapsed < ideal + ideal / 20, "{elapsed:?} of {ideal:?}");
    assert_eq!(farm(8, 400, Prefetch::Fixed(2)), (elapsed, digest), "one run twice");
    assert!(farm(8, 400, Prefetch::Auto).0 < ideal + ideal / 20);
}

/// The manager hears the last word of every member: it waits for none that has gone.
#[test]
fn a_cluster_of_any_size_ends_at_once() {
    for workers in 1..=12 {
        let (elapsed, _, end) = farm_until(workers, 100, Prefetch::Fixed(2));
        assert!(end < elapsed + 5 * MS, "{workers} workers: {end:?}, of it {elapsed:?} at work");
    }
}

#[test]
fn a_farm_without_a_cluster_uses_its_own_host() {
    let mut network = Network::new(1);
    let host = network.add_host_of("many", HostSpec { cores: 4, ..HostSpec::default() });
    let elapsed = run(network, async |simulation| {
        let program = async {
            let (registry, function) = working(MS);
            let mut farm = Farm::builder(registry).start().await.unwrap();
            assert_eq!(farm.workers().len(), 4);
            let stats = farm.run(&function, 0..100).await.unwrap().stats;
            farm.finish(Duration::from_secs(5)).await.unwrap();
            stats.elapsed
        };
        simulation.on(host, program).await
    });
    let ideal = MS * 100 / 4;
    assert!(elapsed >= ideal && elapsed < ideal + ideal / 20, "{elapsed:?} of {ideal:?}");
}

/// Sends 64 Ki elements through `nodes` nodes; returns the time of the run.
fn cascade(nodes: usize, delta_bytes: Option<usize>) -> Duration {
    cascade_of(nodes, delta_bytes, 64 * 1024)
}

/// Sends elements through `nodes` nodes; returns the time of the run.
fn cascade_of(nodes: usize, delta_bytes: Option<usize>, elements: usize) -> Duration {
    let (network, hosts) = switched(5, nodes, LinkSpec::default());
    let times = run(network, async |simulation| {
        all(&simulation, &hosts, |rank| async move {
            let cluster = join().await;
            let mut elapsed = Duration::ZERO;
            if rank == 0 {
                let mut chain = Chain::gather(cluster.node(), nodes).await.unwrap();
                let transfer = delta_bytes.map_or(Transfer::Whole, Transfer::Delta);
                let run = Run { transfer, ..Run::new(Pattern::Cascade, Compute::Trig, elements) };
                let outcome = chain.run(&run).await.unwrap();
                assert_eq!(outcome.difference, None);
                elapsed = outcome.elapsed;
                chain.end().await.unwrap();
            } else {
                patterns::serve_in(&cluster).await.unwrap();
            }
            cluster.end(Duration::from_secs(5)).await.unwrap();
            elapsed
        })
        .await
    });
    times[0]
}

#[test]
fn a_cascade_of_deltas_overlaps() {
    let (whole, delta) = (cascade(6, None), cascade(6, Some(8 * 1024)));
    // Six nodes compute 1.3 ms each, and 256 KiB cross five ways in 2.2 ms each.
    assert!(whole > Duration::from_millis(18), "{whole:?}");
    assert!(delta < whole / 4, "{delta:?} of {whole:?}");
}

/// Checks that a time is within 2 % of a closed form.
fn agrees(what: &str, time: Duration, formula: f64) {
    let ratio = time.as_secs_f64() / formula;
    assert!((0.98..=1.02).contains(&ratio), "{what}: {time:?}, by the formula {formula} s");
}

/// Seconds of a byte on the wire.
fn beta(spec: &LinkSpec) -> f64 {
    1.0 / spec.bytes_per_second as f64
}

#[test]
fn a_cascade_takes_the_time_of_the_formula() {
    const BYTES: f64 = 4.0 * 1024.0 * 1024.0;
    let spec = LinkSpec::default();
    // Compute of a byte: 20 ns an element of 4 bytes.
    let (c, beta) = (5e-9, beta(&spec));
    for nodes in [4, 8] {
        let p = f64::from(nodes);
        let ways = (p - 1.0) * spec.latency.as_secs_f64();
        let d = 16.0 * 1024.0;
        let packets = BYTES / d * spec.cost_per_packet.as_secs_f64();
        let delta = BYTES * f64::max(c, beta) + (p - 1.0) * (c + beta) * d + packets + ways;
        let elements = 1024 * 1024;
        agrees("delta", cascade_of(nodes as usize, Some(16 * 1024), elements), delta);
        let whole = p * c * BYTES + (p - 1.0) * beta * BYTES + ways;
        agrees("whole", cascade_of(nodes as usize, None, elements), whole);
    }
}

#[test]
fn a_farm_has_the_efficiency_of_the_formula() {
    let spec = LinkSpec::default();
    // An assignment and its answer have some 60 bytes each, with the headers of their packets.
    let way = spec.latency + spec.cost_per_packet;
    let overhead = 2.0 * (way.as_secs_f64() + 60.0 * beta(&spec));
    for work in [Duration::from_micros(100), MS, 10 * MS] {
        let (elapsed, ..) = farm_of(1, 100, work, Prefetch::Fixed(1), spec);
        agrees("farm", elapsed, 100.0 * (work.as_secs_f64() + overhead));
    }
}

#[test]
fn messages_cost_their_hosts_time() {
    const ROUNDS: u32 = 50;
    let costs = HostSpec {
        send_cost_per_packet: Duration::from_micros(63),
        send_picos_per_byte: 25_000,
        receive_cost_per_packet: Duration::from_micros(40),
        receive_picos_per_byte: 10_000,
        ..HostSpec::default()
    };
    let spec = LinkSpec { window_bytes: 1 << 20, ..LinkSpec::ETHERNET_100M };
    let mut network = Network::new(1);
    let hosts = ["left", "right"].map(|name| network.add_host_of(name, costs));
    network.link(hosts[0], hosts[1], spec);
    let (elapsed, bytes) = run(network, async |simulation| {
        let mut ends = simulation.launch(&hosts, |rank| async move {
            let cluster = join().await;
            let peer = cluster.peer(1 - rank as u32).await.unwrap();
            let mut duplex = match rank {
                0 => cluster.node().open_duplex_bytes(&peer, "ball").await.unwrap(),
                _ => cluster.node().accept_duplex_bytes("ball").await.unwrap().1,
            };
            let round = async |duplex: &mut BytesDuplex| {
                if rank == 0 {
                    duplex.sender().send_slice_now(&[7; 1000]).await.unwrap();
                }
                let ball = duplex.recv().await.unwrap().unwrap();
                if rank == 1 {
                    duplex.sender().send_slice_now(&ball).await.unwrap();
                }
            };
            round(&mut duplex).await;
            // The words of the joining have left meanwhile, and their acknowledgements.
            host::sleep(Duration::from_secs(1)).await;
            let (before, started) = (peer.stats(), host::Instant::now());
            for _ in 0..ROUNDS {
                round(&mut duplex).await;
            }
            let (elapsed, after) = (started.elapsed(), peer.stats());
            let bytes = after.packet_bytes_sent - before.packet_bytes_sent;
            let packets = after.packets_sent - before.packets_sent;
            cluster.end(Duration::from_secs(5)).await.unwrap();
            (elapsed, bytes as f64 / packets as f64)
        });
        let far = ends.pop().unwrap();
        let near = ends.pop().unwrap().await.unwrap();
        far.await.unwrap();
        near
    });
    let each = costs.send_cost_per_packet + costs.receive_cost_per_packet + spec.cost_per_packet;
    let way = (each + spec.latency).as_secs_f64() + bytes * (35e-9 + beta(&spec));
    agrees("ping-pong", elapsed, 2.0 * way * f64::from(ROUNDS));
}

/// Work that a program declares beside a computation is no part of the work of others.
#[test]
fn work_that_nobody_waits_for_takes_no_time() {
    let mut network = Network::new(1);
    let host = network.add_host("one");
    let elapsed = run(network, async |simulation| {
        let program = async {
            host::spend(100 * MS);
            host::compute(MS, || host::spend(2 * MS)).await;
        };
        simulation.on(host, program).await;
        simulation.now()
    });
    assert_eq!(elapsed, 3 * MS);
}
