//! Joining of all ranks but 0: they find out where rank 0 is, and dial it until it answers.

use super::building::{Built, listen_for, source_address};
use super::{JoinError, Joined, Joining};
use crate::cluster::launch::{Launcher, Meeting, Pmi, private_folder};
use crate::cluster::member::Way;
use crate::cluster::{Cluster, Refusal};
use chunkcomm::host::{self, Instant};
use chunkcomm::{Address, Credential, Peer};
use chunkcomm_proto::backoff::Backoff;
use chunkcomm_proto::causes::with_causes;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Key of rank 0's address in the key-value space.
pub(super) const PMI_KEY: &str = "chunkcomm-0";

/// Longest wait for an address to answer, before the next is tried.
const DIAL: Duration = Duration::from_secs(5);

/// Returns the address of rank 0, as far as it is known.
type Find<'a> = Box<dyn Fn() -> Option<Meeting> + Send + 'a>;

/// One attempt at reaching rank 0.
enum Attempt {
    Reached(Built, Peer),
    /// Failed with this reason; a later attempt may succeed.
    NotYet(String),
    Hopeless(JoinError),
}

impl Joining {
    /// Joins a copy that rank 0 started.
    pub(super) async fn join_parent(self, parent: Address) -> Result<Cluster, JoinError> {
        // The call ties this process's life to its parent's, and returns the parent's credential.
        let told = crate::launch::child().and_then(|place| place.credential);
        let meeting = Meeting { credential: told, addresses: vec![parent] };
        self.follow(Box::new(move || Some(meeting.clone()))).await
    }

    pub(super) async fn follow_at(self, addresses: Vec<Address>) -> Result<Cluster, JoinError> {
        let meeting = Meeting { credential: None, addresses };
        self.follow(Box::new(move || Some(meeting.clone()))).await
    }

    pub(super) async fn meet_by_pmi<S>(mut self, mut pmi: Pmi<S>) -> Result<Cluster, JoinError>
    where
        S: io::Read + io::Write + Send + 'static,
    {
        let (rank, size) = pmi.rank_and_size();
        self.place.learn(rank, size);
        self.config.check_nodes(&self.place)?;
        if rank == 0 {
            return self.lead_by_pmi(pmi).await;
        }
        let talk = move || {
            pmi.barrier()?;
            let text = pmi.get(PMI_KEY)?;
            pmi.finalize()?;
            Ok::<_, JoinError>(text)
        };
        let text = self.with_launcher(talk).await??;
        let meeting = Meeting::from_text(&text).ok_or_else(|| JoinError::Told {
            // The text itself is left out: a credential may be in it.
            why: "what it put in the launcher's key-value space".to_owned(),
        })?;
        self.follow(Box::new(move || Some(meeting.clone()))).await
    }

