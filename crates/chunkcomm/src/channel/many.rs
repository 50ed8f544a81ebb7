//! Many senders at once: encode once for all, wait for any.

use super::bytes_sender::BytesSender;
use super::ends::SendingEnd;
use super::sender::Sender;
use super::tx::{Tx, Waiting};
use crate::driver::staging::Staged;
use crate::error::{SendAllError, SendError};
use crate::proto::codec;
use bytes::Bytes;
use serde::Serialize;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// Sends `value` to all of `senders`; it is encoded once.
///
/// # Errors
///
/// The first failure, with the number of senders that accepted before it. Those
/// after it are not tried.
///
/// # Cancel safety
///
/// Dropped before it returns, some of the first senders accepted.
pub async fn send_to_all<T: Serialize>(
    senders: &mut [Sender<T>],
    value: &T,
) -> Result<(), SendAllError> {
    let mut encoded = Vec::new();
    let failed = |accepted, error| SendAllError { accepted, error };
    codec::encode_into_vec(value, &mut encoded)
        .map_err(|error| failed(0, SendError::Encode(Arc::new(error))))?;
    to_all(senders.iter_mut().map(Sender::tx), &Bytes::from(encoded)).await
}

/// Sends `message` to all of `senders`; above 8 KiB they share its bytes.
///
/// # Errors
///
/// As [`send_to_all`].
///
/// # Cancel safety
///
/// Dropped before it returns, some of the first senders accepted.
pub async fn send_bytes_to_all(
    senders: &mut [BytesSender],
    message: &Bytes,
) -> Result<(), SendAllError> {
    to_all(senders.iter_mut().map(BytesSender::tx), message).await
}

async fn to_all(
    senders: impl Iterator<Item = &mut Tx>,
    message: &Bytes,
) -> Result<(), SendAllError> {
    for (accepted, tx) in senders.enumerate() {
        let failed = |error| SendAllError { accepted, error };
        let waiting = Waiting::Bytes(message);
        if tx.stage_waiting(&waiting).map_err(failed)? == Staged::Full {
            tx.stage_later(waiting).await.map_err(failed)?;
        }
    }
    Ok(())
}

/// Waits until one of `senders` accepts a message of `bytes` encoded bytes
/// without waiting (at most 8 KiB); says its index. Of several the first.
///
/// The senders are of one type, or references to senders of any type:
/// `&mut [&mut numbers as &mut dyn SendingEnd, &mut texts]`.
///
/// # Errors
///
/// The index of a sender that failed, and why.
///
/// # Cancel safety
///
/// Safe: nothing is reserved.
pub async fn any_ready<S: SendingEnd>(
    senders: &mut [S],
    bytes: usize,
) -> Result<usize, (usize, SendError)> {
    poll_fn(|context| {
        for (index, sender) in senders.iter_mut().enumerate() {
            match sender.poll_room(context, bytes) {
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(index)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err((index, error))),
                Poll::Pending => {}
            }
        }
        Poll::Pending
    })
    .await
}
