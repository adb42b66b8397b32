//! What becomes of entries: delivered, tried again, dead-lettered, dropped; never lost, never counted twice.

use crate::support::{Rig, Store, Trouble, at_ms, entry_of, epoch, fault, message, ms, options, route};
use causeway_core::config::model::Retained;
use causeway_core::config::{Source, load};
use causeway_core::dispatch::Dispatch;
use causeway_core::identity::{Epoch, Id128, Position, Slot};
use causeway_core::log::Call;
use causeway_core::message::{Message, Refusal};
use causeway_core::outcome::{FaultClass, FaultCode, Outcome};
use causeway_core::rows::{CODEC_POSTCARD_ZSTD, Head, Row, Segment, SettledRange, pack};
use causeway_core::units::UnixMillis;
use causeway_core::worker::options::{Fate, to_first_legs};
use causeway_core::worker::{End, Event, Observation};
use std::collections::BTreeSet;
use std::sync::Arc;

fn segment(epoch: u64, id: u128, entries: &[Arc<causeway_core::message::Entry>], drained: u64) -> Row {
    Row::Segment(Segment {
        epoch: Epoch(epoch),
        segment_id: Id128(id),
        count: u32::try_from(entries.len()).unwrap(),
        codec: CODEC_POSTCARD_ZSTD,
        body: pack(entries).unwrap(),
        created_at: UnixMillis(0),
        earliest_expiry: None,
        drained: Slot(drained),
    })
}

#[test]
fn an_acknowledgement_follows_the_store_and_a_send_follows_it_at_once_when_idle() {
    let mut rig = Rig::opened(options(1), Store::default());
    let began = rig.now;
    rig.deliver("in", message("one"));
    assert!(rig.acks.is_empty() && rig.sends.is_empty());
    rig.run_for(ms(3));
    assert_eq!(rig.acks.len(), 1);
    assert_eq!(rig.sends[0].at, began.plus(ms(3)), "sent the moment that it was stored");
    rig.run_to_rest();
    assert_eq!(rig.delivered.len(), 1);
    assert_eq!(rig.store.effective_head(), rig.store.tail(), "the head is written when the lane goes idle");
}

#[test]
fn a_delivery_with_two_routes_is_acknowledged_once_both_entries_are_stored() {
    let mut options = options(1);
    options.legs = vec![route("a", "in"), route("b", "in")];
    options.dispatch = to_first_legs(&options.legs);
    options.segment.max_messages = 1;
    let mut rig = Rig::opened(options, Store::default());
    rig.deliver("in", message("one"));
    rig.run_for(ms(3));
    assert!(rig.acks.is_empty(), "only the first of its two segments is stored");
    rig.run_to_rest();
    assert_eq!(rig.acks.len(), 1);
    assert_eq!((rig.counters(0).delivered, rig.counters(1).delivered), (1, 1));
}

#[test]
fn an_entry_that_keeps_failing_does_not_stop_draining_for_good() {
    // The stuck entry is what holds `settled_ahead` at its bound: it must still be sent when its pause is over.
    let mut options = options(1);
    options.max_settled_ahead = 20;
    let mut rig = Rig::opened(options, Store::default());
    let healed = rig.now.plus(ms(60_000));
    rig.on_send = Box::new(move |now, entry| {
        if &entry.message.payload[..] == b"stuck" && now < healed {
            Outcome::NotDone(fault(FaultCode::Unavailable))
        } else {
            Outcome::Done(())
        }
    });
    rig.deliver("in", message("stuck"));
    for nth in 0..200 {
        rig.run_for(ms(1));
        rig.deliver("in", message(&format!("{nth}")));
    }
    rig.run_until(healed);
    let ahead = rig.owner.status(rig.wall()).settled_ahead;
    assert!((20..20 + 100).contains(&ahead), "draining ahead stops soon after the bound: {ahead}");
    let attempts = rig.sends.iter().filter(|sent| sent.entries.iter().any(|entry| &entry.message.payload[..] == b"stuck")).count();
    assert!(attempts > 10, "the stuck entry is tried again: {attempts}");
    rig.run_to_rest();
    assert_eq!(rig.delivered.len(), 201);
    assert_eq!(rig.owner.exposed(), 0);
}

