//! What the schema knows and this release does not carry out yet. `run` refuses it; nothing is ever parsed and then ignored.
//!
//! Whoever builds a feature deletes its line here.

use super::Loaded;
use super::fault::{Fault, Severity};

/// Fields that are refused wherever they are written. `[]` stands for any element of a list.
const FIELDS: &[(&str, &str)] = &[
    ("receivers[].options.credentials_uri", "credentials from elsewhere than the AWS chain"),
    ("senders[].options.credentials_uri", "credentials from elsewhere than the AWS chain"),
];

/// Everything in the configuration that this release does not carry out, in the order of the files.
#[must_use]
pub fn not_built(loaded: &Loaded) -> Vec<Fault> {
    let named = |path: &String| FIELDS.iter().find(|(field, _)| *field == without_indices(path)).map(|(_, what)| *what);
    let written = loaded.positions.places.keys();
    let mut faults: Vec<Fault> = written.filter_map(|path| Some(fault(loaded, path.clone(), named(path)?))).collect();
    faults.sort_by(|a, b| loaded.positions.order(a).cmp(&loaded.positions.order(b)));
    faults
}

fn fault(loaded: &Loaded, path: String, what: &str) -> Fault {
    Fault {
        code: "E_NOT_BUILT",
        severity: Severity::Error,
        at: loaded.position(&path),
        message: format!("`{}` is valid, but this release does not do {what} yet", path.rsplit('.').next().unwrap_or(&path)),
        path,
        remedy: "remove it, or wait for a release that has it".to_owned(),
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
}
