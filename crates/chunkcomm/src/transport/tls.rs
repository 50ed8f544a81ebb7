//! TLS 1.3 over another transport. Both ends show a certificate and prove that they have its key.
//! [`identity`] makes the one that a cluster shares.
//!
//! The handshake is bound to the bytes exchanged before it: both ends name the same `binding` as
//! the only application protocol (ALPN) that they speak. TLS itself protects that name.

mod certificate;
pub(crate) mod identity;
#[cfg(test)]
mod tests;

#[cfg(target_os = "linux")]
use super::Below;
use super::Transport;
use super::shown::Shown;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Largest handshake of a peer in bytes. A chain of four certificates has 2 to 6 KiB. Copies that
/// are made of these bytes come on top.
const HANDSHAKE_BYTES_MAX: usize = 24 * 1024;

/// Largest part of the handshake in bytes before the keys are agreed: the peer's hello, and a
/// second one if the first named no suitable group. With the largest keys in use today a hello has
/// less than 2 KiB. rustls keeps up to two copies of it until the peer has shown its certificate,
/// and parses it to many times its size.
const HELLO_BYTES_MAX: usize = 6 * 1024;

/// Plaintext that is encrypted at once, in bytes: a packet of the usual size with the head of a
/// fragment, so that it takes one write.
const WRITE_BYTES_MAX: usize = 68 * 1024;

/// Bytes read at once during the handshake and from a link with little traffic.
const READ_BYTES_MIN: usize = 4 * 1024;

/// Bytes read at once from a link with much traffic: four full records.
const READ_BYTES_MAX: usize = 4 * (16 * 1024 + 22);

/// Factor by which a read that fills the buffer enlarges it.
const READ_GROWTH: usize = 4;

/// Reads in a row that would fit a small buffer, after which the buffer becomes small.
const SMALL_READS_MAX: u32 = 64;

/// The error when the two ends name different protocols.
const OTHER_CONNECTION: &str = "the peer's TLS belongs to another connection";

/// The TLS configurations of one node, for dialling and for being dialled.
#[derive(Clone, Debug)]
pub(crate) struct TlsConfigs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// Whether a certificate tells who a peer is.
    identify: bool,
}

impl TlsConfigs {
    /// Takes the configurations, but without tickets, resumption and early data: each connection
    /// proves everything anew.
    pub(crate) fn new(client: &ClientConfig, server: &ServerConfig) -> TlsConfigs {
        let mut client = client.clone();
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_early_data = false;
        let mut server = server.clone();
        server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.max_early_data_size = 0;
        server.send_half_rtt_data = false;
        TlsConfigs { client: Arc::new(client), server: Arc::new(server), identify: false }
    }

    /// Returns these for peers each of which has a certificate of its own.
    pub(crate) fn identifying(self) -> TlsConfigs {
        TlsConfigs { identify: true, ..self }
    }

    /// Shakes hands as the end that dialled a peer named `name`.
    pub(crate) async fn dialled(
        &self,
        below: Box<dyn Transport>,
        name: ServerName<'static>,
        binding: Vec<u8>,
    ) -> io::Result<Box<dyn Transport>> {
        let mut config = ClientConfig::clone(&self.client);
        config.alpn_protocols = vec![binding.clone()];
        let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        self.shake_hands(below, connection.into(), &binding).await
    }

    /// Shakes hands as the end that was dialled.
    pub(crate) async fn accepted(
        &self,
        below: Box<dyn Transport>,
        binding: Vec<u8>,
    ) -> io::Result<Box<dyn Transport>> {
        let mut config = ServerConfig::clone(&self.server);
        config.alpn_protocols = vec![binding.clone()];
        let connection = ServerConnection::new(Arc::new(config)).map_err(io::Error::other)?;
        self.shake_hands(below, connection.into(), &binding).await
    }

    async fn shake_hands(
        &self,
        below: Box<dyn Transport>,
        connection: Connection,
        binding: &[u8],
    ) -> io::Result<Box<dyn Transport>> {
        let mut tls = Tls::shake_hands(below, connection, binding).await?;
        if self.identify {
            tls.shown = Shown::of(tls.connection.peer_certificates().unwrap_or_default());
        }
        Ok(Box::new(tls))
    }
}

