//! Mail from the ends of channels to the driver of their link, and the waking of that driver.

use super::inbox::RxShared;
use super::large::LargeMemory;
use super::opening::Opens;
use super::ring::Consumer;
use super::staging::TxShared;
use super::wakers::{Wakers, locked};
use super::waking::DriverWaker;
use crate::Address;
use crate::driver::landing::Landing;
use crate::error::{LinkCause, LinkError};
use crate::explain::{LinkReport, Way};
use crate::proto::Time;
use crate::proto::hello::{LAYERS_MAX, LayerVersion, VERSION_MAX};
use crate::proto::limits::PACKET_BYTES_DEFAULT;
use crate::proto::outbox::OpenSpec;
use crate::proto::packet::Refusal;
use crate::proto::resume::{Kind, Resume};
use crate::proto::tuning::without::Without;
use crate::stats::PeerStats;
use crate::transport::Transport;
use crate::transport::shown::Shown;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use tokio::sync::oneshot;

/// A command of a channel's end, or of the node, to the driver.
pub(crate) enum Command {
    /// A channel begins; its number is the next one. `back`: the inbox of its way back, if it is
    /// a duplex.
    Open {
        id: u32,
        spec: Box<OpenSpec>,
        tx: Arc<TxShared>,
        ring: Consumer,
        back: Option<Arc<RxShared>>,
    },
    /// Lets messages up to this number leave at once.
    Urgent { id: u32, until: u64, at: Time },
    /// A message waits for room behind those up to this number.
    NoRoom { id: u32, until: u64, at: Time },
    /// Lets messages up to this number leave; with `sync` the peer answers at once.
    Flush { id: u32, until: u64, at: Time, sync: bool },
    /// The sender is done after this many messages.
    End { id: u32, messages: u64, at: Time },
    /// A receiver took runs of this many bytes.
    Consumed { id: u32, bytes: u64 },
    /// The receiver of a channel with a backlog took this many bytes.
    ConsumedOfBacklog { id: u32, bytes: u64 },
    /// A receiver has settled messages of its stream.
    Settled { id: u32 },
    /// A receiver waits, as a held-back large message requires before it comes.
    LargeDemanded { id: u32 },
    /// A receiver took the large message in the link's memory.
    LargeTaken { id: u32 },
    /// A receiver took the last message of its channel.
    Finished { id: u32 },
    /// A receiver wants only the messages that are on their way.
    Stop { id: u32 },
    /// A receiver was dropped.
    Terminate { id: u32 },
    /// An open is refused.
    Refuse { id: u32, refusal: Refusal, text: String },
    /// A receiver hands over to a landing, with the messages that it had taken in already.
    Land { id: u32, landing: Box<dyn Landing>, taken: Vec<bytes::Bytes> },
    /// A receiver found a run that disagrees with its own lengths or count.
    Corrupt { id: u32 },
    /// Ends the session cleanly: everything staged leaves, and every channel ends.
    Close,
    /// Ends the session now.
    Abort(LinkError),
    /// Asks for a report of the link and its channels.
    Explain { answer: oneshot::Sender<Box<LinkReport>> },
    /// The peer offers another connection.
    Offered { word: Resume, answer: oneshot::Sender<Resume> },
    /// Goes on with that connection; the peer has received packets up to `received`.
    Adopt { attempt: u32, received: u64, transport: Box<dyn Transport> },
    /// The node `incarnation` has said hello on the connection that was dialled. The answer is the
    /// word to say.
    Greeted { attempt: u32, incarnation: u128, answer: oneshot::Sender<Option<Resume>> },
    /// The peer has answered that word.
    Answered { attempt: u32, answer: Resume, transport: Box<dyn Transport> },
    /// The dial came to nothing.
    DialFailed { attempt: u32, why: String },
}

#[derive(Default)]
struct Letters {
    staged: Vec<Notice>,
    commands: Vec<Command>,
    last_channel: u32,
    /// Why the session ended, once it has: commands are then dropped.
    over: Option<LinkError>,
    /// Why no channel may be opened any more, once that is so.
    closing: Option<LinkError>,
    /// Whether tasks that wait for the end may learn of it.
    end_told: bool,
    waiting_for_end: Wakers,
}

/// State that a link's driver shares with the ends of its channels.
pub(crate) struct LinkShared {
    pub(crate) peer: PeerInfo,
    /// Controllers that are switched off, for measuring only.
    pub(super) without: Without,
    /// Memory for large messages that are encoded.
    pub(crate) large_out: Arc<LargeMemory>,
    /// Memory for large messages that arrive.
    pub(crate) large_in: LargeMemory,
    mail: Mutex<Letters>,
    has_mail: AtomicBool,
    waker: OnceLock<DriverWaker>,
    /// Bytes that a channel's ring holds: a full packet with its header, and more while packets are
    /// small.
    ring_bytes: AtomicUsize,
    /// Token of the thread that always polls the driver, or 0.
    home: AtomicUsize,
    stats: Mutex<PeerStats>,
    trouble: Mutex<Trouble>,
    way: Mutex<Way>,
    pub(super) opens: Opens,
}

