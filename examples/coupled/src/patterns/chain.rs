//! Many runs through one chain of nodes: the first node's program decides the runs, the others
//! serve it.
//!
//! ```text
//!   head ──data──▶ 1 ──data──▶ 2 ──data──▶ ..  tail ──▶ head, in a ring
//!     ◀──── words ──┴─── words ─┴──── words ────┘
//!     ───── orders to each ──▶
//! ```
//!
//! The nodes find each other by their addresses ([`serve`]), or by their ranks in a cluster
//! ([`serve_in`]). Each node's first word gives its address or rank to the head, which passes it on.
//!
//! The first word also names the channel on which the node takes its orders. The name belongs to this
//! membership alone, so that orders of a head that was given up are not taken for those of this one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use chunkcomm::host::{self, Instant, timeout};
use chunkcomm::{Address, Node, Peer, Receiver, Sender};
use chunkcomm_cluster::Cluster;
use serde::{Deserialize, Serialize};

use super::roles::{Arrays, run_head, run_middle, run_ring, run_tail};
use super::verify::{Difference, Verifier};
use super::{Pattern, PatternError, Run};

const WORDS: &str = "chain.words";
const ORDERS: &str = "chain.orders";

/// Returns the name of the channel on which the orders of one membership come.
fn orders_channel(membership: u64) -> String {
    format!("{ORDERS}.{membership:016x}")
}

/// Message from the head to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Order {
    /// The node's successor; `None` for the last node, whose successor in a ring is the head. Also the
    /// length of the chain.
    Place { next: Option<Whereabouts>, nodes: usize },
    /// Get ready for this run, answer [`Word::Ready`], and take part.
    Run(Run),
}

/// Message from a node to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Word {
    /// The node with this index (0 is the head) has joined.
    Joined { index: usize, at: Whereabouts, membership: u64 },
    /// The link to the next node is there.
    Placed,
    /// The arrays are prepared.
    Ready,
    /// The run is done here. From a node that has verified its result follows a second one, with the
    /// first wrong element.
    Done(Option<Difference>),
    /// This node cannot go on.
    Failed(String),
}

/// The place where a node's predecessor finds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Whereabouts {
    /// The node listens at this address.
    Address(String),
    /// The node is the member of the cluster with this rank.
    Rank(u32),
}

/// Report of a run: its time, and the first wrong element.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// Time from the head's first element until the head learns that all nodes have computed their last
    /// element.
    pub elapsed: Duration,
    /// The first element that differs from the sequential result, of the last node or in a ring of any
    /// node; always `None` unless the run asked to verify.
    pub difference: Option<Difference>,
}

/// The head's handle of a chain of nodes.
#[derive(Debug)]
pub struct Chain {
    node: Node,
    followers: Vec<Follower>,
    /// Channels to the followers; each ends when its follower leaves.
    orders: Vec<Sender<Order>>,
    arrays: Arrays,
    verifier: Verifier,
}

#[derive(Debug)]
struct Follower {
    peer: Peer,
    words: Receiver<Word>,
}

impl Chain {
    /// Waits until the `nodes - 1` other nodes have joined (see [`serve`] and [`serve_in`]) and links
    /// each to the next.
    ///
    /// # Errors
    /// When a node fails while the chain is built. The call waits for ever for a node that never joins:
    /// watch the processes, or the deaths in the cluster, beside it.
    ///
    /// # Cancel safety
    /// When the future is dropped, the nodes that had joined end.
    ///
    /// # Panics
    /// When `nodes` is below 2.
    pub async fn gather(node: &Node, nodes: usize) -> Result<Self, PatternError> {
        assert!(nodes >= 2, "a chain has a head and a tail");
        let mut joined: Vec<Option<(Follower, Sender<Order>, Whereabouts)>> =
            (1..nodes).map(|_| None).collect();
        while joined.iter().any(Option::is_none) {
            let (peer, mut words) = node.accept::<Word>(WORDS).await?;
            match words.recv().await? {
                Some(Word::Joined { index, at, membership }) if (1..nodes).contains(&index) => {
                    let orders = node.open::<Order>(&peer, &orders_channel(membership)).await?;
                    joined[index - 1] = Some((Follower { peer, words }, orders, at));
                }
                other => return Err(unexpected(&peer, other)),
            }
        }
        let mut chain = Self {
            node: node.clone(),
            followers: Vec::new(),
            orders: Vec::new(),
            arrays: Arrays::default(),
            verifier: Verifier::default(),
        };
        let mut whereabouts = Vec::new();
        for (follower, orders, at) in joined.into_iter().flatten() {
            chain.followers.push(follower);
            chain.orders.push(orders);
            whereabouts.push(at);
        }
        for (index, orders) in chain.orders.iter_mut().enumerate() {
            let next = whereabouts.get(index + 1).cloned();
            orders.send_now(&Order::Place { next, nodes }).await?;
        }
        for follower in &mut chain.followers {
            follower.expect(|word| matches!(word, Word::Placed)).await?;
        }
        Ok(chain)
    }

