//! Costs of a message beside its bytes: no allocation, no wake-up. Bounds of the costs of a channel
//! that is never read, and of a stranger. The tests are a program of their own, since they count
//! all its allocations; they take turns.

#![allow(clippy::unwrap_used)]

mod feed;
mod large;
#[cfg(feature = "tls")]
mod strangers;

use chunkcomm::{Address, Node, NodeBuilder, Policy, Receiver, Sender, TrySendError};
use chunkcomm_cluster::{CallClient, NodeExt};
use chunkcomm_testkit::counting::{ALLOCATIONS, Counting, LIVE_BYTES};
use chunkcomm_testkit::{fill, windows_of};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Waits until no other test runs; the next one may begin when the result is dropped.
fn alone() -> impl Drop {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

type Small = (u64, u64);

const WARM_UP: u64 = 100_000;
const COUNTED: u64 = 400_000;

/// Counts wake-ups and passes them on.
struct CountWakes {
    inner: Waker,
    wakes: AtomicU64,
}

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.inner.wake_by_ref();
    }
}

/// Runs `future`; returns its output and how often it was woken.
async fn wakes_of<F: Future>(future: F) -> (F::Output, u64) {
    let mut future = pin!(future);
    let mut counting: Option<Arc<CountWakes>> = None;
    std::future::poll_fn(|context| {
        // A task's waker stays the same.
        let counting = counting.get_or_insert_with(|| {
            Arc::new(CountWakes { inner: context.waker().clone(), wakes: AtomicU64::new(0) })
        });
        let waker = Waker::from(Arc::clone(counting));
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Poll::Ready((output, counting.wakes.load(Ordering::Relaxed))),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn channel(
    sending: NodeBuilder,
    receiving: NodeBuilder,
) -> (Node, Node, Sender<Small>, Receiver<Small>) {
    let loopback: Address = "127.0.0.1:0".parse().unwrap();
    let a = receiving.name("a").listen(loopback).build().await.unwrap();
    let b = sending.name("b").build().await.unwrap();
    let peer = b.connect(&a.addresses()[0]).await.unwrap();
    let sender = b.open(&peer, "counted").await.unwrap();
    let (_, receiver) = a.accept("counted").await.unwrap();
    (a, b, sender, receiver)
}

async fn send(sender: &mut Sender<Small>, count: u64) {
    for number in 0..count {
        sender.send(&(number, number)).await.unwrap();
    }
    sender.flush().await.unwrap();
}

async fn receive(receiver: &mut Receiver<Small>, count: u64) {
    for number in 0..count {
        assert_eq!(receiver.recv().await.unwrap(), Some((number, number)));
    }
}

/// Returns the allocations and wake-ups of both ends together while messages flow, behind others.
async fn cost_of_a_stream(policy: Policy, [warm_up, counted]: [u64; 2]) -> (u64, u64) {
    let sending = Node::builder().policy(policy);
    let (_a, _b, mut sender, mut receiver) = channel(sending, Node::builder()).await;
    let (start, started) = tokio::sync::oneshot::channel::<()>();
    let sending = tokio::spawn(async move {
        send(&mut sender, warm_up).await;
        started.await.unwrap();
        wakes_of(send(&mut sender, counted)).await.1
    });
    receive(&mut receiver, warm_up).await;
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    start.send(()).unwrap();
    let ((), wakes) = wakes_of(receive(&mut receiver, counted)).await;
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    (allocations, wakes + sending.await.unwrap())
}

fn on_one_thread<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

fn on_two_threads<F>(future: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(runtime.spawn(future)).unwrap()
}

fn check(allocations: u64, wakes: u64, what: &str) {
    let of_messages = |count: u64| count as f64 / COUNTED as f64;
    println!("{what}: {allocations} allocations, {wakes} wake-ups for {COUNTED} messages");
    assert!(of_messages(allocations) < 0.005, "{what}: {allocations} allocations");
    assert!(of_messages(wakes) < 0.02, "{what}: {wakes} wake-ups");
}

#[test]
fn a_message_costs_no_allocation_and_no_wake_up() {
    let _turn = alone();
    let stream = || cost_of_a_stream(Policy::default(), [WARM_UP, COUNTED]);
    let (allocations, wakes) = on_one_thread(stream());
    check(allocations, wakes, "one thread");
    let (allocations, wakes) = on_two_threads(stream());
    check(allocations, wakes, "two threads");
}

#[test]
fn most_packets_of_one_message_cost_no_allocation() {
    let _turn = alone();
    let counts = [2_000, 20_000];
    let (allocations, _) = on_one_thread(cost_of_a_stream(Policy::Unbuffered, counts));
    println!("{allocations} allocations for {} packets", counts[1]);
    // Where very many are on their way, not all buffers are kept.
    assert!(allocations < counts[1] / 2, "{allocations} allocations");
}

/// Tasks, each of which makes one call after another.
const CALLERS: u64 = 64;

async fn call(client: &CallClient<Small, Small>, count: u64) {
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let client = client.clone();
            tokio::spawn(async move {
                for number in 0..count / CALLERS {
                    let answer = client.call(&(number, caller)).await.unwrap();
                    assert_eq!(answer, (caller, number));
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

/// Returns the allocations of both ends together while calls are made.
async fn cost_of_calls() -> u64 {
    let loopback: Address = "127.0.0.1:0".parse().unwrap();
    let a = Node::builder().name("a").listen(loopback).build().await.unwrap();
    let b = Node::builder().name("b").build().await.unwrap();
    let peer = b.connect(&a.addresses()[0]).await.unwrap();
    let turn = |(one, other): Small| async move { Ok::<Small, String>((other, one)) };
    let _service = a.serve("turn", turn).unwrap();
    let client = b.call_client(&peer, "turn").unwrap().timeout(Duration::from_secs(60));
    call(&client, WARM_UP).await;
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    call(&client, COUNTED).await;
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn a_call_that_is_answered_at_once_costs_no_allocation() {
    let _turn = alone();
    let allocations = on_one_thread(cost_of_calls());
    println!("{allocations} allocations for {COUNTED} calls");
    // A packet costs a few allocations where a stream's packets are reused; 64 calls share one.
    assert!((allocations as f64) < 0.1 * COUNTED as f64, "{allocations} allocations");
}

/// Returns the bytes that stay allocated while a channel that gets one tiny message a packet is
/// never read, and the number of messages accepted.
async fn memory_of_an_unread_channel() -> (i64, u64) {
    let sending = Node::builder().policy(Policy::Unbuffered);
    let (_a, _b, mut sender, mut receiver) = channel(sending, Node::builder()).await;
    // The buffers that links keep are there already.
    send(&mut sender, 100).await;
    receive(&mut receiver, 100).await;
    sender.sync().await.unwrap();
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    let waits = sender.peer().stats().credit_waits;
    let (mut accepted, mut full_in_a_row) = (0, 0);
    while full_in_a_row < 20 || sender.peer().stats().credit_waits == waits {
        match sender.try_send(&(accepted, 0)) {
            Ok(()) => {
                (accepted, full_in_a_row) = (accepted + 1, 0);
                // Each message has a packet of its own and is read alone.
                tokio::task::yield_now().await;
            }
            Err(TrySendError::Full) => {
                full_in_a_row += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    (LIVE_BYTES.load(Ordering::Relaxed) - before, accepted)
}

#[test]
fn a_channel_that_gets_one_tiny_message_a_packet_and_is_never_read_stays_within_its_budget() {
    let _turn = alone();
    let (live, accepted) = on_one_thread(memory_of_an_unread_channel());
    println!("{live} bytes for {accepted} messages");
    // The bytes are the window at the receiver, the ring and its smaller predecessors at the
    // sender, and the reserves of vectors. A reading buffer for each of 5000 messages would be 4
    // KiB or more.
    assert!(accepted * 17 <= (16 + 86) * 1024, "{accepted} messages");
    assert!(accepted * 17 >= 64 * 1024, "{accepted} messages");
    assert!(live <= 2 * (16 + 86) * 1024, "{live} bytes for {accepted} messages");
}

/// Returns the same for runs that stay where they were read: packets of 64 KiB.
async fn memory_of_unread_packets() -> (i64, u64) {
    let small = Node::builder().limits(windows_of(1 << 20));
    let (_a, _b, mut sender, mut receiver) = channel(Node::builder(), small).await;
    let sending = tokio::spawn(async move {
        send(&mut sender, WARM_UP).await;
        sender
    });
    receive(&mut receiver, WARM_UP).await;
    let mut sender = sending.await.unwrap();
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    let accepted = fill(&mut sender, &(0, 0)).await;
    (LIVE_BYTES.load(Ordering::Relaxed) - before, accepted)
}

#[test]
fn an_unread_channel_whose_window_has_grown_stays_within_the_links_budget() {
    let _turn = alone();
    let (live, accepted) = on_one_thread(memory_of_unread_packets());
    println!("{live} bytes for {accepted} messages");
    // The bytes are the link's windows, as much again for the reserves of vectors, and the reading
    // buffers that slices pin.
    assert!(live <= 2 << 20, "{live} bytes for {accepted} messages");
    assert!(accepted * 17 <= (1 << 20) + 86 * 1024, "{accepted} messages");
}
