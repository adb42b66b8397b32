//! The flow of deliveries and acknowledgements.

use crate::broker::ScriptedBroker;
use crate::packets::{Publish, Sent, connack, packet, text_property, user_property};
use crate::support::{any_delivery, connected, delivery, disconnected, eventually, id, next, options, source, subscribed, text};
use causeway_core::message::Properties;
use causeway_core::outcome::FaultCode;
use causeway_core::source_id::source_id;
use causeway_mqtt::{LooseBuffer, MqttSource, OnFull};
use causeway_ports::{Source, SourceEvent};
use core::time::Duration;

async fn ready(source: &mut MqttSource) {
    connected(source).await;
    subscribed(source).await;
}

/// The broker cuts the connection after ten messages and gives their identifiers to ten new ones. Acknowledging the old ones must not touch the new.
#[tokio::test]
async fn an_acknowledgement_never_crosses_to_another_connection() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    ready(&mut source).await;
    for n in 1..=10 {
        peer.send(Publish::new("a", n, format!("old{n}")).encode()).await;
    }
    for n in 1..=10 {
        assert_eq!(delivery(&mut source).await.id, id(1, n));
    }
    drop(peer);
    disconnected(&mut source).await;
    let mut peer = broker.serve(false).await;
    ready(&mut source).await;
    source.acknowledge(id(1, 10));
    for n in 1..=10 {
        peer.send(Publish::new("a", n, format!("new{n}")).encode()).await;
    }
    for n in 1..=10 {
        let delivery = delivery(&mut source).await;
        assert_eq!((delivery.id, text(&delivery)), (id(2, n), format!("new{n}")));
    }
    source.acknowledge(id(1, 10));
    source.acknowledge(id(2, 3));
    source.acknowledge(id(1, 10));
    assert_eq!(peer.acks(3).await, [1, 2, 3]);
    let reading = tokio::spawn(peer.rest());
    source.close(Duration::from_secs(10)).await;
    assert_eq!(reading.await.unwrap(), [Sent::Disconnect(0)]);
}

/// What a dead connection left in the buffer comes before the report of its end; never after the next connection.
#[tokio::test]
async fn buffered_deliveries_keep_their_connection() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    let old: Vec<u8> = (1..=5).flat_map(|n| Publish::new("a", n, "old").encode()).collect();
    peer.send(old).await;
    drop(peer);
    // The session is gone: what is buffered would never come again, so it is handed over.
    let mut peer = broker.serve(false).await;
    peer.send(Publish::new("a", 1, "new").encode()).await;
    ready(&mut source).await;
    for n in 1..=5 {
        let delivery = delivery(&mut source).await;
        assert_eq!((delivery.id, text(&delivery).as_str()), (id(1, n), "old"));
    }
    disconnected(&mut source).await;
    ready(&mut source).await;
    let new = delivery(&mut source).await;
    assert_eq!((new.id, text(&new).as_str()), (id(2, 1), "new"));
}

#[tokio::test]
async fn buffered_deliveries_that_come_again_are_not_handed_over_twice() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    let old: Vec<u8> = (1..=5).flat_map(|n| Publish::new("a", n, n.to_string()).encode()).collect();
    peer.send([old, Publish::new("a", 0, "loose").encode()].concat()).await;
    ready(&mut source).await;
    assert_eq!(delivery(&mut source).await.id, id(1, 1));
    let status = source.status();
    eventually(|| status.counters().unacknowledged == 5).await;
    drop(peer);
    let mut peer = broker.serve(true).await;
    for n in 1..=5 {
        peer.send(Publish::new("a", n, n.to_string()).dup().encode()).await;
    }
    eventually(|| status.get().connection.0 == 2).await;
    // Quality of service 0 does not come again.
    assert_eq!(text(&delivery(&mut source).await), "loose");
    disconnected(&mut source).await;
    ready(&mut source).await;
    for n in 1..=5 {
        assert_eq!(delivery(&mut source).await.id, id(2, n));
    }
}

