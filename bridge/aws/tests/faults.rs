//! What the adapters make of every way in which a call can fail, with a server that fails by script.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use bytes::Bytes;
use causeway_aws::{AwsClients, DynamoOutbox, SqsOptions, SqsSink};
use causeway_core::identity::{Epoch, Id128, LogName, Slot};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{Row, Segment};
use causeway_core::units::UnixMillis;
use causeway_ports::{Outbox, Put, Sink};
use std::sync::Arc;
use std::time::Duration;
use support::emulator::free_port;
use support::scripted::{Reply, Scripted};

const LONG: Duration = Duration::from_secs(60);
const SECRET: &str = "payload-that-must-not-be-logged";

fn log() -> LogName {
    LogName::new("bridge", "session", 0).unwrap()
}

fn segment() -> Row {
    Row::Segment(Segment {
        epoch: Epoch(3),
        segment_id: Id128(9),
        count: 1,
        codec: 1,
        body: Bytes::from_static(SECRET.as_bytes()),
        created_at: UnixMillis(0),
        earliest_expiry: None,
        drained: Slot(0),
    })
}

fn outbox(endpoint: &str) -> DynamoOutbox {
    DynamoOutbox::new(support::clients(endpoint).dynamodb().unwrap(), "outbox")
}

fn batch(count: u128) -> Vec<Arc<Entry>> {
    let entry = |id| Entry {
        id: Id128(id),
        route: "r".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "s".into(),
        received_at: UnixMillis(0),
        expires_at: None,
        redrive: None,
        message: Message { topic: "t".to_owned(), payload: Bytes::from_static(SECRET.as_bytes()), ..Message::default() },
    };
    (0..count).map(|id| Arc::new(entry(id))).collect()
}

fn sink(clients: &AwsClients, endpoint: &str) -> SqsSink {
    SqsSink::new(clients, SqsOptions::new(format!("{endpoint}/000000000000/q"))).unwrap()
}

/// What a failure is: whether the effect is unknown, and the code.
fn kind<T: std::fmt::Debug>(outcome: &Outcome<T>) -> (bool, FaultCode, Fault) {
    match outcome {
        Outcome::NotDone(fault) => (false, fault.code, fault.clone()),
        Outcome::Unknown(fault) => (true, fault.code, fault.clone()),
        Outcome::Done(value) => panic!("done with {value:?}"),
    }
}

fn is_presentable(fault: &Fault) {
    assert!(!fault.detail.contains(SECRET) && !fault.detail.contains('\n'), "{fault}");
    assert!(!fault.detail.is_empty());
}

