//! Against mosquitto.

use crate::mosquitto::Mosquitto;
use crate::packets::{Publish, Publisher, text_property, user_property};
use crate::support::{any_delivery, connected, delivery, eventually, id, next, options, ready, source, subscribed, text};
use causeway_core::message::Properties;
use causeway_mqtt::probe;
use causeway_ports::{Source, SourceEvent};
use core::time::Duration;
use std::collections::BTreeSet;

const DEADLINE: Duration = Duration::from_secs(30);

fn numbered(topic: &str, range: std::ops::Range<usize>) -> Vec<Publish> {
    range.map(|n| Publish::new(topic, 1, n.to_string())).collect()
}

/// Subscribes, so that the broker keeps a session, and goes away again.
async fn leave_a_session(port: u16, filters: &[(&str, &str)]) {
    let mut source = source(options(port, filters));
    ready(&mut source).await;
    source.close(DEADLINE).await;
}

#[tokio::test]
async fn everything_arrives_in_order_and_is_acknowledged() {
    let broker = Mosquitto::start().await;
    let mut source = source(options(broker.port, &[("plant/#", "r")]));
    assert_eq!(connected(&mut source).await, (causeway_ports::ConnectionEpoch(1), false));
    assert_eq!(subscribed(&mut source).await, (1, vec![]));
    let mut publisher = Publisher::connect(broker.port).await;
    let publishing = tokio::spawn(async move { publisher.publish_all(&numbered("plant/a", 0..20_000)).await });
    for n in 0..20_000 {
        let delivery = delivery(&mut source).await;
        assert_eq!((text(&delivery), &*delivery.receiver, delivery.id), (n.to_string(), "r", id(1, n + 1)));
        source.acknowledge(delivery.id);
    }
    assert!(publishing.await.unwrap().iter().all(|code| *code == 0));
    eventually(|| source.counters().acknowledged == 20_000).await;
    assert_eq!((source.counters().unacknowledged, source.counters().reconnects), (0, 0));
    source.close(DEADLINE).await;
    assert!(matches!(source.next().await, SourceEvent::Closed));
}

/// An orderly handover repeats nothing: what was acknowledged before the close is, and the rest comes to the successor.
#[tokio::test]
async fn an_orderly_close_repeats_nothing() {
    let broker = Mosquitto::start().await;
    leave_a_session(broker.port, &[("a", "r")]).await;
    Publisher::connect(broker.port).await.publish_all(&numbered("a", 0..3_000)).await;
    let mut seen = 0;
    for part in 0..6 {
        let mut source = source(options(broker.port, &[("a", "r")]));
        for _ in 0..500 {
            let delivery = any_delivery(&mut source).await;
            assert_eq!(text(&delivery), seen.to_string(), "part {part}");
            source.acknowledge(delivery.id);
            seen += 1;
        }
        source.close(DEADLINE).await;
    }
}

/// Processes that die at any moment lose nothing: what was not acknowledged comes again.
#[tokio::test]
async fn killed_consumers_lose_nothing() {
    let broker = Mosquitto::start().await;
    leave_a_session(broker.port, &[("a", "r")]).await;
    let mut publisher = Publisher::connect(broker.port).await;
    let publishing = tokio::spawn(async move { publisher.publish_all(&numbered("a", 0..5_000)).await });
    let mut missing: BTreeSet<String> = (0..5_000).map(|n| n.to_string()).collect();
    let mut round = 0;
    while !missing.is_empty() {
        let mut wanted = options(broker.port, &[("a", "r")]);
        wanted.receive_maximum = 100;
        let mut source = source(wanted);
        round += 1;
        for _ in 0..(300 + round % 7) {
            let delivery = any_delivery(&mut source).await;
            missing.remove(&text(&delivery));
            if missing.is_empty() {
                break;
            }
            source.acknowledge(delivery.id);
        }
        drop(source);
    }
    assert!(round > 5, "{round}");
    publishing.await.unwrap();
}

/// The broker forgets shared subscriptions over a restart although it says that the session is present; messages queued before must still come, and
/// messages published afterwards too.
#[tokio::test]
async fn shared_subscriptions_survive_a_broker_restart() {
    let mut broker = Mosquitto::start().await;
    leave_a_session(broker.port, &[("$share/g/a/#", "r")]).await;
    Publisher::connect(broker.port).await.publish_all(&numbered("a/x", 0..100)).await;
    broker.stop();
    broker.start_again().await;
    let mut source = source(options(broker.port, &[("$share/g/a/#", "r")]));
    assert!(connected(&mut source).await.1, "the session was not kept");
    for n in 0..100 {
        let delivery = any_delivery(&mut source).await;
        assert_eq!(text(&delivery), n.to_string());
        source.acknowledge(delivery.id);
    }
    let status = source.status();
    eventually(|| status.get().subscribed).await;
    Publisher::connect(broker.port).await.publish_all(&numbered("a/x", 100..200)).await;
    for n in 100..200 {
        let delivery = any_delivery(&mut source).await;
        assert_eq!(text(&delivery), n.to_string());
        source.acknowledge(delivery.id);
    }
}

