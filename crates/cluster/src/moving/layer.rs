//! The layer of ends that travel and of processes.

use super::line::WORDS_CHANNEL;
use super::process::Processes;
use super::{Moving, home};
use crate::registry::Registry;
use crate::report::MovingReport;
use chunkcomm::Node;
use chunkcomm::layer::{Answer, Hooks, Layer, Opened, Site};
use chunkcomm::report::{Cell, Report, Section};
use std::sync::Arc;

/// The layer of one node.
pub(crate) struct MovingLayer(Arc<Moving>);

/// Settings of the layer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// The processes that the node runs for others.
    pub(crate) registry: Option<Arc<Registry>>,
    /// Whether processes begin only when the node is a member of its cluster.
    pub(crate) of_cluster: bool,
}

/// Returns the state of a node about ends that move and about processes.
pub(crate) fn moving(node: &Node) -> Arc<Moving> {
    Arc::clone(&MovingLayer::of(node).0)
}

impl MovingLayer {
    pub(crate) fn report(&self) -> MovingReport {
        self.0.report()
    }
}

impl Layer for MovingLayer {
    type Settings = Settings;

    const NAME: &'static str = "chunkcomm.moving";

    const VERSIONS: (u16, u16) = (1, 1);

    const NAMES: &'static [&'static str] = &[WORDS_CHANNEL, home::END_PREFIX];

    fn start(settings: Settings, site: Site) -> MovingLayer {
        let processes = Processes::new(settings.registry, site.own.clone(), settings.of_cluster);
        MovingLayer(Moving::new(site, processes))
    }
}

impl Hooks for MovingLayer {
    fn opened(&self, opened: Opened) -> Answer {
        match self.0.opened(opened) {
            Ok(()) => Answer::Taken,
            Err(opened) => Answer::Refused(opened),
        }
    }

    /// Messages to an end are the program's. Acknowledged ones have arrived, as with a dropped
    /// receiver.
    fn reports_loss(&self, channel: &str, unknown: u64) -> bool {
        unknown > 0 && home::number_of(channel).is_some()
    }

    fn explain(&self) -> Vec<String> {
        self.0.report().line().into_iter().collect()
    }

    fn report(&self, report: &mut Report) {
        let moving = self.0.report();
        if moving == MovingReport::default() {
            return;
        }
        let facts = [
            ("ends that wait for their far end", moving.ends_waiting),
            ("ends sent and not heard of", moving.ends_sent),
            ("processes here", moving.processes_running),
            ("processes elsewhere", moving.processes_asked),
        ];
        let section = facts
            .into_iter()
            .fold(Section::new("ends and processes", ""), |section, (name, count)| {
                section.fact(name, Cell::Count(count as u64))
            });
        report.add(section);
    }

    fn runtime_gone(&self) {
        self.0.runtime_gone();
    }
}
