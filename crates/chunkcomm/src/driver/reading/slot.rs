//! The driver's side of a receiving channel: where the bytes of its messages go.

use crate::driver::inbox::{Outcome, RxShared};
use crate::driver::landing::Landing;
use crate::driver::large::Turn;
use crate::driver::memory::free_vec;
use crate::error::RecvError;
use std::sync::Arc;

/// Factor by which the memory of a large message, when it has to grow, exceeds the received bytes.
const GROWTH: usize = 4;

/// The driver's side of a receiving channel.
pub(crate) struct RxSlot {
    pub(crate) shared: Arc<RxShared>,
    pub(super) assembling: Option<Assembling>,
    pub(crate) landing: Option<Box<dyn Landing>>,
}

/// A large message that is being put together.
pub(super) struct Assembling {
    pub(super) memory: Vec<u8>,
    pub(super) filled: usize,
    pub(super) total: usize,
    /// Held by a message that waits for its receiver in memory that the link kept.
    pub(super) _turn: Option<Turn>,
}

impl RxSlot {
    pub(crate) fn new(shared: Arc<RxShared>) -> RxSlot {
        RxSlot { shared, assembling: None, landing: None }
    }

    /// Returns the memory of the large message that is being put together, in bytes.
    pub(crate) fn assembling_bytes(&self) -> u64 {
        self.assembling.as_ref().map_or(0, |it| it.memory.capacity() as u64)
    }

    /// Returns room for the next bytes of the large message, at most `left`.
    pub(super) fn destination(&mut self, left: usize) -> &mut [u8] {
        if let Some(assembling) = &mut self.assembling {
            return assembling.room(left);
        }
        match &mut self.landing {
            Some(landing) => {
                let room = landing.room();
                let bytes = room.len().min(left);
                &mut room[..bytes]
            }
            None => &mut [],
        }
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        if let Some(assembling) = &mut self.assembling {
            assembling.filled += bytes;
        } else if let Some(landing) = &mut self.landing {
            landing.advance(bytes);
        }
    }

    /// Copies `bytes` to where they belong; false when there is no room.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let room = self.destination(bytes.len());
            let count = room.len();
            if count == 0 {
                return false;
            }
            room.copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.advance(count);
        }
        true
    }

    /// Puts bytes that the receiver had taken in before it chose a landing.
    pub(crate) fn put_taken(&mut self, bytes: &[u8]) -> bool {
        let assembling = self.assembling.take();
        let fits = self.put(bytes);
        self.assembling = assembling;
        fits
    }

    pub(crate) fn end(&mut self, outcome: Outcome) {
        // The rest of the large message does not come.
        self.assembling = None;
        if let Some(landing) = self.landing.take() {
            landing.end(outcome.clone().result(&self.shared.name));
        }
        self.shared.end(outcome);
    }

    /// Ends the landing, which has no room for the next bytes.
    pub(crate) fn landing_full(&mut self) {
        if let Some(landing) = self.landing.take() {
            landing.end(Err(RecvError::LandingFull { channel: Arc::clone(&self.shared.name) }));
        }
    }
}

impl Drop for Assembling {
    fn drop(&mut self) {
        free_vec(std::mem::take(&mut self.memory));
    }
}

impl Assembling {
    /// Returns room for the next bytes. Memory of our own grows with the bytes received.
    fn room(&mut self, left: usize) -> &mut [u8] {
        let end = (self.filled + left).min(self.total);
        if self.memory.len() < end {
            if self.memory.capacity() < end {
                let wanted = self.total.min(GROWTH * end);
                self.memory.reserve_exact(wanted - self.memory.len());
            }
            self.memory.resize(end, 0);
        }
        &mut self.memory[self.filled..end]
    }
}
