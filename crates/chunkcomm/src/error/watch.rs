//! Errors of values that are published and watched.

use super::{ChannelRefused, DecodeFailed, Named, OpenError};
use crate::proto::codec::EncodeError;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a value is not published, or why no further value of a publisher will come.
#[derive(Clone)]
#[non_exhaustive]
pub enum WatchError {
    /// The publisher has ended the watch.
    Ended,
    /// The publisher has another type.
    Refused(Arc<ChannelRefused>),
    /// A value cannot be decoded.
    Decode(Arc<DecodeFailed>),
    /// The name or the type cannot be used.
    Open(OpenError),
    /// The first value cannot be encoded.
    Encode(Arc<EncodeError>),
    /// This node publishes something under this name already.
    Taken {
        /// The name.
        channel: String,
    },
    /// No value came within the time of
    /// [`ChannelOptions::within`](crate::ChannelOptions::within).
    Late {
        /// The name.
        channel: String,
        /// The time.
        waited: Duration,
    },
    /// This node is closed.
    Closed,
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchError::Ended => f.write_str("the publisher has ended the watch"),
            WatchError::Refused(refused) => refused.fmt(f),
            WatchError::Decode(failed) => {
                let DecodeFailed { channel, peer, .. } = &**failed;
                write!(f, "{}: a value of {peer} cannot be decoded", Named(channel))
            }
            WatchError::Open(error) => error.fmt(f),
            WatchError::Encode(_) => f.write_str("the value cannot be encoded"),
            WatchError::Taken { channel } => {
                write!(f, "this node publishes a value under {channel:?} already")
            }
            WatchError::Late { channel, waited } => {
                write!(f, "no value of {} came within {waited:?}", Named(channel))
            }
            WatchError::Closed => f.write_str("the node is closed"),
        }
    }
}

crate::debug_with_causes!(WatchError);

impl Error for WatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            WatchError::Decode(failed) => Some(&failed.error),
            WatchError::Open(error) => error.source(),
            WatchError::Encode(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}
