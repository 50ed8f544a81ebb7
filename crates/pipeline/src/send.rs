//! Sending of a buffer while it is computed.

mod chunk;

use std::fmt;
use std::ops::RangeBounds;

use chunkcomm::{LossKind, Node, Peer};
use chunkcomm_group::layer::{
    Manner, Owner, Pace, PumpHandle, Sections, Source, Target, free_part, part_of, pump, share,
};
use chunkcomm_group::{DeltaSendError, Element, GroupError, Increment, Part, PartError};

pub use self::chunk::Chunk;
use crate::turns::Turns;

/// Sends the elements of one buffer, increment by increment, while they are computed.
///
/// [`next`](Self::next) hands out the next elements to write, as a [`Chunk`], whose [`commit`](Chunk::commit)
/// releases them: whole increments leave in the background, straight from the buffer, without a copy. The
/// compiler checks that committed elements are not written again. [`finish`](Self::finish)
/// waits until the receiver has all; [`into_buffer`](Self::into_buffer) returns the memory for
/// the next transfer. [`start`](Self::start) begins the next round of this one.
///
/// [`part`](Self::part) and [`parts`](Self::parts) hand out elements in any order, for any thread.
///
/// Computing never waits for the network: the buffer itself is the queue.
///
/// Tasks of the node's runtime move the bytes. A chunk's `commit` lets them run now and then. Code that computes
/// without a commit, or blocks, needs a runtime that others drive: one with several threads, or a node
/// with [`io_thread`](chunkcomm::NodeBuilder::io_thread).
///
/// When this is dropped before `finish`, committed elements are still sent, and the receiver's waits
/// for the rest end with an error. Elements that a [`Part`](crate::Part) commits after the drop are not
/// sent. In a further round, elements committed before the drop are sent when the receiver starts that
/// round. The memory is kept until then, or until the receiver is gone. A running transfer keeps its
/// node alive.
///
/// ```no_run
/// # async fn example(node: &chunkcomm::Node, peer: &chunkcomm::Peer)
/// # -> Result<(), chunkcomm_pipeline::DeltaSendError> {
/// use chunkcomm_pipeline::{DeltaSender, Increment};
///
/// let buffer = vec![0.0_f32; 1 << 20];
/// let mut sender = DeltaSender::open(node, peer, "waves", buffer, Increment::default()).await?;
/// while let Some(mut chunk) = sender.next(4096)? {
///     for (index, element) in chunk.range().zip(chunk.iter_mut()) {
///         *element = (index as f32 * 1e-3).sin();
///     }
///     chunk.commit().await?;
/// }
/// sender.finish().await?;
/// let buffer = sender.into_buffer().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a delta ends when its sender is dropped"]
pub struct DeltaSender<T: Element> {
    owner: Owner<T>,
    /// Index of the first element that `next` looks at.
    position: usize,
    /// Bytes of the round that were committed when [`take_turn`](Self::take_turn) last saw an increment.
    seen_bytes: usize,
    turns: Turns,
    /// Number of the round, from 1.
    round: u32,
    pump: PumpHandle,
    /// The buffer of every second round of a collective of which two are under way.
    other: Option<Other<T>>,
}

/// The buffer of the round before, or of the next one.
struct Other<T: Element> {
    owner: Owner<T>,
    pump: PumpHandle,
    is_used: bool,
}

