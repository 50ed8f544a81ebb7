//! The operations of `chunkcomm_coupled::models::sr`, in virtual time and between processes.

use super::models::MODELS;
use super::virtual_cluster::{join, on_each, switched};
use chunkcomm::host;
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NameError;
use chunkcomm_coupled::models::sr::{Capability, Invocation, Operation, Resource, Semaphore};
use chunkcomm_simulation::{LinkSpec, each_seed, run};
use chunkcomm_testkit::random::Random;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

/// Runs `program` on each of this many hosts, twice the same; returns its results by rank.
fn twice<R, F>(
    seed: u64,
    count: usize,
    program: impl Fn(usize, Cluster) -> F + Clone + Send + 'static,
) -> Vec<R>
where
    R: Debug + PartialEq + Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let once = || {
        let (network, hosts) = switched(seed, count, LinkSpec::default());
        run(network, async |simulation| {
            let ranks = simulation.launch(&hosts, |rank| {
                let program = program.clone();
                async move {
                    let cluster = join().await;
                    let result = program(rank, cluster.clone()).await;
                    cluster.end(DEADLINE).await.unwrap();
                    result
                }
            });
            let mut results = Vec::new();
            for rank in ranks {
                results.push(rank.await.unwrap());
            }
            (results, simulation.with(|network, _| network.digest()))
        })
    };
    let first = once();
    assert_eq!(once(), first, "seed {seed} twice");
    first.0
}

async fn capability<A, O>(cluster: &Cluster, name: &str) -> Capability<A, O>
where
    A: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
    O: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    Capability::find(cluster, name).await.unwrap()
}

/// Waits until this many invocations of an operation wait.
async fn until_waiting<A: Send, O: Send>(operation: &Operation<A, O>, count: usize) {
    while operation.waiting() != count {
        host::sleep(MS).await;
    }
}

enum Buffer {
    Put(Invocation<u64, ()>),
    Get(Invocation<u64, u64>),
}

const ROOM: usize = 3;

/// Holds numbers until somebody gets one of their kind: the remainder by 2.
async fn buffer(resource: Resource, put: Operation<u64, ()>, get: Operation<u64, u64>) -> usize {
    let (mut held, mut most) = (VecDeque::<u64>::new(), 0);
    loop {
        let find = |kind: &u64| held.iter().position(|it| it % 2 == *kind);
        let put = put.arm(Buffer::Put, |_| (held.len() < ROOM).then_some(0));
        let get = get.arm(Buffer::Get, |kind| find(kind).map(|_| 0));
        match resource.accept([put, get]).await {
            Ok(Buffer::Put(mut it)) => {
                held.push_back(it.args);
                it.reply(()).unwrap();
            }
            Ok(Buffer::Get(mut it)) => {
                let at = held.iter().position(|held| held % 2 == it.args);
                it.reply(held.remove(at.expect("the guard held")).unwrap()).unwrap();
            }
            Err(_) => return most, // all are done
        }
        most = most.max(held.len());
        assert!(most <= ROOM, "{most} are held");
    }
}

/// Two producers, and a consumer of each kind.
#[test]
fn a_bounded_buffer_is_full_at_times_and_never_more() {
    let full = Arc::new(AtomicUsize::new(0));
    each_seed(0..10, |seed| {
        let full = Arc::clone(&full);
        let results = twice(seed, 5, move |rank, cluster| {
            let full = Arc::clone(&full);
            async move {
                let mut random = Random::fork(seed, rank as u64);
                let mut taken = Vec::new();
                match rank {
                    0 => {
                        let resource = Resource::create(&cluster);
                        let put = resource.operation("buffer.put").await.unwrap();
                        let get = resource.operation("buffer.get").await.unwrap();
                        host::spawn(async move {
                            let most = buffer(resource, put, get).await;
                            full.fetch_add(usize::from(most == ROOM), SeqCst);
                        });
                    }
                    1 | 2 => {
                        let put = capability::<u64, ()>(&cluster, "buffer.put").await;
                        for number in 0..20 {
                            host::sleep(MS * random.below(6) as u32).await;
                            put.call(1000 * rank as u64 + number).await.unwrap();
                        }
                    }
                    _ => {
                        let get = capability::<u64, u64>(&cluster, "buffer.get").await;
                        for _ in 0..20 {
                            host::sleep(MS * random.below(6) as u32).await;
                            taken.push(get.call(rank as u64 % 2).await.unwrap());
                        }
                    }
                }
                taken
            }
        });
        for (rank, taken) in results.iter().enumerate().skip(3) {
            for producer in [1000, 2000] {
                let from = taken.iter().filter(|it| **it / 1000 * 1000 == producer);
                let expected =
                    (0..20).map(|it| producer + it).filter(|it| it % 2 == rank as u64 % 2);
                assert!(from.copied().eq(expected), "seed {seed}, rank {rank}: {taken:?}");
            }
        }
    });
    assert!(full.load(SeqCst) > 0, "no buffer was full");
}

