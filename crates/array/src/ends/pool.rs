//! Memory of packed tiles, used again.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Buffers that are kept: 32, which is about what a link holds until its peer has acknowledged it.
const KEPT_MAX: usize = 32;

/// Bytes of a buffer that is kept, at most: 512 KiB. Only tiles of larger elements have more.
const KEPT_BYTES_MAX: usize = 512 << 10;

/// Buffers of tiles that have left.
///
/// An allocator gives memory of this size back to the system and gets it again, which costs a page fault for each
/// 4 KiB.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<Vec<u8>>>);

impl Pool {
    /// Returns a buffer with what it held before: memory that is overwritten needs no zeros.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Returns the buffer as a message that brings it back when it is dropped.
    pub(super) fn lend(self: &Arc<Pool>, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { buffer, pool: Arc::clone(self) })
    }
}

struct Lent {
    buffer: Vec<u8>,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut kept = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX && self.buffer.capacity() <= KEPT_BYTES_MAX {
            kept.push(std::mem::take(&mut self.buffer));
        }
    }
}
