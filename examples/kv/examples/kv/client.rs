//! A client, which goes to the server that leads.

use super::Failure;
use super::store::{Change, Leader, StoreClient};
use chunkcomm::error::WatchError;
use chunkcomm::{Address, Node};
use chunkcomm_cluster::Called;
use std::io::{self, Write as _};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Time of an attempt to reach the leader, and then of a call.
const TRIED_FOR: Duration = Duration::from_secs(2);
/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// The methods, in the order of the trait.
const GET: usize = 0;
const PUT: usize = 1;
const SINCE: usize = 2;

pub(crate) struct Stores {
    node: Node,
    leader: watch::Receiver<Leader>,
}

impl Stores {
    /// Watches at all servers who leads.
    pub(crate) async fn new(servers: Vec<Address>) -> Result<Stores, Failure> {
        let node = Node::builder().build().await?;
        let (newest, leader) = watch::channel(Leader::default());
        for server in servers {
            tokio::spawn(follow_leader(node.clone(), server, newest.clone()));
        }
        Ok(Stores { node, leader })
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<String>, Failure> {
        Ok(self.call(GET, async |store| Ok(store.get(key.to_owned()).await?)).await?.flatten())
    }

    /// Returns the number of the change; `None` if it is not known whether the value was stored.
    pub(crate) async fn put(&self, key: &str, value: &str) -> Result<Option<u64>, Failure> {
        self.call(PUT, async |store| store.put(key.to_owned(), value.to_owned()).await).await
    }

    /// Prints all changes behind this one, across the ends of leaders.
    pub(crate) async fn follow(&self, mut last: u64) -> Result<(), Failure> {
        loop {
            let (_, at) = self.leading().await?;
            // Newer changes wait in the subscription while the older ones are read.
            let subscribed =
                timeout(TRIED_FOR, self.node.subscribe::<Change>("changes", &at)).await;
            let Ok(Ok(mut changes)) = subscribed else {
                sleep(PAUSE).await;
                continue;
            };
            loop {
                let older = self.call(SINCE, async |store| Ok(store.since(last).await?)).await?;
                let older = older.unwrap_or_default();
                if older.is_empty() {
                    break;
                }
                print(&older, &mut last)?;
            }
            // At its end, or behind its backlog, it begins again behind the last change.
            while let Ok(Some(change)) = changes.recv().await {
                print(&[change], &mut last)?;
            }
        }
    }

    /// Returns term and address of the leader, once there is one.
    async fn leading(&self) -> Result<(u64, Address), Failure> {
        let mut leader = self.leader.clone();
        let Leader { term, at } = leader.wait_for(|it| it.term > 0).await?.clone();
        Ok((term, at.parse()?))
    }

    /// Calls the leader, again and again until it answers; `None`: it may have handled the call, which is not
    /// repeated.
    async fn call<T>(
        &self,
        method: usize,
        call: impl AsyncFn(StoreClient) -> Result<T, Called<String>>,
    ) -> Result<Option<T>, Failure> {
        let method = StoreClient::METHODS[method];
        loop {
            let (term, at) = self.leading().await?;
            let reaching = self.node.connect_within(&at, TRIED_FOR);
            let reached = timeout(TRIED_FOR, reaching).await.ok().and_then(Result::ok);
            if let Some(leader) = reached {
                let store = StoreClient::at(&self.node, &leader)?.timeout(TRIED_FOR);
                let mut next = self.leader.clone();
                tokio::select! {
                    answer = call(store) => match answer {
                        Ok(answer) => return Ok(Some(answer)),
                        Err(Called::Service(text)) => return Err(text.into()),
                        Err(Called::Call(error)) if method.may_repeat(&error) => {}
                        Err(Called::Call(_)) => return Ok(None),
                    },
                    // The one that was asked has ended, and another one leads.
                    _ = next.wait_for(|it| it.term > term) => if !method.is_idempotent() {
                        return Ok(None);
                    },
                }
            }
            sleep(PAUSE).await;
        }
    }
}

fn print(changes: &[Change], last: &mut u64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for Change { number, key, value } in changes.iter().filter(|it| it.number > *last) {
        writeln!(out, "{number} {key} {value}")?;
    }
    *last = changes.last().map_or(*last, |it| it.number.max(*last));
    out.flush()
}

/// Passes on each later leader that this server tells of.
async fn follow_leader(
    node: Node,
    server: Address,
    newest: watch::Sender<Leader>,
) -> Result<(), WatchError> {
    let mut seen = node.watch::<Leader>("leader", &server).await?;
    loop {
        let told = seen.borrow_and_update().clone();
        newest.send_if_modified(|it| {
            told.term > it.term && {
                *it = told;
                true
            }
        });
        seen.changed().await?;
    }
}
