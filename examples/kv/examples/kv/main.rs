//! A store of keys and values. Of any number of servers with the same file one leads, and another takes over
//! when it ends or is killed. See docs/guide/services.md.
//!
//! ```text
//! cargo run --release -p chunkcomm-kv --example kv -- serve examples/kv/kv.toml
//! KV__NODE__LISTEN=127.0.0.1:7702 cargo run --release -p chunkcomm-kv --example kv -- serve examples/kv/kv.toml
//! cargo run --release -p chunkcomm-kv --example kv -- count visits 100000
//! cargo run --release -p chunkcomm-kv --example kv -- follow
//! ```

mod client;
mod metrics;
mod options;
mod server;
mod store;

use clap::Parser as _;
use client::Stores;
use options::{Options, Role};
use std::error::Error;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() {
    let done = run(Options::parse()).await;
    if let Err(error) = done {
        eprintln!("kv: {}", chunkcomm::with_causes(&*error));
        std::process::exit(1);
    }
}

async fn run(Options { at, role }: Options) -> Result<(), Failure> {
    if let Role::Serve { settings } = role {
        return server::serve(settings).await;
    }
    let stores = Stores::new(at).await?;
    match role {
        Role::Get { key } => match stores.get(&key).await? {
            Some(value) => writeln!(io::stdout(), "{value}")?,
            None => return Err(format!("there is no key {key:?}").into()),
        },
        Role::Put { key, value } => {
            let number = stores.put(&key, &value).await?;
            let number = number.ok_or("no answer came: it is not known whether it is stored")?;
            writeln!(io::stdout(), "change {number}")?;
        }
        Role::Follow { after } => stores.follow(after).await?,
        Role::Count { key, to } => count(&stores, &key, to).await?,
        Role::Serve { .. } => {}
    }
    Ok(())
}

/// Counts a key up, and checks each answer: it is of use while servers are killed.
async fn count(stores: &Stores, key: &str, to: u64) -> Result<(), Failure> {
    let read = async || Ok::<u64, Failure>(stores.get(key).await?.map_or(Ok(0), |it| it.parse())?);
    let (mut count, mut unanswered, mut longest) = (read().await?, 0, Duration::ZERO);
    while count < to {
        let started = Instant::now();
        let is_answered = stores.put(key, &(count + 1).to_string()).await?.is_some();
        let stored = read().await?;
        if stored != count + 1 && (is_answered || stored != count) {
            return Err(format!("{key} is {stored}, and was set to {}", count + 1).into());
        }
        unanswered += u64::from(!is_answered);
        longest = longest.max(started.elapsed());
        count = stored;
    }
    writeln!(
        io::stdout(),
        "{key} is {count}; {unanswered} puts had no answer; the longest took {longest:.1?}"
    )?;
    Ok(())
}
