//! A farm in a cluster of processes whose sub-farmers are killed.
//!
//! Another process joins the cluster for each that was killed. Every result comes once and is right. In
//! every second run sub-farmers reduce the results, of which one is left that depends on all and on their
//! order.

use std::process::Stdio;
use std::time::Duration;

use chunkcomm_bench::failure::{Doing, Failure};
use chunkcomm_bench::harness::{machine, runtime};
use chunkcomm_bench::options::values;
use chunkcomm_bench::table::Row;
use chunkcomm_cluster::{Cluster, ClusterConfig, Registry};
use chunkcomm_farm::settings::Tree;
use chunkcomm_farm::{Farm, MapReduce, RegistryExt as _, WorkerStats, serve_in};
use chunkcomm_proto::random::mix;
use chunkcomm_testkit::free_port;
use chunkcomm_testkit::proc::Program;
use clap::Args;

use super::farm::{DEATHS_MAX, compute, register};
use super::{Lab, Promises};

/// Name of the hidden command of a node.
pub const NODE_COMMAND: &str = "farm-node";

/// Number of nodes beside the farmer's: two groups of three.
const NODES: u32 = 6;

/// Nodes of a group.
const GROUP: u32 = 3;

/// Number and times of the kills.
#[derive(Debug, Clone, Copy, Args)]
pub struct Plan {
    /// Number of sub-farmers that are killed, one a run
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::times)]
    pub kills: usize,
    /// Tasks of a run, of 50 us to 5 ms each
    #[arg(long, value_name = "N", default_value = "2000", value_parser = values::count)]
    pub tasks: u64,
}

/// The map of numbers from `x` to `a x + b`.
type Map = (u64, u64);

/// Registers the function whose results are maps, each reduced with its neighbours to the map of all of
/// them, one after the other.
fn register_maps(registry: &mut Registry) -> MapReduce<u64, Map> {
    registry.register_map_reduce("maps", map_of, one_after_the_other)
}

fn map_of(task: u64) -> Map {
    (compute(task) | 1, task)
}

fn one_after_the_other((a, b): Map, (c, d): Map) -> Map {
    (c.wrapping_mul(a), c.wrapping_mul(b).wrapping_add(d))
}

/// Works for the farms of the cluster that the environment names.
///
/// # Errors
/// If the cluster or a farm fails.
pub fn serve() -> Result<(), Failure> {
    let runtime = runtime::start(1)?;
    runtime.block_on(async {
        let mut registry = Registry::new();
        register(&mut registry);
        register_maps(&mut registry);
        let cluster = Cluster::join(ClusterConfig::new()).await.doing("joining the cluster")?;
        while cluster.ended().is_none() {
            serve_in(&cluster, &registry).threads(1).await.doing("serving the farm")?;
        }
        Ok(())
    })
}

/// The nodes' processes, killed and reaped at the end.
struct Nodes {
    manager: String,
    children: Vec<Program>,
}

impl Nodes {
    /// Starts a node of this rank, or one that joins later.
    fn start(&mut self, rank: Option<u32>) -> Result<(), Failure> {
        let mut command = machine::this_program()?;
        command.arg(NODE_COMMAND).env("CHUNKCOMM_MANAGER", &self.manager);
        if let Some(rank) = rank {
            let size = (NODES + 1).to_string();
            command.env("CHUNKCOMM_RANK", rank.to_string()).env("CHUNKCOMM_SIZE", size);
        }
        // A node whose sub-farmer was killed names the messages that this one did not get.
        command.stderr(Stdio::null());
        self.children.push(Program(command.spawn().doing("starting a node")?));
        Ok(())
    }
}

