//! The layers that stand on a node; see [`crate::layer`].

use super::builder::setting;
use super::{Node, NodeBuilder, NodeShared};
use crate::driver::events::Opened;
use crate::driver::mail::Link;
use crate::driver::wakers::locked;
use crate::error::NodeError;
use crate::proto::hello::{LAYERS_MAX, LayerRange, layer_hash};
use crate::report::Report;
use std::any::{Any, TypeId};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, Weak};
use tokio::runtime::Handle;

/// The place of a layer: its node, and the runtimes.
#[derive(Debug, Clone)]
pub struct Site {
    /// The node. While [`Layer::start`] runs it may not be there yet.
    pub node: WeakNode,
    /// The node's name for its peers.
    pub name: String,
    /// The runtime that drives the node's links.
    pub runtime: Handle,
    /// The runtime of the program: the one in which the node was built, or in which the layer was
    /// first used.
    pub own: Handle,
}

/// A layer, as a node starts it.
pub trait Layer: Hooks + Sized {
    /// Settings of the layer, which a program makes before the node is built.
    type Settings: Default + Clone + Send + Sync + 'static;

    /// Name of the layer for its peers: short, and the same in all releases.
    const NAME: &'static str;

    /// The oldest and the newest version of the layer that this release speaks.
    ///
    /// A node that starts the layer when it is built says the range in its hello. Two such nodes
    /// use the newest common version, and refuse each other without one. A layer that starts later
    /// is in no hello. Then both nodes use the layer's oldest version
    /// ([`Layer::version`]). So before a release gives up its oldest version, all
    /// nodes must start the layer when they are built.
    const VERSIONS: (u16, u16);

    /// Beginnings of the names of the layer's channels. Each begins with a zero byte, and none with
    /// a name of another layer.
    const NAMES: &'static [&'static str];

    /// Starts the layer of a node. At its first use in several threads at once more than one may be
    /// started; all but one are dropped.
    fn start(settings: Self::Settings, site: Site) -> Self;

    /// Returns the node's layer of this type. It is started with default settings if the node has
    /// none.
    fn of(node: &Node) -> Arc<Self> {
        node.layers().get_or_start()
    }

    /// Returns the node's layer of this type, if it was started.
    #[must_use]
    fn started(node: &Node) -> Option<Arc<Self>> {
        node.layers().started()
    }

    /// Returns the settings of the layer in a node to be built; the node then starts the layer.
    fn settings(builder: &mut NodeBuilder) -> &mut Self::Settings {
        builder.layers().settings::<Self>()
    }

    /// Sets the versions that the hello of the node to be built names for the layer; the node then
    /// starts the layer. For tests, as a node of another release; nothing else of the layer changes.
    #[doc(hidden)]
    fn set_versions(builder: &mut NodeBuilder, versions: RangeInclusive<u16>) {
        builder.layers().set_versions::<Self>((*versions.start(), *versions.end()));
    }

    /// Returns the version of the layer on a link.
    ///
    /// | the layer started with | version |
    /// |---|---|
    /// | both nodes | the newest that both speak |
    /// | one node, or none | the oldest that this node speaks |
    #[must_use]
    fn version(link: &Link) -> u16 {
        let hash = layer_hash(Self::NAME);
        let found = link.0.peer.layers.iter().find(|it| it.hash == hash);
        found.map_or(Self::VERSIONS.0, |it| it.version)
    }
}

/// Calls of a node to its layers, on the threads of links: none of them may wait.
pub trait Hooks: Send + Sync + 'static {
    /// Takes a channel that a peer opened under one of the layer's names. By default it is refused.
    fn opened(&self, opened: Opened) -> Answer {
        Answer::Refused(Box::new(opened))
    }

    /// Returns whether the node reports that messages of a channel of the layer may not have
    /// arrived. `unknown`: those of them that were not acknowledged. By default the layer has
    /// errors of its own.
    fn reports_loss(&self, channel: &str, unknown: u64) -> bool {
        let _ = (channel, unknown);
        false
    }

    /// Returns lines for [`Node::explain`], without a line end.
    fn explain(&self) -> Vec<String> {
        Vec::new()
    }

    /// Adds sections to the node's [report](Node::report).
    fn report(&self, report: &mut Report) {
        let _ = report;
    }

    /// Ends the waits of the layer: the runtime that drove the node is gone.
    fn runtime_gone(&self) {}
}

/// A thing of a layer that comes and goes, and fills the node's [report](Node::report) while it is there.
pub trait Reports: Send + Sync {
    /// Adds sections to the report. Must not wait.
    fn report(&self, report: &mut Report);
}

