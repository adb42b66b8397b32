//! The doubles behave as what they stand for.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use bytes::Bytes;
use causeway_core::identity::Id128;
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::fake::{FakeBroker, FakeClock, FakeDeadLetters, FakeSink, FakeSource, SinkAnswer};
use causeway_ports::{Clock, ConnectionEpoch, DeadLetters, Delivery, DeliveryId, Sink, SinkLimits, Source, SourceEvent};
use futures_util::FutureExt as _;
use std::sync::Arc;
use std::time::Duration;

mod dead_letters {
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn causeway_ports::DeadLetters>, ()) {
        (Arc::new(causeway_ports::fake::FakeDeadLetters::new()), ())
    }
    causeway_ports::dead_letters_conformance!(fresh);
}

/// The double keeps the contract of what it stands for.
mod sink {
    use super::*;
    use async_trait::async_trait;
    use causeway_ports::conformance::sink::{Arrived, Destination};

    struct Fake(FakeSink);

    #[async_trait]
    impl Destination for Fake {
        fn sink(&self) -> &dyn Sink {
            &self.0
        }

        fn astray(&self) -> Box<dyn Sink> {
            let nobody = FakeSink::default();
            nobody.answer_by(|_, _| SinkAnswer::LoseRequest);
            nobody.set_probe(Some(fault()));
            Box::new(nobody)
        }

        async fn arrived(&self, count: usize) -> Vec<Arrived> {
            self.0.accepted_at_least(count).await;
            let told = |entry: &Arc<Entry>| Arrived {
                id: entry.id.to_string(),
                payload: entry.message.payload.clone(),
                properties: entry.message.properties.clone(),
            };
            self.0.accepted().iter().map(told).collect()
        }
    }

    async fn fresh() -> (Arc<dyn Destination>, ()) {
        (Arc::new(Fake(FakeSink::default())), ())
    }
    causeway_ports::sink_conformance!(fresh);
}

fn fault() -> Fault {
    Fault::new(FaultCode::Unavailable, "out of order")
}

/// The next delivery; what is reported before it is passed over.
async fn delivery(source: &mut FakeSource) -> Delivery {
    loop {
        if let SourceEvent::Delivery(delivery) = source.next().await {
            return delivery;
        }
    }
}

async fn topics(source: &mut FakeSource, count: usize) -> Vec<String> {
    let mut topics = Vec::new();
    for _ in 0..count {
        topics.push(delivery(source).await.message.topic);
    }
    topics
}

fn id(connection: u64, ordinal: u64) -> DeliveryId {
    DeliveryId { connection: ConnectionEpoch(connection), ordinal }
}

#[tokio::test]
async fn a_source_connects_subscribes_and_delivers_in_order() {
    let broker = FakeBroker::new();
    broker.publish_text("r", "a", "1");
    let mut source = broker.source();
    broker.publish_text("r", "b", "2");
    assert!(matches!(source.next().await, SourceEvent::Connected { connection: ConnectionEpoch(1), session_present: false }));
    assert!(matches!(source.next().await, SourceEvent::Subscribed { granted: 1, .. }));
    let first = delivery(&mut source).await;
    assert_eq!((first.id, &*first.receiver, first.message.topic.as_str()), (id(1, 1), "r", "a"));
    assert_eq!(delivery(&mut source).await.id, id(1, 2));
    assert!(source.next().now_or_never().is_none(), "there is nothing more");
    assert_eq!(source.counters().unacknowledged, 2);
    source.acknowledge(id(1, 2));
    broker.all_acknowledged().await;
    assert_eq!(broker.watermarks(), [id(1, 2)]);
    assert_eq!((source.counters().acknowledged, source.counters().unacknowledged_peak), (2, 2));
}

