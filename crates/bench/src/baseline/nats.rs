//! NATS: a publisher, its server, and subscribers, by the text protocol of their documentation.
//!
//! ```text
//! near: one connection         nats-server         far: a thread, a connection for each subscriber
//!     PUB fed 16 ..    -->      one process    -->     MSG fed 1 16 ..
//! ```
//!
//! Messages are encoded as ours are. The publisher gathers 64 KiB, and is ahead of the slowest subscriber by at most
//! 4 MiB: the server cuts one off that is 64 MiB behind.

use std::io::Write as _;
use std::marker::PhantomData;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use chunkcomm::codec::{decode, encode_into_vec};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{Notify, oneshot};

use crate::failure::{Doing, Failure};
use crate::harness::runtime::{self, run_task};
use crate::message::Message;
use crate::ours::feed::{FeedKind, Feeding};
use crate::ours::{ended, taken};
use crate::with_message_of;

/// The server's program.
pub const SERVER: &str = "nats-server";

/// Command that brings the server.
pub const BROUGHT_BY: &str = "apt-get install nats-server";

const GATHERED_BYTES: usize = 64 * 1024;

const AHEAD_BYTES: u64 = 4 << 20;

/// Number of messages after which both sides look at how many came.
const LOOK_MESSAGES: u64 = 64;

/// Starts the server and both ends.
///
/// # Errors
/// If there is no such server, or either side fails.
pub fn start(kind: FeedKind) -> Result<Box<dyn Feeding>, Failure> {
    with_message_of!(kind.bytes, M => Ok(Box::new(Near::<M>::start(kind)?)))
}

/// The server; ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Numbers of messages that came at each subscriber.
struct Came {
    counts: Vec<AtomicU64>,
    changed: Notify,
}

impl Came {
    fn note(&self, index: usize, count: u64) {
        self.counts[index].store(count, Ordering::Release);
        self.changed.notify_one();
    }

    /// Waits until as many messages came at each.
    async fn reached(&self, count: u64) {
        while self.counts.iter().any(|it| it.load(Ordering::Acquire) < count) {
            self.changed.notified().await;
        }
    }
}

struct Near<M> {
    stream: Option<TcpStream>,
    kind: FeedKind,
    next: u64,
    came: Arc<Came>,
    failed: Receiver<Failure>,
    runtime: Runtime,
    messages: PhantomData<fn(&M)>,
    _server: Server,
}

impl<M: Message> Near<M> {
    fn start(kind: FeedKind) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").doing("finding a port")?;
        let port = listener.local_addr().doing("finding a port")?.port();
        drop(listener);
        let mut command = Command::new(SERVER);
        command.args(["-a", "127.0.0.1", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().map_err(|error| {
            Failure::broken("starting nats-server", format!("{error}; {BROUGHT_BY}"))
        })?;
        let server = Server(server);
        let runtime = runtime::start(1)?;
        let counts = (0..kind.reading).map(|_| AtomicU64::new(0)).collect();
        let came = Arc::new(Came { counts, changed: Notify::new() });
        let (fail, failed) = channel(1);
        let (ready, is_ready) = oneshot::channel();
        let counts = Arc::clone(&came);
        thread::spawn(move || {
            if let Err(failure) = subscribe_all::<M>(kind, port, &counts, ready, &fail) {
                let _ = fail.blocking_send(failure);
            }
        });
        let stream = run_task(&runtime, async move {
            let stream = connect(port).await?;
            is_ready.await.doing("subscribing")?;
            Ok::<_, Failure>(stream)
        })??;
        let messages = PhantomData;
        Ok(Self {
            stream: Some(stream),
            kind,
            next: 0,
            came,
            failed,
            runtime,
            messages,
            _server: server,
        })
    }
}

impl<M: Message> Feeding for Near<M> {
    fn feed(&mut self, count: u64) -> Result<(), Failure> {
        let (first, until, bytes) = (self.next, self.next + count, self.kind.bytes);
        let ahead = (AHEAD_BYTES / bytes as u64).max(2 * LOOK_MESSAGES);
        let mut stream = taken(&mut self.stream, "publishing")?;
        let mut message = M::with_size(bytes);
        let came = Arc::clone(&self.came);
        let sent = async move {
            let (mut gathered, mut encoded) = (Vec::with_capacity(2 * GATHERED_BYTES), Vec::new());
            for sequence in first..until {
                message.stamp(sequence);
                encoded.clear();
                encode_into_vec(&message, &mut encoded).doing("encoding")?;
                write!(gathered, "PUB fed {}\r\n", encoded.len()).doing("encoding")?;
                gathered.extend_from_slice(&encoded);
                gathered.extend_from_slice(b"\r\n");
                if gathered.len() >= GATHERED_BYTES || sequence + 1 == until {
                    stream.write_all(&gathered).await.doing("publishing")?;
                    gathered.clear();
                }
                if sequence.is_multiple_of(LOOK_MESSAGES) {
                    came.reached(sequence.saturating_sub(ahead)).await;
                }
            }
            came.reached(until).await;
            Ok::<_, Failure>(stream)
        };
        let failed = &mut self.failed;
        let watched = async {
            tokio::select! {
                sent = sent => sent,
                failure = failed.recv() => Err(failure.unwrap_or_else(ended)),
            }
        };
        self.stream = Some(self.runtime.block_on(watched)?);
        self.next = until;
        Ok(())
    }
}

/// Connects, and says hello; waits for the server's start.
async fn connect(port: u16) -> Result<TcpStream, Failure> {
    let mut tries = 0;
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)).await {
            Ok(stream) => break stream,
            Err(error) if tries == 500 => return Err(error).doing("connecting to nats-server"),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    stream.set_nodelay(true).doing("connecting")?;
    let hello = b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n";
    stream.write_all(hello).await.doing("connecting")?;
    // A PONG follows the server's description.
    let mut read = Vec::new();
    while !read.ends_with(b"PONG\r\n") {
        if stream.read_buf(&mut read).await.doing("connecting")? == 0 {
            return Err(ended());
        }
    }
    Ok(stream)
}

