//! Secrets in the parameter store of Systems Manager and in Secrets Manager.

use crate::client::{AwsClients, endpoints_are_urls};
use crate::fault::classify;
use async_trait::async_trait;
use causeway_core::config::{Secret, SecretPlace, field_of};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_ports::Secrets;

/// Reads them with the task's own permissions: `ssm:GetParameter` and `secretsmanager:GetSecretValue` on what is named, and no others.
#[derive(Clone, Debug)]
pub struct AwsSecrets {
    parameters: aws_sdk_ssm::Client,
    secrets: aws_sdk_secretsmanager::Client,
}

impl AwsSecrets {
    /// Over the clients' configuration.
    ///
    /// # Errors
    /// `INVALID_CONFIG` where no region is set anywhere.
    pub fn new(clients: &AwsClients) -> Result<Self, Fault> {
        if clients.region().is_none() {
            return Err(Fault::new(FaultCode::InvalidConfig, "no AWS region is set: set AWS_REGION"));
        }
        let config = clients.sdk_config();
        endpoints_are_urls(config)?;
        Ok(Self { parameters: aws_sdk_ssm::Client::new(config), secrets: aws_sdk_secretsmanager::Client::new(config) })
    }

    async fn parameter(&self, name: &str) -> Result<Option<String>, Fault> {
        let answer = self.parameters.get_parameter().name(name).with_decryption(true).send().await;
        let answer = answer.map_err(|error| classify(&format!("GetParameter {name}"), &error).fault)?;
        Ok(answer.parameter.and_then(|parameter| parameter.value))
    }

    async fn secret(&self, id: &str) -> Result<Option<String>, Fault> {
        let answer = self.secrets.get_secret_value().secret_id(id).send().await;
        Ok(answer.map_err(|error| classify(&format!("GetSecretValue {id}"), &error).fault)?.secret_string)
    }
}

#[async_trait]
impl Secrets for AwsSecrets {
    async fn read(&self, place: &SecretPlace) -> Result<Secret, Fault> {
        let text = match place {
            SecretPlace::Ssm(name) => self.parameter(name).await?,
            SecretPlace::SecretsManager { id, field: None } => self.secret(id).await?,
            SecretPlace::SecretsManager { id, field: Some(field) } => self.secret(id).await?.and_then(|text| field_of(&text, field)),
            SecretPlace::File(_) | SecretPlace::Env(_) => {
                return Err(Fault::new(FaultCode::InvalidConfig, format!("{place}: it is not in AWS")));
            }
        };
        text.map(Secret::new).ok_or_else(|| Fault::new(FaultCode::NotFound, format!("{place}: there is no text")))
    }
}
