//! One farm of the paper: its stations, its tasks, and the changes of the world that tell a cause.

use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_farm::settings::{Grain, Model, Prefetch, Tree};
use chunkcomm_farm::{Farm, RunStats, serve_in};
use chunkcomm_simulation::WorldSpec;

use super::machines::{Machine, Tool, world};
use super::picture::{PIXELS, Picture};
use super::short;
use crate::commands::papers::{Found, Scene};
use crate::failure::{Doing, Failure};
use crate::lan::{LanArgs, run_world};
use crate::ours::farm::FINISH_DEADLINE;
use crate::table::{Row, column};

/// Pixels of a task, a line: the paper's choice for all but figure 4.
pub(super) const LINE: u64 = 800;

/// Bytes of a task's message.
const TASK_BYTES: u64 = 16;

/// Answers of which a farm keeps the times.
const SPANS_MAX: usize = 10_000;

/// One farm.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setup {
    /// Software whose costs of messages the hosts have.
    pub(super) tool: Tool,
    /// The stations; the first is the farmer's, and works too in model A.
    pub(super) stations: Vec<Machine>,
    pub(super) model: Model,
    pub(super) picture: Picture,
    /// First pixel, and the one behind the last.
    pub(super) part: [u64; 2],
    /// Pixels of a task.
    pub(super) pixels: u64,
    /// Tasks that a worker holds: 1, or 2 for double buffering.
    pub(super) held: u32,
    /// Workers of a station.
    pub(super) each: u32,
    /// Stations of a group with a sub-farmer; 0 without.
    pub(super) group: u32,
    /// Whether each group has a section of the cable.
    pub(super) bridged: bool,
    pub(super) changed: Changed,
}

/// Changes of the world; 1 is as in the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Changed {
    /// Factor of the cable's rate.
    pub(super) wire: f64,
    /// Factor of the speed of all processors, with messages too.
    pub(super) power: f64,
    /// Factor of the processors' time for messages.
    pub(super) costs: f64,
    /// Factor of that of the farmer's station.
    pub(super) farmer_costs: f64,
    /// Factor of the processor's time for the two messages of a task of the farmer's own worker. *Assumed* at 1:
    /// as between two stations. In our farm these messages cost nothing.
    pub(super) local: f64,
}

/// A world as in the paper.
pub(super) const AS_THERE: Changed =
    Changed { wire: 1.0, power: 1.0, costs: 1.0, farmer_costs: 1.0, local: 1.0 };

/// Figures of a farm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    /// Virtual seconds from the first assignment to the last result.
    pub(super) seconds: f64,
    /// Share of that time in which a station had no task at work, of the mean station.
    pub(super) idle: f64,
}

impl Setup {
    /// Returns a farm of fractals, a line a task, on equal stations.
    pub(super) fn of(tool: Tool, machine: Machine, count: usize, model: Model) -> Self {
        Self {
            tool,
            stations: vec![machine; count],
            model,
            picture: Picture::Fractal,
            part: [0, PIXELS],
            pixels: LINE,
            held: 1,
            each: 1,
            group: 0,
            bridged: false,
            changed: AS_THERE,
        }
    }

    /// Returns the number of sections of the cable.
    pub(super) fn sections(&self) -> usize {
        self.section_of(self.stations.len() - 1) + 1
    }

    /// Returns the section of a station; the farmer's is 0.
    pub(super) fn section_of(&self, station: usize) -> usize {
        if self.bridged { station.div_ceil(self.group as usize) } else { 0 }
    }

    /// Returns the time of the sequential program on a machine.
    pub(super) fn seconds_on(&self, machine: Machine) -> f64 {
        let [first, end] = self.part;
        let work = self.picture.work().of(first, end).as_secs_f64();
        let speed = self.picture.seconds_on(Machine::Sparc) / self.picture.seconds_on(machine);
        work / speed / self.changed.power
    }

    /// Returns how many times as fast as its last station alone a farm of these seconds is.
    pub(super) fn speed_up(&self, seconds: f64) -> f64 {
        self.seconds_on(self.stations[self.stations.len() - 1]) / seconds
    }

