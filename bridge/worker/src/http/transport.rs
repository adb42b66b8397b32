//! The port between members, of those who post messages, and of those who give commands.

use super::auth::ApiKey;
use super::commands::CommandPort;
use super::posts::PostBoard;
use super::serve::{Bounds, serve};
use crate::hints::{Hint, HintBoard, PATH, SPACING, Taken};
use crate::secrets::Token;
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

/// What comes in by the port: hints of members, and posts and commands of whoever may.
#[derive(Clone, Debug, Default)]
pub struct Transport {
    hints: Option<Hints>,
    posts: Option<PostBoard>,
    commands: Option<CommandPort>,
}

#[derive(Clone, Debug)]
struct Hints {
    board: HintBoard,
    token: ApiKey,
}

impl Transport {
    /// Takes hints from whoever knows `token`, and nothing else.
    #[must_use]
    pub fn new(hints: HintBoard, token: Token) -> Self {
        Self { hints: Some(Hints { board: hints, token: ApiKey::of(token) }), posts: None, commands: None }
    }

    /// Takes posts too.
    #[must_use]
    pub fn with_posts(self, posts: PostBoard) -> Self {
        Self { posts: Some(posts), ..self }
    }

    /// Takes commands too.
    #[must_use]
    pub fn with_commands(self, commands: CommandPort) -> Self {
        Self { commands: Some(commands), ..self }
    }

    /// Its routes.
    pub fn router(self) -> Router {
        let mut router = Router::new();
        if let Some(hints) = self.hints {
            let hinted = Router::new()
                .route(PATH, post(hint))
                .route_layer(middleware::from_fn_with_state(hints.clone(), authorize))
                .layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
            router = router.merge(hinted.with_state(hints));
        }
        if let Some(posts) = self.posts {
            router = router.merge(posts.router());
        }
        if let Some(commands) = self.commands {
            router = router.merge(commands.router());
        }
        router.fallback(|| async { answer(StatusCode::NOT_FOUND, "no such page") })
    }

    /// Serves on `listener` until `stop`.
    pub async fn serve(self, listener: TcpListener, bounds: Bounds, stop: CancellationToken) {
        serve(listener, self.router(), bounds, stop).await;
    }
}

/// Before the body is read: who does not know the token learns nothing.
async fn authorize(State(hints): State<Hints>, request: Request, next: Next) -> Response {
    if hints.token.admits(request.headers()) {
        next.run(request).await
    } else {
        answer(StatusCode::UNAUTHORIZED, "send http.hint_token as a bearer token")
    }
}

async fn hint(State(hints): State<Hints>, body: Result<Json<Hint>, JsonRejection>) -> Response {
    let hint = match body {
        Ok(Json(hint)) => hint,
        Err(rejection) => return answer(rejection.status(), "a hint is {\"session\": \"NAME\"}"),
    };
    match hints.board.take(&hint.session, Instant::now()) {
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
