//! What the environment says is what the clients do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use causeway_aws::{AwsClients, AwsOptions, DynamoOutbox, Queue, SqsOptions, SqsSink, SqsSourceOptions, probe_queue};
use causeway_core::identity::LogName;
use causeway_core::outcome::FaultClass;
use causeway_ports::{Outbox, Sink};
use std::process::Command;
use support::scripted::{Reply, Scripted};

/// Runs one of the ignored tests below in a process with nothing but `variables` in its environment.
async fn in_environment(test: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env_clear().envs(variables.iter().copied());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

const KEYS: [(&str, &str); 3] = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_REGION", "eu-central-1")];

#[tokio::test]
async fn endpoints_of_the_environment_are_honoured() {
    let both = Scripted::start([Reply::ok("{}")]).await;
    let sqs = Scripted::start([Reply::ok("{}")]).await;
    let mut variables = KEYS.to_vec();
    variables.push(("AWS_ENDPOINT_URL", &both.endpoint));
    in_environment("reaches_store_and_queue", &variables).await;
    assert_eq!(both.requests().len(), 2);
    variables.push(("AWS_ENDPOINT_URL_SQS", &sqs.endpoint));
    in_environment("reaches_store_and_queue", &variables).await;
    assert_eq!((both.requests().len(), sqs.requests().len()), (3, 1));
}

/// Templates and shells export variables that hold nothing.
#[tokio::test]
async fn an_endpoint_that_is_exported_and_empty_is_none() {
    let both = Scripted::start([Reply::ok("{}")]).await;
    let mut variables = KEYS.to_vec();
    variables.extend([("AWS_ENDPOINT_URL", both.endpoint.as_str()), ("AWS_ENDPOINT_URL_SQS", ""), ("AWS_ENDPOINT_URL_DYNAMODB", "")]);
    in_environment("reaches_store_and_queue", &variables).await;
    assert_eq!(both.requests().len(), 2, "the general one counts");

    let sqs = Scripted::start([Reply::ok("{}")]).await;
    let mut variables = KEYS.to_vec();
    variables.extend([
        ("AWS_ENDPOINT_URL", ""),
        ("AWS_ENDPOINT_URL_SQS", sqs.endpoint.as_str()),
        ("AWS_ENDPOINT_URL_DYNAMODB", &sqs.endpoint),
    ]);
    in_environment("reaches_store_and_queue", &variables).await;
    assert_eq!(sqs.requests().len(), 2, "those of the services count");

    let mut variables = KEYS.to_vec();
    variables.extend([("AWS_ENDPOINT_URL", ""), ("AWS_ENDPOINT_URL_SQS", " "), ("HTTPS_PROXY", "http://127.0.0.1:9")]);
    in_environment("makes_clients_of_the_services_own_addresses", &variables).await;
}

#[tokio::test]
#[ignore = "runs in a process of its own, started by another test"]
async fn makes_clients_of_the_services_own_addresses() {
    let clients = AwsClients::load(&AwsOptions { region: Some("xx-nowhere-1".to_owned()), ..AwsOptions::default() }).await;
    // It goes over a proxy that is not there: what matters is that a call ends with a fault.
    let sink = SqsSink::new(&clients, SqsOptions::new("https://sqs.xx-nowhere-1.amazonaws.com/000000000000/q")).unwrap();
    let fault = sink.probe().await.unwrap_err();
    assert_eq!(fault.code.class(), FaultClass::Transient, "{fault}");
    assert!(clients.dynamodb().is_ok());
}

#[tokio::test]
async fn a_profile_has_its_own_credentials_and_region() {
    let sqs = Scripted::start([Reply::ok("{}")]).await;
    let dir = tempfile::tempdir().unwrap();
    let (config, credentials) = (dir.path().join("config"), dir.path().join("credentials"));
    std::fs::write(&config, "[profile plant]\nregion = us-west-2\n").unwrap();
    std::fs::write(&credentials, "[plant]\naws_access_key_id = KEYOFTHEPLANT\naws_secret_access_key = secret\n").unwrap();
    let mut variables = KEYS.to_vec();
    variables.push(("AWS_ENDPOINT_URL", &sqs.endpoint));
    variables.push(("AWS_CONFIG_FILE", config.to_str().unwrap()));
    variables.push(("AWS_SHARED_CREDENTIALS_FILE", credentials.to_str().unwrap()));
    in_environment("reaches_a_queue_with_a_profile", &variables).await;
    assert_eq!(sqs.requests().len(), 2);
    let signed: Vec<String> = sqs.headers("authorization").into_iter().flatten().collect();
    assert!(signed[0].contains("credential=keyoftheplant/") && signed[0].contains("/us-west-2/sqs/"), "{signed:?}");
    assert!(signed[1].contains("credential=test/") && signed[1].contains("/eu-central-1/sqs/"), "{signed:?}");
}

#[tokio::test]
async fn a_missing_region_is_said() {
    in_environment("has_no_region", &[("AWS_EC2_METADATA_DISABLED", "true")]).await;
}

#[tokio::test]
#[ignore = "runs in a process of its own, started by another test"]
async fn reaches_store_and_queue() {
    let clients = AwsClients::load(&AwsOptions::default()).await;
    assert_eq!(clients.region(), Some("eu-central-1"));
    clients.credentials().await.unwrap();
    let log = LogName::new("bridge", "session", 0).unwrap();
    assert_eq!(DynamoOutbox::new(clients.dynamodb().unwrap(), "t").read_tail(&log).await.unwrap(), None);
    SqsSink::new(&clients, SqsOptions::new("https://sqs.eu-central-1.amazonaws.com/000000000000/q")).unwrap().probe().await.unwrap();
}

#[tokio::test]
#[ignore = "runs in a process of its own, started by another test"]
async fn reaches_a_queue_with_a_profile() {
    let clients = AwsClients::load(&AwsOptions { profiles: vec!["plant".to_owned()], ..AwsOptions::default() }).await;
    for profile in [Some("plant".to_owned()), None] {
        let options = SqsSourceOptions { profile, ..SqsSourceOptions::new("in", Queue::Name("q".to_owned())) };
        // The answer is none of a queue; what it was asked with is what matters.
        let _ = probe_queue(&clients, &options).await;
    }
    let unknown = clients.sqs_of(Some("other"), None, None).unwrap_err();
    assert!(unknown.detail.contains("`other`"), "{unknown}");
}

#[tokio::test]
#[ignore = "runs in a process of its own, started by another test"]
async fn has_no_region() {
    let clients = AwsClients::load(&AwsOptions::default()).await;
    let fault = clients.dynamodb().unwrap_err();
    assert!(fault.detail.contains("AWS_REGION"), "{fault}");
    assert!(clients.sqs(None).is_err());
    assert!(clients.sqs(Some("eu-west-1")).is_ok(), "the region of the queue is enough");
}
