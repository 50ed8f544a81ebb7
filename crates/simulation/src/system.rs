//! A simulated network in the place of a program's system: [`World`], [`Listener`] and
//! [`Transport`].

use crate::lan::{Lan, Seat, State, error};
use crate::network::{EndId, HostId, Read};
use chunkcomm::Address;
use chunkcomm::host::Instant;
#[cfg(target_os = "linux")]
use chunkcomm::layer::world::Below;
use chunkcomm::layer::world::{self, BoxFuture, Connecting, Listener, Process, Transport, World};
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

/// The LAN as the world of a thread.
pub(crate) struct System(pub(crate) Arc<Lan>);

impl World for System {
    fn host(&self, name: &str) -> Option<u32> {
        self.0.with(|network, _| network.host(name)).map(HostId::number)
    }

    fn connect(&self, from: Process, host: &str, port: u16) -> Connecting {
        let (lan, host) = (Arc::clone(&self.0), host.to_owned());
        Box::pin(async move { connect(lan, Seat::of(from), &host, port).await })
    }

    fn listen(&self, process: Process, port: u16) -> io::Result<Box<dyn Listener>> {
        listen(&self.0, Seat::of(process), port)
    }

    fn name_of(&self, host: u32) -> String {
        self.0.with(|network, _| network.host_name(HostId::of_number(host)).to_owned())
    }

    fn runs(&self, host: Option<u32>) {
        self.0.doings.runs(host);
        // Asked as by the program, so that one that is polled for ever is found.
        let now = if host.is_some() && !thread::panicking() {
            Some(Instant::now().time())
        } else {
            world::glance()
        };
        if let Some(now) = now {
            self.0.doings.moved(now.0);
        }
    }

    fn cores(&self, host: u32) -> usize {
        self.0.with(|network, _| network.cores(HostId::of_number(host)) as usize)
    }

    fn variables(&self, process: Process) -> Vec<(String, String)> {
        let told = |state: &mut State, _| state.variables.get(&Seat::of(process)).cloned();
        self.0.act(told).unwrap_or_default()
    }

    fn work_of(&self, function: &str) -> Option<Duration> {
        self.0.with(|network, _| network.work_of(function))
    }

    fn compute(&self, process: Process, work: Duration) -> BoxFuture<'static, ()> {
        Box::pin(Arc::clone(&self.0).compute(Seat::of(process), work))
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.0.act(|state, _| state.entropy.fill(bytes));
    }
}

/// Connects a process to a port of a host.
async fn connect(
    lan: Arc<Lan>,
    from: Seat,
    host: &str,
    port: u16,
) -> io::Result<Box<dyn Transport>> {
    let end = lan.dial(from, host, port)?;
    // Dropped early, the socket lets go of the end.
    let socket = Socket { lan, end };
    poll_fn(|context| socket.lan.poll_connected(end, context)).await?;
    Ok(Box::new(socket))
}

/// Listens at a port of a process's host; 0 chooses one.
fn listen(lan: &Arc<Lan>, seat: Seat, port: u16) -> io::Result<Box<dyn Listener>> {
    let (port, number) = lan.listen(seat, port)?;
    Ok(Box::new(Socketed { lan: Arc::clone(lan), host: seat.host, port, number }))
}

struct Socketed {
    lan: Arc<Lan>,
    host: HostId,
    port: u16,
    number: u64,
}

impl Listener for Socketed {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Transport>>> {
        Box::pin(async move {
            let at = (self.host, self.port);
            let end = poll_fn(|context| self.lan.poll_accept(at, self.number, context)).await?;
            Ok(Box::new(Socket { lan: Arc::clone(&self.lan), end }) as Box<dyn Transport>)
        })
    }

    fn address(&self) -> Address {
        self.lan.address(self.host, self.port)
    }
}

impl Drop for Socketed {
    fn drop(&mut self) {
        self.lan.unlisten((self.host, self.port), self.number);
    }
}

/// One end of a connection.
struct Socket {
    lan: Arc<Lan>,
    end: EndId,
}

impl Transport for Socket {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.lan.act(|state, now| match state.network.read(now, self.end, buffer) {
            Ok(Read::Bytes(count)) => Poll::Ready(Ok(count)),
            Ok(Read::End) => Poll::Ready(Ok(0)),
            Ok(Read::Nothing) => {
                state.reader_waits(self.end, context);
                Poll::Pending
            }
            Err(cause) => Poll::Ready(Err(error(cause))),
        })
    }

    fn poll_read_two(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>; 2],
    ) -> Poll<io::Result<usize>> {
        let [first, second] = buffers;
        let read = self.poll_read(context, if first.is_empty() { second } else { first });
        match read {
            // The first is full: the second takes further bytes that have arrived.
            Poll::Ready(Ok(count)) if count == first.len() && count > 0 => {
                let more = self.lan.act(|state, now| state.network.read(now, self.end, second));
                let more = if let Ok(Read::Bytes(more)) = more { more } else { 0 };
                Poll::Ready(Ok(count + more))
            }
            read => read,
        }
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        self.lan.act(|state, now| match state.network.write_parts(now, self.end, buffers) {
            Ok(0) => {
                state.writer_waits(self.end, context);
                Poll::Pending
            }
            Ok(count) => Poll::Ready(Ok(count)),
            Err(cause) => Poll::Ready(Err(error(cause))),
        })
    }

    fn poll_shutdown(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lan.act(|state, now| state.network.finish(now, self.end));
        Poll::Ready(Ok(()))
    }

    #[cfg(target_os = "linux")]
    fn into_below(self: Box<Self>) -> io::Result<Below> {
        Ok(Below::Nothing(self))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.lan.leave(self.end);
    }
}
