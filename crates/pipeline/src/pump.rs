//! The task that carries what is done in a buffer to a peer, for every sender and every forward.
//!
//! The task asks [`Sending`] for the bytes that may leave, hands them to the channel, and sleeps until
//! more is done. While the channel takes a message the writers go on, so the slower the link, the
//! larger the next message. Increments that come too fast are gathered without a timer: the task lets
//! others run and looks again.
//!
//! ```text
//!   wait for Ready ──▶ increments ──▶ wait for Landed ──▶ wait for the next round
//!         ▲                                                        │
//!         └────────────────────────────────────────────────────────┘
//! ```
//!
//! The first round needs no `Ready`: its bytes may leave before the receiver has agreed.

use std::time::Duration;

use bytemuck::Pod;
use bytes::{Buf, Bytes};
use chunkcomm::host::{self, Instant};
use chunkcomm::{BytesReceiver, BytesSender, Node, Peer, RecvError, SendError};
use tokio::sync::watch;

use crate::error::{DeltaSendError, Mismatch};
use crate::memory::{Carrier, Share, State};
use crate::proto::frame::{Header, Reply, cut_cause};
use crate::proto::ledger::Cursor;
use crate::proto::opening::{Opening, Shape};
use crate::proto::sending::{Now, Sending, Step};

/// Outcome of a transfer so far. Closed means that the task has ended.
#[derive(Debug, Default)]
pub(crate) struct Fated {
    /// Number of rounds that have landed.
    pub(crate) landed: u32,
    /// Reason why no further one will.
    pub(crate) error: Option<DeltaSendError>,
}

pub(crate) type Fate = watch::Receiver<Fated>;

/// Destination of a pump.
pub(crate) struct Target<'a> {
    pub(crate) node: &'a Node,
    pub(crate) peer: &'a Peer,
    pub(crate) channel: &'a str,
}

/// Origin of the bytes that a pump carries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The program commits them: they end when the owner of the buffer is gone.
    Commits,
    /// They land: they end with the landing.
    Landing,
}

/// How a pump sends.
pub(crate) struct Manner {
    pub(crate) source: Source,
    pub(crate) increment_bytes: usize,
    /// Whether less than an increment leaves when the link is idle.
    pub(crate) eager: bool,
}

/// Opens the channel, states the shape and starts the task.
///
/// `keep` is held as long as the task runs.
pub(crate) async fn start<T: Pod, K: Send + 'static>(
    target: Target<'_>,
    share: &Share<T>,
    manner: Manner,
    keep: K,
) -> Result<Fate, DeltaSendError> {
    let (peer, name) = (target.peer, target.channel);
    let channel = target.node.open_duplex_bytes(peer, name).await.map_err(DeltaSendError::Open)?;
    let (mut channel, replies, _) = channel.split();
    let (len, round) = {
        let state = share.state();
        (state.ledger().len(), state.round)
    };
    let shape = Shape::of::<T>(len / size_of::<T>());
    let increment_bytes = manner.increment_bytes as u64;
    let opening = Opening { shape: shape.clone(), increment_bytes };
    channel.send_slice(&opening.encode()).await.map_err(DeltaSendError::Channel)?;
    let sending = Sending::new(len, size_of::<T>(), manner.increment_bytes);
    let (fate_sender, fate) = watch::channel(Fated { landed: round - 1, error: None });
    let pump = Pump {
        carrier: share.carrier(),
        channel,
        replies,
        peer: peer.name().to_owned(),
        name: name.to_owned(),
        shape,
        source: manner.source,
        sending: sending.eager(manner.eager),
        first: round,
        landed: 0,
        ready: 1,
    };
    host::spawn(async move {
        let outcome = pump.run(&fate_sender).await;
        drop(keep);
        if let Err(error) = outcome {
            fate_sender.send_modify(|fate| fate.error = Some(error));
        }
    });
    Ok(fate)
}

