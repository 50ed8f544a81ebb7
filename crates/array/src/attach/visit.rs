//! A visitor as the group sees it.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use chunkcomm::host::memory::{self, FreedVec, Slices};
use chunkcomm::{Loss, LossKind, host, with_causes};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;
use chunkcomm_group::{Element, Group};

use super::desk::{Teller, Told, UnderWay};
use super::{Ask, Served, Word, departed, whole, words_of};
use crate::array::Array;
use crate::ends::error::{ArrayError, StatementDifference};
use crate::ends::one_way::Arriving;
use crate::ends::opening::{Link, Ranks, agree_within, ways};
use crate::ends::statement::{Agreed, Statement, element_text};
use crate::ends::way::{Messages, Way};
use crate::layout::Layout;
use crate::plan::Side;

/// A visitor that wants the array of a group, or gives one; made by [`ArrayPort::visits`](crate::ArrayPort::visits).
///
/// All ranks of the group call [`send`](Self::send) or [`receive`](Self::receive) together. A visit that is
/// dropped instead ends with an error at the visitor.
#[must_use = "a visitor is sent away when its visit is dropped"]
pub struct Visit {
    pub(super) name: Arc<str>,
    pub(super) ask: Ask,
    /// At rank 0.
    pub(super) teller: Option<Teller>,
    pub(super) under_way: UnderWay,
    /// Held while this rank has elements for the visitor, or may have.
    pub(super) has_elements: Arc<()>,
    /// Those of the port's group.
    pub(super) members: Vec<NodeId>,
    pub(super) patience: Duration,
}

impl Visit {
    /// Returns a mark that stands as long as this rank has elements for the visitor, or may have.
    pub(super) fn mark(&self) -> Weak<()> {
        Arc::downgrade(&self.has_elements)
    }

    /// Returns the visitor's place in the cluster.
    #[must_use]
    pub fn visitor(&self) -> NodeId {
        self.ask.0
    }

    /// Returns the shape of the array that the visitor gives; `None` when it takes one.
    #[must_use]
    pub fn gives(&self) -> Option<Vec<usize>> {
        let shape = self.ask.2.as_ref()?;
        Some(shape.iter().map(|extent| usize::try_from(*extent).unwrap_or(usize::MAX)).collect())
    }

    /// Sends the visitor away; it gets an error with this reason. Rank 0 decides the reason.
    pub fn refuse(self, why: &str) {
        self.say(Err(Some(why.to_owned())));
    }

    /// Sends the array to the visitor. All ranks of the group call it.
    ///
    /// It is packed before the call returns, which takes as much further memory, and leaves in the background: the
    /// visitor gets the array as it is now. It gets all of it, or of its region, in C's order.
    ///
    /// `Ok` does not mean that the visitor got it; [`ArrayPort::close`](crate::ArrayPort::close) waits for that.
    ///
    /// # Errors
    ///
    /// All ranks get the same error, and the visitor gets it as a text:
    /// - [`ArrayError::Differs`] when the ranks' layouts differ, [`ArrayError::Rank`] when an array is one of another group
    ///   than the port;
    /// - [`ArrayError::Mismatch`] when the visitor wants elements of another type, or gives an array. It counts as
    ///   the rank behind the last one of the group;
    /// - [`ArrayError::Group`] when a rank of the group is gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the other ranks get an error or wait for this one, and the visitor gets an error.
    pub async fn send<T: Element>(self, array: &Array<T>) -> Result<(), ArrayError> {
        let mut group = array.group.share();
        let agreed = self.agree::<T>(&mut group, array.layout(), Side::Sender).await?;
        for (way, link) in self.ways::<T>(&group, &agreed, Side::Sender) {
            let (mut messages, mut slices) = (Messages::default(), Slices::default());
            way.pack_all(1, &array.local(), (&mut messages, &mut slices)).await;
            let (cluster, visitor) = (group.cluster().clone(), self.visitor());
            let patience = self.patience;
            let busy = (self.under_way.begin(), Arc::clone(&self.has_elements));
            host::spawn_on(group.cluster().node().runtime(), async move {
                let _busy = busy;
                cluster.heard_of(&[visitor]).await;
                // A visitor that is gone needs nothing.
                let _ = deliver(&link, messages, patience).await;
            });
        }
        self.serve(&group, &agreed.from, agreed.nonce);
        Ok(())
    }

