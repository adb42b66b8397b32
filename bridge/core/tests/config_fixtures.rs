//! Every rule has a file that breaks it, and every sound file is sound.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests, which read fixtures")]

use causeway_core::config::{Fault, Severity, Source, json_schema, load};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The YAML files of a folder, by name.
fn files(folder: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = fs::read_dir(repository(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// The value of `# name: value` at the top of a file.
fn header<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().take_while(|line| line.starts_with('#')).find_map(|line| line.strip_prefix(&format!("# {name}: ")))
}

fn faults(name: &str, text: &str) -> Vec<Fault> {
    match load(&[Source { name, text }], &|_| None) {
        Ok(loaded) => loaded.warnings,
        Err(faults) => faults,
    }
}

#[test]
fn every_invalid_file_is_refused_with_its_code() {
    let files = files("tests/fixtures/invalid");
    assert!(files.len() > 150);
    for (name, text) in files {
        let expected = header(&text, "expect").unwrap_or_else(|| panic!("{name} names no code"));
        let found = faults(&name, &text);
        let shown = found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let hit = found.iter().find(|fault| fault.code == expected && header(&text, "path").is_none_or(|path| path == fault.path));
        let hit = hit.unwrap_or_else(|| panic!("{name}: no {expected} at its path among:\n{shown}"));
        assert_eq!(hit.severity, Severity::Error, "{name}");
        assert!(!hit.message.is_empty() && !hit.remedy.is_empty(), "{name}");
        assert_eq!(&*hit.at.file, name);
        assert!(hit.at.line >= 1 && hit.at.line as usize <= text.lines().count().max(1) + 1, "{name}: {}", hit.at);
        // One mistake, one error: anything else would send the reader after consequences.
        if name != "many_faults.yaml" {
            let errors: Vec<&Fault> = found.iter().filter(|fault| fault.is_error()).collect();
            assert!(errors.iter().all(|fault| fault.code == expected), "{name}:\n{shown}");
        }
    }
}

#[test]
fn all_faults_of_a_file_are_found_at_once() {
    let text = fs::read_to_string(repository("tests/fixtures/invalid/many_faults.yaml")).unwrap();
    let found = faults("many_faults.yaml", &text);
    let codes: BTreeSet<(&str, &str)> = found.iter().map(|fault| (fault.code, fault.path.as_str())).collect();
    for wanted in [
        ("E_REQUIRED", "bridge.id"),
        ("E_DURATION_UNIT", "bridge.shutdown_timeout"),
        ("E_CHOICE", "bridge.deployment_mode"),
        ("E_BROKER_URL", "sessions[0].options.session.broker_url"),
        ("E_TYPE", "sessions[0].options.session.keep_alive"),
        ("E_TLS_VERIFICATION", "sessions[0].options.session.tls.insecure_skip_verify"),
        ("E_REQUIRED", "sessions[0].options.session.client_id"),
        ("E_STORE_PATH_REQUIRED", "stores.outbox.options.path"),
        ("E_DANGLING", "receivers[0].session_id"),
        ("E_TOPIC_FILTER", "receivers[0].topics[0].topic"),
        ("E_RANGE", "receivers[0].topics[0].qos"),
        ("E_RANGE", "senders[0].options.batch_size"),
        ("E_QUEUE_REQUIRED", "senders[0].options.queue_url"),
        ("E_REQUIRED", "bindings[0].address"),
        ("E_UNKNOWN_KEY", "routes[0].policy.max_in_flght"),
        ("E_CHOICE", "routes[0].policy.on_expired"),
        ("E_BACKOFF", "routes[0].policy.backoff.multiplier"),
        ("E_DLQ_REQUIRED", "routes[0].policy.on_permanent_failure"),
    ] {
        assert!(codes.contains(&wanted), "{wanted:?} is missing among {codes:#?}");
    }
}

#[test]
fn every_code_has_a_file_that_shows_it() {
    let mut codes = BTreeSet::new();
    collect_codes(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config"), &mut codes);
    let shown: BTreeSet<String> =
        files("tests/fixtures/invalid").iter().filter_map(|(_, text)| header(text, "expect")).map(str::to_owned).collect();
    // Files larger than any that belongs into a repository, and a fallback that no value uses.
    let elsewhere = ["E_FILE_TOO_LARGE", "E_TOO_MANY", "E_VALUE"];
    let missing: Vec<&String> = codes.iter().filter(|code| !shown.contains(*code) && !elsewhere.contains(&code.as_str())).collect();
    assert!(missing.is_empty(), "no fixture shows {missing:?}");
    assert!(codes.len() > 90, "{}", codes.len());
}

fn collect_codes(folder: &Path, codes: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_codes(&path, codes);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let quoted = text
                .split('"')
                .filter(|part| part.starts_with("E_") && part.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
            codes.extend(quoted.map(str::to_owned));
        }
    }
}

#[test]
fn every_valid_file_is_valid_and_fits_the_schema() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    let mut files = files("tests/fixtures/valid");
    files.push(("scenario.yaml".to_owned(), fs::read_to_string(repository("tests/vectors/scenario.yaml")).unwrap()));
    assert!(files.len() > 20);
    for (name, text) in files {
        let found = faults(&name, &text);
        let errors: Vec<&Fault> = found.iter().filter(|fault| fault.is_error()).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        let value = to_json(&text);
        let complaints: Vec<String> = schema.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(complaints.is_empty(), "{name}: {complaints:#?}");
    }
}

#[test]
fn the_schema_refuses_what_it_can() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    for name in ["unknown_key", "type_number", "duration_unit", "choice", "missing_address", "broker_url", "id", "qos", "sender_batch"] {
        let text = fs::read_to_string(repository(&format!("tests/fixtures/invalid/{name}.yaml"))).unwrap();
        assert!(!schema.is_valid(&to_json(&text)), "{name}");
    }
}

