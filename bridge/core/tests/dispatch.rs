//! Where messages go, and what is made of them on the way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use bytes::Bytes;
use causeway_core::config::model::{Literal, Operator};
use causeway_core::config::{Source, load};
use causeway_core::dispatch::{
    Address, Arrival, Condition, ConditionError, Dispatch, Dispatched, FORWARDED_FROM, Field, HOPS, MAX_HOPS, MAX_REGEX_CHARS, NO_RECEIVER,
    TENANT, View, header, regex,
};
use causeway_core::identity::IdSequence;
use causeway_core::message::{Entry, Message, Properties};
use causeway_core::outcome::FaultCode;
use causeway_core::units::UnixMillis;
use proptest::prelude::*;
use std::collections::BTreeSet;

const CONFIG: &str = r"
bridge: { id: b }
stores:
  outbox: { type: sqlite, options: { path: /tmp/o.db } }
  dlq: { type: sqlite, options: { path: /tmp/o.db } }
sessions:
  - { id: plant, transport: mqtt, session_mode: ephemeral, options: { session: { broker_url: 'mqtt://127.0.0.1:1883', client_id: c } } }
receivers:
  - { id: in, session_id: plant, topics: [{ topic: 't/#', qos: 1 }] }
senders:
  - { id: s, transport: sqs, options: { queue_url: 'https://sqs.eu-west-1.amazonaws.com/1/q' } }
bindings:
  - { id: a, sender_id: s, address: queue-a }
  - { id: b, sender_id: s, address: queue-b }
  - { id: c, sender_id: s, address: '{site}/queue-{mqtt.qos}' }
routes:
  - id: r
    receiver_id: in
    delivery_mode: shared_outbox
    bindings: [a, b, c]
";

