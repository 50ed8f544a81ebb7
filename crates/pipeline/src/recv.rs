//! Use of a buffer while it arrives, and its forwarding.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use chunkcomm::host::{self, timeout};
use chunkcomm::{BytesReceiver, Node, Peer};

use crate::error::{DeltaRecvError, DeltaSendError, Mismatch};
use crate::landing::{Origin, land};
use crate::memory::{Reader, share};
use crate::notices::{self, To};
use crate::proto::intervals::Reading;
use crate::proto::notice::Notice;
use crate::proto::opening::{Opening, OpeningFault, Shape};
use crate::pump::{self, Coming, Fate, Target};

/// Time in which a sender must state its shape, in its first message. A peer that opens the channel
/// and does not is no sender and must not keep others waiting.
const OPENING_WAIT: Duration = Duration::from_secs(10);

/// Receives the elements of one buffer and shows them as they land.
///
/// The bytes go from the socket into the buffer, whether or not somebody waits. Ask for elements by
/// [`range`](Self::wait), as [they come](Self::next) or [all at once](Self::finish).
/// [`forward`](Self::forward) passes them on without further work of the program.
///
/// When the receiver and its forwards are dropped before all has landed, the sender is stopped.
///
/// ```no_run
/// # async fn example(node: &chunkcomm::Node) -> Result<(), chunkcomm_pipeline::DeltaRecvError> {
/// use chunkcomm_pipeline::DeltaReceiver;
///
/// let mut waves = DeltaReceiver::accept(node, "waves", vec![0.0_f32; 1 << 20]).await?;
/// let mut sum = 0.0;
/// while let Some(part) = waves.next().await? {
///     sum += part.iter().sum::<f32>();
/// }
/// let buffer = waves.into_buffer().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a delta is stopped when its receiver is dropped"]
pub struct DeltaReceiver<T: Pod> {
    reader: Reader<T>,
    reading: Reading,
    coming: Coming,
    /// Held by the receiver and its forwards; without a holder, nothing more lands.
    interest: Arc<()>,
    peer: Peer,
    channel: String,
    increment_bytes: usize,
}

