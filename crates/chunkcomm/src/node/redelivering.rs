//! Senders whose messages are sent again until the receiver has settled them, across restarts of
//! the peer.
//!
//! A task of the node follows the stream ([`crate::driver::keeping`]). When the stream has no
//! channel, the task dials the peer or waits until the peer dials. It then opens the next channel
//! there and hands the ring over.

use super::fingerprint::Fingerprint;
use super::whom::Whom;
use super::{Node, NodeShared, Peer};
use crate::Address;
use crate::channel::ChannelOptions;
use crate::channel::bytes_sender::BytesSender;
use crate::channel::sender::Sender;
use crate::driver::clock;
use crate::driver::ending::LostChannel;
use crate::driver::keeping::{Returned, Stream};
use crate::driver::logging::Logger;
use crate::driver::mail::{Command, LinkShared};
use crate::driver::staging::{Settling, TxEnd, TxShared};
use crate::driver::tasks;
use crate::error::{LinkCause, LinkError, LogError, Named, OpenError};
use crate::log::{Fsync, Identity, Log};
use crate::proto::backoff::Backoff;
use crate::proto::limits::{KEPT_BYTES_DEFAULT, RING_BYTES_LARGEST};
use crate::proto::outbox::OpenSpec;
use crate::proto::packet::{ChannelKind, StreamStart};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Settings of a redelivering sender: its peer, the bytes that it keeps and its channels.
#[derive(Debug, Clone)]
#[must_use]
pub struct Redelivery {
    whom: Whom,
    bytes_max: usize,
    log: Option<(PathBuf, Fsync)>,
}

impl Redelivery {
    /// Sends to any node that listens at `address`, now and after its restarts.
    pub fn to(address: &Address) -> Redelivery {
        Redelivery::following(Whom::at(address))
    }

    /// Sends to the node of this name ([`NodeBuilder::name`](crate::NodeBuilder::name)) over its
    /// sessions with this node, whichever side dialled. While there is none the sender waits and
    /// dials nobody. Of several sessions it takes the newest when it opens a channel.
    pub fn to_peer(name: impl Into<String>) -> Redelivery {
        Redelivery::following(Whom::named(&name.into()))
    }

    fn following(whom: Whom) -> Redelivery {
        Redelivery { whom, bytes_max: KEPT_BYTES_DEFAULT, log: None }
    }

    /// Sends only to a node of this name ([`NodeBuilder::name`](crate::NodeBuilder::name)). While
    /// another node has the address, the sender waits. By default any node will do.
    pub fn peer_name(mut self, name: impl Into<String>) -> Redelivery {
        self.whom = self.whom.only_named(&name.into());
        self
    }

    /// Limits the kept messages to this many encoded bytes: 4 MiB by default, 1 GiB at most.
    ///
    /// Messages above 8 KiB have a second limit of the same size. If no such message is kept, one of
    /// any size is accepted. While the bytes are used up, `send` waits and `try_send` returns `Full`.
    /// The limit also holds with a log. A log may hold more when it is opened: all of it is sent.
    pub fn bytes_max(mut self, bytes: usize) -> Redelivery {
        self.bytes_max = bytes.min(RING_BYTES_LARGEST);
        self
    }

    /// Keeps the messages on disk, too, so that they outlive this process. `directory` holds a log
    /// of this sender alone; it is made if it is not there.
    ///
    /// A message is stored before it leaves. [`Sender::sync_stored`] waits until all accepted
    /// messages are stored. The next process that opens the directory goes on with the stream. It
    /// sends the unsettled messages again, as redelivered ones with their old numbers. Its own
    /// messages are numbered after those.
    ///
    /// A thread of the sender's own writes the log. The log is append-only, in files of some
    /// 64 MiB. A file is removed when all of its messages are settled. Each record has a checksum.
    ///
    /// If the log cannot be written, every later call on the sender fails with
    /// [`SendError::Log`](crate::SendError::Log). Messages that were stored before are delivered.
    ///
    /// The log belongs to the channel's name and type, not to the peer. Do not use a copy of a log
    /// or restore a backup. The copy would give new messages numbers that were used before. A
    /// receiver that skips numbers it has stored would lose these messages.
    ///
    /// # Damage
    ///
    /// In a log, as in the journal of a farm (`chunkcomm_farm::FarmBuilder::journal`),
    /// each record marks how much of its file was permanent when it was written. Opening goes by the
    /// marks:
    ///
    /// - Damage before the last mark is refused ([`LogError::Damaged`]), and nothing is changed.
    /// - A record behind it that is not whole was being written. It is cut off with all that follows,
    ///   and a warning says so.
    /// - A journal may skip a damaged record and compute its results again.
    /// - A log that was never synced refuses damage that whole records follow.
    ///
    /// Damage to the very last record looks like a record that was being written.
    pub fn log(mut self, directory: impl Into<PathBuf>, fsync: Fsync) -> Redelivery {
        self.log = Some((directory.into(), fsync));
        self
    }
}

