//! Tracked buffers at both ends of a delta between two nodes.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use chunkcomm::{Node, Peer};
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{limited, memory};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::{DeltaReceiver, DeltaSender, Element, Increment};

const LEN: usize = 100_003;

/// Time after which a test that hangs fails.
const SOON: Duration = Duration::from_secs(20);

/// Runs `test` under each sending engine that the kernel offers.
fn each_output<T: Element>(len: usize, settings: &Tracking, test: impl Fn(TrackedOutput<T>)) {
    for engine in SendEngine::ALL {
        match TrackedOutput::new(len, settings.with_engine(*engine)) {
            Ok(output) => test(output),
            Err(error) => eprintln!("skipped {engine}: {error}: {:?}", error.source()),
        }
    }
}

/// Runs `test` under each receiving engine that the kernel offers.
fn each_input<T: Element>(len: usize, settings: &Awaiting, test: impl Fn(TrackedInput<T>)) {
    for engine in RecvEngine::ALL {
        match TrackedInput::new(len, settings.with_engine(*engine)) {
            Ok(input) => test(input),
            Err(error) => eprintln!("skipped {engine}: {error}: {:?}", error.source()),
        }
    }
}

/// Two nodes, whose runtime has threads of its own.
struct Ends {
    runtime: Runtime,
    near: Node,
    far: Node,
}

impl Ends {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let nodes = async {
            let near = Node::builder().name("near").build().await.expect("a node");
            let far = Node::builder().name("far").listen(memory()).build().await.expect("a node");
            (near, far)
        };
        let (near, far) = runtime.block_on(nodes);
        Self { runtime, near, far }
    }

    fn open(&self) -> (DeltaSender<u64>, DeltaReceiver<u64>) {
        self.runtime.block_on(async {
            let peer = self.near.connect(&self.far.addresses()[0]).await.expect("a link");
            let (buffer, increment) = (vec![0; LEN], Increment::default());
            let sender = DeltaSender::open(&self.near, &peer, "numbers", buffer, increment);
            let receiver = DeltaReceiver::accept(&self.far, "numbers", vec![0; LEN]);
            let (sender, receiver) = tokio::join!(sender, receiver);
            (sender.expect("it opens"), receiver.expect("it opens"))
        })
    }

    /// Commits the next `count` elements with one value.
    fn commit(&self, sender: &mut DeltaSender<u64>, count: usize, value: u64) {
        let mut chunk = sender.next(count).expect("it goes on").expect("there are more");
        chunk.fill(value);
        self.runtime.block_on(chunk.commit()).expect("it goes on");
    }
}

/// Writes each element's index, and calls `pause` in the middle.
fn count_up(elements: &mut [u64], pause: impl Fn()) {
    for (index, element) in elements.iter_mut().enumerate() {
        *element = index as u64;
        if index == LEN / 2 {
            pause();
        }
    }
}

/// Waits until bytes have left since `before`, and no more leave.
fn until_left(peer: &Peer, before: u64) {
    let (mut left, since) = (0, std::time::Instant::now());
    while since.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(100));
        let now = peer.stats().packet_bytes_sent - before;
        if now == left && left >= 100_000 {
            return;
        }
        left = now;
    }
}

#[test]
fn elements_are_at_the_receiver_before_the_code_returns() {
    let ends = Ends::new();
    each_output::<u64>(LEN, &Tracking::default(), |mut output| {
        let engine = output.engine();
        let (mut sender, mut receiver) = ends.open();
        let (came, comes) = mpsc::channel();
        let receiving = ends.runtime.spawn(async move {
            let first = receiver.wait(..100).await.expect("it comes").to_vec();
            came.send(first).expect("the code waits");
            receiver.finish().await.expect("all comes").to_vec()
        });
        // The code goes on only when the receiver has its first elements.
        let peer = sender.peer().expect("it is no collective").clone();
        let before = peer.stats().packet_bytes_sent;
        let pause = || {
            let first = comes.recv_timeout(SOON).expect("it has landed");
            assert!(first.iter().copied().eq(0..100), "{engine}");
            // A message counts when all of it has left.
            until_left(&peer, before);
        };
        let write = |elements: &mut [u64]| count_up(elements, pause);
        let (_, sent) = sender.tracked_send(&mut output, write).expect("written once");
        assert!(sent.before_return >= 100, "{engine}: {sent:?}");
        ends.runtime.block_on(sender.finish()).expect("all has landed");
        let all = ends.runtime.block_on(receiving).expect("no panic");
        assert!(all.into_iter().eq(0..LEN as u64), "{engine}");
    });
}

