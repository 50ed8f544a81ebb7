//! Ranks that die in the calls of a group, at moments spread over the call.

use crate::virtual_cluster::{join, switched};
use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::Change;
use chunkcomm_group::{Exchanged, Group, GroupError, Op, Parts};
use chunkcomm_simulation::{LinkSpec, run};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

/// Time in which every unfinished call ends, from the moment when the cluster reports the death.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// Time in which the cluster reports a death on another machine: its silence.
const REPORTED_WITHIN: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug)]
enum What {
    Barrier,
    Broadcast,
    Reduce,
    AllReduce,
    Scan,
    ReduceScatter,
    Gather,
    Scatter,
    AllGather,
    AllToAll,
}

const ALL: [What; 10] = [
    What::Barrier,
    What::Broadcast,
    What::Reduce,
    What::AllReduce,
    What::Scan,
    What::ReduceScatter,
    What::Gather,
    What::Scatter,
    What::AllGather,
    What::AllToAll,
];

/// Elements that travel in whole messages, and elements that flow: 100 KiB.
const SMALL: usize = 5;
const LARGE: usize = 100 * 1024 / size_of::<u64>();

/// A launch of a cluster, and the deaths in it.
#[derive(Clone)]
struct Case {
    seed: u64,
    hosts: usize,
    ranks: usize,
    what: What,
    length: usize,
    calls: u64,
    /// Rank in the cluster, and time of its death.
    deaths: Vec<(usize, Duration)>,
}

/// The outcome at the ranks that are left.
#[derive(Default)]
struct Seen {
    /// Of each survivor: the size of the group in each call that all of them finished.
    done: Vec<Vec<usize>>,
    /// Beginning of the first call and end of the last one, over all ranks.
    span: Option<(Duration, Duration)>,
}

fn now() -> Duration {
    Duration::from_nanos(Instant::now().time().0)
}

/// The data of a member of the cluster in a call.
fn data(member: u32, number: u64, length: usize) -> Vec<u64> {
    let first = u64::from(member + 1) * 1_000_003 + number * 17;
    (0..length as u64).map(|index| first + index * index).collect()
}

fn sum(of: &[Vec<u64>]) -> Vec<u64> {
    let add = |a: Vec<u64>, b: &Vec<u64>| a.iter().zip(b).map(|(a, b)| a + b).collect();
    of.iter().skip(1).fold(of[0].clone(), add)
}

/// A call, as this rank knows it.
struct Turn {
    what: What,
    number: u64,
    rank: usize,
    root: usize,
    /// The data of each rank.
    all: Vec<Vec<u64>>,
}

impl Turn {
    fn new(group: &Group, what: What, number: u64, length: usize) -> Turn {
        let (rank, size) = (group.rank(), group.size());
        let all = (0..size).map(|rank| data(group.member(rank).rank, number, length));
        Turn { what, number, rank, root: number as usize % size, all: all.collect() }
    }

    fn mine(&self) -> Vec<u64> {
        self.all[self.rank].clone()
    }

    fn parts(&self, of: usize) -> Parts<u64> {
        Parts::even(self.all[of].clone(), self.all.len())
    }

    /// Compares elements without printing them.
    #[track_caller]
    fn same(&self, is: &[u64], expected: &[u64]) {
        let Turn { what, number, rank, root, all } = self;
        let first = (0..expected.len()).find(|at| is.get(*at) != expected.get(*at));
        let size = all.len();
        assert!(
            is.len() == expected.len() && first.is_none(),
            "{what:?} {number} from {root} at rank {rank} of {size}: {} elements, not {}, \
             other than expected from {first:?} on",
            is.len(),
            expected.len()
        );
    }

    /// Makes the call and checks what comes back: the result, or the data as they were.
    async fn make(&self, group: &mut Group) -> Result<(), GroupError> {
        match self.what {
            What::Barrier => Ok(group.barrier().await?),
            What::Broadcast | What::Scatter => self.by_the_root(group).await,
            What::Gather | What::AllGather | What::AllToAll => self.exchange(group).await,
            What::ReduceScatter => self.reduce_scatter(group).await,
            What::Reduce | What::AllReduce | What::Scan => self.combine(group).await,
        }
    }

