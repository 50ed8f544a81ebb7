//! timely dataflow: a cluster of two processes with a worker each. Records are exchanged from worker
//! 0 to worker 1, in the epochs of the input: of a round trip each has one record.
//!
//! | | docs (its example `exchange`) | best |
//! |---|---|---|
//! | one-way, bandwidth | epochs of 1024 records, each awaited | up to eight epochs under way |
//! | round-trip | the record comes back | the far end's progress comes back |
//! | operators | `exchange`, `map`, `inspect` | one, with the exchange at its input |
//! | waiting | steps | parks while there is nothing to do |

use std::cell::RefCell;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use chunkcomm_peers::{
    Bench, Checker, Doing, Failure, Goal, Near, Order, Orders, Setting, Side, Stamp, System,
};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use timely::ExchangeData;
use timely::WorkerConfig;
use timely::communication::Hooks;
use timely::communication::allocator::zero_copy::initialize::initialize_networking_from_sockets;
use timely::communication::allocator::{AllocatorBuilder, ProcessBuilder};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact;
use timely::dataflow::operators::generic::Operator as _;
use timely::dataflow::operators::vec::Map as _;
use timely::dataflow::operators::{Exchange as _, Inspect as _, Probe as _};
use timely::dataflow::{InputHandle, ProbeHandle};
use timely::execute::execute_from;
use timely::worker::Worker;

/// Worker of the near end, and of the far end.
const NEAR: u64 = 0;
const FAR: u64 = 1;

/// Records of an epoch as documented.
const DOCS_RECORDS: u64 = 1024;

/// Bytes of an epoch: 64 KiB; it has at least one record.
const EPOCH_BYTES: usize = 64 << 10;

/// Epochs under way.
const EPOCHS: u64 = 8;

static TIMELY: System = System {
    name: "timely",
    version: || Ok(env!("VERSION_TIMELY").to_owned()),
    lacks: &[
        (Bench::Calls, "timely has no calls: its workers exchange records"),
        (Bench::Idle, "timely has no further connections: a cluster has one to each process"),
    ],
    near,
    far,
};

fn main() {
    chunkcomm_peers::main(&TIMELY);
}

/// A record of the dataflow.
trait Record: ExchangeData + Clone {
    fn with(bytes: usize, number: u64, check: u8) -> Self;
    /// Returns number, last byte and length.
    fn parts(&self) -> (u64, u8, usize);
}

/// Sixteen bytes: the check byte is the last of the second word.
type Pair = (u64, u64);

impl Record for Pair {
    fn with(_bytes: usize, number: u64, check: u8) -> Self {
        (number, u64::from(check) << 56)
    }

    fn parts(&self) -> (u64, u8, usize) {
        (self.0, (self.1 >> 56) as u8, 16)
    }
}

/// Any other size: number, length and payload.
#[derive(Clone, Serialize, Deserialize)]
struct Long {
    number: u64,
    payload: Payload,
}

/// Bytes of a [`Long`] beside its payload.
const LONG_OVERHEAD_BYTES: usize = 16;

impl Record for Long {
    fn with(bytes: usize, number: u64, check: u8) -> Self {
        let mut payload = vec![0x5a; bytes.saturating_sub(LONG_OVERHEAD_BYTES).max(1)];
        if let Some(last) = payload.last_mut() {
            *last = check;
        }
        Self { number, payload: Payload(payload) }
    }

    fn parts(&self) -> (u64, u8, usize) {
        let payload = &self.payload.0;
        let last = payload.last().copied().unwrap_or_default();
        (self.number, last, payload.len() + LONG_OVERHEAD_BYTES)
    }
}

