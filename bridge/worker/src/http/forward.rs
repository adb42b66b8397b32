//! Passes posts on to the owner of their session.

use super::posts::FORWARDED;
use crate::secrets::Token;
use causeway_core::ingress::{Answer, Attempt, Envelope, Refused, Target};
use causeway_ports::Clock;
use core::time::Duration;
use serde::Deserialize;
use std::sync::{Mutex, PoisonError};
use tracing::debug;

/// A connection stands within so long, or the owner is gone: members are neighbours.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Of an answer no more is read.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// Passes the posts of one receiver on.
pub struct Forwarder {
    path: String,
    token: Token,
    client: reqwest::Client,
    target: Mutex<Target>,
}

/// What came back.
pub struct Passed {
    /// What it means.
    pub answer: Answer,
    /// What it says.
    body: Option<Told>,
}

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    error: String,
    #[serde(default)]
    status: String,
}

impl Passed {
    /// The status, if anybody answered.
    pub const fn status(&self) -> Option<u16> {
        match self.answer {
            Answer::Status { status, .. } => Some(status),
            Answer::Silence => None,
        }
    }

    /// What the owner says that became of it.
    pub fn told(&self) -> &str {
        self.body.as_ref().map_or("", |told| &told.status)
    }

    /// Why the owner does not take it.
    pub fn reason(self) -> String {
        let told = self.body.map(|told| told.error).filter(|told| !told.is_empty());
        told.unwrap_or_else(|| "the owner refused it".to_owned())
    }
}

impl Forwarder {
    /// For the receiver of this id, whose token the owner knows too.
    ///
    /// # Errors
    /// Where the HTTP client cannot be built.
    pub fn new(receiver: &str, token: Token) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).connect_timeout(CONNECT_TIMEOUT);
        let path = super::posts::PATH.replace("{id}", receiver);
        Ok(Self { path, token, client: client.build()?, target: Mutex::default() })
    }

    /// Sends a post to `owner` at `url`, within what is left of the attempt. The id goes along, so that a repeat is none to the owner.
    ///
    /// # Errors
    /// Where the owner did not answer lately and is not tried.
    pub async fn send(
        &self,
        clock: &dyn Clock,
        attempt: &Attempt,
        owner: &str,
        url: &str,
        id: &str,
        envelope: &Envelope,
    ) -> Result<Passed, Refused> {
        if let Some(refused) = self.target.lock().unwrap_or_else(PoisonError::into_inner).refuses(clock.now(), owner) {
            return Err(refused);
        }
        let left = attempt.left(clock.now());
        let passed = match tokio::time::timeout(left, self.post(url, id, envelope)).await {
            Ok(Ok(passed)) => passed,
            Ok(Err(error)) => {
                debug!(owner, %error, "a post could not be passed on");
                Passed { answer: Answer::Silence, body: None }
            }
            Err(_) => Passed { answer: Answer::Silence, body: None },
        };
        self.target.lock().unwrap_or_else(PoisonError::into_inner).tried(clock.now(), owner, &passed.answer);
        Ok(passed)
    }

    async fn post(&self, url: &str, id: &str, envelope: &Envelope) -> Result<Passed, reqwest::Error> {
        // The body has the id: it may be more than a header can carry.
        let envelope = Envelope { id: Some(id.to_owned()), ..envelope.clone() };
        let request = self.client.post(format!("{url}{}", self.path)).bearer_auth(self.token.current().reveal()).header(FORWARDED, "true");
        let mut answer = request.json(&envelope).send().await.map_err(reqwest::Error::without_url)?;
        let seconds = answer.headers().get(reqwest::header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                break;
            }
            body.extend_from_slice(&chunk);
        }
        let answer = Answer::Status { status, retry_after: seconds.map(Duration::from_secs) };
        Ok(Passed { answer, body: serde_json::from_slice(&body).ok() })
    }
}
