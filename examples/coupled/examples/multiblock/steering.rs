//! Shows a running simulation, and changes it: computational steering. The simulation is the program `multiblock`;
//! this one attaches to it late, takes its field at its own rate, and gives the place of the source back.
//!
//! ```text
//! cargo build --release --example multiblock --example steering
//! target/release/examples/multiblock --steered
//! CHUNKCOMM_MANAGER=unix:/tmp/.. CHUNKCOMM_CREDENTIAL_FILE=/tmp/.. target/release/examples/steering
//! ```
//!
//! `multiblock --steered` prints the last line, for this machine or for all. The page is at http://127.0.0.1:8080.
//!
//! ```text
//! browser                    this program               three groups of ranks
//! GET /field.png  ────────▶  takes three arrays  ────▶  ArrayPort of each group
//! POST /parameter ────────▶  gives one           ────▶  ArrayPort of all ranks
//! ```
//!
//! The simulation waits for nobody who takes. So this program may be slow, or be killed, and another one may come.

mod control;
mod http;
mod parameter;
#[expect(dead_code, reason = "the viewer needs less of it than the simulation")]
mod problem;
mod simulation;
#[expect(dead_code, reason = "the viewer draws no curve")]
mod view;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm_cluster::cluster::End;
use chunkcomm_cluster::cluster::launch::Launcher;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_examples::cluster_options::END_DEADLINE;
use chunkcomm_examples::command_line::{numbers, parse, write_out};
use chunkcomm_examples::program::{run_program_on_threads, stop_signal};
use clap::Parser;
use tokio::net::TcpListener;

use simulation::Simulation;

type Failure = Box<dyn Error>;

/// Shows the field of a running simulation on a page, and moves its source to where the page is clicked.
///
/// The simulation is `multiblock --steered`, which prints the variables with which this program finds it. The
/// page is at /, the field at /field.png; /parameter takes a POST of x, y and strength.
#[derive(Parser)]
#[command(name = "steering", version)]
struct Options {
    /// Address at which browsers find the page; with port 0 any free port, which is printed
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: SocketAddr,

    /// Fields a second that are taken from the simulation at most, however many are asked for
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = numbers::<u32>(1..=1000))]
    rate: u32,
}

fn main() -> ExitCode {
    run_program_on_threads("steering", work(parse()))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    // Taken first, so that a signal in between is not lost.
    let asked = stop_signal()?;
    let config = ClusterConfig::new();
    let place = config.place()?;
    if place.launcher() != Launcher::Variables || place.rank().is_some() {
        let how = "allowed are CHUNKCOMM_MANAGER and CHUNKCOMM_CREDENTIAL_FILE as multiblock --steered prints them";
        return Err(format!("nothing says where the simulation is: {how}").into());
    }
    let at = options.listen;
    let listening = TcpListener::bind(at).await;
    let listener = listening.map_err(|error| format!("cannot listen at {at}: {error}"))?;
    let at = listener.local_addr()?;
    let cluster = Cluster::join(config).await?;
    #[cfg(unix)]
    cluster.node().explain_on_sigusr1()?;
    let interval = Duration::from_secs(1) / options.rate;
    let router = http::router(Arc::new(Simulation::new(&cluster, interval)));
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    write_out(&format!("listening at http://{at}\n"))?;
    let done = until(&cluster, asked).await;
    server.abort();
    done
}

/// Shows the simulation until `asked` is ready. When the simulation ends, requests get an error that says so.
async fn until(cluster: &Cluster, asked: impl Future<Output = ()>) -> Result<(), Failure> {
    let mut asked = std::pin::pin!(asked);
    let end = tokio::select! {
        biased;
        end = cluster.finished() => end,
        () = &mut asked => return Ok(cluster.leave(END_DEADLINE).await?),
    };
    // The simulation waits for this.
    let ended = cluster.end(END_DEADLINE).await;
    write_out("the simulation has ended; ctrl-c ends this program, too\n")?;
    asked.await;
    match end {
        End::Finished { .. } => Ok(ended?),
        end => Err(end.to_string().into()),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let allowed = "allowed is IP:PORT, such as 127.0.0.1:8080 or [::1]:8080";
    text.parse().map_err(|_| allowed.to_owned())
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
