//! Rules of `flow.inbound`.

use super::Check;
use crate::config::model::SessionMode;
use core::time::Duration;

const UNSHARE_AFTER: &str = "flow.inbound.unshare_after";
/// What another process wrote of itself has to be readable by then.
const LEAST: Duration = Duration::from_secs(2);
const MOST: Duration = Duration::from_secs(3_600);

pub(super) fn check(check: &mut Check<'_>) {
    let Some(after) = check.config.flow.inbound.unshare_after else { return };
    if !(LEAST..=MOST).contains(&after.get()) {
        check.error(
            "E_UNSHARE_AFTER",
            UNSHARE_AFTER,
            &[],
            "unshare_after is below 2s or above 1h",
            "write a duration from 2s to 1h, such as `15s`",
        );
        return;
    }
    let config = check.config;
    let in_groups = |session: &crate::config::Id| {
        let receivers = config.receivers.iter().filter(|receiver| receiver.session_id.as_ref() == Some(session));
        receivers.flat_map(|receiver| &receiver.topics).any(|topic| topic.topic.starts_with("$share/"))
    };
    let mut sessions = config.sessions.iter().filter(|session| session.session_mode != SessionMode::Exclusive);
    if !config.bridge.is_clustered() || !sessions.any(|session| in_groups(&session.id)) {
        check.error(
            "E_UNSHARE_ALONE",
            UNSHARE_AFTER,
            &["bridge.deployment_mode", "bridge.cluster", "sessions", "receivers"],
            "no other process could take over the share: that needs a clustered bridge with a `$share/` filter on a session that is not exclusive",
            "remove it, or write `deployment_mode: clustered` and `$share/GROUP/FILTER`",
        );
    }
}
