//! Buffers that ordinary code writes and reads, on this machine: faults, and the size from which they pay.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use chunkcomm_pipeline::tracked::{
    AccessError, Arrivals, Awaiting, Filler, Finished, TrackedInput, TrackedOutput, Tracking,
};
use serde_json::Value;

use super::PAGE_BYTES;
use crate::baseline::mpich::output_of;
use crate::commands::papers::{Found, Scene};
use crate::failure::{Doing, Failure};

/// Increments of a buffer whose faults are counted.
const INCREMENTS: usize = 200;

/// Time between two increments that arrive: a reader is long at the next one.
const APART: Duration = Duration::from_micros(300);

/// Longest time of the other program: 300 s.
const DEADLINE: Duration = Duration::from_secs(300);

/// Decides what ordinary code needs, costs and gains.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let pages = scene.numbers("delta-pages")[0] as usize;
    let buffers = Buffers { pages, increments: scene.sized(INCREMENTS, 10) };
    buffers.faults(found)?;
    buffers.last(found)?;
    buffers.orders(found)?;
    match &scene.settings.real {
        Some(program) => break_even(program, scene, found)?,
        None => found.missing("needs --real"),
    }
    Ok(())
}

/// A buffer of as many increments, each of as many pages.
#[derive(Debug, Clone, Copy)]
struct Buffers {
    pages: usize,
    increments: usize,
}

impl Buffers {
    fn bytes(self) -> usize {
        self.pages * self.increments * PAGE_BYTES
    }

    fn output(self) -> Result<TrackedOutput<u8>, Failure> {
        let settings = Tracking::default().with_increment_pages(self.pages);
        TrackedOutput::new(self.bytes(), settings).doing("tracking writes")
    }

    /// Counts the page faults at both sides.
    fn faults(self, found: &mut Found) -> Result<(), Failure> {
        let mut output = self.output()?;
        output.elements_mut().fill(1);
        let write = |elements: &mut [u8]| {
            let before = faults_of_thread();
            elements.fill(2);
            faults_of_thread() - before
        };
        let done = |_: Finished<'_, u8>| Ok::<_, AccessError>(());
        let (written, _) = output.track(write, done).doing("writing")?;
        let input = TrackedInput::<u8>::new(self.bytes(), Awaiting::default());
        let mut input = input.doing("tracking reads")?;
        let part = vec![1; self.pages * PAGE_BYTES];
        let read = |elements: &[u8], _: &Arrivals<'_>| {
            elements.iter().map(|it| u64::from(*it)).sum::<u64>()
        };
        let fill = |filler: &mut Filler<'_, u8>| {
            for start in (0..self.bytes()).step_by(part.len()) {
                sleep(APART);
                filler.put(start, &part)?;
            }
            Ok::<_, AccessError>(())
        };
        let (sum, received) = input.track(read, fill).doing("reading")?;
        if sum != self.bytes() as u64 {
            return Err(Failure::broken("reading", "an element is wrong"));
        }
        let each = |faults: f64| faults / self.increments as f64;
        let [sent, received] = [each(written as f64), each(f64::from(received.stalls))];
        let is_one = |faults: f64| (faults - 1.0).abs() <= super::NEAR;
        let told = format!("{sent:.1} and {received:.1}");
        found.verdict("fault-an-increment", is_one(sent) && is_one(received), told);
        Ok(())
    }

    /// Looks when the last increment is handed on.
    fn last(self, found: &mut Found) -> Result<(), Failure> {
        let mut output = self.output()?;
        let (has_ended, bytes) = (AtomicBool::new(false), self.bytes());
        let (mut before, mut last_came_at_the_end) = (0, false);
        let write = |elements: &mut [u8]| {
            elements.fill(3);
            sleep(100 * APART);
            has_ended.store(true, Ordering::SeqCst);
        };
        let done = |finished: Finished<'_, u8>| {
            let ended = has_ended.load(Ordering::SeqCst);
            before += usize::from(!ended) * finished.elements.len();
            last_came_at_the_end |= ended && finished.range().end == bytes;
            Ok::<_, AccessError>(())
        };
        output.track(write, done).doing("writing")?;
        let told = format!("{:.0} % before it", before as f64 / bytes as f64 * 1e2);
        found.verdict("last-at-the-end", last_came_at_the_end && before > 0, told);
        Ok(())
    }

    /// Writes every other increment, and then those between; and some of them twice.
    fn orders(self, found: &mut Found) -> Result<(), Failure> {
        let mut output = self.output()?;
        let (bytes, increment) = (self.bytes(), self.pages * PAGE_BYTES);
        let mut copy = vec![0; bytes];
        let write = |elements: &mut [u8]| {
            for value in [4, 5] {
                for parity in [1, 0] {
                    for part in elements.chunks_mut(increment).skip(parity).step_by(2) {
                        part.fill(value);
                    }
                }
                sleep(10 * APART);
            }
        };
        let done = |finished: Finished<'_, u8>| {
            copy[finished.range()].copy_from_slice(finished.elements);
            Ok::<_, AccessError>(())
        };
        let ((), sent) = output.track(write, done).doing("writing")?;
        let is_right = copy.iter().all(|it| *it == 5);
        let told = if is_right { "right in any order" } else { "wrong in another order" };
        let told = format!("{told}, {} resent", sent.rewritten);
        found.verdict("consecutive-writes", !is_right, told);
        Ok(())
    }
}

/// Returns the number of page faults of this thread.
fn faults_of_thread() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    // Behind the name of the thread, which may have spaces: state, five numbers, flags, faults.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    behind.split_whitespace().nth(7).and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Asks another chunkperf for the size from which its best engines gain.
fn break_even(program: &Path, scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let mut command = Command::new(program);
    // Sleeps in the place of computing: two ends find two cores on a busy machine, too.
    let rounds = scene.sized("31", "1");
    command.args(["tracked", "--json", "--compute", "wait", "--rounds", rounds]);
    let output = output_of(command, "chunkperf tracked", DEADLINE)?;
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut best = BTreeMap::<u64, f64>::new();
    for line in lines {
        let row: Value = serde_json::from_slice(line).doing("understanding a row")?;
        let figure = |key: &str| row[key].as_f64();
        if row["side"] == "pair"
            && let (Some(bytes), Some(speedup)) = (figure("buffer_bytes"), figure("speed_up"))
        {
            let best = best.entry(bytes as u64 / PAGE_BYTES as u64).or_default();
            *best = speedup.max(*best);
        }
    }
    // From this size on all larger ones gain, too.
    let pays = best.iter().rev().take_while(|(_, speedup)| **speedup > 1.0).last();
    let pays = pays.map(|(pages, _)| *pages);
    let holds = pays.is_some_and(|pages| pages as f64 <= scene.numbers("break-even")[0]);
    let told = pays.map_or("at no size".to_owned(), |pages| format!("from {pages} pages"));
    found.verdict("break-even", holds, told);
    Ok(())
}
