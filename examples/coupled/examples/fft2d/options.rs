//! The command line of the program.

use std::path::PathBuf;

use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::numbers;
use chunkcomm_examples::groups::{Costs, death, ranks, shape, with_nodes};
use chunkcomm_examples::picture::check_output;
use clap::{Parser, ValueEnum};

/// Transforms a stream of complex arrays by a two-dimensional FFT, with two groups of nodes; 4 nodes on
/// this machine if nothing else is said.
///
/// The first group transforms rows and sends each as it is finished; the arrays are transposed on the way;
/// the second group transforms columns. With --data-parallel one group does both, array by array.
#[derive(Parser)]
#[command(name = "fft2d", version)]
pub(crate) struct Options {
    /// Rows and columns of an array
    #[arg(long, value_name = "RxC", default_value = "512x512", value_parser = shape)]
    pub(crate) shape: [usize; 2],

    /// Arrays of the stream
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = numbers::<usize>(1..=1_000_000))]
    pub(crate) arrays: usize,

    /// Ranks of the first group and of the second [default: half of the nodes each]
    #[arg(long, value_name = "A,B", value_parser = ranks::<2>, conflicts_with = "data_parallel")]
    pub(crate) ranks: Option<[usize; 2]>,

    /// One group of all nodes, which transforms the rows, exchanges all with all, and transforms the columns
    #[arg(long)]
    pub(crate) data_parallel: bool,

    /// Rounds that a transfer has under way at most, each in memory of its own: 1 or 2
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = numbers::<usize>(1..=2))]
    pub(crate) depth: usize,

    /// Whether rows leave in slabs as they are finished, or the array as a whole
    #[arg(long, value_enum, value_name = "ON|OFF", default_value_t = Switch::On)]
    pub(crate) slabs: Switch,

    /// Whether packing overlaps sending
    #[arg(long, value_enum, value_name = "ON|OFF", default_value_t = Switch::On)]
    pub(crate) overlap: Switch,

    /// Seed of the arrays
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = numbers::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,

    /// Compare all transforms with the sums that define them, which takes its time; exit status 1 if they differ
    #[arg(long)]
    pub(crate) check: bool,

    /// Write the last array's transform as a picture to this file, as PNG: logarithms of magnitudes
    #[arg(long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,

    /// Write the last array and its transform to input.npy and transform.npy in this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) npy: Option<PathBuf>,

    /// Print the figures as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// See [`Costs`].
    #[command(flatten)]
    pub(crate) costs: Costs,

    /// Demonstration of a fault: end the process of this rank, which is not 0, at this array, from 1
    #[arg(long, value_name = "RANK:ARRAY", value_parser = death)]
    die: Option<(u32, usize)>,

    /// Show no progress
    #[arg(long)]
    pub(crate) no_progress: bool,

    /// See [`ClusterOptions`].
    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Options {
    /// Checks whether options that are each right go together.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.die.is_some() {
            self.cluster.needs_the_real_lan("--die ends a process, and virtual hosts are one")?;
        }
        with_nodes(&self.cluster, self.ranks)?;
        // In a cluster the files are written on the machine of rank 0.
        match self.cluster.are_of_a_cluster() {
            Ok(false) => self.check_files(),
            _ => Ok(()),
        }
    }

    /// Checks the places of the files to write.
    ///
    /// # Errors
    /// The text says what is allowed.
    pub(crate) fn check_files(&self) -> Result<(), String> {
        if let Some(folder) = self.npy.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(format!("--npy {}: allowed is a folder that exists", folder.display()));
        }
        self.output.as_deref().map_or(Ok(()), check_output)
    }

    /// Returns the options of the cluster, with the number of nodes that `--ranks` stands for.
    pub(crate) fn of_cluster(&self) -> ClusterOptions {
        with_nodes(&self.cluster, self.ranks).expect("the check has passed")
    }

    /// Whether the process of this rank is to end at this array, from 0.
    pub(crate) fn dies(&self, rank: u32, array: usize) -> bool {
        self.die == Some((rank, array + 1))
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
