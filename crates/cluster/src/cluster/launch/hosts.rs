//! Hosts files.

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
