//! Contention on a shared medium (R. Metcalfe, D. Boggs, "Ethernet: Distributed Packet Switching
//! for Local Computer Networks", CACM 19, 1976, section 6).
//!
//! `Q` stations want to send. In each slot each tries with probability `1 / Q`, so exactly one
//! does, and gets the medium, with probability
//!
//! ```text
//! A = (1 - 1/Q)^(Q-1)           1, 1/2, 4/9, ..., 1/e
//! ```
//!
//! The mean number of slots lost before that is `W = (1 - A) / A`. With slots of `T` and frames
//! of `P` the medium carries frames for `E = P / (P + W T)` of its time.

/// Bits behind the point.
const FRACTION: u32 = 48;

/// Returns the mean time that `stations` lose to contention before a frame.
pub(super) fn lost_nanos(stations: usize, slot_nanos: u64) -> u64 {
    if stations < 2 || slot_nanos == 0 {
        return 0;
    }
    // W = 1/A - 1, and 1/A = (Q / (Q-1))^(Q-1), which is below e.
    let rest = stations as u128 - 1;
    let base = ((rest + 1) << FRACTION) / rest;
    let lost = power(base, rest) - (1 << FRACTION);
    let nanos = (u128::from(slot_nanos) * lost) >> FRACTION;
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

fn power(base: u128, exponent: u128) -> u128 {
    let (mut result, mut base, mut left) = (1 << FRACTION, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result = (result * base) >> FRACTION;
        }
        base = (base * base) >> FRACTION;
        left >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_formula() {
        const SLOT: u64 = 51_200;
        assert_eq!([0, 1, 2].map(|stations| lost_nanos(stations, SLOT)), [0, 0, SLOT]);
        for stations in 3..3000 {
            let q = stations as f64;
            let acquires = (1.0 - 1.0 / q).powf(q - 1.0);
            let expected = (1.0 - acquires) / acquires * SLOT as f64;
            let lost = lost_nanos(stations, SLOT) as f64;
            assert!((lost - expected).abs() <= 1.0, "{stations}: {lost}, not {expected}");
        }
        assert_eq!(lost_nanos(100, 0), 0);
    }
}
