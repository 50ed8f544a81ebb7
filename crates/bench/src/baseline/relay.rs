//! Hands an array through a chain of bare sockets in which nobody computes: how fast this machine
//! moves the bytes of a cascade when each thread passes on at once what has come.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;
use std::{io, thread};

use crate::failure::{Doing, Failure};
use crate::harness::machine::pin;
use crate::harness::near::Bench;
use crate::harness::slices::{Contender, Slice};

/// A chain of threads, on the cores in turn. Each reads what has come into an array of its own and
/// writes it to the next.
pub struct Relay {
    array: Vec<u8>,
    first: TcpStream,
    /// The last thread writes a byte to it after each array.
    done: TcpStream,
}

impl Relay {
    /// Opens a chain of `nodes` threads, this one counted, for arrays of `bytes`.
    ///
    /// # Errors
    /// If a socket or a thread cannot be made.
    pub fn open(nodes: usize, bytes: usize) -> Result<Self, Failure> {
        chain(nodes, bytes).doing("opening a chain of sockets")
    }
}

impl Contender for Relay {
    /// Hands `count` arrays through the chain, one after the other.
    fn slice(&mut self, _bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let start = Instant::now();
        for _ in 0..count {
            self.first.write_all(&self.array).doing("writing to a socket")?;
            self.done.read_exact(&mut [0]).doing("reading from a socket")?;
        }
        Ok(Slice::timed(count, start.elapsed().as_secs_f64()))
    }
}

fn chain(nodes: usize, bytes: usize) -> io::Result<Relay> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let pair = || {
        let near = TcpStream::connect(listener.local_addr()?)?;
        near.set_nodelay(true)?;
        Ok::<_, io::Error>((near, listener.accept()?.0))
    };
    let (first, mut from) = pair()?;
    for node in 1..nodes {
        let (to, next) = pair()?;
        let last = node == nodes - 1;
        thread::Builder::new().spawn(move || {
            pin(node);
            hand_on(vec![1; bytes], from, to, last)
        })?;
        from = next;
    }
    Ok(Relay { array: vec![1; bytes], first, done: from })
}

/// Reads arrays until the other end closes or fails, and hands them on; the last of the chain writes a
/// byte after each. The threads end one after the other.
fn hand_on(mut own: Vec<u8>, mut from: TcpStream, mut to: TcpStream, last: bool) -> io::Result<()> {
    loop {
        let mut at = 0;
        while at < own.len() {
            let count = from.read(&mut own[at..])?;
            if count == 0 {
                return Ok(());
            }
            if !last {
                to.write_all(&own[at..at + count])?;
            }
            at += count;
        }
        if last {
            to.write_all(&[1])?;
        }
    }
}
