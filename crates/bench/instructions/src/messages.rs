//! Messages alone and in bursts.

use chunkcomm::{Receiver, Redelivery, Sender};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::nodes::{Pair, pair};
use crate::{Local, Outcome, Rounds};

/// Name of the channels.
const THERE: &str = "there";
const BACK: &str = "back";

/// Most messages asked for in one `recv_many`.
const MANY: usize = 1024;

/// A message of 16 bytes.
#[derive(Clone, Serialize, Deserialize)]
struct Record {
    number: u64,
    value: u64,
}

/// Bytes of a long message: 1 KiB, of which 16 are the number and the text's length.
const LONG_BYTES: usize = 1 << 10;

/// A message of 1 KiB.
#[derive(Clone, Serialize, Deserialize)]
struct Long {
    number: u64,
    rest: String,
}

/// A number there and a number back.
struct Lone {
    _pair: Pair,
    there: Sender<u64>,
    here: Receiver<u64>,
}

pub(crate) fn lone() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(ping("memory:lone"))
}

pub(crate) fn lone_tcp() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(ping("127.0.0.1:0"))
}

async fn ping(address: &str) -> Outcome<Box<dyn Rounds>> {
    let pair = pair(address).await?;
    let there = pair.near.open::<u64>(&pair.to_far, THERE).await?;
    let (to_near, mut pings) = pair.far.accept::<u64>(THERE).await?;
    let mut pongs = pair.far.open::<u64>(&to_near, BACK).await?;
    let (_, here) = pair.near.accept::<u64>(BACK).await?;
    tokio::spawn(async move {
        // The program ends with its process.
        while let Ok(Some(number)) = pings.recv().await {
            if pongs.send(&(number + 1)).await.is_err() {
                return;
            }
        }
    });
    Ok(Box::new(Lone { _pair: pair, there, here }))
}

impl Rounds for Lone {
    fn run(&mut self, count: u64) -> Local<'_, ()> {
        Box::pin(async move {
            for number in 0..count {
                self.there.send(&number).await?;
                if self.here.recv().await? != Some(number + 1) {
                    return Err("the answer is wrong".into());
                }
            }
            Ok(())
        })
    }
}

/// Number of messages a call.
#[derive(Clone, Copy, PartialEq)]
enum Api {
    One,
    Many,
}

/// Messages one way, as fast as they go.
struct Burst<M> {
    _pair: Pair,
    sender: Sender<M>,
    receiver: Receiver<M>,
    message: M,
    api: Api,
}

pub(crate) fn burst_one() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(burst("memory:one", Record { number: 1, value: 2 }, Api::One))
}

pub(crate) fn burst_many() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(burst("memory:many", Record { number: 1, value: 2 }, Api::Many))
}

pub(crate) fn burst_long() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(burst("memory:long", Long { number: 1, rest: "7".repeat(LONG_BYTES - 16) }, Api::One))
}

async fn burst<M>(address: &str, message: M, api: Api) -> Outcome<Box<dyn Rounds>>
where
    M: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let pair = pair(address).await?;
    let sender = pair.near.open::<M>(&pair.to_far, THERE).await?;
    let (_, receiver) = pair.far.accept::<M>(THERE).await?;
    Ok(Box::new(Burst { _pair: pair, sender, receiver, message, api }))
}

pub(crate) fn redelivered() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(async {
        let pair = pair("memory:redelivered").await?;
        let to = Redelivery::to(&pair.address);
        let sender = pair.near.open_redelivering::<Record>(THERE, to)?;
        let (_, receiver) = pair.far.accept::<Record>(THERE).await?;
        let message = Record { number: 1, value: 2 };
        let burst = Burst { _pair: pair, sender, receiver, message, api: Api::One };
        Ok(Box::new(burst) as Box<dyn Rounds>)
    })
}

impl<M> Rounds for Burst<M>
where
    M: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    fn run(&mut self, count: u64) -> Local<'_, ()> {
        let Self { sender, receiver, message, api, .. } = self;
        let (message, api) = (&*message, *api);
        Box::pin(async move {
            let sending = async {
                if api == Api::Many {
                    sender.send_all((0..count).map(|_| message)).await?;
                } else {
                    for _ in 0..count {
                        sender.send(message).await?;
                    }
                }
                sender.flush().await?;
                Ok(())
            };
            let receiving = async {
                let (mut left, mut taken) = (count, Vec::with_capacity(MANY));
                while left > 0 {
                    if api == Api::Many {
                        taken.clear();
                        left -= receiver.recv_many(&mut taken, MANY).await? as u64;
                    } else {
                        receiver.recv().await?.ok_or("the channel ended")?;
                        left -= 1;
                    }
                }
                Outcome::Ok(())
            };
            tokio::try_join!(sending, receiving).map(|_| ())
        })
    }
}
