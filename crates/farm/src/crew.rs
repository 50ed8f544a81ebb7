//! The workers as processes, threads and nodes of a cluster: their names, and how
//! they ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use chunkcomm::{Peer, host};
use chunkcomm_cluster::cluster::Change;
use chunkcomm_cluster::launch::{ChildExit, Children, Launcher, Token};
use chunkcomm_cluster::{Cluster, Registry};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::error::{Loss, StartError};
use crate::machine::{FIRST_INDEX, start_thread, work_blocking};
use crate::name::WorkerName;
use crate::proto::wire::Hello;
use crate::settings::NodeSettings;
use crate::worker::{Farmer, Post, Stopped, work};

/// All workers of a farm: first the threads, then the processes, then the nodes of a
/// cluster. Dropping it kills and reaps the processes. A thread, and a node's service,
/// ends after its current task, once the farmer's channels are closed.
pub(crate) struct Crew {
    /// Names of the workers, by index.
    names: Vec<WorkerName>,
    token: Token,
    /// Ends of threads and deaths of nodes, with the worker's index.
    ends: UnboundedReceiver<(usize, Loss)>,
    /// A sender held so that the receiver stays pending when all other senders are gone.
    tells: UnboundedSender<(usize, Loss)>,
    processes: Option<Children>,
    /// The end of each worker that has ended, by index; for a node usually its death.
    ended: BTreeMap<usize, Loss>,
    /// The task that reports the deaths of nodes, and the workers of a simulation.
    watch: JoinSet<()>,
    /// The cluster, kept alive as long as its nodes work here.
    _cluster: Option<Cluster>,
}

impl Crew {
    /// Returns a crew without workers.
    pub(crate) fn new() -> Result<Crew, StartError> {
        let (tells, ends) = unbounded_channel();
        // Without random numbers no token is safe, so nothing is started.
        let token = Token::random().map_err(|source| StartError::Thread {
            worker: WorkerName::thread(0),
            source: std::io::Error::other(source),
        })?;
        Ok(Crew {
            names: Vec::new(),
            token,
            ends,
            tells,
            processes: None,
            ended: BTreeMap::new(),
            watch: JoinSet::new(),
            _cluster: None,
        })
    }

    /// Starts a worker thread; in a simulation, a task of the farmer's host.
    pub(crate) fn hire_thread(
        &mut self,
        farmer: Farmer,
        settings: NodeSettings,
        registry: &Arc<Registry>,
    ) -> Result<(), StartError> {
        let index = self.names.len();
        let worker = WorkerName::thread(index);
        let post = Post { farmer, index, token: self.token, settings, explains: false };
        let (registry, end) = (Arc::clone(registry), self.tells.clone());
        let ended = move |worked: Result<(), Stopped>| {
            let told = worked.err().map_or_else(String::new, |stopped| stopped.to_string());
            // A failed send means that the farm is gone, which is no matter.
            let _ = end.send((index, Loss::Ended(told)));
        };
        if host::is_virtual() {
            self.watch.spawn(host::here(async move { ended(work(&post, &registry).await) }));
        } else {
            let name = format!("farm-worker-{index}");
            start_thread(name, move || ended(work_blocking(&post, &registry)))
                .map_err(|source| StartError::Thread { worker: worker.clone(), source })?;
        }
        self.names.push(worker);
        Ok(())
    }

    /// Starts worker processes, once.
    pub(crate) fn hire_processes(
        &mut self,
        count: usize,
        settings: NodeSettings,
        launcher: Launcher,
    ) -> Result<(), StartError> {
        let first = self.names.len();
        let children = launcher
            .env(NodeSettings::VARIABLE, settings.to_string())
            .env(FIRST_INDEX, first.to_string())
            .spawn(count)
            .map_err(StartError::Launch)?;
        for (at, &pid) in children.pids().iter().enumerate() {
            self.names.push(WorkerName::process(first + at, pid));
        }
        self.processes = Some(children);
        Ok(())
    }

    /// Returns the names of the workers, by index.
    pub(crate) fn names(&self) -> &[WorkerName] {
        &self.names
    }