impl<T: Element> DeltaSender<T> {
    /// Opens a delta of `buffer.len()` elements to `peer`, whose program accepts `name`.
    ///
    /// Costs no round trip on a live link: bytes may leave before the receiver has agreed. `buffer` may come
    /// from an earlier transfer: its elements stay until they are written, and its memory is already mapped.
    ///
    /// ```
    /// use chunkcomm::Node;
    /// use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let far = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
    /// let near = Node::builder().build().await?;
    /// let peer = near.connect(&far.addresses()[0]).await?;
    ///
    /// let (buffer, increment) = (vec![0_u64; 10_000], Increment::default());
    /// let mut sender = DeltaSender::open(&near, &peer, "squares", buffer, increment).await?;
    /// let mut receiver = DeltaReceiver::accept(&far, "squares", vec![0_u64; 10_000]).await?;
    /// while let Some(mut chunk) = sender.next(1_000)? {
    ///     for (index, element) in chunk.range().zip(chunk.iter_mut()) {
    ///         *element = (index * index) as u64;
    ///     }
    ///     chunk.commit().await?; // leaves while the next chunk is computed
    /// }
    /// sender.finish().await?;
    /// assert_eq!(receiver.finish().await?[99], 9_801);
    /// # Ok(())
    /// # }
    /// ```
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
        let owner = share(buffer);
        let len = owner.len() * size_of::<T>();
        let increment_bytes = increment.bytes_for(len, size_of::<T>());
        let target = Target { node, peer, channel: name };
        let pace = match increment {
            Increment::Auto(costs) => Pace::Measured(costs),
            increment => Pace::of(increment),
        };
        let manner = Manner {
            source: Source::Commits,
            increment_bytes,
            pace,
            flow: None,
            needs_room: false,
        };
        let pump = pump(target, owner.share(), Sections::whole(len), manner, ()).await?;
        Ok(Self::of(owner, pump, None))
    }

    /// Returns the sender of the operand of a collective, whose buffers take turns.
    pub(crate) fn of_flow(mut lanes: Vec<(Owner<T>, PumpHandle)>) -> Self {
        let (owner, pump) = lanes.remove(0);
        let other = lanes.pop().map(|(owner, pump)| Other { owner, pump, is_used: false });
        Self::of(owner, pump, other)
    }

    fn of(owner: Owner<T>, pump: PumpHandle, other: Option<Other<T>>) -> Self {
        Self { owner, position: 0, seen_bytes: 0, turns: Turns::default(), round: 1, pump, other }
    }

    /// Hands out the next elements to write: `count`, fewer at the end of the buffer and before
    /// elements that a part has, `None` after the last.
    ///
    /// Every call goes on where the last chunk did: what was dropped without a [`commit`](Chunk::commit) is handed
    /// out again. Elements that a [`part`](Self::part) has are passed over, also if that is dropped later.
    ///
    /// # Errors
    /// The error of the transfer, if it failed: drop the sender. None where the receivers have all of the rounds
    /// before and nothing of this one is committed: [`end`](Self::end) succeeds then.
    ///
    /// # Panics
    /// When `count` is 0.
    pub fn next(&mut self, count: usize) -> Result<Option<Chunk<'_, T>>, DeltaSendError> {
        assert!(count > 0, "a chunk has at least one element");
        // The program may be about to find that nothing is left: `end` then succeeds.
        self.check().or_else(|error| if self.is_of_end(&error) { Ok(()) } else { Err(error) })?;
        let part = free_part(self.owner.share(), self.position, count);
        Ok(part.map(|part| Chunk { part, sender: self }))
    }

    /// Hands out the elements of `range`, to be computed and committed on any thread, in any order.
    ///
    /// ```no_run
    /// # fn example(sender: &chunkcomm_pipeline::DeltaSender<f32>)
    /// # -> Result<(), chunkcomm_pipeline::PartError> {
    /// let (mut low, mut high) = (sender.part(..500)?, sender.part(500..)?);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || {
    ///         high.fill(2.0);
    ///         high.commit(); // these may leave first
    ///     });
    ///     low.fill(1.0);
    ///     low.commit();
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PartError::Range`] when the range is not within the buffer; after [`end`](Self::end), when it is not
    /// within the committed elements. [`PartError::Out`] and [`PartError::Committed`] when some of its elements
    /// are. Nothing is handed out.
    pub fn part(&self, range: impl RangeBounds<usize>) -> Result<Part<T>, PartError> {
        part_of(self.owner.share(), &range)
    }

    /// Hands out the whole buffer in `count` parts for as many threads. They differ by one element at
    /// most, the longer ones first.
    ///
    /// # Errors
    /// As [`part`](Self::part), when elements are out or committed.
    ///
    /// # Panics
    /// When `count` is 0.
    pub fn parts(&self, count: usize) -> Result<Vec<Part<T>>, PartError> {
        assert!(count > 0, "there is at least one part");
        let mut rest = self.part(..)?;
        let (each, longer) = (self.len() / count, self.len() % count);
        let mut parts = Vec::with_capacity(count);
        for index in 0..count {
            let next = rest.split_off(each + usize::from(index < longer));
            parts.push(std::mem::replace(&mut rest, next));
        }
        Ok(parts)
    }

    /// Runs `compute` for each `count` elements in turn, with the index of the first, and commits them. Does not
    /// wait for the network and needs no runtime: for plain threads.
    ///
    /// ```no_run
    /// # fn example(sender: &mut chunkcomm_pipeline::DeltaSender<f64>)
    /// # -> Result<(), chunkcomm_pipeline::DeltaSendError> {
    /// sender.each_chunk(4096, |start, chunk| {
    ///     for (index, element) in (start..).zip(chunk) {
    ///         *element = (index as f64).sin();
    ///     }
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DeltaSendError::Part`] when elements are out or committed; the transfer goes on. The error of the
    /// transfer, if it failed: drop the sender. Chunks before that are committed.
    ///
    /// # Panics
    /// When `count` is 0.
    pub fn each_chunk(
        &mut self,
        count: usize,
        mut compute: impl FnMut(usize, &mut [T]),
    ) -> Result<(), DeltaSendError> {
        for start in (0..self.len()).step_by(count) {
            let end = start.saturating_add(count).min(self.len());
            let mut part = self.part(start..end).map_err(DeltaSendError::Part)?;
            compute(start, &mut part);
            part.commit();
            self.check()?;
        }
        Ok(())
    }

    /// Lets the link send, if another increment is committed or all is; reports the error of the transfer.
    async fn take_turn(&mut self) -> Result<(), DeltaSendError> {
        let (bytes, is_whole) = {
            let state = self.owner.share().state();
            (state.extents().done_bytes(), state.extents().is_whole())
        };
        if bytes - self.seen_bytes >= self.increment_bytes() || is_whole {
            self.seen_bytes = bytes;
            if is_whole {
                self.turns.reset();
            }
            self.turns.take().await;
        }
        self.check()
    }

    /// Returns the error of this round, if it has failed.
    pub(crate) fn check(&self) -> Result<(), DeltaSendError> {
        self.pump.check()?;
        let other = self.other.as_ref().filter(|other| other.is_used);
        other.map_or(Ok(()), |other| other.pump.check())
    }

    /// Returns the elements that were committed from the start without a gap, to read: filters look
    /// back.
    #[must_use]
    pub fn committed(&self) -> &[T] {
        self.owner.prefix()
    }

    /// Returns the number of elements of the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owner.len()
    }

    /// Whether the buffer has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owner.is_empty()
    }

    /// Returns the index from which [`next`](Self::next) looks: the first one of the last chunk that was not committed.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of bytes that leave together. With [`Increment::Auto`] it changes with the
    /// costs that are measured.
    #[must_use]
    pub fn increment_bytes(&self) -> usize {
        self.pump.increment_bytes()
    }

    /// Returns the node that receives; `None` for the operand of a collective.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.pump.peer.as_ref()
    }

    /// Waits until every element is in the receiver's buffer.
    ///
    /// Success does not mean that the receiver's program has looked at the elements. Costs one message back
    /// after the last element has landed. Of a [collective](crate#collectives-that-flow), waits until this rank has no
    /// more part in the round; with two rounds under way, in both.
    ///
    /// # Errors
    /// [`DeltaSendError::Unfinished`] when elements are not committed: commit them and call again.
    /// After a failed `tracked_send` they never will be: drop the sender.
    /// [`DeltaSendError::Mismatch`] when the receiver expects something else. Other errors end the transfer.
    ///
    /// # Cancel safety
    /// When the future is dropped, the transfer goes on; call it again.
    pub async fn finish(&mut self) -> Result<(), DeltaSendError> {
        self.complete()?;
        if let Some(other) = self.other.as_mut().filter(|other| other.is_used) {
            other.pump.landed().await?;
        }
        self.pump.landed().await?;
        self.owner.correct().await;
        Ok(())
    }

    /// Checks that all elements are committed.
    ///
    /// # Errors
    /// When some are missing, or the transfer has failed.
    fn complete(&self) -> Result<(), DeltaSendError> {
        self.check()?;
        let is_whole = {
            let state = self.owner.share().state();
            state.extents().is_whole() && !state.withheld
        };
        if is_whole { Ok(()) } else { Err(self.unfinished()) }
    }

    /// Ends a stream with the elements committed so far, and waits until they have landed.
    ///
    /// A stream is a series of rounds over one buffer, the window. The last round may be shorter, and even
    /// empty. It has the elements from the start of the window on, without a gap. The receiver's `next`
    /// shows them, and its `start` returns false.
    ///
    /// With a full window, `end` also waits, without a time-out, until the receiver starts one empty round or
    /// is dropped. Neither is an error, since the receiver has everything. A buffer without elements is
    /// always full.
    ///
    /// ```no_run
    /// # use std::io::Read;
    /// # async fn example(sender: &mut chunkcomm_pipeline::DeltaSender<u8>, mut file: std::fs::File)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// loop {
    ///     let Some(mut chunk) = sender.next(4096)? else {
    ///         sender.start().await?; // the window is full
    ///         continue;
    ///     };
    ///     let count = file.read(&mut chunk)?;
    ///     if count == 0 {
    ///         break;
    ///     }
    ///     chunk.commit_first(count).await?;
    /// }
    /// sender.end().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DeltaSendError::Unfinished`] when elements are missing before the last committed one, or a
    /// [`part`](Self::part) is out; the transfer goes on. [`DeltaSendError::Collective`] when this is the
    /// operand of a collective other than a broadcast, which goes on, too. Other errors end the transfer.
    ///
    /// # Cancel safety
    /// When the future is dropped, the stream may have ended; call it again.
    pub async fn end(&mut self) -> Result<(), DeltaSendError> {
        self.end_round()
            .await
            .or_else(|error| if self.is_of_end(&error) { Ok(()) } else { Err(error) })
    }

    /// Whether the receivers left with the full round before, and so with everything.
    fn is_of_end(&self, error: &DeltaSendError) -> bool {
        let is_empty = || self.owner.share().state().extents().done_bytes() == 0;
        self.round > 1 && is_of_end(error) && is_empty()
    }

    async fn end_round(&mut self) -> Result<(), DeltaSendError> {
        if self.pump.is_whole {
            let why = "of the flowing collectives, only a broadcast ends before a round is whole";
            return Err(PumpHandle::refused(why));
        }
        self.check()?;
        let (is_full, is_cut) = {
            let state = self.owner.share().state();
            (state.extents().is_whole(), state.extents().is_cut())
        };
        if is_full && !is_cut {
            self.begin(true).await?;
        }
        if !self.owner.share().cut() {
            return Err(self.unfinished());
        }
        self.finish().await
    }

    fn unfinished(&self) -> DeltaSendError {
        DeltaSendError::Unfinished {
            peer: self.pump.peer_name(),
            channel: self.pump.channel.clone(),
            committed: self.owner.share().state().extents().done_bytes() / size_of::<T>(),
            length: self.len(),
        }
    }

    /// Finishes this round and begins the next one on the same channel and in the same memory: all
    /// elements may be handed out again.
    ///
    /// Of two rounds of a [collective](crate::Flow::depth) it finishes the one before, and begins the next in
    /// the other buffer.
    ///
    /// Opens nothing and allocates nothing. The elements keep their values. Committed elements leave once the
    /// receiver has begun the round, too: a receiver that pauses holds them up, and ends nothing.
    ///
    /// # Errors
    /// As [`finish`](Self::finish), and [`DeltaSendError::Over`] behind [`end`](Self::end).
    ///
    /// # Cancel safety
    /// When the future is dropped, the round has not begun; call it again.
    pub async fn start(&mut self) -> Result<(), DeltaSendError> {
        self.begin(false).await
    }

    /// Finishes this round, of two buffers the one before, and begins the next one: with `ends` the last
    /// one, which is empty.
    async fn begin(&mut self, ends: bool) -> Result<(), DeltaSendError> {
        if self.other.is_some() {
            self.complete()?;
        } else {
            self.finish().await?;
        }
        if self.owner.share().state().extents().is_cut() {
            return Err(self.pump.over());
        }
        match &mut self.other {
            None => {
                self.owner.reset(ends).await;
                self.pump.round += 1;
            }
            Some(other) => {
                if other.is_used {
                    other.pump.landed().await?;
                    other.owner.reset(ends).await;
                    other.pump.round += 1;
                }
                other.is_used = true;
                std::mem::swap(&mut self.owner, &mut other.owner);
                std::mem::swap(&mut self.pump, &mut other.pump);
            }
        }
        self.round += 1;
        (self.position, self.seen_bytes) = (0, 0);
        self.turns.reset();
        Ok(())
    }

    /// Returns the number of the round, from 1.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Returns the buffer as soon as the link has released it and all parts are dropped: at once after
    /// [`finish`](Self::finish). Without `finish`, the transfer ends with the committed elements.
    ///
    /// Of two rounds of a [collective](crate::Flow::depth) it returns the buffer of the current one.
    ///
    /// # Cancel safety
    /// When the future is dropped, the buffer is dropped once the link releases it. The committed elements
    /// are sent.
    pub async fn into_buffer(self) -> Vec<T> {
        let Self { owner, other, .. } = self;
        drop(other);
        owner.into_vec().await
    }
}

