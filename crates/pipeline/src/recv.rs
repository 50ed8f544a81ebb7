//! Use of a buffer while it arrives, and its forwarding.

use std::fmt;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::{Loss, LossKind, Node, Peer};
use chunkcomm_group::layer::{
    Cursor, Interest, Manner, Owner, Pace, PumpHandle, Sections, Source, State, Target, accept,
    indices, land, pump, share,
};
use chunkcomm_group::{DeltaRecvError, DeltaSendError, Element, Increment, Shape};

use crate::turns::Turns;

/// Elements that have landed, with their indices.
pub type Landed<'a, T> = (Range<usize>, &'a [T]);

/// Receives the elements of one buffer and shows them as they land.
///
/// The bytes go from the socket into the buffer, whether or not somebody waits. Ask for elements by
/// [`range`](Self::wait), [in order](Self::next), [as they land](Self::next_any) or
/// [all at once](Self::finish). [`forward`](Self::forward) passes them on without further work of the
/// program. [`start`](Self::start) begins the next round.
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
/// println!("{sum}");
/// let buffer = waves.into_buffer().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a delta is stopped when its receiver is dropped"]
pub struct DeltaReceiver<T: Element> {
    owner: Owner<T>,
    /// Number of elements that [`next`](Self::next) has shown.
    shown: usize,
    /// The place of [`next_any`](Self::next_any) in the order of landing.
    cursor: Cursor,
    /// For a program whose only thread computes: it takes in what has arrived meanwhile.
    turns: Turns,
    interests: Vec<Arc<Interest>>,
    /// The buffer of the next round of a collective of which two are under way.
    other: Option<Next<T>>,
    round: u32,
    peer: Option<Peer>,
    channel: String,
    increment_bytes: usize,
}

/// The buffer of a round that the program has not begun. Elements may land in it; dropped, it takes no part.
struct Next<T: Element> {
    owner: Owner<T>,
    interests: Vec<Arc<Interest>>,
}

impl<T: Element> Drop for Next<T> {
    fn drop(&mut self) {
        self.owner.share().change(|state| {
            let error = DeltaRecvError::Collective(Loss::new(LossKind::Left, "the group is gone"));
            state.end.get_or_insert(error);
        });
    }
}