/// Bytes that serde handles as bytes, not as a sequence of numbers.
#[derive(Clone)]
struct Payload(Vec<u8>);

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Payload;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Payload, E> {
                Ok(Payload(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

type Input<R> = InputHandle<u64, CapacityContainerBuilder<Vec<R>>>;

/// Checks what arrives at one end.
type Check = Rc<RefCell<Checker>>;

fn take<R: Record>(check: &Check, record: &R) {
    let (number, last, length) = record.parts();
    check.borrow_mut().take_parts(number, last, length);
}

/// Builds the dataflow with one operator, which has the records exchanged and checks them.
fn short_dataflow<R: Record>(
    worker: &mut Worker,
    input: &mut Input<R>,
    check: Check,
) -> ProbeHandle<u64> {
    worker.dataflow(|scope| {
        let stream = input.to_stream(scope);
        let exchange = pact::Exchange::new(|_: &R| FAR);
        type Output<R> = CapacityContainerBuilder<Vec<R>>;
        let checked = stream.unary::<Output<R>, _, _, _>(exchange, "Check", move |_, _| {
            move |input, _output| {
                input.for_each_stamp(|_, batches| {
                    for records in batches {
                        records.iter().for_each(|record| take(&check, record));
                    }
                });
            }
        });
        checked.probe().0
    })
}

/// Builds the dataflow, the same at both ends. `check` is for the records that reach this worker.
fn dataflow<R: Record>(
    worker: &mut Worker,
    input: &mut Input<R>,
    setting: &Setting,
    check: Check,
) -> ProbeHandle<u64> {
    if setting.is_best() {
        return short_dataflow(worker, input, check);
    }
    let is_near = worker.index() as u64 == NEAR;
    worker.dataflow(|scope| {
        let at_far = input.to_stream(scope).exchange(|_: &R| FAR);
        if setting.bench != Bench::RoundTrip {
            return at_far.inspect(move |record| take(&check, record)).probe().0;
        }
        let at_far_check = check.clone();
        let answers = at_far.map(move |record| {
            take(&at_far_check, &record);
            record
        });
        let back = answers.exchange(|_: &R| NEAR);
        back.inspect(move |record| {
            if is_near {
                take(&check, record);
            }
        })
        .probe()
        .0
    })
}

/// Runs `work` on the one worker of this process, over a connection to the other process.
///
/// The connection is made here: `timely::execute` prints to stdout while it waits for one.
fn on_worker<T: Send + 'static>(
    process: usize,
    stream: TcpStream,
    work: impl Fn(&mut Worker) -> T + Send + Sync + 'static,
) -> Result<T, Failure> {
    stream.set_nodelay(true).doing("connecting")?;
    let hooks = Hooks::default();
    let threads = ProcessBuilder::new_typed_vector(1, hooks.refill.clone(), hooks.spill.clone());
    let mut streams = vec![None, None];
    streams[1 - process] = Some(stream);
    let (builders, guard) = initialize_networking_from_sockets(threads, streams, process, 1, hooks)
        .doing("connecting")?;
    let builders = builders.into_iter().map(AllocatorBuilder::Tcp).collect();
    let workers = execute_from(builders, Box::new(guard), WorkerConfig::default(), work);
    let done = workers.doing("starting a worker")?.join().into_iter().next();
    done.ok_or_else(|| Failure::new("there is no worker"))?.doing("running")
}

/// The near end of the dataflow.
struct Exchange<'a, R: Record> {
    worker: &'a mut Worker,
    input: Input<R>,
    probe: ProbeHandle<u64>,
    setting: Setting,
    stamp: Stamp,
    /// Number of answers that have arrived.
    answered: Arc<AtomicU64>,
}

impl<R: Record> Exchange<'_, R> {
    fn send(&mut self, sequence: u64) {
        let (number, check) = self.stamp.of(sequence);
        self.input.send(R::with(self.setting.bytes, number, check));
    }

    fn step(&mut self) {
        if self.setting.is_best() {
            self.worker.step_or_park(None);
        } else {
            self.worker.step();
        }
    }

    /// Ends the epoch, and waits until at most `under_way` are not complete.
    fn end_epoch(&mut self, under_way: u64) {
        let next = *self.input.time() + 1;
        self.input.advance_to(next);
        self.worker.step();
        while self.probe.less_than(&next.saturating_sub(under_way)) {
            self.step();
        }
    }

    fn one_way(&mut self, order: Order) {
        let fits = (EPOCH_BYTES / self.setting.bytes).max(1) as u64;
        let (records, under_way) =
            if self.setting.is_best() { (fits, EPOCHS) } else { (DOCS_RECORDS.min(fits), 0) };
        let mut left = order.count;
        let mut sequence = order.first;
        while left > 0 {
            let records = records.min(left);
            for _ in 0..records {
                self.send(sequence);
                sequence += 1;
            }
            left -= records;
            self.end_epoch(under_way);
        }
        self.end_epoch(0);
    }

    /// Whether the record of this number, the last before epoch `next`, is still awaited.
    fn is_open(&self, sequence: u64, next: u64) -> bool {
        if self.setting.is_best() {
            return self.probe.less_than(&next);
        }
        self.answered.load(Ordering::Acquire) <= sequence
    }

    fn round_trips(&mut self, order: Order) -> Vec<u64> {
        let mut samples_ns = Vec::with_capacity(order.count as usize);
        for sequence in order.numbers() {
            let started = Instant::now();
            self.send(sequence);
            let next = *self.input.time() + 1;
            self.input.advance_to(next);
            while self.is_open(sequence, next) {
                self.step();
            }
            samples_ns.push(started.elapsed().as_nanos() as u64);
        }
        samples_ns
    }
}

