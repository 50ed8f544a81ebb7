//! The command line of the program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use chunkcomm_array::Layout;
use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::{can_be_a_file, numbers};
use chunkcomm_examples::give_way::beside_this;
use clap::Parser;

use super::array::Input;

/// Name of the program of the receivers.
pub(crate) const STORE: &str = "redistribute-store";

/// Shape of the array that is made when nothing else is said.
const SHAPE: [usize; 2] = [1000, 800];

/// Moves an array from one group of processes to another, in another layout.
///
/// This program reads a .npy file, each process its part, and sends; the processes of redistribute-store
/// receive, and write a .npy file. Both are started on this machine if nothing else is said; the files are
/// those of a folder that all machines share.
///
/// A layout has a word for each dimension: * (whole), block, cyclic, cyclic(K), blocks(N,N..); and the grid of
/// processes: "(block,cyclic(4))@2x3".
#[derive(Parser)]
#[command(name = "redistribute", version)]
#[command(override_usage = "redistribute [OPTIONS] INPUT.npy OUTPUT.npy\n       \
                            redistribute [OPTIONS] --shape N,N.. OUTPUT.npy")]
pub(crate) struct Options {
    /// File to read and file to write; with --shape the latter alone [default: redistributed.npy, of an
    /// array that is made]
    #[arg(value_name = "FILE", num_args = 0..=2)]
    files: Vec<PathBuf>,

    /// Layout at the processes of this program
    #[arg(long, value_name = "LAYOUT", default_value = "(block,*)@2x1")]
    from: String,

    /// Layout at the processes of redistribute-store
    #[arg(long, value_name = "LAYOUT", default_value = "(*,block)@1x2")]
    to: String,

    /// Shape of an array that is made: of f64, each element its own number [default: 1000,800]
    #[arg(long, value_name = "N,N..", value_delimiter = ',', value_parser = numbers::<usize>(1..=1 << 40))]
    shape: Vec<usize>,

    /// Compare all elements of the two files in one process; exit status 1 if they differ
    #[arg(long)]
    pub(crate) check: bool,

    /// Print which process owns what, in both layouts
    #[arg(long)]
    pub(crate) picture: bool,

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
        self.cluster.needs_the_real_lan("two programs are two processes at least")?;
        match (self.files.len(), self.shape.is_empty()) {
            (2, false) => {
                return Err("--shape makes an array: allowed is one file, to write".to_owned());
            }
            (1, true) => return Err("allowed is one file with --shape, and two without".to_owned()),
            _ => {}
        }
        let same = |input: &Path| {
            let files = (input.canonicalize(), self.output().canonicalize());
            matches!(files, (Ok(input), Ok(output)) if input == output)
        };
        if self.input().is_some_and(same) {
            return Err(format!(
                "{} is to be read and written: allowed are two files",
                self.output().display()
            ));
        }
        if self.input().is_none() {
            self.layouts(&self.shape())?;
        }
        Ok(())
    }

    /// Returns the file to read, if there is one.
    pub(crate) fn input(&self) -> Option<&Path> {
        if self.files.len() > 1 { Some(&self.files[0]) } else { None }
    }

    /// Returns the file to write.
    pub(crate) fn output(&self) -> &Path {
        self.files.last().map_or(Path::new("redistributed.npy"), PathBuf::as_path)
    }

    /// Returns the array to move.
    ///
    /// # Errors
    /// The file cannot be read; the text names it.
    pub(crate) fn array(&self) -> Result<Input, Box<dyn std::error::Error>> {
        match self.input() {
            Some(input) => Input::of_file(input),
            None => Ok(Input::made(&self.shape())),
        }
    }

    fn shape(&self) -> Vec<usize> {
        if self.shape.is_empty() { SHAPE.to_vec() } else { self.shape.clone() }
    }

    /// Checks what can be wrong on this machine before there is a cluster.
    ///
    /// # Errors
    /// The text says what is allowed.
    pub(crate) fn check_start(&self, ranks: usize) -> Result<(), String> {
        if !can_be_a_file(self.output()) {
            let output = self.output().display();
            return Err(format!("{output}: allowed is a file in a folder that exists"));
        }
        match self.cluster.nodes {
            Some(nodes) if nodes as usize != ranks => {
                Err(format!("--nodes {nodes}: allowed are {ranks}, the ranks of both layouts"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the layouts of senders and receivers for an array of this shape.
    ///
    /// # Errors
    /// The text says what is wrong with which.
    pub(crate) fn layouts(&self, shape: &[usize]) -> Result<[Layout; 2], String> {
        Ok([layout("--from", &self.from, shape)?, layout("--to", &self.to, shape)?])
    }

    /// Returns the program of the receivers.
    ///
    /// # Errors
    /// There is none; the text says how to build it.
    pub(crate) fn store() -> Result<PathBuf, String> {
        beside_this(STORE)
            .map_err(|error| format!("{error}; cargo build --release --example {STORE} builds it"))
    }

    /// Returns the command line of the receivers.
    pub(crate) fn of_store(&self) -> Vec<OsString> {
        let mut words = vec!["--to".into(), self.to.clone().into()];
        words.extend(self.no_progress.then(|| "--no-progress".into()));
        words.push(self.output().into());
        words
    }
}

/// Returns the layout of this notation for the whole of an array of this shape.
fn layout(option: &str, text: &str, shape: &[usize]) -> Result<Layout, String> {
    let allowed = format!("allowed is a layout of all of an array of {shape:?}");
    let layout = Layout::parse(text, shape);
    let layout = layout.map_err(|error| format!("{option} {text:?}: {error}; {allowed}"))?;
    // No region, and no other order of the dimensions.
    if layout.shape() == shape { Ok(layout) } else { Err(format!("{option} {text:?}: {allowed}")) }
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
