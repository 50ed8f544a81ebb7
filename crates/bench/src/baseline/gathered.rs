//! Length-prefixed messages by hand: copied into a 64 KiB buffer (hand-batched), or one write each
//! (unbatched). The same receiver parses and verifies them in place.

use std::io::{Read, Write};

use tokio::runtime::Runtime;

use super::wire::{Listener, Wire};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, Order};
use crate::harness::slices::{Contender, Slice};
use crate::message::{stamp, verify};

/// Bytes of the sender's batch and of a read: 64 KiB.
const BATCH_BYTES: usize = 64 * 1024;

/// Bytes of the length in front of each message.
const PREFIX_BYTES: usize = 4;

/// Gathers length-prefixed messages, and reports when the next does not fit.
pub struct Batch {
    buffer: Vec<u8>,
    filled: usize,
}

impl Batch {
    /// Makes an empty batch that holds at least one message of this size.
    pub fn for_messages_of(bytes: usize) -> Self {
        Self { buffer: vec![0; BATCH_BYTES.max(PREFIX_BYTES + bytes)], filled: 0 }
    }

    /// Whether a message of this size fits.
    #[inline]
    pub fn fits(&self, bytes: usize) -> bool {
        self.filled + PREFIX_BYTES + bytes <= self.buffer.len()
    }

    /// Copies a message that fits.
    #[inline]
    pub fn append(&mut self, message: &[u8]) {
        let slot = &mut self.buffer[self.filled..self.filled + PREFIX_BYTES + message.len()];
        slot[..PREFIX_BYTES].copy_from_slice(&(message.len() as u32).to_le_bytes());
        slot[PREFIX_BYTES..].copy_from_slice(message);
        self.filled += PREFIX_BYTES + message.len();
    }

    /// Returns the gathered bytes; the batch is empty afterwards.
    pub fn take(&mut self) -> &[u8] {
        let filled = std::mem::take(&mut self.filled);
        &self.buffer[..filled]
    }
}

/// Appends a length-prefixed message to bytes that may grow.
pub fn append_framed(to: &mut Vec<u8>, message: &[u8]) {
    to.extend_from_slice(&(message.len() as u32).to_le_bytes());
    to.extend_from_slice(message);
}

/// Sends framed messages one way.
pub struct Gathered {
    wire: Wire,
    message: Vec<u8>,
    batch: Batch,
    batched: bool,
    end: EndId,
    next: u64,
}

impl Gathered {
    /// Connects near and far end; with `batched` messages are gathered, else each is a write.
    ///
    /// # Errors
    /// If either side fails.
    pub fn open(bench: &mut Bench, bytes: usize, batched: bool) -> Result<Self, Failure> {
        let (end, wire) = bench
            .open(End::Gathered { bytes }, |_, place, address| Wire::connect(place, address))?;
        let batch = Batch::for_messages_of(bytes);
        Ok(Self { wire, message: vec![0x5a; bytes], batch, batched, end, next: 0 })
    }

    fn send(&mut self, order: &Order) -> std::io::Result<()> {
        for sequence in order.first..order.first + order.messages {
            stamp(&mut self.message, sequence);
            if !self.batch.fits(self.message.len()) {
                self.wire.write_all(self.batch.take())?;
            }
            self.batch.append(&self.message);
            if !self.batched {
                self.wire.write_all(self.batch.take())?;
            }
        }
        self.wire.write_all(self.batch.take())
    }
}

impl Contender for Gathered {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let order = Order { first: self.next, messages: count, mark_every: 0 };
        let ((), timing) = bench
            .timed(self.end, &order, |_| self.send(&order).doing("writing framed messages"))?;
        self.next += count;
        Ok(Slice::new(count, &timing, Vec::new()))
    }
}

/// Reads framed messages and hands them out in place.
pub struct Unframer {
    buffer: Vec<u8>,
    filled: usize,
}

impl Unframer {
    /// Makes an unframer with room for a read behind an unfinished message of this size.
    pub fn for_messages_of(bytes: usize) -> Self {
        Self { buffer: vec![0; BATCH_BYTES + PREFIX_BYTES + bytes], filled: 0 }
    }

    /// Reads once and passes every complete message to `each`, which returns an error to stop.
    ///
    /// # Errors
    /// If the connection ends, or `each` fails.
    #[inline]
    pub fn read(
        &mut self,
        from: &mut impl Read,
        mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let room = &mut self.buffer[self.filled..];
        let bytes = room.len().min(BATCH_BYTES);
        match from.read(&mut room[..bytes]).doing("reading framed messages")? {
            0 => return Err(Failure::broken("reading framed messages", "the connection ended")),
            read => self.filled += read,
        }
        let mut rest = &self.buffer[..self.filled];
        while let Some((prefix, tail)) = rest.split_first_chunk::<PREFIX_BYTES>() {
            let Some((message, tail)) = tail.split_at_checked(u32::from_le_bytes(*prefix) as usize)
            else {
                break;
            };
            each(message)?;
            rest = tail;
        }
        let (unread, filled) = (rest.len(), self.filled);
        self.buffer.copy_within(filled - unread..filled, 0);
        self.filled = unread;
        Ok(())
    }
}

struct FarGathered {
    wire: Wire,
    unframer: Unframer,
    bytes: usize,
}

/// Opens the far end of [`Gathered`].
///
/// # Errors
/// If the connection is not made.
pub fn far(bytes: usize, mut opening: Opening<'_>) -> Result<Box<dyn FarEnd>, Failure> {
    let listener = Listener::bind(opening.place)?;
    opening.announce(listener.address()?)?;
    let unframer = Unframer::for_messages_of(bytes);
    Ok(Box::new(FarGathered { wire: listener.accept()?, unframer, bytes }))
}

impl FarEnd for FarGathered {
    fn slice(&mut self, _runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        let mut next = order.first;
        let bytes = self.bytes;
        while next < order.first + order.messages {
            self.unframer.read(&mut self.wire, |message| {
                if message.len() != bytes || !verify(message, next) {
                    return Err(Failure::wrong_message(next));
                }
                next += 1;
                Ok(())
            })?;
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_batched_comes_out_however_it_is_split() {
        let mut batch = Batch::for_messages_of(20);
        let mut message = [0; 20];
        for sequence in 0..100 {
            stamp(&mut message, sequence);
            batch.append(&message);
        }
        let bytes = batch.take().to_vec();
        for step in [1, 7, 24, 1000] {
            let mut unframer = Unframer::for_messages_of(20);
            let mut next = 0;
            for mut piece in bytes.chunks(step) {
                let each = |message: &[u8]| {
                    assert!(verify(message, next));
                    next += 1;
                    Ok(())
                };
                unframer.read(&mut piece, each).unwrap();
            }
            assert_eq!(next, 100, "pieces of {step}");
        }
    }
}