#[tokio::test]
async fn a_running_source_outlives_a_broker_restart() {
    let mut broker = Mosquitto::start().await;
    let mut source = source(options(broker.port, &[("a", "r"), ("$share/g/b", "s")]));
    ready(&mut source).await;
    for round in 0..3 {
        broker.stop();
        while !matches!(next(&mut source).await, SourceEvent::Disconnected { .. }) {}
        broker.start_again().await;
        ready(&mut source).await;
        let mut publisher = Publisher::connect(broker.port).await;
        publisher.publish(&Publish::new("a", 1, round.to_string())).await;
        publisher.publish(&Publish::new("b", 1, round.to_string())).await;
        for receiver in ["r", "s"] {
            let delivery = any_delivery(&mut source).await;
            assert_eq!((text(&delivery), &*delivery.receiver), (round.to_string(), receiver));
            source.acknowledge(delivery.id);
        }
        eventually(|| source.counters().unacknowledged == 0).await;
    }
    assert_eq!((source.counters().reconnects, source.counters().sessions_lost), (3, 0));
}

/// A broker that lost its state says so, and that is counted.
#[tokio::test]
async fn a_broker_that_lost_the_session_is_noticed() {
    let broker = Mosquitto::start().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.first_connection_expected_new = false;
    let mut source = source(wanted);
    ready(&mut source).await;
    assert_eq!(source.counters().sessions_lost, 1);
}

#[tokio::test]
async fn what_is_published_while_the_client_is_away_arrives() {
    let broker = Mosquitto::start().await;
    leave_a_session(broker.port, &[("a", "r")]).await;
    Publisher::connect(broker.port).await.publish_all(&numbered("a", 0..30)).await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    assert!(connected(&mut source).await.1);
    for n in 0..30 {
        assert_eq!(text(&any_delivery(&mut source).await), n.to_string());
    }
}

