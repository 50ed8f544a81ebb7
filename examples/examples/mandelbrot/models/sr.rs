//! The farm as in SR: the farmer is a resource, whose operations the workers invoke.

use std::error::Error;

use chunkcomm_cluster::cluster::Change;
use chunkcomm_coupled::models::sr::{Capability, Invocation, Resource};

use super::course::{Canvas, Course};
use super::view::{Steps, Tile};

/// How a worker has two tasks.
pub(crate) const BUFFERING: &str = "native";

type Task = Option<(u32, Tile)>;

/// An invocation that the farmer accepts.
enum In {
    Task(Invocation<(), Task>),
    Result(Invocation<(u32, Steps), ()>),
}

/// Farms the tasks out, as rank 0. A death ends it: SR would wait for the dead worker's result.
pub(crate) async fn farm(course: &Course, canvas: &mut Canvas) -> Result<(), Box<dyn Error>> {
    let resource = Resource::create(&course.cluster);
    let task = resource.operation::<(), Task>("farm.task").await?;
    let result = resource.operation::<(u32, Steps), ()>("farm.result").await?;
    let (mut tiles, mut workers) = (course.options.tiles(), course.workers().len());
    let mut changes = course.cluster.changes();
    let farmer = async {
        canvas.begin();
        // Each worker asks until there is no task for it.
        while workers > 0 || !canvas.is_whole() {
            let arms = [task.arm(In::Task, |()| Some(0)), result.arm(In::Result, |_| Some(0))];
            match resource.accept(arms).await? {
                In::Task(mut invocation) => {
                    let next = tiles.next();
                    workers = workers.saturating_sub(usize::from(next.is_none()));
                    let _ = invocation.reply(next); // a worker that is gone is a death
                }
                In::Result(Invocation { args: (index, steps), .. }) => {
                    canvas.place(index, &steps)?;
                }
            }
        }
        Ok(())
    };
    let worker = async { if course.works() { work(course).await } else { Ok(()) } };
    let mut farmed = std::pin::pin!(async { tokio::try_join!(farmer, worker).map(drop) });
    loop {
        tokio::select! {
            biased;
            farmed = &mut farmed => return farmed,
            Some(change) = changes.next() => if let Change::Died(death) = change {
                return Err(death.to_string().into());
            },
        }
    }
}

/// Works: calls for the next task while it computes one, or in turn.
pub(crate) async fn work(course: &Course) -> Result<(), Box<dyn Error>> {
    let task = Capability::<(), Task>::find(&course.cluster, "farm.task").await?;
    let result = Capability::<(u32, Steps), ()>::find(&course.cluster, "farm.result").await?;
    let (rank, mut last) = (course.cluster.rank(), None);
    let mut next = task.call(()).await?;
    while let Some((index, tile)) = next {
        let computing = course.options.compute(rank, tile);
        let talking = async {
            if let Some(last) = last.take() {
                result.send(last).await?;
            }
            task.call(()).await
        };
        let (steps, talked) = match course.is_double_buffered() {
            true => tokio::join!(computing, talking),
            false => (computing.await, talking.await),
        };
        (last, next) = (Some((index, steps)), talked?);
    }
    if let Some(last) = last {
        result.send(last).await?;
    }
    Ok(())
}
