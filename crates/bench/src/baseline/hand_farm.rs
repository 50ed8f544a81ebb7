//! A farm by hand: a farmer over blocking sockets that answers all results it finds in one write.

use std::io::{Read, Write};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::runtime::Runtime;

use super::gathered::{Batch, Unframer, append_framed};
use super::wire::{Listener, Wire};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::machine::now_ns;
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, Order, Place};
use crate::harness::slices::{Contender, Slice};
use crate::harness::work::{answer, iterate};
use crate::message::{stamp, verify};

/// Bytes of a result: the task's number and its answer.
const RESULT_BYTES: usize = 16;

/// Tasks and workers of the farm.
#[derive(Debug, Clone, Copy)]
pub struct HandFarmKind {
    /// Bytes of a task.
    pub task_bytes: usize,
    /// Iterations that each task computes.
    pub work_iterations: u64,
    /// Number of unanswered tasks that a worker holds.
    pub prefetch: usize,
    /// Number of workers.
    pub workers: usize,
    /// Whether the workers are threads of this process instead of processes.
    pub threads: bool,
}

/// The farmer with its workers.
pub struct HandFarm {
    workers: Vec<Worker>,
    kind: HandFarmKind,
    task: Vec<u8>,
    answered: Vec<bool>,
}

struct Worker {
    wire: Wire,
    results: Unframer,
    tasks: Batch,
    /// End of a worker process; a thread has none and works until its connection ends.
    id: Option<EndId>,
}

impl HandFarm {
    /// Connects the workers: the far ends of the bench, or threads.
    ///
    /// # Errors
    /// If a worker cannot be connected.
    pub fn open(bench: &mut Bench, kind: HandFarmKind) -> Result<Self, Failure> {
        let workers: Result<Vec<_>, _> =
            (0..kind.workers).map(|index| Worker::open(bench, kind, index)).collect();
        let task = vec![0x5a; kind.task_bytes];
        Ok(Self { workers: workers?, kind, task, answered: Vec::new() })
    }

    /// Farms `tasks` tasks out; returns the seconds from the first to the last result.
    ///
    /// # Errors
    /// If a worker is lost, or a result is wrong.
    pub fn run(&mut self, bench: &mut Bench, tasks: u64) -> Result<f64, Failure> {
        let order = Order { first: 0, messages: tasks, mark_every: 0 };
        let ids: Vec<EndId> = self.workers.iter().filter_map(|worker| worker.id).collect();
        for &id in &ids {
            bench.begin(id, &order)?;
        }
        self.answered.clear();
        self.answered.resize(tasks as usize, false);
        let started_ns = now_ns();
        self.farm(tasks)?;
        let seconds = (now_ns() - started_ns) as f64 / 1e9;
        for worker in self.workers.iter_mut().filter(|worker| worker.id.is_some()) {
            // An empty task ends the slice.
            worker.tasks.append(&[]);
            worker.send()?;
        }
        for &id in &ids {
            bench.finish(id)?;
        }
        Ok(seconds)
    }

    fn farm(&mut self, tasks: u64) -> Result<(), Failure> {
        let mut next = 0;
        for _ in 0..self.kind.prefetch {
            for worker in &mut self.workers {
                give(worker, &mut self.task, &mut next, tasks)?;
            }
        }
        for worker in &mut self.workers {
            worker.send()?;
        }
        let mut done = 0;
        while done < tasks {
            for index in ready(&self.workers)? {
                done += self.take(index, &mut next, tasks)?;
            }
        }
        Ok(())
    }

    /// Takes one worker's results, and gives the worker as many tasks in one write.
    fn take(&mut self, index: usize, next: &mut u64, tasks: u64) -> Result<u64, Failure> {
        let (task, answered) = (&mut self.task, &mut self.answered);
        let worker = &mut self.workers[index];
        let mut count = 0;
        let (wire, mut given) = (&mut worker.wire, 0);
        worker.results.read(wire, |result| {
            accept(result, answered)?;
            count += 1;
            given += u64::from(*next + given < tasks);
            Ok(())
        })?;
        for _ in 0..given {
            give(worker, task, next, tasks)?;
        }
        worker.send()?;
        Ok(count)
    }
}

impl Contender for HandFarm {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let seconds = self.run(bench, count)?;
        Ok(Slice::timed(count, seconds))
    }
}

fn give(worker: &mut Worker, task: &mut [u8], next: &mut u64, tasks: u64) -> Result<(), Failure> {
    if *next == tasks {
        return Ok(());
    }
    stamp(task, *next);
    if !worker.tasks.fits(task.len()) {
        worker.send()?;
    }
    worker.tasks.append(task);
    *next += 1;
    Ok(())
}

