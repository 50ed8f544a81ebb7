//! Rounds: one number over each of many links, until it is acknowledged.

use std::sync::atomic::Ordering;

use chunkcomm::{Node, Peer, Receiver, SendError, Sender};
use chunkcomm_bench::harness::machine::now_ns;
use tokio::task::JoinSet;

use super::work::Lot;
use crate::protocol::{Ended, Fault, Outcome, Reply};

/// Name of the rounds' channel on each link.
const ROUNDS: &str = "rounds";

/// Most errors of links that a reply reports: more are no news.
const FAILURES_MAX: usize = 3;

/// Most channels opened at once: a node holds a thousand that it has not accepted yet.
const OPENS_MAX: usize = 256;

/// The senders, one a link, from the first round on.
#[derive(Default)]
pub(super) struct Rounds {
    senders: Vec<Sender<u64>>,
}

/// Acknowledgements and errors of the links in a round.
#[derive(Default)]
struct Answers {
    senders: Vec<Sender<u64>>,
    acknowledged_ns: Vec<u64>,
    failures: Vec<String>,
}

impl Rounds {
    /// Sends the number over all links at once and waits for the acknowledgements. In the first
    /// round it opens the channels, and sends in groups.
    pub(super) async fn run(&mut self, number: u64, links: &[(Node, Peer)]) -> Reply {
        let mut answers = Answers::default();
        if self.senders.is_empty() {
            for links in links.chunks(OPENS_MAX) {
                let senders = answers.open(links).await;
                answers.gather(number, senders).await;
            }
        } else {
            answers.gather(number, std::mem::take(&mut self.senders)).await;
        }
        let Answers { senders, acknowledged_ns, mut failures } = answers;
        self.senders = senders;
        failures.truncate(FAILURES_MAX);
        Reply::Rounded { acknowledged_ns, failures }
    }
}

impl Answers {
    async fn open(&mut self, links: &[(Node, Peer)]) -> Vec<Sender<u64>> {
        let mut senders = Vec::with_capacity(links.len());
        for (node, peer) in links {
            match node.open::<u64>(peer, ROUNDS).await {
                Ok(sender) => senders.push(sender),
                Err(error) => self.failures.push(error.to_string()),
            }
        }
        senders
    }

    async fn gather(&mut self, number: u64, senders: Vec<Sender<u64>>) {
        let mut sending = JoinSet::new();
        for mut sender in senders {
            sending.spawn(async move {
                let sent = send(&mut sender, number).await;
                (sender, sent)
            });
        }
        while let Some(sent) = sending.join_next().await {
            match sent {
                Ok((sender, Ok(at_ns))) => {
                    self.acknowledged_ns.push(at_ns);
                    self.senders.push(sender);
                }
                Ok((_, Err(error))) => self.failures.push(error.to_string()),
                Err(error) => self.failures.push(error.to_string()),
            }
        }
    }
}

async fn send(sender: &mut Sender<u64>, number: u64) -> Result<u64, SendError> {
    sender.send(&number).await?;
    sender.sync().await?;
    Ok(now_ns())
}

/// Takes the numbers of `links` links until their channels end; each must bring 0, 1, 2, ..
pub(super) async fn consume(node: Node, links: usize, lot: Lot) -> Outcome {
    let mut outcome = Outcome { began_ns: now_ns(), ..Outcome::default() };
    let mut taking = JoinSet::new();
    for _ in 0..links {
        match node.accept::<u64>(ROUNDS).await {
            Ok((peer, receiver)) => {
                taking.spawn(take(receiver, peer));
            }
            Err(error) => {
                let text = error.to_string();
                outcome.error = Some(Ended { text, peer: String::new(), account: None });
            }
        }
    }
    while let Some(taken) = taking.join_next().await {
        let Ok((count, fault, error)) = taken else { continue };
        outcome.messages += count;
        outcome.fault = outcome.fault.or(fault);
        outcome.error = outcome.error.or(error);
        lot.taken.store(outcome.messages, Ordering::Relaxed);
    }
    outcome.ended_ns = now_ns();
    outcome
}

async fn take(mut receiver: Receiver<u64>, peer: Peer) -> (u64, Option<Fault>, Option<Ended>) {
    let mut due = 0;
    loop {
        match receiver.recv().await {
            Ok(Some(came)) if came == due => due += 1,
            Ok(Some(came)) if came > due => return (due, Some(Fault::Missing { due, came }), None),
            Ok(Some(came)) => return (due, Some(Fault::Again { due, came }), None),
            Ok(None) => return (due, None, None),
            Err(error) => {
                let peer = peer.name().to_owned();
                let ended = Ended { text: error.to_string(), peer, account: None };
                return (due, None, Some(ended));
            }
        }
    }
}