    async fn by_the_root(&self, group: &mut Group) -> Result<(), GroupError> {
        let is_root = self.rank == self.root;
        if let What::Scatter = self.what {
            let given = is_root.then(|| self.parts(self.root));
            let Exchanged { input, result } = match group.scatter(self.root, given.clone()).await {
                Ok(made) => made,
                Err(error) => {
                    assert!(error.data.input == given, "parts of a scatter");
                    return Err(error.cause);
                }
            };
            self.same(&result, self.parts(self.root).part(self.rank));
            assert!(input == given, "parts of a scatter");
            return Ok(());
        }
        let length = self.all[0].len();
        let given = if is_root { self.mine() } else { vec![0; length] };
        match group.broadcast(self.root, given).await {
            Ok(data) => self.same(&data, &self.all[self.root]),
            Err(error) => {
                assert_eq!(error.data.len(), length);
                if is_root {
                    self.same(&error.data, &self.mine());
                }
                return Err(error.cause);
            }
        }
        Ok(())
    }

    async fn exchange(&self, group: &mut Group) -> Result<(), GroupError> {
        if let What::AllToAll = self.what {
            let given = self.parts(self.rank);
            let Exchanged { input, result } = match group.all_to_all(given.clone()).await {
                Ok(made) => made,
                Err(error) => {
                    assert!(error.data.input == given, "parts of an exchange");
                    return Err(error.cause);
                }
            };
            assert!(input == given, "parts of an exchange");
            let of = |from: usize| self.parts(from).part(self.rank).to_vec();
            self.same(&result.data, &(0..self.all.len()).flat_map(of).collect::<Vec<_>>());
            return Ok(());
        }
        let (own, gathered) = match self.what {
            What::Gather => match group.gather(self.root, self.mine()).await {
                Ok(Exchanged { input, result }) => (input, result),
                Err(error) => {
                    self.same(&error.data.input, &self.mine());
                    return Err(error.cause);
                }
            },
            _ => match group.all_gather(self.mine()).await {
                Ok(Exchanged { input, result }) => (input, Some(result)),
                Err(error) => {
                    self.same(&error.data.input, &self.mine());
                    return Err(error.cause);
                }
            },
        };
        self.same(&own, &self.mine());
        let is_owed = self.rank == self.root || matches!(self.what, What::AllGather);
        assert_eq!(gathered.is_some(), is_owed);
        gathered.into_iter().for_each(|it| self.same(&it.data, &self.all.concat()));
        Ok(())
    }

    async fn reduce_scatter(&self, group: &mut Group) -> Result<(), GroupError> {
        let given = self.parts(self.rank);
        let reduced = group.reduce_scatter(given.clone(), Op::sum()).await;
        let Exchanged { input, result } = match reduced {
            Ok(made) => made,
            Err(error) => {
                assert!(error.data.input == given, "parts of a reduction");
                return Err(error.cause);
            }
        };
        assert!(input == given, "parts of a reduction");
        self.same(&result, Parts::even(sum(&self.all), self.all.len()).part(self.rank));
        Ok(())
    }

    async fn combine(&self, group: &mut Group) -> Result<(), GroupError> {
        let made = match self.what {
            What::Reduce => group.reduce(self.root, self.mine(), Op::sum()),
            What::AllReduce => group.all_reduce(self.mine(), Op::sum()),
            _ => group.scan(self.mine(), Op::sum()),
        };
        match made.await {
            Ok(data) => {
                let expected = match self.what {
                    What::Reduce if self.rank != self.root => self.mine(),
                    What::Scan => sum(&self.all[..=self.rank]),
                    _ => sum(&self.all),
                };
                self.same(&data, &expected);
                Ok(())
            }
            Err(error) => {
                self.same(&error.data, &self.mine());
                Err(error.cause)
            }
        }
    }
}

