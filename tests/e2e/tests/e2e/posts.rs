//! Messages posted over HTTP to whichever worker: what was answered with 202 arrives, whoever owns the session by then.

use crate::exclusive::shared;
use aws_sdk_dynamodb::types::AttributeValue;
use causeway_e2e::{Run, Setup};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use xtask::ledger::payload::Plan;
use xtask::worker::Role;

pub const THREE: &[(&str, Role)] = &[("worker-1", Role::Worker), ("worker-2", Role::Worker), ("worker-3", Role::Worker)];
const TOKEN: &str = "known to every caller of the test";
const MESSAGES: u64 = 1_500;
/// Who posts at the same time.
const CALLERS: u64 = 8;
/// A log of the dead worker's own is adopted when its lease has run out: 45 s, and as long again until that is seen in the worst case.
const ADOPTION: Duration = Duration::from_secs(180);
/// Every so manyth message is posted once more although it was accepted.
const REPEATED: u64 = 10;

/// The session's owner sends what is posted, beside what its broker brings.
const OF_THE_SESSION: &str = "
receivers:
  - {id: posted, transport: http, options: {token: known to every caller of the test}}
routes:
  - id: posts
    receiver_id: posted
    delivery_mode: shared_outbox
    bindings: [to-sqs]
    session: {session_id: mqtt-conn, sender_id: sqs-out, lease_ttl: 5s, broker_health_step_down: off}
    policy: {backoff: {initial_interval: 250ms, max_interval: 5s}}
";

/// Whoever runs sends what is posted.
const OF_EVERY_PROCESS: &str = "
receivers:
  - {id: posted, transport: http, options: {token: known to every caller of the test}}
routes:
  - {id: posts, receiver_id: posted, delivery_mode: shared_outbox, bindings: [to-sqs]}
";

/// Where each member is reached, by its name, as its row says. Those of `gone` left their rows behind.
async fn endpoints(run: &mut Run, gone: &[String]) -> BTreeMap<String, String> {
    let table = run.cluster().unwrap().leases.clone();
    let answer = run.rig.stack.aws.dynamodb.scan().table_name(table).consistent_read(true).send().await.unwrap();
    let text = |value: &AttributeValue| value.as_s().unwrap().clone();
    let members = answer.items().iter().filter_map(|item| {
        let (_, owner) = item["pk"].as_s().unwrap().strip_prefix("MEMBER#")?.split_once('#')?;
        let url = item.get("endpoints")?.as_m().unwrap().get("http").map(text)?;
        (!gone.contains(&url)).then(|| (owner.split('#').next().unwrap().to_owned(), url))
    });
    members.collect()
}