/// Trouble with the connections of a session that goes on.
#[derive(Default)]
struct Trouble {
    /// Why the last connection was lost, or the last attempt at another failed.
    last: Option<String>,
    /// Number of times that there was trouble.
    count: u64,
    waiting: Wakers,
}

/// The session with a peer. Unlike a [`Peer`](crate::Peer) it does not keep the node alive.
#[derive(Clone)]
pub struct Link(pub(crate) Arc<LinkShared>);

/// Links are equal when they are the same session of the same node.
impl PartialEq for Link {
    fn eq(&self, other: &Link) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Link {}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.0.peer.name).finish()
    }
}

/// The facts about a peer from its hello.
#[derive(Debug, Clone)]
pub(crate) struct PeerInfo {
    pub(crate) name: String,
    /// Whether the peer is the only node of its name.
    pub(crate) sole_name: bool,
    pub(crate) incarnation: u128,
    /// The number of the session with the peer, drawn by the dialler.
    pub(crate) session: u64,
    pub(crate) beginning: Beginning,
    /// The newest version of the protocol that both ends speak.
    pub(crate) version: u16,
    /// The version of each layer that started with this node.
    pub(crate) layers: [LayerVersion; LAYERS_MAX],
    pub(crate) message_bytes_max: u64,
    pub(crate) packet_bytes_max: usize,
    /// The peer's certificates at the first connection.
    pub(crate) shown: Shown,
}

impl PeerInfo {
    /// Whether both are sessions with one node: of its incarnation, which is its own claim, and by its
    /// certificate.
    pub(crate) fn is_as(&self, other: &PeerInfo) -> bool {
        self.incarnation == other.incarnation && self.shown.is_same(&other.shown)
    }
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

/// The notice that a channel staged something when it had nothing staged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notice {
    pub(crate) id: u32,
    pub(crate) at: Time,
    /// Number of staged bytes, if the driver is woken behind all tasks that are runnable now; else
    /// 0.
    pub(crate) bytes: usize,
}

/// Mail that the driver took; its vectors are handed back for reuse.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) staged: Vec<Notice>,
    pub(crate) commands: Vec<Command>,
}

/// Returns a number that is the same on one thread and differs between threads.
#[inline]
pub(crate) fn thread_token() -> usize {
    thread_local!(static TOKEN: u8 = const { 0 });
    TOKEN.with(|token| std::ptr::from_ref(token) as usize)
}