#[cfg(feature = "tracked")]
impl<T: Element> DeltaSender<T> {
    /// Returns the elements of `range` as they were committed, if all of them are.
    pub(crate) fn committed_at(&self, range: std::ops::Range<usize>) -> Option<&[T]> {
        self.owner.elements(range)
    }

    /// Returns the handle of the pump.
    pub(crate) fn pump(&self) -> &PumpHandle {
        &self.pump
    }

    /// Returns the memory.
    pub(crate) fn share(&self) -> &chunkcomm_group::layer::Share<T> {
        self.owner.share()
    }
}

/// Whether the receivers have ended the transfer in order.
fn is_of_end(error: &DeltaSendError) -> bool {
    match error {
        DeltaSendError::Gone { .. } => true,
        DeltaSendError::Collective(loss) => match loss.cause() {
            Some(GroupError::Lost { loss, .. }) => loss.kind() == LossKind::Left,
            _ => false,
        },
        _ => false,
    }
}

impl<T: Element> fmt::Debug for DeltaSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaSender")
            .field("channel", &self.pump.channel)
            .field("peer", &self.pump.peer_name())
            .field("round", &self.round)
            .field("position", &self.position)
            .field("len", &self.len())
            .field("increment_bytes", &self.increment_bytes())
            .finish_non_exhaustive()
    }
}
