//! Hosts files.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Most nodes on one host; more are a mistake.
const SLOTS_MAX: u32 = 4096;

/// A line of a hosts file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// Destination for ssh: `host` or `user@host`, or an alias of ssh's configuration.
    pub name: String,
    /// Number of nodes on this host.
    pub slots: u32,
    /// Name or address at which other nodes reach the host; `None` if it is `name`.
    pub address: Option<String>,
}

impl Host {
    /// Returns the name or address at which other nodes reach the host.
    #[must_use]
    pub(super) fn reached_by(&self) -> &str {
        let without_user = || self.name.rsplit_once('@').map_or(&*self.name, |(_, host)| host);
        self.address.as_deref().unwrap_or_else(without_user)
    }
}

/// Reads a hosts file: one host a line, `name [slots=N] [address=A]`.
///
/// The rest of a line after `#` is ignored. A name is that of a host, or its address; one of IPv6
/// may stand in brackets. A port does not belong there: it is ssh's matter.
///
/// # Errors
/// A line makes no sense, with its number from 1; or there is no host. A host listed twice is an
/// error too: `slots` is meant.
pub(super) fn parse_hosts(text: &str) -> Result<Vec<Host>, (usize, String)> {
    let mut hosts: Vec<Host> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let host = parse_line(line).map_err(|why| (index + 1, why))?;
        if hosts.iter().any(|known| known.name == host.name) {
            let why = format!("{} stands there twice: several nodes are slots=N", host.name);
            return Err((index + 1, why));
        }
        hosts.push(host);
    }
    if hosts.is_empty() { Err((0, "it names no host".to_owned())) } else { Ok(hosts) }
}

fn parse_line(line: &str) -> Result<Host, String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    let at = name.rfind('@').map_or(0, |at| at + 1);
    let (user, host) = name.split_at(at);
    let name = check_name(&format!("{user}{}", checked_host(host)?))?;
    let (mut slots, mut address) = (None, None);
    for word in words {
        let twice = match word.split_once('=') {
            Some(("slots", number)) => {
                let number = number.parse().ok().filter(|number| (1..=SLOTS_MAX).contains(number));
                let wrong = || format!("{word}: slots are a number from 1 to {SLOTS_MAX}");
                slots.replace(number.ok_or_else(wrong)?).is_some()
            }
            Some(("address", host)) => address.replace(checked_host(host)?).is_some(),
            _ => return Err(format!("{word:?} is neither slots=N nor address=A")),
        };
        if twice {
            return Err(format!("{word:?} comes second: each is said once"));
        }
    }
    Ok(Host { name, slots: slots.unwrap_or(1), address })
}

/// Checks a name or an address; returns it without brackets.
fn checked_host(host: &str) -> Result<String, String> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let address = bare.split('%').next().unwrap_or_default();
    if bare.contains(':') && address.parse::<std::net::Ipv6Addr>().is_err() {
        return Err(format!(
            "{host:?} is no host: a port belongs into ssh's configuration, or into CHUNKCOMM_SSH \
             as in \"ssh -p 2222\""
        ));
    }
    check_name(bare)
}

/// Checks that ssh cannot take the name for an option, nor a shell for more than a name.
fn check_name(name: &str) -> Result<String, String> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@:%".contains(&byte);
    if name.is_empty() || name.starts_with(['-', '@']) || !name.bytes().all(letter) {
        return Err(format!("{name:?} is no host"));
    }
    Ok(name.to_owned())
}

/// Fault of a hosts file, or of the hosts and programs that it names.
#[derive(Clone)]
#[non_exhaustive]
pub enum HostsError {
    /// The file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: Arc<io::Error>,
    },
    /// A line makes no sense.
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1; 0 for the file as a whole.
        line: usize,
        /// The fault.
        why: String,
    },
    /// More nodes were asked for than the hosts have slots.
    Slots {
        /// The file.
        path: PathBuf,
        /// Number asked for.
        asked: u32,
        /// Number of slots.
        slots: u32,
    },
    /// A node ended before all were ready.
    Ended {
        /// Rank of the node.
        rank: u32,
        /// Host that the node was on.
        host: String,
        /// Status of the node, or the reason.
        why: String,
    },
    /// Rank 0 reports why the cluster has not started.
    NotStarted {
        /// Rank and host of each node to blame.
        at_fault: Vec<(u32, String)>,
        /// Report of rank 0.
        why: String,
    },
    /// Rank 0 did not send in time the word that the others wait for.
    Silent {
        /// Host that rank 0 is on.
        host: String,
        /// Missing word.
        awaited: &'static str,
        /// Length of the wait.
        waited: Duration,
    },
    /// ssh cannot be started here.
    Ssh {
        /// The command.
        program: String,
        /// The reason.
        error: Arc<io::Error>,
    },
}

impl fmt::Display for HostsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostsError::Read { path, .. } => write!(f, "hosts file {}", path.display()),
            HostsError::Line { path, line: 0, why } => {
                write!(f, "hosts file {}: {why}", path.display())
            }
            HostsError::Line { path, line, why } => {
                write!(f, "hosts file {}, line {line}: {why}", path.display())
            }
            HostsError::Slots { path, asked, slots } => write!(
                f,
                "{asked} nodes were asked for, and hosts file {} has slots for {slots}",
                path.display()
            ),
            HostsError::Ended { rank, host, why } => {
                write!(f, "rank {rank} on {host} ended before all were ready: {why}")
            }
            HostsError::NotStarted { at_fault, why } => {
                f.write_str(why)?;
                for (index, (rank, host)) in at_fault.iter().enumerate() {
                    write!(f, "{} rank {rank} is on {host}", if index == 0 { ";" } else { "," })?;
                }
                Ok(())
            }
            HostsError::Silent { host, awaited, waited } => {
                write!(f, "rank 0 on {host} did not say {awaited} within {waited:?}")
            }
            HostsError::Ssh { program, .. } => {
                write!(f, "{program} cannot be started (CHUNKCOMM_SSH names another ssh)")
            }
        }
    }
}

chunkcomm_proto::debug_with_causes!(HostsError);

impl Error for HostsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            HostsError::Read { error, .. } | HostsError::Ssh { error, .. } => Some(error.as_ref()),
            _ => None,
        }
    }
}
