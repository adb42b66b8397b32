//! How a function fails.

use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::redrive::fields::{INVALID_REQUEST, InvalidEvent};
use causeway_duties::{Store, StoreFault};
use serde_json::{Value, json};

/// A function error: nothing was changed, or nothing that a repeated event does not bring to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionError {
    /// A stable code: `invalid_request`, or the fault's in lower case.
    pub code: String,
    /// The event's field, or the variable of the environment, that it is about.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl FunctionError {
    /// An error about `field`.
    pub fn new(code: impl Into<String>, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), field: field.into(), message: message.into() }
    }

    /// What a fault of the part that `field` names means.
    pub fn of(field: &str, fault: &Fault) -> Self {
        let remedy = match fault.code {
            FaultCode::NotFound => ": it does not exist; deploy the stack, or correct the variable",
            FaultCode::NotAuthorized => ": the function's role does not allow it",
            FaultCode::Throttled => ": it asks for fewer requests; invoke again later",
            _ => "",
        };
        Self::new(fault.code.as_str().to_ascii_lowercase(), field, format!("{}{remedy}", fault.detail))
    }

    /// The payload of the function error.
    #[must_use]
    pub fn payload(&self) -> Value {
        json!({ "error": { "code": self.code, "field": self.field, "message": self.message } })
    }
}

impl From<InvalidEvent> for FunctionError {
    fn from(refusal: InvalidEvent) -> Self {
        Self::new(INVALID_REQUEST, refusal.field, refusal.message)
    }
}

impl From<StoreFault> for FunctionError {
    fn from(fault: StoreFault) -> Self {
        let field = match fault.store {
            Store::DeadLetters => "CAUSEWAY_DLQ_TABLE",
            Store::Outbox => "CAUSEWAY_OUTBOX_TABLE",
            Store::Leases => "CAUSEWAY_LEASES_TABLE",
            Store::Queue => "queue",
        };
        Self::of(field, &fault.fault)
    }
}

impl core::fmt::Display for FunctionError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}: {}", self.code, self.field, self.message)
    }
}

impl std::error::Error for FunctionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_what_to_change() {
        let missing = StoreFault { store: Store::DeadLetters, fault: Fault::new(FaultCode::NotFound, "Query on table `t`: there is none") };
        let payload = FunctionError::from(missing).payload();
        assert_eq!(payload["error"]["code"], "not_found");
        assert_eq!(payload["error"]["field"], "CAUSEWAY_DLQ_TABLE");
        let invalid = FunctionError::from(InvalidEvent::new("filter.since", "a time is expected")).payload();
        assert_eq!((&invalid["error"]["code"], &invalid["error"]["field"]), (&"invalid_request".into(), &"filter.since".into()));
    }
}
