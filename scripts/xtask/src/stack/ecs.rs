//! What stands for ECS: an API that has a process stopped, and for each task the metadata endpoint that tells it its name, and the agent's, by which it asks
//! to be left alone. The emulator's tasks are records without a process, and have no such endpoints.

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post, put};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the names of operations begin with.
const TARGET: &str = "AmazonEC2ContainerServiceV20141113.";
const JSON: &str = "application/x-amz-json-1.1";
const ACCOUNT: &str = "000000000000";

/// A task.
#[derive(Clone, Debug, Default)]
struct Task {
    service: String,
    /// Which revision of the service's definition it was made from.
    revision: u32,
    /// Whether it asked to be left alone.
    is_protected: bool,
    /// Its process, once it is known.
    pid: Option<u32>,
    started_at: f64,
    /// When and why it was asked to stop.
    stopping: Option<(f64, String)>,
    stopped_at: Option<f64>,
}

#[derive(Debug)]
struct Shared {
    cluster: String,
    /// By id.
    tasks: Mutex<BTreeMap<String, Task>>,
    /// The revision that the next task is made from.
    revision: AtomicU32,
    /// The operations that were asked for.
    called: Mutex<BTreeSet<String>>,
}

/// A cluster. It ends when dropped, and its tasks' processes do not.
#[derive(Debug)]
pub struct Ecs {
    shared: Arc<Shared>,
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Drop for Ecs {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Ecs {
    /// Starts one with a cluster of this name.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(cluster: &str) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port for what stands for ECS")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            cluster: cluster.to_owned(),
            tasks: Mutex::default(),
            revision: AtomicU32::new(1),
            called: Mutex::default(),
        });
        let router = Router::new()
            .route("/", post(api))
            .route("/v4/{id}", get(container))
            .route("/v4/{id}/task", get(metadata))
            .route("/v4/{id}/task-protection/v1/state", put(protection))
            .with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { shared, address, server })
    }

    /// Its address, for `AWS_ENDPOINT_URL_ECS`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts the next task of a service. Gives its ARN, and what its process finds in `ECS_CONTAINER_METADATA_URI_V4`.
    #[must_use]
    pub fn place(&self, service: &str) -> (String, String) {
        let mut tasks = self.shared.tasks();
        let id = format!("{:032x}", tasks.len() + 1);
        let revision = self.shared.revision.load(Ordering::Relaxed);
        tasks.insert(id.clone(), Task { service: service.to_owned(), revision, started_at: now(), ..Task::default() });
        (self.shared.arn(&id), format!("{}/v4/{id}", self.endpoint()))
    }

    /// A new revision is deployed: tasks that are placed from now on are made from it.
    pub fn revise(&self) {
        self.shared.revision.fetch_add(1, Ordering::Relaxed);
    }

    /// A deployment failed: the service goes on with the former revision, whose tasks may run still.
    pub fn roll_back(&self) {
        self.shared.revision.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a task has asked to be left alone.
    #[must_use]
    pub fn is_protected(&self, arn: &str) -> bool {
        self.shared.tasks().get(id_of(arn)).is_some_and(|task| task.is_protected)
    }

    /// Tells which process a task is.
    pub fn runs_as(&self, arn: &str, pid: Option<u32>) {
        self.shared.change(arn, |task| task.pid = pid);
    }

    /// Tells that a task's process has ended.
    pub fn ended(&self, arn: &str) {
        self.shared.change(arn, |task| task.stopped_at = Some(now()));
    }

    /// The operations that were asked for so far.
    #[must_use]
    pub fn called(&self) -> BTreeSet<String> {
        self.shared.called.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The tasks that were asked to stop, with the reasons.
    #[must_use]
    pub fn stopped(&self) -> Vec<(String, String)> {
        let tasks = self.shared.tasks();
        tasks.iter().filter_map(|(id, task)| Some((self.shared.arn(id), task.stopping.clone()?.1))).collect()
    }
}

impl Shared {
    fn tasks(&self) -> MutexGuard<'_, BTreeMap<String, Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, arn: &str, change: impl FnOnce(&mut Task)) {
        if let Some(task) = self.tasks().get_mut(id_of(arn)) {
            change(task);
        }
    }

    fn arn(&self, id: &str) -> String {
        format!("arn:aws:ecs:{}:{ACCOUNT}:task/{}/{id}", super::emulators::REGION, self.cluster)
    }

    fn cluster_arn(&self) -> String {
        format!("arn:aws:ecs:{}:{ACCOUNT}:cluster/{}", super::emulators::REGION, self.cluster)
    }

    fn describe(&self, id: &str, task: &Task) -> Value {
        let mut told = json!({
            "taskArn": self.arn(id),
            "clusterArn": self.cluster_arn(),
            "group": format!("service:{}", task.service),
            "launchType": "FARGATE",
            "taskDefinitionArn": format!("arn:aws:ecs:{}:{ACCOUNT}:task-definition/{}:{}", super::emulators::REGION, task.service, task.revision),
            "startedBy": deployment(task.revision),
            "healthStatus": "UNKNOWN",
            "lastStatus": if task.stopped_at.is_some() { "STOPPED" } else { "RUNNING" },
            "desiredStatus": if task.stopping.is_some() || task.stopped_at.is_some() { "STOPPED" } else { "RUNNING" },
            "startedAt": task.started_at,
        });
        if let Some((at, reason)) = &task.stopping {
            told["stoppingAt"] = json!(at);
            told["stopCode"] = json!("UserInitiated");
            told["stoppedReason"] = json!(reason);
        }
        if let Some(at) = task.stopped_at {
            told["stoppedAt"] = json!(at);
        }
        told
    }

    fn answer(&self, operation: &str, request: &Value) -> Result<Value, (&'static str, &'static str)> {
        let cluster = request["cluster"].as_str().unwrap_or("default");
        if cluster != self.cluster && cluster != self.cluster_arn() {
            return Err(("ClusterNotFoundException", "Cluster not found."));
        }
        self.called.lock().unwrap_or_else(PoisonError::into_inner).insert(operation.to_owned());
        let mut tasks = self.tasks();
        match operation {
            "DescribeTasks" => {
                let asked: Vec<&str> = request["tasks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                if asked.is_empty() || asked.len() > 100 {
                    return Err(("InvalidParameterException", "Tasks must have between 1 and 100 entries."));
                }
                let (known, unknown): (Vec<&str>, Vec<&str>) = asked.into_iter().partition(|task| tasks.contains_key(id_of(task)));
                let known: Vec<Value> = known.into_iter().map(|task| self.describe(id_of(task), &tasks[id_of(task)])).collect();
                let unknown: Vec<Value> =
                    unknown.into_iter().map(|task| json!({ "arn": self.arn(id_of(task)), "reason": "MISSING" })).collect();
                Ok(json!({ "tasks": known, "failures": unknown }))
            }
            "DescribeServices" => {
                let asked = request["services"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let (mut services, mut failures) = (Vec::new(), Vec::new());
                for name in asked.map(id_of) {
                    let arn = format!("arn:aws:ecs:{}:{ACCOUNT}:service/{}/{name}", super::emulators::REGION, self.cluster);
                    let of_service = || tasks.values().filter(|task| task.service == name && task.stopped_at.is_none());
                    if of_service().next().is_none() {
                        failures.push(json!({ "arn": arn, "reason": "MISSING" }));
                        continue;
                    }
                    let primary = self.revision.load(Ordering::Relaxed);
                    let revisions: BTreeSet<u32> = of_service().map(|task| task.revision).chain([primary]).collect();
                    let status = |revision: u32| if revision == primary { "PRIMARY" } else { "ACTIVE" };
                    let deployment = |revision: u32| json!({ "id": deployment(revision), "status": status(revision) });
                    let deployments: Vec<Value> = revisions.into_iter().map(deployment).collect();
                    services.push(json!({ "serviceArn": arn, "serviceName": name, "status": "ACTIVE", "deployments": deployments }));
                }
                Ok(json!({ "services": services, "failures": failures }))
            }
            "ListTasks" => {
                let service = request["serviceName"].as_str();
                if service.is_some_and(|service| !tasks.values().any(|task| task.service == service)) {
                    return Err(("ServiceNotFoundException", "Service not found."));
                }
                let runs = |task: &Task| task.stopping.is_none() && task.stopped_at.is_none();
                let listed = tasks.iter().filter(|(_, task)| runs(task) && service.is_none_or(|service| task.service == service));
                Ok(json!({ "taskArns": listed.map(|(id, _)| self.arn(id)).collect::<Vec<_>>() }))
            }
            "StopTask" => {
                let id = id_of(request["task"].as_str().unwrap_or_default()).to_owned();
                let task = tasks.get_mut(&id).ok_or(("InvalidParameterException", "The referenced task was not found."))?;
                let reason = request["reason"].as_str().unwrap_or("Task stopped by user").to_owned();
                task.stopping.get_or_insert((now(), reason));
                if let Some(pid) = task.pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
                    let _ = kill_process(pid, Signal::TERM);
                }
                let task = task.clone();
                Ok(json!({ "task": self.describe(&id, &task) }))
            }
            _ => Err(("UnknownOperationException", "")),
        }
    }
}

