//! The idiom of PVM: tasks, their messages, groups and hosts, in virtual time and in real processes.

use super::example::Example;
use super::virtual_cluster::switched;
use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::process::Failure;
use chunkcomm_cluster::{Cluster, ClusterConfig, Registry};
use chunkcomm_coupled::models::pvm::{Message, Pvm, Task, Tid, What, serve, task};
use chunkcomm_simulation::{HostId, LinkSpec, Network, Simulation, check, each_seed, run};
use chunkcomm_testkit::itself;
use chunkcomm_testkit::random::seeded;
use serde::{Deserialize, Serialize};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

/// Tags of orders to a puppet, and of its answers; others are of the messages that they are about.
const ORDER: i32 = 1000;
const DONE: i32 = 1001;

/// Time between two messages of a schedule: each has arrived when the next is sent.
const STEP: Duration = Duration::from_millis(20);

/// An order to a task, which then says how it went.
#[derive(Clone, Serialize, Deserialize)]
enum Order {
    Join,
    Leave,
    Instance(Tid),
    Barrier(u32),
    Cast(i32, u64),
    Hear(i32),
    Fail,
}

#[derive(Clone)]
struct Tasks {
    /// Does what it is told.
    puppet: Task<()>,
    /// Sends numbered messages to its parent with these tags, each at its step.
    sender: Task<Vec<(u32, i32)>>,
    /// Sends that many messages of that many bytes.
    flood: Task<(u32, usize)>,
}

impl Tasks {
    fn new(registry: &mut Registry) -> Tasks {
        Tasks {
            puppet: task(registry, "puppet", |pvm, ()| puppet(pvm)),
            sender: task(registry, "sender", |mut pvm, schedule: Vec<(u32, i32)>| async move {
                let (begun, to) = (Instant::now(), pvm.parent.unwrap());
                for (number, tag) in schedule {
                    host::sleep_until(begun + STEP * number).await;
                    pvm.send(to, tag, &number).await?;
                }
                pvm.recv(Some(to), None).await.map(drop)
            }),
            flood: task(registry, "flood", |mut pvm, (count, bytes): (u32, usize)| async move {
                let to = pvm.parent.unwrap();
                for number in 0..count {
                    pvm.send(to, 1, &(number, vec![0_u8; bytes])).await?;
                }
                pvm.send(to, 2, &count).await?;
                pvm.recv(Some(to), None).await.map(drop)
            }),
        }
    }
}

async fn puppet(mut pvm: Pvm) -> Result<(), Failure> {
    let to = pvm.parent.unwrap();
    loop {
        let order = pvm.recv(Some(to), Some(ORDER)).await?.value.unpack()?;
        let done = match order {
            Order::Join => pvm.joingroup("g").await.map(|it| it.to_string()),
            Order::Leave => pvm.lvgroup("g").await.map(|()| "left".to_owned()),
            Order::Instance(tid) => pvm.getinst("g", tid).await.map(|it| format!("{it:?}")),
            Order::Barrier(count) => pvm.barrier("g", count).await.map(|()| "passed".to_owned()),
            Order::Cast(tag, value) => {
                pvm.bcast("g", tag, &value).await.map(|()| "cast".to_owned())
            }
            Order::Hear(tag) => {
                let message = pvm.recv(None, Some(tag)).await?;
                message.value.unpack::<u64>().map(|it| it.to_string())
            }
            Order::Fail => return Err(Failure::new("as it was told")),
        };
        pvm.send(to, DONE, &done.unwrap_or_else(|error| error.to_string())).await?;
    }
}

/// Gives an order.
async fn tell(pvm: &mut Pvm, to: Tid, order: Order) {
    pvm.send(to, ORDER, &order).await.unwrap();
}

/// Returns how the order of a task went.
async fn done(pvm: &mut Pvm, of: Tid) -> String {
    pvm.recv(Some(of), Some(DONE)).await.unwrap().value.unpack().unwrap()
}

/// Gives an order and returns how it went.
async fn does(pvm: &mut Pvm, to: Tid, order: Order) -> String {
    tell(pvm, to, order).await;
    done(pvm, to).await
}

