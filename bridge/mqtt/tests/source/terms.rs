//! What a connection may cost at most, and what it holds back or gives up in the meantime.

use crate::broker::{Peer, ScriptedBroker};
use crate::gated::{Gate, gated};
use crate::mosquitto::Mosquitto;
use crate::packets::{Publish, Sent, suback};
use crate::support::{PATIENCE, any_delivery, connected, disconnected, eventually, id, options, ready, source, subscribed, text};
use causeway_core::dispatch::NO_RECEIVER;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_ports::Source;
use core::time::Duration;

async fn answer(peer: &mut Peer, codes: &[u8]) {
    for code in codes {
        let Some(Sent::Subscribe { id, .. }) = peer.next().await else { panic!("no SUBSCRIBE") };
        peer.send(suback(id, &[*code])).await;
    }
}

/// A refused filter: the rest of the session goes on by the same connection.
#[tokio::test]
async fn a_refused_filter_is_quarantined_and_the_session_goes_on() {
    let broker = ScriptedBroker::new().await;
    let mut source = source(options(broker.port, &[("a", "r"), ("b", "r")]));
    let mut peer = broker.welcome(false).await;
    answer(&mut peer, &[1, 0x87]).await;
    connected(&mut source).await;
    assert_eq!(subscribed(&mut source).await.0, 1);
    assert_eq!((source.counters().refusals, source.counters().quarantined), (1, 1));
    for round in 2..5 {
        peer.send(Publish::new("a", round, "x").encode()).await;
        let delivery = any_delivery(&mut source).await;
        source.acknowledge(delivery.id);
        // The acknowledgement and the next question may come in either order.
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let sent = peer.next().await.expect("the connection stands");
            if let Sent::Subscribe { id, filter, .. } = &sent {
                assert_eq!(filter, "b");
                peer.send(suback(*id, &[0x87])).await;
            }
            seen.push(sent);
        }
        assert!(seen.contains(&Sent::PubAck(round)), "{seen:?}");
        subscribed(&mut source).await;
    }
    answer(&mut peer, &[1]).await;
    assert_eq!(subscribed(&mut source).await, (2, vec![]));
    assert_eq!((source.counters().refusals, source.counters().quarantined, source.counters().reconnects), (4, 0, 0));
}

#[tokio::test]
async fn strictly_every_filter_is_granted_or_the_connection_is_closed_and_tried_again() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r"), ("b", "r")]);
    wanted.strict_subscriptions = true;
    let mut source = source(wanted);
    for round in 1..4 {
        let mut peer = broker.welcome(round > 1).await;
        answer(&mut peer, &[1, 0x87]).await;
        connected(&mut source).await;
        let (fault, _) = disconnected(&mut source).await;
        assert_eq!(fault.code, FaultCode::NotAuthorized);
        assert!(fault.detail.contains("`b`") && fault.detail.contains("strict_subscriptions"), "{fault}");
        assert_eq!(source.counters().refusals, round);
    }
    let mut peer = broker.welcome(true).await;
    peer.grant(2).await;
    connected(&mut source).await;
    assert_eq!(subscribed(&mut source).await, (2, vec![]));
}

/// The time of grace is long here: nothing but its end hands the message on.
#[tokio::test]
async fn what_no_receiver_asked_for_is_held_back_and_holds_no_other_message_up() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "first")]);
    wanted.unmatched_grace = PATIENCE * 100;
    let mut source = source(wanted);
    let mut peer = broker.serve(true).await;
    ready(&mut source).await;
    peer.send(Publish::new("a", 1, "before").encode()).await;
    peer.send(Publish::new("old", 2, "nobody's").encode()).await;
    peer.send(Publish::new("a", 3, "after").encode()).await;
    let (before, after) = (any_delivery(&mut source).await, any_delivery(&mut source).await);
    assert_eq!((text(&before), text(&after)), ("before".to_owned(), "after".to_owned()));
    source.acknowledge(after.id);
    assert_eq!(peer.acks(1).await, [1], "acknowledgements leave in order: the third waits for the second");
    let counters = source.counters();
    assert_eq!((counters.unmatched_held, counters.unacknowledged), (1, 2));
    let reading = tokio::spawn(peer.rest());
    source.close(PATIENCE).await;
    assert_eq!(reading.await.unwrap(), [Sent::Disconnect(0)], "neither is acknowledged");
}

#[tokio::test]
async fn when_the_grace_ends_it_is_handed_on_as_nobodys() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "first"), ("b", "second")]);
    wanted.unmatched_grace = Duration::from_secs(2);
    let mut source = source(wanted);
    let mut peer = broker.welcome(true).await;
    peer.grant(2).await;
    peer.send(Publish::new("old", 1, "nobody's").encode()).await;
    peer.send(Publish::new("b", 2, "after").encode()).await;
    let first = any_delivery(&mut source).await;
    let second = any_delivery(&mut source).await;
    let mut texts = [text(&first), text(&second)];
    texts.sort();
    assert_eq!(texts, ["after", "nobody's"]);
    source.acknowledge(second.id);
    assert_eq!(peer.acks(2).await, [1, 2], "in the order in which they arrived");
    let held = [first, second].into_iter().find(|delivery| text(delivery) == "nobody's").unwrap();
    assert_eq!(&*held.receiver, NO_RECEIVER);
    eventually(|| source.counters().unmatched_held == 0).await;
}

