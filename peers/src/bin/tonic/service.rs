//! Message and service, as the generators of prost and tonic write them from
//!
//! ```text
//! message Message { bytes body = 1; }
//! service Messages {
//!   rpc Collect(stream Message) returns (Message);  // the answer has the number of messages
//!   rpc Answer(Message) returns (Message);
//! }
//! ```

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use chunkcomm_peers::{Bench, Calls, Checker, Doing, Failure, Goal, Setting};
use http::uri::PathAndQuery;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::client::Grpc as ClientGrpc;
use tonic::codec::{BufferSettings, Codec};
use tonic::codegen::Service;
use tonic::server::{ClientStreamingService, Grpc as ServerGrpc, NamedService, UnaryService};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

const COLLECT: &str = "/chunkcomm.peers.Messages/Collect";
const ANSWER: &str = "/chunkcomm.peers.Messages/Answer";

/// Bytes that the codec of a stream gathers before it passes them on; 8 and 32 KiB are its own
/// choice. A call of its own would pay for the memory each time.
const BUFFER_BYTES: usize = 1 << 20;

/// Room for the fields around a payload.
const OVERHEAD_BYTES: usize = 64;

/// A measured message.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Message {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) body: Bytes,
}

/// The codec of prost, with buffers of a chosen size.
#[derive(Clone, Copy)]
struct Buffered(BufferSettings);

impl Buffered {
    fn of(setting: &Setting) -> Self {
        let is_stream = matches!(setting.bench, Bench::OneWay | Bench::Bandwidth);
        Self(if setting.is_best() && is_stream {
            BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES)
        } else {
            BufferSettings::default()
        })
    }
}

impl Codec for Buffered {
    type Encode = Message;
    type Decode = Message;
    type Encoder = <ProstCodec<Message, Message> as Codec>::Encoder;
    type Decoder = <ProstCodec<Message, Message> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<Message, Message>::raw_encoder(self.0)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<Message, Message>::raw_decoder(self.0)
    }
}

/// Returns the largest message. Without a payload of 64 MiB the usual 4 MiB would do.
fn message_bytes_max(setting: &Setting) -> usize {
    setting.bytes + OVERHEAD_BYTES
}

/// Checks of the far end.
struct Checks {
    /// Absent while a stream is collected.
    in_order: Mutex<Option<Checker>>,
    calls: Calls,
    /// Whether requests come one at a time, and so in order.
    one_at_a_time: bool,
}

/// The service.
#[derive(Clone)]
pub(crate) struct Messages {
    checks: Arc<Checks>,
    codec: Buffered,
    message_bytes_max: usize,
}

impl Messages {
    pub(crate) fn new(goal: Arc<Goal>, setting: &Setting) -> Self {
        let checks = Checks {
            in_order: Mutex::new(Some(Checker::new(goal.clone(), setting.bytes))),
            calls: Calls::new(goal, setting.bytes),
            one_at_a_time: setting.bench == Bench::RoundTrip,
        };
        let message_bytes_max = message_bytes_max(setting);
        Self { checks: Arc::new(checks), codec: Buffered::of(setting), message_bytes_max }
    }
}

impl NamedService for Messages {
    const NAME: &'static str = "chunkcomm.peers.Messages";
}

type Answering<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Service<http::Request<Body>> for Messages {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let checks = self.checks.clone();
        let mut grpc =
            ServerGrpc::new(self.codec).max_decoding_message_size(self.message_bytes_max);
        Box::pin(async move {
            Ok(match request.uri().path() {
                COLLECT => grpc.client_streaming(Collect(checks), request).await,
                ANSWER => grpc.unary(Answer(checks), request).await,
                _ => Status::unimplemented("there is no such method").into_http(),
            })
        })
    }
}

struct Collect(Arc<Checks>);

impl ClientStreamingService<Message> for Collect {
    type Response = Message;
    type Future = Answering<Result<Response<Message>, Status>>;

    fn call(&mut self, request: Request<Streaming<Message>>) -> Self::Future {
        let checks = self.0.clone();
        Box::pin(async move {
            let checker = checks.in_order.lock().ok().and_then(|mut checker| checker.take());
            let mut checker = checker.ok_or_else(|| Status::aborted("a second stream"))?;
            let mut messages = request.into_inner();
            let mut count = 0u64;
            while let Some(message) = messages.message().await? {
                checker.take(&message.body);
                count += 1;
            }
            if let Ok(mut in_order) = checks.in_order.lock() {
                *in_order = Some(checker);
            }
            let body = Bytes::copy_from_slice(&count.to_le_bytes());
            Ok(Response::new(Message { body }))
        })
    }
}

struct Answer(Arc<Checks>);

impl UnaryService<Message> for Answer {
    type Response = Message;
    type Future = Answering<Result<Response<Message>, Status>>;

    fn call(&mut self, request: Request<Message>) -> Self::Future {
        let checks = self.0.clone();
        Box::pin(async move {
            let message = request.into_inner();
            if !checks.one_at_a_time {
                checks.calls.take(&message.body);
            } else if let Ok(mut in_order) = checks.in_order.lock()
                && let Some(checker) = &mut *in_order
            {
                checker.take(&message.body);
            }
            Ok(Response::new(message))
        })
    }
}

/// The client of the service.
#[derive(Clone)]
pub(crate) struct Client {
    grpc: ClientGrpc<Channel>,
    codec: Buffered,
}

impl Client {
    pub(crate) fn new(channel: Channel, setting: &Setting) -> Self {
        let grpc = ClientGrpc::new(channel).max_decoding_message_size(message_bytes_max(setting));
        Self { grpc, codec: Buffered::of(setting) }
    }

    /// Sends a stream of messages; waits until all are taken.
    pub(crate) async fn collect(
        &mut self,
        messages: impl Stream<Item = Message> + Send + 'static,
    ) -> Result<(), Failure> {
        self.grpc.ready().await.doing("waiting for the service")?;
        let path = PathAndQuery::from_static(COLLECT);
        let request = Request::new(messages);
        self.grpc.client_streaming(request, path, self.codec).await.doing("sending a stream")?;
        Ok(())
    }

    /// Calls the service.
    pub(crate) async fn answer(&mut self, message: Message) -> Result<Message, Failure> {
        self.grpc.ready().await.doing("waiting for the service")?;
        let path = PathAndQuery::from_static(ANSWER);
        let answer = self.grpc.unary(Request::new(message), path, self.codec).await;
        Ok(answer.doing("calling")?.into_inner())
    }
}