    /// Returns the worker that sent this hello over the link to this peer, if the farm has it.
    pub(crate) fn known(&self, hello: &Hello, peer: &Peer) -> Option<&WorkerName> {
        match *hello {
            Hello::Started { index, token } => {
                let name = self.names.get(usize::try_from(index).ok()?)?;
                let given = match (name.pid, &self.processes) {
                    (Some(_), Some(children)) => children.token(),
                    _ => self.token,
                };
                (given == token && name.member.is_none()).then_some(name)
            }
            Hello::Member => self.known_member(peer),
        }
    }

    /// Returns the worker that is this node of the cluster, if the farm has it.
    pub(crate) fn known_member(&self, peer: &Peer) -> Option<&WorkerName> {
        self.names.iter().find(|name| {
            name.member.as_ref().is_some_and(|it| it.id.incarnation == peer.incarnation())
        })
    }

    /// Takes the other present nodes of a cluster as workers.
    pub(crate) fn hire_members(&mut self, cluster: &Cluster) {
        // Subscribed before the members are read, so that no death falls between the two.
        let mut changes = cluster.changes();
        let mut indices = BTreeMap::new();
        for member in cluster.members() {
            if member.id != cluster.id() {
                let index = self.names.len();
                indices.insert(member.id, index);
                self.names.push(WorkerName::member(index, member));
            }
        }
        let tells = self.tells.clone();
        self.watch.spawn(host::here(async move {
            while let Some(change) = changes.next().await {
                if let Change::Died(death) = change
                    && let Some(&index) = indices.get(&death.id)
                {
                    // A failed send means that the farm is gone, which is no matter.
                    let _ = tells.send((index, Loss::Died(death)));
                }
            }
        }));
        self._cluster = Some(cluster.clone());
    }

    /// Reports the end of each worker once, of a node only its death; pending when no
    /// worker is left.
    pub(crate) fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<(WorkerName, Loss)> {
        if let Poll::Ready(Some((index, loss))) = self.ends.poll_recv(context) {
            return Poll::Ready(self.note(index, loss));
        }
        let exited = match &mut self.processes {
            Some(children) => children.poll_exited(context),
            None => Poll::Pending,
        };
        if let Poll::Ready(Some(exit)) = exited {
            return Poll::Ready(self.note_exit(exit));
        }
        Poll::Pending
    }

    /// Records how a worker ended.
    pub(crate) fn note(&mut self, index: usize, loss: Loss) -> (WorkerName, Loss) {
        self.ended.insert(index, loss.clone());
        (self.names[index].clone(), loss)
    }

    fn note_exit(&mut self, exit: ChildExit) -> (WorkerName, Loss) {
        let named = self.names.iter().find(|name| name.pid == Some(exit.pid));
        let index = named.expect("a child is a worker").index;
        self.note(index, Loss::Exited(exit))
    }

    /// Waits for the next end of a worker.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn ended(&mut self) -> (WorkerName, Loss) {
        std::future::poll_fn(|context| self.poll_ended(context)).await
    }

    /// Kills the worker processes that still run and reaps them.
    pub(crate) fn dismiss(&mut self) {
        let Some(mut children) = self.processes.take() else { return };
        while let Some(exit) = children.try_exited() {
            self.note_exit(exit);
        }
        for name in self.names.iter().filter(|name| name.pid.is_some()) {
            self.ended.entry(name.index).or_insert(Loss::Dismissed);
        }
    }

    /// Whether threads or processes have not ended.
    pub(crate) fn is_running(&self) -> bool {
        let running = |name: &WorkerName| name.member.is_none() && self.how_ended(name).is_none();
        self.names.iter().any(running)
    }

    /// Returns how this worker ended, if it has.
    pub(crate) fn how_ended(&self, worker: &WorkerName) -> Option<&Loss> {
        self.ended.get(&worker.index)
    }
}

impl Loss {
    /// Whether this says why the worker is lost, not only what that broke.
    pub(crate) fn is_a_cause(&self) -> bool {
        matches!(self, Loss::Exited(_) | Loss::Ended(_) | Loss::Died(_) | Loss::Malformed)
    }

    /// Whether the worker ended as one does whose farmer is done.
    pub(crate) fn is_orderly(&self) -> bool {
        match self {
            Loss::Exited(exit) => exit.status.is_some_and(|status| status.success()),
            Loss::Ended(told) => told.is_empty(),
            // A node of a cluster closes its channel when it is done.
            Loss::Closed => true,
            _ => false,
        }
    }
}
