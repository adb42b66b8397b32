//! What this process is called, and where others reach it.

use crate::ecs::{self, MetadataError, Patience, Task};
use causeway_core::lease::row::OwnerFacts;
use core::net::SocketAddr;
use std::collections::BTreeMap;

/// What ECS tells of this task; `None` where it does not run there, or is not told.
pub async fn ecs_task() -> Option<Task> {
    let base = std::env::var(ecs::VARIABLE).ok();
    match ecs::task(base.as_deref(), Patience::OF_A_START).await {
        Ok(task) => {
            if let Some(clock) = task.clock.filter(|clock| !clock.is_tolerable()) {
                tracing::warn!(
                    synchronized = clock.synchronized,
                    error_bound_ms = clock.error_bound.map(|bound| bound.as_secs_f64() * 1_000.0),
                    "the host's clock is not to be relied on: messages may expire early or late, and times in logs and tables are off; leases do not depend on it"
                );
            }
            if task.host.is_none() {
                tracing::warn!(
                    "ECS names no address of this task; the host name stands in for it: set `bridge.cluster.endpoints` if others cannot reach it so"
                );
            }
            Some(task)
        }
        Err(MetadataError::NotOnEcs) => None,
        Err(error) => {
            tracing::warn!(%error, "what ECS knows of this task could not be read; the host name stands in for its id and address");
            None
        }
    }
}

/// The configured name, else the ECS task id, else the host name.
#[must_use]
pub fn instance_id(configured: Option<&str>, task: Option<&Task>) -> String {
    let configured = configured.map(str::trim).filter(|name| !name.is_empty());
    configured.or_else(|| task.map(Task::id).filter(|id| !id.is_empty())).map_or_else(host_name, str::to_owned)
}

/// The host name; `localhost` where the system does not tell it.
#[must_use]
pub fn host_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy();
    if name.is_empty() { "localhost".to_owned() } else { name.into_owned() }
}

/// What leases and the member's row tell of this process. `listens_on`: where it takes hints and messages, if it does. What the configuration says of its endpoints
/// counts; else the address that it listens on, and where that is every interface, what ECS calls the task, else the host name.
#[must_use]
pub fn facts(endpoints: &BTreeMap<String, String>, task: Option<&Task>, listens_on: Option<SocketAddr>) -> OwnerFacts {
    let mut endpoints = endpoints.clone();
    if let (Some(address), false) = (listens_on, endpoints.contains_key("http")) {
        let host = if address.ip().is_unspecified() {
            task.and_then(|task| task.host.clone()).unwrap_or_else(host_name)
        } else if address.is_ipv6() {
            format!("[{}]", address.ip())
        } else {
            address.ip().to_string()
        };
        endpoints.insert("http".to_owned(), format!("http://{host}:{}", address.port()));
    }
    OwnerFacts {
        endpoints,
        az: task.and_then(|task| task.availability_zone.clone()),
        task_arn: task.map(|task| task.arn.clone()),
        ..OwnerFacts::default()
    }
}
