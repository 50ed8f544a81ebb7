//! The newest state, and the number of viewers. The thread of the page gathers while there are viewers.

use crate::gather::{Gatherer, HERE};
use crate::guard::Guard;
use crate::log::{Log, locked, now_ms};
use crate::members::{Members, Others};
use crate::state::{EventState, MemberState, NodeDetail, NodeState, Shown, Standing, VERSION};
use chunkcomm::layer::WeakNode;
use chunkcomm_cluster::Cluster;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time between two gatherings: 200 ms, so that a viewer gets five states a second.
pub(crate) const EVERY: Duration = Duration::from_millis(200);

/// Most waits that are shown of all nodes together.
const WAITS_MAX: usize = 100;

/// Most warnings that are shown of all nodes together.
const WARNINGS_MAX: usize = 100;

/// Most sections that are shown of all nodes together.
const SECTIONS_MAX: usize = 64;

/// Counts of a page so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageStats {
    /// Number of viewers now.
    pub viewers: usize,
    /// Number of times that the page gathered; it stands still while nobody looks.
    pub gathered: u64,
    /// Number of states that were handed to viewers. A slow viewer gets fewer.
    pub sent: u64,
}

/// State of a page, shared by its thread and its viewers.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) node: WeakNode,
    pub(crate) guard: Guard,
    title: String,
    started_ms: u64,
    pub(crate) viewers: watch::Sender<usize>,
    newest: watch::Sender<Arc<Everything>>,
    pub(crate) log: Mutex<Log>,
    pub(crate) members: Mutex<Members>,
    pub(crate) gathered: AtomicU64,
    pub(crate) sent: AtomicU64,
}

/// Everything that was gathered at one moment.
#[derive(Debug, Default)]
pub(crate) struct Everything {
    /// Number of the gathering, from 1; 0 before the first.
    pub(crate) number: u64,
    pub(crate) ended: bool,
    at_ms: u64,
    here: String,
    is_cluster: bool,
    members: Vec<MemberState>,
    members_left_out: u64,
    events: Vec<EventState>,
    /// The nodes that have reported: this one first.
    pub(crate) nodes: Vec<(String, Arc<NodeState>, Instant)>,
}

impl Everything {
    /// Whether all members that are there have reported.
    pub(crate) fn is_whole(&self) -> bool {
        let is_there = |member: &&MemberState| member.standing == Standing::Here;
        !self.is_cluster || self.members.iter().filter(is_there).all(|member| member.reports)
    }
}

impl Hub {
    pub(crate) fn new(node: WeakNode, guard: Guard) -> Hub {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = std::path::Path::new(&program).file_name().unwrap_or_default();
        Hub {
            node,
            guard,
            title: program.to_string_lossy().into_owned(),
            started_ms: now_ms(),
            viewers: watch::Sender::new(0),
            newest: watch::Sender::default(),
            log: Mutex::default(),
            members: Mutex::default(),
            gathered: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }

    /// Returns a reader of what is gathered.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Everything>> {
        self.newest.subscribe()
    }

    pub(crate) fn stats(&self) -> PageStats {
        PageStats {
            viewers: *self.viewers.borrow(),
            gathered: self.gathered.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
        }
    }

    /// Shows for the last time what was gathered last, as that of a program that has ended.
    pub(crate) fn end(&self) {
        self.newest.send_modify(|newest| {
            let last = &**newest;
            *newest = Arc::new(Everything {
                number: last.number + 1,
                ended: true,
                at_ms: now_ms(),
                here: last.here.clone(),
                is_cluster: last.is_cluster,
                members: last.members.clone(),
                members_left_out: last.members_left_out,
                events: locked(&self.log).newest(),
                nodes: last.nodes.clone(),
            });
        });
    }

    /// Gathers while there are viewers, until the node is gone.
    pub(crate) async fn gather_for_viewers(&self) {
        let mut viewers = self.viewers.subscribe();
        while viewers.wait_for(|viewers| *viewers > 0).await.is_ok() {
            let (mut gatherer, mut others) = (Gatherer::new(HERE), Others::default());
            while *viewers.borrow() > 0 {
                let begun = tokio::time::Instant::now();
                if !self.gather(&mut gatherer, &mut others).await {
                    return self.end();
                }
                let nobody = viewers.wait_for(|viewers| *viewers == 0);
                // Nobody looks any more, or the next gathering is due.
                let _ = tokio::time::timeout_at(begun + EVERY, nobody).await;
            }
        }
    }

