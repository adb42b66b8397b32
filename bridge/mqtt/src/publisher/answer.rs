//! What became of a message that was published, and what a broker's reason means.

use causeway_core::outcome::{Fault, FaultCode, Outcome};
use core::time::Duration;
use rumqttc::PubAckReason;

/// What the connection tells of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The broker answered.
    Acknowledged(PubAckReason),
    /// It was written to the connection and nobody answers: quality of service 0.
    Written,
    /// It was never handed to a connection.
    Unsent(Fault),
    /// It was handed to a connection, and no answer came.
    Unanswered(Fault),
}

impl Answer {
    /// The outcome. `throttled`: the pause after the broker said that a quota is exceeded.
    pub(crate) fn outcome(self, throttled: Duration) -> Outcome<()> {
        match self {
            Self::Acknowledged(reason) => acknowledged(reason, throttled),
            Self::Written => Outcome::Done(()),
            Self::Unsent(fault) => Outcome::NotDone(fault),
            Self::Unanswered(fault) => Outcome::Unknown(fault),
        }
    }
}

fn acknowledged(reason: PubAckReason, throttled: Duration) -> Outcome<()> {
    use PubAckReason as R;
    let (code, what) = match reason {
        // That nobody subscribed to it is the business of who subscribes.
        R::Success | R::NoMatchingSubscribers => return Outcome::Done(()),
        R::UnspecifiedError => (FaultCode::Unavailable, "it gives no reason"),
        R::ImplementationSpecificError => (FaultCode::Unavailable, "for a reason of its own"),
        // Of a connection that began without a session: it cannot last.
        R::PacketIdentifierInUse => (FaultCode::Unavailable, "the packet identifier is in use"),
        R::QuotaExceeded => (FaultCode::Throttled, "a quota is exceeded"),
        // A permission concerns every message to the topic; somebody may mend it.
        R::NotAuthorized => (FaultCode::NotAuthorized, "this client may not publish to the topic: check the broker's access rules"),
        R::TopicNameInvalid => (FaultCode::Refused, "it does not accept the topic"),
        R::PayloadFormatInvalid => (FaultCode::InvalidPayload, "the payload is not what its format indicator says"),
    };
    let mut fault = Fault::new(code, format!("the broker refused the message (0x{:02x}): {what}", reason as u8));
    fault.retry_after = (code == FaultCode::Throttled).then_some(throttled);
    Outcome::NotDone(fault)
}

#[cfg(test)]
#[allow(clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use causeway_core::outcome::FaultClass;

    #[test]
    fn every_reason_has_its_meaning() {
        use PubAckReason as R;
        let pause = Duration::from_millis(500);
        for reason in [R::Success, R::NoMatchingSubscribers] {
            assert_eq!(Answer::Acknowledged(reason).outcome(pause), Outcome::Done(()));
        }
        for (reason, class, retry_after) in [
            (R::UnspecifiedError, FaultClass::Transient, None),
            (R::ImplementationSpecificError, FaultClass::Transient, None),
            (R::PacketIdentifierInUse, FaultClass::Transient, None),
            (R::QuotaExceeded, FaultClass::Transient, Some(pause)),
            (R::NotAuthorized, FaultClass::Permanent, None),
            (R::TopicNameInvalid, FaultClass::Rejected, None),
            (R::PayloadFormatInvalid, FaultClass::Rejected, None),
        ] {
            let Outcome::NotDone(fault) = Answer::Acknowledged(reason).outcome(pause) else { panic!("{reason:?} is not done") };
            assert_eq!((fault.code.class(), fault.retry_after), (class, retry_after), "{reason:?}");
        }
    }

    #[test]
    fn what_was_handed_to_a_connection_and_not_answered_is_unknown() {
        let fault = Fault::new(FaultCode::ConnectionLost, "x");
        assert_eq!(Answer::Unanswered(fault.clone()).outcome(Duration::ZERO), Outcome::Unknown(fault.clone()));
        assert_eq!(Answer::Unsent(fault.clone()).outcome(Duration::ZERO), Outcome::NotDone(fault));
    }
}