/// Runs a node: the master on rank 0, tasks on others.
async fn node<F: Future<Output = ()>>(master: impl FnOnce(Cluster, Tasks) -> F) {
    let mut registry = Registry::new();
    let tasks = Tasks::new(&mut registry);
    let cluster = Cluster::join(ClusterConfig::new().registry(&registry)).await.unwrap();
    if cluster.rank() > 0 {
        return end_served(&cluster).await;
    }
    master(cluster.clone(), tasks).await;
    cluster.finish();
    // An error names the nodes that died.
    let _ = cluster.end(DEADLINE).await;
}

async fn end_served(cluster: &Cluster) {
    serve(cluster).await.unwrap();
    let _ = cluster.end(DEADLINE).await;
}

/// Runs the master on the first host, and nodes for its tasks on the others.
fn play<F>(
    (network, hosts): (Network, Vec<HostId>),
    master: impl Fn(Simulation, Cluster, Tasks) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    run(network, async |simulation| launch(simulation, &hosts, master).await);
}

async fn launch<F>(
    simulation: Simulation,
    hosts: &[HostId],
    master: impl Fn(Simulation, Cluster, Tasks) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let nodes = simulation.launch(hosts, |_| {
        let (master, simulation) = (master.clone(), simulation.clone());
        node(move |cluster, tasks| master(simulation, cluster, tasks))
    });
    for (rank, node) in nodes.into_iter().enumerate() {
        // Others may have been killed.
        let ended = node.await;
        assert!(rank > 0 || ended.is_ok(), "{ended:?}");
    }
}

fn lan(seed: u64, hosts: usize) -> (Network, Vec<HostId>) {
    switched(seed, hosts, LinkSpec::default())
}

/// The task that a notification is about.
fn gone(message: &Message) -> Tid {
    message.value.unpack().unwrap()
}

/// Messages of a schedule: sender and tag of each, by its step.
fn schedule(seed: u64) -> Vec<(usize, i32)> {
    let mut random = seeded(seed);
    (0..40).map(|_| (random.below(3) as usize, random.below(3) as i32)).collect()
}

/// Receives at random, each time when one message more has arrived, and compares with a list of those that are there.
async fn receives_at_random(seed: u64, cluster: Cluster, tasks: Tasks) {
    let schedule = schedule(seed);
    let mut random = seeded(seed + 1000);
    let mut pvm = Pvm::enroll(&cluster).await.unwrap();
    let mut tids = Vec::new();
    let begun = Instant::now();
    for sender in 0..3 {
        let own = schedule.iter().enumerate().filter(|(_, it)| it.0 == sender);
        let own: Vec<(u32, i32)> = own.map(|(at, it)| (at as u32 + 10, it.1)).collect();
        tids.extend(pvm.spawn(&tasks.sender, 1, None, &own).await.unwrap());
    }
    assert!(begun.elapsed() < STEP * 5, "the tasks begin together");
    let mut waits: Vec<usize> = Vec::new();
    let fits = |at: usize, from: Option<Tid>, tag: Option<i32>| {
        let (sender, its) = schedule[at];
        from.is_none_or(|from| from == tids[sender]) && tag.is_none_or(|tag| tag == its)
    };
    let mut next = 0;
    let now = || ((begun.elapsed().as_millis() / STEP.as_millis()) as usize).saturating_sub(10);
    while next < schedule.len() || !waits.is_empty() {
        // All before this moment have arrived.
        if now() <= next && next < schedule.len() {
            host::sleep_until(begun + STEP * (next as u32 + 10) + STEP * 9 / 10).await;
        }
        let arrived = (now() + 1).min(schedule.len());
        waits.extend(next..arrived);
        next = next.max(arrived);
        let from = (random.below(2) == 0).then(|| tids[random.below(3) as usize]);
        let tag = (random.below(2) == 0).then(|| random.below(3) as i32);
        let expected = waits.iter().position(|&at| fits(at, from, tag));
        let number = |message: &Message| {
            let number = message.value.unpack::<u32>().unwrap() as usize - 10;
            assert_eq!((message.from, message.tag), (tids[schedule[number].0], schedule[number].1));
            number
        };
        match random.below(4) {
            0 => {
                let found = pvm.probe(from, tag).map(number);
                assert_eq!(found, expected.map(|at| waits[at]), "seed {seed}");
            }
            1 if expected.is_none() => {
                let found = host::timeout(Duration::from_micros(10), pvm.recv(from, tag)).await;
                assert!(found.is_err(), "seed {seed}");
            }
            2 if expected.is_none() => {
                // The first that comes.
                let Some(first) = (next..schedule.len()).find(|&at| fits(at, from, tag)) else {
                    continue;
                };
                assert_eq!(number(&pvm.recv(from, tag).await.unwrap()), first, "seed {seed}");
                waits.extend(next..first);
                next = first + 1;
            }
            _ => {
                let found = pvm.nrecv(from, tag).as_ref().map(number);
                assert_eq!(found, expected.map(|at| waits.remove(at)), "seed {seed}");
            }
        }
    }
    pvm.mcast(&tids, 0, &()).await.unwrap();
}

