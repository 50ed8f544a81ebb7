//! Renders triangles with a farm: shadows of a point light, and mirrors. Each line of the picture is a
//! task, or each tile.
//!
//! ```text
//! cargo run --release --example raytracer -- --by tiles --check
//! cargo run --release --example raytracer -- teapot.obj
//! ```
//!
//! The scene is shared: the farmer reads the file, and sends the scene once to each worker. A task
//! has its name and an area.

mod built_in;
mod obj;
mod options;
mod scene;
mod tree;
mod triangle;
mod vector;
mod view;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm_cluster::{Cluster, Function, Registry};
use chunkcomm_examples::command_line::{parse, write_out};
use chunkcomm_examples::farm_report::Report;
use chunkcomm_examples::farming::{self, FINISH_DEADLINE, alone, start, work};
use chunkcomm_examples::picture::{check_output, save};
use chunkcomm_examples::program::{failed, on_a_thread, run_program};
use chunkcomm_examples::progress::show_progress;
use chunkcomm_farm::{Farm, RegistryExt as _, RunStats, serve_if_started};

use options::Options;
use scene::Scene;
use view::{Area, Pixels, Task, areas, render};

type Failure = Box<dyn Error>;

#[derive(Clone)]
struct Program {
    options: &'static Options,
    registry: Registry,
    render: Function<Task, Pixels>,
}

fn main() -> ExitCode {
    let mut registry = Registry::new();
    let render = registry.register_task("render", |task, (scene, sides, area): Task| {
        render(&scene.get(), sides, area, |fraction| task.progress(fraction))
    });
    serve_if_started(&registry); // a worker process that the farm started goes no further

    let options = parse::<Options>();
    let in_a_cluster = match options.cluster.are_of_a_cluster() {
        Ok(is_told) => is_told,
        Err(error) => return failed("raytracer", &error),
    };
    farming::check::<Options>(&options.farm, &options.output, in_a_cluster)
        .unwrap_or_else(|error| error.exit());
    let program = Program { options, registry, render };
    run_program("raytracer", &options.cluster, || program.clone().work(in_a_cluster))
}

impl Program {
    /// Returns the exit status: 1 when the two pictures differ.
    async fn work(self, in_a_cluster: bool) -> Result<ExitCode, Failure> {
        let farm_out = async |cluster: Option<&Cluster>| self.farm_out(cluster).await;
        work(&self.options.cluster, &self.registry, in_a_cluster, farm_out).await
    }

    /// Renders with the farm, and alone where that was asked for; writes the picture and the report.
    /// Returns false when the two pictures differ.
    async fn farm_out(&self, cluster: Option<&Cluster>) -> Result<bool, Failure> {
        let options = self.options;
        check_output(&options.output)?;
        let (source, sides) = (options.source(), options.sides());
        let scene = Arc::new(on_a_thread(move || source.scene()).await??);
        let sequential = match options.check {
            true => Some(self.render_alone(cluster, scene.clone()).await?),
            false => None,
        };

        let mut farm = start(&options.farm, self.registry.clone(), cluster).await?;
        let (pixels, stats) = self.render_with(&mut farm, scene.clone()).await?;
        farm.finish(FINISH_DEADLINE).await?;
        options.farm.write_timeline(&stats)?;
        let save = move || (save(sides, &pixels, &options.output), pixels);
        let (saved, pixels) = on_a_thread(save).await?;
        saved?;

        let mut report = Report::default();
        let (width, height, by) = (sides.0, sides.1, options.describe_area());
        let triangles = scene.tree.triangles().len();
        report.row(
            "picture",
            format_args!("{width} x {height} pixels by {by}, {triangles} triangles"),
        );
        let time = sequential.as_ref().map(|(_, time)| *time);
        report.run(&options.farm, cluster.is_some(), time, &stats);
        report.row("written", options.output.display());
        let different = sequential.map_or(0, |(alone, _)| report.check(&pixels, &alone));
        write_out(report.text())?;
        Ok(different == 0)
    }

    async fn render_alone(
        &self,
        cluster: Option<&Cluster>,
        scene: Arc<Scene>,
    ) -> Result<(Pixels, Duration), Failure> {
        let sides = self.options.sides();
        let whole = Area { left: 0, top: 0, width: sides.0, height: sides.1 };
        let render = move |report: &dyn Fn(f64)| render(&scene, sides, whole, report);
        alone(cluster, self.options.no_progress, render).await
    }

    async fn render_with(
        &self,
        farm: &mut Farm,
        scene: Arc<Scene>,
    ) -> Result<(Pixels, RunStats), Failure> {
        let (width, height) = self.options.sides();
        let areas = areas((width, height), self.options.area_sides());
        let mut pixels = vec![[0; 3]; width as usize * height as usize];
        show_progress(farm, self.options.no_progress);
        let place = |index, part: Pixels| {
            areas[index as usize].place(&part, &mut pixels, width);
        };
        let scene = farm.share(scene)?;
        let tasks = areas.iter().map(|area| (scene.clone(), (width, height), *area));
        let stats = farm.stream(&self.render, tasks)?.as_completed().for_each(place).await?;
        Ok((pixels, stats))
    }
}
