//! What a failed call means: the one place where answers of AWS become facts for the core.
//!
//! Two questions are answered for every failure: which fault it is, and whether the request can have taken effect. An answer that
//! refuses the request means that it did not. No answer, or one of the 5xx family, tells nothing: the write may stand, or come to stand
//! later.

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::{ConnectorError, SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use core::time::Duration;
use std::error::Error;

/// Longest fault text in characters: one line of a log, not a page.
const MAX_DETAIL_CHARS: usize = 480;

/// Longest pause that is believed when an answer asks for one.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Whether a failed request can have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It certainly has none.
    None,
    /// It may have taken effect, or may still do so.
    Unknown,
}

/// A failed call: why, and what it may have left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFault {
    /// Why.
    pub fault: Fault,
    /// What it may have left behind.
    pub effect: Effect,
}

impl CallFault {
    /// The outcome of a call that writes.
    #[must_use]
    pub fn outcome<T>(self) -> Outcome<T> {
        match self.effect {
            Effect::None => Outcome::NotDone(self.fault),
            Effect::Unknown => Outcome::Unknown(self.fault),
        }
    }

    fn none(code: FaultCode, detail: String) -> Self {
        Self { fault: Fault::new(code, detail), effect: Effect::None }
    }

    fn unknown(code: FaultCode, detail: String) -> Self {
        Self { fault: Fault::new(code, detail), effect: Effect::Unknown }
    }
}

/// Classifies the failure of `call`, which names the operation and what it was done to, for people.
pub fn classify<E>(call: &str, error: &SdkError<E, HttpResponse>) -> CallFault
where
    E: Error + ProvideErrorMetadata + 'static,
{
    let mut found = match error {
        SdkError::ConstructionFailure(_) => CallFault::none(FaultCode::InvalidConfig, describe(call, error)),
        SdkError::TimeoutError(_) => CallFault::unknown(FaultCode::Timeout, format!("{call}: no answer in time")),
        SdkError::DispatchFailure(failure) => match failure.as_connector_error() {
            Some(connector) => classify_connector(call, connector),
            None => CallFault::unknown(FaultCode::ConnectionLost, describe(call, error)),
        },
        SdkError::ResponseError(response) => classify_unreadable(call, response.raw().status().as_u16(), error),
        SdkError::ServiceError(refusal) => {
            let status = refusal.raw().status().as_u16();
            classify_refusal(call, refusal.err().code(), refusal.err().message(), status)
        }
        _ => CallFault::unknown(FaultCode::ConnectionLost, describe(call, error)),
    };
    if let Some(response) = error.raw_response() {
        found.fault.retry_after = retry_after(|name| response.headers().get(name).map(str::to_owned));
    }
    found
}