#[test]
fn receives_take_the_first_that_fits() {
    each_seed(0..20, |seed| {
        play(lan(seed, 4), move |_, cluster, tasks| receives_at_random(seed, cluster, tasks));
    });
}

#[test]
fn groups_and_barriers() {
    play(lan(1, 3), |_, cluster, tasks| async move {
        let mut pvm = Pvm::enroll(&cluster).await.unwrap();
        let tids = pvm.spawn(&tasks.puppet, 4, None, &()).await.unwrap();
        assert_eq!(tids[0].host.rank + tids[1].host.rank, 3, "in turn, and not here");
        for (instance, &tid) in tids.iter().enumerate() {
            assert_eq!(does(&mut pvm, tid, Order::Join).await, instance.to_string());
        }
        let twice = does(&mut pvm, tids[2], Order::Join).await;
        assert_eq!(twice, format!("group \"g\": {} is its member 2 already", tids[2]));
        assert_eq!(pvm.gsize("g").await.unwrap(), 4);
        assert_eq!(pvm.gettid("g", 3).await.unwrap(), Some(tids[3]));
        assert_eq!(does(&mut pvm, tids[0], Order::Instance(tids[1])).await, "Some(1)");
        // The lowest number is free again.
        assert_eq!(does(&mut pvm, tids[1], Order::Leave).await, "left");
        assert_eq!(pvm.getinst("g", tids[1]).await.unwrap(), None);
        assert_eq!(pvm.joingroup("g").await.unwrap(), 1);
        assert_eq!(does(&mut pvm, tids[1], Order::Join).await, "4");

        // All members but the one that casts.
        assert_eq!(does(&mut pvm, tids[0], Order::Cast(5, 55)).await, "cast");
        assert_eq!(
            pvm.recv(Some(tids[0]), Some(5)).await.unwrap().value.unpack::<u64>().unwrap(),
            55
        );
        for &tid in &tids[1..] {
            assert_eq!(does(&mut pvm, tid, Order::Hear(5)).await, "55");
        }
        pvm.mcast(&tids, 6, &66_u64).await.unwrap();
        for &tid in &tids {
            assert_eq!(does(&mut pvm, tid, Order::Hear(6)).await, "66");
        }

        for &tid in &tids {
            tell(&mut pvm, tid, Order::Barrier(5)).await;
        }
        host::sleep(Duration::from_secs(1)).await;
        assert!(pvm.probe(None, Some(DONE)).is_none(), "four of five have come");
        let other = pvm.barrier("g", 4).await.unwrap_err().to_string();
        assert_eq!(other, "group \"g\": others wait for 5 members, not 4");
        pvm.barrier("g", 5).await.unwrap();
        for &tid in &tids {
            assert_eq!(done(&mut pvm, tid).await, "passed");
        }
        assert_eq!(does(&mut pvm, tids[0], Order::Leave).await, "left");
        let stranger = does(&mut pvm, tids[0], Order::Barrier(2)).await;
        assert_eq!(stranger, format!("group \"g\": {} is not its member", tids[0]));
    });
}