#[tokio::test]
async fn a_first_copy_that_is_marked_as_a_duplicate_is_delivered() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    peer.send(Publish::new("a", 9, "{\"n\":1}").dup().encode()).await;
    let delivery = any_delivery(&mut source).await;
    assert_eq!(text(&delivery), "{\"n\":1}");
    source.acknowledge(delivery.id);
    assert_eq!(peer.acks(1).await, [9]);
}

/// A message that stayed unacknowledged once is acknowledged when it comes again, and what follows flows.
#[tokio::test]
async fn a_redelivery_is_acknowledged_and_does_not_block() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    peer.send(Publish::new("a", 1, "m1").encode()).await;
    assert_eq!(any_delivery(&mut source).await.id, id(1, 1));
    drop(peer);
    let mut peer = broker.serve(true).await;
    peer.send(Publish::new("a", 1, "m1").dup().encode()).await;
    for n in 2..=100 {
        peer.send(Publish::new("a", n, format!("m{n}")).encode()).await;
    }
    for n in 1..=100 {
        let delivery = any_delivery(&mut source).await;
        assert_eq!((delivery.id, text(&delivery)), (id(2, n), format!("m{n}")));
        source.acknowledge(delivery.id);
    }
    assert_eq!(peer.acks(100).await, (1..=100).collect::<Vec<_>>());
}

#[tokio::test]
async fn acknowledgements_leave_in_order_of_arrival() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.receive_maximum = 2_000;
    let mut source = source(wanted);
    let mut peer = broker.serve(false).await;
    // Identifiers that are not ascending, with messages between that need no acknowledgement.
    let ids: Vec<u16> = (1..=2_000).map(|n| (n * 7_919) % 65_521).map(|n| u16::try_from(n).unwrap()).collect();
    let bytes: Vec<u8> = ids
        .iter()
        .enumerate()
        .flat_map(|(n, id)| {
            let loose = if n % 100 == 0 { Publish::new("a", 0, "loose").encode() } else { Vec::new() };
            [Publish::new("a", *id, "x").encode(), loose].concat()
        })
        .collect();
    peer.send(bytes).await;
    let mut last = id(0, 0);
    for _ in 0..2_020 {
        last = any_delivery(&mut source).await.id;
    }
    assert_eq!(last, id(1, 2_020));
    source.acknowledge(last);
    assert_eq!(peer.acks(2_000).await, ids);
    eventually(|| source.counters().acknowledged == 2_000).await;
    assert_eq!((source.counters().unacknowledged, source.counters().unacknowledged_peak), (0, 2_000));
}

#[tokio::test]
async fn a_release_of_an_unknown_packet_is_answered_and_the_connection_lives_on() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(true).await;
    peer.send(packet(0x62, &[0, 5])).await;
    assert_eq!(peer.next().await, Some(Sent::PubComp { id: 5, code: 0x92 }));
    peer.send(Publish::new("a", 5, "x").encode()).await;
    assert_eq!(any_delivery(&mut source).await.id, id(1, 1));
}

/// A session of an earlier subscription may hold messages of quality of service 2.
#[tokio::test]
async fn quality_of_service_2_is_received_as_1_and_completed() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(true).await;
    for n in [1, 2] {
        peer.send(Publish { qos: 2, ..Publish::new("a", n, "x") }.encode()).await;
        let delivery = any_delivery(&mut source).await;
        assert_eq!(delivery.message.qos, 1);
        source.acknowledge(delivery.id);
        assert_eq!(peer.next().await, Some(Sent::PubRec(n)));
        peer.send(packet(0x62, &n.to_be_bytes())).await;
        assert_eq!(peer.next().await, Some(Sent::PubComp { id: n, code: 0 }));
    }
    assert_eq!(source.counters().acknowledged, 2);
}

#[tokio::test]
async fn a_broker_that_overruns_the_window_is_survived_and_counted() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.receive_maximum = 10;
    let mut source = source(wanted);
    let mut peer = broker.serve(false).await;
    peer.send((1..=60).flat_map(|n| Publish::new("a", n, "x").encode()).collect()).await;
    for n in 1..=60 {
        assert_eq!(any_delivery(&mut source).await.id, id(1, n));
    }
    assert_eq!((source.counters().window_overruns, source.counters().unacknowledged_peak), (50, 60));
    source.acknowledge(id(1, 60));
    assert_eq!(peer.acks(60).await.len(), 60);
}

