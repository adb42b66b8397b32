//! Who runs the process's tasks, where that can be asked.

use crate::ecs::Task;
use causeway_aws::{AwsClients, EcsTasks};
use causeway_core::config::Config;
use causeway_core::config::model::Evidence;
use causeway_core::lease::testimony::cluster_of;
use causeway_ports::Tasks;
use std::sync::Arc;
use tracing::warn;

/// The tasks of this process's own cluster, where the configuration wants to know of their ends, or `watches`. `None` where it does not run there: then
/// owners are found gone by their leases alone.
#[must_use]
pub fn tasks(config: &Config, aws: Option<&AwsClients>, task: Option<&Task>, watches: bool) -> Option<Arc<dyn Tasks>> {
    let asks = config.bridge.cluster.takeover_evidence.contains(&Evidence::EcsStopped);
    if !asks && !watches {
        return None;
    }
    let Some(cluster) = task.and_then(|task| cluster_of(&task.arn)) else {
        if asks {
            warn!(
                "`takeover_evidence` has `ecs_stopped`, and this process is no task of ECS, or is not told so: an owner is found gone by its lease alone"
            );
        }
        return None;
    };
    match aws?.ecs_at(None) {
        Ok(client) => Some(Arc::new(EcsTasks::new(client, cluster))),
        Err(fault) => {
            warn!(code = fault.code.as_str(), detail = %fault.detail, "ECS cannot be asked: an owner is found gone by its lease alone");
            None
        }
    }
}
