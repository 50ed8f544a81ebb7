//! The calls of a group on serde values.

use chunkcomm::{codec, with_causes};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::asking::Ask;
use super::call::Call;
use super::calls::own_block;
use super::whole::Whole;
use crate::Group;
use crate::group::error::{CollectiveError, GroupError};
use crate::proto::schedule::Kind;
use crate::proto::talk::{self, Operation};

impl Group {
    /// Gives all ranks the root's value. The other ranks give `None`.
    ///
    /// # Errors
    ///
    /// The error gives the root its value back.
    ///
    /// A value that some rank cannot read breaks the group at all ranks: [`GroupError::Lost`] with the rank
    /// that gave it, and its type. Values are read before the call ends, also where its future is dropped.
    ///
    /// ```
    /// # use chunkcomm_cluster::{Cluster, ClusterConfig};
    /// # use chunkcomm_group::Group;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::join(ClusterConfig::new().nodes(1)).await?;
    /// let mut group = Group::world(&cluster).await?;
    /// let name = (group.rank() == 0).then(|| "waves".to_owned());
    /// assert_eq!(group.broadcast_value(0, name).await?, "waves");
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast_value<V>(&mut self, root: usize, value: Option<V>) -> Call<V, Option<V>>
    where
        V: Serialize + DeserializeOwned + Send + 'static,
    {
        let ask = Ask::of::<V>(Kind::Broadcast { root }, Operation::BroadcastValue).rooted(root);
        let is_root = self.rank() == root;
        let encoded = match (&value, is_root) {
            (None, true) => Err("the root of a broadcast gives the value".to_owned()),
            (Some(_), false) => Err("only the root of a broadcast gives a value".to_owned()),
            (None, false) => Ok(Vec::new()),
            (Some(value), true) => encode(value),
        };
        let size = self.size();
        let fill = move |whole: &mut Whole<u8>| {
            whole.result_blocks.resize(size, 0..0);
            whole.set_result(encoded?);
            if !is_root {
                whole.read =
                    Some(Box::new(move |whole| Ok(Box::new(decode::<V>(root, &whole.result)?))));
            }
            let mut lengths = vec![0; size];
            if is_root {
                lengths[root] = whole.result.len();
                whole.result_blocks[root] = 0..whole.result.len();
            }
            whole.lengths = Some(lengths);
            Ok(())
        };
        self.submit_with(ask, fill, move |whole, cause| match (value, cause) {
            (data, Some(cause)) => Err(CollectiveError { data, cause }),
            (Some(value), None) => Ok(value),
            (None, None) => Ok(made(whole).expect("the root's value was read")),
        })
    }

    /// Brings the values of all ranks to the root, which gets them in the order of ranks.
    ///
    /// # Errors
    ///
    /// The error gives each rank its value back. For values that cannot be read, see
    /// [`broadcast_value`](Self::broadcast_value).
    pub fn gather_values<V>(&mut self, root: usize, value: V) -> Call<Option<Vec<V>>, V>
    where
        V: Serialize + DeserializeOwned + Send + 'static,
    {
        let ask = Ask::of::<V>(Kind::Gather { root }, Operation::GatherValues).rooted(root);
        let is_root = self.rank() == root;
        self.values(ask, value, is_root, |all| all)
    }

    /// Gives all ranks the values of all, in the order of ranks.
    ///
    /// # Errors
    ///
    /// The error gives each rank its value back. For values that cannot be read, see
    /// [`broadcast_value`](Self::broadcast_value).
    pub fn all_gather_values<V>(&mut self, value: V) -> Call<Vec<V>, V>
    where
        V: Serialize + DeserializeOwned + Send + 'static,
    {
        let ask = Ask::of::<V>(Kind::AllGather, Operation::AllGatherValues);
        self.values(ask, value, true, |all| all.expect("all ranks read"))
    }

    /// Combines the values of all ranks in the order of ranks, at the root, which gets the result.
    /// `combine` is called there alone.
    ///
    /// # Errors
    ///
    /// The error gives each rank its value back. For values that cannot be read, see
    /// [`broadcast_value`](Self::broadcast_value).
    pub fn reduce_values<V>(
        &mut self,
        root: usize,
        value: V,
        combine: impl FnMut(V, V) -> V + Send + 'static,
    ) -> Call<Option<V>, V>
    where
        V: Serialize + DeserializeOwned + Send + 'static,
    {
        let ask = Ask::of::<V>(Kind::Gather { root }, Operation::ReduceValues).rooted(root);
        let is_root = self.rank() == root;
        self.values(ask, value, is_root, |all| all.and_then(|all| all.into_iter().reduce(combine)))
    }

    /// Makes a call in which each rank has a value; `take` gets those of all where this rank reads them.
    fn values<V, R>(
        &mut self,
        ask: Ask<'_>,
        value: V,
        reads: bool,
        take: impl FnOnce(Option<Vec<V>>) -> R + Send + 'static,
    ) -> Call<R, V>
    where
        V: Serialize + DeserializeOwned + Send + 'static,
    {
        let (rank, size) = (self.rank(), self.size());
        let encoded = encode(&value);
        let fill = move |whole: &mut Whole<u8>| {
            own_block(encoded?, rank, size)(whole)?;
            if reads {
                whole.read =
                    Some(Box::new(move |whole| Ok(Box::new(decode_others::<V>(whole, rank)?))));
            }
            Ok(())
        };
        self.submit_with(ask, fill, move |whole, cause| {
            if let Some(cause) = cause {
                return Err(CollectiveError { data: value, cause });
            }
            let mut all: Option<Vec<V>> = made(whole);
            if let Some(all) = &mut all {
                all.insert(rank, value);
            }
            Ok(take(all))
        })
    }
}

/// Returns what the call has read.
fn made<R: 'static>(whole: &mut Whole<u8>) -> Option<R> {
    let made = whole.made.take()?.downcast().expect("the call reads what it gives");
    Some(*made)
}

fn encode<V: Serialize>(value: &V) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    codec::encode_into_vec(value, &mut bytes).map_err(|error| with_causes(&error))?;
    Ok(bytes)
}

fn decode<V: DeserializeOwned>(from: usize, bytes: &[u8]) -> Result<V, GroupError> {
    codec::decode(bytes).map_err(|error| {
        let (name, error) = (talk::type_name::<V>(), with_causes(&error));
        let why = format!("its value of type {name} cannot be read: {error}");
        GroupError::refused(from, why)
    })
}

/// Reads the values of the other ranks.
fn decode_others<V: DeserializeOwned>(
    whole: &Whole<u8>,
    rank: usize,
) -> Result<Vec<V>, GroupError> {
    let blocks = whole.result_blocks.iter().enumerate();
    let others = blocks.filter(|(from, _)| *from != rank);
    others.map(|(from, block)| decode(from, &whole.result[block.clone()])).collect()
}
