//! The command line of the program.

use std::path::PathBuf;

use chunkcomm_cluster::cluster::launch::Launcher;
use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::{can_be_a_file, numbers};
use chunkcomm_examples::groups::{Costs, death, ranks};
use chunkcomm_examples::picture::check_output;
use clap::Parser;

use super::problem::{Geometry, Parameters, Spread};
use super::steered::CREDENTIAL_FILE;

/// Number of processes that the program starts by default.
const NODES: usize = 9;

/// Sweeps at most, by default.
const SWEEPS: usize = 10_000;

/// Most sweeps.
const SWEEPS_MAX: usize = 10_000_000;

/// Number of blocks.
const BLOCKS: usize = 3;

/// Solves Poisson's equation on three coupled blocks with the nodes of a cluster; 9 on this machine if nothing
/// else is said.
///
/// Each block has nodes of its own, which relax it while the others relax theirs. Blocks exchange the columns
/// at which they touch, nodes of a block the rows.
#[derive(Parser)]
#[command(name = "multiblock", version)]
pub(crate) struct Options {
    /// Rows and columns of the left block and of the right one; the middle one has half of them
    #[arg(long, value_name = "N", default_value_t = 192, value_parser = numbers::<usize>(4..=4096))]
    side: usize,

    /// Nodes of the three blocks [default: all, in proportion of the points]
    #[arg(long, value_name = "A,B,C", value_parser = ranks::<BLOCKS>, conflicts_with = "data_parallel")]
    ranks: Option<[usize; BLOCKS]>,

    /// Compute the blocks in turn, each with all nodes
    #[arg(long)]
    pub(crate) data_parallel: bool,

    /// Centre of the source: column, row, both in sides of the left block; the sink is its mirror image
    #[arg(long, value_name = "X,Y", default_value = "0.4,0.35", value_parser = place)]
    source: [f64; 2],

    /// Density of the source
    #[arg(long, value_name = "X", default_value_t = 100.0, value_parser = positive)]
    strength: f64,

    /// Sweeps at most [default: 10000, with --steered 10000000]
    #[arg(long, value_name = "N", value_parser = numbers::<usize>(1..=SWEEPS_MAX as u64))]
    sweeps: Option<usize>,

    /// Sweeps between two looks at the residual
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = numbers::<usize>(1..=10_000_000))]
    pub(crate) every: usize,

    /// End at this residual, in that of the first sweep; 0: after all sweeps
    #[arg(long, value_name = "X", default_value_t = 1e-6, value_parser = share)]
    pub(crate) tolerance: f64,

    /// File to write the picture to, as PNG
    #[arg(long, value_name = "PATH", default_value = "multiblock.png")]
    pub(crate) output: PathBuf,

    /// File to write the solution to, as .npy: one array with NaN outside of the blocks
    #[arg(long, value_name = "PATH")]
    pub(crate) npy: Option<PathBuf>,

    /// Let viewers look at the run and move its source, as the program steering does; it ends after all sweeps,
    /// or when rank 0 gets ctrl-c or SIGTERM
    #[arg(long, conflicts_with = "data_parallel")]
    pub(crate) steered: bool,

    /// Sweeps between two looks for viewers
    #[arg(long, value_name = "N", default_value_t = 10, requires = "steered", value_parser = numbers::<usize>(1..=SWEEPS_MAX as u64))]
    pub(crate) offer: usize,

    /// Compute in one process too and compare all values; exit status 1 if they differ
    #[arg(long)]
    pub(crate) check: bool,

    /// Print one line of JSON in the place of the report
    #[arg(long)]
    pub(crate) json: bool,

    /// See [`Costs`].
    #[command(flatten)]
    pub(crate) costs: Costs,

    /// Demonstration of a fault: end the process of this rank, which is not 0, after this sweep, from 1
    #[arg(long, value_name = "RANK:SWEEP", value_parser = death)]
    die: Option<(u32, usize)>,

    /// Show no progress
    #[arg(long)]
    pub(crate) no_progress: bool,

    /// See [`ClusterOptions`].
    #[command(flatten)]
    cluster: ClusterOptions,
}

