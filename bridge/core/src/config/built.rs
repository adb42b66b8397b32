//! What the schema knows and this release does not carry out yet. `run` refuses it; nothing is ever parsed and then ignored.
//!
//! Whoever builds a feature deletes its line here.

use super::Loaded;
use super::fault::{Fault, Severity};
use super::model::{Config, StoreKind};

/// Fields that are refused wherever they are written. `[]` stands for any element of a list.
const FIELDS: &[(&str, &str)] = &[
    ("receivers[].options.credentials_uri", "credentials from elsewhere than the AWS chain"),
    ("senders[].options.credentials_uri", "credentials from elsewhere than the AWS chain"),
    ("stores.dlq.auto_redrive_window", "redrive when a subscription returns"),
    ("stores.outbox.options.compaction_grace", "keeping settled messages"),
    ("stores.outbox.options.retention", "keeping settled messages"),
];

/// A use of something that is refused: the path, and what it is.
type Use = (String, &'static str);

/// What is refused for its value, or where nothing is written.
const USES: &[fn(&Config) -> Vec<Use>] = &[|config| {
    let kept = config.stores.dlq.as_ref().filter(|dlq| dlq.kind != StoreKind::Dynamodb && dlq.options.retention.is_some());
    kept.map(|_| ("stores.dlq.options.retention".to_owned(), "deleting old dead letters outside DynamoDB")).into_iter().collect()
}];

/// Everything in the configuration that this release does not carry out, in the order of the files.
#[must_use]
pub fn not_built(loaded: &Loaded) -> Vec<Fault> {
    let mut uses: Vec<Use> = USES.iter().flat_map(|find| find(&loaded.config)).collect();
    for path in loaded.positions.places.keys() {
        let pattern = without_indices(path);
        if let Some((_, what)) = FIELDS.iter().find(|(field, _)| *field == pattern) {
            uses.push((path.clone(), what));
        }
    }
    let mut faults: Vec<Fault> = uses.into_iter().map(|(path, what)| fault(loaded, path, what)).collect();
    faults.sort_by(|a, b| loaded.positions.order(a).cmp(&loaded.positions.order(b)));
    faults
}

fn fault(loaded: &Loaded, path: String, what: &str) -> Fault {
    let remedy = if loaded.is_set(&path) {
        "remove it, or wait for a release that has it".to_owned()
    } else {
        "leave it out, or wait for a release that has it".to_owned()
    };
    Fault {
        code: "E_NOT_BUILT",
        severity: Severity::Error,
        at: loaded.position(&path),
        message: format!("`{}` is valid, but this release does not do {what} yet", path.rsplit('.').next().unwrap_or(&path)),
        path,
        remedy,
    }
}

/// `routes[0].policy` as `routes[].policy`.
fn without_indices(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if !(c.is_ascii_digit() && out.rfind('[') > out.rfind(']')) {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::super::{Source, json_schema, load};
    use super::*;

    #[test]
    fn indices_are_left_out_of_patterns() {
        assert_eq!(without_indices("routes[10].policy.on_2[3]"), "routes[].policy.on_2[]");
    }

    /// A line about a field that does not exist would never fire.
    #[test]
    fn every_line_names_a_field_of_the_schema() {
        let schema = json_schema();
        for (field, _) in FIELDS {
            assert!(schema_has(&schema, &schema, field), "{field}");
        }
    }

    fn schema_has(root: &serde_json::Value, at: &serde_json::Value, path: &str) -> bool {
        let at = resolve(root, at);
        if path.is_empty() {
            return true;
        }
        if let Some(rest) = path.strip_prefix("[]") {
            return schema_has(root, &at["items"], rest.trim_start_matches('.'));
        }
        let end = path.find(['.', '[']).unwrap_or(path.len());
        let (key, rest) = path.split_at(end);
        let child = &at["properties"][key];
        !child.is_null() && schema_has(root, child, rest.trim_start_matches('.'))
    }

    fn resolve<'s>(root: &'s serde_json::Value, at: &'s serde_json::Value) -> &'s serde_json::Value {
        let inner = at["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null")).unwrap_or(at);
        match inner["$ref"].as_str().or_else(|| inner["allOf"][0]["$ref"].as_str()) {
            Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
            None => inner,
        }
    }

    #[test]
    fn nothing_of_the_clustered_scenario_is_refused() {
        let text = include_str!("../../../../tests/vectors/scenario.yaml");
        assert_eq!(not_built(&load(&[Source { name: "s", text }], &|_| None).unwrap()), []);
    }

    #[test]
    fn what_nothing_would_read_is_refused() {
        let refused = |text: &str| {
            not_built(&load(&[Source { name: "s", text }], &|_| None).unwrap()).into_iter().map(|fault| fault.path).collect::<Vec<_>>()
        };
        let clustered = include_str!("../../../../tests/fixtures/valid/clustered_ha.yaml");
        assert_eq!(refused(clustered), Vec::<String>::new());
        let kept = |kind: &str| clustered.replace("  dlq:\n    type: dynamodb", &format!("  dlq:\n    type: {kind}"));
        assert_eq!(refused(&kept("dynamodb\n    options: {retention: 30d}")), Vec::<String>::new());
        let alone = include_str!("../../../../tests/fixtures/valid/standalone_memory.yaml");
        let alone = alone.replace("dlq:\n    type: memory\n    options: {", "dlq:\n    type: memory\n    options: {retention: 30d, ");
        assert_eq!(refused(&alone), ["stores.dlq.options.retention"]);
    }
}
