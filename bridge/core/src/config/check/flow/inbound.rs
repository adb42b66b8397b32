//! Rules of `flow.inbound`.

use super::Check;
use crate::config::model::{AckHoldAction, Qos0OnFull, SessionMode};
use core::time::Duration;

/// Half of what AWS IoT documents as the time for which it repeats what is not acknowledged.
const ACK_HOLD_MOST: Duration = Duration::from_secs(1_800);
/// What a message of a window takes at least, in bytes.
const WINDOW_MESSAGE: u64 = 1_024;
const UNSHARE_AFTER: &str = "flow.inbound.unshare_after";
/// What another process wrote of itself has to be readable by then.
const LEAST: Duration = Duration::from_secs(2);
const MOST: Duration = Duration::from_secs(3_600);

pub(super) fn check(check: &mut Check<'_>) {
    buffered(check);
    ack_hold(check);
    qos0(check);
    unshare(check);
}

/// A window of small messages has to fit; one of the largest only takes longer.
fn buffered(check: &mut Check<'_>) {
    const AT: &str = "flow.inbound.max_buffered_bytes";
    let (config, most) = (check.config, check.config.flow.inbound.max_buffered_bytes);
    let windows = || config.sessions.iter().map(|session| session.mqtt());
    let least = windows().map(|mqtt| u64::from(mqtt.receive_maximum) * WINDOW_MESSAGE).max().unwrap_or(WINDOW_MESSAGE);
    let largest = windows().map(|mqtt| u64::from(mqtt.receive_maximum).saturating_mul(u64::from(mqtt.max_packet_bytes))).max().unwrap_or(0);
    if most < least {
        check.error(
            "E_MAX_BUFFERED_BYTES",
            AT,
            &["sessions"],
            format!("max_buffered_bytes is below {least}, 1 KiB for each message that a broker may send ahead of acknowledgements"),
            format!("write {least} or more, or lower receive_maximum"),
        );
    } else if most < largest && check.is_set(AT) {
        check.warning(
            "W_MAX_BUFFERED_BYTES",
            AT,
            &["sessions"],
            format!("a window full of messages as large as may be takes {largest} bytes: before it is full, nothing more is read"),
            "raise max_buffered_bytes, or lower receive_maximum or max_payload_bytes, where that is not meant",
        );
    }
}

fn ack_hold(check: &mut Check<'_>) {
    const AT: &str = "flow.inbound.ack_hold_action";
    let config = check.config;
    let inbound = &config.flow.inbound;
    if inbound.ack_hold_max.get() > ACK_HOLD_MOST {
        check.error(
            "E_ACK_HOLD_MAX",
            "flow.inbound.ack_hold_max",
            &[],
            "ack_hold_max is above 30m: brokers give a message up that is not acknowledged for long",
            "write a duration up to `30m`",
        );
    }
    if inbound.ack_hold_action == AckHoldAction::Park && check.is_set(AT) && config.stores.outbox.is_none() {
        check.error(
            "E_NO_OUTBOX",
            AT,
            &["stores.outbox"],
            "what is parked is kept in the outbox, and there is none",
            "configure `stores.outbox`, or write `ack_hold_action: disconnect`",
        );
    }
    if inbound.ack_hold_action == AckHoldAction::Disconnect {
        disconnect(check, AT);
    }
}

/// The broker has to keep what comes again by the next connection, and there has to be time for a limit to admit it.
fn disconnect(check: &mut Check<'_>, at: &str) {
    let config = check.config;
    if config.flow.inbound.ack_hold_max.is_zero() {
        check.error(
            "E_ACK_HOLD_MAX",
            "flow.inbound.ack_hold_max",
            &[at],
            "every message that a limit holds would end the connection at once, and again by the next one",
            "write a duration such as `60s`, or `ack_hold_action: park`",
        );
    }
    let feeds = |session: &crate::config::model::Session| {
        let mut receivers = config.receivers.iter().filter(|receiver| receiver.session_id.as_ref() == Some(&session.id));
        receivers.any(|receiver| config.routes.iter().any(|route| route.receiver_id == receiver.id))
    };
    if config.sessions.iter().any(|session| session.session_mode == SessionMode::Ephemeral && feeds(session)) {
        check.error(
            "E_ACK_HOLD_EPHEMERAL",
            at,
            &["sessions", "receivers", "routes"],
            "the broker forgets an ephemeral session with its connection, and what is held with it: nothing would come again",
            "write `session_mode: persistent`, or `ack_hold_action: park`",
        );
    }
}

fn qos0(check: &mut Check<'_>) {
    const PAUSE: &str = "flow.inbound.socket_pause_max";
    let config = check.config;
    let inbound = &config.flow.inbound;
    check.range("flow.inbound.qos0_buffer_messages", u64::from(inbound.qos0_buffer_messages), 0, 100_000);
    check.range("flow.inbound.tcp_receive_buffer_kib", u64::from(inbound.tcp_receive_buffer_kib), 0, 16_384);
    let Some(pause) = inbound.socket_pause_max else { return };
    if inbound.qos0_on_full != Qos0OnFull::PauseSocket {
        check.error(
            "E_SOCKET_PAUSE",
            PAUSE,
            &["flow.inbound.qos0_on_full"],
            "socket_pause_max means nothing unless `qos0_on_full: pause_socket`",
            "remove it, or write `qos0_on_full: pause_socket`",
        );
    } else if pause.is_zero()
        || config
            .sessions
            .iter()
            .any(|session| session.mqtt().keep_alive.is_some_and(|keep_alive| keep_alive > Duration::ZERO && pause.get() >= keep_alive))
    {
        check.error(
            "E_SOCKET_PAUSE",
            PAUSE,
            &["sessions"],
            "the broker takes a client for dead that says nothing for one and a half times keep_alive",
            "write a duration above zero and below the keep_alive of every session",
        );
    }
}

fn unshare(check: &mut Check<'_>) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use crate::config::{Source, load};

    /// The codes of what is wrong, and of what is only odd.
    fn codes(bytes: Option<u64>) -> (Vec<&'static str>, Vec<&'static str>) {
        let mut text = include_str!("../../../../../../tests/fixtures/valid/standalone_sqlite.yaml").to_owned();
        if let Some(bytes) = bytes {
            text.push_str(&format!("flow: {{ inbound: {{ max_buffered_bytes: {bytes} }} }}\n"));
        }
        match load(&[Source { name: "s", text: &text }], &|_| None) {
            Ok(loaded) => (Vec::new(), loaded.warnings.iter().map(|fault| fault.code).collect()),
            Err(faults) => (faults.iter().filter(|fault| fault.is_error()).map(|fault| fault.code).collect(), Vec::new()),
        }
    }

    /// 500 messages ahead of acknowledgements, each of 384 KiB at most.
    #[test]
    fn a_window_of_small_messages_fits_and_one_of_large_ones_is_told() {
        let odd = "W_MAX_BUFFERED_BYTES";
        assert_eq!(codes(Some(511_999)).0, ["E_MAX_BUFFERED_BYTES"]);
        for (bytes, told) in [(Some(512_000), true), (Some(196_607_999), true), (Some(196_608_000), false), (None, false)] {
            let (errors, warnings) = codes(bytes);
            assert_eq!((errors, warnings.contains(&odd)), (Vec::new(), told), "{bytes:?}");
        }
    }
}
