//! tokio-util's `Framed` with its length-prefixed codec, used as its documentation says.
//!
//! Messages are encoded as ours are. A write leaves when the buffer holds `boundary` bytes: 8 KiB by
//! default, of which larger messages make many writes.

use std::any::Any;

use bytes::BytesMut;
use chunkcomm::codec::{decode, encode_into_vec};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::machine::now_ns;
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, FramedKind, FramedUse, Order};
use crate::harness::runtime::run_task;
use crate::harness::slices::{Contender, Slice};
use crate::message::{self, Message};
use crate::ours::{ended, taken};
use crate::with_message_of;

/// The package that the type is from.
pub const PACKAGE: &str = "tokio-util";

/// Bytes of a full packet of ours, as boundary of writes and room for reads: 64 KiB.
pub const BOUNDARY_BYTES: usize = 64 * 1024;

/// Bytes of a frame beyond its message that the codec lets pass.
const FRAME_SLACK_BYTES: usize = 64;

type Frames = Framed<TcpStream, LengthDelimitedCodec>;

fn framed(stream: TcpStream, kind: FramedKind) -> Result<Frames, Failure> {
    stream.set_nodelay(true).doing("connecting")?;
    let codec = LengthDelimitedCodec::builder()
        .max_frame_length(kind.bytes + FRAME_SLACK_BYTES)
        .new_codec();
    let Some(boundary) = kind.boundary else { return Ok(Framed::new(stream, codec)) };
    let mut frames = Framed::with_capacity(stream, codec, boundary);
    frames.set_backpressure_boundary(boundary);
    Ok(frames)
}

/// The near end.
pub struct NearFramed {
    frames: Option<Frames>,
    kind: FramedKind,
    end: EndId,
    next: u64,
}

impl NearFramed {
    /// Connects near and far end.
    ///
    /// # Errors
    /// If either side fails.
    pub fn open(bench: &mut Bench, kind: FramedKind) -> Result<Self, Failure> {
        let (end, frames) = bench.open(End::Framed(kind), |runtime, _, address| {
            let connected = runtime.block_on(TcpStream::connect(address)).doing("connecting")?;
            runtime.block_on(async { framed(connected, kind) })
        })?;
        Ok(Self { frames: Some(frames), kind, end, next: 0 })
    }
}

impl Contender for NearFramed {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let order = Order { first: self.next, messages: count, mark_every: 0 };
        let frames = taken(&mut self.frames, "sending")?;
        let FramedKind { bytes, used, .. } = self.kind;
        let ((frames, samples_ns), timing) = bench.timed(self.end, &order, |runtime| {
            let order = order.clone();
            with_message_of!(bytes, M => match used {
                FramedUse::OneWay => run_task(runtime, feed_all::<M>(frames, bytes, order))?,
                FramedUse::RoundTrip => run_task(runtime, go_round::<M>(frames, bytes, order))?,
                FramedUse::Payload => run_task(runtime, feed_payloads(frames, bytes, order))?,
            })
        })?;
        self.frames = Some(frames);
        self.next += count;
        Ok(Slice::new(count, &timing, samples_ns))
    }
}

type Fed = Result<(Frames, Vec<u64>), Failure>;

async fn feed_all<M: Message>(mut frames: Frames, bytes: usize, order: Order) -> Fed {
    let (mut message, mut encoded) = (M::with_size(bytes), Vec::with_capacity(bytes));
    for sequence in order.first..order.first + order.messages {
        message.stamp(sequence);
        encode(&message, &mut encoded)?;
        frames.feed(&encoded[..]).await.doing("feeding")?;
    }
    flush(&mut frames).await?;
    Ok((frames, Vec::new()))
}

async fn feed_payloads(mut frames: Frames, bytes: usize, order: Order) -> Fed {
    let mut payload = vec![0x5a; bytes];
    for sequence in order.first..order.first + order.messages {
        message::stamp(&mut payload, sequence);
        frames.feed(&payload[..]).await.doing("feeding")?;
    }
    flush(&mut frames).await?;
    Ok((frames, Vec::new()))
}

async fn go_round<M: Message>(mut frames: Frames, bytes: usize, order: Order) -> Fed {
    let (mut message, mut encoded) = (M::with_size(bytes), Vec::with_capacity(bytes));
    let mut samples_ns = Vec::with_capacity(order.messages as usize);
    for sequence in order.first..order.first + order.messages {
        message.stamp(sequence);
        let started_ns = now_ns();
        encode(&message, &mut encoded)?;
        frames.send(&encoded[..]).await.doing("sending")?;
        let answer: M = decode(&take(&mut frames).await?).doing("decoding")?;
        samples_ns.push(now_ns() - started_ns);
        if !answer.verify(sequence + 1, bytes) {
            return Err(Failure::wrong_message(sequence + 1));
        }
    }
    Ok((frames, samples_ns))
}

