//! Two services that live through each other's restarts: a shipper sends lines to a collector, which
//! stores each once and in order, whichever is stopped or killed. See docs/guide/services.md.
//!
//! ```text
//! cargo run --release --example service -- collector --listen 127.0.0.1:7700 --file lines
//! cargo run --release --example service -- shipper --to 127.0.0.1:7700 --count 100000
//! ```

mod options;
mod store;

use chunkcomm_cluster::NodeExt;
use std::error::Error;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::{AcceptError, Address, Node, Receiver, Redelivery, Sender};
use chunkcomm_cluster::CallError;
use clap::Parser as _;
use tokio::io::AsyncBufReadExt as _;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use options::{Role, stop};
use store::Store;

type Failure = Box<dyn Error>;
/// A line's number in its source, from 1, and its text.
type Line = (u64, String);

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
