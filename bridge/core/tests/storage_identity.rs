//! The name of a session in the table of managed subscriptions, by the cases that the deployment's own computation is held to.
#![allow(clippy::unwrap_used, reason = "tests")]

use causeway_core::config::model::SessionMode;
use causeway_core::subscriptions::BrokerSession;
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    broker_url: String,
    client_id: String,
    session_mode: SessionMode,
    clean_start: bool,
    session_expiry: u32,
    expect: String,
}

/// A row that the deployment seeds under another name is one that no worker ever reads.
#[test]
fn the_deployment_and_the_program_name_a_session_alike() {
    let vectors: Vectors = serde_json::from_str(include_str!("../../../infra/test/vectors/storage-identity.json")).unwrap();
    assert!(vectors.cases.len() >= 2);
    for case in &vectors.cases {
        let session = BrokerSession {
            broker_url: &case.broker_url,
            client_id: &case.client_id,
            session_mode: case.session_mode,
            clean_start: case.clean_start,
            session_expiry: case.session_expiry,
        };
        assert_eq!(session.storage_identity(), case.expect, "{}", case.name);
    }
}
