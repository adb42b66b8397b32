//! The port between members: so far the hints.

use super::auth::ApiKey;
use super::serve::{Bounds, serve};
use crate::hints::{Hint, HintBoard, PATH, SPACING, Taken};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::json;
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
            .route_layer(middleware::from_fn_with_state(self.clone(), authorize))
            .fallback(|| async { answer(StatusCode::NOT_FOUND, "no such page") })
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .with_state(self)
    }

    /// Serves on `listener` until `stop`.
    pub async fn serve(self, listener: TcpListener, bounds: Bounds, stop: CancellationToken) {
        serve(listener, self.router(), bounds, stop).await;
    }
}

/// Before the body is read: who does not know the token learns nothing.
async fn authorize(State(transport): State<Transport>, request: Request, next: Next) -> Response {
    if transport.token.admits(request.headers()) {
        next.run(request).await
    } else {
        answer(StatusCode::UNAUTHORIZED, "send http.hint_token as a bearer token")
    }
}

async fn hint(State(transport): State<Transport>, body: Result<Json<Hint>, JsonRejection>) -> Response {
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
