//! Many senders at once: encode once for all, wait for any.

use super::bytes_sender::BytesSender;
use super::ends::SendingEnd;
use super::sender::Sender;
use super::tx::{Tx, Waiting};
use crate::driver::staging::Staged;
use crate::error::{SendError, SendToAllError, TrySendError};
use crate::proto::codec;
use bytes::Bytes;
use serde::Serialize;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// Sends `value` to all of `senders` that can take it; it is encoded once.
///
/// Sends in the order of the slice. It waits for a sender whose outbox is full, which holds up the
/// senders behind. It passes over a sender that fails.
///
/// ```
/// use chunkcomm::Node;
/// use chunkcomm::channel::send_to_all;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = Node::builder().build().await?;
/// let peer = node.local().await?;
/// let mut senders = Vec::new();
/// for name in ["one", "two"] {
///     senders.push(node.open::<u32>(&peer, name).await?);
/// }
/// drop(node.accept::<u32>("one").await?);
/// let (_, mut two) = node.accept::<u32>("two").await?;
/// senders[0].closed().await;
///
/// if let Err(skipped) = send_to_all(&mut senders, &7).await {
///     // From the last to the first, so that the indices stay right.
///     for (index, error) in skipped.failed.iter().rev() {
///         println!("no more for {}: {error}", senders[*index].name());
///         drop(senders.remove(*index));
///     }
/// }
/// assert_eq!(senders.len(), 1);
/// assert_eq!(two.recv().await?, Some(7));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The senders that did not accept the value, by index, each with the reason; all others
/// accepted it once. No sender accepts a value that cannot be encoded. After
/// [`SendError::TooLarge`] and [`SendError::Encode`] a sender can be used for other values.
///
/// # Cancel safety
///
/// Dropped before it returns, it has left the value with the senders before the one that it
/// waited for: their [`stats`](Sender::stats) count it. Try the others again.
pub async fn send_to_all<T: Serialize>(
    senders: &mut [Sender<T>],
    value: &T,
) -> Result<(), SendToAllError> {
    let mut encoded = Vec::new();
    if let Err(error) = codec::encode_into_vec(value, &mut encoded) {
        let error = SendError::Encode(Arc::new(error));
        let failed = (0..senders.len()).map(|index| (index, error.clone())).collect();
        return none_failed(failed);
    }
    to_all(senders.iter_mut().map(Sender::tx), &Bytes::from(encoded)).await
}

/// As [`send_to_all`], for bytes; the senders share messages above 8 KiB.
///
/// # Errors
///
/// As [`send_to_all`].
///
/// # Cancel safety
///
/// As [`send_to_all`].
pub async fn send_bytes_to_all(
    senders: &mut [BytesSender],
    message: &Bytes,
) -> Result<(), SendToAllError> {
    to_all(senders.iter_mut().map(BytesSender::tx), message).await
}

async fn to_all(
    senders: impl Iterator<Item = &mut Tx>,
    message: &Bytes,
) -> Result<(), SendToAllError> {
    let mut failed = Vec::new();
    for (index, tx) in senders.enumerate() {
        let waiting = Waiting::Bytes(message);
        let sent = match tx.stage_waiting(&waiting) {
            Ok(Staged::Full) => tx.stage_later(waiting).await,
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            failed.push((index, error));
        }
    }
    none_failed(failed)
}

/// Sends `value` to all of `senders` that can take it at once; it is encoded once. Returns the others, by
/// index, each with the reason: [`TrySendError::Full`], or that it failed.
///
/// For values of which a slow receiver may miss some. With a limit on what waits for it
/// ([`backlog`](super::ChannelOptions::backlog)), the sender of a slow receiver is full early.
///
/// ```
/// use chunkcomm::channel::try_send_to_all;
/// use chunkcomm::{Node, TrySendError, channel};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = Node::builder().build().await?;
/// let peer = node.local().await?;
/// let mut senders = Vec::new();
/// for name in ["fast", "slow"] {
///     senders.push(node.open::<u64>(&peer, channel(name).backlog(4096)).await?);
/// }
/// let (_, mut fast) = node.accept::<u64>("fast").await?;
/// let (_, _slow) = node.accept::<u64>("slow").await?;
/// let mut missed = 0;
/// for price in 0..10_000 {
///     for (index, error) in try_send_to_all(&mut senders, &price) {
///         assert!(index == 1 && matches!(error, TrySendError::Full));
///         missed += 1;
///     }
///     assert_eq!(fast.recv().await?, Some(price));
/// }
/// println!("the slow one missed {missed} prices");
/// # assert!(missed > 5_000);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn try_send_to_all<T: Serialize>(
    senders: &mut [Sender<T>],
    value: &T,
) -> Vec<(usize, TrySendError)> {
    let mut encoded = Vec::new();
    if let Err(error) = codec::encode_into_vec(value, &mut encoded) {
        let error = SendError::Encode(Arc::new(error));
        let failed = |index| (index, TrySendError::Failed(error.clone()));
        return (0..senders.len()).map(failed).collect();
    }
    try_to_all(senders.iter_mut().map(Sender::tx), &Bytes::from(encoded))
}

/// As [`try_send_to_all`], for bytes; the senders share messages above 8 KiB.
#[must_use]
pub fn try_send_bytes_to_all(
    senders: &mut [BytesSender],
    message: &Bytes,
) -> Vec<(usize, TrySendError)> {
    try_to_all(senders.iter_mut().map(BytesSender::tx), message)
}

fn try_to_all<'a>(
    senders: impl Iterator<Item = &'a mut Tx>,
    message: &Bytes,
) -> Vec<(usize, TrySendError)> {
    let sent = senders.map(|tx| match tx.stage_waiting(&Waiting::Bytes(message)) {
        Ok(Staged::Done) => Ok(()),
        Ok(Staged::Full) => Err(TrySendError::Full),
        Err(error) => Err(TrySendError::Failed(error)),
    });
    sent.enumerate().filter_map(|(index, sent)| Some((index, sent.err()?))).collect()
}

fn none_failed(failed: Vec<(usize, SendError)>) -> Result<(), SendToAllError> {
    if failed.is_empty() { Ok(()) } else { Err(SendToAllError { failed }) }
}

/// Waits until one of `senders` accepts a message of `bytes` encoded bytes (at most
/// 8 KiB) without waiting. Returns its index; of several the first.
///
/// The senders are of one type, or references to senders of any type:
/// `&mut [&mut numbers as &mut dyn SendingEnd, &mut texts]`.
///
/// # Errors
///
/// The index of a sender that failed, with its error.
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
