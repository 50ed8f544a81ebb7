//! The farm of this workspace, in the same frame.

use std::error::Error;

use chunkcomm_cluster::{Function, Registry};
use chunkcomm_examples::farming::FINISH_DEADLINE;
use chunkcomm_farm::settings::{Grain, Model as FarmModel, Prefetch};
use chunkcomm_farm::{Farm, serve_in};

use super::course::{Canvas, Course};
use super::options::{Model, Options};
use super::view::{Steps, Tile, render};

/// How a worker has two tasks.
pub(crate) const BUFFERING: &str = "native";

/// The farm.
pub(crate) struct Registered {
    render: Function<Tile, Steps>,
}

impl Registered {
    pub(crate) fn new(registry: &mut Registry, options: &'static Options) -> Registered {
        let render = registry.register("render", |tile| render(tile, options.step, |_| ()));
        Registered { render }
    }

    /// Farms the tasks out, as rank 0.
    pub(crate) async fn farm(
        &self,
        course: &Course,
        canvas: &mut Canvas,
    ) -> Result<(), Box<dyn Error>> {
        let held = 1 + u32::from(course.is_double_buffered());
        let model = if course.options.model == Model::A { FarmModel::A } else { FarmModel::B };
        let mut farm = Farm::builder(course.registry.clone())
            .model(model)
            .grain(Grain::Fixed(1))
            .prefetch(Prefetch::Fixed(held))
            .start_in(&course.cluster)
            .await?;
        let tiles: Vec<Tile> = course.options.tiles().map(|(_, tile)| tile).collect();
        canvas.begin();
        let mut results = farm.stream(&self.render, tiles)?.as_completed();
        while let Some((index, steps)) = results.next().await? {
            canvas.place(index as u32, &steps)?;
        }
        drop(results);
        Ok(farm.finish(FINISH_DEADLINE).await.map(drop)?)
    }

    /// Works, as another rank.
    pub(crate) async fn work(&self, course: &Course) -> Result<(), Box<dyn Error>> {
        Ok(serve_in(&course.cluster, &course.registry).await.map(drop)?)
    }
}