#[test]
fn ordinary_code_at_both_ends() {
    let ends = Ends::new();
    each_input::<u64>(LEN, &Awaiting::default(), |mut input| {
        let engine = input.engine();
        let (mut sender, mut receiver) = ends.open();
        let mut output = TrackedOutput::new(LEN, Tracking::default()).expect("an engine works");
        let (read, reads) = mpsc::channel();
        std::thread::scope(|scope| {
            let ends = &ends;
            scope.spawn(move || {
                // The second half is written only when an element of the first was read.
                let pause = || assert_eq!(reads.recv_timeout(SOON), Ok(7));
                let write = |elements: &mut [u64]| count_up(elements, pause);
                sender.tracked_send(&mut output, write).expect("written once");
                ends.runtime.block_on(sender.finish()).expect("all has landed");
            });
            let sum = |elements: &[u64], _: &Arrivals<'_>| {
                read.send(elements[7]).expect("the writer waits");
                elements.iter().sum::<u64>()
            };
            let (sum, _) = receiver.tracked_recv(&mut input, sum).expect("all comes");
            assert_eq!(sum, (LEN as u64 - 1) * LEN as u64 / 2, "{engine}");
        });
    });
}

#[test]
fn what_was_shown_before_is_read_as_well() {
    let ends = Ends::new();
    each_input::<u64>(LEN, &Awaiting::default(), |mut input| {
        let (mut sender, mut receiver) = ends.open();
        sender.each_chunk(1_000, |start, chunk| chunk.fill(start as u64)).expect("it goes on");
        let shown = ends.runtime.block_on(receiver.next_any()).expect("it comes");
        assert!(shown.is_some());
        let copy = |elements: &[u64], _: &Arrivals<'_>| elements.to_vec();
        let (copy, _) = receiver.tracked_recv(&mut input, copy).expect("all comes");
        let expected = |index: usize| (index / 1_000 * 1_000) as u64;
        assert!(copy.into_iter().eq((0..LEN).map(expected)), "{}", input.engine());
    });
}

#[test]
fn what_was_shown_before_can_be_read_before_the_rest_lands() {
    let ends = Ends::new();
    each_input::<u64>(LEN, &Awaiting::default(), |mut input| {
        let (mut sender, mut receiver) = ends.open();
        ends.commit(&mut sender, 50_000, 1);
        while ends.runtime.block_on(receiver.next_any()).expect("it comes").expect("more").0.end
            < 40_000
        {}
        let (read, reads) = mpsc::channel();
        std::thread::scope(|scope| {
            let (ends, sender) = (&ends, &mut sender);
            scope.spawn(move || {
                assert_eq!(reads.recv_timeout(SOON), Ok(1));
                ends.commit(sender, LEN, 2);
                ends.runtime.block_on(sender.finish()).expect("all has landed");
            });
            let copy = |elements: &[u64], _: &Arrivals<'_>| {
                read.send(elements[39_000]).expect("the writer waits");
                elements[LEN - 1]
            };
            let (last, _) = receiver.tracked_recv(&mut input, copy).expect("all comes");
            assert_eq!(last, 2, "{}", input.engine());
        });
    });
}

#[test]
fn a_round_that_ends_early_is_an_error_with_its_length() {
    let ends = Ends::new();
    let settings = Awaiting::default().with_missing(Missing::Unfilled);
    each_input::<u64>(LEN, &settings, |mut input| {
        let engine = input.engine();
        let (mut sender, mut receiver) = ends.open();
        ends.commit(&mut sender, 50_000, 1);
        let ending = ends.runtime.spawn(async move { sender.end().await });
        let read = |elements: &[u64], arrivals: &Arrivals<'_>| {
            let error = arrivals.wait(49_000..50_001).expect_err("the last one never comes");
            assert!(matches!(error, AccessError::Ended), "{engine}: {error}");
            assert_eq!(elements[LEN - 1], 0, "{engine}: unfilled");
        };
        let error = receiver.tracked_recv(&mut input, read).map(drop).expect_err("it ended");
        let words = "the sender ended the stream after 50000 of 100003 elements";
        assert_eq!(error.to_string(), words, "{engine}");
        assert!(matches!(error, TrackedError::Short { landed: 50_000, length: LEN }));
        ends.runtime.block_on(ending).expect("no panic").expect("all has landed");
        let all = ends.runtime.block_on(receiver.finish()).expect("the round has landed");
        assert_eq!(all, [1; 50_000], "{engine}");
        assert_eq!(ends.runtime.block_on(receiver.start()).ok(), Some(false), "{engine}");
    });
}

