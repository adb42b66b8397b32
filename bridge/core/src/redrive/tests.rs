#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
use super::*;
use crate::dead_letter::Destination;
use crate::identity::Id128;
use crate::message::{Message, Properties};
use crate::outcome::{Fault, FaultClass};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: UnixMillis = UnixMillis(1_772_366_400_000);

fn request(event: &Value) -> Request {
    Request::parse(event, "fallback-1").unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn refusal(event: &Value) -> fields::InvalidEvent {
    Request::parse(event, "fallback-1").expect_err("must be refused")
}

fn letter(id: u128) -> DeadLetter {
    let properties = Properties {
        content_type: Some("application/json".to_owned()),
        user: vec![("group".to_owned(), "g1".to_owned()), ("group".to_owned(), "g2".to_owned())],
        ..Properties::default()
    };
    let message = Message { topic: "plant/7".to_owned(), payload: Bytes::from_static(b"\xff\x00{}"), qos: 1, retain: false, properties };
    let entry = Entry {
        id: Id128(id),
        route: "telemetry".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "plant".into(),
        received_at: UnixMillis(NOW.0 - 60_000),
        expires_at: None,
        redrive: None,
        message,
    };
    let destination =
        Destination { binding: "b".to_owned(), address: "queue-1".to_owned(), session: "plant".to_owned(), ..Destination::default() };
    DeadLetter::new(&entry, &destination, &Fault::new(FaultCode::InvalidPayload, "no"), 1, UnixMillis(NOW.0 - 30_000))
}

fn routes(address: &str, outbox: bool) -> Routes {
    let destination =
        Destination { binding: "b".to_owned(), address: address.to_owned(), session: "plant".to_owned(), ..Destination::default() };
    let route = RouteFacts { bindings: vec![BindingFacts { destination, sender: "s".to_owned() }], session: "plant".to_owned(), outbox };
    Routes::with("plant-1", [("telemetry".to_owned(), route)].into(), vec!["plant".to_owned()]).unwrap()
}

fn only(action: &[Action]) -> &Action {
    assert_eq!(action.len(), 1, "{action:?}");
    &action[0]
}

#[test]
fn a_message_goes_back_with_its_bytes_headers_and_id_and_says_by_whom_and_how_often() {
    let mut letter = letter(7);
    letter.redrive_count = 1;
    let request = request(&json!({"all": true, "request_id": "op-1"}));
    let actions = plan(core::slice::from_ref(&letter), &request, &routes("queue-1", true), NOW);
    let Action::PutBack { mailbox, mail, .. } = only(&actions) else { panic!("{actions:?}") };
    assert_eq!(mailbox.as_str(), "MAIL#plant-1#plant");
    assert_eq!(mail.id, Mail::id_of_redrive(Id128(7), 2), "derived from the letter and its count, so that everybody names it alike");
    assert_eq!((mail.entry.id, &mail.entry.message), (letter.id, &letter.message));
    assert_eq!(mail.entry.redrive, Some(Redrive { attempt: 2, causation: "op-1".to_owned() }));
    assert_eq!(mail.entry.received_at, letter.received_at);
}

#[test]
fn what_its_destination_refused_for_its_size_goes_to_another_destination_only() {
    let mut letter = letter(7);
    letter.error_code = FaultCode::PayloadTooLarge.as_str().to_owned();
    let request = request(&json!({"all": true}));
    for routes in [routes("queue-1", true), Routes::unknown("plant-1").unwrap()] {
        let actions = plan(core::slice::from_ref(&letter), &request, &routes, NOW);
        assert!(matches!(only(&actions), Action::Skip { reason: Reason::PayloadTooLarge, .. }), "{actions:?}");
    }
    let actions = plan(&[letter], &request, &routes("queue-2", true), NOW);
    assert!(matches!(only(&actions), Action::PutBack { .. }), "{actions:?}");
}

#[test]
fn what_expired_stays_unless_told_otherwise_and_then_does_not_die_of_it_again() {
    let mut letter = letter(7);
    letter.message.properties.expiry_seconds = Some(10);
    let page = [letter];
    let actions = plan(&page, &request(&json!({"all": true})), &routes("queue-1", true), NOW);
    assert!(matches!(only(&actions), Action::Skip { reason: Reason::Expired, .. }), "{actions:?}");
    let actions = plan(&page, &request(&json!({"all": true, "include_expired": true})), &routes("queue-1", true), NOW);
    let Action::PutBack { mail, .. } = only(&actions) else { panic!("{actions:?}") };
    assert_eq!(mail.entry.expires_at, None);
    assert_eq!(mail.entry.message.properties.expiry_seconds, Some(10), "the message itself is not touched");
}

#[test]
fn after_so_many_redrives_a_letter_is_set_aside() {
    let mut letter = letter(7);
    letter.redrive_count = 3;
    let actions = plan(core::slice::from_ref(&letter), &request(&json!({"all": true})), &routes("queue-1", true), NOW);
    assert!(matches!(only(&actions), Action::SetAside { .. }));
    let actions = plan(&[letter], &request(&json!({"all": true, "max_redrives": 4})), &routes("queue-1", true), NOW);
    assert!(matches!(only(&actions), Action::PutBack { .. }));
}

#[test]
fn routes_decide_the_mode() {
    let page = [letter(7)];
    let reason = |mode: &str, routes: &Routes| match only(&plan(&page, &request(&json!({"all": true, "mode": mode})), routes, NOW)) {
        Action::Skip { reason, .. } => reason.as_str(),
        Action::PutBack { .. } => "put back",
        Action::Send { .. } => "sent",
        Action::SetAside { .. } => "set aside",
    };
    assert_eq!(reason("outbox", &routes("q", false)), "route_without_outbox");
    assert_eq!(reason("queue", &routes("q", false)), "sent");
    assert_eq!(reason("queue", &routes("q", true)), "route_with_outbox");
    assert_eq!(reason("outbox", &Routes::with("plant-1", [].into(), Vec::new()).unwrap()), "route_unknown");
}

#[test]
fn letters_of_another_bridge_in_the_same_table_are_left_alone() {
    let request = request(&json!({"all": true}));
    for (bridge, left) in [("plant-2", true), ("plant-1", false), ("", false)] {
        let actions = plan(&[DeadLetter { bridge: bridge.to_owned(), ..letter(7) }], &request, &routes("queue-1", true), NOW);
        assert_eq!(matches!(only(&actions), Action::Skip { reason: Reason::OtherBridge, .. }), left, "{bridge}: {actions:?}");
    }
}

/// The redrive does not publish: the owner of the log does, to the topic that the binding says now.
#[test]
fn what_is_bound_for_a_broker_goes_back_to_the_mailbox_of_its_session() {
    let text = include_str!("../../../../tests/fixtures/valid/mqtt_to_mqtt.yaml");
    let config = crate::config::load(&[crate::config::Source { name: "c", text }], &|_| None).unwrap().config;
    let routes = Routes::of("telemetry", &config).unwrap();
    let letter = DeadLetter { route: "main".to_owned(), binding: "to-queue".to_owned(), address: "out/7".to_owned(), ..letter(7) };
    let actions = plan(&[letter], &request(&json!({"all": true})), &routes, NOW);
    let Action::PutBack { mailbox, mail, .. } = only(&actions) else { panic!("{actions:?}") };
    assert_eq!((mailbox.as_str(), &*mail.entry.binding, &mail.entry.address), ("MAIL#telemetry#broker", "to-queue", &None));
}

#[test]
fn defaults_are_the_careful_ones() {
    let request = request(&json!({"all": true}));
    assert!(request.dry_run && !request.include_expired);
    assert_eq!((request.limit, request.rate, request.max_redrives, request.mode), (100, 50, 3, Mode::Outbox));
    assert_eq!(request.request_id, "fallback-1");
}

#[test]
fn every_refusal_names_its_field() {
    let id = "0".repeat(32);
    for (event, field) in [
        (json!({}), "event"),
        (json!(null), "event"),
        (json!([1]), "event"),
        (json!("all"), "event"),
        (json!({"dry_run": false}), "filter"),
        (json!({"filter": {}}), "filter"),
        (json!({"filter": {"ids": [], "route_id": "", "category": null}}), "filter.ids"),
        (json!({"filter": {"route_id": "", "category": null}}), "filter"),
        (json!({"filter": 7}), "filter"),
        (json!({"filter": {"route": "r"}}), "filter.route"),
        (json!({"filter": {"route_id": 7}}), "filter.route_id"),
        (json!({"filter": {"ids": ["7"]}}), "filter.ids"),
        (json!({"filter": {"ids": "7"}}), "filter.ids"),
        (json!({"filter": {"category": "sad"}}), "filter.category"),
        (json!({"filter": {"error_code": "SAD"}}), "filter.error_code"),
        (json!({"filter": {"since": "yesterday"}}), "filter.since"),
        (json!({"filter": {"before": -1}}), "filter.before"),
        (json!({"filter": {"since": 1_772_366_400_000_000_000_u64}}), "filter.since"),
        (json!({"filter": {"since": 20, "before": 20}}), "filter.before"),
        (json!({"all": true, "filter": {"route_id": "r"}}), "all"),
        (json!({"all": "yes"}), "all"),
        (json!({"all": true, "dry_run": 0}), "dry_run"),
        (json!({"all": true, "limit": 0}), "limit"),
        (json!({"all": true, "limit": 10_001}), "limit"),
        (json!({"all": true, "limit": 1.5}), "limit"),
        (json!({"all": true, "rate_per_second": 501}), "rate_per_second"),
        (json!({"all": true, "max_redrives": 0}), "max_redrives"),
        (json!({"all": true, "mode": "post"}), "mode"),
        (json!({"all": true, "request_id": "a b"}), "request_id"),
        (json!({"all": true, "request_id": "x".repeat(129)}), "request_id"),
        (json!({"all": true, "surprise": 1}), "surprise"),
        (json!({"all": true, "continuation": "nonsense"}), "continuation"),
        (json!({"all": true, "queue": "q"}), "queue"),
        (json!({"all": true, "destination": "q"}), "destination"),
        (json!({"mode": "sqs"}), "queue"),
        (json!({"mode": "sqs", "queue": "q", "all": true}), "filter"),
        (json!({"filter": {"ids": [id]}, "continuation": request(&json!({"filter": {"ids": [id]}})).continuation("1")}), "continuation"),
        (json!({"filter": {"ids": []}}), "filter.ids"),
        (json!({"all": true, "filter": {"ids": []}}), "filter.ids"),
        (json!({"mode": "sqs", "queue": "q", "limit": 5}), "limit"),
        (json!({"mode": "sqs", "queue": "q", "max_redrives": 5}), "max_redrives"),
        (json!({"mode": "sqs", "queue": "q", "include_expired": true}), "include_expired"),
        (json!({"all": true, "continuation": request(&json!({"all": true})).continuation("00001772366400000000#mine")}), "continuation"),
    ] {
        assert_eq!(refusal(&event).field, field, "{event}");
    }
}

#[test]
fn a_continuation_fits_the_filter_that_it_came_from_and_no_other() {
    let event = |filter: &Value, at: Option<&str>| json!({"filter": filter, "continuation": at});
    let (one, other) = (json!({"route_id": "r"}), json!({"route_id": "r", "category": "poison"}));
    let at = request(&event(&one, None)).continuation("00001772366400000000#000000000000000000000000000000aa");
    assert_eq!(request(&event(&one, Some(&at))).resume.as_deref(), Some("00001772366400000000#000000000000000000000000000000aa"));
    let refused = refusal(&event(&other, Some(&at)));
    assert!(refused.field == "continuation" && refused.message.contains("another filter"), "{refused}");
    let newer = at.replacen('1', "2", 1);
    assert!(refusal(&event(&one, Some(&newer))).message.contains("another release"));
}

fn letters() -> impl Strategy<Value = Vec<DeadLetter>> {
    let one = (any::<u128>(), 0_u32..6, 0_u8..3, any::<bool>(), proptest::option::of(0_u32..120), 0_u8..3).prop_map(
        |(id, redrives, state, large, expiry, route)| {
            let mut letter = letter(id);
            letter.redrive_count = redrives;
            letter.state = [DeadLetterState::Dead, DeadLetterState::Redriven, DeadLetterState::Parked][usize::from(state)];
            letter.message.properties.expiry_seconds = expiry;
            letter.route = ["telemetry", "other", "gone"][usize::from(route)].to_owned();
            if large {
                letter.error_code = FaultCode::PayloadTooLarge.as_str().to_owned();
                letter.category = FaultClass::Rejected;
            }
            letter
        },
    );
    proptest::collection::vec(one, 0..40)
}

proptest! {
    /// The plan says something of every dead letter that is meant and of no other, in their order; the counts add up whatever came of it; and
    /// nothing that would surely die again is put back.
    #[test]
    fn says_one_thing_of_every_dead_letter(page in letters(), all in any::<bool>(), max in 1_u32..5, include_expired in any::<bool>(), ends in proptest::collection::vec(0_u8..4, 40)) {
        let filter = if all { json!({"all": true}) } else { json!({"filter": {"route_id": "telemetry"}}) };
        let mut event = filter;
        event["max_redrives"] = json!(max);
        event["include_expired"] = json!(include_expired);
        let request = request(&event);
        let routes = routes("queue-1", true);
        let actions = plan(&page, &request, &routes, NOW);
        let meant: Vec<&DeadLetter> = page.iter().filter(|letter| letter.state == DeadLetterState::Dead && (all || letter.route == "telemetry")).collect();
        prop_assert_eq!(actions.iter().map(Action::id).collect::<Vec<_>>(), meant.iter().map(|letter| letter.id).collect::<Vec<_>>());
        prop_assert_eq!(&plan(&page, &request, &routes, NOW), &actions, "the same again");
        for (action, letter) in actions.iter().zip(&meant) {
            if let Action::PutBack { mail, .. } = action {
                prop_assert!(letter.redrive_count < max && letter.error_code != "PAYLOAD_TOO_LARGE" && letter.route == "telemetry");
                prop_assert_eq!(mail.entry.redrives(), letter.redrive_count + 1);
                prop_assert!(mail.entry.expires_at.is_none_or(|at| at > NOW));
            }
        }
        let mut tally = Tally::default();
        for (action, end) in actions.iter().zip(&ends) {
            let end = match end {
                0 => End::Redriven,
                1 => End::Parked,
                2 => End::Skipped(Reason::Conflict, String::new()),
                _ => End::Failed(Reason::Throttled, String::new()),
            };
            tally.count(action.id(), end);
        }
        prop_assert_eq!(tally.matched(), tally.redriven + tally.skipped + tally.parked + tally.failed);
        prop_assert_eq!(tally.matched() as usize, actions.len());
    }
}

#[test]
fn a_letter_goes_back_to_its_binding_and_one_without_a_binding_is_dispatched_anew() {
    let bound_for = |binding: &str, outbox: bool| {
        let mode = if outbox { "outbox" } else { "queue" };
        let request = request(&json!({"all": true, "request_id": "op-1", "mode": mode}));
        let letter = DeadLetter { binding: binding.to_owned(), ..letter(7) };
        only(&plan(core::slice::from_ref(&letter), &request, &routes("queue-1", outbox), NOW)).clone()
    };
    for binding in ["b", ""] {
        let Action::PutBack { mail, .. } = bound_for(binding, true) else { panic!("{binding}") };
        assert_eq!((&*mail.entry.binding, &mail.entry.address, &mail.entry.refusal), (binding, &None, &None));
    }
    let Action::Send { sender, .. } = bound_for("b", false) else { panic!() };
    assert_eq!(sender, "s");
    for (binding, outbox) in [("gone", true), ("gone", false), ("", false)] {
        let Action::Skip { reason, .. } = bound_for(binding, outbox) else { panic!("{binding}") };
        assert_eq!(reason, Reason::BindingUnknown);
    }
}
