//! Two services that live through each other's restarts: a shipper sends lines to a collector, which
//! stores each once and in order, whichever is stopped or killed. See docs/guide/services.md.
//!
//! ```text
//! cargo run --release --example service -- collector --listen 127.0.0.1:7700 --file lines
//! cargo run --release --example service -- shipper --to 127.0.0.1:7700 --count 100000
//! ```

use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::{collections::HashMap, error::Error, fs::File, sync::Arc, time::Duration};

use chunkcomm::{AcceptError, Address, Node, Receiver, Redelivery, Sender, channel::Delivery};
use chunkcomm_cluster::{CallError, NodeExt};
use clap::Parser;
use tokio::{io::AsyncBufReadExt as _, signal, sync::Mutex, task::JoinSet, time::sleep};

type Failure = Box<dyn Error>;
/// A line's number in its source, from 1, and its text.
type Line = (u64, String);

#[derive(Parser)]
#[command(
    name = "service",
    about = "Ships lines to a collector that stores each of them once",
    subcommand_value_name = "collector|shipper"
)]
enum Role {
    /// Appends lines to a file, as ["SOURCE",NUMBER,"TEXT",STREAM,DELIVERY]
    Collector {
        #[arg(long)]
        listen: Address,
        #[arg(long)]
        file: PathBuf,
    },
    /// Ships those lines of standard input that are not stored yet
    Shipper {
        #[arg(long)]
        to: Address,
        #[arg(long, default_value = "shipper")]
        source: String,
        /// Ships this number of generated lines instead
        #[arg(long, value_parser = count, allow_negative_numbers = true)]
        count: Option<u64>,
    },
}

fn count(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "allowed are whole numbers from 0")
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let done = match Role::parse() {
        Role::Collector { listen, file } => collect(listen, file).await,
        Role::Shipper { to, source, count } => ship(to, source, count).await,
    };
    let tell = |error: &Failure| eprintln!("service: {}", chunkcomm::with_causes(&**error));
    let failed = done.inspect_err(tell).is_err();
    // A return would wait for the next line of standard input.
    std::process::exit(failed.into());
}

async fn collect(listen: Address, file: PathBuf) -> Result<(), Failure> {
    let mut stop = tokio::spawn(stop());
    // The links have a thread of their own, since this one waits for the disk.
    let node = Node::builder().name("collector").listen(listen).io_thread().build().await?;
    #[cfg(unix)]
    node.explain_on_sigusr1()?;
    // Opened only by the process that has the address.
    let store = Store::open(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let store = Arc::new(Mutex::new(store));
    let asked = Arc::clone(&store);
    let _last = node.serve("last", move |source: String| {
        let store = Arc::clone(&asked);
        async move { Ok::<_, String>(store.lock().await.last.get(&source).map_or(0, |it| it.0)) }
    })?;
    writeln!(io::stdout(), "listening at {}", node.addresses()[0])?;
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            accepted = node.accept("lines") => match accepted {
                Ok((shipper, lines)) => {
                    streams.spawn(store_all(shipper.name().to_owned(), lines, Arc::clone(&store)));
                }
                Err(error @ AcceptError::Mismatch { .. }) => eprintln!("service: {error}"),
                Err(error) => return Err(error.into()),
            },
            Some(ended) = streams.join_next() => ended??,
            stopped = &mut stop => break stopped??,
        }
    }
    streams.shutdown().await; // what is not settled will be sent again
    writeln!(io::stdout(), "{} lines came again", store.lock().await.again)?;
    let _ = node.close(Duration::from_secs(1)).await; // a shipper may be gone
    Ok(())
}

/// Stores the lines of a stream until the stream or its shipper ends.
async fn store_all(
    source: String,
    mut lines: Receiver<Line>,
    store: Arc<Mutex<Store>>,
) -> io::Result<()> {
    lines.settle_by_hand();
    while let Ok(Some(line)) = lines.recv().await {
        let (mut store, mut next) = (store.lock().await, Some(line));
        while let (Some(line), Some(delivery)) = (next, lines.delivery()) {
            store.add(&source, line, delivery)?;
            next = lines.try_recv().ok();
        }
        store.file.flush()?;
        store.file.get_ref().sync_data()?;
        lines.settle();
    }
    Ok(())
}

struct Store {
    file: BufWriter<File>,
    /// Number of each source's last line, and the stream that it came by.
    last: HashMap<String, (u64, u128)>,
    again: u64,
}

impl Store {
    fn open(path: &Path) -> io::Result<Store> {
        let mut file = File::options().read(true).append(true).create(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // A collector that was killed may have left a part of a line.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        let lines = bytes[..whole].split(|&byte| byte == b'\n');
        let stored = lines.filter_map(|line| serde_json::from_slice(line).ok());
        let last = stored.map(|(source, number, _, stream, _): (_, _, String, _, u64)| {
            (source, (number, stream))
        });
        Ok(Store { last: last.collect(), file: BufWriter::new(file), again: 0 })
    }

    fn add(&mut self, source: &str, (number, text): Line, from: Delivery) -> io::Result<()> {
        let last = self.last.entry(source.to_owned()).or_default();
        if number <= last.0 {
            if !from.redelivered && from.stream == last.1 {
                eprintln!("service: line {number} of {source} came again undeclared");
            }
            self.again += 1;
            return Ok(());
        }
        *last = (number, from.stream);
        serde_json::to_writer(&mut self.file, &(source, number, text, from.stream, from.number))?;
        self.file.write_all(b"\n")
    }
}

async fn ship(to: Address, source: String, count: Option<u64>) -> Result<(), Failure> {
    let stop = tokio::spawn(stop());
    let node = Node::builder().name(&*source).build().await?;
    #[cfg(unix)]
    node.explain_on_sigusr1()?;
    let mut lines = node.open_redelivering("lines", Redelivery::to(&to).peer_name("collector"))?;
    let ended = tokio::select! {
        ended = ship_all(&node, &to, source, count, &mut lines) => ended,
        stopped = stop => Ok(stopped??),
    };
    let shipped = lines.stats().accepted;
    lines.close(Duration::from_secs(30)).await?; // when the collector has stored them
    writeln!(io::stdout(), "{shipped} lines shipped and stored")?;
    ended
}

async fn ship_all(
    node: &Node,
    to: &Address,
    source: String,
    count: Option<u64>,
    lines: &mut Sender<Line>,
) -> Result<(), Failure> {
    let stored = loop {
        let collector = node.connect_within(to, Duration::MAX).await?;
        match node.call_client::<_, u64>(&collector, "last")?.call(&source).await {
            Ok(number) => break number,
            Err(error @ CallError::Types(_)) => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(100)).await, // it restarts
        }
    };
    let mut input = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    for number in 1..=count.unwrap_or(u64::MAX) {
        let text = match count {
            Some(_) => Some(format!("line {number}")),
            None => input.next_line().await?,
        };
        let Some(text) = text else { break };
        if number > stored {
            lines.send(&(number, text)).await?;
        }
    }
    Ok(())
}

/// Waits for SIGTERM or ctrl-c.
async fn stop() -> io::Result<()> {
    #[cfg(not(unix))]
    return signal::ctrl_c().await;
    #[cfg(unix)]
    {
        let mut terminate = signal::unix::signal(signal::unix::SignalKind::terminate())?;
        tokio::select! { _ = terminate.recv() => Ok(()), done = signal::ctrl_c() => done }
    }
}
