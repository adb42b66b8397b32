//! The runbooks of docs/OPERATIONS.md, walked: each situation is made, what a page says to type is typed, and it has to answer what the page says.

use crate::functions::{function, invoke};
use causeway_e2e::runbook::{Step, runbooks};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use xtask::cluster::Cluster;
use xtask::lambda::Function;
use xtask::ledger::payload::Plan;
use xtask::ledger::publisher::{Progress, Publisher};
use xtask::proxy::{Fault, Rule};
use xtask::rig::Rig;
use xtask::stack::{StackOptions, Store, repository};
use xtask::worker::Role;

const PATIENCE: Duration = Duration::from_secs(90);
const MEMBERS: [(&str, Role); 2] = [("worker-1", Role::Worker), ("worker-2", Role::Worker)];
const WALKED: [&str; 13] = [
    "A node is down",
    "The lease flaps",
    "The broker is away",
    "The outbox grows",
    "Dead letters grow",
    "Housekeeping does not run",
    "The broker refuses a filter",
    "Poison arrives",
    "Credentials are rotated",
    "Upgrade and rollback",
    "Restore a table",
    "A lease row of an older program",
    "Something has to start the process again",
];

fn page() -> String {
    std::fs::read_to_string(repository().join("docs/OPERATIONS.md")).unwrap()
}

#[test]
fn no_runbook_is_left_out() {
    let there: BTreeSet<String> = runbooks(&page()).into_iter().map(|book| book.title).collect();
    assert_eq!(there, WALKED.iter().map(|title| (*title).to_owned()).collect());
}

/// Two workers on one exclusive session, the first of which owns it, and a desk.
struct Stage {
    rig: Rig,
    cluster: Cluster,
    desk: BTreeMap<String, String>,
    function: Option<Function>,
    // Dropped last: the processes write into it.
    dir: TempDir,
}

impl Stage {
    async fn set(layer: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("causeway-e2e-").tempdir().unwrap();
        let binary = xtask::worker::binary().await.unwrap();
        let options = StackOptions::bound(dir.path(), Store::Dynamodb);
        let mut rig = Rig::start_with(&options, true, binary, |settings| settings.exclusive = true).await.unwrap();
        let path = dir.path().join("layer.yaml");
        std::fs::write(&path, layer).unwrap();
        rig.launch.layers.push(path.clone());
        let first = rig.cluster(&MEMBERS[..1]).unwrap();
        let mut stage = Self { desk: BTreeMap::new(), cluster: first, rig, function: None, dir };
        stage.cluster.holder().await.unwrap();
        let second = stage.rig.launches(&MEMBERS[1..]).unwrap();
        let joined = stage.cluster.join(&second[0]).unwrap();
        stage.cluster.members[joined].worker.ready("running").await.unwrap();
        stage.furnish(&path);
        stage
    }

    /// What the page takes for given: see its introduction.
    fn furnish(&mut self, layer: &Path) {
        let launch = &self.cluster.members[0].launch;
        self.desk = launch.desk_environment();
        let tools = launch.binary.parent().unwrap().display().to_string();
        self.desk.insert("PATH".to_owned(), format!("{tools}:{}", std::env::var("PATH").unwrap()));
        self.desk.insert("C".to_owned(), format!("{} -c {}", launch.config.display(), layer.display()));
        self.desk.insert("LOGS".to_owned(), launch.dir.display().to_string());
        self.look_at(0);
    }

    fn look_at(&mut self, member: usize) {
        self.desk.insert("M".to_owned(), self.cluster.members[member].worker.monitor().to_owned());
    }

    async fn publish(&self, topic: &str, bytes: usize) {
        let port = self.rig.stack.broker.port();
        let line = format!("head -c {bytes} /dev/zero | mosquitto_pub -V 5 -q 1 -h 127.0.0.1 -p {port} -t {topic} -s");
        let (_, done) = shell(&line, &self.desk).await;
        assert!(done, "{line}");
    }

