//! Sockets by hand between all ranks of a side, and their waits.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::failure::{Doing, Failure};
use crate::harness::ranks::Control;

/// Most bytes of a read or a write: 256 KiB. With more a rank keeps the next one waiting; with less it
/// calls the system more often.
pub(super) const PIECE_BYTES: usize = 256 * 1024;

/// TCP connections of one rank, by rank; there is none to itself.
pub(super) struct Mesh {
    pub(super) rank: usize,
    streams: Vec<Option<TcpStream>>,
}

impl Mesh {
    /// Reports the rank at the control port, and connects it with all others.
    pub(super) async fn join(
        port: u16,
        rank: usize,
        ranks: usize,
    ) -> Result<(Control, Self), Failure> {
        let doing = "connecting the ranks";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing(doing)?;
        let own_port = listener.local_addr().doing(doing)?.port();
        let (control, ports) = Control::report(port, rank, own_port, ranks).await?;
        Ok((control, Self::connect(rank, &ports, &listener).doing(doing)?))
    }

    fn connect(rank: usize, ports: &[u16], listener: &TcpListener) -> io::Result<Self> {
        let mut streams: Vec<Option<TcpStream>> = ports.iter().map(|_| None).collect();
        for (lower, port) in ports.iter().enumerate().take(rank) {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
            stream.write_all(&(rank as u64).to_ne_bytes())?;
            streams[lower] = Some(stream);
        }
        for _ in rank + 1..ports.len() {
            let (mut stream, _) = listener.accept()?;
            let mut bytes = [0; 8];
            stream.read_exact(&mut bytes)?;
            let higher = u64::from_ne_bytes(bytes) as usize;
            *streams.get_mut(higher).ok_or(ErrorKind::InvalidData)? = Some(stream);
        }
        for stream in streams.iter().flatten() {
            stream.set_nodelay(true)?;
        }
        Ok(Self { rank, streams })
    }

    pub(super) fn ranks(&self) -> usize {
        self.streams.len()
    }

    /// Returns the connection with another rank.
    pub(super) fn to(&self, rank: usize) -> io::Result<&TcpStream> {
        self.streams[rank].as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Returns all connections, by rank.
    pub(super) fn into_streams(self) -> impl Iterator<Item = Option<TcpStream>> {
        self.streams.into_iter()
    }

    /// Returns the rank `distance` above this one, counted round.
    pub(super) fn above(&self, distance: usize) -> usize {
        (self.rank + distance) % self.ranks()
    }

    /// Returns the rank `distance` below this one, counted round.
    pub(super) fn below(&self, distance: usize) -> usize {
        (self.rank + self.ranks() - distance) % self.ranks()
    }

    /// Waits until all ranks are here: a dissemination of single bytes.
    pub(super) fn meet(&self) -> io::Result<()> {
        let mut distance = 1;
        while distance < self.ranks() {
            self.to(self.above(distance))?.write_all(&[1])?;
            self.to(self.below(distance))?.read_exact(&mut [0])?;
            distance *= 2;
        }
        Ok(())
    }

    /// Sends `out` to one rank while `into` is filled from another, as fast as each of them goes.
    /// After each read `landed` is called with `into` and the number of bytes that are there.
    pub(super) fn exchange(
        &self,
        (to, out): (usize, &[u8]),
        (from, into): (usize, &mut [u8]),
        mut landed: impl FnMut(&mut [u8], usize),
    ) -> io::Result<()> {
        let (to, from) = (self.to(to)?, self.to(from)?);
        let (mut sent, mut filled) = (0, 0);
        while sent < out.len() || filled < into.len() {
            let piece = &out[sent..out.len().min(sent + PIECE_BYTES)];
            let wrote = match send(to, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) => 0,
                wrote => wrote?,
            };
            sent += wrote;
            let end = into.len().min(filled + PIECE_BYTES);
            let mut read = 0;
            if filled < end {
                read = match recv(from, &mut into[filled..end], RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
                    Err(Errno::AGAIN) => 0,
                    read => read?.0,
                };
                filled += read;
                landed(into, filled);
            }
            if wrote == 0 && read == 0 {
                let mut set = Vec::with_capacity(2);
                if sent < out.len() {
                    set.push(PollFd::new(to, PollFlags::OUT));
                }
                if filled < into.len() {
                    set.push(PollFd::new(from, PollFlags::IN));
                }
                poll(&mut set, None)?;
            }
        }
        Ok(())
    }
}
