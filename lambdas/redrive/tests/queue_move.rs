//! Moves of a queue's own dead letters, against scripted answers of SQS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::error::ErrorMetadata;
use aws_sdk_sqs::operation::get_queue_attributes::GetQueueAttributesOutput;
use aws_sdk_sqs::operation::list_message_move_tasks::ListMessageMoveTasksOutput;
use aws_sdk_sqs::operation::start_message_move_task::{StartMessageMoveTaskError, StartMessageMoveTaskOutput};
use aws_sdk_sqs::types::{ListMessageMoveTasksResultEntry, QueueAttributeName};
use aws_smithy_mocks::{MockResponseInterceptor, Rule, RuleMode, create_mock_http_client, mock};
use causeway_core::redrive::Request;
use causeway_redrive::queue_move::run;
use serde_json::json;

const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:dead";

/// A client that gets these answers, in order.
fn answering(rules: &[&Rule]) -> Client {
    let answers = rules.iter().fold(MockResponseInterceptor::new().rule_mode(RuleMode::Sequential), |all, rule| all.with_rule(rule));
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
        .http_client(create_mock_http_client())
        .interceptor(answers)
        .build();
    Client::from_conf(config)
}

fn request(dry_run: bool) -> Request {
    Request::parse(&json!({"mode": "sqs", "queue": ARN, "dry_run": dry_run, "rate_per_second": 40}), "op").unwrap()
}

fn tasks(running: bool) -> ListMessageMoveTasksOutput {
    let status = if running { "RUNNING" } else { "COMPLETED" };
    let task =
        ListMessageMoveTasksResultEntry::builder().status(status).task_handle("handle").approximate_number_of_messages_moved(7).build();
    ListMessageMoveTasksOutput::builder().results(task).build()
}

fn refusal(code: &str, message: &str) -> StartMessageMoveTaskError {
    StartMessageMoveTaskError::generic(ErrorMetadata::builder().code(code).message(message).build())
}

/// Invoked twice within a moment, there is one task: the second call is told of it, and that is no error, whether it finds the task or loses the race.
#[tokio::test]
async fn a_move_that_is_under_way_is_an_answer_like_any_other() {
    let none = mock!(Client::list_message_move_tasks).then_output(|| tasks(false));
    let start = mock!(Client::start_message_move_task)
        .match_requests(|request| request.source_arn() == Some(ARN) && request.max_number_of_messages_per_second() == Some(40))
        .then_output(|| StartMessageMoveTaskOutput::builder().task_handle("handle").build());
    let client = answering(&[&none, &start]);
    assert_eq!(run(&client, &request(false)).await.unwrap()["status"], "started");

    let found = mock!(Client::list_message_move_tasks).then_output(|| tasks(true));
    let client = answering(&[&found]);
    let second = run(&client, &request(false)).await.unwrap();
    assert_eq!((&second["status"], &second["moved"]), (&json!("already_running"), &json!(7)));

    let before = mock!(Client::list_message_move_tasks).then_output(|| tasks(false));
    let lost = mock!(Client::start_message_move_task).then_error(|| refusal("InvalidParameterValue", "There is already a task running."));
    let after = mock!(Client::list_message_move_tasks).then_output(|| tasks(true));
    let client = answering(&[&before, &lost, &after]);
    assert_eq!(run(&client, &request(false)).await.unwrap()["status"], "already_running");
}

#[tokio::test]
async fn a_queue_that_is_no_dead_letter_queue_is_refused_clearly() {
    let before = mock!(Client::list_message_move_tasks).then_output(|| tasks(false));
    let start = mock!(Client::start_message_move_task)
        .then_error(|| refusal("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue."));
    let after = mock!(Client::list_message_move_tasks).then_output(|| tasks(false));
    let client = answering(&[&before, &start, &after]);
    let error = run(&client, &request(false)).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.field.as_str()), ("not_a_dead_letter_queue", "queue"));
    assert!(error.message.contains("redrive policy"), "{error}");
}

#[tokio::test]
async fn a_dry_run_only_looks() {
    let url = "https://sqs.us-east-1.amazonaws.com/000000000000/dead";
    let attributes = mock!(Client::get_queue_attributes).then_output(|| {
        let builder = GetQueueAttributesOutput::builder().attributes(QueueAttributeName::QueueArn, ARN);
        builder.attributes(QueueAttributeName::ApproximateNumberOfMessages, "5").build()
    });
    let none = mock!(Client::list_message_move_tasks).then_output(|| tasks(false));
    let client = answering(&[&attributes, &none]);
    let request = Request::parse(&json!({"mode": "sqs", "queue": url}), "op").unwrap();
    assert_eq!(run(&client, &request).await.unwrap(), json!({"status": "would_start", "messages": 5}));
}
