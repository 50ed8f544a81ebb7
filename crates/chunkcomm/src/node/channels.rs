//! Calls that open channels to peers, and that accept the channels of peers.

use super::accepting::judge_at_once;
use super::fingerprint::Fingerprint;
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
use crate::proto::outbox::OpenSpec;
use crate::proto::packet::{ChannelKind, Lane, StreamStart};
use crate::transport::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

impl Node {
    /// Opens a channel of `T` to `peer`, under a name or with options ([`channel`](crate::channel())).
    /// That costs no round trip: data may follow at once. If the session has ended and this node had
    /// dialled, the node begins a new session.
    ///
    /// A link has room for 512 channels of each side by default. A further one opens when another has
    /// ended; until then nothing of it leaves, as [`Sender::waits_to_open`] tells. After 5 s the node warns
    /// of it.
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
    ///
    /// ```
    /// use chunkcomm::Node;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = Node::builder().name("server").listen("127.0.0.1:0".parse()?).build().await?;
    /// # let client = Node::builder().name("client").build().await?;
    /// # let peer = client.connect(&server.addresses()[0]).await?;
    /// let mut sender = client.open::<(u32, String)>(&peer, "words").await?;
    /// sender.send(&(1, "one".to_owned())).await?;
    ///
    /// let (_, mut receiver) = server.accept::<(u32, String)>("words").await?;
    /// assert_eq!(receiver.recv().await?, Some((1, "one".to_owned())));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open<T>(
        &self,
        peer: &Peer,
        channel: impl Into<ChannelOptions>,
    ) -> Result<Sender<T>, OpenError>
    where
        T: Serialize + DeserializeOwned,
    {
        let options = channel.into();
        let print = Fingerprint::of::<T>(options.schema_name()).map_err(OpenError::Type)?;
        let opened = self.open_end(peer, &options, ChannelKind::Typed, &print, None);
        let (end, peer) = opened.await?;
        Ok(Sender::new(end, peer))
    }

    /// As [`Node::open`], for bytes. Both ends must name a schema, if one does.
    ///
    /// # Errors
    ///
    /// As [`Node::open`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn open_bytes(
        &self,
        peer: &Peer,
        channel: impl Into<ChannelOptions>,
    ) -> Result<BytesSender, OpenError> {
        let options = channel.into();
        let print = Fingerprint::of_bytes(options.schema_name());
        let opened = self.open_end(peer, &options, ChannelKind::Bytes, &print, None);
        let (end, peer) = opened.await?;
        Ok(BytesSender::new(end, peer))
    }

    /// Opens a channel; with `back`, the inbox of its way back, it is a duplex. On the heap, so that
    /// the code is compiled with this crate and not with each program that awaits it.
    pub(super) fn open_end<'a>(
        &'a self,
        peer: &'a Peer,
        options: &'a ChannelOptions,
        kind: ChannelKind,
        print: &'a Fingerprint,
        back: Option<Arc<RxShared>>,
    ) -> BoxFuture<'a, Result<(TxEnd, Peer), OpenError>> {
        Box::pin(self.open_or_dial(peer, options, kind, print, back))
    }

    async fn open_or_dial(
        &self,
        peer: &Peer,
        options: &ChannelOptions,
        kind: ChannelKind,
        print: &Fingerprint,
        back: Option<Arc<RxShared>>,
    ) -> Result<(TxEnd, Peer), OpenError> {
        options.check_name()?;
        let stream = if options.settled { Some(stream_id()?) } else { None };
        let options = &ChannelOptions { stream, ..options.clone() };
        match self.try_open(&peer.link, options, kind, print, back.clone()) {
            Ok(end) => Ok((end, peer.clone())),
            Err(error) => {
                let Some(address) = peer.dialled() else { return Err(OpenError::Lost(error)) };
                let again = self.connect(address).await.map_err(OpenError::Connect)?;
                let end = self.try_open(&again.link, options, kind, print, back);
                Ok((end.map_err(OpenError::Lost)?, again))
            }
        }
    }

    /// Opens a channel over this link; an error when the link's session has ended.
    pub(crate) fn try_open(
        &self,
        link: &Arc<LinkShared>,
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
            backlog: options.backlog,
            name: options.name.clone(),
        });
        let settling = if options.stream.is_some() { Settling::Counted } else { Settling::No };
        let (name, text) = (options.name.clone(), print.text.clone());
        let shared = TxShared::bounded(name, text, settling, options.backlog);
        link.open(|id| {
            let (end, ring) = TxEnd::new(link, &shared, id);
            (Command::Open { id, spec, tx: Arc::clone(&shared), ring, back }, end)
        })
    }

    /// Waits for a peer that opens a channel of `T` under this name. Options
    /// ([`channel`](crate::channel())) limit the time, or name the peer; the sender chooses the lane.
    ///
    /// Opens that an `accept` waits for are served first. Opens that nobody waits for yet are held:
    ///
    /// - of a link: 7/8 of the channels for which
    ///   [`Limits::window_bytes_max`](crate::Limits::window_bytes_max) has memory left,
    ///   448 by default while none was accepted;
    /// - of a node: 4096, of which each link has its share.
    ///
    /// Further opens are refused: the next call on their sender fails, or else `Node::close` reports
    /// it.
    ///
    /// # Errors
    ///
    /// - A peer opened the channel with another type: the error names both, the
    ///   channel is refused, and `accept` can be called again.
    /// - With [`ChannelOptions::within`], the time is over: [`AcceptError::Late`] names the channels
    ///   that peers have opened and nobody accepts.
    /// - With [`ChannelOptions::from_peer`], the peer's sessions have ended.
    ///
    /// # Cancel safety
    ///
    /// Safe, except for a channel that was just found to be of another type: that
    /// channel is refused all the same.
    ///
    /// ```
    /// use chunkcomm::{AcceptError, Node, channel};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = Node::builder().name("server").listen("127.0.0.1:0".parse()?).build().await?;
    /// # let client = Node::builder().name("client").build().await?;
    /// # let peer = client.connect(&server.addresses()[0]).await?;
    /// let mut sender = client.open::<u64>(&peer, "numbers").await?;
    /// sender.send(&7).await?;
    ///
    /// let (from, mut receiver) = server.accept::<u64>("numbers").await?;
    /// assert_eq!((from.name(), receiver.recv().await?), ("client", Some(7)));
    ///
    /// let soon = channel("others").within(Duration::from_millis(10));
    /// assert!(matches!(server.accept::<u64>(soon).await, Err(AcceptError::Late { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn accept<T>(
        &self,
        channel: impl Into<ChannelOptions>,
    ) -> Result<(Peer, Receiver<T>), AcceptError>
    where
        T: Serialize + DeserializeOwned,
    {
        let options = channel.into();
        let print = Fingerprint::of::<T>(options.schema_name()).map_err(AcceptError::Type)?;
        let (end, peer) = self.accept_end(&options, ChannelKind::Typed, &print).await?;
        Ok((peer.clone(), Receiver::new(end, peer, print.carries)))
    }

    /// As [`Node::accept`], for bytes. Both ends must name a schema, if one does.
    ///
    /// # Errors
    ///
    /// As [`Node::accept`].
    ///
    /// # Cancel safety
    ///
    /// As [`Node::accept`].
    pub async fn accept_bytes(
        &self,
        channel: impl Into<ChannelOptions>,
    ) -> Result<(Peer, BytesReceiver), AcceptError> {
        let options = channel.into();
        let print = Fingerprint::of_bytes(options.schema_name());
        let (end, peer) = self.accept_end(&options, ChannelKind::Bytes, &print).await?;
        Ok((peer.clone(), BytesReceiver::new(end, peer, Some(print.hash))))
    }

    /// Accepts a channel. On the heap, as [`Node::open_end`].
    pub(crate) fn accept_end<'a>(
        &'a self,
        options: &'a ChannelOptions,
        kind: ChannelKind,
        print: &'a Fingerprint,
    ) -> BoxFuture<'a, Result<(RxEnd, Peer), AcceptError>> {
        Box::pin(self.take_and_judge(options, kind, print))
    }

    async fn take_and_judge(
        &self,
        options: &ChannelOptions,
        kind: ChannelKind,
        print: &Fingerprint,
    ) -> Result<(RxEnd, Peer), AcceptError> {
        let _wait = self.waits().begin_accept(&options.name);
        let (table, runtime) = (&self.shared.table, &self.shared.runtime);
        let opened = match options.within {
            None => table.take(&options.name, options.from.as_ref().map(|peer| &peer.link)).await?,
            Some(deadline) => table.take_within(options, deadline, runtime).await?,
        };
        let end = if options.refuses_at_once {
            judge_at_once(opened, kind, print)?
        } else {
            table.judge(opened, kind, print, runtime).await?
        };
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