#[tokio::test]
async fn what_was_unacknowledged_comes_again_first_and_in_order() {
    let broker = FakeBroker::new();
    let mut source = broker.source();
    for topic in ["a", "b", "c", "d"] {
        broker.publish_text("r", topic, "");
    }
    assert_eq!(topics(&mut source, 3).await, ["a", "b", "c"]);
    source.acknowledge(id(1, 1));
    broker.disconnect();
    assert!(matches!(source.next().await, SourceEvent::Disconnected { connection: ConnectionEpoch(1), .. }));
    assert!(source.next().now_or_never().is_none(), "nothing is delivered without a connection");
    broker.reconnect(true);
    assert!(matches!(source.next().await, SourceEvent::Connected { connection: ConnectionEpoch(2), session_present: true }));
    assert_eq!(topics(&mut source, 3).await, ["b", "c", "d"]);
    // An acknowledgement of the former connection does nothing.
    source.acknowledge(id(1, 3));
    assert_eq!((broker.held(), broker.ignored_acknowledgements()), (3, vec![id(1, 3)]));
    source.acknowledge(id(2, 3));
    assert_eq!(broker.held(), 0);
    assert_eq!(source.counters().reconnects, 1);
}

#[tokio::test]
async fn a_crashed_source_leaves_its_messages_to_the_next() {
    let broker = FakeBroker::new();
    let mut source = broker.source();
    broker.publish_text("r", "a", "");
    broker.publish("r", Message { topic: "once".to_owned(), qos: 0, ..Message::default() });
    broker.publish_text("r", "b", "");
    assert_eq!(topics(&mut source, 3).await, ["a", "once", "b"]);
    drop(source);
    let mut next = broker.source();
    assert!(matches!(next.next().await, SourceEvent::Connected { connection: ConnectionEpoch(1), session_present: true }));
    assert_eq!(topics(&mut next, 2).await, ["a", "b"], "quality of service 0 comes once");
    assert_eq!(next.counters().received, 2);
}

#[tokio::test]
async fn a_source_that_was_taken_over_gets_nothing_more() {
    let broker = FakeBroker::new();
    let mut first = broker.source();
    broker.publish_text("r", "a", "");
    assert_eq!(topics(&mut first, 1).await, ["a"]);
    let mut second = broker.source();
    assert!(matches!(first.next().await, SourceEvent::Closed));
    first.acknowledge(id(1, 1));
    assert_eq!(topics(&mut second, 1).await, ["a"]);
    drop(first);
    second.acknowledge(id(1, 1));
    broker.all_acknowledged().await;
}

#[tokio::test]
async fn a_lost_session_loses_what_waited() {
    let broker = FakeBroker::new();
    let mut source = broker.source();
    assert!(matches!(source.next().await, SourceEvent::Connected { session_present: false, .. }));
    assert!(matches!(source.next().await, SourceEvent::Subscribed { .. }));
    broker.disconnect();
    broker.refuse(fault());
    broker.publish_text("r", "a", "");
    broker.reconnect(false);
    assert!(matches!(source.next().await, SourceEvent::Disconnected { .. }));
    assert!(matches!(source.next().await, SourceEvent::Disconnected { fault: refused, .. } if refused == fault()));
    assert!(matches!(source.next().await, SourceEvent::Connected { connection: ConnectionEpoch(2), session_present: false }));
    assert_eq!(broker.held(), 0);
    let counters = source.counters();
    assert_eq!((counters.sessions_lost, counters.connect_failures, counters.reconnects), (1, 1, 1));
}

#[tokio::test]
async fn a_paused_source_leaves_messages_with_the_broker_and_so_does_a_full_window() {
    let broker = FakeBroker::new();
    broker.set_receive_maximum(2);
    let mut source = broker.source();
    for topic in ["a", "b", "c"] {
        broker.publish_text("r", topic, "");
    }
    assert_eq!(topics(&mut source, 2).await, ["a", "b"]);
    assert!(source.next().now_or_never().is_none(), "the window is full");
    source.pause(true);
    assert!(broker.is_paused());
    source.acknowledge(id(1, 2));
    assert!(source.next().now_or_never().is_none(), "it is paused");
    source.pause(false);
    assert_eq!(topics(&mut source, 1).await, ["c"]);
    source.close(Duration::ZERO).await;
    assert!(matches!(source.next().await, SourceEvent::Closed));
    assert_eq!(broker.held(), 1, "the session keeps what was not acknowledged");
}

fn entry(id: u128, payload: &str) -> Arc<Entry> {
    Arc::new(Entry {
        id: Id128(id),
        route: "r".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "s".into(),
        received_at: UnixMillis(0),
        expires_at: None,
        redrive: None,
        message: Message { payload: Bytes::copy_from_slice(payload.as_bytes()), ..Message::default() },
    })
}