#[test]
fn a_store_to_what_was_sent_is_an_error_at_both_ends() {
    let ends = Ends::new();
    let settings = Tracking::default().with_rewrites(Rewrites::Strict);
    each_output::<u64>(LEN, &settings, |mut output| {
        let engine = output.engine();
        let (mut sender, mut receiver) = ends.open();
        let (came, comes) = mpsc::channel();
        let receiving = ends.runtime.spawn(async move {
            receiver.wait(..1).await.expect("it comes");
            came.send(()).expect("the code waits");
            receiver.finish().await.map(|_| ())
        });
        let write = |elements: &mut [u64]| {
            count_up(elements, || comes.recv_timeout(SOON).expect("it has landed"));
            elements[3] = 9;
        };
        let error = sender.tracked_send(&mut output, write).map(|_| ()).expect_err("written again");
        let rewritten = matches!(error, TrackedError::Buffer(AccessError::Rewritten { .. }));
        assert!(rewritten, "{engine}: {error}");
        drop(sender);
        ends.runtime.block_on(receiving).expect("no panic").expect_err("the sender ended");
    });
}

/// Elements of an increment.
const STEP: usize = INCREMENT_PAGES * 4096 / 8;

#[test]
fn what_is_written_again_arrives_in_the_end_and_no_reference_sees_it_change() {
    let ends = Ends::new();
    let settings = Tracking::default().with_rewrites(Rewrites::Resend).with_open_increments(1);
    each_output::<u64>(LEN, &settings, |mut output| {
        let engine = output.engine();
        let (mut sender, mut receiver) = ends.open();
        let (came, comes) = mpsc::channel();
        let receiving = ends.runtime.spawn(async move {
            receiver.wait(..100).await.expect("it comes");
            came.send(()).expect("the code waits");
            receiver.wait(..LEN - STEP).await.expect("it comes");
            came.send(()).expect("the code waits");
            let shown = receiver.wait(..).await.expect("all comes");
            assert_eq!((shown[3], shown[4]), (3, 4), "it left before it was written again");
            assert_eq!(receiver.landed()[3], 3);
            let (corrected, all) = (receiver.corrected(), receiver.finish().await);
            (corrected, all.expect("all comes").to_vec())
        });
        let write = |elements: &mut [u64]| {
            let landed = || comes.recv_timeout(SOON).expect("it has landed");
            count_up(elements, landed);
            // With a younger one, the last increment is finished, too, before the code ends.
            elements[3] = 8;
            landed();
            std::thread::sleep(Duration::from_millis(20));
            elements[3] = 9;
        };
        let (_, sent) = sender.tracked_send(&mut output, write).expect("sent again");
        assert!(sent.rewritten >= 1, "{engine}: {sent:?}");
        ends.runtime.block_on(sender.finish()).expect("all has landed");
        let (corrected, all) = ends.runtime.block_on(receiving).expect("no panic");
        assert!(matches!(&corrected[..], [run] if *run == (0..STEP)), "{engine}: {corrected:?}");
        assert!(all[3] == 9 && all == output.elements(), "{engine}");
        let sent = ends.runtime.block_on(sender.into_buffer());
        assert!(sent == output.elements(), "{engine}: the sender's own copy");
    });
}

#[test]
fn any_order_of_writes_arrives_through_a_forward_round_after_round() {
    let ends = Ends::new();
    let last = ends.runtime.block_on(async {
        Node::builder().name("last").listen(memory()).build().await.expect("a node")
    });
    let to_last = ends.runtime.block_on(ends.far.connect(&last.addresses()[0])).expect("a link");
    let settings = Tracking::default().with_rewrites(Rewrites::Resend);
    for seed in 0..3 {
        each_output::<u64>(LEN, &settings, |mut output| {
            let engine = output.engine();
            let mut random = seeded(seed);
            let (mut sender, mut middle) = ends.open();
            let (_forward, mut end) = ends.runtime.block_on(async {
                let forward = middle.forward(&ends.far, &to_last, "on").await.expect("it opens");
                let end = DeltaReceiver::accept(&last, "on", vec![0_u64; LEN]).await;
                (forward, end.expect("it opens"))
            });
            for round in 0..3 {
                let write = |elements: &mut [u64]| {
                    for turn in 1..400 {
                        let start = random.below(LEN as u64) as usize;
                        let end = (start + random.below(3_000) as usize).min(LEN);
                        elements[start..end].fill(round * 1_000 + turn);
                    }
                };
                sender.tracked_send(&mut output, write).expect("sent again as often as it needs");
                ends.runtime.block_on(async {
                    let (middle, end) = (middle.finish().await, end.finish().await);
                    let expected = output.elements();
                    let note = format!("seed {seed}, {engine}, round {round}");
                    assert!(middle.expect("all comes") == expected, "{note}");
                    assert!(end.expect("all comes") == expected, "{note}, forwarded");
                });
                let started = ends
                    .runtime
                    .block_on(async { tokio::join!(sender.start(), middle.start(), end.start()) });
                assert!(matches!(started, (Ok(()), Ok(true), Ok(true))), "{started:?}");
                assert!(middle.corrected().is_empty());
            }
        });
    }
}

