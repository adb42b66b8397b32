//! What keeping account of a session's subscriptions needs.

use super::StoreSet;
use crate::parts::SubscriptionParts;
use causeway_core::config::model::{Baseline, Session, SessionMode};
use causeway_core::subscriptions::BrokerSession;
use causeway_mqtt::SourceOptions;
use core::time::Duration;
use std::collections::BTreeSet;

/// A call to the store takes no longer; the source's own connection attempt goes on being tried.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// What the account of a session's subscriptions is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionPlan {
    /// The session's name in the store.
    pub identity: String,
    /// The filters that the configuration wants.
    pub desired: BTreeSet<String>,
    /// Whether a session that the broker reports as new proves that it has none.
    pub baseline_auto: bool,
}

impl SubscriptionPlan {
    /// The account of a durable session; `None` where nothing outlives a connection, and so nothing is accounted for.
    pub(super) fn of(session: &Session, options: &SourceOptions) -> Option<Self> {
        if session.session_mode == SessionMode::Ephemeral {
            return None;
        }
        Some(Self {
            identity: storage_identity(session)?,
            desired: options.subscriptions.iter().map(|subscription| subscription.filter.clone()).collect(),
            baseline_auto: session.baseline == Baseline::Auto,
        })
    }

    /// The account, where there is a store for it.
    pub(super) fn parts(self, stores: &StoreSet) -> Option<SubscriptionParts> {
        let Self { identity, desired, baseline_auto } = self;
        let store = stores.subscriptions.clone()?;
        Some(SubscriptionParts { store, identity, desired, baseline_auto, call_timeout: CALL_TIMEOUT })
    }
}

/// The session's name in the store of managed subscriptions.
pub fn storage_identity(session: &Session) -> Option<String> {
    let settings = session.mqtt();
    // What the broker keeps it keeps for the whole name.
    let client_id = super::source::lasting_client_id(session, &settings);
    let broker_url = settings.broker.urls.first()?.to_string();
    let identity = BrokerSession {
        broker_url: &broker_url,
        client_id: &client_id,
        session_mode: session.session_mode,
        clean_start: settings.clean_start,
        session_expiry: settings.session_expiry_seconds,
    };
    Some(identity.storage_identity())
}
