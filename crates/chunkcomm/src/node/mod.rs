//! [`Node`]: one member of a cluster, with its links; [`Peer`]: another one.
//!
//! Reading order: this file, [`peer`], [`builder`], [`hello`] (how a connection becomes a
//! link) with [`admission`] (what peers must prove), [`resume`] (for which session it is),
//! [`listening`] (those who connect) with [`slots`] (how many may be at it), [`accepting`] (who
//! takes the channels that peers open).

mod accepting;
mod admission;
mod builder;
mod fingerprint;
mod hello;
mod listening;
mod peer;
mod resume;
mod slots;

pub use builder::{AGE_BOUND_VARIABLE, CREDENTIAL_FILE_VARIABLE, NodeBuilder};
pub use peer::Peer;

use crate::channel::ChannelOptions;
use crate::channel::bytes_receiver::BytesReceiver;
use crate::channel::bytes_sender::BytesSender;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::driver::buffers::Buffers;
use crate::driver::connection::AfterLoss;
use crate::driver::events::Opened;
use crate::driver::link::{Driver, DriverSetup};
use crate::driver::mail::{Command, LinkShared, PeerInfo};
use crate::driver::staging::{TxEnd, TxShared};
use crate::driver::taking::RxEnd;
use crate::driver::wakers::locked;
use crate::driver::{clock, entropy};
use crate::error::{
    AcceptError, CloseError, ConnectError, HelloCause, LinkCause, LinkError, OpenError,
};
use crate::explain::{Explanation, LinkReport};
use crate::proto::hello::{Agreement, Hello};
use crate::proto::limits::CHANNEL_NAME_BYTES_MAX;
use crate::proto::link::LinkConfig;
use crate::proto::outbox::OpenSpec;
use crate::proto::packet::{ChannelKind, Lane};
use crate::proto::resume::{Kind, Resume};
use crate::transport::spin::Spinner;
use crate::transport::{Home, Transport, memory};
use crate::{Address, transport};
use accepting::AcceptTable;
use admission::Admission;
use builder::Settings;
use fingerprint::{Fingerprint, described};
use hello::Side;
use resume::Dialler;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;

/// A driver that does not answer in this time does not run.
const EXPLAIN_DEADLINE: Duration = Duration::from_secs(1);

/// One member of a cluster: listens, connects, opens and accepts channels.
///
/// A node is a value; a program may have several. Clones are the same node.
/// When the last clone and everything that belongs to it (peers, senders,
/// receivers) is dropped, its links send what was accepted and end.
#[derive(Clone)]
pub struct Node {
    pub(crate) shared: Arc<NodeShared>,
}

/// What the clones of a node, its peers and channels share.
pub(crate) struct NodeShared {
    settings: Settings,
    hello: Hello,
    admission: Admission,
    runtime: Handle,
    one_thread: bool,
    table: Arc<AcceptTable>,
    buffers: Arc<Buffers>,
    addresses: Vec<Address>,
    home: Home,
    tasks: Vec<tokio::task::AbortHandle>,
    /// Of a node that polls busily, until it closes.
    spinner: Mutex<Option<Arc<Spinner>>>,
    local: tokio::sync::Mutex<Option<Arc<LinkShared>>>,
    /// Ends the thread of `io_thread` when it is dropped.
    _io_thread: Option<builder::IoThread>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.shared.settings.name)
            .field("addresses", &self.shared.addresses)
            .finish_non_exhaustive()
    }
}

impl Drop for NodeShared {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.table.close();
        for link in self.table.links() {
            link.close();
        }
    }
}

