//! Workers as processes, threads and nodes of a cluster: their names, and how they ended.

use std::sync::Arc;
use std::task::{Context, Poll};

use chunkcomm::layer::warn;
use chunkcomm::{Loss, Node, Peer, host};
use chunkcomm_cluster::cluster::{Member, NameError, NodeId};
use chunkcomm_cluster::launch::{ChildExit, Children, LaunchError, Launcher, Token};
use chunkcomm_cluster::roster::{Event, Roster};
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_proto::sorted::SortedMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::error::{StartError, Unreplaced, WorkerEnd};
use crate::link::Link;
use crate::machine::{FIRST_INDEX, work_blocking};
use crate::name::WorkerName;
use crate::proto::tree::{Position, Rule, Tree};
use crate::proto::wire::{self, Role, Who};
use crate::settings::NodeSettings;
use crate::threads::{spawn_among, start_thread};
use crate::worker::{Farmer, Post, Stopped, work};

/// Number of processes in a row that are replaced although they were never ready. A program that no
/// longer starts must not be started for ever; a machine short of memory may kill a few.
const UNREADY_MAX: u32 = 16;

/// All workers of a farm, by index: threads, processes, nodes of a cluster. Dropping it kills and
/// reaps the processes. A thread, and a node's service, ends after its current task, once the
/// farmer's channels are closed.
pub(crate) struct Crew {
    /// The farm's name.
    farm: String,
    /// Settings and functions of the workers that the crew starts.
    settings: NodeSettings,
    registry: Arc<Registry>,
    names: Vec<WorkerName>,
    /// Token by which a started worker is known, once; `None` for a node of a cluster.
    tokens: Vec<Option<Token>>,
    /// The token of the worker threads.
    token: Token,
    /// Token of the farm, by which a sub-farmer knows the nodes that its farmer has sent.
    of_farm: Token,
    /// Ends of threads.
    ends: UnboundedReceiver<(usize, Loss)>,
    /// Sender held so that the receiver stays pending when all other senders are gone.
    tells: UnboundedSender<(usize, Loss)>,
    /// Starter of the processes, replacements included.
    launcher: Option<Launcher>,
    /// Number of processes that died in a row before they were ready.
    unready: u32,
    /// Reason why no process replaced the last dead one.
    unreplaced: Option<Unreplaced>,
    processes: Vec<Children>,
    /// The end of each worker that has ended, by index; for a node usually its death.
    ended: SortedMap<usize, Loss>,
    /// The workers of a simulation.
    tasks: JoinSet<()>,
    /// The nodes of the cluster, and the index of the worker that has each seat.
    roster: Option<(Roster, Vec<usize>)>,
    reserve: Option<Reserve>,
    /// The announcement of the farm to its nodes.
    announced: Option<Announced>,
    /// The places of the nodes, where there are sub-farmers.
    tree: Option<Tree>,
    /// Number of times that each node has been told its place.
    arrivals: SortedMap<usize, u32>,
    /// Whether all workers that were there at the start are ready.
    has_started: bool,
}

/// Worker of the farmer's node that the start does not wait for.
struct Reserve {
    node: Node,
    threads: u32,
    /// Index of the worker, once it is hired.
    index: Option<usize>,
}

/// Farm that a cluster's nodes find by its name, until this is dropped.
struct Announced {
    cluster: Cluster,
    name: String,
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.cluster.withdraw(&self.name);
    }
}

impl Crew {
    /// Returns a crew without workers. A sub-farmer's gets the token of the farm.
    pub(crate) fn new(
        farm: &str,
        of_farm: Option<Token>,
        settings: NodeSettings,
        registry: &Arc<Registry>,
    ) -> Result<Crew, StartError> {
        let (tells, ends) = unbounded_channel();
        // No token is safe without random numbers, so nothing is started then.
        let random = || {
            Token::random()
                .map_err(|source| StartError::Thread { worker: WorkerName::thread(0), source })
        };
        Ok(Crew {
            farm: farm.to_owned(),
            settings,
            registry: Arc::clone(registry),
            names: Vec::new(),
            tokens: Vec::new(),
            token: random()?,
            of_farm: of_farm.map_or_else(random, Ok)?,
            ends,
            tells,
            launcher: None,
            unready: 0,
            unreplaced: None,
            processes: Vec::new(),
            ended: SortedMap::new(),
            tasks: JoinSet::new(),
            roster: None,
            reserve: None,
            announced: None,
            tree: None,
            arrivals: SortedMap::new(),
            has_started: false,
        })
    }

