//! The library's errors as the core's facts.

use crate::dial::NameNotResolved;
use causeway_core::outcome::{Fault, FaultCode};
use rumqttc::{ConnectReturnCode, ConnectionError, DisconnectReasonCode, QoS, StateError, SubscribeReasonCode, TlsError, mqttbytes};
use std::io;

/// An error of a connection, and whether the broker's bytes themselves were at fault.
pub(crate) struct Classified {
    pub(crate) fault: Fault,
    pub(crate) poison: bool,
}

/// Decides what `error` means. `connecting` says whether it came before the CONNACK.
pub(crate) fn classify(error: &ConnectionError, connecting: bool) -> Classified {
    let clean = |code, detail: String| Classified { fault: Fault::new(code, detail), poison: false };
    match error {
        ConnectionError::Timeout(_) => clean(FaultCode::Timeout, "the broker did not complete the connection in time".into()),
        ConnectionError::Tls(error) => Classified { fault: tls(error), poison: false },
        ConnectionError::Io(error) => Classified { fault: socket(error), poison: false },
        ConnectionError::ConnectionRefused(code) => Classified { fault: refused(*code), poison: false },
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

fn state(error: &StateError, connecting: bool) -> Classified {
    let clean = |code, detail: String| Classified { fault: Fault::new(code, detail), poison: false };
    match error {
        StateError::Io(error) | StateError::Deserialization(mqttbytes::Error::Io(error)) if connecting && hung_up(error) => {
            state(&StateError::ConnectionAborted, true)
        }
        StateError::Io(error) | StateError::Deserialization(mqttbytes::Error::Io(error)) => {
            Classified { fault: socket(error), poison: false }
        }
        StateError::ConnectionAborted if connecting => clean(
            FaultCode::ConnectionLost,
            "the broker closed the connection before it answered; does this port speak plaintext MQTT 5?".into(),
        ),
        StateError::ConnectionAborted => clean(FaultCode::ConnectionLost, "the broker closed the connection".into()),
        StateError::AwaitPingResp => clean(FaultCode::Timeout, "the broker did not answer a ping".into()),
        StateError::ConnFail { reason } => Classified { fault: refused(*reason), poison: false },
        StateError::ServerDisconnect { reason_code, .. } => {
            clean(disconnect_code(*reason_code), format!("the broker disconnected: {reason_code:?}"))
        }
        StateError::Deserialization(mqttbytes::Error::PayloadSizeLimitExceeded { pkt_size, max }) => Classified {
            fault: Fault::new(
                FaultCode::ProtocolError,
                format!("the broker sent a packet of {pkt_size} bytes although at most {max} were announced"),
            ),
            poison: true,
        },
        StateError::Deserialization(error) if connecting => Classified {
            fault: Fault::new(FaultCode::ProtocolError, format!("the answer is no MQTT 5 ({error}); does this port speak plaintext MQTT?")),
            poison: true,
        },
        StateError::Deserialization(error) => {
            Classified { fault: Fault::new(FaultCode::ProtocolError, format!("the broker sent a malformed packet: {error}")), poison: true }
        }
        other => {
            Classified { fault: Fault::new(FaultCode::ProtocolError, format!("the broker broke the protocol: {other}")), poison: true }
        }
    }
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
        C::RefusedProtocolVersion | C::UnsupportedProtocolVersion => "; the broker does not speak MQTT 5",
        C::BadClientId | C::ClientIdentifierNotValid => "; the broker does not accept this client id",
        _ => "",
    };
    Fault::new(kind, format!("the broker refused the connection: {code:?}{hint}"))
}

fn tls(error: &TlsError) -> Fault {
    match error {
        TlsError::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => tls_failure(error),
            None if hung_up(error) => {
                Fault::new(FaultCode::Unavailable, "the broker closed the connection during the TLS handshake; does this port speak TLS?")
            }
            None => socket(error),
        },
        TlsError::TLS(error) => tls_failure(error),
        TlsError::DNSName(_) => Fault::new(FaultCode::InvalidConfig, "TLS: the broker's host is no valid name or address"),
        other => Fault::new(FaultCode::InvalidConfig, format!("TLS: {other}")),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn code(error: ConnectionError, connecting: bool) -> (FaultCode, bool) {
        let Classified { fault, poison } = classify(&error, connecting);
        assert!(!fault.detail.contains('\n'));
        (fault.code, poison)
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
        let error = ConnectionError::Tls(TlsError::Io(io::Error::new(io::ErrorKind::InvalidData, inner)));
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
