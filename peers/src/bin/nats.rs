//! NATS: `async-nats` with a `nats-server` between the two ends, which may run on the cores of both.
//!
//! | | docs | best |
//! |---|---|---|
//! | runtime | `#[tokio::main]` | current-thread |
//! | one-way | `publish`, a window | the same, longer queues |
//! | round-trip, calls | `request` and its reply | `publish` both ways, one subscription for all answers |
//! | bandwidth | pieces of the server's 1 MiB | the server takes whole payloads |
//!
//! The server drops the messages of a receiver that is too slow, and so does the client: the far end
//! therefore returns credits to the near end.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, Subscriber};
use bytes::Bytes;
use chunkcomm_peers::{
    Bench, Calls, Checker, Doing, Failure, IN_FLIGHT, Near, Order, Orders, Setting, Side, Stamp,
    System, die_with_parent, fail, pin_to, this_program, verify,
};
use futures_util::StreamExt as _;
use tokio::runtime::{Builder, Runtime};

/// Subjects of messages, of answers without a reply subject, and of credits.
const MESSAGE: &str = "peers.message";
const ANSWER: &str = "peers.answer";
const CREDIT: &str = "peers.credit";

/// Messages on their way that no credit has come back for: half of what a subscription holds.
const WINDOW_MESSAGES: usize = 32 << 10;

/// Bytes on their way: a quarter of what the server holds for a receiver.
const WINDOW_BYTES: usize = 16 << 20;

/// Largest message of a server without further settings.
const DOCS_PAYLOAD_BYTES: usize = 1 << 20;

/// Time for the server to start.
const START_MAX: Duration = Duration::from_secs(10);

static NATS: System = System { name: "nats", version, lacks: &[], near, far };

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("--server") => become_server(&arguments[2..]),
        _ => chunkcomm_peers::main(&NATS),
    }
}

