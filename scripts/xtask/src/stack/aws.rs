//! Clients of the local AWS services, and the environment that points other programs at them.

use super::emulators::{DUMMY_KEY, REGION};
use anyhow::{Context as _, Result};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::config::Credentials;
use aws_sdk_sqs::types::QueueAttributeName;
use std::collections::{BTreeMap, HashMap};

/// Where the services are, and clients of them.
#[derive(Clone, Debug)]
pub struct Aws {
    /// The address of SQS and everything else.
    pub endpoint: String,
    /// The address of DynamoDB.
    pub dynamodb_endpoint: String,
    /// A client of SQS that goes around any proxy.
    pub sqs: aws_sdk_sqs::Client,
    /// A client of DynamoDB that goes around any proxy.
    pub dynamodb: aws_sdk_dynamodb::Client,
}

impl Aws {
    /// Clients for these addresses.
    pub async fn new(endpoint: &str, dynamodb_endpoint: &str) -> Self {
        let sqs = aws_sdk_sqs::Client::new(&settings(endpoint).await);
        let dynamodb = aws_sdk_dynamodb::Client::new(&settings(dynamodb_endpoint).await);
        Self { endpoint: endpoint.to_owned(), dynamodb_endpoint: dynamodb_endpoint.to_owned(), sqs, dynamodb }
    }

    /// Creates the queue if it is missing, and gives its address.
    ///
    /// # Errors
    /// SQS refuses or does not answer.
    pub async fn create_queue(&self, name: &str) -> Result<String> {
        let fifo = name.ends_with(".fifo").then(|| HashMap::from([(QueueAttributeName::FifoQueue, "true".to_owned())]));
        let created = self.sqs.create_queue().queue_name(name).set_attributes(fifo).send().await;
        created
            .map_err(|fault| anyhow::anyhow!("{}", explain(&fault)))
            .with_context(|| format!("cannot create the queue {name} at {}", self.endpoint))?
            .queue_url
            .context("SQS answered without a queue address")
    }

    /// What other programs must find in their environment to use these services.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        let own = |name: &str, otherwise: &str| (name.to_owned(), std::env::var(name).unwrap_or_else(|_| otherwise.to_owned()));
        BTreeMap::from([
            ("AWS_ENDPOINT_URL".to_owned(), self.endpoint.clone()),
            ("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), self.dynamodb_endpoint.clone()),
            ("AWS_ENDPOINT_URL_SQS".to_owned(), self.endpoint.clone()),
            ("AWS_ACCESS_KEY_ID".to_owned(), DUMMY_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), DUMMY_KEY.to_owned()),
            ("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned()),
            own("AWS_REGION", REGION),
            // The AWS command line reads this one.
            own("AWS_DEFAULT_REGION", REGION),
        ])
    }
}

async fn settings(endpoint: &str) -> SdkConfig {
    let region = std::env::var("AWS_REGION").unwrap_or_else(|_| REGION.to_owned());
    aws_config::defaults(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new(region))
        .credentials_provider(Credentials::new(DUMMY_KEY, DUMMY_KEY, None, None, "local"))
        .load()
        .await
}

/// The whole chain of causes: the SDK's own text stops at the first.
pub fn explain(fault: &dyn std::error::Error) -> String {
    let mut text = fault.to_string();
    let mut next = fault.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
