//! A driver on a scripted connection, polled by hand.

mod reading;

use crate::driver::clock;
use crate::driver::ending::LostChannel;
use crate::driver::events::{Acceptor, Opened};
use crate::driver::link::{Driver, DriverSetup};
use crate::driver::mail::{Command, LinkShared};
use crate::driver::reading::REST_AFTER;
use crate::driver::staging::{Settling, Staged, TxEnd, TxShared};
use crate::driver::wakers::locked;
use crate::error::{LinkCause, LinkError};
use crate::proto::cycle::Board;
use crate::proto::endpoint::{Action, AfterLoss};
use crate::proto::link::LinkConfig;
use crate::proto::liveness::Silence;
use crate::proto::outbox::OpenSpec;
use crate::proto::packet::{ChannelKind, HEADER_BYTES, Header, Lane};
use crate::proto::tuning::constants::LOOKS_MAX;
use crate::proto::tuning::flush::Policy;
use crate::proto::tuning::without::{Controller, Without};
#[cfg(target_os = "linux")]
use crate::transport::Below;
use crate::transport::Transport;
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// The bytes that there are to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Comes {
    #[default]
    Nothing,
    /// The missing bytes of the last heartbeat.
    Rest,
    /// Heartbeats, as fast as they are read.
    Much,
    /// The bytes that a peer has written, at most this number at a time.
    Packets(usize),
}

/// Behaviour of a connection, and counts of the calls to it.
#[derive(Default)]
struct State {
    comes: Comes,
    /// Nothing can be written.
    full: bool,
    /// Writes fail, the first of them by a reset; below, the number of these writes.
    broken: bool,
    failed: u32,
    /// A task that waits for the connection sleeps.
    sleeps: bool,
    /// Bytes read so far.
    read: usize,
    /// Looks at the connection itself that found nothing.
    looks: u32,
    written: Vec<u8>,
    /// The peer's bytes that were not read, and the number of those that went straight to the
    /// memory of a message.
    packets: VecDeque<u8>,
    direct: usize,
    /// The waker of the last read.
    waiting: Option<Waker>,
}

impl State {
    fn has_something(&self) -> bool {
        match self.comes {
            Comes::Nothing => false,
            Comes::Packets(_) => !self.packets.is_empty(),
            Comes::Rest => !self.read.is_multiple_of(HEADER_BYTES),
            Comes::Much => true,
        }
    }
}

#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<State>>);

impl Scripted {
    fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = locked(&self.0);
        let changed = change(&mut state);
        let waiting = if state.has_something() { state.waiting.take() } else { None };
        drop(state);
        if let Some(waker) = waiting {
            waker.wake();
        }
        changed
    }
}

impl Transport for Scripted {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|state| {
            state.waiting = Some(context.waker().clone());
            let missing = state.read.next_multiple_of(HEADER_BYTES) - state.read;
            let bytes = match state.comes {
                Comes::Nothing => 0,
                Comes::Rest => missing.min(buffer.len()),
                Comes::Much => buffer.len(),
                Comes::Packets(most) => {
                    let bytes = buffer.len().min(state.packets.len()).min(most);
                    for (byte, read) in buffer.iter_mut().zip(state.packets.drain(..bytes)) {
                        *byte = read;
                    }
                    return if bytes == 0 { Poll::Pending } else { Poll::Ready(Ok(bytes)) };
                }
            };
            if bytes == 0 {
                return Poll::Pending;
            }
            let heartbeat = Header::default().encode();
            for byte in &mut buffer[..bytes] {
                *byte = heartbeat[state.read % HEADER_BYTES];
                state.read += 1;
            }
            Poll::Ready(Ok(bytes))
        })
    }

    fn poll_read_now(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|state| state.looks += u32::from(state.comes == Comes::Nothing));
        self.poll_read(context, buffer)
    }

    fn sleeps(&self) -> bool {
        self.with(|state| state.sleeps)
    }

    fn poll_read_two(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>; 2],
    ) -> Poll<io::Result<usize>> {
        let read = self.poll_read(context, &mut buffers[0]);
        if let Poll::Ready(Ok(bytes)) = read {
            self.with(|state| state.direct += bytes);
        }
        read
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|state| {
            if state.full {
                return Poll::Pending;
            }
            if state.broken {
                state.failed += 1;
                let later = state.failed > 1;
                let kind =
                    if later { io::ErrorKind::BrokenPipe } else { io::ErrorKind::ConnectionReset };
                return Poll::Ready(Err(kind.into()));
            }
            let before = state.written.len();
            buffers.iter().for_each(|buffer| state.written.extend_from_slice(buffer));
            Poll::Ready(Ok(state.written.len() - before))
        })
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    #[cfg(target_os = "linux")]
    fn into_below(self: Box<Self>) -> io::Result<Below> {
        Ok(Below::Nothing(self))
    }
}

