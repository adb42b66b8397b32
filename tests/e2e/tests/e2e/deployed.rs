//! `scripts/failover --ecs` against two workers that are tasks of a cluster: each knows its task from the metadata endpoint, and what stands for ECS
//! signals the process of a task that is to stop, and puts another one in its place.

use causeway_aws::DynamoLeases;
use causeway_ports::Leases as _;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Output;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::Instant;
use xtask::cluster::Cluster;
use xtask::rig::Rig;
use xtask::stack::ecs::Ecs;
use xtask::stack::{StackOptions, Store};
use xtask::terminal::note;
use xtask::worker::{Launch, Role, SESSION};

const CLUSTER: &str = "plant";
const SERVICE: &str = "workers";
const TABLE: &str = "causeway-leases";
/// Where a task finds its metadata endpoint.
const METADATA: &str = "ECS_CONTAINER_METADATA_URI_V4";
const PATIENCE: Duration = Duration::from_secs(120);

/// Two workers with one session, as tasks of a service.
struct Fleet {
    rig: Rig,
    ecs: Ecs,
    cluster: Cluster,
    /// The tasks of the members.
    tasks: Vec<String>,
    _dir: TempDir,
}

impl Fleet {
    async fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("causeway-e2e-").tempdir().unwrap();
        let binary = xtask::worker::binary().await.unwrap();
        let options = StackOptions::bound(dir.path(), Store::Dynamodb);
        let rig = Rig::start_with(&options, false, binary, |settings| settings.exclusive = true).await.unwrap();
        let ecs = Ecs::start(CLUSTER).await.unwrap();
        let mut launches = rig.launches(&[("worker-1", Role::Worker), ("worker-2", Role::Worker)]).unwrap();
        let tasks: Vec<String> = launches.iter_mut().map(|launch| place(&ecs, launch)).collect();
        let cluster = Cluster::start(&launches, &rig.stack.aws.dynamodb).unwrap();
        for (task, member) in tasks.iter().zip(&cluster.members) {
            ecs.runs_as(task, member.worker.process.pid());
        }
        let mut fleet = Self { rig, ecs, cluster, tasks, _dir: dir };
        fleet.cluster.holder().await.unwrap();
        fleet.settled().await;
        fleet
    }

    /// Waits until the lease row says full service, and the standby has told of itself.
    async fn settled(&self) {
        let leases = DynamoLeases::new(self.rig.stack.aws.dynamodb.clone(), TABLE);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let row = leases.read(&format!("LEASE#{SESSION}")).await.unwrap().unwrap();
            let members = leases.members_of_all_bridges().await.unwrap();
            let serving = members.iter().filter(|member| member.sessions.contains_key(SESSION)).count();
            if row.facts.service_level.as_deref() == Some("full") && serving == 2 {
                return;
            }
            assert!(Instant::now() < deadline, "{row:?} {members:?}\n{}", self.cluster.log_tails());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The tool, as the script starts it, in an environment that holds nothing but what `adjust` leaves there.
    async fn tool(&self, arguments: &[&str], adjust: impl FnOnce(&mut Command)) -> Command {
        let mut command = Command::new(xtask::lambda::binary("xtask").await.unwrap());
        command.env_clear().envs(self.rig.stack.aws.environment()).env("AWS_ENDPOINT_URL_ECS", self.ecs.endpoint());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &self.rig.launch.dir);
        command.arg("failover").args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true);
        adjust(&mut command);
        command
    }

    /// What it says where it must refuse.
    async fn refusal(&self, arguments: &[&str], adjust: impl FnOnce(&mut Command)) -> String {
        let output = self.tool(arguments, adjust).await.output().await.unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {told}");
        told
    }

    /// Puts another task in the place of each that has ended, until the tool is through.
    async fn replace_until(&mut self, mut tool: tokio::task::JoinHandle<Output>) -> Output {
        loop {
            tokio::select! {
                output = &mut tool => return output.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
            for index in 0..self.cluster.members.len() {
                let member = &mut self.cluster.members[index];
                let Some(status) = member.worker.process.exited().unwrap() else { continue };
                assert!(status.success(), "a task that is asked to stop ends cleanly: {status}\n{}", member.worker.process.log_tail(30));
                self.ecs.ended(&self.tasks[index]);
                self.tasks[index] = place(&self.ecs, &mut member.launch);
                self.cluster.start_again(index).await.unwrap();
                self.ecs.runs_as(&self.tasks[index], self.cluster.members[index].worker.process.pid());
            }
        }
    }
}

/// A task for this launch.
fn place(ecs: &Ecs, launch: &mut Launch) -> String {
    let (arn, metadata) = ecs.place(SERVICE);
    launch.environment.insert(METADATA.to_owned(), metadata);
    arn
}

