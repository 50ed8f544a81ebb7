//! The publisher of a value.

use super::{Silence, Word};
use crate::channel::ChannelOptions;
use crate::channel::sender::Sender;
use crate::channel::tx::Waiting;
use crate::driver::staging::Staged;
use crate::driver::tasks;
use crate::error::{AcceptError, OpenError, SendError, WatchError};
use crate::node::fingerprint::Fingerprint;
use crate::node::owed::Owed;
use crate::node::{Node, NodeShared};
use crate::proto::codec::{self, EncodeError};
use ::bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Longest time for which the end of a watch waits for one watcher to learn of it.
const END_WITHIN: Duration = Duration::from_secs(10);

/// The newest value, as it is and as it is sent.
struct Slot<T> {
    number: u64,
    value: T,
    /// A [`Word`], encoded.
    word: Bytes,
}

/// Replaces a value that other nodes watch; [`Node::publish`] makes it. Clones publish the same value. When
/// the last one is dropped, the watch ends for all watchers.
pub struct WatchSender<T> {
    slot: watch::Sender<Slot<T>>,
    /// Given up after the value has ended, so that the name is free at once.
    claim: Arc<Claim>,
    /// Notified when a watcher has come.
    came: Arc<Notify>,
}

impl<T> Clone for WatchSender<T> {
    fn clone(&self) -> WatchSender<T> {
        let (claim, came) = (Arc::clone(&self.claim), Arc::clone(&self.came));
        WatchSender { slot: self.slot.clone(), claim, came }
    }
}

impl<T> fmt::Debug for WatchSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.slot.borrow().number;
        f.debug_struct("WatchSender").field("number", &number).finish_non_exhaustive()
    }
}

impl<T: Serialize> WatchSender<T> {
    /// Replaces the value and returns the old one; each watcher gets the new one unless it is replaced
    /// before. Costs one encoding, whatever the number of watchers. Never waits.
    ///
    /// # Errors
    ///
    /// The value cannot be encoded; the old one stays.
    pub fn send_replace(&self, value: T) -> Result<T, EncodeError> {
        let encoded = encode(&value)?;
        let mut new = Some((value, encoded));
        let mut old = None;
        self.slot.send_modify(|slot| {
            let (value, encoded) = new.take().expect("it is called once");
            slot.number += 1;
            slot.word = word(slot.number, &encoded);
            old = Some(std::mem::replace(&mut slot.value, value));
        });
        Ok(old.expect("it was called"))
    }
}

impl<T> WatchSender<T> {
    /// Returns the present value. While it is borrowed, it cannot be replaced.
    pub fn borrow(&self) -> Published<'_, T> {
        Published(self.slot.borrow())
    }

    /// Returns the number of watchers that have a connection now.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        // One is of the task that accepts them.
        self.slot.receiver_count().saturating_sub(1)
    }

    /// Waits until there is a watcher; returns at once if there is one. A value that is costly to make is not made
    /// before.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn watched(&self) {
        loop {
            let came = self.came.notified();
            let mut came = std::pin::pin!(came);
            came.as_mut().enable();
            if self.receiver_count() > 0 {
                return;
            }
            came.await;
        }
    }
}

/// The present value of a [`WatchSender`].
pub struct Published<'a, T>(watch::Ref<'a, Slot<T>>);

impl<T> Deref for Published<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Published<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Published<'_, T> {
    /// Returns the value's number: how often values were replaced before it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, EncodeError> {
    let mut encoded = Vec::new();
    codec::encode_into_vec(value, &mut encoded)?;
    Ok(encoded)
}

/// Returns the word with this value. The codec writes the parts of a tuple one after the other.
fn word(number: u64, value: &[u8]) -> Bytes {
    let mut word = encode(&Some(number)).expect("a number can be encoded");
    word.extend_from_slice(value);
    word.into()
}

impl Node {
    /// Publishes `value` under a name, for the nodes that [watch](Node::watch) it; see [`crate::watch`].
    ///
    /// The name is that of a duplex, which watchers open. Of the [options](crate::channel()) the lane and
    /// the schema count.
    ///
    /// # Errors
    ///
    /// - [`WatchError::Open`]: the name is empty or longer than 255 bytes, or values of the type cannot be
    ///   sent.
    /// - [`WatchError::Encode`]: this value cannot be sent.
    /// - [`WatchError::Taken`]: this node publishes something under the name already.
    pub fn publish<T>(
        &self,
        channel: impl Into<ChannelOptions>,
        value: T,
    ) -> Result<WatchSender<T>, WatchError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let options = channel.into().for_watch();
        options.check_name().map_err(WatchError::Open)?;
        let print = Fingerprint::of::<T>(options.schema_name());
        print.map_err(|refused| WatchError::Open(OpenError::Type(refused)))?;
        let encoded = encode(&value).map_err(|error| WatchError::Encode(Arc::new(error)))?;
        if !self.claim(&options.name) {
            return Err(WatchError::Taken { channel: options.name });
        }
        let (slot, changes) = watch::channel(Slot { number: 0, value, word: word(0, &encoded) });
        let (node, name) = (Arc::downgrade(&self.shared), options.name.clone());
        let came = Arc::new(Notify::new());
        let publisher = Publishing { node: self.clone(), options, came: Arc::clone(&came) };
        tasks::spawn_on(self.runtime(), publisher.serve(changes));
        Ok(WatchSender { slot, claim: Arc::new(Claim { node, name }), came })
    }
}

