//! A server: it stands by, leads, and drains.

use super::Failure;
use super::metrics::{self, Counted};
use super::options::Settings;
use super::store::{Change, Kept, Leader, Store, StoreServer, append, lock, read};
use chunkcomm::feed::Feed;
use chunkcomm::watch::WatchSender;
use chunkcomm::{Node, feed, settings};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::interval;

/// Most changes of an answer, and of a write to the disk.
const TOGETHER_MAX: usize = 10_000;
/// Time in which calls are answered after SIGTERM.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Time in which followers then get the last changes.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// A change without its number, and where that is told.
type Put = (String, String, oneshot::Sender<u64>);

struct Served {
    kept: Arc<RwLock<Kept>>,
    puts: mpsc::Sender<Put>,
}

impl Store for Served {
    async fn get(&self, key: String) -> Option<String> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).values.get(&key).cloned()
    }

    async fn put(&self, key: String, value: String) -> Result<u64, String> {
        let (answer, number) = oneshot::channel();
        self.puts.send((key, value, answer)).await.map_err(|_| "the store has ended")?;
        number.await.map_err(|_| "the store has ended".to_owned())
    }

    async fn since(&self, number: u64) -> Vec<Change> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        kept.changes.iter().skip(number as usize).take(TOGETHER_MAX).cloned().collect()
    }
}

/// Serves until SIGTERM or ctrl-c.
pub(crate) async fn serve(file: Option<PathBuf>) -> Result<(), Failure> {
    let settings: Settings = match file {
        Some(file) => settings::from_file_and_variables(file, "KV")?,
        None => settings::from_variables("KV")?,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {}, _ = tokio::signal::ctrl_c() => {} }
    };
    let node = Node::builder().settings(&settings.node).build().await?;
    node.explain_on_sigusr1()?;
    let listens = node.addresses().first().map(ToString::to_string);
    let own = settings.reached_at.clone().or(listens).ok_or("node.listen: no address is set")?;
    let leader = node.publish("leader", Leader::default())?;
    writeln!(io::stdout(), "stands by at {own}")?;
    tokio::pin!(stop);
    let (mut file, term) = tokio::select! {
        led = stand_by(&settings.changes, &leader) => led?,
        () = &mut stop => return end(&node).await,
    };

    let kept = Arc::new(RwLock::new(read(&mut file)?));
    let changes = node.feed::<Change>(feed("changes").end())?;
    let (puts, taken) = mpsc::channel(TOGETHER_MAX);
    let served = Served { kept: Arc::clone(&kept), puts };
    let serving = Arc::new(Mutex::new(Some(StoreServer::new(served).serve(&node)?)));
    let now = Leader { term: term + 1, at: own };
    let (next, told) = (settings.changes.with_extension("next"), leader_file(&settings.changes));
    fs::write(&next, serde_json::to_vec(&now)?)?;
    fs::rename(next, told)?;
    writeln!(io::stdout(), "leads, term {}", now.term)?;
    let counted =
        Counted { serving: Arc::clone(&serving), kept: Arc::clone(&kept), term: now.term };
    leader.send_replace(now)?;

    let mut storing = tokio::spawn(store(file, kept, changes, taken));
    tokio::select! {
        stored = &mut storing => return stored?,
        told = metrics::serve(settings.metrics, counted) => return Ok(told?),
        () = &mut stop => {}
    }
    let serving = serving.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(serving) = serving {
        serving.close(ANSWERED_WITHIN).await?; // what came is answered; then nobody puts
    }
    storing.await??; // now another server may lead
    end(&node).await
}

/// Closes the node. A follower that is gone gets the rest from the next leader, once it is back.
async fn end(node: &Node) -> Result<(), Failure> {
    let _ = node.close(HEARD_WITHIN).await;
    Ok(())
}

/// Waits until this process has the file; tells meanwhile who has it. Returns the term of the last leader.
async fn stand_by(path: &Path, leader: &WatchSender<Leader>) -> Result<(File, u64), Failure> {
    let mut again = interval(Duration::from_millis(100));
    loop {
        again.tick().await;
        let locked = lock(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let told = fs::read(leader_file(path)).ok();
        let now: Leader = told.and_then(|it| serde_json::from_slice(&it).ok()).unwrap_or_default();
        if let Some(file) = locked {
            return Ok((file, now.term));
        }
        if leader.borrow().term != now.term {
            leader.send_replace(now)?;
        }
    }
}

fn leader_file(changes: &Path) -> PathBuf {
    changes.with_extension("leader")
}

/// Stores what came together by one write, then feeds and answers it. A put whose caller is gone is stored as well.
async fn store(
    mut file: File,
    kept: Arc<RwLock<Kept>>,
    mut changes: Feed<Change>,
    mut puts: mpsc::Receiver<Put>,
) -> Result<(), Failure> {
    let mut taken = Vec::new();
    while puts.recv_many(&mut taken, TOGETHER_MAX).await > 0 {
        let first = kept.read().unwrap_or_else(PoisonError::into_inner).changes.len() as u64 + 1;
        let (answers, stored): (Vec<_>, Vec<_>) = (first..)
            .zip(taken.drain(..))
            .map(|(number, (key, value, answer))| ((number, answer), Change { number, key, value }))
            .unzip();
        let (stored, back) = tokio::task::spawn_blocking(move || {
            append(&mut file, &stored).map(|()| (stored, file))
        })
        .await??;
        file = back;
        for change in stored {
            kept.write().unwrap_or_else(PoisonError::into_inner).add(change.clone());
            changes.send(&change).await?;
        }
        for (number, answer) in answers {
            let _ = answer.send(number); // its caller may be gone
        }
    }
    Ok(())
}
