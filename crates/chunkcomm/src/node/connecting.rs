//! Links that a node asks for: by dialling, or to itself.

use super::hello::{self, Side};
use super::only::Claim;
use super::resume::{self, Dialler};
use super::starting::Origin;
use super::{Node, NodeShared, Peer};
use crate::driver::mail::{Beginning, LinkShared};
use crate::driver::tasks;
use crate::driver::wakers::locked;
use crate::driver::{clock, entropy};
use crate::error::{ConnectError, HelloCause};
use crate::explain::Way;
use crate::portable::portable_only;
use crate::proto::Time;
use crate::proto::backoff::Backoff;
use crate::proto::endpoint::AfterLoss;
use crate::proto::hello::Hello;
use crate::proto::liveness::KeepAlive;
use crate::proto::resume::{Kind, Resume};
use crate::transport::{BoxFuture, memory};
use crate::{Address, transport};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument as _;

/// Most time for one attempt, hello and TLS included: 10 s. If packets get lost, the system asks
/// ever more rarely, and would notice late that the peer is there.
pub(super) const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// The session that a dial is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A session that this node begins, whatever the peer has begun.
    Own,
    /// The only session with the node of this incarnation.
    Only(u128),
    /// A session with the node of this incarnation, beside one that the peer may begin.
    With(u128),
}

/// The outcome of a dial.
pub(super) enum Dialled {
    Link(Arc<LinkShared>),
    /// Another node than the one that was meant is there.
    Other,
    /// The peer has another session with this node, or begins one.
    Yields,
}

