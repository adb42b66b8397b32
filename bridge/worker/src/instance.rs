//! What this process is called.

use core::time::Duration;
use serde::Deserialize;

/// Where ECS tells a task about itself.
const METADATA_VARIABLE: &str = "ECS_CONTAINER_METADATA_URI_V4";
/// The metadata endpoint is on the host; an answer that takes longer is none.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);

/// The configured name, else the ECS task id, else the host name.
pub async fn instance_id(configured: Option<&str>) -> String {
    if let Some(name) = configured.map(str::trim).filter(|name| !name.is_empty()) {
        return name.to_owned();
    }
    if let Ok(base) = std::env::var(METADATA_VARIABLE) {
        match task_id(&base).await {
            Ok(id) => return id,
            Err(reason) => tracing::warn!(%reason, "the ECS task id could not be read; the host name stands in for it"),
        }
    }
    host_name()
}

/// The host name; `localhost` where the system does not tell it.
#[must_use]
pub fn host_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy();
    if name.is_empty() { "localhost".to_owned() } else { name.into_owned() }
}

#[derive(Deserialize)]
struct Task {
    #[serde(rename = "TaskARN")]
    arn: String,
}

async fn task_id(base: &str) -> Result<String, String> {
    let client = reqwest::Client::builder().no_proxy().timeout(METADATA_TIMEOUT).build().map_err(|error| error.to_string())?;
    let answer =
        client.get(format!("{base}/task")).send().await.and_then(reqwest::Response::error_for_status).map_err(|error| error.to_string())?;
    let task: Task = answer.json().await.map_err(|error| error.to_string())?;
    match task.arn.rsplit('/').next() {
        Some(id) if !id.is_empty() && task.arn.contains('/') => Ok(id.to_owned()),
        Some(_) | None => Err(format!("`{}` is no task ARN", task.arn)),
    }
}
