//! The simulation as its viewer sees it: three arrays to take, one to give.

use std::time::Duration;

use axum::body::Bytes;
use chunkcomm::host::{self, Instant};
use chunkcomm::with_causes;
use chunkcomm_array::{AttachError, Visitor};
use chunkcomm_cluster::Cluster;
use chunkcomm_examples::picture::encode;
use tokio::sync::Mutex;

use super::control::{BLOCKS, CONTROL};
use super::problem::{Geometry, Parameters};
use super::view;

/// A running simulation, and the picture that was last taken of it.
pub(crate) struct Simulation {
    cluster: Cluster,
    control: Visitor,
    blocks: [Visitor; 3],
    /// Least time between two visits for a picture.
    interval: Duration,
    /// Locked during a visit. A request that waits for the lock then finds the picture.
    last: Mutex<Option<Picture>>,
}

/// State of the simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct State {
    /// Number of finished sweeps.
    pub(crate) sweep: usize,
    /// Last residual that was computed.
    pub(crate) residual: f64,
    /// Density of the source.
    pub(crate) strength: f64,
}

/// The field as a PNG file, and the state of the simulation at about the same sweep.
#[derive(Clone)]
pub(crate) struct Picture {
    pub(crate) png: Bytes,
    pub(crate) state: State,
    taken: Instant,
}

impl Simulation {
    /// Returns the simulation of this cluster, which this program has joined.
    pub(crate) fn new(cluster: &Cluster, interval: Duration) -> Simulation {
        let visitor = |name| Visitor::new(cluster, name);
        let (control, blocks) = (visitor(CONTROL), BLOCKS.map(visitor));
        Simulation { cluster: cluster.clone(), control, blocks, interval, last: Mutex::default() }
    }

    /// Returns the field now: the last picture, or a new one when that is too old. Requests that come at once
    /// share one visit.
    ///
    /// # Errors
    /// The simulation has ended, or does not send; the text says why.
    pub(crate) async fn field(&self) -> Result<Picture, String> {
        self.running(async {
            let asked = Instant::now();
            let mut last = self.last.lock().await;
            let recent = |it: &&Picture| it.taken >= asked || it.taken.elapsed() < self.interval;
            if let Some(recent) = last.as_ref().filter(recent) {
                return Ok(recent.clone());
            }
            let (state, blocks) = self.visit().await.map_err(|error| with_causes(&error))?;
            // On another thread, so that this one goes on sending signs of life to the other nodes.
            let png = host::compute(Duration::ZERO, move || drawn(&blocks)).await?;
            let picture = Picture { png: png.into(), state, taken: Instant::now() };
            Ok(last.insert(picture).clone())
        })
        .await
    }

    /// Moves the source. All ranks of the simulation have it when this returns.
    ///
    /// # Errors
    /// As [`field`](Self::field).
    pub(crate) async fn steer(&self, source: Parameters) -> Result<(), String> {
        self.running(async {
            let Parameters { x, y, strength } = source;
            let given = self.control.give(&[3], &[x, y, strength]).await;
            given.map_err(|error| with_causes(&error))
        })
        .await
    }

    /// Takes the state and the blocks. The groups look for visitors at their own times, so that the blocks may be
    /// some sweeps apart.
    async fn visit(&self) -> Result<(State, [Block; 3]), AttachError> {
        let [left, middle, right] = &self.blocks;
        let ((state, _), left, middle, right) = tokio::try_join!(
            self.control.take::<f64>(),
            left.take::<f64>(),
            middle.take::<f64>(),
            right.take::<f64>(),
        )?;
        // Less than five numbers are of another program.
        let number = |index| state.get(index).copied().unwrap_or(f64::NAN);
        let state = State { sweep: number(3) as usize, residual: number(4), strength: number(2) };
        Ok((state, [left, middle, right]))
    }

    /// Waits for a visit, as long as the simulation runs.
    async fn running<T>(
        &self,
        visit: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        tokio::select! {
            biased;
            end = self.cluster.finished() => Err(format!("the simulation has ended: {end}")),
            visited = visit => visited,
        }
    }
}

/// Elements of a block in C's order, and its shape.
type Block = (Vec<f64>, Vec<usize>);

/// Draws the blocks where they are in the geometry, which follows from the shape of the left one.
fn drawn(blocks: &[Block; 3]) -> Result<Vec<u8>, String> {
    let geometry = Geometry { side: blocks[0].1[0] };
    let width = geometry.width();
    let mut values = vec![f64::NAN; geometry.side * width];
    for (block, (elements, shape)) in geometry.blocks().iter().zip(blocks) {
        if *shape != [block.side; 2] {
            return Err(format!("the simulation has a block of another shape: {shape:?}"));
        }
        for (row, elements) in elements.chunks(block.side).enumerate() {
            let at = (block.top + row) * width + block.left;
            values[at..at + block.side].copy_from_slice(elements);
        }
    }
    let (size, pixels) = view::field(&values, width);
    encode(size, &pixels)
}
