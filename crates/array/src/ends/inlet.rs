//! The task of a receiver that takes one peer's elements and unpacks them.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use chunkcomm::host::memory::Slices;
use chunkcomm::host::{self, Instant};
use chunkcomm_group::{Element, Part};

use super::line::{LineReceiver, LineSender};
use super::opening::{COMING, Link, Rows};
use super::settings::Transfer;
use super::shared::{Fault, LAST_WORD, Log, Shared, add};
use super::way::{Intake, Way};
use super::wire::{self, HEAD_BYTES, WORD_BYTES_MAX};
use crate::pack;

/// A round whose elements arrive.
pub(crate) struct Slabs<T: Element> {
    slabs: Vec<Mutex<Slab<T>>>,
    /// Rows of a slab; the last one may have fewer.
    slab_rows: usize,
    rows: Rows,
    /// Complete slabs, as rows.
    log: Arc<Log>,
}

/// Some rows of the storage, until all of their elements have come.
struct Slab<T: Element> {
    part: Option<Part<T>>,
    missing: usize,
}

impl<T: Element> Slabs<T> {
    /// Makes a round of these slabs, with the number of elements that will come to each. A slab to which none
    /// come is complete at once.
    pub(crate) fn new(
        whole: Part<T>,
        (rows, slab_rows): (Rows, usize),
        missing: &[usize],
        log: &Arc<Log>,
    ) -> Slabs<T> {
        let mut rest = whole;
        let mut slabs = Vec::with_capacity(missing.len());
        for (index, missing) in missing.iter().enumerate() {
            let first = index * slab_rows;
            let count = slab_rows.min(rows.count - first);
            let next = rest.split_off(count * rows.length);
            let part = std::mem::replace(&mut rest, next);
            let mut slab = Slab { part: Some(part), missing: *missing };
            if slab.commit() {
                log.push(first..first + count);
            }
            slabs.push(Mutex::new(slab));
        }
        Slabs { slabs, slab_rows, rows, log: Arc::clone(log) }
    }
}

impl<T: Element> Slab<T> {
    /// Commits the rows if all of their elements have come; returns whether it did.
    fn commit(&mut self) -> bool {
        let part = self.part.take_if(|_| self.missing == 0);
        part.map(Part::commit).is_some()
    }
}

impl<T: Element> pack::Rows<T> for &Slabs<T> {
    fn slab(&mut self, row: usize, work: &mut dyn FnMut(usize, &mut [T]) -> usize) {
        let index = row / self.slab_rows;
        let (first, end) = (index * self.slab_rows, (index + 1) * self.slab_rows);
        let end = end.min(self.rows.count);
        let mut slab = self.slabs[index].lock().unwrap_or_else(PoisonError::into_inner);
        // Each element comes once: tiles are counted, and the ways of the plan have no element in common.
        let part =
            slab.part.as_mut().expect("a slab is complete when all of its elements have come");
        let placed = work(first, part);
        slab.missing -= placed;
        if slab.commit() {
            drop(slab);
            self.log.push(first..end);
        }
    }
}

/// The task of one peer.
pub(crate) struct Inlet<T: Element> {
    pub(crate) shared: Arc<Shared<Slabs<T>>>,
    /// Its number among the tasks.
    pub(crate) index: usize,
    pub(crate) settings: Transfer,
}

/// Memory of a task.
struct Stock {
    /// Tiles that are unpacked later.
    kept: Vec<(usize, Vec<u8>)>,
    /// Memory for the next message, as large as the largest.
    buffer: Vec<u8>,
    slices: Slices,
}

impl<T: Element> Inlet<T> {
    /// Receives round by round, until the program drops its end or the transfer fails.
    pub(crate) async fn run(self, way: Way, link: Link) {
        let mut intake = Intake::new::<T>(way);
        let given_up = async {
            self.shared.stopped(self.index).await;
            // The peer hears of the end when it comes.
            host::sleep(COMING).await;
        };
        let line = tokio::select! {
            biased;
            line = link.accept() => line,
            () = given_up => return,
        };
        let (mut words, mut channel) = match line {
            Ok(line) => line,
            Err(loss) => return self.shared.fail(self.index, &intake.way, loss.into(), 0),
        };
        // The last round of which the peer knows that it has landed.
        let mut told = 0;
        let failed = tokio::select! {
            biased;
            () = self.shared.stopped(self.index) => None,
            failed = self.receive(&mut channel, &mut words, (&mut intake, &mut told)) => failed.err(),
        };
        if let Some(fault) = failed {
            self.shared.fail(self.index, &intake.way, fault, intake.landed);
        }
        // The program may have used the last elements, and dropped its end, before this task could note it.
        let landed = self.shared.tell(|state| {
            let landed = &mut state.tasks[self.index].landed;
            if intake.is_whole() {
                *landed = intake.round.max(*landed);
            }
            *landed
        });
        if told < landed {
            // The end was dropped while this word was on its way.
            let word = Bytes::copy_from_slice(&wire::landed(landed));
            let _ = host::timeout(LAST_WORD, words.send(word)).await;
        }
        self.shared.say_last(self.index, &mut words, intake.landed).await;
    }