    /// Returns the farmer's processor time for the two messages of a task.
    pub(super) fn farmer_seconds(&self) -> f64 {
        let factor = self.changed.costs * self.changed.farmer_costs / self.changed.power;
        self.messages_time().as_secs_f64() * factor / 2.0
    }

    /// Returns the time that both messages of a task take a processor that is both of their ends.
    fn messages_time(&self) -> Duration {
        let messages = [TASK_BYTES, self.pixels * self.picture.bytes_a_pixel()];
        messages.map(|bytes| self.tool.processor_time(self.stations[0], bytes)).iter().sum()
    }

    /// Returns the work of the two local messages of a task, in time of a SPARCstation 2.
    fn local_work(&self) -> Duration {
        let here = self.stations[0];
        let speed = self.picture.seconds_on(Machine::Sparc) / self.picture.seconds_on(here);
        let factor = self.changed.local * self.changed.costs * self.changed.farmer_costs;
        self.messages_time().mul_f64(speed * factor)
    }

    fn run(&self) -> Result<Done, Failure> {
        if self.stations.len() == 1 {
            return Ok(Done { seconds: self.seconds_on(self.stations[0]), idle: 0.0 });
        }
        let world = WorldSpec::from_toml(&world(self)).doing("reading the world of the paper")?;
        let lan = LanArgs { lan: String::new(), trace: None, check: false };
        let setup = self.clone();
        let ran = run_world(&lan, &world, self.stations.len(), move |cluster| {
            let setup = setup.clone();
            async move { setup.farm(&cluster).await }
        })?;
        Ok(ran.results[0])
    }

    /// Runs the farmer on rank 0 and workers on the others.
    async fn farm(&self, cluster: &Cluster) -> Result<Done, Failure> {
        let mut registry = Registry::new();
        let (pixels, bytes_each) = (self.pixels, self.picture.bytes_a_pixel());
        let ([begin, end], work) = (self.part, self.picture.work());
        let local = if cluster.rank() == 0 { self.local_work() } else { Duration::ZERO };
        let compute = registry.register("pixels", move |first: u64| {
            let end = (first + pixels).min(end);
            host::spend(work.of(first, end) + local);
            vec![0_u8; ((end - first) * bytes_each) as usize]
        });
        if cluster.rank() > 0 {
            let served = serve_in(cluster, &registry).threads(self.each as usize).await;
            served.doing("serving the farm")?;
            return Ok(Done { seconds: 0.0, idle: 0.0 });
        }
        let builder = Farm::builder(registry)
            .model(self.model)
            .prefetch(Prefetch::Fixed(self.held))
            .grain(Grain::Fixed(1))
            .tree(if self.group > 0 { Tree::FanOut(self.group) } else { Tree::Off })
            .keep_timeline(SPANS_MAX);
        let mut farm = builder.start_in(cluster).await.doing("starting the farm")?;
        let tasks = (begin..end).step_by(pixels as usize);
        let outcome = farm.run(&compute, tasks).await.doing("farming")?;
        farm.finish(FINISH_DEADLINE).await.doing("ending the farm")?;
        let seconds = outcome.stats.elapsed.as_secs_f64();
        Ok(Done { seconds, idle: idle(&outcome.stats) })
    }

    fn row(&self, done: Done) -> Row {
        let Setup { changed, .. } = self;
        let is_changed = [
            ("cable", changed.wire),
            ("power", changed.power),
            ("costs", changed.costs),
            ("farmer's costs", changed.farmer_costs),
            ("local", changed.local),
        ];
        let is_changed = is_changed.into_iter().filter(|(_, factor)| *factor != 1.0);
        let mut kinds: Vec<String> =
            is_changed.map(|(name, factor)| format!("{name} x {}", short(factor))).collect();
        kinds.extend((self.part != [0, PIXELS]).then(|| "a part".to_owned()));
        kinds.extend((self.group > 0).then(|| format!("groups of {}", self.group)));
        kinds.extend(self.bridged.then(|| "bridged".to_owned()));
        let mut row = Row::default();
        row.set("tool", self.tool.to_string())
            .set("picture", if self.picture == Picture::Fractal { "fractal" } else { "rays" })
            .set("stations", self.stations_told())
            .set("model", if self.model == Model::A { "a" } else { "b" })
            .set("pixels", self.pixels)
            .set("held", self.held)
            .set("workers_each", self.each)
            .set("changed", kinds.join(", "))
            .set("seconds", done.seconds)
            .set("speed_up", self.speed_up(done.seconds));
        row
    }

