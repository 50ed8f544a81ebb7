//! What the ends of channels tell the driver of their link, and how it is
//! woken.

use super::large::LargeMemory;
use super::ring::Consumer;
use super::staging::TxShared;
use super::wakers::{Wakers, locked};
use super::waking::DriverWaker;
use crate::Address;
use crate::channel::Landing;
use crate::error::{LinkCause, LinkError};
use crate::explain::LinkReport;
use crate::proto::Time;
use crate::proto::attempts::Offer;
use crate::proto::hello::VERSION_MAX;
use crate::proto::limits::PACKET_BYTES_DEFAULT;
use crate::proto::outbox::OpenSpec;
use crate::proto::packet::Refusal;
use crate::stats::PeerStats;
use crate::transport::Transport;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use tokio::sync::oneshot;

/// What an end of a channel wants of the driver.
pub(crate) enum Command {
    /// A channel begins; its number is the next one.
    Open { id: u32, spec: Box<OpenSpec>, tx: Arc<TxShared>, ring: Consumer },
    /// Messages up to this number leave at once.
    Urgent { id: u32, until: u64, at: Time },
    /// A message waits for room behind those up to this number.
    NoRoom { id: u32, until: u64, at: Time },
    /// Messages up to this number leave; with `sync` the peer answers at once.
    Flush { id: u32, until: u64, at: Time, sync: bool },
    /// The sender is done after this many messages.
    End { id: u32, messages: u64, at: Time },
    /// A receiver took runs of this many bytes.
    Consumed { id: u32, bytes: u64 },
    /// A receiver has settled messages of its stream.
    Settled { id: u32 },
    /// A receiver waits for a large message that waits for that.
    LargeDemanded { id: u32 },
    /// A receiver took the large message in the link's memory.
    LargeTaken { id: u32 },
    /// A receiver took the last of its channel.
    Finished { id: u32 },
    /// A receiver wants only the messages that are on their way.
    Stop { id: u32 },
    /// A receiver was dropped.
    Terminate { id: u32 },
    /// An open is refused.
    Refuse { id: u32, refusal: Refusal, text: String },
    /// A receiver hands over to a landing, with what it had taken in already.
    Land { id: u32, landing: Box<dyn Landing>, taken: Vec<bytes::Bytes> },
    /// A receiver found a run that lies.
    Corrupt { id: u32 },
    /// Everything staged leaves, every channel ends, the session ends cleanly.
    Close,
    /// The session ends now.
    Abort(LinkError),
    /// What the link and its channels are doing.
    Explain { answer: oneshot::Sender<Box<LinkReport>> },
    /// Connection `attempt` is about to take the place of the one at hand.
    Offer { attempt: u32, answer: oneshot::Sender<(Offer, u64)> },
    /// Connection `attempt`; the peer says what it has received.
    Adopt { attempt: u32, received: u64, transport: Box<dyn Transport> },
}

#[derive(Default)]
struct Letters {
    staged: Vec<Notice>,
    commands: Vec<Command>,
    last_channel: u32,
    /// The driver is gone: commands are dropped.
    over: Option<LinkError>,
    /// Nothing may be opened any more.
    closing: Option<LinkError>,
    waiting_for_end: Wakers,
}

/// What a link's driver and the ends of its channels share.
pub(crate) struct LinkShared {
    pub(crate) peer: PeerInfo,
    /// Memory for large messages that are encoded.
    pub(crate) large_out: Arc<LargeMemory>,
    /// Memory for large messages that arrive.
    pub(crate) large_in: LargeMemory,
    mail: Mutex<Letters>,
    has_mail: AtomicBool,
    waker: OnceLock<DriverWaker>,
    /// What a channel's ring holds: a full packet with its header, and more while these are
    /// small.
    ring_bytes: AtomicUsize,
    /// The thread that always polls the driver (a token of it), or 0.
    home: AtomicUsize,
    stats: Mutex<PeerStats>,
    trouble: Mutex<Trouble>,
}

/// What goes wrong with the connections of a session that goes on.
#[derive(Default)]
struct Trouble {
    /// Why the last connection was lost, or the last attempt at another failed.
    last: Option<String>,
    /// How often there was any.
    count: u64,
    waiting: Wakers,
}

/// What is known of a peer from its hello.
#[derive(Debug, Clone)]
pub(crate) struct PeerInfo {
    pub(crate) name: String,
    pub(crate) incarnation: u128,
    /// The number of the session with it, drawn by the dialler.
    pub(crate) session: u64,
    pub(crate) beginning: Beginning,
    /// The newest version of the protocol that both ends speak.
    pub(crate) version: u16,
    pub(crate) message_bytes_max: u64,
    pub(crate) packet_bytes_max: usize,
}

