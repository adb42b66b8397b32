//! The life of connections: login, subscriptions, endings, the pauses between.

use crate::broker::ScriptedBroker;
use crate::packets::{Publish, Sent, connack, packet, suback, unsuback};
use crate::support::{PATIENCE, any_delivery, connected, delivery, disconnected, eventually, id, next, options, source, subscribed, text};
use causeway_core::outcome::FaultCode;
use causeway_ports::{ConnectionEpoch, Source, SourceEvent};
use core::time::Duration;

#[tokio::test]
async fn the_connect_and_subscribe_packets_say_what_was_configured() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a/#", "r"), ("$share/g/b", "s")]);
    wanted.subscriptions[0].qos = 2;
    wanted.subscriptions[1].qos = 0;
    wanted.receive_maximum = 321;
    wanted.max_packet_bytes = 300_000;
    wanted.keep_alive = Duration::from_millis(2_500);
    let mut source = source(wanted);
    let (mut peer, connect) = broker.accept().await;
    let expected = Sent::Connect {
        client_id: "worker-1".into(),
        clean_start: false,
        keep_alive: 3,
        session_expiry: Some(3_600),
        receive_maximum: Some(321),
        max_packet: Some(300_000),
        alias_maximum: None,
    };
    assert_eq!(connect, expected);
    peer.send(connack(false, 0, &[])).await;
    let subscribes = peer.grant(2).await;
    // Retain handling 1 (bits 4 and 5): retained messages only with a new subscription.
    let shape: Vec<_> = subscribes
        .iter()
        .map(|sent| match sent {
            Sent::Subscribe { filter, options, identifier, .. } => (filter.as_str(), *options, *identifier),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(shape, [("a/#", 0x11, Some(1)), ("$share/g/b", 0x10, Some(2))]);
    connected(&mut source).await;
    assert_eq!(subscribed(&mut source).await, (2, vec![]));
}

#[tokio::test]
async fn a_session_that_ends_with_the_connection_gets_retained_messages_each_time() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.session_expiry = 0;
    let _source = source(wanted);
    let mut peer = broker.welcome(false).await;
    assert!(matches!(peer.grant(1).await[0], Sent::Subscribe { options: 0x01, .. }));
}

/// The CONNACK may shorten what was asked for, down to nothing.
#[tokio::test]
async fn a_broker_that_declines_to_keep_the_session_is_taken_at_its_word() {
    let broker = ScriptedBroker::new().await;
    let _source = source(options(broker.port, &[("a", "r")]));
    let (mut peer, _) = broker.accept().await;
    peer.send(connack(false, 0, &[0x11, 0, 0, 0, 0])).await;
    assert!(matches!(peer.grant(1).await[0], Sent::Subscribe { options: 0x01, .. }));
}

/// The answer to a subscription that comes after the wish to close must not cut the goodbye short.
#[tokio::test]
async fn closing_before_the_subscriptions_are_answered_still_says_goodbye() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.welcome(false).await;
    connected(&mut source).await;
    peer.send(Publish::new("a", 1, "x").encode()).await;
    let early = delivery(&mut source).await;
    source.acknowledge(early.id);
    let serving = tokio::spawn(async move {
        peer.grant(1).await;
        peer.rest().await
    });
    source.close(PATIENCE).await;
    assert_eq!(serving.await.unwrap(), [Sent::PubAck(1), Sent::Disconnect(0)]);
}

#[tokio::test]
async fn a_broker_without_subscription_identifiers_is_asked_without_them() {
    let broker = ScriptedBroker::new().await;
    let _source = source(options(broker.port, &[("a", "r")]));
    let (mut peer, _) = broker.accept().await;
    peer.send(connack(false, 0, &[0x29, 0])).await;
    assert!(matches!(peer.grant(1).await[0], Sent::Subscribe { identifier: None, .. }));
}

#[tokio::test]
async fn every_connection_subscribes_again_even_where_the_session_was_kept() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    for round in 1..=3 {
        let mut peer = broker.welcome(true).await;
        assert_eq!(connected(&mut source).await, (ConnectionEpoch(round), true));
        peer.grant(1).await;
        assert_eq!(subscribed(&mut source).await, (1, vec![]));
        drop(peer);
        let (fault, _) = disconnected(&mut source).await;
        assert_eq!(fault.code, FaultCode::ConnectionLost);
    }
    let counters = source.counters();
    assert_eq!((counters.reconnects, counters.sessions_lost, counters.connect_failures), (2, 0, 0));
}

