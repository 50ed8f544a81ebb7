//! The task that carries the done bytes of a buffer to a peer, for every region, sender and forward.
//!
//! An increment's way, with the files:
//!
//! ```text
//! Part::commit          Extents             Pump::carry     Sending::poll_send
//! part.rs, memory/ ──▶  proto/extents.rs ─▶ this file ◀───▶ proto/sending.rs
//!                                               │ header, view of the memory
//!                                               ~
//! Region::wait          Extents             Lander          the socket: `driver/reading/slot.rs`
//! region.rs, memory/ ◀─ proto/extents.rs ◀─ landing.rs ◀──  of `chunkcomm`
//! ```
//!
//! ```text
//!   unready ──▶ carrying ──▶ sent ──▶ resting ──▶ the end
//!      ▲           │                     │
//!      │           '──▶ broken off       │
//!      └─────────────────────────────────┘
//! ```
//!
//! | state in a round | it waits for | then it |
//! |---|---|---|
//! | unready | `Ready`; the first round needs none, its bytes may leave before the receiver agrees | carries |
//! | carrying | done bytes, an idle link, time: as [`Sending`] says | sends them, and corrections |
//! | sent | `Landed`, behind an `End` if the round was cut | rests: the writers may begin the next round |
//! | resting | the next round of the buffer | is unready, or ends: the round was cut, or the owner is gone |
//! | broken off, also from unready | nothing: bytes are missing, and the owner is gone or nothing more lands | sends the reason as `Broken` |
//!
//! A transfer carries [`Sections`] of the buffer, mostly the whole of it. A region's transfer has one round, and ends
//! when that has landed.
//!
//! In each state the task hears replies, and stops on one that refuses, on the receiver's end, and when the
//! channel fails. While the channel takes a message the writers go on, so the slower the link, the larger
//! the next message.

use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use chunkcomm::host::{self, Instant};
use chunkcomm::{BytesReceiver, BytesSender, Node, Peer, SendError};
use tokio::sync::watch;

use crate::error::{DeltaSendError, NO_ROOM_AFTER};
use crate::memory::{Carrier, Hearer, Share, State};
use crate::proto::extents::Cursor;
use crate::proto::frame::Header;
use crate::proto::increment::{Costs, Increment};
use crate::proto::line::Head;
use crate::proto::meter::Meter;
use crate::proto::opening::{Opening, Shape};
use crate::proto::sections::Sections;
use crate::proto::sending::{GATHER_NS_MAX, Now, Sending, Step};
use crate::trouble::FlowEnd;
use leaving::Leaving;
use times::{LinkTimes, Production, ns_since};

mod handle;
mod leaving;
mod line;
mod talking;
mod times;

pub use handle::{Fated, PumpHandle};
pub(crate) use line::{Home, IdleLines, Line};

/// Destination of a pump.
pub struct Target<'a> {
    /// This node.
    pub node: &'a Node,
    /// The node that receives.
    pub peer: &'a Peer,
    /// The name that its program accepts.
    pub channel: &'a str,
}

/// Origin of the bytes that a pump carries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The program commits them: they end when the owner of the buffer is gone.
    Commits,
    /// They land: they end with the landing.
    Landing,
    /// They become done in any way, in one round: the transfer stops with the buffer's owner, and when
    /// nobody follows it.
    Region,
}

/// Manner in which a pump sends.
pub struct Manner {
    /// Origin of the bytes.
    pub source: Source,
    /// Number of bytes that leave together.
    pub increment_bytes: usize,
    /// Treatment of fewer.
    pub pace: Pace,
    /// The collective that the transfer is part of: it stops when nobody follows it.
    pub flow: Option<FlowEnd>,
    /// Whether it fails when the peer has no room for its channel, as that of a collective does.
    pub needs_room: bool,
}

/// Treatment of less than an increment.
pub enum Pace {
    /// It stays until the increment is whole.
    Whole,
    /// It leaves when the link is idle.
    Eager,
    /// It leaves when the link is idle and slow production leaves it alone; the increment follows the
    /// measured costs, of which these are the first.
    Measured(Costs),
}

impl Pace {
    /// Returns that of this increment, without a measurement.
    pub fn of(increment: Increment) -> Self {
        match increment {
            Increment::Fixed(_) => Self::Whole,
            Increment::Auto(_) => Self::Eager,
        }
    }
}