/// An invocation of the test of the choice: its operation, its priority and its age.
type Sent = (usize, i64, u64);

fn sent(seed: u64) -> Vec<Sent> {
    let mut random = Random::new(seed);
    (0..40).map(|age| (random.below(4) as usize, random.below(5) as i64 - 2, age)).collect()
}

/// One caller sends to four operations. Their owner accepts with guards that change, the last operation
/// without a priority, and the least of all arms comes first, the oldest of equal ones.
#[test]
fn the_choice_is_that_of_a_model() {
    each_seed(0..10, |seed| {
        twice(seed, 2, move |rank, cluster| async move {
            let names = ["a", "b", "c", "d"];
            if rank == 1 {
                let mut operations = Vec::new();
                for name in names {
                    operations.push(capability::<(i64, u64), ()>(&cluster, name).await);
                }
                for (operation, priority, age) in sent(seed) {
                    operations[operation].send((priority, age)).await.unwrap();
                }
                cluster.barrier().await.unwrap();
                return;
            }
            let resource = Resource::create(&cluster);
            let mut operations = Vec::new();
            for name in names {
                operations.push(resource.operation::<(i64, u64), ()>(name).await.unwrap());
            }
            cluster.barrier().await.unwrap();
            let (mut model, mut random) = (sent(seed), Random::fork(seed, 1));
            assert_eq!(operations.iter().map(Operation::waiting).sum::<usize>(), model.len());
            for round in 0.. {
                // Later rounds have no false guard.
                let closed = if round < 100 { random.below(7) } else { 7 };
                let fits = |it: &Sent| (it.2 % 7 + it.0 as u64) % 7 != closed && it.2 % 2 <= closed;
                let priority = |it: &Sent| if it.0 == 3 { 0 } else { it.1 };
                let first = (0..model.len()).filter(|at| fits(&model[*at]));
                let first = first.min_by_key(|at| (priority(&model[*at]), *at));
                let arms: Vec<_> = (operations.iter().enumerate())
                    .map(|(at, operation)| {
                        let it = move |args: &(i64, u64)| (at, args.0, args.1);
                        operation.arm(
                            move |accepted| (at, accepted.args.0, accepted.args.1),
                            move |args| Some(priority(&it(args))).filter(|_| fits(&it(args))),
                        )
                    })
                    .collect();
                let accepted = match first {
                    Some(_) if round % 2 == 0 => Some(resource.accept(arms).await.unwrap()),
                    _ => resource.try_accept(arms),
                };
                assert_eq!(accepted, first.map(|at| model.remove(at)), "seed {seed}, {round}");
                if model.is_empty() {
                    return;
                }
            }
        });
    });
}

/// Calls and sends of one capability wait in the order in which they began. Replies come in any order.
#[test]
fn both_forms_arrive_in_order_and_replies_may_be_late() {
    twice(1, 2, |rank, cluster| async move {
        const COUNT: u64 = 40;
        if rank == 1 {
            let capability = capability::<u64, u64>(&cluster, "square").await;
            let mut invoked = Vec::new();
            for number in 0..COUNT {
                let capability = capability.clone();
                invoked.push(host::spawn(async move {
                    match number % 3 {
                        0 => capability.send(number).await.map(|()| number * number),
                        _ => capability.call(number).await,
                    }
                }));
            }
            for (number, invoked) in invoked.into_iter().enumerate() {
                assert_eq!(invoked.await.unwrap().unwrap(), (number * number) as u64);
            }
            return;
        }
        let resource = Resource::create(&cluster);
        let square = resource.operation::<u64, u64>("square").await.unwrap();
        let mut accepted = Vec::new();
        for number in 0..COUNT {
            let it = resource.accept([square.arm(|it| it, |_| Some(0))]).await.unwrap();
            assert_eq!(it.args, number);
            accepted.push(it);
        }
        for mut it in accepted.into_iter().rev() {
            let square = it.args * it.args;
            it.reply(square).unwrap();
        }
    });
}

