//! SDK clients: one HTTP client for all of them, the standard chains for region, credentials and endpoint, and no retries.
//!
//! The SDK retries nothing: whether a second attempt is right is the core's decision, because a request whose answer got lost may still
//! take effect. `AWS_ENDPOINT_URL` and the service-specific variants are honoured by the SDK's own configuration loading.

use crate::lasting::LastingCredentials;
use aws_config::identity::IdentityCache;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::provider_config::ProviderConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::config::{ProvideCredentials, StalledStreamProtectionConfig};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::{Builder, ConnectorBuilder, tls};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_types::retry::RetryConfig;
use aws_types::service_config::{LoadServiceConfig, ServiceConfigKey};
use causeway_core::outcome::{Fault, FaultCode};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How AWS is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsOptions {
    /// The region; `None` takes the one of the environment, the profile or the instance.
    pub region: Option<String>,
    /// Profiles of the shared files, besides the one that the environment names: for clients that are asked for by their profile.
    pub profiles: Vec<String>,
    /// How long one call may take, connecting included.
    pub operation_timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
}

impl Default for AwsOptions {
    /// 5 s a call: a store that takes longer counts as gone, and the core looks whether the write stands. 2 s to connect.
    fn default() -> Self {
        Self { region: None, profiles: Vec::new(), operation_timeout: Duration::from_secs(5), connect_timeout: Duration::from_secs(2) }
    }
}

/// Where clients come from. Cheap to clone; all clients share one pool of connections.
#[derive(Clone, Debug)]
pub struct AwsClients {
    config: SdkConfig,
    profiles: Arc<BTreeMap<String, SdkConfig>>,
}

impl AwsClients {
    /// Reads the environment and the profile files.
    pub async fn load(options: &AwsOptions) -> Self {
        let http = http_client();
        let mut loader = loader(options, &http);
        if let Some(region) = &options.region {
            loader = loader.region(Region::new(region.clone()));
        }
        let config = lasting(without_empty_endpoints(loader.load().await));
        let mut profiles = BTreeMap::new();
        for name in &options.profiles {
            profiles.insert(name.clone(), lasting(of_profile(options, &http, name).await));
        }
        Self { config, profiles: Arc::new(profiles) }
    }

    /// Clients of a configuration that is at hand, as tests have it. Its retries are switched off.
    #[must_use]
    pub fn from_config(config: SdkConfig) -> Self {
        let config = without_empty_endpoints(config);
        Self { config: config.into_builder().retry_config(RetryConfig::disabled()).build(), profiles: Arc::default() }
    }

