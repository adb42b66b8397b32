//! Which web pages may call a listener from a browser (CORS).
//!
//! The status page is served by the monitor and calls the admin interface, which listens at another port and so is another origin. It may, because the
//! page of *this* process, at the monitor's port of the host that was called, may always; others may where the configuration names them. The admin
//! interface is not offered on the monitor's port instead: a firewall that opens the monitor would open it too. Whoever may still needs the key:
//! nothing here depends on what a browser sends by itself, so no page gains anything by another one's visit.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::sync::Arc;

/// The origins.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    named: Arc<[String]>,
    page: Option<Page>,
}

/// The status page of this process.
#[derive(Clone, Copy, Debug)]
struct Page {
    port: u16,
    tls: bool,
}

impl Origins {
    /// These, as browsers write them.
    #[must_use]
    pub fn named(origins: &[String]) -> Self {
        Self { named: origins.into(), page: None }
    }

    /// And the page at `port` of the host that is called.
    #[must_use]
    pub fn with_page(self, port: u16, tls: bool) -> Self {
        Self { page: Some(Page { port, tls }), ..self }
    }

    /// The request's origin, if it may call.
    fn admitted(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok()?;
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let is_page = self.page.zip(host).is_some_and(|(page, host)| text == origin_of(host, page.port, page.tls));
        (is_page || self.named.iter().any(|named| named == text)).then(|| origin.clone())
    }
}

/// The origin of what listens at `port` of the host that `host` names, with a port or without.
#[must_use]
pub fn origin_of(host: &str, port: u16, tls: bool) -> String {
    let name_ends = host.rfind(']').map_or(0, |at| at + 1);
    let name = host.get(name_ends..).and_then(|rest| rest.find(':')).and_then(|at| host.get(..name_ends + at)).unwrap_or(host);
    match (tls, port) {
        (false, 80) => format!("http://{name}"),
        (true, 443) => format!("https://{name}"),
        (tls, port) => format!("{}://{name}:{port}", if tls { "https" } else { "http" }),
    }
}

/// Answers what browsers ask before they call, and tells them whether the page may read the answer. Other origins get no word of permission, which
/// makes their browsers keep the answer from them.
pub async fn cross_origin(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    let admitted = origins.admitted(request.headers());
    let preflight = request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match (&admitted, preflight) {
        (Some(_), true) => StatusCode::NO_CONTENT.into_response(),
        (None, true) => StatusCode::FORBIDDEN.into_response(),
        (_, false) => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = admitted {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if preflight {
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("x-api-key, authorization, content-type"));
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        } else {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
        }
    }
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn asks(origins: &Origins, origin: &str, host: &str) -> bool {
        let headers: HeaderMap = [(header::ORIGIN, origin.parse().unwrap()), (header::HOST, host.parse().unwrap())].into_iter().collect();
        origins.admitted(&headers).is_some()
    }

    #[test]
    fn the_page_of_the_host_that_is_called_may_and_no_other() {
        let origins = Origins::default().with_page(8081, false);
        assert!(asks(&origins, "http://10.0.0.1:8081", "10.0.0.1:8080"));
        assert!(asks(&origins, "http://[::1]:8081", "[::1]:8080"));
        assert!(asks(&origins, "http://bridge.internal:8081", "bridge.internal"));
        for origin in [
            "http://10.0.0.2:8081",
            "http://10.0.0.1:8082",
            "https://10.0.0.1:8081",
            "http://10.0.0.1",
            "null",
            "http://10.0.0.1:8081.evil",
        ] {
            assert!(!asks(&origins, origin, "10.0.0.1:8080"), "{origin}");
        }
        assert!(asks(&Origins::default().with_page(443, true), "https://ops.example.com", "ops.example.com:8443"));
        assert!(!asks(&Origins::default(), "http://10.0.0.1:8081", "10.0.0.1:8080"));
    }

    #[test]
    fn named_origins_may_from_anywhere() {
        let origins = Origins::named(&["https://ops.example.com".to_owned()]);
        assert!(asks(&origins, "https://ops.example.com", "10.0.0.1:8080"));
        assert!(!asks(&origins, "https://ops.example.com.evil", "10.0.0.1:8080"));
    }
}
