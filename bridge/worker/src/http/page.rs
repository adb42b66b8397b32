//! The status page for people: static files that poll the status as JSON. No framework, nothing from other hosts.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

const HTML: &str = include_str!("page/index.html");
const SCRIPTS: [(&str, &str); 6] = [
    ("/page.js", include_str!("page/page.js")),
    ("/dom.js", include_str!("page/dom.js")),
    ("/charts.js", include_str!("page/charts.js")),
    ("/fleet.js", include_str!("page/fleet.js")),
    ("/flow.js", include_str!("page/flow.js")),
    ("/letters.js", include_str!("page/letters.js")),
];
const STYLE: &str = include_str!("page/page.css");
const ICON: &str = include_str!("page/icon.svg");

/// The page's routes.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let scripts = SCRIPTS.into_iter().fold(Router::new(), |router, (path, text)| {
        router.route(path, get(move || async move { asset("text/javascript; charset=utf-8", text) }))
    });
    scripts
        .route("/", get(|| async { asset("text/html; charset=utf-8", HTML) }))
        .route("/icon.svg", get(|| async { asset("image/svg+xml", ICON) }))
        .route("/page.css", get(|| async { asset("text/css; charset=utf-8", STYLE) }))
}

fn asset(content_type: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, content_type)], text)
}
