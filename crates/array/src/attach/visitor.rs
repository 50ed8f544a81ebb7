//! A program that comes later.

use std::future::poll_fn;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use chunkcomm::host::memory::{FreedVec, Slices};
use chunkcomm::{Duplex, Loss, LossKind, host};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;
use chunkcomm_group::{Element, Shape};

use super::{Ask, AttachError, Word, key, whole, words_of};
use crate::ends::error::refused;
use crate::ends::one_way::{Arriving, Leaving, poll_each};
use crate::ends::opening::{Ranks, ways};
use crate::ends::shared::reported;
use crate::ends::statement::Agreed;
use crate::ends::way::Failure;
use crate::layout::Layout;
use crate::npy::{Npy, NpyElement, NpyError};
use crate::plan::Side;

/// Time after which a wait is reported, by default: 10 s.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// Time in which the word of a group comes that has closed its port meanwhile: 5 s.
const LAST_WORD: Duration = Duration::from_secs(5);

/// A program that takes the array that a group offers under a name, or gives one.
///
/// The group offers it by an [`ArrayPort`](crate::ArrayPort), and may be there before the visitor or after it. The
/// visitor is any member of the cluster, as one that joined later; it makes no call of the group.
///
/// ```
/// use chunkcomm_array::Visitor;
/// # use chunkcomm_array::{Array, ArrayPort};
/// # use chunkcomm_cluster::{Cluster, ClusterConfig};
/// # use chunkcomm_group::Group;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = Cluster::join(ClusterConfig::new().nodes(1)).await?;
/// # let mut group = Group::world(&cluster).await?;
/// # let mut port = ArrayPort::open(&mut group, "field").await?;
/// # let visit = async {
/// let field = Visitor::new(&cluster, "field");
/// let (mut elements, shape) = field.take::<f64>().await?;
/// assert_eq!((shape, elements.len()), (vec![2, 3], 6));
/// elements.fill(0.5);
/// field.give(&[2, 3], &elements).await?;
/// # Ok::<_, chunkcomm_array::AttachError>(())
/// # };
/// # let serve = async {
/// #     let mut array = Array::<f64>::zeros(&group, "(*,*)", [2, 3])?;
/// #     let mut served = 0;
/// #     while served < 2 {
/// #         for visit in port.visits(&mut group).await? {
/// #             match visit.gives() {
/// #                 None => visit.send(&array).await?,
/// #                 Some(_) => visit.receive(&mut array).await?,
/// #             }
/// #             served += 1;
/// #         }
/// #         chunkcomm::host::sleep(std::time::Duration::from_millis(1)).await;
/// #     }
/// #     assert_eq!(*array.local(), [0.5; 6]);
/// #     Ok::<_, Box<dyn std::error::Error>>(())
/// # };
/// # let (visited, served) = tokio::join!(visit, serve);
/// # visited?;
/// # served?;
/// # Ok(())
/// # }
/// ```
///
/// A visit waits until a group offers the array and then until that group next looks for visitors. Both waits have
/// no end; `chunkcomm::host::timeout` around a visit sets one.
#[derive(Clone, Debug)]
pub struct Visitor {
    cluster: Cluster,
    name: String,
    report_after: Duration,
}

/// A visit that the group serves.
struct Serving {
    /// The group takes its end as that of the visit.
    duplex: Duplex<Ask, Word>,
    /// The layouts of the group and of this visitor.
    agreed: Agreed,
    members: Vec<NodeId>,
}

impl Visitor {
    /// Makes a visitor of the array with this name.
    #[must_use]
    pub fn new(cluster: &Cluster, name: &str) -> Visitor {
        let (cluster, name) = (cluster.clone(), name.to_owned());
        Visitor { cluster, name, report_after: REPORT_AFTER }
    }

    /// Sets the time after which a wait for the group is reported to the people who run the node; by default 10 s.
    #[must_use]
    pub fn report_after(self, time: Duration) -> Visitor {
        Visitor { report_after: time, ..self }
    }

    /// Takes the array: returns all of its elements, in C's order, and its shape.
    ///
    /// It is the array at the time when the group sent it, the same at all of its ranks.
    ///
    /// # Errors
    ///
    /// - [`AttachError::Refused`] when the array has elements of another type, with both types, or the group
    ///   does not send it;
    /// - [`AttachError::Closed`], [`AttachError::Gone`] when the group goes before it has served the visitor;
    /// - [`AttachError::Transfer`] when a rank of the group is gone while it sends;
    /// - [`AttachError::Memory`] when there is no memory for the array.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the visit is over; the group goes on.
    pub async fn take<T: Element>(&self) -> Result<(Vec<T>, Vec<usize>), AttachError> {
        let serving = self.ask::<T>(None).await?;
        let what = || format!("waits for the elements of array {:?}", self.name);
        let elements = self.reported(what, self.take_elements(&serving)).await;
        Ok((elements?, serving.agreed.to.shape()))
    }

