//! Where a secret is kept that the configuration names and does not hold: `file://`, `env://`, `ssm://`, `secretsmanager://`.

use super::values::Secret;
use core::fmt;
use serde::Deserialize;
use std::path::PathBuf;
use thiserror::Error;

/// Where a secret is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretPlace {
    /// `file:///ABSOLUTE/PATH`.
    File(PathBuf),
    /// `env://VARIABLE`.
    Env(String),
    /// `ssm:///NAME`, or `ssm://NAME` for a parameter whose name has no slashes; `pms://` means the same. Decrypted.
    Ssm(String),
    /// `secretsmanager://NAME-OR-ARN`, or one field of a secret that holds JSON: `secretsmanager://NAME-OR-ARN#FIELD`.
    SecretsManager {
        /// Its name or ARN.
        id: String,
        /// The field.
        field: Option<String>,
    },
}

/// What is accepted, for messages.
pub const PLACES: &str =
    "`file:///ABSOLUTE/PATH`, `env://VARIABLE`, `ssm:///PARAMETER`, or `secretsmanager://NAME` (`#FIELD` for one field of JSON)";

impl SecretPlace {
    /// Reads an address; `None` where it is none.
    #[must_use]
    pub fn parse(uri: &str) -> Option<Self> {
        let (scheme, rest) = uri.split_once("://")?;
        let named = |text: &str, marks: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
            (!text.is_empty() && text.chars().all(fits)).then(|| text.to_owned())
        };
        match scheme {
            "file" => (rest.len() > 1 && rest.starts_with('/')).then(|| Self::File(PathBuf::from(rest))),
            "env" => named(rest, "_").filter(|name| !name.starts_with(|c: char| c.is_ascii_digit())).map(Self::Env),
            "ssm" | "pms" => named(rest, "/_.-:").filter(|name| name != "/").map(Self::Ssm),
            "secretsmanager" => {
                let (id, field) = rest.split_once('#').map_or((rest, None), |(id, field)| (id, Some(field)));
                let field = match field {
                    Some(field) => Some(named(field, "_.-")?),
                    None => None,
                };
                Some(Self::SecretsManager { id: named(id, "/_+=.@-:")?, field })
            }
            _ => None,
        }
    }

    /// The place that a key or token names, where it is not the key itself.
    #[must_use]
    pub fn of(secret: &Secret) -> Option<Self> {
        Self::parse(secret.reveal())
    }

    /// Whether AWS has to be asked.
    #[must_use]
    pub const fn is_in_aws(&self) -> bool {
        matches!(self, Self::Ssm(_) | Self::SecretsManager { .. })
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file://{}", path.display()),
            Self::Env(name) => write!(f, "env://{name}"),
            Self::Ssm(name) => write!(f, "ssm://{name}"),
            Self::SecretsManager { id, field: None } => write!(f, "secretsmanager://{id}"),
            Self::SecretsManager { id, field: Some(field) } => write!(f, "secretsmanager://{id}#{field}"),
        }
    }
}

/// How a client logs in: what stands where `credentials_uri` points to, `{"username": "…", "password": "…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// User name.
    pub username: String,
    /// Password.
    #[serde(default)]
    pub password: Option<Secret>,
}

/// What stands there is no login. Says nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("what stands there is no login: write {{\"username\": \"…\", \"password\": \"…\"}}")]
pub struct NoLogin;

impl Login {
    /// Reads it.
    ///
    /// # Errors
    /// [`NoLogin`].
    pub fn parse(text: &Secret) -> Result<Self, NoLogin> {
        serde_json::from_str(text.reveal().trim()).map_err(|_| NoLogin)
    }
}

/// One field of a secret that holds JSON: a text, or what is no text as JSON.
#[must_use]
pub fn field_of(text: &str, field: &str) -> Option<String> {
    match serde_json::from_str::<serde_json::Value>(text).ok()?.get(field)? {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Null => None,
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_are_told_apart_and_written_as_they_are_read() {
        for text in [
            "file:///run/secrets/login",
            "env://BROKER_LOGIN",
            "ssm:///bridge/broker",
            "ssm://broker",
            "secretsmanager://bridge/broker",
            "secretsmanager://bridge/broker#password",
            "secretsmanager://arn:aws:secretsmanager:eu-west-1:123456789012:secret:bridge/broker-a1B2c3",
        ] {
            assert_eq!(SecretPlace::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(SecretPlace::parse("pms:///bridge/broker"), SecretPlace::parse("ssm:///bridge/broker"));
        for wrong in [
            "",
            "secret",
            "file://relative",
            "file:///",
            "env://",
            "env://1A",
            "env://A B",
            "ssm://",
            "ssm:///",
            "ssm://a b",
            "https://h/x",
            "secretsmanager://",
            "secretsmanager://a#",
            "secretsmanager://#a",
            "SSM://a",
        ] {
            assert_eq!(SecretPlace::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_login_is_read_and_never_shown() {
        let secret = |text: &str| serde_json::from_value::<Secret>(serde_json::Value::String(text.to_owned())).unwrap();
        let login = Login::parse(&secret(" {\"username\":\"u\",\"password\":\"hunter2\"}\n")).unwrap();
        assert_eq!((login.username.as_str(), login.password.as_ref().unwrap().reveal()), ("u", "hunter2"));
        assert!(!format!("{login:?}").contains("hunter2"));
        for wrong in ["hunter2", "{}", r#"{"username":"u","pass":"hunter2"}"#] {
            assert!(!Login::parse(&secret(wrong)).unwrap_err().to_string().contains("hunter2"));
        }
        assert_eq!(field_of(r#"{"a":"x","n":7}"#, "a").as_deref(), Some("x"));
        assert_eq!(field_of(r#"{"a":"x","n":7}"#, "n").as_deref(), Some("7"));
        assert_eq!(field_of(r#"{"a":null}"#, "a"), None);
        assert_eq!(field_of("plain", "a"), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in ".{0,60}") {
            if let Some(place) = SecretPlace::parse(&text) {
                prop_assert_eq!(SecretPlace::parse(&place.to_string()), Some(place));
            }
        }
    }
}
