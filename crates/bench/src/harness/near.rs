//! The near end: commands the far ends, and times slices.

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::control::Control;
use super::protocol::{
    End, GREETING, NodeKind, Order, Place, PolicyKind, Reply, Report, Request, RuntimeKind,
    Transport, Usage,
};
use super::{far, machine, runtime};
use crate::failure::Failure;

/// Time that a far end that broke has to report why: 500 ms.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Time after which a far end that has not ended by itself is killed: 1 s.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause between two looks whether the far end has ended: 1 ms.
const LOOK: Duration = Duration::from_millis(1);

/// Setting of the two processes, from a command's options.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Transport between the ends.
    pub transport: Transport,
    /// Runtime that drives the library.
    pub runtime: RuntimeKind,
    /// Workers of the tokio runtime.
    pub threads: usize,
    /// Whether the library keeps its session.
    pub session: bool,
    /// Address of a `chunkperf serve` to use as the far end, instead of a child of this process.
    pub connect: Option<String>,
}

impl Setting {
    /// Returns the settings of a node with the given policy.
    pub fn node(&self, policy: PolicyKind) -> NodeKind {
        NodeKind { session: self.session, policy, packet_bytes: None, channels: None }
    }

    /// Returns the place of ends on the first core, with the far one on this host.
    pub fn place(&self, host: &str) -> Place {
        let &Self { transport, runtime, threads, .. } = self;
        Place { transport, runtime, threads, host: host.to_owned(), core: 0 }
    }
}

/// The near end with its runtime and its far ends.
pub struct Bench {
    /// Runtime of the near process.
    pub runtime: Runtime,
    /// Place and settings of both ends.
    pub place: Place,
    fars: Vec<Far>,
}

/// One open connection: indices of the far end, and of the end there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndId {
    far: usize,
    end: usize,
}

/// Times of one slice, as both ends saw it.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Seconds from the first message to the verification of the last.
    pub seconds: f64,
    /// Processor time of both processes, nanoseconds.
    pub cpu_ns: u64,
    /// The far end's times of the marked messages; empty where the clocks differ.
    pub marks_ns: Vec<u64>,
}

impl Bench {
    /// Greets these far ends, which listen on `host`.
    ///
    /// # Errors
    /// If one of them does not answer.
    pub fn over(setting: &Setting, fars: Vec<Far>, host: &str) -> Result<Self, Failure> {
        let (count, place) = (fars.len(), setting.place(host));
        let mut bench = Self { runtime: runtime::start(setting.threads)?, place, fars };
        for far in 0..count {
            bench.greet(far)?;
        }
        Ok(bench)
    }

