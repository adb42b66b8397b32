//! Two clients with one client id, each of which ends the other's connection: the fight is damped, and named.

use crate::broker::ScriptedBroker;
use crate::mosquitto::Mosquitto;
use crate::packets::Publish;
use crate::support::{PATIENCE, any_delivery, disconnected, next, options, ready, source};
use causeway_mqtt::{MqttSource, SourceOptions};
use causeway_ports::{Source, SourceEvent};
use core::time::Duration;
use tokio::time::timeout;

const SHORTEST: Duration = Duration::from_millis(32);
const LONGEST: Duration = Duration::from_millis(128);

/// A source whose pauses after other losses stay far below those after a takeover.
fn wary(port: u16) -> SourceOptions {
    let mut wanted = options(port, &[("a", "r")]);
    (wanted.reconnect_delay, wanted.reconnect_max_delay) = (Duration::from_millis(2), Duration::from_millis(2));
    (wanted.takeover_delay, wanted.takeover_max_delay) = (SHORTEST, LONGEST);
    wanted
}

/// Lets the broker end a connection that stands and does useful work; answers what was said, and the pause.
async fn ended_by(broker: &ScriptedBroker, source: &mut MqttSource, goodbye: &[u8]) -> (String, Duration) {
    let mut peer = broker.serve(true).await;
    peer.send(Publish::new("a", 1, "x").encode()).await;
    let delivery = any_delivery(source).await;
    source.acknowledge(delivery.id);
    assert_eq!(peer.acks(1).await, [1]);
    peer.send(goodbye.to_vec()).await;
    drop(peer);
    let (fault, retry_in) = disconnected(source).await;
    (fault.detail, retry_in)
}

/// Useful work does not end the doubling here: both rivals do some.
#[tokio::test]
async fn takeovers_are_free_once_and_then_cost_ever_more_whatever_work_was_done() {
    for (goodbye, said_at_once) in [(&[0xe0, 2, 0x8e, 0][..], true), (&[0xe0, 1, 0x8e][..], false), (&[][..], false)] {
        let broker = ScriptedBroker::new().await;
        let mut source = source(wary(broker.port));
        let (detail, free) = ended_by(&broker, &mut source, goodbye).await;
        assert!(free < Duration::from_millis(2), "{free:?}");
        assert_eq!(detail.contains("client_id"), said_at_once, "{detail}");
        for step in [SHORTEST, SHORTEST * 2, LONGEST, LONGEST] {
            let (detail, pause) = ended_by(&broker, &mut source, goodbye).await;
            assert!(pause >= step / 2 && pause < step, "{pause:?} of {step:?}");
            assert!(detail.contains("another client") && detail.contains("client_id"), "{detail}");
        }
    }
}

/// What the broker says when it ends a connection for another reason than a takeover names no rival.
#[tokio::test]
async fn other_endings_are_no_takeovers() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(wary(broker.port));
    for reason in [0x8b, 0x89, 0x97, 0x87] {
        let (detail, pause) = ended_by(&broker, &mut source, &[0xe0, 2, reason, 0]).await;
        assert!(pause < Duration::from_millis(2), "{pause:?}");
        assert!(!detail.contains("client_id"), "{detail}");
    }
}

/// Nobody has a lease here. Each of the two finds out, and each waits ever longer.
#[tokio::test]
async fn two_processes_with_one_client_id_are_damped_and_named() {
    async fn finds_out(source: &mut MqttSource) {
        loop {
            if let SourceEvent::Disconnected { fault, retry_in, .. } = next(source).await
                && retry_in >= LONGEST / 2
            {
                assert!(fault.detail.contains("another client"), "{fault}");
                return;
            }
        }
    }
    let broker = Mosquitto::start().await;
    let mut first = source(wary(broker.port));
    ready(&mut first).await;
    let mut second = source(wary(broker.port));
    timeout(PATIENCE, async { tokio::join!(finds_out(&mut first), finds_out(&mut second)) }).await.expect("nobody found out");
}
