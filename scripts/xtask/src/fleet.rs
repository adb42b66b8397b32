//! The workers as tasks of what stands for ECS, which tells some time after a crash that the task has stopped.

use crate::stack::ecs::Ecs;
use crate::worker::Launch;
use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::time::Duration;

/// Where a task finds its metadata endpoint.
const METADATA: &str = "ECS_CONTAINER_METADATA_URI_V4";
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
            launch.environment.insert("AWS_ENDPOINT_URL_ECS".to_owned(), fleet.ecs.endpoint());
            fleet.replace(launch);
        }
        Ok(fleet)
    }

    /// What stands for ECS.
    #[must_use]
    pub fn ecs(&self) -> &Ecs {
        &self.ecs
    }

    /// Puts a new task in the place of this launch's.
    pub fn replace(&self, launch: &mut Launch) {
        let (_, metadata) = self.ecs.place(SERVICE);
        launch.environment.insert(METADATA.to_owned(), metadata);
    }

    /// The process of this launch has crashed.
    ///
    /// # Errors
    /// It is no task.
    pub fn has_lost(&self, launch: &Launch) -> Result<()> {
        let task =
            launch.environment.get(METADATA).and_then(|metadata| metadata.rsplit('/').next()).context("the worker is no task")?.to_owned();
        let (ecs, after) = (Arc::clone(&self.ecs), self.stopped_after);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            ecs.ended(&task);
        });
        Ok(())
    }
}
