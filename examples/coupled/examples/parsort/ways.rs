//! The three ways to send the numbers, as in the paper.

use chunkcomm_cluster::NodeExt;
use std::fmt;
use std::sync::Arc;

use chunkcomm::host::{self, Instant};
use chunkcomm::{Receiver, Sender};
use chunkcomm_cluster::process::Failure;
use chunkcomm_cluster::{
    Arriving, Cluster, Departing, Process, ProcessHandle, Registry, TravellingReceiver,
    TravellingSender,
};
use chunkcomm_examples::thread::Thread;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::sorting::{MERGED_NANOS, merge_nanos, sort};
use super::table::Outcome;

/// A way in which numbers travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    /// `parsort`: one by one, there and back.
    Plain,
    /// `parsortchunk`: there in chunks, back one by one.
    ChunkedInput(u32),
    /// `parsortchunk2`: there and back in chunks, each sorted alone.
    ChunkedBoth(u32),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Plain => f.write_str("plain"),
            Way::ChunkedInput(size) => write!(f, "input in chunks of {size}"),
            Way::ChunkedBoth(size) => write!(f, "both in chunks of {size}"),
        }
    }
}

type Ends<I, O> = (TravellingReceiver<I>, TravellingSender<O>);

/// The processes that sort.
#[derive(Clone)]
pub(super) struct Workers {
    plain: Process<Ends<i64, i64>>,
    input: Process<Ends<Vec<i64>, i64>>,
    both: Process<Ends<Vec<i64>, Vec<i64>>>,
}

impl Workers {
    pub(super) fn register(registry: &mut Registry) -> Workers {
        let plain = registry.process("parsort.plain", |_, (from, to): Ends<i64, i64>| async move {
            let (mut from, mut to) =
                (from.connect().await?.into_receiver().await?, to.connect().await?);
            let mut numbers = Vec::new();
            while from.recv_many(&mut numbers, usize::MAX).await? > 0 {}
            sort(&mut numbers, &Thread::default()).await;
            to.send_all(&numbers).await?;
            Ok(())
        });
        let input =
            registry.process("parsort.input", |_, (from, to): Ends<Vec<i64>, i64>| async move {
                let (mut from, mut to) = (from.connect().await?, to.connect().await?);
                let mut numbers = Vec::new();
                while let Some(chunk) = from.recv().await? {
                    numbers.extend(chunk);
                }
                sort(&mut numbers, &Thread::default()).await;
                to.send_all(&numbers).await?;
                Ok(())
            });
        let both = registry.process(
            "parsort.both",
            |_, (from, to): Ends<Vec<i64>, Vec<i64>>| async move {
                let (mut from, mut to) = (from.connect().await?, to.connect().await?);
                let thread = Thread::default();
                while let Some(mut chunk) = from.recv().await? {
                    sort(&mut chunk, &thread).await;
                    to.send(&chunk).await?;
                }
                Ok(())
            },
        );
        Workers { plain, input, both }
    }
}

/// One sorting, by its caller.
pub(super) struct Sorting<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) workers: &'a Workers,
    pub(super) ranks: &'a [u32],
    pub(super) way: Way,
}

