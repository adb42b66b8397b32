//! Fields of documents and of the schema, by their paths; `[]` stands for any element of a list.

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The paths of all fields that hold no fields themselves.
pub fn leaves_of_schema(schema: &Value) -> BTreeSet<String> {
    let mut leaves = BTreeSet::new();
    walk("", schema, schema, &mut leaves);
    leaves
}

fn walk(path: &str, at: &Value, root: &Value, leaves: &mut BTreeSet<String>) {
    let at = resolve(at, root);
    if let Some(properties) = at["properties"].as_object() {
        for (name, property) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            walk(&path, property, root, leaves);
        }
    } else if resolve(&at["items"], root)["properties"].is_object() {
        walk(&format!("{path}[]"), &at["items"], root, leaves);
    } else {
        leaves.insert(path.to_owned());
    }
}

/// What stands behind references, and beside `null` and variables.
fn resolve<'s>(at: &'s Value, root: &'s Value) -> &'s Value {
    let is_variable = |one: &Value| one["$ref"].as_str().is_some_and(|reference| reference.ends_with("/Variable"));
    let inner = at["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null" && !is_variable(one)));
    if let Some(inner) = inner {
        return resolve(inner, root);
    }
    match at["$ref"].as_str().and_then(|reference| root.pointer(reference.trim_start_matches('#'))) {
        Some(target) => resolve(target, root),
        None => at,
    }
}

/// `routes[0].policy` as `routes[].policy`.
pub fn without_indices(path: &str) -> String {
    let mut out = String::new();
    for c in path.chars() {
        if !(c.is_ascii_digit() && out.rfind('[') > out.rfind(']')) {
            out.push(c);
        }
    }
    out
}

/// A document that gives `field` a value: JSON, or else a text. Elements of lists are the ones that the base documents have; `element` is the rest of an
/// element of a list without ids.
pub fn overlay(field: &str, element: &str, value: &str) -> String {
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    let steps: Vec<&str> = field.split('.').collect();
    nested(&steps, element, value).to_string()
}

fn nested(steps: &[&str], element: &str, value: Value) -> Value {
    let Some((step, rest)) = steps.split_first() else { return value };
    let inner = nested(rest, element, value);
    let Some(list) = step.strip_suffix("[]") else { return json!({ *step: inner }) };
    let mut one = match list {
        "sessions" => json!({ "id": "the-session" }),
        "receivers" => json!({ "id": "the-receiver" }),
        "senders" => json!({ "id": "the-sender" }),
        "bindings" => json!({ "id": "the-binding" }),
        "processors" => json!({ "id": "the-processor" }),
        "routes" => json!({ "id": "the-route" }),
        _ => serde_json::from_str(element).unwrap_or_else(|_| Value::Object(Map::new())),
    };
    merge(&mut one, inner);
    json!({ list: [one] })
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The paths in which two values differ.
pub fn differences(path: &str, first: &Value, second: &Value, found: &mut BTreeSet<String>) {
    let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (first, second) {
        (Value::Object(one), Value::Object(other)) => {
            for name in one.keys().chain(other.keys()) {
                differences(&child(name), one.get(name).unwrap_or(&Value::Null), other.get(name).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for index in 0..one.len().max(other.len()) {
                let (one, other) = (one.get(index).unwrap_or(&Value::Null), other.get(index).unwrap_or(&Value::Null));
                differences(&format!("{path}[]"), one, other, found);
            }
        }
        _ if first != second => {
            found.insert(path.to_owned());
        }
        _ => {}
    }
}
