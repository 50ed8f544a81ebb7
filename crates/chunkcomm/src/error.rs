//! Errors, by operation. Shared causes are cheap to clone.
//!
//! One rule for all messages: `{}` shows what this error knows, without the message of its
//! `source()`. An error that only passes another one on has that one's message and source.
//! `{:?}` is the message with all causes ([`with_causes`](crate::with_causes)), since `main`
//! prints `{:?}`.

mod link;
mod log;
mod node;
mod port;
mod recv;
mod send;

use std::fmt;

pub use link::{LinkCause, LinkError};
pub use log::{LogCause, LogError};
pub use node::{AcceptError, ConnectError, HelloCause, NodeError, OpenError, TypeRefused};
pub use port::{HandOverError, PortError, ValueError};
pub use recv::{DecodeFailed, RecvError, TryRecvError};
pub use send::{
    Account, ChannelLost, ChannelName, ChannelRefused, CloseError, RefusalReason, SendAllError,
    SendError, SendToAllError, TrySendError, Unacknowledged,
};

/// A channel in an error's text. The library's own channels have names that mean nothing to people.
struct Named<'a>(&'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named(name) = self;
        if name.starts_with(crate::moving::home::PORT_PREFIX) {
            f.write_str("the channel of a port")
        } else if name.starts_with('\0') || name.starts_with("chunkcomm.") {
            f.write_str("a channel of the library")
        } else {
            write!(f, "channel {name:?}")
        }
    }
}

#[cfg(test)]
mod tests;
