//! The newest state, and the number of viewers. The thread of the page gathers while there are viewers.

use crate::gather::{Gatherer, HERE};
use crate::guard::Guard;
use crate::log::{Log, locked, now_ms};
use crate::members::{Members, Others};
use crate::state::{EventState, MemberState, NodeDetail, NodeState, Shown, Standing, VERSION};
use axum::body::Bytes;
use chunkcomm::layer::WeakNode;
use chunkcomm::report::Section;
use chunkcomm_cluster::Cluster;
use serde::Serialize;
use std::collections::HashMap;
use std::io;
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

/// Most bytes of the sections of all nodes together, as JSON: 1 MiB. Those of other nodes are
/// [bounded](chunkcomm::report::REPORT_BYTES_MAX) before.
const SECTIONS_BYTES_MAX: usize = 1 << 20;

/// Most viewers at a time; further ones are refused.
pub const VIEWERS_MAX: usize = 32;

/// Most states of one moment that are kept as JSON: one for each node that viewers have selected.
const EVENTS_MAX: usize = VIEWERS_MAX;

/// Texts before the JSON of an event, and behind it.
pub(crate) const EVENT_HEAD: &str = "data: ";
pub(crate) const EVENT_FOOT: &str = "\n\n";

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
    pub(crate) nodes: Vec<Node>,
    /// Events for viewers, by the key of the selected node: each is made once, and shared.
    made: Mutex<HashMap<String, Bytes>>,
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
                made: Mutex::default(),
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
                made: Mutex::default(),
            });
        });
        true
    }

    /// Returns everything as an event, with the details of the node of this key; by default of this one.
    pub(crate) fn event(&self, everything: &Everything, selected: Option<&str>) -> Bytes {
        let is_known = |key: &&str| everything.members.iter().any(|member| member.key == **key);
        // A member that has not reported yet stays selected.
        let key = selected.filter(is_known).unwrap_or(&everything.here);
        if let Some(made) = locked(&everything.made).get(key) {
            return made.clone();
        }
        let event = Bytes::from(self.json(everything, key));
        let mut made = locked(&everything.made);
        if made.len() < EVENTS_MAX {
            made.insert(key.to_owned(), event.clone());
        }
        event
    }

    fn json(&self, everything: &Everything, key: &str) -> String {
        let Everything { nodes, here, .. } = everything;
        let chosen = nodes.iter().find(|(it, ..)| it == key);
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
        let rest = nodes.iter().filter(|(it, ..)| it != key);
        let (sections, sections_left_out) = sections(chosen.into_iter().chain(rest));
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
        let json = serde_json::to_string(&shown).expect("its maps have texts as keys");
        [EVENT_HEAD, &json, EVENT_FOOT].concat()
    }
}

type Node = (String, Arc<NodeState>, Instant);

/// Returns the sections of nodes as far as there is room, and the number of the others.
fn sections<'a>(nodes: impl Iterator<Item = &'a Node>) -> (Vec<(&'a str, &'a Section)>, u64) {
    let (mut shown, mut left_out, mut room) = (Vec::new(), 0_u64, SECTIONS_BYTES_MAX);
    for (key, state, _) in nodes {
        left_out = left_out.saturating_add(state.report.left_out);
        for section in &state.report.sections {
            let has_place = shown.len() < SECTIONS_MAX;
            match has_place.then(|| room.checked_sub(json_bytes(section))).flatten() {
                Some(rest) => {
                    room = rest;
                    shown.push((key.as_str(), section));
                }
                None => left_out = left_out.saturating_add(1),
            }
        }
    }
    (shown, left_out)
}

/// Returns the length of a thing as JSON.
fn json_bytes(of: &impl Serialize) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, of).expect("its maps have texts as keys");
    counter.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm::Node as Program;
    use chunkcomm::report::{Cell, Report, Table};

    /// A hub of a program that has ended; members have reported these states.
    async fn hub(states: Vec<NodeState>) -> (Hub, Everything) {
        let node = Program::builder().quiet().build().await.unwrap();
        let hub = Hub::new(node.downgrade(), Guard::new("127.0.0.1:80".parse().unwrap()).unwrap());
        let key = |at| format!("rank {at}");
        let members =
            (0..states.len()).map(|at| MemberState { key: key(at), ..MemberState::default() });
        let members = members.collect();
        let nodes = states.into_iter().enumerate();
        let nodes = nodes.map(|(at, state)| (key(at), Arc::new(state), Instant::now())).collect();
        (hub, Everything { here: key(0), members, nodes, ..Everything::default() })
    }

    #[tokio::test]
    async fn viewers_share_what_is_made_once() {
        let (hub, everything) = hub(vec![NodeState::default(), NodeState::default()]).await;
        let first = hub.event(&everything, None);
        for same in [None, Some("rank 0"), Some("nobody")] {
            assert_eq!(hub.event(&everything, same).as_ptr(), first.as_ptr(), "{same:?}");
        }
        let other = hub.event(&everything, Some("rank 1"));
        assert!(String::from_utf8_lossy(&other).contains(r#""selected":"rank 1""#));
        assert_eq!(hub.event(&everything, Some("rank 1")).as_ptr(), other.as_ptr());
        assert_eq!(locked(&everything.made).len(), 2);
    }

    /// Members that send as much as a report takes.
    #[tokio::test]
    async fn the_states_of_many_members_are_bounded() {
        let mut table = Table::new("rows", &["c"; 16]);
        (0..200).for_each(|_| table.row(vec![Cell::text(&"x".repeat(200)); 16]));
        let section = Section::new("thing", "").table(table);
        let mut report = Report::default();
        (0..8).for_each(|_| report.add(section.clone()));
        report.left_out = u64::MAX;
        let state = NodeState { report, ..NodeState::default() };
        // That of this node, and those of others.
        let (hub, everything) = hub(vec![state.clone(), state.bounded()]).await;
        let event = hub.event(&everything, None);
        assert!(event.len() < 2 * SECTIONS_BYTES_MAX, "{}", event.len());
        assert!(
            String::from_utf8_lossy(&event)
                .contains(&format!("\"sections_left_out\":{}", u64::MAX))
        );
        let event = hub.event(&everything, Some("rank 1"));
        assert!(String::from_utf8_lossy(&event).contains(r#"["rank 1",{"kind":"thing""#));
    }
}
