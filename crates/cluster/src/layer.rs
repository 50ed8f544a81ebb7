//! What this crate adds to a node: the lines for channel ends and processes, and the calls.

use crate::call::Callers;
use crate::moving::line::WORDS_CHANNEL;
use crate::moving::{Moving, home};
use crate::process::Processes;
use crate::proto::call;
use crate::registry::Registry;
use chunkcomm::Node;
use chunkcomm::layer::{self, Answer, Hooks, Layer, Opened, Site};
use std::sync::Arc;

/// The layer of one node.
pub(crate) struct ClusterLayer {
    pub(crate) moving: Arc<Moving>,
    pub(crate) callers: Callers,
}

/// Settings of the layer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// The processes that the node runs for others.
    pub(crate) registry: Option<Arc<Registry>>,
    /// Whether processes begin only when the node knows the cluster that it belongs to.
    pub(crate) of_cluster: bool,
}

/// Returns the layer of a node.
pub(crate) fn layer(node: &Node) -> Arc<ClusterLayer> {
    layer::of(node)
}

/// Returns the state of a node about ends that move and about processes.
pub(crate) fn moving(node: &Node) -> Arc<Moving> {
    Arc::clone(&layer(node).moving)
}

impl Layer for ClusterLayer {
    type Settings = Settings;

    const NAMES: &'static [&'static str] =
        &[WORDS_CHANNEL, home::PORT_PREFIX, call::REQUESTS_PREFIX, call::ANSWERS_PREFIX];

    fn start(settings: Settings, site: Site) -> ClusterLayer {
        let processes = Processes::new(settings.registry, site.own.clone(), settings.of_cluster);
        ClusterLayer { moving: Moving::new(site, processes), callers: Callers::default() }
    }
}

impl Hooks for ClusterLayer {
    fn opened(&self, opened: Opened) -> Answer {
        if call::is_reserved(opened.name()) {
            return Answer::Expected(Box::new(opened));
        }
        match self.moving.opened(opened) {
            Ok(()) => Answer::Taken,
            Err(opened) => Answer::Refused(opened),
        }
    }

    /// An end that was dropped before its port was connected refuses later messages. Nobody wanted
    /// them, as with a dropped receiver.
    fn reports_loss(&self, channel: &str, unknown: u64) -> bool {
        unknown > 0 && home::number_of(channel).is_some()
    }

    fn explain(&self) -> Vec<String> {
        let calls = self.callers.report();
        let lines = calls.iter().map(ToString::to_string);
        lines.chain(self.moving.report().line()).collect()
    }

    fn runtime_gone(&self) {
        self.moving.runtime_gone();
    }
}
