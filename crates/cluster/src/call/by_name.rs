//! Services that several nodes provide under one name: each call goes to the provider with the
//! fewest calls of this client in flight.

use super::form::Form;
use super::line::Line;
use super::opening::Reach;
use super::options::CallOptions;
use crate::proto::call::choice::Choice;
use crate::proto::cluster::NodeId;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::sync::watch;

/// Source of the providers of services.
pub(crate) trait Directory: Send + Sync {
    /// Returns the nodes that provide the service now.
    fn providers(&self, service: &str) -> Vec<NodeId>;

    /// Returns a receiver that is marked whenever the providers may have changed.
    fn changed(&self) -> watch::Receiver<()>;

    /// Returns the way to one of the providers.
    fn reach(&self, provider: NodeId, service: &str) -> Box<dyn Reach>;

    /// Returns the reason why no provider will come any more, once that is certain.
    fn ended(&self) -> Option<String>;
}

/// The providers of a service, as a client sees them.
pub(super) struct Named<Resp> {
    directory: Arc<dyn Directory>,
    changed: watch::Receiver<()>,
    lines: Vec<(NodeId, Arc<Line<Resp>>)>,
    choice: Choice,
    /// Calls in flight on each line; scratch of a choice.
    in_flight: Vec<usize>,
}

impl<Resp: DeserializeOwned + Send + 'static> Named<Resp> {
    pub(super) fn new(directory: Arc<dyn Directory>) -> Named<Resp> {
        let mut changed = directory.changed();
        changed.mark_changed();
        let (lines, in_flight) = (Vec::new(), Vec::new());
        Named { directory, changed, lines, choice: Choice::default(), in_flight }
    }

    /// Returns the line for the next call, except those in `tried`.
    pub(super) fn choose(
        &mut self,
        service: &Arc<str>,
        options: &CallOptions,
        form: &Arc<Form>,
        tried: &[NodeId],
    ) -> Option<(NodeId, Arc<Line<Resp>>)> {
        if self.changed.has_changed().unwrap_or(true) {
            self.changed.mark_unchanged();
            self.look_again(service, options, form);
        }
        self.in_flight.clear();
        self.in_flight.extend(
            self.lines.iter().map(
                |(id, line)| {
                    if tried.contains(id) { usize::MAX } else { line.in_flight() }
                },
            ),
        );
        let chosen = self.choice.choose(&self.in_flight)?;
        if self.in_flight[chosen] == usize::MAX {
            return None;
        }
        let (id, line) = &self.lines[chosen];
        Some((*id, Arc::clone(line)))
    }

    /// Updates the lines. A provider that is gone loses its line; calls in flight keep it until
    /// they are answered.
    fn look_again(&mut self, service: &Arc<str>, options: &CallOptions, form: &Arc<Form>) {
        let providers = self.directory.providers(service);
        self.lines.retain(|(id, _)| providers.contains(id));
        for id in providers {
            if self.lines.iter().all(|(known, _)| *known != id) {
                let reach = self.directory.reach(id, service);
                self.lines.push((id, Line::new(service, reach, options, form)));
            }
        }
    }

    /// Returns the reason why there is no provider, if known.
    pub(super) fn why_nobody(&self) -> Option<String> {
        self.directory.ended()
    }
}
