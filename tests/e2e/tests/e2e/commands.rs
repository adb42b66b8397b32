//! Commands to devices: given over HTTP to any worker, answered over MQTT, whoever is gone by then.

use crate::exclusive::shared;
use crate::posts::{THREE, reached};
use causeway_e2e::{Run, Setup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use xtask::device::{Answer, Behaviour, Devices, Received};

const TOKEN: &str = "known to every caller of the test";

const COMMANDS: &str = "
stores:
  commands: {type: dynamodb, options: {table_name: causeway-commands}}
commands:
  enabled: true
  session_id: mqtt-conn
  token: known to every caller of the test
  legacy_reply_filter: '{prefix}/{target}/response'
  replay: true
";

/// How long a caller asks again before the test gives up on its command.
const ASKS: u32 = 600;

fn setup() -> Setup {
    Setup { layer: Some(COMMANDS), ..shared(THREE, 1) }
}

/// What the devices of these tests do: what the command says.
fn obedient() -> Behaviour {
    Arc::new(|command: &Received| {
        let text = String::from_utf8_lossy(&command.payload).into_owned();
        let Ok(order) = serde_json::from_str::<Value>(&text) else { return Vec::new() };
        let answer = || Answer::json(format!("{{\"echo\":{text}}}"));
        let after = Duration::from_millis(order["after_ms"].as_u64().unwrap_or(0));
        match order["do"].as_str().unwrap_or_default() {
            "echo" => vec![answer().after(after)],
            "fail" => vec![answer().with_status("failed")],
            "refuse" => vec![answer().with_status("rejected")],
            "twice" => vec![answer(), answer(), Answer::json("\"another\"").after(Duration::from_millis(200))],
            "begin" => vec![Answer::default().with_status("in_progress"), answer().after(Duration::from_millis(300))],
            "nothing" => vec![Answer::json("null")],
            "garbage" => vec![Answer { correlation: Some(bytes::Bytes::from_static(b"short")), ..answer() }, answer().after(after)],
            "in_place_of_another" => {
                let topic = command.response_topic.as_ref().map(|topic| topic.replace(&command.target, "somebody-else"));
                vec![Answer { topic, ..answer() }]
            }
            "by_its_own_topic" => vec![Answer { topic: Some(format!("causeway/{}/response", command.target)), ..answer() }],
            "too_much" => vec![Answer::json(vec![b'1'; 300_000])],
            // `keep_silent`, and whatever it does not know.
            _ => Vec::new(),
        }
    })
}

/// Somebody who gives commands.
#[derive(Clone)]
struct Caller {
    client: reqwest::Client,
    /// The workers.
    urls: Arc<Mutex<Vec<String>>>,
}

impl Caller {
    fn new(urls: &BTreeMap<String, String>) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(45)).build().unwrap();
        Self { client, urls: Arc::new(Mutex::new(urls.values().cloned().collect())) }
    }

    fn url(&self, turn: u64) -> String {
        let urls = self.urls.lock().unwrap();
        urls[usize::try_from(turn).unwrap() % urls.len()].clone()
    }

    async fn post(&self, url: &str, key: Option<&str>, wait: Option<u64>, body: &Value) -> reqwest::Result<(u16, Value)> {
        let mut request = self.client.post(format!("{url}/v1/commands")).bearer_auth(TOKEN).json(body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(wait) = wait {
            request = request.header("Prefer", format!("wait={wait}"));
        }
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    }

    async fn get(&self, url: &str, id: &str) -> reqwest::Result<(u16, Value)> {
        let answer = self.client.get(format!("{url}/v1/commands/{id}")).bearer_auth(TOKEN).send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    }

    /// Asks one worker after another until the command has come to an end.
    async fn end_of(&self, id: &str) -> Value {
        for turn in 0..ASKS {
            if let Ok((200, told)) = self.get(&self.url(u64::from(turn)), id).await
                && !["created", "published", "in_progress"].contains(&told["status"].as_str().unwrap())
            {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the command {id} has no end");
    }

    /// Gives a command until a worker has taken it, and waits for its end, wherever that is told.
    async fn see_through(&self, number: u64, body: &Value) -> Value {
        let key = format!("command-{number}");
        for turn in 0..u64::from(ASKS) {
            match self.post(&self.url(number + turn), Some(&key), Some(10), body).await {
                Ok((200, told)) => return told,
                Ok((202, told)) => return self.end_of(told["id"].as_str().unwrap()).await,
                // A worker that stops or is gone, or a store that has not answered: another one takes it, or tells what became of it.
                Ok((409 | 429 | 503, _)) | Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                Ok((status, told)) => panic!("{status}: {told}"),
            }
        }
        panic!("nobody takes the command {number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_reaches_the_caller_and_whoever_asks_another_worker() {
    let mut run = Run::start(&setup()).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    let urls = reached(&mut run, &[]).await;
    let devices = Devices::start(run.rig.stack.broker.port(), obedient()).await.unwrap();
    let caller = Caller::new(&urls);
    let elsewhere = caller.url(1);
    let ask = async |target: &str, payload: Value, more: Value| {
        let mut body = json!({ "target": target, "payload": payload });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        caller.post(&caller.url(0), None, Some(20), &body).await.unwrap()
    };

    for (order, state, payload) in [
        ("echo", "succeeded", json!({ "echo": { "do": "echo" } })),
        ("fail", "failed", json!({ "echo": { "do": "fail" } })),
        ("refuse", "rejected", json!({ "echo": { "do": "refuse" } })),
        ("twice", "succeeded", json!({ "echo": { "do": "twice" } })),
        ("begin", "succeeded", json!({ "echo": { "do": "begin" } })),
        ("nothing", "succeeded", Value::Null),
        ("garbage", "succeeded", json!({ "echo": { "do": "garbage" } })),
        ("by_its_own_topic", "succeeded", json!({ "echo": { "do": "by_its_own_topic" } })),
    ] {
        let (status, told) = ask("pump-1", json!({ "do": order }), json!({ "properties": { "who": "test" } })).await;
        assert_eq!((status, &told["status"], &told["result"]["payload"]), (200, &json!(state), &payload), "{order}: {told}");
        assert_eq!(told["late"], json!(false), "{order}: {told}");
        let (status, same) = caller.get(&elsewhere, told["id"].as_str().unwrap()).await.unwrap();
        assert_eq!((status, &same["status"], &same["result"]), (200, &told["status"], &told["result"]), "{order}: {same}");
    }
    let (status, told) = ask("pump-1", json!({ "do": "too_much" }), json!({})).await;
    assert_eq!((status, &told["status"], &told["result"]["reason"]), (200, &json!("failed"), &json!("response_too_large")), "{told}");

    // One that answers for another device changes nothing, and one that is silent has its time.
    for order in ["in_place_of_another", "keep_silent"] {
        let (status, told) = ask("pump-1", json!({ "do": order }), json!({ "timeout_ms": 1_500 })).await;
        assert_eq!((status, &told["status"]), (200, &json!("timed_out")), "{order}: {told}");
    }
    // Late, but not too late.
    let (_, told) = ask("pump-1", json!({ "do": "echo", "after_ms": 2_500 }), json!({ "timeout_ms": 1_000 })).await;
    assert_eq!(told["status"], json!("timed_out"), "{told}");
    let id = told["id"].as_str().unwrap();
    for attempt in 0.. {
        let (_, told) = caller.get(&elsewhere, id).await.unwrap();
        if told["status"] == json!("succeeded") {
            assert_eq!(told["late"], json!(true), "{told}");
            break;
        }
        assert!(attempt < ASKS, "the late answer does not count: {told}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // What devices saw: the caller's properties, what is left of the time, and each command once.
    let received = devices.received();
    assert_eq!(received.len(), 12, "{received:#?}");
    assert!(received.iter().all(|command| command.target == "pump-1" && command.expiry.is_some_and(|left| (1..=10).contains(&left))));
    assert!(received[0].user.contains(&("who".to_owned(), "test".to_owned())), "{:?}", received[0]);
    assert_eq!(received[0].correlation.as_ref().map(bytes::Bytes::len), Some(16));

    // The same key: one command, whoever is asked. Other content under it is refused.
    let body = json!({ "target": "pump-2", "payload": { "do": "echo" } });
    let (_, first) = caller.post(&caller.url(0), Some("once"), Some(20), &body).await.unwrap();
    let (status, second) = caller.post(&elsewhere, Some("once"), Some(20), &body).await.unwrap();
    assert_eq!((status, &second["id"]), (200, &first["id"]), "{second}");
    let other = json!({ "target": "pump-2", "payload": { "do": "fail" } });
    assert_eq!(caller.post(&elsewhere, Some("once"), None, &other).await.unwrap().0, 422);
    assert_eq!(devices.received().len(), 13, "it was published once");
    run.stop_members().await.unwrap();
}

/// How commands of one kind ended, and how long their callers waited.
async fn timed(caller: &Caller, order: &str, numbers: std::ops::Range<u64>) -> Duration {
    let mut took = Vec::new();
    for number in numbers {
        let body = json!({ "target": format!("pump-{number}"), "payload": { "do": order } });
        let began = std::time::Instant::now();
        let (status, told) = caller.post(&caller.url(number), None, Some(20), &body).await.unwrap();
        assert_eq!((status, &told["status"]), (200, &json!("succeeded")), "{told}");
        took.push(began.elapsed());
    }
    took.sort_unstable();
    took[took.len() / 2]
}

/// Three workers and a restart of each in the middle: nobody waits for ever, and no answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_two_thousand_commands_loses_no_answer() {
    const NUMBER: u64 = 2_000;
    const CALLERS: u64 = 16;
    let mut run = Run::start(&setup()).await.unwrap();
    run.cluster().unwrap().holder().await.unwrap();
    let mut urls = reached(&mut run, &[]).await;
    let devices = Devices::start(run.rig.stack.broker.port(), obedient()).await.unwrap();
    let caller = Caller::new(&urls);
    let (ended, states) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(BTreeMap::<String, u64>::new())));
    let tasks: Vec<_> = (0..CALLERS)
        .map(|first| {
            let (caller, ended, states) = (caller.clone(), Arc::clone(&ended), Arc::clone(&states));
            tokio::spawn(async move {
                for number in (first..NUMBER).step_by(usize::try_from(CALLERS).unwrap()) {
                    let body = json!({
                        "target": format!("pump-{}", number % 100), "payload": { "do": "echo", "after_ms": number % 150, "number": number },
                        "timeout_ms": 60_000,
                    });
                    let told = caller.see_through(number, &body).await;
                    let state = told["status"].as_str().unwrap().to_owned();
                    assert!(state != "succeeded" || told["result"]["payload"]["echo"]["number"] == json!(number), "{told}");
                    *states.lock().unwrap().entry(state).or_default() += 1;
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for (turn, (name, _)) in THREE.iter().enumerate() {
        let due = NUMBER / 5 * (turn as u64 + 1);
        while ended.load(Ordering::SeqCst) < due {
            assert!(tasks.iter().any(|task| !task.is_finished()), "callers have failed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let cluster = run.cluster().unwrap();
        let member = cluster.named(name).unwrap();
        let status = cluster.members[member].worker.stop().await.unwrap();
        assert!(status.success(), "a clean stop of {name} ended with {status}\n{}", cluster.log_tails());
        cluster.start_again(member).await.unwrap();
        let gone = vec![urls[*name].clone()];
        urls = reached(&mut run, &gone).await;
        *caller.urls.lock().unwrap() = urls.values().cloned().collect();
    }
    for task in tasks {
        task.await.unwrap();
    }
    let states = states.lock().unwrap().clone();
    assert_eq!(states, BTreeMap::from([("succeeded".to_owned(), NUMBER)]), "{}", run.cluster().unwrap().log_tails());
    let published = devices.received().len() as u64;
    assert!(published >= NUMBER, "{published}");
    let direct = timed(&caller, "echo", 0..60).await;
    let by_any = timed(&caller, "by_its_own_topic", 0..60).await;
    xtask::terminal::note(&format!(
        "{NUMBER} commands, {published} publishings; median to the caller: {direct:?} by its own topic, {by_any:?} by whichever worker"
    ));
    run.stop_members().await.unwrap();
}

/// Whoever waited is gone; another one has the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_worker_that_waits_leaves_the_answer_with_the_others() {
    const NUMBER: u64 = 60;
    let mut run = Run::start(&setup()).await.unwrap();
    let holder = run.cluster().unwrap().holder().await.unwrap();
    let urls = reached(&mut run, &[]).await;
    let _devices = Devices::start(run.rig.stack.broker.port(), obedient()).await.unwrap();
    let caller = Caller::new(&urls);
    // One that does not own the session: whether it does makes no difference to commands, and the others need not take over meanwhile.
    let killed = (holder.member + 1) % THREE.len();
    let url = urls[THREE[killed].0].clone();
    let mut ids = Vec::new();
    for number in 0..NUMBER {
        let body = json!({ "target": format!("pump-{number}"), "payload": { "do": "echo", "after_ms": 2_000 }, "timeout_ms": 30_000 });
        let (status, told) = caller.post(&url, None, None, &body).await.unwrap();
        assert_eq!(status, 202, "{told}");
        ids.push(told["id"].as_str().unwrap().to_owned());
    }
    // The broker has all of them; the first answers are not due before the last is given.
    for id in &ids {
        for attempt in 0.. {
            if caller.get(&url, id).await.unwrap().1["status"] != json!("created") {
                break;
            }
            assert!(attempt < ASKS, "{id} is not published");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    run.cluster().unwrap().members[killed].worker.process.kill().await.unwrap();
    caller.urls.lock().unwrap().retain(|other| *other != url);
    for id in &ids {
        let told = caller.end_of(id).await;
        assert_eq!(told["status"], json!("succeeded"), "{told}");
    }
    run.cluster().unwrap().start_again(killed).await.unwrap();
    reached(&mut run, &[url]).await;
    run.stop_members().await.unwrap();
}