#[test]
fn a_dropped_call_withdraws_and_guards_that_count_see_it() {
    twice(1, 2, |rank, cluster| async move {
        if rank == 1 {
            let read = capability::<u32, u32>(&cluster, "read").await;
            let write = capability::<u32, ()>(&cluster, "write").await;
            let writing = host::timeout(MS * 50, write.call(1));
            let reading = host::timeout(DEADLINE, read.call(2));
            let (written, was_read) = tokio::join!(writing, reading);
            assert!(written.is_err());
            assert_eq!(was_read.unwrap().unwrap(), 2);
            // Accepted, and dropped before the reply.
            assert!(host::timeout(MS * 50, read.call(3)).await.is_err());
            cluster.barrier().await.unwrap();
            return;
        }
        let resource = Resource::create(&cluster);
        let read = resource.operation::<u32, u32>("read").await.unwrap();
        let write = resource.operation::<u32, ()>("write").await.unwrap();
        until_waiting(&write, 1).await;
        until_waiting(&read, 1).await;
        let arms = || {
            [read.arm(Some, |_| (write.waiting() == 0).then_some(0)), write.arm(|_| None, |_| None)]
        };
        assert!(resource.try_accept(arms()).is_none());
        // A dropped accept takes nothing, and one that waits says for what.
        let accepting = host::timeout(MS * 10, resource.accept(arms()));
        let explained = async {
            host::sleep(MS * 5).await;
            cluster.node().explain().await.to_string()
        };
        let (accepted, explained) = tokio::join!(accepting, explained);
        assert!(accepted.is_err());
        let line = "waits for an invocation that fits: read (1 wait), write (1 wait), since 5 ms";
        assert!(explained.contains(line), "{explained}");
        let mut it = resource.accept(arms()).await.unwrap().unwrap();
        assert_eq!((write.waiting(), read.waiting()), (0, 0));
        it.reply(it.args).unwrap();
        let mut it = resource.accept(arms()).await.unwrap().unwrap();
        cluster.barrier().await.unwrap();
        assert_eq!(it.reply(7), Err(7), "the caller waits no more");
        assert_eq!(it.reply(8), Ok(()), "a second reply does nothing");
    });
}

#[test]
fn wrong_uses_are_errors_that_say_so() {
    twice(1, 2, |rank, cluster| async move {
        if rank == 1 {
            let dropped = capability::<u32, u32>(&cluster, "dropped").await;
            let error = dropped.call(1).await.unwrap_err().to_string();
            assert!(
                error.contains("\"dropped\" failed: the owner dropped the invocation"),
                "{error}"
            );
            let other = capability::<String, u32>(&cluster, "dropped").await;
            let error = other.call("1".to_owned()).await.unwrap_err().to_string();
            assert!(error.contains("str") && error.contains("u32"), "{error}");
            // The operation ends while this waits.
            let error = dropped.call(2).await.unwrap_err().to_string();
            assert!(
                error.contains("service \"dropped\" of ") && error.contains(" ended"),
                "{error}"
            );
            let error = dropped.send(3).await.unwrap_err().to_string();
            assert!(error.contains("has no service \"dropped\""), "{error}");
            return;
        }
        let resource = Resource::create(&cluster);
        let operation = resource.operation::<u32, u32>("dropped").await.unwrap();
        let taken = resource.operation::<u32, u32>("dropped").await;
        assert!(taken.err().unwrap().to_string().contains("has a service \"dropped\" already"));
        drop(resource.accept([operation.arm(|it| it, |_| Some(0))]).await.unwrap());
        until_waiting(&operation, 1).await;
    });
}

/// Two nodes make an operation of one name at nearly the same time: one has it, until it drops it.
#[test]
fn an_operation_has_one_owner() {
    each_seed(0..20, |seed| {
        let owned = twice(seed, 3, move |rank, cluster| async move {
            let mut random = Random::fork(seed, rank as u64);
            host::sleep(Duration::from_micros(random.below(400))).await;
            let resource = Resource::create(&cluster);
            let mine = resource.operation::<u32, u32>("one").await;
            let [owner] = cluster.providers("one")[..] else { panic!("seed {seed}") };
            let held = NameError::Held { name: "one".to_owned(), by: owner };
            match &mine {
                Ok(_) => assert_eq!(owner, cluster.id(), "seed {seed}"),
                Err(error @ NameError::Held { .. }) => assert_eq!(*error, held, "seed {seed}"),
                Err(error) => panic!("seed {seed}: {error}"),
            }
            let is_owner = mine.is_ok();
            cluster.barrier().await.unwrap();
            drop(mine);
            cluster.withdrawn("one", owner).await;
            cluster.barrier().await.unwrap();
            if rank == 2 {
                drop(resource.operation::<u32, u32>("one").await.unwrap());
            }
            is_owner
        });
        assert_eq!(owned.iter().filter(|it| **it).count(), 1, "seed {seed}");
    });
}