/// Waits until every member says where it is reached.
pub async fn reached(run: &mut Run, gone: &[String]) -> BTreeMap<String, String> {
    for _ in 0..1_200 {
        let found = endpoints(run, gone).await;
        if THREE.iter().all(|(name, _)| found.contains_key(*name)) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not every member tells where it is reached: {:?}", endpoints(run, gone).await);
}

/// Who posts, and what came of it.
struct Callers {
    plan: Plan,
    /// Where to post. Callers that get no answer go on with the next one.
    urls: Mutex<Vec<String>>,
    accepted: AtomicU64,
    /// Posts of a message after the first one: after no answer, after a refusal, or on purpose.
    again: AtomicU64,
    /// What was answered, and how often; 0: nothing.
    answers: Mutex<BTreeMap<u16, u64>>,
}

impl Callers {
    fn start(plan: &Plan, urls: Vec<String>) -> (Arc<Self>, Vec<tokio::task::JoinHandle<()>>) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let callers = Arc::new(Self {
            plan: plan.clone(),
            urls: Mutex::new(urls),
            accepted: AtomicU64::new(0),
            again: AtomicU64::new(0),
            answers: Mutex::default(),
        });
        let tasks = (0..CALLERS).map(|caller| tokio::spawn(Arc::clone(&callers).post_all(caller))).collect();
        (callers, tasks)
    }

    async fn post_all(self: Arc<Self>, caller: u64) {
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
        for index in (caller..MESSAGES).step_by(usize::try_from(CALLERS).unwrap()) {
            let mut turn = index;
            while self.post(&client, index, turn).await != 202 {
                self.again.fetch_add(1, Ordering::SeqCst);
                turn += 1;
                // `Retry-After` says a second; a caller in a hurry shows more.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            self.accepted.fetch_add(1, Ordering::SeqCst);
            if index % REPEATED == 0 {
                self.again.fetch_add(1, Ordering::SeqCst);
                self.post(&client, index, turn + 1).await;
            }
        }
    }

    async fn post(&self, client: &reqwest::Client, index: u64, turn: u64) -> u16 {
        let url = {
            let urls = self.urls.lock().unwrap();
            urls[usize::try_from(turn).unwrap() % urls.len()].clone()
        };
        let body = json!({
            "id": format!("message-{index}"), "subject": self.plan.topic(index),
            "payload": String::from_utf8(self.plan.payload(index, 1)).unwrap(),
        });
        let request = client.post(format!("{url}/transport/http/receivers/posted/messages")).bearer_auth(TOKEN).json(&body);
        let status = request.send().await.map_or(0, |answer| answer.status().as_u16());
        *self.answers.lock().unwrap().entry(status).or_default() += 1;
        status
    }

    async fn reach(&self, count: u64) {
        while self.accepted.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn setup(layer: &'static str) -> Setup {
    Setup { layer: Some(layer), noise: false, ..shared(THREE, MESSAGES) }
}

/// Posts to every worker, kills one in the middle, and settles the account.
async fn kill_in_the_middle(layer: &'static str) {
    let mut run = Run::start(&setup(layer)).await.unwrap();
    let former = run.cluster().unwrap().holder().await.unwrap();
    let before = reached(&mut run, &[]).await;
    let (callers, tasks) = Callers::start(run.plan(), before.values().cloned().collect());
    callers.reach(MESSAGES / 3).await;
    let cluster = run.cluster().unwrap();
    let owner = &mut cluster.members[former.member].worker;
    let reported = owner.metrics().await.unwrap();
    owner.process.kill().await.unwrap();
    cluster.successor(&former.lease).await.unwrap();
    cluster.start_again(former.member).await.unwrap();
    run.expose_member("the owner was killed", &reported);
    let after = reached(&mut run, &[before[former.lease.name()].clone()]).await;
    *callers.urls.lock().unwrap() = after.into_values().collect();
    for task in tasks {
        task.await.unwrap();
    }
    let answers = callers.answers.lock().unwrap().clone();
    assert_eq!(callers.accepted.load(Ordering::SeqCst), MESSAGES, "{answers:?}");
    run.posted(0..MESSAGES);
    // A process knows what it accepted; nobody else does once the message is in the log.
    run.expose("posts of a message after the first", vec![("posted again".to_owned(), callers.again.load(Ordering::SeqCst))]);
    run.delivered_with_patience(MESSAGES, ADOPTION).await.unwrap();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost, account.corrupted), (MESSAGES, MESSAGES, 0, 0), "{answers:?}");
    assert!(account.duplicates <= account.duplicate_bound, "{account:?}");
    xtask::terminal::note(&format!("answers {answers:?}; repeated {} of at most {}", account.duplicates, account.duplicate_bound));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_owner_loses_no_post_that_any_worker_accepted() {
    kill_in_the_middle(OF_THE_SESSION).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_a_worker_loses_no_post_that_every_worker_may_send() {
    kill_in_the_middle(OF_EVERY_PROCESS).await;
}

/// A worker that lives knows what it accepted, whoever was asked first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posted_again_to_any_worker_is_no_second_message() {
    let mut run = Run::start(&setup(OF_THE_SESSION)).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    let urls = reached(&mut run, &[]).await;
    let (callers, tasks) = Callers::start(run.plan(), urls.into_values().collect());
    for task in tasks {
        task.await.unwrap();
    }
    // What the store did not confirm in time was refused, and may have been kept all the same; what was accepted comes once.
    let unconfirmed = callers.again.load(Ordering::SeqCst) - MESSAGES.div_ceil(REPEATED);
    run.posted(0..MESSAGES);
    run.expose("posts that were refused", vec![("posted again".to_owned(), unconfirmed)]);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.lost), (MESSAGES, MESSAGES, 0));
    assert!(account.duplicates <= unconfirmed, "{account:?}");
}
