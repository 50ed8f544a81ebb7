//! Nodes over ssh. The process that the user started starts all of them. It sends them their orders
//! on their standard input, and passes on their output.
//!
//! ```text
//!   starter                          rank 0                        rank 1..
//!     ssh host0, host1, .. ─────────▶ waits                         waits
//!     credential, "here" ───────────▶ listens
//!     ◀── "rank 0 listens at port P"
//!     credential, host0:P ────────────────────────────────────────▶ joins
//!     ◀── "all are ready"
//!     ◀── or "not started", the nodes to blame and the reason
//!     ◀── lines, printed with the rank before them ─────────────────
//!     standard input stays open: its end ends the nodes when the starter is gone
//! ```

mod command;
mod output;

use super::PORTS_DEFAULT;
use super::hosts::{Host, parse_hosts};
use crate::cluster::{Cluster, ClusterConfig, JoinError};
use crate::launch::{LaunchError, keep_statuses};
use chunkcomm::Credential;
use chunkcomm::host::{self, Instant};
use command::Remote;
use output::{Said, pass_on};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Line by which rank 0 reports its port to the process that started it.
const PORT_LINE: &str = "chunkcomm: rank 0 listens at port ";
const READY_LINE: &str = "chunkcomm: all are ready";
/// Line by which rank 0 reports why the cluster has not started. Ranks with commas between them, a
/// space, and the reason follow.
const NOT_STARTED_LINE: &str = "chunkcomm: not started ";

/// Time after the end of rank 0, beyond `rejoin_window`, in which the other nodes should notice it
/// by themselves. It is longer than the wait for a silent peer.
const GRACE: Duration = Duration::from_secs(15);

/// Time after that for an ssh to end, once the inputs are closed: the nodes then end at once. An
/// ssh that still runs is cut off from its host.
const INPUT_GRACE: Duration = Duration::from_secs(5);

/// Exit status of an ssh that cannot reach its host.
const STATUS_UNREACHED: i32 = 255;

/// Wait for the cause when a node ends while the cluster starts: its end may only follow another.
const CAUSE: Duration = Duration::from_secs(1);

/// Reports the port of rank 0 to the process that started it.
pub(in crate::cluster) fn tell_port(port: u16) -> io::Result<()> {
    tell(&format!("{PORT_LINE}{port}"))
}

/// Reports to the process that started this one that the cluster has started.
pub(in crate::cluster) fn tell_ready() -> io::Result<()> {
    tell(READY_LINE)
}

/// Reports to that process why the cluster has not started, and the nodes to blame, if known.
pub(in crate::cluster) fn tell_not_started(why: &JoinError) -> io::Result<()> {
    let (JoinError::Refused(blamed) | JoinError::TurnedAway { missing: blamed, .. }) = why else {
        return Ok(());
    };
    let ranks: Vec<String> = blamed.ranks().iter().map(u32::to_string).collect();
    // A name in the reason may have any characters.
    let why = why.to_string().replace(char::is_control, " ");
    tell(&format!("{NOT_STARTED_LINE}{} {why}", ranks.join(",")))
}

