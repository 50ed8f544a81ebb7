//! What can go wrong, by operation. Causes that many share are cheap to clone.

mod link;
mod node;
mod port;
mod recv;
mod send;

pub use link::{LinkCause, LinkError};
pub use node::{AcceptError, ConnectError, HelloCause, NodeError, OpenError, TypeRefused};
pub use port::{HandOverError, PortError, ValueError};
pub use recv::{DecodeFailed, RecvError, TryRecvError};
pub use send::{
    Account, ChannelLost, ChannelName, ChannelRefused, CloseError, RefusalReason, SendAllError,
    SendError, TrySendError, Unacknowledged,
};