impl Sorting<'_> {
    /// Sorts and measures the time, which includes the start of the workers.
    pub(super) async fn timed(
        &self,
        numbers: &Arc<[i64]>,
        expected: &[i64],
    ) -> Result<Outcome, Failure> {
        let before = self.sent().await?;
        let begun = Instant::now();
        let sorted = self.sort(numbers).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let after = self.sent().await?;
        let right = sorted == expected;
        let (messages, packets) = (after.0 - before.0, after.1 - before.1);
        Ok(Outcome { seconds, right, messages, packets })
    }

    /// Returns the numbers of messages, and of packets with messages, sent to the workers so far.
    async fn sent(&self) -> Result<(u64, u64), Failure> {
        let mut ranks = self.ranks.to_vec();
        ranks.sort_unstable();
        ranks.dedup();
        let mut sent = (0, 0);
        for rank in ranks {
            let stats = self.cluster.peer(rank).await?.stats();
            sent.0 += stats.messages_sent;
            sent.1 += stats.message_packets_sent;
        }
        Ok(sent)
    }

    async fn sort(&self, numbers: &Arc<[i64]>) -> Result<Vec<i64>, Failure> {
        match self.way {
            Way::Plain => {
                let (to, from, handles) = self.start(&self.workers.plain).await?;
                let merging = merge_streams(from, numbers.len());
                let sorted = both(deal(to, numbers, send_plain), merging).await?;
                ended(handles).await?;
                Ok(sorted)
            }
            Way::ChunkedInput(size) => {
                let (to, from, handles) = self.start(&self.workers.input).await?;
                let merging = merge_streams(from, numbers.len());
                let send = |to, share| send_chunks(to, share, size);
                let sorted = both(deal(to, numbers, send), merging).await?;
                ended(handles).await?;
                Ok(sorted)
            }
            Way::ChunkedBoth(size) => {
                let (to, from, handles) = self.start(&self.workers.both).await?;
                let send = |to, share| send_chunks(to, share, size);
                let sorted = both(deal(to, numbers, send), merge_chunks(from)).await?;
                ended(handles).await?;
                Ok(sorted)
            }
        }
    }

    /// Starts a process at each worker, with a stream there and one back.
    async fn start<I, O>(&self, worker: &Process<Ends<I, O>>) -> Result<Started<I, O>, Failure>
    where
        I: Serialize + DeserializeOwned,
        O: Serialize + DeserializeOwned,
    {
        let (mut to, mut from, mut handles) = (Vec::new(), Vec::new(), Vec::new());
        for &rank in self.ranks {
            let (input, to_worker) = self.cluster.node().travelling_receiver()?;
            let (output, from_worker) = self.cluster.node().travelling_sender()?;
            handles.push(self.cluster.instantiate(rank, worker, (input, output)).await?);
            to.push(to_worker);
            from.push(from_worker);
        }
        Ok((to, from, handles))
    }
}

type Started<I, O> = (Vec<Departing<I>>, Vec<Arriving<O>>, Vec<ProcessHandle>);

/// Deals and merges at the same time.
async fn both(
    dealing: impl Future<Output = Result<(), Failure>>,
    merging: impl Future<Output = Result<Vec<i64>, Failure>>,
) -> Result<Vec<i64>, Failure> {
    let ((), sorted) = tokio::try_join!(dealing, merging)?;
    Ok(sorted)
}

async fn ended(handles: Vec<ProcessHandle>) -> Result<(), Failure> {
    for handle in handles {
        handle.await?;
    }
    Ok(())
}

/// Share of a worker: every `step`-th number from index `first` on.
struct Share {
    numbers: Arc<[i64]>,
    first: usize,
    step: usize,
}

impl Share {
    fn iter(&self) -> impl Iterator<Item = &i64> {
        self.numbers.iter().skip(self.first).step_by(self.step)
    }
}

/// Sends each worker its share, in a task for each: one that waits does not hold up the others.
async fn deal<T, D>(
    to: Vec<Departing<T>>,
    numbers: &Arc<[i64]>,
    send: impl Fn(Sender<T>, Share) -> D,
) -> Result<(), Failure>
where
    T: Serialize + DeserializeOwned + 'static,
    D: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let (mut dealing, step) = (JoinSet::new(), to.len());
    for (first, to) in to.into_iter().enumerate() {
        let share = Share { numbers: Arc::clone(numbers), first, step };
        dealing.spawn(host::here(send(to.connect().await?, share)));
    }
    while let Some(dealt) = dealing.join_next().await {
        dealt.map_err(|error| Failure::new(error.to_string()))??;
    }
    Ok(())
}