/// Many tasks of rank 0 enroll at once, and one server of groups starts. A question that waits when its server stops
/// is an error.
#[test]
fn the_server_of_groups_is_one_and_its_end_is_told() {
    play(lan(8, 2), |_, cluster, tasks| async move {
        let enroll = || {
            let cluster = cluster.clone();
            host::spawn(async move { Pvm::enroll(&cluster).await.unwrap().joingroup("g").await })
        };
        let mut instances = Vec::new();
        for enrolled in [(); 8].map(|()| enroll()) {
            instances.push(enrolled.await.unwrap().unwrap());
        }
        instances.sort_unstable();
        assert_eq!(instances, (0..8).collect::<Vec<u32>>());
        let mut pvm = Pvm::enroll(&cluster).await.unwrap();
        let tid = pvm.spawn(&tasks.puppet, 1, Some(1), &()).await.unwrap()[0];
        assert!(does(&mut pvm, tid, Order::Join).await.parse::<u32>().is_ok());
        tell(&mut pvm, tid, Order::Barrier(9)).await;
        host::sleep(Duration::from_secs(1)).await;
        cluster.withdraw("pvm groups");
        let told = done(&mut pvm, tid).await;
        assert_eq!(told, "group \"g\": rank 0 provides it no longer");
    });
}

/// Each member hears of a death at a barrier once, wherever it was, and then they meet.
#[test]
fn a_barrier_with_a_death_is_an_error() {
    for kills in [false, true] {
        let (network, hosts) = lan(2, 4);
        let dies = hosts[3];
        play((network, hosts), move |simulation, cluster, tasks| async move {
            let mut pvm = Pvm::enroll(&cluster).await.unwrap();
            let mut tids = Vec::new();
            for rank in 1..4 {
                tids.extend(pvm.spawn(&tasks.puppet, 1, Some(rank), &()).await.unwrap());
                assert_eq!(
                    does(&mut pvm, tids[tids.len() - 1], Order::Join).await,
                    (rank - 1).to_string()
                );
            }
            tell(&mut pvm, tids[0], Order::Barrier(3)).await;
            host::sleep(Duration::from_secs(1)).await;
            if kills {
                simulation.kill(dies);
            } else {
                tell(&mut pvm, tids[2], Order::Fail).await;
            }
            let error = format!("group \"g\": its member {} has ended", tids[2]);
            assert_eq!(done(&mut pvm, tids[0]).await, error);
            assert_eq!(does(&mut pvm, tids[1], Order::Barrier(3)).await, error);
            assert_eq!(pvm.gsize("g").await.unwrap(), 2);
            tell(&mut pvm, tids[0], Order::Barrier(2)).await;
            assert_eq!(does(&mut pvm, tids[1], Order::Barrier(2)).await, "passed");
            assert_eq!(done(&mut pvm, tids[0]).await, "passed");
            // The number is free.
            assert_eq!(pvm.joingroup("g").await.unwrap(), 2);
        });
    }
}

#[test]
fn ends_of_tasks_are_notified_and_sends_to_them_fail() {
    let (network, hosts) = lan(3, 4);
    let dies = hosts[2];
    play((network, hosts), move |simulation, cluster, tasks| async move {
        let mut pvm = Pvm::enroll(&cluster).await.unwrap();
        let fails = pvm.spawn(&tasks.puppet, 1, Some(1), &()).await.unwrap()[0];
        let killed = pvm.spawn(&tasks.puppet, 1, Some(2), &()).await.unwrap()[0];
        let here = pvm.spawn(&tasks.puppet, 1, Some(0), &()).await.unwrap()[0];
        for (tag, tid) in [(1, fails), (2, killed), (3, here)] {
            pvm.notify(What::TaskExit(tid), tag);
        }
        pvm.notify(What::HostDelete, 4);
        host::sleep(Duration::from_secs(1)).await;
        assert!(pvm.probe(None, None).is_none(), "all run");
        tell(&mut pvm, fails, Order::Fail).await;
        assert_eq!(gone(&pvm.recv(None, None).await.unwrap()), fails);
        tell(&mut pvm, here, Order::Fail).await;
        let message = pvm.recv(None, None).await.unwrap();
        assert_eq!((message.from, message.tag, gone(&message)), (pvm.tid, 3, here));
        simulation.kill(dies);
        assert_eq!(gone(&pvm.recv(None, Some(2)).await.unwrap()), killed);
        assert_eq!(pvm.recv(None, Some(4)).await.unwrap().value.unpack::<u32>().unwrap(), 2);
        // At once, when it has happened.
        for tid in [fails, killed, here] {
            pvm.notify(What::TaskExit(tid), 5);
            let message = host::timeout(Duration::from_millis(10), pvm.recv(None, Some(5))).await;
            assert_eq!(gone(&message.unwrap().unwrap()), tid);
            let sent = async { while pvm.send(tid, ORDER, &Order::Join).await.is_ok() {} };
            host::timeout(Duration::from_secs(1), sent).await.expect("an error");
        }
        let error = pvm.spawn(&tasks.puppet, 1, Some(2), &()).await.unwrap_err().to_string();
        assert!(error.contains("rank 2"), "{error}");
    });
}

