//! Linda: each tuple is settled once, whoever dies when, and every wait is told or ends.

use crate::virtual_cluster::{join, switched};
use chunkcomm::host;
use chunkcomm_cluster::cluster::NameError;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_coupled::models::linda::{Space, any, hold};
use chunkcomm_simulation::{LinkSpec, each_seed, run};
use chunkcomm_testkit::random::{Random, seeded};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);
const TUPLES_MAX: usize = 1000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A rank that dies, or that is cut off from rank 0 for a time.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Death,
    Cut(Duration),
}

/// Runs `program` on each of this many hosts, whose cluster ends after it. Ranks have faults at their
/// times. Returns the digest of the run.
fn on_each<F>(
    seed: u64,
    count: usize,
    faults: &[(usize, Duration, Fault)],
    program: impl Fn(Cluster) -> F + Clone + Send + 'static,
) -> u64
where
    F: Future<Output = ()> + Send + 'static,
{
    let (network, hosts) = switched(seed, count, LinkSpec::default());
    run(network, async |simulation| {
        let members = simulation.launch(&hosts, |_| {
            let program = program.clone();
            async move {
                let cluster = join().await;
                program(cluster.clone()).await;
                // An error names the dead.
                let _ = cluster.end(DEADLINE).await;
            }
        });
        let mut faults = faults.to_vec();
        faults.sort_by_key(|it| it.1);
        for &(rank, at, fault) in &faults {
            simulation.sleep(at.saturating_sub(simulation.now())).await;
            let (here, there) = (hosts[0], hosts[rank]);
            let Fault::Cut(time) = fault else {
                simulation.kill(there);
                continue;
            };
            simulation.with(|network, now| {
                network.partition(now, here, there);
                network.partition(now, there, here);
            });
            let simulation = simulation.clone();
            host::spawn(async move {
                simulation.sleep(time).await;
                simulation.with(|network, now| {
                    network.heal(now, here, there);
                    network.heal(now, there, here);
                });
            });
        }
        for (rank, member) in members.into_iter().enumerate() {
            let is_dead = faults.iter().any(|it| it.0 == rank && matches!(it.2, Fault::Death));
            assert!(member.await.is_ok() || is_dead, "rank {rank}");
        }
        simulation.report().digest
    })
}

/// Holds the space `"x"` at rank `holder`, and attaches to it at every node.
async fn attach(cluster: &Cluster, holder: u32) -> Space {
    if cluster.rank() == holder {
        host::spawn(hold(cluster.clone(), "x".to_owned(), TUPLES_MAX));
    }
    Space::attach(cluster, "x").await.unwrap()
}

/// Workers take tasks and put results, with faults. Returns the results in their order, and the digest.
fn farm(seed: u64, faults: &[(usize, Duration, Fault)]) -> (Vec<u64>, u64) {
    const TASKS: u64 = 40;
    let results = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&results);
    let digest = on_each(seed, 5, faults, move |cluster| {
        let results = Arc::clone(&kept);
        async move {
            let mut space = attach(&cluster, 0).await;
            if cluster.rank() > 0 {
                let mut random = Random::new(seed * 8 + u64::from(cluster.rank()));
                let work = async {
                    loop {
                        let (task,) = space.in_("task", (any::<u64>(),)).await?;
                        host::sleep(Duration::from_micros(random.below(40_000))).await;
                        space.out("result", &(task,)).await?;
                        // Settled by now, and not by the next operation.
                        host::sleep(Duration::from_micros(random.below(20_000))).await;
                    }
                };
                tokio::select! {
                    biased;
                    // A rank that is cut off has an error.
                    worked = work => drop::<std::io::Result<Infallible>>(worked),
                    _ = cluster.finished() => {}
                }
                return;
            }
            for task in 0..TASKS {
                space.out("task", &(task,)).await.unwrap();
            }
            for _ in 0..TASKS {
                let (task,) = space.in_("result", (any::<u64>(),)).await.unwrap();
                results.lock().unwrap().push(task);
            }
            // A rank that was cut off is back by then.
            host::sleep(Duration::from_secs(60)).await;
            assert_eq!(space.inp("task", (any::<u64>(),)).await.unwrap(), None);
            assert_eq!(space.inp("result", (any::<u64>(),)).await.unwrap(), None);
            cluster.finish();
        }
    });
    let results = results.lock().unwrap().clone();
    let mut sorted = results.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..TASKS).collect::<Vec<_>>(), "seed {seed}, {faults:?}");
    (results, digest)
}

