//! The command line of the program.

use std::path::PathBuf;

use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::numbers;
use chunkcomm_examples::farm_options::FarmOptions;
use chunkcomm_examples::farming;
use clap::Parser;

use super::picture_options::PictureOptions;

/// Longest wait of a task: a minute.
const WAIT_MS_MAX: u64 = 60_000;

/// Renders the Mandelbrot set with a farm. Its workers are processes or threads of this machine; with
/// an option of a cluster, or started by a launcher, they are the cluster's other nodes.
#[derive(Parser, Clone, Debug)]
#[command(name = "mandelbrot", version)]
pub(crate) struct Options {
    /// See [`PictureOptions`].
    #[command(flatten)]
    pub(crate) picture: PictureOptions,

    /// Milliseconds that a task waits before it computes, as for data from elsewhere
    #[arg(long, value_name = "MS", value_parser = numbers::<u32>(0..=WAIT_MS_MAX), default_value_t)]
    pub(crate) wait: u32,

    /// File to write the picture to, as PNG
    #[arg(long, value_name = "PATH", default_value = "mandelbrot.png")]
    pub(crate) output: PathBuf,

    /// Compare the picture with the sequential one, pixel by pixel; exit status 1 if they differ
    #[arg(long)]
    pub(crate) sequential_check: bool,

    /// Do not render sequentially first: the report then has no speed-up
    #[arg(long, conflicts_with = "sequential_check")]
    pub(crate) no_sequential: bool,

    /// Show no progress bar
    #[arg(long)]
    pub(crate) no_progress: bool,

    /// See [`ClusterOptions`].
    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,

    /// See [`FarmOptions`].
    #[command(flatten)]
    pub(crate) farm: FarmOptions,
}

impl Options {
    /// Checks whether options that are each right go together, in a cluster or without one.
    ///
    /// # Errors
    /// An error as for a wrong command line.
    pub(crate) fn check(&self, in_a_cluster: bool) -> Result<(), clap::Error> {
        farming::check::<Options>(&self.farm, &self.output, in_a_cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm_examples::command_line::try_parse;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn the_default_is_the_picture_of_the_paper() {
        let view = Options::parse_from(["mandelbrot"]).picture.view();
        assert_eq!((view.width, view.height, view.iterations), (800, 600, 256));
    }

    #[test]
    fn impossible_values_say_what_is_allowed() {
        for (arguments, allowed) in [
            (["--size", "800"], "allowed is WIDTHxHEIGHT"),
            (["--size", "0x600"], "1 to 16384 pixels"),
            (["--size", "-1x4"], "1 to 16384 pixels"),
            (["--region", "1,0,0,1"], "LEFT < RIGHT"),
            (["--region", "0,1,0,x"], "LEFT,RIGHT,BOTTOM,TOP"),
            (["--region", "0,1,0,inf"], "LEFT,RIGHT,BOTTOM,TOP"),
            (["--iterations", "0"], "from 1 to 65535"),
            (["--iterations", "70000"], "from 1 to 65535"),
            (["--iterations", "many"], "from 1 to 65535"),
            (["--rows", "0"], "from 1 to 16384"),
            (["--rows", "-1"], "from 1 to 16384"),
            (["--workers", "0"], "1 to 1024"),
            (["--workers", "2000"], "1 to 1024"),
            (["--workers-as", "fibre"], "process, thread"),
            (["--model", "c"], "a, b"),
            (["--prefetch", "0"], "a number from 1 on, and auto"),
            (["--prefetch", "-2"], "a number from 1 on, and auto"),
            (["--virtual-workers", "0"], "auto, and numbers from 1 to 1024"),
            (["--virtual-workers", "1025"], "auto, and numbers from 1 to 1024"),
            (["--grain", "0"], "allowed are auto and whole numbers from 1"),
            (["--grain", "-1"], "allowed are auto and whole numbers from 1"),
            (["--grain", "few"], "allowed are auto and whole numbers from 1"),
            (["--output", "/nowhere/at/all.png"], "folder that exists"),
        ] {
            let parsed = try_parse::<Options>(["mandelbrot"].iter().chain(&arguments));
            let refused = parsed.and_then(|options| options.check(false));
            let error = refused.unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(allowed), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn a_picture_that_is_not_rendered_is_not_compared() {
        let words = ["mandelbrot", "--no-sequential", "--sequential-check"];
        let error = try_parse::<Options>(words).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--no-sequential"), "{error}");
    }

    #[test]
    fn a_cluster_has_its_own_workers() {
        let options = |words: &[&str]| Options::parse_from(["mandelbrot"].iter().chain(words));
        for told in [["--workers", "2"], ["--workers-as", "thread"]] {
            assert!(options(&told).check(false).is_ok());
            let error = options(&told).check(true).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("allowed without one"), "{error}");
        }
        // The folder of rank 0 need not exist here.
        assert!(options(&["--output", "/nowhere/at/all.png"]).check(true).is_ok());
    }
}
