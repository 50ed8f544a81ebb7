//! The calls of a group on slices of plain elements.

use std::mem;
use std::ops::Range;

use chunkcomm_proto::describe::fnv1a;

use super::asking::Ask;
use super::call::Call;
use super::op::Op;
use super::parts::{Exchanged, Parts};
use super::whole::Whole;
use crate::proto::schedule::{Kind, bounds};
use crate::proto::talk::Operation;
use crate::{Element, Group};

impl Group {
    /// Waits until every rank has come to this call.
    ///
    /// Algorithms: dissemination, doubling.
    pub fn barrier(&mut self) -> Call<()> {
        let ask = Ask::new(Kind::Barrier, Operation::Barrier);
        let size = self.size();
        let fill = move |whole: &mut Whole<u8>| {
            whole.result_blocks.resize(size, 0..0);
            Ok(())
        };
        self.submit(ask, fill, |_, _| ())
    }

    /// Gives all ranks the data of the root. Each gives a vector of the same length, which comes back
    /// with the root's elements.
    ///
    /// Algorithms: binomial, chain, binary.
    pub fn broadcast<T: Element>(&mut self, root: usize, data: Vec<T>) -> Call<Vec<T>> {
        let ask = Ask::of::<T>(Kind::Broadcast { root }, Operation::Broadcast);
        let (ask, size) = (ask.rooted(root).all_of(&data), self.size());
        let fill = move |whole: &mut Whole<T>| {
            even(&mut whole.result_blocks, data.len(), size);
            whole.set_result(data);
            Ok(())
        };
        self.submit(ask, fill, |whole, _| mem::take(&mut whole.result))
    }

    /// Combines the vectors of all ranks, which have one length, element by element. The root's vector
    /// comes back with the result, those of the others as they were.
    ///
    /// Algorithms: binomial, chain, binary.
    pub fn reduce<T: Element>(&mut self, root: usize, data: Vec<T>, op: Op<T>) -> Call<Vec<T>> {
        let named = op.clone();
        let ask = Ask::of::<T>(Kind::Reduce { root }, Operation::Reduce);
        let ask = ask.rooted(root).all_of(&data).by(&named);
        let (is_root, fill) = (self.rank() == root, combined(data, op, self.size()));
        self.submit(ask, fill, move |whole, ok| take_combined(whole, ok && is_root))
    }

