//! Programs that come later in virtual time, and take the array of a group or give it one.

use crate::virtual_cluster::{join, on_each_of, switched};
use chunkcomm::host::{self, Instant, JoinHandle};
use chunkcomm_array::{Array, ArrayError, ArrayPort, AttachError, Layout, Npy, Visit, Visitor};
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_group::Group;
use chunkcomm_simulation::{HostId, LinkSpec, Simulation, run};
use chunkcomm_testkit::Scratch;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RANKS: usize = 4;
const SHAPE: [usize; 2] = [129, 83];
const DEADLINE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_secs(1);

/// Each step as a rank saw it: the time that its visits took, and their outcomes.
type Steps = Vec<(Duration, Vec<Result<(), String>>)>;

/// A simulation, or several: its ranks add 1 to all elements in each step, from 1 on.
#[derive(Clone)]
struct Program {
    layout: Layout,
    steps: u64,
    /// Step before which the port is opened, and behind which it is closed.
    open: (u64, u64),
    visits_max: usize,
    patience: Duration,
    /// Steps of the ranks.
    seen: Arc<Mutex<Vec<Steps>>>,
    /// Behind the last step: how far the elements are from those of the beginning.
    added: Arc<Mutex<Vec<u64>>>,
}

impl Program {
    fn new(layout: &str, steps: u64) -> Program {
        Program {
            layout: Layout::parse(layout, &SHAPE).unwrap(),
            steps,
            open: (0, steps),
            visits_max: 4,
            patience: Duration::from_secs(30),
            seen: Arc::new(Mutex::new(vec![Vec::new(); RANKS])),
            added: Arc::new(Mutex::new(vec![0; RANKS])),
        }
    }

    async fn run(self, rank: usize, cluster: Cluster) {
        let mut group = Group::world(&cluster).await.unwrap();
        let start = Instant::now();
        let first = elements(&self.layout, rank, 0);
        let mut array = Array::from_local(&group, &self.layout, first.clone()).unwrap();
        let mut port = None;
        for step in 1..=self.steps {
            host::sleep_until(start + STEP * u32::try_from(step).unwrap()).await;
            array.map_inplace(|element| *element += 1);
            if step == self.open.0.max(1) {
                let opened = port.insert(ArrayPort::open(&mut group, "field").await.unwrap());
                opened.set_visits_max(self.visits_max);
                opened.set_patience(self.patience);
            }
            let began = Instant::now();
            let mut outcomes = Vec::new();
            if let Some(port) = &mut port {
                for visit in port.visits(&mut group).await.unwrap() {
                    let served = serve(visit, &mut array).await;
                    outcomes.push(served.map_err(|error| error.to_string()));
                }
            }
            self.seen.lock().unwrap()[rank].push((began.elapsed(), outcomes));
            if step == self.open.1
                && let Some(port) = port.take()
            {
                port.close().await;
            }
        }
        let local = array.local();
        let added = local[0] - first[0];
        assert!(local.iter().zip(&first).all(|(element, first)| element - first == added));
        self.added.lock().unwrap()[rank] = added;
        group.barrier().await.unwrap();
    }

    /// Returns the outcomes by step, which are the same at all ranks: of those with visits.
    #[track_caller]
    fn outcomes(&self) -> Vec<(usize, Vec<Result<(), String>>)> {
        let seen = self.seen.lock().unwrap();
        let of = |steps: &Steps| -> Vec<_> {
            let outcomes = steps.iter().map(|(_, outcomes)| outcomes.clone());
            (1..).zip(outcomes).filter(|(_, outcomes)| !outcomes.is_empty()).collect()
        };
        let all: Vec<_> = seen.iter().map(of).collect();
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
        assert_eq!(seen[0].len() as u64, self.steps);
        all[0].clone()
    }

    /// Returns how far the elements of all ranks are from those of the beginning.
    #[track_caller]
    fn added(&self) -> u64 {
        let added = self.added.lock().unwrap();
        assert!(added.iter().all(|one| *one == added[0]), "{added:?}");
        added[0]
    }

