//! Values of options: bytes, durations, counts. The error of a wrong value says what is allowed.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use chunkcomm_group::Algorithm;

use crate::harness::protocol::PolicyKind;
use crate::harness::slices::SLICES_MIN;
use crate::message::MESSAGE_BYTES_MIN;

/// Most workers of a runtime: more are a typing error.
const THREADS_MAX: usize = 256;

/// Most processes of a cluster: more would take the machine down.
const NODES_MAX: u32 = 4096;

/// Most messages a second: one a nanosecond.
const RATE_MAX: u64 = 1_000_000_000;

/// Most subscribers of a feed.
const SUBSCRIBERS_MAX: usize = 1_000;

/// Most links of a process: the ports of one address give no more.
const LINKS_MAX: usize = 28_000;

/// Most idle channels of a link: more are a typing error.
const IDLE_CHANNELS_MAX: usize = 100_000;

/// Most calls in flight: more are a typing error.
const IN_FLIGHT_MAX: u64 = 1_000_000;

/// Most slices of a ratio: more take longer than the machine's speed stays the same.
const SLICES_MAX: usize = 1000;

/// Packet sizes that the library accepts, in bytes.
const PACKET_BYTES: RangeInclusive<usize> = 1 << 10..=1 << 20;

/// Most rows and columns of a matrix: more are a typing error.
const EXTENT_MAX: usize = 1 << 20;

/// Most bytes of a size: more are a typing error.
const BYTES_MAX: usize = 1 << 34;

/// Parses nanoseconds a byte, from 0 to 1000000.
///
/// # Errors
/// A text that says what is allowed.
pub fn nanoseconds(text: &str) -> Result<f64, String> {
    let nanos = text.parse().ok().filter(|nanos| (0.0..=1e6).contains(nanos));
    nanos.ok_or_else(|| "allowed are 0 to 1000000".to_owned())
}

/// Parses a number of bytes: `16`, `64KiB`, `4MiB` or `1GiB`.
///
/// # Errors
/// A text that says what is allowed.
pub fn bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" | "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        _ => return Err(format!("unknown unit '{unit}'; allowed are B, KiB, MiB and GiB")),
    };
    let number: usize =
        number.parse().map_err(|_| "not a size; allowed are 16, 64KiB, 4MiB, ..".to_owned())?;
    number
        .checked_mul(factor)
        .filter(|&bytes| bytes <= BYTES_MAX)
        .ok_or_else(|| format!("too large; at most {} GiB are allowed", BYTES_MAX >> 30))
}

/// Parses the bytes of a message, which holds at least a sequence number.
///
/// # Errors
/// A text that says what is allowed.
pub fn message_bytes(text: &str) -> Result<usize, String> {
    let bytes = bytes(text)?;
    if bytes < MESSAGE_BYTES_MIN {
        return Err(format!("allowed are messages of at least {MESSAGE_BYTES_MIN} bytes"));
    }
    Ok(bytes)
}

/// Parses the bytes of a packet.
pub(crate) fn packet_bytes(text: &str) -> Result<usize, String> {
    let bytes = bytes(text)?;
    if !PACKET_BYTES.contains(&bytes) {
        return Err("allowed are packets of 1 KiB to 1 MiB".to_owned());
    }
    Ok(bytes)
}

/// Parses a duration: `10us`, `1ms` or `2s`.
///
/// # Errors
/// A text that says what is allowed.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let seconds_per_unit = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err("not a duration; allowed are 500ns, 10us, 1ms, 2s, ..".to_owned()),
    };
    let number: f64 =
        number.parse().map_err(|_| "not a duration; allowed are 10us, 1ms, 2s, ..".to_owned())?;
    Duration::try_from_secs_f64(number * seconds_per_unit)
        .map_err(|_| "too long for a duration; allowed are 500ns, 10us, 1ms, 2s, ..".to_owned())
}

/// Parses a duration above zero.
///
/// # Errors
/// A text that says what is allowed.
pub fn some_time(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| match time {
        Duration::ZERO => Err("allowed are durations above 0, such as 10us, 1ms, 2s".to_owned()),
        time => Ok(time),
    })
}

/// Parses the number of times that something is done: at least 1.
///
/// # Errors
/// A text that says what is allowed.
pub fn times(text: &str) -> Result<usize, String> {
    from_one(text)
}

/// Parses a count: at least 1.
///
/// # Errors
/// A text that says what is allowed.
pub fn count(text: &str) -> Result<u64, String> {
    from_one(text)
}

/// Parses the number of rounds that a transfer has under way at most.
pub(crate) fn depth(text: &str) -> Result<usize, String> {
    within(text, 1..=2)
}