impl<R: Record> Side for Exchange<'_, R> {
    fn slice(&mut self, order: Order) -> Result<Vec<u64>, Failure> {
        if self.setting.bench == Bench::RoundTrip {
            return Ok(self.round_trips(order));
        }
        self.one_way(order);
        Ok(Vec::new())
    }
}

fn near(system: &'static System, setting: &Setting) -> Result<(), Failure> {
    let (near, address) = Near::start(system, setting, &[])?;
    let stream = TcpStream::connect(address).doing("connecting")?;
    if setting.bytes == 16 {
        near_with::<Pair>(near, setting, stream)
    } else {
        near_with::<Long>(near, setting, stream)
    }
}

fn near_with<R: Record>(near: Near, setting: &Setting, stream: TcpStream) -> Result<(), Failure> {
    // Timely wants a closure that several workers could call.
    let near = Mutex::new(Some(near));
    let setting = setting.clone();
    on_worker(0, stream, move |worker| {
        let near = near.lock().ok().and_then(|mut near| near.take());
        let near = near.ok_or_else(|| Failure::new("there is more than one worker"))?;
        let answered = Arc::new(AtomicU64::new(0));
        let check = Checker::counting(answered.clone(), setting.bytes);
        let mut input = Input::<R>::new();
        let check = Rc::new(RefCell::new(check));
        let probe = dataflow(worker, &mut input, &setting, check);
        let (setting, stamp) = (setting.clone(), setting.stamp());
        near.run(&mut Exchange { worker, input, probe, setting, stamp, answered })
    })?
}

fn far(setting: &Setting, _arguments: &[String], orders: Orders) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").doing("listening")?;
    let goal = orders.goal();
    orders.take(&listener.local_addr().doing("asking for the port")?.to_string());
    let (stream, _) = listener.accept().doing("accepting the near end")?;
    if setting.bytes == 16 {
        far_with::<Pair>(setting, stream, goal)
    } else {
        far_with::<Long>(setting, stream, goal)
    }
}

fn far_with<R: Record>(
    setting: &Setting,
    stream: TcpStream,
    goal: Arc<Goal>,
) -> Result<(), Failure> {
    let setting = setting.clone();
    on_worker(1, stream, move |worker| {
        let check = Rc::new(RefCell::new(Checker::new(goal.clone(), setting.bytes)));
        // Without records of its own: the worker runs as long as the near end's input is open.
        let mut input = Input::<R>::new();
        dataflow(worker, &mut input, &setting, check);
    })
}
