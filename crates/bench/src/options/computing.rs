//! The computing of an array, by its name or by the time of a byte.

use std::time::Duration;

use chunkcomm_coupled::patterns::Compute;

/// Most nanoseconds a byte: a millisecond.
const NANOS_MAX: f64 = 1e6;

/// Computation of an array of any size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Computing {
    /// A computation by name.
    Named(Compute),
    /// A wait of this many nanoseconds a byte.
    PerByte(f64),
}

impl Computing {
    /// Returns the computation of an array of this many bytes.
    #[must_use]
    pub fn of(self, bytes: usize) -> Compute {
        match self {
            Self::Named(compute) => compute,
            Self::PerByte(ns) => Compute::Wait(Duration::from_nanos((ns * bytes as f64) as u64)),
        }
    }
}

/// Parses the name of a computation, or nanoseconds a byte such as `5ns`.
pub(crate) fn computing(text: &str) -> Result<Computing, String> {
    if let Some(ns) = text.strip_suffix("ns") {
        return nanoseconds(ns).map(Computing::PerByte);
    }
    let named = text.parse().map(Computing::Named);
    named.map_err(|error| format!("{error}, and a time a byte such as 5ns"))
}

/// Parses a number of nanoseconds.
pub(crate) fn nanoseconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|ns| (0.0..=NANOS_MAX).contains(ns));
    number.ok_or_else(|| "allowed are nanoseconds from 0 to 1000000, such as 0.25".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_a_byte_is_a_wait_of_the_array() {
        let wait = |micros| Ok(Compute::Wait(Duration::from_micros(micros)));
        assert_eq!(computing("2.5ns").map(|it| it.of(4000)), wait(10));
        assert_eq!(computing("wait:3us").map(|it| it.of(4000)), wait(3));
        for wrong in ["-1ns", "ns", "1e9ns", "5us", "cosine"] {
            assert!(computing(wrong).is_err_and(|why| why.contains("allowed are")), "{wrong}");
        }
    }
}
