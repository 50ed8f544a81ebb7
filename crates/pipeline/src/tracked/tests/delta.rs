//! Tracked buffers at both ends of a delta between two nodes.

use std::sync::mpsc;

use chunkcomm::Node;
use chunkcomm_testkit::memory;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::{DeltaReceiver, DeltaSender, Increment};

const LEN: usize = 100_003;

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
        let pause = || {
            let first = comes.recv_timeout(SOON).expect("it has landed");
            assert!(first.iter().copied().eq(0..100), "{engine}");
        };
        let write = |elements: &mut [u64]| count_up(elements, pause);
        let tracked = sender.tracked_send(&mut output, write).expect("written once");
        assert!(tracked.sent.before_return >= 100, "{engine}: {:?}", tracked.sent);
        assert!(tracked.corrections.is_empty());
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
        sender.next(50_000).expect("there are more").fill(1);
        ends.runtime.block_on(sender.commit()).expect("it goes on");
        while ends.runtime.block_on(receiver.next_any()).expect("it comes").expect("more").0.end
            < 40_000
        {}
        let (read, reads) = mpsc::channel();
        std::thread::scope(|scope| {
            let (ends, sender) = (&ends, &mut sender);
            scope.spawn(move || {
                assert_eq!(reads.recv_timeout(SOON), Ok(1));
                sender.next(LEN).expect("there are more").fill(2);
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
fn a_store_to_what_was_sent_is_an_error_at_both_ends() {
    let ends = Ends::new();
    each_output::<u64>(LEN, &Tracking::default(), |mut output| {
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
        assert!(matches!(error, TrackedSendError::Rewritten { .. }), "{engine}: {error}");
        drop(sender);
        ends.runtime.block_on(receiving).expect("no panic").expect_err("the sender ended");
    });
}

#[test]
fn corrections_make_the_receivers_copy_right() {
    let ends = Ends::new();
    let settings = Tracking::default().with_rewrites(Rewrites::Resend);
    each_output::<u64>(LEN, &settings, |mut output| {
        let engine = output.engine();
        let (mut sender, receiver) = ends.open();
        let (came, comes) = mpsc::channel();
        let receiving = ends.runtime.spawn(async move {
            receiver.wait(..1).await.expect("it comes");
            came.send(()).expect("the code waits");
            receiver.into_buffer().await.expect("all comes")
        });
        let write = |elements: &mut [u64]| {
            count_up(elements, || comes.recv_timeout(SOON).expect("it has landed"));
            elements[3] = 9;
        };
        let tracked = sender.tracked_send(&mut output, write).expect("noted");
        ends.runtime.block_on(sender.finish()).expect("all has landed");
        let mut copy = ends.runtime.block_on(receiving).expect("no panic");
        assert_eq!(copy[3], 3, "{engine}: it left before it was written again");
        let corrections = Corrections::from_bytes(&tracked.corrections.to_bytes());
        corrections.expect("whole").apply(&mut copy).expect("within");
        assert!(copy == output.elements(), "{engine}");
    });
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
        assert!(matches!(error, Err(TrackedSendError::Part(_))), "{error:?}");
        ends.runtime.block_on(sender.finish()).expect("all has landed");
        let buffer = ends.runtime.block_on(receiver.into_buffer()).expect("all comes");
        assert!(buffer.iter().all(|element| *element == 1));
    }
}

#[test]
fn elements_that_are_handed_out_are_an_error_before_the_code_runs() {
    let ends = Ends::new();
    let (mut sender, _receiver) = ends.open();
    sender.next(10).expect("there are more").fill(1);
    let mut output = TrackedOutput::new(LEN, Tracking::default()).expect("an engine works");
    let error = sender.tracked_send(&mut output, |_| panic!("it runs")).map(drop);
    assert!(matches!(error, Err(TrackedSendError::Part(_))), "{error:?}");
}

#[test]
fn a_sender_that_is_dropped_is_an_error_of_the_read() {
    let ends = Ends::new();
    let settings = Awaiting::default().with_missing(Missing::Unfilled);
    each_input::<u64>(LEN, &settings, |mut input| {
        let (mut sender, mut receiver) = ends.open();
        sender.next(50_000).expect("there are more").fill(1);
        ends.runtime.block_on(sender.commit()).expect("it goes on");
        drop(sender);
        let mut sum = 0;
        let read = |elements: &[u64], _: &Arrivals<'_>| sum = elements[..49_000].iter().sum();
        let error = receiver.tracked_recv(&mut input, read).map(|_| ());
        assert!(matches!(error, Err(TrackedRecvError::Delta(_))), "{error:?}");
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
        assert!(matches!(error, Err(TrackedRecvError::Late { .. })), "{engine}: {error:?}");
        assert!(matches!(waited, Some(Err(TrackedRecvError::Late { .. }))), "{engine}: {waited:?}");
        drop(sender);
    });
}

#[test]
fn lengths_that_differ_are_an_error_before_the_code_runs() {
    let ends = Ends::new();
    let (mut sender, mut receiver) = ends.open();
    let mut output = TrackedOutput::new(LEN - 1, Tracking::default()).expect("an engine works");
    let error = sender.tracked_send(&mut output, |_| panic!("it runs")).map(drop);
    assert!(matches!(error, Err(TrackedSendError::Length { .. })), "{error:?}");
    let mut input = TrackedInput::new(LEN + 1, Awaiting::default()).expect("an engine works");
    let error = receiver.tracked_recv(&mut input, |_, _| panic!("it runs")).map(drop);
    let error = error.expect_err("they differ").to_string();
    assert_eq!(error, "the tracked buffer has 100004 elements, the delta has 100003");
}