/// While the consumer's buffer is full, nothing is read, but acknowledgements still leave, and what waits is taken up again.
#[tokio::test]
async fn acknowledgements_leave_while_reading_stands_still() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.receive_maximum = 5;
    wanted.keep_alive = Duration::from_secs(600);
    let mut source = source(wanted);
    let mut peer = broker.serve(false).await;
    ready(&mut source).await;
    peer.send((1..=2_000).flat_map(|n| Publish::new("a", n, "x").encode()).collect()).await;
    let status = source.status();
    // 5 + 128 + 256 places, and one that waits for a place.
    eventually(|| status.counters().unacknowledged == 390).await;
    for n in 1..=3 {
        assert_eq!(delivery(&mut source).await.id, id(1, n));
    }
    // Three more took their places, and reading stands still again.
    eventually(|| status.counters().unacknowledged == 393).await;
    source.acknowledge(id(1, 3));
    assert_eq!(peer.acks(3).await, [1, 2, 3]);
    assert_eq!(status.counters().unacknowledged_peak, 393);
    for n in 4..=2_000 {
        let delivery = delivery(&mut source).await;
        assert_eq!(delivery.id, id(1, n));
        source.acknowledge(delivery.id);
    }
    assert_eq!(peer.acks(1_997).await, (4..=2_000).collect::<Vec<_>>());
    assert_eq!(status.get().connection.0, 1);
}

/// A consumer that stands still for longer than half the keep-alive costs the connection, and there is no other until it has taken everything.
#[tokio::test]
async fn a_consumer_that_stands_still_gets_a_rest() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.receive_maximum = 5;
    wanted.keep_alive = Duration::from_secs(1);
    let mut source = source(wanted);
    let mut peer = broker.serve(false).await;
    peer.send((1..=1_000).flat_map(|n| Publish::new("a", n, "x").encode()).collect()).await;
    let status = source.status();
    eventually(|| status.get().connection.0 == 1 && !status.get().connected).await;
    drop(peer);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!broker.has_caller().await, "connected again although nothing was taken");
    // The broker keeps the session, so what is buffered comes again and is skipped.
    ready(&mut source).await;
    let (fault, _) = disconnected(&mut source).await;
    assert_eq!(fault.code, FaultCode::Throttled);
    let mut peer = broker.serve(true).await;
    ready(&mut source).await;
    peer.send((1..=1_000).flat_map(|n| Publish::new("a", n, "x").dup().encode()).collect()).await;
    for n in 1..=1_000 {
        assert_eq!(delivery(&mut source).await.id, id(2, n));
    }
}

#[tokio::test]
async fn an_identifier_in_use_ends_the_connection() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    ready(&mut source).await;
    peer.send([Publish::new("a", 3, "one").encode(), Publish::new("a", 3, "two").encode()].concat()).await;
    assert_eq!(text(&delivery(&mut source).await), "one");
    assert_eq!(disconnected(&mut source).await.0.code, FaultCode::ProtocolError);
    assert_eq!(peer.rest().await, []);
    let mut peer = broker.serve(true).await;
    ready(&mut source).await;
    // An identifier is free again as soon as its acknowledgement was written.
    for round in 1..=3 {
        peer.send(Publish::new("a", 3, "x").encode()).await;
        assert_eq!(delivery(&mut source).await.id, id(2, round));
        source.acknowledge(id(2, round));
        assert_eq!(peer.acks(1).await, [3]);
    }
}