#[tokio::test]
async fn a_sink_answers_each_entry_by_script_then_by_rule() {
    let sink = FakeSink::default();
    sink.script([SinkAnswer::Accept, SinkAnswer::Refuse(fault()), SinkAnswer::AcceptAndLoseAnswer, SinkAnswer::LoseRequest]);
    sink.answer_by(|entry, attempt| if entry.id.0 == 5 && attempt == 1 { SinkAnswer::LoseRequest } else { SinkAnswer::Accept });
    let batch: Vec<Arc<Entry>> = (1..=5).map(|n| entry(n, "x")).collect();
    let answers = sink.send(&batch, Duration::from_secs(1)).await;
    assert!(matches!(
        &answers[..],
        [Outcome::Done(()), Outcome::NotDone(_), Outcome::Unknown(_), Outcome::Unknown(_), Outcome::Unknown(_)]
    ));
    assert_eq!(sink.send(&batch[4..], Duration::from_secs(1)).await, [Outcome::Done(())], "the rule saw its second attempt");
    let accepted: Vec<u128> = sink.accepted().iter().map(|entry| entry.id.0).collect();
    assert_eq!(accepted, [1, 3, 5]);
    assert_eq!((sink.requests(), sink.batches().len()), (2, 2));
}

#[tokio::test]
async fn a_sink_refuses_batches_beyond_its_limits() {
    let sink = FakeSink::new(SinkLimits { batch_entries: 2, batch_bytes: 5, entry_bytes: 3 });
    for batch in [vec![entry(1, "a"), entry(2, "b"), entry(3, "c")], vec![entry(1, "abc"), entry(2, "def")], vec![entry(1, "abcd")]] {
        let answers = sink.send(&batch, Duration::from_secs(1)).await;
        assert_eq!(answers.len(), batch.len());
        assert!(answers.iter().all(|answer| matches!(answer, Outcome::NotDone(_))));
    }
    assert!(sink.accepted().is_empty());
}

#[tokio::test]
async fn a_shut_sink_makes_sends_wait_until_it_opens_or_their_time_is_up() {
    let sink = Arc::new(FakeSink::default());
    sink.shut();
    let sending = {
        let sink = Arc::clone(&sink);
        tokio::spawn(async move { sink.send(&[entry(1, "x")], Duration::from_secs(60)).await })
    };
    sink.waiting_at_least(1).await;
    assert!(sink.accepted().is_empty());
    sink.open();
    assert_eq!(sending.await.unwrap(), [Outcome::Done(())]);
    sink.shut();
    let late = sink.send(&[entry(2, "x")], Duration::from_millis(20)).await;
    assert!(matches!(&late[..], [Outcome::Unknown(fault)] if fault.code == FaultCode::Timeout));
    assert_eq!(sink.accepted().len(), 1);
}

#[tokio::test]
async fn dead_letters_can_be_refused_and_their_answers_lost() {
    let letter = causeway_core::dead_letter::DeadLetter::new(&entry(1, "x"), &Default::default(), &fault(), 1, UnixMillis(5));
    let store = FakeDeadLetters::new();
    store.refuse(Some(fault()));
    assert!(matches!(store.park(&letter).await, Outcome::NotDone(_)));
    assert!(store.probe().await.is_err());
    store.refuse(None);
    assert!(store.letters().is_empty());
    store.lose_answers(1);
    assert!(matches!(store.park(&letter).await, Outcome::Unknown(_)));
    assert_eq!(store.park(&letter).await, Outcome::Done(()));
    assert_eq!((store.letters(), store.parks()), (vec![letter], 3));
}

#[test]
fn a_clock_moves_only_by_hand() {
    let clock = FakeClock::new();
    let (now, wall) = (clock.now(), clock.wall());
    assert_eq!((clock.now(), clock.wall()), (now, wall));
    clock.advance(Duration::from_millis(1_500));
    assert_eq!((clock.now().since(now), clock.wall().since(wall)), (Duration::from_millis(1_500), Duration::from_millis(1_500)));
    clock.set_wall(UnixMillis(7));
    assert_eq!((clock.now().since(now), clock.wall()), (Duration::from_millis(1_500), UnixMillis(7)));
}
