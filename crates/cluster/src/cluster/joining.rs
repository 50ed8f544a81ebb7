//! Way from a place to a member: builds a node, finds rank 0, waits for the start of the others.

mod building;
mod following;
mod leading;

use super::launch::{Launcher, Meet, Place, Pmi, Removed, hostname, on_a_thread, ssh};
use super::member::{self, Way};
use super::processes::set_member;
use super::{Cluster, ClusterConfig, End, JoinError, Refusal, Shared, State};
use crate::launch::LaunchError;
use crate::moving::moving;
use crate::proto::cluster::Ready;
use crate::proto::cluster::membership::Membership;
use crate::sync::locked;
use crate::tasks::spawn;
use chunkcomm::host::{self, Instant};
use chunkcomm::layer::given_name;
use chunkcomm::{Address, Credential, Node, Peer};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Time added to the wait for the manager's word, which names the missing nodes.
const ANSWER_GRACE: Duration = Duration::from_secs(10);

/// State on the way to a member.
struct Joining {
    config: ClusterConfig,
    place: Place,
    within: Duration,
    until: Instant,
    /// The credential that was given; that of the node once it is built.
    credential: Option<Credential>,
}

/// A part of the way to a member. On the heap, its code is compiled once, and not within each part
/// that awaits it.
type Joined<'a> = Pin<Box<dyn Future<Output = Result<Cluster, JoinError>> + Send + 'a>>;

/// Joins a cluster. The future is on the heap, so that its code is compiled with this crate, and
/// not with each program that awaits it.
pub(super) fn join(config: ClusterConfig) -> Joined<'static> {
    Box::pin(join_it(config))
}

async fn join_it(config: ClusterConfig) -> Result<Cluster, JoinError> {
    outlive_sigusr1()?;
    let place = config.place()?;
    let within = config.ready_time()?;
    let until = Instant::now() + within;
    let credential = config.given_credential()?;
    let joining = Joining { config, place, within, until, credential };
    joining.config.check_nodes(&joining.place)?;
    match joining.place.meet.clone() {
        Meet::Start if host::is_virtual() => Err(JoinError::System {
            what: "start copies of a program in a simulation: Simulation::launch does",
            error: Arc::new(io::ErrorKind::Unsupported.into()),
        }),
        Meet::Start => match joining.config.hosts.clone() {
            Some(path) => ssh::supervise(&joining.config, &path, joining.credential.as_ref()).await,
            None => joining.start_copies().await,
        },
        Meet::Parent(address) => joining.join_parent(address).await,
        Meet::At(addresses) => match joining.place.rank() {
            Some(0) => joining.lead_at(addresses).await,
            _ => joining.follow_at(addresses).await,
        },
        Meet::Pmi(way) => {
            let known = joining.place.rank().zip(joining.place.size());
            let began = joining.with_launcher(move || Pmi::begin(&way, known)).await??;
            joining.meet_by_pmi(began).await
        }
        Meet::File(name) => joining.meet_by_file(&name).await,
        Meet::Told => joining.meet_as_told().await,
    }
}

/// Keeps SIGUSR1 from ending the process, from the call on. When one process dies, Hydra without
/// its clean-up sends the signal to all that are left, also to those that still join. So this comes
/// first: a handler installed after the node is built would be too late.
#[cfg(unix)]
fn outlive_sigusr1() -> Result<(), JoinError> {
    use tokio::signal::unix::{SignalKind, signal};
    if host::is_virtual() {
        return Ok(());
    }
    // The handler stays when its receiver is dropped.
    signal(SignalKind::user_defined1()).map(drop).map_err(|error| JoinError::System {
        what: "let SIGUSR1 be handled",
        error: Arc::new(error),
    })
}

#[cfg(not(unix))]
fn outlive_sigusr1() -> Result<(), JoinError> {
    Ok(())
}

impl Joining {
    /// Speaks with the launcher; `what` may block.
    async fn with_launcher<R: Send + 'static>(
        &self,
        what: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, JoinError> {
        self.blocking(what).await?.ok_or(JoinError::Launch(LaunchError::PmiTimeout))
    }

