//! The tasks of an ECS cluster.

use crate::fault::classify;
use async_trait::async_trait;
use aws_sdk_ecs::Client;
use aws_sdk_ecs::primitives::DateTime;
use aws_sdk_ecs::types::Task;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::{Described, TaskRecord, Tasks};

/// ECS answers for so many tasks at a time.
const TASKS_A_CALL: usize = 100;
/// No list of tasks has more pages: a cluster holds 5,000 services and 5,000 instances.
const MAX_PAGES: usize = 1_000;

/// The parts of a task's ARN: `arn:PARTITION:ecs:REGION:ACCOUNT:task/CLUSTER/ID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskArn {
    /// The region.
    pub region: String,
    /// The account.
    pub account: String,
    /// The cluster's name. `None` in the short form that accounts had before 2021, `task/ID`.
    pub cluster: Option<String>,
    /// The task's id.
    pub id: String,
}

impl TaskArn {
    /// Reads one; `None` where the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(6, ':');
        let (arn, _, service) = (parts.next()?, parts.next()?, parts.next()?);
        let (region, account, resource) = (parts.next()?, parts.next()?, parts.next()?);
        let mut names = resource.split('/');
        let (kind, first, second) = (names.next()?, names.next()?, names.next());
        let (cluster, id) = second.map_or((None, first), |id| (Some(first.to_owned()), id));
        let whole = arn == "arn" && service == "ecs" && kind == "task" && names.next().is_none();
        let filled = ![region, account, first, id].contains(&"");
        (whole && filled).then(|| Self { region: region.to_owned(), account: account.to_owned(), cluster, id: id.to_owned() })
    }
}

/// The tasks of one cluster, through the API of ECS.
#[derive(Clone, Debug)]
pub struct EcsTasks {
    client: Client,
    cluster: String,
}

impl EcsTasks {
    /// The tasks of `cluster`, by its name or ARN.
    #[must_use]
    pub fn new(client: Client, cluster: impl Into<String>) -> Self {
        Self { client, cluster: cluster.into() }
    }

    fn call(&self, operation: &str) -> String {
        format!("{operation} on cluster `{}`", self.cluster)
    }
}

#[async_trait]
impl Tasks for EcsTasks {
    async fn describe(&self, tasks: &[String]) -> Result<Described, Fault> {
        let mut described = Described::default();
        for some in tasks.chunks(TASKS_A_CALL) {
            let request = self.client.describe_tasks().cluster(&self.cluster).set_tasks(Some(some.to_vec()));
            let answer = request.send().await.map_err(|error| classify(&self.call("DescribeTasks"), &error).fault)?;
            described.tasks.extend(answer.tasks.unwrap_or_default().iter().map(record));
            described.missing.extend(answer.failures.unwrap_or_default().into_iter().map(|failure| {
                let reason = [failure.reason, failure.detail].into_iter().flatten().collect::<Vec<_>>().join(": ");
                (failure.arn.unwrap_or_default(), reason)
            }));
        }
        Ok(described)
    }

    async fn list(&self, service: Option<&str>) -> Result<Vec<String>, Fault> {
        let (mut arns, mut next) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let request = self.client.list_tasks().cluster(&self.cluster).set_service_name(service.map(str::to_owned));
            let answer = request.set_next_token(next).send().await;
            let answer = answer.map_err(|error| classify(&self.call("ListTasks"), &error).fault)?;
            arns.extend(answer.task_arns.unwrap_or_default());
            next = answer.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(arns);
            }
        }
        Err(Fault::new(FaultCode::ProtocolError, format!("{}: the list has no end", self.call("ListTasks"))))
    }

    async fn primary_deployment(&self, service: &str) -> Result<Option<String>, Fault> {
        let request = self.client.describe_services().cluster(&self.cluster).services(service);
        let answer = request.send().await.map_err(|error| classify(&self.call("DescribeServices"), &error).fault)?;
        // A service that is being deleted has no deployment that it goes on with, and one that does not exist is among the failures.
        let services = answer.services.unwrap_or_default();
        let deployments = services.into_iter().flat_map(|service| service.deployments.unwrap_or_default());
        Ok(deployments.into_iter().find(|deployment| deployment.status() == Some("PRIMARY")).and_then(|deployment| deployment.id))
    }

    async fn stop(&self, task: &str, reason: &str) -> Outcome<TaskRecord> {
        match self.client.stop_task().cluster(&self.cluster).task(task).reason(reason).send().await {
            Ok(answer) => Outcome::Done(answer.task.as_ref().map(record).unwrap_or_default()),
            Err(error) => classify(&self.call("StopTask"), &error).outcome(),
        }
    }
}

fn record(task: &Task) -> TaskRecord {
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    let time = |value: Option<&DateTime>| value.and_then(|at| u64::try_from(at.to_millis().ok()?).ok()).map(UnixMillis);
    TaskRecord {
        arn: text(task.task_arn()),
        cluster_arn: text(task.cluster_arn()),
        last_status: text(task.last_status()),
        desired_status: text(task.desired_status()),
        launch_type: task.launch_type().map(|kind| kind.as_str().to_owned()),
        health: task.health_status().map(|health| health.as_str().to_owned()),
        started_by: task.started_by().map(str::to_owned),
        group: task.group().map(str::to_owned),
        started_at: time(task.started_at()),
        stopped_at: time(task.stopped_at()),
        stop_code: task.stop_code().map(|code| code.as_str().to_owned()),
        stopped_reason: task.stopped_reason().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_arn_is_taken_apart_in_both_forms_and_nothing_else_is_one() {
        let arn = TaskArn::parse("arn:aws-cn:ecs:cn-north-1:123456789012:task/plant/0123abc").unwrap();
        assert_eq!((arn.region.as_str(), arn.account.as_str()), ("cn-north-1", "123456789012"));
        assert_eq!((arn.cluster.as_deref(), arn.id.as_str()), (Some("plant"), "0123abc"));
        let short = TaskArn::parse("arn:aws:ecs:eu-west-1:1:task/0123abc").unwrap();
        assert_eq!((short.cluster, short.id.as_str()), (None, "0123abc"));
        for text in [
            "",
            "0123abc",
            "task/plant/0123abc",
            "arn:aws:ecs:eu-west-1:1:task/",
            "arn:aws:ecs:eu-west-1:1:task/plant/",
            "arn:aws:ecs:eu-west-1:1:task/plant/1/2",
            "arn:aws:ecs:eu-west-1:1:service/plant/1",
            "arn:aws:sqs:eu-west-1:1:task/plant/1",
            "arn:aws:ecs::1:task/plant/1",
        ] {
            assert_eq!(TaskArn::parse(text), None, "{text}");
        }
    }
}
