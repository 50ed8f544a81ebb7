//! Sending of a buffer while it is computed.

use std::fmt;

use bytemuck::Pod;
use chunkcomm::{Node, Peer};
use tokio::sync::watch;

use crate::error::DeltaSendError;
use crate::memory::{Reader, Writer, share};
use crate::proto::increment::Increment;
use crate::proto::intervals::Writing;
use crate::pump::{self, Fate, Progress, Target};

/// Sends the elements of one buffer, increment by increment, while they are computed.
///
/// [`next`](Self::next) hands out the next elements to write, [`commit`](Self::commit) releases
/// them: whole increments leave in the background, straight from the buffer, without a copy. The
/// compiler checks that committed elements are not written again. [`finish`](Self::finish)
/// waits until the receiver has all; [`into_buffer`](Self::into_buffer) returns the memory for
/// the next transfer.
///
/// Computing never waits for the network: the buffer itself is the queue.
///
/// Tasks of the runtime in which this was opened move the bytes. Where its only thread computes,
/// nothing leaves until that thread yields. Use [`commit_and_yield`](Self::commit_and_yield) there,
/// and plain `commit` on a thread of its own or on a multi-thread runtime.
///
/// When this is dropped before `finish`, committed elements are still sent, and the receiver's waits
/// for the rest end with an error. A running transfer keeps its node alive.
///
/// ```no_run
/// # async fn example(node: &chunkcomm::Node, peer: &chunkcomm::Peer)
/// # -> Result<(), chunkcomm_pipeline::DeltaSendError> {
/// use chunkcomm_pipeline::{DeltaSender, Increment};
///
/// let buffer = vec![0.0_f32; 1 << 20];
/// let mut sender = DeltaSender::open(node, peer, "waves", buffer, Increment::default()).await?;
/// let mut index = 0;
/// while let Some(chunk) = sender.next(4096) {
///     for element in chunk {
///         *element = (index as f32 * 1e-3).sin();
///         index += 1;
///     }
///     sender.commit_and_yield().await?;
/// }
/// sender.finish().await?;
/// let buffer = sender.into_buffer().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a delta ends when its sender is dropped"]
pub struct DeltaSender<T: Pod> {
    writer: Writer<T>,
    reader: Reader<T>,
    writing: Writing,
    increment_bytes: usize,
    wake: watch::Sender<Progress>,
    fate: Fate,
    peer: Peer,
    channel: String,
}