    /// Takes the array into an `.npy` file, which is created or replaced. Returns its shape.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take); [`AttachError::Npy`] when the file cannot be written.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the visit is over; the file may be there in part.
    pub async fn take_npy<T: NpyElement>(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<Vec<usize>, AttachError> {
        let (elements, shape) = self.take::<T>().await?;
        let layout = whole(&shape).expect("the group has such a layout");
        let path = path.as_ref().to_owned();
        let write = move || -> Result<(), NpyError> {
            Npy::create::<T>(&path, &layout.shape())?.write_local(&layout, 0, &elements)
        };
        host::compute(Duration::ZERO, write).await.map_err(AttachError::Npy)?;
        Ok(shape)
    }

    /// Gives an array to the group: its elements, in C's order. Returns when all ranks have taken theirs.
    ///
    /// As much further memory as the array has is used until then.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take); [`AttachError::Layout`] and [`AttachError::Elements`] when there is no such array.
    /// After [`AttachError::Gone`] and [`AttachError::Transfer`] the group may have taken it all the same.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the group takes the array, or gets an error at all ranks.
    pub async fn give<T: Element>(
        &self,
        shape: &[usize],
        elements: &[T],
    ) -> Result<(), AttachError> {
        let layout = whole(shape)
            .map_err(|source| AttachError::Layout { name: self.name.clone(), source })?;
        let (expected, found) = (layout.local_len(0), elements.len());
        if expected != found {
            return Err(AttachError::Elements { shape: shape.to_vec(), expected, found });
        }
        let Serving { mut duplex, agreed, members } = self.ask::<T>(Some(shape)).await?;
        if agreed.to.shape() != shape {
            return Err(self.gone(refused("it serves another shape")));
        }
        let what = || format!("waits until the group has taken array {:?}", self.name);
        let mut channels = Vec::new();
        let given = async {
            let sent = self.give_elements((&agreed, &members), elements, &mut channels);
            let word = tokio::select! {
                biased;
                word = duplex.recv() => word,
                fault = sent => match fault {
                    Ok(()) => duplex.recv().await,
                    Err(fault) => return Err(fault),
                },
            };
            match word {
                Ok(Some(Ok(None))) => Ok(()),
                other => Err(self.ended(other)),
            }
        };
        self.reported(what, given).await
    }

    /// Gives the array of an `.npy` file to the group.
    ///
    /// # Errors
    ///
    /// As [`give`](Self::give); [`AttachError::Npy`] when the file cannot be read or has elements of another type.
    ///
    /// # Cancel safety
    ///
    /// As `give`.
    pub async fn give_npy<T: NpyElement>(&self, path: impl AsRef<Path>) -> Result<(), AttachError> {
        let (path, name) = (path.as_ref().to_owned(), self.name.clone());
        let read = move || {
            let mut file = Npy::open(&path).map_err(AttachError::Npy)?;
            let shape = file.shape().to_vec();
            let layout = whole(&shape).map_err(|source| AttachError::Layout { name, source })?;
            let elements = file.read_local::<T>(&layout, 0).map_err(AttachError::Npy)?;
            Ok((shape, elements))
        };
        let (shape, elements) = host::compute(Duration::ZERO, read).await?;
        self.give(&shape, &elements).await
    }

    /// Asks the group that offers the array to serve this visitor, and waits until it does.
    async fn ask<T: Element>(&self, shape: Option<&[usize]>) -> Result<Serving, AttachError> {
        let element = words_of(&Shape::of::<T>(1));
        let shape = shape.map(|shape| shape.iter().map(|extent| *extent as u64).collect());
        let ask: Ask = (self.cluster.id(), element, shape);
        let host = OnceLock::new();
        let what = || match host.get() {
            None => format!("waits for a group that offers array {:?}", self.name),
            Some(host) => format!(
                "waits for the group of {host} to look for visitors of array {:?}",
                self.name
            ),
        };
        self.reported(what, self.find(&ask, &host)).await
    }

    async fn find(&self, ask: &Ask, host: &OnceLock<NodeId>) -> Result<Serving, AttachError> {
        let (cluster, key) = (&self.cluster, key(&self.name));
        let provider = cluster.provider(&key).await;
        let provider =
            provider.map_err(|source| AttachError::Name { name: self.name.clone(), source })?;
        host.set(provider).expect("it is found once");
        let peer = cluster.peer_of(provider).await.map_err(|loss| self.gone(loss))?;
        let opened = cluster.node().open_duplex::<Ask, Word>(&peer, &*key).await;
        let mut duplex = opened.map_err(|error| self.gone(error))?;
        duplex.send(ask).await.map_err(|error| self.gone(error))?;
        duplex.flush().await.map_err(|error| self.gone(error))?;
        let closed = async {
            // A port that is opened again has this visitor among those that wait.
            loop {
                cluster.withdrawn(&key, provider).await;
                host::sleep(LAST_WORD).await;
                if !cluster.providers(&key).contains(&provider) {
                    return;
                }
            }
        };
        let word = tokio::select! {
            biased;
            word = duplex.recv() => word,
            () = closed => return Err(self.closed(provider)),
        };
        let (layout, members, nonce) = match word {
            Ok(Some(Ok(Some(served)))) => served,
            other => return Err(self.ended(other)),
        };
        match Layout::from_words(&layout) {
            Ok(layout) if layout.ranks() == members.len() => {
                let own = whole(&layout.shape()).expect("the group has such a layout");
                let (from, to) = if ask.2.is_some() { (own, layout) } else { (layout, own) };
                Ok(Serving { duplex, agreed: Agreed { from, to, nonce }, members })
            }
            _ => Err(self.gone(refused("its layout makes no sense"))),
        }
    }

    async fn take_elements<T: Element>(&self, serving: &Serving) -> Result<Vec<T>, AttachError> {
        let Serving { agreed, members, .. } = serving;
        // The group states the shape.
        let elements = agreed.to.local_len(0);
        let zeros = bytemuck::try_zeroed_vec::<T>(elements).map_err(|()| {
            let bytes = elements.saturating_mul(size_of::<T>());
            AttachError::Memory { name: self.name.clone(), shape: agreed.to.shape(), bytes }
        })?;
        let mut storage = FreedVec(zeros);
        let mut arriving = Vec::new();
        let ranks = Ranks::new(&self.cluster, members);
        for (way, link) in ways::<T>(agreed, (Side::Receiver, 0), &ranks, |rank| members[rank]) {
            let accepted = Arriving::accept::<T>(way, link).await;
            arriving.push(accepted.map_err(|fault| self.failed(fault))?);
        }
        let arrived = poll_fn(|context| {
            poll_each(&mut arriving, |arriving| arriving.poll_whole(&mut storage.0, context))
        });
        arrived.await.map_err(|fault| self.failed(fault))?;
        Ok(storage.into_inner())
    }

    /// Sends the elements of all ranks. The channels stay open until `leaving` is dropped.
    async fn give_elements<T: Element>(
        &self,
        (agreed, members): (&Agreed, &[NodeId]),
        elements: &[T],
        leaving: &mut Vec<Leaving>,
    ) -> Result<(), AttachError> {
        let (ranks, mut slices) = (Ranks::new(&self.cluster, members), Slices::default());
        for (way, link) in ways::<T>(agreed, (Side::Sender, 0), &ranks, |rank| members[rank]) {
            let opened = Leaving::open(way, link).await.map_err(|fault| self.failed(fault))?;
            leaving.push(opened);
            let Leaving { way, messages, .. } = leaving.last_mut().expect("it was pushed");
            way.pack_all(1, elements, (messages, &mut slices)).await;
        }
        let left = poll_fn(|context| poll_each(&mut *leaving, |leaving| leaving.poll(context)));
        left.await.map_err(|fault| self.failed(fault))
    }

    /// Waits for `future`, and reports the wait.
    async fn reported<F: Future>(&self, what: impl FnOnce() -> String, future: F) -> F::Output {
        let node = self.cluster.node();
        let what = || format!("array: {} for {:.0?}", what(), self.report_after);
        reported(node.name(), self.report_after, what, future).await
    }

    /// Returns the error of a visit that ended with this word.
    fn ended(&self, word: Result<Option<Word>, chunkcomm::RecvError>) -> AttachError {
        let name = self.name.clone();
        match word {
            Ok(Some(Err(Some(why)))) => AttachError::Refused { name, why },
            Ok(Some(Err(None))) => AttachError::Closed { name },
            Ok(Some(Ok(_))) => self.gone(refused("it spoke out of turn")),
            Ok(None) => self.gone(Loss::new(LossKind::Left, "it ended the visit")),
            Err(error) => self.gone(error),
        }
    }

    /// Returns the error of a visit whose group offers the array no longer.
    fn closed(&self, provider: NodeId) -> AttachError {
        match self.cluster.deaths().iter().find(|death| death.id == provider) {
            Some(death) => self.gone(death.clone()),
            None => AttachError::Closed { name: self.name.clone() },
        }
    }

    fn gone(&self, loss: impl Into<Loss>) -> AttachError {
        AttachError::Gone { name: self.name.clone(), loss: loss.into() }
    }

    fn failed(&self, (source, _): Failure) -> AttachError {
        AttachError::Transfer { name: self.name.clone(), source }
    }
}
