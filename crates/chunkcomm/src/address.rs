//! Addresses at which a node listens or is reached.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A place where a node listens or is reached.
///
/// As text, and back by [`FromStr`]:
///
/// | text | what |
/// |---|---|
/// | `tcp://host:port`, `host:port`, `tcp://[::1]:80` | TCP; the host is a name or an IP address, port 0 lets the system choose one to listen on |
/// | `unix:/path`, `unix:path` | a Unix socket of this machine |
/// | `unix-escaped:/path` | the same; `%FF` in the path is the byte 255, for paths that are not UTF-8 or have control characters |
/// | `memory:name` | a node of this process |
///
/// ```
/// use chunkcomm::Address;
///
/// let address: Address = "127.0.0.1:7000".parse()?;
/// assert_eq!(address, Address::Tcp { host: "127.0.0.1".into(), port: 7000 });
/// assert_eq!(address.to_string(), "tcp://127.0.0.1:7000");
/// assert!(address.is_loopback_only());
/// # Ok::<(), chunkcomm::error::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Tcp {
        /// A name or an IP address, the latter without brackets.
        host: String,
        /// The port; 0 lets the system choose one to listen on.
        port: u16,
    },
    /// A Unix socket by the path of its file.
    Unix(PathBuf),
    /// A node of this process by a name.
    Memory(String),
    /// A port of a simulated host, `sim:host/port`.
    #[cfg(feature = "simulation")]
    Simulated {
        /// The host's name in its network.
        host: String,
        /// The port; 0 lets the network choose one to listen on.
        port: u16,
    },
}

impl Address {
    /// Whether only this machine can connect to the address: a loopback IP address, `localhost`, a
    /// Unix socket, or memory. Other host names count as reachable from elsewhere, whatever they
    /// resolve to.
    #[must_use]
    pub fn is_loopback_only(&self) -> bool {
        match self {
            Address::Tcp { host, .. } => match host.parse::<IpAddr>() {
                Ok(ip) => ip.to_canonical().is_loopback(),
                Err(_) => host.eq_ignore_ascii_case("localhost"),
            },
            Address::Unix(_) | Address::Memory(_) => true,
            // The simulated network is within this process.
            #[cfg(feature = "simulation")]
            Address::Simulated { .. } => true,
        }
    }
}

impl Address {
    /// Whether the address is one of a simulated network.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        #[cfg(feature = "simulation")]
        let is_simulated = matches!(self, Address::Simulated { .. });
        #[cfg(not(feature = "simulation"))]
        let is_simulated = false;
        is_simulated
    }
}

impl From<SocketAddr> for Address {
    /// Keeps the scope of a link-local IPv6 address, not the flow.
    fn from(address: SocketAddr) -> Self {
        let host = match address {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
            _ => address.ip().to_string(),
        };
        Address::Tcp { host, port: address.port() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => {
                write!(f, "tcp://[{host}]:{port}")
            }
            Address::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Address::Unix(path) => match path.to_str() {
                Some(name) if !name.contains(char::is_control) => write!(f, "unix:{name}"),
                _ => fmt_escaped(f, path),
            },
            Address::Memory(name) => write!(f, "memory:{name}"),
            #[cfg(feature = "simulation")]
            Address::Simulated { host, port } => write!(f, "sim:{host}/{port}"),
        }
    }
}

/// Writes a path so that it survives as text, in one line.
fn fmt_escaped(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    f.write_str("unix-escaped:")?;
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'%' => f.write_str("%25")?,
            b' '..=b'~' => write!(f, "{}", char::from(byte))?,
            _ => write!(f, "%{byte:02X}")?,
        }
    }
    Ok(())
}

/// Why a text is not an [`Address`].
#[derive(Clone, PartialEq, Eq)]
pub struct AddressError {
    text: String,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Scheme,
    NoPort,
    Port,
    Host,
    Brackets,
    Path,
    Name,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = match self.fault {
            Fault::Scheme => "its scheme is unknown",
            Fault::NoPort => "it names no port",
            Fault::Port => "its port is not a number from 0 to 65535",
            Fault::Host => "its host is empty or holds a character that no host name has",
            Fault::Brackets => "an IPv6 address stands in brackets, as in [::1]:7000",
            Fault::Path => "its path is empty, holds a zero character or is escaped wrongly",
            Fault::Name => "its name is empty",
        };
        write!(
            f,
            "{:?} is not an address, {fault}; allowed are tcp://host:port, host:port, unix:/path \
             and memory:name",
            self.text
        )
    }
}

