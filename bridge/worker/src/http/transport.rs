//! The port between members: so far the hints.

use super::auth::ApiKey;
use crate::hints::{Hint, HintBoard, PATH, SPACING, Taken};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::json;
use std::io;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A hint is a session's name.
const MAX_BODY_BYTES: usize = 4 * 1024;

/// What members say to each other.
#[derive(Clone, Debug)]
pub struct Transport {
    hints: HintBoard,
    token: ApiKey,
}

impl Transport {
    /// Takes hints from whoever knows `token`.
    #[must_use]
    pub fn new(hints: HintBoard, token: &str) -> Self {
        Self { hints, token: ApiKey::new(token) }
    }

    /// Its routes.
    pub fn router(self) -> Router {
        Router::new()
            .route(PATH, post(hint))
            .fallback(|| async { answer(StatusCode::NOT_FOUND, "no such page") })
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .with_state(self)
    }

    /// Serves on `listener` until `stop`.
    ///
    /// # Errors
    /// Those of the listener.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        axum::serve(listener, self.router()).with_graceful_shutdown(stop.cancelled_owned()).await
    }
}

/// The body was read by then, but the token decides first what is answered: who does not know it learns nothing.
async fn hint(State(transport): State<Transport>, headers: HeaderMap, body: Result<Json<Hint>, JsonRejection>) -> Response {
    if !transport.token.admits(&headers) {
        return answer(StatusCode::UNAUTHORIZED, "send http.hint_token as a bearer token");
    }
    let hint = match body {
        Ok(Json(hint)) => hint,
        Err(rejection) => return answer(rejection.status(), "a hint is {\"session\": \"NAME\"}"),
    };
    match transport.hints.take(&hint.session, Instant::now()) {
        Taken::Looks => (StatusCode::ACCEPTED, Json(json!({ "status": "looking" }))).into_response(),
        Taken::Unknown => answer(StatusCode::NOT_FOUND, "this process has no such exclusive session"),
        Taken::TooSoon => {
            let seconds = SPACING.as_secs_f64().ceil().to_string();
            let body = Json(json!({ "error": "another hint came a moment ago" }));
            (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, seconds)], body).into_response()
        }
    }
}

fn answer(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}