#[tokio::test]
async fn a_clean_start_happens_once() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.clean_start = true;
    let _source = source(wanted);
    for expected in [true, false] {
        let (mut peer, connect) = broker.accept().await;
        assert!(matches!(connect, Sent::Connect { clean_start, .. } if clean_start == expected));
        peer.send(connack(!expected, 0, &[])).await;
        peer.grant(1).await;
    }
}

#[tokio::test]
async fn a_session_that_is_gone_is_counted() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    for (round, lost) in [(1, 0), (2, 1), (3, 2)] {
        let peer = broker.serve(false).await;
        assert_eq!(connected(&mut source).await, (ConnectionEpoch(round), false));
        assert_eq!(source.counters().sessions_lost, lost);
        subscribed(&mut source).await;
        drop(peer);
        disconnected(&mut source).await;
    }
}

#[tokio::test]
async fn a_session_known_from_an_earlier_process_is_missed_at_once() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.first_connection_expected_new = false;
    let mut source = source(wanted);
    let _peer = broker.serve(false).await;
    connected(&mut source).await;
    assert_eq!(source.counters().sessions_lost, 1);
}

#[tokio::test]
async fn a_session_that_nobody_wanted_kept_is_not_missed() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.session_expiry = 0;
    let mut source = source(wanted);
    for _ in 0..2 {
        drop(broker.serve(false).await);
        connected(&mut source).await;
        while !matches!(next(&mut source).await, SourceEvent::Disconnected { .. }) {}
    }
    assert_eq!(source.counters().sessions_lost, 0);
}

#[tokio::test]
async fn refused_filters_are_reported_one_by_one_and_asked_for_again() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r"), ("b", "r"), ("c", "r"), ("d", "r")]);
    wanted.reconcile_timeout = Duration::from_millis(300);
    let mut source = source(wanted);
    let mut peer = broker.welcome(false).await;
    for code in [1, 0x87, 0x8f, 0x9e] {
        let Some(Sent::Subscribe { id, .. }) = peer.next().await else { panic!("no SUBSCRIBE") };
        peer.send(suback(id, &[code])).await;
    }
    connected(&mut source).await;
    let (granted, refused) = subscribed(&mut source).await;
    let refused: Vec<_> = refused.iter().map(|(filter, fault)| (filter.as_str(), fault.code)).collect();
    assert_eq!(
        (granted, refused),
        (1, vec![("b", FaultCode::NotAuthorized), ("c", FaultCode::InvalidConfig), ("d", FaultCode::InvalidConfig)])
    );
    assert!(!source.status().get().subscribed);
    let again: Vec<_> = peer
        .grant(3)
        .await
        .into_iter()
        .map(|sent| if let Sent::Subscribe { filter, .. } = sent { filter } else { String::new() })
        .collect();
    assert_eq!(again, ["b", "c", "d"]);
    assert_eq!(subscribed(&mut source).await, (4, vec![]));
    assert!(source.status().get().subscribed);
}

#[tokio::test]
async fn a_broker_that_never_answers_the_subscription_is_left() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.reconcile_timeout = Duration::from_millis(200);
    let mut source = source(wanted);
    let mut peer = broker.welcome(false).await;
    assert!(matches!(peer.next().await, Some(Sent::Subscribe { .. })));
    peer.send(Publish::new("a", 1, "early").encode()).await;
    connected(&mut source).await;
    assert_eq!(text(&delivery(&mut source).await), "early");
    assert_eq!(disconnected(&mut source).await.0.code, FaultCode::Timeout);
    assert_eq!(peer.next().await, None);
    broker.serve(true).await;
    connected(&mut source).await;
}

#[tokio::test]
async fn a_source_without_filters_connects_and_says_so() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[]));
    let _peer = broker.welcome(false).await;
    connected(&mut source).await;
    assert_eq!(subscribed(&mut source).await, (0, vec![]));
}

#[tokio::test]
async fn a_refused_login_is_told_and_tried_again() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    for (code, expected) in [
        (0x87, FaultCode::NotAuthorized),
        (0x86, FaultCode::NotAuthorized),
        (0x89, FaultCode::Unavailable),
        (0x84, FaultCode::InvalidConfig),
    ] {
        let (mut peer, _) = broker.accept().await;
        peer.send(connack(false, code, &[])).await;
        assert_eq!(disconnected(&mut source).await.0.code, expected);
    }
    assert_eq!(source.counters().connect_failures, 4);
}