impl<T: Element> DeltaReceiver<T> {
    /// Waits for a delta called `name` from any peer, which will land in `buffer`.
    ///
    /// This side states `buffer.len()` and `T`. The contents are overwritten, so `buffer` may come from
    /// an earlier transfer. Returns as soon as the sender has stated the same, before its first element.
    ///
    /// ```
    /// use chunkcomm::Node;
    /// use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let near = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
    /// let far = Node::builder().build().await?;
    /// let peer = far.connect(&near.addresses()[0]).await?;
    ///
    /// let (ones, increment) = (vec![1_u32; 10_000], Increment::default());
    /// let mut sender = DeltaSender::open(&far, &peer, "ones", ones, increment).await?;
    /// let mut receiver = DeltaReceiver::accept(&near, "ones", vec![0_u32; 10_000]).await?;
    /// sender.part(..)?.commit();
    /// let mut sum = 0;
    /// while let Some(part) = receiver.next().await? {
    ///     sum += part.iter().sum::<u32>(); // what has landed since
    /// }
    /// assert_eq!(sum, 10_000);
    /// sender.finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DeltaRecvError::Mismatch`] when the sender states another length or element type; the sender
    /// gets an error, too. [`DeltaRecvError::Opening`] when something else opens by that name.
    /// `Accept` and `Channel` when the node or the link is gone. The buffer is dropped.
    ///
    /// # Cancel safety
    /// When the future is dropped, only the buffer is lost. A delta that was opened meanwhile goes to
    /// the next call with its name.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub async fn accept(node: &Node, name: &str, buffer: Vec<T>) -> Result<Self, DeltaRecvError> {
        let ours = Shape::of::<T>(buffer.len());
        // From now on it is not freed beside the tasks of the runtime.
        let owner = share(buffer);
        let accepted = accept(node, None, name, ours).await?;
        let (peer, increment) = (accepted.peer.clone(), accepted.increment_bytes());
        let interest = land(accepted, name, owner.share().clone());
        // The peer's number; forwards take it over, so it must be one of whole elements.
        let increment = usize::try_from(increment).unwrap_or(usize::MAX / 2);
        let increment_bytes = Increment::Fixed(increment).bytes_for(0, size_of::<T>());
        Ok(Self::of_lanes(vec![(owner, vec![interest])], Some(peer), name, increment_bytes))
    }

    /// Returns the receiver of these buffers, which take turns. Each lands as long as its interests are held.
    pub(crate) fn of_lanes(
        mut lanes: Vec<(Owner<T>, Vec<Arc<Interest>>)>,
        peer: Option<Peer>,
        channel: &str,
        increment_bytes: usize,
    ) -> Self {
        let (owner, interests) = lanes.remove(0);
        Self {
            owner,
            shown: 0,
            cursor: Cursor::default(),
            turns: Turns::default(),
            interests,
            other: lanes.pop().map(|(owner, interests)| Next { owner, interests }),
            round: 1,
            peer,
            channel: channel.to_owned(),
            increment_bytes,
        }
    }

    /// Waits until all elements of `range` have landed and returns them.
    ///
    /// Returns at once when they have, or when the range is empty. Ranges may be asked for in any
    /// order, and several at a time.
    ///
    /// # Errors
    /// [`DeltaRecvError::Range`] when the range is not within the buffer, or reaches behind the
    /// [end](crate::DeltaSender::end) of a stream. Others when the sender was dropped or died before the
    /// range had landed; elements that landed stay readable.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn wait(&self, range: impl RangeBounds<usize>) -> Result<&[T], DeltaRecvError> {
        let range = self.owner.share().until(|state| self.landed_range(state, &range)).await?;
        Ok(self.known(range))
    }

    /// Blocks the thread until the elements have landed, for `within` at most; `None` waits without
    /// limit. For threads that compute outside the runtime, in the place of [`wait`](Self::wait).
    ///
    /// # Errors
    /// As `wait`, and [`DeltaRecvError::Late`] after that time; call it again to go on.
    pub fn wait_blocking(
        &self,
        range: impl RangeBounds<usize>,
        within: Option<Duration>,
    ) -> Result<&[T], DeltaRecvError> {
        let look = |state: &mut State| self.landed_range(state, &range);
        match self.owner.share().until_blocking(within, look) {
            Some(landed) => landed.map(|range| self.known(range)),
            None => {
                let (channel, Range { start, end }) =
                    (self.channel.clone(), indices(&range, self.len()));
                Err(DeltaRecvError::Late { channel, start, end })
            }
        }
    }

    /// Returns the elements of `range` if all of them have landed, `None` if they may still come.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_range(
        &self,
        range: impl RangeBounds<usize>,
    ) -> Result<Option<&[T]>, DeltaRecvError> {
        let landed = self.landed_range(&self.owner.share().state(), &range).transpose()?;
        Ok(landed.map(|range| self.known(range)))
    }

    /// Waits for the next elements in the order of their indices. Returns all that have landed behind those
    /// of the last call, at least one, and `None` at the end of the round.
    ///
    /// # Errors
    /// When the sender ended or died; elements that landed before are shown first.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<&[T]>, DeltaRecvError> {
        self.turns.take().await;
        let start = self.shown;
        let end = |state: &State| {
            let (extents, end) = (state.extents(), state.extents().prefix() / size_of::<T>());
            (end > start || extents.is_whole()).then_some(end)
        };
        self.shown = self.owner.share().until(|state| outcome(state, end(state))).await?;
        Ok(Some(self.known(start..self.shown)).filter(|landed| !landed.is_empty()))
    }

    /// Returns the next elements as they land, in whatever order, with their indices; `None` when all
    /// were shown. Each element is shown once a round; calls of [`next`](Self::next) do not change this.
    ///
    /// # Errors
    /// When the sender ended or died; elements that landed before are shown first.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next_any(&mut self) -> Result<Option<Landed<'_, T>>, DeltaRecvError> {
        self.turns.take().await;
        let cursor = &mut self.cursor;
        let next = self.owner.share().until(|state| fresh::<T>(state, cursor)).await?;
        Ok(next.map(|range| (range.clone(), self.known(range))))
    }

    /// Blocks the thread as [`next_any`](Self::next_any) waits, for `within` at most; `None` waits
    /// without limit.
    ///
    /// # Errors
    /// As `next_any`, and [`DeltaRecvError::Late`] after that time; call it again to go on.
    pub fn next_any_blocking(
        &mut self,
        within: Option<Duration>,
    ) -> Result<Option<Landed<'_, T>>, DeltaRecvError> {
        let cursor = &mut self.cursor;
        match self.owner.share().until_blocking(within, |state| fresh::<T>(state, cursor)) {
            Some(next) => Ok(next?.map(|range| (range.clone(), self.known(range)))),
            None => {
                let (channel, end) = (self.channel.clone(), self.len());
                Err(DeltaRecvError::Late { channel, start: 0, end })
            }
        }
    }

    /// Waits until all elements have landed and returns the whole buffer, with the last value of each. In the
    /// last round of a stream it returns the elements of that round.
    ///
    /// Puts [corrections](Self::corrected) in their places, if there are any, once the forwards have
    /// released the memory.
    ///
    /// # Errors
    /// When the sender ended or died before that.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn finish(&mut self) -> Result<&[T], DeltaRecvError> {
        let length = self.whole().await?;
        self.owner.correct().await;
        Ok(self.known(0..length))
    }

    /// Waits until the round has landed and returns the number of its elements.
    async fn whole(&self) -> Result<usize, DeltaRecvError> {
        let length = |state: &State| {
            let extents = state.extents();
            extents.is_whole().then(|| extents.bytes() / size_of::<T>())
        };
        self.owner.share().until(|state| outcome(state, length(state))).await
    }

    /// Returns the ranges of elements that the sender wrote again in this round after it had sent them, in
    /// the order of their indices. The list is complete when all elements have landed.
    ///
    /// It is empty unless the sender tracks ordinary code, with `Rewrites::Resend` (feature `tracked`). The later values are kept apart until
    /// [`finish`](Self::finish), [`start`](Self::start) or [`into_buffer`](Self::into_buffer), because
    /// references to the buffer may exist. Until then [`next`](Self::next) and the other methods show the
    /// earlier values. Code that used those must repeat its work on these ranges.
    #[must_use]
    pub fn corrected(&self) -> Vec<Range<usize>> {
        let state = self.owner.share().state();
        let size = size_of::<T>();
        state.corrections.ranges().map(|it| it.start / size..it.end.div_ceil(size)).collect()
    }

    /// Returns the owned buffer, once all of it has landed and the forwards have released it: to keep,
    /// to change, or to give to the next transfer. After the last round of a stream it is cut to the
    /// elements of that round, which may be none. Of two rounds of a [collective](crate::Flow::depth) it is the
    /// buffer of the current one.
    ///
    /// # Errors
    /// As [`finish`](Self::finish); the buffer is dropped.
    ///
    /// # Cancel safety
    /// When the future is dropped, so is the receiver; the forwards go on.
    pub async fn into_buffer(self) -> Result<Vec<T>, DeltaRecvError> {
        let length = self.whole().await?;
        let Self { owner, other, .. } = self;
        drop(other);
        let mut buffer = owner.into_vec().await;
        buffer.truncate(length);
        Ok(buffer)
    }

    /// Waits until this round has landed here and at the forwards, and begins the next one in the same
    /// memory, whose elements are then shown as they land. Returns false when the sender has
    /// [ended](crate::DeltaSender::end) the stream: there is no further round, the last one stays, and
    /// forwards may still be sending it.
    ///
    /// Opens nothing and allocates nothing. The sender sends nothing of a round before this call, of two rounds
    /// of a [collective](crate::Flow::depth) nothing of the one after: a receiver that pauses holds the sender
    /// up, and ends nothing. Forwards go on with the next round.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    ///
    /// # Cancel safety
    /// When the future is dropped, the round has not begun; call it again.
    pub async fn start(&mut self) -> Result<bool, DeltaRecvError> {
        self.finish().await?;
        if self.owner.share().state().extents().is_cut() {
            return Ok(false);
        }
        self.owner.reset(false).await;
        (self.round, self.shown, self.cursor) = (self.round + 1, 0, Cursor::default());
        let of_buffer = self.owner.share().state().round;
        for interest in &self.interests {
            interest.say_begun(of_buffer);
        }
        if let Some(next) = &mut self.other {
            std::mem::swap(&mut self.owner, &mut next.owner);
            std::mem::swap(&mut self.interests, &mut next.interests);
        }
        Ok(true)
    }

    /// Returns the number of the round, from 1.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Passes the buffer on to `peer`, whose program accepts `name`, as the bytes land and in that
    /// order. Any number of forwards may run beside each other and beside the waits.
    ///
    /// Each increment leaves when it has landed (cut-through), from the same memory, in the background.
    /// If the sender dies, the next node gets an error with the reason. When this receiver is dropped, the
    /// forward goes on to the end of the round.
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
        self.forward_at(Pace::Eager, node, peer, name).await
    }

    /// Passes the buffer on as [`forward`](Self::forward) does, but each increment of the sender's size once all
    /// of it has landed (store and forward).
    ///
    /// # Errors
    /// As `forward`.
    ///
    /// # Cancel safety
    /// As `forward`.
    pub async fn forward_whole(
        &self,
        node: &Node,
        peer: &Peer,
        name: &str,
    ) -> Result<Forward, DeltaSendError> {
        self.forward_at(Pace::Whole, node, peer, name).await
    }

    async fn forward_at(
        &self,
        pace: Pace,
        node: &Node,
        peer: &Peer,
        name: &str,
    ) -> Result<Forward, DeltaSendError> {
        let target = Target { node, peer, channel: name };
        let increment_bytes = self.increment_bytes;
        let manner = Manner {
            source: Source::Landing,
            increment_bytes,
            pace,
            flow: None,
            needs_room: false,
        };
        let keep = self.interests.clone();
        let sections = Sections::whole(self.len() * size_of::<T>());
        pump(target, self.owner.share(), sections, manner, keep).await.map(Forward)
    }

    /// Returns the elements that have landed from the start without a gap.
    #[must_use]
    pub fn landed(&self) -> &[T] {
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

    /// Returns the number of bytes that the sender sends together, as it stated; for the result of a collective,
    /// what this rank sends together.
    #[must_use]
    pub fn increment_bytes(&self) -> usize {
        self.increment_bytes
    }

    /// Returns the node that sends; `None` for the result of a collective.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// Returns the indices of `range` once its elements have landed.
    fn landed_range(
        &self,
        state: &State,
        range: &impl RangeBounds<usize>,
    ) -> Option<Result<Range<usize>, DeltaRecvError>> {
        let length = state.extents().bytes() / size_of::<T>();
        let Range { start, end } = indices(range, length);
        if start > end || end > length {
            let channel = self.channel.clone();
            return Some(Err(DeltaRecvError::Range { channel, start, end, length }));
        }
        let bytes = start * size_of::<T>()..end * size_of::<T>();
        outcome(state, state.extents().is_done(&bytes).then_some(start..end))
    }

    /// Returns elements that have landed.
    fn known(&self, range: Range<usize>) -> &[T] {
        self.owner.elements(range).expect("the elements have landed")
    }
}