fn proof<'a>(cluster: &'a str, table: &'a str, session: &'a str) -> Vec<&'a str> {
    vec!["--ecs", cluster, "--lease-table", table, "--session", session]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owners_task_is_found_stopped_and_followed_by_another() {
    let mut fleet = Fleet::start().await;
    let usual = proof(CLUSTER, TABLE, SESSION);

    // Everything that must keep it from stopping anything.
    let elsewhere = Ecs::start("elsewhere").await.unwrap();
    let no_change = |_: &mut Command| {};
    let without_credentials = |command: &mut Command| {
        command.env_remove("AWS_ACCESS_KEY_ID");
    };
    let at_the_other = |command: &mut Command| {
        command.env("AWS_ENDPOINT_URL_ECS", elsewhere.endpoint());
    };
    let told = fleet.refusal(&proof(CLUSTER, TABLE, "unheard-of"), no_change).await;
    assert!(told.contains("NEVER_OWNED") && told.contains(SESSION), "it names the sessions that there are: {told}");
    let told = fleet.refusal(&proof(CLUSTER, "no-such-table", SESSION), no_change).await;
    assert!(told.contains("NOT_FOUND") && told.contains("is `no-such-table` the name of the lease table"), "{told}");
    assert!(fleet.refusal(&proof("other", TABLE, SESSION), no_change).await.contains("OTHER_CLUSTER"));
    let told = fleet.refusal(&usual, at_the_other).await;
    assert!(told.contains("ClusterNotFoundException") && told.contains("is `plant` the cluster's name"), "{told}");
    let told = fleet.refusal(&[&usual[..], &["--region", "eu-west-1"]].concat(), no_change).await;
    assert!(told.contains("OTHER_REGION") && told.contains("--region us-east-1"), "{told}");
    let told = fleet.refusal(&[&usual[..], &["--service", "no-such-service"]].concat(), no_change).await;
    assert!(told.contains("ServiceNotFoundException"), "{told}");
    let told = fleet.refusal(&usual, without_credentials).await;
    assert!(told.contains("NOT_AUTHORIZED") && told.contains("no AWS credentials were found"), "{told}");
    assert!(fleet.refusal(&usual, no_change).await.contains("NOT_CONFIRMED"), "nobody can be asked, and nobody said --yes");
    assert_eq!(fleet.ecs.stopped(), []);

    // The proof itself, twice, with another task in the place of each.
    let arguments = [&usual[..], &["--service", SERVICE, "--runs", "2", "--budget-seconds", "120", "--yes", "--json"]].concat();
    let mut tool = fleet.tool(&arguments, |_| {}).await;
    let output = fleet.replace_until(tokio::spawn(async move { tool.output().await.unwrap() })).await;
    let (told, printed) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    note(&told);
    assert!(output.status.success(), "{told}\n{}", fleet.cluster.log_tails());
    let table: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    let runs = table["runs"].as_array().unwrap();
    assert!(table["ok"] == true && runs.len() == 2 && table["budget"] == 120.0, "{table}");
    for run in runs {
        assert!(run["from"] != run["to"] && run["to_version"].as_u64() > run["from_version"].as_u64(), "{run}");
        assert!(run["full_seconds"].as_f64() >= run["owner_seconds"].as_f64(), "{run}");
    }
    assert_eq!(runs[0]["to"], runs[1]["from"], "the second run stops the successor of the first");
    let stopped = fleet.ecs.stopped();
    // The tool tells them in the order of its runs, the cluster in the order of its tasks.
    let named: BTreeSet<&str> = runs.iter().filter_map(|run| run["task"].as_str()).collect();
    assert_eq!(stopped.iter().map(|(task, _)| task.as_str()).collect::<BTreeSet<_>>(), named);
    assert!(stopped.iter().all(|(_, reason)| reason.contains("scripts/failover --ecs")), "{stopped:?}");
    assert!(told.contains("full service in the row") && told.contains("gives full service after"), "{told}");

    // Without a standby nobody is stopped.
    let owner = fleet.cluster.holder().await.unwrap().member;
    let standby = 1 - owner;
    assert!(fleet.cluster.members[standby].worker.stop().await.unwrap().success());
    fleet.ecs.ended(&fleet.tasks[standby]);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told = fleet.refusal(&[&usual[..], &["--yes"]].concat(), no_change).await;
        if told.contains("NO_STANDBY") {
            break;
        }
        assert!(told.contains("NOT_AT_FULL_SERVICE") && Instant::now() < deadline, "{told}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(fleet.ecs.stopped().len(), 2);
}