    /// Starts a worker thread that computes on this number of threads. In a simulation it is a task
    /// of the farmer's host.
    pub(crate) fn hire_thread(&mut self, farmer: Farmer, threads: u32) -> Result<(), StartError> {
        let index = self.names.len();
        let worker = WorkerName::thread(index);
        let (token, settings, farm) = (self.token, self.settings, self.farm.clone());
        let post = Post { farmer, index, token, farm, settings, threads, explains: false };
        let (registry, end) = (Arc::clone(&self.registry), self.tells.clone());
        let ended = move |worked: Result<(), Stopped>| {
            let told = worked.err().map_or_else(String::new, |stopped| stopped.to_string());
            // A failed send means that the farm is gone and needs no report.
            let _ = end.send((index, WorkerEnd::Thread(told).into()));
        };
        if host::is_virtual() {
            let working = async move { ended(work(&post, &registry).await) };
            spawn_among(&mut self.tasks, Box::pin(working));
        } else {
            let name = format!("farm-worker-{index}");
            start_thread(name, Box::new(move || ended(work_blocking(&post, &registry))))
                .map_err(|source| StartError::Thread { worker: worker.clone(), source })?;
        }
        self.names.push(worker);
        self.tokens.push(Some(token));
        Ok(())
    }

    /// Keeps a worker thread of the farmer's in reserve.
    pub(crate) fn keep_in_reserve(&mut self, node: Node, threads: u32) {
        self.reserve = Some(Reserve { node, threads, index: None });
    }

    pub(crate) fn has_reserve(&self) -> bool {
        self.reserve.is_some()
    }

