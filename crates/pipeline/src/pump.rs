//! The task that carries published bytes to a peer, for every sender and every forward.
//!
//! The task asks [`Sending`] for the bytes that may leave, hands them to the channel, and sleeps until
//! more is published. While the channel takes a message the writer goes on publishing, so the slower
//! the link, the larger the next message. Increments that come too fast are gathered without a timer:
//! the task lets others run and looks again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use bytes::{Buf, Bytes};
use chunkcomm::host::{self, Instant};
use chunkcomm::{BytesSender, Node, Peer, SendError};
use tokio::sync::watch;

use crate::error::{DeltaRecvError, DeltaSendError, Mismatch};
use crate::memory::Reader;
use crate::notices::{self, To};
use crate::proto::intervals::{Sending, Step};
use crate::proto::notice::Notice;
use crate::proto::opening::{Opening, Shape};

/// Progress of a buffer.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Number of bytes that were published.
    pub(crate) bytes: usize,
    /// Reason why no more will come, once it is known.
    pub(crate) end: Option<DeltaRecvError>,
}

/// Wakes tasks that wait for published bytes. Closed means that the writer is gone.
pub(crate) type Coming = watch::Receiver<Progress>;

/// Outcome of a transfer; `None` until it has ended.
pub(crate) type Fate = watch::Receiver<Option<Result<(), DeltaSendError>>>;

/// Destination of a pump.
pub(crate) struct Target<'a> {
    pub(crate) node: &'a Node,
    pub(crate) peer: &'a Peer,
    pub(crate) channel: &'a str,
}

/// Opens the channel, states the shape and starts the task.
///
/// `keep` is held as long as the task runs.
pub(crate) async fn start<T: Pod, K: Send + 'static>(
    target: Target<'_>,
    reader: Reader<T>,
    coming: Coming,
    increment_bytes: usize,
    keep: K,
) -> Result<Fate, DeltaSendError> {
    let mut channel =
        target.node.open_bytes(target.peer, target.channel).await.map_err(DeltaSendError::Open)?;
    let opening = Opening {
        shape: Shape::of::<T>(reader.len()),
        increment_bytes: increment_bytes as u64,
        id: notices::fresh_id(),
    };
    channel.send_slice(&opening.encode()).await.map_err(DeltaSendError::Channel)?;
    let (fate_sender, fate) = watch::channel(None);
    let pump = Pump {
        node: target.node.clone(),
        peer: target.peer.clone(),
        name: Arc::from(target.channel),
        sending: Sending::new(reader.len_bytes(), increment_bytes),
        opening,
    };
    host::spawn(async move {
        let outcome = pump.run(channel, reader, coming).await;
        drop(keep);
        fate_sender.send_replace(Some(outcome));
    });
    Ok(fate)
}

/// Waits for the end of a transfer.
pub(crate) async fn ended(
    fate: &mut Fate,
    peer: &Peer,
    channel: &str,
) -> Result<(), DeltaSendError> {
    match fate.wait_for(Option::is_some).await {
        Ok(end) => end.clone().expect("waited for"),
        Err(_) => Err(DeltaSendError::Stopped {
            peer: peer.name().to_owned(),
            channel: channel.to_owned(),
        }),
    }
}

struct Pump {
    node: Node,
    peer: Peer,
    name: Arc<str>,
    sending: Sending,
    opening: Opening,
}

impl Pump {
    /// Carries everything; the memory is released on return.
    async fn run<T: Pod>(
        mut self,
        mut channel: BytesSender,
        reader: Reader<T>,
        mut coming: Coming,
    ) -> Result<(), DeltaSendError> {
        let node = self.node.clone();
        let mut hearing = pin!(notices::hear(&node, To::Sender, self.opening.id));
        let failed = match self.carry(&mut channel, &reader, &mut coming).await {
            Ok(()) if !reader.is_whole() => return Err(self.break_off(&coming).await),
            Ok(()) => tokio::select! {
                biased;
                notice = &mut hearing => return self.outcome(notice, None),
                error = channel.closed() => error,
            },
            Err(error) => error,
        };
        let notice = match failed {
            // The receiver ended the channel: it may have sent its reason.
            SendError::Terminated(_) => notices::soon(hearing).await,
            _ => None,
        };
        self.outcome(notice, Some(failed))
    }

    /// Hands everything that is and will be published to the channel.
    async fn carry<T: Pod>(
        &mut self,
        channel: &mut BytesSender,
        reader: &Reader<T>,
        coming: &mut Coming,
    ) -> Result<(), SendError> {
        let mut sent_at: Option<Instant> = None;
        loop {
            // The end is read before the bytes, since all bytes are published before the end is.
            let last = coming.borrow_and_update().end.is_some() || coming.has_changed().is_err();
            let since_sent = sent_at.map_or(Duration::MAX, Instant::elapsed);
            let since_sent_ns = u64::try_from(since_sent.as_nanos()).unwrap_or(u64::MAX);
            match self.sending.poll_send(reader.published(), last, since_sent_ns) {
                Step::Send(range) => {
                    send_split(channel, reader.bytes(range)).await?;
                    sent_at = Some(Instant::now());
                }
                Step::Done => return Ok(()),
                Step::Gather => host::yield_now().await,
                Step::Wait => tokio::select! {
                    biased;
                    // An error means that the writer is gone, which the next turn sees.
                    _ = coming.changed() => {}
                    error = channel.closed() => return Err(error),
                },
            }
        }
    }

    /// Returns the outcome that follows from the receiver's notice and the channel's failure.
    fn outcome(
        &self,
        notice: Option<Notice>,
        failed: Option<SendError>,
    ) -> Result<(), DeltaSendError> {
        let (peer, channel) = (self.peer.name().to_owned(), self.name.to_string());
        match (notice, failed) {
            (Some(Notice::Landed), _) => Ok(()),
            (Some(Notice::Refused(theirs)), _) => {
                let (ours, theirs) = (self.opening.shape.clone(), theirs.shape);
                let mismatch = Mismatch { peer, channel, ours, theirs };
                Err(DeltaSendError::Mismatch(Box::new(mismatch)))
            }
            (_, Some(error)) => Err(DeltaSendError::Channel(error)),
            (_, None) => Err(DeltaSendError::Stopped { peer, channel }),
        }
    }

    /// Sends the receiver the reason why the bytes stop before the end.
    async fn break_off(&self, coming: &Coming) -> DeltaSendError {
        let broken = coming.borrow().end.clone();
        let cause = broken.as_ref().map_or_else(
            || "the sender was dropped before it was finished".to_owned(),
            ToString::to_string,
        );
        let notice = Notice::broken(&cause);
        notices::tell(&self.node, &self.peer, To::Receiver, self.opening.id, &notice).await;
        let (peer, channel) = (self.peer.name().to_owned(), self.name.to_string());
        match broken {
            Some(error) => DeltaSendError::Source { peer, channel, source: Box::new(error) },
            None => DeltaSendError::Stopped { peer, channel },
        }
    }
}

/// Sends `bytes` as one message, or in parts where the peer takes only smaller ones.
async fn send_split(channel: &mut BytesSender, mut bytes: Bytes) -> Result<(), SendError> {
    let mut part_bytes = bytes.len();
    while !bytes.is_empty() {
        let part = bytes.slice(..part_bytes.min(bytes.len()));
        let sent = part.len();
        match channel.send(part).await {
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
