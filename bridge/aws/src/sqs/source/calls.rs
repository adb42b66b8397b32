//! The calls that a source makes, each with its time limit and its meaning.

use super::holding::Answer;
use super::{Queue, SqsSourceOptions};
use crate::fault::{classify, code_of, short_code};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Builder;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName,
    QueueAttributeName,
};
use causeway_core::outcome::{Fault, FaultCode};
use core::time::Duration;
use std::collections::HashMap;

/// What an answer may take longer than the poll itself, and what a call without one may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A queue that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) url: String,
    /// Whether SQS moves a message to a dead-letter queue after some receives.
    pub(super) has_redrive_policy: bool,
}

/// Finds the queue and looks at it.
pub(super) async fn find(client: &Client, queue: &Queue) -> Result<Found, Fault> {
    let url = match queue {
        Queue::Url(url) => url.clone(),
        Queue::Name(name) => {
            let answer = client.get_queue_url().queue_name(name).customize().config_override(within(CALL_TIMEOUT)).send().await;
            let answer = answer.map_err(|error| classify(&format!("GetQueueUrl of `{name}`"), &error).fault)?;
            answer
                .queue_url
                .ok_or_else(|| Fault::new(FaultCode::ProtocolError, format!("GetQueueUrl of `{name}`: the answer has no URL")))?
        }
    };
    let call = format!("GetQueueAttributes of `{url}`");
    let request = client.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All);
    let answer = request.customize().config_override(within(CALL_TIMEOUT)).send().await;
    let answer = answer.map_err(|error| {
        let mut fault = classify(&call, &error).fault;
        if fault.code == FaultCode::NotFound {
            fault.detail = format!("queue `{url}` does not exist, or not in this region and account: create it, or correct the receiver");
        }
        fault
    })?;
    let policy = answer.attributes().and_then(|all| all.get(&QueueAttributeName::RedrivePolicy));
    Ok(Found { url, has_redrive_policy: policy.is_some_and(|policy| !policy.is_empty()) })
}

/// Waits for messages. Several calls of one source may not overlap: what came is kept in the order of the answers.
pub(super) async fn receive(client: Client, url: String, options: SqsSourceOptions, most: i32) -> Result<Vec<Message>, Fault> {
    let request = client
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(most)
        .wait_time_seconds(seconds(options.wait_time))
        .visibility_timeout(seconds(options.visibility_timeout))
        .message_attribute_names("All")
        .message_system_attribute_names(MessageSystemAttributeName::All);
    let answer = request.customize().config_override(within(options.wait_time + CALL_TIMEOUT)).send().await;
    answer.map(|answer| answer.messages.unwrap_or_default()).map_err(|error| classify("ReceiveMessage", &error).fault)
}

/// Deletes messages; answers for each.
pub(super) async fn delete(client: Client, url: String, batch: Vec<(u64, String)>) -> Vec<(u64, Answer)> {
    let entry = |(index, (_, receipt)): (usize, &(u64, String))| {
        DeleteMessageBatchRequestEntry::builder().id(index.to_string()).receipt_handle(receipt).build().ok()
    };
    let entries: Vec<_> = batch.iter().enumerate().filter_map(entry).collect();
    let request = client.delete_message_batch().queue_url(url).set_entries(Some(entries));
    match request.customize().config_override(within(CALL_TIMEOUT)).send().await {
        Ok(answer) => {
            let done = answer.successful().iter().map(|one| one.id().to_owned()).collect();
            answers("DeleteMessageBatch", &batch, done, answer.failed())
        }
        Err(error) => all_again("DeleteMessageBatch", &batch, &classify("DeleteMessageBatch", &error).fault),
    }
}

/// Hides each message for so long from now on, or shows it where that is zero; answers for each.
pub(super) async fn hide(client: Client, url: String, messages: Vec<(u64, String, Duration)>) -> Vec<(u64, Answer)> {
    let entry = |(index, (_, receipt, visibility)): (usize, &(u64, String, Duration))| {
        let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(index.to_string()).receipt_handle(receipt);
        entry.visibility_timeout(seconds(*visibility)).build().ok()
    };
    let entries: Vec<_> = messages.iter().enumerate().filter_map(entry).collect();
    let batch: Vec<(u64, String)> = messages.into_iter().map(|(ordinal, receipt, _)| (ordinal, receipt)).collect();
    let request = client.change_message_visibility_batch().queue_url(url).set_entries(Some(entries));
    match request.customize().config_override(within(CALL_TIMEOUT)).send().await {
        Ok(answer) => {
            let done = answer.successful().iter().map(|one| one.id().to_owned()).collect();
            answers("ChangeMessageVisibilityBatch", &batch, done, answer.failed())
        }
        Err(error) => all_again("ChangeMessageVisibilityBatch", &batch, &classify("ChangeMessageVisibilityBatch", &error).fault),
    }
}

/// What became of each entry. One that the answer does not mention is tried again: both calls may be repeated.
fn answers(call: &str, batch: &[(u64, String)], done: Vec<String>, failed: &[BatchResultErrorEntry]) -> Vec<(u64, Answer)> {
    let refused: HashMap<&str, &BatchResultErrorEntry> = failed.iter().map(|one| (one.id(), one)).collect();
    let answer = |(index, (ordinal, _)): (usize, &(u64, String))| {
        let id = index.to_string();
        let answer = match (done.contains(&id), refused.get(id.as_str())) {
            (true, _) => Answer::Done,
            (false, Some(refusal)) => refusal_of(call, refusal),
            (false, None) => Answer::Again,
        };
        (*ordinal, answer)
    };
    batch.iter().enumerate().map(answer).collect()
}

fn refusal_of(call: &str, refusal: &BatchResultErrorEntry) -> Answer {
    let name = short_code(refusal.code());
    // The receipt is too old, the message was deleted by somebody else, or was held for twelve hours: SQS has it, or nobody needs it any more.
    let gone = matches!(name, "ReceiptHandleIsInvalid" | "MessageNotInflight" | "InvalidParameterValue");
    let (code, _) = code_of(Some(refusal.code()), if refusal.sender_fault() { 400 } else { 500 });
    tracing::warn!(call, code = code.as_str(), reason = name, gone, "SQS refused a call for a message that is held");
    if gone { Answer::Gone } else { Answer::Again }
}

fn all_again(call: &str, batch: &[(u64, String)], fault: &Fault) -> Vec<(u64, Answer)> {
    tracing::warn!(call, messages = batch.len(), code = fault.code.as_str(), detail = %fault.detail, "SQS did not answer for messages that are held; trying again");
    batch.iter().map(|(ordinal, _)| (*ordinal, Answer::Again)).collect()
}

/// A client's calls end with those of the stores otherwise, which would cut every poll short.
fn within(limit: Duration) -> Builder {
    Builder::new().timeout_config(TimeoutConfig::builder().operation_timeout(limit).build())
}

fn seconds(span: Duration) -> i32 {
    i32::try_from(span.as_secs()).unwrap_or(i32::MAX)
}