/// Opens the channel, states the shape of `sections` and starts the task.
///
/// `keep` is held as long as the task runs.
pub async fn start<T: Pod, K: Send + 'static>(
    target: Target<'_>,
    share: &Share<T>,
    sections: Sections,
    manner: Manner,
    keep: K,
) -> Result<PumpHandle, DeltaSendError> {
    let mut line = Line::open(&target).await?;
    let shape = Shape::of::<T>(sections.bytes() / size_of::<T>());
    let opening = Opening { shape, increment_bytes: manner.increment_bytes as u64 };
    line.channel.send_slice(&opening.encode()).await.map_err(DeltaSendError::Channel)?;
    line.messages += 1;
    Ok(run_on(line, &target, share, sections, manner, keep, None))
}

/// Starts the task on a line, which goes home when the transfer has landed.
pub(crate) fn start_on<T: Pod>(
    line: Line,
    target: &Target<'_>,
    share: &Share<T>,
    sections: Sections,
    manner: Manner,
    trip: (Head, Home),
) -> PumpHandle {
    run_on(line, target, share, sections, manner, (), Some(trip))
}

fn run_on<T: Pod, K: Send + 'static>(
    mut line: Line,
    target: &Target<'_>,
    share: &Share<T>,
    sections: Sections,
    manner: Manner,
    keep: K,
    trip: Option<(Head, Home)>,
) -> PumpHandle {
    let (head, home) = trip.unzip();
    let (peer, name) = (target.peer, target.channel);
    let (len, round) = (sections.bytes(), share.state().round);
    let shape = Shape::of::<T>(len / size_of::<T>());
    let mut sending = Sending::new(len, size_of::<T>(), manner.increment_bytes);
    if manner.flow.is_some() {
        sending.send_singly();
    }
    let mut meter = None;
    match manner.pace {
        Pace::Whole => {}
        Pace::Eager => sending.set_patience(GATHER_NS_MAX),
        Pace::Measured(costs) => {
            let measured = Meter::new(costs, len, size_of::<T>());
            sending.set_patience(measured.patience_ns());
            meter = Some(measured);
        }
    }
    let leaving = Arc::new(Leaving::of(&mut line.channel));
    let (fate, handle) =
        PumpHandle::new(peer, name, round, manner.increment_bytes, leaving.clone());
    let mut pump = Pump {
        carrier: share.carrier(),
        channel: line.channel,
        messages: line.messages,
        leaving,
        replies: line.replies,
        peer: peer.name().to_owned(),
        name: name.to_owned(),
        shape,
        source: manner.source,
        is_of_flow: manner.flow.is_some(),
        needs_room: manner.needs_room,
        sections,
        sending,
        meter,
        first: round,
        landed: 0,
        ready: 1,
        last: None,
        head,
    };
    let flow = manner.flow;
    let runtime = target.node.runtime().clone();
    host::spawn_on(target.node.runtime(), async move {
        let outcome = match pump.source {
            _ if flow.is_some() => pump.run_followed(&fate).await,
            Source::Commits | Source::Landing => pump.run(&fate).await,
            Source::Region => pump.run_followed(&fate).await,
        };
        let Pump { channel, messages, replies, carrier, last, .. } = pump;
        drop(carrier);
        match home.filter(|_| outcome.is_ok()) {
            Some(Home { idle, to }) => idle.give(to, Line { channel, replies, messages }, &runtime),
            None => drop((channel, replies)),
        }
        // A line is home before the caller hears, who may need one at once.
        if let Some((landed, is_over)) = last {
            fate.send_modify(|fate| (fate.landed, fate.is_over) = (landed, is_over));
        }
        drop(keep);
        if let Err(error) = outcome {
            if let Some(flow) = flow {
                flow.not_sent(fate.borrow().landed + 1, error.clone());
            }
            fate.send_modify(|fate| fate.error = Some(error));
        }
    });
    handle
}

