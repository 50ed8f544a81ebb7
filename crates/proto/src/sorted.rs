//! Sets and maps in sorted vectors.
//!
//! A map type is compiled anew for each pair of key and value. This one takes a tenth of the code
//! of a B-tree. To add or remove a key moves the later ones: 3 us among 10,000 values of 64 bytes,
//! 30 us among 100,000. More keys than that, in any order, need a tree.

use std::borrow::Borrow;
use std::fmt::{self, Debug, Formatter};
use std::ops::Index;
use std::{slice, vec};

/// Set of keys in ascending order.
#[derive(Clone, PartialEq, Eq)]
pub struct SortedSet<K>(Vec<K>);

/// Map from keys in ascending order to values.
#[derive(Clone, PartialEq, Eq)]
pub struct SortedMap<K, V> {
    keys: SortedSet<K>,
    /// The value of each key, at its index.
    values: Vec<V>,
}

impl<K: Debug> Debug for SortedSet<K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.0).finish()
    }
}

impl<K: Debug, V: Debug> Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.keys.0.iter().zip(&self.values)).finish()
    }
}

impl<K> Default for SortedSet<K> {
    fn default() -> Self {
        SortedSet(Vec::new())
    }
}

impl<K: Ord> SortedSet<K> {
    /// Returns an empty set.
    #[must_use]
    pub const fn new() -> Self {
        SortedSet(Vec::new())
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this key is in the set.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// Adds a key; returns whether it is new.
    pub fn insert(&mut self, key: K) -> bool {
        match self.find(&key) {
            Ok(_) => false,
            Err(index) => {
                self.0.insert(index, key);
                true
            }
        }
    }

    /// Removes a key; returns whether it was in the set.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let found = self.find(key);
        if let Ok(index) = found {
            self.0.remove(index);
        }
        found.is_ok()
    }

    /// Returns the keys in ascending order.
    pub fn iter(&self) -> slice::Iter<'_, K> {
        self.0.iter()
    }

    /// Returns the index of a key, or the index at which it is missing.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|it| it.borrow().cmp(key))
    }
}

impl<K: Ord> Extend<K> for SortedSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        for key in keys {
            self.insert(key);
        }
    }
}

impl<K: Ord> FromIterator<K> for SortedSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut set = SortedSet::new();
        set.extend(keys);
        set
    }
}

impl<'a, K> IntoIterator for &'a SortedSet<K> {
    type Item = &'a K;
    type IntoIter = slice::Iter<'a, K>;

    fn into_iter(self) -> slice::Iter<'a, K> {
        self.0.iter()
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        SortedMap { keys: SortedSet(Vec::new()), values: Vec::new() }
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// Returns an empty map.
    #[must_use]
    pub const fn new() -> Self {
        SortedMap { keys: SortedSet(Vec::new()), values: Vec::new() }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether there is a value of this key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.keys.contains(key)
    }

    /// Returns the value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.values.get(self.keys.find(key).ok()?)
    }

    /// Returns the value of a key.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.values.get_mut(self.keys.find(key).ok()?)
    }

    /// Sets the value of a key; returns the value before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.keys.find(&key) {
            Ok(index) => Some(std::mem::replace(&mut self.values[index], value)),
            Err(index) => {
                self.keys.0.insert(index, key);
                self.values.insert(index, value);
                None
            }
        }
    }

    /// Returns the value of a key, which is `value` if there was none.
    pub fn get_or_insert(&mut self, key: K, value: V) -> &mut V {
        let index = match self.keys.find(&key) {
            Ok(index) => index,
            Err(index) => {
                self.keys.0.insert(index, key);
                self.values.insert(index, value);
                index
            }
        };
        &mut self.values[index]
    }

    /// Removes a key; returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let index = self.keys.find(key).ok()?;
        self.keys.0.remove(index);
        Some(self.values.remove(index))
    }

    /// Keeps the keys and values for which `keeps` is true. It is asked in ascending order.
    pub fn retain(&mut self, mut keeps: impl FnMut(&K, &mut V) -> bool) {
        let mut kept = 0;
        for index in 0..self.values.len() {
            if keeps(&self.keys.0[index], &mut self.values[index]) {
                self.keys.0.swap(kept, index);
                self.values.swap(kept, index);
                kept += 1;
            }
        }
        self.keys.0.truncate(kept);
        self.values.truncate(kept);
    }

    /// Returns the keys in ascending order.
    pub fn keys(&self) -> slice::Iter<'_, K> {
        self.keys.iter()
    }

    /// Returns the keys from this one on.
    pub fn keys_from<Q: Ord + ?Sized>(&self, key: &Q) -> slice::Iter<'_, K>
    where
        K: Borrow<Q>,
    {
        let (Ok(index) | Err(index)) = self.keys.find(key);
        self.keys.0[index..].iter()
    }

    /// Returns the values by key.
    pub fn values(&self) -> slice::Iter<'_, V> {
        self.values.iter()
    }

    /// Returns the values by key.
    pub fn values_mut(&mut self) -> slice::IterMut<'_, V> {
        self.values.iter_mut()
    }

    /// Returns the keys and values by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.keys.iter().zip(&self.values)
    }

    /// Returns the keys and values by key.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.keys.iter().zip(&mut self.values)
    }
}

