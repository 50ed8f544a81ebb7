//! A run that viewers look at and change, as the program `steering` does: `--steered`.
//!
//! ```text
//! every 10 sweeps   all ranks    is the run to end? who takes the state? who gives a source?
//!                   each group   who takes its block?
//! ```
//!
//! A viewer that takes is not waited for. One that gives is waited for, at most for [`PATIENCE`].

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_array::{Array, ArrayError, ArrayPort, Layout};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::EndError;
use chunkcomm_examples::attaching;
use chunkcomm_examples::give_way::beside_this;
use chunkcomm_examples::program::stop_signal;
use chunkcomm_group::Group;

use super::Failure;
use super::concurrent::Concurrent;
use super::control::{BLOCKS, CONTROL, check};
use super::options::Options;
use super::problem::{Geometry, Parameters, Spread};

/// Time for which a viewer may do nothing while it takes or gives.
const PATIENCE: Duration = Duration::from_secs(5);

/// Variable with the file of the cluster's credential.
pub(crate) const CREDENTIAL_FILE: &str = "CHUNKCOMM_CREDENTIAL_FILE";

/// The places where viewers come, at a rank.
pub(crate) struct Steered {
    /// Of all ranks.
    control: ArrayPort,
    /// Of the ranks of this block.
    block: ArrayPort,
    geometry: Geometry,
    /// Each with the number of the sweep after which it was set.
    sources: Vec<(usize, Parameters)>,
    /// Whether this process was asked to end; that of rank 0 counts.
    is_asked: Arc<AtomicBool>,
}

impl Steered {
    /// Offers the block of this rank, and the control of the run. Rank 0 says how a viewer attaches.
    pub(crate) async fn open(
        world: &mut Group,
        form: &mut Concurrent,
        options: &Options,
        spread: &Spread,
    ) -> Result<Steered, Failure> {
        let mut control = ArrayPort::open(world, CONTROL).await?;
        let name = BLOCKS[spread.block_of(world.rank())];
        let mut block = ArrayPort::open(&mut form.group, name).await?;
        control.set_patience(PATIENCE);
        block.set_patience(PATIENCE);
        let (asked, is_asked) = (stop_signal()?, Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&is_asked);
        host::spawn(async move {
            asked.await;
            told.store(true, Ordering::Relaxed);
        });
        if world.rank() == 0 {
            eprintln!("a viewer attaches by\n{}", command(world.cluster())?);
        }
        let (geometry, sources) = (options.geometry(), vec![(0, options.parameters())]);
        Ok(Steered { control, block, geometry, sources, is_asked })
    }

    /// Serves the viewers that wait, after a sweep with this residual; a new source is taken by all ranks at the
    /// same sweep. Returns whether the run goes on.
    pub(crate) async fn offer(
        &mut self,
        world: &mut Group,
        form: &mut Concurrent,
        (sweep, residual): (usize, f64),
    ) -> Result<bool, Failure> {
        let is_asked = (world.rank() == 0).then(|| self.is_asked.load(Ordering::Relaxed));
        let is_asked = world.broadcast_value(0, is_asked).await.map_err(|error| error.cause)?;
        for visit in self.control.visits(world).await? {
            let (_, Parameters { x, y, strength }) = self.sources[self.sources.len() - 1];
            let served = if visit.gives().is_none() {
                let state = [x, y, strength, sweep as f64, residual];
                visit.send(&replicated(world, &state)?).await
            } else {
                let mut given = replicated(world, &[x, y, strength])?;
                let received = visit.receive(&mut given).await;
                let given = given.local();
                let given = Parameters { x: given[0], y: given[1], strength: given[2] };
                // A viewer checks, and another program may not.
                if received.is_ok() && check(&given).is_ok() {
                    self.sources.push((sweep, given));
                    form.part.set(self.geometry, &given);
                }
                received
            };
            self.served(world, served)?;
        }
        for visit in self.block.visits(&mut form.group).await? {
            let sent = visit.send(&form.part.array).await;
            self.served(world, sent)?;
        }
        Ok(!is_asked)
    }

    /// Goes on after the error of a viewer, which is told at rank 0. An error of the ranks is returned.
    fn served(&self, world: &Group, served: Result<(), ArrayError>) -> Result<(), Failure> {
        match served {
            Err(error @ ArrayError::Group(_)) => return Err(error.into()),
            Err(error) if world.rank() == 0 => eprintln!("multiblock: a viewer: {error}"),
            _ => {}
        }
        Ok(())
    }

    /// Waits until the viewers have what was sent to them. Returns the sources, each with the number of the sweep
    /// after which it was set.
    pub(crate) async fn close(self) -> Vec<(usize, Parameters)> {
        tokio::join!(self.control.close(), self.block.close());
        self.sources
    }
}

/// Takes no account of messages that viewers did not take because they were killed, by which the run is no worse.
/// A viewer is no founder of the cluster, and so is not named by its rank.
pub(crate) fn unless_of_viewers(done: Result<(), Failure>) -> Result<(), Failure> {
    let Err(error) = done else { return Ok(()) };
    match error.downcast_ref() {
        Some(EndError::Close(lost))
            if lost.channels.iter().all(|it| !it.peer.starts_with("rank-")) =>
        {
            Ok(())
        }
        _ => Err(error),
    }
}

/// Returns an array that all ranks have whole.
fn replicated(world: &Group, elements: &[f64]) -> Result<Array<f64>, ArrayError> {
    let layout =
        Layout::over("(*)", &[elements.len()], world.size()).map_err(ArrayError::Layout)?;
    Array::from_local(world, &layout, elements.to_vec())
}

/// Returns the command line with which a viewer attaches.
fn command(cluster: &Cluster) -> Result<String, Failure> {
    let mut variables = attaching::variables(cluster)?;
    if cluster.credential().is_some() && !variables.iter().any(|it| it.0 == CREDENTIAL_FILE) {
        // As the cluster was told by who started it.
        variables.push((CREDENTIAL_FILE, "FILE".into()));
    }
    let word =
        |(name, value): &(_, OsString)| format!("{name}={}", quoted(&value.to_string_lossy()));
    let mut words: Vec<String> = variables.iter().map(word).collect();
    let program = beside_this("steering").unwrap_or_else(|_| "steering".into());
    words.push(quoted(&program.display().to_string()));
    Ok(words.join(" "))
}

/// Returns a word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,%[]".contains(letter);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
