//! Increments of a buffer.

use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};

use crate::nodes::{Pair, pair};
use crate::{Local, Outcome, Rounds};

/// Bytes of an increment: 4 KiB.
const INCREMENT_BYTES: usize = 4 << 10;

/// Increments of a round.
pub(crate) const INCREMENTS: u64 = 64;

/// A round is one buffer, an increment after the other.
struct Increments {
    _pair: Pair,
    sender: DeltaSender<u8>,
    receiver: DeltaReceiver<u8>,
}

pub(crate) fn increments() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(async {
        let pair = pair("memory:increments").await?;
        let buffer = || vec![0_u8; INCREMENT_BYTES * INCREMENTS as usize];
        let increment = Increment::Fixed(INCREMENT_BYTES);
        let sender = async {
            let opened = DeltaSender::open(&pair.near, &pair.to_far, "delta", buffer(), increment);
            Outcome::Ok(opened.await?)
        };
        let receiver = async { Ok(DeltaReceiver::accept(&pair.far, "delta", buffer()).await?) };
        let (sender, receiver) = tokio::try_join!(sender, receiver)?;
        Ok(Box::new(Increments { _pair: pair, sender, receiver }) as Box<dyn Rounds>)
    })
}

impl Rounds for Increments {
    fn run(&mut self, count: u64) -> Local<'_, ()> {
        let Self { sender, receiver, .. } = self;
        Box::pin(async move {
            for _ in 0..count {
                let sending = async {
                    while let Some(chunk) = sender.next(INCREMENT_BYTES)? {
                        chunk.commit().await?;
                    }
                    sender.start().await?;
                    Ok(())
                };
                let receiving = async {
                    while receiver.next().await?.is_some() {}
                    receiver.start().await?;
                    Outcome::Ok(())
                };
                tokio::try_join!(sending, receiving)?;
            }
            Ok(())
        })
    }
}
