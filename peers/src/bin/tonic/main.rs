//! gRPC by tonic: a client stream one way, unary calls otherwise. The payload is a `bytes` field.
//!
//! | | docs | best |
//! |---|---|---|
//! | runtime | `#[tokio::main]` | current-thread |
//! | one-way, bandwidth | a task, a channel, `ReceiverStream` | an iterator: always ready, so messages share frames |
//! | HTTP/2, codec | as they are | windows of 16 MiB, frames and buffers of 1 MiB |

mod service;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use bytes::Bytes;
use chunkcomm_peers::{
    Bench, Doing, Failure, IN_FLIGHT, Near, Order, Orders, Setting, Side, Stamp, System, verify,
};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};

use service::{Client, Message, Messages};

/// Messages that the channel of a stream holds.
const CHANNEL_MESSAGES: usize = 128;

/// Window of a stream and of a connection: enough that the sender never waits for it.
const WINDOW_BYTES: u32 = 16 << 20;

/// Largest frame; 16 KiB is the least and usual one.
const FRAME_BYTES: u32 = 1 << 20;

static TONIC: System = System {
    name: "tonic",
    version: || Ok(env!("VERSION_TONIC").to_owned()),
    lacks: &[],
    near,
    far,
};

fn main() {
    chunkcomm_peers::main(&TONIC);
}

fn runtime(setting: &Setting) -> Result<Runtime, Failure> {
    let mut builder =
        if setting.is_best() { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build().doing("starting a runtime")
}

fn far(setting: &Setting, _arguments: &[String], orders: Orders) -> Result<(), Failure> {
    let runtime = runtime(setting)?;
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = runtime.block_on(TcpListener::bind(local)).doing("listening")?;
    let messages = Messages::new(orders.goal(), setting);
    orders.take(&listener.local_addr().doing("asking for the port")?.to_string());
    let mut server = Server::builder();
    if setting.is_best() {
        server = server
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES);
    }
    let serve = async {
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        server.add_service(messages).serve_with_incoming(incoming).await
    };
    runtime.block_on(serve).doing("serving")
}

struct Stream {
    runtime: Runtime,
    client: Client,
    setting: Setting,
    stamp: Stamp,
    address: String,
    links: Vec<Channel>,
}

fn near(system: &'static System, setting: &Setting) -> Result<(), Failure> {
    let (near, address) = Near::start(system, setting, &[])?;
    let runtime = runtime(setting)?;
    let channel = runtime.block_on(connect(&address, setting))?;
    let client = Client::new(channel, setting);
    let (setting, stamp) = (setting.clone(), setting.stamp());
    near.run(&mut Stream { runtime, client, setting, stamp, address, links: Vec::new() })
}

async fn connect(address: &str, setting: &Setting) -> Result<Channel, Failure> {
    let mut endpoint = Endpoint::from_shared(format!("http://{address}")).doing("connecting")?;
    if setting.is_best() {
        endpoint = endpoint
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES);
    }
    endpoint.connect().await.doing("connecting")
}

/// Returns the messages of an order, made when they are asked for.
fn messages(order: Order, bytes: usize, stamp: Stamp) -> impl Iterator<Item = Message> + Send {
    let mut buffer = vec![0x5a; bytes];
    order.numbers().map(move |sequence| {
        stamp.write(&mut buffer, sequence);
        Message { body: Bytes::copy_from_slice(&buffer) }
    })
}

impl Stream {
    fn one_way(&self, order: Order) -> Result<(), Failure> {
        let all = messages(order, self.setting.bytes, self.stamp);
        let mut client = self.client.clone();
        if self.setting.is_best() {
            let sending = client.collect(tokio_stream::iter(all));
            return self.runtime.block_on(sending);
        }
        self.runtime.block_on(async {
            let (sender, receiver) = tokio::sync::mpsc::channel(CHANNEL_MESSAGES);
            tokio::spawn(async move {
                for message in all {
                    // The stream's end is told by the call itself.
                    if sender.send(message).await.is_err() {
                        return;
                    }
                }
            });
            client.collect(ReceiverStream::new(receiver)).await
        })
    }

    /// Calls with `width` under way: each of `width` tasks makes every `width`-th call.
    fn calls(&self, order: Order, width: u64) -> Result<Vec<u64>, Failure> {
        let (bytes, stamp) = (self.setting.bytes, self.stamp);
        self.runtime.block_on(async {
            let tasks: Vec<_> = (0..width.min(order.count))
                .map(|task| {
                    let numbers = order.numbers().skip(task as usize).step_by(width as usize);
                    tokio::spawn(call_all(self.client.clone(), numbers, bytes, stamp))
                })
                .collect();
            let mut samples_ns = Vec::with_capacity(order.count as usize);
            for task in tasks {
                samples_ns.extend(task.await.doing("calling")??);
            }
            Ok(samples_ns)
        })
    }
}

async fn call_all(
    mut client: Client,
    numbers: impl Iterator<Item = u64>,
    bytes: usize,
    stamp: Stamp,
) -> Result<Vec<u64>, Failure> {
    let mut buffer = vec![0x5a; bytes];
    let mut samples_ns = Vec::new();
    for sequence in numbers {
        stamp.write(&mut buffer, sequence);
        let body = Bytes::copy_from_slice(&buffer);
        let started = Instant::now();
        let answer = client.answer(Message { body }).await?;
        samples_ns.push(started.elapsed().as_nanos() as u64);
        verify(&answer.body, bytes, sequence).map_err(Failure::new)?;
    }
    Ok(samples_ns)
}

impl Side for Stream {
    fn slice(&mut self, order: Order) -> Result<Vec<u64>, Failure> {
        match self.setting.bench {
            Bench::RoundTrip => {
                let calls =
                    call_all(self.client.clone(), order.numbers(), self.setting.bytes, self.stamp);
                self.runtime.block_on(calls)
            }
            Bench::Calls => self.calls(order, IN_FLIGHT),
            _ => self.one_way(order).map(|()| Vec::new()),
        }
    }

    fn open_links(&mut self, count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            let link = self.runtime.block_on(connect(&self.address, &self.setting))?;
            self.links.push(link);
        }
        Ok(())
    }
}
