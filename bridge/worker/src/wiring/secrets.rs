//! Secrets that the configuration names: who reads them.

use super::WiringError;
use crate::secrets::{SecretBoard, SecretKeeper, Token, read_all};
use async_trait::async_trait;
use causeway_aws::{AwsClients, AwsSecrets};
use causeway_core::config::{Config, Login, MIN_KEY_CHARS, Secret, SecretPlace};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_local::secrets::LocalSecrets;
use causeway_ports::Secrets;
use std::sync::Arc;

const TOO_SHORT: &str = "the key that stands there has too few characters: 16 at least; make one with `openssl rand -hex 24`";

/// Asks this host or AWS, as the place says.
struct AnyPlace {
    aws: Option<AwsSecrets>,
}

#[async_trait]
impl Secrets for AnyPlace {
    async fn read(&self, place: &SecretPlace) -> Result<Secret, Fault> {
        match &self.aws {
            _ if !place.is_in_aws() => LocalSecrets.read(place).await,
            Some(aws) => aws.read(place).await,
            None => Err(Fault::new(FaultCode::InvalidConfig, format!("{place}: there are no clients of AWS"))),
        }
    }
}

/// Reads every secret that `config` names. `jitter_seed` spreads the later reads of several processes.
///
/// # Errors
/// Every one that cannot be read.
pub async fn keep(config: &Config, aws: Option<&AwsClients>, jitter_seed: u64) -> Result<(SecretBoard, SecretKeeper), Vec<WiringError>> {
    let (places, logins, keys) = (config.secret_places(), config.login_places(), config.key_places());
    let aws = match aws.filter(|_| places.iter().any(SecretPlace::is_in_aws)).map(AwsSecrets::new).transpose() {
        Ok(aws) => aws,
        Err(fault) => return Err(vec![WiringError::of("secrets", &fault)]),
    };
    let fields = config.secret_fields();
    let told_one = |(place, fault): &(SecretPlace, Fault)| {
        let named: Vec<&str> = fields.iter().filter(|(_, named)| named == place).map(|(field, _)| field.as_str()).collect();
        let part = format!("{} ({place})", named.join(", "));
        match fault.code {
            FaultCode::InvalidConfig => WiringError::new(part, "E_CREDENTIALS_URI", fault.detail.clone()),
            _ => WiringError::of(part, fault),
        }
    };
    let told = |faults: Vec<(SecretPlace, Fault)>| faults.iter().map(told_one).collect();
    let judge = move |place: &SecretPlace, secret: &Secret| {
        if logins.contains(place) {
            Login::parse(secret).map_err(|error| error.to_string())?;
        }
        if keys.contains(place) && !is_long_enough(secret) {
            return Err(TOO_SHORT.to_owned());
        }
        Ok(())
    };
    read_all(places, Arc::new(AnyPlace { aws }), Arc::new(judge), jitter_seed).await.map_err(told)
}

fn is_long_enough(key: &Secret) -> bool {
    key.reveal().chars().count() >= MIN_KEY_CHARS
}

/// The key or token that `written` is, or whose place it says. `part` names the setting in messages.
///
/// # Errors
/// Where it was not read.
pub fn token(part: &str, written: &Secret, secrets: &SecretBoard) -> Result<Token, WiringError> {
    let Some(place) = SecretPlace::of(written) else { return Ok(Token::from(written.clone())) };
    secrets.token(&place).ok_or_else(|| WiringError::new(part, "E_CREDENTIALS_URI", format!("{place}: it was not read")))
}
