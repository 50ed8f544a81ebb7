//! A sub-farmer: a worker to its farmer, and a farmer to those below it.
//!
//! ```text
//!              orders                      source ──▶ run, ledger ──▶ workers, one of its own
//!   farmer ─────────────▶ pieces that wait ──┘            │
//!          ◀───────────── gathered results ◀── sink ◀─────┘
//!              answers    (reduced, for map_reduce)
//! ```
//!
//! It drives a run as a farmer does. The source of the tasks is the farmer's assignments, and the
//! sink gathers the results. Inputs and results keep their indices. So a sub-farmer handles a
//! worker that dies, a slow one, and a task that kills as a farmer does.
//!
//! It sends its results as a worker does, when they are as many as its other tasks. So new tasks
//! come before those are done. Results of neighbours go as one answer. Those of `map_reduce` are
//! first reduced to one result, which is of a range of tasks.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use chunkcomm_cluster::Cluster;

use self::relay::{Relay, Turn};
use crate::crew::Crew;
use crate::error::{ServeError, StartError};
use crate::functions::Reducer;
use crate::handshake::{Met, Reception};
use crate::proto::wire::Role;
use crate::run::Workers;
use crate::settings::times::START_DEADLINE;
use crate::settings::{NodeSettings, Ways};
use crate::worker::{Farmer, Service, Upper};

mod gather;
mod relay;

/// A sub-farmer and its workers.
pub(crate) struct Subfarm {
    upper: Upper,
    ways: Ways,
    workers: Workers,
    /// Messages to the farmer that wait for room.
    waiting: VecDeque<Bytes>,
    /// Numbers of threads and of lost workers that the farmer knows.
    told: (u32, u64),
    /// The reducer of each function that has one.
    reducers: Vec<Option<Reducer>>,
}

impl Subfarm {
    /// Waits until as many workers as the farmer has named are there.
    pub(crate) async fn open(
        cluster: &Cluster,
        service: &Service<'_>,
        upper: Upper,
    ) -> Result<Subfarm, ServeError> {
        let Role::Farm { token, below } = upper.seat.role else {
            unreachable!("another role is no sub-farmer");
        };
        let terms = upper.seat.terms;
        let ways = Ways { terms, start: START_DEADLINE, end: None, spans_max: 0 };
        let &Service { node, farm, registry, threads, .. } = service;
        let settings = NodeSettings::default();
        let shared = Arc::new(registry.clone());
        let crew = Crew::new(farm, Some(token), settings, &shared);
        let mut crew = crew.map_err(thread_error)?;
        crew.watch(cluster);
        let all = registry.signatures();
        let functions = upper.seat.functions.iter().map(|&at| all[at as usize].clone());
        let functions: Vec<_> = functions.collect();
        let reducers = functions.iter().map(|it| Reducer::of(&it.name, registry)).collect();
        crew.hire_thread(Farmer::Here(node.clone()), threads).map_err(thread_error)?;
        let reception = Reception::open(node.clone(), farm, functions, terms);
        let workers = Workers::new(node, Vec::new(), crew, reception);
        let (waiting, told) = (VecDeque::new(), (0, 0));
        let mut farm = Subfarm { upper, ways, workers, waiting, told, reducers };
        while farm.workers.links.len() <= below as usize {
            let Subfarm { upper, workers: Workers { crew, reception, links, .. }, .. } = &mut farm;
            tokio::select! {
                biased;
                met = poll_fn(|context| reception.poll_met(crew, context)) => {
                    if let Met::Ready(link) = met {
                        links.push(*link);
                    }
                }
                // The farmer has ended, and the workers below hear of it.
                _ = upper.answers.closed() => break,
            }
        }
        Ok(farm)
    }

    /// Serves the farmer until its farm is done.
    pub(crate) async fn serve(mut self) -> Result<(), ServeError> {
        let (mut number, mut first) = (0, None);
        loop {
            let mut relay = Relay::new(&mut self, number, first.as_deref());
            match poll_fn(|context| relay.poll(context)).await? {
                Turn::Run(run, order) => (number, first) = (run, Some(order)),
                Turn::Done => break,
            }
        }
        self.finish().await;
        Ok(())
    }

    /// Tells the workers that the farm is done, and waits for their end.
    async fn finish(mut self) {
        self.workers.reception.close();
        let links = &mut self.workers.links;
        poll_fn(|context| {
            let there = links.iter_mut().filter(|link| link.lost.is_none());
            // All waits are polled together.
            let waits =
                there.fold(false, |waits, link| waits | link.poll_finish(context).is_pending());
            if waits { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

fn thread_error(error: StartError) -> ServeError {
    match error {
        StartError::Thread { source, .. } => ServeError::Thread(source),
        error => ServeError::Thread(std::io::Error::other(error)),
    }
}
