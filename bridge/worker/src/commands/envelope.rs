//! Commands for devices without properties: what would stand in properties stands in the payload.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use causeway_core::identity::Id128;
use serde_json::json;
use serde_json::value::RawValue;

/// The payload of a command in a JSON object, with what the device needs for its answer. What is no JSON is carried as text in `payload_text`, and what
/// is no text in `payload_base64`.
pub(super) fn envelope(id: Id128, response_topic: &str, expiry_seconds: u32, payload: &[u8]) -> Bytes {
    let head = json!({ "correlationData": id.to_string(), "responseTopic": response_topic, "expirySeconds": expiry_seconds }).to_string();
    let (name, value) = match core::str::from_utf8(payload) {
        Ok(text) if serde_json::from_str::<&RawValue>(text).is_ok() => ("payload", text.trim().to_owned()),
        Ok(text) => ("payload_text", json!(text).to_string()),
        Err(_) => ("payload_base64", json!(STANDARD.encode(payload)).to_string()),
    };
    let open = head.strip_suffix('}').unwrap_or(&head);
    Bytes::from(format!("{open},\"{name}\":{value}}}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_carried_as_what_it_is() {
        let carried =
            |payload: &[u8]| serde_json::from_slice::<serde_json::Value>(&envelope(Id128(10), "c/reply/i/t", 5, payload)).unwrap();
        let json = carried(b" {\"on\": null} ");
        assert_eq!(json["payload"], json!({ "on": null }));
        assert_eq!(json["correlationData"], "0000000000000000000000000000000a");
        assert_eq!((&json["responseTopic"], &json["expirySeconds"]), (&json!("c/reply/i/t"), &json!(5)));
        assert_eq!(carried(b"say \"on\"")["payload_text"], "say \"on\"");
        assert_eq!(carried(b"")["payload_text"], "");
        assert_eq!(carried(&[0xff])["payload_base64"], "/w==");
    }
}