/// An answer that came and could not be read. A refusal's status still tells that nothing happened.
fn classify_unreadable(call: &str, status: u16, error: &(dyn Error + 'static)) -> CallFault {
    if (400..500).contains(&status) {
        let (code, effect) = code_of(None, status);
        return CallFault { fault: Fault::new(code, describe(call, error)), effect };
    }
    let code = if status >= 500 { FaultCode::Unavailable } else { FaultCode::ConnectionLost };
    CallFault::unknown(code, format!("{} (HTTP {status})", describe(call, error)))
}

/// A request that got no answer at all.
fn classify_connector(call: &str, error: &ConnectorError) -> CallFault {
    let detail = describe(call, error);
    if let Some(credentials) = find_source::<CredentialsError>(error) {
        return classify_credentials(call, credentials);
    }
    // The connection never stood, whatever the reason (refused, no such host, TLS, timeout while connecting): nothing was sent.
    if find_source::<hyper_util::client::legacy::Error>(error).is_some_and(hyper_util::client::legacy::Error::is_connect) {
        return CallFault::none(FaultCode::Unavailable, detail);
    }
    if error.is_user() {
        return CallFault::none(FaultCode::InvalidConfig, detail);
    }
    let code = if error.is_timeout() { FaultCode::Timeout } else { FaultCode::ConnectionLost };
    CallFault::unknown(code, detail)
}

/// The fault of credentials that could not be had.
pub(crate) fn credentials_fault(call: &str, error: &CredentialsError) -> Fault {
    classify_credentials(call, error).fault
}

fn classify_credentials(call: &str, error: &CredentialsError) -> CallFault {
    let text = describe(call, error);
    match error {
        CredentialsError::CredentialsNotLoaded(_) => CallFault::none(
            FaultCode::NotAuthorized,
            format!(
                "{text}: no AWS credentials were found; give the task a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE"
            ),
        ),
        CredentialsError::InvalidConfiguration(_) => CallFault::none(FaultCode::NotAuthorized, text),
        _ => CallFault::none(FaultCode::TemporaryAuthFailure, text),
    }
}

/// An answer that refuses the request.
pub(crate) fn classify_refusal(call: &str, code: Option<&str>, message: Option<&str>, status: u16) -> CallFault {
    let (fault, effect) = code_of(code, status);
    let name = code.map_or("no error code", short_code);
    // The text of a signature mismatch quotes the signed request, session token included.
    let quotes_the_request = name.contains("Signature");
    let message = message.filter(|_| !quotes_the_request).map(first_line).filter(|line| !line.is_empty());
    let detail = match message {
        Some(message) => format!("{call}: {name} (HTTP {status}): {message}"),
        None => format!("{call}: {name} (HTTP {status})"),
    };
    CallFault { fault: Fault::new(fault, one_line(&detail)), effect }
}

/// The fault behind an error code and a status. Throttling comes as 400, 403, 429 or 503, so the code is looked at first.
#[must_use]
pub fn code_of(code: Option<&str>, status: u16) -> (FaultCode, Effect) {
    let code = code.map(short_code);
    let known = code.and_then(known_code);
    let is_in_progress = code == Some("TransactionInProgressException");
    match (known, status) {
        // A service that fails in the middle may have done the work, whatever it calls the failure; a throttle stands before the work.
        (Some(FaultCode::Throttled), _) => (FaultCode::Throttled, Effect::None),
        (_, 500..) => (FaultCode::Unavailable, Effect::Unknown),
        // The same request, sent before, is still being worked on.
        (Some(code), _) if code == FaultCode::Unavailable && is_in_progress => (code, Effect::Unknown),
        (Some(code), _) => (code, Effect::None),
        (None, 401 | 403) => (FaultCode::NotAuthorized, Effect::None),
        (None, 404) => (FaultCode::NotFound, Effect::None),
        (None, 408) => (FaultCode::Timeout, Effect::Unknown),
        (None, 413) => (FaultCode::PayloadTooLarge, Effect::None),
        (None, 429) => (FaultCode::Throttled, Effect::None),
        (None, 400..=499) => (FaultCode::ProtocolError, Effect::None),
        (None, _) => (FaultCode::ProtocolError, Effect::Unknown),
    }
}

/// The fault behind an error code that says enough by itself.
fn known_code(code: &str) -> Option<FaultCode> {
    Some(match code {
        "RequestThrottled"
        | "RequestThrottledException"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "Throttled"
        | "ProvisionedThroughputExceededException"
        | "RequestLimitExceeded"
        | "TooManyRequests"
        | "TooManyRequestsException"
        | "LimitExceededException"
        | "BandwidthLimitExceeded"
        | "PriorRequestNotComplete"
        | "SlowDown"
        | "EC2ThrottledException"
        | "KmsThrottled"
        | "KMSThrottlingException"
        | "OverLimit"
        // Reasons of a cancelled transaction have names of their own.
        | "ProvisionedThroughputExceeded"
        | "ThrottlingError" => FaultCode::Throttled,
        "TransactionConflictException"
        | "TransactionConflict"
        | "TransactionInProgressException"
        | "ReplicatedWriteConflictException"
        | "ResourceInUseException"
        | "QueueDeletedRecently"
        | "ServiceUnavailable"
        | "ServiceUnavailableException"
        | "InternalError"
        | "InternalFailure"
        | "InternalServerError" => FaultCode::Unavailable,
        "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" | "TokenRefreshRequired" | "RequestTimeTooSkewed" => {
            FaultCode::TemporaryAuthFailure
        }
        "AccessDenied"
        | "AccessDeniedException"
        | "UnauthorizedOperation"
        | "NotAuthorized"
        | "OptInRequired"
        | "InvalidClientTokenId"
        | "UnrecognizedClientException"
        | "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "InvalidSignatureException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "InvalidSecurity"
        | "AuthFailure"
        | "KmsAccessDenied"
        | "KmsOptInRequired" => FaultCode::NotAuthorized,
        "ResourceNotFoundException"
        | "TableNotFoundException"
        | "QueueDoesNotExist"
        | "NonExistentQueue"
        | "InvalidAddress"
        | "ClusterNotFoundException"
        | "ServiceNotFoundException" => FaultCode::NotFound,
        "ValidationException"
        | "ValidationError"
        | "InvalidParameterException"
        | "InvalidParameterValue"
        | "InvalidParameterCombination"
        | "MissingParameter"
        | "MalformedInput"
        | "SerializationException"
        | "InvalidAttributeName"
        | "InvalidAttributeValue"
        | "UnsupportedOperation"
        | "UnknownOperationException"
        | "InvalidAction"
        | "KmsDisabled"
        | "KmsInvalidState"
        | "KmsInvalidKeyUsage"
        | "KmsNotFound" => FaultCode::InvalidConfig,
        "InvalidMessageContents" => FaultCode::InvalidPayload,
        "BatchRequestTooLong" | "MessageTooLong" => FaultCode::PayloadTooLarge,
        _ => return None,
    })
}

/// A code without its namespace: `com.amazonaws.sqs#RequestThrottled`, `AWS.SimpleQueueService.NonExistentQueue` and
/// `KMS.ThrottlingException` name the same things as their last parts.
pub(crate) fn short_code(code: &str) -> &str {
    let code = code.rsplit_once('#').map_or(code, |(_, name)| name);
    code.rsplit_once('.').map_or(code, |(_, name)| name)
}

/// The pause that an answer asks for.
fn retry_after(header: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let millis = header("x-amz-retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_millis);
    let seconds = || header("retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    millis.or_else(seconds).map(|pause| pause.min(MAX_RETRY_AFTER))
}

fn find_source<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        current = error.source();
    }
    None
}

/// The chain of errors in one line. `DisplayErrorContext` would add their debug form, which holds the response and with it the row of a
/// failed condition: payloads do not belong into logs.
fn describe(call: &str, error: &(dyn Error + 'static)) -> String {
    let mut text = call.to_owned();
    let mut current = Some(error);
    while let Some(error) = current {
        text.push_str(": ");
        text.push_str(&first_line(&error.to_string()));
        current = error.source();
    }
    one_line(&text)
}

fn first_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_DETAIL_CHARS).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    fn refusal(code: &str, status: u16) -> (FaultCode, Effect) {
        let found = classify_refusal("PutItem", Some(code), Some("words"), status);
        (found.fault.code, found.effect)
    }

    #[test]
    fn throttling_is_throttling_in_every_form() {
        for (code, status) in [
            ("RequestThrottled", 403),
            ("RequestThrottled", 400),
            ("com.amazonaws.sqs#RequestThrottled", 403),
            ("ThrottlingException", 400),
            ("com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", 400),
            ("TooManyRequestsException", 429),
            ("KMS.ThrottlingException", 400),
            ("KmsThrottled", 400),
            ("SlowDown", 503),
        ] {
            assert_eq!(refusal(code, status), (FaultCode::Throttled, Effect::None), "{code} {status}");
        }
        assert_eq!(code_of(None, 429), (FaultCode::Throttled, Effect::None));
    }

    #[test]
    fn a_failing_service_may_have_done_the_work() {
        for code in [Some("InternalServerError"), Some("ServiceUnavailable"), Some("ValidationException"), None] {
            assert_eq!(code_of(code, 503), (FaultCode::Unavailable, Effect::Unknown), "{code:?}");
        }
    }

    #[test]
    fn a_transaction_in_progress_may_still_get_through() {
        assert_eq!(refusal("TransactionInProgressException", 400), (FaultCode::Unavailable, Effect::Unknown));
        assert_eq!(refusal("TransactionConflictException", 400), (FaultCode::Unavailable, Effect::None));
    }

    #[test]
    fn refusals_are_told_apart() {
        for (code, status, expected) in [
            ("AccessDeniedException", 400, FaultCode::NotAuthorized),
            ("AccessDenied", 403, FaultCode::NotAuthorized),
            ("ExpiredTokenException", 403, FaultCode::TemporaryAuthFailure),
            ("ResourceNotFoundException", 400, FaultCode::NotFound),
            ("AWS.SimpleQueueService.NonExistentQueue", 400, FaultCode::NotFound),
            ("com.amazonaws.sqs#QueueDoesNotExist", 400, FaultCode::NotFound),
            ("ValidationException", 400, FaultCode::InvalidConfig),
            ("com.amazon.coral.service#SerializationException", 400, FaultCode::InvalidConfig),
            ("InvalidMessageContents", 400, FaultCode::InvalidPayload),
            ("TransactionConflictException", 400, FaultCode::Unavailable),
            ("TransactionConflict", 400, FaultCode::Unavailable),
            ("ThrottlingError", 400, FaultCode::Throttled),
            ("ProvisionedThroughputExceeded", 400, FaultCode::Throttled),
            ("ValidationError", 400, FaultCode::InvalidConfig),
            ("SomethingNew", 400, FaultCode::ProtocolError),
        ] {
            assert_eq!(refusal(code, status), (expected, Effect::None), "{code}");
        }
    }

    #[test]
    fn the_text_is_one_line_and_keeps_secrets_out() {
        let signed = "The request signature we calculated does not match.\n\nThe Canonical String was\nx-amz-security-token:SECRET";
        let found = classify_refusal("PutItem", Some("InvalidSignatureException"), Some(signed), 403);
        assert!(!found.fault.detail.contains("SECRET") && !found.fault.detail.contains('\n'), "{}", found.fault.detail);
        let long = classify_refusal("PutItem", Some("X"), Some(&"y".repeat(10_000)), 400);
        assert!(long.fault.detail.chars().count() <= MAX_DETAIL_CHARS);
    }

    #[test]
    fn a_requested_pause_is_kept_within_reason() {
        let answer = |name: &'static str, value: &'static str| move |asked: &str| (asked == name).then(|| value.to_owned());
        assert_eq!(retry_after(answer("retry-after", "7")), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(answer("x-amz-retry-after", "250")), Some(Duration::from_millis(250)));
        assert_eq!(retry_after(answer("retry-after", "99999999")), Some(MAX_RETRY_AFTER));
        assert_eq!(retry_after(answer("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")), None);
    }
}
