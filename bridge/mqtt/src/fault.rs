//! The library's errors as the core's facts.

use crate::dial::{NameNotResolved, TlsHandshake};
use crate::downgrade::Malformed;
use crate::session::{Cause, End};
use crate::websocket::WebsocketRefused;
use causeway_core::outcome::{Fault, FaultCode};
use rumqttc::{ConnectReturnCode, ConnectionError, DisconnectReasonCode, QoS, StateError, SubscribeReasonCode, UnsubAckReason, mqttbytes};
use std::io;

/// Decides what `error` means. `connecting` says whether it came before the CONNACK.
pub(crate) fn classify(error: &ConnectionError, connecting: bool) -> End {
    let clean = |code, detail: String| End::new(Cause::Lost, code, detail);
    match error {
        ConnectionError::Timeout(_) => clean(FaultCode::Timeout, "the broker did not complete the connection in time".into()),
        ConnectionError::Io(error) => translation(error).unwrap_or_else(|| lost(socket(error))),
        ConnectionError::ConnectionRefused(code) => lost(refused(*code)),
        ConnectionError::NotConnAck(_) => {
            clean(FaultCode::ProtocolError, "the first packet was no CONNACK; is this an MQTT 5 broker?".into())
        }
        ConnectionError::SessionStateMismatch { .. } => {
            clean(FaultCode::ProtocolError, "the broker resumed a session although a clean start was asked for".into())
        }
        ConnectionError::MqttState(error) => state(error, connecting),
        other => clean(FaultCode::ConnectionLost, other.to_string()),
    }
}

/// The reason that the broker gave in a DISCONNECT, where that ended the connection.
pub(crate) const fn told(error: &ConnectionError) -> Option<DisconnectReasonCode> {
    match error {
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, .. }) => Some(*reason_code),
        _ => None,
    }
}

const fn lost(fault: Fault) -> End {
    End { cause: Cause::Lost, fault }
}

fn state(error: &StateError, connecting: bool) -> End {
    let clean = |code, detail: String| End::new(Cause::Lost, code, detail);
    let poison = |detail: String| End::new(Cause::Poison, FaultCode::ProtocolError, detail);
    match error {
        StateError::Io(error) | StateError::Deserialization(mqttbytes::Error::Io(error)) if hung_up(error) => {
            state(&StateError::ConnectionAborted, connecting)
        }
        StateError::Io(error) | StateError::Deserialization(mqttbytes::Error::Io(error)) => {
            translation(error).unwrap_or_else(|| lost(socket(error)))
        }
        StateError::ConnectionAborted if connecting => clean(
            FaultCode::ConnectionLost,
            "the broker closed the connection before it answered; does this port speak plaintext MQTT 5?".into(),
        ),
        StateError::ConnectionAborted => End::new(Cause::HungUp, FaultCode::ConnectionLost, "the broker closed the connection"),
        StateError::AwaitPingResp => clean(FaultCode::Timeout, "the broker did not answer a ping".into()),
        StateError::ConnFail { reason } => lost(refused(*reason)),
        StateError::ServerDisconnect { reason_code: DisconnectReasonCode::SessionTakenOver, .. } => End::new(
            Cause::TakenOver,
            FaultCode::ConnectionLost,
            "the broker disconnected: SessionTakenOver; another client connected with this client_id",
        ),
        StateError::ServerDisconnect { reason_code, .. } => {
            clean(disconnect_code(*reason_code), format!("the broker disconnected: {reason_code:?}"))
        }
        StateError::Deserialization(mqttbytes::Error::PayloadSizeLimitExceeded { pkt_size, max }) => {
            poison(format!("the broker sent a packet of {pkt_size} bytes although at most {max} were announced"))
        }
        StateError::Deserialization(error) if connecting => {
            poison(format!("the answer is no MQTT 5 ({error}); does this port speak plaintext MQTT?"))
        }
        StateError::Deserialization(error) => poison(format!("the broker sent a malformed packet: {error}")),
        other => poison(format!("the broker broke the protocol: {other}")),
    }
}

