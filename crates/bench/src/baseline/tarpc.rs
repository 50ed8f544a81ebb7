//! tarpc over TCP with bincode, used as its documentation says: the service runs a task a request.

use std::any::Any;

use futures_util::StreamExt as _;
use tarpc::server::{self, Channel as _};
use tarpc::tokio_serde::formats::Bincode;
use tarpc::tokio_util::codec::LengthDelimitedCodec;
use tarpc::{client, context, serde_transport};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::framed::listen;
use crate::failure::{Doing, Failure};
use crate::flight::{Answering, Caller, fly};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, Order};
use crate::harness::slices::{Contender, Slice};
use crate::message::{Long, Message, Record, Short, Word};
use crate::with_message_of;

mod service {
    #![allow(missing_docs, unreachable_pub)] // written by the macro

    use crate::message::{Long, Record, Short, Word};

    #[tarpc::service]
    pub trait Echo {
        async fn word(message: Word) -> Option<Word>;
        async fn short(message: Short) -> Option<Short>;
        async fn record(message: Record) -> Option<Record>;
        async fn long(message: Long) -> Option<Long>;
    }
}

use service::{Echo, EchoClient};

#[derive(Clone)]
struct Server(Answering);

impl Echo for Server {
    async fn word(self, _: context::Context, message: Word) -> Option<Word> {
        self.0.answer(message).ok()
    }

    async fn short(self, _: context::Context, message: Short) -> Option<Short> {
        self.0.answer(message).ok()
    }

    async fn record(self, _: context::Context, message: Record) -> Option<Record> {
        self.0.answer(message).ok()
    }

    async fn long(self, _: context::Context, message: Long) -> Option<Long> {
        self.0.answer(message).ok()
    }
}

macro_rules! caller {
    ($type:ty, $method:ident) => {
        impl Caller<$type> for EchoClient {
            async fn call(&self, message: &$type) -> Result<$type, Failure> {
                let answer = self.$method(context::current(), message.clone()).await;
                let answer = answer.doing("calling")?;
                answer.ok_or_else(|| Failure::wrong_message(message.sequence()))
            }
        }
    };
}

caller!(Word, word);
caller!(Short, short);
caller!(Record, record);
caller!(Long, long);

/// The package that the service is from.
pub const PACKAGE: &str = "tarpc";

async fn connect(address: &str) -> Result<EchoClient, Failure> {
    let stream = TcpStream::connect(address).await.doing("connecting")?;
    stream.set_nodelay(true).doing("connecting")?;
    let framed = LengthDelimitedCodec::builder().new_framed(stream);
    let transport = serde_transport::new(framed, Bincode::default());
    Ok(EchoClient::new(client::Config::default(), transport).spawn())
}

/// Opens a connection that carries nothing; it lasts as long as the value.
///
/// # Errors
/// If no far end listens there.
pub async fn idle_connection(address: &str) -> Result<Box<dyn Any + Send>, Failure> {
    Ok(Box::new(connect(address).await?))
}

/// Holds a connection that carries nothing, until its near end has gone.
pub(super) async fn hold(stream: TcpStream) {
    // Without a call there is no answer, of any size.
    answer(stream, Server(Answering::new(0))).await;
}

/// The near end.
pub struct Tarpc {
    client: EchoClient,
    bytes: usize,
    in_flight: u64,
    end: EndId,
    next: u64,
}

impl Tarpc {
    /// Connects near and far end.
    ///
    /// # Errors
    /// If either side fails.
    pub fn open(bench: &mut Bench, bytes: usize, in_flight: u64) -> Result<Self, Failure> {
        let (end, client) = bench
            .open(End::Tarpc { bytes }, |runtime, _, address| runtime.block_on(connect(address)))?;
        Ok(Self { client, bytes, in_flight, end, next: 0 })
    }
}

impl Contender for Tarpc {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let order = Order { first: self.next, messages: count, mark_every: 0 };
        let width = (self.bytes, self.in_flight);
        let (samples_ns, timing) = bench.timed(self.end, &order, |runtime| {
            with_message_of!(self.bytes, M => fly::<M, _>(runtime, &self.client, width, &order))
        })?;
        self.next += count;
        Ok(Slice::new(count, &timing, samples_ns))
    }
}

struct Far(Answering);

/// Opens the far end of [`Tarpc`].
///
/// # Errors
/// If the connection is not made.
pub fn far(bytes: usize, mut opening: Opening<'_>) -> Result<Box<dyn FarEnd>, Failure> {
    let answering = Answering::new(bytes);
    let listener = listen(&mut opening)?;
    let (runtime, server) = (opening.runtime, Server(answering.clone()));
    let (stream, _) = runtime.block_on(listener.accept()).doing("accepting the near end")?;
    stream.set_nodelay(true).doing("accepting the near end")?;
    runtime.spawn(answer(stream, server));
    Ok(Box::new(Far(answering)))
}

async fn answer(stream: TcpStream, server: Server) {
    let framed = LengthDelimitedCodec::builder().new_framed(stream);
    let transport = serde_transport::new(framed, Bincode::default());
    let requests = server::BaseChannel::with_defaults(transport).execute(server.serve());
    requests
        .for_each(|request| async {
            tokio::spawn(request);
        })
        .await;
}

impl FarEnd for Far {
    fn slice(&mut self, runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        self.0.answer_all(runtime, order)?;
        Ok(Vec::new())
    }
}