#[test]
fn each_task_has_one_result_whoever_dies_or_is_cut_off() {
    each_seed(0..50, |seed| {
        let mut random = Random::new(seed);
        // One worker stays.
        let count = 1 + random.below(3) as usize;
        let mut fault = |rank| {
            let at = ms(10) + Duration::from_micros(random.below(300_000));
            // The cluster gives a rank up after 10 s.
            let fault = match random.below(3) {
                0 => Fault::Cut(ms(random.below(30_000))),
                _ => Fault::Death,
            };
            (rank, at, fault)
        };
        let faults: Vec<_> = (1..=count).map(&mut fault).collect();
        let first = farm(seed, &faults);
        if seed % 5 == 0 {
            assert!(farm(seed, &faults) == first, "seed {seed}: two runs differ");
        }
    });
}

#[test]
fn templates_match_by_name_types_and_values_the_oldest_first() {
    on_each(1, 2, &[], |cluster| async move {
        let mut space = attach(&cluster, 1).await;
        if cluster.rank() == 1 {
            cluster.finished().await;
            return;
        }
        for (key, text) in [(3, "three"), (4, "four"), (3, "again")] {
            space.out("task", &(key, text.to_owned())).await.unwrap();
        }
        space.out("task", &(5u8,)).await.unwrap();
        space.out("lock", &()).await.unwrap();
        space.out("long", &(1, 2.5, 'c', true, vec![7u16, 8])).await.unwrap();
        assert_eq!(space.rdp("task", (5, any::<String>())).await.unwrap(), None);
        assert_eq!(space.rdp("other", (3, any::<String>())).await.unwrap(), None);
        assert_eq!(space.rdp("task", (any::<u64>(), any::<String>())).await.unwrap(), None);
        assert_eq!(space.rd("task", (any::<i32>(), any::<String>())).await.unwrap().1, "three");
        assert_eq!(space.in_("task", (4, any::<String>())).await.unwrap(), (4, "four".to_owned()));
        assert_eq!(space.in_("task", (3, any::<String>())).await.unwrap().1, "three");
        assert_eq!(space.inp("task", (3, any::<String>())).await.unwrap().unwrap().1, "again");
        assert_eq!(space.inp("task", (3, any::<String>())).await.unwrap(), None);
        assert_eq!(space.in_("task", (any::<u8>(),)).await.unwrap(), (5,));
        space.in_("lock", ()).await.unwrap();
        let long = (any::<i32>(), 2.5, any::<char>(), true, any::<Vec<u16>>());
        assert_eq!(space.in_("long", long).await.unwrap().4, [7, 8]);
        space.done().await.unwrap();
        cluster.finish();
    });
}

#[test]
fn a_tuple_goes_back_with_a_dropped_handle_or_operation() {
    on_each(2, 2, &[], |cluster| async move {
        let mut space = attach(&cluster, 0).await;
        if cluster.rank() == 0 {
            cluster.finished().await;
            return;
        }
        let mut other = Space::attach(&cluster, "x").await.unwrap();
        space.out("a", &(1,)).await.unwrap();
        space.out("a", &(2,)).await.unwrap();
        // A handle: the tuple keeps its age.
        assert_eq!(other.in_("a", (any::<i32>(),)).await.unwrap(), (1,));
        drop(other);
        host::sleep(ms(20)).await;
        assert_eq!(space.in_("a", (any::<i32>(),)).await.unwrap(), (1,));
        // An operation that waits takes nothing, and what was taken before is settled: it had begun.
        let mut other = Space::attach(&cluster, "x").await.unwrap();
        assert_eq!(other.in_("a", (any::<i32>(),)).await.unwrap(), (2,));
        assert!(host::timeout(ms(50), other.in_("b", (any::<i32>(),))).await.is_err());
        host::sleep(ms(20)).await;
        space.out("b", &(3,)).await.unwrap();
        assert_eq!(space.inp("a", (any::<i32>(),)).await.unwrap(), None);
        assert_eq!(other.in_("b", (any::<i32>(),)).await.unwrap(), (3,));
        other.done().await.unwrap();
        // The answer is on its way when the operation is dropped: at any moment nothing is lost.
        let mut lost = 0;
        for us in 0..400 {
            space.out("c", &(us,)).await.unwrap();
            let limit = Duration::from_micros(us);
            let taken = host::timeout(limit, other.in_("c", (any::<u64>(),))).await;
            if let Ok(taken) = taken {
                assert_eq!(taken.unwrap(), (us,));
                other.done().await.unwrap();
            } else {
                lost += 1;
                assert_eq!(space.in_("c", (any::<u64>(),)).await.unwrap(), (us,), "{us} us");
            }
            assert_eq!(space.rdp("c", (any::<u64>(),)).await.unwrap(), None, "{us} us");
        }
        assert!((50..350).contains(&lost), "{lost} operations were dropped");
        cluster.finish();
    });
}

