//! What SQS answered, for each entry of a batch.

use crate::fault::{CallFault, code_of, short_code};
use aws_sdk_sqs::operation::send_message_batch::SendMessageBatchOutput;
use aws_sdk_sqs::types::BatchResultErrorEntry;
use causeway_core::outcome::{Fault, FaultClass, FaultCode, Outcome};

/// The outcome of each of `count` entries, whose ids in the request were their indexes. An entry that the answer does not mention may
/// have been sent: nobody knows.
pub(super) fn outcomes(call: &str, count: usize, answer: &SendMessageBatchOutput) -> Vec<Outcome<()>> {
    let mut outcomes: Vec<Option<Outcome<()>>> = vec![None; count];
    for failed in answer.failed() {
        if let Some(outcome) = index(failed.id()).and_then(|index| outcomes.get_mut(index)) {
            *outcome = Some(Outcome::NotDone(entry_fault(call, failed)));
        }
    }
    // After the failures: an entry that stands in both lists was sent.
    for sent in answer.successful() {
        if let Some(outcome) = index(sent.id()).and_then(|index| outcomes.get_mut(index)) {
            *outcome = Some(Outcome::Done(()));
        }
    }
    let silent = || Outcome::Unknown(Fault::new(FaultCode::Unavailable, format!("{call}: the answer does not mention this entry")));
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(silent)).collect()
}

/// The id of an entry in a request.
pub(super) fn id(index: usize) -> String {
    index.to_string()
}

fn index(id: &str) -> Option<usize> {
    id.parse().ok()
}

/// Why one entry was refused. `SenderFault` alone does not say that the message is to blame: throttles and keys come with it as well.
fn entry_fault(call: &str, failed: &BatchResultErrorEntry) -> Fault {
    let (known, _) = code_of(Some(failed.code()), if failed.sender_fault() { 400 } else { 500 });
    let code = match (failed.sender_fault(), known) {
        // A code that nobody knows, and SQS says that the entry is at fault.
        (true, FaultCode::ProtocolError) => FaultCode::Refused,
        // Values of one entry, not of the queue: another entry may be accepted.
        (true, FaultCode::InvalidConfig) if !short_code(failed.code()).starts_with("Kms") => FaultCode::InvalidPayload,
        (_, known) => known,
    };
    let message = failed.message().and_then(|text| text.lines().next()).unwrap_or("no reason given");
    let detail: String = format!("{call}: {}: {message}", failed.code()).chars().filter(|c| !c.is_control()).take(400).collect();
    Fault::new(code, detail)
}

/// Whether a refusal of a whole batch can be due to one of its entries, or to how many there are: then smaller batches find out.
pub(super) fn is_about_entries(fault: &CallFault) -> bool {
    fault.effect == crate::fault::Effect::None && fault.fault.code.class() == FaultClass::Rejected
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use aws_sdk_sqs::types::SendMessageBatchResultEntry;

    fn failed(id: &str, code: &str, sender_fault: bool) -> BatchResultErrorEntry {
        BatchResultErrorEntry::builder().id(id).code(code).sender_fault(sender_fault).message("why").build().unwrap()
    }

    fn answer(sent: &[&str], failures: Vec<BatchResultErrorEntry>) -> SendMessageBatchOutput {
        let entry = |id: &&str| SendMessageBatchResultEntry::builder().id(*id).message_id("m").md5_of_message_body("x").build().unwrap();
        SendMessageBatchOutput::builder().set_successful(Some(sent.iter().map(entry).collect())).set_failed(Some(failures)).build().unwrap()
    }

    fn code(outcome: &Outcome<()>) -> Option<FaultCode> {
        match outcome {
            Outcome::NotDone(fault) => Some(fault.code),
            Outcome::Done(()) | Outcome::Unknown(_) => None,
        }
    }

    #[test]
    fn every_entry_has_its_own_outcome() {
        let answer = answer(
            &["0", "4"],
            vec![
                failed("1", "InvalidMessageContents", true),
                failed("2", "InternalError", false),
                failed("4", "x", true),
                failed("99", "x", true),
            ],
        );
        let outcomes = outcomes("SendMessageBatch", 5, &answer);
        assert_eq!(outcomes[0], Outcome::Done(()));
        assert_eq!(code(&outcomes[1]), Some(FaultCode::InvalidPayload));
        assert_eq!(code(&outcomes[2]), Some(FaultCode::Unavailable));
        assert!(matches!(outcomes[3], Outcome::Unknown(_)));
        assert_eq!(outcomes[4], Outcome::Done(()), "in both lists: it was sent");
    }

    #[test]
    fn a_sender_fault_is_not_always_the_messages_fault() {
        for (name, expected) in [
            ("RequestThrottled", FaultCode::Throttled),
            ("ThrottlingException", FaultCode::Throttled),
            ("KmsThrottled", FaultCode::Throttled),
            ("KMS.ThrottlingException", FaultCode::Throttled),
            ("KmsAccessDenied", FaultCode::NotAuthorized),
            ("KmsDisabled", FaultCode::InvalidConfig),
            ("AccessDenied", FaultCode::NotAuthorized),
            ("InvalidParameterValue", FaultCode::InvalidPayload),
            ("InvalidMessageContents", FaultCode::InvalidPayload),
            ("MessageTooLong", FaultCode::PayloadTooLarge),
            ("SomethingNew", FaultCode::Refused),
        ] {
            assert_eq!(entry_fault("x", &failed("0", name, true)).code, expected, "{name}");
        }
        assert_eq!(entry_fault("x", &failed("0", "SomethingNew", false)).code, FaultCode::Unavailable);
    }
}
