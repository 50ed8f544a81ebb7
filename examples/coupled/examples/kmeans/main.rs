//! Finds clusters of points by k-means, with the processes of a cluster. Each takes its share of the
//! points; one sum over all ranks (an all-reduce) ends an iteration, so that all know the new centres.
//!
//! ```text
//! cargo run --release --example kmeans -- --output clusters.png --check
//! mpiexec.hydra -n 4 target/release/examples/kmeans
//! target/release/examples/kmeans --hosts hosts
//! ```
//!
//! The coordinates are whole numbers and the sums exact, so the result is that of one process, bit for
//! bit.
//!
//! When a process dies, the others go on. They shrink the group, learn by that the last iteration that
//! all of them had finished, and share the points anew. `--die 2:5` ends rank 2 in iteration 5;
//! `kill -9` does as well. Many launchers stop all processes when one dies; MPICH's does not so:
//!
//! ```text
//! mpiexec.hydra -disable-auto-cleanup -n 4 sh -c 'target/release/examples/kmeans; exit $?'
//! ```

mod lloyd;
mod options;
mod points;
mod view;

use std::error::Error;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::Cluster;
use chunkcomm_examples::cluster_options::{end_led, end_served};
use chunkcomm_examples::command_line::{parse_with, write_out};
use chunkcomm_examples::farm_report::Report;
use chunkcomm_examples::picture::{check_output, save};
use chunkcomm_examples::program::run_program;
use chunkcomm_examples::progress::Bar;
use chunkcomm_group::{Group, GroupError, Op};

use lloyd::{Clusters, NONE, Point};
use options::Options;

/// Number of processes that the program starts by default.
const NODES: u32 = 4;

/// Exit status of a process that `--die` ends.
const STATUS_DIED: i32 = 9;

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("kmeans", &options.cluster, || work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    // Before there is a cluster: what is wrong with the file is said once, by the only process.
    let points = options.points()?;
    if let Some(file) = &options.make {
        return Ok(points::write(file, &points)?);
    }
    let first = Clusters::first(&points, options.clusters as usize)?;
    let config = options.cluster.config_of_nodes(NODES)?;
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(()) };
    let mut search =
        Search { options, points: points.into(), history: vec![first], resumed: vec![] };
    if cluster.rank() == 0 {
        let done = search.lead(&cluster).await;
        return end_led(&cluster, done).await;
    }
    match (search.run(&cluster).await, cluster.ended()) {
        (Err(error), None) => Err(error),
        // The end of the cluster is the cause of any error.
        _ => end_served(&cluster).await,
    }
}

/// The search for clusters at one rank.
struct Search {
    options: &'static Options,
    points: Arc<[Point]>,
    /// The clusters before the first iteration and after each: the same at all ranks.
    history: Vec<Clusters>,
    /// After each death: the number of ranks, and of the iterations that all of them had finished.
    resumed: Vec<(usize, usize)>,
}

impl Search {
    /// Searches with all ranks; after a death with those that are left. Returns the cluster of each
    /// point at rank 0.
    async fn run(&mut self, cluster: &Cluster) -> Result<Vec<u32>, Failure> {
        let mut group = Group::world(cluster).await?;
        loop {
            let before = self.history.len();
            let done = self.go_on(&mut group).await;
            // A call may have succeeded at some ranks and failed at others. So each comes here, and
            // none leaves before all have succeeded.
            let (ranks, calls) = (group.size(), group.calls());
            let (left, finished) = group.shrink().await?;
            match done {
                Ok(cluster_of) if finished == calls => return Ok(cluster_of),
                // Nobody is missing, so it was no death.
                Err(error) if left.size() == ranks => return Err(error.into()),
                _ => {}
            }
            // An iteration is one call. Those that not all ranks finished are done again.
            self.history.truncate(before + finished as usize);
            self.resumed.push((left.size(), self.history.len() - 1));
            group = left;
        }
    }

