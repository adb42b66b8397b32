//! Moves of a queue's own dead letters, against scripted answers of SQS: no emulator at hand has this call.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use causeway_core::redrive::Request;
use causeway_redrive::queue_move::run;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:dead";

/// One call that is expected, and its answer.
#[derive(Clone)]
struct Exchange {
    operation: &'static str,
    /// Fields that the call must have.
    asked: Value,
    answer: Result<Value, (&'static str, &'static str)>,
}

type Script = Arc<Mutex<VecDeque<Exchange>>>;

fn lists(running: bool) -> Exchange {
    let status = if running { "RUNNING" } else { "COMPLETED" };
    let task = json!({"Status": status, "TaskHandle": "handle", "ApproximateNumberOfMessagesMoved": 7});
    Exchange { operation: "ListMessageMoveTasks", asked: json!({"SourceArn": ARN}), answer: Ok(json!({ "Results": [task] })) }
}

fn starts(answer: Result<Value, (&'static str, &'static str)>) -> Exchange {
    Exchange { operation: "StartMessageMoveTask", asked: json!({"SourceArn": ARN, "MaxNumberOfMessagesPerSecond": 40}), answer }
}

/// Answers as SQS does, JSON protocol, and insists on the script.
async fn answer(State(script): State<Script>, headers: HeaderMap, body: Bytes) -> (StatusCode, [(&'static str, String); 2], String) {
    let exchange = script.lock().unwrap().pop_front().expect("a call that the script does not have");
    assert_eq!(headers["x-amz-target"].to_str().unwrap(), format!("AmazonSQS.{}", exchange.operation));
    let asked: Value = serde_json::from_slice(&body).unwrap();
    for (field, value) in exchange.asked.as_object().unwrap() {
        assert_eq!(&asked[field], value, "{field} of {asked}");
    }
    let kind = ("content-type", "application/x-amz-json-1.0".to_owned());
    match exchange.answer {
        Ok(value) => (StatusCode::OK, [kind, ("x-amzn-requestid", "1".to_owned())], value.to_string()),
        Err((code, message)) => {
            let refusal = json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": message});
            (StatusCode::BAD_REQUEST, [kind, ("x-amzn-query-error", format!("{code};Sender"))], refusal.to_string())
        }
    }
}

/// A client of an SQS that follows this script, and the script, to see that nothing of it is left.
async fn sqs(exchanges: impl IntoIterator<Item = Exchange>) -> (Client, Script) {
    let script: Script = Arc::new(Mutex::new(exchanges.into_iter().collect()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().fallback(answer).with_state(Arc::clone(&script));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
        .endpoint_url(format!("http://{address}"))
        .build();
    (Client::from_conf(config), script)
}

fn done(script: &Script) {
    assert_eq!(script.lock().unwrap().len(), 0, "calls that were not made");
}

fn request(dry_run: bool) -> Request {
    Request::parse(&json!({"mode": "sqs", "queue": ARN, "dry_run": dry_run, "rate_per_second": 40}), "op").unwrap()
}

/// Invoked twice within a moment, there is one task: the second call is told of it, and that is no error, whether it finds the task or loses the race.
#[tokio::test]
async fn a_move_that_is_under_way_is_an_answer_like_any_other() {
    let (client, script) = sqs([lists(false), starts(Ok(json!({"TaskHandle": "handle"})))]).await;
    assert_eq!(run(&client, &request(false)).await.unwrap()["status"], "started");
    done(&script);

    let (client, script) = sqs([lists(true)]).await;
    let second = run(&client, &request(false)).await.unwrap();
    assert_eq!((&second["status"], &second["moved"]), (&json!("already_running"), &json!(7)));
    done(&script);

    let lost = starts(Err(("InvalidParameterValue", "There is already a task running.")));
    let (client, script) = sqs([lists(false), lost, lists(true)]).await;
    assert_eq!(run(&client, &request(false)).await.unwrap()["status"], "already_running");
    done(&script);
}

#[tokio::test]
async fn a_queue_that_is_no_dead_letter_queue_is_refused_clearly() {
    let refused = starts(Err(("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.")));
    let (client, script) = sqs([lists(false), refused, lists(false)]).await;
    let error = run(&client, &request(false)).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.field.as_str()), ("not_a_dead_letter_queue", "queue"));
    assert!(error.message.contains("redrive policy"), "{error}");
    done(&script);
}

#[tokio::test]
async fn a_dry_run_only_looks() {
    let url = "https://sqs.us-east-1.amazonaws.com/000000000000/dead";
    let attributes = json!({"Attributes": {"QueueArn": ARN, "ApproximateNumberOfMessages": "5"}});
    let reads = Exchange { operation: "GetQueueAttributes", asked: json!({"QueueUrl": url}), answer: Ok(attributes) };
    let (client, script) = sqs([reads, lists(false)]).await;
    let request = Request::parse(&json!({"mode": "sqs", "queue": url}), "op").unwrap();
    assert_eq!(run(&client, &request).await.unwrap(), json!({"status": "would_start", "messages": 5}));
    done(&script);
}
