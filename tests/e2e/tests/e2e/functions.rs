//! The two functions beside real workers: what the page of the functions promises, line by line, and housekeeping that disturbs nobody.

use crate::exclusive::{TWO, shared};
use causeway_e2e::Run;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use xtask::dead_letters::{deliver, make};
use xtask::lambda::{self, Function};
use xtask::proxy::{Fault, Rule};
use xtask::rig::Rig;
use xtask::stack::{StackOptions, Store, repository};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A function as `scripts/lambda` starts it on the stack of the rig.
pub async fn function(name: &str, rig: &Rig) -> Function {
    let mut environment = rig.launch.environment.clone();
    environment.insert("CAUSEWAY_CONFIG_INLINE".to_owned(), std::fs::read_to_string(&rig.launch.config).unwrap());
    Function::start(&lambda::binary(name).await.unwrap(), name, &lambda::function_environment(environment)).await.unwrap()
}

pub async fn invoke(function: &Function, event: &[u8]) -> Value {
    let (answer, _) = function.invoke(event, TIMEOUT).await.unwrap();
    assert!(!answer.failed, "{answer:?}");
    answer.payload
}

fn lambdas() -> PathBuf {
    repository().join("lambdas")
}

fn example(name: &str) -> Vec<u8> {
    std::fs::read(lambdas().join(name)).unwrap()
}

/// `counts(answer)`: matched, redriven, would_redrive, skipped, failed.
fn counts(answer: &Value) -> [u64; 5] {
    ["matched", "redriven", "would_redrive", "skipped", "failed"]
        .map(|name| answer[name].as_u64().unwrap_or_else(|| panic!("{name} in {answer}")))
}

#[test]
fn every_event_that_the_page_of_the_functions_names_is_there() {
    let page = std::fs::read_to_string(lambdas().join("README.md")).unwrap();
    let named: BTreeSet<&str> = page.split_whitespace().filter(|word| word.starts_with("lambdas/") && word.ends_with(".json")).collect();
    assert!(named.len() >= 3, "{named:?}");
    for event in named {
        let text = std::fs::read(repository().join(event)).unwrap_or_else(|fault| panic!("{event}: {fault}"));
        serde_json::from_slice::<Value>(&text).unwrap_or_else(|fault| panic!("{event}: {fault}"));
    }
}

/// What `scripts/local up`, `dead-letters`, `scripts/lambda` and `scripts/local deliver` do, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_of_a_queue_that_is_gone_end_in_the_right_queue_once() {
    let dir = tempfile::Builder::new().prefix("causeway-e2e-").tempdir().unwrap();
    let rig = Rig::start(&StackOptions::bound(dir.path(), Store::Dynamodb), false).await.unwrap();
    let queue = rig.stack.queue_url.clone();
    assert_eq!(make(&rig.launch, &rig.stack.aws, rig.stack.broker.port(), 3).await.unwrap(), 3);

    let housekeeping = function("housekeeping", &rig).await;
    let swept = invoke(&housekeeping, &example("housekeeping/examples/sweep.json")).await;
    assert_eq!((&swept["gauges"]["dlq_depth"], &swept["errors"]), (&json!(3), &json!([])), "{swept}");

    let redrive = function("redrive", &rig).await;
    let dry = invoke(&redrive, &example("redrive/examples/dry-run.json")).await;
    assert_eq!(counts(&dry), [3, 0, 3, 0, 0], "{dry}");
    let real = invoke(&redrive, &example("redrive/examples/all.json")).await;
    assert_eq!(counts(&real), [3, 3, 0, 0, 0], "{real}");
    let again = invoke(&redrive, &example("redrive/examples/all.json")).await;
    assert_eq!(counts(&again), [0, 0, 0, 0, 0], "{again}");

    let arrived = deliver(&rig.launch, &rig.stack.aws.sqs, &queue, Duration::from_secs(6)).await.unwrap();
    let different: BTreeSet<&str> = arrived.iter().map(|message| message.message_id.as_str()).collect();
    assert_eq!((arrived.len(), different.len()), (3, 3), "{arrived:?}");
    assert!(arrived.iter().all(|message| message.redrives == 1 && message.body.starts_with("{\"id\":")), "{arrived:?}");
    let swept = invoke(&housekeeping, &example("housekeeping/examples/sweep.json")).await;
    assert_eq!((&swept["gauges"]["dlq_depth"], &swept["gauges"]["outbox_pending"]), (&json!(0), &json!(0)), "{swept}");
}

