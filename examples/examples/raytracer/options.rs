//! The command line of the program.

use std::path::PathBuf;

use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::numbers;
use chunkcomm_examples::farm_options::FarmOptions;
use chunkcomm_examples::picture::SIDE_MAX;
use clap::{Parser, ValueEnum};

use super::scene::Source;

const SIDES: std::ops::RangeInclusive<u64> = 1..=SIDE_MAX as u64;

/// Renders triangles with shadows and mirrors by a farm. Its workers are processes or threads of this
/// machine; with an option of a cluster, or started by a launcher, they are the cluster's other nodes.
#[derive(Parser, Clone, Debug)]
#[command(name = "raytracer", version)]
pub(crate) struct Options {
    /// OBJ file of the scene, the same on each machine [default: spheres on a board]
    pub(crate) file: Option<PathBuf>,

    /// Pixels of a row of the picture
    #[arg(long, value_name = "N", value_parser = numbers::<u32>(SIDES), default_value_t = 800)]
    pub(crate) width: u32,

    /// Rows of the picture
    #[arg(long, value_name = "N", value_parser = numbers::<u32>(SIDES), default_value_t = 600)]
    pub(crate) height: u32,

    /// Area of a task: a row of the picture, or a square
    #[arg(long, value_enum, default_value_t)]
    pub(crate) by: By,

    /// Side of a square, in pixels
    #[arg(long, value_name = "N", value_parser = numbers::<u32>(SIDES), default_value_t = 32)]
    pub(crate) tile: u32,

    /// File to write the picture to, as PNG
    #[arg(long, value_name = "PATH", default_value = "raytracer.png")]
    pub(crate) output: PathBuf,

    /// Render sequentially too and compare the pictures, pixel by pixel; exit status 1 if they differ
    #[arg(long)]
    pub(crate) check: bool,

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

/// Areas of the picture that are tasks.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    /// Rows
    #[default]
    Lines,
    /// Squares
    Tiles,
}

impl Options {
    pub(crate) fn source(&self) -> Source {
        self.file.clone().map_or(Source::BuiltIn, Source::File)
    }

    /// Returns width and height of the picture.
    pub(crate) fn sides(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// Returns width and height of a task's area.
    pub(crate) fn area_sides(&self) -> (u32, u32) {
        match self.by {
            By::Lines => (self.width, 1),
            By::Tiles => (self.tile, self.tile),
        }
    }

    /// Returns what a task is, for the report.
    pub(crate) fn describe_area(&self) -> String {
        match self.by {
            By::Lines => "lines".into(),
            By::Tiles => format!("tiles of {0} x {0}", self.tile),
        }
    }
}