/// The way in which a session began.
#[derive(Debug, Clone)]
pub(crate) enum Beginning {
    /// This node dialled the address.
    Dialled(Address),
    /// The peer dialled, from this address if it has one.
    Accepted(Option<Address>),
    /// The peer is this node.
    Local,
}

/// A channel staged something where there was nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notice {
    pub(crate) id: u32,
    pub(crate) at: Time,
    /// So many bytes, if the driver is woken behind everything that is runnable
    /// now; else 0.
    pub(crate) bytes: usize,
}

/// Mail as the driver takes it, to be handed back for reuse.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) staged: Vec<Notice>,
    pub(crate) commands: Vec<Command>,
}

/// A number that is the same on one thread and differs between threads.
#[inline]
pub(crate) fn thread_token() -> usize {
    thread_local!(static TOKEN: u8 = const { 0 });
    TOKEN.with(|token| std::ptr::from_ref(token) as usize)
}

impl LinkShared {
    pub(crate) fn new(peer: PeerInfo) -> Arc<LinkShared> {
        Arc::new(LinkShared {
            peer,
            large_out: Arc::default(),
            large_in: LargeMemory::default(),
            mail: Mutex::default(),
            has_mail: AtomicBool::new(false),
            waker: OnceLock::new(),
            ring_bytes: AtomicUsize::new(PACKET_BYTES_DEFAULT),
            home: AtomicUsize::new(0),
            stats: Mutex::default(),
            trouble: Mutex::default(),
        })
    }

    /// Returns a link without a session, for a stream that has no channel yet.
    pub(crate) fn without_session(
        peer: &str,
        address: Option<&Address>,
        message_bytes_max: u64,
    ) -> Arc<LinkShared> {
        let beginning = match address {
            Some(address) => Beginning::Dialled(address.clone()),
            None => Beginning::Accepted(None),
        };
        LinkShared::new(PeerInfo {
            name: peer.to_owned(),
            beginning,
            incarnation: 0,
            session: 0,
            version: VERSION_MAX,
            message_bytes_max,
            packet_bytes_max: PACKET_BYTES_DEFAULT,
        })
    }

    /// Of a link that nobody drives, to a peer that takes packets of so many bytes.
    #[cfg(test)]
    pub(crate) fn undriven(packet_bytes_max: usize) -> Arc<LinkShared> {
        LinkShared::new(PeerInfo {
            name: "peer".into(),
            incarnation: 1,
            session: 1,
            beginning: Beginning::Local,
            version: 1,
            message_bytes_max: 1 << 20,
            packet_bytes_max,
        })
    }

    /// The driver runs on this thread only, for as long as it is not said anew.
    /// True when that is a change.
    pub(crate) fn set_home(&self, token: usize) -> bool {
        // Written by the driver alone.
        if self.home.load(Ordering::Relaxed) == token {
            return false;
        }
        self.home.swap(token, Ordering::SeqCst) != token
    }

    /// This thread is the driver's: what is written here the driver sees in
    /// program order.
    #[inline]
    pub(crate) fn is_home(&self) -> bool {
        self.home.load(Ordering::Relaxed) == thread_token()
    }

