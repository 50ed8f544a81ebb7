//! Programs that do the same by nodes that gather messages and by nodes that send each at once.
//!
//! Each node has its own way of sending, so the nodes of one cluster form two teams: even ranks
//! gather, odd ones do not. In each team the first node, the *caller*, does the work with the
//! others. One team works at a time; rank 0 decides which.

use std::error::Error;

use chunkcomm::{Node, Policy};
use chunkcomm_cluster::cluster::End;
use chunkcomm_cluster::cluster::launch::Launcher;
use chunkcomm_cluster::{Cluster, ClusterConfig, Registry};
use clap::{Args, ValueEnum};

use crate::patterns::pin;
use chunkcomm_examples::cluster_options::{ClusterOptions, END_DEADLINE, cause_first};

/// Options of the cluster and of its nodes' sending.
#[derive(Args, Clone, Debug, Default)]
pub struct TeamOptions {
    #[command(flatten)]
    cluster: ClusterOptions,

    /// How the nodes send: half of them each way, or all alike
    #[arg(long, value_enum, default_value_t)]
    policy: Policies,
}

/// Policies of the teams.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Policies {
    /// Even ranks gather messages, odd ones send each at once
    #[default]
    Both,
    /// All gather messages
    Chunked,
    /// All send each message at once
    Unbuffered,
}

/// Processors of the nodes that one process starts on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seats {
    /// Chosen by the system.
    Any,
    /// One for each node of a team, as far as there are enough. Nodes of one thread that wake each
    /// other may otherwise take turns on one processor ([`pin`]).
    OneEach,
}

/// Nodes that send alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// Whether the nodes gather messages.
    pub gathers: bool,
    /// Rank of the node that does the work.
    pub caller: u32,
    /// Ranks of its helpers: the rest of the team, or the caller itself where it is alone.
    pub helpers: Vec<u32>,
}

impl Team {
    /// Returns the name of the team's policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        if self.gathers { "chunked" } else { "unbuffered" }
    }

    /// Whether the caller helps itself, through memory: such figures are not of a network.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.helpers == [self.caller]
    }
}

impl Policies {
    fn teams(self) -> u32 {
        if self == Policies::Both { 2 } else { 1 }
    }

    /// Whether the node of this rank gathers messages.
    fn gathers(self, rank: u32) -> bool {
        match self {
            Policies::Both => rank.is_multiple_of(2),
            Policies::Chunked => true,
            Policies::Unbuffered => false,
        }
    }

    /// Returns the teams of `size` nodes, in the order of their callers.
    fn share_out(self, size: u32) -> Result<Vec<Team>, String> {
        let teams = self.teams();
        if size < teams {
            return Err(format!("{size} node: each of {teams} policies needs one"));
        }
        let team = |caller: u32| {
            let helpers: Vec<u32> = (caller + teams..size).step_by(teams as usize).collect();
            let helpers = if helpers.is_empty() { vec![caller] } else { helpers };
            Team { gathers: self.gathers(caller), caller, helpers }
        };
        Ok((0..teams).map(team).collect())
    }
}