/// A transport whose bytes are encrypted.
struct Tls {
    below: Box<dyn Transport>,
    connection: Connection,
    incoming: Incoming,
    /// Plaintext bytes that were encrypted and are not all written yet. They are reported once they
    /// are written; until then the caller offers the same bytes again.
    taken: usize,
    /// The peer has ended its direction.
    ended: bool,
    /// The error from bytes that no member of the cluster would have written.
    failed: Option<rustls::Error>,
    /// The peer's certificates, if they tell who it is.
    shown: Shown,
}

impl Tls {
    async fn shake_hands(
        below: Box<dyn Transport>,
        mut connection: Connection,
        binding: &[u8],
    ) -> io::Result<Tls> {
        connection.set_buffer_limit(Some(WRITE_BYTES_MAX));
        let incoming = Incoming::new();
        let (taken, ended, failed, shown) = (0, false, None, Shown::default());
        let mut tls = Tls { below, connection, incoming, taken, ended, failed, shown };
        let mut came = 0;
        while tls.connection.is_handshaking() {
            poll_fn(|context| tls.poll_flush(context)).await?;
            if tls.connection.is_handshaking() {
                tls.more_handshake(&mut came).await?;
            }
        }
        // The last bytes of our handshake, if there are any.
        poll_fn(|context| tls.poll_flush(context)).await?;
        tls.check(binding)?;
        tls.incoming.room_max = READ_BYTES_MAX;
        Ok(tls)
    }

