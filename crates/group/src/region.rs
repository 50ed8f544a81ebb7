//! A buffer with any number of ends: parts to write, waits to read, transfers to and from several peers.

use std::fmt;
use std::ops::{Range, RangeBounds};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::{Node, Peer};
use tokio::sync::watch;

use crate::Element;
use crate::error::{DeltaRecvError, DeltaSendError, PartError};
use crate::landing::{Combine, Ending, Operand as Own, accept, land_sections};
use crate::memory::{Owner, State, share};
use crate::part::{Part, indices, part_of};
use crate::proto::increment::Increment;
use crate::proto::opening::Shape;
use crate::proto::sections::Sections;
use crate::pump::{self, Manner, Pace, Source, Target};
use ends::Landings;

mod ends;
mod lines;

pub use ends::{RegionLanding, RegionSend};
pub(crate) use lines::Lines;

/// Time in which a link usually releases what it sends, or drops what is not wanted any more. A peer that
/// accepts nothing may keep it as long as it lives.
const RELEASE_WAIT: Duration = Duration::from_millis(100);

/// A buffer whose elements are computed, received, combined, read and sent, all at once.
///
/// ```text
/// part, commit ---.                               .--> wait: &[T]
/// land    <- peer -+--> elements become done, ----+--> send -> peer
/// combine <- peer -'    each of them once         '--> operand of another region's combine
/// ```
///
/// An element becomes *done* once: when its [`Part`] is committed, when it has landed from a peer, or when it
/// was combined from what a peer sent and the elements of another region. It is read-only from then on. Each
/// [`send`](Self::send) passes elements on as they become done (cut-through), from the same memory.
///
/// A transfer carries *sections*: ranges of elements, in the order of the list. The peer has as many elements
/// in sections of its own, which may lie elsewhere. Sections of transfers may overlap where they are sent;
/// where they land, each element comes by one of them.
///
/// The names of transfers between two nodes must differ as long as they run. A transfer is a delta of
/// one round: its other end may be a `DeltaSender` or a `DeltaReceiver` of `chunkcomm-pipeline`.
///
/// When the region or the end of a transfer is dropped, its transfers stop, and the peers get errors.
///
/// ```
/// use chunkcomm::Node;
/// use chunkcomm_group::{Increment, Region};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let far = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
/// let near = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
/// let to_far = near.connect(&far.addresses()[0]).await?;
///
/// let source = Region::filled((0..1000_u64).collect());
/// let whole = [0..1000];
/// let mut sent = source.send(&near, &to_far, "x", &whole, Increment::default()).await?;
///
/// // There the halves change places.
/// let sink = Region::new(vec![0_u64; 1000]);
/// let to_near = far.connect(&near.addresses()[0]).await?;
/// let mut landing = sink.land(&far, &to_near, "x", &[500..1000, 0..500]).await?;
/// assert_eq!(sink.wait(..2).await?, [500, 501]);
/// landing.finish().await?;
/// sent.finish().await?;
/// assert_eq!(sink.into_buffer().await[500], 0);
/// # Ok(())
/// # }
/// ```
#[must_use = "the transfers of a region stop when it is dropped"]
pub struct Region<T: Element> {
    owner: Owner<T>,
    landings: Landings,
}

/// The elements with which a [combining landing](Region::combine) combines what comes.
#[derive(Clone, Copy)]
pub struct Operand<'a, T: Element> {
    /// The region that has them, or will have them.
    pub region: &'a Region<T>,
    /// Where they are, in the order of the transfer.
    pub sections: &'a [Range<usize>],
}

impl<T: Element> Operand<'_, T> {
    /// Returns the memory of the elements, which are as many as those of these sections.
    fn beside(self, sections: &Sections) -> Own<T> {
        let of_own = self.region.sections(self.sections);
        let lengths = [sections.bytes(), of_own.bytes()].map(|bytes| bytes / size_of::<T>());
        assert!(lengths[0] == lengths[1], "{lengths:?} elements are combined");
        Own { share: self.region.owner.share().clone(), sections: of_own }
    }
}

impl<T: Element> Region<T> {
    /// Makes a region whose elements are all to be written, received or combined. `buffer` is overwritten.
    pub fn new(buffer: Vec<T>) -> Self {
        Self { owner: share(buffer), landings: Landings::default() }
    }

    /// Makes a region whose elements are all done.
    pub fn filled(buffer: Vec<T>) -> Self {
        let region = Self::new(buffer);
        let bytes = region.len() * size_of::<T>();
        if let Some(all) = region.owner.share().lease_free(0, bytes) {
            all.commit();
        }
        region
    }

