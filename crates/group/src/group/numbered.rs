//! Values by the numbers of calls.

use std::collections::VecDeque;

/// Places that may be empty in any case: 16. Beyond them, as many may be as have values.
const EMPTY_COUNT_MIN: usize = 16;

/// Places whose memory is kept when no value is left: 1,024.
const KEPT_COUNT_MAX: usize = 1024;

/// Values by the numbers of calls, which are given in ascending order; most calls end in that order, too. As long
/// as the numbers have few gaps, a value is found by its distance from the first.
pub(crate) struct Numbered<T> {
    /// By ascending numbers. The first and the last have a value.
    places: VecDeque<(u64, Option<T>)>,
    /// Number of the places with values.
    count: usize,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered { places: VecDeque::new(), count: 0 }
    }
}

impl<T> Numbered<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the lowest number.
    pub(crate) fn first(&self) -> Option<u64> {
        self.places.front().map(|(number, _)| *number)
    }

    /// Returns the index of a number, or of the first behind it.
    #[inline]
    fn find(&self, number: u64) -> Result<usize, usize> {
        match self.places.front() {
            Some((first, _)) if *first == number => Ok(0),
            Some((first, _)) => self.find_behind(*first, number),
            None => Err(0),
        }
    }

    fn find_behind(&self, first: u64, number: u64) -> Result<usize, usize> {
        let distance = number.checked_sub(first).and_then(|it| usize::try_from(it).ok());
        let there = distance.filter(|it| self.places.get(*it).is_some_and(|it| it.0 == number));
        match there {
            Some(index) => Ok(index),
            None if self.places.back().is_some_and(|last| last.0 < number) => {
                Err(self.places.len())
            }
            None => self.places.binary_search_by_key(&number, |place| place.0),
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.find(number).ok().and_then(|index| self.places[index].1.as_ref())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.find(number).ok().and_then(|index| self.places[index].1.as_mut())
    }

    /// Puts a value in, at the place of an earlier one of the same number.
    pub(crate) fn insert(&mut self, number: u64, value: T) {
        if self.places.back().is_none_or(|last| last.0 < number) {
            self.places.push_back((number, Some(value)));
            self.count += 1;
            return;
        }
        let earlier = match self.find(number) {
            Ok(index) => self.places[index].1.replace(value),
            Err(index) => {
                self.places.insert(index, (number, Some(value)));
                None
            }
        };
        self.count += usize::from(earlier.is_none());
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let index = self.find(number).ok()?;
        let value = match index {
            0 => self.places.pop_front()?.1?,
            _ => self.places[index].1.take()?,
        };
        self.count -= 1;
        while self.places.front().is_some_and(|place| place.1.is_none()) {
            self.places.pop_front();
        }
        while self.places.back().is_some_and(|place| place.1.is_none()) {
            self.places.pop_back();
        }
        if self.places.len() > 2 * self.count + EMPTY_COUNT_MIN {
            self.places.retain(|place| place.1.is_some());
        }
        if self.count == 0 && self.places.capacity() > KEPT_COUNT_MAX {
            self.places.shrink_to(KEPT_COUNT_MAX);
        }
        Some(value)
    }

    /// Returns the values by ascending numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.places.iter().filter_map(|(number, value)| Some((*number, value.as_ref()?)))
    }

    /// Returns the values with higher numbers than this one.
    pub(crate) fn behind(&mut self, number: u64) -> impl Iterator<Item = (u64, &mut T)> {
        let from = self.find(number).map_or_else(|index| index, |index| index + 1);
        let places = self.places.range_mut(from..);
        places.filter_map(|(number, value)| Some((*number, value.as_mut()?)))
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (u64, T)> + use<T> {
        let Numbered { places, .. } = std::mem::take(self);
        places.into_iter().filter_map(|(number, value)| Some((number, value?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm_testkit::random::seeded;
    use std::collections::BTreeMap;

    #[test]
    fn it_is_a_map_by_number() {
        for seed in 0..200 {
            let (mut random, mut next) = (seeded(seed), 1);
            let (mut numbered, mut map) = (Numbered::default(), BTreeMap::new());
            // Some end in their order, some in any; few or many have no value.
            let (gap, spread) = (1 + random.below(3), 1 + random.below(100));
            for step in 0..500_u64 {
                let first = map.keys().next().copied().unwrap_or(0);
                let number = first + random.below(spread);
                match random.below(5) {
                    0 | 1 => {
                        next += 1 + random.below(gap);
                        numbered.insert(next, step);
                        map.insert(next, step);
                    }
                    2 => {
                        numbered.insert(number, step);
                        map.insert(number, step);
                        next = next.max(number);
                    }
                    _ => assert_eq!(numbered.remove(number), map.remove(&number), "seed {seed}"),
                }
                assert_eq!(numbered.get(number), map.get(&number), "seed {seed}");
                assert_eq!(numbered.get_mut(number), map.get_mut(&number));
                assert_eq!((numbered.len(), numbered.is_empty()), (map.len(), map.is_empty()));
                assert_eq!(numbered.first(), map.keys().next().copied());
                assert!(numbered.iter().eq(map.iter().map(|(number, value)| (*number, value))));
                let behind = map.range_mut(number + 1..).map(|(number, value)| (*number, value));
                assert!(numbered.behind(number).eq(behind), "seed {seed}");
                assert!(numbered.places.len() <= 2 * map.len() + EMPTY_COUNT_MIN);
            }
            assert!(numbered.take_all().eq(map) && numbered.is_empty());
        }
    }
}