impl Node {
    /// Settings of a node to be built.
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    /// Where the node listens, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.shared.addresses.clone()
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.hello.node.as_str()
    }

    /// The last connections that were refused, oldest first: who, and why.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        self.shared.table.refusals()
    }

    /// What every link and channel of the node does and waits for, for people.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn explain(&self) -> Explanation {
        let mut links = Vec::new();
        // The node's own runtime may be what does not go on.
        let timer = Handle::try_current().unwrap_or_else(|_| self.shared.runtime.clone());
        for link in self.shared.table.links() {
            let report = clock::within(&timer, EXPLAIN_DEADLINE, link.explain());
            let stuck = || LinkReport {
                peer: link.peer.name.clone(),
                state: "its driver does not run: is the runtime blocked?".to_owned(),
                trouble: link.trouble(),
                ..LinkReport::default()
            };
            links.push(report.await.flatten().unwrap_or_else(stuck));
        }
        let node = self.name().to_owned();
        Explanation { node, links, refusals: self.refusals() }
    }

    /// Prints what [`Node::explain`] says to standard error whenever the process
    /// gets the signal SIGUSR1, as long as the node lives.
    ///
    /// # Errors
    ///
    /// The system does not let the signal be handled.
    #[cfg(unix)]
    pub fn explain_on_sigusr1(&self) -> io::Result<()> {
        let entered = self.shared.runtime.enter();
        let kind = tokio::signal::unix::SignalKind::user_defined1();
        let mut signals = tokio::signal::unix::signal(kind)?;
        drop(entered);
        let node = Arc::downgrade(&self.shared);
        self.shared.runtime.spawn(async move {
            while signals.recv().await.is_some() {
                let Some(shared) = node.upgrade() else { return };
                eprint!("{}", Node { shared }.explain().await);
            }
        });
        Ok(())
    }

    /// Connects to the node that listens at `address`. A live session with that
    /// node which was begun here is used again.
    ///
    /// # Errors
    ///
    /// The address does not answer, or what answers does not fit. Other links
    /// are not concerned.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the connection is given up, or the session is
    /// there for the next call.
    pub async fn connect(&self, address: &Address) -> Result<Peer, ConnectError> {
        let node = self.clone();
        let dialled = address.clone();
        // On the node's runtime, whose reactor the connection belongs to.
        let task = self.shared.runtime.spawn(async move { node.dial(&dialled).await });
        let link = task.await.map_err(|_| ConnectError::Closed)??;
        Ok(self.peer(link, Some(address.clone())))
    }

    async fn dial(&self, address: &Address) -> Result<Arc<LinkShared>, ConnectError> {
        if self.shared.table.is_closed() {
            return Err(ConnectError::Closed);
        }
        let unreachable =
            |error| ConnectError::Unreachable { address: address.clone(), error: Arc::new(error) };
        if self.shared.table.is_closed() {
            return Err(ConnectError::Closed);
        }
        let home = self.shared.home;
        let transport = transport::connect(address, home).await.map_err(unreachable)?;
        let admission = self.shared.admission.at(address);
        let admitted = hello::admit(transport, &self.shared.hello, &admission, Side::Dialler);
        let wrong = |cause| ConnectError::Hello { address: address.clone(), cause };
        let (mut transport, theirs, agreement) = admitted.await.map_err(wrong)?;
        if let Some(link) = self.shared.table.dialled(theirs.incarnation) {
            return Ok(link);
        }
        let word = self.shared.new_session(theirs.incarnation).map_err(unreachable)?;
        let answer = resume::ask(&mut *transport, &word).await.map_err(wrong)?;
        if answer.kind != Kind::Agreed {
            return Err(wrong(HelloCause::Refused));
        }
        let transport = self.shared.spun(transport).map_err(unreachable)?;
        let dialler = self.shared.dialler(address);
        let after_loss = self.shared.after_loss(dialler);
        let origin = Origin { session: word.session, dialled: true, after_loss };
        Ok(self.shared.start(transport, &(theirs, agreement), origin))
    }

    /// This node as its own peer, reached through memory.
    ///
    /// # Errors
    ///
    /// The node is closed.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn local(&self) -> Result<Peer, ConnectError> {
        let mut local = self.shared.local.lock().await;
        if let Some(link) = local.as_ref().filter(|link| link.ended().is_none()) {
            return Ok(self.peer(Arc::clone(link), None));
        }
        if self.shared.table.is_closed() {
            return Err(ConnectError::Closed);
        }
        let (ours, theirs) = memory::pipe();
        let hello = &self.shared.hello;
        let agreement = Hello::agree(hello, hello).map_err(|_| ConnectError::Closed)?;
        let both = |transport| {
            let origin = Origin { session: 0, dialled: false, after_loss: AfterLoss::End };
            self.shared.start(transport, &(*hello, agreement), origin)
        };
        let link = both(ours);
        both(theirs);
        *local = Some(Arc::clone(&link));
        Ok(self.peer(link, None))
    }

    fn peer(&self, link: Arc<LinkShared>, address: Option<Address>) -> Peer {
        Peer { link, node: Arc::clone(&self.shared), address }
    }

    /// Opens a channel of `T` to `peer` under `name`. That costs no round trip:
    /// data may follow at once. If the session has ended and the peer's address
    /// is known, a new session is begun.
    ///
    /// # Errors
    ///
    /// The session has ended and cannot be had again, the name is empty or
    /// longer than 255 bytes, or values of the type cannot be sent. Whether the
    /// peer accepts is not known yet: a later call on the sender says so.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn open<T>(&self, peer: &Peer, name: &str) -> Result<Sender<T>, OpenError>
    where
        T: Serialize + DeserializeOwned,
    {
        self.open_with(peer, name, ChannelOptions::default()).await
    }

    /// As [`Node::open`], with options.
    ///
    /// # Errors
    ///
    /// As [`Node::open`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn open_with<T>(
        &self,
        peer: &Peer,
        name: &str,
        options: ChannelOptions,
    ) -> Result<Sender<T>, OpenError>
    where
        T: Serialize + DeserializeOwned,
    {
        let description = described::<T>(&options).map_err(OpenError::Type)?;
        let (end, peer) =
            self.open_end(peer, name, options.lane, ChannelKind::Typed, &description).await?;
        Ok(Sender::new(end, peer))
    }

    /// As [`Node::open`], for bytes.
    ///
    /// # Errors
    ///
    /// As [`Node::open`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn open_bytes(&self, peer: &Peer, name: &str) -> Result<BytesSender, OpenError> {
        self.open_bytes_with(peer, name, ChannelOptions::default()).await
    }

    /// As [`Node::open_bytes`], with options.
    ///
    /// # Errors
    ///
    /// As [`Node::open`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn open_bytes_with(
        &self,
        peer: &Peer,
        name: &str,
        options: ChannelOptions,
    ) -> Result<BytesSender, OpenError> {
        let fingerprint = Fingerprint::of_bytes(&options);
        let (end, peer) =
            self.open_end(peer, name, options.lane, ChannelKind::Bytes, &fingerprint).await?;
        Ok(BytesSender::new(end, peer))
    }

    async fn open_end(
        &self,
        peer: &Peer,
        name: &str,
        lane: Lane,
        kind: ChannelKind,
        print: &Fingerprint,
    ) -> Result<(TxEnd, Peer), OpenError> {
        if name.is_empty() || name.len() > CHANNEL_NAME_BYTES_MAX {
            return Err(OpenError::Name { bytes: name.len() });
        }
        match self.try_open(&peer.link, name, lane, kind, print) {
            Ok(end) => Ok((end, peer.clone())),
            Err(error) => {
                let Some(address) = &peer.address else { return Err(OpenError::Lost(error)) };
                let again = self.connect(address).await.map_err(OpenError::Connect)?;
                let end = self.try_open(&again.link, name, lane, kind, print);
                Ok((end.map_err(OpenError::Lost)?, again))
            }
        }
    }

    fn try_open(
        &self,
        link: &Arc<LinkShared>,
        name: &str,
        lane: Lane,
        kind: ChannelKind,
        print: &Fingerprint,
    ) -> Result<TxEnd, LinkError> {
        let spec = OpenSpec { lane, kind, fingerprint: print.hash, name: name.to_owned() };
        let shared = TxShared::new(name.to_owned(), print.text.clone());
        let packet_bytes_max = self.shared.settings.packet_bytes_max;
        link.open(|id| {
            let (end, ring) = TxEnd::new(link, &shared, id, packet_bytes_max);
            (Command::Open { id, spec, tx: Arc::clone(&shared), ring }, end)
        })
    }

    /// Waits for a peer that opens a channel of `T` under `name`. Opens that come
    /// before are held, up to 256 a link; further ones are refused.
    ///
    /// # Errors
    ///
    /// A peer opened the channel with another type: the error names both, the
    /// channel is refused, and `accept` can be called again.
    ///
    /// # Cancel safety
    ///
    /// Safe, but for a channel that was just found to be of another type: that
    /// is refused all the same.
    pub async fn accept<T>(&self, name: &str) -> Result<(Peer, Receiver<T>), AcceptError>
    where
        T: Serialize + DeserializeOwned,
    {
        self.accept_with(name, ChannelOptions::default()).await
    }

    /// As [`Node::accept`], with options; the lane is the sender's to choose.
    ///
    /// # Errors
    ///
    /// As [`Node::accept`].
    ///
    /// # Cancel safety
    ///
    /// As [`Node::accept`].
    pub async fn accept_with<T>(
        &self,
        name: &str,
        options: ChannelOptions,
    ) -> Result<(Peer, Receiver<T>), AcceptError>
    where
        T: Serialize + DeserializeOwned,
    {
        let print = described::<T>(&options).map_err(AcceptError::Type)?;
        let end = self
            .shared
            .table
            .accept(name, ChannelKind::Typed, &print, &self.shared.runtime)
            .await?;
        let peer = self.peer_of(&end);
        Ok((peer.clone(), Receiver::new(end, peer)))
    }

    /// As [`Node::accept`], for bytes.
    ///
    /// # Errors
    ///
    /// As [`Node::accept`].
    ///
    /// # Cancel safety
    ///
    /// As [`Node::accept`].
    pub async fn accept_bytes(&self, name: &str) -> Result<(Peer, BytesReceiver), AcceptError> {
        let print = Fingerprint::of_bytes(&ChannelOptions::default());
        let end = self
            .shared
            .table
            .accept(name, ChannelKind::Bytes, &print, &self.shared.runtime)
            .await?;
        let peer = self.peer_of(&end);
        Ok((peer.clone(), BytesReceiver::new(end, peer)))
    }

    /// Holds a channel of bytes again that was accepted.
    pub(crate) fn give_back(&self, receiver: RxEnd) {
        let fingerprint = Fingerprint::of_bytes(&ChannelOptions::default()).hash;
        self.shared.table.give_back(Opened { receiver, kind: ChannelKind::Bytes, fingerprint });
    }

    fn peer_of(&self, end: &RxEnd) -> Peer {
        self.peer(Arc::clone(&end.link), None)
    }

    /// Ends all sessions: every channel to a peer ends after what was accepted on
    /// it, and all of it is acknowledged. Nothing can be opened or accepted
    /// afterwards.
    ///
    /// # Errors
    ///
    /// After `deadline` the sessions are cut; the error has an account of the
    /// channels with messages that were not acknowledged.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, closing goes on without deadline.
    pub async fn close(&self, deadline: Duration) -> Result<(), CloseError> {
        self.shared.table.close();
        // The connections keep it while they last.
        drop(locked(&self.shared.spinner).take());
        let links = self.shared.table.links();
        for link in &links {
            link.close();
        }
        let all_ended = async {
            for link in &links {
                poll_fn(|context| link.poll_ended(context)).await;
            }
        };
        let in_time = clock::within(&self.shared.runtime, deadline, all_ended);
        if in_time.await.is_none() {
            for link in &links {
                let error = LinkError::new(link.peer.name.clone(), LinkCause::CloseDeadline);
                link.command(Command::Abort(error));
            }
            for link in &links {
                poll_fn(|context| link.poll_ended(context)).await;
            }
        }
        // Until now peers that were cut off could come back.
        for task in &self.shared.tasks {
            task.abort();
        }
        let channels: Vec<_> = links.iter().flat_map(|link| link.unacknowledged()).collect();
        if channels.is_empty() { Ok(()) } else { Err(CloseError { channels }) }
    }
}

