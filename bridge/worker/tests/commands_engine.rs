//! The gateway of commands with a store in memory, a broker that is played, and a publisher that notes what it is given.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use async_trait::async_trait;
use bytes::Bytes;
use causeway_core::commands::gateway::{Answer, GatewayOptions, Path, Refusal};
use causeway_core::commands::{Command, Correlation, ReplyReader, Rules, State, Topics, Why};
use causeway_core::drain::retry::Backoff;
use causeway_core::identity::Id128;
use causeway_core::message::Message;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_local::memory::MemoryCommands;
use causeway_ports::fake::FakeBroker;
use causeway_ports::{Publication, PublishAnswer, Publisher, SystemClock};
use causeway_worker::commands::api::{CommandDesk, CommandLimits, Order};
use causeway_worker::commands::{
    CommandCounts, CommandGateway, DIRECT_RECEIVER, EngineOptions, EnginePorts, NOTIFY_RECEIVER, SHARED_RECEIVER,
};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

const PATIENCE: Duration = Duration::from_secs(20);

/// Notes what is published; answers as it was told, else that it is done.
#[derive(Default)]
struct Notes {
    published: Mutex<Vec<Publication>>,
    answers: Mutex<VecDeque<Outcome<PublishAnswer>>>,
}

#[async_trait]
impl Publisher for Notes {
    async fn publish(&self, publication: Publication) -> Outcome<PublishAnswer> {
        self.published.lock().unwrap().push(publication);
        self.answers.lock().unwrap().pop_front().unwrap_or(Outcome::Done(PublishAnswer::default()))
    }
}

