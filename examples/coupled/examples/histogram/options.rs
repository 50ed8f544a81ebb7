//! The command line of the program.

use std::path::PathBuf;

use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::numbers;
use chunkcomm_examples::picture::check_output;
use clap::Parser;

/// Draws the Mandelbrot set in shades of its histogram, with the nodes of a cluster; 4 on this machine if
/// nothing else is said.
///
/// Each node computes every N-th row. Rows and counts travel while the next ones are computed, so the histogram
/// of all pixels is complete when the last pixel is there.
#[derive(Parser)]
#[command(name = "histogram", version)]
pub(crate) struct Options {
    /// Pixels in a row
    #[arg(long, value_name = "N", default_value_t = 800, value_parser = numbers::<usize>(1..=8192))]
    pub(crate) width: usize,

    /// Rows of the picture, without the histogram below
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = numbers::<usize>(1..=8192))]
    pub(crate) height: usize,

    /// Rows of a band, which has a histogram of its own
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = numbers::<usize>(1..=8192))]
    pub(crate) rows: usize,

    /// File to write picture and histogram to, as PNG
    #[arg(long, value_name = "PATH", default_value = "histogram.png")]
    pub(crate) output: PathBuf,

    /// Compute in one process too and compare pixels and histogram; exit status 1 if they differ
    #[arg(long)]
    pub(crate) check: bool,

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
        // In a cluster the picture is written on the machine of rank 0.
        match self.cluster.are_of_a_cluster() {
            Ok(false) => check_output(&self.output),
            _ => Ok(()),
        }
    }

    /// Returns the number of bands.
    pub(crate) fn bands(&self) -> usize {
        self.height.div_ceil(self.rows)
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
