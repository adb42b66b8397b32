//! Transactions that DynamoDB refuses: which condition failed, and what else stood in the way.

use crate::fault::{CallFault, classify, classify_refusal};
use crate::items::Item;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

/// What DynamoDB answers where the request's token was used with other parameters before.
pub(crate) const OTHER_PARAMETERS: &str = "IdempotentParameterMismatchException";

/// The reason of an item whose condition failed.
const CONDITION_FAILED: &str = "ConditionalCheckFailed";

/// Why a transaction took no effect.
#[derive(Debug)]
pub(crate) enum Refused {
    /// At least one condition failed.
    Conditions(Vec<Part>),
    /// The request's token was used with other parameters before.
    OtherParameters(CallFault),
    /// Something else.
    Fault(CallFault),
}

/// What became of one item of a transaction.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    /// Its condition held, or was not looked at.
    Held,
    /// Its condition failed; the row that stands, as far as DynamoDB gave it.
    Failed(Option<Item>),
}

/// Classifies the failure of the transaction `call`. A failed condition counts before a conflict: what it saw is true, and trying again would find it too.
pub(crate) fn refused(call: &str, error: SdkError<TransactWriteItemsError, HttpResponse>) -> Refused {
    let classified = classify(call, &error);
    let service = error.as_service_error();
    if service.and_then(|refusal| refusal.meta().code()).is_some_and(|code| code.ends_with(OTHER_PARAMETERS)) {
        return Refused::OtherParameters(classified);
    }
    let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) = service else {
        return Refused::Fault(classified);
    };
    let reasons = cancelled.cancellation_reasons();
    let named = |name: &str| reasons.iter().any(|reason| reason.code() == Some(name));
    if named(CONDITION_FAILED) {
        let one = |reason: &aws_sdk_dynamodb::types::CancellationReason| match reason.code() {
            Some(CONDITION_FAILED) => Part::Failed(reason.item().filter(|item| !item.is_empty()).cloned()),
            _ => Part::Held,
        };
        return Refused::Conditions(reasons.iter().map(one).collect());
    }
    let other = reasons.iter().find(|reason| reason.code().is_some_and(|code| code != "None"));
    Refused::Fault(other.map_or(classified, |reason| classify_refusal(call, reason.code(), reason.message(), 400)))
}