    /// Returns the number of nodes, the head included.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.followers.len() + 1
    }

    /// Runs once: the head's part here, each other node's part at that node.
    ///
    /// # Errors
    /// When a node or a transfer fails; the chain cannot be used afterwards.
    ///
    /// # Cancel safety
    /// Do not drop the future: the chain cannot be used afterwards.
    pub async fn run(&mut self, run: &Run) -> Result<Outcome, PatternError> {
        for orders in &mut self.orders {
            orders.send_now(&Order::Run(run.clone())).await?;
        }
        let Self { node, followers, arrays, verifier, .. } = self;
        let led = lead(node, followers, arrays, verifier, run);
        let gone = tokio::select! {
            // A failure shows in a broken transfer, or in a node that leaves because of it.
            biased;
            outcome = led => return outcome,
            gone = first_gone(&mut self.orders) => gone,
        };
        let gone = &mut self.followers[gone];
        let left = PatternError::Left { peer: gone.peer.name().to_owned() };
        Err(gone.failure().await.unwrap_or(left))
    }

    /// Ends the chain: the other nodes' [`serve`] returns.
    ///
    /// # Errors
    /// When a node is gone already.
    ///
    /// # Cancel safety
    /// When the future is dropped, the nodes end all the same.
    pub async fn end(self) -> Result<(), PatternError> {
        for (mut follower, orders) in self.followers.into_iter().zip(self.orders) {
            drop(orders);
            while let Some(word) = follower.words.recv().await? {
                if let Word::Failed(_) = word {
                    return Err(unexpected(&follower.peer, Some(word)));
                }
            }
        }
        Ok(())
    }
}

impl Follower {
    async fn expect(&mut self, right: impl Fn(&Word) -> bool) -> Result<Word, PatternError> {
        match self.words.recv().await? {
            Some(word) if right(&word) => Ok(word),
            other => Err(unexpected(&self.peer, other)),
        }
    }

    /// Waits for the next end that this node reports.
    async fn done(&mut self) -> Result<Option<Difference>, PatternError> {
        match self.expect(|word| matches!(word, Word::Done(_))).await? {
            Word::Done(difference) => Ok(difference),
            _ => Ok(None),
        }
    }

    /// Returns the failure that this node reports, if it does so within a second.
    async fn failure(&mut self) -> Option<PatternError> {
        let failed = async {
            loop {
                // Other words came before the failure.
                let word = self.words.recv().await.ok()??;
                if matches!(word, Word::Failed(_)) {
                    return Some(unexpected(&self.peer, Some(word)));
                }
            }
        };
        timeout(Duration::from_secs(1), failed).await.ok()?
    }
}

/// Runs the head's part and takes the other nodes' words.
async fn lead(
    node: &Node,
    followers: &mut [Follower],
    arrays: &mut Arrays,
    verifier: &mut Verifier,
    run: &Run,
) -> Result<Outcome, PatternError> {
    let nodes = followers.len() + 1;
    arrays.prepare(run, 0, nodes).await?;
    for follower in &mut *followers {
        follower.expect(|word| matches!(word, Word::Ready)).await?;
    }
    let start = Instant::now();
    let next = &followers[0].peer;
    let sent = match run.pattern {
        Pattern::Cascade => run_head(node, next, run, arrays).await,
        Pattern::Ring => run_ring(node, next, run, arrays).await,
    };
    if let Err(error) = sent {
        // A follower's own word explains more than a broken channel.
        let tail = followers.last_mut().expect("at least two nodes");
        return Err(tail.failure().await.unwrap_or(error));
    }
    for follower in &mut *followers {
        follower.done().await?;
    }
    let elapsed = start.elapsed();
    // Differences follow the end of the run, so that the comparison takes none of its time.
    let mut difference = verifier.verdict(run, 0, nodes, arrays);
    for (index, follower) in (1..).zip(followers) {
        if Verifier::applies(run, index, nodes) {
            let found = follower.done().await?;
            difference = difference.or(found);
        }
    }
    Ok(Outcome { elapsed, difference })
}