fn version() -> Result<String, Failure> {
    let output = Command::new("nats-server").arg("--version").output();
    let output = output.doing("nats-server (apt-get install nats-server)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let server = text.trim().rsplit('v').next().unwrap_or_default().to_owned();
    Ok(format!("{server}, async-nats {}", env!("VERSION_ASYNC_NATS")))
}

/// Replaces this process by the server, on these cores. Its settings come on stdin.
fn become_server(cores: &[String]) {
    die_with_parent();
    let cores: Vec<usize> = cores.iter().filter_map(|core| core.parse().ok()).collect();
    if !cores.is_empty() && pin_to(&cores).is_err() {
        fail("the server is not pinned");
    }
    let error = Command::new("nats-server").args(["-c", "/dev/stdin"]).exec();
    fail(&format!("nats-server (apt-get install nats-server): {error}"));
}

/// Starts a server; returns also its address.
fn start_server(setting: &Setting) -> Result<(Child, String), Failure> {
    version()?;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = port.doing("looking for a port")?.to_string();
    let mut lines = format!("listen: \"{address}\"\n");
    if payload_bytes(setting) > DOCS_PAYLOAD_BYTES {
        let bytes = setting.bytes;
        lines += &format!("max_payload: {bytes}\nmax_pending: {}\n", 4 * bytes);
    }
    let cores = [setting.near_core, setting.far_core].into_iter().flatten();
    let mut server = this_program()?
        .arg("--server")
        .args(cores.map(|core| core.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .doing("starting nats-server")?;
    if let Some(mut stdin) = server.stdin.take() {
        stdin.write_all(lines.as_bytes()).doing("setting nats-server up")?;
    }
    let started = Instant::now();
    while let Err(error) = TcpStream::connect(&address) {
        if started.elapsed() > START_MAX {
            return Err(Failure::new(format!("nats-server does not answer: {error}")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok((server, address))
}

fn runtime(setting: &Setting) -> Result<Runtime, Failure> {
    let mut builder =
        if setting.is_best() { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build().doing("starting a runtime")
}

async fn connect(address: &str, setting: &Setting) -> Result<Client, Failure> {
    let mut options = ConnectOptions::new();
    if setting.is_best() && setting.bench != Bench::Idle {
        options = options.client_capacity(WINDOW_MESSAGES).request_timeout(None);
    }
    options.connect(address).await.doing("connecting")
}

/// Waits until the server has taken all that this client said: subscriptions, above all.
async fn settle(client: &Client) -> Result<(), Failure> {
    let inbox = client.new_inbox();
    let mut own = client.subscribe(inbox.clone()).await.doing("subscribing")?;
    client.publish(inbox, Bytes::new()).await.doing("publishing")?;
    next(&mut own).await.map(|_| ())
}

async fn next(subscriber: &mut Subscriber) -> Result<async_nats::Message, Failure> {
    subscriber.next().await.ok_or_else(|| Failure::new("the server is gone"))
}

/// Returns the bytes of a piece: most messages have one.
fn payload_bytes(setting: &Setting) -> usize {
    if setting.is_best() { setting.bytes } else { setting.bytes.min(DOCS_PAYLOAD_BYTES) }
}

/// Returns the pieces after which a credit is given: two of them are a window.
fn credit_pieces(setting: &Setting) -> u64 {
    (WINDOW_BYTES / payload_bytes(setting).max(1)).clamp(2, WINDOW_MESSAGES) as u64 / 2
}

// ---- The far end.

fn far(setting: &Setting, arguments: &[String], orders: Orders) -> Result<(), Failure> {
    let address = arguments.first().ok_or_else(|| Failure::new("no address of a server"))?;
    runtime(setting)?.block_on(async {
        let client = connect(address, setting).await?;
        let messages = client.subscribe(MESSAGE).await.doing("subscribing")?;
        settle(&client).await?;
        let goal = orders.goal();
        let in_order = Checker::new(goal.clone(), setting.bytes);
        orders.take(address);
        match setting.bench {
            Bench::RoundTrip => answer(&client, messages, in_order).await,
            Bench::Calls => answer_calls(&client, messages, Calls::new(goal, setting.bytes)).await,
            _ => take(&client, messages, in_order, setting).await,
        }
    })
}

async fn take(
    client: &Client,
    mut messages: Subscriber,
    mut checker: Checker,
    setting: &Setting,
) -> Result<(), Failure> {
    let (mut pieces, credit) = (0, credit_pieces(setting));
    let mut whole = Vec::new();
    let in_pieces = payload_bytes(setting) < setting.bytes;
    loop {
        let message = next(&mut messages).await?;
        pieces += 1;
        if pieces % credit == 0 {
            client.publish(CREDIT, Bytes::new()).await.doing("giving a credit")?;
        }
        if !in_pieces {
            checker.take(&message.payload);
            continue;
        }
        whole.extend_from_slice(&message.payload);
        if whole.len() >= setting.bytes {
            checker.take(&whole);
            whole.clear();
        }
    }
}

async fn answer(
    client: &Client,
    mut messages: Subscriber,
    mut checker: Checker,
) -> Result<(), Failure> {
    loop {
        let message = next(&mut messages).await?;
        checker.check(&message.payload);
        reply(client, message).await?;
        checker.done();
    }
}

async fn answer_calls(
    client: &Client,
    mut messages: Subscriber,
    calls: Calls,
) -> Result<(), Failure> {
    loop {
        let message = next(&mut messages).await?;
        calls.take(&message.payload);
        reply(client, message).await?;
    }
}

async fn reply(client: &Client, message: async_nats::Message) -> Result<(), Failure> {
    let subject = message.reply.unwrap_or_else(|| ANSWER.into());
    client.publish(subject, message.payload).await.doing("answering")
}

// ---- The near end.

fn near(system: &'static System, setting: &Setting) -> Result<(), Failure> {
    let (server, address) = start_server(setting)?;
    let (mut near, _) = Near::start(system, setting, std::slice::from_ref(&address))?;
    near.keep(server);
    let runtime = runtime(setting)?;
    let (client, credits, answers) = runtime.block_on(async {
        let client = connect(&address, setting).await?;
        let credits = client.subscribe(CREDIT).await.doing("subscribing")?;
        let answers = client.subscribe(ANSWER).await.doing("subscribing")?;
        settle(&client).await?;
        Ok((client, credits, answers))
    })?;
    let stamp = setting.stamp();
    let setting = setting.clone();
    let mut publisher = Publisher { client, credits, answers, setting, stamp, pieces: 0 };
    near.run(&mut Running { runtime, publisher: &mut publisher, address, links: Vec::new() })
}

struct Publisher {
    client: Client,
    credits: Subscriber,
    answers: Subscriber,
    setting: Setting,
    stamp: Stamp,
    /// Number of pieces published.
    pieces: u64,
}

impl Publisher {
    fn message(&self, buffer: &mut [u8], sequence: u64) -> Bytes {
        self.stamp.write(buffer, sequence);
        Bytes::copy_from_slice(buffer)
    }

    async fn one_way(&mut self, order: Order) -> Result<(), Failure> {
        let mut buffer = vec![0x5a; self.setting.bytes];
        let (piece_bytes, credit) = (payload_bytes(&self.setting), credit_pieces(&self.setting));
        for sequence in order.numbers() {
            let mut message = self.message(&mut buffer, sequence);
            while !message.is_empty() {
                let piece = message.split_to(piece_bytes.min(message.len()));
                self.client.publish(MESSAGE, piece).await.doing("publishing")?;
                self.pieces += 1;
                // The first of the two credits of a window is there from the beginning.
                if self.pieces.is_multiple_of(credit) && self.pieces > credit {
                    next(&mut self.credits).await?;
                }
            }
        }
        // Between slices a current-thread runtime does not send.
        self.client.flush().await.doing("flushing")
    }

    /// Publishes with `width` messages under way. Answers come in the order of their messages.
    async fn ask(&mut self, order: Order, width: u64) -> Result<Vec<u64>, Failure> {
        let mut buffer = vec![0x5a; self.setting.bytes];
        let mut started = Vec::with_capacity(order.count as usize);
        let mut samples_ns = Vec::with_capacity(order.count as usize);
        let mut asked = order.first;
        for sequence in order.numbers() {
            while asked < order.first + order.count && asked < sequence + width {
                let message = self.message(&mut buffer, asked);
                started.push(Instant::now());
                self.client.publish(MESSAGE, message).await.doing("publishing")?;
                asked += 1;
            }
            let answer = next(&mut self.answers).await?;
            let asked_at = started[(sequence - order.first) as usize];
            samples_ns.push(asked_at.elapsed().as_nanos() as u64);
            verify(&answer.payload, buffer.len(), sequence).map_err(Failure::new)?;
        }
        Ok(samples_ns)
    }

    /// Requests with `width` under way: each of `width` tasks makes every `width`-th request.
    async fn request(&self, order: Order, width: u64) -> Result<Vec<u64>, Failure> {
        let tasks: Vec<_> = (0..width.min(order.count))
            .map(|task| {
                let numbers = order.numbers().skip(task as usize).step_by(width as usize);
                let (bytes, stamp) = (self.setting.bytes, self.stamp);
                tokio::spawn(request_all(self.client.clone(), numbers, bytes, stamp))
            })
            .collect();
        let mut samples_ns = Vec::with_capacity(order.count as usize);
        for task in tasks {
            samples_ns.extend(task.await.doing("requesting")??);
        }
        Ok(samples_ns)
    }
}

async fn request_all(
    client: Client,
    numbers: impl Iterator<Item = u64>,
    bytes: usize,
    stamp: Stamp,
) -> Result<Vec<u64>, Failure> {
    let mut buffer = vec![0x5a; bytes];
    let mut samples_ns = Vec::new();
    for sequence in numbers {
        stamp.write(&mut buffer, sequence);
        let payload = Bytes::copy_from_slice(&buffer);
        let started = Instant::now();
        let answer = client.request(MESSAGE, payload).await.doing("requesting")?;
        samples_ns.push(started.elapsed().as_nanos() as u64);
        verify(&answer.payload, bytes, sequence).map_err(Failure::new)?;
    }
    Ok(samples_ns)
}

struct Running<'a> {
    runtime: Runtime,
    publisher: &'a mut Publisher,
    address: String,
    links: Vec<Client>,
}

impl Side for Running<'_> {
    fn slice(&mut self, order: Order) -> Result<Vec<u64>, Failure> {
        let publisher = &mut *self.publisher;
        let width = match publisher.setting.bench {
            Bench::RoundTrip => 1,
            Bench::Calls => IN_FLIGHT,
            _ => return self.runtime.block_on(publisher.one_way(order)).map(|()| Vec::new()),
        };
        if publisher.setting.is_best() {
            return self.runtime.block_on(publisher.ask(order, width));
        }
        self.runtime.block_on(publisher.request(order, width))
    }

    fn open_links(&mut self, count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            let link = self.runtime.block_on(connect(&self.address, &self.publisher.setting))?;
            self.links.push(link);
        }
        Ok(())
    }
}