/// Sends the numbers one by one.
async fn send_plain(mut to: Sender<i64>, share: Share) -> Result<(), Failure> {
    to.send_all(share.iter()).await?;
    Ok(())
}

/// Sends the numbers `size` at a time.
async fn send_chunks(mut to: Sender<Vec<i64>>, share: Share, size: u32) -> Result<(), Failure> {
    let mut numbers = share.iter().copied();
    let mut chunk = Vec::with_capacity(size as usize);
    loop {
        chunk.clear();
        chunk.extend(numbers.by_ref().take(size as usize));
        if chunk.is_empty() {
            return Ok(());
        }
        to.send(&chunk).await?;
    }
}

/// Merges sorted streams as they come.
async fn merge_streams(from: Vec<Arriving<i64>>, count: usize) -> Result<Vec<i64>, Failure> {
    let mut heads: Vec<(i64, Receiver<i64>)> = Vec::new();
    for one in from {
        let mut receiver = one.into_receiver().await?;
        if let Some(first) = receiver.recv().await? {
            heads.push((first, receiver));
        }
    }
    let (mut sorted, thread) = (Vec::with_capacity(count), Thread::default());
    while let Some(least) = (0..heads.len()).min_by_key(|&index| heads[index].0) {
        let (head, receiver) = &mut heads[least];
        sorted.push(*head);
        thread.work(|| MERGED_NANOS).await;
        match receiver.recv().await? {
            Some(next) => *head = next,
            None => drop(heads.swap_remove(least)),
        }
    }
    Ok(sorted)
}

/// Merges the sorted chunks of each worker, then those of all.
async fn merge_chunks(from: Vec<Arriving<Vec<i64>>>) -> Result<Vec<i64>, Failure> {
    let mut all = Vec::new();
    // The chunks come at the same time; a worker whose turn is late waits without harm.
    let mut taking: Vec<_> = from.into_iter().map(|one| (one, Vec::new())).collect();
    let mut open = taking.len();
    while open > 0 {
        open = 0;
        for (from, chunks) in &mut taking {
            if let Some(chunk) = from.recv().await? {
                chunks.push(chunk);
                open += 1;
            }
        }
    }
    let thread = Thread::default();
    for (_, chunks) in taking {
        thread.work(|| merge_nanos(&chunks)).await;
        all.push(merge_tree(chunks));
    }
    thread.work(|| merge_nanos(&all)).await;
    Ok(merge_tree(all))
}

/// Merges sorted lists in pairs, then the results in pairs, until one is left.
fn merge_tree(mut lists: Vec<Vec<i64>>) -> Vec<i64> {
    while lists.len() > 1 {
        let mut merged = Vec::with_capacity(lists.len().div_ceil(2));
        let mut pairs = lists.into_iter();
        while let Some(first) = pairs.next() {
            merged.push(match pairs.next() {
                Some(second) => merge(&first, &second),
                None => first,
            });
        }
        lists = merged;
    }
    lists.pop().unwrap_or_default()
}

fn merge(first: &[i64], second: &[i64]) -> Vec<i64> {
    let mut merged = Vec::with_capacity(first.len() + second.len());
    let (mut a, mut b) = (first, second);
    while let ([x, after_x @ ..], [y, after_y @ ..]) = (a, b) {
        if x <= y {
            merged.push(*x);
            a = after_x;
        } else {
            merged.push(*y);
            b = after_y;
        }
    }
    merged.extend_from_slice(a);
    merged.extend_from_slice(b);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_merges_sorts_sorted_lists() {
        for lists in [0, 1, 2, 3, 7, 8] {
            let made: Vec<Vec<i64>> = (0..lists)
                .map(|list| (0..list * 3).map(|at| at * 7 % 5 + at * list).collect())
                .collect();
            let sorted = |mut list: Vec<i64>| {
                list.sort_unstable();
                list
            };
            let expected = sorted(made.concat());
            assert_eq!(merge_tree(made.into_iter().map(sorted).collect()), expected, "{lists}");
        }
    }
}
