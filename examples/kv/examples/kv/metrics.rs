//! The page `/metrics`, in the text format of Prometheus. A service that has a recorder of the `metrics` facade
//! turns on chunkcomm's feature of that name as well.

use super::store::Kept;
use axum::Router;
use axum::routing::get;
use chunkcomm_cluster::Service;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::{future, io};
use tokio::net::TcpListener;

/// The counters' owners.
#[derive(Clone)]
pub(crate) struct Counted {
    /// `None` once it closes.
    pub(crate) serving: Arc<Mutex<Option<Service>>>,
    pub(crate) kept: Arc<RwLock<Kept>>,
    pub(crate) term: u64,
}

impl Counted {
    fn text(&self) -> String {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let (changes, keys) = (kept.changes.len(), kept.values.len());
        let term = self.term;
        let mut text = String::new();
        for (name, kind, value) in [
            ("kv_term", "gauge", term),
            ("kv_keys", "gauge", keys as u64),
            ("kv_changes_total", "counter", changes as u64),
        ] {
            // Writing to a string does not fail.
            let _ = writeln!(text, "# TYPE {name} {kind}\n{name} {value}");
        }
        text += "# TYPE kv_calls_total counter\n";
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        for method in serving.iter().flat_map(Service::method_stats) {
            let (name, requests) = (&method.name, method.requests);
            let _ = writeln!(text, "kv_calls_total{{method=\"{name}\"}} {requests}");
        }
        text
    }
}

/// Serves the page, if it has an address.
pub(crate) async fn serve(at: Option<SocketAddr>, counted: Counted) -> io::Result<()> {
    let Some(at) = at else { return future::pending().await };
    let page = Router::new().route("/metrics", get(move || future::ready(counted.text())));
    let listener = TcpListener::bind(at).await?;
    writeln!(io::stdout(), "metrics at http://{}/metrics", listener.local_addr()?)?;
    axum::serve(listener, page).await
}
