//! A pair over loopback that computes on an array at both ends: whole, in explicit increments, and by
//! ordinary code that is tracked.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use chunkcomm::Node;
use chunkcomm_pipeline::tracked::{
    Awaiting, Missing, RecvEngine, SendEngine, TrackedInput, TrackedOutput, Tracking,
};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
use clap::ValueEnum;
use tokio::runtime::{Builder, Runtime};

use crate::failure::{Doing, Failure};

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

/// Way of sending and receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All is computed, then sent; all is received, then used.
    Whole,
    /// Loops over parts at both ends.
    Explicit,
    /// One loop over the whole slice at both ends, with these engines.
    Tracked(SendEngine, RecvEngine),
}

/// A delta from one node to another, whose receiver is a thread.
#[derive(Debug)]
pub struct Pair {
    runtime: Runtime,
    sender: DeltaSender<f32>,
    way: Way,
    work: Work,
    step: usize,
    output: Option<TrackedOutput<f32>>,
    done: mpsc::Receiver<Result<f32, String>>,
    _nodes: (Node, Node),
}

/// Computation at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// A sine an element, some 10 ns each; needs a core an end.
    Trig,
    /// A sleep of 0.1 ms for each 20 KiB, as if other cores or a device computed.
    Wait,
}

/// Elements that are computed between two sleeps: 20 KiB.
const SLEEP_EVERY: usize = 20 * 1024 / size_of::<f32>();

/// Time that they last.
const SLEEP: Duration = Duration::from_micros(100);

impl Work {
    fn write(self, start: usize, elements: &mut [f32]) {
        for (part, elements) in elements.chunks_mut(SLEEP_EVERY).enumerate() {
            let began = Instant::now();
            let start = start + part * SLEEP_EVERY;
            for (index, element) in (start..).zip(&mut *elements) {
                *element = match self {
                    Self::Trig => (index as f32 * 1e-3).sin(),
                    Self::Wait => value_of(index),
                };
            }
            self.last(began, elements.len());
        }
    }

    fn read(self, elements: &[f32]) -> f32 {
        let mut sum = 0.0;
        for elements in elements.chunks(SLEEP_EVERY) {
            sum += match self {
                Self::Trig => elements.iter().map(|element| element.sin()).sum::<f32>(),
                Self::Wait => elements.iter().sum(),
            };
            self.last(Instant::now(), elements.len());
        }
        sum
    }

    /// Sleeps until the time of `count` elements that began at `began` has passed.
    fn last(self, began: Instant, count: usize) {
        if self == Self::Wait {
            let until = began + SLEEP * count as u32 / SLEEP_EVERY as u32;
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }

    fn expected(self, len: usize) -> f32 {
        let value = |index| match self {
            Self::Trig => (index as f32 * 1e-3).sin().sin(),
            Self::Wait => value_of(index),
        };
        (0..len).map(value).sum()
    }
}

fn value_of(index: usize) -> f32 {
    (index % 7) as f32
}

impl Pair {
    /// Opens a delta of `bytes` in one way, with increments of `pages`.
    ///
    /// # Errors
    /// If the nodes cannot be connected, or an engine does not work here.
    pub fn start(way: Way, work: Work, bytes: usize, pages: usize) -> Result<Self, Failure> {
        let (len, step) = (bytes / size_of::<f32>(), pages * PAGE_BYTES / size_of::<f32>());
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.doing("starting a runtime")?;
        let (nodes, sender, receiver) = runtime.block_on(open(len, pages))?;
        let (output, input) = match way {
            Way::Tracked(send, recv) => {
                let settings = Tracking::default().with_engine(send).with_increment_pages(pages);
                let output = TrackedOutput::new(len, settings).doing("tracking writes")?;
                // At the end the receiver waits for a round that does not come.
                let settings = Awaiting::default().with_missing(Missing::Unfilled);
                let settings = settings.with_engine(recv);
                (Some(output), Some(TrackedInput::new(len, settings).doing("tracking reads")?))
            }
            Way::Whole | Way::Explicit => (None, None),
        };
        let (told, done) = mpsc::channel();
        let handle = runtime.handle().clone();
        thread::spawn(move || receive(&handle, (way, work), receiver, input, &told));
        Ok(Self { runtime, sender, way, work, step, output, done, _nodes: nodes })
    }

