//! A cascade by hand: an array goes through a chain of bare sockets, each of whose threads waits as a
//! computation does, and passes on what is done.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::failure::{Doing, Failure};
use crate::harness::machine::pin;
use crate::harness::near::Bench;
use crate::harness::slices::{Contender, Slice};

/// Most bytes of a read: 256 KiB. With more a thread keeps the next one waiting; with less it calls the
/// system more often.
const READ_BYTES_MAX: usize = 256 * 1024;

/// Kind of a cascade.
#[derive(Debug, Clone, Copy)]
pub struct RelayKind {
    /// Number of threads, the caller's included.
    pub nodes: usize,
    /// Bytes of the array.
    pub bytes: usize,
    /// Bytes that are passed on at the earliest, but for the last.
    pub increment_bytes: usize,
    /// Time that each thread waits in all for an array.
    pub wait: Duration,
}

/// A chain of threads, on the cores in turn. Each reads what has come into an array of its own, waits
/// for its share of the time, and writes it to the next.
pub struct Relay {
    head: Stage,
    /// The last thread writes a byte to it after each array.
    done: TcpStream,
}

impl Relay {
    /// Opens a chain.
    ///
    /// # Errors
    /// If a socket or a thread cannot be made.
    pub fn open(kind: RelayKind) -> Result<Self, Failure> {
        chain(kind).doing("opening a chain of sockets")
    }
}

impl Contender for Relay {
    /// Hands `count` arrays through the chain, one after the other.
    fn slice(&mut self, _bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let start = Instant::now();
        for _ in 0..count {
            self.head.hand_on(None).doing("writing to a socket")?;
            self.done.read_exact(&mut [0]).doing("reading from a socket")?;
        }
        Ok(Slice::timed(count, start.elapsed().as_secs_f64()))
    }
}

fn chain(kind: RelayKind) -> io::Result<Relay> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let pair = || {
        let near = TcpStream::connect(listener.local_addr()?)?;
        near.set_nodelay(true)?;
        Ok::<_, io::Error>((near, listener.accept()?.0))
    };
    let stage = |to| Stage { own: vec![1; kind.bytes], to, kind };
    let (first, mut from) = pair()?;
    for node in 1..kind.nodes {
        let (to, next) = pair()?;
        let mut stage = stage(to);
        let is_last = node == kind.nodes - 1;
        thread::Builder::new().spawn(move || {
            pin(node);
            // The threads end one after the other, when the first socket is closed.
            while stage.hand_on(Some((&mut from, is_last))).is_ok() {}
        })?;
        from = next;
    }
    Ok(Relay { head: stage(first), done: from })
}

/// One thread's array, and the socket to the next.
struct Stage {
    own: Vec<u8>,
    to: TcpStream,
    kind: RelayKind,
}

impl Stage {
    /// Passes one array on, as it comes from the socket before. The first of the chain has it all; the
    /// last one writes a byte when it has waited for all.
    fn hand_on(&mut self, before: Option<(&mut TcpStream, bool)>) -> io::Result<()> {
        let Self { own, to, kind } = self;
        let is_last = before.as_ref().is_some_and(|(_, is_last)| *is_last);
        let mut from = before.map(|(from, _)| from);
        let mut landed = if from.is_some() { 0 } else { own.len() };
        let (mut done, mut sent, mut began) = (0, 0, None);
        let mut pass_on = |own: &[u8], sent: &mut usize, done: usize| {
            let part = *sent..done;
            *sent = done;
            if is_last { Ok(()) } else { to.write_all(&own[part]) }
        };
        while done < own.len() {
            if let Some(from) = &mut from
                && landed < own.len().min(done + kind.increment_bytes)
            {
                pass_on(own, &mut sent, done)?;
                let end = own.len().min(landed + READ_BYTES_MAX);
                match from.read(&mut own[landed..end])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => landed += count,
                }
            } else {
                done = own.len().min(done + kind.increment_bytes);
                let share = kind.wait.mul_f64(done as f64 / own.len() as f64);
                let began = *began.get_or_insert_with(Instant::now);
                let left = (began + share).saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    thread::sleep(left);
                    pass_on(own, &mut sent, done)?;
                }
            }
        }
        pass_on(own, &mut sent, done)?;
        if is_last { to.write_all(&[1]) } else { Ok(()) }
    }
}