impl Notes {
    /// The `nth` publication to a topic that begins so, once there is one.
    async fn nth(&self, topic: &str, nth: usize) -> Publication {
        loop {
            let found = self.published.lock().unwrap().iter().filter(|one| one.topic.starts_with(topic)).nth(nth).cloned();
            if let Some(found) = found {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

struct Stage {
    broker: FakeBroker,
    notes: Arc<Notes>,
    store: Arc<MemoryCommands>,
}

impl Stage {
    fn new() -> Self {
        let store = Arc::new(MemoryCommands::new(Duration::from_secs(3_600), Duration::from_secs(600)));
        Self { broker: FakeBroker::new(), notes: Arc::default(), store }
    }

    fn gateway(&self, instance: &str, broker: &FakeBroker, notes: &Arc<Notes>) -> CommandGateway {
        let gateway = GatewayOptions {
            instance: instance.into(),
            rules: Rules { late_window: Duration::from_secs(3_600), no_subscriber_fails: false },
            max_pending_per_target: 10,
            ordered: false,
            replay: false,
            backoff: Backoff { initial: Duration::from_millis(5), ..Backoff::default() },
            jitter_seed: 1,
        };
        let reader = ReplyReader {
            topics: Topics::new("c/{target}/command", "c/reply/{instance_id}/{target}", None, "g").unwrap(),
            broadcast_topic: "c/reply-notify".into(),
            instance: instance.into(),
            correlation: Correlation::Property,
            max_response_bytes: 1_000,
        };
        let limits = CommandLimits {
            max_request_bytes: 1_000,
            sync_wait_max: Duration::from_secs(25),
            default_timeout: Duration::from_secs(10),
            min_timeout: Duration::from_millis(100),
            max_timeout: Duration::from_secs(60),
            retention: Duration::from_secs(3_600),
        };
        let ports = EnginePorts { store: self.store.clone(), publisher: notes.clone(), clock: Arc::new(SystemClock) };
        CommandGateway::start(EngineOptions { gateway, reader, qos: 1, limits }, ports, Box::new(broker.source()))
    }

    fn one(&self) -> CommandGateway {
        self.gateway("i1", &self.broker, &self.notes)
    }
}

fn order(patience: Option<Duration>) -> Order {
    Order { target: "pump".into(), payload: Bytes::from_static(b"{\"on\":true}"), patience, ..Order::default() }
}

fn reply(to: &Publication, by: &str, payload: &'static str) -> Message {
    let topic = to.response_topic.clone().unwrap().replace("pump", by);
    let mut message = Message { topic, payload: Bytes::from_static(payload.as_bytes()), qos: 1, ..Message::default() };
    message.properties.correlation_data = to.correlation_data.clone();
    message
}

fn giving(gateway: &CommandGateway, order: Order) -> tokio::task::JoinHandle<Answer> {
    let gateway = gateway.clone();
    tokio::spawn(async move { gateway.give(order).await })
}

fn over(answer: Answer) -> Command {
    match answer {
        Answer::Over(row) => *row,
        other => panic!("{other:?}"),
    }
}

/// Waits until the counts are as wanted.
async fn counted(gateway: &CommandGateway, wanted: impl Fn(&CommandCounts) -> bool) {
    while !wanted(&gateway.counters().snapshot()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_caller_gets_the_reply_that_comes_by_the_direct_path() {
    let stage = Stage::new();
    let gateway = stage.one();
    let asked = giving(&gateway, order(Some(PATIENCE)));
    let sent = stage.notes.nth("c/pump/command", 0).await;
    assert_eq!((&*sent.payload, sent.qos, sent.expiry_seconds), (&b"{\"on\":true}"[..], 1, Some(10)));
    assert_eq!(sent.response_topic.as_deref(), Some("c/reply/i1/pump"));
    stage.broker.publish(DIRECT_RECEIVER, reply(&sent, "pump", "0"));
    let row = over(asked.await.unwrap());
    assert_eq!((row.state, row.late), (State::Succeeded, false));
    assert_eq!(&*gateway.result(row.id).await.unwrap().unwrap().payload, b"0");
    stage.broker.all_acknowledged().await;
}

#[tokio::test]
async fn a_reply_that_another_instance_gets_is_told_to_the_one_that_is_waited_at() {
    let stage = Stage::new();
    let (other_broker, other_notes) = (FakeBroker::new(), Arc::<Notes>::default());
    let (gateway, other) = (stage.one(), stage.gateway("i2", &other_broker, &other_notes));
    let asked = giving(&gateway, order(Some(PATIENCE)));
    let sent = stage.notes.nth("c/pump/command", 0).await;
    other_broker.publish(SHARED_RECEIVER, reply(&sent, "pump", "done"));
    let told = other_notes.nth("c/reply-notify", 0).await;
    assert_eq!((told.qos, Some(&told.payload)), (0, sent.correlation_data.as_ref()));
    stage.broker.publish(NOTIFY_RECEIVER, Message { topic: told.topic, payload: told.payload, ..Message::default() });
    assert_eq!(over(asked.await.unwrap()).state, State::Succeeded);
    assert_eq!(other.counters().snapshot().replies.get(&(Path::Shared, None)), Some(&1));
}

#[tokio::test]
async fn a_second_reply_and_one_of_somebody_else_change_nothing_and_are_acknowledged() {
    let stage = Stage::new();
    let gateway = stage.one();
    let asked = giving(&gateway, order(Some(PATIENCE)));
    let sent = stage.notes.nth("c/pump/command", 0).await;
    stage.broker.publish(DIRECT_RECEIVER, reply(&sent, "valve", "spoofed"));
    stage.broker.publish(DIRECT_RECEIVER, reply(&sent, "pump", "first"));
    stage.broker.publish(SHARED_RECEIVER, reply(&sent, "pump", "second"));
    let row = over(asked.await.unwrap());
    stage.broker.all_acknowledged().await;
    assert_eq!(&*gateway.result(row.id).await.unwrap().unwrap().payload, b"first");
    let replies = gateway.counters().snapshot().replies;
    assert_eq!(replies.get(&(Path::Direct, Some(Why::NotTheTarget))), Some(&1));
    assert_eq!(replies.get(&(Path::Shared, Some(Why::OtherAnswer))), Some(&1));
}

#[tokio::test]
async fn a_command_without_an_answer_times_out_and_a_late_one_still_counts() {
    let stage = Stage::new();
    let gateway = stage.one();
    let asked = giving(&gateway, Order { timeout: Some(Duration::from_millis(100)), ..order(Some(PATIENCE)) });
    let sent = stage.notes.nth("c/pump/command", 0).await;
    let row = over(asked.await.unwrap());
    assert_eq!(row.state, State::TimedOut);
    stage.broker.publish(DIRECT_RECEIVER, reply(&sent, "pump", "late"));
    counted(&gateway, |counts| counts.late == 1).await;
    let row = gateway.read(row.id).await.unwrap().unwrap();
    assert_eq!((row.state, row.late), (State::Succeeded, true));
}

#[tokio::test]
async fn a_published_command_is_not_taken_back_and_an_unknown_one_is_unknown() {
    let stage = Stage::new();
    let gateway = stage.one();
    let Answer::Accepted(row) = gateway.give(order(None)).await else { panic!("not accepted") };
    while gateway.read(row.id).await.unwrap().unwrap().state != State::Published {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(gateway.cancel(row.id).await, Answer::Refused(Refusal::NotCancelled(Why::OnItsWay)));
    assert_eq!(gateway.cancel(Id128(1)).await, Answer::Refused(Refusal::Unknown));
}

#[tokio::test]
async fn what_the_broker_does_not_answer_is_published_again_under_the_same_name() {
    let stage = Stage::new();
    stage.notes.answers.lock().unwrap().push_back(Outcome::Unknown(Fault::new(FaultCode::ConnectionLost, "lost")));
    let gateway = stage.one();
    let Answer::Accepted(_) = gateway.give(order(None)).await else { panic!("not accepted") };
    let (first, second) = (stage.notes.nth("c/pump/command", 0).await, stage.notes.nth("c/pump/command", 1).await);
    assert_eq!(first.correlation_data, second.correlation_data);
    assert_eq!(gateway.counters().snapshot().publish_faults, 1);
}

#[tokio::test]
async fn a_caller_who_goes_away_is_not_waited_for() {
    let stage = Stage::new();
    let gateway = stage.one();
    let asked = giving(&gateway, order(Some(PATIENCE)));
    counted(&gateway, |counts| counts.waiting == 1).await;
    asked.abort();
    counted(&gateway, |counts| counts.waiting == 0 && counts.pending == 1).await;
}

/// RR11.
#[tokio::test]
async fn rr11_a_stop_answers_everybody_who_waits_and_takes_nothing_new() {
    let stage = Stage::new();
    let gateway = stage.one();
    let asked: Vec<_> = (0..3).map(|_| giving(&gateway, order(Some(PATIENCE)))).collect();
    counted(&gateway, |counts| counts.waiting == 3).await;
    gateway.stop(Duration::from_secs(5)).await;
    for one in asked {
        assert!(matches!(one.await.unwrap(), Answer::Running { row: Some(_), .. }));
    }
    assert!(stage.broker.is_closed());
    assert_eq!(gateway.give(order(None)).await, Answer::Refused(Refusal::Stopping));
}