    async fn receive(
        &self,
        channel: &mut LineReceiver,
        words: &mut LineSender,
        (intake, told): (&mut Intake, &mut u32),
    ) -> Result<(), Fault> {
        let tile_bytes = HEAD_BYTES + intake.way.tiles.elements_max() * size_of::<T>();
        let buffer = vec![0; tile_bytes.max(WORD_BYTES_MAX)];
        let mut stock = Stock { kept: Vec::new(), buffer, slices: Slices::default() };
        for number in 1.. {
            let Some(round) = self.shared.round(number).await else { break };
            intake.begin(number);
            while intake.missing > 0 {
                let before = intake.landed;
                self.take(channel, &round, intake, &mut stock).await?;
                // Messages that are there already are taken without a wait.
                stock.slices.worked((intake.landed - before) * size_of::<T>()).await;
            }
            if !self.settings.overlap {
                self.shared.all_packed(self.index, number).await;
            }
            self.unpack_kept(&round, intake, &mut stock).await;
            drop(round);
            self.shared.tell(|state| {
                let task = &mut state.tasks[self.index];
                (task.landed, task.released) = (number, number);
            });
            words.send(Bytes::copy_from_slice(&wire::landed(number))).await?;
            *told = number;
        }
        // The stop is seen beside this.
        std::future::pending().await
    }

    /// Takes the next message.
    async fn take(
        &self,
        channel: &mut LineReceiver,
        round: &Slabs<T>,
        intake: &mut Intake,
        stock: &mut Stock,
    ) -> Result<(), Fault> {
        // A message that does not lie there already goes into memory that is used again and again.
        let Stock { kept, buffer, .. } = stock;
        let (began, room) = (Instant::now(), buffer.len());
        let is_first = intake.missing == intake.way.tiles.len();
        let handled = channel.next(buffer, |message| {
            // The wait for the first one is that for the peer's program.
            let of = &self.shared.times;
            add(if is_first { &of.waiting } else { &of.transfer }, began.elapsed());
            self.handle(message, round, intake, kept)
        });
        handled.await??;
        buffer.resize(room, 0);
        if self.settings.overlap {
            self.unpack_kept(round, intake, stock).await;
        }
        Ok(())
    }

    /// Puts the elements of tiles that were kept into their places. A declared time passes before the program may see
    /// them.
    async fn unpack_kept(&self, round: &Slabs<T>, intake: &mut Intake, stock: &mut Stock) {
        for (tile, elements) in std::mem::take(&mut stock.kept) {
            let began = Instant::now();
            self.settings.spend(elements.len()).await;
            add(&self.shared.times.packing, began.elapsed());
            self.unpack(round, intake, tile, &elements);
            stock.slices.worked(elements.len()).await;
        }
    }

    /// Does what a message says.
    fn handle(
        &self,
        message: &[u8],
        round: &Slabs<T>,
        intake: &mut Intake,
        kept: &mut Vec<(usize, Vec<u8>)>,
    ) -> Result<(), Fault> {
        let Some((tile, elements)) = intake.tile(message)? else { return Ok(()) };
        if !self.settings.overlap || self.settings.is_declared() {
            kept.push((tile, elements.to_vec()));
        } else {
            self.unpack(round, intake, tile, elements);
        }
        Ok(())
    }

    /// Puts the elements of a tile into their places.
    fn unpack(&self, round: &Slabs<T>, intake: &mut Intake, index: usize, elements: &[u8]) {
        let began = Instant::now();
        intake.place(index, elements, &mut &*round);
        add(&self.shared.times.packing, began.elapsed());
    }
}
