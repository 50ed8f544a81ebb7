//! Settings of services and clients.

use crate::proto::call::{AT_ONCE_DEFAULT, WAITING_DEFAULT};
use chunkcomm_proto::packet::Lane;
use std::time::Duration;

/// How a service handles its requests.
#[derive(Debug, Clone)]
#[must_use]
pub struct ServiceOptions {
    pub(super) at_once: usize,
    pub(super) waiting: usize,
    pub(super) parallel: bool,
    pub(super) schema: Option<String>,
}

impl Default for ServiceOptions {
    fn default() -> ServiceOptions {
        ServiceOptions {
            at_once: AT_ONCE_DEFAULT,
            waiting: WAITING_DEFAULT,
            parallel: false,
            schema: None,
        }
    }
}

impl ServiceOptions {
    /// Limits the requests that are handled at the same time, of all clients together; at least 1,
    /// default 1024.
    pub fn at_once(mut self, requests: usize) -> ServiceOptions {
        self.at_once = requests.max(1);
        self
    }

    /// Limits the requests that wait for their turn, default 4096; further ones are refused with
    /// [`CallError::Overloaded`](super::CallError::Overloaded). Each costs the memory of its
    /// request.
    pub fn waiting(mut self, requests: usize) -> ServiceOptions {
        self.waiting = requests;
        self
    }

    /// Runs every request in a task of its own from the start: for handlers that compute for long,
    /// so that other requests of the same client run on other threads meanwhile. Costs an
    /// allocation and a task per call.
    pub fn parallel(mut self) -> ServiceOptions {
        self.parallel = true;
        self
    }

    /// Compares this name instead of the types' descriptions; the client must name the same.
    /// See [`ChannelOptions::schema`](chunkcomm::ChannelOptions::schema).
    pub fn schema(mut self, name: impl Into<String>) -> ServiceOptions {
        self.schema = Some(name.into());
        self
    }
}

/// How a client sends its calls.
#[derive(Debug, Clone)]
#[must_use]
pub struct CallOptions {
    pub(super) lane: Lane,
    pub(super) schema: Option<String>,
    pub(super) served_within: Duration,
}

/// Wait for a service of one peer that does not serve yet, by default: 10 s. Programs that start
/// together differ by less, and a wrong name is still reported soon.
const SERVED_WITHIN_DEFAULT: Duration = Duration::from_secs(10);

impl Default for CallOptions {
    fn default() -> CallOptions {
        CallOptions { lane: Lane::Express, schema: None, served_within: SERVED_WITHIN_DEFAULT }
    }
}

impl CallOptions {
    /// Sets the lane of requests and answers, default [`Lane::Express`]: they leave before bulk
    /// data of the same link. [`Lane::Bulk`] is for requests or answers that are large themselves.
    pub fn lane(mut self, lane: Lane) -> CallOptions {
        self.lane = lane;
        self
    }

    /// Limits the wait of a call for a service that its peer does not serve yet, default 10 s; zero
    /// lets it fail at once. The timeout of the call limits it, too. A client of all providers in a
    /// cluster asks another provider instead.
    pub fn served_within(mut self, limit: Duration) -> CallOptions {
        self.served_within = limit;
        self
    }

    /// Compares this name instead of the types' descriptions; the service must name the same.
    /// See [`ChannelOptions::schema`](chunkcomm::ChannelOptions::schema).
    pub fn schema(mut self, name: impl Into<String>) -> CallOptions {
        self.schema = Some(name.into());
        self
    }
}
