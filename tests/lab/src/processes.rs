//! The lab's side of its node processes.

use std::fmt::Display;
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Duration;

use chunkcomm_bench::failure::{Doing, Failure};
use chunkcomm_bench::harness::control::Control;
use chunkcomm_bench::harness::machine;
use chunkcomm_bench::harness::protocol::{Place, Usage};

use super::Lab;
use super::node::NODE_COMMAND;
use super::protocol::{Collected, Reply, Request, Work};

/// Time within which a node process replies: 120 s. After that something hangs.
const ANSWER: Duration = Duration::from_secs(120);

/// A node process; dropping it ends the process.
pub struct Process {
    child: Child,
    control: Control,
    /// Number of files that the process may open.
    pub files: u64,
}

impl Process {
    /// Starts a process of the lab on the `core`-th core.
    ///
    /// # Errors
    /// If the process does not start.
    pub async fn start(lab: &Lab, core: usize) -> Result<Self, Failure> {
        Self::start_in(lab, core, None).await
    }

    /// Starts a process as [`start`](Self::start) does, in a network namespace.
    ///
    /// # Errors
    /// If the process does not start.
    pub async fn start_in(
        lab: &Lab,
        core: usize,
        namespace: Option<&str>,
    ) -> Result<Self, Failure> {
        let program = machine::this_program()?;
        let mut command = match namespace {
            // `ip` becomes the program, so that stopping or killing it affects the node.
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program.get_program());
                command
            }
            None => program,
        };
        command.arg(NODE_COMMAND);
        let (child, control) = Control::of_child(command, "starting a node process")?;
        let mut process = Self { child, control, files: 0 };
        let place = Place { core, ..lab.place.clone() };
        let (dead_ms, seed) = (lab.dead.as_millis() as u64, lab.seed);
        process.files = match process.ask(&Request::Setup { place, dead_ms, seed }).await? {
            Reply::Ready { files } => files,
            other => return Err(unexpected(&other)),
        };
        Ok(process)
    }

    /// Sends a request and waits for its reply.
    async fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        self.control.send(request)?;
        match tokio::time::timeout(ANSWER, self.reply()).await {
            Ok(reply) => reply,
            Err(_) => Err(Failure::broken(
                "waiting for a node process",
                format!("it has not done this in {} s: {request:?}", ANSWER.as_secs()),
            )),
        }
    }

    async fn reply(&mut self) -> Result<Reply, Failure> {
        match self.control.receive::<Reply>().await? {
            Some(Reply::Failed(why)) => Err(Failure::broken("in a node process", why)),
            Some(reply) => Ok(reply),
            None => Err(Failure::broken("waiting for a node process", "it has ended")),
        }
    }

    async fn done(&mut self, request: &Request) -> Result<(), Failure> {
        match self.ask(request).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Builds a node that listens; returns its address.
    ///
    /// # Errors
    /// If the node process cannot do it.
    pub async fn listen(&mut self) -> Result<SocketAddr, Failure> {
        match self.ask(&Request::Listen).await? {
            Reply::Listening { address } => {
                let address = address.rsplit('/').next().unwrap_or_default();
                address.parse().doing("understanding a node's address")
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Builds `count` nodes that dial an address, a link each.
    ///
    /// # Errors
    /// If a node cannot.
    pub async fn dial(&mut self, count: usize, address: &impl Display) -> Result<(), Failure> {
        self.done(&Request::Dial { count, address: address.to_string() }).await
    }

    /// Accepts the links of `count` peers that have dialled or will.
    ///
    /// # Errors
    /// If the peers do not come.
    pub async fn meet(&mut self, count: usize) -> Result<(), Failure> {
        self.done(&Request::Meet { count }).await
    }

    /// Begins a piece of work.
    ///
    /// # Errors
    /// If the node process cannot do it.
    pub async fn work(&mut self, work: Work) -> Result<(), Failure> {
        self.done(&Request::Start(work)).await
    }

    /// Orders senders without end to close their channels.
    ///
    /// # Errors
    /// If the process is gone.
    pub async fn stop(&mut self) -> Result<(), Failure> {
        self.done(&Request::Stop).await
    }

    /// Waits for all work; returns `None` if the work has not ended within `limit`: something
    /// hangs.
    ///
    /// # Errors
    /// If the process is gone.
    pub async fn collect(&mut self, limit: Duration) -> Result<Option<Collected>, Failure> {
        self.control.send(&Request::Collect)?;
        match tokio::time::timeout(limit, self.reply()).await {
            Ok(Ok(Reply::Collected(collected))) => Ok(Some(collected)),
            Ok(Ok(other)) => Err(unexpected(&other)),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Ok(None),
        }
    }

    /// Sends a number over each link; returns the times of the acknowledgements, and errors.
    ///
    /// # Errors
    /// If the process is gone.
    pub async fn round(&mut self, number: u64) -> Result<(Vec<u64>, Vec<String>), Failure> {
        match self.ask(&Request::Round { number }).await? {
            Reply::Rounded { acknowledged_ns, failures } => Ok((acknowledged_ns, failures)),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the usage of the process, and the messages that each work has taken since its start.
    ///
    /// # Errors
    /// If the process is gone.
    pub async fn usage(&mut self) -> Result<(Usage, Vec<u64>), Failure> {
        match self.ask(&Request::Usage).await? {
            Reply::Usage { usage, taken } => Ok((usage, taken)),
            other => Err(unexpected(&other)),
        }
    }

    /// Stops the process as a whole, or lets it continue.
    pub fn hold(&self, held: bool) {
        machine::hold(self.child.id(), held);
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        // The process may have ended; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn unexpected(reply: &Reply) -> Failure {
    Failure::broken("talking to a node process", format!("unexpected answer {reply:?}"))
}
