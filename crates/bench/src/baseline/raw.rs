//! Raw sockets: the same bytes, one reused buffer at each end, nothing between.

use std::io::{self, ErrorKind, Read, Write};

use tokio::runtime::Runtime;

use super::wait::{Waiter, writable};
use super::wire::{Listener, Wire};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::machine::now_ns;
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, Order};
use crate::harness::slices::{Contender, Slice};
use crate::message::{stamp, verify};

/// Bytes of a write for smaller messages: 64 KiB.
const WRITE_BYTES: usize = 64 * 1024;

/// Returns the bytes that carry one stamp: as many whole messages as a write holds, at least one.
fn stamped_bytes(message_bytes: usize) -> usize {
    (WRITE_BYTES / message_bytes).max(1) * message_bytes
}

/// Sends whole buffers one way, a stamp a buffer.
pub struct RawStream {
    wire: Wire,
    buffer: Vec<u8>,
    end: EndId,
    message_bytes: usize,
    next: u64,
}

impl RawStream {
    /// Connects near and far end; buffers hold as many whole messages as a write takes.
    ///
    /// # Errors
    /// If either side fails.
    pub fn open(bench: &mut Bench, message_bytes: usize) -> Result<Self, Failure> {
        let bytes = stamped_bytes(message_bytes);
        let (end, wire) = bench
            .open(End::RawStream { bytes }, |_, place, address| Wire::connect(place, address))?;
        Ok(Self { wire, buffer: vec![0x5a; bytes], end, message_bytes, next: 0 })
    }
}

impl Contender for RawStream {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let each = (self.buffer.len() / self.message_bytes) as u64;
        let order = Order { first: self.next, messages: count.div_ceil(each), mark_every: 0 };
        let ((), timing) = bench.timed(self.end, &order, |_| {
            for sequence in order.first..order.first + order.messages {
                stamp(&mut self.buffer, sequence);
                self.wire.write_all(&self.buffer).doing("writing raw bytes")?;
            }
            Ok(())
        })?;
        self.next += order.messages;
        Ok(Slice::new(order.messages * each, &timing, Vec::new()))
    }
}

struct FarStream {
    wire: Wire,
    buffer: Vec<u8>,
}

/// Opens the far end of [`RawStream`].
///
/// # Errors
/// If the connection is not made.
pub fn far_stream(bytes: usize, mut opening: Opening<'_>) -> Result<Box<dyn FarEnd>, Failure> {
    let listener = Listener::bind(opening.place)?;
    opening.announce(listener.address()?)?;
    Ok(Box::new(FarStream { wire: listener.accept()?, buffer: vec![0; bytes] }))
}

impl FarEnd for FarStream {
    fn slice(&mut self, _runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        for sequence in order.first..order.first + order.messages {
            self.wire.read_exact(&mut self.buffer).doing("reading raw bytes")?;
            if !verify(&self.buffer, sequence) {
                return Err(Failure::wrong_message(sequence));
            }
        }
        Ok(Vec::new())
    }
}

/// A socket with a wait in epoll, asleep or spinning.
pub(super) struct Polled {
    wire: Wire,
    waiter: Waiter,
    spin: bool,
}

impl Polled {
    pub(super) fn new(wire: Wire, spin: bool) -> io::Result<Self> {
        wire.set_nonblocking()?;
        let waiter = Waiter::new(&wire, spin)?;
        Ok(Self { wire, waiter, spin })
    }

    #[inline]
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.wire.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    writable(&self.wire, self.spin)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn get(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            filled += self.get_some(&mut buffer[filled..])?;
        }
        Ok(())
    }

    /// Waits until there are bytes and reads them.
    #[inline]
    pub(super) fn get_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.waiter.readable(&self.wire)?;
            match self.wire.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Round trips of one message.
pub struct RawEcho {
    polled: Polled,
    buffer: Vec<u8>,
    end: EndId,
    next: u64,
}

impl RawEcho {
    /// Connects near and far end.
    ///
    /// # Errors
    /// If either side fails.
    pub fn open(bench: &mut Bench, bytes: usize, spin: bool) -> Result<Self, Failure> {
        let (end, wire) = bench.open(End::RawEcho { bytes, spin }, |_, place, address| {
            Wire::connect(place, address)
        })?;
        let polled = Polled::new(wire, spin).doing("setting up epoll")?;
        Ok(Self { polled, buffer: vec![0x5a; bytes], end, next: 0 })
    }
}

impl Contender for RawEcho {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let order = Order { first: self.next, messages: count, mark_every: 0 };
        let mut samples_ns = Vec::with_capacity(count as usize);
        let ((), timing) = bench.timed(self.end, &order, |_| {
            for sequence in order.first..order.first + count {
                stamp(&mut self.buffer, sequence);
                let started_ns = now_ns();
                self.polled.put(&self.buffer).doing("writing raw bytes")?;
                self.polled.get(&mut self.buffer).doing("reading raw bytes")?;
                samples_ns.push(now_ns() - started_ns);
                if !verify(&self.buffer, sequence + 1) {
                    return Err(Failure::wrong_message(sequence + 1));
                }
            }
            Ok(())
        })?;
        self.next += count;
        Ok(Slice::new(count, &timing, samples_ns))
    }
}

struct FarEcho {
    polled: Polled,
    buffer: Vec<u8>,
}

/// Opens the far end of [`RawEcho`], which verifies each message and answers with the next number.
///
/// # Errors
/// If the connection is not made.
pub fn far_echo(
    bytes: usize,
    spin: bool,
    mut opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    let listener = Listener::bind(opening.place)?;
    opening.announce(listener.address()?)?;
    let polled = Polled::new(listener.accept()?, spin).doing("setting up epoll")?;
    Ok(Box::new(FarEcho { polled, buffer: vec![0; bytes] }))
}

impl FarEnd for FarEcho {
    fn slice(&mut self, _runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        for sequence in order.first..order.first + order.messages {
            self.polled.get(&mut self.buffer).doing("reading raw bytes")?;
            if !verify(&self.buffer, sequence) {
                return Err(Failure::wrong_message(sequence));
            }
            stamp(&mut self.buffer, sequence + 1);
            self.polled.put(&self.buffer).doing("writing raw bytes")?;
        }
        Ok(Vec::new())
    }
}