impl<T: Pod> DeltaReceiver<T> {
    /// Waits for a delta called `name` from any peer, which will land in `buffer`.
    ///
    /// This side states `buffer.len()` and `T`. The contents are overwritten, so `buffer` may come from
    /// an earlier transfer. Returns as soon as the sender has stated the same, before its first element.
    ///
    /// # Errors
    /// [`DeltaRecvError::Mismatch`] when the sender states another length or element type; the sender
    /// gets an error, too. [`DeltaRecvError::Opening`] when something else opens by that name.
    /// `Accept` and `Channel` when the node or the link is gone. The buffer is dropped.
    ///
    /// # Cancel safety
    /// When the future is dropped, only the buffer is lost. A delta that was opened meanwhile goes to
    /// the next call with its name. A refusal that has begun goes on.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub async fn accept(node: &Node, name: &str, buffer: Vec<T>) -> Result<Self, DeltaRecvError> {
        let (peer, channel) = node.accept_bytes(name).await.map_err(DeltaRecvError::Accept)?;
        let mut unread = Unread(Some(channel));
        let opening = read_opening(unread.channel(), &peer, name).await;
        let channel = unread.keep();
        let opening = opening?;
        let ours = Shape::of::<T>(buffer.len());
        if opening.shape != ours {
            let notice = Notice::Refused(Opening { shape: ours.clone(), ..opening.clone() });
            refuse(node, &peer, channel, opening.id, notice).await;
            return Err(DeltaRecvError::Mismatch(Box::new(Mismatch {
                peer: peer.name().to_owned(),
                channel: name.to_owned(),
                ours,
                theirs: opening.shape,
            })));
        }
        let increment_bytes = usize::try_from(opening.increment_bytes).unwrap_or(usize::MAX);
        let (writer, reader) = share(buffer);
        let interest = Arc::new(());
        let origin = Origin {
            node: node.clone(),
            peer: peer.clone(),
            channel: name.to_owned(),
            id: opening.id,
            length_bytes: reader.len_bytes(),
        };
        let coming = land(channel, writer, Arc::downgrade(&interest), origin);
        Ok(Self {
            reading: Reading::new(reader.len()),
            reader,
            coming,
            interest,
            peer,
            channel: name.to_owned(),
            increment_bytes,
        })
    }

    /// Waits until all elements of `range` have landed and returns them.
    ///
    /// Returns at once when they have, or when the range is empty. Ranges may be asked for in any
    /// order, and several at a time; the elements land in the order of their indices.
    ///
    /// # Errors
    /// [`DeltaRecvError::Range`] when the range is not within the buffer. Others when the sender
    /// ended or died before the range had landed; elements that landed stay readable.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn wait(&self, range: impl RangeBounds<usize>) -> Result<&[T], DeltaRecvError> {
        let (start, end) = self.resolve(&range)?;
        if start == end {
            return Ok(&[]);
        }
        self.until(|elements| elements >= end).await?;
        Ok(&self.reader.elements()[start..end])
    }

    /// Returns the elements that landed since the last call, waiting for at least one; `None` when
    /// all were shown.
    ///
    /// # Errors
    /// When the sender ended or died; elements that landed before are shown first.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<&[T]>, DeltaRecvError> {
        if self.reading.is_done() {
            return Ok(None);
        }
        let reading = self.reading;
        self.until(|elements| reading.has_fresh(elements)).await?;
        let fresh = self.reading.take_landed(self.reader.elements().len());
        Ok(fresh.map(|range| &self.reader.elements()[range]))
    }

    /// Waits until all elements have landed and returns the whole buffer.
    ///
    /// # Errors
    /// When the sender ended or died before that.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn finish(&mut self) -> Result<&[T], DeltaRecvError> {
        self.wait(..).await
    }

    /// Returns the owned buffer, once all of it has landed and the forwards have released it: to keep,
    /// to change, or to give to the next transfer.
    ///
    /// # Errors
    /// As [`finish`](Self::finish); the buffer is dropped.
    ///
    /// # Cancel safety
    /// When the future is dropped, so is the receiver; the forwards go on.
    pub async fn into_buffer(self) -> Result<Vec<T>, DeltaRecvError> {
        self.until(|elements| elements == self.len()).await?;
        let Self { reader, .. } = self;
        Ok(reader.into_buffer().await)
    }

    /// Passes the buffer on to `peer`, whose program accepts `name`, from its first element and as
    /// the bytes land. Several forwards may run beside each other and beside the waits.
    ///
    /// Each increment leaves when it has landed (cut-through), from the same memory, in the background.
    /// If the sender dies, the next node gets an error with the reason. The forward goes on when this
    /// receiver is dropped.
    ///
    /// # Errors
    /// When the channel to `peer` cannot be opened; the elements still land here.
    ///
    /// # Cancel safety
    /// When the future is dropped, nothing is forwarded; `peer` sees at most a delta that ends at once.
    pub async fn forward(
        &self,
        node: &Node,
        peer: &Peer,
        name: &str,
    ) -> Result<Forward, DeltaSendError> {
        let target = Target { node, peer, channel: name };
        let (reader, coming) = (self.reader.clone(), self.coming.clone());
        let keep = self.interest.clone();
        let fate = pump::start(target, reader, coming, self.increment_bytes, keep).await?;
        Ok(Forward { fate, peer: peer.clone(), channel: name.to_owned() })
    }

    /// Returns the elements that have landed.
    #[must_use]
    pub fn landed(&self) -> &[T] {
        self.reader.elements()
    }

    /// Returns the number of elements of the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.reader.len()
    }

    /// Whether the buffer has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that the sender sends together, as it stated.
    #[must_use]
    pub fn increment_bytes(&self) -> usize {
        self.increment_bytes
    }

    /// Returns the node that sends.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    fn resolve(&self, range: &impl RangeBounds<usize>) -> Result<(usize, usize), DeltaRecvError> {
        let length = self.len();
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => length,
        };
        if start > end || end > length {
            let channel = self.channel.clone();
            return Err(DeltaRecvError::Range { channel, start, end, length });
        }
        Ok((start, end))
    }

    fn stopped(&self) -> DeltaRecvError {
        DeltaRecvError::Ended {
            peer: self.peer.name().to_owned(),
            channel: self.channel.clone(),
            landed_bytes: self.reader.published(),
            length_bytes: self.reader.len_bytes(),
            cause: Some("the runtime that carried it was shut down".to_owned()),
        }
    }

    /// Waits until `enough` returns true for the number of elements that landed.
    async fn until(&self, enough: impl Fn(usize) -> bool) -> Result<(), DeltaRecvError> {
        if enough(self.reader.elements().len()) {
            return Ok(());
        }
        let mut coming = self.coming.clone();
        loop {
            // The end is read before the elements, since all land before the end is known.
            let end = coming.borrow_and_update().end.clone();
            if enough(self.reader.elements().len()) {
                return Ok(());
            }
            if let Some(error) = end {
                return Err(error);
            }
            if coming.changed().await.is_err() {
                return Err(self.stopped());
            }
        }
    }
}