/// Waits until a follower takes no orders any more, and returns its index. The follower has left the chain.
/// Its node may be alive, and the run may never miss its part.
async fn first_gone(orders: &mut [Sender<Order>]) -> usize {
    poll_fn(|context| {
        let gone = orders.iter_mut().position(|orders| {
            // A new future each time, which loses nothing.
            pin!(orders.closed()).poll(context).is_ready()
        });
        gone.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

fn unexpected(peer: &Peer, word: Option<Word>) -> PatternError {
    let peer = peer.name().to_owned();
    match word {
        Some(Word::Failed(cause)) => PatternError::Failed { peer, cause },
        Some(_) => PatternError::OutOfStep { peer },
        None => PatternError::Left { peer },
    }
}

/// Serves as a node that is not the head: joins the chain of `head` as the node with `index`
/// (from 1), takes part in every run, and returns when the head ends the chain.
///
/// The last words may still be on their way on return: close the node before the process ends.
///
/// # Errors
/// When a run fails, after a report to the head. When the head is gone.
///
/// # Cancel safety
/// When the future is dropped, the node leaves the chain and the head's run fails.
pub async fn serve(node: &Node, head: &Peer, index: usize) -> Result<(), PatternError> {
    let address = node.addresses().first().map(ToString::to_string).unwrap_or_default();
    join_chain(Finder::Alone(node), head, index, Whereabouts::Address(address)).await
}

/// Serves as [`serve`] does, on every rank of a cluster but 0: the rank is the index in the chain. The
/// head is rank 0, with [`Chain::gather`] of as many nodes as the cluster had at its start.
///
/// # Errors
/// As [`serve`], and when rank 0 or the next rank cannot be reached.
///
/// # Cancel safety
/// As [`serve`].
pub async fn serve_in(cluster: &Cluster) -> Result<(), PatternError> {
    let head = cluster.peer(0).await?;
    let rank = cluster.rank();
    join_chain(Finder::Member(cluster), &head, rank as usize, Whereabouts::Rank(rank)).await
}

/// A node's means to find others.
#[derive(Clone, Copy)]
enum Finder<'a> {
    Alone(&'a Node),
    Member(&'a Cluster),
}

impl<'a> Finder<'a> {
    fn node(self) -> &'a Node {
        match self {
            Finder::Alone(node) => node,
            Finder::Member(cluster) => cluster.node(),
        }
    }

    /// Returns a link to the next node, whose place the head has sent.
    async fn reach(self, next: Whereabouts, head: &Peer) -> Result<Peer, PatternError> {
        match (next, self) {
            (Whereabouts::Address(address), _) => connect(self.node(), &address).await,
            (Whereabouts::Rank(rank), Finder::Member(cluster)) => Ok(cluster.peer(rank).await?),
            (Whereabouts::Rank(_), Finder::Alone(_)) => {
                Err(PatternError::OutOfStep { peer: head.name().to_owned() })
            }
        }
    }
}

async fn join_chain(
    finder: Finder<'_>,
    head: &Peer,
    index: usize,
    at: Whereabouts,
) -> Result<(), PatternError> {
    let node = finder.node();
    let mut words = node.open::<Word>(head, WORDS).await?;
    let membership = host::random().expect("the system gives random numbers");
    words.send_now(&Word::Joined { index, at, membership }).await?;
    let channel = orders_channel(membership);
    let (_, mut orders) = tokio::select! {
        biased;
        accepted = node.accept::<Order>(&channel) => accepted?,
        // The head ended before it gave an order.
        error = words.closed() => return Err(PatternError::Send(error)),
    };
    let served = follow(finder, head, index, &mut words, &mut orders).await;
    if let Err(error) = &served {
        // A failed send is no matter: the head itself may have failed.
        let _ = words.send_now(&Word::Failed(chunkcomm::with_causes(error))).await;
    }
    served
}

async fn follow(
    finder: Finder<'_>,
    head: &Peer,
    index: usize,
    words: &mut Sender<Word>,
    orders: &mut Receiver<Order>,
) -> Result<(), PatternError> {
    let Some(Order::Place { next, nodes }) = orders.recv().await? else {
        return Err(PatternError::OutOfStep { peer: head.name().to_owned() });
    };
    let next = match next {
        Some(next) => Some(finder.reach(next, head).await?),
        None => None,
    };
    words.send_now(&Word::Placed).await?;
    let mut arrays = Arrays::default();
    let mut verifier = Verifier::default();
    while let Some(order) = orders.recv().await? {
        let Order::Run(run) = order else {
            return Err(PatternError::OutOfStep { peer: head.name().to_owned() });
        };
        arrays.prepare(&run, index, nodes).await?;
        words.send_now(&Word::Ready).await?;
        let part = take_part(finder.node(), head, next.as_ref(), &run, &mut arrays);
        tokio::select! {
            biased;
            done = part => done?,
            // No order follows before this run is done: the head has given up.
            order = orders.recv() => {
                let peer = head.name().to_owned();
                return Err(match order? {
                    Some(_) => PatternError::OutOfStep { peer },
                    None => PatternError::Left { peer },
                });
            }
        }
        words.send_now(&Word::Done(None)).await?;
        if Verifier::applies(&run, index, nodes) {
            let difference = verifier.verdict(&run, index, nodes, &arrays);
            words.send_now(&Word::Done(difference)).await?;
        }
    }
    Ok(())
}

async fn take_part(
    node: &Node,
    head: &Peer,
    next: Option<&Peer>,
    run: &Run,
    arrays: &mut Arrays,
) -> Result<(), PatternError> {
    match (run.pattern, next) {
        (Pattern::Ring, next) => run_ring(node, next.unwrap_or(head), run, arrays).await,
        (Pattern::Cascade, Some(next)) => run_middle(node, next, run, arrays).await,
        (Pattern::Cascade, None) => run_tail(node, run, arrays).await,
    }
}

async fn connect(node: &Node, address: &str) -> Result<Peer, PatternError> {
    let parsed = address.parse::<Address>();
    let parsed = parsed.map_err(|_| PatternError::Address { address: address.to_owned() })?;
    Ok(node.connect(&parsed).await?)
}
