//! Errors of a page.

use chunkcomm::error::WatchError;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Why a page is not there.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// The address is none.
    #[error(
        "{given:?} is no address of a page: it is to be like 127.0.0.1:8080; port 0 takes a free one"
    )]
    Address {
        /// The address that was given.
        given: String,
    },
    /// Other machines can reach the address.
    #[error(
        "a page at {address} could be read on its way, as it has no TLS: listen on 127.0.0.1, and come from another \
         machine with ssh -L {port}:127.0.0.1:{port}", port = .address.port()
    )]
    BeyondLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The page cannot listen at the address.
    #[error("the page cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        #[source]
        error: Arc<io::Error>,
    },
    /// The page's thread could not be started, or the system gave no random numbers.
    #[error("the page cannot be started")]
    System(#[source] Arc<io::Error>),
    /// The node cannot be shown by the pages of other members: it is closed, or it is shown already.
    #[error("the node cannot be shown by other members")]
    Join(#[source] WatchError),
}

chunkcomm::debug_with_causes!(PageError);