/// Each failure with what it means for a write: unknown or not, and the code.
fn failures() -> Vec<(Reply, bool, FaultCode)> {
    vec![
        (Reply::failure(400, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"), false, FaultCode::Throttled),
        (Reply::failure(400, "ThrottlingException"), false, FaultCode::Throttled),
        (Reply::failure(403, "RequestThrottled"), false, FaultCode::Throttled),
        (Reply::failure(429, "TooManyRequestsException"), false, FaultCode::Throttled),
        (Reply::failure(500, "InternalServerError"), true, FaultCode::Unavailable),
        (Reply::failure(503, "ServiceUnavailable"), true, FaultCode::Unavailable),
        (Reply::Answer { status: 503, headers: Vec::new(), body: "<html>busy</html>".to_owned() }, true, FaultCode::Unavailable),
        (Reply::failure(400, "AccessDeniedException"), false, FaultCode::NotAuthorized),
        (Reply::failure(400, "com.amazon.coral.service#UnrecognizedClientException"), false, FaultCode::NotAuthorized),
        (Reply::failure(400, "ExpiredTokenException"), false, FaultCode::TemporaryAuthFailure),
        (Reply::failure(400, "ResourceNotFoundException"), false, FaultCode::NotFound),
        (Reply::failure(400, "ValidationException"), false, FaultCode::InvalidConfig),
        (Reply::failure(400, "SomethingNewException"), false, FaultCode::ProtocolError),
        (Reply::ResetAfterRequest, true, FaultCode::ConnectionLost),
        (Reply::TornAnswer, true, FaultCode::ConnectionLost),
    ]
}

#[tokio::test]
async fn writes_tell_whether_they_may_have_taken_effect() {
    for (reply, unknown, code) in failures() {
        let server = Scripted::start([reply.clone()]).await;
        let outcome = outbox(&server.endpoint).put(&log(), Slot(1), &segment()).await;
        let (is_unknown, found, fault) = kind(&outcome);
        assert_eq!((is_unknown, found), (unknown, code), "{reply:?}: {fault}");
        is_presentable(&fault);
        assert_eq!(server.requests().len(), 1, "the adapter itself does not try again: {reply:?}");
    }
}

#[tokio::test]
async fn reads_fail_with_the_same_facts() {
    for (reply, _, code) in failures() {
        let server = Scripted::start([reply.clone()]).await;
        let fault = outbox(&server.endpoint).read_tail(&log()).await.unwrap_err();
        assert_eq!(fault.code, code, "{reply:?}: {fault}");
        is_presentable(&fault);
    }
}

#[tokio::test]
async fn a_batch_that_fails_as_a_whole_fails_for_each_entry() {
    for (reply, unknown, code) in failures() {
        let server = Scripted::start([reply.clone()]).await;
        let sink = sink(&support::clients(&server.endpoint), &server.endpoint);
        let outcomes = sink.send(&batch(3), LONG).await;
        assert_eq!(outcomes.len(), 3);
        for outcome in &outcomes {
            let (is_unknown, found, fault) = kind(outcome);
            assert_eq!((is_unknown, found), (unknown, code), "{reply:?}: {fault}");
            is_presentable(&fault);
        }
        assert_eq!((sink.requests(), server.requests().len()), (1, 1), "{reply:?}");
    }
}

#[tokio::test]
async fn a_refused_connection_has_no_effect() {
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let (unknown, code, fault) = kind(&outbox(&endpoint).put(&log(), Slot(1), &segment()).await);
    assert_eq!((unknown, code), (false, FaultCode::Unavailable), "{fault}");
    is_presentable(&fault);
    let outcomes = sink(&support::clients(&endpoint), &endpoint).send(&batch(2), LONG).await;
    assert!(outcomes.iter().all(|outcome| !kind(outcome).0 && kind(outcome).1 == FaultCode::Unavailable), "{outcomes:?}");
    let (unknown, code, fault) = kind(&outbox("http://no-such-host.invalid").put(&log(), Slot(1), &segment()).await);
    assert_eq!((unknown, code), (false, FaultCode::Unavailable), "{fault}");
}

#[tokio::test]
async fn an_answer_that_never_comes_leaves_the_effect_unknown() {
    let server = Scripted::start([Reply::Silence]).await;
    let clients = support::clients_with_timeout(&server.endpoint, Duration::from_millis(200));
    let outcome = DynamoOutbox::new(clients.dynamodb().unwrap(), "outbox").put(&log(), Slot(1), &segment()).await;
    let (unknown, code, fault) = kind(&outcome);
    assert_eq!((unknown, code), (true, FaultCode::Timeout), "{fault}");
    // The sink's own limit: what was begun is unknown, what was not begun is not done.
    let sink = sink(&support::clients(&server.endpoint), &server.endpoint);
    let outcomes = sink.send(&batch(12), Duration::from_millis(200)).await;
    assert!(outcomes[..10].iter().all(|outcome| kind(outcome).0), "{outcomes:?}");
    assert!(outcomes[10..].iter().all(|outcome| !kind(outcome).0 && kind(outcome).1 == FaultCode::Timeout), "{outcomes:?}");
}

#[tokio::test]
async fn missing_credentials_are_said_and_have_no_effect() {
    #[derive(Debug)]
    struct Nobody;
    impl aws_credential_types::provider::ProvideCredentials for Nobody {
        fn provide_credentials<'a>(&'a self) -> aws_credential_types::provider::future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let error = aws_credential_types::provider::error::CredentialsError::not_loaded("nothing there");
            aws_credential_types::provider::future::ProvideCredentials::ready(Err(error))
        }
    }
    let server = Scripted::start([Reply::ok("{}")]).await;
    let config = aws_config::SdkConfig::builder()
        .behavior_version(aws_config::BehaviorVersion::latest())
        .region(aws_config::Region::new("us-east-1"))
        .endpoint_url(&server.endpoint)
        .credentials_provider(aws_credential_types::provider::SharedCredentialsProvider::new(Nobody))
        .build();
    let clients = AwsClients::from_config(config);
    let (unknown, code, fault) = kind(&DynamoOutbox::new(clients.dynamodb().unwrap(), "outbox").put(&log(), Slot(1), &segment()).await);
    assert_eq!((unknown, code), (false, FaultCode::NotAuthorized), "{fault}");
    assert!(fault.detail.contains("AWS_ACCESS_KEY_ID"), "{fault}");
    assert_eq!(clients.credentials().await.unwrap_err().code, FaultCode::NotAuthorized);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_requested_pause_is_passed_on() {
    let server = Scripted::start([Reply::failure(503, "SlowDown").with_header("retry-after", "7")]).await;
    let (unknown, code, fault) = kind(&outbox(&server.endpoint).put(&log(), Slot(1), &segment()).await);
    assert_eq!((unknown, code, fault.retry_after), (false, FaultCode::Throttled, Some(Duration::from_secs(7))));
}

/// DynamoDB's answer to a failed condition, with the row that stands there.
fn occupied(attributes: &str) -> Reply {
    let body = format!(
        r#"{{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed","Item":{{{attributes}}}}}"#
    );
    Reply::Answer { status: 400, headers: Vec::new(), body }
}

#[tokio::test]
async fn a_row_of_a_newer_release_fences() {
    let row = r#""pk":{"S":"LOG#bridge#session#0"},"sk":{"S":"00000000000000000001"},"kind":{"S":"of the future"},
        "epoch":{"N":"8"},"id":{"B":"AAAAAAAAAAAAAAAAAAAABQ=="},"drained":{"N":"2"}"#;
    let server = Scripted::start([occupied(row)]).await;
    let outcome = outbox(&server.endpoint).put(&log(), Slot(1), &segment()).await;
    let Outcome::Done(Put::Occupied(meta)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((meta.slot, meta.epoch, meta.id, meta.drained), (Slot(1), Epoch(8), Id128(5), Slot(2)));
    let server = Scripted::start([occupied(r#""pk":{"S":"LOG#bridge#session#0"},"sk":{"S":"00000000000000000001"}"#)]).await;
    let (unknown, code, fault) = kind(&outbox(&server.endpoint).put(&log(), Slot(1), &segment()).await);
    assert_eq!((unknown, code), (false, FaultCode::InvalidConfig), "{fault}");
}

#[tokio::test]
async fn deletes_that_are_left_undone_are_asked_for_again() {
    let left = r#"{"UnprocessedItems":{"outbox":[{"DeleteRequest":{"Key":{"pk":{"S":"LOG#bridge#session#0"},"sk":{"S":"00000000000000000002"}}}}]}}"#;
    let server = Scripted::start([Reply::ok(left), Reply::ok(left), Reply::ok("{}")]).await;
    assert_eq!(outbox(&server.endpoint).delete(&log(), &[Slot(1), Slot(2)]).await, Outcome::Done(()));
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[0].contains("00000000000000000001") && !requests[1].contains("00000000000000000001"), "{requests:?}");
    // Without an end it gives up and says so.
    let server = Scripted::start([Reply::ok(left)]).await;
    let (unknown, code, fault) = kind(&outbox(&server.endpoint).delete(&log(), &[Slot(1), Slot(2)]).await);
    assert_eq!((unknown, code), (false, FaultCode::Throttled), "{fault}");
    // Many slots are several calls.
    let server = Scripted::start([Reply::ok("{}")]).await;
    let slots: Vec<_> = (1..=60).map(Slot).collect();
    assert_eq!(outbox(&server.endpoint).delete(&log(), &slots).await, Outcome::Done(()));
    assert_eq!(server.requests().len(), 3);
}

fn sent(ids: &[&str]) -> String {
    ids.iter().map(|id| format!(r#"{{"Id":"{id}","MessageId":"m","MD5OfMessageBody":"x"}}"#)).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn each_entry_has_its_own_outcome() {
    let body = format!(
        r#"{{"Successful":[{}],"Failed":[{{"Id":"1","Code":"InternalError","SenderFault":false}},
            {{"Id":"2","Code":"RequestThrottled","SenderFault":true}},{{"Id":"3","Code":"InvalidMessageContents","SenderFault":true,"Message":"bad"}},
            {{"Id":"4","Code":"KMS.ThrottlingException","SenderFault":true}},{{"Id":"77","Code":"X","SenderFault":true}}]}}"#,
        sent(&["0", "6"])
    );
    let server = Scripted::start([Reply::ok(body)]).await;
    let sink = sink(&support::clients(&server.endpoint), &server.endpoint);
    let outcomes = sink.send(&batch(7), LONG).await;
    assert_eq!((&outcomes[0], &outcomes[6]), (&Outcome::Done(()), &Outcome::Done(())));
    let found: Vec<_> = outcomes[1..6].iter().map(|outcome| (kind(outcome).0, kind(outcome).1)).collect();
    assert_eq!(
        found,
        [
            (false, FaultCode::Unavailable),
            (false, FaultCode::Throttled),
            (false, FaultCode::InvalidPayload),
            (false, FaultCode::Throttled),
            (true, FaultCode::Unavailable),
        ]
    );
}

#[tokio::test]
async fn twenty_throttles_lose_nothing_and_repeats_carry_the_same_id() {
    let replies = (0..20)
        .map(|_| Reply::failure(403, "RequestThrottled"))
        .chain([Reply::ok(format!(r#"{{"Successful":[{}],"Failed":[]}}"#, sent(&["0"])))]);
    let server = Scripted::start(replies).await;
    let sink = sink(&support::clients(&server.endpoint), &server.endpoint);
    let batch = batch(1);
    for _ in 0..20 {
        let outcomes = sink.send(&batch, LONG).await;
        assert!(matches!(&outcomes[0], Outcome::NotDone(fault) if fault.is_transient()), "{outcomes:?}");
    }
    assert_eq!(sink.send(&batch, LONG).await, [Outcome::Done(())]);
    let requests = server.requests();
    assert_eq!(requests.len(), 21);
    assert!(requests.iter().all(|request| request.contains("00000000000000000000000000000000")), "the message id is the same each time");
}

#[tokio::test]
async fn one_message_that_makes_a_whole_batch_refused_is_singled_out() {
    let refused = || Reply::failure(400, "InvalidMessageContents");
    let ok = |ids: &[&str]| Reply::ok(format!(r#"{{"Successful":[{}],"Failed":[]}}"#, sent(ids)));
    // Four entries, the third is refused: 0123 | 01 ok | 23 refused | 2 refused | 3 ok
    let server = Scripted::start([refused(), ok(&["0", "1"]), refused(), refused(), ok(&["0"])]).await;
    let sink = sink(&support::clients(&server.endpoint), &server.endpoint);
    let outcomes = sink.send(&batch(4), LONG).await;
    let (unknown, code, _) = kind(&outcomes[2]);
    assert_eq!((unknown, code), (false, FaultCode::InvalidPayload));
    for index in [0, 1, 3] {
        assert_eq!(outcomes[index], Outcome::Done(()), "entry {index}");
    }
    assert_eq!(sink.requests(), 5);
}
