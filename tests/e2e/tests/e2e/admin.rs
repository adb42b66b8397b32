//! The admin interface of real processes: messages that are put in survive kill -9, and a session changes its owner when asked.

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;
use xtask::rig::Rig;
use xtask::stack::{StackOptions, Store};
use xtask::worker::{ADMIN_KEY, Role, SESSION, Worker};

const PATIENCE: Duration = Duration::from_secs(120);

/// Where the admin interface of a worker is.
async fn admin(client: &Client, worker: &Worker) -> String {
    let status: Value = client.get(format!("{}/api/v1/monitor/status", worker.monitor())).send().await.unwrap().json().await.unwrap();
    format!("http://127.0.0.1:{}/api/v1/admin", status["admin_port"].as_u64().unwrap())
}

async fn post(client: &Client, url: &str, body: Value) -> (StatusCode, Value) {
    let answer = client.post(url).header("x-api-key", ADMIN_KEY).json(&body).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

/// What comes out of the queue until all of `wanted` did.
async fn arrived(rig: &Rig, wanted: &BTreeSet<String>) -> BTreeSet<String> {
    let (mut bodies, deadline) = (BTreeSet::new(), Instant::now() + PATIENCE);
    while !wanted.is_subset(&bodies) && Instant::now() < deadline {
        let request =
            rig.stack.aws.sqs.receive_message().queue_url(&rig.settings.queue_url).max_number_of_messages(10).wait_time_seconds(1);
        for message in request.send().await.unwrap().messages.unwrap_or_default() {
            bodies.insert(message.body.unwrap());
        }
    }
    bodies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_put_in_survives_kill_9_and_an_owner_that_is_asked_hands_over() {
    let dir = tempfile::Builder::new().prefix("causeway-admin-").tempdir().unwrap();
    let binary = xtask::worker::binary().await.unwrap();
    let options = StackOptions::bound(dir.path(), Store::Dynamodb);
    let rig = Rig::start_with(&options, false, binary, |settings| settings.exclusive = true).await.unwrap();
    let mut cluster = rig.cluster(&[("worker-1", Role::Worker), ("worker-2", Role::Worker)]).unwrap();
    let first = cluster.holder().await.unwrap();
    let standby = 1 - first.member;
    cluster.members[standby].worker.ready("subscribed").await.unwrap();
    let client = Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
    let (owners, standbys) =
        (admin(&client, &cluster.members[first.member].worker).await, admin(&client, &cluster.members[standby].worker).await);

    // Whoever is asked: the message is in the mailbox of the session. The owner dies the moment it has answered.
    let mut wanted = BTreeSet::new();
    for (index, base) in [&standbys, &owners, &owners].into_iter().enumerate() {
        let payload = format!("put in {index}");
        let (status, body) =
            post(&client, &format!("{base}/routes/ingest/inject"), json!({ "topic": "telemetry/1", "payload": payload, "id": payload }))
                .await;
        assert_eq!((status, body["ids"].as_array().unwrap().len()), (StatusCode::ACCEPTED, 1), "{body}");
        wanted.insert(payload);
    }
    cluster.members[first.member].worker.process.kill().await.unwrap();
    assert_eq!(arrived(&rig, &wanted).await, wanted);
    let second = cluster.successor(&first.lease).await.unwrap();
    cluster.start_again(first.member).await.unwrap();
    cluster.members[first.member].worker.stands_by().await.unwrap();
    cluster.members[first.member].worker.ready("subscribed").await.unwrap();

    // What came by the mailbox is accounted for.
    let routes: Value = client.get(format!("{standbys}/routes")).header("x-api-key", ADMIN_KEY).send().await.unwrap().json().await.unwrap();
    assert_eq!(routes["routes"][0]["conservation_imbalance"], 0, "{routes}");

    let again = admin(&client, &cluster.members[first.member].worker).await;
    let path = format!("sessions/{SESSION}/step-down");
    assert_eq!(post(&client, &format!("{again}/{path}"), json!({})).await.0, StatusCode::CONFLICT, "it owns nothing");
    let (status, body) = post(&client, &format!("{standbys}/{path}"), json!({})).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    let third = cluster.successor(&second.lease).await.unwrap();
    assert_eq!(third.member, first.member);
    cluster.members[second.member].worker.stands_by().await.unwrap();

    let log = std::fs::read_to_string(cluster.members[second.member].worker.process.log()).unwrap();
    assert!(log.contains("session.step_down") && log.contains("route.inject"), "{log}");
    assert!(!log.contains(ADMIN_KEY), "the key is in no log");
    for (name, status) in cluster.stop(third.member).await.unwrap() {
        assert!(status.success(), "{name} ended with {status}");
    }
}