    /// Combines the vectors of all ranks, which have one length, element by element. Each vector comes
    /// back with the result; its bits are the same at all ranks.
    ///
    /// Algorithms: doubling, ring (for commutative operators), chains.
    ///
    /// ```
    /// # use chunkcomm_cluster::{Cluster, ClusterConfig};
    /// # use chunkcomm_group::{Group, Op};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::join(ClusterConfig::new().nodes(1)).await?;
    /// let mut group = Group::world(&cluster).await?;
    /// let longest = Op::named("longest", |a: &u64, b: &u64| *a.max(b));
    /// assert_eq!(group.all_reduce(vec![3, 5], longest).await?, [3, 5]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_reduce<T: Element>(&mut self, data: Vec<T>, op: Op<T>) -> Call<Vec<T>> {
        let named = op.clone();
        let ask = Ask::of::<T>(Kind::AllReduce, Operation::AllReduce).all_of(&data).by(&named);
        let fill = combined(data, op, self.size());
        self.submit(ask, fill, take_combined)
    }

    /// Combines the vectors of the ranks up to this one. The vector comes back with the result.
    ///
    /// Algorithms: doubling, chain.
    pub fn scan<T: Element>(&mut self, data: Vec<T>, op: Op<T>) -> Call<Vec<T>> {
        let named = op.clone();
        let ask = Ask::of::<T>(Kind::Scan, Operation::Scan).all_of(&data).by(&named);
        let fill = combined(data, op, self.size());
        self.submit(ask, fill, take_combined)
    }

    /// Combines the vectors of the ranks before this one. Rank 0 gets the neutral element of the
    /// operator, and its own vector where a named operator has none.
    ///
    /// Algorithms: doubling, chain.
    pub fn exclusive_scan<T: Element>(&mut self, data: Vec<T>, op: Op<T>) -> Call<Vec<T>> {
        let named = op.clone();
        let ask = Ask::of::<T>(Kind::ExclusiveScan, Operation::ExclusiveScan);
        let ask = ask.all_of(&data).by(&named);
        let neutral = op.identity();
        let fill = combined(data, op, self.size());
        let fill = move |whole: &mut Whole<T>| {
            fill(whole)?;
            whole.begin_exclusive(neutral);
            Ok(())
        };
        self.submit(ask, fill, take_combined)
    }

    /// Combines one element of each rank, as [`reduce`](Self::reduce) does. The others get their own back.
    pub fn reduce_value<T: Element>(&mut self, root: usize, value: T, op: Op<T>) -> Call<T> {
        self.reduce(root, vec![value], op).map(only)
    }

    /// Combines one element of each rank, as [`all_reduce`](Self::all_reduce) does.
    ///
    /// ```no_run
    /// # use chunkcomm_group::{Group, Op};
    /// # async fn example(group: &mut Group) -> Result<(), Box<dyn std::error::Error>> {
    /// let last = group.all_reduce_value(group.rank() as u64, Op::max()).await?;
    /// # assert_eq!(last + 1, group.size() as u64);
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_reduce_value<T: Element>(&mut self, value: T, op: Op<T>) -> Call<T> {
        self.all_reduce(vec![value], op).map(only)
    }

    /// Combines one element of each rank up to this one, as [`scan`](Self::scan) does.
    pub fn scan_value<T: Element>(&mut self, value: T, op: Op<T>) -> Call<T> {
        self.scan(vec![value], op).map(only)
    }

    /// Combines one element of each rank before this one, as [`exclusive_scan`](Self::exclusive_scan) does.
    pub fn exclusive_scan_value<T: Element>(&mut self, value: T, op: Op<T>) -> Call<T> {
        self.exclusive_scan(vec![value], op).map(only)
    }

    /// Brings the data of all ranks to the root, which gets them in the order of ranks; the others get `None`.
    /// Lengths may differ.
    ///
    /// Algorithms: direct.
    pub fn gather<T: Element>(
        &mut self,
        root: usize,
        data: Vec<T>,
    ) -> Call<Exchanged<Vec<T>, Option<Parts<T>>>> {
        let ask = Ask::of::<T>(Kind::Gather { root }, Operation::Gather).rooted(root);
        let is_root = self.rank() == root;
        let fill = own_block(data, self.rank(), self.size());
        let fill = move |whole: &mut Whole<T>| {
            fill(whole)?;
            whole.own = whole.own.filter(|_| is_root);
            Ok(())
        };
        self.submit(ask, fill, move |whole, ok| {
            let result = (ok && is_root).then(|| whole.take_parts());
            Exchanged { input: mem::take(&mut whole.input), result }
        })
    }

    /// Gives each rank its part of the root's data; the root's come back to it as well. The other ranks
    /// give `None`.
    ///
    /// Algorithms: direct.
    pub fn scatter<T: Element>(
        &mut self,
        root: usize,
        parts: Option<Parts<T>>,
    ) -> Call<Exchanged<Option<Parts<T>>, Vec<T>>> {
        let ask = Ask::of::<T>(Kind::Scatter { root }, Operation::Scatter).rooted(root);
        let is_root = self.rank() == root;
        let fault = match (&parts, is_root) {
            (None, true) => Err("the root of a scatter gives the parts".to_owned()),
            (Some(_), false) => Err("only the root of a scatter gives parts".to_owned()),
            _ => Ok(()),
        };
        let counts = parts.as_ref().map(|parts| parts.counts.clone());
        let fill = parts_to_send(parts.unwrap_or_default(), is_root, self.rank(), self.size());
        let fill = move |whole: &mut Whole<T>| fill(whole).and(fault);
        self.submit(ask, fill, move |whole, ok| {
            let data = mem::take(&mut whole.input);
            let input = counts.map(|counts| Parts { data, counts });
            let result = if ok { mem::take(&mut whole.result) } else { Vec::new() };
            Exchanged { input, result }
        })
    }

    /// Gives all ranks the data of all. Lengths may differ.
    ///
    /// Algorithms: ring, doubling.
    pub fn all_gather<T: Element>(&mut self, data: Vec<T>) -> Call<Exchanged<Vec<T>, Parts<T>>> {
        self.all_gather_into(data, Parts::default())
    }

    /// Gives all ranks the data of all, as [`all_gather`](Self::all_gather) does, in the memory of `into`: the result
    /// of an earlier call, as it was. Its elements are lost. Memory that is too small, or has far fewer elements than
    /// the result, is replaced. After an error it is gone.
    ///
    /// New memory of many MiB costs its pages at each call, as much as a copy.
    ///
    /// ```
    /// # use chunkcomm_cluster::{Cluster, ClusterConfig};
    /// # use chunkcomm_group::{Exchanged, Group, Parts};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::join(ClusterConfig::new().nodes(1)).await?;
    /// # let mut group = Group::world(&cluster).await?;
    /// let (mut mine, mut all) = (vec![1.0; 4], Parts::default());
    /// for _ in 0..3 {
    ///     Exchanged { input: mine, result: all } = group.all_gather_into(mine, all).await?;
    ///     mine[0] += all.part(0)[1];
    /// }
    /// assert_eq!(all.data, [3.0, 1.0, 1.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_gather_into<T: Element>(
        &mut self,
        data: Vec<T>,
        into: Parts<T>,
    ) -> Call<Exchanged<Vec<T>, Parts<T>>> {
        self.gathered(Operation::AllGather, "", data, into.data)
    }

    pub(crate) fn all_gather_of<T: Element>(
        &mut self,
        operation: Operation,
        stated: &str,
        data: Vec<T>,
    ) -> Call<Exchanged<Vec<T>, Parts<T>>> {
        self.gathered(operation, stated, data, Vec::new())
    }

    fn gathered<T: Element>(
        &mut self,
        operation: Operation,
        stated: &str,
        data: Vec<T>,
        into: Vec<T>,
    ) -> Call<Exchanged<Vec<T>, Parts<T>>> {
        let mut ask = Ask::of::<T>(Kind::AllGather, operation);
        ask.statement.operator = stated;
        let fill = own_block(data, self.rank(), self.size());
        let fill = move |whole: &mut Whole<T>| {
            whole.into = into;
            fill(whole)
        };
        self.submit(ask, fill, |whole, ok| {
            let result = if ok { whole.take_parts() } else { Parts::default() };
            Exchanged { input: mem::take(&mut whole.input), result }
        })
    }

    /// Gives each rank its part of every rank's data: part `j` of rank `i` becomes part `i` of rank `j`.
    /// The data come back with what was received.
    ///
    /// Algorithms: pairwise.
    pub fn all_to_all<T: Element>(
        &mut self,
        parts: Parts<T>,
    ) -> Call<Exchanged<Parts<T>, Parts<T>>> {
        self.all_to_all_into(parts, Parts::default())
    }

    /// Gives each rank its part of every rank's data, as [`all_to_all`](Self::all_to_all) does, in the memory of
    /// `into`, as [`all_gather_into`](Self::all_gather_into).
    pub fn all_to_all_into<T: Element>(
        &mut self,
        parts: Parts<T>,
        into: Parts<T>,
    ) -> Call<Exchanged<Parts<T>, Parts<T>>> {
        let ask = Ask::of::<T>(Kind::AllToAll, Operation::AllToAll);
        let counts = parts.counts.clone();
        let fill = parts_to_send(parts, true, self.rank(), self.size());
        let fill = move |whole: &mut Whole<T>| {
            whole.into = into.data;
            fill(whole)
        };
        self.submit(ask, fill, |whole, ok| {
            let result = if ok { whole.take_parts() } else { Parts::default() };
            Exchanged { input: Parts { data: mem::take(&mut whole.input), counts }, result }
        })
    }

    /// Combines the vectors of all ranks, which have one length and are divided alike, and gives each rank
    /// its part of the result.
    ///
    /// Algorithms: pairwise, ring (for commutative operators), chain.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        parts: Parts<T>,
        op: Op<T>,
    ) -> Call<Exchanged<Parts<T>, Vec<T>>> {
        let named = op.clone();
        let ask = Ask::of::<T>(Kind::ReduceScatter, Operation::ReduceScatter);
        let mut ask = ask.all_of(&parts.data).by(&named);
        let bytes: Vec<u8> = parts.counts.iter().flat_map(|it| it.to_le_bytes()).collect();
        ask.statement.counts = fnv1a(&bytes);
        let (rank, size, counts) = (self.rank(), self.size(), parts.counts.clone());
        let fill = move |whole: &mut Whole<T>| {
            let divided = parts.ranges(size, &mut whole.result_blocks);
            whole.input_blocks.clone_from(&whole.result_blocks);
            whole.input = parts.data;
            whole.begin_with_input();
            whole.op = Some(op);
            whole.keeps = Some(rank);
            divided
        };
        self.submit(ask, fill, move |whole, ok| {
            let result = if ok { mem::take(&mut whole.mine) } else { Vec::new() };
            Exchanged { input: Parts { data: mem::take(&mut whole.input), counts }, result }
        })
    }
}

