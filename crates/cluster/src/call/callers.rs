//! The layer of calls: channels with reserved names, and the makers of calls for its report.

use crate::proto::call::CALLS_PREFIX;
use crate::report::CallsReport;
use crate::sync::locked;
use chunkcomm::layer::{Answer, Hooks, Layer, Opened, Site};
use std::sync::{Mutex, Weak};

/// A maker of calls.
pub(super) trait Caller: Send + Sync {
    /// Reports the calls in flight, if there are any.
    fn report(&self) -> Option<CallsReport>;
}

/// The layer of calls of one node: those that made calls and live.
#[derive(Default)]
pub(crate) struct Callers(Mutex<Vec<Weak<dyn Caller>>>);

impl Callers {
    pub(super) fn add(&self, caller: Weak<dyn Caller>) {
        let mut callers = locked(&self.0);
        callers.retain(|it| it.strong_count() > 0);
        callers.push(caller);
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
        self.report().iter().map(ToString::to_string).collect()
    }
}
