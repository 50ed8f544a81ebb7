//! Elements that were written again after they had left.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;

/// Later values of elements, to be applied to a copy with earlier ones.
///
/// As bytes they travel as one message of any channel. Both sides have the same element type and byte order,
/// as the delta's opening has shown.
///
/// ```
/// use chunkcomm_pipeline::tracked::Corrections;
///
/// let mut corrections = Corrections::<u16>::new();
/// corrections.note(2, &[7, 8]);
/// let bytes = corrections.to_bytes();
///
/// let mut copy = [1_u16; 5];
/// Corrections::from_bytes(&bytes)?.apply(&mut copy)?;
/// assert_eq!(copy, [1, 1, 7, 8, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Corrections<T> {
    /// Index of the first element and bytes of the values, in the order in which they were noted. Bytes may
    /// go to other threads whatever `T` is.
    parts: Vec<(usize, Vec<u8>)>,
    values: PhantomData<fn() -> T>,
}

/// Fault of corrections that came.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorrectionsFault {
    /// The bytes are cut, or of another element type.
    Malformed,
    /// Elements lie outside the buffer.
    Outside {
        /// Index behind the last element.
        end: usize,
        /// Number of elements of the buffer.
        length: usize,
    },
}

impl fmt::Display for CorrectionsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => write!(f, "the bytes are not corrections of this element type"),
            Self::Outside { end, length } => {
                write!(f, "corrections up to {end} are not within the buffer's {length} elements")
            }
        }
    }
}

chunkcomm::debug_with_causes!(CorrectionsFault);

impl std::error::Error for CorrectionsFault {}

/// Bytes of a number before each part: the index of its first element, and its length.
const NUMBER_BYTES: usize = 8;

impl<T: Pod> Corrections<T> {
    /// Makes corrections of no element.
    #[must_use]
    pub fn new() -> Self {
        Self { parts: Vec::new(), values: PhantomData }
    }

    /// Whether no element is corrected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the number of values, those included that a later one replaces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, bytes)| bytes.len() / size_of::<T>()).sum()
    }

    /// Notes later values of the elements from `start` on.
    pub fn note(&mut self, start: usize, values: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let end = |start: usize, bytes: &[u8]| start + bytes.len() / size_of::<T>();
        let within = |(first, others): &(usize, Vec<u8>)| {
            start <= *first && end(*first, others) <= end(start, bytes)
        };
        self.parts.retain(|other| !within(other));
        self.parts.push((start, bytes.to_vec()));
    }

    /// Puts the values into `elements`.
    ///
    /// # Errors
    /// [`CorrectionsFault::Outside`] when some lie outside; then nothing is changed.
    pub fn apply(&self, elements: &mut [T]) -> Result<(), CorrectionsFault> {
        let length = elements.len();
        for (start, bytes) in &self.parts {
            let end = start.saturating_add(bytes.len() / size_of::<T>());
            if end > length {
                return Err(CorrectionsFault::Outside { end, length });
            }
        }
        let into: &mut [u8] = bytemuck::cast_slice_mut(elements);
        for (start, bytes) in &self.parts {
            let at = start * size_of::<T>();
            into[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Returns the corrections as bytes: for each part the index of its first element and its length, as 8
    /// bytes each, little-endian, and its values in memory order.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for (start, bytes) in &self.parts {
            all.extend((*start as u64).to_le_bytes());
            all.extend(((bytes.len() / size_of::<T>()) as u64).to_le_bytes());
            all.extend_from_slice(bytes);
        }
        all
    }

    /// Reads corrections from the bytes that [`to_bytes`](Self::to_bytes) returned.
    ///
    /// # Errors
    /// [`CorrectionsFault::Malformed`] when the bytes are something else.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, CorrectionsFault> {
        let number = |bytes: &mut &[u8]| {
            let (first, rest) = bytes.split_first_chunk::<NUMBER_BYTES>()?;
            *bytes = rest;
            usize::try_from(u64::from_le_bytes(*first)).ok()
        };
        let mut parts = Vec::new();
        while !bytes.is_empty() {
            let start = number(&mut bytes).ok_or(CorrectionsFault::Malformed)?;
            let count = number(&mut bytes).ok_or(CorrectionsFault::Malformed)?;
            let length = count.checked_mul(size_of::<T>()).ok_or(CorrectionsFault::Malformed)?;
            let values = bytes.split_at_checked(length).ok_or(CorrectionsFault::Malformed)?;
            parts.push((start, values.0.to_vec()));
            bytes = values.1;
        }
        Ok(Self { parts, values: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_values_win_and_replace() {
        let mut corrections = Corrections::<[u8; 3]>::new();
        corrections.note(1, &[[1; 3]; 4]);
        corrections.note(4, &[[2; 3]; 3]);
        corrections.note(1, &[[3; 3]; 4]);
        assert_eq!(corrections.len(), 7);
        let mut copy = [[0; 3]; 7];
        let came = Corrections::from_bytes(&corrections.to_bytes()).expect("whole");
        assert_eq!(came, corrections);
        came.apply(&mut copy).expect("within");
        assert_eq!(copy.map(|it| it[0]), [0, 3, 3, 3, 3, 2, 2]);
        let fault = came.apply(&mut copy[..6]);
        assert_eq!(fault, Err(CorrectionsFault::Outside { end: 7, length: 6 }));
    }

    #[test]
    fn other_bytes_are_a_fault() {
        let mut corrections = Corrections::<u32>::new();
        corrections.note(0, &[5; 3]);
        let bytes = corrections.to_bytes();
        for end in 1..bytes.len() {
            let cut = Corrections::<u32>::from_bytes(&bytes[..end]);
            assert_eq!(cut, Err(CorrectionsFault::Malformed), "{end} bytes");
        }
        let huge = [[0; 8], [0xFF; 8]].concat();
        assert_eq!(Corrections::<u32>::from_bytes(&huge), Err(CorrectionsFault::Malformed));
    }
}