#[test]
fn another_type_is_an_error_that_names_both() {
    play(lan(4, 2), |_, cluster, tasks| async move {
        let mut pvm = Pvm::enroll(&cluster).await.unwrap();
        let own = pvm.tid;
        pvm.send(own, 1, &7_u32).await.unwrap();
        let message = pvm.recv(None, None).await.unwrap();
        let error = message.value.unpack::<String>().unwrap_err().to_string();
        assert_eq!(error, "the value is of type u32, not alloc::string::String");
        assert_eq!(message.value.unpack::<u32>().unwrap(), 7);
        assert!(pvm.send(own, 1, &vec![(), ()]).await.is_err());
        drop(tasks);
    });
}

/// A task that does not receive keeps its sender waiting; a receive that nothing fits does not.
#[test]
fn a_mailbox_is_bounded_until_a_receive_needs_more() {
    const COUNT: u32 = 5_000;
    play(lan(5, 2), |_, cluster, tasks| async move {
        let mut pvm = Pvm::enroll(&cluster).await.unwrap();
        let tid = pvm.spawn(&tasks.flood, 1, Some(1), &(COUNT, 4096)).await.unwrap()[0];
        host::sleep(Duration::from_secs(60)).await;
        let received = cluster.peer(1).await.unwrap().stats().messages_received;
        assert!((50..2_000).contains(&received), "{received} messages came");
        let last = pvm.recv(None, Some(2)).await.unwrap();
        assert_eq!(last.value.unpack::<u32>().unwrap(), COUNT);
        for number in 0..COUNT {
            let message = pvm.nrecv(Some(tid), None).unwrap();
            assert_eq!(message.value.unpack::<(u32, Vec<u8>)>().unwrap().0, number);
        }
        pvm.send(tid, 0, &()).await.unwrap();
    });
}

#[test]
fn a_receive_is_explained() {
    play(lan(6, 2), |_, cluster, tasks| async move {
        let mut pvm = Pvm::enroll(&cluster).await.unwrap();
        let (own, tid) = (pvm.tid, pvm.spawn(&tasks.puppet, 1, Some(1), &()).await.unwrap()[0]);
        for tag in [8, 9] {
            pvm.send(own, tag, &()).await.unwrap();
        }
        let received = host::timeout(Duration::from_secs(3), pvm.recv(Some(tid), Some(7)));
        let explained = async {
            host::sleep(Duration::from_secs(2)).await;
            cluster.node().explain().await
        };
        let (received, explained) = tokio::join!(received, explained);
        assert!(received.is_err());
        let wait = |text: &str| explained.waits.iter().find(|wait| wait.what.contains(text));
        let wanted = wait(&format!("a message from {tid} with tag 7 for {own}")).unwrap();
        assert_eq!(wanted.since.as_secs(), 2);
        assert!(wait("to receive 2 others: 8 from ").is_some(), "{explained}");
    });
}