#[test]
fn an_outage_of_any_length_makes_no_poison() {
    let mut options = options(1);
    options.legs[0].policy.max_replay_attempts = 3;
    let mut rig = Rig::opened(options, Store::default());
    let healed = rig.now.plus(ms(3_600_000));
    rig.on_send = Box::new(move |now, _| if now < healed { Outcome::Unknown(fault(FaultCode::Timeout)) } else { Outcome::Done(()) });
    for nth in 0..20 {
        rig.deliver("in", message(&format!("{nth}")));
    }
    rig.run_to_rest();
    assert!(rig.letters.is_empty());
    assert_eq!(rig.delivered.len(), 20);
}

#[test]
fn a_queue_that_is_gone_is_tried_for_the_whole_budget_before_anything_is_given_up() {
    let mut options = options(1);
    options.legs[0].policy.max_replay_attempts = 3;
    options.legs[0].policy.replay_budget = ms(600_000);
    let mut rig = Rig::opened(options.clone(), Store::default());
    let mended = rig.now.plus(ms(590_000));
    rig.on_send = Box::new(move |now, _| if now < mended { Outcome::NotDone(fault(FaultCode::NotFound)) } else { Outcome::Done(()) });
    rig.deliver("in", message("waits"));
    rig.run_to_rest();
    assert_eq!((rig.letters.len(), rig.delivered.len()), (0, 1), "mended in time: delivered");

    let mut rig = Rig::opened(options, Store::default());
    rig.on_send = Box::new(|_, _| Outcome::NotDone(fault(FaultCode::NotAuthorized)));
    rig.deliver("in", message("in vain"));
    rig.run_to_rest();
    let codes: Vec<&str> = rig.letters.values().map(|letter| letter.error_code.as_str()).collect();
    assert_eq!((codes, rig.delivered.len()), (vec!["NOT_AUTHORIZED"], 0), "never mended: a dead letter, not an endless retry");
    assert!(rig.now.since(causeway_core::units::Instant::default()) >= ms(600_000));
}

#[test]
fn an_entry_that_fails_while_others_pass_becomes_poison_after_attempts_and_budget() {
    let mut options = options(1);
    options.legs[0].policy.max_replay_attempts = 3;
    options.legs[0].policy.replay_budget = ms(5_000);
    let mut rig = Rig::opened(options, Store::default());
    let began = rig.now;
    rig.on_send =
        Box::new(
            |_, entry| {
                if &entry.message.payload[..] == b"bad" { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) }
            },
        );
    rig.deliver("in", message("bad"));
    for nth in 0..200 {
        rig.run_for(ms(100));
        rig.deliver("in", message(&format!("{nth}")));
        if rig.now.since(began) < ms(5_000) {
            assert!(rig.letters.is_empty(), "not before the budget is spent");
        }
    }
    rig.run_to_rest();
    let letter = rig.letters.values().next().expect("a dead letter");
    assert_eq!((rig.letters.len(), letter.category, letter.error_code.as_str()), (1, FaultClass::Poison, "POISON_MESSAGE"));
    assert!(letter.attempts > 3);
    assert_eq!(rig.delivered.len(), 200);
}

#[test]
fn attempts_are_carried_from_owner_to_owner() {
    let mut bad = options(1);
    bad.legs[0].policy.max_replay_attempts = 8;
    let refuse = |_, _: &causeway_core::message::Entry| Outcome::NotDone(fault(FaultCode::Unavailable));
    let mut first = Rig::opened(bad.clone(), Store::default());
    first.on_send = Box::new(refuse);
    first.deliver("in", message("bad"));
    first.run_for(ms(1_000));
    first.stop_within(ms(0));
    first.run_while(|rig| rig.end.is_none());
    let tried = first.sends.len();
    assert!(tried >= 3, "{tried}");
    assert_eq!(
        first.store.head.as_ref().expect("a head row at a clean stop").attempts,
        vec![(Position { slot: Slot(2), index: 0 }, u32::try_from(tried).unwrap())]
    );

    let mut second = first.successor(causeway_core::worker::options::OwnerOptions {
        owner: "second".to_owned(),
        entry_id_base: 2 << 64,
        row_id_base: 2 << 96,
        ..bad
    });
    second.on_send =
        Box::new(
            |_, entry| {
                if &entry.message.payload[..] == b"bad" { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) }
            },
        );
    second.event(Event::Tick);
    second.run_for(ms(50));
    second.deliver("in", message("good"));
    second.run_to_rest();
    let letter = second.letters.values().next().expect("a dead letter");
    let again = second.sends.iter().filter(|sent| &sent.entries[0].message.payload[..] == b"bad").count();
    assert_eq!(letter.attempts as usize, tried + again);
    assert!(again < 9, "the second owner did not start counting anew: {again}");
}

