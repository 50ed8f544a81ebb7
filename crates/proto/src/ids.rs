//! Maps by channel number. Numbers are handed out in order from 1: the first ones, all that
//! most links have, are looked up by index. One multiplication spreads the others. A peer that
//! chooses its numbers badly slows its own link, by the few hundred channels that it has credit
//! for.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Bound of the numbers that are looked up by index.
const NEAR: u32 = 32;

/// A map by channel number.
#[derive(Debug, Clone)]
pub struct IdMap<V> {
    /// Grows with the largest near number that was inserted.
    near: Vec<Option<V>>,
    far: HashMap<u32, V, BuildHasherDefault<IdHasher>>,
}

impl<V> Default for IdMap<V> {
    fn default() -> IdMap<V> {
        IdMap { near: Vec::new(), far: HashMap::default() }
    }
}

impl<V> IdMap<V> {
    /// Returns the value of `id`.
    #[inline]
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&V> {
        if id < NEAR { self.near.get(id as usize)?.as_ref() } else { self.get_far(id) }
    }

    /// Returns the value of `id`, to be changed.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut V> {
        if id < NEAR { self.near.get_mut(id as usize)?.as_mut() } else { self.get_far_mut(id) }
    }

    #[cold]
    fn get_far(&self, id: u32) -> Option<&V> {
        self.far.get(&id)
    }

    #[cold]
    fn get_far_mut(&mut self, id: u32) -> Option<&mut V> {
        self.far.get_mut(&id)
    }

    /// Whether `id` has a value.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        self.get(id).is_some()
    }

    /// Sets the value of `id`; returns the one before.
    pub fn insert(&mut self, id: u32, value: V) -> Option<V> {
        if id >= NEAR {
            return self.far.insert(id, value);
        }
        let at = id as usize;
        if at >= self.near.len() {
            self.near.resize_with(at + 1, || None);
        }
        self.near[at].replace(value)
    }

    /// Removes the value of `id` and returns it.
    pub fn remove(&mut self, id: u32) -> Option<V> {
        if id < NEAR { self.near.get_mut(id as usize)?.take() } else { self.far.remove(&id) }
    }

    /// Returns every value with its number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        let near = self.near.iter().enumerate();
        let near = near.filter_map(|(id, value)| Some((id as u32, value.as_ref()?)));
        near.chain(self.far.iter().map(|(id, value)| (*id, value)))
    }

    /// Returns every value with its number, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut V)> {
        let near = self.near.iter_mut().enumerate();
        let near = near.filter_map(|(id, value)| Some((id as u32, value.as_mut()?)));
        near.chain(self.far.iter_mut().map(|(id, value)| (*id, value)))
    }

    /// Returns every number that has a value.
    pub fn keys(&self) -> impl Iterator<Item = u32> {
        self.iter().map(|(id, _)| id)
    }

    /// Returns every value.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns every value, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.near.iter().flatten().count() + self.far.len()
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Multiplies by the golden ratio, as D. Knuth proposes for integers.
#[derive(Debug, Clone, Copy, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        let mixed = (self.0 ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compares with a map of the standard library, with numbers on both sides of the
        /// border.
        #[test]
        fn it_is_a_map(deeds in prop::collection::vec((0..2 * NEAR, 0..3u8), 0..200)) {
            let (mut map, mut plain) = (IdMap::default(), BTreeMap::new());
            for (at, (id, deed)) in deeds.into_iter().enumerate() {
                match deed {
                    0 => prop_assert_eq!(map.insert(id, at), plain.insert(id, at)),
                    1 => prop_assert_eq!(map.remove(id), plain.remove(&id)),
                    _ => {
                        prop_assert_eq!(map.get(id), plain.get(&id));
                        prop_assert_eq!(map.contains(id), plain.contains_key(&id));
                        if let Some(value) = map.get_mut(id) {
                            *value += 1;
                            *plain.get_mut(&id).unwrap() += 1;
                        }
                    }
                }
                let mut all: Vec<_> = map.iter().map(|(id, value)| (id, *value)).collect();
                all.sort_unstable();
                let expected: Vec<_> = plain.iter().map(|(id, value)| (*id, *value)).collect();
                prop_assert_eq!(all, expected);
                prop_assert_eq!(map.len(), plain.len());
                prop_assert_eq!(map.is_empty(), plain.is_empty());
            }
        }
    }
}
