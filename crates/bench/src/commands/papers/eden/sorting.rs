//! `parsort` and its variants (section 2.2): a caller deals numbers to sorters and merges what comes back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError};

use chunkcomm::host::Instant;
use chunkcomm::{BytesReceiver, BytesSender};

use super::pool::{Pe, Pool, Sending, Sent, WORD_BYTES, word};
use crate::commands::papers::Scene;
use crate::failure::{Doing, Failure};

/// Microseconds in which a node compares two numbers and puts one in its place. *Fitted*: the gathered
/// time of `parsort`.
const COMPARES_US: f64 = 13.0;

/// Merged numbers after which the caller looks how many wait.
const LOOK_EVERY: usize = 16;

/// The way in which numbers travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// `parsort`: one by one, there and back.
    Single,
    /// `parsortchunk`: there in chunks of this many, back one by one.
    Input(usize),
    /// `parsortchunk2`: there and back in chunks, each sorted alone.
    Both(usize),
}

/// The sort of a sorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Merge sort, once all numbers are there.
    Merge,
    /// Insertion, as the numbers come.
    Insertion,
}

/// One sorting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sorting {
    pub(super) sending: Sending,
    pub(super) way: Way,
    pub(super) sort: Sort,
    pub(super) sorters: usize,
    pub(super) numbers: usize,
}

/// Outcome of a sorting.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sorted {
    pub(super) seconds: f64,
    /// The numbers, in order.
    pub(super) numbers: Vec<u32>,
    /// By the caller and the sorters.
    pub(super) sent: Sent,
    /// Share of the sorters' work that was done before the caller had dealt all.
    pub(super) overlap: f64,
    /// Most numbers that had come back and were not merged.
    pub(super) waiting_max: u64,
}

/// Notes of all elements.
#[derive(Debug, Default)]
struct Notes {
    works: Vec<[Instant; 2]>,
    sent: Sent,
}

type Shared = Arc<Mutex<Notes>>;

fn note(notes: &Shared, act: impl FnOnce(&mut Notes)) {
    act(&mut notes.lock().unwrap_or_else(PoisonError::into_inner));
}

impl Sorting {
    /// The paper's: 8 elements, of which one deals and merges.
    pub(super) fn usual(scene: &Scene<'_>, sending: Sending) -> Self {
        let sorters = scene.numbers("beowulf")[0] as usize - 1;
        let numbers = scene.sized(100_000, 1_000);
        Self { sending, way: Way::Single, sort: Sort::Merge, sorters, numbers }
    }

    /// Sorts on a pool.
    pub(super) fn run(self, pool: &Pool) -> Result<Sorted, Failure> {
        let notes = Shared::default();
        let mut results = pool.run(1 + self.sorters, self.sending, |pe| {
            let notes = Arc::clone(&notes);
            async move {
                if pe.rank > 0 {
                    self.sorter(&pe, &notes).await?;
                    return Ok(None);
                }
                Ok(Some(self.caller(&pe, &notes).await?))
            }
        })?;
        Ok(results.swap_remove(0).expect("rank 0 has it"))
    }

    async fn caller(self, pe: &Arc<Pe>, notes: &Shared) -> Result<Sorted, Failure> {
        let (mut to, mut from) = (Vec::new(), Vec::new());
        for rank in 1..=self.sorters {
            to.push(pe.open(rank, "numbers").await?);
            from.push(pe.accept(&format!("sorted {rank}")).await?);
        }
        let begun = Instant::now();
        let (peers, from): (Vec<_>, Vec<_>) = from.into_iter().unzip();
        let dealing = async {
            self.deal(pe, to).await?;
            Ok::<_, Failure>(Instant::now())
        };
        let (dealt, (numbers, waiting_max)) = tokio::try_join!(dealing, self.merge(pe, from))?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut total = peers.iter().map(Sent::to).fold(Sent::default(), Sent::plus);
        let (mut before, mut all) = (0.0, 0.0);
        note(notes, |notes| {
            total = total.plus(notes.sent);
            for [begin, end] in &notes.works {
                before += (dealt.min(*end) - *begin).as_secs_f64();
                all += (*end - *begin).as_secs_f64();
            }
        });
        Ok(Sorted { seconds, numbers, sent: total, overlap: before / all, waiting_max })
    }

