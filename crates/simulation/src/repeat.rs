//! Runs by seed: many of them, one again, and one twice.

use crate::{Delivery, Network, Simulation, run};
use std::env;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Environment variable with the only seed that [`each_seed`] runs.
pub const SEED_VARIABLE: &str = "CHUNKCOMM_SEED";

/// Calls `test` with each of the seeds, one after the other. A seed that panics is printed, with
/// the way to replay it, and its panic goes on.
///
/// With the variable `CHUNKCOMM_SEED` set, only that seed is run.
///
/// ```
/// use chunkcomm_simulation::{LinkSpec, Network, each_seed, run};
///
/// each_seed(0..10, |seed| {
///     let mut network = Network::new(seed);
///     let (a, b) = (network.add_host("a"), network.add_host("b"));
///     network.link(a, b, LinkSpec::default());
///     run(network, async |simulation| assert_eq!(simulation.now().as_secs(), 0));
/// });
/// ```
///
/// # Panics
///
/// When `test` does, and when the variable holds no number.
pub fn each_seed(seeds: Range<u64>, mut test: impl FnMut(u64)) {
    let only = env::var(SEED_VARIABLE).ok().map(|text| {
        let seed = text.parse::<u64>();
        seed.unwrap_or_else(|_| panic!("{SEED_VARIABLE}={text}: a whole number is needed"))
    });
    for seed in only.map_or(seeds, |seed| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("seed {seed} fails; {SEED_VARIABLE}={seed} runs it alone");
            resume_unwind(panic);
        }
    }
}

/// Runs a program twice, each time on a network of its own, and compares the bytes that arrived
/// where and when. Returns the result of the first run; results are not compared.
///
/// # Errors
///
/// [`Differs`]: the runs are not the same. The program uses something of the real machine: a clock,
/// a thread, random numbers, or the order of a `HashMap`. See `chunkcomm::host`.
///
/// # Panics
///
/// As [`run`].
pub fn check<T>(
    mut network: impl FnMut() -> Network,
    mut program: impl AsyncFnMut(Simulation) -> T,
) -> Result<T, Differs> {
    let mut once = || {
        let mut network = network();
        network.keep_deliveries();
        run(network, async |simulation| {
            let done = program(simulation.clone()).await;
            let arrived = simulation.with(|network, _| {
                let name = |delivery: &Delivery| {
                    let to = network.host_of(delivery.end).ok();
                    to.map_or("a host", |host| network.host_name(host)).to_owned()
                };
                let named = |it: &Delivery| (*it, network.host_name(it.from).to_owned(), name(it));
                network.deliveries().iter().map(named).collect::<Vec<_>>()
            });
            (done, arrived)
        })
    };
    let ((done, first), (_, second)) = (once(), once());
    let at = first.iter().zip(&second).position(|(one, other)| one.0 != other.0);
    let at = at.or((first.len() != second.len()).then(|| first.len().min(second.len())));
    match at {
        None => Ok(done),
        Some(at) => {
            let text = |run: &[(Delivery, String, String)]| {
                run.get(at).map_or_else(
                    || "no further delivery".to_owned(),
                    |(it, from, to)| {
                        let content = it.content;
                        let what = format!("{:?} (digest {content:016x})", it.what);
                        format!("{what} from {from} to {to} after {} ns", it.at.0)
                    },
                )
            };
            Err(Differs { number: at, first: text(&first), second: text(&second) })
        }
    }
}

/// The first delivery in which two runs of one seed differ.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("two runs of one seed differ from delivery {number} on: {first}, then {second}")]
pub struct Differs {
    /// Number of the delivery, from 0.
    pub number: usize,
    /// The delivery in the first run.
    pub first: String,
    /// The delivery in the second run.
    pub second: String,
}

chunkcomm_proto::debug_with_causes!(Differs);
