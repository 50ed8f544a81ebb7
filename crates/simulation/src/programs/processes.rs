//! Processes of the hosts: started, one or several a host, killed, and started again.

use super::{RUN, Simulation};
use crate::lan::Seat;
use crate::{HostId, Network};
use chunkcomm::Address;
use chunkcomm::host::JoinHandle;
use chunkcomm::layer::world::{self, Process};
use chunkcomm_proto::Time;
use std::collections::BTreeMap;
use std::pin::Pin;
use tokio::task::{JoinError, LocalSet};

/// Port at which rank 0 of a launched cluster listens.
const MANAGER_PORT: u16 = 17_700;

/// Starts.
impl Simulation {
    /// Runs `future` as a program of `host`: nodes built in it that listen nowhere dial from there.
    /// Tasks that it spawns by `chunkcomm::host::spawn` are of that host too. After
    /// [`Simulation::kill`] and [`Simulation::crash`] the future is never ready.
    ///
    /// On a host of several ranks it is a part of the process of the first.
    ///
    /// # Cancel safety
    ///
    /// That of `future`.
    pub async fn on<F: Future>(&self, host: HostId, future: F) -> F::Output {
        Seat::first(host).process().owned(future).await
    }

    /// Spawns `future` as a program of `host`. Several of one host are parts of one process: on a host
    /// of several ranks, of the process of the first. [`Simulation::spawn_rank`] has the others.
    ///
    /// A panic of the program fails the run, unless the handle is awaited: then [`JoinError`] tells of it.
    /// Await the handle, or let the program panic at an error: an error that it returns is seen nowhere
    /// else.
    ///
    /// # Panics
    ///
    /// The host was stopped by [`Simulation::crash`] and is still off.
    pub fn spawn_on<F>(&self, host: HostId, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.spawn_at(Seat::first(host), future)
    }

    /// Spawns `future` as a program of a rank of the latest launch: as a part of its process, or after
    /// [`Simulation::kill_rank`] as another process with its variables.
    ///
    /// A panic is handled as by [`Simulation::spawn_on`].
    ///
    /// # Panics
    ///
    /// No such rank was launched, or its host is off.
    pub fn spawn_rank<F>(&self, rank: usize, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.spawn_at(self.seat_of(rank), future)
    }

    fn spawn_at<F>(&self, seat: Seat, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let process = self.process_at(seat);
        // The runtime's code for a task is then compiled once, and not for each program.
        let future: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(future);
        process.spawn(future, |task| tokio::spawn(task))
    }

    /// Returns the present process of a place on a host that runs.
    fn process_at(&self, seat: Seat) -> Process {
        let host = seat.host;
        let off = self
            .with(|network, _| (!network.is_up(host)).then(|| network.host_name(host).to_owned()));
        assert!(off.is_none(), "the host {} is off: restart it first", off.unwrap_or_default());
        seat.process()
    }

