//! Maps by channel number. The numbers are small and handed out in order, so one
//! multiplication spreads them; the standard hasher costs a tenth of a round
//! trip. A peer that chooses its numbers badly slows its own link, by the few
//! hundred channels that it has credit for.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by channel number.
pub type IdMap<V> = HashMap<u32, V, BuildHasherDefault<IdHasher>>;

/// Multiplies by the golden ratio, as D. Knuth proposes for integers.
#[derive(Debug, Clone, Copy, Default)]
pub struct IdHasher(u64);

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
