//! A run of the program, as all four farms see it.

use std::error::Error;
use std::time::Duration;

use chunkcomm::Peer;
use chunkcomm::host::Instant;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_examples::progress::Bar;

use super::options::{Model, Options, Switch};
use super::view::{Steps, View};

/// A run at one node.
#[derive(Clone)]
pub(crate) struct Course {
    pub(crate) options: &'static Options,
    pub(crate) cluster: Cluster,
    /// Functions and processes that all nodes registered before they joined.
    pub(crate) registry: Registry,
}

impl Course {
    /// Returns the ranks whose nodes work.
    pub(crate) fn workers(&self) -> Vec<u32> {
        let members = self.cluster.members();
        let ranks = members.iter().map(|member| member.id.rank);
        ranks.filter(|&rank| rank > 0 || self.options.model == Model::A).collect()
    }

    /// Whether this node works.
    pub(crate) fn works(&self) -> bool {
        self.workers().contains(&self.cluster.rank())
    }

    /// Whether a worker has its next task while it computes one.
    pub(crate) fn is_double_buffered(&self) -> bool {
        self.options.double_buffering == Switch::On
    }

    /// Waits until no node works any more.
    pub(crate) async fn deserted(&self) {
        let mut changes = self.cluster.changes();
        while !self.workers().is_empty() && changes.next().await.is_some() {}
    }

    /// Returns the other nodes.
    pub(crate) async fn others(&self) -> Vec<Peer> {
        let mut others = Vec::new();
        for member in self.cluster.members() {
            if member.id.rank != self.cluster.rank() {
                // One that cannot be reached is dead, and told so elsewhere.
                others.extend(self.cluster.peer(member.id.rank).await);
            }
        }
        others
    }
}

/// Returns the number of messages so far between this node and others.
pub(crate) fn messages(others: &[Peer]) -> u64 {
    let both_ways =
        others.iter().map(Peer::stats).map(|it| it.messages_sent + it.messages_received);
    both_ways.sum()
}

/// The picture, as results come in.
pub(crate) struct Canvas {
    view: View,
    rows: u32,
    steps: Steps,
    /// Whether the result of each task is there.
    placed: Vec<bool>,
    missing: usize,
    bar: Option<Bar>,
    begun: Instant,
    took: Duration,
}

impl Canvas {
    /// Returns a picture without any result.
    pub(crate) fn new(options: &Options) -> Canvas {
        let (view, rows) = (options.picture.view(), options.picture.rows);
        let tasks = options.tiles().len();
        Canvas {
            view,
            rows,
            steps: vec![0; view.pixels()],
            placed: vec![false; tasks],
            missing: tasks,
            bar: Bar::on_terminal(options.no_progress),
            begun: Instant::now(),
            took: Duration::ZERO,
        }
    }

    /// Says that the first task leaves now: what set up the farm does not count.
    pub(crate) fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// Places the result of the task with this number.
    ///
    /// # Errors
    /// There is no such task, its result is there already, or has another length.
    pub(crate) fn place(&mut self, index: u32, tile: &[u16]) -> Result<(), Box<dyn Error>> {
        let first = index as usize * self.view.width as usize * self.rows as usize;
        let place = self.steps.get_mut(first..first + tile.len());
        match (place, self.placed.get(index as usize)) {
            (Some(place), Some(false)) => place.copy_from_slice(tile),
            (_, Some(true)) => return Err(format!("task {index} has two results").into()),
            _ => return Err(format!("task {index}: {} pixels do not fit", tile.len()).into()),
        }
        self.placed[index as usize] = true;
        self.missing -= 1;
        self.took = self.begun.elapsed();
        if let Some(bar) = &self.bar {
            bar.draw(&format!("{} of {} tasks", self.tasks() - self.missing, self.tasks()));
        }
        Ok(())
    }

    /// Whether all results are there.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Returns the number of tasks.
    pub(crate) fn tasks(&self) -> usize {
        self.placed.len()
    }

    /// Returns the steps of all pixels, and the time from the first task to the last result.
    pub(crate) fn end(self) -> (Steps, Duration) {
        (self.steps, self.took)
    }
}
