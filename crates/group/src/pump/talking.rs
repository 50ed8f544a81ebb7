//! The words of a pump: what it sends, and what it hears of the receiver.

use std::ops::Range;

use bytemuck::Pod;
use bytes::{Buf, Bytes};
use chunkcomm::{Loss, LossKind, RecvError, SendError};

use super::{Pump, Source, Stop};
use crate::error::{DeltaSendError, Mismatch};
use crate::proto::frame::{Header, Reply};

impl<T: Pod> Pump<T> {
    /// Sends the bytes at these positions, which are done, as one increment.
    pub(super) async fn send_increment(
        &mut self,
        round: u32,
        positions: Range<usize>,
    ) -> Result<(), SendError> {
        let (offset, bytes) = (positions.start as u64, positions.len() as u64);
        self.send_header(Header::Increment { round, offset, bytes }).await?;
        let mut rest = positions;
        while !rest.is_empty() {
            let place = self.sections.place(&rest);
            rest.start += place.len();
            let view = self.carrier.share().view(place).expect("it is done in this round");
            self.send_payload(view).await?;
        }
        Ok(())
    }

    pub(super) async fn send_header(&mut self, header: Header) -> Result<(), SendError> {
        match self.head {
            Some(head) => {
                self.channel.send_slice(&[head.encode(), header.encode()].concat()).await?;
                self.head = None;
            }
            None => self.channel.send_slice(&header.encode()).await?,
        }
        self.messages += 1;
        Ok(())
    }

    /// Sends the bytes of a frame, in parts where the peer takes only smaller messages.
    pub(super) async fn send_payload(&mut self, mut bytes: Bytes) -> Result<(), SendError> {
        let is_tracked = self.carrier.share().state().withheld;
        let mut part_bytes = bytes.len();
        while !bytes.is_empty() {
            let part = bytes.slice(..part_bytes.min(bytes.len()));
            let sent = part.len();
            match self.channel.send(part).await {
                Ok(()) => {
                    bytes.advance(sent);
                    self.messages += 1;
                    if is_tracked {
                        self.leaving.give(self.messages, sent);
                    }
                }
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

    /// Takes in what the receiver said.
    pub(super) fn hear(&mut self, reply: Result<Option<Bytes>, RecvError>) -> Result<(), Stop> {
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
            Ok(Reply::Fault(loss)) => DeltaSendError::Refused { peer, channel, loss },
            Err(_) => {
                let loss = Loss::new(LossKind::Refused, "its answer is not readable");
                DeltaSendError::Refused { peer, channel, loss }
            }
        };
        Err(Stop::Error(error))
    }

    /// Returns the error of a transfer whose channel has failed: the receiver's reason, if it gave one.
    pub(super) async fn reason(&mut self, failed: SendError) -> DeltaSendError {
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

    /// Sends the receiver the reason why the bytes stop before the end. A collective that flows knows whether it
    /// ends in order or fails, and ends its transfers itself.
    pub(super) async fn break_off(&mut self) -> Result<DeltaSendError, Stop> {
        if self.is_of_flow {
            self.until(|_, _| false).await?;
        }
        let broken = match self.source {
            Source::Region => self.carrier.share().state().end_of_any(&self.sections).cloned(),
            _ => self.carrier.share().state().end.clone(),
        };
        let dropped = || Loss::new(LossKind::Left, "the sender was dropped before it was finished");
        let loss = broken.clone().map_or_else(dropped, Loss::from).to_bytes();
        self.send_header(Header::Broken { bytes: loss.len() }).await?;
        self.channel.send_slice_now(&loss).await?;
        let (peer, channel) = (self.peer.clone(), self.name.clone());
        Ok(match broken {
            Some(error) => DeltaSendError::Source { peer, channel, source: Box::new(error) },
            None => DeltaSendError::Stopped { peer, channel },
        })
    }
}