    /// Returns the longest time that the visits of a step took at a rank.
    fn longest(&self) -> Duration {
        self.seen.lock().unwrap().iter().flatten().map(|(time, _)| *time).max().unwrap()
    }
}

async fn serve(visit: Visit, array: &mut Array<u64>) -> Result<(), ArrayError> {
    match visit.gives() {
        None => visit.send(array).await,
        Some(_) => visit.receive(array).await,
    }
}

/// A rank's elements: the number in C's order of each, and `more`.
fn elements(layout: &Layout, rank: usize, more: u64) -> Vec<u64> {
    let number = |index: Vec<usize>| (index[0] * SHAPE[1] + index[1]) as u64 + more;
    let of = |offset| layout.global(rank, offset).map_or(0, number);
    (0..layout.local_len(rank)).map(of).collect()
}

/// All elements in C's order.
fn all(more: u64) -> Vec<u64> {
    (0..(SHAPE[0] * SHAPE[1]) as u64).map(|number| number + more).collect()
}

/// Compares all elements with those of a step, without printing them.
#[track_caller]
fn check(taken: &[u64], more: u64) {
    let expected = all(more);
    let first = (taken.first(), expected.first());
    assert!(taken == expected, "{} elements, the first {first:?}", taken.len());
}

/// The founders, and hosts on which others come later.
struct Stage<'a> {
    simulation: &'a Simulation,
    later: Vec<HostId>,
    manager: String,
}

impl Stage<'_> {
    /// Waits until this time.
    async fn at(&self, time: Duration) {
        self.simulation.sleep(time.saturating_sub(self.simulation.now())).await;
    }

    /// Lets a program come on a host: a member of the cluster, until `visit` is over.
    fn come<F>(
        &self,
        host: usize,
        visit: impl FnOnce(Cluster) -> F + Send + 'static,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let variables = [("CHUNKCOMM_MANAGER", self.manager.clone())].into_iter().collect();
        self.simulation.spawn_on(self.later[host], async move {
            let config = ClusterConfig::new().environment(variables);
            let cluster = Cluster::join(config).await.unwrap();
            visit(cluster.clone()).await;
            let _ = cluster.end(DEADLINE).await;
        })
    }
}