    /// Hands out the elements of `range`, to be written and committed on any thread, in any order.
    ///
    /// # Errors
    /// [`PartError::Range`] when the range is not within the region. [`PartError::Out`] when elements are out
    /// with another part or are just landing, [`PartError::Committed`] when some are done. Nothing is handed
    /// out.
    pub fn part(&self, range: impl RangeBounds<usize>) -> Result<Part<T>, PartError> {
        part_of(self.owner.share(), &range)
    }

    /// Waits until all elements of `range` are done and returns them. Elements that nobody writes or sends are
    /// waited for without limit.
    ///
    /// # Errors
    /// When one of the elements would have come by a transfer that has failed. Waits for others go on.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    ///
    /// # Panics
    /// When the range is not within the region.
    pub async fn wait(&self, range: impl RangeBounds<usize>) -> Result<&[T], DeltaRecvError> {
        let range = self.within(&range);
        let bytes = range.start * size_of::<T>()..range.end * size_of::<T>();
        let look = |state: &mut State| {
            if state.extents().is_done(&bytes) {
                return Some(Ok(()));
            }
            state.end_of(&bytes).cloned().map(Err)
        };
        self.owner.share().until(look).await?;
        Ok(self.owner.elements(range).expect("they are done"))
    }

    /// Returns the elements of `range` if all of them are done.
    ///
    /// # Panics
    /// When the range is not within the region.
    #[must_use]
    pub fn done(&self, range: impl RangeBounds<usize>) -> Option<&[T]> {
        self.owner.elements(self.within(&range))
    }

