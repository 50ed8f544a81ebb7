//! The parts of a buffer that one transfer carries.
//!
//! A byte of a transfer is known by its *position*: those of the first section come first, then those of
//! the second, and so on. Each side has them at *places* of its own.
//!
//! ```text
//! positions   0 .. 6    6 .. 9
//! sender      |==0..6==|..........|12..15|....
//! receiver    |6..9|..|0..6 |....             own sections, in an order of its own
//! ```
//!
//! A whole buffer is one section, whose positions are its places.

use std::ops::Range;

/// A section: its bytes follow each other in the positions and in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    /// Position of the first byte.
    position: usize,
    place: Range<usize>,
}

/// Disjoint parts of a buffer in the order of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sections {
    /// By position; none is empty.
    sections: Vec<Section>,
    /// Indices of `sections` by place.
    by_place: Vec<usize>,
    bytes: usize,
    is_whole: bool,
}

impl Sections {
    /// Returns the one section of a whole buffer of `len` bytes.
    pub fn whole(len: usize) -> Self {
        let all = 0..len;
        Self::of(std::slice::from_ref(&all), 1, len)
    }

    /// Returns the sections `ranges`, in elements, of a buffer of `len` bytes.
    ///
    /// # Panics
    /// When one reaches out of the buffer, or two overlap.
    pub fn of(ranges: &[Range<usize>], element_bytes: usize, len: usize) -> Self {
        let (mut sections, mut bytes) = (Vec::with_capacity(ranges.len()), 0);
        for range in ranges {
            let length = len / element_bytes;
            assert!(
                range.start <= range.end && range.end <= length,
                "section {range:?} is not within {length} elements"
            );
            let place = range.start * element_bytes..range.end * element_bytes;
            if !place.is_empty() {
                sections.push(Section { position: bytes, place: place.clone() });
                bytes += place.len();
            }
        }
        let mut by_place: Vec<usize> = (0..sections.len()).collect();
        by_place.sort_unstable_by_key(|index| sections[*index].place.start);
        for pair in by_place.windows(2) {
            let [lower, upper] = [&sections[pair[0]].place, &sections[pair[1]].place];
            assert!(lower.end <= upper.start, "bytes {upper:?} are in two sections");
        }
        let is_whole = bytes == len && by_place.is_sorted();
        Self { sections, by_place, bytes, is_whole }
    }

    /// Returns the number of bytes of all sections.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether each byte of the buffer has its place as its position.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the place of the first bytes at `positions`, as many as are together there.
    ///
    /// # Panics
    /// When the positions are not within the transfer.
    pub(crate) fn place(&self, positions: &Range<usize>) -> Range<usize> {
        assert!(positions.end <= self.bytes, "{positions:?} is within the transfer");
        if self.is_whole || positions.is_empty() {
            return positions.clone();
        }
        let behind = self.sections.partition_point(|it| it.position <= positions.start);
        let section = &self.sections[behind - 1];
        let start = section.place.start + (positions.start - section.position);
        start..section.place.end.min(start + positions.len())
    }

    /// Returns the positions of the bytes of `place` that belong to the transfer, by place.
    pub(crate) fn positions(&self, place: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let first = self.by_place.partition_point(|it| self.sections[*it].place.end <= place.start);
        let place = place.clone();
        self.by_place[first..].iter().map_while(move |index| {
            let section = &self.sections[*index];
            let start = section.place.start.max(place.start);
            let end = section.place.end.min(place.end);
            let to_position = |at: usize| section.position + (at - section.place.start);
            (start < end).then(|| to_position(start)..to_position(end))
        })
    }

    /// Returns the places of the sections in the order of their positions.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Range<usize>> {
        self.sections.iter().map(|section| &section.place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Cuts a buffer of `cuts` into sections, in the order of `keys`; those of odd keys are left out.
    fn cut(cuts: &[usize], keys: &[u16], element_bytes: usize) -> (Vec<Range<usize>>, usize) {
        let (mut sections, mut start) = (Vec::new(), 0);
        for (length, key) in cuts.iter().zip(keys) {
            sections.push((*key, start..start + length));
            start += length;
        }
        sections.sort_by_key(|(key, _)| *key);
        let ranges = sections.into_iter().filter(|(key, _)| key % 2 == 0).map(|(_, range)| range);
        (ranges.collect(), start * element_bytes)
    }

    proptest! {
        /// Places and positions against a list of the place of each position.
        #[test]
        fn agrees_with_a_list_of_bytes(
            cuts in prop::collection::vec(0_usize..6, 0..12),
            keys in prop::collection::vec(any::<u16>(), 12),
            element_bytes in 1_usize..4, at in any::<(usize, usize)>(),
        ) {
            let (ranges, len) = cut(&cuts, &keys, element_bytes);
            let sections = Sections::of(&ranges, element_bytes, len);
            let list: Vec<usize> = ranges
                .iter()
                .flat_map(|it| it.start * element_bytes..it.end * element_bytes)
                .collect();
            prop_assert_eq!(sections.bytes(), list.len());
            prop_assert_eq!(sections.is_whole(), list.iter().copied().eq(0..len));
            prop_assert_eq!(sections.places().cloned().flatten().collect::<Vec<_>>(), list.clone());
            let within = |at: usize, length: usize| at % (length + 1);
            let start = within(at.0, list.len());
            let end = start + within(at.1, list.len() - start);
            let place = sections.place(&(start..end));
            prop_assert!(place.is_empty() == (start == end) && place.len() <= end - start);
            if start < end {
                prop_assert_eq!(
                    place.clone().collect::<Vec<_>>(), list[start..start + place.len()].to_vec()
                );
                let more = list.get(start + place.len());
                let touches = ranges.iter().any(|it| it.end * element_bytes == place.end);
                prop_assert!(touches || place.len() == end - start || more.is_none());
            }
            let (from, to) = (within(at.1, len), len);
            let mut found: Vec<usize> = sections.positions(&(from..to)).flatten().collect();
            found.sort_unstable();
            let expected: Vec<usize> =
                (0..list.len()).filter(|position| (from..to).contains(&list[*position])).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_whole_is_one_section() {
        for len in [0, 7] {
            let whole = Sections::whole(len);
            assert!(whole.is_whole() && whole.place(&(0..len)) == (0..len));
            assert_eq!(whole.positions(&(0..len)).collect::<Vec<_>>().len(), len.min(1));
        }
        assert!(Sections::of(&[], 4, 0).is_whole() && !Sections::of(&[], 4, 4).is_whole());
        assert!(!Sections::of(&[1..2, 0..1], 4, 8).is_whole());
    }

    #[test]
    #[should_panic(expected = "in two sections")]
    fn sections_are_disjoint() {
        Sections::of(&[4..6, 0..5], 4, 100);
    }

    #[test]
    #[should_panic(expected = "not within 25 elements")]
    fn sections_are_within_the_buffer() {
        Sections::of(&[0..5, 20..26], 4, 100);
    }
}
