//! The farm as a program for PVM: a master spawns workers, and sends each its tasks.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;

use chunkcomm_cluster::Registry;
use chunkcomm_cluster::process::Failure;
use chunkcomm_coupled::models::pvm::{Pvm, Task, Tid, What, serve, task};

use super::course::{Canvas, Course};
use super::options::Options;
use super::view::{Steps, Tile};

/// How a worker has two tasks.
pub(crate) const BUFFERING: &str = "native";

/// Tags: to a worker, from a worker, and of its end.
const TASK: i32 = 1;
const RESULT: i32 = 2;
const EXIT: i32 = 3;

/// The farm.
pub(crate) struct Registered {
    worker: Task<()>,
}

async fn worker(mut pvm: Pvm, options: &'static Options) -> Result<(), Failure> {
    loop {
        let message = pvm.recv(pvm.parent, Some(TASK)).await?;
        let (index, tile): (u32, Tile) = message.value.unpack()?;
        let steps = options.compute(pvm.tid.host.rank, tile).await;
        pvm.send(message.from, RESULT, &(index, steps)).await?;
    }
}

impl Registered {
    pub(crate) fn new(registry: &mut Registry, options: &'static Options) -> Registered {
        Registered { worker: task(registry, "worker", move |pvm, ()| worker(pvm, options)) }
    }

    /// Farms the tasks out, as rank 0.
    pub(crate) async fn farm(
        &self,
        course: &Course,
        canvas: &mut Canvas,
    ) -> Result<(), Box<dyn Error>> {
        let ahead = 1 + usize::from(course.is_double_buffered());
        let mut pvm = Pvm::enroll(&course.cluster).await?;
        let mut tasks: VecDeque<(u32, Tile)> = course.options.tiles().collect();
        let mut held: BTreeMap<Tid, Vec<(u32, Tile)>> = BTreeMap::new();
        for rank in course.workers() {
            for worker in pvm.spawn(&self.worker, 1, Some(rank), &()).await? {
                pvm.notify(What::TaskExit(worker), EXIT);
                held.insert(worker, Vec::new());
            }
        }
        canvas.begin();
        while !canvas.is_whole() {
            for (worker, held) in &mut held {
                while held.len() < ahead
                    && let Some(task) = tasks.pop_front()
                {
                    held.push(task);
                    // A worker that has ended gives its tasks back below.
                    let _ = pvm.send(*worker, TASK, &task).await;
                }
            }
            if held.is_empty() {
                return Err("all workers have ended".into());
            }
            let message = pvm.recv(None, None).await?;
            if message.tag == EXIT {
                tasks.extend(held.remove(&message.value.unpack()?).into_iter().flatten());
            } else if let Some(held) = held.get_mut(&message.from) {
                let (index, steps): (u32, Steps) = message.value.unpack()?;
                held.retain(|task| task.0 != index);
                canvas.place(index, &steps)?;
            }
        }
        Ok(())
    }

    /// Works, as another rank.
    pub(crate) async fn work(&self, course: &Course) -> Result<(), Box<dyn Error>> {
        Ok(serve(&course.cluster).await?)
    }
}
