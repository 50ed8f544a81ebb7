//! The word about the fractions of running tasks.

use super::{Malformed, PROGRESS, about};
use crate::proto::progress::WHOLE;

/// Bytes of a task's index and its thousandths.
const FRACTION_BYTES: usize = 12;

/// Tasks, each with the thousandths that are done.
#[derive(Clone, Debug)]
pub(crate) struct Fractions<'a>(std::slice::Iter<'a, [u8; FRACTION_BYTES]>);

impl<'a> Fractions<'a> {
    /// Reads the fractions of this number of tasks.
    pub(super) fn read(count: u32, bytes: &'a [u8]) -> Result<Fractions<'a>, Malformed> {
        let (each, rest) = bytes.as_chunks::<FRACTION_BYTES>();
        let fractions = Fractions(each.iter());
        let is_whole = rest.is_empty() && each.len() == count as usize;
        let fits = fractions.clone().all(|(_, thousandths)| thousandths <= WHOLE);
        if is_whole && fits { Ok(fractions) } else { Err(Malformed) }
    }
}

impl Iterator for Fractions<'_> {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        let &[a, b, c, d, e, f, g, h, i, j, k, l] = self.0.next()?;
        Some((u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes([i, j, k, l])))
    }
}

/// Encodes the thousandths of tasks that are done.
pub(crate) fn progress(run: u32, tasks: &[(u64, u32)]) -> Vec<u8> {
    let mut bytes = about(PROGRESS, run, 0, tasks.len() as u32).to_vec();
    for (task, thousandths) in tasks {
        bytes.extend_from_slice(&task.to_le_bytes());
        bytes.extend_from_slice(&thousandths.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, read_answer};
    use super::*;

    #[test]
    fn fractions_survive_their_bytes() {
        let tasks = [(3, 250), (u64::MAX, 1000)];
        let told = progress(7, &tasks);
        match read_answer(&told).unwrap() {
            Answer::Progress { run: 7, fractions } => {
                assert_eq!(fractions.collect::<Vec<_>>(), tasks);
            }
            other => panic!("{other:?}"),
        }
        assert!(read_answer(&told[..told.len() - 1]).is_err());
        assert!(read_answer(&told[..told.len() - FRACTION_BYTES]).is_err());
        assert!(read_answer(&progress(7, &[(3, 1001)])).is_err());
    }
}