/// Divides `len` elements evenly into blocks.
pub(crate) fn even(blocks: &mut Vec<Range<usize>>, len: usize, size: usize) {
    blocks.clear();
    blocks.extend((0..size).map(|block| bounds(len, size, block)));
}

/// Returns what gives a run data to combine: the result begins as a copy of them.
pub(crate) fn combined<T: Element>(
    data: Vec<T>,
    op: Op<T>,
    size: usize,
) -> impl FnOnce(&mut Whole<T>) -> Result<(), String> {
    move |whole| {
        even(&mut whole.result_blocks, data.len(), size);
        whole.input_blocks.clone_from(&whole.result_blocks);
        whole.input = data;
        whole.begin_with_input();
        whole.op = Some(op);
        Ok(())
    }
}

/// Takes the result of a combination, or the caller's data; the other memory serves the next call.
pub(crate) fn take_combined<T: Element>(whole: &mut Whole<T>, result: bool) -> Vec<T> {
    if result {
        mem::swap(&mut whole.input, &mut whole.result);
    }
    mem::take(&mut whole.input)
}

/// Returns what gives a run this rank's data, as its block of those of all ranks.
pub(crate) fn own_block<T: Element>(
    data: Vec<T>,
    rank: usize,
    size: usize,
) -> impl FnOnce(&mut Whole<T>) -> Result<(), String> {
    move |whole| {
        whole.input_blocks.resize(size, 0..0);
        whole.input_blocks[rank] = 0..data.len();
        whole.result_blocks.clone_from(&whole.input_blocks);
        let length = |block: &Range<usize>| block.len();
        whole.lengths = Some(whole.result_blocks.iter().map(length).collect());
        whole.result.clear();
        whole.input = data;
        whole.own_block(rank);
        Ok(())
    }
}

/// Returns what gives a run data for each rank; that for this rank is there at once.
fn parts_to_send<T: Element>(
    parts: Parts<T>,
    sends: bool,
    rank: usize,
    size: usize,
) -> impl FnOnce(&mut Whole<T>) -> Result<(), String> {
    move |whole| {
        whole.result_blocks.resize(size, 0..0);
        whole.result.clear();
        let mut lengths = vec![0; size];
        let divided = parts.ranges(size, &mut whole.input_blocks);
        whole.input = parts.data;
        if sends {
            divided?;
            lengths[rank] = whole.input_blocks[rank].len();
            whole.own_block(rank);
        } else {
            whole.input_blocks.clear();
            whole.input_blocks.resize(size, 0..0);
        }
        whole.lengths = Some(lengths);
        Ok(())
    }
}

/// Returns the element of a call of one.
fn only<T: Element>(data: Vec<T>) -> T {
    data.into_iter().next().expect("a call of one element")
}
