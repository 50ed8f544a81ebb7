//! Receives the array that the program `redistribute` sends, in a layout of its own, and writes it to a file.
//!
//! `redistribute` starts it on one machine; see there for both by one launcher.

mod announced;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use chunkcomm_array::{Array, Layout, NpyElement};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::launch::Launcher;
use chunkcomm_examples::cluster_options::{ClusterOptions, end_served};
use chunkcomm_examples::command_line::parse_with;
use chunkcomm_examples::program::run_program;
use chunkcomm_examples::progress::Bar;
use chunkcomm_group::{Group, Pair};
use clap::Parser;

use announced::{Announced, COLOURS, MEETING, with_element};

type Failure = Box<dyn Error>;

/// Receives an array from the processes of the program redistribute, and writes it to a .npy file.
///
/// Its processes are those of the cluster that do not run redistribute, which starts them if no launcher does.
#[derive(Parser)]
#[command(name = "redistribute-store", version)]
struct Options {
    /// File to write, in a folder that all machines share
    #[arg(value_name = "OUTPUT.npy", default_value = "redistributed.npy")]
    output: PathBuf,

    /// Layout at the processes of this program
    #[arg(long, value_name = "LAYOUT", default_value = "(*,block)@1x2")]
    to: String,

    /// Show no progress
    #[arg(long)]
    no_progress: bool,

    /// See [`ClusterOptions`].
    #[command(flatten)]
    cluster: ClusterOptions,
}

impl Options {
    fn check(&self) -> Result<(), String> {
        self.cluster.needs_the_real_lan("two programs are two processes at least")
    }
}

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("redistribute-store", &options.cluster, || work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    let config = options.cluster.config();
    if config.place()?.launcher() == Launcher::User && !options.cluster.explain_launch {
        let how = "mpiexec -n 2 redistribute in.npy out.npy : -n 2 redistribute-store out.npy";
        return Err(format!("redistribute starts this program, or a launcher both: {how}").into());
    }
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(()) };
    match (store(options, &cluster).await, cluster.ended()) {
        (Err(error), None) => Err(error),
        // The end of the cluster is the cause of any error.
        _ => end_served(&cluster).await,
    }
}

/// Meets the senders, and receives and writes what they announce.
async fn store(options: &Options, cluster: &Cluster) -> Result<(), Failure> {
    if cluster.rank() == 0 {
        return Err("rank 0 of the cluster leads, which redistribute does: start it first".into());
    }
    let mut ours = Group::world(cluster).await?.split(Some(COLOURS[1]), 0).await?;
    let ours = ours.as_mut().expect("this program has a colour");
    let mut pair = ours.meet(MEETING).await?;
    let Announced { element, shape } = Announced::exchanged(&mut pair, None).await?;
    let layout = Layout::parse(&options.to, &shape)?;
    with_element!(element, T => Box::pin(receive::<T>(options, ours, &mut pair, &layout)).await)?;
    Ok(pair.barrier().await?)
}

/// Receives this rank's part and writes it.
async fn receive<T: NpyElement>(
    options: &Options,
    ours: &Group,
    pair: &mut Pair,
    layout: &Layout,
) -> Result<(), Failure> {
    pair.barrier().await?;
    let array = Array::<T>::zeros(ours, layout, layout.global_shape())?;
    let mut receiver = array.receiver(pair).await?;
    let bar = Bar::on_terminal(options.no_progress || pair.rank() > 0);
    let (mut come, (rows, _)) = (0, receiver.rows());
    while let Some((slab, _)) = receiver.next_slab().await? {
        come += slab.len();
        if let Some(bar) = &bar {
            bar.draw(&format!("redistribute-store has {come} of {rows} rows"));
        }
    }
    let mut array = receiver.into_array().await?;
    Ok(array.write_npy(&options.output).await?)
}