impl<T: Pod> DeltaSender<T> {
    /// Opens a delta of `buffer.len()` elements to `peer`, whose program accepts `name`.
    ///
    /// Costs no round trip on a live link: bytes may leave before the receiver has agreed. The
    /// buffer's elements stay as they are until they are written, so `buffer` may come from an earlier
    /// transfer; its memory is then already mapped.
    ///
    /// # Errors
    /// [`DeltaSendError::Open`] or [`DeltaSendError::Channel`] when the link is gone; the buffer is
    /// dropped.
    ///
    /// # Cancel safety
    /// When the future is dropped, at most the opening was sent, and the receiver sees its end.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub async fn open(
        node: &Node,
        peer: &Peer,
        name: &str,
        buffer: Vec<T>,
        increment: Increment,
    ) -> Result<Self, DeltaSendError> {
        let (writer, reader) = share(buffer);
        let increment_bytes = increment.bytes_for(reader.len_bytes(), size_of::<T>());
        let (wake, coming) = watch::channel(Progress::default());
        let target = Target { node, peer, channel: name };
        let fate = pump::start(target, reader.clone(), coming, increment_bytes, ()).await?;
        Ok(Self {
            writing: Writing::new(reader.len()),
            writer,
            reader,
            increment_bytes,
            wake,
            fate,
            peer: peer.clone(),
            channel: name.to_owned(),
        })
    }

    /// Hands out the next elements to write: `count`, fewer at the end of the buffer, `None` after it.
    ///
    /// Every call goes on where the last one ended, committed or not. Committed elements cannot be
    /// written any more:
    ///
    /// ```compile_fail,E0499
    /// fn rewrite(sender: &mut chunkcomm_pipeline::DeltaSender<u8>) {
    ///     let chunk = sender.next(10).unwrap();
    ///     sender.commit().unwrap();
    ///     chunk[0] = 1;
    /// }
    /// ```
    ///
    /// # Panics
    /// When `count` is 0.
    pub fn next(&mut self, count: usize) -> Option<&mut [T]> {
        assert!(count > 0, "a chunk has at least one element");
        let range = self.writing.take(count)?;
        Some(self.writer.elements_mut(range))
    }

    /// Releases everything that [`next`](Self::next) handed out; never waits.
    ///
    /// May be called for every few elements: less than an increment stays until the increment is
    /// whole or the buffer ends.
    ///
    /// # Errors
    /// The error of the transfer, if it failed; committing more then has no effect.
    pub fn commit(&mut self) -> Result<(), DeltaSendError> {
        self.publish();
        match &*self.fate.borrow() {
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Commits as [`commit`](Self::commit) does, and lets the runtime send if there is something to
    /// send. Does not wait for the network.
    ///
    /// # Errors
    /// As `commit`.
    ///
    /// # Cancel safety
    /// The first poll has committed; dropping the rest loses nothing.
    pub async fn commit_and_yield(&mut self) -> Result<(), DeltaSendError> {
        if self.publish() {
            // Once for the pump, and once for a link that first looks whether more is coming.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
        self.commit()
    }

    /// Publishes the elements that were handed out; returns whether the pump has something to do.
    fn publish(&mut self) -> bool {
        let before = self.writer.published();
        let end = self.writing.commit() * size_of::<T>();
        self.writer.publish(end);
        let whole_increment = end / self.increment_bytes > before / self.increment_bytes;
        let may_leave = whole_increment || (end > before && end == self.writer.len_bytes());
        if may_leave {
            self.wake.send_modify(|progress| progress.bytes = end);
        }
        may_leave
    }

    /// Returns the elements that were committed, to read: filters look back.
    #[must_use]
    pub fn committed(&self) -> &[T] {
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

    /// Returns the index of the first element that [`next`](Self::next) has not handed out.
    #[must_use]
    pub fn position(&self) -> usize {
        self.writing.handed()
    }

    /// Returns the number of bytes that leave together.
    #[must_use]
    pub fn increment_bytes(&self) -> usize {
        self.increment_bytes
    }

    /// Returns the node that receives.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Commits the elements handed out and waits until every element is in the receiver's buffer.
    ///
    /// Success does not mean that the receiver's program has looked at the elements. After the last
    /// element it costs the time of a message back, which a task of the receiver's runtime sends.
    ///
    /// # Errors
    /// [`DeltaSendError::Unfinished`] when elements were never handed out: hand them out and call
    /// again. [`DeltaSendError::Mismatch`] when the receiver expects something else. Others end
    /// the transfer.
    ///
    /// # Cancel safety
    /// When the future is dropped, the transfer goes on; call it again.
    pub async fn finish(&mut self) -> Result<(), DeltaSendError> {
        self.commit()?;
        if self.writing.committed() < self.len() {
            return Err(DeltaSendError::Unfinished {
                peer: self.peer.name().to_owned(),
                channel: self.channel.clone(),
                committed: self.writing.committed(),
                length: self.len(),
            });
        }
        pump::ended(&mut self.fate, &self.peer, &self.channel).await
    }

    /// Returns the buffer as soon as the link has released it: at once after
    /// [`finish`](Self::finish). Before that, the transfer ends with the committed elements.
    ///
    /// # Cancel safety
    /// When the future is dropped, so is the buffer, once the link releases it; the committed elements
    /// are sent.
    pub async fn into_buffer(self) -> Vec<T> {
        let Self { writer, reader, wake, .. } = self;
        drop((writer, wake));
        reader.into_buffer().await
    }
}

impl<T: Pod> fmt::Debug for DeltaSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaSender")
            .field("channel", &self.channel)
            .field("peer", &self.peer.name())
            .field("writing", &self.writing)
            .field("increment_bytes", &self.increment_bytes)
            .finish_non_exhaustive()
    }
}
