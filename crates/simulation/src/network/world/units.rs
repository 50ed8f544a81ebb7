//! Values of a world's file as they are written: times with their units, rates, limited numbers.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// Picoseconds of the units, the smallest first.
const UNITS: [(&str, u128); 5] =
    [("ps", 1), ("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000), ("s", 1_000_000_000_000)];

const NO_TIME: &str = "a time is a number and ps, ns, us, ms or s, as in \"1.5ms\"";

/// Reads a time in picoseconds.
fn picos(text: &str) -> Result<u128, &'static str> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..]);
    let (_, unit) = unit.ok_or(NO_TIME)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let number = |text: &str| {
        let digits =
            !text.is_empty() && text.len() <= 20 && text.bytes().all(|c| c.is_ascii_digit());
        text.parse::<u128>().ok().filter(|_| digits).ok_or(NO_TIME)
    };
    let scale = 10u128.pow(fraction.len().min(20) as u32);
    let part = number(fraction)? * unit;
    if part % scale != 0 {
        return Err("the smallest part of a time is a picosecond");
    }
    Ok(number(whole)? * unit + part / scale)
}

/// Writes picoseconds in the largest unit that needs no fraction.
fn text_of(picos: u128) -> String {
    let fits = |(_, unit): &&(&str, u128)| picos.is_multiple_of(*unit);
    let (unit, size) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    format!("{}{unit}", picos / size)
}

/// A time of whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeText(pub(super) Duration);

impl<'de> Deserialize<'de> for TimeText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TimeText, D::Error> {
        let picos = picos(&String::deserialize(from)?).map_err(D::Error::custom)?;
        if !picos.is_multiple_of(1_000) {
            return Err(D::Error::custom("the smallest part of this time is a nanosecond"));
        }
        let nanos =
            u64::try_from(picos / 1_000).map_err(|_| D::Error::custom("a time too long"))?;
        Ok(TimeText(Duration::from_nanos(nanos)))
    }
}

impl Serialize for TimeText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&text_of(self.0.as_nanos() * 1_000))
    }
}

/// A time in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PicosText(pub(super) u64);

impl<'de> Deserialize<'de> for PicosText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PicosText, D::Error> {
        let picos = picos(&String::deserialize(from)?).map_err(D::Error::custom)?;
        u64::try_from(picos).map(PicosText).map_err(|_| D::Error::custom("a time too long"))
    }
}

impl Serialize for PicosText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&text_of(u128::from(self.0)))
    }
}

const UNLIMITED: &str = "unlimited";

/// Bytes a second: a number from 1, or `"unlimited"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate(pub(super) u64);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Rate;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes a second from 1, or \"unlimited\"")
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Rate, E> {
                let wrong = || E::invalid_value(serde::de::Unexpected::Signed(value), &self);
                u64::try_from(value).ok().filter(|rate| *rate > 0).map(Rate).ok_or_else(wrong)
            }
            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Rate, E> {
                let wrong = || E::invalid_value(serde::de::Unexpected::Str(value), &self);
                (value == UNLIMITED).then_some(Rate(u64::MAX)).ok_or_else(wrong)
            }
        }
        from.deserialize_any(Visitor)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // TOML has no larger numbers, and no network such a rate.
        match i64::try_from(self.0) {
            Ok(rate) => to.serialize_i64(rate),
            Err(_) => to.serialize_str(UNLIMITED),
        }
    }
}

/// A number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Within<const MIN: u32, const MAX: u32>(pub(super) u32);

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Within<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Within<MIN, MAX>, D::Error> {
        let number = i64::deserialize(from)?;
        let fits = u32::try_from(number).ok().filter(|number| (MIN..=MAX).contains(number));
        let wrong = || D::Error::custom(format_args!("it is {MIN} to {MAX}, not {number}"));
        fits.map(Within).ok_or_else(wrong)
    }
}

impl<const MIN: u32, const MAX: u32> Serialize for Within<MIN, MAX> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_exactly() {
        for (text, expected) in [
            ("10ms", 10_000_000_000),
            ("0.3ns", 300),
            ("63.34us", 63_340_000),
            ("0s", 0),
            ("7ps", 7),
            ("1.000000000001s", 1_000_000_000_001),
        ] {
            assert_eq!(picos(text), Ok(expected), "{text}");
        }
        for text in ["", "ms", "10", "-1s", ".5s", "5.s", "1 ms", "1h", "1e3s", "0.5ps", "1.2.3s"] {
            assert!(picos(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_written_so_that_they_read_back() {
        for (picos_of, text) in
            [(0, "0s"), (10_000_000_000, "10ms"), (63_340_000, "63340ns"), (300, "300ps")]
        {
            assert_eq!(text_of(picos_of), text);
            assert_eq!(picos(text), Ok(picos_of));
        }
    }
}