    /// Whether this is the worker that was kept in reserve.
    pub(crate) fn is_reserve(&self, worker: &WorkerName) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.index == Some(worker.index))
    }

    /// Starts the worker in reserve, unless it was started before.
    pub(crate) fn hire_reserve(&mut self) {
        let Some(mut reserve) = self.reserve.take_if(|reserve| reserve.index.is_none()) else {
            return;
        };
        let index = self.names.len();
        // If no thread can be started, the other workers go on.
        if self.hire_thread(Farmer::Here(reserve.node.clone()), reserve.threads).is_ok() {
            reserve.index = Some(index);
            self.reserve = Some(reserve);
        }
    }

    /// Starts worker processes. The launcher also starts those that replace dead ones.
    pub(crate) fn hire_processes(
        &mut self,
        count: usize,
        launcher: Launcher,
    ) -> Result<(), StartError> {
        self.launcher = Some(launcher.env(NodeSettings::VARIABLE, self.settings.to_string()));
        self.launch(count).map_err(StartError::Launch)
    }

    fn launch(&mut self, count: usize) -> Result<(), LaunchError> {
        let Some(launcher) = self.launcher.clone() else { return Ok(()) };
        let first = self.names.len();
        let children = launcher.env(FIRST_INDEX, first.to_string()).spawn(count)?;
        for (at, &pid) in children.pids().iter().enumerate() {
            self.names.push(WorkerName::process(first + at, pid));
            self.tokens.push(Some(children.token()));
        }
        self.processes.push(children);
        Ok(())
    }

    /// Starts a process in the place of a dead one, unless too many died in a row before they were
    /// ready. If none can be started, a warning says so and the other workers go on.
    pub(crate) fn replace(&mut self, worker: &WorkerName, was_ready: bool) {
        if worker.pid.is_none() {
            return;
        }
        self.unready = if was_ready { 0 } else { self.unready + 1 };
        self.unreplaced = match self.unready {
            0..=UNREADY_MAX => self.launch(1).err().map(Unreplaced::Launch),
            count => Some(Unreplaced::Unready { count }),
        };
        if let Some(why) = &self.unreplaced {
            warn("farmer", &format!("{worker} ended and is not replaced: {why}"));
        }
    }

    /// Returns the reason why no process replaced the last dead one.
    pub(crate) fn unreplaced(&self) -> Option<&Unreplaced> {
        self.unreplaced.as_ref()
    }

    /// Kills a worker that is a process, so that it ends and is replaced.
    pub(crate) fn kill(&mut self, worker: &WorkerName) {
        if let Some(pid) = worker.pid.filter(|_| self.how_ended(worker).is_none()) {
            self.processes.iter_mut().for_each(|children| children.kill_one(pid));
        }
    }

    /// Returns the farm's name.
    pub(crate) fn farm(&self) -> &str {
        &self.farm
    }

    /// Returns the names of the workers, by index.
    pub(crate) fn names(&self) -> &[WorkerName] {
        &self.names
    }

    /// Returns the worker that says to be this one over the link to this peer, if the farm has the
    /// worker or takes it. A node may come again after it has left.
    pub(crate) fn known(&mut self, who: Who, peer: &Peer) -> Option<WorkerName> {
        match who {
            Who::Started { index, token } => {
                let index = usize::try_from(index).ok()?;
                self.tokens.get_mut(index)?.take_if(|its| *its == token)?;
                Some(self.names[index].clone())
            }
            Who::Member | Who::Orphan => self.known_member(peer),
            // An earlier farm sent this node here. The farmer of the current farm waits for its
            // hello.
            Who::Placed(token) if token != self.of_farm => None,
            Who::Placed(_) => self.known_member(peer),
        }
    }

    /// Returns the worker that is this node of the cluster, which may have joined just now.
    pub(crate) fn known_member(&mut self, peer: &Peer) -> Option<WorkerName> {
        let cluster = self.roster.as_ref()?.0.cluster();
        let is_peer = |id: NodeId| id.incarnation == peer.incarnation();
        let of = |name: &&WorkerName| name.member.as_ref().is_some_and(|member| is_peer(member.id));
        if let Some(name) = self.names.iter().find(of) {
            return Some(name.clone());
        }
        let member = cluster.members().into_iter().find(|member| is_peer(member.id))?;
        self.hire_member(member);
        self.names.last().cloned()
    }

    /// Returns the part of the worker that came as this one.
    pub(crate) fn role(&mut self, worker: &WorkerName, who: Who) -> Role {
        let (Some(tree), Some(member)) = (&mut self.tree, &worker.member) else {
            return Role::Work;
        };
        *self.arrivals.get_or_insert(worker.index, 0) += 1;
        let token = self.of_farm;
        let place = match tree.place_of(worker.index) {
            // At the start all nodes have their places. An orphan of an earlier farm is new to this
            // one.
            Some(place) if !self.has_started || who != Who::Orphan => place,
            _ => tree.place_again(worker.index, &member.host),
        };
        match place {
            Position::Head => {
                let below = if self.has_started { 0 } else { tree.below(worker.index) as u32 };
                Role::Farm { token, below }
            }
            Position::Below(head) => {
                let head = self.names[head].member.as_ref().expect("a node is at the head");
                Role::Below { rank: head.id.rank, token }
            }
        }
    }

    /// Whether a sub-farmer has this worker, or had it at its end.
    pub(crate) fn is_below(&self, worker: &WorkerName) -> bool {
        let is_head = |tree: &Tree| tree.place_of(worker.index) == Some(Position::Head);
        worker.member.is_some() && self.tree.as_ref().is_some_and(|tree| !is_head(tree))
    }

    /// Notes that all workers that were there at the start are ready.
    pub(crate) fn has_started(&mut self) {
        self.has_started = true;
    }

    /// Returns the number of times that a node has been told its place.
    pub(crate) fn arrival(&self, index: usize) -> u32 {
        self.arrivals.get(&index).copied().unwrap_or_default()
    }

    /// Notes the loss of a worker's link, of this arrival: no node is placed below the worker. It
    /// has no effect if the worker has come again before its farmer saw the loss.
    pub(crate) fn note_lost(&mut self, index: usize, arrival: u32) {
        if self.arrival(index) == arrival {
            self.note_gone(index);
        }
    }

    fn note_gone(&mut self, index: usize) {
        if let Some(tree) = &mut self.tree {
            tree.handle_lost(index);
        }
    }

    fn hire_member(&mut self, member: Member) {
        if let Some((roster, workers)) = &mut self.roster {
            roster.add(member.id);
            workers.push(self.names.len());
        }
        self.names.push(WorkerName::member(self.names.len(), member));
        self.tokens.push(None);
    }

    /// Lets the nodes of the cluster find the farm.
    pub(crate) async fn announce(&mut self, cluster: &Cluster) -> Result<(), StartError> {
        let name = wire::duplex(&self.farm);
        cluster.provide_sole(&name).await.map_err(|error| match error {
            NameError::Held { by, .. } => {
                StartError::Taken { farm: self.farm.clone(), rank: by.rank }
            }
            error => StartError::Name(error),
        })?;
        self.announced = Some(Announced { cluster: cluster.clone(), name });
        Ok(())
    }

    /// Takes these nodes of a cluster as workers, and nodes that come later. With a rule it places
    /// them below sub-farmers.
    pub(crate) fn hire_members(&mut self, members: Vec<Member>, rule: Option<Rule>) {
        let mut tree = rule.map(Tree::new);
        for member in members {
            if let Some(tree) = &mut tree {
                tree.place(self.names.len(), &member.host);
            }
            self.hire_member(member);
        }
        self.tree = tree;
    }

    /// Follows the deaths of nodes that are hired from now on, and knows nodes that say hello.
    pub(crate) fn watch(&mut self, cluster: &Cluster) {
        self.roster = Some((Roster::new(cluster, [].into()), Vec::new()));
    }

    /// Reports the end of each worker once, of a node only its death. Pending when no worker is
    /// left.
    pub(crate) fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<(WorkerName, Loss)> {
        if let Poll::Ready(Some((index, loss))) = self.ends.poll_recv(context) {
            return Poll::Ready(self.note(index, loss));
        }
        if let Some((roster, workers)) = &mut self.roster {
            while let Poll::Ready(event) = roster.poll_event(context) {
                if let Event::Lost(seat, loss) = event {
                    let index = workers[seat];
                    return Poll::Ready(self.note(index, loss));
                }
            }
        }
        let mut at = 0;
        while at < self.processes.len() {
            match self.processes[at].poll_exited(context) {
                Poll::Ready(Some(exit)) => return Poll::Ready(self.note_exit(exit)),
                Poll::Ready(None) => drop(self.processes.swap_remove(at)),
                Poll::Pending => at += 1,
            }
        }
        Poll::Pending
    }

    /// Records that a worker was refused. A node of the cluster knows the reason: `serve_in`
    /// returns it. A process ends with it.
    pub(crate) fn note_refused(&mut self, error: &StartError) {
        if let StartError::Lost { worker, .. }
        | StartError::Versions { worker, .. }
        | StartError::Differs { worker, .. } = error
            && worker.member.is_some()
        {
            self.note(worker.index, WorkerEnd::Closed.into());
        }
    }

    /// Records how a worker ended.
    pub(crate) fn note(&mut self, index: usize, loss: Loss) -> (WorkerName, Loss) {
        self.ended.insert(index, loss.clone());
        self.note_gone(index);
        (self.names[index].clone(), loss)
    }

    fn note_exit(&mut self, exit: ChildExit) -> (WorkerName, Loss) {
        // The system may have used the number for an older process too.
        let named = self.names.iter().rfind(|name| name.pid == Some(exit.pid));
        let index = named.expect("a child is a worker").index;
        self.note(index, WorkerEnd::Exited(exit).into())
    }

    /// Kills the worker processes that still run and reaps them.
    pub(crate) fn dismiss(&mut self) {
        self.launcher = None;
        for mut children in std::mem::take(&mut self.processes) {
            while let Some(exit) = children.try_exited() {
                self.note_exit(exit);
            }
        }
        for name in self.names.iter().filter(|name| name.pid.is_some()) {
            self.ended.get_or_insert(name.index, WorkerEnd::Dismissed.into());
        }
    }

    /// Whether a thread or process has not ended.
    pub(crate) fn is_running(&self) -> bool {
        let running = |name: &WorkerName| name.member.is_none() && self.how_ended(name).is_none();
        self.names.iter().any(running)
    }

    /// Whether a wanted worker without a link may become ready. It was started, or it will replace
    /// a process that is about to end.
    pub(crate) fn expects(&self, links: &[Link], is_wanted: impl Fn(&WorkerName) -> bool) -> bool {
        let is_to_come = |name: &WorkerName| {
            let link = links.iter().find(|link| link.name.index == name.index);
            link.is_none_or(|link| name.pid.is_some() && link.lost.is_some())
        };
        let mut wanted = self.names.iter().filter(|name| is_wanted(name));
        wanted.any(|name| self.how_ended(name).is_none() && is_to_come(name))
    }

    /// Returns how this worker ended, if it has.
    pub(crate) fn how_ended(&self, worker: &WorkerName) -> Option<&Loss> {
        self.ended.get(&worker.index)
    }
}
