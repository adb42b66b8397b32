//! What the orchestrator says of the task that owns a lease: the one thing besides time that proves an owner's end.
//!
//! A stopped task cannot act, and never runs again: a restart is another task. So whoever read the row, then asked about the task that it names, then is told
//! that this task has stopped, may take over under exactly the row that it read. In any other order the answer may be about somebody else. Nothing rests on
//! the answer alone: should it be wrong, the log refuses whoever is not its newest owner.

use core::time::Duration;

/// Who knows when its tasks have ended: nobody else stops the host under them. Tasks on hosts that somebody else runs may outlive what is told of them.
const LAUNCH_TYPE: &str = "FARGATE";
/// What a task does once it has ended. What it is *to do* counts for nothing: a task that is to stop goes on for minutes.
const STOPPED: &str = "STOPPED";

/// When the orchestrator is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Questions {
    /// After how long without a renewal the owner is overdue: more than a healthy one ever lets pass.
    pub overdue_after: Duration,
    /// The least time between two questions.
    pub poll: Duration,
}

/// What was said of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Testimony {
    /// The task's whole name.
    pub task: String,
    /// The whole name of its cluster.
    pub cluster: String,
    /// Who runs its host.
    pub launch_type: Option<String>,
    /// What it does.
    pub last_status: String,
}

impl Testimony {
    /// Whether this proves that `task` has ended. Only what is said of this very task, of its own cluster, counts.
    #[must_use]
    pub fn proves_the_end_of(&self, task: &str) -> bool {
        self.task == task
            && cluster_of(task).is_some_and(|cluster| cluster == self.cluster)
            && self.launch_type.as_deref() == Some(LAUNCH_TYPE)
            && self.last_status == STOPPED
    }
}

/// The whole name of a task's cluster, from the task's: `arn:PARTITION:ecs:REGION:ACCOUNT:task/CLUSTER/ID`. `None` where the text is no such name, or is in
/// the short form that names no cluster.
#[must_use]
pub fn cluster_of(task: &str) -> Option<String> {
    let (before, names) = task.split_once(":task/")?;
    let (cluster, id) = names.split_once('/')?;
    let whole = before.starts_with("arn:") && before.contains(":ecs:") && !cluster.is_empty() && !id.is_empty() && !id.contains('/');
    whole.then(|| format!("{before}:cluster/{cluster}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "arn:aws:ecs:eu-west-1:111122223333:task/plant/0123abc";

    fn stopped() -> Testimony {
        Testimony {
            task: TASK.to_owned(),
            cluster: "arn:aws:ecs:eu-west-1:111122223333:cluster/plant".to_owned(),
            launch_type: Some("FARGATE".to_owned()),
            last_status: "STOPPED".to_owned(),
        }
    }

    #[test]
    fn only_the_very_task_on_fargate_that_has_stopped_is_proof() {
        assert!(stopped().proves_the_end_of(TASK));
        for status in ["RUNNING", "DEPROVISIONING", "STOPPING", "DEACTIVATING", "DELETED", "stopped", ""] {
            assert!(!Testimony { last_status: status.to_owned(), ..stopped() }.proves_the_end_of(TASK), "{status}");
        }
        for launch_type in [None, Some("EC2"), Some("EXTERNAL"), Some("MANAGED_INSTANCES")] {
            assert!(!Testimony { launch_type: launch_type.map(str::to_owned), ..stopped() }.proves_the_end_of(TASK), "{launch_type:?}");
        }
        for other in [
            "arn:aws:ecs:eu-west-1:111122223333:task/plant/0123abd",
            "arn:aws:ecs:eu-west-1:111122223333:task/other/0123abc",
            "arn:aws:ecs:eu-west-2:111122223333:task/plant/0123abc",
            "arn:aws:ecs:eu-west-1:111122223334:task/plant/0123abc",
        ] {
            assert!(!stopped().proves_the_end_of(other), "{other}");
            assert!(!Testimony { task: other.to_owned(), ..stopped() }.proves_the_end_of(TASK), "{other}");
        }
        assert!(!Testimony { cluster: "arn:aws:ecs:eu-west-1:111122223333:cluster/other".to_owned(), ..stopped() }.proves_the_end_of(TASK));
    }

    #[test]
    fn a_name_that_tells_no_cluster_proves_nothing() {
        assert_eq!(cluster_of(TASK).as_deref(), Some("arn:aws:ecs:eu-west-1:111122223333:cluster/plant"));
        for task in [
            "",
            "0123abc",
            "arn:aws:ecs:eu-west-1:1:task/0123abc",
            "arn:aws:ecs:eu-west-1:1:task/plant/",
            "arn:aws:ecs:eu-west-1:1:task//1",
        ] {
            assert_eq!(cluster_of(task), None, "{task}");
            assert!(!Testimony { task: task.to_owned(), cluster: String::new(), ..stopped() }.proves_the_end_of(task), "{task}");
        }
    }
}
