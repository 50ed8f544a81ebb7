//! Errors, by operation. Shared causes are cheap to clone.
//!
//! One rule for all messages: `{}` shows what this error knows, without the message of its
//! `source()`. An error that only passes another one on has that one's message and source.
//! `{:?}` is the message with all causes ([`with_causes`](crate::with_causes)), since `main`
//! prints `{:?}`.
//!
//! A `source()` is the cause itself, never an `Arc` or a `Box` around it, so that it can be cast to
//! its type, such as [`std::io::Error`].

// Errors are derived (`thiserror`) but where that does not fit: a message that has that of another
// error, whose source is passed on; a cause in an `Arc` or a `Box`; a message of many conditions.

mod feed;
mod link;
mod log;
mod loss;
mod node;
mod recv;
mod send;
mod watch;

use std::fmt;

pub use crate::address::AddressError;
pub use crate::credential::CredentialError;
pub use crate::proto::credential::SeedTextError;
pub use crate::proto::error::ProtocolError;
pub use crate::proto::hello::{Disagreement, HelloError};
pub use crate::proto::loss::{Loss, LossKind};
pub use crate::proto::plain::Plain;
pub use feed::FeedError;
pub use link::{LinkCause, LinkError};
pub use log::LogError;
pub use node::{AcceptError, ConnectError, HelloCause, NodeError, OpenError, TypeRefused};
pub use recv::{DecodeFailed, RecvError, TryRecvError};
pub use send::{
    Account, ChannelLost, ChannelName, ChannelRefused, CloseError, RefusalReason, SendAllError,
    SendError, SendToAllError, TrySendError, Unacknowledged,
};
pub use watch::WatchError;

/// A channel in a text for people. The library's own channels have names that mean nothing to
/// people.
pub(crate) struct Named<'a>(pub(crate) &'a str);

/// As [`Named`], where the text has the word *channel* already.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named(name) = self;
        if !is_of_library(name) {
            f.write_str("channel ")?;
        }
        Quoted(name).fmt(f)
    }
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quoted(name) = self;
        match label(name) {
            Some((label, rest)) if label.ends_with(' ') => write!(f, "{label}{rest:?}"),
            Some((label, _)) => f.write_str(label),
            None if is_of_library(name) => f.write_str("a channel of the library"),
            None => write!(f, "{name:?}"),
        }
    }
}

fn is_of_library(name: &str) -> bool {
    name.starts_with('\0') || name.starts_with("chunkcomm.")
}

/// Returns the label of a reserved name, for people, and the rest of the name; see
/// [`crate::layer`]. A peer chose the label: it may have letters and spaces only.
fn label(name: &str) -> Option<(&str, &str)> {
    let (label, rest) = name.strip_prefix('\0')?.split_once('\0')?;
    let is_plain = label.chars().all(|c| c.is_ascii_alphabetic() || c == ' ');
    Some((label, rest)).filter(|_| is_plain && !label.is_empty())
}
