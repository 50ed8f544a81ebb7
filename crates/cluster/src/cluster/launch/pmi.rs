//! PMI-1, the text protocol between a launcher and the processes that it started, in the dialect of
//! MPICH's `mpiexec.hydra` and Slurm's `srun --mpi=pmi2`. A command is one line, and so is its
//! answer. There are never two commands at a time.

use super::{Launcher, Look, Meet, Place, PmiWay, slurm};
use crate::launch::LaunchError;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;

const FD: &str = "PMI_FD";
const PORT: &str = "PMI_PORT";
const ID: &str = "PMI_ID";
const RANK: &str = "PMI_RANK";
const SIZE: &str = "PMI_SIZE";
const LOCAL_SIZE: &str = "MPI_LOCALNRANKS";

/// Longest line of the protocol, in bytes.
const LINE_BYTES_MAX: usize = 1024;

pub(super) fn place(look: &mut Look<'_>) -> Result<Option<Place>, LaunchError> {
    let way = if look.has(FD) {
        PmiWay::Fd(look.number(FD, 0..=i32::MAX as u32)? as i32)
    } else if look.has(PORT) {
        let address = look.needed(PORT, "")?;
        let plain = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !plain {
            return Err(look.wrong(PORT, "host:port is needed"));
        }
        PmiWay::Port { address, id: look.needed(ID, "PMI_PORT needs the process's number")? }
    } else {
        return Ok(None);
    };
    // With `PMI_PORT`, the launcher reports both on request.
    let told = matches!(way, PmiWay::Port { .. }) && !look.has(RANK);
    let numbers = if told { None } else { Some(look.rank_and_size(RANK, SIZE)?) };
    let mut place = Place::new(Launcher::Pmi, Meet::Pmi(way));
    let of_slurm = slurm::is_one_machine(look)?;
    if look.has(LOCAL_SIZE) {
        place.local_size = Some(look.number(LOCAL_SIZE, 1..=super::SIZE_MAX)?);
    }
    let all_here = |(_, size): (u32, u32)| place.local_size == Some(size);
    place.one_machine = of_slurm.unwrap_or_else(|| numbers.is_some_and(all_here));
    Ok(Some(match numbers {
        Some((rank, size)) => place.of(rank, size),
        None => place,
    }))
}

/// Refuses a launcher that gives a rank but no way to the others.
pub(super) fn check_nobody(look: &mut Look<'_>) -> Result<(), LaunchError> {
    if !look.has(RANK) {
        return Ok(());
    }
    let why = "PMI_RANK is set, as launchers do, and neither PMI_FD nor PMI_PORT: start the program \
               by one that speaks PMI-1 (mpiexec.hydra, srun --mpi=pmi2), or set CHUNKCOMM_RANK, \
               CHUNKCOMM_SIZE and CHUNKCOMM_MANAGER";
    look.needed(FD, why).map(drop)
}

/// Conversation with the launcher; its calls block.
pub(in crate::cluster) struct Pmi<S> {
    stream: BufReader<S>,
    space: String,
    value_bytes_max: usize,
    rank: u32,
    size: u32,
}

/// A connection with the launcher, of either kind.
pub(in crate::cluster) trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

impl Pmi<Box<dyn Stream>> {
    /// Begins the conversation. `known` is the rank and size from the environment.
    ///
    /// # Errors
    /// The socket cannot be used, or the launcher does not speak PMI-1.
    pub(in crate::cluster) fn begin(
        way: &PmiWay,
        known: Option<(u32, u32)>,
    ) -> Result<Self, LaunchError> {
        match way {
            PmiWay::Fd(fd) => {
                let socket = inherited(*fd).map_err(|error| LaunchError::PmiSocket {
                    way: format!("{FD}={fd}"),
                    error: Arc::new(error),
                })?;
                Pmi::over(Box::new(socket), known.unwrap_or((0, 1)))
            }
            PmiWay::Port { address, id } => {
                let socket = std::net::TcpStream::connect(address).map_err(|error| {
                    LaunchError::PmiSocket {
                        way: format!("{PORT}={address}"),
                        error: Arc::new(error),
                    }
                })?;
                Pmi::over_port(Box::new(socket), id)
            }
        }
    }
}

/// Duplicates an inherited socket into a descriptor of its own. The kernel chooses it, so that no
/// other descriptor is taken over, whatever number the environment names.
#[cfg(target_os = "linux")]
fn inherited(fd: i32) -> io::Result<std::fs::File> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let socket = pidfd_getfd(&this, fd, PidfdGetfdFlags::empty()).map_err(|error| {
        let error = io::Error::from(error);
        let forbidden = error.kind() == io::ErrorKind::PermissionDenied;
        let hint = "the system forbids to take it over; mpiexec -pmi-port does without";
        if forbidden { io::Error::new(error.kind(), hint) } else { error }
    })?;
    rustix::net::sockopt::socket_type(&socket)?;
    Ok(socket.into())
}