#[test]
fn ordinary_code_that_read_what_was_written_again_is_told() {
    let ends = Ends::new();
    let settings = Tracking::default().with_rewrites(Rewrites::Resend);
    each_output::<u64>(LEN, &settings, |mut output| {
        let engine = output.engine();
        let (mut sender, mut receiver) = ends.open();
        let (read, reads) = mpsc::channel();
        std::thread::scope(|scope| {
            let (ends, sender, output) = (&ends, &mut sender, &mut output);
            scope.spawn(move || {
                let write = |elements: &mut [u64]| {
                    count_up(elements, || assert_eq!(reads.recv_timeout(SOON), Ok(3)));
                    elements[3] = 9;
                };
                sender.tracked_send(output, write).expect("sent again");
                ends.runtime.block_on(sender.finish()).expect("all has landed");
            });
            let mut input = TrackedInput::new(LEN, Awaiting::default()).expect("an engine works");
            let code = |elements: &[u64], _: &Arrivals<'_>| read.send(elements[3]);
            let error = receiver.tracked_recv(&mut input, code).map(drop).expect_err("stale");
            let words = "were written again by the sender after they had come";
            assert!(error.to_string().contains(words), "{engine}: {error}");
            let all = ends.runtime.block_on(receiver.finish()).expect("all comes").to_vec();
            assert_eq!(all[3], 9, "{engine}");
            let (last, _) = receiver
                .tracked_recv(&mut input, |elements, _| elements[3])
                .expect("the last values are there");
            assert_eq!(last, 9, "{engine}");
        });
    });
}

#[test]
fn a_delta_whose_code_panicked_never_lands() {
    let ends = Ends::new();
    let (mut sender, mut receiver) = ends.open();
    let mut output = TrackedOutput::new(LEN, Tracking::default()).expect("an engine works");
    let write = |elements: &mut [u64]| {
        elements[..LEN / 2].fill(1);
        panic!("in the middle");
    };
    let run = AssertUnwindSafe(|| sender.tracked_send(&mut output, write).map(drop));
    assert!(catch_unwind(run).is_err());
    while let Some(mut chunk) = sender.next(LEN).expect("it goes on") {
        chunk.fill(2);
        ends.runtime.block_on(chunk.commit()).expect("it goes on");
    }
    let finished = ends.runtime.block_on(limited(sender.finish()));
    let error = finished.expect_err("what came is half written");
    assert!(matches!(error, crate::DeltaSendError::Unfinished { .. }), "{error}");
    drop(sender);
    ends.runtime.block_on(receiver.finish()).expect_err("the sender ended");
}

#[test]
fn a_second_run_in_one_round_is_an_error_before_the_code_runs() {
    let ends = Ends::new();
    for rewrites in [Rewrites::Strict, Rewrites::Resend] {
        let (mut sender, receiver) = ends.open();
        let settings = Tracking::default().with_rewrites(rewrites);
        let mut output = TrackedOutput::new(LEN, settings).expect("an engine works");
        let write = |elements: &mut [u64]| elements.fill(1);
        sender.tracked_send(&mut output, write).expect("written once");
        let error = sender.tracked_send(&mut output, |_| panic!("it runs")).map(drop);
        assert!(matches!(error, Err(TrackedError::Part(_))), "{error:?}");
        ends.runtime.block_on(sender.finish()).expect("all has landed");
        let buffer = ends.runtime.block_on(receiver.into_buffer()).expect("all comes");
        assert!(buffer.iter().all(|element| *element == 1));
    }
}

#[test]
fn elements_that_are_handed_out_are_an_error_before_the_code_runs() {
    let ends = Ends::new();
    let (mut sender, _receiver) = ends.open();
    let _part = sender.part(..10).expect("all is free");
    let mut output = TrackedOutput::new(LEN, Tracking::default()).expect("an engine works");
    let error = sender.tracked_send(&mut output, |_| panic!("it runs")).map(drop);
    assert!(matches!(error, Err(TrackedError::Part(_))), "{error:?}");
}