    /// Returns the seconds from the first element's computation to the end of the last one's use.
    ///
    /// # Errors
    /// If the transfer fails, or the result is not that of the first round.
    pub fn round(&mut self) -> Result<f64, Failure> {
        let started = Instant::now();
        match self.way {
            Way::Whole => {
                let mut part = self.sender.part(..).doing("taking the buffer")?;
                self.work.write(0, &mut part);
                part.commit();
            }
            Way::Explicit => {
                let work = self.work;
                let compute = |start, chunk: &mut [f32]| work.write(start, chunk);
                self.sender.each_chunk(self.step, compute).doing("sending chunks")?;
            }
            Way::Tracked(..) => {
                let output = self.output.as_mut().expect("made for this way");
                let run = self.sender.tracked_send(output, |elements| self.work.write(0, elements));
                run.doing("sending what ordinary code writes")?;
            }
        }
        let sum = self.done.recv().doing("waiting for the receiver")?;
        let seconds = started.elapsed().as_secs_f64();
        let sum = sum.map_err(|cause| Failure::broken("receiving", cause))?;
        let len = self.sender.len();
        let expected = self.work.expected(len);
        if (sum - expected).abs() > 1.0 + 1e-2 * expected.abs() {
            return Err(Failure::broken("comparing the sums", format!("{sum}, not {expected}")));
        }
        self.runtime.block_on(self.sender.start()).doing("starting the next round")?;
        Ok(seconds)
    }
}

type Opened = ((Node, Node), DeltaSender<f32>, DeltaReceiver<f32>);

async fn open(len: usize, pages: usize) -> Result<Opened, Failure> {
    let address = "127.0.0.1:0".parse().doing("reading an address")?;
    let far = Node::builder().name("far").listen(address).build().await.doing("starting a node")?;
    let near = Node::builder().name("near").build().await.doing("starting a node")?;
    let peer = near.connect(&far.addresses()[0]).await.doing("connecting")?;
    let increment = Increment::Fixed(pages * PAGE_BYTES);
    let (sender, receiver) = tokio::join!(
        DeltaSender::open(&near, &peer, "array", vec![0.0; len], increment),
        DeltaReceiver::accept(&far, "array", vec![0.0; len]),
    );
    Ok(((near, far), sender.doing("opening")?, receiver.doing("accepting")?))
}

/// Receives round after round, until the sender is gone.
fn receive(
    runtime: &tokio::runtime::Handle,
    (way, work): (Way, Work),
    mut receiver: DeltaReceiver<f32>,
    mut input: Option<TrackedInput<f32>>,
    told: &mpsc::Sender<Result<f32, String>>,
) {
    loop {
        let sum = match way {
            Way::Whole => receiver
                .wait_blocking(.., None)
                .map(|all| work.read(all))
                .map_err(|it| it.to_string()),
            Way::Explicit => runtime.block_on(async {
                let mut sum = 0.0;
                while let Some((_, part)) =
                    receiver.next_any().await.map_err(|it| it.to_string())?
                {
                    sum += work.read(part);
                }
                Ok(sum)
            }),
            Way::Tracked(..) => {
                let input = input.as_mut().expect("made for this way");
                let run = receiver.tracked_recv(input, |elements, _| work.read(elements));
                run.map(|(sum, _)| sum).map_err(|it| it.to_string())
            }
        };
        let over = sum.is_err();
        if told.send(sum).is_err() || over || runtime.block_on(receiver.start()).is_err() {
            return;
        }
    }
}