impl TeamOptions {
    /// Returns the options of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &ClusterOptions {
        &self.cluster
    }

    /// Checks whether options that are each right go together.
    ///
    /// # Errors
    /// A text that says what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let teams = self.policy.teams();
        match self.cluster.nodes {
            Some(nodes) if nodes < teams => Err(format!(
                "--nodes {nodes}: each of {teams} policies needs a node: allowed are {teams} nodes \
                 and more, or one --policy"
            )),
            _ => Ok(()),
        }
    }

    /// Joins the cluster. Rank 0 runs `lead` with the teams; the others run `processes` for it until
    /// it is done. Nodes that this process starts itself are `each` for a team, unless `--nodes`
    /// gives their number, and run on processors by `seats`.
    ///
    /// # Errors
    /// `lead` failed, the cluster ended before `lead` was done, or there are too few nodes.
    pub async fn run(
        &self,
        each: u32,
        seats: Seats,
        processes: &Registry,
        lead: impl AsyncFnOnce(&Cluster, &[Team]) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let (config, launcher) = self.config(each, processes)?;
        let Some(cluster) = self.cluster.join(config).await? else { return Ok(()) };
        // Pinned only now: copies started by a pinned process would share its processor.
        let one_machine = matches!(launcher, Launcher::User | Launcher::Copy);
        if seats == Seats::OneEach && one_machine && self.cluster.hosts.is_none() {
            pin((cluster.rank() / self.policy.teams()) as usize);
        }
        if cluster.rank() > 0 {
            cluster.finished().await;
            return Ok(cluster.end(END_DEADLINE).await?);
        }
        let done = match self.policy.share_out(cluster.size()) {
            Ok(teams) => lead(&cluster, &teams).await,
            Err(too_few) => Err(too_few.into()),
        };
        let done = cause_first(&cluster, done).await;
        let cut_short = cluster.ended();
        cluster.finish();
        let ended = cluster.end(END_DEADLINE).await;
        match (done, cut_short) {
            (Ok(()), _) => Ok(ended?),
            // The end of the cluster is the cause of the error, unless it was asked to finish.
            (Err(_), Some(end)) if !matches!(end, End::Finished { .. }) => {
                Err(end.to_string().into())
            }
            (Err(error), _) => Err(error),
        }
    }

    fn config(
        &self,
        each: u32,
        processes: &Registry,
    ) -> Result<(ClusterConfig, Launcher), Box<dyn Error>> {
        let mut config = self.cluster.config();
        let place = config.place()?;
        let own_copies = place.launcher() == Launcher::User;
        if own_copies && self.cluster.nodes.is_none() && self.cluster.hosts.is_none() {
            config = config.nodes(each * self.policy.teams());
        }
        let rank = place.rank().or(own_copies.then_some(0));
        let gathers = match rank {
            Some(rank) => self.policy.gathers(rank),
            None if self.policy != Policies::Both => self.policy.gathers(0),
            None => {
                let by = place.launcher();
                return Err(format!(
                    "how a node sends follows from its rank, which {by} tells only when it has \
                     started: run it with --policy unbuffered and with --policy chunked"
                )
                .into());
            }
        };
        let policy = if gathers { Policy::Chunked } else { Policy::Unbuffered };
        let node = Node::builder().policy(policy);
        Ok((config.registry(processes).node(node), place.launcher()))
    }
}

/// Returns the word for a budget that was met or missed.
#[must_use]
pub fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team(gathers: bool, caller: u32, helpers: &[u32]) -> Team {
        Team { gathers, caller, helpers: helpers.to_vec() }
    }

    #[test]
    fn nodes_are_shared_out_by_their_ranks() {
        let both = |size| Policies::Both.share_out(size);
        let six = vec![team(true, 0, &[2, 4]), team(false, 1, &[3, 5])];
        assert_eq!(both(6), Ok(six));
        let three = vec![team(true, 0, &[2]), team(false, 1, &[1])];
        assert!(!three[0].is_alone() && three[1].is_alone());
        assert_eq!(both(3), Ok(three));
        assert_eq!(both(1), Err("1 node: each of 2 policies needs one".to_owned()));
        assert_eq!(Policies::Unbuffered.share_out(3), Ok(vec![team(false, 0, &[1, 2])]));
        assert_eq!(Policies::Chunked.share_out(1), Ok(vec![team(true, 0, &[0])]));
    }

    #[test]
    fn every_member_of_a_team_sends_as_its_caller() {
        for policy in [Policies::Both, Policies::Chunked, Policies::Unbuffered] {
            for size in 2..9 {
                for team in policy.share_out(size).unwrap() {
                    for helper in team.helpers {
                        assert_eq!(policy.gathers(helper), team.gathers, "{policy:?} {size}");
                    }
                }
            }
        }
    }
}
