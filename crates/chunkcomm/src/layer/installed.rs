//! The layers of a node.

use super::{Answer, Hooks, Layer, Link, Opened, Site, WeakNode};
use crate::driver::wakers::locked;
use crate::node::waits::Wait;
use crate::node::{Node, NodeBuilder, Peer};
use std::any::{Any, TypeId};
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;

/// Returns the node's layer of this type. It is started with default settings if the node has
/// none.
pub fn of<L: Layer>(node: &Node) -> Arc<L> {
    node.layers().get_or_start()
}

/// Returns the settings of a layer of a node to be built; the node then starts the layer.
pub fn settings<L: Layer>(builder: &mut NodeBuilder) -> &mut L::Settings {
    builder.layers().settings::<L>()
}

/// Returns the name that the program gave the node to be built, if any.
#[must_use]
pub fn given_name(builder: &NodeBuilder) -> Option<&str> {
    builder.given_name()
}

/// Returns the runtime that drives the links of a node.
#[must_use]
pub fn runtime(node: &Node) -> &Handle {
    node.runtime()
}

/// Returns the node's links, those among them whose session has just ended.
#[must_use]
pub fn links(node: &Node) -> Vec<Link> {
    node.table().links().into_iter().map(Link).collect()
}

/// Returns all peers that the node has a link with.
#[must_use]
pub fn peers(node: &Node) -> Vec<Peer> {
    node.peers()
}

/// Whether the node was closed.
#[must_use]
pub fn is_closed(node: &Node) -> bool {
    node.table().is_closed()
}

/// Lets [`Node::explain`] name a wait for `what`, until the returned value is dropped.
#[must_use]
pub fn waits_for(node: &Node, what: String) -> Wait {
    node.waits().begin(what)
}

/// Starts a layer from its settings.
type Start = fn(&(dyn Any + Send + Sync), Site) -> Installed;

/// Layers to be started with a node, and their settings.
#[derive(Clone, Default)]
pub(crate) struct LayerSettings(Vec<(TypeId, Box<dyn Settings>, Start)>);

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
    fn settings<L: Layer>(&mut self) -> &mut L::Settings {
        let id = TypeId::of::<L>();
        let at = self.0.iter().position(|(known, ..)| *known == id).unwrap_or_else(|| {
            self.0.push((id, Box::new(L::Settings::default()), start::<L>));
            self.0.len() - 1
        });
        let settings: &mut dyn Any = &mut *self.0[at].1;
        settings.downcast_mut().expect("the settings of a layer have its type")
    }
}

fn start<L: Layer>(settings: &(dyn Any + Send + Sync), site: Site) -> Installed {
    let settings = settings.downcast_ref::<L::Settings>();
    Installed::new(L::start(settings.cloned().unwrap_or_default(), site))
}

/// A layer of a node.
struct Installed {
    layer: Arc<dyn Any + Send + Sync>,
    hooks: Arc<dyn Hooks>,
    names: &'static [&'static str],
}

impl Installed {
    fn new<L: Layer>(layer: L) -> Installed {
        let layer = Arc::new(layer);
        Installed { hooks: Arc::clone(&layer) as _, layer, names: L::NAMES }
    }
}

/// The layers that a node has started.
pub(crate) struct Layers {
    node: WeakNode,
    name: String,
    runtime: Handle,
    started: Mutex<Vec<Installed>>,
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
        let layers = Layers { node, name, runtime, started: Mutex::default() };
        for (_, settings, start) in &settings.0 {
            let settings: &(dyn Any + Send + Sync) = &**settings;
            let started = start(settings, layers.site(own.clone()));
            locked(&layers.started).push(started);
        }
        layers
    }

    fn site(&self, own: Handle) -> Site {
        let (node, name, runtime) = (self.node.clone(), self.name.clone(), self.runtime.clone());
        Site { node, name, runtime, own }
    }

    fn get_or_start<L: Layer>(&self) -> Arc<L> {
        let mut started = locked(&self.started);
        let mut layers = started.iter().map(|it| Arc::clone(&it.layer));
        if let Some(layer) = layers.find_map(|layer| layer.downcast::<L>().ok()) {
            return layer;
        }
        let own = Handle::try_current().unwrap_or_else(|_| self.runtime.clone());
        let installed = Installed::new(L::start(L::Settings::default(), self.site(own)));
        let layer = Arc::clone(&installed.layer);
        started.push(installed);
        layer.downcast().expect("it was made of this type above")
    }

    /// The layer of the channel with this name.
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

    pub(crate) fn runtime_gone(&self) {
        for layer in self.all() {
            layer.runtime_gone();
        }
    }

    fn all(&self) -> Vec<Arc<dyn Hooks>> {
        locked(&self.started).iter().map(|it| Arc::clone(&it.hooks)).collect()
    }
}
