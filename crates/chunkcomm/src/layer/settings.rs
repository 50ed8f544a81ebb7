//! Settings of nodes and channels that a layer asks for or makes.

use crate::channel::ChannelOptions;
use crate::node::NodeBuilder;

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

/// Puts a channel before the program's channels of its lane.
pub fn system_channel(options: ChannelOptions) -> ChannelOptions {
    options.system()
}