struct Pump<T: Pod> {
    carrier: Carrier<T>,
    channel: BytesSender,
    /// Number of messages that the channel has taken.
    messages: u64,
    leaving: Arc<Leaving>,
    replies: BytesReceiver,
    peer: String,
    name: String,
    shape: Shape,
    source: Source,
    is_of_flow: bool,
    needs_room: bool,
    sections: Sections,
    sending: Sending,
    meter: Option<Meter>,
    /// The buffer's round that is the first of this transfer.
    first: u32,
    /// Rounds of this transfer, counted from 1, that have landed and for which there is a buffer.
    landed: u32,
    ready: u32,
    /// The buffer's round that was the last, once it has landed, and whether it was cut.
    last: Option<(u32, bool)>,
    /// The word in front of a transfer of a line, which leaves with its first header.
    head: Option<Head>,
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
    async fn run(&mut self, fate: &watch::Sender<Fated>) -> Result<(), DeltaSendError> {
        match self.rounds(fate).await {
            Ok(()) => Ok(()),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Lost) => Err(DeltaSendError::Channel(self.channel.closed().await)),
            Err(Stop::Failed(error)) => Err(self.reason(error).await),
        }
    }

    /// Runs while somebody follows, a region has its owner, and the channel has the room to open that it needs.
    async fn run_followed(&mut self, fate: &watch::Sender<Fated>) -> Result<(), DeltaSendError> {
        let (peer, channel) = (self.peer.clone(), self.name.clone());
        let (share, is_region) = (self.carrier.share().clone(), self.source == Source::Region);
        let (leaving, needs_room) = (Arc::clone(&self.leaving), self.needs_room);
        let closing = async {
            let mut bell = share.bell();
            while !share.state().closing {
                bell.changed().await;
            }
        };
        tokio::select! {
            biased;
            // Nobody hears what the memory says meanwhile.
            () = fate.closed() => Err(DeltaSendError::Stopped { peer, channel }),
            outcome = self.run(fate) => outcome,
            () = leaving.has_no_room_for(NO_ROOM_AFTER), if needs_room => Err(DeltaSendError::NoRoom { peer, channel }),
            () = closing, if is_region => Err(DeltaSendError::Stopped { peer, channel }),
        }
    }

    async fn rounds(&mut self, fate: &watch::Sender<Fated>) -> Result<(), Stop> {
        for round in 1.. {
            let of_buffer = self.first + round - 1;
            self.until(|pump, state| {
                let extents = state.extents();
                let is_given_up = pump.is_last(state) && !extents.is_cut() && !pump.is_whole(state);
                pump.ready >= round || (is_given_up && extents.done_bytes() == 0)
            })
            .await?;
            if self.ready >= round {
                self.carry(round, of_buffer, fate).await?;
                // An empty round that is forwarded lasts until its end has come.
                self.until(|pump, state| pump.is_whole(state) || pump.is_last(state)).await?;
            }
            let (is_cut, is_whole, bytes) = {
                let state = self.carrier.share().state();
                let extents = state.extents();
                let bytes =
                    if self.sections.is_whole() { extents.bytes() } else { self.sections.bytes() };
                (extents.is_cut(), self.is_whole(&state), bytes as u64)
            };
            if is_cut {
                let header = Header::End { round, bytes };
                self.channel.send_slice_now(&header.encode()).await?;
                self.messages += 1;
            } else if !is_whole || !self.sending.is_done() {
                return Err(Stop::Error(self.break_off().await?));
            } else if bytes == 0 {
                let header = Header::Increment { round, offset: 0, bytes };
                self.channel.send_slice_now(&header.encode()).await?;
                self.messages += 1;
            }
            self.until(|pump, _| pump.landed >= round).await?;
            self.carrier.rest();
            if is_cut || self.source == Source::Region {
                self.last = Some((of_buffer, is_cut));
                return Ok(());
            }
            fate.send_modify(|fate| (fate.landed, fate.is_over) = (of_buffer, false));
            self.until(|_, state| state.round > of_buffer || state.closing).await?;
            if self.carrier.share().state().round == of_buffer {
                return Ok(());
            }
            self.sending.reset();
        }
        Ok(())
    }

    /// Whether all bytes of the round are done.
    fn is_whole(&self, state: &State) -> bool {
        if self.sections.is_whole() {
            state.extents().is_whole()
        } else {
            self.sending.committed_bytes() == self.sections.bytes()
        }
    }

    /// Whether nothing more will be done in this round.
    fn is_last(&self, state: &State) -> bool {
        let is_over = match self.source {
            Source::Commits => state.closing,
            Source::Landing => state.end.is_some(),
            Source::Region => state.end_of_any(&self.sections).is_some(),
        };
        is_over || state.extents().is_cut()
    }

    /// Hands everything that is and will be done in a round to the channel.
    async fn carry(
        &mut self,
        round: u32,
        of_buffer: u32,
        fate: &watch::Sender<Fated>,
    ) -> Result<(), Stop> {
        let share = self.carrier.share().clone();
        let (mut bell, mut cursor) = (share.bell(), Cursor::default());
        let (mut link, mut production) = (LinkTimes::default(), Production::default());
        let mut corrected = 0;
        loop {
            bell.mark_unchanged();
            // The end is read before the bytes, since all are done before the end is.
            let (last, done_bytes) = {
                let state = share.state();
                (self.is_last(&state), state.extents().done_bytes())
            };
            self.take_in(&mut cursor, of_buffer, &mut production);
            // All of them are known before the last bytes are.
            while let Some((offset, bytes)) = share.correction(corrected, of_buffer) {
                let offset = offset as u64;
                let header = Header::Correction { round, offset, bytes: bytes.len() as u64 };
                link.handle_send(bytes.len());
                self.send_header(header).await?;
                self.send_payload(bytes).await?;
                corrected += 1;
            }
            let now = Now { last, idle: link.idle, since_sent_ns: ns_since(link.sent_at) };
            let step = self.sending.poll_send(now);
            let waits_idle = match step {
                Step::Send(range) => {
                    link.handle_send(range.len());
                    self.send_increment(round, range).await?;
                    link.sent_at = Some(Instant::now());
                    continue;
                }
                Step::Done => return Ok(()),
                Step::Gather => {
                    host::yield_now().await;
                    continue;
                }
                Step::WaitIdle => true,
                Step::Wait | Step::WaitFor(_) => self.meter.is_some() && link.is_measured(),
            };
            let left = match step {
                Step::WaitFor(ns) => Some(Duration::from_nanos(ns)),
                _ => None,
            };
            let next_bytes = self.sending.next_bytes(link.idle);
            // Bytes that are not of the sections are done, too.
            let ring_from = if self.sections.is_whole() {
                next_bytes
            } else {
                done_bytes + (next_bytes - self.sending.committed_bytes()).max(1)
            };
            if share.ring_from(ring_from) {
                continue;
            }
            if self.pause(&mut bell, waits_idle && !link.idle, left).await? {
                self.adapt(link.handle_idle(), &production, fate);
            }
        }
    }

    /// Takes in what became done.
    fn take_in(&mut self, cursor: &mut Cursor, of_buffer: u32, production: &mut Production) {
        while let Some(range) = self.carrier.share().next_done(cursor, of_buffer) {
            for positions in self.sections.positions(&range) {
                production.handle_committed(positions.len());
                self.sending.handle_committed(positions);
            }
        }
    }

    /// Waits until more is done, the receiver has said something, `left` has passed, or the link is
    /// idle, where that is waited for; returns whether it is.
    async fn pause(
        &mut self,
        bell: &mut Hearer,
        waits_idle: bool,
        left: Option<Duration>,
    ) -> Result<bool, Stop> {
        let timed = left.is_some();
        let left = host::sleep(left.unwrap_or_default());
        if waits_idle {
            tokio::select! {
                biased;
                flushed = self.channel.flush() => return Ok(flushed.map(|()| true)?),
                () = bell.changed() => {}
                reply = self.replies.recv() => self.hear(reply)?,
                () = left, if timed => {}
            }
        } else {
            tokio::select! {
                biased;
                () = bell.changed() => {}
                reply = self.replies.recv() => self.hear(reply)?,
                error = self.channel.closed() => return Err(error.into()),
                () = left, if timed => {}
            }
        }
        Ok(false)
    }

    /// Takes in a measured message, and sets the increment to the best one.
    fn adapt(
        &mut self,
        message: Option<(usize, u64)>,
        production: &Production,
        fate: &watch::Sender<Fated>,
    ) {
        let (Some(meter), Some((bytes, elapsed_ns))) = (&mut self.meter, message) else { return };
        meter.handle_sent(bytes, elapsed_ns);
        meter.handle_produced(production.bytes, ns_since(production.since));
        let increment_bytes = meter.increment_bytes();
        self.sending.set_increment(increment_bytes);
        self.sending.set_patience(meter.patience_ns());
        fate.send_if_modified(|fate| {
            fate.increment_bytes = increment_bytes;
            // Nobody waits for it.
            false
        });
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
                () = bell.changed() => {}
                error = self.channel.closed() => return Err(error.into()),
            }
        }
    }
}
