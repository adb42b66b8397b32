//! What keeping account of a session's subscriptions needs.

use super::StoreSet;
use crate::parts::SubscriptionParts;
use causeway_core::config::model::{Baseline, Session, SessionMode};
use causeway_core::subscriptions::BrokerSession;
use causeway_mqtt::SourceOptions;
use core::time::Duration;
use std::sync::Arc;

/// A call to the store takes no longer; the source's own connection attempt goes on being tried.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The account of a durable session, where there is a store for it.
pub(super) fn subscription_parts(session: &Session, stores: &StoreSet, options: &SourceOptions) -> Option<SubscriptionParts> {
    let store = stores.subscriptions.clone().filter(|_| session.session_mode != SessionMode::Ephemeral)?;
    let wanted = options.subscriptions.iter().map(|subscription| subscription.filter.clone());
    Some(SubscriptionParts {
        store: Arc::clone(&store),
        identity: storage_identity(session)?,
        desired: wanted.collect(),
        baseline_auto: session.baseline == Baseline::Auto,
        call_timeout: CALL_TIMEOUT,
    })
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
