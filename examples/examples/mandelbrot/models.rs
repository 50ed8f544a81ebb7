//! One farm in four ways: as programs in Linda, PVM and SR are written (the modules `models` of the library), and
//! with the farm of this workspace. Each renders the picture of `mandelbrot`, in the two structures of the LAN
//! farm study (Zieliński, Gajęcki and Czajkowski, section 2): in model A the farmer's node works too, in B it does
//! not.
//!
//! ```text
//! cargo run --release --example models -- --idiom linda --sequential-check
//! cargo run --release --example models -- --idiom pvm --model a --nodes 4 --double-buffering off
//! mpiexec.hydra -n 4 target/release/examples/models --idiom sr
//! target/release/examples/models --npy steps.npy && python3 examples/examples/mandelbrot/compare.py steps.npy
//! ```
//!
//! The time is that from the first task to the last result. Messages are those between rank 0 and other nodes;
//! all of a farm pass there.

mod colours;
#[path = "models/course.rs"]
mod course;
#[path = "models/farm.rs"]
mod farm;
#[path = "models/linda.rs"]
mod linda;
#[path = "models/options.rs"]
mod options;
mod picture_options;
#[path = "models/pvm.rs"]
mod pvm;
#[path = "models/sr.rs"]
mod sr;
#[path = "models/table.rs"]
mod table;
mod view;

use std::error::Error;
use std::process::ExitCode;

use chunkcomm_array::{Layout, Npy};
use chunkcomm_cluster::Registry;
use chunkcomm_examples::cluster_options::{end_led, end_served};
use chunkcomm_examples::command_line::{parse_with, write_out};
use chunkcomm_examples::farming::alone;
use chunkcomm_examples::program::{on_a_thread, run_program};

use course::{Canvas, Course, messages};
use options::{Idiom, Options};
use table::Table;
use view::{Steps, render};

/// Number of processes that the program starts by default.
const NODES: u32 = 3;

type Failure = Box<dyn Error>;

/// The farms, with what they registered before the cluster is joined.
struct Farms {
    pvm: pvm::Registered,
    farm: farm::Registered,
}

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("models", &options.cluster, || work(options))
}

async fn work(options: &'static Options) -> Result<ExitCode, Failure> {
    let mut registry = Registry::new();
    let farms = Farms {
        pvm: pvm::Registered::new(&mut registry, options),
        farm: farm::Registered::new(&mut registry, options),
    };
    let config = options.cluster.config_of_nodes(NODES)?.registry(&registry);
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(ExitCode::SUCCESS) };
    let course = Course { options, cluster: cluster.clone(), registry };
    if cluster.rank() == 0 {
        let done = farms.lead(course).await;
        let different = end_led(&cluster, done).await?;
        return Ok(ExitCode::from(u8::from(different > 0)));
    }
    let worked = tokio::select! {
        biased;
        worked = farms.work(&course) => worked,
        // All results are there.
        _ = cluster.finished() => Ok(()),
    };
    match (worked, cluster.ended()) {
        (Err(error), None) => Err(error),
        // The end of the cluster is the cause of any error.
        _ => end_served(&cluster).await.map(|()| ExitCode::SUCCESS),
    }
}

impl Farms {
    /// Renders as rank 0, writes the files, and reports. Returns the number of pixels that differ from the
    /// sequential picture.
    async fn lead(&self, course: Course) -> Result<usize, Failure> {
        let (options, cluster) = (course.options, &course.cluster);
        let workers = course.workers().len();
        if workers == 0 {
            return Err("nobody works: allowed are --model a, or 2 nodes and more".into());
        }
        let view = options.picture.view();
        let (sequential, sequential_time) =
            alone(Some(cluster), options.no_progress, move |report| {
                render(view.whole(), options.step, report)
            })
            .await?;
        cluster.barrier().await?;
        let others = course.others().await;
        let before = messages(&others);
        let mut canvas = Canvas::new(options);
        self.farm(&course, &mut canvas).await?;
        if !canvas.is_whole() {
            return Err("the farm ended without all results".into());
        }
        let messages = messages(&others) - before;
        let left = course.workers().len();
        let tasks = canvas.tasks();
        let (steps, took) = canvas.end();
        let pairs = steps.iter().zip(&sequential);
        let different = pairs.filter(|(ours, theirs)| ours != theirs).count();
        write_files(options, steps).await?;
        let (idiom, source, buffering) = self.told(options.idiom);
        let table = Table {
            options,
            nodes: cluster.size(),
            workers,
            left,
            tasks,
            messages,
            took,
            sequential: sequential_time,
            idiom,
            source,
            buffering,
            different: options.sequential_check.then_some(different),
        };
        write_out(&if options.json { table.json() } else { table.report() })?;
        Ok(if options.sequential_check { different } else { 0 })
    }

    async fn farm(&self, course: &Course, canvas: &mut Canvas) -> Result<(), Failure> {
        match course.options.idiom {
            Idiom::Linda => linda::farm(course, canvas).await,
            Idiom::Pvm => self.pvm.farm(course, canvas).await,
            Idiom::Sr => sr::farm(course, canvas).await,
            Idiom::Farm => self.farm.farm(course, canvas).await,
        }
    }

    /// Works as another rank.
    async fn work(&self, course: &Course) -> Result<(), Failure> {
        course.cluster.barrier().await?;
        match course.options.idiom {
            Idiom::Linda => linda::work(course).await,
            Idiom::Pvm => self.pvm.work(course).await,
            Idiom::Sr => sr::work(course).await,
            Idiom::Farm => self.farm.work(course).await,
        }
    }

    /// Returns the name of a farm, its source, and how its workers have two tasks.
    fn told(&self, idiom: Idiom) -> (&'static str, &'static str, &'static str) {
        match idiom {
            Idiom::Linda => ("linda", include_str!("models/linda.rs"), linda::BUFFERING),
            Idiom::Pvm => ("pvm", include_str!("models/pvm.rs"), pvm::BUFFERING),
            Idiom::Sr => ("sr", include_str!("models/sr.rs"), sr::BUFFERING),
            Idiom::Farm => ("farm", include_str!("models/farm.rs"), farm::BUFFERING),
        }
    }
}

/// Writes the picture, and the file for NumPy where one was asked for.
async fn write_files(options: &'static Options, steps: Steps) -> Result<(), Failure> {
    let written = on_a_thread(move || -> Result<(), Box<dyn Error + Send + Sync>> {
        let view = options.picture.view();
        colours::save(&view, &steps, &options.output)?;
        if let Some(path) = &options.npy {
            let shape = [view.height as usize, view.width as usize];
            let whole = Layout::parse("(*,*)", &shape)?;
            Npy::create::<u16>(path, &shape)?.write_local(&whole, 0, &steps)?;
        }
        Ok(())
    });
    written.await?.map_err(|error| error as Failure)
}
