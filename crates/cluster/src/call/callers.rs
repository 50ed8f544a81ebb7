//! The layer of calls: channels with reserved names, and the makers of calls for its report.

use super::service::ServiceStats;
use crate::proto::call::CALLS_PREFIX;
use crate::report::CallsReport;
use crate::sync::locked;
use chunkcomm::layer::{Answer, Hooks, Layer, Opened, Site};
use chunkcomm::report::{Cell, Report, Section, Table};
use std::sync::{Mutex, Weak};

/// A maker of calls.
pub(super) trait Caller: Send + Sync {
    /// Reports the calls in flight, if there are any.
    fn report(&self) -> Option<CallsReport>;
}

/// A service of the node.
pub(super) trait Served: Send + Sync {
    /// Returns its name and its counters.
    fn report(&self) -> (String, ServiceStats);
}

/// The layer of calls of one node: those that made calls and live, and the services.
#[derive(Default)]
pub(crate) struct Callers(Mutex<Vec<Weak<dyn Caller>>>, Mutex<Vec<Weak<dyn Served>>>);

impl Callers {
    pub(super) fn add(&self, caller: Weak<dyn Caller>) {
        let mut callers = locked(&self.0);
        callers.retain(|it| it.strong_count() > 0);
        callers.push(caller);
    }

    pub(super) fn add_service(&self, service: Weak<dyn Served>) {
        let mut services = locked(&self.1);
        services.retain(|it| it.strong_count() > 0);
        services.push(service);
    }

    /// Returns the table of the services.
    fn services(&self) -> Table {
        let columns =
            ["service", "requests", "handled now", "waiting", "overloaded", "cancelled", "expired"];
        let mut table = Table::new("services here", &columns);
        let services: Vec<_> = locked(&self.1).iter().filter_map(Weak::upgrade).collect();
        for (name, stats) in services.iter().map(|it| it.report()) {
            let counts = [
                stats.requests,
                stats.at_once as u64,
                stats.waiting as u64,
                stats.overloaded,
                stats.cancelled,
                stats.expired,
            ];
            table.row([Cell::text(&name)].into_iter().chain(counts.map(Cell::Count)));
        }
        table
    }

    /// Reports the calls without an answer.
    pub(crate) fn report(&self) -> Vec<CallsReport> {
        let callers: Vec<_> = locked(&self.0).iter().filter_map(Weak::upgrade).collect();
        // Not under the lock: dropping the last reference to a caller may run its destructors.
        callers.iter().filter_map(|it| it.report()).collect()
    }
}

impl Layer for Callers {
    type Settings = ();

    const NAME: &'static str = "chunkcomm.calls";

    const VERSIONS: (u16, u16) = (1, 1);

    const NAMES: &'static [&'static str] = &[CALLS_PREFIX];

    fn start((): (), _site: Site) -> Callers {
        Callers::default()
    }
}

impl Hooks for Callers {
    /// Clients of services that the node does not serve are refused.
    fn opened(&self, opened: Opened) -> Answer {
        Answer::Expected(Box::new(opened))
    }

    fn explain(&self) -> Vec<String> {
        Callers::report(self).iter().map(ToString::to_string).collect()
    }

    fn report(&self, report: &mut Report) {
        let mut calls = Table::new("in flight", &["service", "peer", "calls"]);
        for CallsReport { service, peer, in_flight } in Callers::report(self) {
            let peer = peer.map_or(Cell::Nothing, |peer| Cell::text(&peer));
            calls.row([Cell::text(&service), peer, Cell::Count(in_flight as u64)]);
        }
        let tables = [calls, self.services()].into_iter().filter(|table| !table.rows.is_empty());
        let section = tables.fold(Section::new("calls", ""), Section::table);
        if !section.tables.is_empty() {
            report.add(section);
        }
    }
}
