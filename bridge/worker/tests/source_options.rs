//! What the configuration of a session makes of its source: no field is left behind on the way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use causeway_core::config::{Config, Source, load};
use causeway_mqtt::{Protocol, SourceOptions, Will};
use causeway_worker::secrets::SecretBoard;
use causeway_worker::wiring::{source_options, storage_identity};
use core::time::Duration;

const OLDER: &str = include_str!("../../../tests/fixtures/valid/older_broker.yaml");
const CURRENT: &str = include_str!("../../../tests/fixtures/valid/standalone_sqlite.yaml");

fn config(text: &str) -> Config {
    // Without TLS, for which a host has to have certificates that it trusts.
    let text = &text.replace("tls://", "tcp://").replace("wss://", "ws://");
    load(&[Source { name: "test", text }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}")).config
}

fn options(text: &str) -> SourceOptions {
    let config = config(text);
    source_options(&config, &config.sessions[0], "sessions[0]", &SecretBoard::default()).unwrap()
}

#[test]
fn an_older_broker_is_spoken_to_in_its_words_at_all_its_addresses() {
    let options = options(OLDER);
    assert_eq!(options.protocol, Protocol::V311);
    assert_eq!(options.broker_url.to_string(), "ws://mqtt.example.com:8080/mqtt");
    let others: Vec<String> = options.other_urls.iter().map(ToString::to_string).collect();
    assert_eq!(others, ["ws://mqtt.example.com:80/mqtt"]);
    assert_eq!(options.content_hash.as_deref(), Some("ws://mqtt.example.com:8080/mqtt"));
    assert_eq!(options.subscriptions[0].qos_recheck, Duration::from_secs(600));
    assert_eq!((options.session_expiry, options.clean_start), (0, true));
    let suffix = options.client_id.strip_prefix("telemetry-").unwrap();
    assert!(suffix.len() == 8 && suffix.bytes().all(|byte| byte.is_ascii_hexdigit()), "{}", options.client_id);
}

#[test]
fn what_a_session_says_of_itself_arrives() {
    let plain = options(CURRENT);
    assert_eq!((plain.protocol, plain.will, plain.no_local, plain.content_hash), (Protocol::V5, None, false, None));
    let said = options(&CURRENT.replace(
        "        client_id:",
        "        will: {topic: status/bridge, payload: gone, qos: 1, retain: true}\n        no_local: true\n        connect_timeout: 7s\n        reconnect_timeout: 8s\n        client_id:",
    ));
    assert_eq!(said.will, Some(Will { topic: "status/bridge".into(), payload: b"gone".to_vec(), qos: 1, retain: true }));
    assert!(said.no_local);
    assert_eq!((said.connect_timeout, said.reconnect_timeout), (Duration::from_secs(7), Duration::from_secs(8)));
}

/// What the broker keeps it keeps for the whole name, so the account of it is the replica's own too.
#[test]
fn a_replicas_own_name_has_an_account_of_its_own() {
    let own = CURRENT.replace(
        "        client_id:",
        "        client_id_suffix: hostname\n        assert_stable_client_identity: true\n        client_id:",
    );
    let named = options(&own);
    assert!(named.client_id.starts_with(&format!("{}-", options(CURRENT).client_id)), "{}", named.client_id);
    let account = |text: &str| storage_identity(&config(text).sessions[0]).unwrap();
    assert_eq!(account(&own), account(&own));
    assert_ne!(account(&own), account(CURRENT));
}