/// Kills a sub-farmer in each run, and starts another node.
///
/// # Errors
/// If the cluster or the farm does not start.
pub async fn run(
    lab: &mut Lab,
    plan: &Plan,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    let due: Vec<u64> = (0..plan.tasks).map(compute).collect();
    let due_map = (0..plan.tasks).map(map_of).reduce(one_after_the_other);
    let manager = format!("127.0.0.1:{}", free_port());
    let mut nodes = Nodes { manager, children: Vec::new() };
    (1..=NODES).try_for_each(|rank| nodes.start(Some(rank)))?;
    let mut registry = Registry::new();
    let (function, maps) = (register(&mut registry), register_maps(&mut registry));
    let place = [("RANK", "0".to_owned()), ("SIZE", (NODES + 1).to_string())];
    let place = place.map(|(name, value)| (format!("CHUNKCOMM_{name}"), value));
    let manager = ("CHUNKCOMM_MANAGER".to_owned(), nodes.manager.clone());
    let environment = place.into_iter().chain([manager]).collect();
    let config = ClusterConfig::new().environment(environment);
    let cluster = Cluster::join(config).await.doing("joining the cluster")?;
    let builder = Farm::builder(registry).tree(Tree::FanOut(GROUP)).deaths_max(DEATHS_MAX);
    let mut farm = builder.start_in(&cluster).await.doing("starting the farm")?;
    let (mut kills, mut runs, mut wrong, mut reissued, mut below) = (0, 0_u64, 0_u64, 0, 0);
    let mut heads: Vec<u32> = Vec::new();
    let mut elapsed = Duration::ZERO;
    while kills < plan.kills {
        let (mut taken, mut digest, mut done) = (vec![0_u32; due.len()], 0_u64, 0);
        let (at, victim) = (lab.random.below(plan.tasks), lab.random.next_u64());
        let victim = (!heads.is_empty()).then(|| heads[victim as usize % heads.len()]);
        let is_reduced = runs % 2 == 1;
        let each = |index: u64, (value, pid): (u64, u32)| {
            taken[index as usize] += 1;
            digest ^= mix(value ^ index);
            below += u64::from(!heads.contains(&pid));
            if let Some(victim) = victim.filter(|_| done == at) {
                machine::kill(victim);
            }
            done += 1;
        };
        let run = async {
            if !is_reduced {
                let results = farm.stream(&function, 0..plan.tasks)?.as_completed();
                return Ok((results.for_each(each).await?, None));
            }
            let die = async {
                tokio::time::sleep(elapsed.mul_f64(at as f64 / plan.tasks as f64)).await;
                victim.into_iter().for_each(machine::kill);
            };
            let (reduced, ()) = tokio::join!(farm.map_reduce(&maps, 0..plan.tasks), die);
            reduced.map(|it| (it.stats, it.value))
        };
        let ended = tokio::time::timeout(lab.ended(), run).await;
        let Ok(ended) = ended else {
            promises.hold(false, || "a run has not ended in time".to_owned());
            break;
        };
        let (stats, map) = ended.doing("farming")?;
        runs += 1;
        elapsed = stats.elapsed;
        let right = (0..).zip(&due).fold(0, |all, (index, value)| all ^ mix(value ^ index));
        let is_right = match is_reduced {
            true => map == due_map,
            false => digest == right && taken.iter().all(|&times| times == 1),
        };
        wrong += u64::from(!is_right);
        reissued += stats.mishaps.reissued;
        if victim.is_some() {
            kills += 1;
            nodes.start(None)?;
        }
        let pid = |it: &WorkerStats| it.worker.member.as_ref().map(|member| member.pid);
        let there = stats.workers.iter().filter(|it| it.lost.is_none());
        heads = there.filter_map(pid).filter(|&pid| Some(pid) != victim).collect();
    }
    promises.hold(wrong == 0, || format!("{wrong} of {runs} runs have other results"));
    promises.hold(below > 0, || "no node worked below a sub-farmer".to_owned());
    drop(farm);
    cluster.finish();
    // An error names the messages that dead nodes did not get.
    let _ = cluster.end(Duration::from_secs(5)).await;
    row.set("kills", kills)
        .set("runs", runs)
        .set("tasks", plan.tasks * runs)
        .set("tasks_below", below)
        .set("reissued", reissued)
        .set("wrong", wrong);
    Ok(())
}
