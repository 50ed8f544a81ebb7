//! The processor farms of a study of 1994 in virtual time: K. Zielinski, M. Gajecki, G. Czajkowski,
//! "Parallel Programming Systems for LAN Distributed Computing".
//!
//! The farm of this workspace runs on hosts as fast as the study's, with the costs of messages that
//! the study measured. Its numbers stand beside the study's, where the text has them.
//!
//! Reading order: `machines` (speeds and costs), `picture` (the work of pixels), this file (one farm).

mod machines;
mod picture;

use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_farm::settings::{Grain, Model, Prefetch};
use chunkcomm_farm::{Farm, serve_in};
use chunkcomm_simulation::WorldSpec;

pub use machines::{Machine, Tool};
pub use picture::{PIXELS, Picture};

use crate::failure::{Doing, Failure};
use crate::lan::{LanArgs, run_world};
use crate::ours::farm::FINISH_DEADLINE;

/// One farm of the study.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Software whose costs of messages the hosts have.
    pub tool: Tool,
    /// The stations; the first is the farmer's, and works too in model A.
    pub stations: Vec<Machine>,
    /// Whether the farmer's station works.
    pub model: Model,
    /// Picture that is computed.
    pub picture: Picture,
    /// Pixels of a task.
    pub pixels: u64,
    /// Tasks that a worker holds: 1, or 2 for double buffering.
    pub prefetch: u32,
    /// Whether a task of the farmer's own worker costs the processor two messages, as between the
    /// study's processes. *Assumed*: as much as between two stations. In our farm it costs none.
    pub local_messages: bool,
}

/// Bytes of a task's message.
const TASK_BYTES: u64 = 16;

impl Setup {
    /// Returns the stations that work.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.stations.len() - usize::from(self.model == Model::B)
    }

    /// Returns the virtual seconds from the first assignment to the last result.
    ///
    /// # Errors
    /// If a program fails.
    pub fn seconds(&self) -> Result<f64, Failure> {
        if self.stations.len() == 1 {
            return Ok(self.picture.seconds_on(self.stations[0]));
        }
        let text = machines::world(self.tool, self.picture, &self.stations);
        let world = WorldSpec::from_toml(&text).doing("reading the world of the study")?;
        let lan = LanArgs { lan: String::new(), trace: None, check: false };
        let (setup, work) = (self.clone(), Arc::new(self.picture.work()));
        let ran = run_world(&lan, &world, self.stations.len(), move |cluster| {
            let (setup, work) = (setup.clone(), Arc::clone(&work));
            async move { setup.farm(&cluster, work).await }
        })?;
        Ok(ran.results[0])
    }

    /// Returns the work of the two local messages of a task, in time of a SPARCstation 2.
    fn local_work(&self) -> Duration {
        if !self.local_messages {
            return Duration::ZERO;
        }
        let here = self.stations[0];
        let messages = [TASK_BYTES, self.pixels * self.picture.bytes_a_pixel()];
        let time: Duration =
            messages.map(|bytes| self.tool.processor_time(here, bytes)).iter().sum();
        let speed = self.picture.seconds_on(Machine::Sparc) / self.picture.seconds_on(here);
        time.mul_f64(speed)
    }

    /// Runs the farmer on rank 0 and workers on the others; returns the seconds, 0 at a worker.
    async fn farm(&self, cluster: &Cluster, work: Arc<picture::Work>) -> Result<f64, Failure> {
        let mut registry = Registry::new();
        let (pixels, bytes_each) = (self.pixels, self.picture.bytes_a_pixel());
        let local = if cluster.rank() == 0 { self.local_work() } else { Duration::ZERO };
        let compute = registry.register("pixels", move |first: u64| {
            let end = (first + pixels).min(PIXELS);
            host::spend(work.of(first, end) + local);
            vec![0_u8; ((end - first) * bytes_each) as usize]
        });
        if cluster.rank() > 0 {
            serve_in(cluster, &registry).threads(1).await.doing("serving the farm")?;
            return Ok(0.0);
        }
        let builder = Farm::builder(registry)
            .model(self.model)
            .prefetch(Prefetch::Fixed(self.prefetch))
            .grain(Grain::Fixed(1));
        let mut farm = builder.start_in(cluster).await.doing("starting the farm")?;
        let tasks = (0..PIXELS).step_by(self.pixels as usize);
        let started = host::Instant::now();
        let results = farm.stream(&compute, tasks).doing("farming")?.as_completed();
        let ran = results.for_each(|_, _| {}).await;
        let seconds = started.elapsed().as_secs_f64();
        ran.doing("farming")?;
        farm.finish(FINISH_DEADLINE).await.doing("ending the farm")?;
        Ok(seconds)
    }
}
