//! Receivers that messages are posted to.

use super::{Shared, WiringError, secret_token};
use crate::http::posts::{OwnerLease, PostBoard, PostReceiver};
use crate::parts::{LeaseParts, LogKind, RandomBits, SessionParts};
use causeway_core::config::model::{Receiver, Route};
use causeway_core::config::{Config, Secret};
use causeway_core::proxies::Proxies;
use std::sync::Arc;

/// What a receiver of posts is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostPlan {
    /// Its id.
    pub receiver: String,
    /// What callers show.
    pub token: Secret,
    /// The largest body, in bytes.
    pub max_body_bytes: usize,
    /// Whether the mailbox is as good where the owner cannot be told or reached.
    pub fail_open: bool,
    /// The owner loop whose log keeps what is posted.
    pub carrier: String,
}

/// What the receivers of posts that feed a route are built from, in the order of the configuration.
#[must_use]
pub fn plan(config: &Config) -> Vec<PostPlan> {
    let plan = |receiver: &Receiver| {
        let route = config.routes.iter().find(|route: &&Route| route.receiver_id == receiver.id)?;
        Some(PostPlan {
            receiver: receiver.id.to_string(),
            token: receiver.options.token.clone()?,
            max_body_bytes: receiver.options.max_body_bytes as usize,
            fail_open: receiver.options.fail_open,
            carrier: config.carrier_name(route)?,
        })
    };
    config.receivers.iter().filter(|receiver| receiver.is_http()).filter_map(plan).collect()
}

/// What takes posts, if anything does: into the mailboxes of `sessions`.
///
/// # Errors
/// What cannot be built.
pub fn board(plans: &[PostPlan], proxies: &Proxies, sessions: &[SessionParts], shared: &Shared) -> Result<Option<PostBoard>, WiringError> {
    if plans.is_empty() {
        return Ok(None);
    }
    let receivers = plans.iter().map(|plan| receiver(plan, sessions, shared)).collect::<Result<_, _>>()?;
    let random = RandomBits::of_the_system().map_err(|fault| WiringError::of("receivers", &fault))?;
    let board = PostBoard::new(receivers, random.entry_ids, proxies.clone(), Arc::clone(&shared.clock), shared.metrics.clone());
    board.map(Some).map_err(|error| WiringError::new("receivers", "E_HTTP_CLIENT", error.to_string()))
}

fn receiver(plan: &PostPlan, sessions: &[SessionParts], shared: &Shared) -> Result<PostReceiver, WiringError> {
    let missing = |what: &str| WiringError::new(format!("receivers ({})", plan.receiver), "E_REFERENCE", what.to_owned());
    let carrier = sessions.iter().find(|parts| parts.session == plan.carrier).ok_or_else(|| missing("no owner loop carries its routes"))?;
    let mailbox = carrier.mailbox.as_ref().ok_or_else(|| missing("what is posted needs an outbox: configure one"))?;
    let owner = |lease: &LeaseParts| OwnerLease {
        leases: Arc::clone(&lease.leases),
        key: lease.member.candidate.key.clone(),
        me: lease.member.candidate.owner.clone(),
    };
    Ok(PostReceiver {
        id: plan.receiver.as_str().into(),
        token: secret_token(&format!("receivers ({}).options.token", plan.receiver), &plan.token, &shared.secrets)?,
        max_body_bytes: plan.max_body_bytes,
        fail_open: plan.fail_open,
        dispatch: Arc::clone(&carrier.dispatch),
        mailbox: Arc::clone(&mailbox.store),
        name: mailbox.name.clone(),
        mailed: Arc::clone(&mailbox.mailed),
        // The lease of a log that is this process's own says nothing about who else sends.
        lease: carrier.lease.as_ref().filter(|_| matches!(carrier.kind, LogKind::OfSession)).map(owner),
    })
}
