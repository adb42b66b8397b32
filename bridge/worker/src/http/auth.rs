//! The key of the detailed monitor pages.

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

/// A key as its digest: the key itself is not kept.
#[derive(Clone, Copy)]
pub struct ApiKey([u8; 32]);

impl core::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ApiKey(***)")
    }
}

impl ApiKey {
    /// Keeps the digest of `key`.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Whether the request carries the key, as `X-API-Key` or as a bearer token. Takes the same time for every wrong key.
    #[must_use]
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        let text = |name| headers.get(name).and_then(|value: &axum::http::HeaderValue| value.to_str().ok());
        let given = match (text(header::HeaderName::from_static("x-api-key")), text(header::AUTHORIZATION)) {
            (Some(key), _) => key,
            (None, Some(authorization)) => authorization.strip_prefix("Bearer ").unwrap_or_default(),
            (None, None) => return false,
        };
        let given: [u8; 32] = Sha256::digest(given.as_bytes()).into();
        self.0.iter().zip(given).fold(0_u8, |differs, (ours, theirs)| differs | (ours ^ theirs)) == 0
    }
}