#[tokio::test]
async fn unanswerable_floods_are_bounded_and_counted() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    ready(&mut source).await;
    let mut bytes: Vec<u8> = (0..1_000).flat_map(|n| Publish::new("a", 0, n.to_string()).encode()).collect();
    bytes.extend(Publish::new("a", 1, "kept").encode());
    peer.send(bytes).await;
    let status = source.status();
    eventually(|| status.counters().unacknowledged == 1).await;
    assert_eq!(status.counters().dropped_qos0, 1_000 - 256);
    for n in 0..256 {
        let delivery = delivery(&mut source).await;
        assert_eq!((text(&delivery), delivery.message.qos), (n.to_string(), 0));
    }
    let kept = delivery(&mut source).await;
    assert_eq!((text(&kept).as_str(), kept.id), ("kept", id(1, 257)));
    // An acknowledgement of what needs none does nothing, and room is free again.
    source.acknowledge(id(1, 256));
    peer.send(Publish::new("a", 0, "again").encode()).await;
    assert_eq!(text(&delivery(&mut source).await), "again");
    source.acknowledge(id(1, 257));
    assert_eq!(peer.acks(1).await, [1]);
}

/// A long pause keeps the connection: pings go on, deliveries wait.
#[tokio::test]
async fn a_pause_holds_deliveries_and_keeps_the_connection() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.receive_maximum = 10;
    wanted.keep_alive = Duration::from_secs(1);
    let mut source = source(wanted);
    let mut peer = broker.serve(false).await;
    ready(&mut source).await;
    peer.send(Publish::new("a", 1, "before").encode()).await;
    delivery(&mut source).await;
    source.pause(true);
    peer.send((2..=10).flat_map(|n| Publish::new("a", n, n.to_string()).encode()).collect()).await;
    let pings = async {
        for _ in 0..4 {
            assert_eq!(peer.next().await, Some(Sent::Ping));
            peer.send(vec![0xd0, 0]).await;
        }
    };
    tokio::select! {
        () = pings => {}
        event = source.next() => panic!("handed over while paused: {event:?}"),
    }
    // Acknowledgements leave during a pause.
    source.acknowledge(id(1, 1));
    assert_eq!(peer.acks(1).await, [1]);
    source.pause(false);
    for n in 2..=10 {
        assert_eq!(delivery(&mut source).await.id, id(1, n));
    }
}

#[tokio::test]
async fn a_pause_lets_reports_through() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    source.pause(true);
    drop(broker.serve(false).await);
    ready(&mut source).await;
    disconnected(&mut source).await;
}

/// Dropping the future of `next` loses nothing.
#[tokio::test]
async fn next_can_be_cancelled_at_any_time() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    let sending = tokio::spawn(async move {
        for n in 1..=300 {
            peer.send(Publish::new("a", n, n.to_string()).encode()).await;
            tokio::task::yield_now().await;
        }
        peer
    });
    let mut expected = 1;
    while expected <= 300 {
        tokio::select! {
            biased;
            () = tokio::task::yield_now() => {}
            event = source.next() => if let SourceEvent::Delivery(delivery) = event {
                assert_eq!(delivery.id, id(1, expected));
                expected += 1;
            }
        }
        // Now and then a call that certainly is cancelled while it waits.
        if expected % 50 == 0 {
            tokio::select! { biased; () = core::future::ready(()) => {}, _ = source.next() => unreachable!() }
        }
    }
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn one_packet_for_two_receivers_is_acknowledged_after_both() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("f/#", "all"), ("f/+/temp", "temp")]));
    let mut peer = broker.welcome(false).await;
    peer.grant(2).await;
    ready(&mut source).await;
    peer.send(Publish::new("f/1/temp", 1, "both").with(&[0x0b, 1, 0x0b, 2]).encode()).await;
    let (first, second) = (delivery(&mut source).await, delivery(&mut source).await);
    assert_eq!((&*first.receiver, &*second.receiver), ("all", "temp"));
    assert_eq!(first.message.properties.subscription_ids, [1, 2]);
    // Two copies with an identifier each, as other brokers send them.
    for (packet_id, subscription, receiver) in [(2, 1, "all"), (3, 2, "temp")] {
        peer.send(Publish::new("f/1/temp", packet_id, "copy").with(&[0x0b, subscription]).encode()).await;
        assert_eq!(&*delivery(&mut source).await.receiver, receiver);
    }
    source.acknowledge(first.id);
    source.acknowledge(id(1, 3));
    assert_eq!(peer.acks(2).await, [1, 2]);
}