/// A stream, with the settings for opening its channels.
struct Following {
    redelivery: Redelivery,
    stream: Arc<Stream>,
    /// Those of each channel that the sender opens.
    options: ChannelOptions,
    kind: ChannelKind,
    print: Fingerprint,
    /// Whether people were warned of a message that is too large for the peer.
    warned: AtomicBool,
}

impl Node {
    /// Opens a stream of `T` under `name`: a sender that outlives its peer.
    ///
    /// The sender keeps each accepted message until the receiver has settled it
    /// ([`Receiver::settle`](crate::Receiver::settle)). When the session ends or the receiver is
    /// dropped, the node dials the peer until it is there. Messages that are not settled are then
    /// sent again, in order, with their old numbers
    /// ([`Receiver::delivery`](crate::Receiver::delivery)).
    ///
    /// Returns at once, whether the peer is there or not. A log ([`Redelivery::log`]) is read before
    /// that, on the calling thread. `send` accepts messages without the peer, as far as there is
    /// room. [`Sender::sync_settled`] and [`Sender::close`] wait until everything is settled. A
    /// sender that is dropped goes on delivering while its node lives.
    ///
    /// Each message is delivered at least once. It takes effect exactly once if the receiver
    /// stores stream and number together with its own results, and skips numbers that it has
    /// stored. The end of this process ends the stream, unless it has a log.
    ///
    /// # Errors
    ///
    /// - The node is closed.
    /// - The name is empty or longer than 255 bytes.
    /// - Values of the type cannot be sent.
    /// - The log cannot be used.
    /// - The system has no random numbers.
    ///
    /// If the peer takes another type, the next call on the sender fails.
    ///
    /// ```
    /// use chunkcomm::{Node, Redelivery};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
    /// let address = server.addresses()[0].clone();
    /// let client = Node::builder().build().await?;
    /// let mut sender = client.open_redelivering::<u64>("orders", Redelivery::to(&address))?;
    /// sender.send(&7).await?;
    ///
    /// // The first receiver takes the order, and goes without settling it.
    /// let (_, mut receiver) = server.accept::<u64>("orders").await?;
    /// assert_eq!(receiver.recv().await?, Some(7));
    /// drop(receiver);
    ///
    /// let (_, mut receiver) = server.accept::<u64>("orders").await?;
    /// assert_eq!(receiver.recv().await?, Some(7));
    /// receiver.settle();
    /// sender.sync_settled().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_redelivering<T>(
        &self,
        channel: impl Into<ChannelOptions>,
        redelivery: Redelivery,
    ) -> Result<Sender<T>, OpenError>
    where
        T: Serialize + DeserializeOwned,
    {
        let options = channel.into();
        let print = Fingerprint::of::<T>(options.schema_name()).map_err(OpenError::Type)?;
        let (end, peer) = self.begin_stream(options, redelivery, ChannelKind::Typed, print)?;
        Ok(Sender::new(end, peer))
    }

    /// As [`Node::open_redelivering`], for bytes.
    ///
    /// # Errors
    ///
    /// As [`Node::open_redelivering`].
    pub fn open_redelivering_bytes(
        &self,
        channel: impl Into<ChannelOptions>,
        redelivery: Redelivery,
    ) -> Result<BytesSender, OpenError> {
        let options = channel.into();
        let print = Fingerprint::of_bytes(options.schema_name());
        let (end, peer) = self.begin_stream(options, redelivery, ChannelKind::Bytes, print)?;
        Ok(BytesSender::new(end, peer))
    }

    fn begin_stream(
        &self,
        options: ChannelOptions,
        redelivery: Redelivery,
        kind: ChannelKind,
        print: Fingerprint,
    ) -> Result<(TxEnd, Peer), OpenError> {
        options.check_name()?;
        let id = super::channels::stream_id()?;
        if let (Some((directory, _)), true) = (&redelivery.log, tasks::is_virtual()) {
            let why = "a virtual host has no disk; keep the messages in memory there";
            let error = std::io::Error::new(std::io::ErrorKind::Unsupported, why);
            return Err(OpenError::Log(LogError::io(directory, error)));
        }
        let log = redelivery.log.as_ref().map(|(directory, fsync)| {
            let identity = Identity { channel: options.name.clone(), fingerprint: print.hash };
            Log::open(directory, &identity, *fsync, id)
        });
        let log = log.transpose().map_err(OpenError::Log)?;
        for cut in log.iter().flat_map(|(log, _)| &log.cut) {
            self.table().say(&format!("{}: {cut}", Named(&options.name)));
        }
        let id = log.as_ref().map_or(id, |(_, recovered)| recovered.stream);
        let stream = Stream::new(id, redelivery.bytes_max, log.is_some());
        let settling = Settling::Kept(Arc::clone(&stream));
        let shared = TxShared::new(options.name.clone(), print.text.clone(), settling);
        let peer = redelivery.whom.text();
        let address = redelivery.whom.address.as_ref();
        let link = || LinkShared::without_session(&peer, address, self.message_bytes_max());
        let nowhere = link();
        nowhere.end(&LinkError::new(peer.clone(), LinkCause::ConnectionLost));
        nowhere.tell_end();
        let (end, ring, start) = match log {
            None => {
                let (end, ring) = TxEnd::new(&nowhere, &shared, 0);
                (end, ring, StreamStart { id, first: 0, sent_before: 0 })
            }
            Some((log, recovered)) => {
                let (first, stored) = (recovered.settled, recovered.next());
                shared.begin_with(first, stored);
                let link = link();
                let (end, ring, tail) = TxEnd::logged(&link, &shared, &recovered);
                let (shared, stream) = (Arc::clone(&shared), Arc::clone(&stream));
                Logger { link, shared, stream, tail, log, stored }.begin().map_err(|error| {
                    let path = redelivery.log.clone().map(|(path, _)| path).unwrap_or_default();
                    OpenError::Log(LogError::io(&path, error))
                })?;
                (end, ring, StreamStart { id, first, sent_before: stored })
            }
        };
        let known = self.table().add_stream(&shared);
        let sender = Arc::clone(&shared);
        self.take_back(&stream, Returned::unopened(shared, ring, start));
        if !known {
            let _ = give_up(&sender);
            return Err(OpenError::Lost(closed()));
        }
        let peer = self.peer(nowhere);
        let warned = AtomicBool::new(false);
        let following = Following { redelivery, stream, options, kind, print, warned };
        tasks::spawn_on(self.runtime(), following.follow(Arc::downgrade(&self.shared)));
        Ok((end, peer))
    }
}