    /// Receives the array that the visitor gives. All ranks of the group call it, and wait for the visitor.
    ///
    /// The array changes when all ranks have their elements, which takes as much further memory until then. Elements that
    /// a margin holds come as well.
    ///
    /// # Errors
    ///
    /// All ranks get the same error, and no array changes:
    /// - [`ArrayError::Differs`] when the ranks' layouts do not fit;
    /// - [`ArrayError::Mismatch`] when the visitor gives elements of another type, an array of another shape, or
    ///   takes one. It counts as the rank behind the last one of the group;
    /// - [`ArrayError::Peer`] when the visitor is gone, or gave nothing for the port's patience;
    /// - [`ArrayError::Group`] when a rank of the group is gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, no array changes; the other ranks wait for this one, and the visitor gets an
    /// error.
    pub async fn receive<T: Element>(self, array: &mut Array<T>) -> Result<(), ArrayError> {
        let mut group = array.group.share();
        let agreed = self.agree::<T>(&mut group, array.layout(), Side::Receiver).await?;
        self.serve(&group, &agreed.to, agreed.nonce);
        let mut staged = None;
        let mut fault = None;
        // The visitor alone, or nobody.
        for way in self.ways::<T>(&group, &agreed, Side::Receiver) {
            let copied = memory::copied(&array.local()).await;
            let staged = &mut staged.insert(FreedVec(copied)).0;
            let cluster = group.cluster().clone();
            fault = tokio::select! {
                biased;
                received = receive(&cluster, self.visitor(), way, staged, self.patience) => {
                    received.err()
                }
                loss = departed(&cluster, self.visitor()) => Some(loss),
            };
        }
        let faults = group.all_gather_values(fault).await;
        let faults = self.told(faults.map_err(|error| ArrayError::Group(error.cause)))?;
        let fault = faults.into_iter().enumerate().find_map(|(rank, loss)| Some((rank, loss?)));
        if let Some((by, loss)) = fault {
            let loss = Loss::new(loss.kind(), format!("{loss:?}, as rank {by} found"));
            let elements = agreed.from.local_len(0);
            let error = ArrayError::Peer { side: Side::Sender, rank: 0, loss, landed: 0, elements };
            return self.told(Err(error));
        }
        if let Some(staged) = staged {
            let storage = array.storage_mut();
            Placing { staged: &staged.0, storage, placed: 0 }.run().await;
        }
        self.say(Ok(None));
        Ok(())
    }

    /// Plans what this rank sends to the visitor, or receives.
    fn ways<T>(&self, group: &Group, agreed: &Agreed, side: Side) -> Vec<(Way, Link)> {
        let ranks = Ranks::new(group.cluster(), &[self.visitor()]);
        ways::<T>(agreed, (side, group.rank()), &ranks, |_| self.visitor())
    }

    /// Agrees with the other ranks on what they send to the visitor, or receive, and whether that is what it wants.
    async fn agree<T: Element>(
        &self,
        group: &mut Group,
        layout: &Layout,
        side: Side,
    ) -> Result<Agreed, ArrayError> {
        let size = group.size();
        let theirs = whole(&layout.shape()).expect("a layout has a possible shape");
        let shape = layout.shape().into_iter().map(|extent| extent as u64).collect();
        let (from, to, does, wanted) = match side {
            Side::Sender => (layout, &theirs, "sends", None),
            Side::Receiver => (&theirs, layout, "receives", Some(shape)),
        };
        let of = (0..size).map(|rank| group.member(rank));
        let why = "its array is one of another group than the port";
        let fault = (!of.eq(self.members.iter().copied())).then(|| why.to_owned());
        let agreed = self.told(agree_within::<T>(group, from, to, fault).await)?;
        let ours = Statement::of::<T>(layout);
        if (&words_of(&ours.element), &wanted) == (&self.ask.1, &self.ask.2) {
            return Ok(agreed);
        }
        let ours = format!("{does} {ours}");
        let statements = [ours, self.statement()];
        let difference = StatementDifference { ranks: [0, size], statements };
        self.told(Err(ArrayError::Mismatch(Box::new(difference))))
    }

