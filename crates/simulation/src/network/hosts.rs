//! Hosts, and the jobs that they compute.

use super::cores::{Cores, Work};
use super::io::{Costs, Errands};
use super::load::{ForeignLoad, Load};
use super::timeline::Activity;
use super::{Event, FIRST_CHOSEN_PORT, HostId, Network};
use chunkcomm_proto::Time;
use std::time::Duration;

/// The properties of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSpec {
    /// Cores, 1 by default. Jobs share them: with more jobs than cores each has the same part.
    pub cores: u32,
    /// Speed of a core in thousandths of the reference machine's, 1000 by default.
    pub speed_permille: u32,
    /// Time that the host spends on a packet before it goes to the interface, 0 by default. As the
    /// other costs it is the time of this host on an idle core, whatever its speed.
    pub send_cost_per_packet: Duration,
    /// The same for each byte of the packet, in picoseconds; 0 by default.
    pub send_picos_per_byte: u64,
    /// Time that the host spends on an arrived packet before its bytes are readable, 0 by default.
    pub receive_cost_per_packet: Duration,
    /// The same for each byte of the packet, in picoseconds; 0 by default. With 0 the bytes are
    /// readable as they arrive, once the packet's cost is spent. With more, a packet is readable as a
    /// whole, or by quarters of the window.
    pub receive_picos_per_byte: u64,
    /// Foreign load that comes and goes, none by default.
    pub foreign: Option<ForeignLoad>,
}

impl Default for HostSpec {
    /// One core of the reference machine, to which packets cost nothing.
    fn default() -> HostSpec {
        HostSpec {
            cores: 1,
            speed_permille: 1000,
            send_cost_per_packet: Duration::ZERO,
            send_picos_per_byte: 0,
            receive_cost_per_packet: Duration::ZERO,
            receive_picos_per_byte: 0,
            foreign: None,
        }
    }
}

/// A computing job of a host. No number is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    host: HostId,
    number: u64,
}

impl JobId {
    /// Returns the host that computes it.
    #[must_use]
    pub fn host(self) -> HostId {
        self.host
    }

    /// Returns the job's number: jobs of a host are counted from 0 as they begin.
    #[must_use]
    pub fn number(self) -> u64 {
        self.number
    }
}

/// A job on the cores of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    Compute(JobId),
    /// The I/O thread works on an errand.
    Messages,
}

/// A host: whether it runs, and what it does.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) up: bool,
    pub(super) next_port: u16,
    pub(super) spec: HostSpec,
    pub(super) cores: Cores<Task>,
    pub(super) load: Load,
    jobs_begun: u64,
    pub(super) costs: Costs,
    pub(super) errands: Errands,
}

/// Hosts and their jobs.
impl Network {
    /// Adds a host of one core, which reaches itself in 10 us.
    ///
    /// # Panics
    ///
    /// The name is another host's.
    pub fn add_host(&mut self, name: &str) -> HostId {
        self.add_host_of(name, HostSpec::default())
    }

    /// Adds a host of these properties, which reaches itself in 10 us.
    ///
    /// # Panics
    ///
    /// The name is another host's. The host has no core or more than 4096, or a speed of 0 or of
    /// more than a thousand times the reference machine's. A mean of its foreign load is below a
    /// microsecond.
    pub fn add_host_of(&mut self, name: &str, spec: HostSpec) -> HostId {
        assert!(self.host(name).is_none(), "there is a host {name} already");
        let id = HostId(u32::try_from(self.hosts.len()).expect("fewer than 4 Gi hosts"));
        self.hosts.push(Host {
            name: name.to_owned(),
            up: true,
            next_port: FIRST_CHOSEN_PORT,
            cores: Cores::new(spec.cores, spec.speed_permille),
            load: Load::new(spec.foreign, self.seed, id, self.now),
            jobs_begun: 0,
            costs: Costs::of(&spec),
            errands: Errands::default(),
            spec,
        });
        self.wires.add_host(id);
        id
    }

    /// Returns the number of a host's cores.
    #[must_use]
    pub fn cores(&self, host: HostId) -> u32 {
        self.hosts[host.index()].cores.count()
    }

    /// Returns the host with this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<HostId> {
        let at = self.hosts.iter().position(|host| host.name == name)?;
        Some(HostId(at as u32))
    }

    /// Returns the host's name.
    #[must_use]
    pub fn host_name(&self, host: HostId) -> &str {
        &self.hosts[host.index()].name
    }

    /// Begins a job on `host`: as much computing as one idle core of the reference machine does in
    /// `work`. [`Computed`](Event::Computed) follows when it is done; nothing follows on a host
    /// that does not run.
    ///
    /// `n` jobs of a host proceed side by side, on `c` cores each at `min(1, c / n)` of a core's
    /// speed. A job ends at a whole nanosecond, rounded up.
    pub fn compute(&mut self, now: Time, host: HostId, work: Duration) -> JobId {
        self.advance(now);
        self.apply_load(host);
        let this = &mut self.hosts[host.index()];
        let job = JobId { host, number: this.jobs_begun };
        this.jobs_begun += 1;
        if this.up {
            let nanos = u64::try_from(work.as_nanos()).unwrap_or(u64::MAX);
            this.cores.add(now, Task::Compute(job), Work::of_nanos(nanos));
            self.note_begin(host, Task::Compute(job), Activity::Computing(job));
            self.watch_cores(host);
        }
        job
    }

    /// Ends a job before it is done. Nothing happens when it is done already.
    pub fn cancel(&mut self, now: Time, job: JobId) {
        self.advance(now);
        let task = Task::Compute(job);
        if let Some(done) = self.hosts[job.host.index()].cores.remove(now, task) {
            self.note_end(job.host, task, done);
            self.watch_cores(job.host);
        }
    }

    /// Drops the jobs of a host that stops, and its packets.
    pub(super) fn drop_jobs(&mut self, host: HostId) {
        let now = self.now;
        for task in self.hosts[host.index()].cores.jobs() {
            if let Some(done) = self.hosts[host.index()].cores.remove(now, task) {
                self.note_end(host, task, done);
            }
        }
        self.hosts[host.index()].errands.clear();
        self.watch_cores(host);
    }

    /// Handles the jobs that are done now, and changes of load.
    pub(super) fn handle_cores(&mut self, host: HostId) {
        let now = self.now;
        while let Some((task, done)) = self.hosts[host.index()].cores.take_done(now) {
            self.note_end(host, task, done);
            match task {
                Task::Compute(job) => self.tell(Event::Computed(job)),
                Task::Messages => self.handle_errand_done(host),
            }
        }
        self.apply_load(host);
        self.watch_cores(host);
    }
}