/// Makes a call, and a barrier behind it: no rank is ahead of the others by more than that.
async fn call(group: &mut Group, what: What, number: u64, length: usize) -> Result<(), GroupError> {
    let turn = Turn::new(group, what, number, length);
    turn.make(group).await?;
    Ok(group.barrier().await?)
}

/// Times at which the cluster has reported deaths here, by rank.
type Reports = Mutex<BTreeMap<u32, Duration>>;

async fn note(cluster: Cluster, reports: Arc<Reports>) {
    let mut changes = cluster.changes();
    drop(cluster);
    while let Some(change) = changes.next().await {
        if let Change::Died(death) = change {
            reports.lock().unwrap().entry(death.id.rank).or_insert_with(now);
        }
    }
}

/// Makes the calls; after a death with those that are left, from the call on that not all had finished.
async fn survive(cluster: Cluster, case: &Case) -> (Vec<usize>, Duration) {
    let reports = Arc::<Reports>::default();
    host::spawn(note(cluster.clone(), Arc::clone(&reports)));
    let mut group = Group::world(&cluster).await.unwrap();
    let began = now();
    let mut done = Vec::new();
    let mut base = 0;
    while (done.len() as u64) < case.calls {
        let called = now();
        let Err(cause) = call(&mut group, case.what, done.len() as u64, case.length).await else {
            done.push(group.size());
            continue;
        };
        let Some((rank, death)) = cause.death() else { panic!("{:?}: {cause:?}", case.what) };
        assert_eq!(group.member(rank), death.id);
        let dead = case.deaths.iter().find(|(dead, _)| *dead == death.id.rank as usize);
        let (_, at) = dead.unwrap_or_else(|| panic!("{death} is none"));
        let reported = *reports.lock().unwrap().get(&death.id.rank).unwrap_or(&now());
        assert!(reported <= *at + REPORTED_WITHIN, "{death}: reported at {reported:?}");
        let late = now().saturating_sub(called.max(reported));
        assert!(late <= NOTICED_WITHIN, "{:?} ends {late:?} after {death}", case.what);
        let (smaller, last) = group.shrink().await.unwrap();
        group = smaller;
        base += last as usize / 2;
        assert!(base <= done.len(), "{base} of {}", done.len());
        done.truncate(base);
    }
    (done, began)
}

/// Runs a case; all survivors have finished the same calls.
fn run_case(case: &Case) -> Seen {
    let (network, hosts) = switched(case.seed, case.hosts, LinkSpec::default());
    let places: Vec<_> =
        (0..case.ranks).map(|rank| hosts[rank * case.hosts / case.ranks]).collect();
    let seen = Arc::new(Mutex::new(Seen::default()));
    run(network, async |simulation| {
        let members = simulation.launch(&places, |member| {
            let (case, seen) = (case.clone(), Arc::clone(&seen));
            async move {
                let cluster = join().await;
                let (done, began) = survive(cluster.clone(), &case).await;
                {
                    let mut seen = seen.lock().unwrap();
                    let (begin, end) = seen.span.unwrap_or((began, now()));
                    seen.span = Some((begin.min(began), end.max(now())));
                    if case.deaths.iter().all(|(dead, _)| *dead != member) {
                        seen.done.push(done);
                    }
                }
                // An error names the nodes that died.
                let _ = cluster.end(DEADLINE).await;
            }
        });
        let mut deaths = case.deaths.clone();
        deaths.sort_by_key(|(_, at)| *at);
        for &(rank, at) in &deaths {
            simulation.sleep(at.saturating_sub(simulation.now())).await;
            simulation.kill_rank(rank);
        }
        for (rank, member) in members.into_iter().enumerate() {
            let is_dead = deaths.iter().any(|&(dead, _)| dead == rank);
            let ended = member.await;
            assert!(ended.is_ok() || is_dead, "rank {rank}: {ended:?}");
        }
    });
    Arc::into_inner(seen).unwrap().into_inner().unwrap()
}

