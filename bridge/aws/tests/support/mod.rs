//! Local stand-ins for AWS, started by the tests and killed when they end.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod destination;
pub mod emulator;
pub mod scripted;

use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use causeway_aws::AwsClients;
use std::time::Duration;

/// Clients of `endpoint` with a key that DynamoDB Local accepts.
pub fn clients(endpoint: &str) -> AwsClients {
    clients_with_timeout(endpoint, Duration::from_secs(60))
}

/// Clients of `endpoint` whose calls end after `timeout`.
pub fn clients_with_timeout(endpoint: &str, timeout: Duration) -> AwsClients {
    let credentials = Credentials::new("test", "test", None, None, "tests");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .timeout_config(TimeoutConfig::builder().operation_timeout(timeout).build())
        .sleep_impl(aws_smithy_async_sleep())
        .build();
    AwsClients::from_config(config)
}

fn aws_smithy_async_sleep() -> aws_sdk_dynamodb::config::SharedAsyncSleep {
    #[derive(Debug)]
    struct TokioSleep;
    impl aws_sdk_dynamodb::config::AsyncSleep for TokioSleep {
        fn sleep(&self, duration: Duration) -> aws_sdk_dynamodb::config::Sleep {
            aws_sdk_dynamodb::config::Sleep::new(tokio::time::sleep(duration))
        }
    }
    aws_sdk_dynamodb::config::SharedAsyncSleep::new(TokioSleep)
}
