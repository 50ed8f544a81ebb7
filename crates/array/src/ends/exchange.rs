//! Exchanges of one group with itself.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use chunkcomm::host::memory::Slices;
use chunkcomm::{Loss, host};
use chunkcomm_group::{Element, Group};
use tokio::runtime::Handle;

use super::error::ArrayError;
use super::one_way::{Arriving, Leaving, all, poll_each};
use super::opening::{Ranks, agree_within, ways};
use super::way::{Failure, Messages, Way};
use super::wire::HEAD_BYTES;
use crate::layout::Layout;
use crate::plan::Side;

/// The ways of an exchange of one group with itself: into another layout, or into margins.
///
/// In place, all that leaves is packed before anything lands: it takes as much further memory as leaves this rank.
/// Elements that stay in their places are not touched. From one storage to another, a tile is packed when its peer takes
/// it.
pub(crate) struct Exchange {
    leaving: Vec<Leaving>,
    arriving: Vec<Arriving>,
    /// Elements that stay at this rank but change their places.
    own: Option<(Way, Way)>,
    kept: Messages,
    /// Number of their tiles that are copied, where they need not be kept.
    copied: usize,
    ranks: Ranks,
    /// Number of the run, from 1; 0 before the first.
    round: u32,
    stage: Stage,
    fault: Option<ArrayError>,
}

/// The storage of an exchange.
pub(crate) enum Memory<'a, T> {
    /// In place.
    One(&'a mut [T]),
    /// That from which elements leave, and that into which they come.
    Two(&'a [T], &'a mut [T]),
}

impl<T> Memory<'_, T> {
    /// Returns the storage from which tiles are still to be packed, and that into which they come.
    fn parts(&mut self) -> (Option<&[T]>, &mut [T]) {
        match self {
            Memory::One(storage) => (None, storage),
            Memory::Two(source, target) => (Some(source), target),
        }
    }
}

/// Progress of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// None is under way.
    Idle,
    /// Nothing lands before all is packed.
    Packing,
    Moving,
}

impl Exchange {
    /// Opens an exchange between two layouts, if no rank names a fault; all ranks of the group do.
    pub(crate) async fn open<T: Element>(
        group: &mut Group,
        (from, to): (&Layout, &Layout),
        fault: Option<String>,
        in_place: bool,
    ) -> Result<Exchange, ArrayError> {
        let agreed = agree_within::<T>(group, from, to, fault).await?;
        let (rank, ranks) = (group.rank(), Ranks::of(group));
        let parted = |side| {
            let all = ways::<T>(&agreed, (side, rank), &ranks, |rank| group.member(rank));
            let (own, others): (Vec<_>, _) = all.into_iter().partition(|(way, _)| way.rank == rank);
            (own.into_iter().next().map(|(way, _)| way), others)
        };
        let (own_leaving, to) = parted(Side::Sender);
        let (own_arriving, from) = parted(Side::Receiver);
        // After a fault, too: no peer waits for a channel that does not come.
        let leaving = all(to.into_iter().map(|(way, link)| Leaving::open(way, link))).await;
        let arriving = from.into_iter().map(|(way, link)| Arriving::accept::<T>(way, link));
        let arriving = all(arriving).await;
        let mut faults = Vec::new();
        let moves = |(way, _): &(Way, Way)| !in_place || !way.stays_in_place();
        let mut exchange = Exchange {
            leaving: sound(leaving, &mut faults),
            arriving: sound(arriving, &mut faults),
            own: own_leaving.zip(own_arriving).filter(moves),
            kept: Messages::default(),
            copied: 0,
            ranks,
            round: 0,
            stage: Stage::Idle,
            fault: None,
        };
        match faults.pop() {
            Some(fault) => Err(exchange.ended(fault)),
            None => Ok(exchange),
        }
    }

    /// Ends the exchange: the peers hear of the fault, and what this rank does not send comes from nobody.
    fn ended(&mut self, (error, told): Failure) -> ArrayError {
        self.leaving.drain(..).for_each(|leaving| leaving.fail(&told));
        self.arriving.clear();
        self.fault = Some(error.clone());
        error
    }