    /// Runs `program` once for each entry of `hosts`, as a launcher does: with the environment variables
    /// by which `Cluster::join` of `chunkcomm-cluster` finds its rank and the others. The first entry
    /// has rank 0, which listens at port 17700. Returns the tasks by rank.
    ///
    /// A host that stands there several times has as many ranks. Each is a process with its own
    /// variables, ports and connections; they share the host's name, cores and wires. Their
    /// connections with each other take the host's way to itself ([`Network::add_host`]), and cost the
    /// host what other packets do.
    ///
    /// ```
    /// # use chunkcomm_simulation::{LinkSpec, Network, run};
    /// let mut network = Network::new(1);
    /// let (a, b) = (network.add_host("a"), network.add_host("b"));
    /// network.link(a, b, LinkSpec::default());
    /// run(network, async |simulation| {
    ///     let ranks = simulation.launch(&[a, a, b, b], |rank| async move {
    ///         (rank, chunkcomm::host::virtual_name().unwrap())
    ///     });
    ///     let mut places = Vec::new();
    ///     for rank in ranks {
    ///         places.push(rank.await.unwrap());
    ///     }
    ///     assert_eq!(places[2], (2, "b".to_owned()));
    /// });
    /// ```
    ///
    /// A rank that was killed is started again by [`Simulation::spawn_rank`], or where it is its host's
    /// only one by [`Simulation::spawn_on`]: its variables stay.
    ///
    /// # Panics
    ///
    /// There is no host, or one is off.
    pub fn launch<F>(
        &self,
        hosts: &[HostId],
        mut program: impl FnMut(usize) -> F,
    ) -> Vec<JoinHandle<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let each = self.set_places(hosts).into_iter().enumerate();
        each.map(|(rank, seat)| self.spawn_at(seat, program(rank))).collect()
    }

    /// Runs `program` once for each entry of `hosts`, as [`Simulation::launch`] does. Its futures need
    /// not be [`Send`]. Returns the results by rank when all have ended: an error for a program that
    /// panicked or was killed.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the programs are dropped with it.
    ///
    /// # Panics
    ///
    /// There is no host, or one is off.
    pub async fn launch_local<F>(
        &self,
        hosts: &[HostId],
        mut program: impl FnMut(usize) -> F,
    ) -> Vec<Result<F::Output, JoinError>>
    where
        F: Future<Output: 'static> + 'static,
    {
        let local = LocalSet::new();
        let mut tasks = Vec::new();
        for (rank, seat) in self.set_places(hosts).into_iter().enumerate() {
            let process = self.process_at(seat);
            tasks.push(process.spawn(program(rank), |task| local.spawn_local(task)));
        }
        let ends = async {
            let mut results = Vec::new();
            for task in tasks {
                results.push(task.await);
            }
            results
        };
        local.run_until(ends).await
    }

    /// Gives each entry a place on its host, and tells its programs their rank and where rank 0
    /// listens. Returns the places by rank.
    fn set_places(&self, hosts: &[HostId]) -> Vec<Seat> {
        let manager = self.address(*hosts.first().expect("at least one host"), MANAGER_PORT);
        let mut counts: BTreeMap<HostId, u32> = BTreeMap::new();
        let seat = |&host| {
            let count = counts.entry(host).or_default();
            *count += 1;
            Seat { host, index: *count - 1 }
        };
        let seats: Vec<Seat> = hosts.iter().map(seat).collect();
        self.lan.act(|state, _| {
            for (rank, seat) in seats.iter().enumerate() {
                let variables = [
                    ("CHUNKCOMM_RANK", rank.to_string()),
                    ("CHUNKCOMM_SIZE", hosts.len().to_string()),
                    ("CHUNKCOMM_MANAGER", manager.to_string()),
                ];
                let variables = variables.map(|(name, value)| (name.to_owned(), value));
                state.variables.insert(*seat, variables.into());
            }
            state.ranks.clone_from(&seats);
        });
        seats
    }

    /// Sets the environment variables of the host's programs (`chunkcomm::host::variables`), in
    /// the place of those that they had. Those of all its ranks are the same then.
    pub fn set_variables<N: Into<String>, V: Into<String>>(
        &self,
        host: HostId,
        variables: impl IntoIterator<Item = (N, V)>,
    ) {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        let variables: Vec<(String, String)> = variables.collect();
        self.lan.act(|state, _| {
            for (seat, before) in &mut state.variables {
                if seat.host == host {
                    before.clone_from(&variables);
                }
            }
            state.variables.insert(Seat::first(host), variables);
        });
    }

    /// Returns the address of `port` on `host`. A node that listens at port 0 gets a port that the
    /// network chooses.
    #[must_use]
    pub fn address(&self, host: HostId, port: u16) -> Address {
        self.lan.address(host, port)
    }
}

/// Ends.
impl Simulation {
    /// Kills the processes of a host, as `kill -9` does: their tasks end where they are, and the system
    /// closes their connections. A program that is spawned on the host afterwards is another process.
    ///
    /// Tasks of plain `tokio::spawn` belong to no host, and go on.
    ///
    /// # Panics
    ///
    /// Outside the run of this simulation.
    pub fn kill(&self, host: HostId) {
        self.end_programs(host, Network::close);
    }

    /// Kills the process of a rank of the latest launch, as [`Simulation::kill`] does. Other ranks of
    /// its host go on. [`Simulation::spawn_rank`] starts it again.
    ///
    /// # Panics
    ///
    /// Outside the run of this simulation, and when no such rank was launched.
    pub fn kill_rank(&self, rank: usize) {
        self.assert_runs();
        let seat = self.seat_of(rank);
        self.lan.act(|state, now| state.close(now, seat));
        world::end_process(seat.host.number(), seat.index);
    }

    /// Stops a host without a word, as a power failure does, with all its processes. Its peers hear
    /// nothing. A program that is spawned there before [`Simulation::restart`] is an error.
    ///
    /// # Panics
    ///
    /// Outside the run of this simulation.
    pub fn crash(&self, host: HostId) {
        self.end_programs(host, Network::crash);
    }

    /// Lets a host that was stopped run again. It answers connections of before by a reset. A program
    /// is to be spawned on it.
    pub fn restart(&self, host: HostId) {
        self.with(|network, now| network.restart(now, host));
    }

    fn end_programs(&self, host: HostId, end: fn(&mut Network, Time, HostId)) {
        self.assert_runs();
        self.lan.act(|state, now| {
            end(&mut state.network, now, host);
            state.forget(now, |seat| seat.host == host);
        });
        world::end_processes(host.number());
    }

    fn assert_runs(&self) {
        assert_eq!(RUN.get(), self.run, "a host is stopped within the run of its simulation");
    }

    fn seat_of(&self, rank: usize) -> Seat {
        let (seat, count) =
            self.lan.act(|state, _| (state.ranks.get(rank).copied(), state.ranks.len()));
        seat.unwrap_or_else(|| panic!("rank {rank} of {count} was not launched"))
    }
}
