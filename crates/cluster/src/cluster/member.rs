//! Task of every node that talks to the manager.

use super::{End, State, is_fatal, lines};
use crate::proto::cluster::membership::{Change, Membership, Standing};
use crate::proto::cluster::{Death, Down, Up};
use crate::sync::locked;
use chunkcomm::host::{self, Instant};
use chunkcomm::{Address, Duplex, Loss, LossKind, Node, Peer};
use chunkcomm_proto::Time;
use chunkcomm_proto::backoff::Backoff;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Way to the manager.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// In this process.
    Here,
    /// At the first of these addresses that answers.
    There(Vec<Address>),
}

impl Way {
    /// Links with the manager.
    pub(super) async fn go(&self, node: &Node) -> Result<Peer, Loss> {
        let mut loss = Loss::from("no address is known");
        match self {
            Way::Here => {
                return node.local().await.map_err(Loss::from);
            }
            Way::There(addresses) => {
                for address in addresses {
                    match node.connect_within(address, Duration::ZERO).await {
                        Ok(peer) => return Ok(peer),
                        Err(error) => loss = error.into(),
                    }
                }
            }
        }
        Err(loss)
    }
}

/// Talks to the manager until the membership ends. `first` is the link that joining has opened.
pub(super) async fn run(state: Arc<State>, way: Way, first: Peer) {
    talk_on(&state, &way, first).await;
    state.over.send_replace(true);
    if state.look(|it| matches!(it.end(), Some(End::ManagerLost { .. }))) {
        // Ends every wait for a node of the lost cluster.
        let _ = state.node.close(Duration::ZERO).await;
    }
}

async fn talk_on(state: &State, way: &Way, first: Peer) {
    let mut manager = Some(first);
    let mut backoff = Backoff::new(state.node.incarnation() as u64);
    loop {
        let loss = match manager.take() {
            Some(manager) => match talk(state, &manager).await {
                Some(loss) => loss,
                None => return,
            },
            None => match reach(state, way).await {
                Ok(peer) => {
                    manager = Some(peer);
                    continue;
                }
                Err(loss) => loss,
            },
        };
        if !state.change(|it| it.handle_manager_lost(loss, Instant::now().time())) {
            return;
        }
        host::sleep(backoff.wait()).await;
        state.change(|it| it.handle_timeout(Instant::now().time()));
    }
}

async fn reach(state: &State, way: &Way) -> Result<Peer, Loss> {
    /// Longest time of one attempt.
    const ATTEMPT: Duration = Duration::from_secs(5);
    let gone = host::timeout(ATTEMPT, way.go(&state.node));
    gone.await.unwrap_or_else(|_| Err(Loss::new(LossKind::Silent, "it does not answer")))
}

/// Runs one line until it ends. Returns the cause of its loss, or `None` when nothing more is to be
/// sent.
async fn talk(state: &State, manager: &Peer) -> Option<Loss> {
    let duplex = match lines::open(&state.node, manager).await {
        Ok(duplex) => duplex,
        Err(error) => return Some(error.into()),
    };
    let changed = state.changed.subscribe();
    state.change(Membership::announce);
    Line { state, manager, duplex, changed, until: None, losses: 0 }.hold().await
}

/// Waits until no node listens at the manager's address.
async fn deserted(manager: &Peer, losses: &mut u64) {
    match manager.dialled() {
        Some(address) => lines::deserted(manager, address, losses).await,
        None => std::future::pending().await,
    }
}

/// Next event for a member.
enum Next {
    Heard(Result<Option<Down>, Loss>),
    Words,
    Late,
    Deserted,
}

struct Line<'a> {
    state: &'a State,
    manager: &'a Peer,
    duplex: Duplex<Up, Down>,
    changed: watch::Receiver<()>,
    until: Option<Time>,
    /// Number of lost connections of the link that were looked into.
    losses: u64,
}

impl Line<'_> {
    async fn hold(mut self) -> Option<Loss> {
        loop {
            if let Err(loss) = self.say().await {
                return Some(loss);
            }
            if self.state.look(|it| it.end().is_some()) {
                return None;
            }
            self.until = self.state.look(Membership::poll_timeout);
            match self.next().await {
                Next::Heard(Ok(Some(message))) => {
                    if let Err(loss) = self.hear(message) {
                        return Some(loss);
                    }
                }
                Next::Heard(Ok(None)) => {
                    return Some("it ended without a word".into());
                }
                Next::Heard(Err(loss)) => return Some(loss),
                Next::Words => {}
                Next::Deserted => return Some(self.desert()),
                Next::Late => self.state.change(|it| it.handle_timeout(Instant::now().time())),
            }
        }
    }

    /// Marks the manager's process as gone, so that nothing waits for its link; returns the reason.
    fn desert(&self) -> Loss {
        let loss = Loss::from("nobody listens any more where it was");
        self.state.node.declare_dead(self.manager.incarnation(), loss.clone());
        loss
    }

    async fn next(&mut self) -> Next {
        let now = Instant::now().time();
        let deserted = deserted(self.manager, &mut self.losses);
        let rest = self.until.map(|until| Duration::from_micros(until.micros_since(now)) + STEP);
        tokio::select! {
            biased;
            heard = self.duplex.recv() => {
                Next::Heard(heard.map_err(Loss::from))
            }
            _ = self.changed.changed() => Next::Words,
            () = deserted => Next::Deserted,
            () = host::sleep(rest.unwrap_or_default()), if rest.is_some() => Next::Late,
        }
    }

    async fn say(&mut self) -> Result<(), Loss> {
        while let Some(word) = { locked(&self.state.membership).poll_transmit() } {
            self.duplex.sender().send_now(&word).await?;
        }
        Ok(())
    }

    fn hear(&self, message: Down) -> Result<(), Loss> {
        let before = self.state.look(Membership::changes);
        let heard = self.state.change(|it| it.handle_message(message));
        heard.inspect_err(|loss| self.manager.declare_dead(loss.clone()))?;
        bury_the_dead(self.state, before);
        Ok(())
    }
}

/// Extra wait, since a timer may come early.
const STEP: Duration = Duration::from_millis(1);

/// Reports the deaths among the changes from this number on.
fn bury_the_dead(state: &State, mut number: u64) {
    while let Some((change, next)) = state.look(|it| it.change(number)) {
        number = next;
        if let Change::Died(death) = change {
            bury(state, &death);
        }
    }
}

/// Reports a death to all waits on this node for the dead member.
fn bury(state: &State, death: &Death) {
    state.node.declare_dead(death.id.incarnation, death.loss.clone());
}

/// Waits until the manager has admitted the node; returns the end if it has not.
pub(super) async fn settled(state: &State) -> Option<End> {
    let settled = state.until(|it| match it.standing() {
        Standing::Member => Some(None),
        Standing::Ended(end) => Some(Some(end.clone())),
        _ => None,
    });
    settled.await.filter(is_fatal)
}