/// Waits until `round` has landed.
pub(crate) async fn landed(
    fate: &mut Fate,
    round: u32,
    peer: &Peer,
    channel: &str,
) -> Result<(), DeltaSendError> {
    let over = |fate: &Fated| fate.landed >= round || fate.error.is_some();
    let fated = fate.wait_for(over).await;
    let error = match fated {
        Ok(fated) if fated.landed >= round => return Ok(()),
        Ok(fated) => fated.error.clone(),
        Err(_) => None,
    };
    let (peer, channel) = (peer.name().to_owned(), channel.to_owned());
    Err(error.unwrap_or(DeltaSendError::Stopped { peer, channel }))
}

struct Pump<T: Pod> {
    carrier: Carrier<T>,
    channel: BytesSender,
    replies: BytesReceiver,
    peer: String,
    name: String,
    shape: Shape,
    source: Source,
    sending: Sending,
    /// The buffer's round that is the first of this transfer.
    first: u32,
    /// Rounds of this transfer, counted from 1, that have landed and for which there is a buffer.
    landed: u32,
    ready: u32,
}

/// Reason why a transfer stops.
enum Stop {
    /// The channel failed.
    Failed(SendError),
    /// The receiver's direction failed, and with it the channel.
    Lost,
    /// The receiver said so, or is gone.
    Error(DeltaSendError),
}

impl From<SendError> for Stop {
    fn from(error: SendError) -> Self {
        Self::Failed(error)
    }
}

