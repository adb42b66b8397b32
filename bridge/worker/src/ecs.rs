//! What ECS tells a task about itself: the task metadata endpoint, version 4.

use core::time::Duration;
use serde::Deserialize;
use thiserror::Error;
use tokio::time::Instant;

/// Where the endpoint is, in a task's environment.
pub const VARIABLE: &str = "ECS_CONTAINER_METADATA_URI_V4";

/// The endpoint is on the host: everything together, repeated tries included, takes no longer. It is up, and knows the addresses, a moment after the
/// container starts.
pub const DEADLINE: Duration = Duration::from_secs(8);

/// No answer is longer.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Tasks of some network modes never have an address of their own.
const NAMELESS_TRIES: u32 = 3;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What a task knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its name to AWS.
    pub arn: String,
    /// The availability zone that it runs in.
    pub availability_zone: Option<String>,
    /// Its private host name, else its private address.
    pub host: Option<String>,
}

impl Task {
    /// The last part of the ARN.
    #[must_use]
    pub fn id(&self) -> &str {
        self.arn.rsplit('/').next().unwrap_or(&self.arn)
    }
}

/// Why the endpoint told nothing of use.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MetadataError {
    /// Nobody answers there, or not in time.
    #[error("the task metadata endpoint does not answer: {0}")]
    NoAnswer(String),
    /// It answers with an error.
    #[error("the task metadata endpoint answers with status {0}")]
    Status(u16),
    /// It answers without end.
    #[error("the task metadata endpoint's answer is longer than {MAX_BODY_BYTES} bytes")]
    TooLong,
    /// It is no task metadata.
    #[error("the task metadata endpoint's answer cannot be read: {0}")]
    Malformed(String),
    /// It does not know the task's network yet.
    #[error("the task metadata endpoint names no address of this task")]
    NoAddress,
}

impl MetadataError {
    /// Whether it is worth another try.
    const fn passes(&self) -> bool {
        match self {
            Self::NoAnswer(_) | Self::NoAddress => true,
            Self::Status(status) => *status >= 500 || *status == 429,
            Self::TooLong | Self::Malformed(_) => false,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    #[serde(rename = "TaskARN")]
    task_arn: String,
    availability_zone: Option<String>,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Container {
    #[serde(default)]
    networks: Vec<Network>,
}

#[derive(Deserialize)]
struct Network {
    #[serde(rename = "PrivateDNSName")]
    private_dns_name: Option<String>,
    #[serde(rename = "IPv4Addresses", default)]
    addresses: Vec<String>,
}

/// Asks the endpoint at `base` until it knows the task's address, or `deadline` is over. A task without an address is answered rather than nothing.
///
/// # Errors
/// [`MetadataError`] of the last try.
pub async fn task(base: &str, deadline: Duration) -> Result<Task, MetadataError> {
    let until = Instant::now() + deadline;
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
    let client = client.map_err(|error| MetadataError::NoAnswer(error.to_string()))?;
    let url = format!("{}/task", base.trim_end_matches('/'));
    let (mut pause, mut nameless, mut tries) = (FIRST_PAUSE, None, 0);
    loop {
        let asked = tokio::time::timeout_at(until, ask(&client, &url)).await;
        let error = match asked.unwrap_or_else(|_| Err(MetadataError::NoAnswer(format!("not within {} ms", deadline.as_millis())))) {
            Ok(task) if task.host.is_some() => return Ok(task),
            Ok(task) => {
                nameless = Some(task);
                tries += 1;
                MetadataError::NoAddress
            }
            Err(error) => error,
        };
        if !error.passes() || tries >= NAMELESS_TRIES || Instant::now() + pause >= until {
            return nameless.ok_or(error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn ask(client: &reqwest::Client, url: &str) -> Result<Task, MetadataError> {
    let no_answer = |error: reqwest::Error| MetadataError::NoAnswer(error.without_url().to_string());
    let mut answer = client.get(url).send().await.map_err(no_answer)?;
    if !answer.status().is_success() {
        return Err(MetadataError::Status(answer.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(no_answer)? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(MetadataError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    let answer: Answer = serde_json::from_slice(&body).map_err(|error| MetadataError::Malformed(error.to_string()))?;
    if !answer.task_arn.contains('/') {
        return Err(MetadataError::Malformed(format!("`{}` is no task ARN", answer.task_arn)));
    }
    let network = answer.containers.into_iter().flat_map(|container| container.networks).next();
    let host =
        network.and_then(|network| network.private_dns_name.filter(|name| !name.is_empty()).or(network.addresses.into_iter().next()));
    Ok(Task { arn: answer.task_arn, availability_zone: answer.availability_zone, host })
}