/// What a broker of MQTT 3.1.1 sent and could not be translated: its own bytes, as a malformed packet of MQTT 5 is.
fn translation(error: &io::Error) -> Option<End> {
    let malformed = error.get_ref()?.downcast_ref::<Malformed>()?;
    let hint = if *malformed == Malformed::ConnAck { "; is this a broker of MQTT 3.1.1?" } else { "" };
    Some(End::new(Cause::Poison, FaultCode::ProtocolError, format!("the broker sent {malformed}{hint}")))
}

/// Whether the other side closed the connection rather than answer.
fn hung_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe
    )
}

const fn disconnect_code(code: DisconnectReasonCode) -> FaultCode {
    match code {
        DisconnectReasonCode::NotAuthorized => FaultCode::NotAuthorized,
        DisconnectReasonCode::ServerBusy | DisconnectReasonCode::ServerShuttingDown => FaultCode::Unavailable,
        DisconnectReasonCode::MessageRateTooHigh | DisconnectReasonCode::QuotaExceeded | DisconnectReasonCode::ConnectionRateExceeded => {
            FaultCode::Throttled
        }
        DisconnectReasonCode::KeepAliveTimeout => FaultCode::Timeout,
        DisconnectReasonCode::MalformedPacket | DisconnectReasonCode::ProtocolError => FaultCode::ProtocolError,
        DisconnectReasonCode::PacketTooLarge => FaultCode::PayloadTooLarge,
        DisconnectReasonCode::TopicNameInvalid | DisconnectReasonCode::PayloadFormatInvalid => FaultCode::InvalidPayload,
        DisconnectReasonCode::UseAnotherServer
        | DisconnectReasonCode::ServerMoved
        | DisconnectReasonCode::TopicFilterInvalid
        | DisconnectReasonCode::SharedSubscriptionNotSupported
        | DisconnectReasonCode::SubscriptionIdentifiersNotSupported
        | DisconnectReasonCode::WildcardSubscriptionsNotSupported => FaultCode::InvalidConfig,
        _ => FaultCode::ConnectionLost,
    }
}

fn refused(code: ConnectReturnCode) -> Fault {
    use ConnectReturnCode as C;
    let kind = match code {
        C::BadUserNamePassword | C::NotAuthorized | C::Banned | C::BadAuthenticationMethod => FaultCode::NotAuthorized,
        C::ServiceUnavailable | C::ServerUnavailable | C::ServerBusy => FaultCode::Unavailable,
        C::QuotaExceeded | C::ConnectionRateExceeded => FaultCode::Throttled,
        C::MalformedPacket | C::ProtocolError => FaultCode::ProtocolError,
        C::UnspecifiedError | C::ImplementationSpecificError => FaultCode::Unavailable,
        _ => FaultCode::InvalidConfig,
    };
    let hint = match code {
        C::BadUserNamePassword | C::NotAuthorized => "; check user name, password and the broker's access rules",
        C::RefusedProtocolVersion | C::UnsupportedProtocolVersion => {
            "; the broker does not speak this version of MQTT (`protocol_version`)"
        }
        C::BadClientId | C::ClientIdentifierNotValid => "; the broker does not accept this client id",
        _ => "",
    };
    Fault::new(kind, format!("the broker refused the connection: {code:?}{hint}"))
}

fn handshake(error: &io::Error) -> Fault {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => tls_failure(error),
        None if hung_up(error) => {
            Fault::new(FaultCode::Unavailable, "the broker closed the connection during the TLS handshake; does this port speak TLS?")
        }
        None if error.kind() == io::ErrorKind::InvalidInput => {
            Fault::new(FaultCode::InvalidConfig, "TLS: the broker's host is no valid name or address")
        }
        None => socket(error),
    }
}

