//! Every field of the configuration does what it is there for: for each one stands in [`table`] which of the parts that the program is built from becomes
//! another one where the field, and nothing else, has another value. A field that nothing reads fails here, and so does one that the table forgets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests, which write certificates"
)]

mod document;
mod table;
mod view;

use causeway_core::config::{Config, Fault, Loaded, Source, examine, json_schema, load};
use document::{leaves_of_schema, overlay, without_indices};
use serde_json::Value;
use std::collections::BTreeSet;
use table::{ROWS, Row};
use view::Part;

/// Where another value of a field shows.
#[derive(Clone, Copy, Debug)]
pub enum Shows {
    /// In what a part is built from.
    In(Part),
    /// With the second value, `check` or `run` refuses the configuration with this code, at this field or at what it contradicts.
    Refused(&'static str),
}

/// A document with the values of a row, and what they are called in messages.
fn documents(row: &Row, files: &view::Files) -> (Vec<String>, Vec<String>) {
    let text = |text: &str| files.filled(text);
    let mut layers: Vec<String> = row.base.iter().map(|layer| text(layer)).collect();
    let mut others = layers.clone();
    match row.change {
        table::Change::Values { element, first, second } => {
            layers.extend(first.map(|value| overlay(row.field, element, &text(value))));
            others.push(overlay(row.field, element, &text(second)));
        }
        table::Change::Names { from, to } => {
            others = others.iter().map(|layer| layer.replace(from, to)).collect();
        }
    }
    (layers, others)
}

fn read(layers: &[String]) -> Result<Loaded, Vec<Fault>> {
    let sources: Vec<Source<'_>> = layers.iter().map(|text| Source { name: "test", text }).collect();
    load(&sources, &|_| None)
}

/// The fields, without indices, in which two documents differ; secrets look the same.
fn differences(first: &[String], second: &[String]) -> BTreeSet<String> {
    let config = |layers: &[String]| -> Value {
        let sources: Vec<Source<'_>> = layers.iter().map(|text| Source { name: "test", text }).collect();
        let config: Option<Config> = examine(&sources, &|_| None).config;
        config.map_or(Value::Null, |config| serde_json::to_value(&config).unwrap())
    };
    let (mut paths, first, second) = (BTreeSet::new(), config(first), config(second));
    if !first.is_null() && !second.is_null() {
        document::differences("", &first, &second, &mut paths);
    }
    paths
}

/// What is wrong with a row, if something is.
async fn judge(row: &Row, files: &view::Files) -> Result<(), String> {
    let (first, second) = documents(row, files);
    let loaded = read(&first).map_err(|faults| format!("the first value is refused: {}", told(&faults)))?;
    let before = view::of(&loaded.config);
    let again = view::of(&read(&first).map_err(|faults| told(&faults))?.config);
    for (part, text) in &before {
        if again[part] != *text {
            return Err(format!("{part:?} comes out differently each time: nothing can be told from it"));
        }
    }
    let allowed: BTreeSet<&str> = row.along.iter().copied().chain([row.field]).collect();
    // A section that only one of them has differs as a whole.
    let is_allowed = |path: &String| {
        allowed.iter().any(|field| [(path.as_str(), *field), (*field, path.as_str())].iter().any(|(inner, outer)| is_within(inner, outer)))
    };
    let strange: Vec<String> = differences(&first, &second).into_iter().filter(|path| !is_allowed(path)).collect();
    if !strange.is_empty() {
        return Err(format!("the documents differ in more than the field: {strange:?}"));
    }
    match (row.shows, read(&second)) {
        (Shows::In(part), Ok(loaded)) => {
            let after = view::of(&loaded.config);
            if after[&part] == before[&part] {
                Err(format!("{part:?} is the same with either value: the field is ignored"))
            } else {
                Ok(())
            }
        }
        (Shows::In(_), Err(faults)) => Err(format!("the second value is refused: {}", told(&faults))),
        (Shows::Refused(code), Err(faults)) => {
            let hit = faults.iter().any(|fault| fault.code == code && concerns(row, fault));
            if hit { Ok(()) } else { Err(format!("no {code} at this field among: {}", told(&faults))) }
        }
        (Shows::Refused(code), Ok(_)) => Err(format!("{code} was expected, and the second value is taken")),
    }
}

/// Whether a fault is told of the field or a section around it, or of what the row says that it contradicts.
fn concerns(row: &Row, fault: &Fault) -> bool {
    let path = without_indices(&fault.path);
    let told_of = |field: &str| is_within(field, &path) || is_within(&path, field);
    told_of(row.field) || row.along.iter().any(|field| told_of(field))
}

/// Whether a path is another one or stands below it.
fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn told(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn every_field_changes_what_the_program_is_built_from() {
    let files = view::Files::new();
    let mut wrong = Vec::new();
    for row in ROWS {
        if let Err(why) = judge(row, &files).await {
            wrong.push(format!("{}: {why}", row.field));
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), ROWS.len(), wrong.join("\n"));
}

#[test]
fn the_table_names_every_field_of_the_schema_and_no_other() {
    let fields = leaves_of_schema(&json_schema());
    let named: BTreeSet<String> = ROWS.iter().map(|row| row.field.to_owned()).collect();
    let missing: Vec<&String> = fields.difference(&named).collect();
    let unknown: Vec<&String> = named.difference(&fields).collect();
    assert!(missing.is_empty(), "fields without a row, which may be ignored: {missing:#?}");
    assert!(unknown.is_empty(), "rows without a field: {unknown:#?}");
    assert!(fields.len() > 200, "{}", fields.len());
}

/// The proof proves something: a difference that the program is not built from is told as one that is ignored.
#[tokio::test]
async fn a_field_that_does_nothing_is_found_out() {
    let files = view::Files::new();
    let mut row = ROWS.iter().find(|row| row.field == "version").unwrap().clone();
    row.shows = Shows::In(Part::Owners);
    let why = judge(&row, &files).await.unwrap_err();
    assert!(why.contains("ignored"), "{why}");
}
