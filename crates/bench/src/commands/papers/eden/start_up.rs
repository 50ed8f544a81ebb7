//! Costs of buffers at the start (equation (3), section 4.1), on this machine: allocations take no
//! virtual time.

use std::time::Instant;

use chunkcomm::{Address, Node};

use super::pool::item;
use crate::commands::papers::{Found, Scene};
use crate::failure::{Doing, Failure};

/// Share of a run that is negligible.
const NEGLIGIBLE: f64 = 0.05;

/// Decides whether the start of links is negligible beside an echo of the paper's items.
///
/// # Errors
/// If a node fails.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let links = scene.numbers("beowulf")[0] as usize;
    let items = scene.numbers("pool")[1] as usize / scene.sized(1, 100);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let seconds = runtime.doing("starting a runtime")?.block_on(async {
        let at: Address = "memory:eden-start".parse().doing("reading an address")?;
        let server = Node::builder().quiet().listen(at).build().await.doing("building a node")?;
        let (mut seconds, mut streams) = ([0.0; 2], Vec::new());
        for number in 0..links {
            let node = Node::builder().quiet().build().await.doing("building a node")?;
            let begun = Instant::now();
            let peer = node.connect(&server.addresses()[0]).await.doing("reaching a node")?;
            let name = format!("items {number}");
            let to = node.open_bytes(&peer, &*name).await.doing("opening a stream")?;
            let (_, from) = server.accept_bytes(&*name).await.doing("taking a stream")?;
            seconds[0] += begun.elapsed().as_secs_f64();
            streams.push((node, to, from));
        }
        let (_node, mut to, mut from) = streams.swap_remove(0);
        let begun = Instant::now();
        // There and back, as the items of an echo.
        for _ in 0..2 {
            for number in 0..items {
                to.send_slice(&item(number, 1)).await.doing("sending an item")?;
                to.flush().await.doing("sending an item")?;
                from.recv().await.doing("taking an item")?;
            }
        }
        seconds[1] = begun.elapsed().as_secs_f64();
        Ok::<_, Failure>(seconds)
    })?;
    let share = seconds[0] / links as f64 / seconds[1];
    let ours = format!("{:.2} % of an echo", share * 100.0);
    found.verdict("start-up", share < NEGLIGIBLE, ours);
    Ok(())
}