/// Lets a thing fill the node's [report](Node::report) as long as it lives. It is not kept alive.
pub fn add_reports<R: Reports + 'static>(node: &Node, what: &Arc<R>) {
    let what: Arc<dyn Reports> = Arc::clone(what) as _;
    let mut reporting = locked(&node.layers().reporting);
    reporting.retain(|it| it.strong_count() > 0);
    reporting.push(Arc::downgrade(&what));
}

/// A layer's answer to a channel that a peer opened.
#[derive(Debug)]
pub enum Answer {
    /// The layer has it.
    Taken,
    /// An [`Expected`](crate::layer::Expected) of its name takes it; where nobody expects the name,
    /// it is refused.
    Expected(Box<Opened>),
    /// It is held for an [`accept`](Node::accept), as the program's channels are.
    Held(Box<Opened>),
    /// It is refused.
    Refused(Box<Opened>),
}

/// A node that is not kept alive.
#[derive(Clone)]
pub struct WeakNode(pub(crate) Weak<NodeShared>);

impl WeakNode {
    /// Returns the node, unless everything that belongs to it is dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Node> {
        self.0.upgrade().map(|shared| Node { shared })
    }
}

impl fmt::Debug for WeakNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakNode").finish_non_exhaustive()
    }
}

/// Starts a layer from its settings.
type Start = fn(&(dyn Any + Send + Sync), Site) -> Installed;

/// Layers to be started with a node, and their settings.
#[derive(Clone, Default)]
pub(crate) struct LayerSettings(Vec<LayerToStart>);

/// A layer to be started, and its settings.
#[derive(Clone)]
struct LayerToStart {
    id: TypeId,
    name: &'static str,
    /// The oldest and the newest version that the node is to speak.
    versions: (u16, u16),
    settings: Box<dyn Settings>,
    start: Start,
}

/// Settings without their type.
trait Settings: Any + Send + Sync {
    fn copied(&self) -> Box<dyn Settings>;
}

impl<S: Any + Clone + Send + Sync> Settings for S {
    fn copied(&self) -> Box<dyn Settings> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Settings> {
    fn clone(&self) -> Box<dyn Settings> {
        (**self).copied()
    }
}

impl fmt::Debug for LayerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} layers", self.0.len())
    }
}

impl LayerSettings {
    pub(crate) fn settings<L: Layer>(&mut self) -> &mut L::Settings {
        let settings: &mut dyn Any = &mut *self.layer::<L>().settings;
        settings.downcast_mut().expect("the settings of a layer have its type")
    }

    pub(crate) fn set_versions<L: Layer>(&mut self, versions: (u16, u16)) {
        self.layer::<L>().versions = versions;
    }