impl Node {
    /// Connects to the node that listens at `address`. A live session that this node began
    /// with that node is used again.
    ///
    /// A peer that cannot be reached yet may be about to start. It is dialled again, also after a
    /// broken connection, for [`NodeBuilder::connect_deadline`](crate::NodeBuilder), 10 s by
    /// default. A fault that cannot pass by itself is returned at once.
    ///
    /// # Errors
    ///
    /// The address does not answer, or the answer does not fit. The error has the cause of the
    /// last attempt and the time spent on attempts. Other links are not affected.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it gives the connection up, or leaves the session for the
    /// next call.
    ///
    /// ```
    /// use chunkcomm::Node;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Node::builder().name("server").listen("127.0.0.1:0".parse()?).build().await?;
    /// let client = Node::builder().name("client").build().await?;
    /// let peer = client.connect(&server.addresses()[0]).await?;
    /// assert_eq!(peer.name(), "server");
    /// // The live session is used again.
    /// assert_eq!(client.connect(&server.addresses()[0]).await?, peer);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(&self, address: &Address) -> Result<Peer, ConnectError> {
        self.connect_within(address, self.shared.settings.connect_deadline).await
    }

    /// As [`Node::connect`], with a deadline of its own. `Duration::ZERO` is one attempt of 10 s at
    /// most. `Duration::MAX` waits until the peer is there, for example in the background:
    ///
    /// ```
    /// # async fn example(node: chunkcomm::Node, address: chunkcomm::Address) {
    /// let dialling = tokio::spawn(async move {
    ///     node.connect_within(&address, std::time::Duration::MAX).await
    /// });
    /// // Something else; to stop it, `dialling.abort()`.
    /// let peer = dialling.await;
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Node::connect`]. A fault that cannot pass by itself ([`ConnectError::may_pass`]) is
    /// returned at once with any deadline.
    ///
    /// # Cancel safety
    ///
    /// As [`Node::connect`].
    pub async fn connect_within(
        &self,
        address: &Address,
        deadline: Duration,
    ) -> Result<Peer, ConnectError> {
        self.connecting(address, deadline).await
    }

    /// Dials until `deadline`. On the heap, so that the code is compiled with this crate and not with
    /// each program that awaits it.
    fn connecting<'a>(
        &'a self,
        address: &'a Address,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Peer, ConnectError>> {
        Box::pin(self.dial_until(address, deadline))
    }

    async fn dial_until(
        &self,
        address: &Address,
        deadline: Duration,
    ) -> Result<Peer, ConnectError> {
        let _wait = self.waits().begin(format!("{address} to connect"));
        let begun = clock::now();
        let mut backoff = Backoff::new(self.incarnation() as u64 ^ begun.0);
        let mut last = None;
        loop {
            let left = deadline.saturating_sub(since(begun));
            let limit = if deadline.is_zero() { ATTEMPT_MAX } else { left.min(ATTEMPT_MAX) };
            let error = match self.attempt(address, limit).await {
                Some(Ok(peer)) => return Ok(peer),
                Some(Err(error)) => error,
                // The error of an earlier attempt says more.
                None => last.take().unwrap_or_else(|| no_answer(address)),
            };
            if !error.may_pass() || deadline.is_zero() {
                return Err(error);
            }
            let (tried, wait) = (since(begun), backoff.wait());
            if wait >= deadline.saturating_sub(tried) {
                return Err(error.after(tried));
            }
            last = Some(error);
            let over = self.shared.table.over();
            let _ = clock::within(&self.shared.runtime, wait, over).await;
        }
    }

    /// Dials within `limit`; `None` when that takes longer. The dial goes on, with its `claim`, when
    /// the future is dropped.
    pub(super) fn dialling(
        &self,
        address: &Address,
        limit: Duration,
        purpose: Purpose,
        claim: Option<Claim>,
    ) -> BoxFuture<'static, Option<Result<Dialled, ConnectError>>> {
        let (node, dialled) = (self.clone(), address.clone());
        let runtime = self.shared.runtime.clone();
        let span = tracing::debug_span!("connect", node = self.name(), %address);
        // On the heap, so that the code is compiled with this crate and not with each program that
        // awaits it.
        let dialling: BoxFuture<'static, _> = Box::pin(async move {
            let _claim = claim;
            clock::within(&runtime, limit, node.dial(&dialled, purpose)).await
        });
        // On the node's runtime, whose reactor the connection belongs to.
        let task = tasks::spawn_on(&self.shared.runtime, dialling.instrument(span));
        Box::pin(async move {
            match task.await {
                Ok(dialled) => dialled,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // Nobody else ends the task.
                    Err(_) => Some(Err(ConnectError::RuntimeGone)),
                },
            }
        })
    }

    /// Makes one attempt; `None` when it takes longer than `limit`.
    async fn attempt(
        &self,
        address: &Address,
        limit: Duration,
    ) -> Option<Result<Peer, ConnectError>> {
        match self.dialling(address, limit, Purpose::Own, None).await? {
            Ok(Dialled::Link(link)) => Some(Ok(self.peer(link))),
            Ok(Dialled::Other | Dialled::Yields) => Some(Err(no_answer(address))),
            Err(error) => Some(Err(error)),
        }
    }

    async fn dial(&self, address: &Address, purpose: Purpose) -> Result<Dialled, ConnectError> {
        if self.shared.table.is_closed() {
            return Err(ConnectError::Closed);
        }
        let unreachable = |error| unreachable(address, error);
        let home = self.shared.home;
        let keep_alive = self.shared.keep_alive();
        let transport =
            transport::connect(address, home, keep_alive.as_ref()).await.map_err(unreachable)?;
        let admission = self.shared.admission.at(address);
        let admitted = hello::admit(transport, &self.shared.own, &admission, Side::Dialler);
        let wrong = |cause| {
            let (address, tried) = (address.clone(), Duration::ZERO);
            ConnectError::Hello { address, cause, tried }
        };
        let (transport, theirs, agreement) = admitted.await.map_err(wrong)?;
        let shown = transport.shown();
        if let Purpose::Only(node) | Purpose::With(node) = purpose
            && node != theirs.incarnation
        {
            return Ok(Dialled::Other);
        }
        let existing = || match purpose {
            Purpose::Own => self.shared.table.dialled(theirs.incarnation, &shown),
            Purpose::Only(node) | Purpose::With(node) => {
                let preferred = self.shared.table.preferred(self.incarnation(), node);
                preferred.filter(|link| link.peer.shown.is_same(&shown))
            }
        };
        if let Some(link) = existing() {
            return Ok(Dialled::Link(link));
        }
        let (own, same_host) = (&self.shared.own, &self.shared.same_host);
        let shorter = same_host.shorter(address, transport, &theirs, own, &admission);
        let (mut transport, way) = shorter.await;
        // Meanwhile another call may have begun it.
        if let Some(link) = existing() {
            return Ok(Dialled::Link(link));
        }
        let word = self.shared.new_session(theirs.incarnation, purpose).map_err(unreachable)?;
        let answer = resume::ask(&mut *transport, &word).await.map_err(wrong)?;
        match (answer.kind, answer.received) {
            (Kind::Agreed, _) => {}
            (Kind::Stale, _) if word.is_only() => return Ok(Dialled::Yields),
            (_, 0) => return Err(wrong(HelloCause::Refused)),
            (_, sessions_max) => return Err(wrong(HelloCause::Full { sessions_max })),
        }
        let transport = self.shared.spun(transport).map_err(unreachable)?;
        let origin = Origin {
            session: word.session,
            beginning: Beginning::Dialled(address.clone()),
            way,
            after_loss: self.shared.after_loss(AfterLoss::Dial),
            redial: Some(Arc::new(self.shared.dialler(address))),
        };
        Ok(Dialled::Link(self.shared.start(transport, &(theirs, agreement), origin)))
    }

    /// Returns this node as its own peer, reached through memory.
    ///
    /// # Errors
    ///
    /// The node is closed, or its runtime gone.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn local(&self) -> Result<Peer, ConnectError> {
        self.connecting_here().await
    }

    /// Opens the local session. On the heap, as [`Node::connecting`].
    fn connecting_here(&self) -> BoxFuture<'_, Result<Peer, ConnectError>> {
        Box::pin(self.connect_here())
    }

    async fn connect_here(&self) -> Result<Peer, ConnectError> {
        let mut local = self.shared.local.lock().await;
        if let Some(link) = local.as_ref().filter(|link| link.ended().is_none()) {
            return Ok(self.peer(Arc::clone(link)));
        }
        if self.shared.table.is_closed() {
            return Err(ConnectError::Closed);
        }
        let (ours, theirs) = memory::pipe();
        let hello = &self.shared.own.hello;
        let agreement = Hello::agree(hello, hello).map_err(|_| ConnectError::Closed)?;
        let both = |transport| {
            let (beginning, after_loss) = (Beginning::Local, AfterLoss::End);
            let origin =
                Origin { session: 0, beginning, way: Way::Other, after_loss, redial: None };
            self.shared.start(transport, &(*hello, agreement), origin)
        };
        let link = both(ours);
        both(theirs);
        if self.shared.table.runtime_is_gone() {
            return Err(ConnectError::RuntimeGone);
        }
        *local = Some(Arc::clone(&link));
        Ok(self.peer(link))
    }
}

pub(super) fn since(begun: Time) -> Duration {
    Duration::from_micros(clock::now().micros_since(begun))
}

fn unreachable(address: &Address, error: io::Error) -> ConnectError {
    let (address, error) = (address.clone(), Arc::new(error));
    ConnectError::Unreachable { address, error, tried: Duration::ZERO }
}

pub(super) fn no_answer(address: &Address) -> ConnectError {
    unreachable(address, io::Error::new(io::ErrorKind::TimedOut, "it does not answer"))
}

impl NodeShared {
    /// Returns the first word of a new session of this node.
    fn new_session(&self, addressee: u128, purpose: Purpose) -> io::Result<Resume> {
        let session = u64::from_le_bytes(entropy::bytes()?);
        Ok(match purpose {
            Purpose::Own | Purpose::With(_) => Resume::new_session(session, addressee),
            Purpose::Only(_) => Resume::only_session(session, addressee),
        })
    }

    /// Returns the keep-alive settings of the system for idle connections.
    fn keep_alive(&self) -> Option<KeepAlive> {
        (!portable_only()).then(|| self.settings.silence.keep_alive())
    }

    fn dialler(&self, address: &Address) -> Arc<Dialler> {
        Arc::new(Dialler {
            own: self.own,
            admission: self.admission.at(address),
            same_host: self.same_host,
            address: address.clone(),
            home: self.home,
            keep_alive: self.keep_alive(),
            runtime: self.runtime.clone(),
            spinner: locked(&self.spinner).clone(),
        })
    }
}