    /// The region that was found.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        self.config.region().map(AsRef::as_ref)
    }

    /// What the clients are made from, for services that only one program uses.
    #[must_use]
    pub const fn sdk_config(&self) -> &SdkConfig {
        &self.config
    }

    /// A DynamoDB client.
    ///
    /// # Errors
    /// `INVALID_CONFIG` where no region is set anywhere.
    pub fn dynamodb(&self) -> Result<aws_sdk_dynamodb::Client, Fault> {
        self.dynamodb_at(None)
    }

    /// The same at another address of the service.
    ///
    /// # Errors
    /// As [`Self::dynamodb`].
    pub fn dynamodb_at(&self, endpoint: Option<&str>) -> Result<aws_sdk_dynamodb::Client, Fault> {
        self.config.region().ok_or_else(no_region)?;
        endpoints_are_urls(&self.config)?;
        let mut config = aws_sdk_dynamodb::config::Builder::from(&self.config);
        if let Some(endpoint) = endpoint {
            config = config.endpoint_url(endpoint);
        }
        Ok(aws_sdk_dynamodb::Client::from_conf(config.build()))
    }

    /// An ECS client, at another address of the service where one is given.
    ///
    /// # Errors
    /// `INVALID_CONFIG` where no region is set anywhere.
    #[cfg(feature = "ecs")]
    pub fn ecs_at(&self, endpoint: Option<&str>) -> Result<aws_sdk_ecs::Client, Fault> {
        self.config.region().ok_or_else(no_region)?;
        endpoints_are_urls(&self.config)?;
        let mut config = aws_sdk_ecs::config::Builder::from(&self.config);
        if let Some(endpoint) = endpoint {
            config = config.endpoint_url(endpoint);
        }
        Ok(aws_sdk_ecs::Client::from_conf(config.build()))
    }

    /// An SQS client for `region`, or for the region that was found. Its calls have no time limit of their own: a sender says for each batch
    /// how long it may take.
    ///
    /// # Errors
    /// `INVALID_CONFIG` where no region is set anywhere.
    pub fn sqs(&self, region: Option<&str>) -> Result<aws_sdk_sqs::Client, Fault> {
        self.sqs_of(None, region, None)
    }

    /// The same with the credentials of a profile, whose region counts where none is named, and at another address of the service.
    ///
    /// # Errors
    /// As [`Self::sqs`]; also where the profile is none of [`AwsOptions::profiles`].
    pub fn sqs_of(&self, profile: Option<&str>, region: Option<&str>, endpoint: Option<&str>) -> Result<aws_sdk_sqs::Client, Fault> {
        let of = self.config_of(profile)?;
        endpoints_are_urls(of)?;
        let region = region.map(|name| Region::new(name.to_owned())).or_else(|| of.region().cloned()).ok_or_else(no_region)?;
        let mut config = aws_sdk_sqs::config::Builder::from(of).region(region);
        if let Some(endpoint) = endpoint {
            config = config.endpoint_url(endpoint);
        }
        Ok(aws_sdk_sqs::Client::from_conf(config.build()))
    }

    fn config_of(&self, profile: Option<&str>) -> Result<&SdkConfig, Fault> {
        let Some(name) = profile else { return Ok(&self.config) };
        self.profiles.get(name).ok_or_else(|| Fault::new(FaultCode::InvalidConfig, format!("the AWS profile `{name}` was not loaded")))
    }

    /// Where calls to SQS go instead of to the queue's own host, as far as anything says so: `endpoint`, the environment, or the profile.
    #[must_use]
    pub fn sqs_endpoint(&self, profile: Option<&str>, endpoint: Option<&str>) -> Option<String> {
        let config = self.config_of(profile).ok()?;
        endpoint.map(str::to_owned).or_else(|| endpoint_of(config, "SQS")).or_else(|| config.endpoint_url().map(str::to_owned))
    }

    /// Looks the credentials up without using them, for `doctor`.
    ///
    /// # Errors
    /// `NOT_AUTHORIZED` where there are none, `TEMPORARY_AUTH_FAILURE` where they could not be fetched.
    pub async fn credentials(&self) -> Result<(), Fault> {
        let provider =
            self.config.credentials_provider().ok_or_else(|| Fault::new(FaultCode::NotAuthorized, "no AWS credentials are configured"))?;
        match provider.provide_credentials().await {
            Ok(_) => Ok(()),
            Err(error) => Err(crate::fault::credentials_fault("AWS credentials", &error)),
        }
    }
}

fn loader(options: &AwsOptions, http: &SharedHttpClient) -> ConfigLoader {
    aws_config::defaults(BehaviorVersion::latest())
        .http_client(http.clone())
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts(options))
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
}

/// With credentials that are renewed in time, and that a failed renewal does not replace.
fn lasting(config: SdkConfig) -> SdkConfig {
    match config.credentials_provider() {
        Some(provider) => {
            let lasting = SharedCredentialsProvider::new(LastingCredentials::new(provider));
            // The provider is the cache.
            config.into_builder().credentials_provider(lasting).identity_cache(IdentityCache::no_cache()).build()
        }
        None => config,
    }
}