fn accept(result: &[u8], answered: &mut [bool]) -> Result<(), Failure> {
    let wrong = || Failure::broken("farming by hand", "a result is wrong or came twice");
    let (number, rest) = result.split_first_chunk::<8>().ok_or_else(wrong)?;
    let number = u64::from_le_bytes(*number);
    let value = rest.first_chunk::<8>().ok_or_else(wrong)?;
    let slot = answered.get_mut(number as usize).ok_or_else(wrong)?;
    if *slot || u64::from_le_bytes(*value) != answer(number) {
        return Err(wrong());
    }
    *slot = true;
    Ok(())
}

/// Returns the workers whose results can be read. With one worker the read itself waits.
fn ready(workers: &[Worker]) -> Result<Vec<usize>, Failure> {
    if workers.len() == 1 {
        return Ok(vec![0]);
    }
    let mut set: Vec<PollFd<'_>> =
        workers.iter().map(|worker| PollFd::new(&worker.wire, PollFlags::IN)).collect();
    poll(&mut set, None).doing("waiting for results")?;
    let readable = |fd: &PollFd<'_>| !fd.revents().is_empty();
    Ok((0..set.len()).filter(|&index| readable(&set[index])).collect())
}

impl Worker {
    fn open(bench: &mut Bench, kind: HandFarmKind, index: usize) -> Result<Self, Failure> {
        let (id, wire) = if kind.threads {
            (None, thread_worker(&bench.place, kind)?)
        } else {
            let HandFarmKind { task_bytes, work_iterations, .. } = kind;
            let end = End::HandWorker { task_bytes, work_iterations };
            let connect = |_: &Runtime, place: &Place, address: &str| Wire::connect(place, address);
            let (id, wire) = bench.open_at(index, end, connect)?;
            (Some(id), wire)
        };
        let results = Unframer::for_messages_of(RESULT_BYTES);
        Ok(Self { wire, results, tasks: Batch::for_messages_of(kind.task_bytes), id })
    }

    fn send(&mut self) -> Result<(), Failure> {
        let bytes = self.tasks.take();
        if bytes.is_empty() {
            return Ok(());
        }
        self.wire.write_all(bytes).doing("giving tasks")
    }
}

fn thread_worker(place: &Place, kind: HandFarmKind) -> Result<Wire, Failure> {
    let listener = Listener::bind(place)?;
    let near = Wire::connect(place, &listener.address()?)?;
    let far = listener.accept()?;
    let mut labour = Labour::new(far, kind.task_bytes, kind.work_iterations);
    thread::spawn(move || {
        // The end of the connection ends the thread; the farmer reports the error.
        while labour.until_pause().is_ok() {}
    });
    Ok(near)
}

/// A worker's side.
struct Labour<S> {
    wire: S,
    tasks: Unframer,
    results: Vec<u8>,
    task_bytes: usize,
    work_iterations: u64,
}

impl<S: Read + Write> Labour<S> {
    fn new(wire: S, task_bytes: usize, work_iterations: u64) -> Self {
        let tasks = Unframer::for_messages_of(task_bytes);
        Self { wire, tasks, results: Vec::new(), task_bytes, work_iterations }
    }

    /// Works until an empty task comes: all results of a read go back in one write.
    fn until_pause(&mut self) -> Result<(), Failure> {
        let mut paused = false;
        while !paused {
            let (results, bytes) = (&mut self.results, self.task_bytes);
            let iterations = self.work_iterations;
            self.tasks.read(&mut self.wire, |task| {
                if task.is_empty() {
                    paused = true;
                } else {
                    append_framed(results, &perform(task, bytes, iterations)?);
                }
                Ok(())
            })?;
            self.wire.write_all(&self.results).doing("answering tasks")?;
            self.results.clear();
        }
        Ok(())
    }
}

fn perform(task: &[u8], bytes: usize, iterations: u64) -> Result<[u8; RESULT_BYTES], Failure> {
    let wrong = || Failure::broken("working by hand", "a task has a wrong length or check byte");
    let number = u64::from_le_bytes(*task.first_chunk::<8>().ok_or_else(wrong)?);
    // A task of eight bytes has its check byte in the number.
    let number = if bytes == 8 { number & (u64::MAX >> 8) } else { number };
    if task.len() != bytes || !verify(task, number) {
        return Err(wrong());
    }
    iterate(iterations);
    let mut result = [0; RESULT_BYTES];
    result[..8].copy_from_slice(&number.to_le_bytes());
    result[8..].copy_from_slice(&answer(number).to_le_bytes());
    Ok(result)
}

struct FarWorker {
    labour: Labour<Wire>,
}

/// Opens the far end of the farm: a worker process.
///
/// # Errors
/// If the connection is not made.
pub fn far(
    task_bytes: usize,
    work_iterations: u64,
    mut opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    let listener = Listener::bind(opening.place)?;
    opening.announce(listener.address()?)?;
    let labour = Labour::new(listener.accept()?, task_bytes, work_iterations);
    Ok(Box::new(FarWorker { labour }))
}

impl FarEnd for FarWorker {
    fn slice(&mut self, _runtime: &Runtime, _order: &Order) -> Result<Vec<u64>, Failure> {
        self.labour.until_pause()?;
        Ok(Vec::new())
    }
}
