//! Answers to a browser: the page, its states, and the counters for Prometheus.

use crate::door::{Door, Pass};
use crate::guard::{Refused, value};
use crate::hub::{EVENT_FOOT, EVENT_HEAD, EVERY, Everything, Hub, VIEWERS_MAX};
use crate::metrics;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Router, serve as serve_http};
use futures_util::stream::unfold;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// Longest time for which a single state is waited for.
const STATE_WITHIN: Duration = Duration::from_secs(3);

/// Time without a state after which a viewer gets an empty line, which shows both sides that the other is there.
const SIGN_EVERY: Duration = Duration::from_secs(5);

/// Bytes of a state from which on a viewer gets one a second.
const LARGE_BYTES: usize = 128 << 10;

const HTML: &str = include_str!("assets/page.html");
const CSS: &str = include_str!("assets/page.css");
const JS: &str = include_str!("assets/page.js");

/// All that the page may load: its own files and states. It is in no frame, and sends no form.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Serves until this is dropped.
pub(crate) async fn serve(listener: std::net::TcpListener, hub: &Arc<Hub>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let router = Router::new().fallback(answer).with_state(Arc::clone(hub));
    let service = router.into_make_service_with_connect_info::<Pass>();
    let _ = serve_http(Door::new(listener), service).await;
}

/// Waits until each viewer has been handed the last state.
pub(crate) async fn last_word(hub: &Hub) {
    let _ = hub.viewers.subscribe().wait_for(|viewers| *viewers == 0).await;
    // The connections' tasks write it.
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn answer(
    State(hub): State<Arc<Hub>>,
    ConnectInfo(pass): ConnectInfo<Pass>,
    request: Request,
) -> Response {
    let mut response =
        answer_to(&hub, &pass, &request.into_parts().0).await.unwrap_or_else(|refused| {
            let status = match refused {
                Refused::Method => StatusCode::METHOD_NOT_ALLOWED,
                Refused::Host => StatusCode::MISDIRECTED_REQUEST,
                Refused::Origin => StatusCode::FORBIDDEN,
                Refused::Token => StatusCode::UNAUTHORIZED,
            };
            (status, refused.text()).into_response()
        });
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn answer_to(hub: &Arc<Hub>, pass: &Pass, request: &Parts) -> Result<Response, Refused> {
    let (path, query) = (request.uri.path(), request.uri.query());
    hub.guard.check_origin(&request.method, &request.headers, path)?;
    // The page itself is no secret.
    let files = [
        ("/", "text/html; charset=utf-8", HTML),
        ("/page.css", "text/css; charset=utf-8", CSS),
        ("/page.js", "text/javascript; charset=utf-8", JS),
    ];
    if let Some((_, kind, text)) = files.into_iter().find(|(name, ..)| *name == path) {
        return Ok(with_type(kind, Bytes::from_static(text.as_bytes())));
    }
    hub.guard.check_token(&request.headers)?;
    pass.show();
    Ok(match path {
        "/state.json" => state(hub, query).await,
        "/events" => events(hub, query),
        "/metrics" => counters(hub).await,
        _ => (StatusCode::NOT_FOUND, "there is nothing here\n").into_response(),
    })
}

fn with_type(kind: &'static str, body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

/// Place of a viewer.
struct Seat(Arc<Hub>);

impl Seat {
    fn take(hub: &Arc<Hub>) -> Option<Seat> {
        let take = |viewers: &mut usize| {
            let has_room = *viewers < VIEWERS_MAX;
            *viewers += usize::from(has_room);
            has_room
        };
        hub.viewers.send_if_modified(take).then(|| Seat(Arc::clone(hub)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.viewers.send_modify(|viewers| *viewers -= 1);
    }
}

fn no_seat() -> Response {
    let text = format!("{VIEWERS_MAX} viewers look at this page: close another one\n");
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// Waits for a state that is gathered from now on, or is the last; in a cluster also for the reports of others, a short
/// while.
async fn gathered(hub: &Arc<Hub>) -> Option<Arc<Everything>> {
    let mut newest = hub.subscribe();
    let before = newest.borrow().number;
    let is_new = |it: &Arc<Everything>| it.ended || it.number > before;
    timeout(STATE_WITHIN, newest.wait_for(is_new)).await.ok()?.ok()?;
    let is_whole = |it: &Arc<Everything>| it.ended || it.is_whole();
    let _ = timeout(STATE_WITHIN, newest.wait_for(is_whole)).await;
    let newest = Arc::clone(&newest.borrow());
    Some(newest)
}

async fn state(hub: &Arc<Hub>, query: Option<&str>) -> Response {
    let Some(_seat) = Seat::take(hub) else { return no_seat() };
    let Some(everything) = gathered(hub).await else { return no_answer() };
    hub.sent.fetch_add(1, Ordering::Relaxed);
    let event = hub.event(&everything, selected(query).as_deref());
    with_type("application/json", event.slice(EVENT_HEAD.len()..event.len() - EVENT_FOOT.len()))
}

fn no_answer() -> Response {
    let seconds = STATE_WITHIN.as_secs();
    let text = format!("the node has not answered for {seconds} s: ask again\n");
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn counters(hub: &Arc<Hub>) -> Response {
    let Some(_seat) = Seat::take(hub) else { return no_seat() };
    let Some(everything) = gathered(hub).await else { return no_answer() };
    let nodes = everything.nodes.iter().map(|(key, state, _)| (key.as_str(), &**state));
    let text = metrics::text(nodes);
    with_type("text/plain; version=0.0.4; charset=utf-8", text.into())
}

/// Returns the key of the node whose details are asked for: letters, digits, and + for a space.
fn selected(query: Option<&str>) -> Option<String> {
    Some(value(query, "node")?.replace(['+'], " ").replace("%20", " ")).filter(|it| !it.is_empty())
}

/// A viewer's stream of states. It has the newest state alone, so that a slow viewer skips others.
struct Viewing {
    newest: watch::Receiver<Arc<Everything>>,
    selected: Option<String>,
    next: Instant,
    is_over: bool,
    seat: Seat,
}

fn events(hub: &Arc<Hub>, query: Option<&str>) -> Response {
    let Some(seat) = Seat::take(hub) else { return no_seat() };
    let mut newest = hub.subscribe();
    // The first state is one that is gathered from now on, or the last of all.
    let is_over = newest.borrow_and_update().ended;
    if is_over {
        newest.mark_changed();
    }
    let (selected, next) = (selected(query), Instant::now());
    let viewing = Viewing { newest, selected, next, is_over: false, seat };
    let states = unfold(viewing, |mut viewing| async move {
        let state = viewing.next().await?;
        Some((Ok::<_, Infallible>(state), viewing))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(states)).into_response()
}

impl Viewing {
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        sleep_until(self.next).await;
        let Ok(changed) = timeout(SIGN_EVERY, self.newest.changed()).await else {
            return Some(Bytes::from_static(b": nothing new\n\n"));
        };
        changed.ok()?;
        let everything = Arc::clone(&self.newest.borrow_and_update());
        self.is_over = everything.ended;
        let event = self.seat.0.event(&everything, self.selected.as_deref());
        let every = if event.len() > LARGE_BYTES { Duration::from_secs(1) } else { EVERY };
        // The gatherings have that rhythm; a state that comes a little early is not left out.
        self.next = Instant::now() + every - EVERY / 4;
        self.seat.0.sent.fetch_add(1, Ordering::Relaxed);
        Some(event)
    }
}
