//! What a publisher makes of every answer of a broker, and what it tells of its connection.

use crate::broker::{Peer, ScriptedBroker};
use crate::packets::{Publish, Sent, connack, packet, puback};
use crate::publishing::{PATIENCE, entry, sending, sink, sink_options};
use crate::support::options;
use causeway_core::flow::sender::SenderLink;
use causeway_core::outcome::{FaultClass, FaultCode, Outcome};
use causeway_mqtt::{Marks, MqttPublisher, MqttSink, Protocol, PublisherOptions, SourceOptions};
use causeway_ports::Sink;
use causeway_ports::fake::FakeClock;
use core::time::Duration;
use std::sync::Arc;

async fn published(peer: &mut Peer) -> Publish {
    loop {
        match peer.next().await.expect("closed before anything was published") {
            Sent::Publish(publish) => return publish,
            Sent::Ping => peer.send(vec![0xd0, 0]).await,
            other => panic!("expected PUBLISH, got {other:?}"),
        }
    }
}

fn link(sink: &Arc<MqttSink>) -> SenderLink {
    *sink.link().unwrap().borrow()
}

async fn link_becomes(sink: &Arc<MqttSink>, wanted: impl FnMut(&SenderLink) -> bool) -> SenderLink {
    let mut link = sink.link().unwrap();
    *tokio::time::timeout(PATIENCE, link.wait_for(wanted)).await.expect("the link never tells that").unwrap()
}

/// Every reason of a PUBACK: whether it is done, how it is handled if not, and whether the broker asks for less.
#[tokio::test]
async fn flow_every_reason_of_an_acknowledgement_has_its_reaction() {
    let expected: [(u8, Option<FaultClass>, bool); 9] = [
        (0x00, None, false),
        (0x10, None, false),
        (0x80, Some(FaultClass::Transient), false),
        (0x83, Some(FaultClass::Transient), false),
        (0x87, Some(FaultClass::Permanent), false),
        (0x90, Some(FaultClass::Rejected), false),
        (0x91, Some(FaultClass::Transient), false),
        (0x97, Some(FaultClass::Transient), true),
        (0x99, Some(FaultClass::Rejected), false),
    ];
    let broker = ScriptedBroker::new().await;
    let sink = sink(broker.port);
    let send = sending(&sink, (0..9).map(|n| entry(n, vec![u8::try_from(n).unwrap()])).collect());
    let mut peer = broker.welcome(false).await;
    for (code, _, _) in expected {
        let publish = published(&mut peer).await;
        peer.send(puback(publish.id, code)).await;
    }
    for (outcome, (code, class, throttles)) in send.await.unwrap().iter().zip(expected) {
        let (found, throttled) = match outcome {
            Outcome::Done(()) => (None, false),
            Outcome::NotDone(fault) => (Some(fault.code.class()), fault.code == FaultCode::Throttled),
            Outcome::Unknown(fault) => panic!("0x{code:02x}: {fault}"),
        };
        assert_eq!((found, throttled), (class, throttles), "0x{code:02x}");
    }
    let counted: Vec<(u8, u64)> = expected.iter().map(|(code, ..)| (*code, 1)).collect();
    assert_eq!(sink.answers(), counted, "each is counted");
}

/// Every reason of a DISCONNECT that says something of a publisher: whether the broker asks for less, and how what was under way is handled.
#[tokio::test]
async fn flow_every_reason_of_a_disconnect_has_its_reaction() {
    for (code, throttles, expected) in [
        (0x89, true, FaultCode::Unavailable),
        (0x8b, false, FaultCode::Unavailable),
        (0x8e, false, FaultCode::ConnectionLost),
        (0x93, false, FaultCode::ConnectionLost),
        (0x96, true, FaultCode::Throttled),
        (0x97, true, FaultCode::Throttled),
        (0x9c, false, FaultCode::InvalidConfig),
        (0x9d, false, FaultCode::InvalidConfig),
        (0x9f, true, FaultCode::Throttled),
    ] {
        let broker = ScriptedBroker::new().await;
        let sink = sink(broker.port);
        let send = sending(&sink, vec![entry(1, "x"), entry(2, "y")]);
        let mut peer = broker.welcome(false).await;
        published(&mut peer).await;
        published(&mut peer).await;
        peer.try_send(&packet(0xe0, &[code, 0])).await;
        for outcome in send.await.unwrap() {
            assert!(matches!(&outcome, Outcome::Unknown(fault) if fault.code == expected), "0x{code:02x}: {outcome:?}");
        }
        let told = link_becomes(&sink, |link| link.up == Some(false)).await;
        assert_eq!((told.throttles, told.pending_bytes), (u64::from(throttles), 0), "0x{code:02x}");
    }
}

