//! The tasks of a cluster of containers: what the orchestrator knows of a process, which is more than the process can tell once it is gone.

use async_trait::async_trait;
use causeway_core::lease::testimony::Testimony;
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::units::UnixMillis;

/// What the orchestrator tells of one task. Its words are kept as they are, and what the task does is kept apart from what it is to do: a task that is to
/// be stopped may run for minutes, and only a time of its end is evidence that it has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskRecord {
    /// Its whole name.
    pub arn: String,
    /// The cluster's whole name.
    pub cluster_arn: String,
    /// What it does: `PROVISIONING`, `PENDING`, `RUNNING`, `DEPROVISIONING`, `STOPPING`, `STOPPED`, or a word of a later release.
    pub last_status: String,
    /// What it is to do: `RUNNING` or `STOPPED`.
    pub desired_status: String,
    /// `FARGATE`, `EC2`, `EXTERNAL`, …: who runs the host, and so who would know of its end.
    pub launch_type: Option<String>,
    /// `HEALTHY`, `UNHEALTHY` or `UNKNOWN`, as the container's own check says.
    pub health: Option<String>,
    /// What started it; of a service's task its deployment, `ecs-svc/…`, of which each has another.
    pub started_by: Option<String>,
    /// What it belongs to, such as `service:NAME`.
    pub group: Option<String>,
    /// When it began to run.
    pub started_at: Option<UnixMillis>,
    /// When it had ended. `None`: it has not, whatever it is to do.
    pub stopped_at: Option<UnixMillis>,
    /// Why, in a word.
    pub stop_code: Option<String>,
    /// Why, in words.
    pub stopped_reason: Option<String>,
}

impl TaskRecord {
    /// Whether it runs and is to go on, and nobody found it ill.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.last_status == "RUNNING" && self.desired_status == "RUNNING" && self.health.as_deref() != Some("UNHEALTHY")
    }
}

impl From<&TaskRecord> for Testimony {
    fn from(record: &TaskRecord) -> Self {
        Self {
            task: record.arn.clone(),
            cluster: record.cluster_arn.clone(),
            launch_type: record.launch_type.clone(),
            last_status: record.last_status.clone(),
        }
    }
}

/// What became of the question for some tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Those that the cluster knows.
    pub tasks: Vec<TaskRecord>,
    /// The others, with the reason. A task that ended an hour ago is missing like one that never was.
    pub missing: Vec<(String, String)>,
}

/// The tasks of one cluster.
#[async_trait]
pub trait Tasks: Send + Sync {
    /// Asks for these tasks, by ARN or id.
    async fn describe(&self, tasks: &[String]) -> Result<Described, Fault>;

    /// The ARNs of all tasks that are to run, or of those of one service.
    async fn list(&self, service: Option<&str>) -> Result<Vec<String>, Fault>;

    /// The deployment that a service goes on with, as [`TaskRecord::started_by`] names it. `None`: there is no such service, or it does not tell.
    async fn primary_deployment(&self, service: &str) -> Result<Option<String>, Fault>;

    /// Has a task stopped: it is asked to end, and killed where it does not within its stop timeout. Answers how it stood then, not that it has ended.
    async fn stop(&self, task: &str, reason: &str) -> Outcome<TaskRecord>;
}