#[tokio::test]
async fn what_matches_no_filter_any_more_is_not_lost() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "first"), ("b", "second")]));
    let mut peer = broker.welcome(true).await;
    peer.grant(2).await;
    peer.send(Publish::new("old/topic", 1, "x").encode()).await;
    let delivery = any_delivery(&mut source).await;
    // What becomes of it is not for the source to say.
    assert_eq!((&*delivery.receiver, delivery.message.topic.as_str()), ("", "old/topic"));
}

#[tokio::test]
async fn every_property_is_kept() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    let properties = [
        vec![0x01, 1, 0x02, 0, 0, 0, 60],
        text_property(0x03, b"text/plain"),
        text_property(0x08, b"reply/to"),
        text_property(0x09, &[0, 255, 7]),
        user_property("k", "1"),
        user_property("k", ""),
        vec![0x0b, 1],
    ]
    .concat();
    peer.send(Publish { retain: true, ..Publish::new("a", 1, [0, 159, 146, 150]) }.with(&properties).encode()).await;
    let message = any_delivery(&mut source).await.message;
    assert_eq!((&message.payload[..], message.retain, message.qos), (&[0, 159, 146, 150][..], true, 1));
    let expected = Properties {
        content_type: Some("text/plain".into()),
        response_topic: Some("reply/to".into()),
        correlation_data: Some(vec![0, 255, 7].into()),
        payload_format: Some(1),
        expiry_seconds: Some(60),
        user: vec![("k".into(), "1".into()), ("k".into(), String::new())],
        subscription_ids: vec![1],
    };
    assert_eq!(message.properties, expected);
}

#[tokio::test]
async fn an_empty_payload_is_a_message() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    peer.send(Publish::new("a", 1, "").encode()).await;
    loop {
        if let SourceEvent::Delivery(delivery) = next(&mut source).await {
            assert!(delivery.message.payload.is_empty());
            break;
        }
    }
}

/// A publisher's id is no reason to drop anything: with other content it is another message, and that is counted; a copy is not.
#[tokio::test]
async fn an_id_that_is_used_twice_is_carried_and_counted() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(true).await;
    for (id, payload) in [(1, "one"), (2, "one"), (3, "two")] {
        peer.send(Publish::new("a", id, payload).with(&user_property("mqtt.message-id", "m-1")).encode()).await;
        assert_eq!(text(&any_delivery(&mut source).await), payload);
    }
    assert_eq!((source.counters().received, source.counters().reused_ids), (3, 1));
}

/// A broker that sends a copy for each of two filters that overlap: both are carried, and share what tells that they are one message.
#[tokio::test]
async fn copies_for_filters_that_overlap_share_their_source_id() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("f/#", "r"), ("f/+/temp", "r")]));
    let mut peer = broker.welcome(true).await;
    peer.grant(2).await;
    ready(&mut source).await;
    for identifier in [1, 2] {
        peer.send(Publish::new("f/1/temp", identifier, "21").with(&[0x0b, identifier as u8]).encode()).await;
    }
    let (one, other) = (delivery(&mut source).await, delivery(&mut source).await);
    assert_ne!(one.id, other.id);
    assert_eq!(source_id(&one.message), source_id(&other.message));
    source.acknowledge(other.id);
    assert_eq!(peer.acks(2).await, [1, 2]);
    assert_eq!(source.counters().reused_ids, 0);
}

/// A flood of messages of quality of service 0, and one that is acknowledged.
fn flood(messages: u16, packet_id: u16) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..messages).flat_map(|n| Publish::new("a", 0, n.to_string()).encode()).collect();
    bytes.extend(Publish::new("a", packet_id, "kept").encode());
    bytes
}

