//! What ECS tells a task about itself: the task metadata endpoint, version 4.

use core::time::Duration;
use serde::Deserialize;
use thiserror::Error;
use tokio::time::Instant;

/// Where the endpoint is, in a task's environment.
pub const VARIABLE: &str = "ECS_CONTAINER_METADATA_URI_V4";

/// No answer is longer.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// How long the endpoint is asked. It is on the host, is up a moment after the container starts, and learns of the network a moment after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How often it is asked at most.
    pub attempts: u32,
    /// The pause after the first attempt; it doubles.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// One answer takes no longer.
    pub request: Duration,
    /// Everything together takes no longer.
    pub total: Duration,
}

impl Patience {
    /// Five attempts with pauses of 500 ms, 1 s, 2 s and 4 s: 7.5 s where the answers come at once, never more than 15 s.
    pub const OF_A_START: Self = Self {
        attempts: 5,
        first_pause: Duration::from_millis(500),
        longest_pause: Duration::from_secs(4),
        request: Duration::from_secs(5),
        total: Duration::from_secs(15),
    };
}

/// What a task knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its name to AWS.
    pub arn: String,
    /// The availability zone that it runs in.
    pub availability_zone: Option<String>,
    /// Its private host name, else its private address, as a URL has it: an IPv6 address in brackets.
    pub host: Option<String>,
    /// What ECS knows of the host's clock.
    pub clock: Option<ClockDrift>,
}

/// What ECS knows of the clock that the task reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDrift {
    /// Whether it follows a time server.
    pub synchronized: bool,
    /// How far off it may be.
    pub error_bound: Option<Duration>,
}

/// A clock that may be further off than this is told at the start.
const TOLERATED_DRIFT: Duration = Duration::from_secs(1);

impl ClockDrift {
    /// Whether what is decided by wall clocks (message expiry, times that people read) can be relied on. Leases are not: they count elapsed time.
    #[must_use]
    pub fn is_tolerable(&self) -> bool {
        self.synchronized && self.error_bound.is_none_or(|bound| bound <= TOLERATED_DRIFT)
    }
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
    /// The process runs elsewhere. Asking again is of no use.
    #[error("{VARIABLE} is not set: this is no task of ECS")]
    NotOnEcs,
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
            Self::NotOnEcs | Self::TooLong | Self::Malformed(_) => false,
        }
    }
}

/// `/task`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TaskAnswer {
    #[serde(rename = "TaskARN")]
    task_arn: String,
    availability_zone: Option<String>,
    clock_drift: Option<DriftAnswer>,
}

/// `ClockErrorBound` is in milliseconds, and any number may have a fraction.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DriftAnswer {
    clock_error_bound: Option<f64>,
    clock_synchronization_status: Option<String>,
}

/// The endpoint itself: the container that asks.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerAnswer {
    #[serde(default)]
    networks: Vec<Network>,
}

#[derive(Deserialize)]
struct Network {
    #[serde(rename = "PrivateDNSName")]
    private_dns_name: Option<String>,
    #[serde(rename = "IPv4Addresses", default)]
    ipv4: Vec<String>,
    #[serde(rename = "IPv6Addresses", default)]
    ipv6: Vec<String>,
}

impl Network {
    /// The private name, else an address.
    fn host(self) -> Option<String> {
        let named = self.private_dns_name.filter(|name| !name.is_empty());
        named.or_else(|| self.ipv4.into_iter().find(|address| !address.is_empty())).or_else(|| {
            let address = self.ipv6.into_iter().find(|address| !address.is_empty())?;
            Some(format!("[{}]", address.trim_matches(['[', ']'])))
        })
    }
}

impl DriftAnswer {
    fn read(self) -> ClockDrift {
        let bound = self.clock_error_bound.filter(|bound| bound.is_finite() && *bound >= 0.0);
        ClockDrift {
            synchronized: self.clock_synchronization_status.as_deref() == Some("SYNCHRONIZED"),
            error_bound: bound.and_then(|bound| Duration::try_from_secs_f64(bound / 1_000.0).ok()),
        }
    }
}

/// What has been learned so far; what is known is not asked for again.
#[derive(Default)]
struct Known {
    task: Option<Task>,
    host: Option<String>,
}

impl Known {
    /// Asks for what is missing: first the task, whose name matters most, then the container, whose network it is.
    async fn learn(&mut self, client: &reqwest::Client, base: &str) -> Result<(), MetadataError> {
        if self.task.is_none() {
            let answer: TaskAnswer = ask(client, &format!("{base}/task")).await?;
            if !answer.task_arn.contains('/') {
                return Err(MetadataError::Malformed("it names no task ARN".to_owned()));
            }
            let clock = answer.clock_drift.map(DriftAnswer::read);
            self.task = Some(Task { arn: answer.task_arn, availability_zone: answer.availability_zone, host: None, clock });
        }
        if self.host.is_none() {
            let answer: ContainerAnswer = ask(client, base).await?;
            self.host = answer.networks.into_iter().find_map(Network::host);
        }
        if self.host.is_some() { Ok(()) } else { Err(MetadataError::NoAddress) }
    }
}

/// Asks the endpoint at `base`, the value of [`VARIABLE`], until it knows the task and its address, or the patience is over. A task without an address
/// is answered rather than nothing.
///
/// # Errors
/// [`MetadataError`] of the last attempt; [`MetadataError::NotOnEcs`] at once where there is no endpoint.
pub async fn task(base: Option<&str>, patience: Patience) -> Result<Task, MetadataError> {
    let base = base.map(|base| base.trim_end_matches('/')).filter(|base| !base.is_empty()).ok_or(MetadataError::NotOnEcs)?;
    let until = Instant::now() + patience.total;
    // The address is link-local: no proxy reaches it, and nobody is sent elsewhere.
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(patience.request).build();
    let client = client.map_err(|error| MetadataError::NoAnswer(error.to_string()))?;
    let (mut pause, mut known, mut attempt) = (patience.first_pause, Known::default(), 1);
    loop {
        let late = || MetadataError::NoAnswer(format!("not within {} ms", patience.total.as_millis()));
        let asked = tokio::time::timeout_at(until, known.learn(&client, base)).await;
        let error = match asked.unwrap_or_else(|_| Err(late())) {
            Ok(()) => None,
            Err(error) if error.passes() && attempt < patience.attempts && Instant::now() + pause < until => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(patience.longest_pause);
                attempt += 1;
                continue;
            }
            Err(error) => Some(error),
        };
        return match (known.task, error) {
            (Some(task), _) => Ok(Task { host: known.host, ..task }),
            (None, error) => Err(error.unwrap_or(MetadataError::NoAddress)),
        };
    }
}

async fn ask<T: serde::de::DeserializeOwned>(client: &reqwest::Client, url: &str) -> Result<T, MetadataError> {
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
    serde_json::from_slice(&body).map_err(|error| MetadataError::Malformed(error.to_string()))
}
