//! The publisher against a broker that does exactly what the test says.

use crate::broker::{Peer, ScriptedBroker};
use crate::packets::{Publish, Sent, connack, packet, puback, text_property, user_property};
use crate::support::options;
use bytes::Bytes;
use causeway_core::identity::Id128;
use causeway_core::message::{Entry, Message, Properties};
use causeway_core::outcome::{FaultClass, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_mqtt::{Marks, MqttPublisher, MqttSink, MqttSinkOptions, PublisherOptions, SourceOptions};
use causeway_ports::fake::FakeClock;
use causeway_ports::{Clock, Sink};
use core::time::Duration;
use std::sync::Arc;
use tokio::task::JoinHandle;

pub const PATIENCE: Duration = Duration::from_secs(60);
/// Receive Maximum and Maximum Packet Size of a CONNACK.
const RECEIVE_MAXIMUM: u8 = 0x21;
const MAXIMUM_QOS: u8 = 0x24;
const RETAIN_AVAILABLE: u8 = 0x25;
const MAXIMUM_PACKET: u8 = 0x27;

pub fn entry(id: u128, payload: impl Into<Bytes>) -> Arc<Entry> {
    with(id, payload, Properties::default())
}

pub fn with(id: u128, payload: impl Into<Bytes>, properties: Properties) -> Arc<Entry> {
    Arc::new(Entry {
        id: Id128(id),
        route: "r".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "s".into(),
        received_at: UnixMillis(1_700_000_000_000),
        expires_at: None,
        message: Message { topic: format!("in/{id}"), payload: payload.into(), qos: 1, properties, ..Message::default() },
        redrive: None,
    })
}

pub fn sink_options() -> MqttSinkOptions {
    MqttSinkOptions { topic: "out/a".into(), qos: 1, retain: false, throttle_retry_after: Duration::from_millis(500) }
}

pub fn sink_with(port: u16, window: u16, wanted: MqttSinkOptions, clock: Arc<dyn Clock>) -> Arc<MqttSink> {
    // Not the subscribers' client id: a broker would close their connection.
    let connection = SourceOptions { client_id: "publisher-1".into(), ..options(port, &[]) };
    let publisher = MqttPublisher::start(PublisherOptions { connection, window, marks: Marks::default() }, 7).unwrap();
    Arc::new(MqttSink::new(Arc::new(publisher), wanted, clock))
}

pub fn sink(port: u16) -> Arc<MqttSink> {
    sink_with(port, 100, sink_options(), Arc::new(FakeClock::new()))
}

/// Sends in the background.
pub fn sending(sink: &Arc<MqttSink>, batch: Vec<Arc<Entry>>) -> JoinHandle<Vec<Outcome<()>>> {
    let sink = Arc::clone(sink);
    tokio::spawn(async move { sink.send(&batch, PATIENCE).await })
}

async fn published(peer: &mut Peer) -> Publish {
    loop {
        match peer.next().await.expect("closed before anything was published") {
            Sent::Publish(publish) => return publish,
            Sent::Ping => peer.send(vec![0xd0, 0]).await,
            other => panic!("expected PUBLISH, got {other:?}"),
        }
    }
}

fn not_done(outcome: &Outcome<()>) -> (FaultCode, Option<Duration>) {
    match outcome {
        Outcome::NotDone(fault) => (fault.code, fault.retry_after),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn a_publisher_connects_when_there_is_something_to_publish_and_keeps_no_session() {
    let broker = ScriptedBroker::new().await;
    let sink = sink(broker.port);
    assert!(!broker.has_caller().await, "nothing to publish, nothing to connect for");
    let properties = Properties { content_type: Some("t/x".into()), user: vec![("k".into(), "v".into())], ..Properties::default() };
    let send = sending(&sink, vec![with(1, "hello", properties)]);
    let (mut peer, connect) = broker.accept().await;
    let Sent::Connect { clean_start, session_expiry, .. } = connect else { panic!("{connect:?}") };
    assert_eq!((clean_start, session_expiry.unwrap_or(0)), (true, 0));
    peer.send(connack(false, 0, &[])).await;
    let got = published(&mut peer).await;
    let id = format!("{:032x}", 1);
    let properties = [text_property(0x03, b"t/x"), user_property("k", "v"), user_property("causeway.message_id", &id)];
    assert_eq!((&got.topic[..], &got.payload[..], got.qos, got.retain, got.dup), (&b"out/a"[..], &b"hello"[..], 1, false, false));
    for property in properties {
        assert!(got.properties.windows(property.len()).any(|window| window == property), "{property:?} in {:?}", got.properties);
    }
    peer.send(puback(got.id, 0)).await;
    assert_eq!(send.await.unwrap(), [Outcome::Done(())]);
    // The next message takes the same connection.
    let send = sending(&sink, vec![entry(2, "again")]);
    let got = published(&mut peer).await;
    peer.send(puback(got.id, 0x10)).await;
    assert_eq!(send.await.unwrap(), [Outcome::Done(())], "that nobody subscribes is no failure");
    assert_eq!(sink.requests(), 2);
}

#[tokio::test]
async fn every_entry_of_a_batch_has_the_outcome_of_its_own_acknowledgement() {
    let broker = ScriptedBroker::new().await;
    let sink = sink(broker.port);
    let send = sending(&sink, (0..7).map(|n| entry(n, vec![u8::try_from(n).unwrap()])).collect());
    let mut peer = broker.welcome(false).await;
    let mut all = Vec::new();
    for _ in 0..7 {
        all.push(published(&mut peer).await);
    }
    // In another order than they came.
    for (publish, reason) in all.iter().zip([0, 0x97, 0x87, 0x80, 0x90, 0x99, 0x10]).rev() {
        peer.send(puback(publish.id, reason)).await;
    }
    let outcomes = send.await.unwrap();
    assert_eq!((&outcomes[0], &outcomes[6]), (&Outcome::Done(()), &Outcome::Done(())));
    assert_eq!(not_done(&outcomes[1]), (FaultCode::Throttled, Some(Duration::from_millis(500))));
    let classes: Vec<FaultClass> = outcomes[2..6].iter().map(|outcome| not_done(outcome).0.class()).collect();
    assert_eq!(classes, [FaultClass::Permanent, FaultClass::Transient, FaultClass::Rejected, FaultClass::Rejected]);
}

#[tokio::test]
async fn no_more_is_in_flight_than_the_broker_takes() {
    let broker = ScriptedBroker::new().await;
    let sink = sink(broker.port);
    let send = sending(&sink, (0..5).map(|n| entry(n, "x")).collect());
    let (mut peer, _) = broker.accept().await;
    peer.send(connack(false, 0, &[RECEIVE_MAXIMUM, 0, 2])).await;
    let mut waiting = vec![published(&mut peer).await, published(&mut peer).await];
    for _ in 0..3 {
        assert!(peer.is_quiet().await, "more than two were published without an acknowledgement");
        peer.send(puback(waiting.remove(0).id, 0)).await;
        waiting.push(published(&mut peer).await);
    }
    for publish in waiting {
        peer.send(puback(publish.id, 0)).await;
    }
    assert_eq!(send.await.unwrap(), vec![Outcome::Done(()); 5]);
}

#[tokio::test]
async fn what_a_lost_connection_did_not_acknowledge_is_unknown_and_what_it_never_had_is_not_done() {
    let broker = ScriptedBroker::new().await;
    let sink = sink_with(broker.port, 2, sink_options(), Arc::new(FakeClock::new()));
    let send = sending(&sink, (0..4).map(|n| entry(n, "x")).collect());
    let mut peer = broker.welcome(false).await;
    let first = published(&mut peer).await;
    published(&mut peer).await;
    peer.send(puback(first.id, 0)).await;
    published(&mut peer).await;
    drop(peer);
    let outcomes = send.await.unwrap();
    assert_eq!(outcomes[0], Outcome::Done(()));
    for outcome in &outcomes[1..3] {
        assert!(matches!(outcome, Outcome::Unknown(fault) if fault.code == FaultCode::ConnectionLost), "{outcome:?}");
    }
    // The last one waited for its turn, and is told when to come again.
    let (code, retry_after) = not_done(&outcomes[3]);
    assert!(code.class() == FaultClass::Transient && retry_after.is_some(), "{outcomes:?}");
}

#[tokio::test]
async fn a_broker_that_cannot_be_reached_costs_a_refusal_and_a_pause() {
    let broker = ScriptedBroker::new().await;
    let port = broker.port;
    drop(broker);
    let sink = sink(port);
    let outcomes = sending(&sink, vec![entry(1, "x")]).await.unwrap();
    assert_eq!(not_done(&outcomes[0]).0, FaultCode::Unavailable);
    let outcomes = sending(&sink, vec![entry(1, "x")]).await.unwrap();
    assert_eq!(not_done(&outcomes[0]).0, FaultCode::Unavailable);
    assert_eq!(sink.requests(), 0);
}

#[tokio::test]
async fn what_the_broker_announced_that_it_does_not_take_is_refused_before_it_costs_the_connection() {
    let retained = MqttSinkOptions { retain: true, ..sink_options() };
    for (said, wanted, payload, expected) in [
        (vec![MAXIMUM_PACKET, 0, 0, 0, 100], sink_options(), 200, FaultCode::PayloadTooLarge),
        (vec![MAXIMUM_QOS, 0], sink_options(), 1, FaultCode::InvalidConfig),
        (vec![RETAIN_AVAILABLE, 0], retained, 1, FaultCode::InvalidConfig),
    ] {
        let broker = ScriptedBroker::new().await;
        let sink = sink_with(broker.port, 10, wanted, Arc::new(FakeClock::new()));
        let send = sending(&sink, vec![entry(1, vec![b'x'; payload])]);
        let (mut peer, _) = broker.accept().await;
        peer.send(connack(false, 0, &said)).await;
        assert_eq!(not_done(&send.await.unwrap()[0]).0, expected);
        assert!(peer.is_quiet().await);
        if expected == FaultCode::PayloadTooLarge {
            assert_eq!(sink.limits().entry_bytes, 100, "the owner need not even try");
        }
    }
}

/// One that the broker ends the connection over takes others with it, once. From then on each goes alone until the culprit is found.
#[tokio::test]
async fn a_message_that_ends_the_connection_is_found_and_refused() {
    let broker = ScriptedBroker::new().await;
    let sink = sink(broker.port);
    let batch: Vec<Arc<Entry>> = (0..3).map(|n| entry(n, vec![u8::try_from(n).unwrap()])).collect();
    let send = sending(&sink, batch.clone());
    let mut peer = broker.welcome(false).await;
    for _ in 0..3 {
        published(&mut peer).await;
    }
    // DISCONNECT: packet too large.
    peer.try_send(&packet(0xe0, &[0x95, 0])).await;
    assert!(send.await.unwrap().iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))));
    drop(peer);

    let again = tokio::spawn({
        let (sink, batch) = (Arc::clone(&sink), batch.clone());
        async move {
            loop {
                let outcomes = sink.send(&batch, PATIENCE).await;
                // The pause after the loss refuses everything.
                if !matches!(&outcomes[0], Outcome::NotDone(_)) {
                    return outcomes;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
    let mut peer = broker.welcome(false).await;
    let first = published(&mut peer).await;
    assert!(peer.is_quiet().await, "one at a time");
    peer.send(puback(first.id, 0)).await;
    published(&mut peer).await;
    assert!(peer.is_quiet().await, "one at a time");
    // An answer that MQTT does not know, as some brokers give it for what is too large.
    peer.try_send(&puback(2, 0x95)).await;
    let outcomes = again.await.unwrap();
    assert_eq!(outcomes[0], Outcome::Done(()));
    assert_eq!(not_done(&outcomes[1]).0, FaultCode::Refused);
}

#[tokio::test]
async fn a_broker_that_never_acknowledges_is_left() {
    let broker = ScriptedBroker::new().await;
    let sink = sink(broker.port);
    let short = {
        let sink = Arc::clone(&sink);
        tokio::spawn(async move { sink.send(&[entry(1, "x")], Duration::from_secs(2)).await })
    };
    let mut peer = broker.welcome(false).await;
    published(&mut peer).await;
    let outcomes = short.await.unwrap();
    assert!(matches!(&outcomes[0], Outcome::Unknown(fault) if fault.code == FaultCode::Timeout), "{outcomes:?}");
    assert!(!peer.rest().await.iter().any(|sent| matches!(sent, Sent::Publish(_))), "the connection ends");
}

#[tokio::test]
async fn what_was_given_up_before_its_turn_is_never_published() {
    let broker = ScriptedBroker::new().await;
    let sink = sink_with(broker.port, 1, sink_options(), Arc::new(FakeClock::new()));
    let first = sending(&sink, vec![entry(1, "first")]);
    let mut peer = broker.welcome(false).await;
    let publish = published(&mut peer).await;
    let outcomes = sink.send(&[entry(2, "given up")], Duration::from_millis(50)).await;
    assert_eq!(not_done(&outcomes[0]).0, FaultCode::Timeout);
    let third = sending(&sink, vec![entry(3, "third")]);
    peer.send(puback(publish.id, 0)).await;
    let publish = published(&mut peer).await;
    assert_eq!(publish.payload, b"third");
    peer.send(puback(publish.id, 0)).await;
    assert_eq!((first.await.unwrap(), third.await.unwrap()), (vec![Outcome::Done(())], vec![Outcome::Done(())]));
}

#[tokio::test]
async fn with_quality_of_service_0_written_is_done() {
    let broker = ScriptedBroker::new().await;
    let sink = sink_with(broker.port, 10, MqttSinkOptions { qos: 0, retain: true, ..sink_options() }, Arc::new(FakeClock::new()));
    let send = sending(&sink, vec![entry(1, "x")]);
    let mut peer = broker.welcome(false).await;
    let publish = published(&mut peer).await;
    assert_eq!((publish.qos, publish.id, publish.retain), (0, 0, true));
    assert_eq!(send.await.unwrap(), [Outcome::Done(())]);
}

#[tokio::test]
async fn an_expired_or_invalid_message_costs_nothing_but_itself() {
    let broker = ScriptedBroker::new().await;
    let clock = Arc::new(FakeClock::new());
    let sink = sink_with(broker.port, 10, sink_options(), clock.clone());
    let expiring = |id| {
        let of_a_minute = with(id, "x", Properties { expiry_seconds: Some(60), ..Properties::default() });
        Arc::new(Entry { expires_at: Some(UnixMillis(clock.wall().0 + 60_000)), ..(*of_a_minute).clone() })
    };
    let (early, late) = (expiring(1), expiring(2));
    let invalid = with(3, "x", Properties { response_topic: Some("a/#".into()), ..Properties::default() });
    clock.advance(Duration::from_secs(45));
    let send = sending(&sink, vec![early, invalid]);
    let mut peer = broker.welcome(false).await;
    let publish = published(&mut peer).await;
    assert_eq!(publish.properties[..5], [0x02, 0, 0, 0, 15], "what remains of 60 s after 45 s");
    peer.send(puback(publish.id, 0)).await;
    let outcomes = send.await.unwrap();
    assert_eq!((&outcomes[0], not_done(&outcomes[1]).0), (&Outcome::Done(()), FaultCode::InvalidPayload));
    clock.advance(Duration::from_secs(15));
    assert_eq!(not_done(&sink.send(&[late], PATIENCE).await[0]).0, FaultCode::MessageExpired);
    assert!(peer.is_quiet().await);
}