crate::debug_with_causes!(AddressError);

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    /// # Errors
    /// Text that is no address: the error states its fault and the allowed forms.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).map_err(|fault| AddressError { text: text.to_owned(), fault })
    }
}

fn parse(text: &str) -> Result<Address, Fault> {
    if let Some(path) = text.strip_prefix("unix:") {
        let fits = !path.is_empty() && !path.contains('\0');
        return if fits { Ok(Address::Unix(Path::new(path).into())) } else { Err(Fault::Path) };
    }
    if let Some(path) = text.strip_prefix("unix-escaped:") {
        let bytes =
            unescaped(path.as_bytes()).filter(|bytes| !bytes.is_empty() && !bytes.contains(&0));
        return bytes.and_then(path_of).map(Address::Unix).ok_or(Fault::Path);
    }
    if let Some(name) = text.strip_prefix("memory:") {
        return if name.is_empty() { Err(Fault::Name) } else { Ok(Address::Memory(name.into())) };
    }
    #[cfg(feature = "simulation")]
    if let Some(place) = text.strip_prefix("sim:") {
        let (host, port) = place.rsplit_once('/').ok_or(Fault::NoPort)?;
        if host.is_empty() {
            return Err(Fault::Host);
        }
        return Ok(Address::Simulated { host: host.to_owned(), port: parse_port(port)? });
    }
    let authority = match text.split_once("://") {
        Some(("tcp", authority)) => authority,
        Some(_) => return Err(Fault::Scheme),
        None => text,
    };
    parse_host_and_port(authority)
}

/// Replaces `%FF` by the byte 255; `None` if two digits do not follow a `%`.
fn unescaped(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((&first, rest)) = text.split_first() {
        text = rest;
        bytes.push(match first {
            b'%' => {
                let (digits, rest) = text.split_at_checked(2)?;
                text = rest;
                let value = |digit: u8| char::from(digit).to_digit(16);
                (value(digits[0])? * 16 + value(digits[1])?) as u8
            }
            byte => byte,
        });
    }
    Some(bytes)
}

#[cfg(unix)]
fn path_of(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    Some(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn path_of(bytes: Vec<u8>) -> Option<PathBuf> {
    String::from_utf8(bytes).ok().map(PathBuf::from)
}

fn parse_host_and_port(authority: &str) -> Result<Address, Fault> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(Fault::Brackets)?;
        let (ip, _scope) = host.split_once('%').unwrap_or((host, ""));
        if ip.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(Fault::Brackets);
        }
        (host, rest.strip_prefix(':').ok_or(Fault::NoPort)?)
    } else {
        let (host, port) = authority.rsplit_once(':').ok_or(Fault::NoPort)?;
        if host.contains(':') {
            return Err(Fault::Brackets);
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            return Err(Fault::Host);
        }
        (host, port)
    };
    Ok(Address::Tcp { host: host.to_owned(), port: parse_port(port)? })
}