#[tokio::test]
async fn flow_of_a_flood_the_newest_stay_where_that_is_wanted() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.loose = LooseBuffer { messages: 10, on_full: OnFull::DropOldest, pause_max: None };
    let mut source = source(wanted);
    let mut peer = broker.serve(false).await;
    ready(&mut source).await;
    peer.send(flood(5, 1)).await;
    let status = source.status();
    eventually(|| status.counters().unacknowledged == 1).await;
    peer.send(flood(100, 2)).await;
    eventually(|| status.counters().unacknowledged == 2).await;
    assert_eq!(status.counters().dropped_qos0, 95);
    // Numbers of deliveries stay in order: else an acknowledgement of a new one would stand for an old one that nobody took.
    for (ordinal, text_wanted) in (90..95)
        .map(|n: u32| n.to_string())
        .chain(["kept".to_owned()])
        .chain((95..100).map(|n| n.to_string()))
        .zip(1_u64..)
        .map(|(text, ordinal)| (ordinal, text))
    {
        let delivery = delivery(&mut source).await;
        assert_eq!((text(&delivery), delivery.id), (text_wanted, id(1, ordinal)));
    }
    source.acknowledge(id(1, 6));
    assert_eq!(peer.acks(1).await, [1]);
    let kept = delivery(&mut source).await;
    assert_eq!((text(&kept).as_str(), kept.id), ("kept", id(1, 12)));
}

#[tokio::test]
async fn flow_a_flood_waits_in_the_socket_while_that_is_paused() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.loose = LooseBuffer { messages: 10, on_full: OnFull::PauseSocket, pause_max: Some(Duration::from_secs(60)) };
    let mut source = source(wanted);
    let mut peer = broker.serve(false).await;
    ready(&mut source).await;
    peer.send(flood(500, 1)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    for n in 0..500 {
        assert_eq!(text(&delivery(&mut source).await), n.to_string());
    }
    assert_eq!(text(&delivery(&mut source).await), "kept");
    assert_eq!(source.counters().dropped_qos0, 0);
}

#[tokio::test]
async fn flow_a_pause_of_the_socket_ends_with_the_patience_of_the_broker() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.loose = LooseBuffer { messages: 10, on_full: OnFull::PauseSocket, pause_max: Some(Duration::from_millis(100)) };
    let mut source = source(wanted);
    let mut peer = broker.serve(false).await;
    ready(&mut source).await;
    peer.send(flood(500, 1)).await;
    let status = source.status();
    eventually(|| status.counters().unacknowledged == 1).await;
    assert_eq!(status.counters().dropped_qos0, 490);
    for n in 0..10 {
        assert_eq!(text(&delivery(&mut source).await), n.to_string());
    }
    assert_eq!(text(&delivery(&mut source).await), "kept");
    assert_eq!(status.get().connection.0, 1, "one pause, and no other before there was room");
}

/// However long the configuration allows: the keep-alive that was agreed upon counts.
#[tokio::test]
async fn flow_a_pause_of_the_socket_begins_with_a_word_and_ends_before_the_broker_gives_up() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.keep_alive = Duration::from_secs(600);
    wanted.loose = LooseBuffer { messages: 10, on_full: OnFull::PauseSocket, pause_max: Some(Duration::from_secs(300)) };
    let mut source = source(wanted);
    let (mut peer, _) = broker.accept().await;
    // The broker wants to hear something every four seconds.
    peer.send(connack(false, 0, &[0x13, 0, 4])).await;
    peer.grant(1).await;
    ready(&mut source).await;
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    peer.send(flood(500, 1)).await;
    let status = source.status();
    assert!(matches!(peer.next().await, Some(Sent::Unsubscribe { .. })), "more than half of the keep-alive had passed");
    assert_eq!(status.counters().dropped_qos0, 0, "the pause goes on");
    eventually(|| status.counters().unacknowledged == 1).await;
    assert_eq!((status.counters().dropped_qos0, status.get().connection.0), (490, 1));
}

