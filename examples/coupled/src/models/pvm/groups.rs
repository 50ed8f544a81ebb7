//! Groups of tasks, as PVM's library of groups has them, on top of its messages. A task on rank 0 keeps them, as
//! `pvmgs`. A member that ends, or whose node is gone, leaves its groups.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use chunkcomm::layer::Wait;
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::process::Failure;
use chunkcomm_cluster::registry::Travels;
use serde::{Deserialize, Serialize};

use super::super::sole::{Sole, withdrawn};
use super::{Pvm, Tid, What};

/// Name that rank 0 alone provides while it has a server.
pub(super) const SERVER: &str = "pvm groups";

/// Number of the server's task on rank 0.
pub(super) const NUMBER: u64 = 0;

/// Tag of questions to the server, and of ends that it is notified of. Answers have the tags below.
const ASK: i32 = -1;

/// A question of a task about a group.
#[derive(Serialize, Deserialize)]
enum Ask {
    Join,
    Leave,
    Look,
    /// Waits for this number of members.
    Barrier(u32),
}

/// Members of a group by their instance numbers.
type Members = BTreeMap<u32, Tid>;

type Answer = Result<Members, String>;

/// Answers with the tasks and tags that they go to.
type Answers = Vec<(Tid, i32, Answer)>;

impl Pvm {
    async fn ask(&mut self, group: &str, ask: Ask) -> Result<Members, Failure> {
        let cluster = self.cluster.clone();
        let host = cluster.provider(SERVER).await?;
        let server = Tid { host, number: NUMBER };
        self.asked += 1;
        let tag = ASK - self.asked;
        let refused = |why| Failure::new(format!("group {group:?}: {why}"));
        let asked = async {
            self.send(server, ASK, &(group.to_owned(), tag, ask)).await?;
            self.recv(Some(server), Some(tag)).await
        };
        let answer = tokio::select! {
            biased;
            answer = asked => answer?,
            why = withdrawn(&cluster, SERVER, host) => return Err(refused(why)),
        };
        answer.value.unpack::<Answer>()?.map_err(refused)
    }

    /// Becomes a member; returns the lowest instance number that was free.
    ///
    /// # Errors
    /// The task is a member already, or the cluster has ended.
    pub async fn joingroup(&mut self, group: &str) -> Result<u32, Failure> {
        let (members, own) = (self.ask(group, Ask::Join).await?, self.tid);
        let joined = members.into_iter().find(|(_, tid)| *tid == own);
        Ok(joined.ok_or_else(|| Failure::new(format!("{own} was not taken into {group:?}")))?.0)
    }

    /// Is a member no longer.
    ///
    /// # Errors
    /// The task is no member, or the cluster has ended.
    pub async fn lvgroup(&mut self, group: &str) -> Result<(), Failure> {
        self.ask(group, Ask::Leave).await.map(drop)
    }

    /// Returns the number of members.
    ///
    /// # Errors
    /// The cluster has ended.
    pub async fn gsize(&mut self, group: &str) -> Result<usize, Failure> {
        Ok(self.ask(group, Ask::Look).await?.len())
    }

    /// Returns the member with this instance number.
    ///
    /// # Errors
    /// The cluster has ended.
    pub async fn gettid(&mut self, group: &str, instance: u32) -> Result<Option<Tid>, Failure> {
        Ok(self.ask(group, Ask::Look).await?.get(&instance).copied())
    }

    /// Returns the instance number of a member.
    ///
    /// # Errors
    /// The cluster has ended.
    pub async fn getinst(&mut self, group: &str, tid: Tid) -> Result<Option<u32>, Failure> {
        let mut members = self.ask(group, Ask::Look).await?.into_iter();
        Ok(members.find(|member| member.1 == tid).map(|member| member.0))
    }

    /// Sends a value to the members of a group, which the caller need not be; a member does not send to itself.
    ///
    /// # Errors
    /// As [`Pvm::mcast`]: a member has just ended. The others get the value.
    pub async fn bcast<T: Travels>(
        &mut self,
        group: &str,
        tag: i32,
        value: &T,
    ) -> Result<(), Failure> {
        let (members, own) = (self.ask(group, Ask::Look).await?, self.tid);
        let others: Vec<Tid> = members.into_values().filter(|tid| *tid != own).collect();
        self.mcast(&others, tag, value).await
    }