/// The name of a watch, which no other publisher of the node may have.
struct Claim {
    node: Weak<NodeShared>,
    name: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(shared) = self.node.upgrade() {
            Node { shared }.give_up_name(&self.name);
        }
    }
}

/// Accepts the watchers of a value.
struct Publishing {
    node: Node,
    options: ChannelOptions,
    came: Arc<Notify>,
}

impl Publishing {
    /// Accepts watchers until the last publisher is dropped.
    async fn serve<T>(self, mut changes: watch::Receiver<Slot<T>>)
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let warned = Arc::new(AtomicBool::new(false));
        loop {
            let accepting = self.node.accept_duplex::<Word<T>, Silence>(self.options.clone());
            let accepted = tokio::select! {
                biased;
                () = ended(&mut changes) => return,
                accepted = accepting => accepted,
            };
            match accepted {
                Ok((peer, duplex)) => {
                    let (channel, peer) = (&self.options.name, peer.name());
                    let owed = format!("the last value of watch {channel:?} to {peer}");
                    let watcher = Watcher {
                        node: self.node.clone(),
                        warned: Arc::clone(&warned),
                        owed: Owed::standing(&self.node, owed),
                    };
                    let (words, _) = duplex.split();
                    tasks::spawn_on(self.node.runtime(), watcher.serve(words, changes.clone()));
                    self.came.notify_waiters();
                }
                // The watcher was told.
                Err(AcceptError::Mismatch { .. }) => {}
                Err(_) => return,
            }
        }
    }
}

/// Waits until the last publisher is dropped.
async fn ended<T>(changes: &mut watch::Receiver<Slot<T>>) {
    while changes.changed().await.is_ok() {}
}

/// Serves one watcher.
struct Watcher {
    node: Node,
    /// Whether people were warned of a value that is too large for a watcher.
    warned: Arc<AtomicBool>,
    /// The newest value when the node closes, and the end if there is no publisher by then.
    owed: Owed,
}

impl Watcher {
    /// Sends the newest value whenever the one before is acknowledged; then the end.
    async fn serve<T>(mut self, mut words: Sender<Word<T>>, mut changes: watch::Receiver<Slot<T>>)
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        loop {
            let is_last = self.owed.is_due();
            let word = changes.borrow_and_update().word.clone();
            let staged = self.owed.beside(stage(&mut words, word)).await;
            if is_last && changes.has_changed().is_ok() {
                // Later values are not waited for: they may never end.
                self.owed.said();
            }
            let sent = match staged {
                Ok(()) => self.owed.beside(words.sync()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                return self.warn_of_large(words.peer().name(), &error);
            }
            let gone = loop {
                tokio::select! {
                    biased;
                    changed = changes.changed() => break changed.is_err(),
                    _ = words.closed() => return,
                    () = self.owed.due() => {
                        // Another thread may have replaced it since `changed` looked.
                        if let Ok(false) = changes.has_changed() {
                            self.owed.said();
                        }
                    }
                }
            };
            if gone {
                // Fails when the watcher is gone as well.
                let _ = self.owed.beside(words.send(&None)).await;
                self.owed.said();
                let _ = words.close(END_WITHIN).await;
                return;
            }
        }
    }

    fn warn_of_large(&self, peer: &str, error: &SendError) {
        if matches!(error, SendError::TooLarge { .. }) && !self.warned.swap(true, Ordering::Relaxed)
        {
            self.node.warn_of(&format!("a published value does not reach {peer}: {error}"));
        }
    }
}

/// Stages an encoded word; waits for room.
async fn stage<T>(words: &mut Sender<Word<T>>, word: Bytes) -> Result<(), SendError>
where
    T: Serialize,
{
    let tx = words.tx();
    if tx.stage_waiting(&Waiting::Bytes(&word))? == Staged::Full {
        tx.stage_later(Waiting::Bytes(&word)).await?;
    }
    Ok(())
}
