//! Sending and receiving until the lab stops the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chunkcomm::{Node, Receiver, RecvError, SendError, Sender};
use chunkcomm_bench::harness::machine::now_ns;
use chunkcomm_bench::message::Message;

use crate::checks::{Checker, Contents, Silences};
use crate::protocol::{Ended, Fault, LinkCounts, Outcome};

/// Longest time of closing: 60 s, longer than it takes to give up a session for dead.
pub(super) const CLOSE_DEADLINE: Duration = Duration::from_secs(60);

/// Most messages taken at once.
const MANY: usize = 1024;

/// Number of shares a second in which a slow receiver takes its messages.
const SHARES_PER_SECOND: u64 = 20;

/// State that a piece of work shares with its process.
pub(super) struct Lot {
    /// Messages taken since the start.
    pub(super) taken: Arc<AtomicU64>,
    /// Whether senders without end are to stop.
    pub(super) stop: Arc<AtomicBool>,
    /// Seed of the bytes of all messages.
    pub(super) seed: u64,
}

/// Pace of a receiver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Messages a second; with `None` as many as come.
    pub(super) rate: Option<u64>,
    /// Whether the times without a message are noted.
    pub(super) silences: bool,
}

/// Sends numbered messages as fast as possible until it is stopped, then closes its channel.
pub(super) async fn produce<M: Message>(mut sender: Sender<M>, bytes: usize, lot: Lot) -> Outcome {
    let contents = Contents::of(lot.seed, sender.name());
    let mut outcome = Outcome { began_ns: now_ns(), ..Outcome::default() };
    let mut message = M::with_size(bytes);
    while !lot.stop.load(Ordering::Relaxed) {
        contents.fill(&mut message, outcome.messages);
        if let Err(error) = sender.send(&message).await {
            outcome.error = Some(not_sent(&error, sender.peer().name()));
            break;
        }
        outcome.messages += 1;
    }
    let peer = sender.peer().clone();
    if outcome.error.is_none() {
        outcome.error = close(sender, peer.name().to_owned()).await;
    }
    outcome.ended_ns = now_ns();
    outcome.link = LinkCounts::of(&peer.stats());
    outcome
}

async fn close<M: Message>(sender: Sender<M>, peer: String) -> Option<Ended> {
    let error = sender.close(CLOSE_DEADLINE).await.err()?;
    let channel = error.channels.first();
    Some(Ended {
        text: error.to_string(),
        peer: channel.map_or(peer, |channel| channel.peer.clone()),
        account: channel.map(|it| (it.account.accepted, it.account.acknowledged)),
    })
}

fn not_sent(error: &SendError, peer: &str) -> Ended {
    let account = match error {
        SendError::Lost(lost) => Some((lost.account.accepted, lost.account.acknowledged)),
        _ => None,
    };
    Ended { text: error.to_string(), peer: peer.to_owned(), account }
}

/// Accepts a channel and compares every message with the one that is due, until the channel ends.
pub(super) async fn consume<M: Message + PartialEq>(
    node: Node,
    channel: String,
    bytes: usize,
    pace: Pace,
    lot: Lot,
) -> Outcome {
    let mut outcome = Outcome::default();
    let (peer, receiver) = match node.accept::<M>(&channel).await {
        Ok(accepted) => accepted,
        Err(error) => {
            outcome.error =
                Some(Ended { text: error.to_string(), peer: String::new(), account: None });
            return outcome;
        }
    };
    let mut taking = Taking {
        receiver,
        checker: Checker::new(bytes, Contents::of(lot.seed, &channel)),
        silences: pace.silences.then(Silences::default),
        messages: Vec::with_capacity(MANY),
        lot,
    };
    outcome.began_ns = now_ns();
    let failed = match pace.rate {
        None => taking.all(&mut outcome).await,
        Some(rate) => taking.slowly(&mut outcome, rate).await,
    };
    outcome.error = failed.map(|error| not_received(&error, peer.name()));
    outcome.messages = taking.checker.taken();
    outcome.silences = taking.silences.map(Silences::into_noted).unwrap_or_default();
    outcome.ended_ns = now_ns();
    outcome.link = LinkCounts::of(&peer.stats());
    outcome
}

fn not_received(error: &RecvError, peer: &str) -> Ended {
    Ended { text: error.to_string(), peer: peer.to_owned(), account: None }
}

struct Taking<M> {
    receiver: Receiver<M>,
    checker: Checker<M>,
    silences: Option<Silences>,
    messages: Vec<M>,
    lot: Lot,
}

impl<M: Message + PartialEq> Taking<M> {
    async fn all(&mut self, outcome: &mut Outcome) -> Option<RecvError> {
        loop {
            match self.some(outcome, MANY).await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(error),
            }
        }
    }

    /// Takes `rate` messages a second until the process is stopped, then the rest at once.
    async fn slowly(&mut self, outcome: &mut Outcome, rate: u64) -> Option<RecvError> {
        let share = (rate / SHARES_PER_SECOND).max(1);
        let pause = Duration::from_secs_f64(share as f64 / rate as f64);
        while !self.lot.stop.load(Ordering::Relaxed) {
            let due = self.checker.taken() + share;
            while self.checker.taken() < due {
                let left = (due - self.checker.taken()) as usize;
                match self.some(outcome, left.min(MANY)).await {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => return Some(error),
                }
            }
            tokio::time::sleep(pause).await;
        }
        self.all(outcome).await
    }

    /// Takes the messages that are there, at most `max`; returns false at the end of the channel
    /// and after a fault.
    async fn some(&mut self, outcome: &mut Outcome, max: usize) -> Result<bool, RecvError> {
        let Self { receiver, checker, silences, messages, lot } = self;
        messages.clear();
        match receiver.recv_many(messages, max).await {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            // An error of one message, not of the session.
            Err(RecvError::Decode(_)) => {
                outcome.fault = Some(Fault::Undecodable { due: checker.taken() });
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        if let Some(silences) = silences {
            silences.note(now_ns());
        }
        for message in &*messages {
            if let Err(fault) = checker.take(message) {
                outcome.fault = Some(fault);
                return Ok(false);
            }
        }
        lot.taken.store(checker.taken(), Ordering::Relaxed);
        Ok(true)
    }
}
