//! The watcher of a value.

use super::{Silence, Word};
use crate::Address;
use crate::channel::ChannelOptions;
use crate::driver::{clock, entropy, tasks};
use crate::error::{OpenError, RecvError, RefusalReason, WatchError};
use crate::node::fingerprint::Fingerprint;
use crate::node::whom::Whom;
use crate::node::{Node, NodeShared, Peer};
use crate::proto::backoff::Backoff;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// The node whose value is watched or whose feed is subscribed to: by its address, which this node dials
/// whenever there is no session, or by its name.
///
/// `&Address` and `&Peer` convert into it. A peer that this node has dialled stands for its address, the
/// [local](Node::local) one for this node, any other peer for its name.
#[derive(Debug, Clone)]
pub struct Publisher(pub(crate) Whom);

impl Publisher {
    /// Any node that listens at `address`, now and after its restarts.
    pub fn at(address: &Address) -> Publisher {
        Publisher(Whom::at(address))
    }

    /// The node of this name ([`NodeBuilder::name`](crate::NodeBuilder::name)), whichever side dials. While
    /// there is no session with it, the watcher waits and dials nobody.
    pub fn named(name: &str) -> Publisher {
        Publisher(Whom::named(name))
    }

    /// Watches only a node of this name; by default any that has the address.
    #[must_use]
    pub fn peer_name(self, name: &str) -> Publisher {
        Publisher(self.0.only_named(name))
    }
}

impl From<&Address> for Publisher {
    fn from(address: &Address) -> Publisher {
        Publisher::at(address)
    }
}

impl From<&Peer> for Publisher {
    fn from(peer: &Peer) -> Publisher {
        match peer.dialled() {
            Some(address) => Publisher::at(address),
            None if peer.is_own() => Publisher(Whom::own()),
            None => Publisher(Whom::dialler(peer)),
        }
    }
}

/// The newest value that came.
struct Slot<T> {
    /// Number of values that came; 0 before the first one.
    arrivals: u64,
    value: Option<(u64, T)>,
    over: Option<WatchError>,
}

/// Watches a value that another node publishes; [`Node::watch`] makes it. Each clone notes for itself which
/// value it has seen. When the last one is dropped, the watch ends.
pub struct WatchReceiver<T> {
    slot: watch::Receiver<Slot<T>>,
    /// Number of values that had come when the newest one was seen.
    seen: u64,
    /// Keeps the node alive.
    node: Node,
}

impl<T> Clone for WatchReceiver<T> {
    fn clone(&self) -> WatchReceiver<T> {
        WatchReceiver { slot: self.slot.clone(), seen: self.seen, node: self.node.clone() }
    }
}

impl<T> fmt::Debug for WatchReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchReceiver").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl<T> WatchReceiver<T> {
    /// Returns the newest value that came, and does not mark it as seen. While it is borrowed, no newer one
    /// can come: keep it for a short time, and not over an `await`.
    pub fn borrow(&self) -> Seen<'_, T> {
        Seen(self.slot.borrow())
    }

    /// As [`Self::borrow`], and marks the value as seen.
    pub fn borrow_and_update(&mut self) -> Seen<'_, T> {
        let slot = self.slot.borrow_and_update();
        self.seen = slot.arrivals;
        Seen(slot)
    }

    /// Waits for a value that this receiver has not seen, and marks it as seen. Returns at once if one has
    /// come. While the connection is lost, it waits.
    ///
    /// # Errors
    ///
    /// The watch is over; [`Self::borrow`] still returns the last value.
    ///
    /// - [`WatchError::Ended`]: the publisher has ended it.
    /// - [`WatchError::Refused`]: the publisher publishes another type now.
    /// - [`WatchError::Decode`]: a value cannot be decoded.
    /// - [`WatchError::Closed`]: this node is closed.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, it has marked nothing.
    pub async fn changed(&mut self) -> Result<(), WatchError> {
        loop {
            {
                let slot = self.slot.borrow_and_update();
                if slot.arrivals > self.seen {
                    self.seen = slot.arrivals;
                    return Ok(());
                }
                if let Some(error) = &slot.over {
                    return Err(error.clone());
                }
            }
            if self.slot.changed().await.is_err() {
                return Err(WatchError::Closed);
            }
        }
    }

    /// Whether a value has come that this receiver has not seen.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.slot.borrow().arrivals > self.seen
    }
}

/// A value of a [`WatchReceiver`].
pub struct Seen<'a, T>(watch::Ref<'a, Slot<T>>);

