//! The receiving end of a buffer: bytes go from the socket into it, and the end of the channel
//! becomes an end with a reason.

use std::sync::{Arc, Weak};

use bytemuck::Pod;
use chunkcomm::channel::Landing;
use chunkcomm::{BytesReceiver, Node, Peer, RecvError, host};
use tokio::sync::{oneshot, watch};

use crate::error::DeltaRecvError;
use crate::memory::Writer;
use crate::notices::{self, To};
use crate::proto::notice::Notice;
use crate::pump::{Coming, Progress};

/// The sender of a buffer, and the buffer's channel.
pub(crate) struct Origin {
    pub(crate) node: Node,
    pub(crate) peer: Peer,
    pub(crate) channel: String,
    pub(crate) id: u64,
    pub(crate) length_bytes: usize,
}

/// Lets all further bytes of `channel` land behind `writer`, as long as `interest` is held.
pub(crate) fn land<T: Pod>(
    channel: BytesReceiver,
    writer: Writer<T>,
    interest: Weak<()>,
    origin: Origin,
) -> Coming {
    let (progress, coming) = watch::channel(Progress::default());
    let progress = Arc::new(progress);
    let (outcome, outcome_heard) = oneshot::channel();
    let mut lander = Lander {
        writer: Some(writer),
        interest,
        progress: progress.clone(),
        outcome: Some(outcome),
    };
    lander.landed(0);
    channel.land(Box::new(lander));
    host::spawn(async move {
        let outcome = outcome_heard.await.ok();
        let landed_bytes = progress.borrow().bytes;
        if landed_bytes == origin.length_bytes {
            notices::tell(&origin.node, &origin.peer, To::Sender, origin.id, &Notice::Landed).await;
        } else {
            let end = origin.explain(outcome, landed_bytes).await;
            progress.send_modify(|progress| progress.end = Some(end));
        }
    });
    coming
}

impl Origin {
    /// Returns the error of a channel that ended after `landed_bytes`, before the last byte.
    async fn explain(
        self,
        outcome: Option<Result<(), RecvError>>,
        landed_bytes: usize,
    ) -> DeltaRecvError {
        let cause = match outcome {
            Some(Err(error)) => return DeltaRecvError::Channel(error),
            Some(Ok(())) => {
                match notices::soon(notices::hear(&self.node, To::Receiver, self.id)).await {
                    Some(Notice::Broken(cause)) => Some(cause),
                    _ => None,
                }
            }
            None => Some("the node was closed".to_owned()),
        };
        DeltaRecvError::Ended {
            peer: self.peer.name().to_owned(),
            channel: self.channel,
            landed_bytes,
            length_bytes: self.length_bytes,
            cause,
        }
    }
}

/// The driver's way to put bytes into the buffer.
struct Lander<T: Pod> {
    /// Taken when all has landed, so that the memory is free even if the channel ends later.
    writer: Option<Writer<T>>,
    interest: Weak<()>,
    progress: Arc<watch::Sender<Progress>>,
    /// Taken when all has landed or when the channel has ended, whichever comes first.
    outcome: Option<oneshot::Sender<Result<(), RecvError>>>,
}

impl<T: Pod> Lander<T> {
    /// Publishes `bytes` more bytes.
    fn landed(&mut self, bytes: usize) {
        let Some(writer) = &mut self.writer else { return };
        let landed = writer.published() + bytes;
        writer.publish(landed);
        let whole = landed == writer.len_bytes();
        if whole {
            self.writer = None;
        }
        self.progress.send_modify(|progress| progress.bytes = landed);
        if whole {
            self.over(Ok(()));
        }
    }

    fn over(&mut self, outcome: Result<(), RecvError>) {
        if let Some(word) = self.outcome.take() {
            // The task that waits for the outcome ends earlier only with its runtime.
            let _ = word.send(outcome);
        }
    }
}

impl<T: Pod> Landing for Lander<T> {
    fn room(&mut self) -> &mut [u8] {
        match &mut self.writer {
            Some(writer) if self.interest.strong_count() > 0 => writer.rest_mut(),
            _ => &mut [],
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.landed(bytes);
    }

    fn end(mut self: Box<Self>, outcome: Result<(), RecvError>) {
        // The memory is released before the end is reported.
        self.writer = None;
        self.over(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Reader, share};

    struct Ends {
        reader: Reader<u16>,
        interest: Arc<()>,
        coming: Coming,
        outcome: oneshot::Receiver<Result<(), RecvError>>,
    }

    fn lander(len: usize) -> (Box<Lander<u16>>, Ends) {
        let (writer, reader) = share(vec![0; len]);
        let (progress, coming) = watch::channel(Progress::default());
        let (outcome, heard) = oneshot::channel();
        let interest = Arc::new(());
        let lander = Lander {
            writer: Some(writer),
            interest: Arc::downgrade(&interest),
            progress: Arc::new(progress),
            outcome: Some(outcome),
        };
        (Box::new(lander), Ends { reader, interest, coming, outcome: heard })
    }

    #[test]
    fn bytes_land_in_order_and_the_last_ends_it() {
        let (mut lander, mut ends) = lander(3);
        lander.room()[..3].copy_from_slice(&[1, 1, 2]);
        lander.advance(3);
        assert_eq!((ends.reader.elements(), ends.coming.borrow().bytes), (&[0x0101][..], 3));
        assert!(ends.outcome.try_recv().is_err());
        assert_eq!(lander.room().len(), 3);
        lander.room().copy_from_slice(&[2, 3, 3]);
        lander.advance(3);
        assert_eq!(ends.reader.elements(), [0x0101, 0x0202, 0x0303]);
        assert!(matches!(ends.outcome.try_recv(), Ok(Ok(()))));
        assert!(lander.room().is_empty());
        // The channel ends later; no second outcome is sent.
        lander.end(Ok(()));
    }

    #[test]
    fn without_interest_there_is_no_room() {
        let (mut lander, ends) = lander(3);
        let forward = ends.interest.clone();
        drop(ends.interest);
        assert_eq!(lander.room().len(), 6);
        drop(forward);
        assert!(lander.room().is_empty());
    }

    #[tokio::test]
    async fn the_memory_is_free_when_all_has_landed_or_the_end_is_known() {
        let (mut whole, ends) = lander(2);
        whole.advance(4);
        assert_eq!(ends.reader.into_buffer().await, [0, 0]);
        let (torn, mut ends) = lander(2);
        torn.end(Ok(()));
        assert!(matches!(ends.outcome.try_recv(), Ok(Ok(()))));
        assert_eq!(ends.reader.into_buffer().await, [0, 0]);
    }
}
