//! Values of any type in one type of message, whose receiver knows the value's type.

use std::any::{TypeId, type_name};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use chunkcomm::codec::{decode, encode_into_vec};
use chunkcomm::layer::Fingerprint;
use chunkcomm_cluster::process::Failure;
use chunkcomm_cluster::registry::Travels;
use serde::{Deserialize, Serialize};

/// An encoded value with the fingerprint of its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packed {
    hash: u64,
    type_name: String,
    bytes: Vec<u8>,
}

impl Packed {
    /// Encodes a value.
    ///
    /// # Errors
    /// The value cannot be encoded, or values of its type cannot be sent.
    pub fn new<T: Travels>(value: &T) -> Result<Packed, Failure> {
        let (hash, type_name, mut bytes) = (hash_of::<T>()?, type_name::<T>(), Vec::new());
        encode_into_vec(value, &mut bytes)?;
        Ok(Packed { hash, type_name: type_name.to_owned(), bytes })
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// It is of another type, and the error names both; or the bytes are no such value.
    pub fn unpack<T: Travels>(&self) -> Result<T, Failure> {
        if hash_of::<T>()? != self.hash {
            let (is, asked) = (&self.type_name, type_name::<T>());
            return Err(Failure::new(format!("the value is of type {is}, not {asked}")));
        }
        Ok(decode(&self.bytes)?)
    }
}

/// Returns the hash of a type's description, which takes microseconds to find and is kept.
fn hash_of<T: Travels>() -> Result<u64, Failure> {
    static HASHES: Mutex<BTreeMap<TypeId, u64>> = Mutex::new(BTreeMap::new());
    let mut hashes = HASHES.lock().unwrap_or_else(PoisonError::into_inner);
    let id = TypeId::of::<T>();
    if let Some(hash) = hashes.get(&id) {
        return Ok(*hash);
    }
    let refused = |why| Failure::new(format!("a value cannot be packed: {why}"));
    let hash = Fingerprint::of::<T>(None).map_err(refused)?.hash;
    hashes.insert(id, hash);
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_their_type_alone() {
        let packed = Packed::new(&(7_u32, "seven".to_owned())).unwrap();
        assert_eq!(packed.unpack::<(u32, String)>().unwrap(), (7, "seven".to_owned()));
        let error = packed.unpack::<(i32, String)>().unwrap_err().to_string();
        assert!(error.contains("(u32, ") && error.contains("(i32, "), "{error}");
    }

    #[test]
    fn types_that_cannot_be_sent_are_refused() {
        assert!(Packed::new(&vec![(), ()]).is_err());
    }
}
