//! Brokers of MQTT 3.1.1: what travels, byte by byte, and that nothing is lost with a real one.

use crate::mosquitto::Mosquitto;
use crate::packets::{Publish, Publisher, packet, read};
use crate::support::{PATIENCE, any_delivery, connected, delivery, disconnected, eventually, id, options, ready, source, subscribed, text};
use causeway_core::outcome::FaultCode;
use causeway_mqtt::{Protocol, SourceOptions};
use causeway_ports::Source;
use core::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

fn older(port: u16) -> SourceOptions {
    let mut options = options(port, &[("a", "r")]);
    options.protocol = Protocol::V311;
    options
}

async fn accept(listener: &TcpListener) -> TcpStream {
    timeout(PATIENCE, listener.accept()).await.expect("no connection came").unwrap().0
}

async fn packet_of(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    timeout(PATIENCE, read(stream)).await.expect("the client sent nothing").expect("the client closed")
}

/// The whole life of a connection in the words of MQTT 3.1.1.
#[tokio::test]
async fn the_packets_are_those_of_3_1_1() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut source = source(older(listener.local_addr().unwrap().port()));
    let mut peer = accept(&listener).await;
    let (first, body) = packet_of(&mut peer).await;
    // Protocol level 4, no clean session, keep-alive of 30 s, and the client id directly behind it.
    assert_eq!((first, &body[..]), (0x10, &b"\0\x04MQTT\x04\0\0\x1e\0\x08worker-1"[..]));
    peer.write_all(&[0x20, 2, 1, 0]).await.unwrap();
    assert_eq!(connected(&mut source).await, (causeway_ports::ConnectionEpoch(1), true));
    let (first, body) = packet_of(&mut peer).await;
    assert_eq!((first, &body[2..]), (0x82, &b"\0\x01a\x01"[..]));
    peer.write_all(&[0x90, 3, body[0], body[1], 1]).await.unwrap();
    assert_eq!(subscribed(&mut source).await, (1, Vec::new()));
    peer.write_all(&packet(0x3b, b"\0\x01a\x12\x34payload")).await.unwrap();
    let got = delivery(&mut source).await;
    assert_eq!((text(&got).as_str(), got.message.retain, got.message.qos), ("payload", true, 1));
    source.acknowledge(got.id);
    assert_eq!(packet_of(&mut peer).await, (0x40, vec![0x12, 0x34]));
    let closing = tokio::spawn(async move { source.close(Duration::from_secs(20)).await });
    assert_eq!(packet_of(&mut peer).await, (0xe0, Vec::new()));
    drop(peer);
    closing.await.unwrap();
}

#[tokio::test]
async fn a_session_that_is_not_kept_is_clean_and_refusals_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut wanted = older(listener.local_addr().unwrap().port());
    wanted.session_expiry = 0;
    let mut source = source(wanted);
    let mut peer = accept(&listener).await;
    assert_eq!(packet_of(&mut peer).await.1[7], 0b10);
    peer.write_all(&[0x20, 2, 0, 5]).await.unwrap();
    assert_eq!(disconnected(&mut source).await.0.code, FaultCode::NotAuthorized);
    let mut peer = accept(&listener).await;
    packet_of(&mut peer).await;
    peer.write_all(&[0x20, 2, 0, 0]).await.unwrap();
    connected(&mut source).await;
    let (_, subscribe) = packet_of(&mut peer).await;
    peer.write_all(&[0x90, 3, subscribe[0], subscribe[1], 0x80]).await.unwrap();
    let (granted, refused) = subscribed(&mut source).await;
    assert_eq!((granted, refused.len()), (0, 1));
}

/// What arrived before nonsense is handed on, and the nonsense is counted.
#[tokio::test]
async fn malformed_packets_are_contained_and_counted() {
    for nonsense in [&b"\x32\x03\0\x09a"[..], b"\xe0\0", b"\x30\xff\xff\xff\xff", b"\x32\xff\xff\xff\x7f"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut source = source(older(listener.local_addr().unwrap().port()));
        let mut peer = accept(&listener).await;
        packet_of(&mut peer).await;
        peer.write_all(&[0x20, 2, 1, 0]).await.unwrap();
        let (_, subscribe) = packet_of(&mut peer).await;
        peer.write_all(&[0x90, 3, subscribe[0], subscribe[1], 1]).await.unwrap();
        ready(&mut source).await;
        peer.write_all(&[&packet(0x32, b"\0\x01a\0\x01good")[..], nonsense].concat()).await.unwrap();
        assert_eq!(text(&delivery(&mut source).await), "good", "before {nonsense:?}");
        assert_eq!(disconnected(&mut source).await.0.code, FaultCode::ProtocolError, "{nonsense:?}");
        eventually(|| source.counters().poison_packets == 1).await;
    }
}

/// A broker of MQTT 5 that answers in its own words although it was asked in others.
#[tokio::test]
async fn an_answer_of_another_version_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut source = source(older(listener.local_addr().unwrap().port()));
    let mut peer = accept(&listener).await;
    packet_of(&mut peer).await;
    peer.write_all(&[0x20, 3, 0, 0, 0]).await.unwrap();
    let (fault, _) = disconnected(&mut source).await;
    assert!(fault.detail.contains("3.1.1"), "{fault}");
}

#[tokio::test]
async fn mosquitto_keeps_the_session_and_nothing_is_lost() {
    let broker = Mosquitto::start().await;
    let mut first = source(older(broker.port));
    ready(&mut first).await;
    let all: Vec<Publish> = (0..200).map(|n| Publish::new("a", 1, n.to_string())).collect();
    Publisher::connect(broker.port).await.publish_all(&all).await;
    // The broker alone decides how much it sends ahead: mosquitto 20 messages, unless it is told otherwise.
    let mut last = id(0, 0);
    for n in 0..20 {
        let delivery = any_delivery(&mut first).await;
        assert_eq!(text(&delivery), n.to_string());
        if n < 10 {
            last = delivery.id;
        }
    }
    first.acknowledge(last);
    eventually(|| first.counters().acknowledged == 10).await;
    drop(first);
    let mut second = source(older(broker.port));
    assert!(connected(&mut second).await.1, "the session was kept");
    for n in 10..200 {
        let delivery = any_delivery(&mut second).await;
        assert_eq!(text(&delivery), n.to_string());
        second.acknowledge(delivery.id);
    }
    second.close(Duration::from_secs(20)).await;
    let mut third = source(older(broker.port));
    ready(&mut third).await;
    Publisher::connect(broker.port).await.publish(&Publish::new("a", 1, "new")).await;
    assert_eq!(text(&any_delivery(&mut third).await), "new", "nothing came again");
}

#[tokio::test]
async fn messages_get_an_id_of_their_content() {
    let broker = Mosquitto::start().await;
    let mut wanted = older(broker.port);
    wanted.content_hash = Some("tcp://broker:1883".into());
    let mut source = source(wanted);
    ready(&mut source).await;
    let mut publisher = Publisher::connect(broker.port).await;
    let mut ids = Vec::new();
    for payload in ["one", "one", "two"] {
        publisher.publish(&Publish::new("a", 1, payload)).await;
        let delivery = any_delivery(&mut source).await;
        let [(name, value)] = &delivery.message.properties.user[..] else { panic!("{:?}", delivery.message.properties) };
        assert_eq!(name, "mqtt.message-id");
        assert!(value.starts_with("mqtt-sha256:"), "{value}");
        ids.push(value.clone());
    }
    assert!(ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
}
