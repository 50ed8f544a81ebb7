//! Errors of a page.

use chunkcomm::error::WatchError;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Why a page is not there.
#[derive(Clone)]
#[non_exhaustive]
pub enum PageError {
    /// The address is none.
    Address {
        /// The address that was given.
        given: String,
    },
    /// Other machines can reach the address.
    BeyondLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The page cannot listen at the address.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: Arc<io::Error>,
    },
    /// The page's thread could not be started, or the system gave no random numbers.
    System(Arc<io::Error>),
    /// The node cannot be shown by the pages of other members: it is closed, or it is shown already.
    Join(WatchError),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageError::Address { given } => write!(
                f,
                "{given:?} is no address of a page: it is to be like 127.0.0.1:8080; port 0 takes a free one"
            ),
            PageError::BeyondLoopback { address } => {
                let port = address.port();
                write!(
                    f,
                    "a page at {address} could be read on its way, as it has no TLS: listen on 127.0.0.1, and come \
                     from another machine with ssh -L {port}:127.0.0.1:{port}"
                )
            }
            PageError::Listen { address, .. } => write!(f, "the page cannot listen at {address}"),
            PageError::System(_) => f.write_str("the page cannot be started"),
            PageError::Join(_) => f.write_str("the node cannot be shown by other members"),
        }
    }
}

impl Error for PageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            PageError::Address { .. } | PageError::BeyondLoopback { .. } => None,
            PageError::Listen { error, .. } | PageError::System(error) => Some(&**error),
            PageError::Join(error) => Some(error),
        }
    }
}

chunkcomm::debug_with_causes!(PageError);