/// Parses the number of slices of a ratio.
pub(crate) fn slices(text: &str) -> Result<usize, String> {
    within(text, SLICES_MIN..=SLICES_MAX)
}

/// Parses a rate: messages a second, at most one a nanosecond.
///
/// # Errors
/// A text that says what is allowed.
pub fn rate(text: &str) -> Result<u64, String> {
    within(text, 1..=RATE_MAX).map_err(|allowed| format!("not a rate; {allowed} messages a second"))
}

/// Parses the number of idle channels beside another one: 0 is none.
pub(crate) fn idle_channels(text: &str) -> Result<usize, String> {
    up_to(text, IDLE_CHANNELS_MAX)
}

/// Parses the limit of a figure.
pub(crate) fn limit(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|limit: &f64| limit.is_finite());
    number.ok_or_else(|| "allowed are numbers such as 0.95 or 32768".to_owned())
}

/// Parses the number of links of a process.
///
/// # Errors
/// A text that says what is allowed.
pub fn links(text: &str) -> Result<usize, String> {
    within(text, 1..=LINKS_MAX)
}

/// Parses the number of subscribers of a feed.
pub(crate) fn subscribers(text: &str) -> Result<usize, String> {
    within(text, 1..=SUBSCRIBERS_MAX)
}

/// Parses the number of subscribers of a feed that read nothing.
pub(crate) fn stopped(text: &str) -> Result<usize, String> {
    within(text, 0..=SUBSCRIBERS_MAX)
}

/// Parses the number of processes of a cluster.
pub(crate) fn nodes(text: &str) -> Result<u32, String> {
    within(text, 1..=NODES_MAX).map_err(|allowed| format!("{allowed} processes"))
}

/// Parses the number of calls at a time, each by a task of its own.
pub(crate) fn in_flight(text: &str) -> Result<u64, String> {
    within(text, 1..=IN_FLIGHT_MAX)
}

/// Parses the number of workers of a runtime.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    within(text, 1..=THREADS_MAX)
}

/// Parses the name of a way in which collective calls travel.
pub(crate) fn algorithm(text: &str) -> Result<Algorithm, String> {
    text.parse().map_err(|_| {
        "allowed are auto, chain, binomial, binary, doubling, ring, chains, pairwise, dissemination \
         and direct"
            .to_owned()
    })
}

/// Parses the rows and columns of a matrix: `4096x4096`.
pub(crate) fn shape(text: &str) -> Result<[usize; 2], String> {
    let extent = |text: &str| text.parse().ok().filter(|extent| (1..=EXTENT_MAX).contains(extent));
    let extents = text.split_once('x').map(|(rows, columns)| (extent(rows), extent(columns)));
    match extents {
        Some((Some(rows), Some(columns))) => Ok([rows, columns]),
        _ => Err(format!("allowed are ROWSxCOLUMNS, such as 4096x4096, each 1 to {EXTENT_MAX}")),
    }
}

/// Parses what looks like a layout; whether it is one depends on the matrix.
pub(crate) fn layout(text: &str) -> Result<String, String> {
    if text.starts_with('(') {
        return Ok(text.to_owned());
    }
    Err("allowed are layouts with their grid, such as (block,*)@4x1 or (*,cyclic(2))@1x4"
        .to_owned())
}

/// Parses the number of tasks that compute.
pub(crate) fn computing(text: &str) -> Result<usize, String> {
    within(text, 0..=THREADS_MAX - 1)
}

/// Parses the place of a server: a host by name or address, and a port.
pub(crate) fn host_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty()
                && (host.starts_with('[') || !host.contains(':'))
                && port.parse::<u16>().is_ok() =>
        {
            Ok(text.to_owned())
        }
        _ => Err("allowed is HOST:PORT, such as 127.0.0.1:7600".to_owned()),
    }
}

/// Parses a folder.
pub(crate) fn folder(text: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(text);
    if folder.is_dir() { Ok(folder) } else { Err("allowed are folders that exist".to_owned()) }
}

/// Parses the file of a table.
pub(crate) fn table_file(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    let is_table = file.extension().is_some_and(|end| end == "table");
    if is_table { Ok(file) } else { Err("allowed are files that end in .table".to_owned()) }
}

/// Parses a program's file.
pub(crate) fn program(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    if file.is_file() { Ok(file) } else { Err("allowed are programs that exist".to_owned()) }
}

/// Parses the place where a server listens: an address of this host, and a port.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "allowed is HOST:PORT with the host's address in numbers, such as 127.0.0.1:7600 or \
         [::1]:7600"
            .to_owned()
    })
}