    /// Waits until all elements are done and returns them.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn finish(&self) -> Result<&[T], DeltaRecvError> {
        self.wait(..).await
    }

    /// Returns the elements of `range` as bytes that share the memory, if all of them are done. The memory is
    /// kept while they exist.
    ///
    /// # Panics
    /// When the range is not within the region.
    #[must_use]
    pub fn bytes(&self, range: impl RangeBounds<usize>) -> Option<Bytes> {
        let range = self.within(&range);
        self.owner.share().view(range.start * size_of::<T>()..range.end * size_of::<T>())
    }

    /// Begins again in the same memory: no element is done any more, each keeps its value until it is written.
    ///
    /// Waits until all elements are done, and until no [bytes](Self::bytes) and no transfer use them.
    ///
    /// # Cancel safety
    /// When the future is dropped, nothing has begun; call it again.
    pub async fn start(&mut self) {
        self.owner.reset(false).await;
    }

    /// Sends the elements of these sections to `peer`, whose program receives `name`, as they become done.
    ///
    /// Whole increments leave at once, less when the link is idle; with [`Increment::Fixed`] less stays until
    /// the increment is whole or cannot grow. Costs no round trip: bytes may leave before the peer has agreed.
    ///
    /// # Errors
    /// [`DeltaSendError::Open`] or [`DeltaSendError::Channel`] when the link is gone.
    ///
    /// # Cancel safety
    /// When the future is dropped, nothing is sent; the peer sees at most a transfer that ends at once.
    ///
    /// # Panics
    /// When a section is not within the region, or two overlap. When called outside a tokio runtime.
    pub async fn send(
        &self,
        node: &Node,
        peer: &Peer,
        name: &str,
        sections: &[Range<usize>],
        increment: Increment,
    ) -> Result<RegionSend, DeltaSendError> {
        let target = Target { node, peer, channel: name };
        let (sections, manner) = self.sent(sections, increment, false);
        pump::start(target, self.owner.share(), sections, manner, ()).await.map(RegionSend::new)
    }

    /// Returns what a transfer sends and how; as part of a collective it `needs_room`.
    fn sent(
        &self,
        sections: &[Range<usize>],
        increment: Increment,
        needs_room: bool,
    ) -> (Sections, Manner) {
        let sections = self.sections(sections);
        let increment_bytes = increment.bytes_for(sections.bytes(), size_of::<T>());
        let pace = Pace::of(increment);
        let manner =
            Manner { source: Source::Region, increment_bytes, pace, flow: None, needs_room };
        (sections, manner)
    }

    /// Receives what `peer` sends by this name in these sections. Returns as soon as the peer has stated as
    /// many elements of the same type.
    ///
    /// # Errors
    /// [`DeltaRecvError::Mismatch`] when the peer states another number or type of elements; it gets an error,
    /// too. [`DeltaRecvError::Opening`] when something else opens by that name. `Accept` and `Channel` when
    /// the node or the peer is gone. The region stays as it was.
    ///
    /// # Cancel safety
    /// When the future is dropped, nothing is lost: a transfer that was opened meanwhile goes to the next call
    /// with its name.
    ///
    /// # Panics
    /// When a section is not within the region, or two overlap. When called outside a tokio runtime.
    pub async fn land(
        &self,
        node: &Node,
        peer: &Peer,
        name: &str,
        sections: &[Range<usize>],
    ) -> Result<RegionLanding, DeltaRecvError> {
        self.receive(node, peer, name, self.sections(sections), None).await
    }

    /// Receives as [`land`](Self::land) does, and lets `combine(out, own)` compute the elements of this region from
    /// what came, which `out` holds when it is called, and those of `own`. `out` holds the result after.
    ///
    /// `own` has as many elements, which need not be done yet: what comes before them waits where it landed.
    /// Elements are combined right after they were read, in pieces of up to 64 KiB, or as those of `own` become
    /// done; in any order, each once. The function runs in the node's own tasks and must not block; other
    /// transfers wait meanwhile.
    ///
    /// ```
    /// use chunkcomm::Node;
    /// use chunkcomm_group::{Increment, Operand, Region};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let far = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
    /// # let near = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
    /// # let to_far = near.connect(&far.addresses()[0]).await?;
    /// # let to_near = far.connect(&near.addresses()[0]).await?;
    /// let all = [0..10_000];
    /// let theirs = Region::filled(vec![1_u32; 10_000]);
    /// let mut sent = theirs.send(&near, &to_far, "x", &all, Increment::default()).await?;
    ///
    /// let ours = Region::filled(vec![2_u32; 10_000]);
    /// let sum = Region::new(vec![0_u32; 10_000]);
    /// let own = Operand { region: &ours, sections: &all };
    /// let add = |out: &mut [u32], own: &[u32]| {
    ///     for (out, own) in out.iter_mut().zip(own) {
    ///         *out += own;
    ///     }
    /// };
    /// let mut landing = sum.combine(&far, &to_near, "x", &all, own, add).await?;
    /// landing.finish().await?;
    /// assert_eq!(sum.finish().await?[9_999], 3);
    /// sent.finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `land`. [`RegionLanding::finish`] and waits report a panic of the function and a failure of `own`
    /// as [`DeltaRecvError::Combine`]; the peer gets an error, too.
    ///
    /// # Cancel safety
    /// As `land`.
    ///
    /// # Panics
    /// When a section is not within its region, or two overlap; when `own` has another number of elements.
    /// When called outside a tokio runtime.
    pub async fn combine(
        &self,
        node: &Node,
        peer: &Peer,
        name: &str,
        sections: &[Range<usize>],
        own: Operand<'_, T>,
        combine: impl Fn(&mut [T], &[T]) + Send + Sync + 'static,
    ) -> Result<RegionLanding, DeltaRecvError> {
        let combine = Combine { apply: Box::new(combine), in_driver: true };
        let sections = self.sections(sections);
        let own = own.beside(&sections);
        self.receive(node, peer, name, sections, Some((own, combine))).await
    }

    async fn receive(
        &self,
        node: &Node,
        peer: &Peer,
        name: &str,
        sections: Sections,
        combine: Option<(Own<T>, Combine<T>)>,
    ) -> Result<RegionLanding, DeltaRecvError> {
        let ours = Shape::of::<T>(sections.bytes() / size_of::<T>());
        let accepted = accept(node, Some(peer), name, ours).await?;
        let peer = accepted.peer.clone();
        let memory = (self.owner.share().clone(), sections);
        let (fate, outcome) = watch::channel(None);
        let interest = land_sections(accepted, name, memory, combine, Ending::Region(fate));
        Ok(self.landings.hold(interest, outcome, peer, name))
    }

    /// Stops all transfers that have not finished and returns the buffer, with what is done in it, as soon as
    /// nobody uses it: at once when all transfers have finished.
    ///
    /// Waits until all parts are dropped, and until what is just landing has ended: for a dead peer until its
    /// session ends. Bytes on their way to a peer that does not take them are waited for 100 ms; then the buffer
    /// comes back as a copy.
    ///
    /// # Cancel safety
    /// When the future is dropped, so is the buffer once it is released.
    pub async fn into_buffer(self) -> Vec<T> {
        let Self { owner, landings } = self;
        drop(landings);
        owner.into_vec_or_copy(RELEASE_WAIT).await
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owner.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owner.is_empty()
    }

    fn sections(&self, sections: &[Range<usize>]) -> Sections {
        Sections::of(sections, size_of::<T>(), self.len() * size_of::<T>())
    }

    fn within(&self, range: &impl RangeBounds<usize>) -> Range<usize> {
        let (range, length) = (indices(range, self.len()), self.len());
        assert!(
            range.start <= range.end && range.end <= length,
            "{range:?} is not within {length} elements"
        );
        range
    }
}

impl<T: Element> fmt::Debug for Region<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = self.owner.share().state().extents().done_bytes() / size_of::<T>();
        f.debug_struct("Region").field("len", &self.len()).field("done", &done).finish()
    }
}

impl<T: Element> fmt::Debug for Operand<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, sections } = self;
        f.debug_struct("Operand").field("region", region).field("sections", sections).finish()
    }
}
