//! Answers of the service.
//!
//! `POST /events`: an event or an array of events. 202: the channel to the collector accepted all of
//! them. The service does not end before the collector has them, or reports that it has not.
//! 400: no events. 413: a body above [`BODY_BYTES_MAX`]. 503: the service is ending, or the collector
//! is gone; the text says how many of the first events were accepted.
//!
//! `GET /metrics`: counters, see [`metrics`].

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use chunkcomm::stats::ChannelStats;
use chunkcomm::{Peer, Sender};
use tokio::sync::Mutex;

use super::event::{self, Event};
use super::metrics::{self, Requests};

/// Size of the largest body, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;

/// State that all requests share.
pub(crate) struct Service {
    /// Channel to the collector; `None` once the service ends, after which no event is accepted.
    channel: Mutex<Option<Sender<Event>>>,
    /// Counters of the channel when it was last free.
    counted: std::sync::Mutex<Option<ChannelStats>>,
    collector: Peer,
    accepted: AtomicU64,
    refused: AtomicU64,
}

impl Service {
    /// Returns a service that ships by this channel.
    pub(crate) fn new(channel: Sender<Event>) -> Service {
        let collector = channel.peer().clone();
        let (accepted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let (channel, counted) = (Mutex::new(Some(channel)), std::sync::Mutex::default());
        Service { channel, counted, collector, accepted, refused }
    }

    /// Takes the channel, to close it; later requests are refused. Waits for a request that ships.
    pub(crate) async fn take(&self) -> Option<Sender<Event>> {
        self.channel.lock().await.take()
    }

    /// Returns the channel's counters. While a request ships, which may wait for the collector, they
    /// are those from before it.
    fn channel_stats(&self) -> Option<ChannelStats> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(channel) = self.channel.try_lock() {
            *counted = channel.as_ref().map(Sender::stats);
        }
        *counted
    }

    async fn ship(&self, body: &[u8]) -> Result<usize, (StatusCode, String)> {
        let events = event::parse(body)
            .map_err(|error| (StatusCode::BAD_REQUEST, format!("no events: {error}\n")))?;
        let unavailable = |accepted: usize, why: &dyn Display| {
            let text = format!("of {} events {accepted} were accepted: {why}\n", events.len());
            (StatusCode::SERVICE_UNAVAILABLE, text)
        };
        let mut channel = self.channel.lock().await;
        let Some(channel) = channel.as_mut() else {
            return Err(unavailable(0, &"the service is ending"));
        };
        let sent = channel.send_all(&events).await;
        sent.map_err(|failed| unavailable(failed.accepted, &failed.error))
    }
}

/// Returns the routes of the service.
pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/events", post(take_events))
        .route("/metrics", get(give_metrics))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(service)
}

async fn take_events(State(service): State<Arc<Service>>, body: Bytes) -> Response {
    match service.ship(&body).await {
        Ok(count) => {
            service.accepted.fetch_add(1, Ordering::Relaxed);
            let json = [(header::CONTENT_TYPE, "application/json")];
            (StatusCode::ACCEPTED, json, format!("{{\"accepted\":{count}}}\n")).into_response()
        }
        Err(refused) => {
            service.refused.fetch_add(1, Ordering::Relaxed);
            refused.into_response()
        }
    }
}

async fn give_metrics(State(service): State<Arc<Service>>) -> Response {
    let channel = service.channel_stats();
    let requests = Requests {
        accepted: service.accepted.load(Ordering::Relaxed),
        refused: service.refused.load(Ordering::Relaxed),
    };
    let collector = &service.collector;
    let text = metrics::text(requests, collector.name(), &collector.stats(), channel);
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}