    fn greet(&mut self, far: usize) -> Result<(), Failure> {
        let place = Place { core: far + 1, ..self.place.clone() };
        let setup = Request::Setup { greeting: GREETING.to_owned(), place };
        self.fars[far].control.send(&setup)?;
        match self.reply(far)? {
            Reply::Greeting { boot_id } => {
                self.fars[far].same_clock = boot_id.is_some() && boot_id == machine::boot_id();
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Runs `other`, a baseline in processes of its own, while the far ends that are children of this
    /// process stand still. They would take a core from it if they poll busily, and would miss this
    /// end, which is not driven meanwhile.
    pub fn while_held<R>(&self, other: impl FnOnce() -> R) -> R {
        self.hold_far_ends(true);
        let result = other();
        self.hold_far_ends(false);
        result
    }

    fn hold_far_ends(&self, held: bool) {
        for child in self.fars.iter().filter_map(|far| far.child.as_ref()) {
            machine::hold(child.id(), held);
        }
    }

    /// Opens an end at the only or first far end: `connect` is given its address.
    ///
    /// # Errors
    /// If either side fails.
    pub fn open<C>(
        &mut self,
        end: End,
        connect: impl FnOnce(&Runtime, &Place, &str) -> Result<C, Failure>,
    ) -> Result<(EndId, C), Failure> {
        self.open_at(0, end, connect)
    }

    /// Opens an end at one of several far ends.
    ///
    /// # Errors
    /// If either side fails.
    pub fn open_at<C>(
        &mut self,
        far: usize,
        end: End,
        connect: impl FnOnce(&Runtime, &Place, &str) -> Result<C, Failure>,
    ) -> Result<(EndId, C), Failure> {
        self.fars[far].control.send(&Request::Open(end))?;
        let address = match self.reply(far)? {
            Reply::Opened { address } => address,
            other => return Err(unexpected(&other)),
        };
        let connected = connect(&self.runtime, &self.place, &address);
        let connected = self.or_last_words(far, connected)?;
        match self.reply(far)? {
            Reply::Ready => {
                let id = EndId { far, end: self.fars[far].ends };
                self.fars[far].ends += 1;
                Ok((id, connected))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Orders an end to receive a slice; returns when the end is about to.
    ///
    /// # Errors
    /// If the end is gone.
    pub fn begin(&mut self, id: EndId, order: &Order) -> Result<(), Failure> {
        self.fars[id.far].control.send(&Request::Slice { end: id.end, order: order.clone() })?;
        match self.reply(id.far)? {
            Reply::Started => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until an end has received its slice.
    ///
    /// # Errors
    /// If the slice failed.
    pub fn finish(&mut self, id: EndId) -> Result<Report, Failure> {
        match self.reply(id.far)? {
            Reply::Finished(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Runs one slice: the far end is ready before `near` starts, and the slice ends when it has
    /// verified the last message.
    ///
    /// # Errors
    /// If either side fails.
    pub fn timed<R>(
        &mut self,
        id: EndId,
        order: &Order,
        near: impl FnOnce(&Runtime) -> Result<R, Failure>,
    ) -> Result<(R, Timing), Failure> {
        self.begin(id, order)?;
        let cpu_before_ns = machine::cpu_ns();
        let started_ns = machine::now_ns();
        let result = near(&self.runtime);
        let result = self.or_last_words(id.far, result)?;
        let report = self.finish(id)?;
        let near_cpu_ns = machine::cpu_ns() - cpu_before_ns;
        let ended_ns = machine::now_ns();
        Ok((result, self.timing(id, report, (started_ns, ended_ns), near_cpu_ns)))
    }

    fn timing(
        &self,
        id: EndId,
        report: Report,
        (started_ns, ended_ns): (u64, u64),
        near_cpu_ns: u64,
    ) -> Timing {
        let same_clock = self.fars[id.far].same_clock;
        let ended_ns = if same_clock { report.finished_ns } else { ended_ns };
        // In memory both ends are threads of one process, and the near end has counted its time.
        let far_cpu_ns = if self.place.transport == Transport::Memory { 0 } else { report.cpu_ns };
        Timing {
            seconds: ended_ns.saturating_sub(started_ns) as f64 / 1e9,
            cpu_ns: near_cpu_ns + far_cpu_ns,
            marks_ns: if same_clock { report.marks_ns } else { Vec::new() },
        }
    }

    /// Rests for `time`; open connections stay driven, at both ends.
    pub fn rest(&self, time: Duration) {
        // The future is made inside the runtime, whose timer it needs.
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Returns the usage of all processes together; a process that holds both ends counts once.
    ///
    /// # Errors
    /// If a far end is gone.
    pub fn usage(&mut self) -> Result<Usage, Failure> {
        let mut sum = far::usage();
        if self.place.transport == Transport::Memory {
            return Ok(sum);
        }
        for far in 0..self.fars.len() {
            sum = sum.plus(self.far_usage(far)?);
        }
        Ok(sum)
    }

    /// Returns the usage of a far end's process.
    ///
    /// # Errors
    /// If the far end is gone.
    pub fn far_usage(&mut self, far: usize) -> Result<Usage, Failure> {
        self.fars[far].control.send(&Request::Usage)?;
        match self.reply(far)? {
            Reply::Usage(usage) => Ok(usage),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the processor time of all processes since they began, in nanoseconds; a process that holds
    /// both ends counts once.
    ///
    /// # Errors
    /// If a far end is gone.
    pub fn cpu_ns(&mut self) -> Result<u64, Failure> {
        let mut sum = machine::cpu_ns();
        if self.place.transport == Transport::Memory {
            return Ok(sum);
        }
        for far in 0..self.fars.len() {
            self.fars[far].control.send(&Request::Cpu)?;
            match self.reply(far)? {
                Reply::Cpu(cpu_ns) => sum += cpu_ns,
                other => return Err(unexpected(&other)),
            }
        }
        Ok(sum)
    }

    /// Waits for the next answer; open connections are driven meanwhile.
    fn reply(&mut self, far: usize) -> Result<Reply, Failure> {
        match self.runtime.block_on(self.fars[far].control.receive::<Reply>())? {
            Some(Reply::Failed(why)) => Err(Failure::broken("at the far end", why)),
            Some(reply) => Ok(reply),
            None => Err(Failure::broken("waiting for the far end", "it has ended")),
        }
    }

    /// Returns `result`, or the far end's reason instead of a failure: a broken connection is often
    /// the far end's doing.
    fn or_last_words<R>(&mut self, far: usize, result: Result<R, Failure>) -> Result<R, Failure> {
        let failure = match result {
            Ok(result) => return Ok(result),
            Err(failure) => failure,
        };
        let control = &mut self.fars[far].control;
        let words = self
            .runtime
            .block_on(async { tokio::time::timeout(LAST_WORDS, control.receive::<Reply>()).await });
        match words {
            Ok(Ok(Some(Reply::Failed(why)))) => {
                Err(Failure::broken(failure.to_string(), format!("at the far end: {why}")))
            }
            _ => Err(failure),
        }
    }
}

fn unexpected(reply: &Reply) -> Failure {
    Failure::broken("talking to the far end", format!("unexpected answer {reply:?}"))
}

/// The far end as the near one knows it: a child, a thread, or a server on another host.
pub struct Far {
    control: Control,
    child: Option<Child>,
    same_clock: bool,
    ends: usize,
}

impl Far {
    /// Returns the far end behind this connection; a child is waited for when it is dropped.
    pub fn new(control: Control, child: Option<Child>) -> Self {
        Self { control, child, same_clock: false, ends: 0 }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        // The child ends by itself when its control connection does, and then tidies up.
        self.control.close();
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        // The child may have ended; either way no process is left behind.
        let _ = child.kill();
        let _ = child.wait();
    }
}
