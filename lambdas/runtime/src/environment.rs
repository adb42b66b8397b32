//! What a function finds around itself.

use crate::FunctionError;
use causeway_aws::{AwsClients, AwsOptions};
use causeway_core::config::{self, Config, Source};
use causeway_core::redrive::Routes;
use std::collections::BTreeMap;
use std::time::Duration;

/// A call to a store that takes longer counts as unanswered.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The environment of a function, as the stack sets it.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Clients of AWS.
    pub aws: AwsClients,
    /// The bridge.
    pub bridge_id: String,
    /// The configuration, where the function is told of one.
    pub config: Option<Config>,
    /// Names of tables, by variable.
    tables: BTreeMap<&'static str, String>,
}

/// 128 random bits.
///
/// # Errors
/// Where the system has none.
pub fn random() -> Result<u128, FunctionError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| FunctionError::new("internal", "event", format!("no random bits: {error}")))?;
    Ok(u128::from_be_bytes(bytes))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Environment {
    /// Reads the variables, and the configuration from its parameter. `tables` are the variables of the tables that the function uses.
    ///
    /// # Errors
    /// A variable that is missing, or a configuration that cannot be read.
    pub async fn load(tables: &[&'static str]) -> Result<Self, FunctionError> {
        let required = |name: &str| variable(name).ok_or_else(|| FunctionError::new("invalid_config", name, "the variable is not set"));
        let bridge_id = required("CAUSEWAY_BRIDGE_ID")?;
        let tables = tables.iter().map(|name| Ok((*name, required(name)?))).collect::<Result<_, FunctionError>>()?;
        let aws = AwsClients::load(&AwsOptions { operation_timeout: CALL_TIMEOUT, ..AwsOptions::default() }).await;
        let config = match (variable("CAUSEWAY_CONFIG_SSM"), variable("CAUSEWAY_CONFIG_INLINE")) {
            (Some(name), _) => Some(parse("CAUSEWAY_CONFIG_SSM", &read_parameter(&aws, &name).await?)?),
            (None, Some(text)) => Some(parse("CAUSEWAY_CONFIG_INLINE", &text)?),
            (None, None) => None,
        };
        Ok(Self { aws, bridge_id, config, tables })
    }

    /// The name of a table that was asked for in [`Self::load`].
    #[must_use]
    pub fn table(&self, variable: &str) -> &str {
        self.tables.get(variable).map_or("", String::as_str)
    }

    /// A DynamoDB client.
    ///
    /// # Errors
    /// Where no region is set.
    pub fn dynamodb(&self) -> Result<aws_sdk_dynamodb::Client, FunctionError> {
        self.aws.dynamodb().map_err(|fault| FunctionError::of("AWS_REGION", &fault))
    }

    /// The routes, as far as they are known.
    ///
    /// # Errors
    /// Where the bridge's name cannot be one.
    pub fn routes(&self) -> Result<Routes, FunctionError> {
        let routes = self.config.as_ref().map_or_else(|| Routes::unknown(&self.bridge_id), |config| Routes::of(&self.bridge_id, config));
        routes.map_err(|error| FunctionError::new("invalid_config", "CAUSEWAY_BRIDGE_ID", error.to_string()))
    }
}

async fn read_parameter(aws: &AwsClients, name: &str) -> Result<String, FunctionError> {
    const FIELD: &str = "CAUSEWAY_CONFIG_SSM";
    let answer = aws_sdk_ssm::Client::new(aws.sdk_config()).get_parameter().name(name).with_decryption(true).send().await;
    let answer = answer.map_err(|error| {
        let code = aws_sdk_ssm::error::ProvideErrorMetadata::code(&error).unwrap_or("unavailable").to_owned();
        FunctionError::new("config_unreadable", FIELD, format!("parameter `{name}` cannot be read: {code}"))
    })?;
    let value = answer.parameter.and_then(|parameter| parameter.value);
    value.ok_or_else(|| FunctionError::new("config_unreadable", FIELD, format!("parameter `{name}` is empty")))
}

/// The deployment checked the document. What only the containers know (`${NAME}` of a secret) is missing here and not needed: a function reads
/// routes, sessions and bindings.
fn parse(field: &str, text: &str) -> Result<Config, FunctionError> {
    let examined = config::examine(&[Source { name: field, text }], &|name| variable(name));
    examined.config.ok_or_else(|| {
        let first = examined.faults.first().map(|fault| format!("{}: {}", fault.path, fault.message)).unwrap_or_default();
        FunctionError::new("config_unreadable", field, format!("the configuration cannot be read: {first}"))
    })
}
