//! Tasks that send each other tagged messages: the idiom of PVM (A. Geist and others, "PVM 3 User's Guide"). Its call
//! `pvm_name` is [`Pvm`]'s `name`; `pvm_exit` is the drop, `pvm_config` [`Cluster::members`]. Differences:
//! - A task is a registered function; a value is packed whole, with its type; a wildcard is `None`.
//! - A send to a task that is known to be gone is an error. A receive waits, which `Node::explain` lists; see [`Pvm::notify`].

mod groups;
mod message;

use std::collections::{BTreeMap, btree_map::Entry};
use std::{process::Command, sync::Arc, time::Duration};

use chunkcomm::{Sender, host, layer::warn};
use chunkcomm_cluster::cluster::{Change, NameError};
use chunkcomm_cluster::process::{Failure, Process, ProcessHandle};
use chunkcomm_cluster::{Cluster, NodeExt as _, Registry, ValueWriter, registry::Travels};

pub use self::message::{Message, Tid, What};
use super::{mailbox::Mailbox, packed::Packed, sole::Sole};
use chunkcomm_examples::attaching;

/// A registered task with arguments.
pub type Task<A> = Process<(Tid, ValueWriter<Tid>, A)>;

/// Registers a task on a node that has not joined yet, which warns of failures.
pub fn task<A, F, R>(registry: &mut Registry, name: &str, function: F) -> Task<A>
where
    A: Travels + Send,
    F: Fn(Pvm, A) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let function = Arc::new(function);
    registry.process(name, move |context, (parent, started, args): (_, ValueWriter<_>, _)| {
        let function = Arc::clone(&function);
        async move {
            let cluster = context.cluster().ok_or_else(|| Failure::new("there is no cluster"))?;
            let pvm = Pvm::new(&cluster, host::random()?, Some(parent));
            let tid = pvm.tid;
            started.write(&tid).await?;
            let done = function(pvm, args).await;
            if let (Err(failure), None) = (&done, cluster.ended()) {
                warn(context.node().name(), &format!("{tid}: {failure}"));
            }
            done
        }
    })
}

/// Offers this node for tasks. Returns at the end of the cluster, or when [`Pvm::delhosts`] has let the node leave.
pub async fn serve(cluster: &Cluster) -> Result<(), Failure> {
    let _enrolled = Pvm::enroll(cluster).await?;
    attaching::until_asked_to_leave(cluster).await.map(drop)
}

/// A task. It ends when it is dropped; what it has sent arrives.
pub struct Pvm {
    pub(super) cluster: Cluster,
    /// Own identifier, `pvm_mytid`.
    pub tid: Tid,
    /// Task that spawned this one.
    pub parent: Option<Tid>,
    /// One to each task that was sent to, which keeps the order.
    channels: BTreeMap<Tid, Sender<Message>>,
    mailbox: Mailbox<Message>,
    pub(super) asked: i32,
}

impl Pvm {
    /// Makes the caller a task without a parent. On rank 0 it also starts the server of groups.
    pub async fn enroll(cluster: &Cluster) -> Result<Pvm, Failure> {
        if cluster.rank() == 0 && !cluster.provides(groups::SERVER) {
            match Sole::provide(cluster, groups::SERVER).await {
                Ok(sole) => drop(host::spawn(groups::serve(cluster.clone(), sole))),
                // Another task of this node has started it meanwhile.
                Err(NameError::Held { by, .. }) if by == cluster.id() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Pvm::new(cluster, host::random()?, None))
    }

    fn new(cluster: &Cluster, number: u64, parent: Option<Tid>) -> Pvm {
        let tid = Tid { host: cluster.id(), number };
        let mailbox = Mailbox::new(cluster.node(), tid.to_string());
        let channels = BTreeMap::new();
        Pvm { cluster: cluster.clone(), tid, parent, channels, mailbox, asked: 0 }
    }

    /// Starts `count` tasks on the node of rank `at`, else on nodes in turn, and waits until they run. After an error,
    /// as of a node without the task, and when the future is dropped, none runs.
    pub async fn spawn<A: Travels + Clone>(
        &self,
        task: &Task<A>,
        count: usize,
        at: Option<u32>,
        args: &A,
    ) -> Result<Vec<Tid>, Failure> {
        let (mut tids, mut processes) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (started, tid) = self.cluster.node().value()?;
            let input = (self.tid, started, args.clone());
            let process = match at {
                Some(rank) => self.cluster.instantiate(rank, task, input).await?,
                None => self.cluster.instantiate_somewhere(task, input).await?,
            };
            match tid.get().await {
                Ok(tid) => tids.push(*tid),
                // The process has the cause.
                Err(error) => return Err(process.await.err().map_or(error.into(), Failure::from)),
            }
            processes.push(process);
        }
        processes.into_iter().for_each(ProcessHandle::detach);
        Ok(tids)
    }

