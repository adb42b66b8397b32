//! A source that has to ask before it connects and before it subscribes.

use crate::broker::{Peer, ScriptedBroker};
use crate::mosquitto::Mosquitto;
use crate::packets::{Publish, Publisher, Sent, connack, suback, unsuback};
use crate::support::{PATIENCE, any_delivery, connected, delivery, disconnected, eventually, id, options, ready, source, subscribed, text};
use async_trait::async_trait;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_mqtt::SourceOptions;
use causeway_ports::{ConnectionGate, Source};
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use tokio::time::timeout;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Connect { reconnect: bool },
    Subscribe { session_present: bool },
    Unsubscribed(String),
}

/// Writes down what it is asked, and answers only as often as it is let.
pub struct Gate {
    asked: Mutex<Vec<Asked>>,
    may_answer: Semaphore,
    connect: Mutex<Result<(), Fault>>,
    subscribe: Mutex<Result<BTreeSet<String>, Fault>>,
}

impl Gate {
    /// Agrees to everything, once it is let answer.
    pub fn silent() -> Arc<Self> {
        Arc::new(Self {
            asked: Mutex::default(),
            may_answer: Semaphore::new(0),
            connect: Mutex::new(Ok(())),
            subscribe: Mutex::new(Ok(BTreeSet::new())),
        })
    }

    /// Agrees to everything at once.
    pub fn open() -> Arc<Self> {
        let gate = Self::silent();
        gate.answer(Semaphore::MAX_PERMITS);
        gate
    }

    pub fn answer(&self, times: usize) {
        self.may_answer.add_permits(times);
    }

    pub fn refuse_to_connect(&self) {
        *self.connect.lock().unwrap() = Err(refusal());
    }

    fn agree_to_connect(&self) {
        *self.connect.lock().unwrap() = Ok(());
    }

    pub fn fail_to_subscribe(&self, fault: Fault) {
        *self.subscribe.lock().unwrap() = Err(fault);
    }

    pub fn stale(&self, filters: &[&str]) {
        *self.subscribe.lock().unwrap() = Ok(filters.iter().map(|filter| (*filter).to_owned()).collect());
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    async fn note(&self, asked: Asked) {
        self.asked.lock().unwrap().push(asked);
        self.may_answer.acquire().await.unwrap().forget();
    }
}

#[async_trait]
impl ConnectionGate for Gate {
    async fn before_connect(&self, reconnect: bool) -> Result<(), Fault> {
        self.note(Asked::Connect { reconnect }).await;
        self.connect.lock().unwrap().clone()
    }

    async fn before_subscribe(&self, session_present: bool) -> Result<BTreeSet<String>, Fault> {
        self.note(Asked::Subscribe { session_present }).await;
        self.subscribe.lock().unwrap().clone()
    }