    /// Deals the numbers in turns.
    async fn deal(self, pe: &Pe, mut to: Vec<BytesSender>) -> Result<(), Failure> {
        let size = match self.way {
            Way::Single => 1,
            Way::Input(size) | Way::Both(size) => size,
        };
        let mut chunks = vec![Vec::with_capacity(size * WORD_BYTES); self.sorters];
        for number in 0..self.numbers {
            let (chunk, stream) = (&mut chunks[number % self.sorters], number % self.sorters);
            chunk.extend(scattered(number).to_be_bytes());
            if chunk.len() == size * WORD_BYTES {
                pe.send(&mut to[stream], chunk).await?;
                chunk.clear();
            }
        }
        for (chunk, stream) in chunks.iter().zip(&mut to) {
            if !chunk.is_empty() {
                pe.send(stream, chunk).await?;
            }
        }
        for stream in &mut to {
            stream.sync().await.doing("dealing the last numbers")?;
        }
        Ok(())
    }

    async fn merge(
        self,
        pe: &Pe,
        mut from: Vec<BytesReceiver>,
    ) -> Result<(Vec<u32>, u64), Failure> {
        let (mut sorted, mut waiting_max) = (Vec::with_capacity(self.numbers), 0);
        if let Way::Both(_) = self.way {
            let mut lists = 0;
            // A chunk of each in turn: a sorter whose turn is late waits without harm.
            while !from.is_empty() {
                let mut open = Vec::new();
                for mut stream in from {
                    if let Some(chunk) = pe.take(&mut stream, &mut []).await? {
                        sorted.extend(chunk.chunks_exact(WORD_BYTES).map(word));
                        lists += 1;
                        open.push(stream);
                    }
                }
                from = open;
            }
            pe.work(COMPARES_US * self.numbers as f64 * f64::from(lists).log2()).await;
            sorted.sort_unstable();
            return Ok((sorted, 0));
        }
        let levels = (self.sorters as f64).log2();
        let mut heads = BinaryHeap::new();
        for (index, stream) in from.iter_mut().enumerate() {
            if let Some(first) = pe.take(stream, &mut []).await? {
                heads.push(Reverse((word(&first), index)));
            }
        }
        while let Some(Reverse((least, index))) = heads.pop() {
            sorted.push(least);
            if sorted.len() % LOOK_EVERY == 0 {
                let came: u64 =
                    from.iter().map(|stream| stream.peer().stats().messages_received).sum();
                waiting_max = waiting_max.max(came.saturating_sub(sorted.len() as u64));
            }
            pe.work(COMPARES_US * levels).await;
            if let Some(next) = pe.take(&mut from[index], &mut []).await? {
                heads.push(Reverse((word(&next), index)));
            }
        }
        Ok((sorted, waiting_max))
    }

    async fn sorter(self, pe: &Pe, notes: &Shared) -> Result<(), Failure> {
        let (peer, mut from) = pe.accept("numbers").await?;
        let mut to = [pe.open_to(&peer, &format!("sorted {}", pe.rank)).await?];
        let mut numbers: Vec<u32> = Vec::new();
        while let Some(chunk) = pe.take(&mut from, &mut to).await? {
            let before = numbers.len();
            numbers.extend(chunk.chunks_exact(WORD_BYTES).map(word));
            let of = (numbers.len() - before) as f64;
            match (self.way, self.sort) {
                (Way::Both(_), _) => {
                    self.work(pe, notes, of * of.max(1.0).log2()).await;
                    numbers.sort_unstable();
                    let sorted: Vec<u8> = numbers.drain(..).flat_map(u32::to_be_bytes).collect();
                    pe.send(&mut to[0], &sorted).await?;
                }
                // A number passes half of those that are there.
                (_, Sort::Insertion) => self.work(pe, notes, of * numbers.len() as f64 / 2.0).await,
                (_, Sort::Merge) => {}
            }
        }
        if self.sort == Sort::Merge {
            let count = numbers.len() as f64;
            self.work(pe, notes, count * count.max(1.0).log2()).await;
        }
        numbers.sort_unstable();
        for number in numbers {
            pe.send(&mut to[0], &number.to_be_bytes()).await?;
        }
        let [to] = to;
        drop(to);
        note(notes, |notes| notes.sent = notes.sent.plus(Sent::to(&peer)));
        Ok(())
    }

    async fn work(self, pe: &Pe, notes: &Shared, compares: f64) {
        let begun = Instant::now();
        pe.work(COMPARES_US * compares).await;
        note(notes, |notes| notes.works.push([begun, Instant::now()]));
    }
}

/// Returns a number that seems random (Knuth, The Art of Computer Programming 3, 6.4).
fn scattered(index: usize) -> u32 {
    (index as u32).wrapping_mul(2_654_435_769)
}
