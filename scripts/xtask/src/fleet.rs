//! The workers as tasks of what stands for ECS, which tells some time after a crash that the task has stopped.

use crate::stack::ecs::Ecs;
use crate::worker::Launch;
use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::time::Duration;

/// Where a task finds its metadata endpoint.
const METADATA: &str = "ECS_CONTAINER_METADATA_URI_V4";
/// Where it finds the agent's.
const AGENT: &str = "ECS_AGENT_URI";
const CLUSTER: &str = "plant";
const SERVICE: &str = "workers";

/// A cluster with a task for each worker.
#[derive(Debug)]
pub struct Fleet {
    ecs: Arc<Ecs>,
    stopped_after: Duration,
}

impl Fleet {
    /// Starts one, in which each launch is a task. That a task has stopped is told so many seconds after its process crashed.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(stopped_after: u16, launches: &mut [Launch]) -> Result<Self> {
        let fleet = Self { ecs: Arc::new(Ecs::start(CLUSTER).await?), stopped_after: Duration::from_secs(stopped_after.into()) };
        for launch in launches {
            fleet.join(launch);
        }
        Ok(fleet)
    }

    /// The task of this launch.
    ///
    /// # Errors
    /// It is none.
    pub fn task_of(launch: &Launch) -> Result<&str> {
        launch.environment.get(METADATA).and_then(|metadata| metadata.rsplit('/').next()).context("the worker is no task")
    }

    /// What stands for ECS.
    #[must_use]
    pub fn ecs(&self) -> &Ecs {
        &self.ecs
    }

    /// Makes a launch a task of the cluster.
    pub fn join(&self, launch: &mut Launch) {
        launch.environment.insert("AWS_ENDPOINT_URL_ECS".to_owned(), self.ecs.endpoint());
        self.replace(launch);
    }

    /// Puts a new task in the place of this launch's.
    pub fn replace(&self, launch: &mut Launch) {
        let (_, metadata) = self.ecs.place(SERVICE);
        // What stands for the agent is behind the same address.
        launch.environment.insert(AGENT.to_owned(), metadata.clone());
        launch.environment.insert(METADATA.to_owned(), metadata);
    }

    /// The process of this launch has crashed.
    ///
    /// # Errors
    /// It is no task.
    pub fn has_lost(&self, launch: &Launch) -> Result<()> {
        let task = Self::task_of(launch)?.to_owned();
        let (ecs, after) = (Arc::clone(&self.ecs), self.stopped_after);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            ecs.ended(&task);
        });
        Ok(())
    }
}