#[inline]
fn encode<M: Message>(message: &M, encoded: &mut Vec<u8>) -> Result<(), Failure> {
    encoded.clear();
    encode_into_vec(message, encoded).doing("encoding").map(drop)
}

async fn flush(frames: &mut Frames) -> Result<(), Failure> {
    futures_util::SinkExt::<&[u8]>::flush(frames).await.doing("flushing")
}

async fn take(frames: &mut Frames) -> Result<BytesMut, Failure> {
    frames.next().await.ok_or_else(ended)?.doing("receiving")
}

struct Far {
    frames: Option<Frames>,
    kind: FramedKind,
}

/// Opens the far end of [`NearFramed`].
///
/// # Errors
/// If the connection is not made.
pub fn far(kind: FramedKind, mut opening: Opening<'_>) -> Result<Box<dyn FarEnd>, Failure> {
    let listener = listen(&mut opening)?;
    let frames = opening.runtime.block_on(async {
        let (stream, _) = listener.accept().await.doing("accepting the near end")?;
        framed(stream, kind)
    })?;
    Ok(Box::new(Far { frames: Some(frames), kind }))
}

/// Listens on a free port, and sends the near end its address.
pub(super) fn listen(opening: &mut Opening<'_>) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind((opening.place.host.as_str(), 0));
    let listener = opening.runtime.block_on(bound).doing("listening")?;
    opening.announce(listener.local_addr().doing("asking for the port")?.to_string())?;
    Ok(listener)
}

impl FarEnd for Far {
    fn slice(&mut self, runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        let frames = taken(&mut self.frames, "receiving")?;
        let (FramedKind { bytes, used, .. }, order) = (self.kind, order.clone());
        let frames = with_message_of!(bytes, M => match used {
            FramedUse::OneWay => run_task(runtime, take_all::<M>(frames, bytes, order))?,
            FramedUse::RoundTrip => run_task(runtime, echo::<M>(frames, bytes, order))?,
            FramedUse::Payload => run_task(runtime, take_payloads(frames, bytes, order))?,
        })?;
        self.frames = Some(frames);
        Ok(Vec::new())
    }
}

async fn take_all<M: Message>(
    mut frames: Frames,
    bytes: usize,
    order: Order,
) -> Result<Frames, Failure> {
    for sequence in order.first..order.first + order.messages {
        let message: M = decode(&take(&mut frames).await?).doing("decoding")?;
        if !message.verify(sequence, bytes) {
            return Err(Failure::wrong_message(sequence));
        }
    }
    Ok(frames)
}

async fn take_payloads(mut frames: Frames, bytes: usize, order: Order) -> Result<Frames, Failure> {
    for sequence in order.first..order.first + order.messages {
        let payload = take(&mut frames).await?;
        if payload.len() != bytes || !message::verify(&payload, sequence) {
            return Err(Failure::wrong_message(sequence));
        }
    }
    Ok(frames)
}

async fn echo<M: Message>(
    mut frames: Frames,
    bytes: usize,
    order: Order,
) -> Result<Frames, Failure> {
    let mut encoded = Vec::with_capacity(bytes);
    for sequence in order.first..order.first + order.messages {
        let mut message: M = decode(&take(&mut frames).await?).doing("decoding")?;
        if !message.verify(sequence, bytes) {
            return Err(Failure::wrong_message(sequence));
        }
        message.stamp(sequence + 1);
        encode(&message, &mut encoded)?;
        frames.send(&encoded[..]).await.doing("answering")?;
    }
    Ok(frames)
}

/// Opens a connection that carries nothing; it lasts as long as the value.
///
/// # Errors
/// If no far end listens there.
pub async fn idle_connection(address: &str) -> Result<Box<dyn Any + Send>, Failure> {
    let stream = TcpStream::connect(address).await.doing("connecting")?;
    Ok(Box::new(framed(stream, FramedKind::IDLE)?))
}

/// Holds a connection that carries nothing, until its near end has gone.
pub(super) async fn hold(stream: TcpStream) {
    if let Ok(mut frames) = framed(stream, FramedKind::IDLE) {
        while let Some(Ok(_)) = frames.next().await {}
    }
}
