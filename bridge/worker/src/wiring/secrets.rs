//! Secrets that the configuration names: who reads them.

use super::WiringError;
use crate::secrets::{SecretBoard, SecretKeeper, Token, read_all};
use async_trait::async_trait;
use causeway_aws::{AwsClients, AwsSecrets};
use causeway_core::config::{Config, MIN_KEY_CHARS, Secret, SecretPlace};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_local::secrets::LocalSecrets;
use causeway_ports::Secrets;
use std::sync::Arc;

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
    let places = config.secret_places();
    let aws = match aws.filter(|_| places.iter().any(SecretPlace::is_in_aws)).map(AwsSecrets::new).transpose() {
        Ok(aws) => aws,
        Err(fault) => return Err(vec![WiringError::of("secrets", &fault)]),
    };
    let told = |faults: Vec<(SecretPlace, Fault)>| faults.iter().map(|(place, fault)| WiringError::of(place.to_string(), fault)).collect();
    read_all(places, Arc::new(AnyPlace { aws }), jitter_seed).await.map_err(told)
}

/// The key or token that `written` is, or whose place it says. `part` names the setting in messages.
///
/// # Errors
/// Where it was not read, or is shorter than any key.
pub fn token(part: &str, written: &Secret, secrets: &SecretBoard) -> Result<Token, WiringError> {
    let Some(place) = SecretPlace::of(written) else { return Ok(Token::from(written.clone())) };
    let token = secrets.token(&place).ok_or_else(|| WiringError::new(part, "E_CREDENTIALS_URI", format!("{place}: it was not read")))?;
    if token.current().reveal().chars().count() < MIN_KEY_CHARS {
        return Err(WiringError::new(part, "E_API_KEY", format!("{place}: the key has fewer than {MIN_KEY_CHARS} characters")));
    }
    Ok(token)
}