/// A connection that never lives to the end of the grace may not hold messages back for ever.
#[tokio::test]
async fn two_connections_at_most_hold_a_message_back() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "first")]);
    wanted.unmatched_grace = PATIENCE * 100;
    let mut source = source(wanted);
    for connection in 1..=2 {
        let mut peer = broker.serve(true).await;
        peer.send(Publish::new("old", 1, "nobody's").encode()).await;
        peer.send(Publish::new("a", 2, "wanted").encode()).await;
        let delivery = any_delivery(&mut source).await;
        assert_eq!((delivery.id, text(&delivery).as_str()), (id(connection, 1), "wanted"));
        drop(peer);
        disconnected(&mut source).await;
    }
    let mut peer = broker.serve(true).await;
    peer.send(Publish::new("old", 1, "nobody's").encode()).await;
    assert_eq!(text(&any_delivery(&mut source).await), "nobody's");
}

fn unknown() -> Fault {
    Fault::new(FaultCode::Unavailable, "the account cannot be written")
}

/// The store is away when the first connection of a new client stands: the broker must not keep a session that nobody has an account of.
#[tokio::test]
async fn a_new_session_without_an_account_ends_with_its_connection() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::open();
    gate.fail_to_subscribe(unknown());
    let mut source = source(gated(broker.port, &[("a", "r")], &gate));
    for session_present in [false, true] {
        let peer = broker.welcome(session_present).await;
        connected(&mut source).await;
        let reading = tokio::spawn(peer.rest());
        assert_eq!(disconnected(&mut source).await.0, unknown());
        let expected = if session_present { vec![] } else { vec![Sent::Leave(0)] };
        assert_eq!(reading.await.unwrap(), expected, "a session that was there before is not given up");
    }
}

#[tokio::test]
async fn a_stop_before_the_account_stands_gives_a_new_session_up_too() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::silent();
    let mut source = source(gated(broker.port, &[("a", "r")], &gate));
    gate.answer(1);
    let peer = broker.welcome(false).await;
    connected(&mut source).await;
    let reading = tokio::spawn(peer.rest());
    source.close(PATIENCE).await;
    assert_eq!(reading.await.unwrap(), [Sent::Leave(0)]);
}

/// The gate answers too late to be heard: the goodbye still fits into the time for reconciling.
#[tokio::test]
async fn a_gate_that_never_answers_gives_a_new_session_up() {
    let broker = ScriptedBroker::new().await;
    let gate = Gate::silent();
    let mut wanted = gated(broker.port, &[("a", "r")], &gate);
    wanted.reconcile_timeout = Duration::from_secs(2);
    let mut source = source(wanted);
    gate.answer(1);
    let peer = broker.welcome(false).await;
    connected(&mut source).await;
    let reading = tokio::spawn(peer.rest());
    assert_eq!(disconnected(&mut source).await.0.code, FaultCode::Timeout);
    assert_eq!(reading.await.unwrap(), [Sent::Leave(0)]);
}

/// The very thing that would lock a bridge out: a session at the broker that nobody has an account of.
#[tokio::test]
async fn mosquitto_finds_no_session_after_one_that_could_not_be_accounted_for() {
    let broker = Mosquitto::start().await;
    let gate = Gate::open();
    gate.fail_to_subscribe(unknown());
    let mut source = source(gated(broker.port, &[("a", "r")], &gate));
    for _ in 0..3 {
        assert!(!connected(&mut source).await.1, "the broker has no session of it");
        assert_eq!(disconnected(&mut source).await.0, unknown());
    }
    gate.stale(&[]);
    let mut present = connected(&mut source).await.1;
    assert!(!present);
    assert_eq!(subscribed(&mut source).await, (1, vec![]));
    source.close(PATIENCE).await;
    let mut again = crate::support::source(gated(broker.port, &[("a", "r")], &gate));
    present = connected(&mut again).await.1;
    assert!(present, "and keeps the one that was accounted for");
}

/// Less than was asked for is asked for again after its own time, and the rest goes on.
#[tokio::test]
async fn a_lower_grant_is_checked_again() {
    let broker = ScriptedBroker::new().await;
    let mut wanted = options(broker.port, &[("a", "r")]);
    wanted.subscriptions[0].qos_recheck = Duration::from_millis(50);
    let mut source = source(wanted);
    let mut peer = broker.welcome(true).await;
    answer(&mut peer, &[0]).await;
    connected(&mut source).await;
    let (granted, refused) = subscribed(&mut source).await;
    assert_eq!((granted, refused[0].1.code), (0, FaultCode::InvalidConfig));
    answer(&mut peer, &[1]).await;
    assert_eq!(subscribed(&mut source).await, (1, Vec::new()));
}
