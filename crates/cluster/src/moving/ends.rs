//! Channel ends that travel in messages, [`TravellingSender`] and [`TravellingReceiver`], and the
//! ends that stay at their home, [`Arriving`] and [`Departing`].

mod staying;

pub use staying::{Arriving, Departing};

use super::crossing::{self, Held, Leaving};
use super::error::{HandOverError, TravelError};
use super::home;
use super::reaching::{home_address, peer_of};
use crate::moving::{leaving_by, moving};
use crate::proto::custody::Origin;
use bytes::Bytes;
use chunkcomm::layer::{Fingerprint, RawSender, Waiting, needs_link};
use chunkcomm::{Lane, Node, OpenError, SendError, Sender, channel, host};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Sending end of a channel, on its way to the node that uses it.
///
/// The end can be part of a message. The node that gets it connects it directly to its home, past
/// the nodes that passed it on.
///
/// [`NodeExt::travelling_sender`](crate::NodeExt::travelling_sender) makes the end. The node that
/// calls it is the end's *home*, where its values arrive. The end moves in messages that
/// [`SenderExt::hand_over`](crate::SenderExt::hand_over) sends, in the requests and
/// answers of [calls](crate::call), and in the input of a process.
/// [`Sender::send`] leaves its value with the caller, and therefore refuses an end.
///
/// The home learns of an end that is lost before it is connected:
///
/// - It was dropped, at any node: [`Arriving`] returns [`TravelError::Dropped`].
/// - Its message was not taken, or a node that had it died: [`Arriving`] returns
///   [`TravelError::Lost`].
///
/// A node that only passed the end on must live until the end is connected.
///
/// A node that has the end's number, which is random, can connect it once; a second time is
/// refused.
#[must_use = "an end that is dropped unconnected is lost"]
pub struct TravellingSender<T> {
    /// Custody of the end; `None` if it was decoded outside of a message.
    held: Option<Arc<Held>>,
    address: EndAddress,
    types: PhantomData<fn(&T)>,
}

/// Destination of an end: number, home, lane.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct EndAddress {
    number: u128,
    home: HomeAddress,
    express: bool,
}

/// The node where an end was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HomeAddress {
    pub(crate) incarnation: u128,
    pub(crate) name: String,
    pub(crate) addresses: Vec<String>,
}

/// An end in a message. `carries` is always `None`: it makes `T` part of the end's description.
#[derive(Serialize, Deserialize)]
#[serde(rename = "TravellingSender")]
struct Packed<T> {
    hop: u64,
    address: EndAddress,
    carries: Option<T>,
}

impl<T> fmt::Debug for TravellingSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TravellingSender")
            .field("home", &self.address.home.name)
            .finish_non_exhaustive()
    }
}

impl<T: Serialize> Serialize for TravellingSender<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(held) = &self.held else {
            return Err(serde::ser::Error::custom(TravelError::Stray));
        };
        let hop = crossing::pack(held).map_err(serde::ser::Error::custom)?;
        Packed::<T> { hop, address: self.address.clone(), carries: None }.serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for TravellingSender<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TravellingSender<T>, D::Error> {
        needs_link();
        let Packed { hop, address, carries: _ } = Packed::<T>::deserialize(deserializer)?;
        Ok(TravellingSender { held: crossing::unpack(hop), address, types: PhantomData })
    }
}

impl<T: Serialize + DeserializeOwned> TravellingSender<T> {
    /// Connects the end with its home, by an existing link or by dialling. Data may follow at once.
    ///
    /// # Errors
    ///
    /// - [`TravelError::Unreachable`], [`TravelError::Open`]: the home cannot be reached.
    /// - [`TravelError::Stray`]: the end did not come in a message.
    ///
    /// Whether the other end is still there is not known yet: a later call on the sender reports it.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the end is dropped, and the other end learns that.
    pub async fn connect(self) -> Result<Sender<T>, TravelError> {
        let held = self.held.ok_or(TravelError::Stray)?;
        let EndAddress { number, home, express } = self.address;
        let peer = peer_of(&held.node, &home).await?;
        let options = channel(home::name_of(number)).lane(lane(express));
        let opened = held.node.open::<T>(&peer, options).await;
        let mut sender = opened.map_err(|error| TravelError::Open(Arc::new(error)))?;
        let channel = RawSender::of(&mut sender).watch();
        held.gone();
        moving(&held.node).connected(held.origin, channel);
        Ok(sender)
    }
}

impl<T> TravellingSender<T> {
    /// Returns the name of the node where the values arrive.
    #[must_use]
    pub fn home(&self) -> &str {
        &self.address.home.name
    }
}

/// Receiving end of a channel, on its way to the node that uses it.
///
/// It is the counterpart of [`TravellingSender`], made by
/// [`NodeExt::travelling_receiver`](crate::NodeExt::travelling_receiver). The node that calls that
/// sends by [`Departing`].
///
/// The end is a travelling sender of travelling senders: the node that connects it sends home an
/// end, by which the values come. So [`Departing`] waits for one message before it can send the
/// first value.
#[must_use = "an end that is dropped unconnected is lost"]
#[derive(Serialize, Deserialize)]
#[serde(
    rename = "TravellingReceiver",
    bound(serialize = "T: Serialize", deserialize = "T: DeserializeOwned")
)]
pub struct TravellingReceiver<T> {
    back: TravellingSender<TravellingSender<T>>,
    express: bool,
}