impl Node {
    /// Takes a stream back that got no channel. Gives it up if the node has closed meanwhile.
    fn take_back(&self, stream: &Stream, returned: Returned) {
        if let Some(returned) = stream.give_back(returned) {
            self.table().add_lost(returned.give_up(&closed()));
        }
    }
}

impl Following {
    /// Opens a channel whenever the stream has none, until it is over.
    async fn follow(self, node: Weak<NodeShared>) {
        let mut backoff = Backoff::new(self.stream.id as u64);
        while poll_fn(|context| self.stream.poll_returned(context)).await {
            let Some(shared) = node.upgrade() else { return };
            let node = Node { shared };
            if node.table().is_closed() {
                return;
            }
            let opened = self.open(&node).await;
            drop(node);
            // Also after an open that succeeded: a peer that refuses each channel is not asked
            // again at once.
            clock::pause(backoff.wait()).await;
            if opened {
                backoff = Backoff::new(self.stream.id as u64);
            }
        }
    }

    /// Warns once of a kept message that is too large for the peer. A restarted peer may take less
    /// than before, and would end each session over that message.
    fn warn_of_large(&self, node: &Node, peer: &Peer, bytes: u64, bytes_max: u64) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            node.table().say(&format!(
                "{} keeps a message of {bytes} bytes, and {} takes at most {bytes_max} \
                 (Limits::message_bytes_max): its messages wait for a peer that takes more",
                Named(&self.options.name),
                peer.name(),
            ));
        }
    }

    /// Opens the next channel of the stream if its peer is there; returns whether it did.
    async fn open(&self, node: &Node) -> bool {
        let Some(peer) = self.redelivery.whom.find(node).await else { return false };
        let Some(returned) = self.stream.take() else { return false };
        let (bytes, bytes_max) = (returned.shared.longest_large(), peer.message_bytes_max());
        if bytes > bytes_max {
            node.take_back(&self.stream, returned);
            self.warn_of_large(node, &peer, bytes, bytes_max);
            return false;
        }
        let Returned { shared, ring, first, sent_before } = returned;
        shared.set_message_bytes_max(bytes_max);
        let start = StreamStart { id: self.stream.id, first, sent_before };
        let options = &self.options;
        let spec = Box::new(OpenSpec {
            lane: options.lane,
            system: options.system,
            kind: self.kind,
            fingerprint: self.print.hash,
            stream: Some(start),
            backlog: None,
            name: self.options.name.clone(),
        });
        let mut ring = Some(ring);
        let opened = peer.link.open(|id| {
            shared.move_to(&peer.link, id);
            let ring = ring.take().expect("it is asked once");
            (Command::Open { id, spec, tx: Arc::clone(&shared), ring, back: None }, ())
        });
        if let Some(ring) = ring.filter(|_| opened.is_err()) {
            node.take_back(&self.stream, Returned::unopened(shared, ring, start));
            return false;
        }
        // The sender may wait for room.
        shared.progress();
        true
    }
}

/// Ends a stream when its node closes; returns the messages that are lost by that. If the stream
/// has a channel, that ends with the node.
pub(super) fn give_up(sender: &TxShared) -> Option<LostChannel> {
    let returned = sender.settling.stream()?.take_last()?;
    returned.give_up(&closed())
}

fn closed() -> LinkError {
    LinkError::new(String::new(), LinkCause::Closed)
}