fn tell(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Starts the nodes and ends this process when they have ended.
pub(in crate::cluster) async fn supervise(
    config: &ClusterConfig,
    path: &Path,
    credential: Option<&Credential>,
) -> Result<Cluster, JoinError> {
    let hosts = read(path, config.nodes).map_err(JoinError::Launch)?;
    let credential = match credential {
        Some(credential) => credential.clone(),
        None => Credential::generate().map_err(JoinError::Credential)?,
    };
    let remote = Remote::new(config, hosts.len())?;
    keep_statuses().map_err(|error| JoinError::System {
        what: "let SIGCHLD be handled",
        error: Arc::new(error),
    })?;
    let mut nodes = Nodes::start(&remote, &hosts, &credential).map_err(JoinError::Launch)?;
    let status = nodes.run(config.ready_time()?, config.rejoin_window).await;
    let status = status.map_err(JoinError::Launch)?;
    drop(nodes);
    std::process::exit(status)
}

/// Explains to people the nodes to be started, and how to copy the program, in some lines.
pub(in crate::cluster) fn explain(
    config: &ClusterConfig,
    path: &Path,
) -> Result<String, JoinError> {
    let hosts = read(path, config.nodes).map_err(JoinError::Launch)?;
    let remote = Remote::new(config, hosts.len())?;
    let mut text = format!("by ssh      {} nodes, by {}\n", hosts.len(), path.display());
    let mut first = 0;
    for of_one in hosts.chunk_by(|one, next| one.name == next.name) {
        let last = first + of_one.len() - 1;
        let ranks = if first == last { format!("{first}") } else { format!("{first}-{last}") };
        text += &format!("rank        {ranks} on {}\n", of_one[0].name);
        first = last + 1;
    }
    let places = remote.places();
    text += &format!("program     {}, in folder {}\n", places.program, places.folder);
    let ports = config.place()?.ports().unwrap_or(PORTS_DEFAULT);
    text += &format!("ports       {}-{} are open between the hosts\n", ports.start(), ports.end());
    for of_one in hosts.chunk_by(|one, next| one.name == next.name) {
        let copying = command::copying(&remote.ssh(), places.program, &of_one[0].name);
        text += &format!("to copy it  {copying}\n");
    }
    Ok(text)
}

/// Returns the host of each rank.
fn read(path: &Path, nodes: Option<u32>) -> Result<Vec<Host>, LaunchError> {
    let bytes = std::fs::read(path).map_err(|error| LaunchError::HostsFile {
        path: path.to_owned(),
        error: Arc::new(error),
    })?;
    // Bytes that are not UTF-8 are in no host's name, and do no harm in a comment.
    let hosts = parse_hosts(&String::from_utf8_lossy(&bytes))
        .map_err(|(line, why)| LaunchError::HostsLine { path: path.to_owned(), line, why })?;
    let slots = hosts.iter().map(|host| host.slots).sum();
    let asked = nodes.unwrap_or(slots);
    if asked > slots {
        return Err(LaunchError::HostsSlots { path: path.to_owned(), asked, slots });
    }
    let each = hosts.iter().flat_map(|host| std::iter::repeat_n(host, host.slots as usize));
    Ok(each.take(asked as usize).cloned().collect())
}

/// Nodes as this process sees them: one ssh each.
struct Nodes {
    hosts: Vec<Host>,
    program: String,
    /// Command by which hosts are reached.
    ssh: String,
    /// Standard inputs, kept open: a node ends when its input does.
    inputs: Vec<Option<ChildStdin>>,
    ended: Vec<bool>,
    running: JoinSet<(usize, Ending)>,
    said: mpsc::Receiver<Said>,
    credential: String,
    /// Whether rank 0 has reported its port.
    heard: bool,
    /// Whether all nodes are ready.
    ready: bool,
    /// First early end: its fault, and the time until which a better explanation may come.
    fault: Option<(LaunchError, Instant)>,
    worst: i32,
}

/// End of a node.
struct Ending {
    status: io::Result<ExitStatus>,
    /// Last line that the node, or its ssh, wrote to standard error.
    last_words: Option<String>,
}

impl Nodes {
    fn start(
        remote: &Remote,
        hosts: &[Host],
        credential: &Credential,
    ) -> Result<Nodes, LaunchError> {
        let (says, said) = mpsc::channel(64);
        let mut nodes = Nodes {
            hosts: hosts.to_vec(),
            program: remote.places().program.to_owned(),
            ssh: remote.ssh(),
            inputs: Vec::new(),
            ended: vec![false; hosts.len()],
            running: JoinSet::new(),
            said,
            credential: credential.reveal().trim_end().to_owned(),
            heard: false,
            ready: false,
            fault: None,
            worst: 0,
        };
        for (rank, host) in hosts.iter().enumerate() {
            let mut child = remote.start(rank, host)?;
            nodes.inputs.push(child.stdin.take());
            let width = (hosts.len() - 1).to_string().len();
            let prefix = format!("[{rank:width$}] ");
            let out = child
                .stdout
                .take()
                .map(|out| pass_on(out, false, prefix.clone(), rank, says.clone()));
            let err = child.stderr.take().map(|err| pass_on(err, true, prefix, rank, says.clone()));
            nodes.running.spawn(async move {
                let printed = async {
                    // There may be more to print until both outputs are closed.
                    if let Some(out) = out {
                        out.await;
                    }
                };
                let errors = async {
                    match err {
                        Some(err) => err.await,
                        None => None,
                    }
                };
                let (status, (), last_words) = tokio::join!(wait(child), printed, errors);
                (rank, Ending { status, last_words })
            });
        }
        Ok(nodes)
    }

    /// Passes on the nodes' output until all have ended; returns the highest status.
    async fn run(&mut self, within: Duration, rejoin_window: Duration) -> Result<i32, LaunchError> {
        let began = Instant::now();
        for rank in 0..self.hosts.len() {
            let words = if rank == 0 { "here\n" } else { "" };
            self.say(rank, &format!("{}\n{words}", self.credential)).await;
        }
        let mut grace = None;
        let mut inputs_closed = false;
        loop {
            let until = |until: Instant| until - Instant::now();
            let left = grace.map(until).unwrap_or_default();
            let waited = self.patience(within);
            let cause = self.fault.as_ref().map(|(_, at)| until(*at));
            tokio::select! {
                // The words of a node come before its end.
                biased;
                Some(said) = self.said.recv() => self.handle(said).await?,
                ended = self.running.join_next() => match ended {
                    None => return self.fault.take().map_or(Ok(self.worst), |(it, _)| Err(it)),
                    Some(Ok((rank, ending))) => {
                        self.ended(rank, ending)?;
                        if rank == 0 {
                            grace = Some(Instant::now() + GRACE + rejoin_window);
                        }
                    }
                    Some(Err(_)) => {}
                },
                () = host::sleep(until(began + waited)), if !self.ready =>
                {
                    let awaited = if self.heard { "that all are ready" } else { "where it listens" };
                    let host = self.hosts[0].name.clone();
                    return Err(LaunchError::Silent { host, awaited, waited });
                }
                () = host::sleep(cause.unwrap_or_default()), if cause.is_some() => {
                    return self.fault.take().map_or(Ok(self.worst), |(it, _)| Err(it));
                }
                () = host::sleep(left), if grace.is_some() => {
                    if inputs_closed {
                        return Ok(self.give_up().await);
                    }
                    // The nodes end with their input.
                    self.inputs.fill_with(|| None);
                    inputs_closed = true;
                    grace = Some(Instant::now() + INPUT_GRACE);
                }
            }
        }
    }

    /// Returns the longest wait for rank 0. Once rank 0 listens, it names the nodes that are not
    /// ready itself.
    fn patience(&self, within: Duration) -> Duration {
        if self.heard { within + GRACE } else { within }
    }

    async fn say(&mut self, rank: usize, words: &str) {
        if let Some(Some(input)) = self.inputs.get_mut(rank) {
            // A node that does not take the words ends, and its end is reported.
            let _ = input.write_all(words.as_bytes()).await;
            let _ = input.flush().await;
        }
    }

    async fn handle(&mut self, said: Said) -> Result<(), LaunchError> {
        match said {
            Said::Port(port) => {
                self.heard = true;
                let manager = match self.hosts[0].reached_by() {
                    host if host.contains(':') => format!("tcp://[{host}]:{port}\n"),
                    host => format!("tcp://{host}:{port}\n"),
                };
                for rank in 1..self.hosts.len() {
                    self.say(rank, &manager).await;
                }
            }
            Said::Ready => self.ready = true,
            Said::NotStarted { ranks, why } => {
                let host = |rank: u32| Some((rank, self.hosts.get(rank as usize)?.name.clone()));
                let at_fault = ranks.into_iter().filter_map(host).collect();
                return Err(LaunchError::NotStarted { at_fault, why });
            }
        }
        Ok(())
    }

    /// Ends the remaining ssh processes, and names their nodes. These nodes send nothing more; they
    /// end by themselves when they miss rank 0.
    async fn give_up(&mut self) -> i32 {
        self.running.shutdown().await;
        for (rank, host) in self.hosts.iter().enumerate().filter(|(rank, _)| !self.ended[*rank]) {
            eprintln!("rank {rank} on {}: its ssh does not end, and is given up", host.name);
        }
        self.worst.max(STATUS_UNREACHED)
    }

    /// Notes the end of a node. Before all are ready, an early end is an error, which ends the
    /// others, too.
    fn ended(&mut self, rank: usize, ending: Ending) -> Result<(), LaunchError> {
        self.inputs[rank] = None;
        self.ended[rank] = true;
        let (code, how) = match ending.status {
            Ok(status) => (code_of(status), status.to_string()),
            Err(error) => (1, error.to_string()),
        };
        self.worst = self.worst.max(code);
        let host = self.hosts[rank].name.clone();
        // Rank 0 has no reason to end well that early; others may have been ready, and left.
        if !self.ready && (code != 0 || rank == 0) {
            let words = ending.last_words.map(|words| format!(": {words}")).unwrap_or_default();
            let why = self.why(code, &how, &words, &host);
            let fault = LaunchError::NodeEnded { rank: rank as u32, host, why };
            if matches!(code, 126 | 127 | STATUS_UNREACHED) {
                return Err(fault);
            }
            self.fault.get_or_insert((fault, Instant::now() + CAUSE));
        } else if code != 0 {
            eprintln!("rank {rank} on {host} ended: {how}");
        }
        Ok(())
    }

    /// Explains the end of a node that ended too early.
    fn why(&self, code: i32, how: &str, words: &str, host: &str) -> String {
        match code {
            STATUS_UNREACHED => format!(
                "ssh failed, or a signal ended the program there{words}; this must work, and ask \
                 for nothing: {} -o BatchMode=yes {host} true (CHUNKCOMM_SSH names another ssh, or \
                 options for it)",
                self.ssh
            ),
            126 | 127 => format!(
                "{} is not there, or cannot be run{words}; to copy it: {}",
                self.program,
                command::copying(&self.ssh, &self.program, host)
            ),
            _ => format!("{how}{words}"),
        }
    }
}

async fn wait(mut child: Child) -> io::Result<ExitStatus> {
    child.wait().await
}

/// Returns the status as a shell reports it.
fn code_of(status: ExitStatus) -> i32 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return 128 + signal;
    }
    status.code().unwrap_or(1)
}