impl<T> fmt::Debug for TravellingReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TravellingReceiver").field("home", &self.home()).finish_non_exhaustive()
    }
}

impl<T> TravellingReceiver<T> {
    /// Returns the name of the node that the values come from.
    #[must_use]
    pub fn home(&self) -> &str {
        self.back.home()
    }
}

impl<T: Serialize + DeserializeOwned> TravellingReceiver<T> {
    /// Connects the end with its home: from now on the values come here.
    ///
    /// # Errors
    ///
    /// Those of [`TravellingSender::connect`] and, of the way back, of
    /// [`NodeExt::travelling_sender`](crate::NodeExt::travelling_sender); [`TravelError::Send`]: the session
    /// with the home ended meanwhile. If only the other end is gone, receiving fails.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the end is dropped, and the other end learns that.
    pub async fn connect(self) -> Result<Arriving<T>, TravelError> {
        let node =
            self.back.held.as_ref().map(|held| held.node.clone()).ok_or(TravelError::Stray)?;
        let (there, here) = travelling_sender::<T>(&node, lane(self.express))?;
        let mut back = self.back.connect().await?;
        hand_over(&mut back, there).await.map_err(|failed| TravelError::Send(failed.error))?;
        RawSender::of(&mut back).urgent();
        Ok(here)
    }
}

fn lane(express: bool) -> Lane {
    if express { Lane::Express } else { Lane::Bulk }
}

/// Makes a sending end to hand over, and the end where its values arrive here.
pub(crate) fn travelling_sender<T>(
    node: &Node,
    lane: Lane,
) -> Result<(TravellingSender<T>, Arriving<T>), TravelError>
where
    T: Serialize + DeserializeOwned,
{
    let refused = |error| TravelError::Open(Arc::new(OpenError::Type(error)));
    let Fingerprint { hash, carries, .. } = Fingerprint::of::<T>(None).map_err(refused)?;
    let mut random = [0; 16];
    host::fill_random(&mut random).map_err(|error| TravelError::System(Arc::new(error)))?;
    let number = u128::from_le_bytes(random);
    let slot = moving(node).homes.add(number, hash);
    let address = EndAddress { number, home: home_address(node), express: lane == Lane::Express };
    let held = Some(Held::new(node.clone(), Origin::Home(number)));
    let there = TravellingSender { held, address, types: PhantomData };
    let here = Arriving::new(slot, number, node.clone(), carries);
    Ok((there, here))
}

/// Makes a receiving end to hand over, and the end that sends to it from here.
pub(crate) fn travelling_receiver<T>(
    node: &Node,
    lane: Lane,
) -> Result<(TravellingReceiver<T>, Departing<T>), TravelError>
where
    T: Serialize + DeserializeOwned,
{
    let (back, there) = travelling_sender::<TravellingSender<T>>(node, Lane::Express)?;
    Ok((TravellingReceiver { back, express: lane == Lane::Express }, Departing { there }))
}

/// See [`SenderExt::hand_over`](crate::SenderExt::hand_over).
pub(crate) async fn hand_over<T: Serialize>(
    sender: &mut Sender<T>,
    value: T,
) -> Result<(), HandOverError<T>> {
    let failed = |value, error| Err(HandOverError { value, error });
    let raw = RawSender::of(sender);
    let leaving = leaving_by(raw.peer(), raw.watch());
    let (bytes, leaving) = match pack(&value, leaving) {
        Ok(packed) => packed,
        Err(error) => return failed(value, error),
    };
    match raw.stage_later(Waiting::Bytes(&bytes)).await {
        Ok(()) => {
            leaving.accepted();
            Ok(())
        }
        Err(error) => {
            drop(leaving);
            failed(value, error)
        }
    }
}

/// Encodes `value` with the ends in it.
pub(crate) fn pack<T: Serialize>(
    value: &T,
    leaving: Leaving,
) -> Result<(Bytes, Leaving), SendError> {
    let mut bytes = Vec::new();
    let (encoded, leaving) =
        leaving.during(|| chunkcomm_proto::codec::encode_into_vec(value, &mut bytes));
    encoded.map_err(|error| SendError::Encode(Arc::new(error)))?;
    Ok((bytes.into(), leaving))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeExt;
    use crate::report::MovingReport;

    #[tokio::test]
    async fn an_end_is_connected_once() {
        let listens = Node::builder().listen("127.0.0.1:0".parse().unwrap());
        let home = listens.build().await.unwrap();
        let node = Node::builder().build().await.unwrap();
        let peer = node.connect(&home.addresses()[0]).await.unwrap();
        let (end, mut here) = home.travelling_sender::<u64>().unwrap();
        let name = home::name_of(end.address.number);
        let open = || node.open::<u64>(&peer, &name);
        // An end of another type is not connected.
        let mut wrong = node.open::<u32>(&peer, &name).await.unwrap();
        wrong.send(&1).await.unwrap();
        assert!(matches!(wrong.closed().await, SendError::Refused(_)));
        let mut first = open().await.unwrap();
        first.send(&5).await.unwrap();
        assert_eq!(here.recv().await.unwrap(), Some(5));
        // As after decoding the message twice.
        let mut second = open().await.unwrap();
        second.send(&6).await.unwrap();
        assert!(matches!(second.closed().await, SendError::Refused(_)));
        first.send(&7).await.unwrap();
        assert_eq!(here.recv().await.unwrap(), Some(7));
        drop(end);
        assert_eq!(home.moving_report(), MovingReport::default());
    }
}
