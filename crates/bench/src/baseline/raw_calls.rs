//! Raw sockets, many messages in flight: all messages that can be sent leave in one write, all that
//! came are answered in one write.

use tokio::runtime::Runtime;

use super::raw::Polled;
use super::wire::{Listener, Wire};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::machine::now_ns;
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, Order};
use crate::harness::slices::{Contender, Slice};
use crate::message::{stamp, verify};

/// Most bytes in flight: more might not fit in the sockets, and both ends would wait to write.
pub const IN_FLIGHT_BYTES_MAX: usize = 64 * 1024;

/// A buffer of whole messages.
struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl Buffer {
    fn new(bytes: usize) -> Self {
        Self { bytes: vec![0x5a; bytes], filled: 0 }
    }

    /// Reads the bytes that are there; returns the number of bytes in whole messages.
    fn read(&mut self, polled: &mut Polled, message_bytes: usize) -> Result<usize, Failure> {
        let room = &mut self.bytes[self.filled..];
        self.filled += polled.get_some(room).doing("reading raw bytes")?;
        Ok(self.filled / message_bytes * message_bytes)
    }

    /// Drops the first `bytes` of the buffer.
    fn consume(&mut self, bytes: usize) {
        self.bytes.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
    }
}

/// The near end.
pub struct RawCalls {
    polled: Polled,
    out: Vec<u8>,
    buffer: Buffer,
    /// Times when the messages in flight were sent, in nanoseconds.
    started_ns: Vec<u64>,
    bytes: usize,
    end: EndId,
    next: u64,
}

impl RawCalls {
    /// Connects near and far end.
    ///
    /// # Errors
    /// If either side fails, or the bytes in flight might stop both.
    pub fn open(
        bench: &mut Bench,
        bytes: usize,
        in_flight: u64,
        spin: bool,
    ) -> Result<Self, Failure> {
        let in_flight_bytes = usize::try_from(in_flight).ok().and_then(|it| it.checked_mul(bytes));
        let Some(all) = in_flight_bytes.filter(|all| *all <= IN_FLIGHT_BYTES_MAX.max(bytes)) else {
            return Err(Failure::Refused(format!(
                "--against raw has at most {IN_FLIGHT_BYTES_MAX} bytes in flight: {in_flight} \
                 messages of {bytes} are too many"
            )));
        };
        let (end, wire) = bench.open(End::RawCalls { bytes, spin }, |_, place, address| {
            Wire::connect(place, address)
        })?;
        let polled = Polled::new(wire, spin).doing("setting up epoll")?;
        let started_ns = vec![0; in_flight as usize];
        let (out, buffer) = (vec![0x5a; all], Buffer::new(all));
        Ok(Self { polled, out, buffer, started_ns, bytes, end, next: 0 })
    }

    fn go_round(&mut self, order: &Order) -> Result<Vec<u64>, Failure> {
        let (bytes, width) = (self.bytes, self.started_ns.len() as u64);
        let (mut sent, mut answered, end) =
            (order.first, order.first, order.first + order.messages);
        let mut samples_ns = Vec::with_capacity(order.messages as usize);
        while answered < end {
            let many = (answered + width).min(end) - sent;
            let now = now_ns();
            for (index, message) in self.out.chunks_exact_mut(bytes).take(many as usize).enumerate()
            {
                let sequence = sent + index as u64;
                stamp(message, sequence);
                self.started_ns[(sequence % width) as usize] = now;
            }
            sent += many;
            self.polled.put(&self.out[..many as usize * bytes]).doing("writing raw bytes")?;
            let whole = self.buffer.read(&mut self.polled, bytes)?;
            let now = now_ns();
            for message in self.buffer.bytes[..whole].chunks_exact(bytes) {
                if !verify(message, answered + 1) {
                    return Err(Failure::wrong_message(answered + 1));
                }
                samples_ns.push(now - self.started_ns[(answered % width) as usize]);
                answered += 1;
            }
            self.buffer.consume(whole);
        }
        Ok(samples_ns)
    }
}

impl Contender for RawCalls {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let order = Order { first: self.next, messages: count, mark_every: 0 };
        let (samples_ns, timing) = bench.timed(self.end, &order, |_| self.go_round(&order))?;
        self.next += count;
        Ok(Slice::new(count, &timing, samples_ns))
    }
}

struct Far {
    polled: Polled,
    buffer: Buffer,
    bytes: usize,
}

/// Opens the far end of [`RawCalls`].
///
/// # Errors
/// If the connection is not made.
pub fn far(bytes: usize, spin: bool, mut opening: Opening<'_>) -> Result<Box<dyn FarEnd>, Failure> {
    let listener = Listener::bind(opening.place)?;
    opening.announce(listener.address()?)?;
    let polled = Polled::new(listener.accept()?, spin).doing("setting up epoll")?;
    let buffer = Buffer::new(IN_FLIGHT_BYTES_MAX.max(bytes));
    Ok(Box::new(Far { polled, buffer, bytes }))
}

impl FarEnd for Far {
    fn slice(&mut self, _runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        let mut sequence = order.first;
        while sequence < order.first + order.messages {
            let whole = self.buffer.read(&mut self.polled, self.bytes)?;
            for message in self.buffer.bytes[..whole].chunks_exact_mut(self.bytes) {
                if !verify(message, sequence) {
                    return Err(Failure::wrong_message(sequence));
                }
                sequence += 1;
                stamp(message, sequence);
            }
            self.polled.put(&self.buffer.bytes[..whole]).doing("writing raw bytes")?;
            self.buffer.consume(whole);
        }
        Ok(Vec::new())
    }
}
