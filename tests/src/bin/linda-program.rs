//! A program in Linda: rank 0 holds the space and puts tasks; the others take one after the other, and put
//! its result. Rank 0 says when all have joined. It prints the results that came more than once or not at
//! all, and the number of tuples that are left.

use std::error::Error;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_coupled::models::linda::{Space, any, hold};

const TASKS: u64 = 600;
const DEADLINE: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let cluster = Cluster::join(ClusterConfig::new().nodes(4)).await?;
    let space = "kills".to_owned();
    if cluster.rank() == 0 {
        println!("joined");
        host::spawn(hold(cluster.clone(), space.clone(), 1 << 20));
    }
    let mut space = Space::attach(&cluster, &space).await?;
    if cluster.rank() == 0 {
        println!("{}", lead(&mut space).await?);
        cluster.finish();
    } else {
        tokio::select! {
            worked = work(&mut space) => worked?,
            _ = cluster.finished() => {}
        }
    }
    // An error names the killed ones.
    let _ = cluster.end(DEADLINE).await;
    Ok(())
}

async fn work(space: &mut Space) -> Result<(), Box<dyn Error>> {
    loop {
        let (task,) = space.in_("task", (any::<u64>(),)).await?;
        host::sleep(Duration::from_micros(task % 7 * 300)).await;
        space.out("result", &(task, task * task)).await?;
    }
}

async fn lead(space: &mut Space) -> Result<String, Box<dyn Error>> {
    for task in 0..TASKS {
        space.out("task", &(task,)).await?;
    }
    let mut times = vec![0; TASKS as usize];
    for _ in 0..TASKS {
        let (task, square) = space.in_("result", (any::<u64>(), any::<u64>())).await?;
        times[task as usize] += u32::from(square == task * task);
    }
    let wrong: Vec<usize> = (0..times.len()).filter(|&task| times[task] != 1).collect();
    // A killed worker may have had no task; none has two.
    let left = space.inp("task", (any::<u64>(),)).await?;
    let more = space.inp("result", (any::<u64>(), any::<u64>())).await?;
    Ok(format!("wrong {wrong:?}, left {left:?} {more:?}"))
}