    /// Sends a value. Waits for room in the channel to the task; dropped meanwhile, it sends nothing.
    pub async fn send<T: Travels>(&mut self, to: Tid, tag: i32, value: &T) -> Result<(), Failure> {
        self.mcast(&[to], tag, value).await
    }

    /// Sends a value to several tasks. The error is that of the first that failed; the others get the value.
    pub async fn mcast<T>(&mut self, to: &[Tid], tag: i32, value: &T) -> Result<(), Failure>
    where
        T: Travels,
    {
        let value = Packed::new(value)?;
        let message = Message { from: self.tid, tag, value, is_notice: false };
        let mut done = Ok(());
        for &tid in to {
            done = done.and(self.deliver(tid, &message).await);
        }
        done
    }

    async fn deliver(&mut self, to: Tid, message: &Message) -> Result<(), Failure> {
        let channel = match self.channels.entry(to) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => new.insert(to.open(&self.cluster).await?),
        };
        Ok(channel.send(message).await?)
    }

    /// Waits for the first message, in order of arrival, from this task with this tag. Others stay. Dropped, it takes
    /// none: `trecv` is [`host::timeout`] around it. The error is the end of the cluster.
    pub async fn recv(&mut self, from: Option<Tid>, tag: Option<i32>) -> Result<Message, Failure> {
        let what = || {
            let from = from.map_or("any task".to_owned(), |tid| tid.to_string());
            let tag = tag.map_or("any".to_owned(), |tag| tag.to_string());
            format!("a message from {from} with tag {tag} for {}", self.tid)
        };
        let shown = |it: &Message| format!("{} from {}", it.tag, it.from);
        tokio::select! {
            biased;
            message = self.mailbox.take(|it| it.fits(from, tag), what, shown) => {
                Ok(self.taken(message))
            }
            end = self.cluster.finished() => Err(Failure::new(end.to_string())),
        }
    }

    /// Returns the message that [`Pvm::recv`] would wait for, if it is there.
    pub fn nrecv(&mut self, from: Option<Tid>, tag: Option<i32>) -> Option<Message> {
        self.mailbox.try_take(|it| it.fits(from, tag)).map(|message| self.taken(message))
    }

    /// Closes the channel to a task whose end the message tells: what it did not get is known to be lost.
    fn taken(&mut self, message: Message) -> Message {
        if message.is_notice
            && let Ok(tid) = message.value.unpack::<Tid>()
            && let Some(channel) = self.channels.remove(&tid)
        {
            host::spawn(async move {
                // Its error would name what was not acknowledged.
                let _ = channel.close(Duration::ZERO).await;
            });
        }
        message
    }

    /// Returns that message, and leaves it there.
    pub fn probe(&mut self, from: Option<Tid>, tag: Option<i32>) -> Option<&Message> {
        self.mailbox.look(|it| it.fits(from, tag))
    }

    /// Sends itself a message with this tag when it happens: once of a task, each time of nodes. It may come before the
    /// last messages of that task.
    pub fn notify(&self, what: What, tag: i32) {
        let (cluster, letters, from) = (self.cluster.clone(), self.mailbox.letters(), self.tid);
        let mut changes = cluster.changes();
        let notice = move |value| Message { from, tag, value, is_notice: true };
        self.mailbox.beside(async move {
            if let What::TaskExit(tid) = what {
                if let Ok(mut channel) = tid.open(&cluster).await {
                    channel.closed().await;
                }
                return Ok(letters.send(notice(Packed::new(&tid)?)).await?);
            }
            while let Some(change) = changes.next().await {
                let rank = match (what, change) {
                    (What::HostAdd, Change::Joined(member)) => member.id.rank,
                    (What::HostDelete, Change::Left(id)) => id.rank,
                    (What::HostDelete, Change::Died(death)) => death.id.rank,
                    _ => continue,
                };
                letters.send(notice(Packed::new(&rank)?)).await?;
            }
            Ok(())
        });
    }

    /// Starts nodes by commands, one after the other, as [`attaching::start_nodes`]; returns their ranks. One task at a
    /// time may do so.
    pub async fn addhosts(&self, commands: Vec<Command>) -> Result<Vec<u32>, Failure> {
        attaching::start_nodes(&self.cluster, commands).await
    }

    /// Lets nodes that [`serve`] leave, one after the other. Their tasks end.
    pub async fn delhosts(&self, ranks: &[u32]) -> Result<(), Failure> {
        attaching::ask_to_leave(&self.cluster, ranks).await
    }
}