/// Runs the program on four hosts, and `script` beside it.
fn perform(
    (seed, later, spec): (u64, usize, LinkSpec),
    program: &Program,
    script: impl AsyncFnOnce(&Stage<'_>),
) {
    println!("seed {seed}");
    let (network, hosts) = switched(seed, RANKS + later, spec);
    let (founders, later) = hosts.split_at(RANKS);
    run(network, async |simulation| {
        let members = simulation.launch(founders, |rank| {
            let program = program.clone();
            async move {
                let cluster = join().await;
                program.run(rank, cluster.clone()).await;
                // An error names the visitors that died.
                let _ = cluster.end(DEADLINE).await;
            }
        });
        let manager = simulation.address(founders[0], 17700).to_string();
        let stage = Stage { simulation: &simulation, later: later.to_vec(), manager };
        script(&stage).await;
        for member in members {
            member.await.unwrap();
        }
    });
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_program_that_comes_later_takes_the_array_and_gives_one() {
    for (seed, layout) in
        ["(block,cyclic(3))@2x2", "(*,block)@4x1", "(block,*)@2x2"].into_iter().enumerate()
    {
        let program = Program::new(layout, 12);
        let network = (seed as u64, 1, LinkSpec::ETHERNET_100M);
        perform(network, &program, async |stage| {
            stage.at(4500 * MS).await;
            let start = Instant::now();
            let visit = stage.come(0, move |cluster| async move {
                let field = Visitor::new(&cluster, "field");
                let (taken, shape) = field.take::<u64>().await.unwrap();
                assert_eq!(shape, SHAPE);
                check(&taken, 5);
                host::sleep_until(start + 2000 * MS).await;
                field.give(&SHAPE, &all(1000)).await.unwrap();
                host::sleep_until(start + 4000 * MS).await;
                let file = Scratch::new("attach");
                assert_eq!(field.take_npy::<u64>(&*file).await.unwrap(), SHAPE);
                let whole = Layout::parse("(*,*)", &SHAPE).unwrap();
                let taken: Vec<u64> = Npy::open(&*file).unwrap().read_local(&whole, 0).unwrap();
                check(&taken, 1002);
                host::sleep_until(start + 5000 * MS).await;
                Npy::create::<u64>(&*file, &SHAPE)
                    .unwrap()
                    .write_local(&whole, 0, &all(50))
                    .unwrap();
                field.give_npy::<u64>(&*file).await.unwrap();
            });
            visit.await.unwrap();
        });
        let one = vec![Ok(())];
        let expected = [(5, one.clone()), (7, one.clone()), (9, one.clone()), (10, one)];
        assert_eq!(program.outcomes(), expected);
        assert_eq!(program.added(), 52);
    }
}

/// The times are those of the virtual network: nothing travels but a byte from rank to rank.
#[test]
fn a_port_without_visitors_costs_a_broadcast_a_step() {
    let program = Program::new("(block,block)@2x2", 20);
    perform((11, 0, LinkSpec::ETHERNET_1G), &program, async |_| {});
    assert_eq!(program.outcomes(), []);
    assert!(program.longest() < MS, "{:?}", program.longest());
}

#[test]
fn a_visitor_of_another_type_or_shape_is_refused_with_both_sides() {
    let program = Program::new("(block,*)@4x1", 8);
    perform((21, 1, LinkSpec::default()), &program, async |stage| {
        let visit = stage.come(0, |cluster| async move {
            let field = Visitor::new(&cluster, "field");
            let refused = |outcome: Result<(), AttachError>| {
                let Err(AttachError::Refused { name, why }) = outcome else {
                    panic!("{outcome:?}")
                };
                assert_eq!(name, "field");
                why
            };
            let why = refused(field.take::<f32>().await.map(drop));
            assert_eq!(
                why,
                "the groups do not fit: rank 0 sends (block,*)@4x1 of 129x83 u64 (8 bytes each), \
                 rank 4 takes an array of f32 (4 bytes each)"
            );
            let why = refused(field.give(&[2, 3], &[1_u64; 6]).await);
            assert_eq!(
                why,
                "the groups do not fit: rank 0 receives (block,*)@4x1 of 129x83 u64 (8 bytes \
                 each), rank 4 gives an array of u64 (8 bytes each) of the shape [2, 3]"
            );
            let outcome = field.give(&[2, 3], &[1_u64; 5]).await;
            assert!(matches!(outcome, Err(AttachError::Elements { expected: 6, found: 5, .. })));
            let outcome = field.give::<u64>(&[], &[]).await;
            assert!(matches!(outcome, Err(AttachError::Layout { .. })));
            assert_eq!(field.take::<u64>().await.unwrap().1, SHAPE);
        });
        visit.await.unwrap();
    });
    let outcomes = program.outcomes();
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
    let (_, last) = &outcomes[2];
    assert_eq!(last[..], [Ok(())]);
    assert!(outcomes[..2].iter().all(|(_, outcomes)| outcomes[0].is_err()));
    assert_eq!(program.added(), 8);
}

/// One visitor takes while another gives and a third waits for its turn.
#[test]
fn visitors_that_come_at_once_are_served_in_turn() {
    for (visits_max, steps) in [(4, [4, 4, 4]), (1, [4, 5, 6])] {
        let mut program = Program::new("(cyclic,block)@2x2", 10);
        program.visits_max = visits_max;
        perform((31, 3, LinkSpec::ETHERNET_100M), &program, async |stage| {
            let mut visits = Vec::new();
            for (place, time) in [3200, 3300, 3400].into_iter().enumerate() {
                stage.at(time * MS).await;
                visits.push(stage.come(place, move |cluster| async move {
                    let field = Visitor::new(&cluster, "field");
                    match place {
                        1 => field.give(&SHAPE, &all(100)).await.unwrap(),
                        _ => {
                            // The third one's array has the elements that the second one gave.
                            let given = if place == 2 { 100 + steps[2] - steps[1] } else { 4 };
                            check(&field.take::<u64>().await.unwrap().0, given);
                        }
                    }
                }));
            }
            for visit in visits {
                visit.await.unwrap();
            }
        });
        let outcomes = program.outcomes();
        let at = outcomes.iter().flat_map(|(step, outcomes)| {
            assert!(outcomes.iter().all(Result::is_ok));
            vec![*step as u64; outcomes.len()]
        });
        assert_eq!(at.collect::<Vec<_>>(), steps);
        assert_eq!(program.added(), 100 + 10 - steps[1]);
    }
}

/// A visitor that is killed, or whose host fails without a word, at times from before its visit to behind it.
#[test]
fn the_death_of_a_visitor_that_takes_harms_nothing() {
    let array = SHAPE[0] * SHAPE[1] * size_of::<u64>();
    let spec = LinkSpec::ETHERNET_10M;
    let travels = Duration::from_secs_f64(array as f64 / spec.bytes_per_second as f64);
    for turn in 0..14_u32 {
        let (crashes, part) = (turn % 2 == 1, turn / 2);
        let mut program = Program::new("(block,cyclic)@2x2", 30);
        // The next visitor waits until this one counts as gone.
        (program.visits_max, program.patience) = (1, Duration::from_secs(2));
        let taken = Arc::new(Mutex::new(false));
        let is_taken = Arc::clone(&taken);
        perform((u64::from(turn), 2, spec), &program, async |stage| {
            stage.at(2500 * MS).await;
            // It is never awaited: a killed program never ends.
            let _visit = stage.come(0, move |cluster| async move {
                let took = Visitor::new(&cluster, "field").take::<u64>().await;
                *is_taken.lock().unwrap() = took.is_ok();
                std::future::pending::<()>().await;
            });
            let death = match part {
                0 => 2900 * MS,
                part => STEP * 3 + (part - 1) * travels / 4 + 3 * MS,
            };
            stage.at(death).await;
            match crashes {
                true => stage.simulation.crash(stage.later[0]),
                false => stage.simulation.kill(stage.later[0]),
            }
            stage.at(6500 * MS).await;
            let next = stage.come(1, |cluster| async move {
                let taken = Visitor::new(&cluster, "field").take::<u64>().await.unwrap();
                check(&taken.0, 7);
            });
            next.await.unwrap();
        });
        assert!(program.outcomes().iter().flat_map(|(_, it)| it).all(Result::is_ok));
        assert!(program.longest() < 100 * MS, "turn {turn}: {:?}", program.longest());
        assert_eq!(program.added(), 30);
        assert_eq!(*taken.lock().unwrap(), part == 6, "turn {turn}");
    }
}

/// The array of a dead visitor is taken at all ranks, or at none.
#[test]
fn the_death_of_a_visitor_that_gives_leaves_the_array_as_it_was() {
    let array = SHAPE[0] * SHAPE[1] * size_of::<u64>();
    let spec = LinkSpec::ETHERNET_10M;
    let travels = Duration::from_secs_f64(array as f64 / spec.bytes_per_second as f64);
    let (mut given, mut lost) = (0, 0);
    for turn in 0..14_u32 {
        let (crashes, part) = (turn % 2 == 1, turn / 2);
        // Three ranks have their few elements long before the fourth.
        let mut program = Program::new("(blocks(5,5,5,114),*)@4x1", 40);
        program.patience = Duration::from_secs(5);
        perform((u64::from(turn), 2, spec), &program, async |stage| {
            stage.at(2500 * MS).await;
            let _visit = stage.come(0, move |cluster| async move {
                let _ = Visitor::new(&cluster, "field").give(&SHAPE, &all(500)).await;
                std::future::pending::<()>().await;
            });
            let death = match part {
                0 => 2900 * MS,
                part => STEP * 3 + (part - 1) * travels / 4 + 3 * MS,
            };
            stage.at(death).await;
            match crashes {
                true => stage.simulation.crash(stage.later[0]),
                false => stage.simulation.kill(stage.later[0]),
            }
            stage.at(30 * STEP).await;
            let next = stage.come(1, |cluster| async move {
                Visitor::new(&cluster, "field").take::<u64>().await.unwrap();
            });
            next.await.unwrap();
        });
        let outcomes = program.outcomes();
        let visits: Vec<_> = outcomes.iter().filter(|(step, _)| *step < 30).collect();
        let expected = match visits[..] {
            [] => 40,
            [(step, outcome)] => match &outcome[..] {
                [Ok(())] => {
                    given += 1;
                    500 + 40 - *step as u64
                }
                [Err(why)] => {
                    lost += 1;
                    assert!(why.starts_with("rank 0 of the sending group: "), "{why}");
                    40
                }
                other => panic!("{other:?}"),
            },
            ref other => panic!("{other:?}"),
        };
        assert_eq!(program.added(), expected, "turn {turn}");
        assert!(program.longest() < Duration::from_secs(16), "{turn}: {:?}", program.longest());
    }
    assert!(given > 0 && lost > 5, "{given} given, {lost} lost");
}

/// The visitor is there before the port, and again when it is closed.
#[test]
fn a_visitor_waits_for_the_port_and_hears_of_its_end() {
    let mut program = Program::new("(*,block)@2x2", 12);
    program.open = (5, 8);
    perform((41, 1, LinkSpec::default()), &program, async |stage| {
        stage.at(1500 * MS).await;
        let visit = stage.come(0, |cluster| async move {
            let start = Instant::now();
            let field = Visitor::new(&cluster, "field").report_after(STEP);
            check(&field.take::<u64>().await.unwrap().0, 6);
            // A visitor that gives up is not served.
            assert!(host::timeout(300 * MS, field.take::<u64>()).await.is_err());
            host::sleep_until(start + 7 * STEP).await;
            let late = host::timeout(3 * STEP, field.take::<u64>()).await;
            assert!(late.is_err(), "{late:?}");
        });
        visit.await.unwrap();
    });
    assert_eq!(program.outcomes(), [(6, vec![Ok(())])]);
}

#[test]
fn visitors_that_wait_at_a_port_hear_of_its_end() {
    let (network, hosts) = switched(51, RANKS + 1, LinkSpec::default());
    let (founders, later) = hosts.split_at(RANKS);
    run(network, async |simulation| {
        let members = simulation.launch(founders, |_| async move {
            let cluster = join().await;
            let mut group = Group::world(&cluster).await.unwrap();
            let port = ArrayPort::open(&mut group, "field").await.unwrap();
            let again = ArrayPort::open(&mut group, "field").await.unwrap_err();
            assert!(matches!(again, ArrayError::Rank { rank: 0, .. }), "{again}");
            host::sleep(2 * STEP).await;
            drop(port);
            cluster.end(DEADLINE).await.unwrap();
        });
        let manager = simulation.address(founders[0], 17700).to_string();
        let stage = Stage { simulation: &simulation, later: later.to_vec(), manager };
        stage.at(STEP).await;
        let visit = stage.come(0, |cluster| async move {
            let outcome = Visitor::new(&cluster, "field").take::<u64>().await;
            let Err(AttachError::Closed { name }) = outcome else { panic!("{outcome:?}") };
            assert_eq!(name, "field");
        });
        visit.await.unwrap();
        for member in members {
            member.await.unwrap();
        }
    });
}

/// The rank that a visitor speaks to dies, or another one.
#[test]
fn the_death_of_a_rank_is_told_to_visitors() {
    for dead in [2, 0] {
        let (network, hosts) = switched(61, RANKS + 1, LinkSpec::default());
        let (founders, later) = hosts.split_at(RANKS);
        run(network, async |simulation| {
            let members = simulation.launch(founders, |rank| async move {
                let cluster = join().await;
                let mut group = Group::world(&cluster).await.unwrap();
                let mut port = ArrayPort::open(&mut group, "field").await.unwrap();
                host::sleep(2 * STEP).await;
                let layout = Layout::parse("(block,*)@4x1", &SHAPE).unwrap();
                for visit in port.visits(&mut group).await.unwrap() {
                    if rank == dead {
                        std::future::pending::<()>().await;
                    }
                    let storage = elements(&layout, rank, 0);
                    let array = Array::from_local(&group, &layout, storage).unwrap();
                    let error = visit.send(&array).await.unwrap_err();
                    assert!(matches!(error, ArrayError::Group(_)), "{error}");
                }
                let _ = cluster.end(DEADLINE).await;
            });
            let manager = simulation.address(founders[0], 17700).to_string();
            let stage = Stage { simulation: &simulation, later: later.to_vec(), manager };
            stage.at(STEP).await;
            let visit = stage.come(0, move |cluster| async move {
                match Visitor::new(&cluster, "field").take::<u64>().await {
                    Err(AttachError::Refused { why, .. }) if dead == 2 => {
                        assert!(why.contains("rank 2 of the group died"), "{why}");
                    }
                    Err(AttachError::Gone { .. }) if dead == 0 => {}
                    other => panic!("{other:?}"),
                }
            });
            stage.at(3 * STEP).await;
            simulation.kill(founders[dead]);
            visit.await.unwrap();
            for (rank, member) in members.into_iter().enumerate() {
                assert_eq!(member.await.is_err(), rank == dead);
            }
        });
    }
}

/// A port that lets one visitor in at a time, a slow network, and two visitors: returns when the second one was let
/// in, and when the first one had its array. It may have stopped to take it instead.
fn let_in_behind(stops: bool) -> (Duration, Duration) {
    const ELEMENTS: usize = 1 << 19;
    const PATIENCE: Duration = Duration::from_secs(10);
    let times = Arc::new(Mutex::new((Vec::new(), Duration::ZERO)));
    let noted = Arc::clone(&times);
    let spec = LinkSpec { bytes_per_second: 100_000, ..LinkSpec::default() };
    on_each_of(switched(1, RANKS + 2, spec), &[], move |rank, cluster| {
        let noted = Arc::clone(&noted);
        async move {
            let start = Instant::now();
            let mut world = Group::world(&cluster).await.unwrap();
            let part = world.split((rank < RANKS).then_some(0), 0).await.unwrap();
            if let Some(mut group) = part {
                let layout = Layout::parse("(block)@4", &[ELEMENTS]).unwrap();
                let array = Array::from_fn(&group, &layout, |_| 7_u64).unwrap();
                let mut port = ArrayPort::open(&mut group, "field").await.unwrap();
                port.set_visits_max(1);
                port.set_patience(PATIENCE);
                let mut served = 0;
                while served < 2 {
                    for visit in port.visits(&mut group).await.unwrap() {
                        if rank == 0 {
                            noted.lock().unwrap().0.push(start.elapsed());
                        }
                        visit.send(&array).await.unwrap();
                        served += 1;
                    }
                    host::sleep(STEP).await;
                }
                port.close().await;
                world.barrier().await.unwrap();
                return;
            }
            let field = Visitor::new(&cluster, "field");
            if rank > RANKS {
                host::sleep(5 * STEP).await;
                assert_eq!(field.take::<u64>().await.unwrap().0, vec![7; ELEMENTS]);
                world.barrier().await.unwrap();
                return;
            }
            let mut taking = std::pin::pin!(field.take::<u64>());
            if stops {
                assert!(host::timeout(5 * STEP, &mut taking).await.is_err());
            } else {
                assert_eq!(taking.as_mut().await.unwrap().0, vec![7; ELEMENTS]);
                noted.lock().unwrap().1 = start.elapsed();
            }
            world.barrier().await.unwrap();
        }
    });
    let (let_in, taken) = &*times.lock().unwrap();
    assert_eq!(let_in.len(), 2);
    (let_in[1], *taken)
}

/// It takes far longer than the patience.
#[test]
fn a_slow_visitor_is_under_way_until_it_has_all() {
    let (let_in, taken) = let_in_behind(false);
    assert!(taken > Duration::from_secs(40), "{taken:?}");
    assert!(let_in >= taken, "the next one after {let_in:?}, {taken:?}");
}

#[test]
fn a_visitor_that_stops_is_under_way_for_the_patience() {
    let (let_in, _) = let_in_behind(true);
    assert!(let_in < Duration::from_secs(40), "{let_in:?}");
}