    /// Returns what the visitor wants, in words.
    fn statement(&self) -> String {
        let (_, (element, bytes, big_endian), _) = &self.ask;
        let of = element_text(element, *bytes, *big_endian);
        match self.gives() {
            None => format!("takes an array of {of}"),
            Some(shape) => format!("gives an array of {of} of the shape {shape:?}"),
        }
    }

    /// Tells the visitor how it is served.
    fn serve(&self, group: &Group, layout: &Layout, nonce: u64) {
        let members = (0..group.size()).map(|rank| group.member(rank)).collect();
        let served: Served = (layout.to_words(), members, nonce);
        self.say(Ok(Some(served)));
    }

    /// Tells the visitor of an error.
    fn told<O>(&self, outcome: Result<O, ArrayError>) -> Result<O, ArrayError> {
        if let Err(error) = &outcome {
            self.say(Err(Some(with_causes(error))));
        }
        outcome
    }

    fn say(&self, word: Word) {
        if let Some(teller) = &self.teller {
            // A visitor that is gone hears nothing.
            let _ = teller.send(Told::Word(word));
        }
    }
}

/// The copying of what came to the storage. When it is dropped it is done at once: all of the storage changes,
/// or nothing.
struct Placing<'a, T: Element> {
    staged: &'a [T],
    storage: &'a mut [T],
    placed: usize,
}

impl<T: Element> Placing<'_, T> {
    async fn run(mut self) {
        let mut slices = Slices::default();
        for slice in self.staged.chunks(memory::elements_of_slice::<T>()) {
            self.storage[self.placed..][..slice.len()].copy_from_slice(slice);
            self.placed += slice.len();
            slices.worked(size_of_val(slice)).await;
        }
    }
}

impl<T: Element> Drop for Placing<'_, T> {
    fn drop(&mut self) {
        self.storage[self.placed..].copy_from_slice(&self.staged[self.placed..]);
    }
}

/// Sends packed elements to the visitor, and waits until they are there.
async fn deliver(link: &Link, mut messages: Messages, patience: Duration) -> Result<(), Loss> {
    let mut channel = within(patience, link.open_one_way()).await?;
    while let Some(message) = messages.0.pop_front() {
        within(patience, channel.send(message)).await?;
    }
    // Until then it is in memory here.
    loop {
        let before = channel.stats().acknowledged;
        match host::timeout(patience, channel.sync()).await {
            Ok(synced) => break synced?,
            Err(_) if channel.stats().acknowledged > before => {}
            Err(_) => return Err(silent(patience)),
        }
    }
    channel.close(patience).await.map_err(Loss::from)
}

/// Receives what the visitor gives to this rank.
async fn receive<T: Element>(
    cluster: &Cluster,
    visitor: NodeId,
    (way, link): (Way, Link),
    storage: &mut [T],
    patience: Duration,
) -> Result<(), Loss> {
    cluster.heard_of(&[visitor]).await;
    let channel = within(patience, link.accept_one_way()).await?;
    let mut arriving = Arriving::new::<T>(way, channel);
    loop {
        let before = arriving.intake.missing;
        let arrived = poll_fn(|context| arriving.poll(storage, context));
        match host::timeout(patience, arrived).await {
            Ok(arrived) => return arrived.map_err(|fault| fault.loss()),
            Err(_) if arriving.intake.missing < before => {}
            Err(_) => return Err(silent(patience)),
        }
    }
}

/// Waits for what the visitor does within its patience.
async fn within<O, E>(
    patience: Duration,
    future: impl Future<Output = Result<O, E>>,
) -> Result<O, Loss>
where
    Loss: From<E>,
{
    let outcome = host::timeout(patience, future).await.map_err(|_| silent(patience))?;
    Ok(outcome?)
}

fn silent(patience: Duration) -> Loss {
    Loss::new(LossKind::Silent, format!("it did nothing for {patience:?}"))
}

impl fmt::Debug for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visit")
            .field("name", &self.name)
            .field("visitor", &self.visitor())
            .field("gives", &self.gives())
            .finish_non_exhaustive()
    }
}
