//! Child's side: its parent, its index, and its end together with the parent.

use std::env;
use std::fmt;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::process::{self, Command};
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::start_thread;
use crate::sync::handover;
use chunkcomm::{Address, Credential, host, portable_only};

const PARENT: &str = "CHUNKCOMM_PARENT";
const PARENT_PID: &str = "CHUNKCOMM_PARENT_PID";
const INDEX: &str = "CHUNKCOMM_INDEX";
const COUNT: &str = "CHUNKCOMM_COUNT";
const TOKEN: &str = "CHUNKCOMM_TOKEN";
const CPU: &str = "CHUNKCOMM_CPU";
/// Variable with the number of lines at the start of standard input, which then stays open and
/// empty.
const WORDS: &str = "CHUNKCOMM_WORDS";
/// Variable with the device and inode of the pipe at standard input.
const PIPE: &str = "CHUNKCOMM_PIPE";
/// Variable with the number of nodes of a cluster that copies its program.
pub(crate) const COPIES: &str = "CHUNKCOMM_COPIES";
/// Variables that a parent makes for one child: those above, and those of a farm. Programs that the
/// child starts inherit them.
pub(crate) const FOR_ONE_CHILD: [&str; 11] = [
    PARENT,
    PARENT_PID,
    INDEX,
    COUNT,
    TOKEN,
    CPU,
    WORDS,
    PIPE,
    COPIES,
    "CHUNKCOMM_FARM_WORKER",
    "CHUNKCOMM_FARM_FIRST",
];
/// Longest of the lines at the start of standard input, in bytes.
const WORD_BYTES_MAX: u64 = 4096;

/// Name of the thread that reads standard input, of which Linux keeps 15 bytes.
const READER: &str = "chunkcomm-parent";

/// Exit status of a child whose environment cannot be read.
const STATUS_BAD_PLACE: i32 = 2;
/// Exit status of a child whose parent is gone; no process waits for it.
const STATUS_ORPHAN: i32 = 3;

/// Random number by which a parent recognises its children. Its `Debug` form hides it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token([u8; 16]);

impl Token {
    /// Returns a fresh token from the random numbers of the host.
    ///
    /// # Errors
    /// The system provides none.
    pub fn random() -> io::Result<Token> {
        let mut bytes = [0; 16];
        host::fill_random(&mut bytes)?;
        Ok(Token(bytes))
    }

