//! A queue's own dead letters: SQS moves them back itself.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::QueueAttributeName;
use causeway_core::redrive::Request;
use causeway_lambda::FunctionError;
use serde_json::{Value, json};

const RUNNING: &str = "RUNNING";

/// Starts moving the messages of the request's queue back to where they came from. That it is moving already is an answer like any other.
///
/// # Errors
/// Where the queue is no dead-letter queue, does not exist, or may not be asked.
pub async fn run(sqs: &Client, request: &Request) -> Result<Value, FunctionError> {
    let queue = request.queue.as_deref().unwrap_or_default();
    let (arn, messages) = locate(sqs, queue).await?;
    if let Some(running) = running(sqs, &arn).await? {
        return Ok(running);
    }
    if request.dry_run {
        return Ok(json!({ "status": "would_start", "messages": messages }));
    }
    let start = sqs
        .start_message_move_task()
        .source_arn(&arn)
        .set_destination_arn(request.destination.clone())
        .max_number_of_messages_per_second(i32::try_from(request.rate).unwrap_or(i32::MAX));
    match start.send().await {
        Ok(answer) => Ok(json!({ "status": "started", "messages": messages, "task_handle": answer.task_handle })),
        Err(error) => {
            // Somebody else may have started it between the two calls: SQS has one task for each queue, and a code that says more than one thing.
            match running(sqs, &arn).await {
                Ok(Some(running)) => Ok(running),
                Ok(None) | Err(_) => Err(refused(queue, &error)),
            }
        }
    }
}

/// The queue's ARN, and about how many messages it has, where the queue is given by its URL.
async fn locate(sqs: &Client, queue: &str) -> Result<(String, Value), FunctionError> {
    if queue.starts_with("arn:") {
        return Ok((queue.to_owned(), Value::Null));
    }
    let wanted = [QueueAttributeName::QueueArn, QueueAttributeName::ApproximateNumberOfMessages];
    let answer = sqs.get_queue_attributes().queue_url(queue).set_attribute_names(Some(wanted.to_vec())).send().await;
    let attributes = answer.map_err(|error| refused(queue, &error))?.attributes.unwrap_or_default();
    let arn = attributes.get(&QueueAttributeName::QueueArn).cloned();
    let arn = arn.ok_or_else(|| FunctionError::new("internal", "queue", format!("queue `{queue}` does not tell its ARN")))?;
    let messages = attributes.get(&QueueAttributeName::ApproximateNumberOfMessages).and_then(|count| count.parse::<u64>().ok());
    Ok((arn, json!(messages)))
}

async fn running(sqs: &Client, arn: &str) -> Result<Option<Value>, FunctionError> {
    let answer = sqs.list_message_move_tasks().source_arn(arn).max_results(1).send().await.map_err(|error| refused(arn, &error))?;
    let task = answer.results.unwrap_or_default().into_iter().find(|task| task.status() == Some(RUNNING));
    Ok(task.map(|task| {
        json!({
            "status": "already_running",
            "task_handle": task.task_handle,
            "moved": task.approximate_number_of_messages_moved,
            "to_move": task.approximate_number_of_messages_to_move,
        })
    }))
}

fn refused<E: ProvideErrorMetadata, R>(queue: &str, error: &SdkError<E, R>) -> FunctionError {
    let code = error.code().unwrap_or_default();
    let (kind, what) = match code.rsplit('.').next().unwrap_or_default() {
        "ResourceNotFoundException" | "NonExistentQueue" | "QueueDoesNotExist" => ("not_found", "there is no such queue"),
        "InvalidParameterValue" | "InvalidAddress" | "UnsupportedOperation" | "InvalidParameterValueException" => (
            "not_a_dead_letter_queue",
            "SQS moves messages of a dead-letter queue only: name the queue that another queue's redrive policy names",
        ),
        "AccessDenied" | "AccessDeniedException" => {
            ("not_authorized", "the function's role does not allow it: it moves messages only where the stack says so")
        }
        "RequestThrottled" | "ThrottlingException" => ("throttled", "SQS asks for fewer requests: invoke again later"),
        _ => ("unavailable", "SQS did not do it: invoke again later"),
    };
    let told = error.message().map(|message| format!(" (SQS: {message})")).unwrap_or_default();
    FunctionError::new(kind, "queue", format!("`{queue}`: {what}{told}"))
}