#[tokio::test]
async fn nothing_listening_is_told() {
    let port = crate::mosquitto::free_port();
    let mut source = source(options(port, &[("a", "r")]));
    let (fault, _) = disconnected(&mut source).await;
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert!(fault.detail.contains("connection refused"), "{fault}");
}

/// Accepts and closes at once, again and again: each pause is drawn from the upper half of a doubling step, up to the cap.
#[tokio::test]
async fn a_broker_that_hangs_up_at_once_is_called_ever_more_rarely() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    (wanted.reconnect_delay, wanted.reconnect_max_delay) = (Duration::from_millis(8), Duration::from_millis(256));
    let mut source = source(wanted);
    let mut step = Duration::from_millis(8);
    for _ in 0..9 {
        drop(broker.serve(true).await);
        let (_, retry_in) = loop {
            if let SourceEvent::Disconnected { fault, retry_in, .. } = next(&mut source).await {
                break (fault, retry_in);
            }
        };
        assert!(retry_in >= step / 2 && retry_in < step, "{retry_in:?} of {step:?}");
        step = (step * 2).min(Duration::from_millis(256));
    }
    assert_eq!(source.counters().reconnects, 8);
}

#[tokio::test]
async fn a_connection_that_did_useful_work_ends_the_streak() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    (wanted.reconnect_delay, wanted.reconnect_max_delay) = (Duration::from_millis(8), Duration::from_millis(256));
    let mut source = source(wanted);
    for _ in 0..4 {
        let mut peer = broker.serve(true).await;
        peer.send(Publish::new("a", 1, "x").encode()).await;
        let delivery = any_delivery(&mut source).await;
        source.acknowledge(delivery.id);
        assert_eq!(peer.acks(1).await, [1]);
        drop(peer);
        let (_, retry_in) = disconnected(&mut source).await;
        assert!(retry_in < Duration::from_millis(8), "{retry_in:?}");
    }
}

/// The one-byte form of DISCONNECT is what mosquitto sends at a takeover. The library does not decode it; what counts is that the connection ends as
/// a loss, not as poison, and that a pause follows.
#[tokio::test]
async fn a_takeover_is_a_lost_connection_in_either_encoding() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    for (bytes, named) in [(vec![0xe0, 1, 0x8e], false), (vec![0xe0, 2, 0x8e, 0], true)] {
        let mut peer = broker.serve(true).await;
        connected(&mut source).await;
        subscribed(&mut source).await;
        peer.send(bytes).await;
        drop(peer);
        let (fault, retry_in) = disconnected(&mut source).await;
        assert_eq!(fault.code, FaultCode::ConnectionLost);
        assert_eq!(fault.detail.contains("SessionTakenOver"), named, "{fault}");
        assert!(!retry_in.is_zero());
    }
    assert_eq!(source.counters().poison_packets, 0);
}

#[tokio::test]
async fn a_broker_that_answers_no_ping_is_left() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.keep_alive = Duration::from_secs(1);
    let mut source = source(wanted);
    let mut peer = broker.serve(true).await;
    connected(&mut source).await;
    subscribed(&mut source).await;
    assert_eq!(peer.next().await, Some(Sent::Ping));
    assert_eq!(disconnected(&mut source).await.0.code, FaultCode::Timeout);
}

/// A broker that turns keep-alive off gets no ping storm, and no ping at all; the watch over it goes on by another question.
#[tokio::test]
async fn a_broker_without_keep_alive_is_still_watched() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.keep_alive = Duration::from_secs(1);
    let mut source = source(wanted);
    let (mut peer, _) = broker.accept().await;
    peer.send(connack(true, 0, &[0x13, 0, 0])).await;
    peer.grant(1).await;
    for _ in 0..3 {
        let Some(Sent::Unsubscribe { id, .. }) = peer.next().await else { panic!("expected the liveness question") };
        peer.send(unsuback(id, 0x11)).await;
    }
    connected(&mut source).await;
    subscribed(&mut source).await;
    peer.send(Publish::new("a", 1, "alive").encode()).await;
    assert_eq!(delivery(&mut source).await.id, id(1, 1));
    assert!(matches!(peer.next().await, Some(Sent::Unsubscribe { .. })));
    assert_eq!(disconnected(&mut source).await.0.code, FaultCode::Timeout);
}

