//! Check of the numbers that a caller gets.

use chunkcomm_cluster::process::Failure;
use serde::{Deserialize, Serialize};

/// Digest of numbers in any order: their count, sum, and sum of squares. Other numbers hardly ever
/// have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest([u64; 3]);

impl Digest {
    pub(crate) fn of(numbers: &[i64]) -> Digest {
        let add = |[count, sum, squares]: [u64; 3], number: &i64| {
            let number = number.cast_unsigned();
            let square = number.wrapping_mul(number);
            [count + 1, sum.wrapping_add(number), squares.wrapping_add(square)]
        };
        Digest(numbers.iter().fold([0; 3], add))
    }

    /// Checks that these numbers have this digest.
    pub(crate) fn check(self, numbers: &[i64]) -> Result<(), Failure> {
        if Digest::of(numbers) == self {
            return Ok(());
        }
        Err(Failure::new("other numbers came than were read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_numbers_than_were_read_are_refused() {
        let read = [3, -1, 7, 7, 0, i64::MIN];
        let digest = Digest::of(&read);
        let mut other_order = read;
        other_order.reverse();
        assert!(digest.check(&other_order).is_ok());
        let others: [&[i64]; 5] = [
            &[],
            &read[1..],
            &[3, -1, 7, 7, 0, i64::MIN, 0],
            &[3, -1, 7, 7, 1, i64::MIN],
            // Other numbers of the same sum.
            &[4, -2, 7, 7, 0, i64::MIN],
        ];
        for numbers in others {
            assert!(digest.check(numbers).is_err(), "{numbers:?}");
        }
    }
}