impl LinkShared {
    pub(crate) fn new(peer: PeerInfo, without: Without) -> Arc<LinkShared> {
        Arc::new(LinkShared {
            peer,
            without,
            large_out: Arc::default(),
            large_in: LargeMemory::default(),
            mail: Mutex::default(),
            has_mail: AtomicBool::new(false),
            waker: OnceLock::new(),
            ring_bytes: AtomicUsize::new(PACKET_BYTES_DEFAULT),
            home: AtomicUsize::new(0),
            stats: Mutex::default(),
            trouble: Mutex::default(),
            way: Mutex::default(),
            opens: Opens::default(),
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
        let peer = PeerInfo {
            name: peer.to_owned(),
            beginning,
            sole_name: false,
            incarnation: 0,
            session: 0,
            version: VERSION_MAX,
            layers: [LayerVersion::default(); LAYERS_MAX],
            message_bytes_max,
            packet_bytes_max: PACKET_BYTES_DEFAULT,
            shown: Shown::default(),
        };
        LinkShared::new(peer, Without::default())
    }

    /// Returns the state of a link without a driver, to a peer that takes packets of
    /// `packet_bytes_max`.
    #[cfg(test)]
    pub(crate) fn undriven(packet_bytes_max: usize) -> Arc<LinkShared> {
        let peer = PeerInfo {
            name: "peer".into(),
            sole_name: false,
            incarnation: 1,
            session: 1,
            beginning: Beginning::Local,
            version: 1,
            layers: [LayerVersion::default(); LAYERS_MAX],
            message_bytes_max: 1 << 20,
            packet_bytes_max,
            shown: Shown::default(),
        };
        LinkShared::new(peer, Without::default())
    }

    /// Notes that the driver runs only on this thread, until the next call. Returns whether that is
    /// a change.
    pub(crate) fn set_home(&self, token: usize) -> bool {
        // Only the driver writes it.
        if self.home.load(Ordering::Relaxed) == token {
            return false;
        }
        self.home.swap(token, Ordering::SeqCst) != token
    }

    /// Whether this is the driver's thread: the driver then sees writes from here in program order.
    #[inline]
    pub(crate) fn is_home(&self) -> bool {
        self.home.load(Ordering::Relaxed) == thread_token()
    }

    /// Returns the bytes that a channel's ring holds, counted as a packet with its header.
    #[inline]
    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring_bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_ring_bytes(&self, bytes: usize) {
        // A write would disturb readers on other cores, so an unchanged value is not written.
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

    #[inline]
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    #[inline]
    fn post(&self, put: impl FnOnce(&mut Letters)) {
        let mut mail = locked(&self.mail);
        if mail.over.is_some() {
            return;
        }
        put(&mut mail);
        drop(mail);
        self.tell();
    }

    #[inline]
    fn tell(&self) {
        self.has_mail.store(true, Ordering::Release);
        self.wake();
    }

    /// As `command`; returns the command when the session has ended.
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

    /// Lets no more channels open. [`LinkShared::close`] follows.
    pub(crate) fn open_no_more(&self) {
        let closed = LinkError::new(self.peer.name.clone(), LinkCause::Closed);
        locked(&self.mail).closing.get_or_insert(closed);
    }

    /// Lets no more channels open; everything staged leaves, then the session ends.
    pub(crate) fn close(&self) {
        self.open_no_more();
        self.command(Command::Close);
    }

    /// Posts the notice that a channel staged something when it had nothing staged.
    #[inline]
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
    #[inline]
    pub(crate) fn take_mail(&self, into: &mut Taken) -> bool {
        if !self.has_mail.load(Ordering::Acquire) {
            return false;
        }
        // Before the lock: mail posted after its release sets the flag again.
        self.has_mail.store(false, Ordering::Relaxed);
        let mut mail = locked(&self.mail);
        std::mem::swap(&mut mail.staged, &mut into.staged);
        std::mem::swap(&mut mail.commands, &mut into.commands);
        true
    }

    /// Ends the session: no more mail is taken. Returns the mail that was left.
    /// [`LinkShared::tell_end`] follows.
    pub(crate) fn end(&self, error: &LinkError) -> Taken {
        let mut mail = locked(&self.mail);
        mail.over.get_or_insert_with(|| error.clone());
        Taken {
            staged: std::mem::take(&mut mail.staged),
            commands: std::mem::take(&mut mail.commands),
        }
    }

    /// Lets the tasks that wait for the end of the session go on: no sender takes messages any
    /// more.
    pub(crate) fn tell_end(&self) {
        let mut mail = locked(&self.mail);
        mail.end_told = true;
        let waiting = mail.waiting_for_end.take();
        drop(mail);
        waiting.wake();
    }

    /// Returns why the session ended, if it has.
    pub(crate) fn ended(&self) -> Option<LinkError> {
        locked(&self.mail).over.clone()
    }

    /// Waits for the end of the session.
    pub(crate) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<LinkError> {
        let mut mail = locked(&self.mail);
        match &mail.over {
            Some(over) if mail.end_told => Poll::Ready(over.clone()),
            _ => {
                mail.waiting_for_end.add(context.waker());
                Poll::Pending
            }
        }
    }

    #[inline]
    pub(crate) fn publish_stats(&self, publish: impl FnOnce(&mut PeerStats)) {
        publish(&mut locked(&self.stats));
    }

    /// Ends the session, which is cut off, in favour of others.
    pub(crate) fn give_way(&self, cause: LinkCause) {
        self.command(Command::Abort(LinkError::new(self.peer.name.clone(), cause)));
    }

    /// Ends the session, which is cut off: the peer's successor is here.
    pub(crate) fn is_succeeded(&self) {
        let error = LinkError::new(self.peer.name.clone(), LinkCause::Restarted);
        self.command(Command::Abort(error));
    }

    /// Notes why there is no connection, or why the last one was lost.
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

    /// Notes the way of a connection that begins or goes on with the session.
    pub(crate) fn set_way(&self, way: Way) {
        *locked(&self.way) = way;
    }

    /// Returns the way of the last connection.
    pub(crate) fn way(&self) -> Way {
        *locked(&self.way)
    }

    /// Waits until there was trouble more often than `seen`; returns how often.
    pub(crate) fn poll_trouble(&self, seen: u64, context: &mut Context<'_>) -> Poll<u64> {
        let mut kept = locked(&self.trouble);
        if kept.count > seen {
            return Poll::Ready(kept.count);
        }
        kept.waiting.add(context.waker());
        Poll::Pending
    }

    /// Asks the driver for a report of the link and its channels; `None` when the driver no longer
    /// answers.
    pub(crate) async fn explain(&self) -> Option<LinkReport> {
        let (answer, answered) = oneshot::channel();
        self.command(Command::Explain { answer });
        answered.await.ok().map(|report| *report)
    }

    /// Offers the driver another connection, on which the peer says `word`. Returns the answer.
    pub(crate) async fn offered(&self, word: Resume) -> Resume {
        let (answer, answered) = oneshot::channel();
        self.command(Command::Offered { word, answer });
        let over = || word.answer(Kind::Unknown, 0, self.peer.incarnation);
        answered.await.unwrap_or_else(|_| over())
    }

    /// Tells the driver that node `incarnation` is there on connection `attempt`, which was
    /// dialled. Returns the word to say; `None` when the connection is not wanted any more.
    pub(crate) async fn greeted(&self, attempt: u32, incarnation: u128) -> Option<Resume> {
        let (answer, answered) = oneshot::channel();
        self.command(Command::Greeted { attempt, incarnation, answer });
        answered.await.ok().flatten()
    }

    pub(crate) fn stats(&self) -> PeerStats {
        *locked(&self.stats)
    }
}
