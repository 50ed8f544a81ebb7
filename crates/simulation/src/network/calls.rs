//! A host's calls on connections: listen, dial, write, read, let go.

use super::connection::{Connection, End, Item, Life};
use super::{EndId, FIRST_CHOSEN_PORT, HostId, Network, NetworkError, Read};
use bytes::BufMut;
use chunkcomm_proto::Time;
use std::ops::Deref;

/// Calls on connections.
impl Network {
    /// Listens at `port` of `host`; 0 chooses one. Returns the port.
    ///
    /// # Errors
    ///
    /// [`NetworkError::PortTaken`].
    pub fn listen(&mut self, host: HostId, port: u16) -> Result<u16, NetworkError> {
        let port = match port {
            0 => self.choose_port(host).ok_or(NetworkError::PortTaken)?,
            port => port,
        };
        match self.listening.insert((host, port)) {
            true => Ok(port),
            false => Err(NetworkError::PortTaken),
        }
    }

    fn choose_port(&mut self, host: HostId) -> Option<u16> {
        for _ in FIRST_CHOSEN_PORT..=u16::MAX {
            let port = self.hosts[host.index()].next_port;
            self.hosts[host.index()].next_port = port.checked_add(1).unwrap_or(FIRST_CHOSEN_PORT);
            if !self.listening.contains(&(host, port)) {
                return Some(port);
            }
        }
        None
    }

    /// Listens no more; connections live on.
    pub fn unlisten(&mut self, host: HostId, port: u16) {
        self.listening.remove(&(host, port));
    }

    /// Dials. After two latencies [`Connected`](super::Event::Connected) or
    /// [`Refused`](super::Event::Refused) follows; nothing follows when the other host does not
    /// run.
    ///
    /// # Errors
    ///
    /// [`NetworkError::NoWay`].
    pub fn dial(
        &mut self,
        now: Time,
        from: HostId,
        to: HostId,
        port: u16,
    ) -> Result<EndId, NetworkError> {
        self.advance(now);
        let way = self.wires.way(from, to).ok_or(NetworkError::NoWay)?;
        let back = self.wires.way(to, from).ok_or(NetworkError::NoWay)?;
        let connection = u32::try_from(self.connections.len()).expect("fewer than 4 Gi dials");
        let ends = [End::new(from, 0, way), End::new(to, port, back)];
        self.connections.push(Some(Box::new(Connection { ends, severed: false })));
        let dialled = EndId { connection, accepted: false };
        self.dispatch(dialled, Item::Dial);
        Ok(dialled)
    }

    /// Writes one packet: takes as many of `bytes` as the sending buffer has room for, and returns
    /// their number. If some are left, [`Writable`](super::Event::Writable) follows.
    ///
    /// # Errors
    ///
    /// [`NetworkError::Broken`], [`NetworkError::Finished`].
    pub fn write(&mut self, now: Time, end: EndId, bytes: &[u8]) -> Result<usize, NetworkError> {
        self.write_parts(now, end, &[bytes])
    }

    /// As [`Network::write`], for one packet of several parts.
    ///
    /// # Errors
    ///
    /// As [`Network::write`].
    pub fn write_parts<B: Deref<Target = [u8]>>(
        &mut self,
        now: Time,
        end: EndId,
        parts: &[B],
    ) -> Result<usize, NetworkError> {
        self.advance(now);
        let this = self.end_mut(end).ok_or(NetworkError::Broken)?;
        if this.broken || matches!(this.life, Life::Left | Life::Gone) {
            return Err(NetworkError::Broken);
        }
        if this.finishing {
            return Err(NetworkError::Finished);
        }
        let wanted = parts.iter().map(|part| part.len()).sum();
        let room = this.take_room(wanted);
        if room == 0 {
            return Ok(0);
        }
        this.push_packet(parts, room);
        self.handle_written(end, room);
        Ok(room)
    }

    /// Reads arrived bytes, at most as many as `buffer` holds.
    ///
    /// # Errors
    ///
    /// [`NetworkError::Broken`], once all arrived bytes are read.
    pub fn read(&mut self, now: Time, end: EndId, buffer: &mut [u8]) -> Result<Read, NetworkError> {
        self.read_to(now, end, buffer.len(), &mut &mut *buffer)
    }

    /// As [`Network::read`], for at most `most` bytes, which are appended to `to`.
    ///
    /// # Errors
    ///
    /// As [`Network::read`].
    pub fn read_to(
        &mut self,
        now: Time,
        end: EndId,
        most: usize,
        to: &mut impl BufMut,
    ) -> Result<Read, NetworkError> {
        self.advance(now);
        let slot = self.connections.get_mut(end.connection as usize);
        let connection = slot.and_then(Option::as_mut).ok_or(NetworkError::Broken)?;
        let at = usize::from(end.accepted);
        if matches!(connection.ends[at].life, Life::Left | Life::Gone) {
            return Err(NetworkError::Broken);
        }
        let read = connection.read(end.accepted, most, to);
        let this = &mut connection.ends[at];
        match read {
            Read::Nothing if this.broken && !this.has_unread() => Err(NetworkError::Broken),
            Read::Bytes(count) => {
                if let Some(total) = this.take_report() {
                    self.dispatch(end, Item::Consumed(total));
                }
                Ok(Read::Bytes(count))
            }
            read => Ok(read),
        }
    }

    /// Returns the number of bytes that [`Network::read`] finds at this end.
    #[must_use]
    pub fn readable(&self, end: EndId) -> usize {
        self.end_ref(end).map_or(0, End::unread_bytes)
    }

    /// Returns the number of bytes that left the other end and have not arrived at this one.
    #[must_use]
    pub fn on_the_way(&self, end: EndId) -> usize {
        match (self.end_ref(end), self.end_ref(end.peer())) {
            (Some(this), Some(peer)) => this.missing_of(peer),
            _ => 0,
        }
    }

    /// Ends the writing at this end.
    pub fn finish(&mut self, now: Time, end: EndId) {
        self.advance(now);
        if let Some(this) = self.end_mut(end) {
            this.finishing = true;
            self.finish_if_all_left(end);
        }
    }

    /// Lets go of an end. Written bytes are still sent. If bytes are unread, or more arrive, the
    /// connection breaks for the peer.
    pub fn leave(&mut self, now: Time, end: EndId) {
        self.advance(now);
        let Some(this) = self.end_mut(end) else { return };
        let abrupt = this.has_unread() || !this.arrived.is_empty() || this.life == Life::Opening;
        if this.life != Life::Gone {
            this.life = Life::Left;
        }
        this.finishing = true;
        if abrupt && !this.broken {
            self.reset_peer_of(end);
        } else {
            self.finish_if_all_left(end);
        }
        self.forget_if_over(end);
    }
}