fn deployment(revision: u32) -> String {
    format!("ecs-svc/{revision:019}")
}

fn id_of(task: &str) -> &str {
    task.rsplit('/').next().unwrap_or(task)
}

/// Seconds since 1970, as the API tells times.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

async fn api(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let request: Option<Value> = serde_json::from_slice(&body).ok();
    let answer = match (header("x-amz-target").strip_prefix(TARGET), header("content-type"), request) {
        _ if header("authorization").is_empty() => Err(("MissingAuthenticationTokenException", "Missing Authentication Token")),
        (Some(operation), JSON, Some(request)) => shared.answer(operation, &request),
        _ => Err(("UnknownOperationException", "")),
    };
    let (status, body) = match answer {
        Ok(body) => (StatusCode::OK, body),
        Err((code, message)) => (StatusCode::BAD_REQUEST, json!({ "__type": code, "message": message })),
    };
    (status, [(CONTENT_TYPE, JSON)], body.to_string()).into_response()
}

/// The task metadata endpoint, version 4: the part of it that names the task.
async fn metadata(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    if !shared.tasks().contains_key(&id) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let body = json!({
        "Cluster": shared.cluster,
        "TaskARN": shared.arn(&id),
        "AvailabilityZone": format!("{}a", super::emulators::REGION),
        "Containers": [container_of_task()],
    });
    ([(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// The part of it that names the container's network.
async fn container(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    if !shared.tasks().contains_key(&id) {
        return StatusCode::NOT_FOUND.into_response();
    }
    ([(CONTENT_TYPE, "application/json")], container_of_task().to_string()).into_response()
}

fn container_of_task() -> Value {
    json!({ "Name": "causeway", "Networks": [{ "NetworkMode": "awsvpc", "IPv4Addresses": ["127.0.0.1"] }] })
}

/// The agent's endpoint: what a task asks for itself.
async fn protection(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (enabled, minutes) = (request["ProtectionEnabled"].as_bool(), request["ExpiresInMinutes"].as_u64());
    let arn = shared.arn(&id);
    let (status, body) = match (enabled, shared.tasks().get_mut(&id)) {
        (Some(enabled), Some(task)) if !enabled || minutes.is_some_and(|minutes| (1..=2_880).contains(&minutes)) => {
            task.is_protected = enabled;
            (StatusCode::OK, json!({ "protection": { "ProtectionEnabled": enabled, "TaskArn": arn } }))
        }
        _ => (StatusCode::BAD_REQUEST, json!({ "error": { "Code": "InvalidParameterException", "Message": "no", "Arn": arn } })),
    };
    shared.called.lock().unwrap_or_else(PoisonError::into_inner).insert("UpdateTaskProtection".to_owned());
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    async fn call(ecs: &Ecs, target: &str, body: Value) -> (u16, Value) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request =
            client.post(ecs.endpoint()).header("x-amz-target", target).header("content-type", JSON).header("authorization", "AWS4");
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], JSON);
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
    }

    /// Requests and answers as the reference of the API has them.
    #[tokio::test]
    async fn it_speaks_as_the_reference_of_the_api_says() {
        let ecs = Ecs::start("plant").await.unwrap();
        let (arn, _) = ecs.place("workers");
        assert_eq!(arn, "arn:aws:ecs:us-east-1:000000000000:task/plant/00000000000000000000000000000001");
        let v = "AmazonEC2ContainerServiceV20141113";
        let (_, services) = call(&ecs, &format!("{v}.DescribeServices"), json!({ "cluster": "plant", "services": ["workers", "x"] })).await;
        assert_eq!(services["services"][0]["deployments"], json!([{ "id": "ecs-svc/0000000000000000001", "status": "PRIMARY" }]));
        assert_eq!(services["failures"][0]["reason"], "MISSING");
        let unknown = call(&ecs, &format!("{v}.ListTasks"), json!({ "cluster": "other" })).await;
        assert_eq!(unknown, (400, json!({ "__type": "ClusterNotFoundException", "message": "Cluster not found." })));
        let listed = call(&ecs, &format!("{v}.ListTasks"), json!({ "cluster": "plant", "serviceName": "workers" })).await;
        assert_eq!(listed, (200, json!({ "taskArns": [arn] })));
        let (status, described) = call(&ecs, &format!("{v}.DescribeTasks"), json!({ "cluster": "plant", "tasks": [arn, "nobody"] })).await;
        assert_eq!(
            (status, &described["tasks"][0]["lastStatus"], &described["failures"][0]["reason"]),
            (200, &json!("RUNNING"), &json!("MISSING"))
        );
        let (status, stopped) = call(&ecs, &format!("{v}.StopTask"), json!({ "cluster": "plant", "task": arn, "reason": "why" })).await;
        assert_eq!(
            (status, &stopped["task"]["desiredStatus"], &stopped["task"]["lastStatus"]),
            (200, &json!("STOPPED"), &json!("RUNNING"))
        );
        assert!(stopped["task"]["stoppingAt"].is_f64() && stopped["task"]["stoppedAt"].is_null(), "{stopped}");
        assert_eq!(ecs.stopped(), [(arn.clone(), "why".to_owned())]);
        ecs.ended(&arn);
        let (_, described) = call(&ecs, &format!("{v}.DescribeTasks"), json!({ "cluster": "plant", "tasks": [arn] })).await;
        assert_eq!((&described["tasks"][0]["lastStatus"], described["tasks"][0]["stoppedAt"].is_f64()), (&json!("STOPPED"), true));
        assert_eq!(call(&ecs, &format!("{v}.ListTasks"), json!({ "cluster": "plant" })).await.1, json!({ "taskArns": [] }));
        assert_eq!(call(&ecs, "DynamoDB_20120810.ListTasks", json!({})).await.0, 400);
    }

    #[tokio::test]
    async fn a_task_is_told_its_name() {
        let ecs = Ecs::start("plant").await.unwrap();
        let (arn, metadata) = ecs.place("workers");
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let told: Value = client.get(format!("{metadata}/task")).send().await.unwrap().json().await.unwrap();
        assert_eq!(told["TaskARN"], json!(arn));
        let told: Value = client.get(&metadata).send().await.unwrap().json().await.unwrap();
        assert_eq!(told["Networks"][0]["IPv4Addresses"][0], "127.0.0.1");
        assert_eq!(client.get(format!("{}/v4/nobody/task", ecs.endpoint())).send().await.unwrap().status(), 404);
    }
}
