//! What the model says about itself: a JSON Schema for editors, and a reference page for people.

use super::model::Config;
use core::fmt::Write as _;
use serde_json::{Map, Value, json};

/// What may stand anywhere instead of a number, a duration or a choice.
const VARIABLE: &str = "Variable";

/// The JSON Schema (draft 2020-12) of the configuration.
///
/// Numbers, truth values, durations and choices may also be texts with `${NAME}` in them; what the variable holds is checked when it is known.
#[must_use]
pub fn json_schema() -> Value {
    let mut schema = raw();
    allow_variables(&mut schema);
    for (definition, field) in [("Policy", "allow_unfenced"), ("Tls", "insecure_skip_verify")] {
        if let Some(Value::Object(properties)) = schema.pointer_mut(&format!("/$defs/{definition}/properties")) {
            let never = "Refused for good; false says what is so anyway.";
            properties.insert(field.to_owned(), json!({ "const": false, "description": never, "deprecated": true }));
        }
    }
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        definitions.insert(VARIABLE.to_owned(), json!({ "type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}" }));
    }
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), json!("Causeway configuration"));
    }
    schema
}

fn raw() -> Value {
    let mut schema = schemars::schema_for!(Config).to_value();
    drop_section_defaults(&mut schema);
    schema
}

/// A section's default repeats those of its fields.
fn drop_section_defaults(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map
                .get("default")
                .is_some_and(|default| default.is_object() || default.is_null() || [json!([]), json!("")].contains(default))
            {
                map.remove("default");
            }
            map.values_mut().for_each(drop_section_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_section_defaults),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn allow_variables(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    for keyword in ["properties", "$defs"] {
        if let Some(Value::Object(children)) = map.get_mut(keyword) {
            children.values_mut().for_each(allow_variables);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(child) = map.get_mut(keyword) {
            allow_variables(child);
        }
    }
    if !is_narrow(map) {
        return;
    }
    let outside = ["description", "title", "default"];
    let (about, narrow): (Map<String, Value>, Map<String, Value>) =
        core::mem::take(map).into_iter().partition(|(key, _)| outside.contains(&key.as_str()));
    *map = about;
    map.insert("anyOf".to_owned(), json!([narrow, { "$ref": format!("#/$defs/{VARIABLE}") }]));
}

/// Whether a text with a variable in it would not be valid.
fn is_narrow(map: &Map<String, Value>) -> bool {
    let narrow_type = |kind: &Value| matches!(kind.as_str(), Some("integer" | "number" | "boolean"));
    let by_type = match map.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(narrow_type) && !kinds.iter().any(|kind| kind == "string"),
        Some(kind) => narrow_type(kind) || map.contains_key("pattern") || map.contains_key("enum"),
        None => false,
    };
    by_type || map.contains_key("oneOf")
}

/// The reference page of the configuration, in Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    let schema = raw();
    let mut page = Page { root: &schema, out: INTRODUCTION.to_owned() };
    page.section("", &schema, 2);
    page.out
}

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the model in bridge/core/src/config/model. Do not edit: run the tests of causeway-core with UPDATE_DOCS=1. -->

YAML 1.2, at most 4 MiB a file. `causeway check FILE…` finds every fault at once, `causeway schema` prints a JSON Schema for editors, and
`causeway init` writes a file to start from.

- **Layers.** Several files are read in order; a later one changes what an earlier one said, field by field. Lists whose elements have an `id` are
  matched by it; any other list is replaced. `null` takes a field back to its default.
- **Environment.** `${NAME}` stands for a variable, `${NAME:-default}` for a default where it is unset or empty, and `$${` for the characters `${`
  themselves. Values are put in after the YAML was read, so they cannot break it, and they never appear in messages. `$share/…` needs no care.
  Inside `{…}` and `[…]` a variable must be quoted, and a quoted one is always a text: write numbers from the environment on lines of their own.
