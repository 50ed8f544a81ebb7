//! Map and reduce in a tree, where sub-farmers reduce what passes them, in virtual time.

use chunkcomm::host;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_farm::settings::{Fsync, Model, Tree};
use chunkcomm_farm::{Farm, MapReduce, RegistryExt as _, serve_in};
use chunkcomm_simulation::{LinkSpec, each_seed, run};
use chunkcomm_testkit::Scratch;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::virtual_cluster::{join, on_each, on_each_of, switched};

const MS: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_secs(60);

/// So few that each is a group.
const NUMBERS: u32 = 1000;

/// A result has 40 kB.
const DIGITS: u32 = 10_000;

/// Counts numbers by their last digits, a millisecond each, and how often two results are reduced.
fn counting(reduced: &Arc<AtomicU64>) -> (Registry, MapReduce<u32, Vec<u32>>) {
    let mut registry = Registry::new();
    let reduced = reduced.clone();
    let function = registry.register_map_reduce(
        "count",
        |number: u32| {
            host::spend(MS);
            let mut counts = vec![0; DIGITS as usize];
            counts[(number * 7 % DIGITS) as usize] = 1;
            counts
        },
        move |one: Vec<u32>, next: Vec<u32>| {
            reduced.fetch_add(1, Ordering::Relaxed);
            one.iter().zip(&next).map(|(one, next)| one + next).collect()
        },
    );
    (registry, function)
}

/// Counts on a farm of 12 nodes at a switch of 1 Gbit/s. Returns how many results the farmer got for
/// groups, how many its journal had, and the time.
fn counted(tree: Tree, journal: Option<&Path>) -> (u64, u64, Duration) {
    let numbers = [0; 3].map(|_| Arc::new(AtomicU64::new(0)));
    let (told, journal) = (numbers.clone(), journal.map(PathBuf::from));
    let links = LinkSpec { bytes_per_second: 125_000_000, ..LinkSpec::default() };
    on_each_of(switched(1, 13, links), &[], move |rank, cluster| {
        let ([reduced, recalled, took], journal) = (told.clone(), journal.clone());
        async move {
            if rank > 0 {
                let (registry, _) = counting(&Arc::default());
                return serve_in(&cluster, &registry).threads(1).await.unwrap();
            }
            let (registry, count) = counting(&reduced);
            let mut builder = Farm::builder(registry).tree(tree).model(Model::B);
            if let Some(file) = journal {
                builder = builder.journal(file, Fsync::EverySecond);
            }
            let mut farm = builder.start_in(&cluster).await.unwrap();
            let counted = farm.map_reduce(&count, 0..NUMBERS).await.unwrap();
            let stats = counted.stats;
            assert_eq!(stats.tasks + stats.recalled, u64::from(NUMBERS));
            recalled.store(stats.recalled, Ordering::Relaxed);
            took.store(stats.elapsed.as_micros() as u64, Ordering::Relaxed);
            let counts = counted.value.unwrap();
            let is_right = |at: u32| {
                counts[at as usize] == u32::from(at.is_multiple_of(7) && at / 7 < NUMBERS)
            };
            assert!((0..DIGITS).all(is_right));
            farm.finish(DEADLINE).await.unwrap();
        }
    });
    let [reduced, recalled, took] = numbers.map(|number| number.load(Ordering::Relaxed));
    (reduced + 1, recalled, Duration::from_micros(took))
}

#[test]
fn a_farmer_has_few_results_left_to_reduce() {
    let (alone, _, took_alone) = counted(Tree::Off, None);
    let (below, _, took_below) = counted(Tree::FanOut(4), None);
    println!(
        "{alone} results in {took_alone:?} without a tree, {below} in {took_below:?} with one"
    );
    assert_eq!(alone, u64::from(NUMBERS));
    assert!(below < alone / 3, "{below}");
    assert!(took_below < took_alone / 2, "{took_below:?}");
}

/// A farmer that has the results of some groups must be able to go on without the others.
#[test]
fn a_journal_has_the_result_of_each_group() {
    let file = Scratch::new("reduced");
    let all = u64::from(NUMBERS);
    for recalled in [0, all] {
        let (results, had, _) = counted(Tree::FanOut(4), Some(&file));
        assert_eq!((results, had), (all, recalled));
    }
}

/// Functions of such names, which are no map and reduce.
#[test]
fn a_plain_function_keeps_its_results() {
    on_each(1, 5, &[], |rank, cluster| async move {
        let mut registry = Registry::new();
        let count = registry.register("count", |number: u32| Some(number % 7));
        registry.register("reduce count", |_: Vec<Option<u32>>| Some(0_u32));
        if rank > 0 {
            return serve_in(&cluster, &registry).threads(1).await.unwrap();
        }
        let builder = Farm::builder(registry).tree(Tree::FanOut(4));
        let mut farm = builder.start_in(&cluster).await.unwrap();
        let counts = farm.run(&count, 0..1_000).await.unwrap().results;
        assert!((0..).zip(counts).all(|(number, count)| count == Some(number % 7)));
        farm.finish(DEADLINE).await.unwrap();
    });
}

/// A farm of three sub-farmers and two nodes below each joins 4,000 words; that takes 2 s.
async fn join_words(rank: usize, cluster: Cluster) {
    let mut registry = Registry::new();
    let words = registry.register_map_reduce(
        "words",
        |number: u32| {
            host::spend(5 * MS);
            format!("{number} ")
        },
        |one: String, next: String| one + &next,
    );
    if rank > 0 {
        return serve_in(&cluster, &registry).threads(1).await.unwrap();
    }
    let builder = Farm::builder(registry).tree(Tree::FanOut(3)).deaths_max(1000);
    let mut farm = builder.start_in(&cluster).await.unwrap();
    let joined = farm.map_reduce(&words, 0..4_000).await.unwrap();
    let expected: String = (0..4_000).map(|number| format!("{number} ")).collect();
    assert_eq!(joined.value, Some(expected));
    farm.finish(DEADLINE).await.unwrap();
}

/// Ranks 1 and 7 are sub-farmers.
#[test]
fn each_result_is_reduced_once_whoever_dies() {
    each_seed(0..12, |seed| {
        let ranks = [1, 5, 7].into_iter().zip(0..1 + seed % 3);
        let at = |at: u64| (300 + 130 * seed + 400 * at) as u32 * MS;
        let deaths: Vec<_> = ranks.map(|(rank, nth)| (rank, at(nth))).collect();
        on_each(seed, 10, &deaths, join_words);
    });
}

/// Others get copies of what a sub-farmer holds that is not heard. When it is heard again it has results
/// of these tasks together with others.
#[test]
fn each_result_is_reduced_once_where_a_sub_farmer_is_silent() {
    each_seed(0..10, |seed| {
        let (network, hosts) = switched(seed, 10, LinkSpec::default());
        run(network, async |simulation| {
            let members = simulation.launch(&hosts, |rank| async move {
                let cluster = join().await;
                join_words(rank, cluster.clone()).await;
                cluster.end(DEADLINE).await.unwrap();
            });
            simulation.sleep(2_040 * MS).await;
            simulation.with(|network, now| network.partition(now, hosts[1], hosts[0]));
            // Copies are given out after 322 ms, and take 12.
            simulation.sleep((320 + 2 * seed as u32) * MS).await;
            simulation.with(|network, now| network.heal(now, hosts[1], hosts[0]));
            for member in members {
                member.await.unwrap();
            }
        });
    });
}
