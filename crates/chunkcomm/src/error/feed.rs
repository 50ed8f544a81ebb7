//! Errors of feeds and their subscribers.

use super::{OpenError, RecvError};
use crate::proto::codec::EncodeError;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why there is no feed, a message was not sent, or no further message of a feed will come.
#[derive(Clone)]
#[non_exhaustive]
pub enum FeedError {
    /// The feed has ended this subscriber, which was behind its
    /// [backlog](crate::feed::FeedOptions::backlog).
    Behind {
        /// The feed's name.
        feed: String,
        /// The name of its node.
        peer: String,
    },
    /// The feed is lost, its type is another one, or one message cannot be decoded.
    Recv(RecvError),
    /// The name or the type cannot be used, or the node cannot be reached.
    Open(OpenError),
    /// The message cannot be encoded.
    Encode(Arc<EncodeError>),
    /// This node has a feed of this name already.
    Taken {
        /// The feed's name.
        feed: String,
    },
    /// No feed has taken the subscriber within the time of
    /// [`ChannelOptions::within`](crate::ChannelOptions::within).
    Late {
        /// The feed's name.
        feed: String,
        /// The time.
        waited: Duration,
    },
    /// This node is closed.
    Closed,
}

impl fmt::Display for FeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedError::Behind { feed, peer } => {
                write!(f, "feed {feed:?} of {peer} has ended this subscriber, which was behind")
            }
            FeedError::Recv(error) => error.fmt(f),
            FeedError::Open(error) => error.fmt(f),
            FeedError::Encode(_) => f.write_str("the message cannot be encoded"),
            FeedError::Taken { feed } => write!(f, "this node has a feed {feed:?} already"),
            FeedError::Late { feed, waited } => {
                write!(f, "no feed {feed:?} has taken this subscriber within {waited:?}")
            }
            FeedError::Closed => f.write_str("the node is closed"),
        }
    }
}

crate::debug_with_causes!(FeedError);

impl Error for FeedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            FeedError::Recv(error) => error.source(),
            FeedError::Open(error) => error.source(),
            FeedError::Encode(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}