#[test]
fn what_expired_is_dead_lettered_or_dropped_as_the_policy_says() {
    for fate in [Fate::DeadLetter, Fate::Drop] {
        let mut options = options(1);
        options.legs[0].policy.on_expired = fate;
        let mut rig = Rig::opened(options, Store::default());
        let healed = rig.now.plus(ms(10_000));
        rig.on_send =
            Box::new(move |now, _| if now < healed { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) });
        let mut short = message("short");
        short.properties.expiry_seconds = Some(3);
        rig.deliver("in", short);
        rig.deliver("in", message("long"));
        rig.run_to_rest();
        let sent_late =
            rig.sends.iter().filter(|sent| sent.at >= at_ms(4_100)).flat_map(|sent| &sent.entries).any(|entry| entry.expires_at.is_some());
        assert!(!sent_late, "what expired is not sent");
        assert_eq!(rig.delivered.len(), 1);
        let counters = rig.counters(0);
        match fate {
            Fate::DeadLetter => assert_eq!((counters.dead_lettered, counters.expired), (1, 0)),
            Fate::Drop => assert_eq!((counters.dead_lettered, counters.expired), (0, 1)),
        }
        assert_eq!(
            rig.letters.values().map(|letter| letter.error_code.as_str()).collect::<Vec<_>>(),
            if fate == Fate::DeadLetter { vec!["MESSAGE_EXPIRED"] } else { vec![] }
        );
        assert_eq!(rig.store.effective_head(), rig.store.tail());
    }
}

#[test]
fn what_is_too_large_and_what_is_refused_for_good_is_dead_lettered_whole() {
    let mut options = options(1);
    options.legs[0].limits.entry_bytes = 1_000;
    let mut rig = Rig::opened(options, Store::default());
    rig.on_send =
        Box::new(
            |_, entry| {
                if &entry.message.payload[..] == b"bad" { Outcome::NotDone(fault(FaultCode::InvalidPayload)) } else { Outcome::Done(()) }
            },
        );
    let exact = "x".repeat(900);
    let large = "x".repeat(901);
    for text in [exact.as_str(), large.as_str(), "bad", "good"] {
        rig.deliver("in", message(text));
    }
    rig.run_to_rest();
    let mut letters: Vec<(String, usize)> =
        rig.letters.values().map(|letter| (letter.error_code.clone(), letter.message.payload.len())).collect();
    letters.sort();
    assert_eq!(letters, vec![("INVALID_PAYLOAD".to_owned(), 3), ("PAYLOAD_TOO_LARGE".to_owned(), 901)]);
    assert_eq!(rig.delivered.len(), 2);
    assert!(rig.sends.iter().flat_map(|sent| &sent.entries).all(|entry| entry.message.payload.len() != 901), "it is never sent");
}

#[test]
fn what_is_refused_for_good_is_dropped_and_counted_where_the_policy_says_so() {
    let mut options = options(1);
    options.legs[0].policy.on_permanent_failure = Fate::Drop;
    let mut rig = Rig::opened(options, Store::default());
    rig.on_send = Box::new(|_, _| Outcome::NotDone(fault(FaultCode::Refused)));
    rig.deliver("in", message("bad"));
    rig.run_to_rest();
    assert_eq!((rig.counters(0).dropped, rig.letters.len()), (1, 0));
    let told = rig.observations.iter().find_map(|seen| if let Observation::Dropped { dropped, .. } = seen { Some(dropped) } else { None });
    let told = told.expect("it is told");
    assert_eq!((told.reason.as_str(), told.direction.as_str(), told.outcome.as_str()), ("target_rejected", "egress", "lost"));
    assert_eq!((&*told.route, told.key.as_str(), told.topic.as_str(), told.qos), ("r", "b", "t", 1));
    assert_eq!(rig.store.effective_head(), rig.store.tail());
}