/// Runs the case without a death and then with this many moments of the first, each followed by the
/// others after their times.
fn at_each_moment(case: &Case, moments: u32, then: &[(usize, Duration)], victim: usize) {
    let all = run_case(case);
    assert_eq!(all.done, vec![vec![case.ranks; case.calls as usize]; case.ranks]);
    let (begin, end) = all.span.unwrap();
    let mut shrunk = 0;
    for moment in 0..moments {
        let at = begin + (end - begin) * moment / moments;
        let mut case = case.clone();
        case.deaths = vec![(victim, at)];
        case.deaths.extend(then.iter().map(|(rank, after)| (*rank, at + *after)));
        // A failure names its case.
        let _named = Named(&case);
        let seen = run_case(&case);
        let left = case.ranks - case.deaths.len();
        // A rank that has finished the last call leaves, whatever becomes of it at the others.
        let before: Vec<_> = seen.done.iter().map(|it| &it[..it.len() - 1]).collect();
        assert_eq!(before, vec![before[0]; left]);
        shrunk += usize::from(seen.done.iter().flatten().any(|size| *size < case.ranks));
    }
    assert!(shrunk * 5 >= moments as usize, "{:?}: {shrunk} of {moments}", case.what);
}

/// Prints its case when it is dropped by a panic.
struct Named<'a>(&'a Case);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        let Case { seed, what, length, deaths, .. } = self.0;
        if std::thread::panicking() {
            eprintln!("{what:?} of {length} elements, seed {seed}, deaths {deaths:?} fails");
        }
    }
}

fn case(seed: u64, ranks: usize, what: What, length: usize) -> Case {
    Case { seed, hosts: ranks, ranks, what, length, calls: 3, deaths: Vec::new() }
}

#[test]
fn a_death_at_any_moment_of_small_calls_is_named_and_survived() {
    for (seed, what) in (0..).zip(ALL) {
        at_each_moment(&case(seed, 4, what, SMALL), 8, &[], 1 + seed as usize % 3);
    }
}

#[test]
fn a_death_at_any_moment_of_large_calls_is_named_and_survived() {
    for (seed, what) in (20..).zip(ALL).skip(1) {
        at_each_moment(&case(seed, 4, what, LARGE), 8, &[], 1 + seed as usize % 3);
    }
}

#[test]
fn a_second_death_while_the_others_shrink_is_survived() {
    for step in 0..8 {
        let then = Duration::from_micros(150) * step * step;
        for (what, length) in [(What::AllReduce, SMALL), (What::Broadcast, LARGE)] {
            let case = case(u64::from(step), 5, what, length);
            at_each_moment(&case, 2, &[(3, then)], 2);
        }
    }
}

#[test]
fn a_death_of_one_of_several_ranks_on_a_host_is_named_and_survived() {
    for (seed, (what, length)) in
        (40..).zip([(What::AllReduce, SMALL), (What::AllReduce, LARGE), (What::Reduce, LARGE)])
    {
        let case = Case { hosts: 3, ..case(seed, 6, what, length) };
        // A neighbour of the manager, and a rank on another host.
        at_each_moment(&case, 5, &[], 1);
        at_each_moment(&case, 5, &[], 4);
    }
}

/// With the manager the cluster ends, and so does every call.
#[test]
fn the_death_of_the_manager_ends_every_call() {
    for (seed, length) in (0..).zip([SMALL, LARGE]) {
        let (network, hosts) = switched(seed, 3, LinkSpec::default());
        run(network, async |simulation| {
            let mut members = simulation.launch(&hosts, |rank| async move {
                let cluster = join().await;
                let mut group = Group::world(&cluster).await.unwrap();
                if rank == 0 {
                    host::sleep(DEADLINE).await;
                    return;
                }
                let error = call(&mut group, What::AllReduce, 0, length).await.unwrap_err();
                assert!(matches!(error, GroupError::Ended(_)), "{error:?}");
                assert!(matches!(group.shrink().await, Err(GroupError::Agree(_))));
            });
            simulation.sleep(Duration::from_secs(2)).await;
            simulation.kill_rank(0);
            drop(members.remove(0));
            for member in members {
                member.await.unwrap();
            }
        });
    }
}