    /// Waits until `count` members have come. Dropped, it still counts as come; the next call comes anew.
    ///
    /// # Errors
    /// A member has ended since the last barrier: each other member is told once, by name, and the tasks that wait
    /// come anew. The task is no member, or others wait for another number.
    pub async fn barrier(&mut self, group: &str, count: u32) -> Result<(), Failure> {
        let what = format!("{count} members of group {group:?} at a barrier");
        let _wait = Wait::begin(self.cluster.node(), what);
        self.ask(group, Ask::Barrier(count)).await.map(drop)
    }
}

/// A group, as the server knows it.
#[derive(Default)]
struct Group {
    members: Members,
    /// Members at the barrier, with the tags of their answers.
    come: BTreeMap<Tid, i32>,
    /// Number that they wait for.
    count: u32,
    /// Ends that a member is yet to be told of.
    ended: BTreeMap<Tid, Vec<String>>,
}

/// Answers questions about groups until the cluster ends, unless a server does so already.
pub(super) async fn serve(cluster: Cluster, _sole: Sole) -> Result<(), Failure> {
    let mut pvm = Pvm::new(&cluster, NUMBER, None);
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut watched = BTreeSet::new();
    loop {
        let message = pvm.recv(None, Some(ASK)).await?;
        let answers = if message.from == pvm.tid {
            let gone = message.value.unpack()?;
            watched.remove(&gone);
            groups.values_mut().flat_map(|group| group.lost(gone)).collect()
        } else if let Ok((name, tag, ask)) = message.value.unpack() {
            if watched.insert(message.from) {
                pvm.notify(What::TaskExit(message.from), ASK);
            }
            let group: &mut Group = groups.entry(name).or_default();
            group.answers(message.from, tag, ask)
        } else {
            continue;
        };
        groups.retain(|_, group| !group.members.is_empty());
        for (to, tag, answer) in answers {
            // An error is the end of the task, which needs no answer.
            let _ = pvm.send(to, tag, &answer).await;
        }
    }
}

impl Group {
    fn answers(&mut self, by: Tid, tag: i32, ask: Ask) -> Answers {
        let own = self.members.iter().find(|member| *member.1 == by).map(|member| *member.0);
        let done = match (ask, own) {
            (Ask::Look, _) => Ok(()),
            (Ask::Join, None) => {
                let free = (0..).find(|instance| !self.members.contains_key(instance));
                self.members.extend(free.map(|instance| (instance, by)));
                Ok(())
            }
            (Ask::Join, Some(instance)) => Err(format!("{by} is its member {instance} already")),
            (_, None) => Err(format!("{by} is not its member")),
            (Ask::Leave, Some(instance)) => {
                self.members.remove(&instance);
                self.come.remove(&by);
                self.ended.remove(&by);
                Ok(())
            }
            (Ask::Barrier(count), Some(_)) => match self.come(by, tag, count) {
                Ok(passed) => return passed,
                Err(why) => Err(why),
            },
        };
        vec![(by, tag, done.map(|()| self.members.clone()))]
    }

    /// Notes that a member has come to the barrier; returns the answers to all when it was the last.
    fn come(&mut self, by: Tid, tag: i32, count: u32) -> Result<Answers, String> {
        if let Some(ended) = self.ended.remove(&by) {
            return Err(ended.join(", "));
        }
        self.come.remove(&by);
        if !self.come.is_empty() && self.count != count {
            return Err(format!("others wait for {} members, not {count}", self.count));
        }
        self.come.insert(by, tag);
        self.count = count;
        if self.come.len() < count as usize {
            return Ok(Vec::new());
        }
        let passed = take(&mut self.come).into_iter();
        Ok(passed.map(|(to, tag)| (to, tag, Ok(self.members.clone()))).collect())
    }

    /// Removes a task that has ended; returns the answers to those at the barrier.
    fn lost(&mut self, gone: Tid) -> Answers {
        let before = self.members.len();
        self.members.retain(|_, tid| *tid != gone);
        self.ended.remove(&gone);
        let mut come = take(&mut self.come);
        come.remove(&gone);
        if self.members.len() == before {
            self.come = come;
            return Vec::new();
        }
        let why = format!("its member {gone} has ended");
        for tid in self.members.values().filter(|tid| !come.contains_key(tid)) {
            self.ended.entry(*tid).or_default().push(why.clone());
        }
        come.into_iter().map(|(to, tag)| (to, tag, Err(why.clone()))).collect()
    }
}