#[test]
fn an_entry_whose_route_is_gone_is_dead_lettered() {
    let mut store = Store::default();
    let mut gone = (*entry_of("orphan", 7)).clone();
    gone.route = "gone".into();
    store.rows.insert(Slot(1), segment(1, 1, &[Arc::new(gone), entry_of("known", 8)], 0));
    let mut rig = Rig::opened(options(2), store);
    rig.run_to_rest();
    assert_eq!(
        rig.letters.values().map(|letter| (letter.route.as_str(), letter.error_code.as_str())).collect::<Vec<_>>(),
        vec![("gone", "NOT_FOUND")]
    );
    assert_eq!(rig.counters(1).dead_lettered, 1, "counted beside the known routes");
    assert_eq!(rig.delivered.len(), 1);
}

#[test]
fn what_is_bound_for_another_binding_of_a_route_goes_there_and_for_one_that_is_gone_nowhere() {
    let mut second = route("r", "in");
    second.destination.binding = "second".to_owned();
    let mut options = options(2);
    options.legs.push(second);
    let mut store = Store::default();
    let bound_for = |binding: &str, id| {
        let mut entry = (*entry_of(binding, id)).clone();
        entry.binding = binding.into();
        Arc::new(entry)
    };
    store.rows.insert(Slot(1), segment(1, 1, &[bound_for("second", 7), bound_for("b", 8), bound_for("gone", 9)], 0));
    let mut rig = Rig::opened(options, store);
    rig.run_to_rest();
    assert_eq!(rig.sends.iter().map(|sent| (sent.leg, sent.entries[0].id.0)).collect::<BTreeSet<_>>(), [(0, 8), (1, 7)].into());
    assert_eq!((rig.counters(0).delivered, rig.counters(1).delivered, rig.counters(2).dead_lettered), (1, 1, 1));
    let letter = rig.letters.values().next().unwrap();
    assert_eq!((letter.binding.as_str(), letter.error_code.as_str()), ("gone", "NOT_FOUND"));
    assert_eq!(letter.last_error, "route `r` has no binding named `gone`");
}

#[test]
fn what_was_refused_when_it_came_is_kept_and_dead_lettered_with_its_reason_and_never_sent() {
    let mut store = Store::default();
    let mut refused = (*entry_of("refused", 7)).clone();
    refused.binding = "".into();
    refused.refusal = Some(Refusal { code: FaultCode::NoBinding, detail: "for a test".to_owned() });
    store.rows.insert(Slot(1), segment(1, 1, &[Arc::new(refused)], 0));
    let mut rig = Rig::opened(options(2), store);
    rig.run_to_rest();
    assert!(rig.sends.is_empty());
    let letter = rig.letters.values().next().unwrap();
    assert_eq!((letter.route.as_str(), letter.binding.as_str(), letter.error_code.as_str()), ("r", "", "NO_BINDING"));
    assert_eq!(rig.counters(0).dead_lettered, 1, "counted with its route");
}

/// An owner whose route filters out what has the header `noise`.
fn filtering(segment_messages: usize) -> Rig {
    let text = include_str!("../../../../tests/fixtures/valid/processors.yaml")
        .replace("processors: [quiet, aside, copy, tenant]", "processors: [quiet]")
        .replace("on_filtered: dlq", "on_filtered: drop");
    let config = load(&[Source { name: "t", text: &text }], &|_| None).unwrap().config;
    let mut options = options(1);
    options.dispatch = Arc::new(Dispatch::compile(&config, &config.routes).unwrap());
    options.legs[0].route = "main".into();
    options.legs[0].destination.binding = "to-queue".to_owned();
    options.segment.max_messages = segment_messages;
    Rig::opened(options, Store::default())
}

