//! Medians, percentiles and paired ratios.

/// Returns the median; the mean of the middle two for an even count, NaN for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Returns the nanoseconds below which `percent` of the samples lie, in microseconds; NaN for none.
pub fn percentile_us(samples: &[u64], percent: usize) -> f64 {
    if samples.is_empty() {
        return f64::NAN;
    }
    let mut sorted = samples.to_vec();
    let index = (sorted.len() * percent / 100).min(sorted.len() - 1);
    let (_, value, _) = sorted.select_nth_unstable(index);
    *value as f64 / 1e3
}

/// Ours over the baseline, slice by slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Median of the paired ratios.
    pub median: f64,
    /// The lowest pair.
    pub low: f64,
    /// The highest pair.
    pub high: f64,
}

impl Ratio {
    /// Pairs the figures by index: neighbours in time, so that a slow minute of the machine affects
    /// both sides.
    pub fn of_pairs(ours: &[f64], baseline: &[f64]) -> Self {
        let pairs: Vec<f64> = ours.iter().zip(baseline).map(|(ours, base)| ours / base).collect();
        Self {
            median: median(&pairs),
            low: pairs.iter().copied().fold(f64::INFINITY, f64::min),
            high: pairs.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn percentiles_are_in_microseconds() {
        let samples: Vec<u64> = (0..100).rev().map(|n| n * 1_000).collect();
        assert_eq!(percentile_us(&samples, 50), 50.0);
        assert_eq!(percentile_us(&samples, 99), 99.0);
        assert_eq!(percentile_us(&[7_000], 99), 7.0);
    }

    #[test]
    fn ratio_pairs_neighbours() {
        let ratio = Ratio::of_pairs(&[1.0, 4.0, 9.0], &[1.0, 2.0, 3.0]);
        assert_eq!(ratio, Ratio { median: 2.0, low: 1.0, high: 3.0 });
    }
}