fn tls_failure(error: &rustls::Error) -> Fault {
    match error {
        rustls::Error::InvalidCertificate(reason) => {
            Fault::new(FaultCode::InvalidConfig, format!("TLS: the broker's certificate is refused: {reason}"))
        }
        rustls::Error::AlertReceived(alert) => {
            Fault::new(FaultCode::NotAuthorized, format!("TLS: the broker refused the handshake: {alert:?}"))
        }
        rustls::Error::InvalidMessage(_) => Fault::new(FaultCode::InvalidConfig, "TLS: the answer is no TLS; does this port speak TLS?"),
        other => Fault::new(FaultCode::InvalidConfig, format!("TLS: {other}")),
    }
}

fn socket(error: &io::Error) -> Fault {
    if let Some(inner) = error.get_ref() {
        if let Some(unresolved) = inner.downcast_ref::<NameNotResolved>() {
            return Fault::new(FaultCode::Unavailable, unresolved.to_string());
        }
        if let Some(TlsHandshake(error)) = inner.downcast_ref::<TlsHandshake>() {
            return handshake(error);
        }
        if let Some(refused) = inner.downcast_ref::<WebsocketRefused>() {
            return Fault::new(FaultCode::InvalidConfig, refused.to_string());
        }
        // Alerts that arrive after the handshake come wrapped in a read error.
        if let Some(failure) = inner.downcast_ref::<rustls::Error>() {
            return tls_failure(failure);
        }
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            Fault::new(FaultCode::Unavailable, "nothing listens there: connection refused; is the broker running, and the port right?")
        }
        io::ErrorKind::TimedOut => Fault::new(FaultCode::Timeout, "the broker's host does not answer"),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Fault::new(FaultCode::Unavailable, format!("the broker cannot be reached: {error}"))
        }
        _ => Fault::new(FaultCode::ConnectionLost, format!("the connection broke: {error}")),
    }
}

/// What the broker answered to a filter that was asked for with `wanted`. A grant below what was asked for is a refusal of the promise that goes
/// with it, although messages may come.
pub(crate) fn subscription(reason: &SubscribeReasonCode, wanted: QoS) -> Result<(), Fault> {
    use SubscribeReasonCode as S;
    let (code, detail) = match reason {
        S::Success(granted) if (*granted as u8) < (wanted as u8) => {
            (FaultCode::InvalidConfig, "granted with quality of service 0 only: messages may be lost".to_owned())
        }
        S::Success(_) => return Ok(()),
        S::NotAuthorized => (FaultCode::NotAuthorized, "not authorized".to_owned()),
        S::TopicFilterInvalid => (FaultCode::InvalidConfig, "the broker does not accept this filter".to_owned()),
        S::SharedSubscriptionsNotSupported => (FaultCode::InvalidConfig, "the broker does not support shared subscriptions".to_owned()),
        S::WildcardSubscriptionsNotSupported => (FaultCode::InvalidConfig, "the broker does not support wildcards".to_owned()),
        S::SubscriptionIdNotSupported => (FaultCode::InvalidConfig, "the broker does not support subscription identifiers".to_owned()),
        S::QuotaExceeded => (FaultCode::Throttled, "the broker's quota is exceeded".to_owned()),
        S::PkidInUse => (FaultCode::ProtocolError, "the packet identifier is in use".to_owned()),
        S::Failure | S::Unspecified | S::ImplementationSpecific => {
            (FaultCode::Unavailable, format!("the broker refused without a reason ({reason:?})"))
        }
    };
    Err(Fault::new(code, detail))
}