/// The word of the withdrawal goes by rank 0, the answer straight to its caller, over a slower link or
/// a faster one.
#[test]
fn an_answer_is_not_lost_when_its_owner_drops_the_operation_behind_it() {
    twice(1, 3, |rank, cluster| async move {
        if rank == 2 {
            let last = capability::<u32, u32>(&cluster, "last").await;
            assert_eq!(last.call(7).await.unwrap(), 8);
            // The operation that is gone has no owner that would answer.
            cluster.barrier().await.unwrap();
            let error = last.call(7).await.unwrap_err().to_string();
            assert!(error.contains("\"last\""), "{error}");
            return;
        }
        if rank == 1 {
            let resource = Resource::create(&cluster);
            let last = resource.operation::<u32, u32>("last").await.unwrap();
            let mut it = resource.accept([last.arm(|it| it, |_| Some(0))]).await.unwrap();
            let next = it.args + 1;
            it.reply(next).unwrap();
        }
        cluster.barrier().await.unwrap();
    });
}

/// The owner dies at 1 s: its callers get its name. A caller that dies withdraws.
#[test]
fn deaths_are_told_at_both_ends() {
    on_each(3, 3, &[(1, Duration::from_secs(1))], |rank, cluster| async move {
        let resource = Resource::create(&cluster);
        if rank == 1 {
            let _operation = resource.operation::<u32, u32>("mortal").await.unwrap();
            let waits = capability::<u32, u32>(&cluster, "waits").await;
            let late = capability::<u32, u32>(&cluster, "late").await;
            let _ = tokio::join!(waits.call(1), late.call(2));
            return;
        }
        let mut withdrawn = None;
        if rank == 0 {
            let waits = resource.operation::<u32, u32>("waits").await.unwrap();
            let late = resource.operation::<u32, u32>("late").await.unwrap();
            let mut accepted = resource.accept([late.arm(|it| it, |_| Some(0))]).await.unwrap();
            until_waiting(&waits, 1).await;
            withdrawn = Some(host::spawn(async move {
                until_waiting(&waits, 0).await;
                assert_eq!(accepted.reply(3), Err(3));
            }));
        }
        let mortal = capability::<u32, u32>(&cluster, "mortal").await;
        let error = mortal.call(rank as u32).await.unwrap_err().to_string();
        assert!(error.contains("service \"mortal\": ") && error.contains("rank-1"), "{error}");
        while cluster.deaths().is_empty() {
            host::sleep(MS).await;
        }
        for error in [mortal.call(4).await.map(drop), mortal.send(5).await] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("rank 1 is gone"), "{error}");
        }
        if let Some(withdrawn) = withdrawn {
            withdrawn.await.unwrap();
        }
    });
}

/// Several tasks on each node take permits, some give up; no more than the count have one, and in the
/// end all are there.
#[test]
fn a_semaphore_lets_no_more_in_and_loses_nothing() {
    each_seed(0..10, |seed| {
        const COUNT: usize = 3;
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counters = (Arc::clone(&inside), Arc::clone(&most));
        twice(seed, 4, move |rank, cluster| {
            let (inside, most) = counters.clone();
            async move {
                if rank == 0 {
                    Semaphore::create(&cluster, "rooms", COUNT as u64).await.unwrap();
                }
                let rooms = Semaphore::find(&cluster, "rooms").await.unwrap();
                let guests = (0..4).map(|guest| {
                    let (rooms, inside, most) =
                        (rooms.clone(), Arc::clone(&inside), Arc::clone(&most));
                    let mut random = Random::fork(seed, 10 * rank as u64 + guest);
                    host::spawn(async move {
                        for _ in 0..5 {
                            let patience = Duration::from_micros(500 + random.below(20_000));
                            match host::timeout(patience, rooms.p()).await {
                                Err(_) => continue,
                                Ok(granted) => granted.unwrap(),
                            }
                            let now = inside.fetch_add(1, SeqCst) + 1;
                            most.fetch_max(now, SeqCst);
                            host::sleep(MS * random.below(4) as u32).await;
                            inside.fetch_sub(1, SeqCst);
                            rooms.v().await.unwrap();
                        }
                    })
                });
                for guest in guests.collect::<Vec<_>>() {
                    guest.await.unwrap();
                }
                cluster.barrier().await.unwrap();
                if rank == 1 {
                    for _ in 0..COUNT {
                        rooms.p().await.unwrap();
                    }
                    assert!(host::timeout(MS * 100, rooms.p()).await.is_err(), "one too many");
                }
                cluster.barrier().await.unwrap();
            }
        });
        assert_eq!(most.load(SeqCst), COUNT, "seed {seed}");
    });
}

