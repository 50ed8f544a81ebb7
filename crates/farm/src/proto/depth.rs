//! The number of assignments that a worker holds, where it is measured.
//!
//! A worker holds k assignments of t seconds each. It stays busy while the answer to
//! the first travels to the farmer and a new one back, when
//! k >= 1 + (round trip + farmer's delay) / t. The farmer's delay is not measured, so
//! the round trip counts twice. A worker holds at most about 10 ms of work: the others
//! would miss more at the end of the run. (LAN farm study, section 4: double buffering
//! is k = 2.)

/// Smallest depth, double buffering: with less a worker waits for every assignment.
const DEPTH_MIN: u32 = 2;
/// Largest depth: beyond it packets are full already and only memory is taken.
const DEPTH_MAX: u32 = 4096;
/// Most work worth holding at a worker, in nanoseconds.
const HELD_NS_MAX: f64 = 10e6;
/// Weight of a new answer in the mean, which follows about the last 16 answers.
const MEAN_SHARE: f64 = 1.0 / 16.0;
/// Number of answers between two computations of the depth.
const ANSWERS_A_DEPTH: u32 = 16;

/// Follows the time an assignment takes and computes the depth from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredDepth {
    round_trip_ns: f64,
    mean_ns: Option<f64>,
    answers: u32,
}

impl MeasuredDepth {
    /// Begins with the round trip to the worker, measured when it joined.
    pub(crate) fn new(round_trip_ns: u64) -> MeasuredDepth {
        MeasuredDepth { round_trip_ns: round_trip_ns as f64, mean_ns: None, answers: 0 }
    }

    /// Takes the time `busy_ns` of an answered assignment; returns the depth when it was
    /// computed anew.
    #[inline]
    pub(crate) fn handle_answer(&mut self, busy_ns: u64) -> Option<u32> {
        let busy = busy_ns as f64;
        let mean = self.mean_ns.map_or(busy, |mean| mean + (busy - mean) * MEAN_SHARE);
        self.mean_ns = Some(mean);
        self.answers = self.answers.wrapping_add(1);
        self.answers.is_multiple_of(ANSWERS_A_DEPTH).then(|| self.depth())
    }

    /// Returns the depth for the times measured until now.
    pub(crate) fn depth(&self) -> u32 {
        let Some(mean) = self.mean_ns.map(|mean| mean.max(1.0)) else {
            return DEPTH_MIN;
        };
        let wanted = 1.0 + (2.0 * self.round_trip_ns / mean).ceil();
        // A float too large for the integer becomes its maximum.
        (wanted.min(HELD_NS_MAX / mean) as u32).clamp(DEPTH_MIN, DEPTH_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(round_trip_ns: u64, busy_ns: u64) -> u32 {
        let mut depth = MeasuredDepth::new(round_trip_ns);
        assert_eq!(depth.depth(), DEPTH_MIN, "nothing is known yet");
        (0..200).filter_map(|_| depth.handle_answer(busy_ns)).last().unwrap()
    }

    #[test]
    fn long_tasks_are_double_buffered() {
        assert_eq!(settled(100_000, 50_000_000), 2);
        assert_eq!(settled(100_000, 1_000_000), 2);
    }

    #[test]
    fn short_tasks_cover_two_round_trips() {
        assert_eq!(settled(100_000, 10_000), 21);
        assert_eq!(settled(50_000, 200), 501);
    }

    #[test]
    fn the_depth_is_bounded_by_count_and_by_time() {
        assert_eq!(settled(100_000, 0), DEPTH_MAX);
        assert_eq!(settled(u64::MAX, 1_000_000), 10, "10 ms of work");
    }

    #[test]
    fn the_mean_follows_a_change() {
        let mut depth = MeasuredDepth::new(100_000);
        assert_eq!((0..100).filter_map(|_| depth.handle_answer(1_000_000)).last(), Some(2));
        let later = (0..200).filter_map(|_| depth.handle_answer(10_000)).last().unwrap();
        assert_eq!(later, 21);
    }
}
