//! Starts copies of this program as processes on this machine.
//!
//! ```text
//!   parent                                   child (same program)
//!   Launcher::new(address).spawn(n)  ──────▶  main
//!     Children::exited().await                  launch::child() -> Some(place)
//!     drop: kills and reaps                       place.parent: where to connect
//! ```
//!
//! A child learns from its environment the address to connect to, its index and the number of
//! children. It must ask for that ([`child`]) first thing in `main`: the call also ties its life to
//! the parent's, so that no process outlives the program that started it, however that one ends.
//!
//! Three means ensure that:
//!
//! - The children's standard input is a pipe from the parent. It closes when the parent is gone,
//!   and a child that sees it close exits.
//! - On Linux the kernel also kills a child whose parent is gone, even a stopped one;
//!   `CHUNKCOMM_PORTABLE=1` in the environment leaves that out.
//! - Dropping [`Children`] kills and reaps them.

mod children;
mod place;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub use children::{ChildExit, Children};
pub use place::{ChildPlace, Token, child};

use chunkcomm::{Address, Credential};

pub(crate) use place::after_words;

/// Most children that are started: more are a mistake, and would take the machine down.
pub const CHILD_COUNT_MAX: usize = 4096;

/// Reason why no children were started; those already started are gone again.
#[derive(Clone)]
#[non_exhaustive]
pub enum LaunchError {
    /// This process was itself started by a launcher. A program whose `main` does not ask for its
    /// [`child`] place would start copies of itself without end, so this is refused.
    Nested,
    /// No children, or more than [`CHILD_COUNT_MAX`], were asked for.
    Count(usize),
    /// A child is to run on a processor that this process may not use.
    NoSuchCpu {
        /// The processor asked for.
        cpu: usize,
        /// Processors that this process may use.
        allowed: Vec<usize>,
    },
    /// A system call of the start failed.
    System {
        /// The failed action.
        what: &'static str,
        /// The program that was to be started.
        program: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
}

impl LaunchError {
    fn system(what: &'static str, program: &std::path::Path, source: io::Error) -> LaunchError {
        LaunchError::System { what, program: program.to_owned(), source: Arc::new(source) }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::Nested => f.write_str(
                "this process was started by a launcher and starts none itself: main must ask for \
                 its place before anything else (launch::child, or serve_if_started in a farm)",
            ),
            LaunchError::Count(count) => {
                write!(f, "{count} children were asked for; allowed are 1 to {CHILD_COUNT_MAX}")
            }
            LaunchError::NoSuchCpu { cpu, allowed } => {
                write!(f, "processor {cpu} is not one this process may use: {allowed:?}")
            }
            LaunchError::System { what, program, .. } => {
                write!(f, "could not {what} for {}", program.display())
            }
        }
    }
}

chunkcomm_proto::debug_with_causes!(LaunchError);

impl std::error::Error for LaunchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LaunchError::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Starts copies of a program as child processes: by value, one setting after
/// the other, then [`spawn`](Launcher::spawn).
#[must_use]
#[derive(Clone, Debug)]
pub struct Launcher {
    parent: Address,
    program: Option<PathBuf>,
    arguments: Vec<OsString>,
    variables: BTreeMap<OsString, OsString>,
    cpus: Vec<usize>,
    credential: Option<Credential>,
}

impl Launcher {
    /// Makes a launcher whose children connect to `parent`: an address of a node of this process
    /// that other processes can reach.
    pub fn new(parent: Address) -> Launcher {
        Launcher {
            parent,
            program: None,
            arguments: Vec::new(),
            variables: BTreeMap::new(),
            cpus: Vec::new(),
            credential: None,
        }
    }

    /// Starts this program instead of the one that is running. It must ask for
    /// its [`child`] place as well.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Launcher {
        self.program = Some(program.into());
        self
    }

    /// Sets the arguments of the children's command line, in the place of earlier ones; there are
    /// none by default. Other users of the machine can read them: they are no place for secrets.
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Launcher {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Sets a variable in the children's environment; the other variables are those of this
    /// process.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Launcher {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Pins the children to these processors, in turn and from the start again. Only on Linux;
    /// elsewhere, and with `CHUNKCOMM_PORTABLE=1`, the system places the children.
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Launcher {
        self.cpus = cpus.into_iter().collect();
        self
    }

    /// Sends the children this credential through the pipe that is their standard input: it is on
    /// no command line and in no environment. They find it in their [`ChildPlace`].
    pub fn credential(mut self, credential: Credential) -> Launcher {
        self.credential = Some(credential);
        self
    }

    /// Starts `count` children and returns when the system has created them;
    /// they may not have reached their `main`.
    ///
    /// Blocks for about a millisecond a child. Standard output and standard
    /// error of the children are those of this process.
    ///
    /// # Errors
    /// See [`LaunchError`]: either all children are started or none is left.
    pub fn spawn(self, count: usize) -> Result<Children, LaunchError> {
        if place::is_child() {
            return Err(LaunchError::Nested);
        }
        if count == 0 || count > CHILD_COUNT_MAX {
            return Err(LaunchError::Count(count));
        }
        check_cpus(&self.cpus)?;
        let program = match &self.program {
            Some(program) => program.clone(),
            None => env::current_exe().map_err(|source| {
                LaunchError::system("find the running program", "this process".as_ref(), source)
            })?,
        };
        let token = Token::random().map_err(|source| {
            LaunchError::system("draw a random token", &program, io::Error::other(source))
        })?;
        let commands = (0..count).map(|index| self.command(&program, index, count, token));
        let words = self
            .credential
            .as_ref()
            .map(|credential| credential.reveal().trim_end().to_owned() + "\n");
        Children::start(commands.collect(), words, &program, token)
    }

    fn command(
        &self,
        program: &std::path::Path,
        index: usize,
        count: usize,
        token: Token,
    ) -> std::process::Command {
        let mut command = std::process::Command::new(program);
        command.args(&self.arguments).envs(&self.variables);
        let cpu = (!self.cpus.is_empty()).then(|| self.cpus[index % self.cpus.len()]);
        place::tell(&mut command, &self.parent, index, count, token, cpu);
        place::tell_of_words(&mut command, usize::from(self.credential.is_some()));
        command
    }
}