/// Dining philosophers: both forks in one guard on the arguments, so that nobody starves with one.
#[test]
fn philosophers_dine() {
    const SEATS: usize = 5;
    enum Table {
        Take(Invocation<usize, ()>),
        Leave(Invocation<usize, ()>),
    }
    each_seed(0..5, |seed| {
        let eating: Arc<Vec<AtomicUsize>> = Arc::new((0..SEATS).map(|_| 0.into()).collect());
        let meals = twice(seed, SEATS, move |seat, cluster| {
            let eating = Arc::clone(&eating);
            async move {
                if seat == 0 {
                    let resource = Resource::create(&cluster);
                    let take = resource.operation("forks.take").await.unwrap();
                    let leave = resource.operation("forks.leave").await.unwrap();
                    host::spawn(async move {
                        let mut free = [true; SEATS];
                        let mut meals = [0; SEATS];
                        loop {
                            let both = |seat: &usize| free[*seat] && free[(*seat + 1) % SEATS];
                            // The one who had fewer meals goes first.
                            let take = take.arm(Table::Take, |seat: &usize| {
                                both(seat).then_some(meals[*seat])
                            });
                            let accepted = resource
                                .accept([take, leave.arm(Table::Leave, |_| Some(-1))])
                                .await;
                            let (mut it, is_free) = match accepted {
                                Ok(Table::Take(it)) => (it, false),
                                Ok(Table::Leave(it)) => (it, true),
                                Err(_) => return,
                            };
                            meals[it.args] += i64::from(!is_free);
                            (free[it.args], free[(it.args + 1) % SEATS]) = (is_free, is_free);
                            it.reply(()).unwrap();
                        }
                    });
                }
                let take = capability::<usize, ()>(&cluster, "forks.take").await;
                let leave = capability::<usize, ()>(&cluster, "forks.leave").await;
                let mut random = Random::fork(seed, seat as u64);
                let mut meals = 0;
                for _ in 0..10 {
                    host::sleep(MS * random.below(3) as u32).await;
                    take.call(seat).await.unwrap();
                    eating[seat].store(1, SeqCst);
                    for next in [seat + 1, seat + SEATS - 1] {
                        assert_eq!(eating[next % SEATS].load(SeqCst), 0, "a fork is used twice");
                    }
                    host::sleep(MS * random.below(3) as u32).await;
                    eating[seat].store(0, SeqCst);
                    leave.send(seat).await.unwrap();
                    meals += 1;
                }
                meals
            }
        });
        assert_eq!(meals, [10; SEATS]);
    });
}

/// A worker or the farmer of the farm in SR is killed: the others end with its name.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_process_of_the_farm_is_named() {
    use chunkcomm_testkit::proc;
    use rustix::process::Signal;
    use std::io::Read as _;
    use std::process::Stdio;

    for victim in [0, 1] {
        let options =
            ["--idiom", "sr", "--size", "3000x3000", "--iterations", "5000", "--no-progress"];
        let mut program = MODELS.command(&options);
        let mut program = proc::Program(program.stderr(Stdio::piped()).spawn().unwrap());
        let mut stderr = program.0.stderr.take().unwrap();
        let nodes = proc::children(program.0.id(), 2);
        let victim_pid = proc::placed(&nodes, victim);
        proc::wait_until_handled(victim_pid, Signal::USR1);
        proc::signal(victim_pid, Signal::KILL);
        let mut told = String::new();
        stderr.read_to_string(&mut told).unwrap();
        assert_eq!(program.0.wait().unwrap().code(), Some(1), "{told}");
        assert!(told.contains(&format!("rank {}", victim + 1)), "{told}");
        proc::wait_until_gone(&nodes);
    }
}