/// The configuration with `more` in its route.
fn dispatch(more: &str) -> Dispatch {
    let text = format!("{CONFIG}    {}\n", more.trim().replace('\n', "\n    "));
    let config = load(&[Source { name: "test", text: &text }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}")).config;
    Dispatch::compile(&config, &config.routes).unwrap()
}

fn message(payload: &str, user: &[(&str, &str)]) -> Message {
    Message {
        topic: "t/1".to_owned(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        qos: 1,
        properties: Properties {
            user: user.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..Properties::default()
        },
        ..Message::default()
    }
}

fn entries(dispatch: &Dispatch, message: &Message) -> Vec<Entry> {
    let receiver = "in".into();
    dispatch.entries(&Arrival { receiver: &receiver, received_at: UnixMillis(1_000), message }, &mut IdSequence::new(0)).entries
}

/// Where `message` goes: the bindings, and the code of a refusal.
fn ways(dispatch: &Dispatch, message: &Message) -> Vec<(String, Option<FaultCode>)> {
    entries(dispatch, message).iter().map(|entry| (entry.binding.to_string(), entry.refusal.as_ref().map(|refusal| refusal.code))).collect()
}

fn to(bindings: &[&str]) -> Vec<(String, Option<FaultCode>)> {
    bindings.iter().map(|binding| ((*binding).to_owned(), None)).collect()
}

#[test]
fn without_a_resolver_it_is_the_first_binding_or_all_of_them() {
    let m = message("x", &[("site", "7")]);
    assert_eq!(ways(&dispatch(""), &m), to(&["a"]));
    let all = dispatch("dispatch_mode: fan_out");
    assert_eq!(ways(&all, &m), to(&["a", "b", "c"]));
    let made = entries(&all, &m);
    assert_eq!(made.iter().map(|entry| entry.id).collect::<BTreeSet<_>>().len(), 3, "each copy has an id of its own");
    assert_eq!(made[2].address.as_deref(), Some("7/queue-1"));
    assert_eq!((made[0].address.as_deref(), &*made[0].route, &*made[0].source), (None, "r", "in"));
}

#[test]
fn static_goes_to_its_default_binding() {
    assert_eq!(ways(&dispatch("resolver: { type: static, default_binding: b }"), &message("", &[])), to(&["b"]));
    assert_eq!(ways(&dispatch("resolver: { type: static }"), &message("", &[])), to(&["a"]));
}

#[test]
fn a_header_map_goes_by_the_value_of_a_header_else_to_the_default() {
    let map = "resolver: { type: header_map, header_key: kind, header_map: { alarm: b }";
    let with_default = dispatch(&format!("{map}, default_binding: a }}"));
    assert_eq!(ways(&with_default, &message("", &[("kind", "alarm")])), to(&["b"]));
    assert_eq!(ways(&with_default, &message("", &[("kind", "other")])), to(&["a"]));
    let without = dispatch(&format!("{map} }}"));
    assert_eq!(ways(&without, &message("", &[])), [(String::new(), Some(FaultCode::NoBinding))], "never nowhere in silence");
}

#[test]
fn rules_are_tried_in_order_and_all_that_hold_count_in_a_fan_out() {
    let rules = "resolver:
  type: rules
  default_binding: c
  rules:
    - { field: $.temp, operator: gt, value: 80, binding: b }
    - { field: subject, operator: prefix, value: t/, binding: a }
    - { field: header.kind, operator: in, values: [x, y], binding: b }";
    let (single, fan_out) = (dispatch(rules), dispatch(&format!("dispatch_mode: fan_out\n{rules}")));
    let hot = message(r#"{"temp": 80.5}"#, &[("kind", "y")]);
    assert_eq!(ways(&single, &hot), to(&["b"]));
    assert_eq!(ways(&fan_out, &hot), to(&["a", "b"]), "each binding once, in the order of the route");
    let elsewhere = Message { topic: "u".to_owned(), ..message("not json", &[("site", "1")]) };
    assert_eq!(ways(&single, &elsewhere), to(&["c"]));
}

#[test]
fn an_address_without_its_header_is_refused_and_the_copies_for_others_go() {
    let all = dispatch("dispatch_mode: fan_out");
    for lacks in [message("x", &[]), message("x", &[("site", "")])] {
        let expected = [("a".to_owned(), None), ("b".to_owned(), None), ("c".to_owned(), Some(FaultCode::AddressTemplate))];
        assert_eq!(ways(&all, &lacks), expected);
    }
}

/// With a sender of MQTT in the place of the queue, that has a topic for what its bindings do not fit.
#[test]
fn what_an_address_does_not_fit_goes_to_the_default_topic_of_its_sender() {
    let text = CONFIG.replace(
        "{ id: s, transport: sqs, options: { queue_url: 'https://sqs.eu-west-1.amazonaws.com/1/q' } }",
        "{ id: s, session_id: plant, options: { default_topic: lost } }",
    );
    let text = format!("{text}    resolver: {{ type: static, default_binding: c }}\n");
    let config = load(&[Source { name: "test", text: &text }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}")).config;
    let dispatch = Dispatch::compile(&config, &config.routes).unwrap();
    let address = |site: &[(&str, &str)]| {
        let entry = entries(&dispatch, &message("x", site)).remove(0);
        assert_eq!((&*entry.binding, &entry.refusal), ("c", &None));
        let again = dispatch.again(entry.clone());
        assert_eq!(again.address, entry.address, "what is put back goes the same way");
        entry.address.unwrap().to_string()
    };
    assert_eq!(address(&[("site", "7")]), "7/queue-1");
    for unfit in [&[][..], &[("site", "")], &[("site", "a/+")], &[("site", "#")], &[("site", "a\u{0}b")]] {
        assert_eq!(address(unfit), "lost", "{unfit:?}");
    }
    let long = "t".repeat(65_535);
    assert_eq!(address(&[("site", &long)]), "lost");
}

#[test]
fn what_no_receiver_asked_for_is_refused_and_finds_its_way_once_it_comes_back() {
    let unasked = |dispatch: &Dispatch| {
        let (receiver, message) = (NO_RECEIVER.into(), message("x", &[("site", "7")]));
        dispatch
            .entries(&Arrival { receiver: &receiver, received_at: UnixMillis(1_000), message: &message }, &mut IdSequence::new(0))
            .entries
    };
    for (more, bindings) in [("", &["a"][..]), ("dispatch_mode: fan_out", &["a", "b", "c"])] {
        let dispatch = dispatch(more);
        let made = unasked(&dispatch);
        assert_eq!(made.iter().map(|entry| &*entry.binding).collect::<Vec<_>>(), bindings);
        for entry in made {
            assert_eq!(entry.refusal.as_ref().map(|refusal| refusal.code), Some(FaultCode::SubscriptionRemoved));
            assert_eq!((&*entry.route, &*entry.source), ("r", "in"), "it is the first receiver's");
            let again = dispatch.again(entry.clone());
            assert_eq!((again.refusal, again.binding, again.id), (None, entry.binding, entry.id));
        }
    }
    // Without a store for what cannot be delivered it goes on like any other.
    let text = CONFIG.replace("  dlq: { type: sqlite, options: { path: /tmp/o.db } }\n", "")
        + "    policy: { on_expired: drop, on_permanent_failure: drop }\n";
    let config = load(&[Source { name: "test", text: &text }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}")).config;
    let made = unasked(&Dispatch::compile(&config, &config.routes).unwrap());
    assert_eq!((&*made[0].binding, &made[0].refusal), ("a", &None));
}

#[test]
fn what_comes_back_keeps_its_binding_and_what_had_none_is_dispatched_anew() {
    let refused = |resolver: &str| entries(&dispatch(resolver), &message("", &[])).remove(0);
    let none = "resolver: { type: rules, rules: [{ field: kind, operator: exists, binding: b }] }";
    let lost = refused(none);
    assert_eq!(lost.refusal.as_ref().unwrap().code, FaultCode::NoBinding);
    let again = dispatch("resolver: { type: static, default_binding: b }").again(lost.clone());
    assert_eq!((&*again.binding, again.refusal, again.id), ("b", None, lost.id));
    assert_eq!(dispatch(none).again(lost.clone()).refusal.unwrap().code, FaultCode::NoBinding);
    assert_eq!(dispatch("dispatch_mode: fan_out").again(lost).refusal.unwrap().code, FaultCode::NoBinding, "one id, one destination");
    let bound = entries(&dispatch(""), &message("", &[])).remove(0);
    assert_eq!(&*dispatch("resolver: { type: static, default_binding: b }").again(bound.clone()).binding, "a");
    let gone = Entry { binding: "gone".into(), ..bound };
    assert_eq!(dispatch("").again(gone.clone()), gone, "its owner finds no leg for it, and says so");
}

fn holds(field: &str, operator: Operator, value: &str, message: &Message) -> bool {
    let values = [Literal(value.to_owned())];
    let (one, several) = match operator {
        Operator::In => (None, &values[..]),
        Operator::Exists => (None, &[][..]),
        _ => (values.first(), &[][..]),
    };
    Condition::new(field, operator, one, several).unwrap().holds(&View::new(message))
}

#[test]
fn operators() {
    use Operator::{Contains, Eq, Exists, Gt, Gte, In, Lt, Lte, Ne, Prefix, Regex};
    let m = message(
        r#"{"n": 10, "f": 1.0, "s": "10", "big": 9007199254740993, "a": [1, {"b c": true}], "z": null}"#,
        &[("k", "v1"), ("n", "9"), ("when", "2026-01-02")],
    );
    for (field, operator, value, expected) in [
        ("k", Eq, "v1", true),
        ("header.k", Eq, "v", false),
        ("k", Ne, "v2", true),
        ("k", Ne, "v1", false),
        ("subject", Prefix, "t/", true),
        ("subject", Contains, "/1", true),
        ("subject", Contains, "x", false),
        ("subject", Regex, r"^t/\d$", true),
        ("subject", Regex, "^/", false),
        ("mqtt.qos", Eq, "1", true),
        // As numbers where it is about numbers, never as text: "9" is less than 10.
        ("n", Gt, "10", false),
        ("n", Lt, "10", true),
        ("$.n", Gte, "10", true),
        ("$.n", Lte, "9.5", false),
        ("k", Gt, "1", false),
        ("k", Lt, "1", false),
        ("when", Gt, "2026-01-01x", true),
        ("$.big", Gt, "9007199254740992", true),
        ("$.f", Eq, "1", true),
        ("$.s", Eq, "10.0", false),
        ("$.n", Eq, "10.0", true),
        ("$.n", In, "10", true),
        ("k", In, "v", false),
        ("$.a[1]['b c']", Eq, "true", true),
        ("$.a[-1]", Exists, "", true),
        ("$.a[2]", Exists, "", false),
        ("$.z", Exists, "", true),
        ("missing", Exists, "", false),
        ("missing", Ne, "x", false),
        ("$.missing.deep", Eq, "", false),
    ] {
        assert_eq!(holds(field, operator, value, &m), expected, "{field} {operator:?} {value}");
    }
}

#[test]
fn what_is_no_field_no_expression_and_no_address_is_refused() {
    for wrong in ["", "header.", "$x", "$.", "$..a", "$.a[*]", "$.a[?(@.b)]", "$.a['b]", "$.*"] {
        assert!(Field::parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!(Field::parse("header.subject").unwrap(), Field::Header("subject".to_owned()), "a header of that name can be meant too");
    assert!(matches!(regex("(a"), Err(ConditionError::Regex(detail)) if detail == "unclosed group"));
    assert!(regex(&"a".repeat(MAX_REGEX_CHARS + 1)).is_err());
    for wrong in ["{", "}", "a{}b", "{a{b}}", "{a}}"] {
        assert!(Address::parse(wrong).is_none(), "{wrong}");
    }
}

proptest! {
    /// Whatever the message and the rules: it goes somewhere or is refused, each binding gets one copy at most, and the message itself is untouched.
    #[test]
    fn no_message_goes_nowhere_in_silence(
        payload in prop_oneof![any::<Vec<u8>>().prop_map(Bytes::from), any::<i32>().prop_map(|n| Bytes::from(format!("{{\"n\":{n}}}")))],
        user in proptest::collection::vec(("k|site|x", "[a-c]{0,2}"), 0..4),
        rules in proptest::collection::vec((prop_oneof![Just("k"), Just("$.n"), Just("subject"), Just("site")], 0_usize..11, "[a-c0-9]{1,2}", "a|b|c"), 0..5),
        default in proptest::option::of("a|b|c"),
        fan_out: bool,
    ) {
        const OPERATORS: [&str; 11] = ["eq", "ne", "prefix", "contains", "regex", "gt", "lt", "gte", "lte", "exists", "in"];
        let rule = |(field, operator, value, binding): &(&str, usize, String, String)| {
            let operand = match OPERATORS[*operator] {
                "exists" => String::new(),
                "in" => format!("values: ['{value}'], "),
                _ => format!("value: '{value}', "),
            };
            format!("{{ field: {field}, operator: {}, {operand}binding: {binding} }}", OPERATORS[*operator])
        };
        let mode = if fan_out { "fan_out" } else { "single" };
        let default = match (&default, rules.is_empty()) {
            (Some(default), _) => format!(", default_binding: {default}"),
            (None, true) => ", default_binding: a".to_owned(),
            (None, false) => String::new(),
        };
        let dispatch = dispatch(&format!("dispatch_mode: {mode}\nresolver: {{ type: rules, rules: [{}]{default} }}", rules.iter().map(rule).collect::<Vec<_>>().join(", ")));
        let message = Message { payload, properties: Properties { user, ..Properties::default() }, ..message("", &[]) };
        let made = entries(&dispatch, &message);
        prop_assert!(!made.is_empty());
        prop_assert!(fan_out || made.len() == 1);
        let mut seen = BTreeSet::new();
        for entry in &made {
            prop_assert!(seen.insert(entry.binding.to_string()));
            prop_assert_eq!(entry.binding.is_empty(), entry.refusal.as_ref().is_some_and(|refusal| refusal.code == FaultCode::NoBinding));
            prop_assert_eq!(&entry.message, &message);
            if entry.refusal.is_none() && *entry.binding == *"c" {
                prop_assert!(entry.address.is_some());
            }
        }
        prop_assert!(made.len() == 1 || made.iter().all(|entry| !entry.binding.is_empty()));
        let again = entries(&dispatch, &message);
        prop_assert_eq!(made, again, "the same message goes the same way");
    }
}

/// What becomes of a message in a configuration with these processors, where the route names `names` and says `more`.
fn process_all(processors: &str, names: &str, more: &str, message: &Message) -> Dispatched {
    let text = format!("{CONFIG}    processors: [{names}]\n    {more}\nprocessors:\n  - {}\n", processors.trim().replace('\n', "\n  - "));
    let config = load(&[Source { name: "test", text: &text }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}\n{text}")).config;
    let dispatch = Dispatch::compile(&config, &config.routes).unwrap();
    let receiver = "in".into();
    dispatch.entries(&Arrival { receiver: &receiver, received_at: UnixMillis(1_000), message }, &mut IdSequence::new(0))
}

#[test]
fn a_filter_takes_out_what_it_means_or_all_else_or_sends_it_aside() {
    let filter = |action: &str, invert: bool| {
        format!(
            "{{ id: f, type: filter, options: {{ action: {action}, invert: {invert}, conditions: [{{ field: $.kind, operator: eq, value: noise }}, {{ field: keep, operator: eq, value: 'no' }}] }} }}"
        )
    };
    let (noise, half, other) = (
        message(r#"{"kind":"noise"}"#, &[("keep", "no")]),
        message(r#"{"kind":"noise"}"#, &[]),
        message(r#"{"kind":"data"}"#, &[("keep", "no")]),
    );
    for (action, invert, passing) in [
        ("drop", false, [false, true, true]),
        ("drop", true, [true, false, false]),
        ("pass", false, [true, false, false]),
        ("pass", true, [false, true, true]),
    ] {
        for (message, passes) in [&noise, &half, &other].into_iter().zip(passing) {
            let dropped = process_all(&filter(action, invert), "f", "", message);
            assert_eq!((dropped.entries.len(), dropped.filtered.len()), if passes { (1, 0) } else { (0, 1) }, "{action} {invert}");
            let kept = process_all(&filter(action, invert), "f", "policy: { on_filtered: dlq }", message);
            let code = kept.entries[0].refusal.as_ref().map(|refusal| refusal.code);
            assert_eq!((kept.entries.len(), code), (1, (!passes).then_some(FaultCode::MessageFiltered)), "{action} {invert}");
        }
    }
    let aside = filter("route, binding: b", false);
    assert_eq!(&*process_all(&aside, "f", "", &noise).entries[0].binding, "b");
    assert_eq!(&*process_all(&aside, "f", "", &other).entries[0].binding, "a", "the resolver decides");
}

#[test]
fn a_transform_copies_by_type_and_leaves_the_rest_of_the_payload_to_the_digit() {
    let copy = |mapping: &str| format!("{{ id: t, type: transform, options: {{ mappings: [{mapping}] }} }}");
    let m = message(r#"{"big": 12345678901234567890123, "n": "7", "x": 1.50, "o": {"k": [1, 2]}}"#, &[("k", "v"), ("k", "w")]);
    let one = |mapping: &str| process_all(&copy(mapping), "t", "", &m).entries.remove(0);
    let payload = |entry: &Entry| String::from_utf8(entry.message.payload.to_vec()).unwrap();
    let entry = one("{ from: $.n, to: $.o.n, type: int }, { from: mqtt.topic, to: $.meta.topic }, { from: '$.o.k[1]', to: header.k }");
    assert_eq!(payload(&entry), r#"{"big":12345678901234567890123,"meta":{"topic":"t/1"},"n":"7","o":{"k":[1, 2],"n":7},"x":1.50}"#);
    assert_eq!(entry.message.properties.user, [("k".to_owned(), "2".to_owned())], "in the place of all of that name");
    for (kind, expected) in [("string", "\"7\""), ("int", "7"), ("float", "7.0"), ("base64", "\"Nw==\"")] {
        assert!(payload(&one(&format!("{{ from: $.n, to: $.r, type: {kind} }}"))).contains(&format!("\"r\":{expected}")), "{kind}");
    }
    assert_eq!(one("{ from: $.missing, to: header.k }").message, m, "what is not there is not copied");
    for wrong in ["{ from: $.n, to: $.r, type: bool }", "{ from: $.o, to: header.h, type: int }", "{ from: $.n, to: $.x.y }"] {
        assert_eq!(one(wrong).refusal.unwrap().code, FaultCode::InvalidPayload, "{wrong}");
    }
    let not_json = process_all(&copy("{ from: mqtt.topic, to: $.r }"), "t", "", &message("x", &[])).entries.remove(0);
    assert_eq!((not_json.refusal.unwrap().code, &not_json.message.payload[..]), (FaultCode::InvalidPayload, &b"x"[..]), "kept as it came");
}

#[test]
fn what_the_broker_had_kept_is_skipped_where_the_receiver_says_so_and_else_stays_marked() {
    let with = |options: &str| {
        let text = CONFIG.replace("qos: 1 }] }", &format!("qos: 1 }}]{options} }}")) + "    policy: { on_filtered: dlq }\n";
        let config = load(&[Source { name: "test", text: &text }], &|_| None).unwrap_or_else(|faults| panic!("{faults:#?}")).config;
        Dispatch::compile(&config, &config.routes).unwrap()
    };
    let dispatched = |dispatch: &Dispatch, message: &Message| {
        let receiver = "in".into();
        dispatch.entries(&Arrival { receiver: &receiver, received_at: UnixMillis(1_000), message }, &mut IdSequence::new(0))
    };
    let live = message("open", &[]);
    let kept = Message { retain: true, ..live.clone() };
    for forwards in [with(""), with(", options: { retained: forward }")] {
        let told = dispatched(&forwards, &kept);
        assert_eq!((told.entries.len(), told.retained.len(), told.entries[0].message.retain), (1, 0, true));
    }
    let skips = with(", options: { retained: skip }");
    let told = dispatched(&skips, &kept);
    assert_eq!((told.entries.len(), told.filtered.len(), &*told.retained[0]), (0, 0, "r"), "no dead letter either");
    assert_eq!(dispatched(&skips, &live).entries.len(), 1);
}

#[test]
fn processors_run_in_order_before_the_resolver() {
    let both = "{ id: t, type: transform, options: { mappings: [{ from: $.kind, to: header.kind }] } }\n{ id: f, type: filter, options: { action: drop, conditions: [{ field: kind, operator: eq, value: x }] } }";
    let resolver = "resolver: { type: header_map, header_key: kind, header_map: { y: b }, default_binding: a }";
    let (x, y) = (message(r#"{"kind":"x"}"#, &[]), message(r#"{"kind":"y"}"#, &[]));
    assert_eq!(process_all(both, "t, f", resolver, &x).filtered.len(), 1);
    assert_eq!(process_all(both, "f, t", resolver, &x).filtered.len(), 0, "the filter does not see the header yet");
    assert_eq!(&*process_all(both, "t, f", resolver, &y).entries[0].binding, "b");
}

#[test]
fn the_tenant_is_set_or_the_message_is_refused() {
    let tenant = |more: &str| format!("{{ id: t, type: tenant, options: {{ from: header.site{more} }} }}");
    let user = |dispatched: &Dispatched| dispatched.entries[0].message.properties.user.clone();
    let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let pretended = message("", &[("site", "s1"), ("X-Bridge.Tenant-Id", "somebody")]);
    assert_eq!(user(&process_all(&tenant(""), "t", "", &pretended)), [of("site", "s1"), of(TENANT, "s1")]);
    assert_eq!(user(&process_all(&tenant(", default_tenant: none"), "t", "", &message("", &[]))), [of(TENANT, "none")]);
    let refused = process_all(&tenant(""), "t", "", &message("", &[])).entries.remove(0);
    assert_eq!(refused.refusal.unwrap().code, FaultCode::InvalidPayload);
}

#[test]
fn reserved_headers_are_taken_off_and_the_trusted_ones_kept_where_the_route_says_so() {
    let m = message(
        "",
        &[("a", "1"), ("X-BRIDGE.route-override", "b"), ("x-bridge.ordering-key", "k"), ("x-bridge.", ""), ("traceparent", "t")],
    );
    let names =
        |more: &str| entries(&dispatch(more), &m)[0].message.properties.user.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(""), ["a", "traceparent"]);
    assert_eq!(names("trust_bridge_headers: true"), ["a", "x-bridge.ordering-key", "traceparent"]);
}

#[test]
fn hops_are_counted_and_a_message_that_goes_in_circles_ends() {
    for trust in [false, true] {
        let dispatch = dispatch(&format!("trust_bridge_headers: {trust}"));
        let mut m = message("", &[]);
        assert!(entries(&dispatch, &m)[0].message.properties.user.is_empty(), "from a broker to a queue it is not marked");
        m.properties.user.push((HOPS.to_owned(), "1".to_owned()));
        for hop in 2..=MAX_HOPS {
            let entry = entries(&dispatch, &m).remove(0);
            assert_eq!(entry.refusal, None);
            assert_eq!(header(&entry.message, HOPS).as_deref(), Some(hop.to_string().as_str()));
            assert_eq!(header(&entry.message, FORWARDED_FROM).as_deref(), Some("b"));
            m = entry.message;
        }
        assert_eq!(entries(&dispatch, &m)[0].refusal.as_ref().unwrap().code, FaultCode::HopLimit);
        m.properties.user.push(("X-Bridge.Forwarded-Hop".to_owned(), "many".to_owned()));
        assert_eq!(
            entries(&dispatch, &m)[0].refusal.as_ref().unwrap().code,
            FaultCode::HopLimit,
            "what cannot be read is not a way round it"
        );
    }
}