#[cfg(not(target_os = "linux"))]
fn inherited(_fd: i32) -> io::Result<std::fs::File> {
    let why = "inherited sockets are taken on Linux only; mpiexec -pmi-port does without";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// Words of a line, as `key=value`.
struct Answer(String);

impl Answer {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}

impl<S: Read + Write> Pmi<S> {
    /// Begins over a socket that belongs to this process in the launcher's eyes.
    ///
    /// # Errors
    /// The other end does not speak PMI-1.
    pub(in crate::cluster) fn over(stream: S, known: (u32, u32)) -> Result<Self, LaunchError> {
        let stream = BufReader::new(stream);
        let (rank, size) = known;
        let mut pmi = Pmi { stream, space: String::new(), value_bytes_max: 0, rank, size };
        pmi.init()?;
        Ok(pmi)
    }

    /// Begins over a connection on which this process must send its number first.
    fn over_port(stream: S, id: &str) -> Result<Self, LaunchError> {
        const COMMAND: &str = "initack";
        let stream = BufReader::new(stream);
        let mut pmi = Pmi { stream, space: String::new(), value_bytes_max: 0, rank: 0, size: 1 };
        pmi.ask(COMMAND, &format!("cmd=initack pmiid={id}"), "initack")?;
        // The next lines come unasked; the last one is `debug`.
        loop {
            let answer = pmi.answer(COMMAND, "set")?;
            let number = |text: &str| text.parse().ok();
            if let Some(size) = answer.get("size").and_then(number) {
                pmi.size = size;
            } else if let Some(rank) = answer.get("rank").and_then(number) {
                pmi.rank = rank;
            } else if answer.get("debug").is_some() {
                break;
            } else {
                return Err(LaunchError::PmiAnswer { command: COMMAND, line: answer.0 });
            }
        }
        pmi.init()?;
        Ok(pmi)
    }

    fn init(&mut self) -> Result<(), LaunchError> {
        let line = "cmd=init pmi_version=1 pmi_subversion=1";
        self.ask("init", line, "response_to_init")?;
        let maxes = self.ask("get_maxes", "cmd=get_maxes", "maxes")?;
        let max = maxes.get("vallen_max").and_then(|text| text.parse().ok());
        let wrong = |command, answer: Answer| LaunchError::PmiAnswer { command, line: answer.0 };
        let Some(max) = max else { return Err(wrong("get_maxes", maxes)) };
        self.value_bytes_max = max;
        let name = self.ask("get_my_kvsname", "cmd=get_my_kvsname", "my_kvsname")?;
        let Some(space) = name.get("kvsname") else { return Err(wrong("get_my_kvsname", name)) };
        space.clone_into(&mut self.space);
        Ok(())
    }

    /// Returns the rank of this process, and the number of processes.
    pub(in crate::cluster) fn rank_and_size(&self) -> (u32, u32) {
        (self.rank, self.size)
    }

    /// Puts a text under `key`, once.
    pub(in crate::cluster) fn put(&mut self, key: &str, text: &str) -> Result<(), LaunchError> {
        let value: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("cmd=put kvsname={} key={key} value={value}", self.space);
        let room =
            self.value_bytes_max.min((LINE_BYTES_MAX + value.len()).saturating_sub(line.len() + 1));
        if value.len() > room {
            return Err(LaunchError::PmiTooLong { bytes: value.len(), max: room });
        }
        self.ask("put", &line, "put_result").map(|_| ())
    }

    /// Waits until all processes are here; then each can read the values of the others.
    pub(in crate::cluster) fn barrier(&mut self) -> Result<(), LaunchError> {
        self.ask("barrier_in", "cmd=barrier_in", "barrier_out").map(|_| ())
    }

    /// Returns the text under `key`.
    pub(in crate::cluster) fn get(&mut self, key: &str) -> Result<String, LaunchError> {
        let line = format!("cmd=get kvsname={} key={key}", self.space);
        let answer = self.ask("get", &line, "get_result")?;
        let text = answer.get("value").and_then(from_hex);
        text.ok_or(LaunchError::PmiAnswer { command: "get", line: answer.0 })
    }

    /// Ends the conversation: from now on the launcher judges the end of this process by its
    /// status.
    pub(in crate::cluster) fn finalize(mut self) -> Result<(), LaunchError> {
        self.ask("finalize", "cmd=finalize", "finalize_ack").map(|_| ())
    }

    fn ask(
        &mut self,
        command: &'static str,
        line: &str,
        answer: &str,
    ) -> Result<Answer, LaunchError> {
        let broken = |error| LaunchError::PmiLost { command, error: Arc::new(error) };
        // One write: some launchers take each read for a command.
        let stream = self.stream.get_mut();
        stream.write_all(format!("{line}\n").as_bytes()).map_err(broken)?;
        stream.flush().map_err(broken)?;
        self.answer(command, answer)
    }

    fn answer(&mut self, command: &'static str, expected: &str) -> Result<Answer, LaunchError> {
        let broken = |error| LaunchError::PmiLost { command, error: Arc::new(error) };
        let mut bytes = Vec::new();
        let mut limited = (&mut self.stream).take(2 * LINE_BYTES_MAX as u64);
        limited.read_until(b'\n', &mut bytes).map_err(broken)?;
        if bytes.last() != Some(&b'\n') {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        let line = String::from_utf8_lossy(&bytes).trim().to_owned();
        let answer = Answer(line.chars().take(200.max(2 * LINE_BYTES_MAX)).collect());
        if answer.get("cmd") != Some(expected) {
            return Err(LaunchError::PmiAnswer { command, line: answer.0 });
        }
        match answer.get("rc") {
            None | Some("0") => Ok(answer),
            Some(code) => {
                let word = answer.get("msg").unwrap_or_default();
                Err(LaunchError::PmiFailed {
                    command,
                    why: format!("rc={code} {word}").trim().to_owned(),
                })
            }
        }
    }
}

fn from_hex(text: &str) -> Option<String> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
    String::from_utf8(bytes).ok()
}