#[tokio::test]
async fn flow_what_waits_in_a_pause_is_counted_when_the_connection_ends() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.loose = LooseBuffer { messages: 10, on_full: OnFull::PauseSocket, pause_max: Some(Duration::from_secs(60)) };
    let mut source = source(wanted);
    let mut peer = broker.serve(false).await;
    ready(&mut source).await;
    let kept = Publish::new("a", 1, "kept").encode();
    peer.send([kept, flood(11, 2)].concat()).await;
    let status = source.status();
    eventually(|| status.counters().unacknowledged == 1).await;
    // The eleventh is read by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    source.reconnect();
    let _peer = broker.serve(true).await;
    assert_eq!(status.counters().dropped_qos0, 1);
}

#[tokio::test]
async fn no_new_connection_is_made_where_the_broker_does_not_keep_the_session() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let (mut peer, _) = broker.accept().await;
    peer.send(connack(false, 0, &[0x11, 0, 0, 0, 0])).await;
    peer.grant(1).await;
    ready(&mut source).await;
    peer.send(Publish::new("a", 1, "held").encode()).await;
    let held = delivery(&mut source).await;
    source.reconnect();
    // By this the wish has been looked at.
    peer.send(Publish::new("a", 2, "next").encode()).await;
    let next = delivery(&mut source).await;
    source.acknowledge(next.id);
    assert_eq!(peer.acks(2).await, [1, 2]);
    assert_eq!((held.id, source.status().get().connection.0), (id(1, 1), 1));
}

/// The bytes that the consumer is not done with bound what is read, and the broker hears of the client however long that takes.
#[tokio::test]
async fn flow_nothing_more_is_read_while_as_many_bytes_as_may_be_are_not_done_with() {
    const MESSAGES: u16 = 100;
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.max_buffered_bytes = 20_000;
    let mut source = source(wanted);
    let (mut peer, _) = broker.accept().await;
    // The broker wants to hear something every second.
    peer.send(connack(false, 0, &[0x13, 0, 1])).await;
    peer.grant(1).await;
    ready(&mut source).await;
    let status = source.status();
    peer.send((1..=MESSAGES).flat_map(|n| Publish::new("a", n, [b'x'; 4_000]).encode()).collect()).await;
    // Four times the keep-alive, and more than a client waits for a silent broker.
    for _ in 0..8 {
        assert!(matches!(peer.next().await, Some(Sent::Unsubscribe { .. })), "a sign of life, and nothing else");
    }
    let read = status.counters().unacknowledged;
    assert!(read >= 4 && read < u64::from(MESSAGES) / 2, "{read} were read");
    assert!(status.counters().reading_paused);
    for n in 1..=u64::from(MESSAGES) {
        let delivery = delivery(&mut source).await;
        assert_eq!(delivery.id, id(1, n));
        source.acknowledge(delivery.id);
    }
    let mut acknowledged = 0;
    while acknowledged < MESSAGES {
        match peer.next().await {
            Some(Sent::PubAck(id)) => acknowledged = id,
            Some(Sent::Ping) => peer.send(vec![0xd0, 0]).await,
            Some(Sent::Unsubscribe { .. }) => {}
            other => panic!("expected PUBACK, got {other:?}"),
        }
    }
    assert_eq!(status.get().connection.0, 1);
    eventually(|| !status.counters().reading_paused).await;
}

/// Nothing else has to be written: there is no keep-alive, and nothing is acknowledged.
#[tokio::test]
async fn flow_a_group_is_left_also_while_nothing_is_read() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("$share/g/a", "r")]);
    wanted.keep_alive = Duration::ZERO;
    wanted.max_buffered_bytes = 20_000;
    let mut source = source(wanted);
    let (mut peer, _) = broker.accept().await;
    peer.send(connack(false, 0, &[])).await;
    peer.grant(1).await;
    ready(&mut source).await;
    let status = source.status();
    peer.send((1..=100).flat_map(|n| Publish::new("a", n, [b'x'; 4_000]).encode()).collect()).await;
    eventually(|| status.counters().reading_paused).await;
    source.share(false);
    let Some(Sent::Unsubscribe { filter, .. }) = peer.next().await else { panic!("expected UNSUBSCRIBE") };
    assert_eq!(filter, "$share/g/a");
    assert!(status.counters().unacknowledged < 50, "nothing more is read for it");
}