- **Durations** have a unit: `500ms`, `45s`, `15m`, `1h30m`, `2d`. Only fields that are named in seconds are numbers.
- **Unknown keys** are errors: nothing is read and then ignored.

";

struct Page<'s> {
    root: &'s Value,
    out: String,
}

impl<'s> Page<'s> {
    /// One table for the fields of a mapping, then a section for each field that holds fields itself.
    fn section(&mut self, path: &str, schema: &'s Value, level: usize) {
        let schema = self.resolve(schema);
        if !path.is_empty() {
            let _ = writeln!(self.out, "{} `{path}`\n", "#".repeat(level.min(4)));
            if let Some(about) = schema["description"].as_str() {
                let _ = writeln!(self.out, "{about}\n");
            }
        }
        let Some(properties) = schema["properties"].as_object() else { return };
        let required: Vec<&str> =
            schema["required"].as_array().map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
        self.out.push_str("| field | type | default | meaning |\n|---|---|---|---|\n");
        for (name, property) in properties {
            let default = match property.get("default") {
                Some(default) => format!("`{}`", plain(default)),
                None if required.contains(&name.as_str()) => "required".to_owned(),
                None => String::new(),
            };
            let about = property["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
            let _ = writeln!(self.out, "| `{name}` | {} | {default} | {about} |", self.kind(property));
        }
        self.out.push('\n');
        for (name, property) in properties {
            let (suffix, inner) = self.inner(property);
            if inner["properties"].is_object() {
                let path = if path.is_empty() { format!("{name}{suffix}") } else { format!("{path}.{name}{suffix}") };
                self.section(&path, inner, if path.contains('.') { 3 } else { 2 });
            }
        }
    }

    /// The definition behind references and alternatives with `null`.
    fn resolve(&self, schema: &'s Value) -> &'s Value {
        let alternatives = schema["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null"));
        let schema = alternatives.unwrap_or(schema);
        match schema["$ref"].as_str().and_then(|reference| self.root.pointer(reference.trim_start_matches('#'))) {
            Some(target) => target,
            None => schema,
        }
    }

    /// A property's definition, and `[]` if it is a list of such.
    fn inner(&self, property: &'s Value) -> (&'static str, &'s Value) {
        let resolved = self.resolve(property);
        if resolved["items"].is_object() { ("[]", self.resolve(&resolved["items"])) } else { ("", resolved) }
    }

    fn kind(&self, schema: &'s Value) -> String {
        let resolved = self.resolve(schema);
        if let Some(title) = resolved["title"].as_str() {
            return title.to_owned();
        }
        if let Some(choices) = choices(resolved) {
            return choices;
        }
        let kind = match &resolved["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or_default(),
            kind => kind.as_str().unwrap_or_default(),
        };
        match kind {
            "array" => format!("list of {}", self.kind(&resolved["items"])),
            "object" if resolved["properties"].is_object() => "fields".to_owned(),
            "object" => "mapping of texts".to_owned(),
            "string" => "text".to_owned(),
            "boolean" => "`true` or `false`".to_owned(),
            "integer" | "number" => {
                // Bounds of the integer type itself are of no interest.
                let (least, most) = (
                    schema["minimum"].as_f64().unwrap_or(0.0),
                    schema["maximum"].as_f64().filter(|most| *most != 255.0 && *most != 65_535.0),
                );
                match most {
                    Some(most) => format!("{least} to {most}"),
                    None if kind == "integer" => "whole number".to_owned(),
                    None => "number".to_owned(),
                }
            }
            other => other.to_owned(),
        }
    }
}

/// The values of a choice.
fn choices(schema: &Value) -> Option<String> {
    let named: Vec<&str> = match (&schema["oneOf"], &schema["enum"]) {
        (Value::Array(variants), _) => variants.iter().filter_map(|variant| variant["const"].as_str()).collect(),
        (_, Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    Some(named.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}
