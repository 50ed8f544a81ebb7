//! The spinning of a node that polls busily. On Linux its sockets are looked at
//! without a turn of the runtime ([`sockets`]); elsewhere the runtime is kept
//! from sleeping.

#[cfg(target_os = "linux")]
mod sockets;

#[cfg(target_os = "linux")]
use super::Below;
use super::Transport;
use std::io;
use std::sync::{Arc, Weak};

/// Looks between two turns of the runtime, which sees to timers, to other
/// sockets and to wake-ups from other threads.
const LOOKS_PER_TURN: usize = 16;

/// What keeps a node's core busy: ends when nobody has it any more.
#[derive(Debug)]
pub(crate) struct Spinner {
    #[cfg(target_os = "linux")]
    sockets: Option<Arc<sockets::Sockets>>,
}

impl Spinner {
    /// `portable` leaves out what only Linux has.
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

    /// A transport that this spinner looks after.
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

    /// Looks for what became ready.
    fn look(&self) {
        #[cfg(target_os = "linux")]
        if let Some(sockets) = &self.sockets {
            for _ in 0..LOOKS_PER_TURN {
                if sockets.look() {
                    break;
                }
            }
        }
    }
}

/// Keeps a runtime of one thread from sleeping as long as somebody has the
/// spinner.
pub(crate) async fn spin(spinner: Weak<Spinner>) {
    while let Some(spinner) = spinner.upgrade() {
        spinner.look();
        drop(spinner);
        tokio::task::yield_now().await;
    }
}
