//! Layers, interpolation, effective settings, and that nothing whatever makes the reader panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use causeway_core::config::model::{AckAfter, DeploymentMode, MetricsExporter, OnFailure};
use causeway_core::config::{Credentials, Fault, Loaded, Source, StoreBackend, TrustAnchors, examine, load};
use core::time::Duration;
use proptest::prelude::*;
use std::path::PathBuf;

const SCENARIO: &str = include_str!("../../../tests/vectors/scenario.yaml");
const STANDALONE: &str = include_str!("../../../tests/fixtures/valid/standalone_sqlite.yaml");
const OLDER_BROKER: &str = include_str!("../../../tests/fixtures/valid/older_broker.yaml");
const SESSION: &str = include_str!("../../../tests/fixtures/valid/every_session_option.yaml");

fn try_load(layers: &[&str], env: &[(&str, &str)]) -> Result<Loaded, Vec<Fault>> {
    let names: Vec<String> = (0..layers.len()).map(|index| format!("layer{index}.yaml")).collect();
    let sources: Vec<Source<'_>> = layers.iter().zip(&names).map(|(text, name)| Source { name, text }).collect();
    load(&sources, &|name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
}

fn loaded(layers: &[&str], env: &[(&str, &str)]) -> Loaded {
    try_load(layers, env).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

fn codes(layers: &[&str], env: &[(&str, &str)]) -> Vec<&'static str> {
    try_load(layers, env).unwrap_err().iter().filter(|fault| fault.is_error()).map(|fault| fault.code).collect()
}

#[test]
fn later_layers_change_single_fields_and_match_by_id() {
    let over = "
sessions:
  - id: broker
    options: {session: {keep_alive: 5}}
  - id: second
    transport: mqtt
    options: {session: {broker_url: tls://b.example.com, client_id: second}}
routes:
  - id: main
    policy: {max_in_flight: 7}
";
    let config = loaded(&[STANDALONE, over, "bridge: {log_level: debug}"], &[]).config;
    assert_eq!(config.sessions.len(), 2);
    assert_eq!(config.sessions[0].options.session.keep_alive, 5);
    assert_eq!(config.sessions[0].options.session.client_id, "telemetry");
    assert_eq!(config.routes[0].policy.max_in_flight, 7);
    assert_eq!(config.routes[0].bindings.len(), 1);
    assert_eq!(config.bridge.log_level.as_str(), "debug");
}

#[test]
fn null_takes_a_field_back_to_its_default_and_lists_without_ids_are_replaced() {
    let first = loaded(&[STANDALONE, "routes: [{id: main, policy: {max_in_flight: 7}}]"], &[]);
    assert!(first.is_set("routes[0].policy.max_in_flight"));
    let over = "routes: [{id: main, policy: {max_in_flight: null}}]\nreceivers: [{id: in, topics: [{topic: other/#, qos: 1}]}]";
    let second = loaded(&[STANDALONE, "routes: [{id: main, policy: {max_in_flight: 7}}]", over], &[]);
    assert_eq!(second.config.routes[0].policy.max_in_flight, 100);
    assert!(!second.is_set("routes[0].policy.max_in_flight"));
    assert_eq!(second.config.receivers[0].topics.len(), 1);
    assert_eq!(second.config.receivers[0].topics[0].topic, "other/#");
}

#[test]
fn an_id_given_twice_in_one_layer_is_a_fault_even_where_an_earlier_layer_has_it() {
    assert_eq!(
        codes(&[STANDALONE, "bindings: [{id: to-queue, address: a}, {id: to-queue, sender_id: queue, address: b}]"], &[]),
        ["E_DUPLICATE_ID"]
    );
}

#[test]
fn faults_name_the_layer_that_they_stand_in() {
    let faults = try_load(&[STANDALONE, "\n\nbridge:\n  shutdown_timeout: 9"], &[]).unwrap_err();
    let fault = faults.iter().find(|fault| fault.is_error()).unwrap();
    assert_eq!((&*fault.at.file, fault.at.line, fault.at.column), ("layer1.yaml", 4, 21));
    assert_eq!(fault.path, "bridge.shutdown_timeout");
}

#[test]
fn every_layer_with_broken_yaml_is_named() {
    let faults = try_load(&["a: [", STANDALONE, "b: {"], &[]).unwrap_err();
    let files: Vec<&str> = faults.iter().map(|fault| &*fault.at.file).collect();
    assert_eq!(files, ["layer0.yaml", "layer2.yaml"]);
}

#[test]
fn interpolated_values_have_the_type_that_yaml_gives_them() {
    let text = include_str!("../../../tests/fixtures/valid/interpolated.yaml");
    let defaults = loaded(&[text], &[]).config;
    assert_eq!((defaults.receivers[0].topics[0].qos, defaults.routes[0].policy.max_in_flight), (1, 500));
    assert_eq!(defaults.routes[0].policy.send_timeout.get(), Duration::from_secs(20));
    let env = [("QOS", "0"), ("MAX_IN_FLIGHT", "9"), ("SEND_TIMEOUT", "5"), ("DROP", "true"), ("ON_EXPIRED", "dlq")];
    let policy = loaded(&[text], &env).config.routes[0].policy.clone();
    assert_eq!((policy.max_in_flight, policy.allow_retry_drop, policy.on_expired), (9, true, OnFailure::Dlq));
    assert_eq!(codes(&[text], &[("MAX_IN_FLIGHT", "many")]), ["E_TYPE"]);
    assert_eq!(codes(&[text], &[("MAX_IN_FLIGHT", "1\nbridge: {id: other}")]), ["E_TYPE"]);
    assert_eq!(loaded(&[text], &[("SEND_TIMEOUT", "")]).config.routes[0].policy.send_timeout.get(), Duration::from_secs(20));
}

#[test]
fn an_empty_instance_id_counts_as_left_out() {
    let with = |value| {
        loaded(&[STANDALONE, "bridge: {instance_id: \"${INSTANCE}\"}"], &[("INSTANCE", value)])
            .config
            .bridge
            .instance_name()
            .map(str::to_owned)
    };
    assert_eq!(with(""), None);
    assert_eq!(with("a-1"), Some("a-1".to_owned()));
    assert_eq!(loaded(&[STANDALONE, "bridge:\n  instance_id: ${INSTANCE}"], &[("INSTANCE", "")]).config.bridge.instance_name(), None);
    // What comes from the environment may look like a number.
    assert_eq!(
        loaded(&[STANDALONE, "bridge:\n  instance_id: ${INSTANCE}"], &[("INSTANCE", "007")]).config.bridge.instance_name(),
        Some("007")
    );
}

const CANARY: &str = "canary-5f2c";

#[test]
fn values_of_variables_never_appear_in_faults() {
    let layers = [
        "routes: [{id: main, delivery_mode: \"${V}\"}]",
        "routes: [{id: main, receiver_id: \"${V}\"}]",
        "routes: [{id: main, policy: {send_timeout: \"${V}\"}}]",
        "routes: [{id: main, policy: {max_in_flight: \"${V}\"}}]",
        "receivers: [{id: in, topics: [{topic: \"a#${V}\", qos: 1}]}]",
        "receivers: [{id: in, session_id: \"${V}\"}]",
        "sessions: [{id: broker, options: {session: {broker_url: \"ftp://u:${V}@h\"}}}]",
        "sessions: [{id: broker, options: {session: {password: [\"${V}\"]}}}]",
        "sessions: [{id: \"a b ${V}\"}]",
        "http: {admin_addr: \"${V}\"}",
        "bridge: {cluster: {endpoints: {\"http\": \"${V}\"}}}",
    ];
    for value in [CANARY, "zq7", "987", "9"] {
        for layer in layers {
            let faults = try_load(&[STANDALONE, layer], &[("V", value)]).unwrap_err();
            assert!(faults.iter().all(|fault| fault.code != "E_YAML_SYNTAX") && faults.iter().any(Fault::is_error), "{layer}: {faults:#?}");
            let shown: String = faults.iter().map(|fault| format!("{} {}\n", fault.message, fault.remedy)).collect();
            let quoted = [format!("\"{value}"), format!("`{value}"), format!("#{value}")];
            assert!(!quoted.iter().any(|quoted| shown.contains(quoted)), "{layer}: {shown}");
            assert!(value.len() < 3 || !shown.contains(value), "{layer}: {shown}");
        }
    }
}

#[test]
fn secrets_do_not_print_with_the_configuration() {
    let found = loaded(&[SESSION], &[("MQTT_PASSWORD", CANARY), ("BROKER_CA", CANARY)]);
    assert!(!format!("{found:?}{}", serde_json::to_string(&found.config).unwrap()).contains(CANARY));
    let settings = found.config.sessions[0].mqtt();
    assert!(!format!("{settings:?}").contains(CANARY));
    let Credentials::Login { username, password } = settings.credentials else { panic!("no login") };
    assert_eq!((username.as_str(), password.unwrap().reveal()), ("bridge", CANARY));
    let TrustAnchors::Pem(pem) = settings.broker.tls.trust else { panic!("no PEM") };
    assert_eq!(pem.reveal(), CANARY);
}

#[test]
fn defaults_are_those_of_the_reference() {
    let config = loaded(&[STANDALONE], &[]).config;
    let bridge = &config.bridge;
    assert_eq!((bridge.mode(), bridge.metrics_exporter), (DeploymentMode::Standalone, MetricsExporter::Prometheus));
    assert_eq!(
        (bridge.shutdown_timeout.get(), bridge.drain_ceiling().with(2), bridge.drain_ceiling().with(1_000)),
        (Duration::from_secs(30), Duration::from_secs(6), Duration::from_secs(10))
    );
    let mqtt = config.sessions[0].mqtt();
    assert_eq!((mqtt.session_expiry_seconds, mqtt.receive_maximum, mqtt.max_packet_bytes), (86_400, 500, 262_144 + 131_072));
    assert_eq!((mqtt.keep_alive, mqtt.clean_start), (Some(Duration::from_secs(30)), false));
    assert_eq!((mqtt.reconnect_delay, mqtt.reconnect_max_delay), (Duration::from_secs(10), Duration::from_secs(120)));
    let sqs = config.senders[0].sqs().unwrap();
    assert_eq!((sqs.batch_size, sqs.max_message_bytes, sqs.timeout, sqs.region), (10, 1_048_576, Duration::from_secs(30), None));
    let policy = &config.routes[0].policy;
    assert_eq!((policy.max_in_flight, policy.max_replay_attempts, policy.replay_budget.get()), (100, 5, Duration::from_secs(900)));
    assert_eq!((policy.on_expired, policy.on_permanent_failure, policy.on_filtered), (OnFailure::Dlq, OnFailure::Dlq, OnFailure::Drop));
    assert_eq!((policy.backoff.multiplier, policy.backoff.jitter), (2.0, 0.2));
    assert_eq!(config.routes[0].ack_after(), AckAfter::OutboxPersist);
    assert_eq!(config.stale_claim(), Duration::from_secs(45));
    assert_eq!(config.stores.outbox_backend(), Some(StoreBackend::Sqlite { path: PathBuf::from("/var/lib/causeway/outbox.db") }));
    let http = &config.http;
    assert_eq!([http.admin_addr, http.monitor_addr, http.transport_addr].map(|addr| addr.get().port()), [8080, 8081, 8082]);
}

#[test]
fn stores_of_the_scenario_keep_their_tables() {
    let stores = loaded(&[SCENARIO], &[]).config.stores;
    let table = |name: &str| Some(StoreBackend::Dynamodb { table: name.to_owned() });
    assert_eq!(stores.lease_backend(), table("gobridge-leases"));
    assert_eq!(stores.outbox_backend(), table("gobridge-outbox"));
    assert_eq!(stores.dlq_backend(), table("gobridge-dlq"));
    assert_eq!(stores.subscription_backend(), table("gobridge-managed-subscriptions"));
}

#[test]
fn what_deserves_a_second_look_is_a_warning() {
    let warned = |layers: &[&str]| loaded(layers, &[]).warnings.iter().map(|fault| fault.code).collect::<Vec<_>>();
    assert_eq!(warned(&[STANDALONE]), ["W_SUBSCRIPTIONS"]);
    assert!(
        warned(&[STANDALONE, "sessions: [{id: broker, options: {session: {broker_url: tcp://far.example.com}}}]"]).contains(&"W_PLAINTEXT")
    );
    assert!(!warned(&[STANDALONE, "sessions: [{id: broker, options: {session: {broker_url: tcp://127.0.0.1}}}]"]).contains(&"W_PLAINTEXT"));
    assert!(warned(&[STANDALONE, "stores: {outbox: {options: {stale_claim_duration: 31s}}}"]).contains(&"W_STALE_CLAIM"));
    assert!(warned(&[STANDALONE, "bindings: [{id: unused, sender_id: queue, address: a}]"]).contains(&"W_UNUSED"));
    assert!(warned(&["bridge: {id: b}"]).contains(&"W_NO_ROUTES"));
    assert_eq!(warned(&[OLDER_BROKER]), ["W_PLAINTEXT", "W_V311"]);
    assert_eq!(warned(&[SCENARIO]), ["W_STALE_CLAIM"]);
}

#[test]
fn a_file_of_four_mebibytes_is_read_and_one_more_byte_is_not() {
    let mut text = STANDALONE.to_owned() + "#";
    text.push_str(&"x".repeat(causeway_core::config::MAX_BYTES - text.len()));
    loaded(&[&text], &[]);
    text.push('x');
    assert_eq!(codes(&[&text], &[]), ["E_FILE_TOO_LARGE"]);
}

#[test]
fn a_thousand_faults_are_cut_off() {
    let text: String = (0..1000).map(|index| format!("key{index}: 1\n")).collect();
    let found = try_load(&[&text], &[]).unwrap_err();
    assert!((200..=210).contains(&found.len()), "{}", found.len());
    assert!(found.iter().any(|fault| fault.code == "E_TOO_MANY"));
}

/// Whatever is done to the scenario, each fault has a place in it.
fn assert_sound(text: &str) -> Result<(), TestCaseError> {
    let found = examine(&[Source { name: "mutant.yaml", text }], &|_| None);
    let lines = u32::try_from(text.lines().count()).unwrap() + 2;
    for fault in &found.faults {
        prop_assert_eq!(&*fault.at.file, "mutant.yaml");
        prop_assert!((1..=lines).contains(&fault.at.line) && fault.at.column >= 1, "{}", fault);
        prop_assert!(!fault.code.is_empty() && !fault.message.is_empty() && !fault.remedy.is_empty(), "{}", fault);
    }
    let _ = found.config.map(|config| config.budgets());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_line_changed_at_random_is_told_or_harmless(line in 0_usize..90, what in "[ \\-a-z0-9:#&*!|>'\"%@`{}\\[\\],$?\n\t~.é]{0,20}", cut in 0_usize..30) {
        let mut lines: Vec<String> = SCENARIO.lines().map(str::to_owned).collect();
        let line = line % lines.len();
        let at = lines[line].char_indices().map(|(at, _)| at).nth(cut).unwrap_or(lines[line].len());
        lines[line].insert_str(at, &what);
        assert_sound(&lines.join("\n"))?;
    }

    #[test]
    fn a_value_changed_at_random_is_told_or_harmless(line in 0_usize..90, value in prop_oneof![
        Just("null".to_owned()), Just("[]".to_owned()), Just("{}".to_owned()), Just("-1".to_owned()), Just("1e400".to_owned()), Just("99999999999999999999999".to_owned()),
        Just("9223372036854775807ns".to_owned()), Just("2562047h".to_owned()), Just("0s".to_owned()), Just("\"\"".to_owned()), Just("off".to_owned()), Just("[a, [b]]".to_owned()),
        Just("{a: {b: c}}".to_owned()), Just("${X:-5s}".to_owned()), Just(".nan".to_owned()), "[0-9]{1,20}(ns|ms|s|h)", "[a-z]{1,10}",
    ]) {
        let mut lines: Vec<String> = SCENARIO.lines().map(str::to_owned).collect();
        let line = line % lines.len();
        if let Some((key, _)) = lines[line].clone().split_once(": ") {
            lines[line] = format!("{key}: {value}");
        }
        assert_sound(&lines.join("\n"))?;
    }

    #[test]
    fn lines_left_out_or_swapped_are_told_or_harmless(gone in 0_usize..90, a in 0_usize..90, b in 0_usize..90) {
        let mut lines: Vec<&str> = SCENARIO.lines().collect();
        let count = lines.len();
        lines.swap(a % count, b % count);
        lines.remove(gone % count);
        assert_sound(&lines.join("\n"))?;
    }

    #[test]
    fn any_text_at_all_is_told_or_harmless(text in "\\PC{0,200}") {
        assert_sound(&text)?;
    }
}

/// What goes round in circles, by whichever topic; and a topic that nothing ever goes to.
#[test]
fn loops_and_default_topics_without_a_use_are_named() {
    let warned = |default_topic: &str, address: &str| {
        let layer = format!(
            "senders: [{{id: out, session_id: broker, options: {{default_topic: {default_topic}}}}}]\n\
             bindings: [{{id: to-topic, sender_id: out, address: '{address}'}}]\n\
             routes: [{{id: main, bindings: [to-topic]}}]"
        );
        let warnings = loaded(&[STANDALONE, &layer], &[]).warnings;
        let found = warnings.iter().filter(|fault| ["W_LOOP", "W_DEFAULT_TOPIC"].contains(&fault.code));
        found.map(|fault| (fault.code, fault.path.clone())).collect::<Vec<_>>()
    };
    let looping = || ("W_LOOP", "routes[0].bindings".to_owned());
    let unused = || ("W_DEFAULT_TOPIC", "senders[1].options.default_topic".to_owned());
    assert_eq!(warned("lost", "out/{site}"), []);
    assert_eq!(warned("telemetry/lost", "out/{site}"), [looping()]);
    assert_eq!(warned("lost", "telemetry/{site}"), [looping()]);
    assert_eq!(warned("telemetry/lost", "out/all"), [unused()], "nothing is published to it");
    assert_eq!(warned("lost", "telemetry/all").iter().map(|(code, _)| *code).collect::<Vec<_>>().len(), 2);
}

/// Filters that match the same topics make copies that nothing tells from two messages.
#[test]
fn filters_that_overlap_are_named() {
    for (filters, overlap) in [
        (["f/#", "f/+/temp"], true),
        (["f/#", "f"], true),
        (["+/temp", "f/+"], true),
        (["$share/g/f/#", "f/x"], true),
        (["#", "$SYS/broker"], false),
        (["f/+", "f/+/temp"], false),
        (["f/a/#", "f/b/#"], false),
        (["+/a", "+/b"], false),
        (["f", "f/+"], false),
    ] {
        let topics =
            format!("receivers: [{{id: in, topics: [{{topic: \"{}\", qos: 1}}, {{topic: \"{}\", qos: 1}}]}}]", filters[0], filters[1]);
        let loaded = loaded(&[STANDALONE, &topics], &[]);
        let found: Vec<_> =
            loaded.warnings.iter().filter(|fault| fault.code == "W_TOPIC_OVERLAP").map(|fault| fault.path.as_str()).collect();
        assert_eq!(found, if overlap { vec!["receivers[0].topics[1].topic"] } else { Vec::new() }, "{filters:?}");
    }
}

/// What is typed is not judged besides, where nothing stands yet: one fault, and one thing to do.
#[test]
fn a_missing_variable_is_the_only_fault_of_its_field() {
    let listens = "http: {monitor_addr: '${MONITOR}'}";
    assert_eq!(codes(&[STANDALONE, listens], &[]), ["E_ENV_MISSING"]);
    assert_eq!(codes(&[STANDALONE, listens], &[("MONITOR", "nowhere")]), ["E_LISTEN_ADDR"]);
    loaded(&[STANDALONE, listens], &[("MONITOR", ":8081")]);
}