    async fn unsubscribed(&self, filter: &str) {
        self.note(Asked::Unsubscribed(filter.to_owned())).await;
    }
}

fn refusal() -> Fault {
    Fault::new(FaultCode::Unavailable, "the lease is somebody else's")
}

pub fn gated(port: u16, filters: &[(&str, &str)], gate: &Arc<Gate>) -> SourceOptions {
    let mut wanted = options(port, filters);
    wanted.gate = Some(Arc::clone(gate) as Arc<dyn ConnectionGate>);
    wanted
}

const FIRST: Asked = Asked::Connect { reconnect: false };
const AGAIN: Asked = Asked::Connect { reconnect: true };
const SUBSCRIBE: Asked = Asked::Subscribe { session_present: true };

async fn expect_unsubscribe(peer: &mut Peer, expected: &str) -> u16 {
    match peer.next().await {
        Some(Sent::Unsubscribe { id, filter }) if filter == expected => id,
        other => panic!("expected UNSUBSCRIBE {expected}, got {other:?}"),
    }
}

async fn expect_subscribe(peer: &mut Peer) -> u16 {
    match peer.next().await {
        Some(Sent::Subscribe { id, .. }) => id,
        other => panic!("expected SUBSCRIBE, got {other:?}"),
    }
}

/// However the broker ends the connection, with or without a reason.
#[tokio::test]
async fn nothing_is_connected_before_the_gate_agrees() {
    for ending in [vec![], vec![0xe0, 1, 0x8e], vec![0xe0, 2, 0x8e, 0]] {
        let broker = ScriptedBroker::new().await;
        let gate = Gate::silent();
        let mut source = source(gated(broker.port, &[("a", "r")], &gate));
        eventually(|| gate.asked() == [FIRST]).await;
        assert!(!broker.has_caller().await);
        gate.answer(2);
        let mut peer = broker.serve(true).await;
        connected(&mut source).await;
        subscribed(&mut source).await;
        peer.send(ending).await;
        drop(peer);
        disconnected(&mut source).await;
        eventually(|| gate.asked() == [FIRST, SUBSCRIBE, AGAIN]).await;
        assert!(!broker.has_caller().await);
        gate.answer(2);
        let _peer = broker.serve(true).await;
        connected(&mut source).await;
        subscribed(&mut source).await;
    }
}

#[tokio::test]
async fn a_gate_that_refuses_keeps_the_source_away_and_is_asked_again() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::open();
    gate.refuse_to_connect();
    let mut wanted = gated(broker.port, &[("a", "r")], &gate);
    (wanted.reconnect_delay, wanted.reconnect_max_delay) = (Duration::from_millis(2), Duration::from_millis(8));
    let mut source = source(wanted);
    let mut step = Duration::from_millis(2);
    for _ in 0..5 {
        let (fault, retry_in) = disconnected(&mut source).await;
        assert_eq!(fault, refusal());
        assert!(retry_in >= step / 2 && retry_in < step, "{retry_in:?} of {step:?}");
        step = (step * 2).min(Duration::from_millis(8));
    }
    assert!(!broker.has_caller().await);
    gate.agree_to_connect();
    let peer = broker.serve(true).await;
    ready(&mut source).await;
    let asked = gate.asked();
    assert!(asked.len() > 6 && asked[..asked.len() - 1].iter().all(|asked| *asked == FIRST), "{asked:?}");
    // The lease is lost together with the connection.
    gate.refuse_to_connect();
    drop(peer);
    assert_eq!(disconnected(&mut source).await.0.code, FaultCode::ConnectionLost);
    for _ in 0..5 {
        assert_eq!(disconnected(&mut source).await.0, refusal());
    }
    assert!(!broker.has_caller().await);
    assert!(gate.asked()[asked.len()..].iter().all(|asked| *asked == AGAIN));
    assert_eq!((source.counters().reconnects, source.counters().connect_failures), (0, 0));
}

#[tokio::test]
async fn an_attempt_that_failed_is_no_connection_that_stood() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::open();
    let mut source = source(gated(broker.port, &[("a", "r")], &gate));
    for code in [0x88, 0x97] {
        let (mut peer, _) = broker.accept().await;
        peer.send(connack(false, code, &[])).await;
        disconnected(&mut source).await;
    }
    drop(broker.serve(true).await);
    let _peer = broker.serve(true).await;
    assert_eq!(gate.asked(), [FIRST, FIRST, FIRST, SUBSCRIBE, AGAIN, SUBSCRIBE]);
}

#[tokio::test]
async fn a_gate_that_never_answers_is_a_fault_and_holds_no_close_up() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::silent();
    let mut wanted = gated(broker.port, &[("a", "r")], &gate);
    wanted.connect_timeout = Duration::from_millis(50);
    let mut impatient = source(wanted.clone());
    for _ in 0..2 {
        assert_eq!(disconnected(&mut impatient).await.0.code, FaultCode::Timeout);
    }
    impatient.close(PATIENCE).await;
    let asked = gate.asked().len();
    wanted.connect_timeout = PATIENCE * 20;
    let mut patient = source(wanted);
    eventually(|| gate.asked().len() > asked).await;
    timeout(PATIENCE, patient.close(PATIENCE * 10)).await.expect("the gate held up the close");
    assert!(!broker.has_caller().await);
}