impl<T> Seen<'_, T> {
    fn numbered(&self) -> &(u64, T) {
        self.0.value.as_ref().expect("a receiver is made when the first value has come")
    }

    /// Returns the value's number: how often its publisher replaced values before it. Numbers that are
    /// missing between two values are of values that were replaced too soon. A publisher that starts again
    /// counts from 0.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.numbered().0
    }
}

impl<T> Deref for Seen<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.numbered().1
    }
}

impl<T: fmt::Debug> fmt::Debug for Seen<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Node {
    /// Watches the value that another node [publishes](Node::publish) under a name; see [`crate::watch`].
    /// Waits for its present value.
    ///
    /// Of the [options](crate::channel()), [`within`](ChannelOptions::within) limits this wait, and a schema
    /// stands for the type. The lane is the publisher's.
    ///
    /// # Errors
    ///
    /// - [`WatchError::Open`]: the name is empty or longer than 255 bytes, values of the type cannot be
    ///   received, or the system gave no random numbers.
    /// - [`WatchError::Late`]: with `within`, no value came in time.
    /// - Those of [`WatchReceiver::changed`].
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, nothing is watched.
    pub async fn watch<T>(
        &self,
        channel: impl Into<ChannelOptions>,
        publisher: impl Into<Publisher>,
    ) -> Result<WatchReceiver<T>, WatchError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let options = channel.into();
        options.check_name().map_err(WatchError::Open)?;
        let print = Fingerprint::of::<T>(options.schema_name());
        print.map_err(|refused| WatchError::Open(OpenError::Type(refused)))?;
        let seed = entropy::bytes::<8>().map_err(|_| WatchError::Open(OpenError::NoRandomness))?;
        let within = options.within;
        let options = options.for_watch();
        let name = options.name.clone();
        let (slot, newest) = watch::channel(Slot { arrivals: 0, value: None, over: None });
        let Publisher(whom) = publisher.into();
        let following = Following { whom, options, slot, seed: u64::from_le_bytes(seed) };
        tasks::spawn_on(self.runtime(), following.follow(Arc::downgrade(&self.shared)));
        let mut receiver = WatchReceiver { slot: newest, seen: 0, node: self.clone() };
        let first = receiver.changed();
        match within {
            None => first.await?,
            Some(limit) => clock::within(self.runtime(), limit, first)
                .await
                .unwrap_or(Err(WatchError::Late { channel: name, waited: limit }))?,
        }
        // It is new to its owner.
        receiver.seen = 0;
        Ok(receiver)
    }
}

/// Opens the watch anew whenever it is lost.
struct Following<T> {
    whom: Whom,
    options: ChannelOptions,
    slot: watch::Sender<Slot<T>>,
    seed: u64,
}

impl<T> Following<T>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    async fn follow(self, node: Weak<NodeShared>) {
        let mut backoff = Backoff::new(self.seed);
        loop {
            let arrivals = self.slot.borrow().arrivals;
            let over = tokio::select! {
                biased;
                () = self.slot.closed() => return,
                over = self.take(&node) => over,
            };
            if let Some(error) = over {
                self.slot.send_modify(|slot| slot.over = Some(error));
                return;
            }
            if self.slot.borrow().arrivals > arrivals {
                backoff = Backoff::new(self.seed);
            }
            tokio::select! {
                biased;
                () = self.slot.closed() => return,
                () = clock::pause(backoff.wait()) => {}
            }
        }
    }

    /// Takes values over one session; returns the reason if there will be no more.
    async fn take(&self, node: &Weak<NodeShared>) -> Option<WatchError> {
        let node = Node { shared: node.upgrade()? };
        if node.table().is_closed() {
            return Some(WatchError::Closed);
        }
        let peer = self.whom.find(&node).await?;
        let opened = node.open_duplex::<Silence, Word<T>>(&peer, self.options.clone()).await;
        let mut duplex = opened.ok()?;
        // The receivers keep it alive.
        drop((node, peer));
        loop {
            match duplex.recv().await {
                Ok(Some(Some(numbered))) => self.slot.send_modify(|slot| {
                    slot.arrivals += 1;
                    slot.value = Some(numbered);
                }),
                Ok(Some(None)) => return Some(WatchError::Ended),
                Ok(None) => return None,
                Err(RecvError::Refused(refused)) => {
                    let is_busy = matches!(refused.reason, RefusalReason::NotAccepted);
                    return (!is_busy).then_some(WatchError::Refused(refused));
                }
                Err(RecvError::Decode(failed)) => return Some(WatchError::Decode(failed)),
                Err(_) => return None,
            }
        }
    }
}
