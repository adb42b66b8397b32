//! Layers: a later file changes what an earlier one said, field by field; lists of things with an `id` are matched by it.

use super::tree::{Node, Value};
use std::collections::BTreeSet;

/// Puts `over` on top of `base`. A `null` clears the field below it; any other list or scalar replaces what was there.
pub(super) fn merge(base: &mut Node, over: Node) {
    match (&mut base.value, over.value) {
        (Value::Map(below), Value::Map(above)) => {
            for entry in above {
                match below.iter_mut().find(|candidate| candidate.key == entry.key) {
                    Some(found) => {
                        found.key_at = entry.key_at;
                        merge(&mut found.node, entry.node);
                    }
                    None => below.push(entry),
                }
            }
        }
        (Value::Seq(below), Value::Seq(above)) if by_id(below) && by_id(&above) => merge_by_id(below, above),
        (slot, value) => {
            *slot = value;
            base.at = over.at;
        }
    }
}

fn id(node: &Node) -> Option<&str> {
    node.get("id").and_then(Node::text)
}

fn by_id(nodes: &[Node]) -> bool {
    !nodes.is_empty() && nodes.iter().all(|node| id(node).is_some())
}

/// Elements of one layer never merge with one another: an id given twice there stays twice, and is reported.
fn merge_by_id(below: &mut Vec<Node>, above: Vec<Node>) {
    let existing = below.len();
    let mut seen = BTreeSet::new();
    for node in above {
        let name = id(&node).unwrap_or_default().to_owned();
        let target = below.iter_mut().take(existing).find(|candidate| id(candidate) == Some(name.as_str()));
        match target {
            Some(target) if seen.insert(name) => merge(target, node),
            _ => below.push(node),
        }
    }
}