    /// Gathers once; returns false if the node is gone.
    async fn gather(&self, gatherer: &mut Gatherer, others: &mut Others) -> bool {
        let Some(node) = self.node.upgrade().filter(|node| !node.is_closed()) else { return false };
        let cluster = Cluster::of(&node);
        others.follow(cluster.as_ref());
        let state = Arc::new(gatherer.gather(&node).await);
        let (here, members) = {
            let mut members = locked(&self.members);
            members.update(&node, cluster.as_ref());
            (members.here(), members.shown(&state, others))
        };
        let mut nodes = vec![(here.clone(), state, Instant::now())];
        nodes.extend(others.states());
        let (shown, left_out) = members;
        self.gathered.fetch_add(1, Ordering::Relaxed);
        self.newest.send_modify(|newest| {
            *newest = Arc::new(Everything {
                number: newest.number + 1,
                ended: false,
                at_ms: now_ms(),
                here,
                is_cluster: cluster.is_some(),
                members: shown,
                members_left_out: left_out,
                events: locked(&self.log).newest(),
                nodes,
            });
        });
        true
    }

    /// Returns everything as JSON, with the details of the node of this key; by default of this one.
    pub(crate) fn json(&self, everything: &Everything, selected: Option<&str>) -> String {
        let Everything { nodes, here, .. } = everything;
        let found = selected.and_then(|key| nodes.iter().find(|(it, ..)| it == key));
        let is_known = |key: &&str| everything.members.iter().any(|member| member.key == **key);
        // A member that has not reported yet stays selected.
        let key = selected.filter(is_known).unwrap_or(here);
        let chosen = found.or_else(|| nodes.iter().find(|(it, ..)| it == key));
        let mut waits: Vec<_> = nodes
            .iter()
            .flat_map(|(key, it, _)| it.waits.iter().map(|it| (key.as_str(), it)))
            .collect();
        waits.sort_by_key(|(_, wait)| std::cmp::Reverse((wait.is_cycle, wait.for_us)));
        waits.truncate(WAITS_MAX);
        let mut warnings: Vec<_> = nodes
            .iter()
            .flat_map(|(key, it, _)| it.warnings.iter().map(|it| (key.as_str(), it)))
            .collect();
        warnings.sort_by_key(|(_, warning)| warning.age_us);
        warnings.truncate(WARNINGS_MAX);
        let first = chosen.filter(|_| selected.is_some()).into_iter();
        let rest = nodes.iter().filter(|(it, ..)| it != key || selected.is_none());
        let sections = first.chain(rest);
        let mut sections: Vec<_> = sections
            .flat_map(|(key, it, _)| it.report.sections.iter().map(|it| (key.as_str(), it)))
            .collect();
        let reports = nodes.iter().map(|(_, it, _)| it.report.left_out).sum::<u64>();
        let sections_left_out = reports + crate::gather::cut_to(&mut sections, SECTIONS_MAX);
        let shown = Shown {
            version: VERSION,
            title: &self.title,
            at_ms: everything.at_ms,
            started_ms: self.started_ms,
            ended: everything.ended,
            here,
            selected: key,
            is_cluster: everything.is_cluster,
            members: &everything.members,
            members_left_out: everything.members_left_out,
            events: everything.events.clone(),
            waits,
            warnings,
            sections,
            sections_left_out,
            node: chosen.map(|(_, it, at)| NodeDetail {
                node: &it.node,
                age_ms: at.elapsed().as_millis() as u64,
                gathered: it.gathered,
                links: &it.links,
                links_left_out: it.links_left_out,
                channels: &it.channels,
                channels_left_out: it.channels_left_out,
                refusals: &it.refusals,
                explain: &it.explain,
            }),
        };
        serde_json::to_string(&shown).expect("its maps have texts as keys")
    }
}
