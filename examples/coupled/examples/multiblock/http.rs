//! Answers of the viewer.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the page |
//! | `GET /field.png` | the field now, with the headers `x-sweep`, `x-residual` and `x-strength` |
//! | `POST /parameter` | what all ranks of the simulation have now, as JSON |
//!
//! 400: a parameter that is not allowed; the text says what is. 503: the simulation has ended.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};

use super::parameter::Given;
use super::simulation::Simulation;

/// Size of the largest body, in bytes.
const BODY_BYTES_MAX: usize = 1024;

/// Returns the routes of the viewer.
pub(crate) fn router(simulation: Arc<Simulation>) -> Router {
    Router::new()
        .route("/", get(async || Html(include_str!("steering.html"))))
        .route("/field.png", get(field))
        .route("/parameter", post(parameter))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(simulation)
}

async fn field(State(simulation): State<Arc<Simulation>>) -> Response {
    match simulation.field().await {
        Ok(picture) => {
            let state = picture.state;
            let headers = [
                ("content-type", "image/png".to_owned()),
                ("cache-control", "no-store".to_owned()),
                ("x-sweep", state.sweep.to_string()),
                ("x-residual", format!("{:.3e}", state.residual)),
                ("x-strength", state.strength.to_string()),
            ];
            (headers, picture.png).into_response()
        }
        Err(why) => unavailable(&why),
    }
}

async fn parameter(
    State(simulation): State<Arc<Simulation>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_json = kind.is_some_and(|kind| kind.starts_with("application/json"));
    let given = match Given::parse(&body, is_json) {
        Ok(given) => given,
        Err(allowed) => return (StatusCode::BAD_REQUEST, format!("{allowed}\n")).into_response(),
    };
    match simulation.steer(given.into()).await {
        Ok(()) => ([(header::CONTENT_TYPE, "application/json")], given.to_json()).into_response(),
        Err(why) => unavailable(&why),
    }
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}