    /// Exchanges once, or goes on with a run that was dropped.
    pub(crate) async fn run<T: Element>(
        &mut self,
        mut memory: Memory<'_, T>,
    ) -> Result<(), ArrayError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if self.stage == Stage::Idle {
            self.stage = Stage::Packing;
            self.round += 1;
            self.arriving.iter_mut().for_each(|arriving| arriving.intake.begin(self.round));
            self.leaving.iter_mut().for_each(|leaving| leaving.packed = 0);
            self.copied = 0;
        }
        let ranks = self.ranks.clone();
        let outcome = tokio::select! {
            biased;
            outcome = self.exchange(&mut memory) => outcome,
            loss = ranks.lost() => match self.waits_for(&loss) {
                Some(fault) => Err(fault),
                None => {
                    self.fault = Some(ArrayError::Ended);
                    return Err(ArrayError::Ended);
                }
            },
        };
        outcome.map_err(|fault| self.ended(fault))?;
        self.stage = Stage::Idle;
        Ok(())
    }

    /// Returns the error with a rank that this one waits for.
    fn waits_for(&self, loss: &Loss) -> Option<Failure> {
        let arriving = self.arriving.iter().find(|arriving| arriving.intake.missing > 0);
        let leaving = || Some(self.leaving.first()?.way.broken(loss.clone().into(), 0));
        arriving.map(|it| it.intake.broken(loss.clone().into())).or_else(leaving)
    }

    /// Goes on where the last call was dropped.
    async fn exchange<T: Element>(&mut self, memory: &mut Memory<'_, T>) -> Result<(), Failure> {
        let mut slices = Slices::default();
        if self.stage == Stage::Packing {
            match memory {
                Memory::One(storage) => {
                    for Leaving { way, messages, .. } in &mut self.leaving {
                        way.pack_all(self.round, storage, (messages, &mut slices)).await;
                    }
                    if let Some((way, _)) = &self.own {
                        way.pack_all(self.round, storage, (&mut self.kept, &mut slices)).await;
                    }
                }
                Memory::Two(source, target) => {
                    let mut message = Vec::new();
                    if let Some((from, to)) = &self.own {
                        while self.copied < from.tiles.len() {
                            from.pack((self.round, self.copied), (source, 0), &mut message);
                            to.place(self.copied, &message[HEAD_BYTES..], *target);
                            self.copied += 1;
                            slices.worked(message.len()).await;
                        }
                    }
                }
            }
            self.stage = Stage::Moving;
        }
        while let (Some(message), Some((_, way))) = (self.kept.0.pop_front(), &self.own) {
            let index = way.tiles.len() - self.kept.0.len() - 1;
            way.place(index, &message[HEAD_BYTES..], memory.parts().1);
            slices.worked(message.len()).await;
        }
        poll_fn(|context| self.poll_moved(memory, context)).await
    }

    fn poll_moved<T: Element>(
        &mut self,
        memory: &mut Memory<'_, T>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let (source, target) = memory.parts();
        // A peer that ends says why before it closes its channels.
        let landed =
            poll_each(&mut self.arriving, |arriving| arriving.poll_whole(target, context))?;
        let left = poll_each(&mut self.leaving, |leaving| match source {
            Some(source) => leaving.poll_packed(self.round, source, context),
            None => leaving.poll(context),
        })?;
        ready!(landed);
        left.map(Ok)
    }
}

type BoxedOpening = Pin<Box<dyn Future<Output = Result<Exchange, ArrayError>> + Send>>;

/// The opening of an exchange. Dropped once it has begun, it goes on as a task: the other ranks then hear that this one has
/// dropped its end.
pub(crate) struct Opening {
    /// In a lock that nobody waits for, since an array may be shared by reference.
    opening: Option<Mutex<BoxedOpening>>,
    has_begun: bool,
    runtime: Handle,
}

impl Opening {
    pub(crate) fn new<T: Element>(
        group: &Group,
        (from, to): (Layout, Layout),
        fault: Option<String>,
        in_place: bool,
    ) -> Opening {
        let mut group = group.share();
        let runtime = group.cluster().node().runtime().clone();
        let opening: BoxedOpening = Box::pin(async move {
            Exchange::open::<T>(&mut group, (&from, &to), fault, in_place).await
        });
        Opening { opening: Some(Mutex::new(opening)), has_begun: false, runtime }
    }
}

impl Future for Opening {
    type Output = Result<Exchange, ArrayError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.has_begun = true;
        let opening = self.opening.as_mut().expect("it is opened once");
        let opening = opening.get_mut().unwrap_or_else(PoisonError::into_inner);
        let opened = ready!(opening.as_mut().poll(context));
        self.opening = None;
        Poll::Ready(opened)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(opening) = self.opening.take().filter(|_| self.has_begun) {
            let opening = opening.into_inner().unwrap_or_else(PoisonError::into_inner);
            host::spawn_on(&self.runtime, async move { drop(opening.await) });
        }
    }
}

/// An exchange that is kept for further runs, also while it is opened and after it has failed.
pub(crate) enum Kept {
    Opening(Opening),
    Open(Box<Exchange>),
    Failed(ArrayError),
}

impl Kept {
    /// Opens it, or goes on with an opening that was dropped.
    pub(crate) async fn opened(&mut self) -> Result<&mut Exchange, ArrayError> {
        if let Kept::Opening(opening) = self {
            *self = match opening.await {
                Ok(exchange) => Kept::Open(Box::new(exchange)),
                Err(error) => Kept::Failed(error),
            };
        }
        match self {
            Kept::Open(exchange) => Ok(exchange),
            Kept::Failed(error) => Err(error.clone()),
            Kept::Opening(_) => unreachable!("it was opened"),
        }
    }

    /// Exchanges once, or goes on with what was dropped: the opening, or a run.
    pub(crate) async fn run<T: Element>(
        &mut self,
        memory: Memory<'_, T>,
    ) -> Result<(), ArrayError> {
        self.opened().await?.run(memory).await
    }
}

/// Returns the ends without a fault.
fn sound<E, F>(opened: Vec<Result<E, F>>, faults: &mut Vec<F>) -> Vec<E> {
    opened.into_iter().filter_map(|end| end.map_err(|fault| faults.push(fault)).ok()).collect()
}

/// Returns what is wrong with a layout that has not one rank for each of the group.
pub(crate) fn other_size(layout: &Layout, group: &Group) -> Option<String> {
    let (ranks, size) = (layout.ranks(), group.size());
    (ranks != size)
        .then(|| format!("the layout {layout} is one of {ranks} ranks, the group has {size}"))
}