    /// What a channel's ring holds, as a packet with its header.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_ring_bytes(&self, bytes: usize) {
        // Who reads it on another core is not disturbed for nothing.
        if self.ring_bytes() != bytes {
            self.ring_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that the driver runs in this task, which mail wakes from now on. A task's waker stays
    /// the same.
    #[inline]
    pub(crate) fn driver_runs(&self, waker: &Waker) {
        self.waker.get_or_init(|| DriverWaker::here(waker)).runs();
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    fn post(&self, put: impl FnOnce(&mut Letters)) {
        let mut mail = locked(&self.mail);
        if mail.over.is_some() {
            return;
        }
        put(&mut mail);
        drop(mail);
        self.tell();
    }

    fn tell(&self) {
        self.has_mail.store(true, Ordering::Release);
        self.wake();
    }

    /// As `command`; gives it back when the session has ended.
    pub(crate) fn try_command(&self, command: Command) -> Result<(), Command> {
        let mut mail = locked(&self.mail);
        if mail.over.is_some() {
            return Err(command);
        }
        mail.commands.push(command);
        drop(mail);
        self.tell();
        Ok(())
    }

    /// Nothing is opened any more; everything staged leaves, then the session
    /// ends.
    pub(crate) fn close(&self) {
        let closed = LinkError::new(self.peer.name.clone(), LinkCause::Closed);
        self.post(|mail| {
            mail.closing.get_or_insert(closed);
            mail.commands.push(Command::Close);
        });
    }

    /// A channel staged something where there was nothing.
    pub(crate) fn staged(&self, notice: Notice) {
        self.post(|mail| mail.staged.push(notice));
    }

    pub(crate) fn command(&self, command: Command) {
        self.post(|mail| mail.commands.push(command));
    }

    /// Begins a channel; `make` gets its number.
    ///
    /// # Errors
    ///
    /// The session has ended.
    pub(crate) fn open<R>(&self, make: impl FnOnce(u32) -> (Command, R)) -> Result<R, LinkError> {
        let mut mail = locked(&self.mail);
        if let Some(over) = mail.over.as_ref().or(mail.closing.as_ref()) {
            return Err(over.clone());
        }
        mail.last_channel += 1;
        let (command, result) = make(mail.last_channel);
        mail.commands.push(command);
        drop(mail);
        self.tell();
        Ok(result)
    }

    /// Takes the mail, if there is any.
    pub(crate) fn take_mail(&self, into: &mut Taken) -> bool {
        if !self.has_mail.load(Ordering::Acquire) {
            return false;
        }
        // Before the lock: who posts after it was let go says so again.
        self.has_mail.store(false, Ordering::Relaxed);
        let mut mail = locked(&self.mail);
        std::mem::swap(&mut mail.staged, &mut into.staged);
        std::mem::swap(&mut mail.commands, &mut into.commands);
        true
    }

    /// The session is over: nothing more is taken; who waits for that is woken.
    /// Returns what was still in the box.
    pub(crate) fn end(&self, error: &LinkError) -> Taken {
        let mut mail = locked(&self.mail);
        mail.over.get_or_insert_with(|| error.clone());
        let waiting = mail.waiting_for_end.take();
        let taken = Taken {
            staged: std::mem::take(&mut mail.staged),
            commands: std::mem::take(&mut mail.commands),
        };
        drop(mail);
        waiting.wake();
        taken
    }

    /// Why the session ended, if it has.
    pub(crate) fn ended(&self) -> Option<LinkError> {
        locked(&self.mail).over.clone()
    }

    /// Waits for the end of the session.
    pub(crate) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<LinkError> {
        let mut mail = locked(&self.mail);
        match &mail.over {
            Some(over) => Poll::Ready(over.clone()),
            None => {
                mail.waiting_for_end.add(context.waker());
                Poll::Pending
            }
        }
    }

    pub(crate) fn publish_stats(&self, stats: PeerStats) {
        *locked(&self.stats) = stats;
    }

    /// Ends the session, which is cut off, in favour of another.
    pub(crate) fn give_way(&self, sessions_max: usize) {
        let cause = LinkCause::GaveWay { sessions_max };
        self.command(Command::Abort(LinkError::new(self.peer.name.clone(), cause)));
    }

    /// Why there is no connection, or why the last one was lost.
    pub(crate) fn set_trouble(&self, trouble: String) {
        let mut kept = locked(&self.trouble);
        kept.last = Some(trouble);
        kept.count += 1;
        let waiting = kept.waiting.take();
        drop(kept);
        waiting.wake();
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        locked(&self.trouble).last.clone()
    }

    /// Waits until there was trouble more often than `seen`; says how often.
    pub(crate) fn poll_trouble(&self, seen: u64, context: &mut Context<'_>) -> Poll<u64> {
        let mut kept = locked(&self.trouble);
        if kept.count > seen {
            return Poll::Ready(kept.count);
        }
        kept.waiting.add(context.waker());
        Poll::Pending
    }

    /// What the link and its channels are doing; `None` when its driver does not
    /// answer any more.
    pub(crate) async fn explain(&self) -> Option<LinkReport> {
        let (answer, answered) = oneshot::channel();
        self.command(Command::Explain { answer });
        answered.await.ok().map(|report| *report)
    }

    /// Connection `attempt` is about to take the place of the one at hand: what
    /// becomes of it, and the last packet that came as a whole.
    pub(crate) async fn offer(&self, attempt: u32) -> (Offer, u64) {
        let (answer, answered) = oneshot::channel();
        self.command(Command::Offer { attempt, answer });
        answered.await.unwrap_or((Offer::Over, 0))
    }

    pub(crate) fn stats(&self) -> PeerStats {
        *locked(&self.stats)
    }
}