#[cfg(feature = "tracked")]
impl<T: Element> DeltaReceiver<T> {
    /// Lets [`next_any`](Self::next_any) show all elements of the round again.
    pub(crate) fn show_again(&mut self) {
        self.cursor = Cursor::default();
    }

    /// Whether corrections wait apart.
    pub(crate) fn is_stale(&self) -> bool {
        self.owner.share().state().corrections.is_pending()
    }
}

/// Returns the next elements in the order of landing and `None` behind the last ones; nothing while
/// more may come.
fn fresh<T>(
    state: &State,
    cursor: &mut Cursor,
) -> Option<Result<Option<Range<usize>>, DeltaRecvError>> {
    match cursor.next(state.extents(), size_of::<T>()) {
        Some(bytes) => Some(Ok(Some(bytes.start / size_of::<T>()..bytes.end / size_of::<T>()))),
        None if state.extents().is_whole() => Some(Ok(None)),
        None => state.end.clone().map(Err),
    }
}

/// Returns the outcome of a wait, or `None` while it goes on.
fn outcome<R>(state: &State, found: Option<R>) -> Option<Result<R, DeltaRecvError>> {
    found.map(Ok).or_else(|| state.end.clone().map(Err))
}

impl<T: Element> fmt::Debug for DeltaReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaReceiver")
            .field("channel", &self.channel)
            .field("peer", &self.peer.as_ref().map(Peer::name))
            .field("landed", &self.landed().len())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// A buffer on its way to a further node; dropping this does not stop the forward.
#[derive(Debug)]
pub struct Forward(PumpHandle);

impl Forward {
    /// Waits until every element of a round is in the further node's buffer. The first call waits for the
    /// round in which the forward began, and each call after a success for the next round.
    ///
    /// # Errors
    /// [`DeltaSendError::Source`] when the elements stopped coming; the others as for a sender.
    ///
    /// # Cancel safety
    /// When the future is dropped, the forward goes on; call it again.
    pub async fn finish(&mut self) -> Result<(), DeltaSendError> {
        self.0.landed().await?;
        self.0.round += 1;
        Ok(())
    }

    /// Returns the node that receives.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.0.peer.as_ref().expect("a forward has a receiver")
    }
}
