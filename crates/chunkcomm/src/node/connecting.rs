//! How a node comes to a link that it asked for: by dialling, or to itself.

use super::hello::{self, Side};
use super::resume::{self, Dialler};
use super::starting::Origin;
use super::{Node, NodeShared, Peer};
use crate::driver::connection::AfterLoss;
use crate::driver::entropy;
use crate::driver::mail::LinkShared;
use crate::driver::wakers::locked;
use crate::error::{ConnectError, HelloCause};
use crate::launch::portable_only;
use crate::proto::hello::Hello;
use crate::proto::liveness::KeepAlive;
use crate::proto::resume::{Kind, Resume};
use crate::transport::memory;
use crate::{Address, transport};
use std::io;
use std::sync::Arc;
use tracing::Instrument as _;

impl Node {
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
        let _wait = self.waits().begin(format!("{address} to connect"));
        let node = self.clone();
        let dialled = address.clone();
        // On the node's runtime, whose reactor the connection belongs to.
        let span = tracing::debug_span!("connect", node = self.name(), %address);
        let dialling = async move { node.dial(&dialled).await };
        let task = self.shared.runtime.spawn(dialling.instrument(span));
        let link = task.await.map_err(|_| ConnectError::Closed)??;
        Ok(self.peer(link, Some(address.clone())))
    }

    async fn dial(&self, address: &Address) -> Result<Arc<LinkShared>, ConnectError> {
        if self.shared.table.is_closed() {
            return Err(ConnectError::Closed);
        }
        let unreachable =
            |error| ConnectError::Unreachable { address: address.clone(), error: Arc::new(error) };
        let home = self.shared.home;
        let keep_alive = self.shared.keep_alive();
        let transport =
            transport::connect(address, home, keep_alive.as_ref()).await.map_err(unreachable)?;
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
}

impl NodeShared {
    /// How a session of this node begins.
    fn new_session(&self, addressee: u128) -> io::Result<Resume> {
        let mut random = [0; 8];
        entropy::fill(&mut random).map_err(io::Error::other)?;
        let session = u64::from_le_bytes(random);
        Ok(Resume { kind: Kind::New, session, attempt: 1, received: 0, addressee })
    }

    /// What the system is to do about a connection on which nothing passes.
    fn keep_alive(&self) -> Option<KeepAlive> {
        (!portable_only()).then(|| self.settings.silence.keep_alive())
    }

    fn dialler(&self, address: &Address) -> Arc<Dialler> {
        Arc::new(Dialler {
            hello: self.hello,
            admission: self.admission.at(address),
            address: address.clone(),
            home: self.home,
            keep_alive: self.keep_alive(),
            runtime: self.runtime.clone(),
            spinner: locked(&self.spinner).clone(),
        })
    }
}