/// Sweeps over and over until it is told to stop.
struct Sweeps {
    stop: Arc<AtomicBool>,
    /// The most that any of them saw waiting: what the owner had in its log at that time.
    waiting: Arc<AtomicU64>,
    answers: JoinHandle<Vec<Value>>,
}

impl Sweeps {
    async fn start(rig: &Rig) -> Self {
        let function = function("housekeeping", rig).await;
        let (stop, waiting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, most) = (Arc::clone(&stop), Arc::clone(&waiting));
        let answers = tokio::spawn(async move {
            let (event, mut answers) = (example("housekeeping/examples/sweep.json"), Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                let answer = invoke(&function, &event).await;
                most.fetch_max(answer["gauges"]["outbox_pending"].as_u64().unwrap_or(0), Ordering::Relaxed);
                answers.push(answer);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            answers
        });
        Self { stop, waiting, answers }
    }

    /// Waits until one of them saw so much waiting.
    async fn see(&self, count: u64) {
        let deadline = std::time::Instant::now() + TIMEOUT;
        while self.waiting.load(Ordering::Relaxed) < count {
            assert!(!self.answers.is_finished(), "a sweep failed");
            assert!(std::time::Instant::now() < deadline, "no sweep saw more than {} waiting", self.waiting.load(Ordering::Relaxed));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends them. None of them tells of something that a living owner has, or could not be treated.
    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let answers = self.answers.await.unwrap();
        assert!(answers.len() >= 3, "{} sweeps prove little", answers.len());
        for answer in &answers {
            let swept = &answer["swept"];
            for touched in ["expired_to_dlq", "orphans_to_dlq", "anchors_pruned", "logs_removed"] {
                assert_eq!(swept[touched], 0, "{touched} in {answer}");
            }
            assert_eq!((&answer["errors"], &answer["gauges"]["dlq_depth"]), (&json!([]), &json!(0)), "{answer}");
        }
    }
}

/// A queue that is away lets the log grow while sweeps go over it; then it drains while they go on.
async fn a_run_beside_sweeps(messages: u64) -> (Run, Sweeps) {
    let mut run = Run::start(&causeway_e2e::Setup { proxies: true, ..shared(TWO, messages) }).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    let sweeps = Sweeps::start(&run.rig).await;
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    run.publish(0..messages, 500);
    run.published(messages / 3).await.unwrap();
    sweeps.see(100).await;
    assert_eq!(run.consumer.unique(), 0, "all of it waits in the log");
    run.sqs().unwrap().heal();
    (run, sweeps)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn housekeeping_beside_a_live_owner_repeats_nothing_and_loses_nothing() {
    let (mut run, sweeps) = a_run_beside_sweeps(3_000).await;
    let before = run.cluster().unwrap().holder().await.unwrap();
    run.publishing_done().await.unwrap();
    run.delivered(3_000).await.unwrap();
    assert_eq!(run.cluster().unwrap().lease().await.unwrap().unwrap(), before.lease, "nobody took the lease");
    sweeps.end().await;
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.duplicates), (3_000, 3_000, 0, 0), "{account:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn housekeeping_beside_a_takeover_takes_nothing_from_the_dead_owner_or_its_successor() {
    let (mut run, sweeps) = a_run_beside_sweeps(4_000).await;
    run.published(2_000).await.unwrap();
    let former = run.cluster().unwrap().holder().await.unwrap();
    let member = &mut run.cluster().unwrap().members[former.member];
    let reported = member.worker.metrics().await.unwrap();
    member.worker.process.kill().await.unwrap();
    run.expose_member("the owner was killed", &reported);
    let successor = run.cluster().unwrap().successor(&former.lease).await.unwrap();
    assert_eq!(successor.lease.version, former.lease.version + 1, "housekeeping took the lease in between: {:?}", successor.lease);
    run.cluster().unwrap().start_again(former.member).await.unwrap();
    run.publishing_done().await.unwrap();
    run.delivered(4_000).await.unwrap();
    sweeps.end().await;
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (4_000, 4_000, 0), "{account:#?}");
    assert!(account.duplicates <= account.duplicate_bound, "{account:#?}");
}
