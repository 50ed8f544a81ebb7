//! The command line of the program.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::{can_be_a_file, numbers};
use chunkcomm_examples::groups::{STATUS_DIED, death};
use chunkcomm_examples::picture::check_output;
use clap::{Parser, ValueEnum};

use super::picture_options::PictureOptions;
use super::view::{STEP_NANOS, Steps, Tile, render};

/// Longest step of a virtual host: 1 ms.
const STEP_NANOS_MAX: u64 = 1_000_000;

/// Renders the Mandelbrot set with one farm written in four ways: as in Linda, PVM and SR, and with the
/// farm of this workspace. Rank 0 of the cluster has the picture.
#[derive(Parser, Clone, Debug)]
#[command(name = "models", version)]
pub(crate) struct Options {
    /// Model in which the farm is written
    #[arg(long, value_enum, default_value_t)]
    pub(crate) idiom: Idiom,

    /// Whether the farmer's node works too (a), or only farms (b)
    #[arg(long, value_enum, ignore_case = true, default_value_t)]
    pub(crate) model: Model,

    /// Whether a worker has its next task while it computes one
    #[arg(long, value_enum, default_value_t)]
    pub(crate) double_buffering: Switch,

    /// See [`PictureOptions`].
    #[command(flatten)]
    pub(crate) picture: PictureOptions,

    /// Nanoseconds of a step on a virtual host
    #[arg(long, value_name = "NS", value_parser = numbers::<u64>(0..=STEP_NANOS_MAX), default_value_t = STEP_NANOS)]
    pub(crate) step: u64,

    /// File to write the picture to, as PNG
    #[arg(long, value_name = "PATH", default_value = "models.png")]
    pub(crate) output: PathBuf,

    /// Write the steps of all pixels to this file, for NumPy
    #[arg(long, value_name = "FILE")]
    pub(crate) npy: Option<PathBuf>,

    /// Compare the picture with the sequential one, pixel by pixel; exit status 1 if they differ
    #[arg(long)]
    pub(crate) sequential_check: bool,

    /// End the process of this rank when it has computed that many tasks, before it says the last result
    #[arg(long, value_name = "RANK:NUMBER", value_parser = death)]
    pub(crate) die: Option<(u32, usize)>,

    /// Print one line of JSON instead of the report
    #[arg(long)]
    pub(crate) json: bool,

    /// Show no progress
    #[arg(long)]
    pub(crate) no_progress: bool,

    /// See [`ClusterOptions`].
    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,
}

/// A way to write the farm.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Idiom {
    /// Tuples in a space
    Linda,
    /// Tagged messages between tasks
    Pvm,
    /// Operations of a resource
    Sr,
    /// The farm of this workspace
    #[default]
    Farm,
}

/// The two structures of the LAN farm study.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Model {
    /// The farmer's node works, too
    A,
    /// The farmer only farms
    #[default]
    B,
}

/// On or off.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Switch {
    #[default]
    On,
    Off,
}

impl Options {
    /// Checks the names of the files, before anything is computed.
    ///
    /// # Errors
    /// A text that says what is allowed.
    pub(crate) fn check_files(&self) -> Result<(), String> {
        check_output(&self.output)?;
        match &self.npy {
            Some(path) if !can_be_a_file(path) => {
                Err(format!("--npy {}: allowed is a file in a folder that exists", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Checks whether options that are each right go together.
    ///
    /// # Errors
    /// A text that says what is allowed.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.die.is_some() {
            self.cluster.needs_the_real_lan("--die ends a process, and virtual hosts are one")?;
            if self.idiom == Idiom::Farm {
                return Err("--die: allowed with --idiom linda, pvm, sr".to_owned());
            }
        }
        self.check_files()
    }

    /// Returns the tasks with their numbers.
    pub(crate) fn tiles(&self) -> impl ExactSizeIterator<Item = (u32, Tile)> {
        let tiles = self.picture.view().tiles(self.picture.rows);
        tiles.enumerate().map(|(index, tile)| (index as u32, tile))
    }

    /// Computes the pixels of a task at the node of this rank, while messages move. Ends the process where an
    /// option says so.
    pub(crate) async fn compute(&self, rank: u32, tile: Tile) -> Steps {
        /// Tasks that this process has computed.
        static COMPUTED: AtomicUsize = AtomicUsize::new(0);
        let step = self.step;
        let steps = host::compute(Duration::ZERO, move || render(tile, step, |_| ())).await;
        if self.die == Some((rank, COMPUTED.fetch_add(1, Relaxed) + 1)) {
            std::process::exit(STATUS_DIED);
        }
        steps
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
    fn impossible_values_say_what_is_allowed() {
        for (arguments, allowed) in [
            (["--idiom", "p4"], "linda, pvm, sr, farm"),
            (["--model", "c"], "a, b"),
            (["--double-buffering", "2"], "on, off"),
            (["--size", "0x600"], "1 to 16384 pixels"),
            (["--step", "-1"], "from 0 to 1000000"),
            (["--output", "/nowhere/at/all.png"], "folder that exists"),
            (["--die", "0:1"], "RANK:NUMBER"),
            (["--npy", "/nowhere/at/all.npy"], "folder that exists"),
        ] {
            let parsed = try_parse::<Options>(["models"].iter().chain(&arguments));
            let error = match parsed {
                Err(error) => error.to_string(),
                Ok(options) => options.check().unwrap_err(),
            };
            assert!(error.contains(allowed), "{arguments:?}: {error}");
        }
    }
}
