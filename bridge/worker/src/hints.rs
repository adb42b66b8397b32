//! Hints between members: "the lease of this session is free, look at once". They make a planned hand-over quick and decide nothing: a member that
//! gets one reads the lease row, which it would have done a moment later anyway, and the row's conditional write decides.

use crate::secrets::Token;
use causeway_ports::Leases;
use core::time::Duration;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

/// Where hints are posted.
pub const PATH: &str = "/internal/v1/hint";

/// Telling the others may take so long in all: they find out with their next look anyway.
const PATIENCE: Duration = Duration::from_secs(1);

/// So many members are told at most, those that were heard of last.
const MOST_MEMBERS: usize = 16;

/// Of hints for one session only one in so long makes its loop look.
pub const SPACING: Duration = Duration::from_millis(200);

/// A hint, as it travels.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hint {
    /// The session whose lease is free.
    pub session: String,
}

/// What became of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The session's loop looks at the lease.
    Looks,
    /// Another one came a moment ago.
    TooSoon,
    /// This process has no such session.
    Unknown,
}

#[derive(Debug, Default)]
struct Place {
    notify: Arc<Notify>,
    last: Option<Instant>,
}

/// Where hints come in and the sessions' loops listen. Clones share the places.
#[derive(Clone, Debug, Default)]
pub struct HintBoard(Arc<Mutex<BTreeMap<String, Place>>>);

impl HintBoard {
    /// What wakes the loop of `session`.
    #[must_use]
    pub fn listen(&self, session: &str) -> Arc<Notify> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&places.entry(session.to_owned()).or_default().notify)
    }

    /// Takes a hint.
    #[must_use]
    pub fn take(&self, session: &str, now: Instant) -> Taken {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = places.get_mut(session) else { return Taken::Unknown };
        if place.last.is_some_and(|last| now.saturating_duration_since(last) < SPACING) {
            return Taken::TooSoon;
        }
        place.last = Some(now);
        place.notify.notify_one();
        Taken::Looks
    }
}

/// Tells the other members of the bridge that a lease is free.
#[derive(Clone)]
pub struct Hinter {
    leases: Arc<dyn Leases>,
    bridge: String,
    owner: String,
    token: Token,
    client: reqwest::Client,
}

impl core::fmt::Debug for Hinter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hinter").field("bridge", &self.bridge).field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Hinter {
    /// Finds the members of `bridge` in `leases`, leaves out `owner` itself, and shows them `token`.
    ///
    /// # Errors
    /// Where the HTTP client cannot be built.
    pub fn new(leases: Arc<dyn Leases>, bridge: &str, owner: &str, token: Token) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(PATIENCE).build()?;
        Ok(Self { leases, bridge: bridge.to_owned(), owner: owner.to_owned(), token, client })
    }

    /// Tells them that the lease of `session` is free. Ends within a second; whom it did not reach finds out by itself.
    pub async fn tell(&self, session: &str) {
        if tokio::time::timeout(PATIENCE, self.tell_all(session)).await.is_err() {
            debug!(session, "not every member was told in time that the lease is free");
        }
    }

    async fn tell_all(&self, session: &str) {
        let mut members = match self.leases.list_members(&self.bridge).await {
            Ok(members) => members,
            Err(fault) => return debug!(session, %fault, "the members to be told cannot be read"),
        };
        members.retain(|member| member.owner != self.owner);
        members.sort_by_key(|member| core::cmp::Reverse(member.written_at));
        let posts = members.iter().take(MOST_MEMBERS).filter_map(|member| {
            let base = member.facts.endpoints.get("http")?;
            Some(self.post(&member.owner, format!("{}{PATH}", base.trim_end_matches('/')), session))
        });
        join_all(posts).await;
    }

    async fn post(&self, member: &str, url: String, session: &str) {
        let request = self.client.post(&url).bearer_auth(self.token.current().reveal()).json(&Hint { session: session.to_owned() });
        match request.send().await {
            Ok(answer) => debug!(member, url, session, status = answer.status().as_u16(), "told that the lease is free"),
            Err(error) => debug!(member, url, session, %error, "could not be told that the lease is free"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hints_are_spaced_and_wake_only_their_session() {
        let board = HintBoard::default();
        let (one, other) = (board.listen("one"), board.listen("other"));
        let now = Instant::now();
        assert_eq!(board.take("one", now), Taken::Looks);
        assert_eq!(board.take("one", now + SPACING / 2), Taken::TooSoon);
        assert_eq!(board.take("third", now), Taken::Unknown);
        one.notified().await;
        assert_eq!(board.take("other", now), Taken::Looks);
        other.notified().await;
        assert_eq!(board.take("one", now + SPACING), Taken::Looks);
    }
}
