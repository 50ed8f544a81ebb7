//! A worker that has lost its farmer: it goes on with the tasks that it holds, and keeps their results
//! for the next farmer.

use std::pin::pin;

use chunkcomm::host;

use crate::compute::{Compute, SLICE};
use crate::proto::handover::{Holding, Orphans};
use crate::proto::wire::Handed;

/// Bytes of results in a message, from which the rest goes in another.
const HANDED_BYTES: usize = 64 << 10;

/// Tasks of a worker whose farmer is gone, and their results.
pub(crate) struct Remains {
    compute: Compute,
    holding: Holding,
    /// Functions of the seat that the lost farmer gave.
    functions: Vec<u32>,
    orphans: Orphans,
}

impl Remains {
    /// Takes over the tasks of a lost farmer, which has acknowledged this many messages.
    pub(crate) fn new(
        compute: Compute,
        holding: Holding,
        functions: Vec<u32>,
        acknowledged: u64,
    ) -> Remains {
        // No farmer replies to these tasks.
        drop(compute.needs().close());
        let mut remains = Remains { compute, holding, functions, orphans: Vec::new() };
        remains.orphans = remains.holding.finish_sent(acknowledged).unwrap_or_default();
        remains
    }

    /// Goes on with the tasks until this event.
    pub(crate) async fn work_until<T>(&mut self, event: impl Future<Output = T>) -> T {
        let mut event = pin!(event);
        loop {
            let (ran, answers) = self.compute.run_here(SLICE).await;
            answers.into_iter().flatten().for_each(|answer| self.keep(&answer));
            let look = self.compute.due();
            tokio::select! {
                biased;
                told = &mut event => return told,
                () = host::yield_now(), if ran => {}
                answer = self.compute.answered() => self.keep(&answer),
                () = Compute::wait_until(look) => {
                    // A thread that cannot be replaced is missing from then on.
                    let words = self.compute.look().unwrap_or_default();
                    words.iter().for_each(|word| self.keep(word));
                }
            }
        }
    }

    /// Keeps the results of an answer that no farmer has taken.
    fn keep(&mut self, answer: &[u8]) {
        // The threads write whole answers.
        self.orphans.extend(self.holding.finish(answer).unwrap_or_default());
    }

    /// Returns the results for a seat with these functions, in messages of about 64 KiB.
    pub(crate) fn handed(self, functions: &[u32]) -> Vec<Handed> {
        let (mut parts, mut bytes) = (Vec::<Handed>::new(), HANDED_BYTES);
        let ours = self.functions.get(self.holding.function as usize);
        let Some(at) = functions.iter().position(|theirs| Some(theirs) == ours) else {
            return parts;
        };
        for (digest, value) in self.orphans {
            if bytes >= HANDED_BYTES {
                let (run, function) = (self.holding.run, at as u32);
                parts.push(Handed { run, function, results: Vec::new() });
                bytes = 0;
            }
            bytes += value.len();
            let part = parts.last_mut().expect("the first result begins one");
            part.results.push((digest, value));
        }
        parts
    }
}