fn parse_port(port: &str) -> Result<u16, Fault> {
    match port.parse() {
        // Parsing the number alone would allow a sign.
        Ok(number) if port.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
        _ => Err(Fault::Port),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.into(), port }
    }

    #[test]
    fn texts_are_read() {
        let expected = [
            ("tcp://127.0.0.1:0", tcp("127.0.0.1", 0)),
            ("127.0.0.1:7000", tcp("127.0.0.1", 7000)),
            ("node-3.lab:65535", tcp("node-3.lab", 65535)),
            ("tcp://[::1]:80", tcp("::1", 80)),
            ("[fe80::1%2]:80", tcp("fe80::1%2", 80)),
            ("unix:/run/a b", Address::Unix("/run/a b".into())),
            ("unix:here", Address::Unix("here".into())),
            ("memory:left", Address::Memory("left".into())),
        ];
        for (text, address) in expected {
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
    }

    #[cfg(feature = "simulation")]
    #[test]
    fn simulated_places_are_read_and_written() {
        let place = Address::Simulated { host: "a b/c".into(), port: 80 };
        assert_eq!("sim:a b/c/80".parse(), Ok(place.clone()));
        assert_eq!(place.to_string(), "sim:a b/c/80");
        assert!(place.is_loopback_only());
        for (text, part) in
            [("sim:a", "no port"), ("sim:a/x", "port is not"), ("sim:/8", "host is empty")]
        {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_is_allowed() {
        let expected = [
            ("", "names no port"),
            ("localhost", "names no port"),
            ("tcp://localhost", "names no port"),
            ("[::1]", "names no port"),
            ("[::1]80", "names no port"),
            ("localhost:", "port is not a number"),
            ("localhost:65536", "port is not a number"),
            ("localhost:+1", "port is not a number"),
            ("localhost:80/path", "port is not a number"),
            (":80", "host is empty"),
            ("tcp://a b:80", "host is empty or holds"),
            ("::1:80", "stands in brackets"),
            ("[::1:80", "stands in brackets"),
            ("[localhost]:80", "stands in brackets"),
            ("udp://localhost:80", "scheme is unknown"),
            ("unix:", "path is empty"),
            ("unix:a\0b", "path is empty, holds"),
            ("unix-escaped:", "path is empty"),
            ("unix-escaped:a%00", "holds a zero character"),
            ("unix-escaped:a%F", "escaped wrongly"),
            ("unix-escaped:a%+1", "escaped wrongly"),
            ("unix-escaped:a%é1", "escaped wrongly"),
            ("memory:", "name is empty"),
        ];
        for (text, part) in expected {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(message.starts_with(&format!("{text:?} is not")), "{message}");
            assert!(message.contains(part), "{text:?}: {message}");
            assert!(message.ends_with("unix:/path and memory:name"), "{message}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn any_path_survives_its_text_in_one_line() {
        use std::os::unix::ffi::OsStrExt as _;
        for path in [&b"/\xE9t\xE9/50%25 off"[..], b"/two\nlines", b"/plain 50%25", b"\xFF"] {
            let address = Address::Unix(std::ffi::OsStr::from_bytes(path).into());
            let text = address.to_string();
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
        let address = Address::Unix("/two\nlines".into());
        assert_eq!(address.to_string(), "unix-escaped:/two%0Alines");
    }

    #[test]
    fn loopback_is_what_only_this_machine_reaches() {
        let inside = [
            "127.0.0.1:1",
            "127.8.0.1:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
            "localhost:1",
            "LocalHost:1",
            "unix:/x",
            "memory:x",
        ];
        let outside = ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example:1", "[::2]:1"];
        let is_inside = |text: &str| text.parse::<Address>().unwrap().is_loopback_only();
        for text in inside {
            assert!(is_inside(text), "{text}");
        }
        for text in outside {
            assert!(!is_inside(text), "{text}");
        }
    }

    #[test]
    fn a_socket_address_keeps_its_scope() {
        let scoped = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 9, 2);
        assert_eq!(Address::from(SocketAddr::V6(scoped)), tcp("fe80::1%2", 7));
        assert_eq!(Address::from(SocketAddr::from(([127, 0, 0, 1], 80))), tcp("127.0.0.1", 80));
    }

    proptest! {
        #[test]
        fn display_is_read_back(
            ip in any::<IpAddr>(),
            port in any::<u16>(),
            name in "[^\0]{1,20}",
        ) {
            let of_socket = Address::from(SocketAddr::new(ip, port));
            let host = tcp("some-host.lab", port);
            let unix = Address::Unix(name.clone().into());
            for address in [of_socket, host, unix, Address::Memory(name)] {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }

        #[test]
        fn any_text_is_an_address_or_an_error(text in "\\PC{0,30}", tail in "[tcp:/\\[\\]0-9]*") {
            let _ = text.parse::<Address>();
            if let Ok(address) = tail.parse::<Address>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
    }
}
