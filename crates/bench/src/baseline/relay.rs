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
            self.head.hand_on().doing("writing to a socket")?;
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
    let (first, mut before) = pair()?;
    for node in 1..kind.nodes {
        let (to, next) = pair()?;
        let (from, is_last) = (Some(before), node == kind.nodes - 1);
        let mut stage = Stage { own: vec![1; kind.bytes], from, to, is_last, kind };
        thread::Builder::new().spawn(move || {
            pin(node);
            // The threads end one after the other, when the first socket is closed.
            while stage.hand_on().is_ok() {}
        })?;
        before = next;
    }
    let head = Stage { own: vec![1; kind.bytes], from: None, to: first, is_last: false, kind };
    Ok(Relay { head, done: before })
}

/// One thread's array, and its sockets.
struct Stage {
    own: Vec<u8>,
    /// Without one it has the whole array.
    from: Option<TcpStream>,
    to: TcpStream,
    is_last: bool,
    kind: RelayKind,
}

impl Stage {
    /// Passes one array on, as it comes. The last of the chain writes a byte in its place.
    fn hand_on(&mut self) -> io::Result<()> {
        let len = self.own.len();
        let mut landed = if self.from.is_some() { 0 } else { len };
        let (mut done, mut sent, mut began) = (0, 0, None);
        while done < len {
            let end = len.min(done + self.kind.increment_bytes);
            if let Some(from) = &mut self.from
                && landed < end
            {
                let room = landed..len.min(landed + READ_BYTES_MAX);
                // Nothing waits here while this thread waits for more.
                pass_on(&mut self.to, self.is_last, &self.own[sent..done])?;
                sent = done;
                match from.read(&mut self.own[room])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => landed += count,
                }
                continue;
            }
            done = end;
            let share = self.kind.wait.mul_f64(done as f64 / len as f64);
            let until = *began.get_or_insert_with(Instant::now) + share;
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                thread::sleep(left);
                pass_on(&mut self.to, self.is_last, &self.own[sent..done])?;
                sent = done;
            }
        }
        pass_on(&mut self.to, self.is_last, &self.own[sent..])?;
        if self.is_last { self.to.write_all(&[1]) } else { Ok(()) }
    }
}

fn pass_on(to: &mut TcpStream, is_last: bool, bytes: &[u8]) -> io::Result<()> {
    if is_last { Ok(()) } else { to.write_all(bytes) }
}