impl NodeShared {
    /// The connection, looked after without sleeping if the node polls busily.
    fn spun(&self, transport: Box<dyn Transport>) -> io::Result<Box<dyn Transport>> {
        match &*locked(&self.spinner) {
            Some(spinner) => spinner.adopt(transport),
            None => Ok(transport),
        }
    }

    /// How a session of this node begins.
    fn new_session(&self, addressee: u128) -> io::Result<Resume> {
        let mut random = [0; 8];
        entropy::fill(&mut random).map_err(io::Error::other)?;
        let session = u64::from_le_bytes(random);
        Ok(Resume { kind: Kind::New, session, attempt: 1, received: 0, addressee })
    }

    fn dialler(&self, address: &Address) -> Arc<Dialler> {
        Arc::new(Dialler {
            hello: self.hello,
            admission: self.admission.at(address),
            address: address.clone(),
            home: self.home,
            runtime: self.runtime.clone(),
            spinner: locked(&self.spinner).clone(),
        })
    }

    /// Without acknowledgements a session cannot go on.
    fn after_loss(&self, dialler: Arc<Dialler>) -> AfterLoss {
        if self.settings.session { AfterLoss::Dial(Arc::new(dialler)) } else { AfterLoss::End }
    }

    fn start_accepted(
        &self,
        transport: Box<dyn Transport>,
        theirs: &(Hello, Agreement),
        session: u64,
    ) {
        let after_loss = if self.settings.session { AfterLoss::Wait } else { AfterLoss::End };
        self.start(transport, theirs, Origin { session, dialled: false, after_loss });
    }