    fn to_hex(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for Token {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Token, Self::Err> {
        Ok(Token(u128::from_str_radix(text, 16)?.to_be_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Place of a started copy among the children of its parent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildPlace {
    /// Address of the parent.
    pub parent: Address,
    /// Index of this child, from 0.
    pub index: usize,
    /// Number of children started together.
    pub count: usize,
    /// Token that only these children have.
    pub token: Token,
    /// Credential for the children, if the parent's launcher was given one.
    pub credential: Option<Credential>,
}

/// Returns the place of this process among the children of a [`Launcher`](super::Launcher); `None`
/// if no launcher started it.
///
/// Call it first thing in `main`, before threads are started. In a child the first call ties its
/// life to the parent's. From then on a thread reads standard input and ends the process when the
/// parent is gone; on Linux the kernel lets a stopped child go on for that. A rank of a cluster says on
/// standard error why it ends. A child has no standard input of its own: on
/// Unix it is empty, elsewhere reading it waits. On Linux the process is pinned where the launcher
/// asked for it.
///
/// A program that a child starts itself is none of these children, although it inherits their
/// environment: its standard input is not the child's pipe. That is so on Unix; elsewhere clear the
/// variable `CHUNKCOMM_PARENT` for it. A program between the parent and the child, such as a shell,
/// must leave the pipe at the child's standard input.
///
/// A place that cannot be read ends the process with status 2 and a message on stderr. A child that
/// went on without its place would start children itself.
pub fn child() -> Option<ChildPlace> {
    static PLACE: OnceLock<Option<ChildPlace>> = OnceLock::new();
    PLACE
        .get_or_init(|| {
            if !is_child() {
                return None;
            }
            match take_place() {
                Ok(place) => Some(place),
                Err(error) => {
                    eprintln!("this process cannot read its place as a child: {error}");
                    process::exit(STATUS_BAD_PLACE);
                }
            }
        })
        .clone()
}

/// Whether a launcher started this process. The first call decides, since the pipe is taken away
/// later.
pub(crate) fn is_child() -> bool {
    static IS_CHILD: OnceLock<bool> = OnceLock::new();
    *IS_CHILD.get_or_init(|| env::var_os(PARENT).is_some() && is_meant())
}

/// Whether the variables of a child were made for this process, not for one that started it.
///
/// They are meant for an orphan too: its pipe has the same inode. They are also meant for a child
/// whose input was replaced, which is refused. If one of them took itself for a parent, it would
/// start others of its kind.
#[cfg(unix)]
fn is_meant() -> bool {
    let above = std::os::unix::process::parent_id();
    let Ok(parent) = variable::<u32>(PARENT_PID) else { return true };
    has_input_of_parent() || above == parent || is_shell_of(above, parent)
}

/// Whether a process, such as a shell, is a child of `parent` that has not taken its place. `false`
/// if the system does not say.
#[cfg(unix)]
fn is_shell_of(pid: u32, parent: u32) -> bool {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
    let status = read("status").unwrap_or_default();
    let above = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names =
        threads.flat_map(|thread| read(&format!("task/{}/comm", thread.file_name().display())));
    above == Some(parent) && !names.any(|name| name.trim_end() == &READER[..15])
}

#[cfg(not(unix))]
fn is_meant() -> bool {
    true
}

/// Whether standard input is the pipe that the parent made for its child.
#[cfg(unix)]
fn has_input_of_parent() -> bool {
    use std::os::fd::AsFd as _;
    let input = io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from);
    input.and_then(|input| input.metadata()).is_ok_and(|it| is_pipe_of_parent(&it))
}

#[cfg(not(unix))]
fn has_input_of_parent() -> bool {
    true
}

#[cfg(unix)]
fn is_pipe_of_parent(file: &std::fs::Metadata) -> bool {
    env::var(PIPE).is_ok_and(|pipe| pipe == identity(file))
}

#[cfg(unix)]
fn identity(file: &std::fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt as _;
    format!("{}:{}", file.dev(), file.ino())
}

/// Gives a child to be its standard input, a pipe by which it knows its variables as its own.
/// Returns the other end.
pub(super) fn give_input(command: &mut Command) -> io::Result<io::PipeWriter> {
    let (input, ours) = io::pipe()?;
    #[cfg(unix)]
    {
        let pipe = std::fs::File::from(std::os::fd::OwnedFd::from(input.try_clone()?));
        command.env(PIPE, identity(&pipe.metadata()?));
    }
    command.stdin(input);
    Ok(ours)
}

/// Writes a place into the environment of a child to be.
pub(super) fn tell(
    command: &mut Command,
    parent: &Address,
    index: usize,
    count: usize,
    token: Token,
    cpu: Option<usize>,
) {
    command
        .env(PARENT, parent.to_string())
        .env(PARENT_PID, process::id().to_string())
        .env(INDEX, index.to_string())
        .env(COUNT, count.to_string())
        .env(TOKEN, token.to_hex());
    if let Some(cpu) = cpu {
        command.env(CPU, cpu.to_string());
    }
}

/// Writes the number of lines in the standard input of a child to be.
pub(super) fn tell_of_words(command: &mut Command, count: usize) {
    if count > 0 {
        command.env(WORDS, count.to_string());
    }
}

fn take_place() -> Result<ChildPlace, String> {
    if !has_input_of_parent() {
        return Err("its standard input is not the pipe from its parent".to_owned());
    }
    let mut place = ChildPlace {
        parent: variable(PARENT)?,
        index: variable(INDEX)?,
        count: variable(COUNT)?,
        token: variable(TOKEN)?,
        credential: None,
    };
    if env::var_os(CPU).is_some() {
        pin(variable(CPU)?)?;
    }
    let count = if env::var_os(WORDS).is_some() { variable(WORDS)? } else { 0 };
    let words = end_with_parent(count)?;
    if let Some(line) = words.first() {
        let read = line.parse::<Credential>();
        let read = read.map_err(|error| format!("the credential it was told: {error:?}"))?;
        place.credential = Some(read);
    }
    Ok(place)
}

fn variable<T: FromStr<Err: fmt::Display>>(name: &str) -> Result<T, String> {
    let text = env::var(name).map_err(|error| format!("{name}: {error}"))?;
    text.parse().map_err(|error| format!("{name}={text}: {error}"))
}

/// Ends this process with its parent: a thread reads standard input to its end. A stopped child has no
/// thread that reads, so the kernel lets it go on then.
fn end_with_parent(words: usize) -> Result<Vec<String>, String> {
    if !portable_only() {
        go_on_without_parent();
    }
    after_words(words).map_err(|error| format!("standard input: {error}"))
}

/// Reads `count` lines from standard input. From then on a thread reads on, and ends the process
/// when the input ends.
///
/// The input ends before, a line is too long, or the thread cannot be started.
pub(crate) fn after_words(count: usize) -> io::Result<Vec<String>> {
    let (told, tells) = handover();
    let work = move || {
        let mut input = io::stdin().lock();
        let words = (0..count).map(|_| read_word(&mut input)).collect::<io::Result<Vec<_>>>();
        drop(input);
        let taken = words.and_then(|words| Ok((words, take_input()?)));
        // The caller waits for the words.
        let mut input = match taken {
            Ok((words, input)) => {
                told.give(Ok(words));
                input
            }
            Err(error) => return told.give(Err(error)),
        };
        let mut ignored = [0; 256];
        while input.read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
        end_at_the_latest();
        if let Some(words) = last_words() {
            // In one write. A failure of it can be reported nowhere.
            let _ = io::stderr().write_all(words.as_bytes());
        }
        process::exit(STATUS_ORPHAN);
    };
    start_thread(READER, Box::new(work))?;
    tells.take().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
}

/// Time that an orphan has for its last words and its exit hooks: 1 s.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);

/// Kills this process after [`LAST_WORDS_WITHIN`]: nobody may read its standard error any more, and a thread that
/// waits there holds the lock that the last words and the exit need.
fn end_at_the_latest() {
    let kill = || {
        std::thread::sleep(LAST_WORDS_WITHIN);
        kill_this_process();
    };
    if start_thread("chunkcomm-orphan", Box::new(kill)).is_err() {
        kill_this_process();
    }
}

#[cfg(unix)]
fn kill_this_process() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

#[cfg(not(unix))]
fn kill_this_process() {
    process::abort();
}

/// Returns the last line of a node whose rank 0 is gone: no call of the program may return the error
/// before the process ends. Other children end without a word.
fn last_words() -> Option<String> {
    env::var_os(COPIES)?;
    let rank = variable::<usize>(INDEX).ok()? + 1;
    let parent = variable::<u32>(PARENT_PID).ok()?;
    let why = format!("process {parent}, which started this one, has ended");
    Some(format!("chunkcomm: rank {rank}: the manager (rank 0) is gone: {why}\n"))
}

/// Takes the pipe from the parent away from standard input, which is empty from then on. Otherwise
/// the program, or one that it starts, would wait for ever for a word of the parent.
#[cfg(unix)]
fn take_input() -> io::Result<impl io::Read> {
    use std::fs::File;
    use std::os::fd::AsFd;
    let pipe = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(File::from(pipe))
}

#[cfg(not(unix))]
fn take_input() -> io::Result<impl io::Read> {
    Ok(io::stdin())
}

fn read_word(input: &mut io::StdinLock<'_>) -> io::Result<String> {
    let mut line = String::new();
    input.take(WORD_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(word) => Ok(word.to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Asks the kernel to let this process go on, if it is stopped, when the one that started it ends: then
/// it sees the end of its input. A kernel may forbid that.
#[cfg(target_os = "linux")]
fn go_on_without_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT));
}

#[cfg(not(target_os = "linux"))]
fn go_on_without_parent() {}

#[cfg(target_os = "linux")]
fn pin(cpu: usize) -> Result<(), String> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if portable_only() || cpu >= CpuSet::MAX_CPU {
        return Ok(());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| format!("pinning to processor {cpu}: {error}"))
}

#[cfg(not(target_os = "linux"))]
fn pin(_cpu: usize) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text_and_hides_in_debug() {
        let token = Token::random().unwrap();
        assert_eq!(token.to_hex().parse::<Token>().unwrap(), token);
        assert_ne!(token, Token::random().unwrap());
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert!("not hex".parse::<Token>().is_err());
    }

    #[test]
    fn this_test_is_nobodys_child() {
        assert!(child().is_none());
    }
}