/// mosquitto 2.0.11 sends ever more than the announced window once there is a backlog; newer ones keep to it. Nothing may be lost with either.
#[tokio::test]
async fn a_backlog_larger_than_the_window_arrives_in_order() {
    let broker = Mosquitto::start().await;
    leave_a_session(broker.port, &[("a", "r")]).await;
    Publisher::connect(broker.port).await.publish_all(&numbered("a", 0..5_000)).await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.receive_maximum = 20;
    let mut source = source(wanted);
    let mut expected = 0;
    while expected < 5_000 {
        match next(&mut source).await {
            SourceEvent::Delivery(delivery) => {
                let n: usize = text(&delivery).parse().unwrap();
                assert!(n <= expected, "{n} came before {expected}");
                expected = expected.max(n + 1);
                source.acknowledge(delivery.id);
            }
            SourceEvent::Closed => panic!("closed"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn payloads_of_every_size_arrive_byte_by_byte() {
    let broker = Mosquitto::start().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    ready(&mut source).await;
    let mut publisher = Publisher::connect(broker.port).await;
    for size in [0, 1, 10_239, 10_241, 20_000, 131_072, 262_144] {
        let payload: Vec<u8> = (0..size).map(|n| [0xa0, 0xa1][n % 2]).collect();
        assert_eq!(publisher.publish(&Publish::new("a", 1, &payload)).await, 0);
        let delivery = delivery(&mut source).await;
        assert!(delivery.message.payload == payload, "{size} bytes");
        source.acknowledge(delivery.id);
    }
    assert_eq!(source.counters().poison_packets, 0);
}

#[tokio::test]
async fn properties_travel_through_the_broker() {
    let broker = Mosquitto::start().await;
    let mut source = source(options(broker.port, &[("a", "r"), ("$share/g/b", "s")]));
    ready(&mut source).await;
    let properties = [
        vec![0x01, 1, 0x02, 0, 0, 1, 0],
        text_property(0x03, b"text/plain"),
        text_property(0x08, b"reply/to"),
        text_property(0x09, &[0, 255, 7]),
        user_property("k", "1"),
        user_property("k", "2"),
    ]
    .concat();
    let mut publisher = Publisher::connect(broker.port).await;
    for (topic, receiver) in [("a", "r"), ("b", "s")] {
        publisher.publish(&Publish::new(topic, 1, "x").with(&properties)).await;
        let delivery = delivery(&mut source).await;
        assert_eq!(&*delivery.receiver, receiver);
        let kept = Properties { subscription_ids: Vec::new(), ..delivery.message.properties };
        let expiry = kept.expiry_seconds.unwrap();
        assert!(expiry > 200 && expiry <= 256, "{expiry}");
        let expected = Properties {
            content_type: Some("text/plain".into()),
            response_topic: Some("reply/to".into()),
            correlation_data: Some(vec![0, 255, 7].into()),
            payload_format: Some(1),
            expiry_seconds: Some(expiry),
            user: vec![("k".into(), "1".into()), ("k".into(), "2".into())],
            subscription_ids: Vec::new(),
        };
        assert_eq!(kept, expected);
    }
}

/// Overlapping filters: the broker sends a copy for each, and each receiver gets its own.
#[tokio::test]
async fn overlapping_filters_reach_their_receivers() {
    let broker = Mosquitto::start().await;
    let mut source = source(options(broker.port, &[("f/#", "all"), ("f/+/temp", "temp"), ("$share/g/f/#", "shared")]));
    ready(&mut source).await;
    Publisher::connect(broker.port).await.publish(&Publish::new("f/1/temp", 1, "x")).await;
    let mut receivers = Vec::new();
    for _ in 0..3 {
        let delivery = delivery(&mut source).await;
        receivers.push(delivery.receiver.to_string());
        source.acknowledge(delivery.id);
    }
    receivers.sort();
    assert_eq!(receivers, ["all", "shared", "temp"]);
}

/// Restarts do not bring the retained messages again, and the one copy is marked.
#[tokio::test]
async fn a_retained_message_comes_once_and_is_marked() {
    let broker = Mosquitto::start().await;
    let mut publisher = Publisher::connect(broker.port).await;
    publisher.publish(&Publish { retain: true, ..Publish::new("site/7/door", 1, "open") }).await;
    let mut retained = 0;
    for round in 0..3 {
        let mut source = source(options(broker.port, &[("site/#", "r")]));
        ready(&mut source).await;
        publisher.publish(&Publish::new("site/marker", 1, "live")).await;
        loop {
            let delivery = any_delivery(&mut source).await;
            source.acknowledge(delivery.id);
            if delivery.message.topic == "site/marker" {
                assert!(!delivery.message.retain);
                break;
            }
            assert!(delivery.message.retain, "round {round}");
            retained += 1;
        }
        source.close(DEADLINE).await;
    }
    assert_eq!(retained, 1);
}

#[tokio::test]
async fn quality_of_service_0_and_2_arrive() {
    let broker = Mosquitto::start().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    ready(&mut source).await;
    let mut publisher = Publisher::connect(broker.port).await;
    publisher.publish_loose(&Publish::new("a", 0, "loose")).await;
    let loose = delivery(&mut source).await;
    assert_eq!((text(&loose).as_str(), loose.message.qos), ("loose", 0));
    publisher.publish_exactly_once(&Publish::new("a", 0, "once")).await;
    let once = delivery(&mut source).await;
    assert_eq!((text(&once).as_str(), once.message.qos), ("once", 1));
    source.acknowledge(once.id);
    eventually(|| source.counters().acknowledged == 1).await;
}

/// Two processes with one client id: the broker ends the older connection, whose source pauses before it comes back.
#[tokio::test]
async fn a_second_process_takes_over_and_the_first_pauses() {
    let broker = Mosquitto::start().await;
    let mut first = options(broker.port, &[("a", "r")]);
    (first.reconnect_delay, first.reconnect_max_delay) = (Duration::from_secs(3_600), Duration::from_secs(3_600));
    let mut first = source(first);
    ready(&mut first).await;
    let mut publisher = Publisher::connect(broker.port).await;
    publisher.publish(&Publish::new("a", 1, "x")).await;
    let old = delivery(&mut first).await;
    let mut second = source(options(broker.port, &[("a", "r")]));
    ready(&mut second).await;
    let SourceEvent::Disconnected { retry_in, .. } = next(&mut first).await else { panic!("still connected") };
    assert!(retry_in >= Duration::from_secs(1_800));
    // The displaced one can acknowledge nothing any more.
    first.acknowledge(old.id);
    first.close(DEADLINE).await;
    drop(second);
    let mut third = source(options(broker.port, &[("a", "r")]));
    assert_eq!(text(&any_delivery(&mut third).await), "x");
}

#[tokio::test]
async fn the_doctor_sees_a_healthy_broker_and_disturbs_nobody() {
    let broker = Mosquitto::start().await;
    let wanted = options(broker.port, &[("a", "r")]);
    let mut source = source(wanted.clone());
    ready(&mut source).await;
    let report = probe(&wanted).await.unwrap();
    assert!(report.shared_subscriptions && report.wildcard_subscriptions && report.retained_messages);
    Publisher::connect(broker.port).await.publish(&Publish::new("a", 1, "x")).await;
    assert_eq!(delivery(&mut source).await.id, id(1, 1));
}