    /// Handles some more of the peer's handshake, of which `came` bytes came before.
    async fn more_handshake(&mut self, came: &mut usize) -> io::Result<()> {
        if self.incoming.is_empty() {
            let read =
                poll_fn(|context| self.incoming.poll_fill(context, &mut *self.below)).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let agreed = self.connection.negotiated_key_exchange_group().is_some();
        let before = self.incoming.len();
        let fed = self.feed();
        *came += before - self.incoming.len();
        if !agreed && *came > HELLO_BYTES_MAX {
            return Err(wrong("the peer's TLS hello is longer than 6 KiB"));
        }
        if *came > HANDSHAKE_BYTES_MAX {
            return Err(wrong("the peer's TLS handshake is longer than 24 KiB"));
        }
        if fed.is_err() {
            // The peer learns why; whether that arrives changes nothing here.
            let _ = poll_fn(|context| self.poll_flush(context)).await;
        }
        fed
    }

    /// Checks the points that rustls leaves to the configurations, which may be the user's own.
    fn check(&self, binding: &[u8]) -> io::Result<()> {
        if self.connection.protocol_version() != Some(rustls::ProtocolVersion::TLSv1_3) {
            return Err(wrong("the peer speaks no TLS 1.3"));
        }
        if self.connection.peer_certificates().is_none_or(<[_]>::is_empty) {
            return Err(wrong("the peer showed no certificate"));
        }
        if self.connection.alpn_protocol() != Some(binding) {
            return Err(wrong(OTHER_CONNECTION));
        }
        Ok(())
    }

    /// Writes the encrypted bytes.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.connection.wants_write() {
            let mut below = Polled { below: &mut *self.below, context };
            match self.connection.write_tls(&mut below) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Gives rustls some of the received bytes. It takes at most 4 KiB at once.
    fn feed(&mut self) -> io::Result<()> {
        let fed = self.connection.read_tls(&mut self.incoming.bytes())?;
        self.incoming.consume(fed);
        let state = self.connection.process_new_packets();
        match state {
            Ok(_) => Ok(()),
            Err(rustls::Error::NoApplicationProtocol) => Err(wrong(OTHER_CONNECTION)),
            Err(error) => {
                self.failed = Some(error.clone());
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    /// Decrypts into `buffer` until it is full or nothing more is there. Returns the number of
    /// bytes; 0 means that the peer has ended its direction.
    fn poll_decrypt(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = &self.failed {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error.clone())));
        }
        let mut filled = 0;
        while filled < buffer.len() && !self.ended {
            match self.connection.reader().read(&mut buffer[filled..]) {
                Ok(0) => self.ended = true,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.incoming.is_empty() {
                        let fed = self.feed();
                        self.answer(context);
                        match fed {
                            Ok(()) => continue,
                            // The decrypted bytes go first; the error comes again.
                            Err(_) if filled > 0 => return Poll::Ready(Ok(filled)),
                            Err(error) => return Poll::Ready(Err(error)),
                        }
                    }
                    match self.incoming.poll_fill(context, &mut *self.below) {
                        Poll::Ready(Ok(0)) => self.ended = true,
                        Poll::Ready(Ok(_)) => {}
                        // The decrypted bytes go first; the error comes again.
                        _ if filled > 0 => return Poll::Ready(Ok(filled)),
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(filled))
    }

    /// Writes an answer of rustls to received bytes: a change of keys or an alert. The next write
    /// or read sends the part that the socket does not take.
    fn answer(&mut self, context: &mut Context<'_>) {
        if self.connection.wants_write() {
            // A broken connection shows at the next read.
            let _ = self.poll_flush(context);
        }
    }
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Transport for Tls {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_decrypt(context, buffer)
    }

    fn poll_read_two(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>; 2],
    ) -> Poll<io::Result<usize>> {
        let [first, second] = buffers;
        if first.is_empty() {
            return self.poll_decrypt(context, second);
        }
        let read = ready!(self.poll_decrypt(context, first))?;
        if read < first.len() || second.is_empty() {
            return Poll::Ready(Ok(read));
        }
        // Only bytes that are there: an error or the end comes again.
        match self.poll_decrypt(context, second) {
            Poll::Ready(Ok(more)) => Poll::Ready(Ok(read + more)),
            _ => Poll::Ready(Ok(read)),
        }
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.taken == 0 {
            // An answer that waits leaves no room.
            ready!(self.poll_flush(context))?;
            self.taken = self.connection.writer().write_vectored(buffers)?;
        }
        ready!(self.poll_flush(context))?;
        Poll::Ready(Ok(std::mem::take(&mut self.taken)))
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sent once, however often it is asked for.
        self.connection.send_close_notify();
        ready!(self.poll_flush(context))?;
        self.below.poll_shutdown(context)
    }

    fn came_from(&self) -> Option<crate::Address> {
        self.below.came_from()
    }

    fn shown(&self) -> Shown {
        self.shown.clone()
    }

    #[cfg(target_os = "linux")]
    fn into_below(self: Box<Self>) -> io::Result<Below> {
        Ok(Below::Nothing(self))
    }
}

/// A transport in the form to which rustls writes.
struct Polled<'a, 'c> {
    below: &'a mut dyn Transport,
    context: &'a mut Context<'c>,
}

impl Write for Polled<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.below.poll_write(self.context, buffers) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that were read and not yet given to rustls, which would read 4 KiB a system call.
struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Size up to which the buffer grows.
    room_max: usize,
    small_reads: u32,
}

impl Incoming {
    fn new() -> Incoming {
        let buffer = vec![0; READ_BYTES_MIN];
        Incoming { buffer, start: 0, end: 0, room_max: READ_BYTES_MIN, small_reads: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn len(&self) -> usize {
        self.end - self.start
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
    }

    /// Reads, once all bytes were consumed; 0 means that nothing more comes.
    fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        below: &mut dyn Transport,
    ) -> Poll<io::Result<usize>> {
        let read = ready!(below.poll_read(context, &mut self.buffer))?;
        (self.start, self.end) = (0, read);
        self.fit(read);
        Poll::Ready(Ok(read))
    }

    /// Fits the buffer to the link's traffic, for the next read.
    fn fit(&mut self, read: usize) {
        let room = self.buffer.len();
        if read == room {
            // Bytes that were read stay where they are.
            self.buffer.resize((room * READ_GROWTH).min(self.room_max), 0);
        }
        self.small_reads = if read < READ_BYTES_MIN { self.small_reads + 1 } else { 0 };
        if self.small_reads == SMALL_READS_MAX && room > READ_BYTES_MIN {
            self.buffer.truncate(READ_BYTES_MIN);
            self.buffer.shrink_to_fit();
        }
    }
}
