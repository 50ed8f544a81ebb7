//! Hundreds of nodes, whose run a seed repeats.

use super::{connect, node};
use chunkcomm::{Node, Receiver, Sender};
use chunkcomm_simulation::{Delivery, LinkSpec, Network, Simulation};
use std::time::{Duration, Instant};

/// A member of a ring: sends to the next, receives from the one before.
struct Member {
    sender: Sender<(u32, Vec<u64>)>,
    receiver: Receiver<(u32, Vec<u64>)>,
    _node: Node,
}

async fn ring(simulation: &Simulation, size: usize) -> Vec<Member> {
    let hosts: Vec<_> = (0..size)
        .map(|at| simulation.with(|network, _| network.host(&format!("h{at}")).unwrap()))
        .collect();
    let mut nodes = Vec::new();
    for (at, host) in hosts.iter().enumerate() {
        nodes.push(node(simulation, *host, &format!("n{at}")).await);
    }
    let mut senders = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let peer = connect(node, &nodes[(at + 1) % size]).await;
        senders.push(node.open(&peer, "ring").await.unwrap());
    }
    let mut members = Vec::new();
    for (node, sender) in nodes.into_iter().zip(senders) {
        let (_, receiver) = node.accept("ring").await.unwrap();
        members.push(Member { sender, receiver, _node: node });
    }
    members
}

/// Returns the number of items in the message with which member `at` begins.
fn items_of(at: usize) -> usize {
    3 * at % 400
}

/// Lets every member send its messages on `rounds` times; returns how many items were received.
async fn exchange(members: Vec<Member>, rounds: u32) -> usize {
    let mut tasks = Vec::new();
    for (at, mut member) in members.into_iter().enumerate() {
        tasks.push(tokio::spawn(async move {
            let mut items = 0;
            let mut message = (at as u32, vec![at as u64; items_of(at)]);
            for _ in 0..rounds {
                member.sender.send(&message).await.unwrap();
                message = member.receiver.recv().await.unwrap().unwrap();
                assert!(message.1.iter().all(|item| *item == u64::from(message.0)));
                items += message.1.len();
            }
            (items, member)
        }));
    }
    let mut items = 0;
    let mut members = Vec::new();
    for task in tasks {
        let (received, member) = task.await.unwrap();
        items += received;
        // Kept until all are done: a member that hangs up first would end the others.
        members.push(member);
    }
    items
}

fn network(seed: u64, size: usize, spec: LinkSpec) -> Network {
    let mut network = Network::new(seed);
    let hosts: Vec<_> = (0..size).map(|at| network.add_host(&format!("h{at}"))).collect();
    network.switch(&hosts, spec);
    network.keep_deliveries();
    network
}

/// Returns the digest, the deliveries and the time of a run by `seed`.
fn run(seed: u64, size: usize, rounds: u32) -> (u64, Vec<Delivery>, Duration) {
    let spec = LinkSpec { jitter: Duration::from_micros(40), ..LinkSpec::ETHERNET_1G };
    chunkcomm_simulation::run(network(seed, size, spec), async |simulation| {
        let members = ring(&simulation, size).await;
        exchange(members, rounds).await;
        let now = simulation.now();
        simulation.with(|network, _| (network.digest(), network.deliveries().to_vec(), now))
    })
}

#[test]
fn a_seed_is_a_run_and_another_another() {
    let (digest, deliveries, now) = run(7, 12, 40);
    assert!(deliveries.len() > 12 * 40, "{}", deliveries.len());
    let again = run(7, 12, 40);
    if let Some(at) = (0..deliveries.len()).find(|at| deliveries.get(*at) != again.1.get(*at)) {
        panic!("delivery {at} was {:?}, then {:?}", deliveries[at], again.1.get(at));
    }
    assert_eq!(again, (digest, deliveries.clone(), now));
    let other = run(8, 12, 40);
    assert_ne!(other.0, digest);
    // The ends of two runs may fall on the same microsecond.
    assert_ne!(other.1, deliveries);
}

#[test]
fn two_hundred_nodes() {
    let (size, rounds) = (200, 20);
    let began = Instant::now();
    let (model, arrived) =
        chunkcomm_simulation::run(network(7, size, LinkSpec::ETHERNET_1G), async |simulation| {
            let members = ring(&simulation, size).await;
            let items = exchange(members, rounds).await;
            assert_eq!(items, (0..size).map(items_of).sum::<usize>() * rounds as usize);
            (simulation.now(), simulation.with(|network, _| network.deliveries().len()))
        });
    println!("{size} nodes, {arrived} deliveries, {model:?} of the model in {:?}", began.elapsed());
    assert!(arrived > size * rounds as usize);
}

/// Most bytes that the model needs for a host and its connection, beside those of the programs.
#[cfg(target_os = "linux")]
const HOST_BYTES_MAX: usize = 200 * 1024;

/// Bytes of memory that this process has now.
#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A thousand hosts, each with a connection to the first over which 100 KiB were sent. Measured in a
/// process of its own, whose memory no other test uses.
#[test]
#[cfg(target_os = "linux")]
fn a_host_needs_little_memory() {
    const ALONE: &str = "CHUNKCOMM_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = chunkcomm_testkit::itself("crowd::a_host_needs_little_memory");
        assert!(alone.arg("--nocapture").env(ALONE, "1").status().unwrap().success());
        return;
    }
    use chunkcomm_proto::Time;
    use chunkcomm_simulation::Event;
    const HOSTS: usize = 1000;
    let before = resident_bytes();
    let mut network = Network::new(1);
    let hosts: Vec<_> = (0..HOSTS).map(|at| network.add_host(&format!("h{at}"))).collect();
    network.switch(&hosts, LinkSpec::default());
    network.listen(hosts[0], 80).unwrap();
    for host in &hosts[1..] {
        network.dial(Time(0), *host, hosts[0], 80).unwrap();
    }
    let mut buffer = vec![0; 1 << 20];
    let mut read = 0;
    while let Some((now, event)) = network.next_event() {
        match event {
            Event::Connected(end) => {
                assert_eq!(network.write(now, end, &[7; 100 << 10]).unwrap(), 100 << 10);
            }
            Event::Readable(end) => {
                if let chunkcomm_simulation::Read::Bytes(count) =
                    network.read(now, end, &mut buffer).unwrap()
                {
                    read += count;
                }
            }
            _ => {}
        }
    }
    assert_eq!(read, (HOSTS - 1) * (100 << 10));
    let each = resident_bytes().saturating_sub(before) / HOSTS;
    println!("{each} bytes a host");
    assert!(each <= HOST_BYTES_MAX, "{each} bytes a host");
}