/// What an editor makes of the file: variables as texts.
fn to_json(text: &str) -> Value {
    use granit_parser::{Event, Parser};
    enum Open {
        Map(serde_json::Map<String, Value>, Option<String>),
        List(Vec<Value>),
    }
    let (mut stack, mut root, mut anchors) = (Vec::new(), Value::Null, std::collections::BTreeMap::new());
    let mut names = Vec::new();
    for event in Parser::new_from_str(text) {
        let (value, anchor) = match event.unwrap().0 {
            Event::MappingStart(_, anchor, _) => {
                stack.push(Open::Map(serde_json::Map::new(), None));
                names.push(anchor);
                continue;
            }
            Event::SequenceStart(_, anchor, _) => {
                stack.push(Open::List(Vec::new()));
                names.push(anchor);
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => match stack.pop().unwrap() {
                Open::Map(map, _) => (Value::Object(map), names.pop().unwrap()),
                Open::List(list) => (Value::Array(list), names.pop().unwrap()),
            },
            Event::Alias(anchor) => (anchors.get(&anchor).cloned().unwrap(), 0),
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == granit_parser::ScalarStyle::Plain;
                let typed = if plain { serde_json::from_str(&text).ok() } else { None };
                (typed.unwrap_or_else(|| Value::String(text.into_owned())), anchor)
            }
            _ => continue,
        };
        anchors.insert(anchor, value.clone());
        match stack.last_mut() {
            None => root = value,
            Some(Open::List(list)) => list.push(value),
            Some(Open::Map(map, key)) => match key.take() {
                None => *key = Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
                Some(key) => {
                    map.insert(key, value);
                }
            },
        }
    }
    root
}

#[test]
fn messages_hold_the_phrases_that_people_search_for() {
    let phrases = [
        (
            "share_or_exclusive",
            "clustered MQTT receiver requires $share/ topic prefix or exclusive session to prevent N-fold message duplication; got \"telemetry/#\"",
        ),
        (
            "clustered_lease_memory",
            "clustered deployment requires a distributed LeaseStore; process-local stores (memory, sqlite) provide no cross-instance coordination",
        ),
        ("clustered_outbox_sqlite", "clustered deployment requires a distributed OutboxStore"),
        ("clustered_dlq_memory", "clustered deployment requires a distributed DLQStore"),
        ("lease_required", "exclusive session \"broker\" requires stores.lease to be configured"),
        ("outbox_required", "shared_outbox requires stores.outbox to be configured"),
        ("bridge_id", "bridge.id is required"),
        ("deployment_mode", "must be one of: standalone, clustered"),
        ("session_dangling", "session_id \"nowhere\" not found in sessions"),
        ("sender_dangling", "sender_id \"nowhere\" not found in senders"),
        ("route_dangling", "receiver_id \"nowhere\" not found in receivers"),
        ("session_duplicate", "sessions: duplicate id \"broker\""),
        ("binding_required", "at least one binding is required"),
        ("missing_address", "address is required"),
        ("missing_id", "id is required"),
        ("share_topic", "malformed $share/ topic"),
        ("duration_unit", "invalid duration \"45\""),
        ("max_mqtt_sessions", "bridge.max_mqtt_sessions: the configuration uses 1 MQTT sessions, more than the limit of 0"),
        ("step_down_text", "broker_health_step_down \"never\" must be a positive duration or \"off\""),
        ("failover_slo", "failover budget=336.5s exceeds declared failover_slo=336.499999999s"),
        ("failover_timing", "declared failover_slo requires known transport timing: "),
        ("lease_no_room", "LeaseTTL=5s with MaxRenewFails=5 leaves no room for the renew cadence"),
        ("renew_interval", "is below the minimum lease cadence=250ms"),
        ("drain_both", "session.drain_strategy and session.drain_interval are mutually exclusive"),
        ("drain_multiplier", "multiplier must be > 1.0"),
        ("drain_intervals", "max_interval must be >= min_interval"),
        ("qos_zero", "reliable MQTT route invalid: qos=0"),
        ("sqs_visibility_direct", "exceeds source VisibilityTimeout (90s); source may redeliver mid-pipeline causing duplicate processing"),
        ("subscriptions_required", "with desired subscriptions requires stores.managed_subscriptions"),
    ];
    for (name, phrase) in phrases {
        let text = fs::read_to_string(repository(&format!("tests/fixtures/invalid/{name}.yaml"))).unwrap();
        let found = faults(name, &text);
        assert!(found.iter().any(|fault| fault.message.contains(phrase)), "{name}: {found:#?}");
    }
}
