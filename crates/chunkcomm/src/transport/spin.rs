//! The spinning of a node that polls busily. On Linux its sockets are looked at without a turn of
//! the runtime ([`sockets`]). Elsewhere the runtime is kept from sleeping.

#[cfg(target_os = "linux")]
mod sockets;

#[cfg(target_os = "linux")]
use super::Below;
use super::Transport;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::sync::{Arc, Weak};
use std::task::Poll;

/// Number of looks between two turns of the runtime, which serves timers, other sockets and
/// wake-ups from other threads.
const LOOKS_PER_TURN: usize = 16;

/// Keeps a node's core busy until the last owner drops it.
#[derive(Debug)]
pub(crate) struct Spinner {
    #[cfg(target_os = "linux")]
    sockets: Option<Arc<sockets::Sockets>>,
}

impl Spinner {
    /// Makes a spinner; `portable` leaves out features of Linux alone.
    pub(crate) fn new(portable: bool) -> io::Result<Arc<Spinner>> {
        #[cfg(target_os = "linux")]
        let spinner = Spinner {
            sockets: if portable { None } else { Some(Arc::new(sockets::Sockets::new()?)) },
        };
        #[cfg(not(target_os = "linux"))]
        let spinner = {
            let _ = portable;
            Spinner {}
        };
        Ok(Arc::new(spinner))
    }

    /// Returns the transport as one that this spinner looks after, if it has a socket.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        transport: Box<dyn Transport>,
    ) -> io::Result<Box<dyn Transport>> {
        #[cfg(target_os = "linux")]
        if let Some(sockets) = &self.sockets {
            return match transport.into_below()? {
                Below::Socket(socket) => sockets.adopt(socket, Arc::clone(self)),
                Below::Nothing(other) => Ok(other),
            };
        }
        Ok(transport)
    }

    /// Looks for sockets that became ready; returns whether it is the runtime's turn in any case.
    fn look(&self) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(sockets) = &self.sockets {
            return sockets.look();
        }
        true
    }
}

/// Keeps a runtime of one thread from sleeping as long as the spinner has an owner.
pub(crate) async fn spin(spinner: Weak<Spinner>) {
    let mut looks = 0;
    while let Some(spinner) = spinner.upgrade() {
        let is_found = spinner.look();
        drop(spinner);
        looks += 1;
        if is_found || looks == LOOKS_PER_TURN {
            looks = 0;
            tokio::task::yield_now().await;
        } else {
            behind_the_ready().await;
        }
    }
}

/// Lets the tasks run that are ready, without a turn of the runtime.
async fn behind_the_ready() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
