//! Answers to a browser: the page, its states, and the counters for Prometheus.

use crate::guard::{Refused, value};
use crate::hub::{EVERY, Everything, Hub};
use crate::metrics;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use axum::{Router, serve as serve_http};
use futures_util::stream::unfold;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};

/// Most viewers at a time; further ones are refused.
pub const VIEWERS_MAX: usize = 32;

/// Most connections at a time; further ones wait.
const CONNECTIONS_MAX: usize = 128;

/// Longest time for which a single state is waited for.
const STATE_WITHIN: Duration = Duration::from_secs(3);

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
    let listener = Bounded { listener, room: Arc::new(Semaphore::new(CONNECTIONS_MAX)) };
    let router = Router::new().fallback(answer).with_state(Arc::clone(hub));
    let _ = serve_http(listener, router).await;
}

/// Waits until each viewer has been handed the last state.
pub(crate) async fn last_word(hub: &Hub) {
    let _ = hub.viewers.subscribe().wait_for(|viewers| *viewers == 0).await;
    // The connections' tasks write it.
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn answer(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let query = request.uri().query();
    let checked = hub.guard.check(request.method(), request.headers(), query);
    let mut response = match checked {
        Err(refused) => {
            let status = match refused {
                Refused::Method => StatusCode::METHOD_NOT_ALLOWED,
                Refused::Host => StatusCode::MISDIRECTED_REQUEST,
                Refused::Origin | Refused::Token => StatusCode::FORBIDDEN,
            };
            (status, refused.text()).into_response()
        }
        Ok(()) => match request.uri().path() {
            "/" => with_type("text/html; charset=utf-8", HTML, Some(hub.guard.cookie())),
            "/page.css" => with_type("text/css; charset=utf-8", CSS, None),
            "/page.js" => with_type("text/javascript; charset=utf-8", JS, None),
            "/state.json" => state(&hub, query).await,
            "/events" => events(&hub, query),
            "/metrics" => counters(&hub).await,
            _ => (StatusCode::NOT_FOUND, "there is nothing here\n").into_response(),
        },
    };
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

fn with_type(kind: &'static str, body: &'static str, cookie: Option<String>) -> Response {
    let mut response = ([(header::CONTENT_TYPE, kind)], body).into_response();
    if let Some(cookie) = cookie.and_then(|it| HeaderValue::from_str(&it).ok()) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
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

/// Waits for a state that is gathered from now on; in a cluster also for the reports of others, a short while.
async fn gathered(hub: &Arc<Hub>) -> Option<Arc<Everything>> {
    let mut newest = hub.subscribe();
    newest.mark_unchanged();
    let is_alone = {
        let _ = timeout(STATE_WITHIN, newest.changed()).await;
        newest.borrow().is_whole()
    };
    if !is_alone {
        let _ = timeout(STATE_WITHIN, newest.wait_for(|it| it.is_whole())).await;
    }
    let newest = Arc::clone(&newest.borrow());
    (newest.number > 0).then_some(newest)
}

async fn state(hub: &Arc<Hub>, query: Option<&str>) -> Response {
    let Some(_seat) = Seat::take(hub) else { return no_seat() };
    let Some(everything) = gathered(hub).await else { return ended() };
    hub.sent.fetch_add(1, Ordering::Relaxed);
    let json = hub.json(&everything, selected(query).as_deref());
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

fn ended() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the node has ended\n").into_response()
}

async fn counters(hub: &Arc<Hub>) -> Response {
    let Some(_seat) = Seat::take(hub) else { return no_seat() };
    let Some(everything) = gathered(hub).await else { return ended() };
    let nodes = everything.nodes.iter().map(|(key, state, _)| (key.as_str(), &**state));
    let text = metrics::text(nodes);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
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
        self.newest.changed().await.ok()?;
        let everything = Arc::clone(&self.newest.borrow_and_update());
        self.is_over = everything.ended;
        let json = self.seat.0.json(&everything, self.selected.as_deref());
        let every = if json.len() > LARGE_BYTES { Duration::from_secs(1) } else { EVERY };
        // The gatherings have that rhythm; a state that comes a little early is not left out.
        self.next = Instant::now() + every - EVERY / 4;
        self.seat.0.sent.fetch_add(1, Ordering::Relaxed);
        Some(Bytes::from(format!("data: {json}\n\n")))
    }
}

/// A listener whose connections are counted.
struct Bounded {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Listener for Bounded {
    type Io = Counted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Counted, SocketAddr) {
        let permit = Arc::clone(&self.room).acquire_owned().await;
        let permit = permit.expect("it is never closed");
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let _ = stream.set_nodelay(true);
        (Counted { stream, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that is counted.
struct Counted {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