/// Messages that the broker has kept do not wait for the subscriptions, and are acknowledged as always.
#[tokio::test]
async fn stale_filters_are_given_up_before_the_wanted_ones_are_subscribed() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::silent();
    gate.stale(&["a", "gone/#", "old"]);
    let mut source = source(gated(broker.port, &[("a", "r")], &gate));
    gate.answer(1);
    let mut peer = broker.welcome(true).await;
    connected(&mut source).await;
    eventually(|| gate.asked().last() == Some(&SUBSCRIBE)).await;
    peer.send(Publish::new("old", 7, "kept").encode()).await;
    let early = delivery(&mut source).await;
    assert_eq!((text(&early).as_str(), &*early.receiver), ("kept", ""), "no filter asks for it any more");
    source.acknowledge(early.id);
    assert_eq!(peer.acks(1).await, [7], "no SUBSCRIBE comes before the gate has spoken");
    gate.answer(1);
    let gone = expect_unsubscribe(&mut peer, "gone/#").await;
    let old = expect_unsubscribe(&mut peer, "old").await;
    let wanted = expect_subscribe(&mut peer).await;
    peer.send(unsuback(gone, 0)).await;
    peer.send(suback(wanted, &[1])).await;
    eventually(|| gate.asked().last() == Some(&Asked::Unsubscribed("gone/#".into()))).await;
    assert!(!source.status().get().subscribed, "an answer is missing");
    peer.send(unsuback(old, 0x11)).await;
    // The gate has not taken note of the first yet, which delays nothing but the next note.
    assert_eq!(subscribed(&mut source).await, (1, vec![]));
    gate.answer(1);
    eventually(|| gate.asked().len() == 4).await;
    assert_eq!(gate.asked()[2..], [Asked::Unsubscribed("gone/#".into()), Asked::Unsubscribed("old".into())]);
    peer.send(Publish::new("a", 8, "live").encode()).await;
    assert_eq!(delivery(&mut source).await.id, id(1, 2));
}

#[tokio::test]
async fn a_refused_unsubscription_is_reported_and_tried_again_with_the_next_connection() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::open();
    gate.stale(&["old"]);
    let mut source = source(gated(broker.port, &[("a", "r")], &gate));
    for (code, refusals) in [(0x87, vec![("old", FaultCode::NotAuthorized)]), (0x80, vec![("old", FaultCode::Unavailable)]), (0, vec![])] {
        let mut peer = broker.welcome(true).await;
        let old = expect_unsubscribe(&mut peer, "old").await;
        peer.send(unsuback(old, code)).await;
        peer.grant(1).await;
        connected(&mut source).await;
        let (granted, refused) = subscribed(&mut source).await;
        let refused: Vec<_> = refused.iter().map(|(filter, fault)| (filter.as_str(), fault.code)).collect();
        assert_eq!((granted, refused), (1, refusals));
        // What was wanted is all there.
        assert!(source.status().get().subscribed);
        drop(peer);
        disconnected(&mut source).await;
    }
    let noted: Vec<_> = gate.asked().into_iter().filter(|asked| matches!(asked, Asked::Unsubscribed(_))).collect();
    assert_eq!(noted, [Asked::Unsubscribed("old".into())]);
}

#[tokio::test]
async fn a_gate_that_knows_no_history_ends_the_connection_and_nothing_is_subscribed() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::open();
    let unknown = Fault::new(FaultCode::InvalidConfig, "nobody knows what this session subscribed to");
    *gate.subscribe.lock().unwrap() = Err(unknown.clone());
    let mut source = source(gated(broker.port, &[("a", "r")], &gate));
    for _ in 0..3 {
        let peer = broker.welcome(true).await;
        connected(&mut source).await;
        assert_eq!(disconnected(&mut source).await.0, unknown);
        assert_eq!(peer.rest().await, []);
    }
    gate.stale(&[]);
    let _peer = broker.serve(true).await;
    connected(&mut source).await;
    assert_eq!(subscribed(&mut source).await, (1, vec![]));
}

#[tokio::test]
async fn a_gate_that_never_says_what_is_stale_is_a_fault_and_holds_no_close_up() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::silent();
    let mut wanted = gated(broker.port, &[("a", "r")], &gate);
    wanted.reconcile_timeout = Duration::from_millis(100);
    let mut impatient = source(wanted.clone());
    gate.answer(1);
    let peer = broker.welcome(true).await;
    connected(&mut impatient).await;
    assert_eq!(disconnected(&mut impatient).await.0.code, FaultCode::Timeout);
    assert_eq!(peer.rest().await, []);
    impatient.close(PATIENCE).await;
    wanted.reconcile_timeout = PATIENCE * 20;
    let mut patient = source(wanted);
    gate.answer(1);
    let peer = broker.welcome(true).await;
    connected(&mut patient).await;
    eventually(|| gate.asked().last() == Some(&SUBSCRIBE)).await;
    let reading = tokio::spawn(peer.rest());
    timeout(PATIENCE, patient.close(PATIENCE * 10)).await.expect("the gate held up the close");
    assert_eq!(reading.await.unwrap(), [Sent::Disconnect(0)]);
}

