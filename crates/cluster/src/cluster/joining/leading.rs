//! Joining of rank 0: it listens first, starts the manager, and announces its address to the
//! others.

use super::building::{Built, listen_for};
use super::{JoinError, Joining, Leftovers};
use crate::cluster::keeper::{Keeper, Start};
use crate::cluster::launch::{
    MANAGER_SOCKET, Meeting, PORTS_DEFAULT, Pmi, Removed, hostname, private_folder, socket_folder,
    ssh,
};
use crate::cluster::member::Way;
use crate::cluster::{Cluster, State};
use crate::launch::{COPIES, Children, Launcher};
use chunkcomm::{Address, Credential};
use chunkcomm_proto::causes::with_causes;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Wait of a rank 0 of size 1 for members of an earlier manager: 3 s. That manager's cluster may
/// have grown before the loss; its members dial again at least once a second.
const SUCCEEDS_WITHIN: Duration = Duration::from_secs(3);

/// State that rank 0 has in addition to a member's.
pub(super) struct Lead {
    pub(super) keeper: Keeper,
    pub(super) removed: Leftovers,
}

/// A node that listens where others look for rank 0.
struct Listening {
    built: Built,
    fresh: Option<Credential>,
    removed: Leftovers,
}

impl Listening {
    fn meeting(&self) -> Meeting {
        Meeting { credential: self.fresh.clone(), addresses: self.built.addresses.clone() }
    }
}

fn meeting_fault((path, error): (PathBuf, io::Error)) -> JoinError {
    JoinError::Meeting { path, error: Arc::new(error) }
}

impl Joining {
    /// Joins without a launcher: this process starts the others on this machine.
    pub(super) async fn start_copies(mut self) -> Result<Cluster, JoinError> {
        let size = self.config.copies();
        self.place.learn(0, size);
        let listening = self.listen_on_this_machine().await?;
        let children = if size > 1 { Some(self.copies(&listening, size)?) } else { None };
        self.lead(listening, children).await?.finish().await
    }

    fn copies(&self, listening: &Listening, size: u32) -> Result<Children, JoinError> {
        let mut launcher = Launcher::new(listening.built.addresses[0].clone())
            .args(self.config.arguments.iter().cloned())
            .env(COPIES, size.to_string());
        if let Some(credential) = &listening.fresh {
            launcher = launcher.credential(credential.clone());
        }
        launcher.spawn(size as usize - 1).map_err(JoinError::Launch)
    }

    /// Leads at the first free one of these addresses, which the others know.
    pub(super) async fn lead_at(self, addresses: Vec<Address>) -> Result<Cluster, JoinError> {
        let host = match &addresses[..] {
            [Address::Tcp { host, .. }, ..] => Some(host.clone()),
            _ => None,
        };
        let candidates = addresses.into_iter().map(|address| match address {
            Address::Tcp { host, port } => listen_for(&host, port),
            other => other,
        });
        let candidates: Vec<Address> = candidates.collect();
        let built = self.build(&candidates, None, host.as_deref()).await?;
        let listening = Listening { built, fresh: None, removed: Leftovers::new() };
        self.lead(listening, None).await?.finish().await
    }

    pub(super) async fn lead_by_pmi<S>(self, mut pmi: Pmi<S>) -> Result<Cluster, JoinError>
    where
        S: io::Read + io::Write + Send + 'static,
    {
        let listening = if self.place.is_one_machine() {
            self.listen_on_this_machine().await?
        } else {
            self.listen_everywhere().await?
        };
        let meeting = listening.meeting().to_text();
        let leading = self.lead(listening, None).await?;
        let talk = move || {
            pmi.put(super::following::PMI_KEY, &meeting)?;
            pmi.barrier()?;
            pmi.finalize()
        };
        leading.joining.with_launcher(talk).await??;
        leading.finish().await
    }