#[test]
fn waits_show_and_a_full_space_refuses() {
    on_each(3, 2, &[], |cluster| async move {
        let mut space = attach(&cluster, 0).await;
        if cluster.rank() == 1 {
            let (n, text) = space.in_("task", (3, any::<String>())).await.unwrap();
            assert_eq!((n, &*text), (3, "late"));
            space.done().await.unwrap();
            cluster.finish();
            return;
        }
        host::sleep(ms(500)).await;
        let told = cluster.node().explain().await.to_string();
        let line = told.lines().find(|line| line.contains("task")).expect(&told);
        assert!(
            line.contains("in(\"task\", (3, ?alloc::string::String)) at space x of rank 1"),
            "{line}"
        );
        assert!(line.contains(" (process ") && line.contains("since 4"), "{line}");
        space.out("task", &(3, "late".to_owned())).await.unwrap();
        for n in 0..TUPLES_MAX {
            space.out("fill", &(n,)).await.unwrap();
        }
        let error = space.out("fill", &(0usize,)).await.unwrap_err().to_string();
        assert!(error.starts_with("space x of rank 0 (process "), "{error}");
        assert!(error.ends_with("1000 tuples are there, of 1000"), "{error}");
        // The handle goes on.
        assert_eq!(space.in_("fill", (any::<usize>(),)).await.unwrap(), (0,));
        cluster.finished().await;
    });
}

#[test]
fn the_death_of_the_holder_is_an_error_with_its_name() {
    on_each(4, 3, &[(1, ms(2000), Fault::Death)], |cluster| async move {
        let mut space = attach(&cluster, 1).await;
        if cluster.rank() == 1 {
            cluster.finished().await;
            return;
        }
        space.out("task", &(1,)).await.unwrap();
        let error = space.in_("never", ()).await.unwrap_err().to_string();
        assert!(error.starts_with("space x of rank 1 (process "), "{error}");
        println!("{error}");
        for _ in 0..2 {
            let error = space.out("task", &(1,)).await.unwrap_err().to_string();
            assert!(error.starts_with("space x of rank 1 (process "), "{error}");
            println!("{error}");
        }
    });
}

/// Two tasks of each rank begin to hold a space at nearly the same time.
#[test]
fn a_space_has_one_holder_whoever_begins_when() {
    const ROUNDS: usize = 20;
    each_seed(0..10, |seed| {
        let held = Arc::new(Mutex::new(vec![0; ROUNDS]));
        let counted = Arc::clone(&held);
        on_each(seed, 3, &[], move |cluster| {
            let held = Arc::clone(&counted);
            async move {
                let rank = cluster.rank();
                let mut random = Random::fork(seed, rank.into());
                for round in 0..ROUNDS {
                    let name = format!("round {round}");
                    cluster.barrier().await.unwrap();
                    let holding = [(); 2].map(|()| {
                        let (cluster, name) = (cluster.clone(), name.clone());
                        let wait = Duration::from_micros(random.below(400));
                        host::spawn(async move {
                            host::sleep(wait).await;
                            hold(cluster, name, TUPLES_MAX).await
                        })
                    });
                    let mut space = Space::attach(&cluster, &name).await.unwrap();
                    space.out("t", &(rank,)).await.unwrap();
                    cluster.barrier().await.unwrap();
                    // All holders have begun, and each attached handle has put its tuple into one space.
                    host::sleep(ms(10)).await;
                    let mut space = Space::attach(&cluster, &name).await.unwrap();
                    for rank in 0..3_u32 {
                        assert_eq!(space.rd("t", (rank,)).await.unwrap(), (rank,));
                    }
                    let provided = format!("space {name}");
                    let [holder] = cluster.providers(&provided)[..] else { panic!("seed {seed}") };
                    cluster.barrier().await.unwrap();
                    for holding in holding {
                        if !holding.is_finished() {
                            assert_eq!(holder, cluster.id(), "seed {seed}, {name}");
                            held.lock().unwrap()[round] += 1;
                            holding.abort();
                            continue;
                        }
                        let error = holding.await.unwrap().unwrap_err().into_inner().unwrap();
                        let error = error.downcast::<NameError>().unwrap();
                        let held = NameError::Held { name: provided.clone(), by: holder };
                        assert_eq!(*error, held, "seed {seed}");
                    }
                }
            }
        });
        assert_eq!(*held.lock().unwrap(), [1; ROUNDS], "seed {seed}");
    });
}

