//! The task of a receiver that takes one peer's elements and unpacks them.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use chunkcomm::host::memory::Slices;
use chunkcomm::host::{self, Instant};
use chunkcomm_group::{Element, Part};

use super::error::refused;
use super::line::{LineReceiver, LineSender};
use super::opening::{COMING, Link, Rows, Way};
use super::outlet::LAST_WORD;
use super::settings::Transfer;
use super::shared::{Fault, Log, Shared, add};
use super::wire::{self, HEAD_BYTES, Message, WORD_BYTES_MAX};
use crate::pack;

/// A round whose elements arrive.
pub(super) struct Arriving<T: Element> {
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

impl<T: Element> Arriving<T> {
    /// Makes a round of these slabs, with the number of elements that will come to each. A slab to which none
    /// come is complete at once.
    pub(super) fn new(
        whole: Part<T>,
        (rows, slab_rows): (Rows, usize),
        missing: &[usize],
        log: &Arc<Log>,
    ) -> Arriving<T> {
        let mut rest = whole;
        let mut slabs = Vec::with_capacity(missing.len());
        for (index, missing) in missing.iter().enumerate() {
            let first = index * slab_rows;
            let count = slab_rows.min(rows.count - first);
            let next = rest.split_off(count * rows.length);
            let part = std::mem::replace(&mut rest, next);
            let is_complete = *missing == 0;
            if is_complete {
                part.commit();
                log.push(first..first + count);
                slabs.push(Mutex::new(Slab { part: None, missing: 0 }));
            } else {
                slabs.push(Mutex::new(Slab { part: Some(part), missing: *missing }));
            }
        }
        Arriving { slabs, slab_rows, rows, log: Arc::clone(log) }
    }
}

/// The storage of a round as the unpacking sees it.
struct Storage<'a, T: Element>(&'a Arriving<T>);

impl<T: Element> pack::Rows<T> for Storage<'_, T> {
    fn slab(&mut self, row: usize, work: &mut dyn FnMut(usize, &mut [T]) -> usize) {
        let round = self.0;
        let index = row / round.slab_rows;
        let (first, end) = (index * round.slab_rows, (index + 1) * round.slab_rows);
        let end = end.min(round.rows.count);
        let mut slab = round.slabs[index].lock().unwrap_or_else(PoisonError::into_inner);
        // Each element comes once: tiles are counted, and the ways of the plan have no element in common.
        let part =
            slab.part.as_mut().expect("a slab is complete when all of its elements have come");
        let placed = work(first, part);
        slab.missing -= placed;
        if slab.missing == 0 {
            slab.part.take().expect("it was there").commit();
            drop(slab);
            round.log.push(first..end);
        }
    }
}

/// The task of one peer.
pub(super) struct Inlet<T: Element> {
    pub(super) shared: Arc<Shared<Arriving<T>>>,
    /// Its number among the tasks.
    pub(super) index: usize,
    pub(super) way: Way,
    pub(super) settings: Transfer,
}

/// Progress of a task.
#[derive(Default)]
struct Course {
    /// Number of elements of the present round that have landed.
    landed: usize,
    /// The last round of which the peer knows that it has landed.
    told: u32,
}