    /// Returns the stations as people write them: 5 RS6000.
    fn stations_told(&self) -> String {
        let runs = self.stations.chunk_by(|one, other| one == other);
        runs.map(|run| format!("{} {}", run.len(), run[0])).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the share of the time in which no thread of a worker had a task, of the mean worker.
fn idle(stats: &RunStats) -> f64 {
    let mut until = vec![Duration::ZERO; stats.workers.len()];
    let mut spans = stats.timeline.as_ref().map_or(Vec::new(), |timeline| timeline.spans.clone());
    spans.sort_by_key(|span| (span.begin, span.end));
    let mut busy = Duration::ZERO;
    for span in spans {
        let until = &mut until[span.worker];
        busy += span.end.saturating_sub(span.begin.max(*until));
        *until = span.end.max(*until);
    }
    1.0 - busy.as_secs_f64() / stats.elapsed.as_secs_f64() / until.len() as f64
}

/// The farms of a run, each run when it is first asked for.
pub(super) struct Farms {
    done: Vec<(Setup, Done)>,
    /// Share of each picture that is computed.
    part: u64,
}

impl Farms {
    pub(super) fn new(scene: &Scene<'_>) -> Self {
        Self { done: Vec::new(), part: scene.sized(1, 40) }
    }

    /// Returns the figures of a farm.
    pub(super) fn done(&mut self, setup: &Setup) -> Result<Done, Failure> {
        let [first, end] = setup.part;
        let part = [first, first + (end - first) / self.part];
        let setup = &Setup { part, ..setup.clone() };
        if let Some((_, done)) = self.done.iter().find(|(known, _)| known == setup) {
            return Ok(*done);
        }
        let done = setup.run()?;
        self.done.push((setup.clone(), done));
        Ok(done)
    }

    /// Returns the seconds of a farm.
    pub(super) fn seconds(&mut self, setup: &Setup) -> Result<f64, Failure> {
        Ok(self.done(setup)?.seconds)
    }

    /// Returns the seconds of both models.
    pub(super) fn both(&mut self, setup: &Setup) -> Result<[f64; 2], Failure> {
        let mut of = |model| self.seconds(&Setup { model, ..setup.clone() });
        Ok([of(Model::A)?, of(Model::B)?])
    }

    /// Returns the first of these numbers of stations with which model B beats A.
    pub(super) fn crossing(
        &mut self,
        setup: &Setup,
        counts: impl IntoIterator<Item = usize>,
    ) -> Result<Option<usize>, Failure> {
        for count in counts {
            let stations = vec![setup.stations[0]; count];
            let [a, b] = self.both(&Setup { stations, ..setup.clone() })?;
            if b < a {
                return Ok(Some(count));
            }
        }
        Ok(None)
    }

    /// Adds the table of all farms.
    pub(super) fn tell(self, found: &mut Found) {
        let columns = [
            column("tool", "tool", 0),
            column("picture", "picture", 0),
            column("stations", "stations", 0),
            column("model", "model", 0),
            column("pixels", "pixels", 0),
            column("held", "held", 0),
            column("workers_each", "workers each", 0),
            column("changed", "changed", 0),
            column("seconds", "seconds", 0),
            column("speed_up", "speed-up", 0),
        ];
        let rows = self.done.iter().map(|(setup, done)| setup.row(*done)).collect();
        found.table("farms", &columns, rows);
    }
}