    async fn answer(&mut self, command: &str) -> String {
        let Some(call) = command.strip_prefix("scripts/lambda ") else { return shell(command, &self.desk).await.0 };
        let (name, event) = call.split_once(" --event ").unwrap();
        if self.function.is_none() {
            self.function = Some(function(name, &self.rig).await);
        }
        let event = std::fs::read(repository().join(event)).unwrap();
        serde_json::to_string_pretty(&invoke(self.function.as_ref().unwrap(), &event).await).unwrap()
    }

    /// Types it. What only looks is typed again until the answer is right; what changes something once.
    async fn step(&mut self, step: &Step) {
        let (deadline, changes) = (Instant::now() + PATIENCE, ["--yes", "repair"].iter().any(|word| step.command.contains(word)));
        loop {
            let answer = self.answer(&step.command).await;
            let Some(missing) = step.missing(&answer) else { return };
            let over = changes || Instant::now() > deadline;
            assert!(!over, "$ {}\nhas no line `{missing}`:\n{answer}\n{}", step.command, self.cluster.log_tails());
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Walks a runbook; `situation` makes the one that each of its blocks is for.
    async fn walk(&mut self, title: &str, mut situation: impl AsyncFnMut(&mut Self, usize)) {
        assert!(WALKED.contains(&title), "{title}");
        let book = runbooks(&page()).into_iter().find(|book| book.title == title).unwrap();
        assert!(!book.blocks.is_empty());
        for (nth, block) in book.blocks.iter().enumerate() {
            situation(self, nth).await;
            assert!(!block.is_empty());
            for step in block {
                self.step(step).await;
            }
        }
    }
}

async fn shell(line: &str, environment: &BTreeMap<String, String>) -> (String, bool) {
    let mut command = tokio::process::Command::new("sh");
    command.arg("-c").arg(line).env_clear().envs(environment).current_dir(repository()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).join("\n");
    (text, output.status.success())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_down() {
    let mut stage = Stage::set("").await;
    let kill = async |stage: &mut Stage, _| {
        stage.cluster.members[0].worker.process.kill().await.unwrap();
        stage.look_at(1);
    };
    stage.walk("A node is down", kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_flaps() {
    let mut stage = Stage::set("").await;
    let pause = async |stage: &mut Stage, _| {
        let former = stage.cluster.lease().await.unwrap().unwrap();
        stage.cluster.members[0].worker.process.signal(Signal::STOP);
        stage.cluster.successor(&former).await.unwrap();
        stage.cluster.members[0].worker.process.signal(Signal::CONT);
    };
    stage.walk("The lease flaps", pause).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_is_away() {
    let mut stage = Stage::set("").await;
    let away = async |stage: &mut Stage, nth| match nth {
        0 => stage.rig.stack.broker.stop().await.unwrap(),
        _ => stage.rig.stack.broker.start_again().await.unwrap(),
    };
    stage.walk("The broker is away", away).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outbox_grows() {
    let mut stage = Stage::set("").await;
    let refuse = async |stage: &mut Stage, nth| {
        let sqs = &stage.rig.proxies.as_ref().unwrap().sqs;
        if nth > 0 {
            return sqs.heal();
        }
        sqs.inject(Rule::always(Fault::FailBefore { status: 503, code: "ServiceUnavailable".to_owned() }));
        let publisher = Publisher { plan: Plan::new(40, 250), broker_port: stage.rig.stack.broker.port(), numbers: 0..40, rate: 0 };
        assert_eq!(publisher.run(&Progress::default()).await.unwrap().acknowledged.len(), 40);
    };
    stage.walk("The outbox grows", refuse).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_grow() {
    let mut stage = Stage::set("sessions: [{id: mqtt-conn, options: {session: {max_payload_bytes: 1048576}}}]").await;
    // Bytes that are no text travel in base64, a third longer: more than SQS takes.
    stage.walk("Dead letters grow", async |stage: &mut Stage, _| stage.publish("telemetry/big", 800_000).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn housekeeping_does_not_run() {
    Stage::set("").await.walk("Housekeeping does not run", async |_: &mut Stage, _| {}).await;
}

/// The plugin of mosquitto that refuses what nobody allowed, with nobody in it.
const REFUSES: &str =
    r#"{"defaultACLAccess": {"publishClientSend": true, "publishClientReceive": true, "subscribe": false, "unsubscribe": true}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_refuses_a_filter() {
    let mut stage = Stage::set("").await;
    let refuse = async |stage: &mut Stage, nth: usize| {
        let broker = &mut stage.rig.stack.broker;
        broker.stop().await.unwrap();
        let (rights, file) = (stage.dir.path().join("rights.json"), stage.dir.path().join("broker/mosquitto.conf"));
        if nth == 0 {
            std::fs::write(&rights, REFUSES).unwrap();
            let plain = std::fs::read_to_string(&file).unwrap();
            let plugin = "plugin /usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so";
            std::fs::write(&file, format!("{plain}{plugin}\nplugin_opt_config_file {}\n", rights.display())).unwrap();
        } else {
            std::fs::write(&rights, REFUSES.replace(r#""subscribe": false"#, r#""subscribe": true"#)).unwrap();
        }
        broker.start_again().await.unwrap();
    };
    stage.walk("The broker refuses a filter", refuse).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_arrives() {
    let mut stage = Stage::set("").await;
    stage.walk("Poison arrives", async |stage: &mut Stage, _| stage.publish("telemetry/big", 800_000).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_rotated() {
    let place = tempfile::Builder::new().prefix("causeway-e2e-").tempdir().unwrap();
    let login = |password: &str| {
        let text = format!("{{\"username\": \"bridge\", \"password\": \"{password}\"}}\n");
        std::fs::write(place.path().join("login.json"), text).unwrap();
    };
    login("first-password");
    let uri = format!("file://{}", place.path().join("login.json").display());
    let options = format!("{{credentials_uri: '{uri}', allow_plaintext_credentials: true}}");
    let layer = format!("sessions: [{{id: mqtt-conn, options: {{session: {options}}}}}]");
    let mut stage = Stage::set(&layer).await;
    let rotate = async |stage: &mut Stage, nth: usize| {
        if nth > 0 {
            return login("second-password");
        }
        let (file, passwords) = (stage.dir.path().join("broker/mosquitto.conf"), stage.dir.path().join("passwords"));
        let plain = std::fs::read_to_string(&file).unwrap().replace("allow_anonymous true", "allow_anonymous false");
        std::fs::write(&file, format!("{plain}password_file {}\n", passwords.display())).unwrap();
        let (_, done) = shell(&format!("mosquitto_passwd -b -c {} bridge second-password", passwords.display()), &stage.desk).await;
        assert!(done, "mosquitto_passwd comes with mosquitto");
        stage.rig.stack.broker.stop().await.unwrap();
        stage.rig.stack.broker.start_again().await.unwrap();
    };
    stage.walk("Credentials are rotated", rotate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrade_and_rollback() {
    let mut stage = Stage::set("").await;
    let replace = async |stage: &mut Stage, _| {
        assert!(stage.cluster.members[0].worker.stop().await.unwrap().success());
        stage.cluster.start_again(0).await.unwrap();
    };
    stage.walk("Upgrade and rollback", replace).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_a_table() {
    let mut stage = Stage::set("").await;
    let stop = async |stage: &mut Stage, _| {
        stage.cluster.stop(0).await.unwrap();
    };
    stage.walk("Restore a table", stop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_row_of_an_older_program() {
    let mut stage = Stage::set("").await;
    let age = async |stage: &mut Stage, _| {
        for member in &mut stage.cluster.members {
            member.worker.process.kill().await.unwrap();
        }
        let key = aws_sdk_dynamodb::types::AttributeValue::S("LEASE#mqtt-conn".to_owned());
        let update = stage.rig.stack.aws.dynamodb.update_item().table_name(&stage.cluster.leases).key("pk", key);
        update.update_expression("REMOVE renewed_at").send().await.unwrap();
    };
    stage.walk("A lease row of an older program", age).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_has_to_start_the_process_again() {
    let mut stage = Stage::set("").await;
    let stand = async |stage: &mut Stage, _| stage.cluster.members[0].worker.process.signal(Signal::STOP);
    stage.walk("Something has to start the process again", stand).await;
}
