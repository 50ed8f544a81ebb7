//! Many senders at once: encode once for all, wait for any.

use super::sender::Sender;
use super::tx::Waiting;
use crate::driver::staging::Staged;
use crate::error::{SendAllError, SendError};
use crate::proto::codec;
use crate::proto::limits::INLINE_BYTES_MAX;
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
    let encoded = Bytes::from(encoded);
    for (accepted, sender) in senders.iter_mut().enumerate() {
        let tx = sender.tx();
        let large = encoded.len() > INLINE_BYTES_MAX;
        let staged = tx
            .with(|end| if large { end.stage_large(&encoded) } else { end.stage_slice(&encoded) });
        let waiting = if large { Waiting::Large(&encoded) } else { Waiting::Slice(&encoded) };
        match staged {
            Ok(Staged::Done) => {}
            Ok(Staged::Full) => {
                tx.stage_later(waiting).await.map_err(|error| failed(accepted, error))?;
            }
            Err(error) => return Err(failed(accepted, error)),
        }
    }
    Ok(())
}

/// Waits until one of `senders` accepts a message of `bytes` encoded bytes
/// without waiting (at most 8 KiB); says its index. Of several the first.
///
/// # Errors
///
/// The index of a sender that failed, and why.
///
/// # Cancel safety
///
/// Safe: nothing is reserved.
pub async fn any_ready<T>(
    senders: &mut [Sender<T>],
    bytes: usize,
) -> Result<usize, (usize, SendError)> {
    poll_fn(|context| {
        for (index, sender) in senders.iter_mut().enumerate() {
            match sender.poll_reserve(context, bytes) {
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(index)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err((index, error))),
                Poll::Pending => {}
            }
        }
        Poll::Pending
    })
    .await
}