/// What the broker answered when it was asked to unsubscribe. A filter that was not subscribed is as good as unsubscribed.
pub(crate) fn unsubscription(reason: &UnsubAckReason) -> Result<(), Fault> {
    use UnsubAckReason as U;
    let code = match reason {
        U::Success | U::NoSubscriptionExisted => return Ok(()),
        U::NotAuthorized => FaultCode::NotAuthorized,
        U::TopicFilterInvalid => FaultCode::InvalidConfig,
        U::PacketIdentifierInUse => FaultCode::ProtocolError,
        U::UnspecifiedError | U::ImplementationSpecificError => FaultCode::Unavailable,
    };
    Err(Fault::new(code, format!("the broker refused to unsubscribe ({reason:?})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(error: ConnectionError, connecting: bool) -> (FaultCode, bool) {
        let End { fault, cause } = classify(&error, connecting);
        assert!(!fault.detail.contains('\n'));
        (fault.code, cause == Cause::Poison)
    }

    #[test]
    fn login_refusals_are_permanent_and_busy_brokers_are_not() {
        for reason in [ConnectReturnCode::BadUserNamePassword, ConnectReturnCode::NotAuthorized] {
            assert_eq!(code(ConnectionError::ConnectionRefused(reason), true), (FaultCode::NotAuthorized, false));
        }
        assert_eq!(code(ConnectionError::ConnectionRefused(ConnectReturnCode::ServerBusy), true).0, FaultCode::Unavailable);
        assert_eq!(
            code(ConnectionError::ConnectionRefused(ConnectReturnCode::UnsupportedProtocolVersion), true).0,
            FaultCode::InvalidConfig
        );
    }

    #[test]
    fn certificate_faults_are_found_inside_the_socket_error() {
        let inner = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let error = io::Error::new(io::ErrorKind::InvalidData, TlsHandshake(io::Error::new(io::ErrorKind::InvalidData, inner)));
        let error = ConnectionError::Io(error);
        assert_eq!(code(error, true), (FaultCode::InvalidConfig, false));
        let alert = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired));
        assert_eq!(
            code(ConnectionError::MqttState(StateError::Deserialization(mqttbytes::Error::Io(alert))), true).0,
            FaultCode::NotAuthorized
        );
    }

    #[test]
    fn only_the_brokers_own_bytes_are_poison() {
        assert!(code(ConnectionError::MqttState(StateError::Deserialization(mqttbytes::Error::MalformedPacket)), false).1);
        assert!(code(ConnectionError::MqttState(StateError::Unsolicited(5)), false).1);
        assert!(!code(ConnectionError::MqttState(StateError::ConnectionAborted), false).1);
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(
            code(ConnectionError::MqttState(StateError::Deserialization(mqttbytes::Error::Io(reset))), false),
            (FaultCode::ConnectionLost, false)
        );
    }

    /// Brokers often say nothing when another client takes a session over: they close, in whatever way the socket tells it.
    #[test]
    fn a_takeover_and_a_close_without_a_word_are_told_from_other_losses() {
        let cause = |error, connecting| classify(&ConnectionError::MqttState(error), connecting).cause;
        let taken = || StateError::ServerDisconnect { reason_code: DisconnectReasonCode::SessionTakenOver, reason_string: None };
        assert_eq!(cause(taken(), false), Cause::TakenOver);
        assert_eq!(cause(StateError::ConnectionAborted, false), Cause::HungUp);
        for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset] {
            assert_eq!(cause(StateError::Io(kind.into()), false), Cause::HungUp);
            assert_eq!(cause(StateError::Io(kind.into()), true), Cause::Lost);
        }
        assert_eq!(cause(StateError::Io(io::ErrorKind::TimedOut.into()), false), Cause::Lost);
        assert_eq!(cause(StateError::AwaitPingResp, false), Cause::Lost);
    }

    #[test]
    fn a_lower_grant_counts_as_refused() {
        assert_eq!(subscription(&SubscribeReasonCode::Success(QoS::AtLeastOnce), QoS::AtLeastOnce), Ok(()));
        assert_eq!(subscription(&SubscribeReasonCode::Success(QoS::AtMostOnce), QoS::AtMostOnce), Ok(()));
        let lower = subscription(&SubscribeReasonCode::Success(QoS::AtMostOnce), QoS::AtLeastOnce).map_err(|fault| fault.code);
        assert_eq!(lower, Err(FaultCode::InvalidConfig));
        assert_eq!(
            subscription(&SubscribeReasonCode::NotAuthorized, QoS::AtLeastOnce).map_err(|fault| fault.code),
            Err(FaultCode::NotAuthorized)
        );
    }
}