/// What the broker says was too much ahead is taken for half, from the next connection on.
#[tokio::test]
async fn flow_a_broker_that_was_sent_too_much_ahead_is_sent_half() {
    let broker = ScriptedBroker::new().await;
    let sink = crate::publishing::sink_with(broker.port, 4, sink_options(), Arc::new(FakeClock::new()));
    let send = sending(&sink, vec![entry(1, "x")]);
    let mut peer = broker.welcome(false).await;
    published(&mut peer).await;
    peer.try_send(&packet(0xe0, &[0x93, 0])).await;
    send.await.unwrap();
    drop(peer);
    let again = tokio::spawn({
        let sink = Arc::clone(&sink);
        let batch: Vec<_> = (0..4).map(|n| entry(n, "x")).collect();
        async move {
            loop {
                let outcomes = sink.send(&batch, PATIENCE).await;
                if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Done(()))) {
                    return outcomes;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
    let mut peer = broker.welcome(false).await;
    let first = published(&mut peer).await;
    published(&mut peer).await;
    assert!(peer.is_quiet().await, "two ahead, no longer four");
    peer.send(puback(first.id, 0)).await;
    published(&mut peer).await;
    again.abort();
}

/// A broker of MQTT 3.1.1 that closes right after a message has no other way to say that it is too much; one that closes later has gone.
#[tokio::test]
async fn flow_a_broker_of_3_1_1_that_hangs_up_over_a_message_asks_for_less() {
    for (protocol, pause, throttles) in [(Protocol::V311, 0, 1), (Protocol::V311, 1_500, 0), (Protocol::V5, 0, 0)] {
        let broker = ScriptedBroker::new().await;
        let connection = SourceOptions { client_id: "publisher-1".into(), protocol, ..options(broker.port, &[]) };
        let options = PublisherOptions { connection, window: 10, marks: Marks::default() };
        let publisher = Arc::new(MqttPublisher::start(options, 7).unwrap());
        let sink = Arc::new(MqttSink::new(publisher, sink_options(), Arc::new(FakeClock::new())));
        let send = sending(&sink, vec![entry(1, "x")]);
        let mut peer = broker.accept_any().await;
        peer.send(if protocol == Protocol::V311 { vec![0x20, 2, 0, 0] } else { connack(false, 0, &[]) }).await;
        peer.skip_packet().await;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        drop(peer);
        assert!(matches!(&send.await.unwrap()[0], Outcome::Unknown(_)), "the attempt counts as ever");
        assert_eq!(link_becomes(&sink, |link| link.up == Some(false)).await.throttles, throttles, "{protocol:?} after {pause} ms");
    }
}

/// A broker that stops reading: no more is given to the connection than the mark and one packet, whoever looks is told, and once it reads again everything
/// arrives.
#[tokio::test]
async fn flow_a_broker_that_stops_reading_is_given_no_more_than_the_mark_and_one_packet() {
    const PAYLOAD: usize = 100_000;
    let broker = ScriptedBroker::new().await;
    let marks = Marks { high: 1_000_000, low: 500_000 };
    let connection = SourceOptions { client_id: "publisher-1".into(), ..options(broker.port, &[]) };
    let publisher = Arc::new(MqttPublisher::start(PublisherOptions { connection, window: 1_000, marks }, 7).unwrap());
    let sink = Arc::new(MqttSink::new(publisher, sink_options(), Arc::new(FakeClock::new())));
    let sends: Vec<_> =
        (0..4).map(|batch: u128| sending(&sink, (0..60).map(|n| entry(batch * 100 + n, vec![b'x'; PAYLOAD])).collect())).collect();
    let mut peer = broker.welcome(false).await;
    let told = link_becomes(&sink, |link| link.pending_bytes > marks.high).await;
    assert!(told.pending_bytes <= marks.high + PAYLOAD as u64 + 1_000, "{told:?}");
    let mut most = 0;
    for _ in 0..240 {
        let publish = published(&mut peer).await;
        most = most.max(link(&sink).pending_bytes);
        peer.send(puback(publish.id, 0)).await;
    }
    assert!(most <= marks.high + PAYLOAD as u64 + 1_000, "{most}");
    for send in sends {
        assert!(send.await.unwrap().iter().all(|outcome| *outcome == Outcome::Done(())));
    }
    assert_eq!(link_becomes(&sink, |link| link.pending_bytes < marks.low).await.up, Some(true));
}