/// A holder stops holding, or leaves, while handles are unused, idle and waiting.
#[test]
fn handles_of_a_space_that_is_held_no_longer_get_an_error_with_its_holder() {
    for leaves in [false, true] {
        on_each(6, 3, &[], move |cluster| async move {
            let holding = (cluster.rank() == 1)
                .then(|| host::spawn(hold(cluster.clone(), "x".to_owned(), TUPLES_MAX)));
            let [mut unused, mut idle, mut waits] = [
                Space::attach(&cluster, "x").await.unwrap(),
                Space::attach(&cluster, "x").await.unwrap(),
                Space::attach(&cluster, "x").await.unwrap(),
            ];
            idle.out("t", &(1,)).await.unwrap();
            if let Some(holding) = holding {
                host::sleep(ms(500)).await;
                if leaves {
                    cluster.leave(DEADLINE).await.unwrap();
                    return;
                }
                holding.abort();
                assert!(holding.await.is_err());
            }
            let waited = waits.in_("never", ()).await.unwrap_err();
            let used = [idle.rdp("t", (1,)).await, unused.rdp("t", (1,)).await];
            let [idle, unused] = used.map(Result::unwrap_err);
            for error in [waited, idle, unused] {
                let error = error.to_string();
                assert!(error.starts_with("space x of rank 1 (process "), "{error}");
            }
            if cluster.rank() == 2 {
                host::spawn(hold(cluster.clone(), "x".to_owned(), TUPLES_MAX));
            }
            // The next holder is another one.
            let mut space = Space::attach(&cluster, "x").await.unwrap();
            assert_eq!(space.rdp("t", (1,)).await.unwrap(), None);
            let error = waits.rdp("t", (1,)).await.unwrap_err().to_string();
            assert!(error.contains("of rank 1 (process "), "{error}");
            if !leaves {
                cluster.barrier().await.unwrap();
            } else if cluster.rank() == 0 {
                host::sleep(ms(500)).await;
                cluster.finish();
            }
        });
    }
}

#[test]
fn another_evaluates_when_an_evaluator_dies() {
    on_each(5, 3, &[(1, ms(1000), Fault::Death)], |cluster| async move {
        let mut registry = Registry::new();
        let square = registry.register("square", |n: u64| {
            host::spend(ms(300));
            n * n
        });
        let bad = registry.register("bad", |n: u64| -> u64 { panic!("{n} is unlucky") });
        let mut space = attach(&cluster, 0).await;
        if cluster.rank() > 0 {
            tokio::select! {
                biased;
                ended = space.evaluate(&registry) => panic!("{ended:?}"),
                _ = cluster.finished() => {}
            }
            return;
        }
        for n in 0..8u64 {
            space.eval(&square, &n).await.unwrap();
        }
        for n in 0..8u64 {
            let (_, squared) = space.in_("square", (n, any::<u64>())).await.unwrap();
            assert_eq!(squared, n * n);
        }
        assert_eq!(space.inp("square", (any::<u64>(), any::<u64>())).await.unwrap(), None);
        space.eval(&bad, &7).await.unwrap();
        let error = space.in_("bad", (7u64, any::<u64>())).await.unwrap_err().to_string();
        assert!(error.contains("\"bad\" panicked: 7 is unlucky"), "{error}");
        // Only here.
        let more = registry.register("more", |n: u64| n);
        space.eval(&more, &7).await.unwrap();
        let error = space.in_("more", (7u64, any::<u64>())).await.unwrap_err().to_string();
        assert!(error.contains("no function \"more\""), "{error}");
        space.done().await.unwrap();
        cluster.finish();
    });
}

/// Real processes that are killed while they have tasks.
#[cfg(target_os = "linux")]
#[test]
fn killed_takers_lose_no_task() {
    use chunkcomm_testkit::proc;
    use rustix::process::Signal;
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    let mut random =
        seeded(std::env::var("CHUNKCOMM_TEST_SEED").map_or(1, |it| it.parse().unwrap()));
    for round in 0..6 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linda-program"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let copies = proc::children(program.id(), 3);
        // One that dies before it has joined is the end of all.
        let mut told = BufReader::new(program.stdout.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert_eq!(line, "joined\n", "round {round}");
        for &victim in &copies[..2] {
            std::thread::sleep(ms(random.below(400)));
            println!("round {round}: kill {victim}");
            proc::try_signal(victim, Signal::KILL);
        }
        line.clear();
        told.read_to_string(&mut line).unwrap();
        let output = program.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(line, "wrong [], left None None\n", "round {round}: {error}");
    }
}