/// Parses the policy by which packets leave.
pub(crate) fn policy(text: &str) -> Result<PolicyKind, String> {
    match text.split_once(':') {
        None if text == "chunked" => Ok(PolicyKind::Chunked),
        None if text == "unbuffered" => Ok(PolicyKind::Unbuffered),
        Some(("linger", time)) => duration(time).map(PolicyKind::Linger),
        _ => Err("allowed are chunked, unbuffered and linger:DUR, such as linger:1ms".to_owned()),
    }
}

/// A fixed number, or `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auto<T> {
    /// The library chooses the number.
    Auto,
    /// The given number.
    Fixed(T),
}

/// Parses a count, or `auto`.
pub(crate) fn auto_count(text: &str) -> Result<Auto<u64>, String> {
    match text {
        "auto" => Ok(Auto::Auto),
        _ => count(text)
            .map(Auto::Fixed)
            .map_err(|_| "allowed are auto and whole numbers from 1".to_owned()),
    }
}

/// Parses a number of bytes, or `auto`.
pub(crate) fn auto_bytes(text: &str) -> Result<Auto<usize>, String> {
    match text {
        "auto" => Ok(Auto::Auto),
        _ => match bytes(text) {
            Ok(0) => Err("allowed are auto and sizes from 1".to_owned()),
            other => other.map(Auto::Fixed),
        },
    }
}

fn within<N>(text: &str, allowed: RangeInclusive<N>) -> Result<N, String>
where
    N: FromStr + PartialOrd + Display,
{
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| format!("allowed are {} to {}", allowed.start(), allowed.end()))
}

/// Parses a number up to `max`.
///
/// # Errors
/// A text that says what is allowed.
pub fn up_to<N: FromStr + PartialOrd + Display + Copy>(text: &str, max: N) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| *number <= max);
    number.ok_or_else(|| format!("allowed are whole numbers from 0 to {max}"))
}

fn from_one<N: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| *number >= N::from(1));
    number.ok_or_else(|| "not a count; allowed are whole numbers from 1".to_owned())
}

fn split(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("16"), Ok(16));
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert_eq!(bytes("4MiB"), Ok(4 << 20));
        assert!(bytes("4 parsecs").is_err_and(|why| why.contains("KiB")));
        assert!(bytes("1.5KiB").is_err());
        assert!(bytes("99999999GiB").is_err_and(|why| why.contains("at most")));
        assert_eq!(packet_bytes("1MiB"), Ok(1 << 20));
        assert!(packet_bytes("1023").is_err() && packet_bytes("2MiB").is_err());
        assert!(message_bytes("7").is_err_and(|why| why.contains("at least 8 bytes")));
    }

    #[test]
    fn durations() {
        assert_eq!(duration("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(duration("0us"), Ok(Duration::ZERO));
        for wrong in ["10", "ms", "-1s", "1h", "1e40s", ".s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_that_are_too_short_say_what_is_allowed() {
        assert_eq!(some_time("1ns"), Ok(Duration::from_nanos(1)));
        for wrong in ["0s", "-1s", "x"] {
            assert!(some_time(wrong).is_err_and(|why| why.contains("allowed are")), "{wrong}");
        }
    }

    #[test]
    fn policies() {
        assert_eq!(policy("chunked"), Ok(PolicyKind::Chunked));
        assert_eq!(policy("linger:2ms"), Ok(PolicyKind::Linger(Duration::from_millis(2))));
        for wrong in ["linger", "linger:", "eager", "chunked:1ms"] {
            assert!(policy(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses() {
        for right in ["localhost:1", "127.0.0.1:7600", "[::1]:65535"] {
            assert_eq!(host_port(right), Ok(right.to_owned()));
        }
        for wrong in ["foo", "foo:", ":1", "foo:66000", "foo:bar"] {
            assert!(host_port(wrong).is_err_and(|why| why.contains("HOST:PORT")), "{wrong}");
            assert!(listen_address(wrong).is_err_and(|why| why.contains("HOST:PORT")), "{wrong}");
        }
        assert_eq!(listen_address("127.0.0.1:5").map(|address| address.port()), Ok(5));
    }

    #[test]
    fn counts() {
        assert!(count("0").is_err() && count("-1").is_err() && count("1") == Ok(1));
        assert!(times("0").is_err() && times("x").is_err() && times("1") == Ok(1));
        assert!(idle_channels("100001").is_err() && idle_channels("10000") == Ok(10_000));
        assert_eq!(auto_count("auto"), Ok(Auto::Auto));
        assert_eq!(auto_bytes("1KiB"), Ok(Auto::Fixed(1024)));
        assert!(auto_bytes("0").is_err());
    }
}