/// The credentials of a profile and no others: the usual chain would take those of the environment first.
async fn of_profile(options: &AwsOptions, http: &SharedHttpClient, name: &str) -> SdkConfig {
    let region = ProfileFileRegionProvider::builder().profile_name(name).build();
    let region = RegionProviderChain::first_try(region).or_default_provider().region().await;
    let provider = ProviderConfig::without_region().with_http_client(http.clone()).with_region(region.clone());
    let credentials = ProfileFileCredentialsProvider::builder().configure(&provider).profile_name(name).build();
    without_empty_endpoints(loader(options, http).profile_name(name).region(region).credentials_provider(credentials).load().await)
}

/// What a loaded configuration tells of single services, with empty values taken for none.
#[derive(Debug)]
struct NothingEmpty(SdkConfig);

impl LoadServiceConfig for NothingEmpty {
    fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
        self.0.service_config()?.load_config(key).filter(|value| !value.trim().is_empty())
    }
}

/// An `AWS_ENDPOINT_URL` that is exported and empty, or one of a service, means what one that is not exported means. The SDK would take it for an
/// address and panic at the first call.
fn without_empty_endpoints(config: SdkConfig) -> SdkConfig {
    let endpoint = config.endpoint_url().filter(|url| !url.trim().is_empty()).map(str::to_owned);
    let mut builder = config.clone().into_builder();
    builder.set_endpoint_url(endpoint);
    if config.service_config().is_some() {
        builder.set_service_config(Some(NothingEmpty(config)));
    }
    builder.build()
}

/// The services that are called, as the SDK names them in profiles.
const SERVICES: [&str; 5] = ["DynamoDB", "SQS", "ECS", "SSM", "Secrets Manager"];

/// What `AWS_ENDPOINT_URL_<SERVICE>` or the profile says for one service.
fn endpoint_of(config: &SdkConfig, service: &str) -> Option<String> {
    let key = ServiceConfigKey::builder().service_id(service).env("AWS_ENDPOINT_URL").profile("endpoint_url").build().ok()?;
    config.service_config()?.load_config(key)
}

/// Refuses an address without a scheme: every call would fail, and none would tell why.
pub(crate) fn endpoints_are_urls(config: &SdkConfig) -> Result<(), Fault> {
    let of_services = SERVICES.into_iter().filter_map(|service| {
        let variable = format!("AWS_ENDPOINT_URL_{}", service.to_ascii_uppercase().replace(' ', "_"));
        Some((variable, endpoint_of(config, service)?))
    });
    let of_all = config.endpoint_url().map(|url| ("AWS_ENDPOINT_URL".to_owned(), url.to_owned()));
    match of_all.into_iter().chain(of_services).find(|(_, url)| !is_url(url)) {
        Some((variable, url)) => Err(Fault::new(
            FaultCode::InvalidConfig,
            format!(
                "{variable} (or `endpoint_url` of the profile) is `{url}`, which is no address: write it with its scheme, such as `http://localhost:4566`"
            ),
        )),
        None => Ok(()),
    }
}

fn is_url(text: &str) -> bool {
    let host = ["http://", "https://"].into_iter().find_map(|scheme| text.strip_prefix(scheme));
    host.is_some_and(|host| !host.is_empty() && !host.starts_with(['/', ':']) && !host.contains(char::is_whitespace))
}

fn no_region() -> Fault {
    Fault::new(FaultCode::InvalidConfig, "no AWS region is set: set AWS_REGION, or the `region` option")
}

fn timeouts(options: &AwsOptions) -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(options.connect_timeout).operation_timeout(options.operation_timeout).build()
}

/// One pool of connections for every client. rustls on aws-lc-rs with the system's roots; proxies as the environment names them.
fn http_client() -> SharedHttpClient {
    Builder::new().build_with_connector_fn(|settings, components| {
        let mut connector = ConnectorBuilder::default().tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc));
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(aws_smithy_runtime_api::client::runtime_components::RuntimeComponents::sleep_impl));
        connector.set_proxy_config(Some(ProxyConfig::from_env()));
        connector.build()
    })
}
