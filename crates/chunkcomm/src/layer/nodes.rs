//! Questions of a layer to a node.

use super::{Layer, Link, Wait};
use crate::node::{Node, NodeBuilder, Peer};
use crate::proto::hello::layer_hash;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Returns the node's layer of this type. It is started with default settings if the node has
/// none.
pub fn of<L: Layer>(node: &Node) -> Arc<L> {
    node.layers().get_or_start()
}

/// Returns the node's layer of this type, if it was started.
#[must_use]
pub fn started<L: Layer>(node: &Node) -> Option<Arc<L>> {
    node.layers().started()
}

/// Returns the settings of a layer of a node to be built; the node then starts the layer.
pub fn settings<L: Layer>(builder: &mut NodeBuilder) -> &mut L::Settings {
    builder.layers().settings::<L>()
}

/// Sets the versions that the hello of the node to be built names for a layer; the node then starts
/// the layer. For tests, as a node of another release; nothing else of the layer changes.
#[doc(hidden)]
pub fn set_versions<L: Layer>(builder: &mut NodeBuilder, versions: RangeInclusive<u16>) {
    builder.layers().set_versions::<L>((*versions.start(), *versions.end()));
}

/// Returns the version of a layer between a node and this peer.
///
/// | the layer started with | version |
/// |---|---|
/// | both nodes | the newest that both speak |
/// | one node, or none | the oldest that this node speaks |
#[must_use]
pub fn version<L: Layer>(peer: &Peer) -> u16 {
    version_by::<L>(&Link::of(peer))
}

/// As [`version`], by a link.
#[must_use]
pub fn version_by<L: Layer>(link: &Link) -> u16 {
    let hash = layer_hash(L::NAME);
    let found = link.0.peer.layers.iter().find(|it| it.hash == hash);
    found.map_or(L::VERSIONS.0, |it| it.version)
}

/// Returns the name that the program gave the node to be built, if any.
#[must_use]
pub fn given_name(builder: &NodeBuilder) -> Option<&str> {
    builder.given_name()
}

/// As [`NodeBuilder::quiet`], for a node whose owner reports its losses but does not hear that no
/// connection can be accepted.
pub fn quiet_but_for_accept(builder: NodeBuilder) -> NodeBuilder {
    builder.quiet_but_for_accept()
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
