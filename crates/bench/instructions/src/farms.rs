//! Empty tasks of a farm whose one worker is another node of the cluster.

use chunkcomm_cluster::registry::Function;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_farm::settings::{Grain, Prefetch};
use chunkcomm_farm::{Farm, serve_in};

use crate::nodes::members;
use crate::{Local, Outcome, Rounds};

/// Tasks of a round, which is a run of the farm.
pub(crate) const TASKS: u64 = 1_000;

/// Assignments that the worker holds.
const PREFETCH: u32 = 64;

struct Tasks {
    farm: Farm,
    _farmer: Cluster,
    function: Function<u64, u64>,
}

pub(crate) fn alone() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(start(1))
}

pub(crate) fn ranges() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(start(TASKS as u32))
}

async fn start(grain: u32) -> Outcome<Box<dyn Rounds>> {
    let mut registry = Registry::new();
    let function = registry.register("next", |number: u64| number + 1);
    let [farmer, worker] = members(&registry).await?;
    let of_worker = registry.clone();
    tokio::spawn(async move {
        // The program ends with its process.
        let _ = serve_in(&worker, &of_worker).threads(1).await;
    });
    let builder =
        Farm::builder(registry).grain(Grain::Fixed(grain)).prefetch(Prefetch::Fixed(PREFETCH));
    let farm = builder.start_in(&farmer).await?;
    Ok(Box::new(Tasks { farm, _farmer: farmer, function }))
}

impl Rounds for Tasks {
    fn run(&mut self, count: u64) -> Local<'_, ()> {
        Box::pin(async move {
            for _ in 0..count {
                let outcome = self.farm.run(&self.function, 0..TASKS).await?;
                if outcome.results.last() != Some(&TASKS) {
                    return Err("the result is wrong".into());
                }
            }
            Ok(())
        })
    }
}