#[tokio::test]
async fn a_broker_that_never_says_welcome_is_left() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.connect_timeout = Duration::from_millis(200);
    let mut source = source(wanted);
    let (mut peer, _) = broker.accept().await;
    assert_eq!(disconnected(&mut source).await.0.code, FaultCode::Timeout);
    assert_eq!(peer.next().await, None);
    assert_eq!(source.counters().connect_failures, 1);
}

#[tokio::test]
async fn closing_writes_what_was_acknowledged_and_says_goodbye() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(false).await;
    connected(&mut source).await;
    subscribed(&mut source).await;
    for n in 1..=300 {
        peer.send(Publish::new("a", n, "x").encode()).await;
    }
    for _ in 0..200 {
        delivery(&mut source).await;
    }
    source.acknowledge(id(1, 150));
    let reading = tokio::spawn(peer.rest());
    source.close(PATIENCE).await;
    let sent = reading.await.unwrap();
    let expected: Vec<_> = (1..=150).map(Sent::PubAck).chain([Sent::Disconnect(0)]).collect();
    assert_eq!(sent, expected);
    assert!(matches!(next(&mut source).await, SourceEvent::Closed));
}

#[tokio::test]
async fn closing_works_at_every_stage() {
    // While nothing answers, and between attempts.
    let mut idle = source(options(crate::mosquitto::free_port(), &[("a", "r")]));
    disconnected(&mut idle).await;
    idle.close(PATIENCE).await;
    assert!(matches!(next(&mut idle).await, SourceEvent::Closed));
    // While the broker owes its CONNACK.
    let broker = ScriptedBroker::new().await;
    let mut waiting = source(options(broker.port, &[("a", "r")]));
    let (mut peer, _) = broker.accept().await;
    waiting.close(PATIENCE).await;
    assert_eq!(peer.next().await, None);
}

#[tokio::test]
async fn dropping_the_source_ends_the_connection() {
    let broker = ScriptedBroker::new().await;
    let source = source(options(broker.port, &[("a", "r")]));
    let peer = broker.serve(false).await;
    drop(source);
    assert_eq!(peer.rest().await, []);
}

#[tokio::test]
async fn malformed_packets_are_contained_and_counted() {
    let wrong: Vec<Vec<u8>> = vec![
        packet(0x00, &[1, 2, 3]),                                  // a reserved packet type
        packet(0x36, b"\x00\x01a\x00\x01\x00"),                    // quality of service 3
        packet(0x32, b"\x00\x01a\x00\x00\x00x"),                   // packet identifier 0
        packet(0x32, b"\x00\x09a\x00\x01\x00x"),                   // a topic longer than the packet
        packet(0x32, b"\x00\x02a#\x00\x01\x00x"),                  // a wildcard in a topic
        packet(0x32, b"\x00\x01a\x00\x01\x03\x7f\x00\x00"),        // an unknown property
        packet(0x32, b"\x00\x02\xc3\x28\x00\x01\x00x"),            // a topic that is no UTF-8
        packet(0x32, b"\x00\x00\x00\x01\x00x"),                    // no topic at all
        packet(0x32, b"\x00\x01a\x00\x01\x03\x23\x00\x01x"),       // a topic alias, which was never agreed to
        packet(0x32, b"\x00\x00\x00\x01\x03\x23\x00\x01x"),        // the same without a topic
        vec![0x30, 0xff, 0xff, 0xff, 0xff, 0x01],                  // a length of five bytes
        packet(0x40, &[0, 1]),                                     // an acknowledgement of nothing
        packet(0x90, &[0x12, 0x34, 0, 1]),                         // a SUBACK for nothing
        packet(0x20, &[0, 0, 0]),                                  // a second CONNACK
        packet(0x10, b"\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00"), // a CONNECT
        packet(0xd1, &[]),                                         // reserved flags
    ];
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.reconnect_max_delay = Duration::from_millis(20);
    let mut source = source(wanted);
    let count = wrong.len() as u64;
    for bytes in wrong {
        let mut peer = broker.serve(true).await;
        connected(&mut source).await;
        subscribed(&mut source).await;
        // What came before the wrong packet, in the very same segment, is delivered.
        peer.send([Publish::new("a", 7, "good").encode(), bytes.clone()].concat()).await;
        assert_eq!(text(&delivery(&mut source).await), "good");
        let (fault, _) = disconnected(&mut source).await;
        assert_eq!(fault.code, FaultCode::ProtocolError, "{bytes:x?}: {fault}");
    }
    // The session is kept: what was wrong with quality of service 1 comes again, and of what cannot be told apart nobody knows that it is lost.
    assert_eq!((source.counters().poison_packets, source.counters().poison_lost), (count, 0));
}

