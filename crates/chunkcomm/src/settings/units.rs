//! Durations and numbers of bytes as people write them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::time::Duration;

const NO_DURATION: &str = "a duration is a number and ns, us, ms, s, min or h, as in \"1.5s\"";

const NO_BYTES: &str =
    "a size is a number of bytes, or a number and B, KiB, MiB or GiB, as in \"64KiB\"";

/// Reads a duration, such as `10s`, `1.5ms` or `5min`; to be named in `#[serde(deserialize_with)]`.
///
/// # Errors
/// If the value is no text, or none of a duration.
pub fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).ok_or_else(|| D::Error::custom(format!("{text:?}: {NO_DURATION}")))
}

/// As [`duration()`], for a key that may be left out: with `#[serde(default)]`.
///
/// # Errors
/// As [`duration()`].
pub fn duration_option<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

/// Reads a number of bytes, such as `65536` or `64KiB`; to be named in `#[serde(deserialize_with)]`.
///
/// # Errors
/// If the value is neither a number nor the text of a size.
pub fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size, as in \"64KiB\"")]
    enum Written {
        Number(u64),
        Text(String),
    }

    match Written::deserialize(from)? {
        Written::Number(bytes) => Ok(bytes),
        Written::Text(text) => {
            parse_bytes(&text).ok_or_else(|| D::Error::custom(format!("{text:?}: {NO_BYTES}")))
        }
    }
}

/// As [`bytes()`], for a key that may be left out: with `#[serde(default)]`.
///
/// # Errors
/// As [`bytes()`].
pub fn bytes_option<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    bytes(from).map(Some)
}

/// Returns the number and the unit behind it.
fn split(text: &str) -> (&str, &str) {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    (number.trim_end(), &text[number.len()..])
}

fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok()
}

fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        let seconds = |text: &str| parse_duration(text).map(|it| it.as_secs_f64());
        assert_eq!(seconds("10s"), Some(10.0));
        assert_eq!(seconds("1.5ms"), Some(0.0015));
        assert_eq!(seconds("2 min"), Some(120.0));
        for wrong in ["10", "s", "-1s", "1 parsec", "1e300h", "", "nans", "infs"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_may_have_one() {
        assert_eq!(parse_bytes("64KiB"), Some(65_536));
        assert_eq!(parse_bytes("7"), Some(7));
        for wrong in ["KiB", "1.5KiB", "-1", "64KB", "18446744073709551615GiB"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
    }
}
