//! Moves an array from the processes of this program to those of another one, `redistribute-store`, in
//! another layout. Each process reads, sends, receives and writes its own part only.
//!
//! ```text
//! cargo build --release --example redistribute --example redistribute-store
//! target/release/examples/redistribute --picture --check
//! target/release/examples/redistribute --from "(block,*)@3x1" --to "(*,cyclic(2))@1x2" input.npy output.npy
//! mpiexec -n 2 target/release/examples/redistribute input.npy output.npy \
//!       : -n 2 target/release/examples/redistribute-store output.npy
//! ```
//!
//! The programs know nothing of each other but the name under which their groups meet. From the two layouts
//! follows who sends which elements to whom.

mod announced;
mod array;
mod options;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm_array::{Layout, NpyElement};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::launch::Launcher;
use chunkcomm_examples::cluster_options::{end_led, end_served, with_all_founders};
use chunkcomm_examples::command_line::{parse_with, write_out};
use chunkcomm_examples::farm_report::Report;
use chunkcomm_examples::give_way::give_way;
use chunkcomm_examples::program::{on_a_thread, run_program};
use chunkcomm_examples::progress::Bar;
use chunkcomm_group::{Group, Pair};

use announced::{Announced, COLOURS, MEETING, with_element};
use array::Input;
use options::{Options, STORE};

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("redistribute", &options.cluster, || work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    let array = options.array()?;
    let [from, to] = options.layouts(&array.shape)?;
    let config = options.cluster.config_of_nodes((from.ranks() + to.ranks()) as u32)?;
    if !options.cluster.explain_launch {
        if config.place()?.launcher() == Launcher::User {
            // Before there is a cluster: what is wrong is said once, by the only process.
            options.check_start(from.ranks() + to.ranks())?;
        }
        give_way(&config, from.ranks(), &Options::store()?, options.of_store())?;
    }
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(()) };
    let moving = Moving { options, array, from, to };
    if cluster.rank() == 0 {
        let done = moving.lead(&cluster).await;
        return end_led(&cluster, done).await;
    }
    match (moving.run(&cluster).await, cluster.ended()) {
        (Err(error), None) => Err(error),
        // The end of the cluster is the cause of any error.
        _ => end_served(&cluster).await,
    }
}

/// An array on its way, at one of its senders.
struct Moving {
    options: &'static Options,
    array: Input,
    from: Layout,
    to: Layout,
}

/// Time until the transfer was open at all ranks, and until all elements had landed.
struct Times([Duration; 2]);

impl Moving {
    /// Sends this rank's part, and waits until the receivers have written.
    async fn run(&self, cluster: &Cluster) -> Result<Times, Failure> {
        let mut ours = Group::world(cluster).await?.split(Some(COLOURS[0]), 0).await?;
        let ours = ours.as_mut().expect("this program has a colour");
        let mut pair = ours.meet(MEETING).await?;
        if cluster.rank() == 0 {
            // Once: the others wait until rank 0 ends the cluster.
            check_size(pair.size(), "redistribute", "--from", &self.from)?;
            check_size(pair.their_size(), STORE, "--to", &self.to)?;
        }
        let Input { element, shape, .. } = self.array.clone();
        let told = Announced { element, shape };
        Announced::exchanged(&mut pair, Some(told)).await?;
        let times = with_element!(element, T => Box::pin(self.send::<T>(ours, &mut pair)).await)?;
        pair.barrier().await?;
        Ok(times)
    }

    async fn send<T: NpyElement>(
        &self,
        ours: &mut Group,
        pair: &mut Pair,
    ) -> Result<Times, Failure> {
        let bar = Bar::on_terminal(self.options.no_progress || pair.rank() > 0);
        let told =
            |what: &str| bar.as_ref().inspect(|bar| bar.draw(&format!("{what} {}", self.array)));
        told("reads");
        let array = self.array.array::<T>(ours, &self.from).await?;
        pair.barrier().await?;
        told("moves");
        let begun = Instant::now();
        let mut sender = array.sender(pair).await?;
        let opened = begun.elapsed();
        sender.commit_all()?;
        sender.finish().await?;
        Ok(Times([opened, begun.elapsed() - opened]))
    }

    /// Sends as rank 0 of the cluster, and reports.
    async fn lead(&self, cluster: &Cluster) -> Result<(), Failure> {
        let Times([opened, moved]) = with_all_founders(cluster, self.run(cluster)).await?;
        let mut report = Report::default();
        report.row("array", &self.array);
        for (name, layout, program) in
            [("from", &self.from, "redistribute"), ("to", &self.to, STORE)]
        {
            report.row(name, format_args!("{layout}, processes of {program}"));
            if self.options.picture {
                layout.picture().lines().skip(1).for_each(|line| report.row("", line));
            }
        }
        report.row("opened", format_args!("{:.4} s", opened.as_secs_f64()));
        let (bytes, seconds) = (self.array.bytes(), moved.as_secs_f64());
        let rate = bytes as f64 / seconds / 1e6;
        report.row("moved", format_args!("{bytes} bytes, {seconds:.4} s, {rate:.0} MB/s"));
        let output = self.options.output();
        report.row("written", output.display());
        if self.options.check {
            let (array, output) = (self.array.clone(), output.to_owned());
            let compared = on_a_thread(move || array.compare(&output)).await?;
            compared.map_err(|error| -> Failure { error })?;
            report.row("check", "all elements equal those of the array");
        }
        Ok(write_out(report.text())?)
    }
}

/// Checks that a program has as many processes as its layout has ranks.
fn check_size(
    processes: usize,
    program: &str,
    option: &str,
    layout: &Layout,
) -> Result<(), String> {
    let ranks = layout.ranks();
    if processes == ranks {
        return Ok(());
    }
    Err(format!("{program} has {processes} processes, but {option} {layout} has {ranks} ranks"))
}