#[test]
fn what_is_filtered_out_is_acknowledged_in_its_turn_and_counted_and_not_kept() {
    let noise = || {
        let mut noise = message(r#"{"kind":"debug"}"#);
        noise.properties.user = vec![("keep".to_owned(), "no".to_owned())];
        noise
    };
    let mut rig = filtering(200);
    rig.deliver("in", noise());
    rig.run_for(ms(1));
    assert_eq!(rig.acks.iter().map(|ack| ack.ordinal).collect::<Vec<_>>(), [1], "there is nothing to wait for");
    rig.deliver("in", message(r#"{"kind":"data"}"#));
    rig.deliver("in", noise());
    assert_eq!(rig.acks.len(), 1, "the one before is not durable yet");
    rig.run_to_rest();
    assert_eq!(rig.acks.last().map(|ack| ack.ordinal), Some(3));
    let counters = rig.counters(0);
    assert_eq!((counters.received, counters.filtered, counters.delivered, rig.delivered.len()), (3, 2, 1, 1));
}

#[test]
fn what_the_broker_had_kept_and_nobody_wants_is_acknowledged_in_its_turn_and_counted() {
    let text = include_str!("../../../../tests/fixtures/valid/processors.yaml")
        .replace("    processors: [quiet, aside, copy, tenant, guard]\n", "")
        .replace("session_id: broker\n    topics", "session_id: broker\n    options: {retained: skip}\n    topics");
    let config = load(&[Source { name: "t", text: &text }], &|_| None).unwrap().config;
    assert_eq!(config.receivers[0].options.retained, Retained::Skip);
    let mut options = options(1);
    options.dispatch = Arc::new(Dispatch::compile(&config, &config.routes).unwrap());
    options.legs[0].route = "main".into();
    options.legs[0].destination.binding = "to-queue".to_owned();
    let mut rig = Rig::opened(options, Store::default());
    let kept = || Message { retain: true, ..message("kept") };
    rig.deliver("in", kept());
    rig.run_for(ms(1));
    assert_eq!(rig.acks.len(), 1, "there is nothing to wait for");
    rig.deliver("in", message("live"));
    rig.deliver("in", kept());
    assert_eq!(rig.acks.len(), 1, "the one before is not durable yet");
    rig.run_to_rest();
    assert_eq!(rig.acks.last().map(|ack| ack.ordinal), Some(3));
    let counters = rig.counters(0);
    assert_eq!((counters.received, counters.retained, counters.filtered, counters.delivered, rig.letters.len()), (3, 2, 0, 1, 0));
}

#[test]
fn a_dead_letter_store_that_refuses_for_a_while_loses_nothing() {
    let mut rig = Rig::opened(options(1), Store::default());
    let healed = rig.now.plus(ms(30_000));
    rig.on_send = Box::new(|_, _| Outcome::NotDone(fault(FaultCode::InvalidPayload)));
    let mut flip = false;
    rig.on_park = Box::new(move |now, _| {
        flip = !flip;
        match (now < healed, flip) {
            (true, true) => Outcome::NotDone(fault(FaultCode::Unavailable)),
            (true, false) => Outcome::Unknown(fault(FaultCode::Timeout)),
            (false, _) => Outcome::Done(()),
        }
    });
    for nth in 0..50 {
        rig.deliver("in", message(&format!("{nth}")));
    }
    rig.run_until(healed);
    assert_eq!(rig.store.unsettled().len(), 50, "nothing is settled without its letter");
    assert!(rig.letters.is_empty());
    rig.run_to_rest();
    assert_eq!(rig.letters.len(), 50);
    assert_eq!(rig.counters(0).dead_lettered, 50);
    assert_eq!(rig.store.effective_head(), rig.store.tail());
}

#[test]
fn what_a_lost_connection_brought_goes_back_to_the_source_unless_it_is_being_written() {
    let mut rig = Rig::opened(options(1), Store::default());
    for nth in 0..5 {
        rig.deliver("in", message(&format!("{nth}")));
    }
    rig.reconnect();
    assert_eq!(rig.counters(0).returned, 4, "the first one is on its way to the store");
    let again = rig.deliver("in", message("4"));
    rig.run_to_rest();
    assert_eq!(rig.delivered.len(), 2);
    assert_eq!(rig.acks.last(), Some(&again));
    assert!(rig.acks.iter().all(|ack| ack.connection != again.connection || ack.ordinal <= again.ordinal));
}

#[test]
fn a_fenced_owner_acknowledges_and_sends_nothing_more() {
    let mut rig = Rig::opened(options(1), Store::default());
    let next = rig.store.tail().next();
    let foreign = entry_of("foreign", 9);
    rig.store.rows.insert(next, segment(99, 99, &[foreign], 0));
    rig.deliver("in", message("mine"));
    rig.run_to_rest();
    assert!(rig.acks.is_empty() && rig.sends.is_empty());
    assert!(rig.source_closed_at.is_some());
    let Some(End::Ended(causeway_core::log::writer::WriterEnd::Fenced { found, same_or_older_epoch })) = rig.end.clone() else {
        panic!("{:?}", rig.end)
    };
    assert_eq!((found.slot, found.epoch, same_or_older_epoch), (next, Epoch(99), false));
    rig.deliver("in", message("later"));
    assert!(rig.acks.is_empty());
}

#[test]
fn any_foreign_row_fences_whatever_its_epoch() {
    for foreign in [0, 1, 5, 6] {
        let mut leased = options(1);
        leased.epoch = epoch(5);
        let mut rig = Rig::opened(leased, Store::default());
        let next = rig.store.tail().next();
        rig.store.rows.insert(next, segment(foreign, 99, &[entry_of("foreign", 9)], 0));
        rig.deliver("in", message("mine"));
        rig.run_to_rest();
        let Some(End::Ended(causeway_core::log::writer::WriterEnd::Fenced { same_or_older_epoch, .. })) = rig.end else {
            panic!("{:?}", rig.end)
        };
        assert_eq!(same_or_older_epoch, foreign <= 5);
        assert!(rig.acks.is_empty());
    }
}

#[test]
fn a_put_of_unknown_outcome_counts_only_when_the_tail_shows_it() {
    for trouble in [Trouble::AnswerLost, Trouble::RequestLost, Trouble::Refused] {
        let mut rig = Rig::opened(options(1), Store::default());
        let mut left = 1;
        rig.on_call = Box::new(move |_, call| {
            let hit = left > 0 && matches!(call, Call::Put { .. });
            left -= i32::from(hit);
            hit.then_some(trouble)
        });
        let reads = rig.calls.reads;
        rig.deliver("in", message("one"));
        rig.run_for(ms(4));
        assert!(rig.acks.is_empty());
        rig.run_to_rest();
        assert_eq!(rig.acks.len(), 1);
        assert_eq!(rig.delivered.len(), 1);
        let verified = if trouble == Trouble::Refused { 0 } else { 1 };
        assert_eq!(rig.calls.reads - reads, verified, "{trouble:?}");
    }
}

#[test]
fn a_row_that_an_owner_finds_after_its_own_late_put_fences_it() {
    // The put was given up and landed; a newer owner's anchor stands behind it: the entries are safe in the log, but not this owner's to acknowledge.
    let mut rig = Rig::opened(options(1), Store::default());
    let mut left = 1;
    rig.on_call = Box::new(move |_, call| {
        let hit = left > 0 && matches!(call, Call::Put { .. });
        left -= i32::from(hit);
        hit.then_some(Trouble::AnswerLost)
    });
    rig.deliver("in", message("one"));
    let behind = rig.store.tail().next();
    rig.store.rows.insert(behind, segment(99, 99, &[], 0));
    rig.run_to_rest();
    assert!(rig.acks.is_empty() && rig.sends.is_empty());
    assert!(matches!(rig.end, Some(End::Ended(_))), "{:?}", rig.end);
    assert_eq!(rig.store.unsettled().len(), 1, "the next owner finds it");
}

#[test]
fn a_put_slower_than_the_doubt_counts_only_after_a_look_at_the_tail() {
    let mut slow = options(1);
    slow.segment.doubt_after = ms(2);
    let mut rig = Rig::opened(slow, Store::default());
    let reads = rig.calls.reads;
    rig.deliver("in", message("one"));
    rig.run_to_rest();
    assert_eq!(rig.calls.reads - reads, 1);
    assert_eq!(rig.acks.len(), 1);
}

#[test]
fn a_segment_of_a_newer_release_stops_the_owner_and_the_head_stays() {
    let mut store = Store::default();
    store.rows.insert(Slot(1), segment(1, 1, &[entry_of("one", 1)], 0));
    let Row::Segment(mut newer) = segment(1, 2, &[entry_of("two", 2)], 0) else { unreachable!() };
    newer.codec = 77;
    store.rows.insert(Slot(2), Row::Segment(newer));
    store.rows.insert(Slot(3), segment(1, 3, &[entry_of("three", 3)], 0));
    let mut rig = Rig::new(options(2), store);
    rig.event(Event::Tick);
    rig.run_to_rest();
    let Some(End::Unreadable(fault)) = &rig.end else { panic!("{:?}", rig.end) };
    assert!(fault.detail.contains("slot 2") && fault.detail.contains("77"), "{fault}");
    assert!(rig.store.effective_head() < Slot(2));
    assert!(rig.store.rows.contains_key(&Slot(3)));
}

#[test]
fn a_head_written_before_all_is_loaded_keeps_what_former_owners_settled_above_it() {
    // Slots 1 to 40, ten entries each; a former owner settled everything but the first entry, and tried that one five times.
    let mut store = Store::default();
    for slot in 1..=40_u64 {
        let entries: Vec<_> = (0..10).map(|nth| entry_of("x", u128::from(slot * 100 + nth))).collect();
        store.rows.insert(Slot(slot), segment(1, u128::from(slot), &entries, 0));
    }
    let keep = Position { slot: Slot(30), index: 4 };
    let ranges = vec![
        SettledRange { from: Position { slot: Slot(20), index: 0 }, to: Position { slot: Slot(30), index: 3 } },
        SettledRange { from: Position { slot: Slot(30), index: 5 }, to: Position { slot: Slot(40), index: u32::MAX } },
    ];
    store.head = Some(Head { epoch: Epoch(1), revision: 0, drained: Slot(0), settled_ahead: ranges, attempts: vec![(keep, 5)] });
    store.page_rows = Some(5);
    let mut tight = options(2);
    tight.memory_entries = 20;
    tight.segment.max_messages = 1;
    let mut rig = Rig::new(tight, store);
    let stuck = Id128(100);
    rig.on_send =
        Box::new(move |_, entry| if entry.id == stuck { Outcome::NotDone(fault(FaultCode::Unavailable)) } else { Outcome::Done(()) });
    rig.event(Event::Tick);
    rig.run_while(|rig| rig.heads.is_empty());
    rig.run_for(ms(5));
    let left = rig.store.unsettled();
    assert!(
        left.iter().all(|(position, _)| position.slot < Slot(20) || *position == keep),
        "settled long ago: {:?}",
        left.iter().map(|(position, _)| *position).find(|position| position.slot >= Slot(20))
    );
    assert!(left.iter().any(|(position, _)| *position == keep));
    assert!(rig.heads[0].attempts.contains(&(keep, 5)), "{:?}", rig.heads[0].attempts);
}

#[test]
fn a_sweep_removes_the_garbage_of_former_owners_and_keeps_anchors() {
    let mut store = Store::default();
    for slot in 1..=10_u64 {
        store.rows.insert(Slot(slot), segment(1, u128::from(slot), &[entry_of("x", u128::from(slot))], 0));
    }
    store.head = Some(Head { epoch: Epoch(1), drained: Slot(8), ..Head::default() });
    store.page_rows = Some(3);
    let mut rig = Rig::opened(options(2), store);
    rig.run_to_rest();
    assert_eq!(rig.delivered.len(), 2);
    assert_eq!(rig.store.rows.len(), 1, "the anchor, which is the tail: {:?}", rig.store.rows.keys());
}

/// A disk that is full takes no append, and only what is deleted makes room for one.
#[test]
fn while_appends_are_refused_what_is_settled_is_told_and_deleted() {
    let mut rig = Rig::opened(options(1), Store::default());
    for nth in 0..6 {
        // Each in a segment of its own, and never quiet for so long that the head would be written.
        rig.deliver("in", message(&format!("before {nth}")));
        rig.run_for(ms(15));
    }
    let full = std::rc::Rc::new(std::cell::Cell::new(true));
    let disk = std::rc::Rc::clone(&full);
    rig.on_call = Box::new(move |_, call| match call {
        Call::Put { .. } if disk.get() => Some(Trouble::Refused),
        Call::Delete { .. } => {
            disk.set(false);
            None
        }
        _ => None,
    });
    rig.deliver("in", message("when it is full"));
    rig.run_for(ms(30_000));
    assert!(!full.get(), "nothing was deleted, and so nothing would ever be taken again");
    assert_eq!((rig.delivered.len(), rig.owner.exposed()), (7, 0));
}

#[test]
fn an_unopened_log_keeps_being_tried_and_nothing_is_taken_in_meanwhile() {
    let mut rig = Rig::new(options(1), Store::default());
    let healed = rig.now.plus(ms(20_000));
    rig.on_call = Box::new(move |now, _| (now < healed).then_some(Trouble::Refused));
    rig.event(Event::Tick);
    rig.run_until(healed);
    assert!(!rig.owner.wants_input());
    rig.run_to_rest();
    assert!(rig.owner.wants_input());
    assert!(rig.observations.iter().any(|seen| matches!(seen, Observation::StoreFault(_))));
}