    /// Starts the driver of a session at its first connection.
    fn start(
        &self,
        transport: Box<dyn Transport>,
        theirs: &(Hello, Agreement),
        origin: Origin,
    ) -> Arc<LinkShared> {
        let (hello, agreement) = theirs;
        let shared = LinkShared::new(PeerInfo {
            name: hello::display_name(hello),
            incarnation: hello.incarnation,
            session: origin.session,
            message_bytes_max: hello.message_bytes_max,
            packet_bytes_max: self.hello.packet_bytes_max as usize,
        });
        let settings = &self.settings;
        let config = LinkConfig {
            policy: settings.policy,
            age_bound: settings.age_bound,
            packet_bytes_max: settings.packet_bytes_max.min(agreement.packet_bytes_max as usize),
            windows_bytes_max: settings.window_bytes_max,
            message_bytes_max: settings.message_bytes_max,
            peer_open_credit: hello.open_credit,
            session: settings.session,
            resend_bytes_max: settings.resend_bytes_max,
            silence: settings.silence,
            now: clock::now(),
        };
        let driver = Driver::new(DriverSetup {
            shared: Arc::clone(&shared),
            transport,
            config,
            after_loss: origin.after_loss,
            acceptor: Arc::clone(&self.table) as Arc<_>,
            buffers: Arc::clone(&self.buffers),
            one_thread: self.one_thread,
        });
        self.table.add_link(&shared, origin.dialled);
        self.runtime.spawn(driver);
        shared
    }
}

/// How a session began, and what is done when its connection is lost.
struct Origin {
    session: u64,
    dialled: bool,
    after_loss: AfterLoss,
}
