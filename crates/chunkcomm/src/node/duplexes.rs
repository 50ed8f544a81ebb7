//! Calls that open and accept duplexes. [`crate::driver::backs`] says how the two channels of one
//! are paired.

use super::fingerprint::Fingerprint;
use super::{Node, Peer};
use crate::channel::ChannelOptions;
use crate::channel::bytes_duplex::BytesDuplex;
use crate::channel::bytes_receiver::BytesReceiver;
use crate::channel::bytes_sender::BytesSender;
use crate::channel::duplex::Duplex;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::driver::backs;
use crate::driver::inbox::RxShared;
use crate::driver::mail::{Command, LinkShared};
use crate::driver::staging::{Failure, Settling, TxEnd, TxShared};
use crate::driver::taking::RxEnd;
use crate::error::{AcceptError, LinkError, OpenError};
use crate::proto::outbox::OpenSpec;
use crate::proto::packet::ChannelKind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

impl Node {
    /// Opens a duplex to `peer`, under a name or with options: sends `Out`, receives `In`. That costs
    /// no round trip: data may follow at once.
    ///
    /// The peer takes it by [`Node::accept_duplex`], with the types exchanged. Lane and settling are
    /// those of what is sent from here. A schema stands for the types of both directions.
    ///
    /// # Errors
    ///
    /// As [`Node::open`]. Whether the peer accepts is not known yet: if it refuses, later calls on
    /// both directions fail.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn open_duplex<Out, In>(
        &self,
        peer: &Peer,
        channel: impl Into<ChannelOptions>,
    ) -> Result<Duplex<Out, In>, OpenError>
    where
        Out: Serialize + DeserializeOwned,
        In: Serialize + DeserializeOwned,
    {
        let options = channel.into();
        let there = Fingerprint::of::<Out>(options.schema_name()).map_err(OpenError::Type)?;
        let back = Fingerprint::of::<In>(options.schema_name()).map_err(OpenError::Type)?;
        let (kind, print) = (ChannelKind::Typed, there.duplex(&back));
        let (tx, rx, peer) = self.open_both(peer, &options, kind, &print).await?;
        let receiver = Receiver::new(rx, peer.clone(), back.carries);
        Ok(Duplex::new(Sender::new(tx, peer), receiver))
    }

    /// As [`Node::open_duplex`], for bytes.
    ///
    /// # Errors
    ///
    /// As [`Node::open_duplex`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn open_duplex_bytes(
        &self,
        peer: &Peer,
        channel: impl Into<ChannelOptions>,
    ) -> Result<BytesDuplex, OpenError> {
        let options = channel.into();
        let print = Fingerprint::of_bytes(options.schema_name());
        let (kind, print) = (ChannelKind::Bytes, print.duplex(&print));
        let (tx, rx, peer) = self.open_both(peer, &options, kind, &print).await?;
        let receiver = BytesReceiver::new(rx, peer.clone(), None);
        Ok(BytesDuplex::new(BytesSender::new(tx, peer), receiver))
    }

    async fn open_both(
        &self,
        peer: &Peer,
        options: &ChannelOptions,
        kind: ChannelKind,
        print: &Fingerprint,
    ) -> Result<(TxEnd, RxEnd, Peer), OpenError> {
        let back = RxShared::unopened(&options.name);
        let opened = self.open_end(peer, options, kind, print, Some(Arc::clone(&back)));
        let (tx, peer) = opened.await?;
        let rx = RxEnd::new(back, Arc::clone(&tx.link), None);
        Ok((tx, rx, peer))
    }

    /// Opens a duplex of values over the session of `link`, at once.
    pub(crate) fn try_open_both(
        &self,
        link: &Arc<LinkShared>,
        options: &ChannelOptions,
        print: &Fingerprint,
    ) -> Result<(TxEnd, RxEnd), LinkError> {
        let back = RxShared::unopened(&options.name);
        let (kind, waits) = (ChannelKind::Typed, Some(Arc::clone(&back)));
        let tx = self.try_open(link, options, kind, print, waits)?;
        let rx = RxEnd::new(back, Arc::clone(&tx.link), None);
        Ok((tx, rx))
    }

    /// Waits for a peer that opens a duplex under this name: sends `Out`, receives `In`.
    ///
    /// The opener's types are the same, exchanged. The lane is that of what is sent from here; this
    /// direction is not settled. Opens that nobody waits for are held as those of
    /// [`Node::accept`].
    ///
    /// # Errors
    ///
    /// A peer opened the name with other types, in either direction, or as a channel of one
    /// direction. The error names all types as the opener sees them; the open is refused, and
    /// `accept_duplex` can be called again.
    ///
    /// # Cancel safety
    ///
    /// As [`Node::accept`].
    pub async fn accept_duplex<Out, In>(
        &self,
        channel: impl Into<ChannelOptions>,
    ) -> Result<(Peer, Duplex<Out, In>), AcceptError>
    where
        Out: Serialize + DeserializeOwned,
        In: Serialize + DeserializeOwned,
    {
        let options = channel.into();
        let there = Fingerprint::of::<In>(options.schema_name()).map_err(AcceptError::Type)?;
        let back = Fingerprint::of::<Out>(options.schema_name()).map_err(AcceptError::Type)?;
        let (kind, print) = (ChannelKind::Typed, there.duplex(&back));
        let (rx, peer) = self.accept_end(&options, kind, &print).await?;
        let sender = Sender::new(open_back(&rx, &options, kind, &print), peer.clone());
        let receiver = Receiver::new(rx, peer.clone(), there.carries);
        Ok((peer, Duplex::new(sender, receiver)))
    }

    /// As [`Node::accept_duplex`], for bytes.
    ///
    /// # Errors
    ///
    /// As [`Node::accept_duplex`].
    ///
    /// # Cancel safety
    ///
    /// As [`Node::accept`].
    pub async fn accept_duplex_bytes(
        &self,
        channel: impl Into<ChannelOptions>,
    ) -> Result<(Peer, BytesDuplex), AcceptError> {
        let options = channel.into();
        let print = Fingerprint::of_bytes(options.schema_name());
        let (kind, print) = (ChannelKind::Bytes, print.duplex(&print));
        let (rx, peer) = self.accept_end(&options, kind, &print).await?;
        let sender = BytesSender::new(open_back(&rx, &options, kind, &print), peer.clone());
        let receiver = BytesReceiver::new(rx, peer.clone(), None);
        Ok((peer, BytesDuplex::new(sender, receiver)))
    }
}