impl<Q, K, V> Index<&Q> for SortedMap<K, V>
where
    Q: Ord + ?Sized,
    K: Ord + Borrow<Q>,
{
    type Output = V;

    /// Returns the value of a key.
    ///
    /// # Panics
    /// When there is none.
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key is there")
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    /// Of several values of one key the last stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(values: I) -> Self {
        let mut map = SortedMap::new();
        for (key, value) in values {
            map.insert(key, value);
        }
        map
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Zip<vec::IntoIter<K>, vec::IntoIter<V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.keys.0.into_iter().zip(self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u32),
        GetOrInsert(u8, u32),
        Change(u8, u32),
        Remove(u8),
        /// Keeps the values that this number does not divide.
        Retain(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = 0..24u8;
        prop_oneof![
            (key.clone(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
            (key.clone(), any::<u32>()).prop_map(|(key, value)| Step::GetOrInsert(key, value)),
            (key.clone(), any::<u32>()).prop_map(|(key, value)| Step::Change(key, value)),
            key.prop_map(Step::Remove),
            (2..5u32).prop_map(Step::Retain),
        ]
    }

    proptest! {
        #[test]
        fn a_map_does_as_a_tree(steps in prop::collection::vec(step(), 0..80)) {
            let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        prop_assert_eq!(map.insert(key, value), tree.insert(key, value));
                    }
                    Step::GetOrInsert(key, value) => {
                        let theirs = tree.entry(key).or_insert(value);
                        prop_assert_eq!(map.get_or_insert(key, value), theirs);
                    }
                    Step::Change(key, value) => {
                        let (ours, theirs) = (map.get_mut(&key), tree.get_mut(&key));
                        prop_assert_eq!(&ours, &theirs);
                        ours.into_iter().chain(theirs).for_each(|it| *it = value);
                    }
                    Step::Remove(key) => prop_assert_eq!(map.remove(&key), tree.remove(&key)),
                    Step::Retain(by) => {
                        map.retain(|_, value| *value % by != 0);
                        tree.retain(|_, value| *value % by != 0);
                    }
                }
                prop_assert!(map.iter().eq(&tree) && map.iter().rev().eq(tree.iter().rev()));
                prop_assert!(map.keys().eq(tree.keys()) && map.values().eq(tree.values()));
                prop_assert!(map.keys_from(&12).eq(tree.range(12..).map(|(key, _)| key)));
                prop_assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
            }
            prop_assert_eq!(format!("{map:?}"), format!("{tree:?}"));
            prop_assert!(map.iter_mut().eq(tree.iter_mut()));
            prop_assert!(map.values_mut().eq(tree.values_mut()));
            prop_assert!((0..24).all(|key| map.get(&key) == tree.get(&key)));
            prop_assert!((0..24).all(|key| map.contains_key(&key) == tree.contains_key(&key)));
            prop_assert!(map.into_iter().eq(tree));
        }

        #[test]
        fn a_set_does_as_a_tree(
            keys in prop::collection::vec(0..40u8, 0..40),
            removed in prop::collection::vec(0..40u8, 0..40),
        ) {
            let mut set: SortedSet<u8> = keys.iter().copied().collect();
            let mut tree: BTreeSet<u8> = keys.iter().copied().collect();
            prop_assert!(set.iter().eq(&tree));
            prop_assert_eq!(format!("{set:?}"), format!("{tree:?}"));
            for key in removed {
                prop_assert_eq!(set.remove(&key), tree.remove(&key));
                prop_assert_eq!(set.contains(&key), tree.contains(&key));
                prop_assert_eq!(set.insert(key / 2), tree.insert(key / 2));
                prop_assert!(set.iter().eq(&tree));
                prop_assert_eq!((set.len(), set.is_empty()), (tree.len(), tree.is_empty()));
            }
        }

        #[test]
        fn the_last_value_of_a_key_stays(values in prop::collection::vec((0..9u8, any::<u8>()), 0..30)) {
            let map: SortedMap<u8, u8> = values.iter().copied().collect();
            let tree: BTreeMap<u8, u8> = values.into_iter().collect();
            prop_assert!(map.iter().eq(&tree));
        }
    }
}