impl<T: Element> Inlet<T> {
    /// Receives round by round, until the program drops its end or the transfer fails.
    pub(super) async fn run(self, link: Link) {
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
            Err(loss) => return self.shared.fail(self.index, &self.way, loss.into(), 0),
        };
        let mut course = Course::default();
        let failed = tokio::select! {
            biased;
            () = self.shared.stopped(self.index) => None,
            failed = self.receive(&mut channel, &mut words, &mut course) => failed.err(),
        };
        if let Some(fault) = failed {
            self.shared.fail(self.index, &self.way, fault, course.landed);
        }
        let landed = self.shared.state().tasks[self.index].landed;
        if course.told < landed {
            // The end was dropped while this word was on its way.
            let word = Bytes::copy_from_slice(&wire::landed(landed));
            let _ = host::timeout(LAST_WORD, words.send(word)).await;
        }
        if let Some(fault) = self.shared.last_word(self.index) {
            let word = wire::failed(course.landed as u64, &fault);
            let _ = host::timeout(LAST_WORD, words.send(word.into())).await;
        }
    }

    async fn receive(
        &self,
        channel: &mut LineReceiver,
        words: &mut LineSender,
        course: &mut Course,
    ) -> Result<(), Fault> {
        let mut intake = Intake::new(&self.way, size_of::<T>());
        for number in 1.. {
            let Some(round) = self.shared.round(number).await else { break };
            intake.begin(number);
            course.landed = 0;
            while intake.missing > 0 {
                let elements = self.take(channel, &round, &mut intake).await?;
                course.landed += elements;
                // Messages that are there already are taken without a wait.
                intake.slices.worked(elements * size_of::<T>()).await;
            }
            if !self.settings.overlap {
                self.all_came(number).await;
            }
            course.landed += self.unpack_kept(&round, &mut intake).await;
            drop(round);
            self.shared.tell(|state| {
                let task = &mut state.tasks[self.index];
                (task.landed, task.released) = (number, number);
            });
            words.send(Bytes::copy_from_slice(&wire::landed(number))).await?;
            course.told = number;
        }
        // The stop is seen beside this.
        std::future::pending().await
    }

    /// Waits until the elements of this round have come from all peers.
    async fn all_came(&self, number: u32) {
        self.shared.tell(|state| state.tasks[self.index].packed = number);
        let came = |task: &super::shared::Progress| task.packed >= number;
        self.shared.until(|state| state.tasks.iter().all(came).then_some(())).await;
    }

    /// Takes the next message, and returns the number of elements that have found their places.
    async fn take(
        &self,
        channel: &mut LineReceiver,
        round: &Arriving<T>,
        intake: &mut Intake<'_>,
    ) -> Result<usize, Fault> {
        // A message that is there already is unpacked where it lies; the next one goes into memory that is used again
        // and again.
        let count = match channel.try_next(|message| self.handle(message, round, intake)) {
            Some(handled) => handled?,
            None => {
                let began = Instant::now();
                let mut buffer = intake.take_buffer();
                let is_first = intake.missing == intake.seen.len();
                let handled = channel.next(&mut buffer, |message| {
                    // The wait for the first one is that for the peer's program.
                    let of = &self.shared.times;
                    add(if is_first { &of.waiting } else { &of.transfer }, began.elapsed());
                    self.handle(message, round, intake)
                });
                let handled = handled.await?;
                intake.keep(buffer);
                handled?
            }
        };
        match self.settings.overlap {
            true => Ok(count + self.unpack_kept(round, intake).await),
            false => Ok(count),
        }
    }

    /// Puts the elements of tiles that were kept into their places and returns their number. A declared time passes
    /// before the program may see them.
    async fn unpack_kept(&self, round: &Arriving<T>, intake: &mut Intake<'_>) -> usize {
        let mut count = 0;
        for (tile, elements) in std::mem::take(&mut intake.kept) {
            let began = Instant::now();
            self.settings.spend(elements.len()).await;
            add(&self.shared.times.packing, began.elapsed());
            count += self.unpack(round, tile, &elements);
            intake.slices.worked(elements.len()).await;
        }
        count
    }

    /// Does what a message says: returns the number of elements that have found their places.
    fn handle(
        &self,
        message: &[u8],
        round: &Arriving<T>,
        intake: &mut Intake<'_>,
    ) -> Result<usize, Fault> {
        {
            let mut state = self.shared.state();
            let task = &mut state.tasks[self.index];
            (task.messages, task.bytes) = (task.messages + 1, task.bytes + message.len() as u64);
        }
        let Some((tile, elements)) = intake.tile(message)? else { return Ok(0) };
        if !self.settings.overlap || self.settings.is_declared() {
            intake.kept.push((tile, elements.to_vec()));
            return Ok(0);
        }
        Ok(self.unpack(round, tile, elements))
    }

    /// Puts the elements of a tile into their places and returns their number.
    fn unpack(&self, round: &Arriving<T>, index: usize, elements: &[u8]) -> usize {
        let began = Instant::now();
        let ranges = self.way.tiles.ranges(index);
        pack::unpack(&self.way.tile(&ranges), elements, &mut Storage(round));
        add(&self.shared.times.packing, began.elapsed());
        elements.len() / size_of::<T>()
    }
}

/// The part of a round that has come.
struct Intake<'a> {
    way: &'a Way,
    element_bytes: usize,
    number: u32,
    seen: Vec<bool>,
    /// Number of tiles that are missing.
    missing: usize,
    /// The tile whose elements are the next message.
    apart: Option<(u32, u64)>,
    /// Tiles that are unpacked later.
    kept: Vec<(usize, Vec<u8>)>,
    /// Memory for the next message, of `room` bytes.
    buffer: Vec<u8>,
    room: usize,
    slices: Slices,
}

impl<'a> Intake<'a> {
    fn new(way: &'a Way, element_bytes: usize) -> Intake<'a> {
        let seen = vec![false; way.tiles.len()];
        let room = (HEAD_BYTES + way.tiles.elements_max() * element_bytes).max(WORD_BYTES_MAX);
        let (apart, kept, buffer) = (None, Vec::new(), vec![0; room]);
        let (number, missing, slices) = (0, 0, Slices::default());
        Intake { way, element_bytes, number, seen, missing, apart, kept, buffer, room, slices }
    }

    fn begin(&mut self, number: u32) {
        self.number = number;
        self.seen.fill(false);
        self.missing = self.seen.len();
    }

    fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Keeps the memory of a message for the next one.
    fn keep(&mut self, message: Vec<u8>) {
        self.buffer = message;
        self.buffer.resize(self.room, 0);
    }

    /// Returns the tile and its elements, if the message has them.
    fn tile<'b>(&mut self, message: &'b [u8]) -> Result<Option<(usize, &'b [u8])>, Fault> {
        let (round, tile, elements) = match self.apart.take() {
            Some((round, tile)) => (round, tile, message),
            None => match Message::decode(message) {
                Some(Message::Tile { round, tile, elements }) => (round, tile, elements),
                Some(Message::Apart { round, tile }) => {
                    self.apart = Some((round, tile));
                    return Ok(None);
                }
                Some(Message::Failed { fault, .. }) => return Err(fault),
                _ => return Err(refused("it says what no sender says").into()),
            },
        };
        let bytes = (elements.len(), self.element_bytes);
        let index = self.way.expected((round, tile), bytes, self.number, &mut self.seen)?;
        self.missing -= 1;
        Ok(Some((index, elements)))
    }
}