    /// Runs a blocking `what` on a thread of its own. When the time is over, the thread is left
    /// behind and the result is `None`.
    async fn blocking<R: Send + 'static>(
        &self,
        what: impl FnOnce() -> R + Send + 'static,
    ) -> Result<Option<R>, JoinError> {
        let result = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&result);
        self.wait_for(Box::new(move || *locked(&noted) = Some(what()))).await?;
        Ok(locked(&result).take())
    }

    /// Runs `what` on a thread of its own until its end, or until the time is over.
    async fn wait_for(&self, what: Box<dyn FnOnce() + Send>) -> Result<(), JoinError> {
        let system = |error| JoinError::System { what: "start a thread", error: Arc::new(error) };
        let tells = on_a_thread(what).map_err(system)?;
        let _ = host::timeout_at(self.until, tells).await;
        Ok(())
    }

    /// Returns the state of a node that is about to be a member.
    fn state(&self, node: Node, addresses: &[Address]) -> Arc<State> {
        moving(&node).advertise(addresses.iter().map(Address::to_string).collect());
        let ready = Ready {
            rank: self.place.rank(),
            size: self.place.size(),
            incarnation: node.incarnation(),
            name: given_name(&self.config.node).map(str::to_owned),
            host: hostname(),
            pid: host::process_id(),
            addresses: addresses.iter().map(Address::to_string).collect(),
            program: self.config.program.clone(),
            functions: self.config.functions(),
            again: None,
        };
        let membership = Membership::new(ready, self.config.rejoin_window);
        Arc::new(State::new(node, membership))
    }

    /// Announces the node and waits for the others.
    fn settle(
        self,
        state: Arc<State>,
        way: Way,
        manager: Peer,
        lead: Option<leading::Lead>,
    ) -> Joined<'static> {
        Box::pin(self.settle_there(state, way, manager, lead))
    }

    async fn settle_there(
        self,
        state: Arc<State>,
        way: Way,
        manager: Peer,
        mut lead: Option<leading::Lead>,
    ) -> Result<Cluster, JoinError> {
        let talking = spawn(Box::pin(member::run(Arc::clone(&state), way, manager)));
        let member = Talk(talking.abort_handle());
        let until = self.until.max(Instant::now()) + ANSWER_GRACE;
        let end = match host::timeout_at(until, member::settled(&state)).await {
            Ok(None) => None,
            Ok(Some(End::Refused(why))) => Some(JoinError::Refused(why)),
            Ok(Some(end)) => Some(JoinError::Ended(end)),
            Err(_) => {
                let last = "it does not say whether all are there".to_owned();
                Some(JoinError::NoManager { waited: self.within + ANSWER_GRACE, last })
            }
        };
        if let Some(mut error) = end {
            if let Some(lead) = &mut lead {
                error = with_refusals(error, &state.node);
                if self.place.launcher() == Launcher::Ssh {
                    // Fails when the process that started this one no longer reads; it knows of the
                    // failure itself.
                    let _ = ssh::tell_not_started(&error);
                }
                lead.keeper.dismiss(&state).await;
            }
            return Err(error);
        }
        let id = state.look(Membership::id).ok_or_else(|| {
            let end = state.look(|it| it.end().cloned());
            JoinError::Ended(end.unwrap_or(End::Left))
        })?;
        let (keeper, removed) = match lead {
            Some(lead) => (Some(lead.keeper), lead.removed),
            None => (None, Vec::new()),
        };
        let shared = Shared {
            state,
            place: self.place,
            credential: self.credential,
            id,
            lives: watch::Sender::new(()),
            _member: member,
            keeper: Mutex::new(keeper),
            _removed: removed,
        };
        let cluster = Cluster { shared: Arc::new(shared) };
        set_member(&cluster, cluster.downgrade());
        Ok(cluster)
    }
}

/// On rank 0: adds the refused connections to the error, since they may be those of missing nodes.
fn with_refusals(error: JoinError, node: &Node) -> JoinError {
    let mut refusals = node.refusals();
    refusals.sort_unstable();
    refusals.dedup();
    match error {
        JoinError::Refused(missing @ Refusal::Missing { .. }) if !refusals.is_empty() => {
            JoinError::TurnedAway { missing, refusals }
        }
        error => error,
    }
}

/// The task that talks to the manager; ends when this is dropped.
pub(super) struct Talk(tokio::task::AbortHandle);

impl Drop for Talk {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Files and folders that are removed with the cluster.
pub(super) type Leftovers = Vec<Removed>;
