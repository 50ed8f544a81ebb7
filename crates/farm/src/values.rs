//! Values that a worker keeps for its tasks: values that the farm shares, and values that a task
//! has computed for others.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chunkcomm::codec::{decode, encode_into_vec};
use chunkcomm_proto::sorted::SortedMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use crate::proto::wire::Part;

/// Shared values of a farm, at a worker.
#[derive(Default)]
pub(crate) struct Values(Mutex<SortedMap<u128, Value>>);

#[derive(Default)]
struct Value {
    bytes: Vec<u8>,
    total: u64,
    decoded: Option<Arc<dyn Any + Send + Sync>>,
}

impl Values {
    /// Takes the next part of a value; returns `false` if it does not follow the parts before it.
    pub(crate) fn put(&self, part: &Part<'_>) -> bool {
        let mut values = self.values();
        let value = values.get_or_insert(part.digest, Value::default());
        if part.offset == 0 {
            // Equal values may be shared twice.
            let begun = Value { total: part.total, ..Value::default() };
            drop_quietly(std::mem::replace(value, begun));
        }
        let end = part.offset.checked_add(part.bytes.len() as u64);
        if value.bytes.len() as u64 != part.offset || end.is_none_or(|end| end > value.total) {
            return false;
        }
        value.bytes.extend_from_slice(part.bytes);
        true
    }

    pub(crate) fn forget(&self, digest: u128) {
        let forgotten = self.values().remove(&digest);
        drop_quietly(forgotten);
    }

    /// Locks the values. A value whose type panicked while it was decoded is as it was before.
    fn values(&self) -> MutexGuard<'_, SortedMap<u128, Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value; panics when it is not here or of another type.
    pub(crate) fn get<T: DeserializeOwned + Send + Sync + 'static>(&self, digest: u128) -> Arc<T> {
        let found = self.find(digest);
        found.unwrap_or_else(|why| panic!("the shared value {digest:032x} {why}"))
    }

    pub(crate) fn find<T: DeserializeOwned + Send + Sync + 'static>(
        &self,
        digest: u128,
    ) -> Result<Arc<T>, &'static str> {
        let mut values = self.values();
        let value = values.get_mut(&digest).ok_or("is not here: its handles were dropped")?;
        if let Some(decoded) = &value.decoded {
            return Arc::clone(decoded).downcast().map_err(|_| "is of another type");
        }
        if (value.bytes.len() as u64) < value.total {
            return Err("is not whole");
        }
        let decoded: Arc<T> = Arc::new(decode(&value.bytes).map_err(|_| "is of another type")?);
        value.decoded = Some(Arc::clone(&decoded) as _);
        value.bytes = Vec::new();
        value.total = 0;
        Ok(decoded)
    }
}

/// A value that is computed once, or is yet to be.
type Cell = OnceCell<Arc<dyn Any + Send + Sync>>;

/// Values by their run, type and encoded key. A task of a dropped run may ask after another has
/// begun.
type Cells = BTreeMap<(u32, TypeId, Vec<u8>), Arc<Cell>>;

/// Values that a worker's tasks compute for each other in a run.
#[derive(Default)]
pub(crate) struct Once(Mutex<Cells>);

impl Once {
    /// Forgets all values. Tasks that have one keep it.
    pub(crate) fn clear(&self) {
        // Values are dropped without the lock: they may be large.
        let cells = std::mem::take(&mut *self.cells());
        drop_quietly(cells);
    }

    /// Returns the place of the value of this run, type and key.
    pub(crate) fn cell<T: 'static>(&self, run: u32, key: &impl Serialize) -> Arc<Cell> {
        let mut bytes = Vec::new();
        encode_into_vec(key, &mut bytes).expect("the key of a value can be encoded");
        Arc::clone(self.cells().entry((run, TypeId::of::<T>(), bytes)).or_default())
    }

    fn cells(&self) -> MutexGuard<'_, Cells> {
        self.0.lock().expect("nothing panics with the values locked")
    }
}

/// Drops a task's product. A panic of its type does not reach the worker.
pub(crate) fn drop_quietly<T>(made: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(made)));
}