#[tokio::test]
async fn a_broker_that_never_answers_an_unsubscription_is_left() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::open();
    gate.stale(&["old"]);
    let mut wanted = gated(broker.port, &[("a", "r")], &gate);
    wanted.reconcile_timeout = Duration::from_millis(200);
    let mut source = source(wanted);
    let mut peer = broker.welcome(true).await;
    expect_unsubscribe(&mut peer, "old").await;
    peer.grant(1).await;
    connected(&mut source).await;
    assert_eq!(disconnected(&mut source).await.0.code, FaultCode::Timeout);
}

/// More than the client takes at once: the order holds all the same.
#[tokio::test]
async fn many_stale_filters_all_go_before_the_first_wanted_one() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::open();
    let old: BTreeSet<String> = (0..700).map(|n| format!("old/{n}")).collect();
    *gate.subscribe.lock().unwrap() = Ok(old.clone());
    let mut source = source(gated(broker.port, &[("a", "r"), ("b", "r")], &gate));
    let mut peer = broker.welcome(true).await;
    for filter in &old {
        let id = expect_unsubscribe(&mut peer, filter).await;
        peer.send(unsuback(id, 0)).await;
    }
    peer.grant(2).await;
    connected(&mut source).await;
    assert_eq!(subscribed(&mut source).await, (2, vec![]));
    eventually(|| gate.asked().len() == 702).await;
    let noted: BTreeSet<String> =
        gate.asked().into_iter().filter_map(|asked| if let Asked::Unsubscribed(filter) = asked { Some(filter) } else { None }).collect();
    assert_eq!(noted, old);
}

#[tokio::test]
async fn mosquitto_confirms_what_was_subscribed_and_what_was_not() {
    let broker = Mosquitto::start().await;
    let mut before = source(options(broker.port, &[("old/#", "r"), ("a", "r"), ("$share/g/old/#", "r")]));
    ready(&mut before).await;
    before.close(PATIENCE).await;
    let gate = Gate::open();
    gate.stale(&["$share/g/old/#", "never", "old/#"]);
    let mut source = source(gated(broker.port, &[("a", "r")], &gate));
    assert!(connected(&mut source).await.1);
    assert_eq!(subscribed(&mut source).await, (1, vec![]));
    let noted = ["$share/g/old/#", "never", "old/#"].map(|filter| Asked::Unsubscribed(filter.into()));
    eventually(|| gate.asked().len() == 5).await;
    assert_eq!(gate.asked()[2..], noted);
    let mut publisher = Publisher::connect(broker.port).await;
    publisher.publish(&Publish::new("old/x", 1, "unwanted")).await;
    publisher.publish(&Publish::new("a", 1, "wanted")).await;
    assert_eq!(text(&delivery(&mut source).await), "wanted");
}

/// The successor has the lease: the one before sees its connection end, asks, and stays away.
#[tokio::test]
async fn whoever_lost_the_lease_never_throws_the_successor_out() {
    let broker = Mosquitto::start().await;
    let (lost, held) = (Gate::open(), Gate::open());
    let mut before = source(gated(broker.port, &[("a", "r")], &lost));
    ready(&mut before).await;
    lost.refuse_to_connect();
    let mut successor = source(gated(broker.port, &[("a", "r")], &held));
    ready(&mut successor).await;
    assert_eq!(disconnected(&mut before).await.0.code, FaultCode::ConnectionLost);
    let mut publisher = Publisher::connect(broker.port).await;
    for n in 0..20 {
        assert_eq!(disconnected(&mut before).await.0, refusal());
        publisher.publish(&Publish::new("a", 1, n.to_string())).await;
        let delivery = any_delivery(&mut successor).await;
        assert_eq!(text(&delivery), n.to_string());
        successor.acknowledge(delivery.id);
    }
    assert_eq!((before.counters().reconnects, successor.counters().reconnects), (0, 0));
}