impl Options {
    /// Checks whether options that are each right go together.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.die.is_some() {
            let why = "--die ends a process, and virtual hosts are one";
            self.cluster.needs_the_real_lan(why)?;
        }
        if self.steered {
            self.check_steered()?;
        }
        match self.cluster.nodes {
            Some(nodes) if !self.cluster.explain_launch => _ = self.spread(nodes as usize)?,
            _ => {}
        }
        // In a cluster the files are written on the machine of rank 0.
        match self.cluster.are_of_a_cluster() {
            Ok(false) => self.check_files(),
            _ => Ok(()),
        }
    }

    /// Checks whether viewers can find the cluster.
    fn check_steered(&self) -> Result<(), String> {
        self.cluster.needs_the_real_lan("--steered has viewers, which no virtual host reaches")?;
        let is_started_here =
            self.cluster.config().place().is_ok_and(|it| it.launcher() == Launcher::User);
        let has_credential = std::env::var_os(CREDENTIAL_FILE).is_some();
        if is_started_here && self.cluster.hosts.is_some() && !has_credential {
            return Err(format!(
                "--steered with --hosts has viewers, which need the credential: allowed with {CREDENTIAL_FILE}"
            ));
        }
        Ok(())
    }

    /// Returns the number of sweeps at most.
    pub(crate) fn sweeps(&self) -> usize {
        self.sweeps.unwrap_or(if self.steered { SWEEPS_MAX } else { SWEEPS })
    }

    /// Checks the places of the files, before anything is computed.
    ///
    /// # Errors
    /// A text that says what is allowed.
    pub(crate) fn check_files(&self) -> Result<(), String> {
        check_output(&self.output)?;
        match &self.npy {
            Some(path) if *path == self.output => {
                Err("--npy and --output: allowed are two files".to_owned())
            }
            Some(path) if !can_be_a_file(path) => {
                let path = path.display();
                Err(format!("--npy {path}: allowed is a file in a folder that exists"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of nodes where neither an option of the cluster nor a launcher says how many.
    pub(crate) fn nodes(&self) -> u32 {
        self.ranks.map_or(NODES, |ranks| ranks.iter().sum()) as u32
    }

    /// Returns the options of the cluster; a virtual one has as many hosts as there are ranks.
    pub(crate) fn cluster(&self) -> ClusterOptions {
        let mut cluster = self.cluster.clone();
        if cluster.needs_the_real_lan("").is_err() {
            cluster.nodes = cluster.nodes.or(Some(self.nodes()));
        }
        cluster
    }

    /// Returns which ranks of a cluster of this size have which blocks.
    ///
    /// # Errors
    /// The size does not go with the options; the text says what is allowed.
    pub(crate) fn spread(&self, size: usize) -> Result<Spread, String> {
        if self.data_parallel {
            return Ok(Spread::data_parallel(size));
        }
        match self.ranks {
            Some(ranks) if ranks.iter().sum::<usize>() != size => {
                let [a, b, c] = ranks;
                let nodes = self.nodes();
                Err(format!("--ranks {a},{b},{c} with {size} nodes: allowed are {nodes}"))
            }
            None if size < BLOCKS => Err(format!(
                "{BLOCKS} blocks with {size} nodes: allowed are {BLOCKS} and more, fewer with --data-parallel"
            )),
            _ => Ok(Spread::concurrent(self.ranks_of(size))),
        }
    }

    /// Returns the sizes of the groups.
    pub(crate) fn groups(&self, size: usize) -> Vec<usize> {
        if self.data_parallel { vec![size] } else { self.ranks_of(size).to_vec() }
    }

    fn ranks_of(&self, size: usize) -> [usize; BLOCKS] {
        self.ranks.unwrap_or_else(|| Spread::in_proportion(self.geometry(), size))
    }

    pub(crate) fn geometry(&self) -> Geometry {
        Geometry { side: self.side }
    }

    pub(crate) fn parameters(&self) -> Parameters {
        let [x, y] = self.source;
        Parameters { x, y, strength: self.strength }
    }

    /// Whether the process of this rank is to end after this sweep.
    pub(crate) fn dies(&self, rank: u32, sweep: usize) -> bool {
        self.die == Some((rank, sweep))
    }
}

/// Parses a number within these bounds.
fn within(text: &str, [least, most]: [f64; 2]) -> Option<f64> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

fn place(text: &str) -> Result<[f64; 2], String> {
    let numbers = text.split_once(',');
    let numbers = numbers.and_then(|(x, y)| Some([within(x, [0.0, 2.5])?, within(y, [0.0, 1.0])?]));
    numbers.ok_or_else(|| "allowed is X,Y: X from 0 to 2.5, Y from 0 to 1".to_owned())
}

fn positive(text: &str) -> Result<f64, String> {
    within(text, [1e-6, 1e6]).ok_or_else(|| "allowed are numbers from 1e-6 to 1e6".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    within(text, [0.0, 1.0]).ok_or_else(|| "allowed are numbers from 0 to 1".to_owned())
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