impl<T: Pod> fmt::Debug for DeltaReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaReceiver")
            .field("channel", &self.channel)
            .field("peer", &self.peer.name())
            .field("landed", &self.landed().len())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// A buffer on its way to a further node; dropping this does not stop the forward.
#[derive(Debug)]
pub struct Forward {
    fate: Fate,
    peer: Peer,
    channel: String,
}

impl Forward {
    /// Waits until every element is in the further node's buffer.
    ///
    /// # Errors
    /// [`DeltaSendError::Source`] when the elements stopped coming; the others as for a sender.
    ///
    /// # Cancel safety
    /// When the future is dropped, the forward goes on; call it again.
    pub async fn finish(&mut self) -> Result<(), DeltaSendError> {
        pump::ended(&mut self.fate, &self.peer, &self.channel).await
    }

    /// Returns the node that receives.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

/// A channel whose opening was not read. Dropping it gives the channel back to the node, for the next
/// call that accepts its name.
struct Unread(Option<BytesReceiver>);

impl Unread {
    fn channel(&mut self) -> &mut BytesReceiver {
        self.0.as_mut().expect("it is kept once, at the end")
    }

    fn keep(mut self) -> BytesReceiver {
        self.0.take().expect("it is kept once, at the end")
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(channel) = self.0.take() {
            channel.give_back();
        }
    }
}

/// Sends the sender the reason, then ends its channel. A task does both, so that they happen even
/// when the caller is dropped.
async fn refuse(node: &Node, peer: &Peer, channel: BytesReceiver, id: u64, notice: Notice) {
    let (node, peer) = (node.clone(), peer.clone());
    let refusing = host::spawn(async move {
        notices::tell(&node, &peer, To::Sender, id, &notice).await;
        drop(channel);
    });
    // The task ends early only with its runtime.
    let _ = refusing.await;
}

async fn read_opening(
    channel: &mut BytesReceiver,
    peer: &Peer,
    name: &str,
) -> Result<Opening, DeltaRecvError> {
    let opening = match timeout(OPENING_WAIT, channel.recv()).await {
        Ok(first) => Opening::decode(&first.map_err(DeltaRecvError::Channel)?.unwrap_or_default()),
        Err(_) => Err(OpeningFault::Late),
    };
    opening.map_err(|fault| DeltaRecvError::Opening {
        peer: peer.name().to_owned(),
        channel: name.to_owned(),
        fault,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_states_nothing_is_given_up() {
        let address = "memory:recv-late".parse().expect("an address");
        let near = Node::builder().name("near").listen(address).build().await.expect("a node");
        let far = Node::builder().name("far").build().await.expect("a node");
        let peer = far.connect(&near.addresses()[0]).await.expect("a link");
        let silent = far.open_bytes(&peer, "numbers").await.expect("a channel");
        let error = DeltaReceiver::accept(&near, "numbers", vec![0_u8; 9]).await;
        let error = error.expect_err("nothing was stated");
        assert!(matches!(error, DeltaRecvError::Opening { fault: OpeningFault::Late, .. }));
        assert!(error.to_string().contains("far"), "{error}");
        drop(silent);
    }
}