/// A host joins the machine while it runs, works, and is deleted.
async fn hosts_come_and_go(simulation: Simulation, late: HostId, cluster: Cluster, tasks: Tasks) {
    let mut pvm = Pvm::enroll(&cluster).await.unwrap();
    pvm.notify(What::HostAdd, 1);
    pvm.notify(What::HostDelete, 2);
    let manager = cluster.member(0).unwrap().addresses[0].clone();
    simulation.set_variables(late, [("CHUNKCOMM_MANAGER", manager)]);
    let joins = simulation.spawn_on(late, node(async |_, _| unreachable!("rank 0 is there")));
    let rank: u32 = pvm.recv(None, Some(1)).await.unwrap().value.unpack().unwrap();
    assert_eq!((rank, cluster.members().len()), (2, 3));
    let tid = pvm.spawn(&tasks.puppet, 1, Some(rank), &()).await.unwrap()[0];
    assert_eq!(does(&mut pvm, tid, Order::Join).await, "0");
    pvm.notify(What::TaskExit(tid), 3);
    pvm.delhosts(&[rank]).await.unwrap();
    joins.await.unwrap();
    assert_eq!(gone(&pvm.recv(None, Some(3)).await.unwrap()), tid);
    assert_eq!(pvm.recv(None, Some(2)).await.unwrap().value.unpack::<u32>().unwrap(), rank);
    assert_eq!((pvm.gsize("g").await.unwrap(), cluster.members().len()), (0, 2));
    let error = pvm.delhosts(&[0]).await.unwrap_err().to_string();
    assert!(error.contains("leave"), "{error}");
    assert!(pvm.delhosts(&[9]).await.unwrap_err().to_string().contains("rank 9"));
}

#[test]
fn hosts_come_and_go_in_virtual_time() {
    let (network, mut hosts) = lan(7, 3);
    let late = hosts.pop().unwrap();
    play((network, hosts), move |simulation, cluster, tasks| {
        hosts_come_and_go(simulation, late, cluster, tasks)
    });
}

#[test]
fn a_seed_is_one_run() {
    for seed in [1, 2] {
        // The same numbers in each network.
        let hosts = lan(seed, 4).1;
        let dies = hosts[3];
        let ran = check(
            || lan(seed, 4).0,
            async |simulation| {
                launch(simulation, &hosts, move |simulation, cluster, tasks| async move {
                    receives_at_random(seed, cluster.clone(), tasks.clone()).await;
                    let mut pvm = Pvm::enroll(&cluster).await.unwrap();
                    let tids = pvm.spawn(&tasks.puppet, 3, None, &()).await.unwrap();
                    for &tid in &tids {
                        tell(&mut pvm, tid, Order::Join).await;
                    }
                    for &tid in &tids {
                        done(&mut pvm, tid).await;
                        tell(&mut pvm, tid, Order::Barrier(4)).await;
                    }
                    simulation.kill(dies);
                    for _ in 0..2 {
                        pvm.recv(None, Some(DONE)).await.unwrap();
                    }
                })
                .await;
            },
        );
        ran.unwrap();
    }
}

/// Variable of the processes of a test's cluster.
const INNER: &str = "CHUNKCOMM_TEST_INNER";

/// Runs a test as a cluster of this number of real processes: in one that it starts here, and in its copies.
#[cfg(unix)]
fn in_processes<F: Future<Output = ()>>(
    name: &str,
    count: u32,
    master: impl FnOnce(Cluster, Tasks) -> F,
) {
    if std::env::var_os(INNER).is_none() {
        let output = itself(name).env(INNER, "1").output().unwrap();
        let (told, printed) = (output.stderr, output.stdout);
        let text = String::from_utf8_lossy(&[told, printed].concat()).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut registry = Registry::new();
        let tasks = Tasks::new(&mut registry);
        let config = ClusterConfig::new().nodes(count).registry(&registry);
        let cluster = Cluster::join(config).await.unwrap();
        if cluster.rank() > 0 {
            return end_served(&cluster).await;
        }
        let played = host::timeout(DEADLINE, master(cluster.clone(), tasks)).await;
        if played.is_err() {
            panic!("{}", cluster.node().explain().await);
        }
        cluster.finish();
        let _ = cluster.end(DEADLINE).await;
    });
}