#[test]
fn a_sender_that_is_dropped_is_an_error_of_the_read() {
    let ends = Ends::new();
    let settings = Awaiting::default().with_missing(Missing::Unfilled);
    each_input::<u64>(LEN, &settings, |mut input| {
        let (mut sender, mut receiver) = ends.open();
        ends.commit(&mut sender, 50_000, 1);
        drop(sender);
        let mut sum = 0;
        let read = |elements: &[u64], _: &Arrivals<'_>| sum = elements[..49_000].iter().sum();
        let error = receiver.tracked_recv(&mut input, read).map(|_| ());
        assert!(matches!(error, Err(TrackedError::Recv(_))), "{error:?}");
        // Elements of a page that is not whole cannot be read.
        assert_eq!(sum, 49_000, "{}: what landed can be read", input.engine());
    });
}

#[test]
fn a_wait_that_is_late_ends_the_run_while_the_sender_lives() {
    let ends = Ends::new();
    let settings = Awaiting::default().with_deadline(Duration::from_millis(30));
    each_input::<u64>(LEN, &settings, |mut input| {
        let engine = input.engine();
        let (sender, mut receiver) = ends.open();
        let mut waited = None;
        let read = |_: &[u64], arrivals: &Arrivals<'_>| waited = Some(arrivals.wait(0..10));
        let error = receiver.tracked_recv(&mut input, read).map(drop);
        let late = matches!(error, Err(TrackedError::Buffer(AccessError::Late { .. })));
        assert!(late, "{engine}: {error:?}");
        assert!(matches!(waited, Some(Err(AccessError::Late { .. }))), "{engine}: {waited:?}");
        drop(sender);
    });
}

#[test]
fn lengths_that_differ_are_an_error_before_the_code_runs() {
    let ends = Ends::new();
    let (mut sender, mut receiver) = ends.open();
    let mut output = TrackedOutput::new(LEN - 1, Tracking::default()).expect("an engine works");
    let error = sender.tracked_send(&mut output, |_| panic!("it runs")).map(drop);
    assert!(matches!(error, Err(TrackedError::Length { .. })), "{error:?}");
    let mut input = TrackedInput::new(LEN + 1, Awaiting::default()).expect("an engine works");
    let error = receiver.tracked_recv(&mut input, |_, _| panic!("it runs")).map(drop);
    let error = error.expect_err("they differ").to_string();
    assert_eq!(error, "the tracked buffer has 100004 elements, the delta has 100003");
}

#[test]
fn only_what_left_the_node_counts_as_overlapped() {
    // The only thread of the runtime runs the code, so nothing leaves before the code returns.
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let nodes = async |io_thread: bool| {
        let near = Node::builder().name("near");
        let near = if io_thread { near.io_thread() } else { near };
        let near = near.build().await.expect("a node");
        let far = Node::builder().name("far").listen(memory()).io_thread();
        (near, far.build().await.expect("a node"))
    };
    each_output::<u64>(LEN, &Tracking::default(), |mut output| {
        let engine = output.engine();
        for io_thread in [false, true] {
            runtime.block_on(async {
                let (near, far) = nodes(io_thread).await;
                let peer = near.connect(&far.addresses()[0]).await.expect("a link");
                let (buffer, increment) = (vec![0; LEN], Increment::default());
                let sender = DeltaSender::open(&near, &peer, "numbers", buffer, increment);
                let receiver = DeltaReceiver::accept(&far, "numbers", vec![0_u64; LEN]);
                let (sender, receiver) = tokio::join!(sender, receiver);
                let (mut sender, mut receiver) = (sender.expect("open"), receiver.expect("open"));
                let before = peer.stats().packet_bytes_sent;
                let pause = || {
                    if io_thread {
                        until_left(&peer, before);
                    }
                };
                let write = |elements: &mut [u64]| count_up(elements, pause);
                let (_, sent) = sender.tracked_send(&mut output, write).expect("written once");
                let most = (peer.stats().packet_bytes_sent - before) / 8;
                let note = format!("{engine}, io_thread {io_thread}: {sent:?}, {most} at most");
                assert_eq!(sent.before_return > 0, io_thread, "{note}");
                assert!(sent.before_return as u64 <= most, "{note}");
                sender.finish().await.expect("all has landed");
                let all = receiver.finish().await.expect("all comes");
                assert!(all.iter().copied().eq(0..LEN as u64), "{note}");
            });
        }
    });
}
