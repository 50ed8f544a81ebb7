//! Values that many tasks read: sent once to each worker.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use chunkcomm::codec::{EncodeError, encode_into_vec};
use chunkcomm_proto::sorted::SortedMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::context::current_worker;
use crate::proto::record::digest;
use crate::proto::wire::{self, Part};

/// Bytes of a value that travel in one message.
const PART_BYTES: usize = 16 << 10;

/// Value that many tasks read, made by [`Farm::share`](crate::Farm::share).
///
/// In a task's input it is only a name of 16 bytes. The value itself is sent to each worker once,
/// before the first task.
///
/// The farm forgets the value when a run begins and this and all its clones at the farmer are
/// dropped. So keep one while tasks use it. Clones that came back in a result do not count.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Shared<T> {
    digest: u128,
    /// The value, at the farmer.
    #[serde(skip)]
    value: Option<Arc<T>>,
}

impl<T: DeserializeOwned + Send + Sync + 'static> Shared<T> {
    /// Returns the value. The first call at a worker decodes it; later calls share the decoded
    /// value.
    ///
    /// # Panics
    /// The value is not here. A handle from [`Farm::share`](crate::Farm::share) always has it.
    /// Others have it only in a task of the farm, and not in one that comes after all handles were
    /// dropped. The panic is the task's failure.
    #[must_use]
    pub fn get(&self) -> Arc<T> {
        match (&self.value, current_worker()) {
            (Some(value), _) => Arc::clone(value),
            (None, Some(worker)) => worker.values.get(self.digest),
            (None, None) => panic!("a shared value is read in tasks of a farm alone"),
        }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { digest: self.digest, value: self.value.clone() }
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({:032x})", self.digest)
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// Values that a farmer has shared, the oldest first.
#[derive(Default)]
pub(crate) struct Sharing {
    values: SortedMap<u64, Held>,
    next: u64,
    /// Parts of a value that comes from the farmer above.
    coming: Vec<Bytes>,
}

struct Held {
    digest: u128,
    handle: Weak<dyn Any + Send + Sync>,
    /// Messages that bring the value to a worker.
    messages: Vec<Bytes>,
}

impl Sharing {
    pub(crate) fn share<T>(&mut self, value: Arc<T>) -> Result<Shared<T>, EncodeError>
    where
        T: Serialize + Send + Sync + 'static,
    {
        let mut bytes = Vec::new();
        encode_into_vec(&*value, &mut bytes)?;
        // Values of two types may have the same bytes.
        bytes.extend_from_slice(std::any::type_name::<T>().as_bytes());
        let digest = digest(&bytes);
        bytes.truncate(bytes.len() - std::any::type_name::<T>().len());
        let total = bytes.len() as u64;
        let part = |(at, part): (usize, &[u8])| {
            let offset = (at * PART_BYTES) as u64;
            Bytes::from(wire::value_part(&Part { digest, total, offset, bytes: part }))
        };
        let messages = match bytes.is_empty() {
            true => vec![part((0, &[]))],
            false => bytes.chunks(PART_BYTES).enumerate().map(part).collect(),
        };
        let any: Arc<dyn Any + Send + Sync> = Arc::clone(&value) as _;
        self.values.insert(self.next, Held { digest, handle: Arc::downgrade(&any), messages });
        self.next += 1;
        Ok(Shared { digest, value: Some(value) })
    }

    /// Removes the values without a handle; returns the messages that say so.
    pub(crate) fn sweep(&mut self) -> Vec<Bytes> {
        let mut gone = Vec::new();
        self.values.retain(|_, held| {
            let is_held = held.handle.strong_count() > 0;
            if !is_held {
                gone.push(held.digest);
            }
            is_held
        });
        gone.retain(|digest| !self.values.values().any(|held| held.digest == *digest));
        gone.into_iter().map(|digest| Bytes::copy_from_slice(&wire::forget(digest))).collect()
    }

    /// Takes a part of a value from the farmer above; the value goes on when it is whole.
    pub(crate) fn relay(&mut self, part: &Part<'_>) {
        if part.offset == 0 {
            self.coming.clear();
        }
        self.coming.push(Bytes::from(wire::value_part(part)));
        if part.offset.saturating_add(part.bytes.len() as u64) == part.total {
            let (messages, handle) = (std::mem::take(&mut self.coming), Weak::<()>::new());
            let digest = part.digest;
            self.values.insert(self.next, Held { digest, handle, messages });
            self.next += 1;
        }
    }

    /// Forgets a value of the farmer above; returns the message that says so.
    pub(crate) fn forget(&mut self, digest: u128) -> Bytes {
        self.values.retain(|_, held| held.digest != digest);
        Bytes::copy_from_slice(&wire::forget(digest))
    }

    /// Returns the messages with the values from number `known` on; sets `known` to the next
    /// number.
    pub(crate) fn news(&self, known: &mut u64) -> impl Iterator<Item = Bytes> {
        let from = std::mem::replace(known, self.next);
        self.values.keys_from(&from).flat_map(|number| self.values[number].messages.iter().cloned())
    }

    /// Returns the number of the next value.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::Order;
    use crate::values::Values;
    use serde::Deserializer;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Gives these messages to a worker.
    fn deliver(values: &Values, messages: impl IntoIterator<Item = Bytes>) {
        for message in messages {
            match wire::read_order(&message) {
                Ok(Order::Value(part)) => assert!(values.put(&part)),
                Ok(Order::Forget { digest }) => values.forget(digest),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_value_goes_in_parts_and_is_decoded_once() {
        let (mut sharing, values, mut known) = (Sharing::default(), Values::default(), 0);
        for count in [0, 1, 20_000, 100_000_u64] {
            let numbers: Vec<u64> = (0..count).collect();
            let shared = sharing.share(Arc::new(numbers.clone())).unwrap();
            deliver(&values, sharing.news(&mut known));
            assert_eq!(known, sharing.next());
            let first: Arc<Vec<u64>> = values.find(shared.digest).unwrap();
            assert_eq!(*first, numbers);
            let again = values.find(shared.digest).unwrap();
            assert!(Arc::ptr_eq(&first, &again));
            assert_eq!(values.find::<String>(shared.digest), Err("is of another type"));
        }
    }

    #[test]
    fn values_of_two_types_with_the_same_bytes_are_two() {
        let (mut sharing, values, mut known) = (Sharing::default(), Values::default(), 0);
        let signed = sharing.share(Arc::new(7i32)).unwrap();
        let unsigned = sharing.share(Arc::new(7u32)).unwrap();
        deliver(&values, sharing.news(&mut known));
        assert_eq!(values.find::<i32>(signed.digest).as_deref(), Ok(&7));
        assert_eq!(values.find::<u32>(unsigned.digest).as_deref(), Ok(&7));
    }

    #[test]
    fn a_value_is_forgotten_with_its_last_handle() {
        let (mut sharing, values, mut known) = (Sharing::default(), Values::default(), 0);
        let (one, same) =
            (sharing.share(Arc::new(7u8)).unwrap(), sharing.share(Arc::new(7u8)).unwrap());
        let digest = one.digest;
        let clone = one.clone();
        deliver(&values, sharing.news(&mut known));
        drop((one, same));
        deliver(&values, sharing.sweep());
        assert_eq!(values.find::<u8>(digest).as_deref(), Ok(&7));
        drop(clone);
        deliver(&values, sharing.sweep());
        assert_eq!(values.find::<u8>(digest), Err("is not here: its handles were dropped"));
        assert_eq!(sharing.sweep().len(), 0);
    }

    /// A type that panics as it is decoded, and as it is dropped.
    #[derive(Debug, Serialize)]
    struct Panics(u8);

    impl<'de> Deserialize<'de> for Panics {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let number = u8::deserialize(deserializer)?;
            assert!(number != 5, "never five");
            Ok(Panics(number))
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(self.0 != 6, "six goes on");
        }
    }

    #[test]
    fn a_type_that_panics_leaves_the_other_values() {
        let (mut sharing, values, mut known) = (Sharing::default(), Values::default(), 0);
        let (five, six) = (Arc::new(Panics(5)), std::mem::ManuallyDrop::new(Arc::new(Panics(6))));
        let five = sharing.share(five).unwrap();
        let six = sharing.share(Arc::clone(&six)).unwrap();
        deliver(&values, sharing.news(&mut known));
        assert!(catch_unwind(AssertUnwindSafe(|| values.find::<Panics>(five.digest))).is_err());
        drop(values.find::<Panics>(six.digest).unwrap());
        values.forget(six.digest);
        let seven = sharing.share(Arc::new(7u8)).unwrap();
        deliver(&values, sharing.news(&mut known));
        assert_eq!(values.find::<u8>(seven.digest).as_deref(), Ok(&7));
    }

    #[test]
    fn parts_that_do_not_follow_are_refused() {
        let values = Values::default();
        let part = |offset, bytes| Part { digest: 1, total: 4, offset, bytes };
        assert!(!values.put(&part(2, b"cd")));
        assert!(values.put(&part(0, b"ab")));
        assert_eq!(values.find::<u8>(1), Err("is not whole"));
        assert!(!values.put(&part(2, b"cde")));
        assert!(!values.put(&part(u64::MAX, b"cd")));
        assert!(values.put(&part(2, b"cd")));
        assert_eq!(values.find::<[u8; 4]>(1).as_deref(), Ok(b"abcd"));
    }
}