#[tokio::test]
async fn what_cannot_be_read_is_lost_where_it_does_not_come_again() {
    // Neither has a topic.
    let (unrepeated, repeated) = (packet(0x30, b"\x00\x00\x00x"), packet(0x32, b"\x00\x00\x00\x01\x00x"));
    for (expiry, packet, lost) in [(3_600_u32, &unrepeated, 1), (3_600, &repeated, 0), (0, &unrepeated, 1), (0, &repeated, 1)] {
        let broker = ScriptedBroker::new().await;
        let mut source = source(options(broker.port, &[("a", "r")]));
        let (mut peer, _) = broker.accept().await;
        peer.send(connack(false, 0, &[&[0x11], &expiry.to_be_bytes()[..]].concat())).await;
        peer.grant(1).await;
        connected(&mut source).await;
        subscribed(&mut source).await;
        peer.send(packet.clone()).await;
        disconnected(&mut source).await;
        assert_eq!((source.counters().poison_packets, source.counters().poison_lost), (1, lost), "{expiry}");
    }
}

/// A PUBLISH that ends where its property length should stand is swallowed by the library without a word, and holds up what follows until the broker
/// sends something more. It must not become a message, and everything behind it must still come.
#[tokio::test]
async fn a_truncated_publish_is_no_message() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let mut peer = broker.serve(true).await;
    peer.send([packet(0x32, b"\x00\x01a\x00\x01"), Publish::new("a", 2, "2").encode()].concat()).await;
    connected(&mut source).await;
    subscribed(&mut source).await;
    peer.send(Publish::new("a", 3, "3").encode()).await;
    for n in [1, 2] {
        let delivery = delivery(&mut source).await;
        assert_eq!((delivery.id, text(&delivery)), (id(1, n), (n + 1).to_string()));
        source.acknowledge(delivery.id);
    }
    assert_eq!(peer.acks(2).await, [2, 3]);
}

#[tokio::test]
async fn a_packet_over_the_limit_is_contained_and_counted_and_never_a_hot_loop() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.max_packet_bytes = 1_024;
    (wanted.reconnect_delay, wanted.reconnect_max_delay) = (Duration::from_millis(8), Duration::from_millis(64));
    let mut source = source(wanted);
    let mut step = Duration::from_millis(8);
    for round in 1..=5 {
        let mut peer = broker.serve(true).await;
        peer.try_send(&Publish::new("a", 1, vec![b'x'; 2_000]).encode()).await;
        connected(&mut source).await;
        subscribed(&mut source).await;
        let (fault, retry_in) = disconnected(&mut source).await;
        assert!(fault.detail.contains("1024"), "{fault}");
        assert!(retry_in >= step / 2, "round {round}: {retry_in:?} of {step:?}");
        step = (step * 2).min(Duration::from_millis(64));
        assert_eq!(source.counters().poison_packets, round);
    }
    // A packet of exactly the announced size is taken.
    let mut peer = broker.serve(true).await;
    let overhead = Publish::new("a", 1, vec![b'x'; 500]).encode().len() - 500;
    let exact = Publish::new("a", 1, vec![b'x'; 1_024 - overhead]).encode();
    assert_eq!(exact.len(), 1_024);
    peer.send(exact).await;
    assert_eq!(any_delivery(&mut source).await.message.payload.len(), 1_024 - overhead);
    eventually(|| source.status().get().connected).await;
}

#[tokio::test]
async fn an_answer_that_is_no_mqtt_is_told() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r")]));
    let (mut peer, _) = broker.accept().await;
    let answer = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: 200\r\n\r\n{}", " ".repeat(200));
    peer.send(answer.into_bytes()).await;
    assert_eq!(disconnected(&mut source).await.0.code, FaultCode::ProtocolError);
    assert_eq!(source.counters().connect_failures, 1);
}
