//! Starts copies of this program as processes on this machine.
//!
//! ```text
//!   parent                                   child (same program)
//!   Launcher::new(address).spawn(n)  ──────▶  main
//!     Children::exited().await                  launch::child() -> Some(place)
//!     drop: kills and reaps                       place.parent: where to connect
//! ```
//!
//! A child learns three things from its environment: the address to connect to, its index and the
//! number of children. It must ask for them ([`child`]) first thing in `main`, since the call also
//! ties its life to the parent's. So no process outlives the program that started it, however that
//! one ends.
//!
//! Three means ensure that:
//!
//! - The children's standard input is a pipe from the parent. It closes when the parent is gone,
//!   and a child that sees it close exits.
//! - On Linux the kernel lets a stopped child go on when its parent is gone, so that it sees that;
//!   `CHUNKCOMM_PORTABLE=1` in the environment leaves that out.
//! - Dropping [`Children`] kills and reaps them.

mod children;
mod error;
mod place;
#[cfg(test)]
mod tests;

use chunkcomm_proto::sorted::SortedMap;
use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

pub use children::{ChildExit, Children};
pub use error::LaunchError;
pub use place::{ChildPlace, Token, child};

use chunkcomm::{Address, Credential};

pub(crate) use children::keep_statuses;
pub(crate) use place::{COPIES, FOR_ONE_CHILD, after_words, is_child};

/// Most children that are started; more are a mistake, and would take the machine down.
pub const CHILD_COUNT_MAX: usize = 4096;

/// Starts copies of a program as child processes.
///
/// Setters take it by value, one after the other; [`spawn`](Launcher::spawn) starts the children.
#[must_use]
#[derive(Clone, Debug)]
pub struct Launcher {
    parent: Address,
    program: Option<PathBuf>,
    arguments: Vec<OsString>,
    variables: SortedMap<OsString, OsString>,
    cpus: Vec<usize>,
    credential: Option<Credential>,
}

impl Launcher {
    /// Makes a launcher whose children connect to `parent`.
    ///
    /// That is an address of a node of this process that other processes can reach.
    pub fn new(parent: Address) -> Launcher {
        Launcher {
            parent,
            program: None,
            arguments: Vec::new(),
            variables: SortedMap::new(),
            cpus: Vec::new(),
            credential: None,
        }
    }

    /// Starts this program instead of the one that is running.
    ///
    /// It must ask for its [`child`] place as well. By default the running program is started, on
    /// Linux even if its file has been replaced.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Launcher {
        self.program = Some(program.into());
        self
    }

    /// Sets the arguments of the children's command line; none by default.
    ///
    /// They replace earlier ones. Other users of the machine can read them: they are no place for
    /// secrets.
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Launcher {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Sets a variable in the children's environment; the others are those of this process.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Launcher {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Pins the children to these processors, in turn and from the start again.
    ///
    /// Only on Linux; elsewhere, and with `CHUNKCOMM_PORTABLE=1`, the system places the children.
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Launcher {
        self.cpus = cpus.into_iter().collect();
        self
    }

    /// Sends the children this credential through the pipe that is their standard input.
    ///
    /// So it is on no command line and in no environment. The children find it in their
    /// [`ChildPlace`].
    pub fn credential(mut self, credential: Credential) -> Launcher {
        self.credential = Some(credential);
        self
    }

    /// Starts `count` children and returns when the system has created them.
    ///
    /// The children may not have reached their `main`. The call blocks for about a millisecond a
    /// child. Standard output and standard error of the children are those of this process. A program
    /// that ignores SIGCHLD handles it from then on, so that the children's statuses are known; it then
    /// has to wait for other children of its own.
    ///
    /// # Errors
    /// Either all children are started or none is left.
    ///
    /// - [`LaunchError::Nested`]: a launcher started this process itself.
    /// - [`LaunchError::Count`]: `count` is 0, or above [`CHILD_COUNT_MAX`].
    /// - [`LaunchError::NoSuchCpu`]: this process may not use a processor of [`Launcher::cpus`].
    /// - [`LaunchError::System`]: a system call failed.
    pub fn spawn(self, count: usize) -> Result<Children, LaunchError> {
        if is_child() {
            return Err(LaunchError::Nested);
        }
        if count == 0 || count > CHILD_COUNT_MAX {
            return Err(LaunchError::Count(count));
        }
        check_cpus(&self.cpus)?;
        let program = match &self.program {
            Some(program) => program.clone(),
            None => running_program().map_err(|source| {
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
        #[cfg(target_os = "linux")]
        if program == std::path::Path::new(RUNNING)
            && let Some(name) = env::args_os().next()
        {
            std::os::unix::process::CommandExt::arg0(&mut command, name);
        }
        // The variables of another launcher may have been inherited.
        for name in FOR_ONE_CHILD {
            command.env_remove(name);
        }
        command.args(&self.arguments).envs(self.variables.iter());
        let cpu = (!self.cpus.is_empty()).then(|| self.cpus[index % self.cpus.len()]);
        place::tell(&mut command, &self.parent, index, count, token, cpu);
        place::tell_of_words(&mut command, usize::from(self.credential.is_some()));
        command
    }
}

/// Returns the running program, even if its file has been replaced or removed.
#[cfg(target_os = "linux")]
const RUNNING: &str = "/proc/self/exe";

/// Returns the file of the running program. Its own name is used if that is still the same file,
/// since tools show a process by the name.
fn running_program() -> io::Result<PathBuf> {
    let path = env::current_exe()?;
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt as _;
        let file =
            |path: &std::path::Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
        if file(&path) != file(RUNNING.as_ref()) {
            return Ok(RUNNING.into());
        }
    }
    Ok(path)
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

/// Starts a thread of this name. Boxed, so that the code of threads is compiled once.
pub(crate) fn start_thread(
    name: &str,
    work: Box<dyn FnOnce() + Send>,
) -> io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}