#[cfg(unix)]
#[test]
fn a_killed_process_is_notified() {
    use chunkcomm_testkit::proc;
    use rustix::process::Signal;
    in_processes("pvm::a_killed_process_is_notified", 3, |cluster, tasks| async move {
        let mut pvm = Pvm::enroll(&cluster).await.unwrap();
        let tids = pvm.spawn(&tasks.puppet, 4, None, &()).await.unwrap();
        for &tid in &tids {
            assert!(does(&mut pvm, tid, Order::Join).await.parse::<u32>().is_ok());
            pvm.notify(What::TaskExit(tid), 1);
        }
        pvm.notify(What::HostDelete, 2);
        let (dies, lives): (Vec<Tid>, Vec<Tid>) = tids.iter().partition(|tid| tid.host.rank == 2);
        assert_eq!((dies.len(), lives.len()), (2, 2));
        tell(&mut pvm, lives[0], Order::Barrier(4)).await;
        proc::signal(cluster.member(2).unwrap().pid, Signal::KILL);
        let mut ended = [pvm.recv(None, Some(1)).await, pvm.recv(None, Some(1)).await]
            .map(|message| gone(&message.unwrap()));
        ended.sort_unstable();
        let mut sorted = dies.clone();
        sorted.sort_unstable();
        assert_eq!(ended.to_vec(), sorted);
        assert_eq!(pvm.recv(None, Some(2)).await.unwrap().value.unpack::<u32>().unwrap(), 2);
        let barrier = done(&mut pvm, lives[0]).await;
        assert!(dies.iter().any(|tid| barrier.contains(&tid.to_string())), "{barrier}");
        // The last end that each has not been told of.
        while pvm.gsize("g").await.unwrap() > 2 {
            host::sleep(Duration::from_millis(1)).await;
        }
        let told = does(&mut pvm, lives[1], Order::Barrier(2)).await;
        assert!(dies.iter().all(|tid| told.contains(&tid.to_string())), "{told}");
    });
}

#[cfg(unix)]
#[test]
fn processes_are_added_and_deleted() {
    const NAME: &str = "pvm::processes_are_added_and_deleted";
    in_processes(NAME, 2, |cluster, tasks| async move {
        let mut pvm = Pvm::enroll(&cluster).await.unwrap();
        pvm.notify(What::HostAdd, 1);
        pvm.notify(What::HostDelete, 2);
        let ranks = pvm.addhosts(vec![itself(NAME), itself(NAME)]).await.unwrap();
        assert_eq!(ranks, [2, 3]);
        for rank in &ranks {
            let told: u32 = pvm.recv(None, Some(1)).await.unwrap().value.unpack().unwrap();
            assert_eq!(told, *rank);
            let tid = pvm.spawn(&tasks.puppet, 1, Some(*rank), &()).await.unwrap()[0];
            assert_eq!(does(&mut pvm, tid, Order::Join).await, (rank - 2).to_string());
        }
        pvm.delhosts(&ranks).await.unwrap();
        for rank in ranks {
            assert_eq!(pvm.recv(None, Some(2)).await.unwrap().value.unpack::<u32>().unwrap(), rank);
        }
        assert_eq!(cluster.members().len(), 2);
        let ended = std::process::Command::new("false");
        let error = pvm.addhosts(vec![ended]).await.unwrap_err().to_string();
        assert!(error.starts_with("the program ended before it joined: exit status: 1"), "{error}");
    });
}

const MODELS: Example = Example { name: "models" };

/// Runs the farm of the models and returns its standard output and error.
fn farms(name: &str, options: &[&str]) -> (String, String) {
    let file = format!("{}/pvm-{name}.png", env!("CARGO_TARGET_TMPDIR"));
    let common = ["--idiom=pvm", "--size=60x40", "--sequential-check", "--no-progress", "--output"];
    let mut command = MODELS.command(&[&common[..], &[&file], options].concat());
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(out.contains("equal to the sequential picture"), "{options:?}: {out}{err}");
    (out, err)
}

#[test]
fn the_farm_renders_the_picture() {
    for model in ["a", "b"] {
        for buffering in ["on", "off"] {
            let options = ["--model", model, "--double-buffering", buffering, "--nodes", "3"];
            farms("real", &options);
            let options = [&options[..], &["--lan", "virtual:lan-1g"]].concat();
            let run = || {
                let (out, err) = farms("virtual", &options);
                (out, err.rsplit("digest ").next().unwrap().to_owned())
            };
            assert_eq!(run(), run());
        }
    }
}
