//! The key of the detailed monitor pages.

use crate::secrets::Token;
use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

/// A key that callers show.
#[derive(Clone)]
pub struct ApiKey(Kept);

#[derive(Clone)]
enum Kept {
    /// Its digest: the key itself is not kept.
    Digest([u8; 32]),
    /// It may be renewed.
    Elsewhere(Token),
}

impl core::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ApiKey(***)")
    }
}

impl ApiKey {
    /// Keeps the digest of `key`.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(Kept::Digest(Sha256::digest(key.as_bytes()).into()))
    }

    /// A key that may be renewed while the program runs.
    #[must_use]
    pub const fn of(token: Token) -> Self {
        Self(Kept::Elsewhere(token))
    }

    fn digest(&self) -> [u8; 32] {
        match &self.0 {
            Kept::Digest(digest) => *digest,
            Kept::Elsewhere(token) => Sha256::digest(token.current().reveal().as_bytes()).into(),
        }
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
        self.digest().iter().zip(given).fold(0_u8, |differs, (ours, theirs)| differs | (ours ^ theirs)) == 0
    }
}