    fn layer<L: Layer>(&mut self) -> &mut LayerToStart {
        const { assert!(L::VERSIONS.0 <= L::VERSIONS.1, "the oldest version is the newer one") }
        let id = TypeId::of::<L>();
        let at = self.0.iter().position(|it| it.id == id).unwrap_or_else(|| {
            self.0.push(LayerToStart {
                id,
                name: L::NAME,
                versions: L::VERSIONS,
                settings: Box::new(L::Settings::default()),
                start: start::<L>,
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Returns the layers' part of the hello, and their names.
    pub(crate) fn ranges(&self) -> ([LayerRange; LAYERS_MAX], [&'static str; LAYERS_MAX]) {
        let (mut ranges, mut names) = ([LayerRange::default(); LAYERS_MAX], [""; LAYERS_MAX]);
        for (layer, (range, name)) in self.0.iter().zip(ranges.iter_mut().zip(&mut names)) {
            (*range, *name) = (LayerRange::new(layer.name, layer.versions), layer.name);
        }
        (ranges, names)
    }

    /// Checks that a hello can name the layers.
    pub(crate) fn check(&self) -> Result<(), NodeError> {
        let names: Vec<_> = self.0.iter().map(|it| it.name).collect();
        if names.len() > LAYERS_MAX {
            let allowed = format!("at most {LAYERS_MAX} that start with the node");
            return Err(setting("layers", names.join(", "), allowed));
        }
        let mut hashes: Vec<_> = names.iter().map(|name| layer_hash(name)).collect();
        hashes.sort_unstable();
        if hashes.is_sorted_by(|one, next| one < next) {
            return Ok(());
        }
        Err(setting("layers", names.join(", "), "names with different hashes"))
    }
}

fn start<L: Layer>(settings: &(dyn Any + Send + Sync), site: Site) -> Installed {
    let settings = settings.downcast_ref::<L::Settings>();
    let settings = settings.expect("the settings of a layer have its type");
    Installed::of(Arc::new(L::start(settings.clone(), site)))
}

/// Returns the layer of this type among those that were started.
fn find<L: Layer>(started: &[Installed]) -> Option<Arc<L>> {
    let mut layers = started.iter().map(|it| Arc::clone(&it.layer));
    layers.find_map(|layer| layer.downcast::<L>().ok())
}

/// A layer of a node.
struct Installed {
    layer: Arc<dyn Any + Send + Sync>,
    hooks: Arc<dyn Hooks>,
    names: &'static [&'static str],
}

impl Installed {
    fn of<L: Layer>(layer: Arc<L>) -> Installed {
        Installed { hooks: Arc::clone(&layer) as _, layer, names: L::NAMES }
    }
}

/// The layers that a node has started.
pub(crate) struct Layers {
    node: WeakNode,
    name: String,
    runtime: Handle,
    started: Mutex<Vec<Installed>>,
    reporting: Mutex<Vec<Weak<dyn Reports>>>,
}

impl Layers {
    /// Starts the layers of a node; `own` is the runtime in which the node is built.
    pub(crate) fn start(
        settings: &LayerSettings,
        node: WeakNode,
        name: String,
        runtime: Handle,
        own: &Handle,
    ) -> Layers {
        let (started, reporting) = (Mutex::default(), Mutex::default());
        let layers = Layers { node, name, runtime, started, reporting };
        for layer in &settings.0 {
            let settings: &(dyn Any + Send + Sync) = &*layer.settings;
            let started = (layer.start)(settings, layers.site(own.clone()));
            locked(&layers.started).push(started);
        }
        layers
    }

    fn site(&self, own: Handle) -> Site {
        let (node, name, runtime) = (self.node.clone(), self.name.clone(), self.runtime.clone());
        Site { node, name, runtime, own }
    }

    pub(crate) fn get_or_start<L: Layer>(&self) -> Arc<L> {
        if let Some(layer) = self.started() {
            return layer;
        }
        let own = Handle::try_current().unwrap_or_else(|_| self.runtime.clone());
        // Without the lock: a layer may ask the node while it starts.
        let layer = Arc::new(L::start(L::Settings::default(), self.site(own)));
        let mut started = locked(&self.started);
        if let Some(other) = find(&started) {
            drop(started);
            return other;
        }
        started.push(Installed::of(Arc::clone(&layer)));
        layer
    }

    /// Returns the layer of this type, if it was started.
    pub(crate) fn started<L: Layer>(&self) -> Option<Arc<L>> {
        find(&locked(&self.started))
    }

    /// Returns the layer of the channel with this name.
    fn of(&self, channel: &str) -> Option<Arc<dyn Hooks>> {
        let started = locked(&self.started);
        let is_its = |it: &&Installed| it.names.iter().any(|name| channel.starts_with(name));
        started.iter().find(is_its).map(|it| Arc::clone(&it.hooks))
    }

    /// Hands a channel with a reserved name to its layer.
    pub(crate) fn opened(&self, opened: Opened) -> Answer {
        match self.of(opened.name()) {
            Some(layer) => layer.opened(opened),
            None => Answer::Refused(Box::new(opened)),
        }
    }

    /// Whether losses on a channel with a reserved name are reported by the node.
    pub(crate) fn reports_loss(&self, channel: &str, unknown: u64) -> bool {
        self.of(channel).is_some_and(|layer| layer.reports_loss(channel, unknown))
    }

    pub(crate) fn explain(&self) -> Vec<String> {
        self.all().iter().flat_map(|layer| layer.explain()).collect()
    }

    /// Makes the node's report.
    pub(crate) fn report(&self) -> Report {
        let mut report = Report::default();
        self.all().iter().for_each(|layer| layer.report(&mut report));
        // Not under the lock: dropping the last reference may run destructors.
        let reporting: Vec<_> = locked(&self.reporting).iter().filter_map(Weak::upgrade).collect();
        reporting.iter().for_each(|it| it.report(&mut report));
        report
    }

    pub(crate) fn runtime_gone(&self) {
        for layer in self.all() {
            layer.runtime_gone();
        }
    }

    fn all(&self) -> Vec<Arc<dyn Hooks>> {
        locked(&self.started).iter().map(|it| Arc::clone(&it.hooks)).collect()
    }
}