    /// Searches from the last iteration on; each further one is a call of the group, and so is the
    /// gathering of the clusters of all points, which rank 0 returns.
    async fn go_on(&mut self, group: &mut Group) -> Result<Vec<u32>, GroupError> {
        let share = share(self.points.len(), group.rank(), group.size());
        let mut cluster_of = cluster_of(&self.points[share.clone()], &self.history);
        let bar = Bar::on_terminal(self.options.no_progress || group.rank() > 0);
        while let Some(last) = unfinished(&self.history, self.options) {
            let iteration = self.history.len();
            let (last, points, share) = (last.clone(), Arc::clone(&self.points), share.clone());
            // On another thread, so that this one goes on sending signs of life to the other nodes.
            let (last, cluster_of_point, sums) = host::compute(Duration::ZERO, move || {
                let sums = last.assign(&points[share], &mut cluster_of);
                (last, cluster_of, sums)
            })
            .await;
            cluster_of = cluster_of_point;
            if self.options.dies(group.cluster().rank(), iteration) {
                std::process::exit(STATUS_DIED);
            }
            let sums = group.all_reduce(sums, Op::sum()).await?;
            let next = last.next(&sums);
            if let Some(bar) = &bar {
                let changed = next.changed;
                bar.draw(&format!("iteration {iteration}: {changed} points changed their cluster"));
            }
            self.history.push(next);
        }
        let all = group.gather(0, cluster_of).await?.result;
        Ok(all.map(|parts| parts.data).unwrap_or_default())
    }

    /// Searches as rank 0, and writes picture and report.
    async fn lead(&mut self, cluster: &Cluster) -> Result<(), Failure> {
        let output = &self.options.output;
        check_output(output)?;
        let first = self.history[0].clone();
        let cluster_of = self.run(cluster).await?;
        if cluster_of.len() != self.points.len() {
            return Err("the ranks have read different files".into());
        }
        let found = self.history.last().expect("there are the first clusters");
        let picture = view::draw(&self.points, &cluster_of, &found.centres);
        save((view::SIDE, view::SIDE), &picture, output)?;

        let mut report = Report::default();
        report
            .row("points", format_args!("{}, {} clusters", self.points.len(), found.centres.len()));
        report.row("ranks", cluster.size());
        let (iterations, changed) = (self.history.len() - 1, found.changed);
        report
            .row("iterations", format_args!("{iterations}, {changed} points changed in the last"));
        for death in cluster.deaths() {
            report.row("died", death);
        }
        for (ranks, iterations) in &self.resumed {
            report.row("resumed", format_args!("by {ranks} ranks, after iteration {iterations}"));
        }
        report.row("", format_args!("cluster   points           x           y"));
        for (cluster, ([x, y], count)) in found.centres.iter().zip(&found.counts).enumerate() {
            report.row("", format_args!("{cluster:>7} {count:>8} {x:>11} {y:>11}"));
        }
        report.row("written", output.display());
        if self.options.check {
            let (expected, cluster_of) = alone(&self.points, first, self.options);
            let same = expected == self.history
                && view::draw(&self.points, &cluster_of, &found.centres) == picture;
            if !same {
                return Err("the clusters differ from those of one process".into());
            }
            report.row("check", "iterations and picture equal those of one process");
        }
        Ok(write_out(report.text())?)
    }
}

/// Returns the points of a rank, by index: the shares differ by one at most.
fn share(points: usize, rank: usize, ranks: usize) -> Range<usize> {
    points * rank / ranks..points * (rank + 1) / ranks
}

/// Returns the last clusters, if another iteration follows.
fn unfinished<'a>(history: &'a [Clusters], options: &Options) -> Option<&'a Clusters> {
    let last = history.last()?;
    (last.changed > 0 && history.len() <= options.iterations).then_some(last)
}

/// Returns the cluster of each point after the last iteration, which followed from those before it.
fn cluster_of(points: &[Point], history: &[Clusters]) -> Vec<u32> {
    let mut cluster_of = vec![NONE; points.len()];
    if let [.., before, _] = history {
        before.assign(points, &mut cluster_of);
    }
    cluster_of
}

/// Searches in this process alone.
fn alone(points: &[Point], first: Clusters, options: &Options) -> (Vec<Clusters>, Vec<u32>) {
    let (mut history, mut cluster_of) = (vec![first], vec![NONE; points.len()]);
    while let Some(last) = unfinished(&history, options) {
        let next = last.next(&last.assign(points, &mut cluster_of));
        history.push(next);
    }
    (history, cluster_of)
}