#[cfg(target_os = "linux")]
fn check_cpus(cpus: &[usize]) -> Result<(), LaunchError> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let Ok(allowed) = sched_getaffinity(None) else {
        return Ok(()); // Then the child's own attempt decides.
    };
    let may_use = |cpu: usize| cpu < CpuSet::MAX_CPU && allowed.is_set(cpu);
    match cpus.iter().find(|&&cpu| !may_use(cpu)) {
        Some(&cpu) => Err(LaunchError::NoSuchCpu {
            cpu,
            allowed: (0..CpuSet::MAX_CPU).filter(|&cpu| may_use(cpu)).collect(),
        }),
        None => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn check_cpus(_cpus: &[usize]) -> Result<(), LaunchError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher() -> Launcher {
        Launcher::new(Address::Memory("nobody".into()))
    }

    /// A child of a shell: it reads nothing of its place, which is enough for the parent's side.
    fn shell(script: &str) -> Launcher {
        launcher().program("/bin/sh").args(["-c", script])
    }

    fn is_gone(pid: u32) -> bool {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn impossible_counts_and_processors_are_refused() {
        assert_eq!(
            launcher().spawn(0).unwrap_err().to_string(),
            "0 children were asked for; allowed are 1 to 4096"
        );
        assert!(matches!(launcher().spawn(5000), Err(LaunchError::Count(5000))));
        if cfg!(target_os = "linux") {
            let error = launcher().cpus([100_000]).spawn(1).unwrap_err();
            assert!(matches!(error, LaunchError::NoSuchCpu { cpu: 100_000, .. }), "{error}");
        }
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error_with_its_name() {
        let error = launcher().program("/nowhere/at-all").spawn(2).unwrap_err();
        assert_eq!(error.to_string(), "could not start a process for /nowhere/at-all");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("No such file"), "{source}");
    }

    #[tokio::test]
    async fn every_exit_is_told_once_with_index_and_status() {
        let mut children = shell("exit $CHUNKCOMM_INDEX").spawn(3).unwrap();
        let mut codes = [None; 3];
        while let Some(exit) = children.exited().await {
            assert_eq!(exit.pid, children.pids()[exit.index]);
            assert_eq!(codes[exit.index].replace(exit.status.unwrap().code()), None);
        }
        assert_eq!(codes, [0, 1, 2].map(|code| Some(Some(code))));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn dropping_the_children_kills_and_reaps_them() {
        let mut children =
            shell("trap '' TERM HUP INT; while :; do sleep 1; done").spawn(2).unwrap();
        let pids = children.pids().to_vec();
        assert!(children.try_exited().is_none());
        assert!(!pids.iter().any(|&pid| is_gone(pid)));
        drop(children);
        assert!(pids.iter().all(|&pid| is_gone(pid)), "{pids:?}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_killed_child_is_named_with_its_signal() {
        let mut children = shell("kill -9 $$").spawn(1).unwrap();
        let exit = children.exited().await.unwrap();
        let pid = children.pids()[0];
        assert_eq!(exit.to_string(), format!("child 0 (process {pid}) ended: signal: 9 (SIGKILL)"));
        assert!(children.exited().await.is_none());
    }

    #[tokio::test]
    async fn a_credential_comes_by_the_pipe_alone() {
        let credential = Credential::generate().unwrap();
        let line = credential.reveal().trim_end().to_owned();
        let script = format!(
            "read told; [ \"$told\" = '{line}' ] || exit 1; [ \"$CHUNKCOMM_WORDS\" = 1 ] || exit 2; \
             ! env | grep -q -e '{line}' || exit 3; cat; exit 9"
        );
        let mut children = shell(&script).credential(credential).spawn(2).unwrap();
        children.close_input();
        while let Some(exit) = children.exited().await {
            assert_eq!(exit.status.unwrap().code(), Some(9));
        }
    }

    #[tokio::test]
    async fn an_orphan_of_a_read_pipe_ends_by_itself() {
        // `cat` reads the pipe until it closes: the portable way in its barest form.
        let mut children = shell("cat; exit 9").spawn(1).unwrap();
        children.close_input();
        assert_eq!(children.exited().await.unwrap().status.unwrap().code(), Some(9));
    }
}
