//! The command line of the program.

use std::path::PathBuf;

use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::numbers;
use chunkcomm_examples::picture::check_output;
use clap::Parser;

use super::lloyd::Point;
use super::points;

/// Finds clusters of points (k-means) with the nodes of a cluster; 4 on this machine if nothing else
/// is said.
///
/// Each node takes its share of the points, and one sum over all nodes ends an iteration. When a node
/// dies the others share its points and go on, unless it is rank 0.
#[derive(Parser)]
#[command(name = "kmeans", version)]
pub(crate) struct Options {
    /// File of the points, the same on each machine: a line each, `x y` in whole numbers [default:
    /// points are generated]
    file: Option<PathBuf>,

    /// Generated points
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = numbers::<u32>(1..=100_000_000))]
    points: u32,

    /// Seed of the generated points
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = numbers::<u64>(0..=u64::MAX))]
    seed: u64,

    /// Write the generated points to this file, and end
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) make: Option<PathBuf>,

    /// Clusters to find, and heaps of generated points
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = numbers::<u32>(1..=256))]
    pub(crate) clusters: u32,

    /// Most iterations; fewer are done when no point changes its cluster any more
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = numbers::<usize>(1..=10_000))]
    pub(crate) iterations: usize,

    /// File to write the picture to, as PNG
    #[arg(long, value_name = "PATH", default_value = "kmeans.png")]
    pub(crate) output: PathBuf,

    /// Compute in one process too and compare centres and picture; exit status 1 if they differ
    #[arg(long)]
    pub(crate) check: bool,

    /// Demonstration of a fault: end the process of this rank, which is not 0, in this iteration, from 1;
    /// may be given several times
    #[arg(long, value_name = "RANK:ITERATION", value_parser = death)]
    die: Vec<(u32, usize)>,

    /// Show no progress
    #[arg(long)]
    pub(crate) no_progress: bool,

    /// See [`ClusterOptions`].
    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,
}

impl Options {
    /// Checks whether options that are each right go together.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.die.is_empty() {
            let why = "--die ends a process, and virtual hosts are one";
            self.cluster.needs_the_real_lan(why)?;
        }
        // In a cluster the picture is written on the machine of rank 0.
        match self.cluster.are_of_a_cluster() {
            Ok(false) => check_output(&self.output),
            _ => Ok(()),
        }
    }

    /// Returns the points of the file, or generated ones.
    ///
    /// # Errors
    /// The file cannot be read, or a line is wrong; the text names it.
    pub(crate) fn points(&self) -> Result<Vec<Point>, String> {
        match &self.file {
            Some(file) => points::read(file),
            None => Ok(points::generated(self.points, self.clusters, self.seed)),
        }
    }

    /// Whether the process of this rank is to end in this iteration.
    pub(crate) fn dies(&self, rank: u32, iteration: usize) -> bool {
        self.die.contains(&(rank, iteration))
    }
}

fn death(text: &str) -> Result<(u32, usize), String> {
    const RANK_0: &str = "rank 0 runs the manager of the cluster, which ends without it";
    let numbers = text.split_once(':');
    let numbers = numbers.and_then(|(rank, at)| Some((rank.parse().ok()?, at.parse().ok()?)));
    match numbers {
        Some((0, _)) => Err(format!("{RANK_0}: allowed are ranks from 1")),
        Some((rank, iteration)) if iteration > 0 => Ok((rank, iteration)),
        _ => Err("allowed is RANK:ITERATION, both from 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Options::command().debug_assert();
    }
}
