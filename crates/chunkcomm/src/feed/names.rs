//! The names of a node's feeds, which it publishes while it has any.

use crate::driver::wakers::locked;
use crate::error::FeedError;
use crate::node::Node;
use crate::node::layers::{Hooks, Layer, Site};
use crate::proto::sorted::SortedSet;
use crate::watch::WatchSender;
use std::sync::Mutex;

/// Name of the watch of the names.
pub(super) const NAMES: &str = "chunkcomm.feeds";

/// The names of a node's feeds.
#[derive(Default)]
pub(super) struct Names(Mutex<Published>);

#[derive(Default)]
struct Published {
    names: SortedSet<String>,
    /// `Some` while there are names: it keeps the node alive.
    sender: Option<WatchSender<Vec<String>>>,
}

impl Hooks for Names {}

impl Layer for Names {
    type Settings = ();
    const NAME: &'static str = "feeds";
    const VERSIONS: (u16, u16) = (1, 1);
    const NAMES: &'static [&'static str] = &[];

    fn start((): (), _: Site) -> Names {
        Names::default()
    }
}

impl Names {
    /// Tells that the node has a feed of this name.
    pub(super) fn add(node: &Node, name: &str) -> Result<(), FeedError> {
        let layer = Names::of(node);
        let mut published = locked(&layer.0);
        published.names.insert(name.to_owned());
        let names: Vec<_> = published.names.iter().cloned().collect();
        match &published.sender {
            Some(sender) => {
                sender.send_replace(names).expect("names can be encoded");
            }
            None => match node.publish(NAMES, names) {
                Ok(sender) => published.sender = Some(sender),
                Err(_) => {
                    published.names.remove(name);
                    return Err(FeedError::Taken { feed: NAMES.to_owned() });
                }
            },
        }
        Ok(())
    }

    /// Tells that the node has no such feed any more.
    pub(super) fn remove(node: &Node, name: &str) {
        let layer = Names::of(node);
        let mut published = locked(&layer.0);
        published.names.remove(name);
        let names: Vec<_> = published.names.iter().cloned().collect();
        match &published.sender {
            Some(sender) if !names.is_empty() => {
                sender.send_replace(names).expect("names can be encoded");
            }
            _ => published.sender = None,
        }
    }
}
