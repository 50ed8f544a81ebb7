//! The farm in Linda: tasks and results are tuples, and nobody knows anybody.

use std::error::Error;
use std::mem::swap;

use chunkcomm::host;
use chunkcomm_coupled::models::linda::{Any, Space, any, hold};

use super::course::{Canvas, Course};
use super::view::{Steps, Tile};

/// How a worker has two tasks.
pub(crate) const BUFFERING: &str = "native";

const SPACE: &str = "farm";
const TUPLES_MAX: usize = 1 << 20;

/// Matches every task.
fn tasks() -> (Any<u32>, Any<Tile>) {
    (any(), any())
}

/// Farms the tasks out, as rank 0, which holds the space.
pub(crate) async fn farm(course: &Course, canvas: &mut Canvas) -> Result<(), Box<dyn Error>> {
    host::spawn(hold(course.cluster.clone(), SPACE.to_owned(), TUPLES_MAX));
    tokio::select! {
        biased;
        farmed = put_and_collect(course, canvas) => farmed,
        worked = work(course), if course.works() => worked,
        () = course.deserted() => Err("all workers have ended".into()),
    }
}

async fn put_and_collect(course: &Course, canvas: &mut Canvas) -> Result<(), Box<dyn Error>> {
    let mut space = Space::attach(&course.cluster, SPACE).await?;
    canvas.begin();
    for task in course.options.tiles() {
        space.out("task", &task).await?;
    }
    for _ in 0..canvas.tasks() {
        let (index, steps) = space.in_("result", (any::<u32>(), any::<Steps>())).await?;
        canvas.place(index, &steps)?;
    }
    Ok(())
}

/// Works until the cluster ends. A task is settled by its result, so a worker's death loses none.
pub(crate) async fn work(course: &Course) -> Result<(), Box<dyn Error>> {
    let mut space = Space::attach(&course.cluster, SPACE).await?;
    // A process of its own, which takes the next task meanwhile.
    let mut ahead = Space::attach(&course.cluster, SPACE).await?;
    let mut task = space.in_("task", tasks()).await?;
    loop {
        let (index, tile) = task;
        let result = async {
            let steps = course.options.compute(course.cluster.rank(), tile).await;
            space.out("result", &(index, steps)).await
        };
        if course.is_double_buffered() {
            let (result, next) = tokio::join!(result, ahead.in_("task", tasks()));
            (_, task) = (result?, next?);
            swap(&mut space, &mut ahead);
        } else {
            result.await?;
            task = space.in_("task", tasks()).await?;
        }
    }
}
