//! [`Value`]: written once at one node, read at another.

use super::ends::{
    Arriving, Departing, TravellingReceiver, TravellingSender, travelling_receiver,
    travelling_sender,
};
use crate::moving::error::TravelError;
use chunkcomm::{Node, SendError};
use chunkcomm_proto::packet::Lane;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use tokio::sync::{Mutex, OnceCell};

/// A value that is written once, elsewhere, and can be read any number of times here.
///
/// Clones share the value. [`NodeExt::value`](crate::NodeExt::value) makes it with its
/// [`ValueWriter`], which can be handed over to another node. The written value leaves at once,
/// before streams of the same link.
pub struct Value<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    read: OnceCell<Result<T, TravelError>>,
    from: Mutex<Arriving<T>>,
}

impl<T> Clone for Value<T> {
    fn clone(&self) -> Value<T> {
        Value { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for Value<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value").finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Value<T> {
    fn new(from: Arriving<T>) -> Value<T> {
        Value { shared: Arc::new(Shared { read: OnceCell::new(), from: Mutex::new(from) }) }
    }

    /// Waits until the value is written and returns it.
    ///
    /// # Errors
    ///
    /// [`TravelError::Unwritten`]: the writer was dropped without writing. Otherwise those of
    /// [`Arriving::recv`], but `Dropped`. Every later call fails alike, on clones too.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get(&self) -> Result<&T, TravelError> {
        let shared = &self.shared;
        let read = shared.read.get_or_init(|| async { read(&mut *shared.from.lock().await).await });
        read.await.as_ref().map_err(Clone::clone)
    }

    /// Returns the value, if an earlier call has read it.
    #[must_use]
    pub fn peek(&self) -> Option<&T> {
        self.shared.read.get()?.as_ref().ok()
    }
}

async fn read<T: DeserializeOwned>(from: &mut Arriving<T>) -> Result<T, TravelError> {
    match from.recv().await {
        Ok(Some(value)) => Ok(value),
        Ok(None) => {
            let by = from.receiver().await.map(|receiver| receiver.peer().name().to_owned());
            Err(TravelError::Unwritten { by: by? })
        }
        Err(TravelError::Dropped { by }) => Err(TravelError::Unwritten { by }),
        Err(error) => Err(error),
    }
}

/// Writer of a [`Value`], for one time. It can be handed over to another node.
///
/// If the writer is dropped without writing, the reader gets [`TravelError::Unwritten`].
#[must_use = "a writer that is dropped leaves its value unwritten"]
#[derive(Serialize, Deserialize)]
#[serde(
    rename = "ValueWriter",
    bound(serialize = "T: Serialize", deserialize = "T: DeserializeOwned")
)]
pub struct ValueWriter<T> {
    sender: TravellingSender<T>,
}

impl<T> fmt::Debug for ValueWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueWriter").field("home", &self.sender.home()).finish_non_exhaustive()
    }
}

impl<T: Serialize + DeserializeOwned> ValueWriter<T> {
    /// Writes the value and hands it to the transport.
    ///
    /// # Errors
    ///
    /// The node of the reader cannot be reached. It is no error if the reader itself is gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the value is either unwritten or on its way.
    pub async fn write(self, value: &T) -> Result<(), TravelError> {
        let mut sender = self.sender.connect().await?;
        match sender.send_now(value).await {
            Ok(()) | Err(SendError::Terminated(_)) => Ok(()),
            Err(error) => Err(TravelError::Send(error)),
        }
    }
}

/// Reading side of a value on its way to the node that reads it; made by
/// [`NodeExt::value_reader`](crate::NodeExt::value_reader).
#[must_use = "nobody reads the value of a reader that is dropped"]
#[derive(Serialize, Deserialize)]
#[serde(
    rename = "ValueReader",
    bound(serialize = "T: Serialize", deserialize = "T: DeserializeOwned")
)]
pub struct ValueReader<T> {
    receiver: TravellingReceiver<T>,
}

impl<T> fmt::Debug for ValueReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueReader").field("home", &self.receiver.home()).finish_non_exhaustive()
    }
}

impl<T: Serialize + DeserializeOwned> ValueReader<T> {
    /// Connects the reader with the writer: from now on the value is read here.
    ///
    /// # Errors
    ///
    /// The node of the writer cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the reader is dropped.
    pub async fn connect(self) -> Result<Value<T>, TravelError> {
        self.receiver.connect().await.map(Value::new)
    }
}

/// Writer of the value of a [`ValueReader`], for one time.
#[must_use = "a source that is dropped leaves its value unwritten"]
pub struct ValueSource<T> {
    to: Departing<T>,
}

impl<T> fmt::Debug for ValueSource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueSource").finish_non_exhaustive()
    }
}

impl<T: Serialize + DeserializeOwned> ValueSource<T> {
    /// Waits until the reader is known, writes the value and hands it to the transport.
    ///
    /// # Errors
    ///
    /// The reader was dropped or lost, or its node cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the value is either unwritten or on its way.
    pub async fn write(self, value: &T) -> Result<(), TravelError> {
        let mut sender = self.to.connect().await?;
        match sender.send_now(value).await {
            Ok(()) | Err(SendError::Terminated(_)) => Ok(()),
            Err(error) => Err(TravelError::Send(error)),
        }
    }
}

/// Makes a value that is read here, and its writer to hand over.
pub(crate) fn value<T>(node: &Node) -> Result<(ValueWriter<T>, Value<T>), TravelError>
where
    T: Serialize + DeserializeOwned,
{
    let (sender, here) = travelling_sender(node, Lane::Express)?;
    Ok((ValueWriter { sender }, Value::new(here)))
}

/// Makes a value that is written here, and its reading side to hand over.
pub(crate) fn value_reader<T>(node: &Node) -> Result<(ValueReader<T>, ValueSource<T>), TravelError>
where
    T: Serialize + DeserializeOwned,
{
    let (receiver, to) = travelling_receiver(node, Lane::Express)?;
    Ok((ValueReader { receiver }, ValueSource { to }))
}
