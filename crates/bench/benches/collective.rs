//! Small all-reduces and barriers of a group in one process, whose nodes share a current-thread runtime
//! and meet over loopback TCP; and sums of arrays that the nodes compute, while they are computed or after.

use std::mem;
use std::time::{Duration, Instant};

use chunkcomm::Node;
use chunkcomm_bench::failure::{Doing, Failure};
use chunkcomm_cluster::cluster::launch::Environment;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_coupled::patterns::{Compute, source};
use chunkcomm_group::{Group, Op};
use chunkcomm_pipeline::{Flow, GroupDeltas, ReduceEnds};
use chunkcomm_testkit::free_port;
use criterion::{Criterion, criterion_group, criterion_main};
use tokio::runtime::{Builder, Runtime};

/// Elements of 8 bytes in a vector.
const LENGTHS: [usize; 2] = [1, 128];

/// One node of the group.
async fn member(environment: Environment) -> Result<(Cluster, Group), Failure> {
    let config = ClusterConfig::new().environment(environment).node(Node::builder().quiet());
    let cluster = Cluster::join(config).await.doing("joining the cluster")?;
    let group = Group::world(&cluster).await.doing("making the group")?;
    Ok((cluster, group))
}

/// Returns the nodes of a cluster in this process.
async fn members(ranks: usize) -> Result<Vec<(Cluster, Group)>, Failure> {
    let manager = format!("127.0.0.1:{}", free_port());
    let variables = |rank: usize| {
        [
            ("CHUNKCOMM_RANK", rank.to_string()),
            ("CHUNKCOMM_SIZE", ranks.to_string()),
            ("CHUNKCOMM_MANAGER", manager.clone()),
        ]
    };
    let tasks: Vec<_> = (0..ranks)
        .map(|rank| tokio::spawn(member(variables(rank).into_iter().collect())))
        .collect();
    let mut members = Vec::new();
    for task in tasks {
        members.push(task.await.doing("running a task")??);
    }
    Ok(members)
}

/// Returns the time of `count` all-reduces; all nodes begin each one together.
fn all_reduces(
    runtime: &Runtime,
    members: &mut [(Cluster, Group)],
    length: usize,
    count: u64,
) -> Duration {
    let mut data = vec![vec![1.0_f64; length]; members.len()];
    let ranks = members.len() as f64;
    runtime.block_on(async {
        let started = Instant::now();
        for _ in 0..count {
            let calls: Vec<_> = members
                .iter_mut()
                .zip(&mut data)
                .map(|((_, group), data)| group.all_reduce(mem::take(data), Op::sum()))
                .collect();
            for (call, data) in calls.into_iter().zip(&mut data) {
                *data = call.await.expect("all nodes are alive");
                assert_eq!(data[0], ranks);
                data.fill(1.0);
            }
        }
        started.elapsed()
    })
}

/// Returns the time of `count` barriers.
fn barriers(runtime: &Runtime, members: &mut [(Cluster, Group)], count: u64) -> Duration {
    runtime.block_on(async {
        let started = Instant::now();
        for _ in 0..count {
            let calls: Vec<_> = members.iter_mut().map(|(_, group)| group.barrier()).collect();
            for call in calls {
                call.await.expect("all nodes are alive");
            }
        }
        started.elapsed()
    })
}

/// Elements of an array that is computed: 1 MiB.
const COMPUTED: usize = (1 << 20) / size_of::<f32>();

/// Elements that are computed at a time: 20 KiB.
const GRAIN: usize = (20 << 10) / size_of::<f32>();

/// Computes arrays one after the other, and sums them at rank 0 while they are computed; returns the time.
async fn sums_that_flow(group: &mut Group, count: u64) -> Result<Duration, Failure> {
    let doing = "summing in increments";
    let (input, data) = (source(COMPUTED), vec![0.0_f32; COMPUTED]);
    let flow = Flow::default();
    let call = group.reduce_delta(0, data, Op::sum(), flow);
    let ReduceEnds { operand: mut sender, result: mut receiver } = call.await.doing(doing)?;
    group.barrier().await.doing(doing)?;
    let started = Instant::now();
    for round in 0..count {
        if round > 0 {
            if let Some(receiver) = &mut receiver {
                receiver.start().await.doing(doing)?;
            }
            sender.start().await.doing(doing)?;
        }
        while let Some(mut chunk) = sender.next(GRAIN).doing(doing)? {
            Compute::Random.apply(&input, chunk.range(), &mut chunk);
            chunk.commit().await.doing(doing)?;
        }
        if let Some(receiver) = &mut receiver {
            receiver.finish().await.doing(doing)?;
        }
        sender.finish().await.doing(doing)?;
    }
    Ok(started.elapsed())
}

/// As [`sums_that_flow`], by calls once all is computed.
async fn sums_by_calls(group: &mut Group, count: u64) -> Result<Duration, Failure> {
    let (input, mut data) = (source(COMPUTED), vec![0.0_f32; COMPUTED]);
    group.barrier().await.doing("meeting")?;
    let started = Instant::now();
    for _ in 0..count {
        Compute::Random.apply(&input, 0..COMPUTED, &mut data);
        data = group.reduce(0, data, Op::sum()).await.doing("summing by a call")?;
    }
    Ok(started.elapsed())
}

/// Returns the longest time of `count` sums among the nodes.
fn sums(
    runtime: &Runtime,
    members: &mut Vec<(Cluster, Group)>,
    flows: bool,
    count: u64,
) -> Duration {
    runtime.block_on(async {
        let tasks: Vec<_> = members
            .drain(..)
            .map(|(cluster, mut group)| {
                tokio::spawn(async move {
                    let took = match flows {
                        true => sums_that_flow(&mut group, count).await,
                        false => sums_by_calls(&mut group, count).await,
                    };
                    (took.expect("all nodes are alive"), (cluster, group))
                })
            })
            .collect();
        let mut longest = Duration::ZERO;
        for task in tasks {
            let (took, member) = task.await.expect("no task panics");
            longest = longest.max(took);
            members.push(member);
        }
        longest
    })
}

fn computed(c: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut members = runtime.block_on(members(4)).expect("the nodes meet");
    let mut group = c.benchmark_group("sum of 1 MiB that 4 nodes compute");
    for (name, flows) in [("in increments", true), ("by a call", false)] {
        group.bench_function(name, |b| {
            b.iter_custom(|count| sums(&runtime, &mut members, flows, count));
        });
    }
    group.finish();
}

fn small(c: &mut Criterion) {
    for ranks in [2, 4] {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut members = runtime.block_on(members(ranks)).expect("the nodes meet");
        let mut group = c.benchmark_group(format!("collective of {ranks} nodes"));
        for length in LENGTHS {
            group.bench_function(format!("all-reduce {} B", length * 8), |b| {
                b.iter_custom(|count| all_reduces(&runtime, &mut members, length, count));
            });
        }
        group.bench_function("barrier", |b| {
            b.iter_custom(|count| barriers(&runtime, &mut members, count));
        });
        group.finish();
    }
}

criterion_group! {
    name = collective;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = small, computed
}
criterion_main!(collective);