impl<T: Pod> Pump<T> {
    async fn run(mut self, fate: &watch::Sender<Fated>) -> Result<(), DeltaSendError> {
        match self.rounds(fate).await {
            Ok(()) => Ok(()),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Lost) => Err(DeltaSendError::Channel(self.channel.closed().await)),
            Err(Stop::Failed(error)) => Err(self.reason(error).await),
        }
    }

    async fn rounds(&mut self, fate: &watch::Sender<Fated>) -> Result<(), Stop> {
        for round in 1.. {
            let of_buffer = self.first + round - 1;
            self.until(|pump, state| pump.ready >= round || pump.is_last(state)).await?;
            if self.ready >= round {
                self.carry(round, of_buffer).await?;
            }
            if !self.sending.is_done() {
                return Err(Stop::Error(self.break_off().await?));
            }
            self.until(|pump, _| pump.landed >= round).await?;
            self.carrier.rest();
            fate.send_modify(|fate| fate.landed = of_buffer);
            self.until(|_, state| state.round > of_buffer || state.closing).await?;
            if self.carrier.share().state().round == of_buffer {
                return Ok(());
            }
            self.sending.reset();
        }
        Ok(())
    }

    /// Whether nothing more will be done in this round.
    fn is_last(&self, state: &State) -> bool {
        match self.source {
            Source::Commits => state.closing,
            Source::Landing => state.end.is_some(),
        }
    }

    /// Hands everything that is and will be done in a round to the channel.
    async fn carry(&mut self, round: u32, of_buffer: u32) -> Result<(), Stop> {
        let share = self.carrier.share().clone();
        let (mut bell, mut cursor) = (share.bell(), Cursor::default());
        let (mut sent_at, mut idle): (Option<Instant>, _) = (None, false);
        loop {
            bell.mark_unchanged();
            // The end is read before the bytes, since all are done before the end is.
            let last = self.is_last(&share.state());
            while let Some(range) = share.next_done(&mut cursor, of_buffer) {
                self.sending.handle_committed(range);
            }
            let since_sent = sent_at.map_or(Duration::MAX, Instant::elapsed);
            let since_sent_ns = u64::try_from(since_sent.as_nanos()).unwrap_or(u64::MAX);
            match self.sending.poll_send(Now { last, idle, since_sent_ns }) {
                Step::Send(range) => {
                    let offset = range.start as u64;
                    let bytes = share.view(range).expect("it is done in this round");
                    self.send(round, offset, bytes).await?;
                    (sent_at, idle) = (Some(Instant::now()), false);
                }
                Step::Done => return Ok(()),
                Step::Gather => host::yield_now().await,
                Step::Wait => tokio::select! {
                    biased;
                    _ = bell.changed() => {}
                    reply = self.replies.recv() => self.hear(reply)?,
                    error = self.channel.closed() => return Err(error.into()),
                },
                Step::WaitIdle => tokio::select! {
                    biased;
                    flushed = self.channel.flush() => { flushed?; idle = true; }
                    _ = bell.changed() => {}
                    reply = self.replies.recv() => self.hear(reply)?,
                },
            }
        }
    }

    /// Sends an increment, its bytes in parts where the peer takes only smaller messages.
    async fn send(&mut self, round: u32, offset: u64, mut bytes: Bytes) -> Result<(), SendError> {
        let header = Header::Increment { round, offset, bytes: bytes.len() as u64 };
        self.channel.send_slice(&header.encode()).await?;
        let mut part_bytes = bytes.len();
        while !bytes.is_empty() {
            let part = bytes.slice(..part_bytes.min(bytes.len()));
            let sent = part.len();
            match self.channel.send(part).await {
                Ok(()) => bytes.advance(sent),
                Err(SendError::TooLarge { bytes_max, .. })
                    if (1..part_bytes as u64).contains(&bytes_max) =>
                {
                    part_bytes = bytes_max as usize;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until `enough` returns true, and hears replies meanwhile.
    async fn until(&mut self, enough: impl Fn(&Self, &State) -> bool) -> Result<(), Stop> {
        let share = self.carrier.share().clone();
        let mut bell = share.bell();
        loop {
            if enough(self, &share.state()) {
                return Ok(());
            }
            tokio::select! {
                biased;
                reply = self.replies.recv() => self.hear(reply)?,
                _ = bell.changed() => {}
                error = self.channel.closed() => return Err(error.into()),
            }
        }
    }

    /// Takes in what the receiver said.
    fn hear(&mut self, reply: Result<Option<Bytes>, RecvError>) -> Result<(), Stop> {
        let (peer, channel) = (self.peer.clone(), self.name.clone());
        let reply = match reply {
            Ok(Some(bytes)) => Reply::decode(&bytes),
            Ok(None) => return Err(Stop::Error(DeltaSendError::Gone { peer, channel })),
            Err(_) => return Err(Stop::Lost),
        };
        let error = match reply {
            Ok(Reply::Landed(round)) => {
                self.landed = self.landed.max(round);
                return Ok(());
            }
            Ok(Reply::Ready(round)) => {
                self.ready = self.ready.max(round);
                self.landed = self.landed.max(round.saturating_sub(1));
                return Ok(());
            }
            Ok(Reply::Refused(theirs)) => {
                let (ours, theirs) = (self.shape.clone(), theirs.shape);
                DeltaSendError::Mismatch(Box::new(Mismatch { peer, channel, ours, theirs }))
            }
            Ok(Reply::Fault(cause)) => DeltaSendError::Refused { peer, channel, cause },
            Err(_) => {
                let cause = "its answer is not readable".to_owned();
                DeltaSendError::Refused { peer, channel, cause }
            }
        };
        Err(Stop::Error(error))
    }

    /// Returns the error of a transfer whose channel has failed: the receiver's reason, if it gave one.
    async fn reason(&mut self, failed: SendError) -> DeltaSendError {
        if matches!(failed, SendError::Terminated(_)) {
            // The receiver ended both directions, this one behind its reason.
            while let Ok(Some(reply)) = self.replies.recv().await {
                if let Err(Stop::Error(error)) = self.hear(Ok(Some(reply))) {
                    return error;
                }
            }
        }
        DeltaSendError::Channel(failed)
    }

    /// Sends the receiver the reason why the bytes stop before the end.
    async fn break_off(&mut self) -> Result<DeltaSendError, Stop> {
        let broken = self.carrier.share().state().end.clone();
        let cause = broken.as_ref().map_or_else(
            || "the sender was dropped before it was finished".to_owned(),
            ToString::to_string,
        );
        let cause = cut_cause(&cause).as_bytes();
        let header = Header::Broken { bytes: cause.len() };
        self.channel.send_slice(&header.encode()).await?;
        self.channel.send_slice_now(cause).await?;
        let (peer, channel) = (self.peer.clone(), self.name.clone());
        Ok(match broken {
            Some(error) => DeltaSendError::Source { peer, channel, source: Box::new(error) },
            None => DeltaSendError::Stopped { peer, channel },
        })
    }
}