impl Node {
    /// Waits for a peer that opens a duplex of bytes under this name, and opens no way back yet.
    ///
    /// For code that must read the first message before it knows that the duplex is its own, and may
    /// be dropped meanwhile: see [`UnansweredDuplex`]. The lane is that of what is sent from here.
    ///
    /// # Errors
    ///
    /// As [`Node::accept_duplex`].
    ///
    /// # Cancel safety
    ///
    /// As [`Node::accept`].
    pub async fn accept_unanswered_bytes(
        &self,
        channel: impl Into<ChannelOptions>,
    ) -> Result<(Peer, UnansweredDuplex), AcceptError> {
        let options = channel.into();
        let print = Fingerprint::of_bytes(options.schema_name());
        let print = print.duplex(&print);
        let (rx, peer) = self.accept_end(&options, ChannelKind::Bytes, &print).await?;
        let receiver = BytesReceiver::new(rx, peer.clone(), Some(print.hash));
        Ok((peer, UnansweredDuplex { receiver: Some(receiver), options, print }))
    }
}

/// The peer's direction of a duplex of bytes whose way back is not open yet.
///
/// [`Node::accept_unanswered_bytes`] makes it. [`answer`](Self::answer) opens the way back,
/// [`give_back`](Self::give_back) leaves the duplex to the next accept. Dropped, it ends both
/// directions.
#[must_use = "both directions end when a duplex is dropped"]
#[derive(Debug)]
pub struct UnansweredDuplex {
    receiver: Option<BytesReceiver>,
    options: ChannelOptions,
    print: Fingerprint,
}

impl UnansweredDuplex {
    /// Returns the receiving half.
    ///
    /// # Panics
    ///
    /// Never: the half is there until the duplex is answered or given back, which consume it.
    pub fn receiver(&mut self) -> &mut BytesReceiver {
        self.receiver.as_mut().expect("it is taken by value only")
    }

    /// Opens the way back.
    ///
    /// # Panics
    ///
    /// Never: see [`receiver`](Self::receiver).
    pub fn answer(mut self) -> BytesDuplex {
        let receiver = self.receiver.take().expect("it is taken by value only");
        answered(receiver, &self.options, &self.print)
    }

    /// Gives the duplex back as if it had not been accepted; see [`BytesReceiver::give_back`].
    pub fn give_back(mut self) {
        if let Some(receiver) = self.receiver.take() {
            receiver.give_back();
        }
    }
}

impl Drop for UnansweredDuplex {
    fn drop(&mut self) {
        // The opener waits for a way back: it is opened, and ends at once.
        if let Some(receiver) = self.receiver.take() {
            drop(answered(receiver, &self.options, &self.print));
        }
    }
}

fn answered(
    mut receiver: BytesReceiver,
    options: &ChannelOptions,
    print: &Fingerprint,
) -> BytesDuplex {
    let peer = receiver.peer().clone();
    receiver.stay();
    let back = open_back(receiver.end(), options, ChannelKind::Bytes, print);
    BytesDuplex::new(BytesSender::new(back, peer), receiver)
}

/// Opens the way back of the duplex whose receiving end was accepted. After the session's end it is
/// a channel that has failed: what arrived before can still be received.
pub(crate) fn open_back(
    accepted: &RxEnd,
    options: &ChannelOptions,
    kind: ChannelKind,
    print: &Fingerprint,
) -> TxEnd {
    let (there, link) = (&accepted.shared, &accepted.link);
    let spec = Box::new(OpenSpec {
        lane: options.lane,
        system: options.system,
        kind,
        fingerprint: print.hash,
        stream: None,
        backlog: options.backlog,
        name: backs::name(there.id()),
    });
    let (name, text) = (there.name.to_string(), print.text.clone());
    let shared = TxShared::bounded(name, text, Settling::No, options.backlog);
    let opened = link.open(|id| {
        let (end, ring) = TxEnd::new(link, &shared, id);
        (Command::Open { id, spec, tx: Arc::clone(&shared), ring, back: None }, end)
    });
    opened.unwrap_or_else(|error| {
        shared.fail(Failure::Lost(error));
        TxEnd::new(link, &shared, 0).0
    })
}