/// Runs the subscribers until the server ends.
fn subscribe_all<M: Message>(
    kind: FeedKind,
    port: u16,
    came: &Arc<Came>,
    ready: oneshot::Sender<()>,
    fail: &Sender<Failure>,
) -> Result<(), Failure> {
    runtime::start(1)?.block_on(async {
        let mut tasks = Vec::new();
        for index in 0..kind.reading {
            let mut stream = connect(port).await?;
            stream.write_all(b"SUB fed 1\r\nPING\r\n").await.doing("subscribing")?;
            let mut stream = BufReader::with_capacity(GATHERED_BYTES, stream);
            let mut pong = String::new();
            stream.read_line(&mut pong).await.doing("subscribing")?;
            let (came, fail) = (Arc::clone(came), fail.clone());
            tasks.push(tokio::spawn(async move {
                if let Err(failure) = read::<M>(stream, kind.bytes, index, &came).await {
                    let _ = fail.try_send(failure);
                }
            }));
        }
        ready.send(()).map_err(|()| ended())?;
        for task in tasks {
            task.await.doing("reading")?;
        }
        Ok(())
    })
}

async fn read<M: Message>(
    mut stream: BufReader<TcpStream>,
    bytes: usize,
    index: usize,
    came: &Came,
) -> Result<(), Failure> {
    let (mut line, mut payload, mut next) = (Vec::new(), Vec::new(), 0);
    loop {
        // Says how many came before it waits.
        if stream.buffer().is_empty() {
            came.note(index, next);
        }
        line.clear();
        if stream.read_until(b'\n', &mut line).await.doing("reading")? == 0 {
            return Ok(());
        }
        if line.starts_with(b"PING") {
            stream.write_all(b"PONG\r\n").await.doing("answering")?;
            continue;
        }
        let length = line.trim_ascii_end().rsplit(|byte| *byte == b' ').next().unwrap_or(b"");
        let length = str::from_utf8(length).ok().and_then(|it| it.parse::<usize>().ok());
        let length = length.filter(|_| line.starts_with(b"MSG ")).ok_or_else(|| {
            Failure::broken("reading", format!("the server said {:?}", line.escape_ascii()))
        })?;
        payload.resize(length + 2, 0);
        stream.read_exact(&mut payload).await.doing("reading")?;
        let message: M = decode(&payload[..length]).doing("decoding")?;
        if !message.verify(next, bytes) {
            return Err(Failure::wrong_message(next));
        }
        next += 1;
        if next.is_multiple_of(LOOK_MESSAGES) {
            came.note(index, next);
        }
    }
}
