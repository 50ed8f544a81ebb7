//! The command line of the program.

use std::path::PathBuf;

use chunkcomm_cluster::launch::LaunchError;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::{can_be_a_file, numbers};
use chunkcomm_examples::groups::{Costs, config_of_ranks, death, ranks, shape, sizes, with_nodes};
use chunkcomm_examples::picture::check_output;
use clap::Parser;

/// Number of blocks of the pipeline, and so of its groups.
pub(crate) const BLOCKS: usize = 4;

/// Work of the blocks: a product of spectra takes less than a transform.
const WEIGHTS: [usize; BLOCKS] = [3, 3, 1, 3];

/// Convolves a stream of images with a stream of kernels, with four groups of nodes; 4 nodes on this machine
/// if nothing else is said.
///
/// Two groups transform images and kernels by two-dimensional FFTs, a third multiplies both pointwise, the
/// fourth transforms back. Each works at the next image while the others have those before it. With
/// --data-parallel one group takes all four steps, image by image.
#[derive(Parser)]
#[command(name = "convolution", version)]
pub(crate) struct Options {
    /// Rows and columns of images that are made [default: 256x256]
    #[arg(long, value_name = "RxC", value_parser = shape, conflicts_with = "image")]
    pub(crate) shape: Option<[usize; 2]>,

    /// Images of the stream
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = numbers::<usize>(1..=1_000_000))]
    pub(crate) images: usize,

    /// Take this PNG file, in shades of grey, as each image [default: moving shapes are made]
    #[arg(long, value_name = "FILE.png")]
    pub(crate) image: Option<PathBuf>,

    /// Take this PNG file, in shades of grey, as each kernel; the middle is its origin [default: discs and
    /// motion blurs of growing size are made]
    #[arg(long, value_name = "FILE.png")]
    pub(crate) kernel: Option<PathBuf>,

    /// Ranks of the groups: images, kernels, products, results [default: in proportion
    /// to their work, 3:3:1:3]
    #[arg(long, value_name = "A,B,C,D", value_parser = ranks::<BLOCKS>, conflicts_with = "data_parallel")]
    ranks: Option<[usize; BLOCKS]>,

    /// One group of all nodes, which takes the four steps in turn
    #[arg(long)]
    pub(crate) data_parallel: bool,

    /// File to write image, kernel and result of the last round to, side by side, as PNG
    #[arg(long, value_name = "PATH", default_value = "convolution.png")]
    pub(crate) output: PathBuf,

    /// Write image, kernel and result of the last round to this .npy file, as one array of three
    #[arg(long, value_name = "FILE")]
    pub(crate) npy: Option<PathBuf>,

    /// Compare all results with the sum that defines a convolution, which takes its time; exit status 1 if they differ
    #[arg(long)]
    pub(crate) check: bool,

    /// Print the figures as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// See [`Costs`].
    #[command(flatten)]
    pub(crate) costs: Costs,

    /// Demonstration of a fault: end the process of this rank, which is not 0, at this image, from 1
    #[arg(long, value_name = "RANK:IMAGE", value_parser = death)]
    die: Option<(u32, usize)>,

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
        if let Some(file) = self.npy.as_ref().filter(|file| !can_be_a_file(file)) {
            let file = file.display();
            return Err(format!("--npy {file}: allowed is a file in a folder that exists"));
        }
        check_output(&self.output)
    }

    /// Returns the options of the cluster, with the number of nodes that `--ranks` stands for.
    pub(crate) fn of_cluster(&self) -> ClusterOptions {
        with_nodes(&self.cluster, self.ranks).expect("it was checked")
    }

    /// Returns the settings of the cluster.
    ///
    /// # Errors
    /// A variable of the launcher makes no sense.
    pub(crate) fn config(&self) -> Result<ClusterConfig, LaunchError> {
        config_of_ranks(&self.cluster, self.ranks, BLOCKS as u32)
    }

    /// Returns the numbers of ranks of the groups, in proportion to their work if nothing else is said.
    ///
    /// # Errors
    /// The cluster has another size, or too few nodes; the text says what is allowed.
    pub(crate) fn groups(&self, cluster: &Cluster) -> Result<[usize; BLOCKS], String> {
        sizes(cluster, self.ranks, WEIGHTS)
    }

    /// Whether the process of this rank is to end at this image, from 0.
    pub(crate) fn dies(&self, rank: u32, image: usize) -> bool {
        self.die == Some((rank, image + 1))
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
