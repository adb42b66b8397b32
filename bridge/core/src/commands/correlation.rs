//! How a reply says which command it answers.

use crate::identity::Id128;
use crate::message::Message;
use serde::Deserialize;
use thiserror::Error;

/// Where the name of the command stands in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Correlation {
    /// In the correlation data of MQTT 5: 16 bytes, or their 32 hexadecimal digits.
    Property,
    /// In the payload, a JSON object, as `correlationData`: for devices without properties.
    Payload,
}

/// A reply that says so in no way that is understood.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CorrelationError {
    /// There is none.
    #[error("the reply names no command")]
    Missing,
    /// It is not 16 bytes or 32 hexadecimal digits.
    #[error("the reply's correlation data are neither 16 bytes nor 32 hexadecimal digits")]
    NotAnId,
    /// The payload is no JSON object.
    #[error("the reply is no JSON object")]
    NotJson,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "correlationData")]
    correlation: Option<String>,
}

/// The command that `reply` answers.
///
/// # Errors
/// Where it does not say so, or not as `where_it_stands` tells.
pub fn correlation_of(reply: &Message, where_it_stands: Correlation) -> Result<Id128, CorrelationError> {
    match where_it_stands {
        Correlation::Property => {
            let data = reply.properties.correlation_data.as_deref().filter(|data| !data.is_empty()).ok_or(CorrelationError::Missing)?;
            if let Ok(bytes) = <[u8; 16]>::try_from(data) {
                return Ok(Id128(u128::from_be_bytes(bytes)));
            }
            let text = core::str::from_utf8(data).map_err(|_| CorrelationError::NotAnId)?;
            digits(text)
        }
        Correlation::Payload => {
            let envelope: Envelope = serde_json::from_slice(&reply.payload).map_err(|_| CorrelationError::NotJson)?;
            digits(&envelope.correlation.ok_or(CorrelationError::Missing)?)
        }
    }
}

fn digits(text: &str) -> Result<Id128, CorrelationError> {
    let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.parse().ok().filter(|_| plain).ok_or(CorrelationError::NotAnId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn reply(correlation: Option<&'static [u8]>, payload: &'static str) -> Message {
        let mut message = Message { payload: Bytes::from_static(payload.as_bytes()), ..Message::default() };
        message.properties.correlation_data = correlation.map(Bytes::from_static);
        message
    }

    #[test]
    fn bytes_and_digits_name_the_same_command() {
        let id = Ok(Id128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10));
        let bytes = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        assert_eq!(correlation_of(&reply(Some(bytes), ""), Correlation::Property), id);
        assert_eq!(correlation_of(&reply(Some(b"0102030405060708090a0b0c0d0e0f10"), ""), Correlation::Property), id);
        let payload = r#"{"correlationData": "0102030405060708090a0b0c0d0e0f10", "payload": null}"#;
        assert_eq!(correlation_of(&reply(None, payload), Correlation::Payload), id);
    }

    #[test]
    fn r13_what_cannot_be_read_is_an_error() {
        let by_property = |data| correlation_of(&reply(data, ""), Correlation::Property);
        assert_eq!((by_property(None), by_property(Some(b""))), (Err(CorrelationError::Missing), Err(CorrelationError::Missing)));
        assert_eq!(by_property(Some(b"+102030405060708090a0b0c0d0e0f10")), Err(CorrelationError::NotAnId));
        assert_eq!(by_property(Some(&[0xff; 15])), Err(CorrelationError::NotAnId));
        let by_payload = |text| correlation_of(&reply(None, text), Correlation::Payload);
        assert_eq!(by_payload("[1"), Err(CorrelationError::NotJson));
        assert_eq!(by_payload("{}"), Err(CorrelationError::Missing));
        assert_eq!(by_payload(r#"{"correlationData": "x"}"#), Err(CorrelationError::NotAnId));
    }

    proptest! {
        #[test]
        fn anything_is_read_without_a_panic(data in prop::collection::vec(any::<u8>(), 0..40), payload in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut message = Message { payload: Bytes::from(payload), ..Message::default() };
            message.properties.correlation_data = Some(Bytes::from(data.clone()));
            let found = correlation_of(&message, Correlation::Property);
            prop_assert_eq!(found.is_ok(), data.len() == 16 || (data.len() == 32 && data.iter().all(u8::is_ascii_hexdigit)));
            let _ = correlation_of(&message, Correlation::Payload);
        }
    }
}
