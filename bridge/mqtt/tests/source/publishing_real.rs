//! The publisher against mosquitto.

use crate::mosquitto::Mosquitto;
use crate::publishing::{PATIENCE, entry, sending, sink, sink_options, sink_with, with};
use crate::support::{any_delivery, options, ready, source, text};
use bytes::Bytes;
use causeway_core::message::Properties;
use causeway_core::outcome::{FaultClass, FaultCode, Outcome};
use causeway_mqtt::MqttSinkOptions;
use causeway_ports::{Sink, Source, SystemClock};
use std::collections::BTreeSet;
use std::sync::Arc;

#[tokio::test]
async fn a_subscriber_gets_what_was_received_and_the_id() {
    let broker = Mosquitto::start().await;
    let mut subscriber = source(crate::support::options(broker.port, &[("out/#", "r")]));
    ready(&mut subscriber).await;
    let sink = sink(broker.port);
    let properties = Properties {
        content_type: Some("application/json".into()),
        response_topic: Some("answers".into()),
        correlation_data: Some(Bytes::from_static(&[0, 1, 255])),
        payload_format: Some(1),
        user: vec![("k".into(), "1".into()), ("k".into(), String::new())],
        ..Properties::default()
    };
    assert_eq!(sink.send(&[with(7, "{}", properties.clone())], PATIENCE).await, [Outcome::Done(())]);
    let delivery = any_delivery(&mut subscriber).await;
    let mut expected = properties;
    expected.user.push(("causeway.message_id".into(), format!("{:032x}", 7)));
    expected.subscription_ids = delivery.message.properties.subscription_ids.clone();
    assert_eq!((delivery.message.topic.as_str(), &delivery.message.properties), ("out/a", &expected));
    subscriber.close(PATIENCE).await;
}

#[tokio::test]
async fn sizes_around_the_limits_of_clients_arrive_byte_for_byte() {
    let broker = Mosquitto::start().await;
    let mut subscriber = source(options(broker.port, &[("out/#", "r")]));
    ready(&mut subscriber).await;
    let sink = sink(broker.port);
    for size in [0, 10_239, 10_241, 131_072, 262_144] {
        let payload: Vec<u8> = (0..size).map(|n: usize| (0xa0 + n % 16) as u8).collect();
        assert_eq!(sink.send(&[entry(1, payload.clone())], PATIENCE).await, [Outcome::Done(())]);
        assert!(any_delivery(&mut subscriber).await.message.payload == payload, "{size} bytes");
    }
}

#[tokio::test]
async fn a_retained_message_waits_for_later_subscribers() {
    let broker = Mosquitto::start().await;
    let sink = sink_with(broker.port, 10, MqttSinkOptions { retain: true, ..sink_options() }, Arc::new(SystemClock));
    assert_eq!(sink.send(&[entry(1, "kept")], PATIENCE).await, [Outcome::Done(())], "nobody subscribes yet");
    let mut subscriber = source(options(broker.port, &[("out/#", "r")]));
    let delivery = any_delivery(&mut subscriber).await;
    assert_eq!((text(&delivery).as_str(), delivery.message.retain), ("kept", true));
}

#[tokio::test]
async fn a_topic_that_the_broker_does_not_allow_is_a_permanent_refusal() {
    let rules = "topic write out/b\ntopic read #\n";
    let settings = "allow_anonymous true\nacl_file FOLDER/acl\n";
    let broker = Mosquitto::with(settings, |folder| std::fs::write(folder.join("acl"), rules).unwrap()).await;
    let outcomes = sink(broker.port).send(&[entry(1, "x")], PATIENCE).await;
    assert!(matches!(&outcomes[0], Outcome::NotDone(fault) if fault.code == FaultCode::NotAuthorized), "{outcomes:?}");
}

/// The broker does not say how much it takes, and answers with a reason that a PUBACK cannot have.
#[tokio::test]
async fn what_is_larger_than_the_broker_takes_is_found_and_the_rest_goes_through() {
    let broker = Mosquitto::with("allow_anonymous true\nmessage_size_limit 1000\n", |_| ()).await;
    let sink = sink(broker.port);
    let batch = [entry(1, "small"), entry(2, vec![b'x'; 5_000]), entry(3, "small too")];
    let mut settled = [false; 3];
    // As the owner does it: what is not done or not known is sent again.
    for _ in 0..2_000 {
        for (n, entry) in batch.iter().enumerate() {
            if settled[n] {
                continue;
            }
            settled[n] = match sink.send(&[Arc::clone(entry)], PATIENCE).await.remove(0) {
                Outcome::Done(()) => n != 1,
                Outcome::NotDone(fault) => n == 1 && fault.code.class() == FaultClass::Rejected,
                Outcome::Unknown(_) => false,
            };
        }
        if settled == [true; 3] {
            return;
        }
        tokio::time::sleep(core::time::Duration::from_millis(10)).await;
    }
    panic!("never settled: {settled:?}");
}

/// Whatever the broker does, what was acknowledged is there.
#[tokio::test]
async fn restarts_of_the_broker_lose_nothing_that_was_done() {
    let mut broker = Mosquitto::start().await;
    let mut subscriber = source(options(broker.port, &[("out/#", "r")]));
    ready(&mut subscriber).await;
    subscriber.close(PATIENCE).await;
    let sink = sink(broker.port);
    let mut done = BTreeSet::new();
    for round in 0..6_u128 {
        let batch: Vec<_> = (0..200).map(|n| entry(round * 200 + n, (round * 200 + n).to_string())).collect();
        let mut waiting = batch;
        let mut restarted = round % 2 == 0;
        while !waiting.is_empty() {
            let send = sending(&sink, waiting.iter().take(64).cloned().collect());
            if !core::mem::replace(&mut restarted, true) {
                broker.stop();
                broker.start_again().await;
            }
            for (entry, outcome) in waiting.clone().iter().zip(send.await.unwrap()) {
                if outcome == Outcome::Done(()) {
                    done.insert(String::from_utf8(entry.message.payload.to_vec()).unwrap());
                }
            }
            waiting.retain(|entry| !done.contains(core::str::from_utf8(&entry.message.payload).unwrap()));
            if !waiting.is_empty() {
                tokio::time::sleep(core::time::Duration::from_millis(10)).await;
            }
        }
    }
    let mut subscriber = source(options(broker.port, &[("out/#", "r")]));
    while !done.is_empty() {
        let delivery = any_delivery(&mut subscriber).await;
        done.remove(&text(&delivery));
        subscriber.acknowledge(delivery.id);
    }
}