    pub(super) async fn lead_by_file(self, name: &str) -> Result<Cluster, JoinError> {
        let listening = self.listen_on_this_machine().await?;
        let path = private_folder(true).map_err(meeting_fault)?.join(name);
        let meeting = listening.meeting();
        let mut leading = self.lead(listening, None).await?;
        meeting.write(&path).map_err(|error| meeting_fault((path.clone(), error)))?;
        leading.lead.removed.push(Removed(path));
        leading.finish().await
    }

    /// Leads nodes that were started over ssh. The first line on standard output reports the port
    /// to the process that started them.
    pub(super) async fn lead_as_told(self, credential: Credential) -> Result<Cluster, JoinError> {
        let host = self.own_host().unwrap_or_else(hostname);
        let ports = self.place.ports().unwrap_or(PORTS_DEFAULT);
        let candidates: Vec<Address> = ports.map(|port| listen_for(&host, port)).collect();
        let built = self.build(&candidates, Some(&credential), Some(&host)).await?;
        let port = built.addresses.iter().find_map(|address| match address {
            Address::Tcp { port, .. } => Some(*port),
            _ => None,
        });
        let listening = Listening { built, fresh: Some(credential), removed: Leftovers::new() };
        let leading = self.lead(listening, None).await?;
        let system = |error| JoinError::System {
            what: "take a line for the process that started this one",
            error: Arc::new(error),
        };
        ssh::tell_port(port.unwrap_or(0)).map_err(system)?;
        let cluster = leading.finish().await?;
        ssh::tell_ready().map_err(system)?;
        Ok(cluster)
    }

    /// Listens at a Unix socket in a folder of this user, or on loopback without Unix sockets.
    /// Makes a credential for this cluster alone.
    async fn listen_on_this_machine(&self) -> Result<Listening, JoinError> {
        let fresh = match &self.credential {
            Some(_) => None,
            None if cfg!(feature = "tls") => {
                Some(Credential::generate().map_err(JoinError::Credential)?)
            }
            None => None,
        };
        let mut removed = Leftovers::new();
        let address = if cfg!(unix) {
            let folder = socket_folder().map_err(meeting_fault)?;
            let address = Address::Unix(folder.0.join(MANAGER_SOCKET));
            removed.push(folder);
            address
        } else {
            listen_for("localhost", 0)
        };
        let built = self.build(&[address], fresh.as_ref(), None).await?;
        Ok(Listening { built, fresh, removed })
    }

    async fn listen_everywhere(&self) -> Result<Listening, JoinError> {
        let host = self.own_host();
        let at = |port| match &host {
            Some(host) => listen_for(host, port),
            None => Address::Tcp { host: "0.0.0.0".to_owned(), port },
        };
        let candidates: Vec<Address> = self.own_ports().into_iter().map(at).collect();
        let built = self.build(&candidates, None, host.as_deref()).await?;
        Ok(Listening { built, fresh: None, removed: Leftovers::new() })
    }

    /// Starts the manager, so that others may come.
    async fn lead(
        mut self,
        listening: Listening,
        children: Option<Children>,
    ) -> Result<Leading, JoinError> {
        let Listening { built, removed, .. } = listening;
        self.credential = built.credential;
        let state = self.state(built.node, &built.addresses);
        let size = self.place.size().unwrap_or(1);
        let start = Start {
            size,
            ready_within: self.within,
            succeeds_within: self.config.rejoin_window.min(SUCCEEDS_WITHIN),
            program: self.config.program.clone(),
            functions: self.config.functions(),
        };
        let keeper = Keeper::start(&state, start, children).map_err(|error| JoinError::System {
            what: "give random numbers",
            error: Arc::new(error),
        })?;
        Ok(Leading { joining: self, state, lead: Lead { keeper, removed } })
    }
}

/// A running manager, before rank 0 itself is a member.
struct Leading {
    joining: Joining,
    state: Arc<State>,
    lead: Lead,
}

impl Leading {
    async fn finish(self) -> Result<Cluster, JoinError> {
        let Leading { joining, state, lead } = self;
        let local = state.node.local().await.map_err(|error| JoinError::NoManager {
            waited: joining.within,
            last: with_causes(&error),
        })?;
        joining.settle(state, Way::Here, local, Some(lead)).await
    }
}
