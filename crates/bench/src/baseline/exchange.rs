//! Bytes between one rank and all others at once: nonblocking sockets and epoll by hand.

use std::io::{self, ErrorKind};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::mesh::Mesh;
use super::wait::Readiness;

/// The bytes of all pairs of ranks, by peer and by place in the pair's bytes. Slices are not empty,
/// and may reach beyond the end of the pair's bytes.
pub(super) trait Parts {
    /// Returns some bytes for a peer, from place `at` on.
    fn outgoing(&mut self, peer: usize, at: usize) -> &[u8];

    /// Returns memory for the bytes of a peer from place `at` on.
    fn incoming(&mut self, peer: usize, at: usize) -> &mut [u8];

    /// Takes the `count` bytes that were written to such memory.
    fn landed(&mut self, peer: usize, at: usize, count: usize);

    /// Does some of the work that needs no peer; returns whether there was any.
    fn work(&mut self) -> bool;
}

/// All connections of a rank, and how many bytes go over them.
pub(super) struct Exchange {
    pub(super) mesh: Mesh,
    peers: Vec<Peer>,
    readiness: Readiness,
}

struct Peer {
    rank: usize,
    out: Way,
    into: Way,
}

/// One direction of a connection.
#[derive(Default)]
struct Way {
    bytes: usize,
    done: usize,
    /// False after the system had no room, or no bytes, until it reports some.
    is_ready: bool,
}

impl Way {
    fn is_open(&self) -> bool {
        self.done < self.bytes
    }
}

impl Exchange {
    /// Prepares exchanges with all peers, those above this rank first; `bytes` are those out and in.
    pub(super) fn new(mesh: Mesh, bytes: impl Fn(usize) -> [usize; 2]) -> io::Result<Self> {
        let readiness = Readiness::new()?;
        let mut peers = Vec::new();
        for distance in 1..mesh.ranks() {
            let rank = mesh.above(distance);
            let [out, into] = bytes(rank).map(|bytes| Way { bytes, ..Way::default() });
            if out.bytes + into.bytes > 0 {
                readiness.add(mesh.to(rank)?, peers.len())?;
                peers.push(Peer { rank, out, into });
            }
        }
        Ok(Self { mesh, peers, readiness })
    }

    /// Sends and receives all bytes, as fast as each connection goes.
    pub(super) fn run(&mut self, parts: &mut impl Parts) -> io::Result<()> {
        for peer in &mut self.peers {
            for way in [&mut peer.out, &mut peer.into] {
                (way.done, way.is_ready) = (0, true);
            }
        }
        loop {
            let (mut moved, mut open) = (false, false);
            for peer in &mut self.peers {
                moved |= peer.send_some(&self.mesh, parts)?;
                moved |= peer.receive_some(&self.mesh, parts)?;
                open |= peer.out.is_open() || peer.into.is_open();
            }
            if moved {
                continue;
            }
            let worked = parts.work();
            if !worked && !open {
                return Ok(());
            }
            self.wait(!worked)?;
        }
    }

    /// Learns which connections have become ready, and waits for one if it is to sleep.
    fn wait(&mut self, sleeps: bool) -> io::Result<()> {
        let Self { mesh, peers, readiness } = self;
        let wanted = peers
            .iter()
            .map(|peer| Ok((mesh.to(peer.rank)?, peer.into.is_open(), peer.out.is_open())));
        let wanted: io::Result<Vec<_>> = wanted.collect();
        for (peer, readable, writable) in readiness.wait(&wanted?, sleeps)? {
            peers[peer].into.is_ready |= readable;
            peers[peer].out.is_ready |= writable;
        }
        Ok(())
    }
}

impl Peer {
    fn send_some(&mut self, mesh: &Mesh, parts: &mut impl Parts) -> io::Result<bool> {
        let way = &mut self.out;
        if !way.is_open() || !way.is_ready {
            return Ok(false);
        }
        let bytes = parts.outgoing(self.rank, way.done);
        let bytes = &bytes[..bytes.len().min(way.bytes - way.done)];
        match send(mesh.to(self.rank)?, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) => {
                way.is_ready = false;
                Ok(false)
            }
            sent => {
                way.done += sent?;
                Ok(true)
            }
        }
    }

    fn receive_some(&mut self, mesh: &Mesh, parts: &mut impl Parts) -> io::Result<bool> {
        let way = &mut self.into;
        if !way.is_open() || !way.is_ready {
            return Ok(false);
        }
        let memory = parts.incoming(self.rank, way.done);
        let end = memory.len().min(way.bytes - way.done);
        match recv(mesh.to(self.rank)?, &mut memory[..end], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => {
                way.is_ready = false;
                Ok(false)
            }
            Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
            received => {
                let (count, _) = received?;
                parts.landed(self.rank, way.done, count);
                way.done += count;
                Ok(true)
            }
        }
    }
}