/// Keeps the channels that the peer opens.
#[derive(Default)]
struct Opens(Mutex<Vec<Opened>>);

impl Acceptor for Opens {
    fn open_waits(&self) {}

    fn warn(&self, _what: &str) {}

    fn opened(&self, opened: Opened, _: u64) -> Result<(), Box<Opened>> {
        locked(&self.0).push(opened);
        Ok(())
    }

    fn described(&self, _: &Arc<LinkShared>, _: u32, _: &str) {}

    fn refused(&self, _: LostChannel) {}

    fn cut_off(&self, _: &Arc<LinkShared>, _: &LinkError, _: u64) {}

    fn resumed(&self, _: &Arc<LinkShared>, _: u32) {}

    fn ended(&self, _: &Arc<LinkShared>, _: &LinkError, _: Vec<LostChannel>) {}
}

fn driver(connection: &Scripted, shared: &Arc<LinkShared>, opens: &Arc<Opens>) -> Driver {
    // Nothing is due while the test runs, however slowly.
    let long = Duration::from_secs(3600);
    let config = LinkConfig {
        policy: Policy::Chunked,
        age_bound: Duration::from_millis(1),
        packet_bytes_small: 1 << 16,
        packet_bytes_max: 1 << 16,
        packet_bytes_tuned: 1 << 16,
        windows_bytes_max: 1 << 20,
        message_bytes_max: 1 << 20,
        peer_open_credit: 1 << 16,
        session: true,
        resend_bytes_max: 1 << 20,
        silence: Silence { probe: long, suspect: 3 * long, dead: 10 * long },
        now: clock::now(),
        // It measures times, and by them cuts large messages.
        without: Without::of(Controller::Pace),
    };
    Driver::new(DriverSetup {
        shared: Arc::clone(shared),
        transport: Box::new(connection.clone()),
        config,
        after_loss: AfterLoss::End,
        redial: None,
        acceptor: Arc::<Opens>::clone(opens),
        buffers: Arc::default(),
        board: Arc::new(Mutex::new(Board::new(2, "we"))),
        one_thread: true,
        one_copy: false,
    })
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A driver, its connection, and the sending end of a channel.
struct Node {
    driver: Driver,
    connection: Scripted,
    sender: TxEnd,
    opens: Arc<Opens>,
}

impl Node {
    fn new(sleeps: bool) -> Node {
        let connection = Scripted::default();
        connection.with(|state| state.sleeps = sleeps);
        let link = LinkShared::undriven(1 << 16);
        let shared = TxShared::new("words".into(), "bytes".into(), Settling::No);
        let spec = Box::new(OpenSpec {
            lane: Lane::Bulk,
            system: false,
            kind: ChannelKind::Bytes,
            fingerprint: 0,
            stream: None,
            backlog: None,
            name: "words".into(),
        });
        let sender = link.open(|id| {
            let (end, ring) = TxEnd::new(&link, &shared, id);
            (Command::Open { id, spec, tx: Arc::clone(&shared), ring, back: None }, end)
        });
        let (sender, opens) = (sender.unwrap(), Arc::default());
        let driver = driver(&connection, &link, &opens);
        let mut node = Node { driver, connection, sender, opens };
        // From full reads the driver learns that there is more to read. It has a larger buffer when
        // it needs one again.
        node.hear_much(false);
        node.connection.with(|state| state.comes = Comes::Rest);
        node.settle();
        std::thread::sleep(REST_AFTER + Duration::from_millis(1));
        node.settle();
        node.connection.with(|state| state.comes = Comes::Nothing);
        node
    }

    fn say(&mut self) {
        assert_eq!(self.sender.stage_slice(b"word").unwrap(), Staged::Done);
    }

    /// Polls once; returns whether the driver wants to be polled again.
    fn poll(&mut self) -> bool {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let polled = Pin::new(&mut self.driver).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        woken.0.load(Ordering::Relaxed)
    }

    /// Polls until the driver sleeps; returns how often it looked meanwhile.
    fn settle(&mut self) -> u32 {
        self.connection.with(|state| state.looks = 0);
        let polls = (0..10_000).find(|_| !self.poll());
        assert!(polls.is_some(), "it does not sleep");
        self.connection.with(|state| state.looks)
    }

    /// Lets heartbeats come as fast as they are read, then none. Words go the other way meanwhile
    /// if the node `talks`.
    fn hear_much(&mut self, talks: bool) {
        self.connection.with(|state| state.comes = Comes::Much);
        for _ in 0..10 {
            if talks {
                self.say();
            }
            assert!(self.poll(), "there is more to read");
        }
        self.connection.with(|state| state.comes = Comes::Nothing);
    }

    /// Reads all that the peer has written, at most `most` bytes at a time.
    fn hear(&mut self, peer: &Node, most: usize) {
        let packets = peer.connection.with(|state| std::mem::take(&mut state.written));
        self.connection.with(|state| {
            state.packets.extend(packets);
            state.comes = Comes::Packets(most);
        });
        self.settle();
    }

    fn written(&self) -> usize {
        self.connection.with(|state| state.written.len())
    }
}

#[tokio::test]
async fn in_a_conversation_it_asks_the_connection_itself_and_sleeps_then() {
    let mut node = Node::new(true);
    assert_eq!(node.settle(), 0, "nothing came");
    node.hear_much(true);
    assert_eq!(node.settle(), LOOKS_MAX);
    assert_eq!(node.settle(), 0, "woken for something else it does not look");
}

#[tokio::test]
async fn who_only_listens_sleeps() {
    let mut node = Node::new(true);
    node.hear_much(false);
    assert_eq!(node.settle(), 0);
}

#[tokio::test]
async fn what_comes_while_it_looks_is_read() {
    let mut node = Node::new(true);
    node.hear_much(true);
    for _ in 0..LOOKS_MAX / 2 {
        assert!(node.poll());
    }
    let read = node.connection.with(|state| state.read);
    node.hear_much(true);
    assert!(node.connection.with(|state| state.read) > read);
    assert_eq!(node.settle(), LOOKS_MAX, "it begins anew");
}

#[tokio::test]
async fn a_connection_that_nobody_sleeps_at_is_not_looked_at() {
    let mut node = Node::new(false);
    node.hear_much(true);
    assert_eq!(node.settle(), 0);
}

#[tokio::test]
async fn a_connection_that_takes_nothing_is_not_looked_at() {
    let mut node = Node::new(true);
    node.hear_much(true);
    assert!(node.poll() && node.poll(), "it looks");
    node.connection.with(|state| state.full = true);
    node.say();
    let written = node.written();
    assert_eq!(node.settle(), 1, "beside the write; it is woken when that can go on");
    node.connection.with(|state| state.full = false);
    assert_eq!(node.settle(), LOOKS_MAX, "and then it looks");
    assert!(node.written() > written);
}

#[tokio::test]
async fn a_connection_whose_write_has_failed_is_written_to_no_more_and_names_that_failure() {
    let mut node = Node::new(true);
    node.connection.with(|state| state.broken = true);
    node.say();
    node.settle();
    node.say();
    node.settle();
    assert_eq!(node.connection.with(|state| state.failed), 1);
    // The peer says nothing more.
    std::thread::sleep(Duration::from_millis(110));
    let polled = Pin::new(&mut node.driver).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready(), "the session ends with its connection");
    let ended = node.driver.channels.shared.ended().unwrap();
    let LinkCause::Io(error) = ended.cause() else { panic!("{ended}") };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_driver_on_another_thread_looks_once_more_for_what_it_was_not_told_of() {
    let mut node = Node::new(true);
    let link = Arc::clone(&node.driver.channels.shared);
    assert!(link.set_home(0), "as if it ran on another thread");
    // The producer takes the channel for queued, as it may when it sees no fence.
    node.sender.shared.set_queued();
    node.say();
    let written = node.written();
    node.poll();
    assert_eq!(node.written(), written, "it does not know of the word");
    while node.driver.recheck.is_some() {
        node.poll();
    }
    node.settle();
    assert!(node.written() > written);
}

#[tokio::test]
async fn the_report_calls_a_peer_silent_that_is_suspected() {
    let mut node = Node::new(true);
    let mut now = clock::now();
    assert_eq!(node.driver.report(now).state, "connected");
    for _ in 0..500 {
        now = now.after(Duration::from_secs(60));
        assert!(!matches!(node.driver.endpoint.poll(now), Action::End(_)));
    }
    assert_eq!(node.driver.report(now).state, "silent");
}
