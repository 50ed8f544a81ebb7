//! Calls that open channels to peers, and that accept the channels of peers.

use super::fingerprint::{Fingerprint, described};
use super::{Node, Peer};
use crate::channel::ChannelOptions;
use crate::channel::bytes_receiver::BytesReceiver;
use crate::channel::bytes_sender::BytesSender;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::driver::clock;
use crate::driver::entropy;
use crate::driver::events::Opened;
use crate::driver::inbox::RxShared;
use crate::driver::mail::{Command, LinkShared};
use crate::driver::staging::{Settling, TxEnd, TxShared};
use crate::driver::taking::RxEnd;
use crate::error::{AcceptError, LinkError, OpenError};
use crate::proto::hello::VERSION_STREAMS;
use crate::proto::limits::CHANNEL_NAME_BYTES_MAX;
use crate::proto::outbox::OpenSpec;
use crate::proto::packet::{ChannelKind, Lane, StreamStart};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

impl Node {
    /// Opens a channel of `T` to `peer` under `name`. That costs no round trip:
    /// data may follow at once. If the session has ended and this node had dialled, the
    /// node begins a new session.
    ///
    /// # Errors
    ///
    /// - The session has ended and no new one can be begun.
    /// - The name is empty or longer than 255 bytes.
    /// - Values of the type cannot be sent.
    ///
    /// Names that begin with a zero byte or `chunkcomm.` are for [layers](crate::layer): no loss on
    /// them is reported to the program, and a peer without the layer refuses those with a zero byte.
    ///
    /// Whether the peer accepts is not known yet: if it refuses, a later call on the sender
    /// fails.
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
            self.open_end(peer, name, &options, ChannelKind::Typed, &description, None).await?;
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
            self.open_end(peer, name, &options, ChannelKind::Bytes, &fingerprint, None).await?;
        Ok(BytesSender::new(end, peer))
    }

    /// Opens a channel; with `back`, the inbox of its way back, it is a duplex.
    pub(super) async fn open_end(
        &self,
        peer: &Peer,
        name: &str,
        options: &ChannelOptions,
        kind: ChannelKind,
        print: &Fingerprint,
        back: Option<Arc<RxShared>>,
    ) -> Result<(TxEnd, Peer), OpenError> {
        if name.is_empty() || name.len() > CHANNEL_NAME_BYTES_MAX {
            return Err(OpenError::Name { bytes: name.len() });
        }
        if options.settled && peer.protocol_version() < VERSION_STREAMS {
            let (peer, version) = (peer.name().to_owned(), peer.protocol_version());
            return Err(OpenError::NoStreams { peer, version });
        }
        let stream = if options.settled { Some(stream_id()?) } else { None };
        let options = &ChannelOptions { stream, ..options.clone() };
        match self.try_open(&peer.link, name, options, kind, print, back.clone()) {
            Ok(end) => Ok((end, peer.clone())),
            Err(error) => {
                let Some(address) = peer.dialled() else { return Err(OpenError::Lost(error)) };
                let again = self.connect(address).await.map_err(OpenError::Connect)?;
                let end = self.try_open(&again.link, name, options, kind, print, back);
                Ok((end.map_err(OpenError::Lost)?, again))
            }
        }
    }

    /// Opens a channel over this link; an error when the link's session has ended.
    pub(crate) fn try_open(
        &self,
        link: &Arc<LinkShared>,
        name: &str,
        options: &ChannelOptions,
        kind: ChannelKind,
        print: &Fingerprint,
        back: Option<Arc<RxShared>>,
    ) -> Result<TxEnd, LinkError> {
        let spec = Box::new(OpenSpec {
            lane: options.lane,
            system: options.system,
            kind,
            fingerprint: print.hash,
            stream: options.stream.map(|id| StreamStart { id, first: 0, sent_before: 0 }),
            name: name.to_owned(),
        });
        let settling = if options.stream.is_some() { Settling::Counted } else { Settling::No };
        let shared = TxShared::new(name.to_owned(), print.text.clone(), settling);
        link.open(|id| {
            let (end, ring) = TxEnd::new(link, &shared, id);
            (Command::Open { id, spec, tx: Arc::clone(&shared), ring, back }, end)
        })
    }

    /// Waits for a peer that opens a channel of `T` under `name`.
    ///
    /// Opens that an `accept` waits for are served first. Opens that nobody waits for yet are held:
    ///
    /// - of a link: 7/8 of the channels for which
    ///   [`NodeBuilder::window_bytes_max`](crate::NodeBuilder::window_bytes_max) has memory left,
    ///   448 by default while none was accepted;
    /// - of a node: 4096, of which each link has its share.
    ///
    /// Further opens are refused: the next call on their sender fails, or else `Node::close` reports
    /// it.
    ///
    /// # Errors
    ///
    /// A peer opened the channel with another type: the error names both, the
    /// channel is refused, and `accept` can be called again.
    ///
    /// # Cancel safety
    ///
    /// Safe, except for a channel that was just found to be of another type: that
    /// channel is refused all the same.
    pub async fn accept<T>(&self, name: &str) -> Result<(Peer, Receiver<T>), AcceptError>
    where
        T: Serialize + DeserializeOwned,
    {
        self.accept_with(name, ChannelOptions::default()).await
    }

    /// As [`Node::accept`], with options; the sender chooses the lane.
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
        let (end, peer) = self.accept_end(name, &options, ChannelKind::Typed, &print).await?;
        Ok((peer.clone(), Receiver::new(end, peer, print.carries)))
    }

    /// As [`Node::accept`], for `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Node::accept`], and [`AcceptError::Late`] with the names of the channels that peers
    /// have opened and nobody accepts.
    ///
    /// # Cancel safety
    ///
    /// As [`Node::accept`].
    pub async fn accept_within<T>(
        &self,
        name: &str,
        deadline: Duration,
    ) -> Result<(Peer, Receiver<T>), AcceptError>
    where
        T: Serialize + DeserializeOwned,
    {
        self.accept_with(name, ChannelOptions::default().accept_within(deadline)).await
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
        self.accept_bytes_with(name, ChannelOptions::default()).await
    }

    /// As [`Node::accept_bytes`], with options. Both ends must name a schema, if one does; the
    /// sender chooses the lane.
    ///
    /// # Errors
    ///
    /// As [`Node::accept`].
    ///
    /// # Cancel safety
    ///
    /// As [`Node::accept`].
    pub async fn accept_bytes_with(
        &self,
        name: &str,
        options: ChannelOptions,
    ) -> Result<(Peer, BytesReceiver), AcceptError> {
        let print = Fingerprint::of_bytes(&options);
        let (end, peer) = self.accept_end(name, &options, ChannelKind::Bytes, &print).await?;
        Ok((peer.clone(), BytesReceiver::new(end, peer, Some(print.hash))))
    }

    pub(super) async fn accept_end(
        &self,
        name: &str,
        options: &ChannelOptions,
        kind: ChannelKind,
        print: &Fingerprint,
    ) -> Result<(RxEnd, Peer), AcceptError> {
        let _wait = self.waits().begin_accept(name);
        let (table, runtime) = (&self.shared.table, &self.shared.runtime);
        let opened = match options.accept_within {
            None => table.take(name).await?,
            Some(deadline) => table.take_within(name, deadline, runtime).await?,
        };
        let end = table.judge(opened, kind, print, runtime).await?;
        let peer = self.peer(Arc::clone(&end.link));
        Ok((end, peer))
    }

    /// Returns the largest message that this node takes, in encoded bytes.
    pub(super) fn message_bytes_max(&self) -> u64 {
        self.shared.own.hello.message_bytes_max
    }

    /// Holds an accepted channel of bytes again.
    pub(crate) fn give_back(&self, receiver: RxEnd, fingerprint: u64) {
        let (kind, lane, since) = (ChannelKind::Bytes, Lane::Bulk, clock::now());
        let opened = Opened { receiver, kind, lane, fingerprint, since, spoken_of: false };
        self.shared.table.give_back(opened);
    }
}

/// Draws the number of a new stream.
pub(super) fn stream_id() -> Result<u128, OpenError> {
    entropy::bytes().map(u128::from_le_bytes).map_err(|_| OpenError::NoRandomness)
}