    pub(super) async fn meet_by_file(self, name: &str) -> Result<Cluster, JoinError> {
        if self.place.rank() == Some(0) {
            return self.lead_by_file(name).await;
        }
        // Rank 0 makes the folder, and removes it.
        let find = || match private_folder(false) {
            Ok(folder) => Ok(Meeting::read(&folder.join(name))),
            Err((_, error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err((path, error)) => Err(JoinError::Meeting { path, error: Arc::new(error) }),
        };
        find()?;
        self.follow(Box::new(move || find().ok().flatten())).await
    }

    /// Joins with the words of the process that started this one over ssh. First comes the
    /// credential, then the address of rank 0 as soon as that is known.
    pub(super) async fn meet_as_told(self) -> Result<Cluster, JoinError> {
        let told = self.blocking(|| crate::launch::after_words(2)).await?;
        let told = told.ok_or_else(|| JoinError::NoManager {
            waited: self.within,
            last: "who started this node did not say where it is".to_owned(),
        })?;
        let told = told.map_err(|error| JoinError::System {
            what: "tell the node where its cluster is, by standard input",
            error: Arc::new(error),
        })?;
        let credential: Credential = told[0].parse().map_err(JoinError::Credential)?;
        if self.place.rank() == Some(0) {
            return self.lead_as_told(credential).await;
        }
        let address =
            told[1].parse().map_err(|error| JoinError::Told { why: with_causes(&error) })?;
        let meeting = Meeting { credential: Some(credential), addresses: vec![address] };
        self.follow(Box::new(move || Some(meeting.clone()))).await
    }

    /// Dials rank 0 until it answers or the time is over. `find` returns the address that is known
    /// so far.
    fn follow(self, find: Find<'_>) -> Joined<'_> {
        Box::pin(self.follow_on(find))
    }

    async fn follow_on(mut self, find: Find<'_>) -> Result<Cluster, JoinError> {
        let mut backoff = Backoff::new(u64::from(host::process_id()));
        loop {
            let attempt = match find() {
                Some(meeting) => self.attempt(&meeting).await,
                None => Attempt::NotYet("it has not said where it is".to_owned()),
            };
            match attempt {
                Attempt::Reached(mut built, peer) => {
                    let way = Way::There(peer.dialled().cloned().into_iter().collect());
                    self.add_to_its_name(&mut built.addresses, peer.dialled()).await;
                    let state = self.state(built.node, &built.addresses);
                    self.credential = built.credential;
                    return self.settle(state, way, peer, None).await;
                }
                Attempt::NotYet(last) if self.left().is_zero() => {
                    return Err(JoinError::NoManager { waited: self.within, last });
                }
                Attempt::NotYet(_) if self.place.rank_0_has_ended() => {
                    let loss = "srun has no task of it any more".into();
                    return Err(JoinError::Refused(Refusal::DiedEarly { rank: 0, loss }));
                }
                Attempt::NotYet(_) => {}
                Attempt::Hopeless(error) => return Err(error),
            }
            host::sleep(backoff.wait().min(self.left())).await;
        }
    }

    fn left(&self) -> Duration {
        self.until - Instant::now()
    }

    async fn attempt(&self, meeting: &Meeting) -> Attempt {
        let listen = match self.places_to_listen(&meeting.addresses).await {
            Ok(listen) => listen,
            Err(error) => return Attempt::NotYet(format!("{}: {error}", meeting.addresses[0])),
        };
        let host = self.own_host();
        let credential = meeting.credential.as_ref();
        let built = match self.build(&listen, credential, host.as_deref()).await {
            Ok(built) => built,
            Err(error) => return Attempt::Hopeless(error),
        };
        let mut last = "no address of it is known".to_owned();
        for (index, address) in meeting.addresses.iter().enumerate() {
            if index > 0 && self.left().is_zero() {
                break;
            }
            let limit = DIAL.min(self.left().max(Duration::from_secs(1)));
            // A single attempt: before the next, `find` is asked again.
            let dialling = built.node.connect_within(address, Duration::ZERO);
            match host::timeout(limit, dialling).await {
                Ok(Ok(peer)) => return Attempt::Reached(built, peer),
                Ok(Err(error)) if meeting.addresses.len() == 1 && !error.may_pass() => {
                    return Attempt::Hopeless(JoinError::Admission(error));
                }
                Ok(Err(error)) => last = with_causes(&error),
                Err(_) => last = format!("{address} does not answer"),
            }
        }
        Attempt::NotYet(last)
    }

    /// Adds the IP address that leads to rank 0. The name of a pod may be published after the pod
    /// has joined, and a failed lookup is repeated only after a while.
    async fn add_to_its_name(&self, addresses: &mut Vec<Address>, manager: Option<&Address>) {
        if self.place.launcher() != Launcher::Kubernetes {
            return;
        }
        let (Some(Address::Tcp { port, .. }), Some(Address::Tcp { host, port: to })) =
            (addresses.first(), manager)
        else {
            return;
        };
        let port = *port;
        let found = tokio::net::lookup_host((host.as_str(), *to)).await;
        let there = found.ok().and_then(|mut found| found.next());
        // Without a route, the name is the only address.
        if let Some(own) = there.and_then(|there| source_address(there).ok()) {
            addresses.push(Address::Tcp { host: own.to_string(), port });
        }
    }

    /// Returns the addresses to listen at so that rank 0 and other peers reach this node. They are
    /// beside rank 0's socket, or those of this machine that lead to rank 0.
    async fn places_to_listen(&self, manager: &[Address]) -> io::Result<Vec<Address>> {
        let at = |host: &str| {
            self.own_ports().into_iter().map(|port| listen_for(host, port)).collect::<Vec<_>>()
        };
        match manager.first() {
            Some(Address::Unix(path)) => Ok(vec![Address::Unix(socket_beside(path)?)]),
            Some(Address::Tcp { host, port }) => {
                if let Some(own) = self.own_host() {
                    return Ok(at(&own));
                }
                let mut found = tokio::net::lookup_host((host.as_str(), *port)).await?;
                let there = found.next().ok_or(io::ErrorKind::NotFound)?;
                Ok(at(&source_address(there)?.to_string()))
            }
            _ => match host::virtual_address(0) {
                Some(own) => Ok(vec![own]),
                None => Err(io::ErrorKind::Unsupported.into()),
            },
        }
    }
}

/// Returns a name that no other process takes, even one in another container.
fn socket_beside(manager: &Path) -> io::Result<std::path::PathBuf> {
    let mut random = [0; 4];
    host::fill_random(&mut random)?;
    let name = format!("{}-{:08x}", host::process_id(), u32::from_le_bytes(random));
    Ok(manager.with_file_name(name))
}
