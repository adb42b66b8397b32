//! What the roles did, as the emulator wrote it down, against what they are granted for.

use crate::stack::Made;
use anyhow::{Context as _, Result, ensure};
use causeway_aws::schema;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use xtask::stack::repository;
use xtask::terminal::note;

/// Operations by caller and target; `infra/lib/operations.ts` has the same shape.
type Operations = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Part of a role's name in the template, and the caller whose role it is.
const CALLERS: [(&str, &str); 5] = [
    ("workertaskrole", "worker"),
    ("controltaskrole", "control"),
    ("HousekeepingRole", "housekeeping"),
    ("RedriveRole", "redrive"),
    ("BaselinesRole", "baseline"),
];

/// One thing that a role was allowed.
#[derive(Debug, Deserialize)]
struct Allowed {
    role: String,
    action: String,
    resource: String,
}

/// Compares what was called, as the emulator with its files in `dir` wrote it down, with the file that the roles' test reads; or writes that file,
/// where `UPDATE_DOCS` is set.
///
/// # Errors
/// Something was called that is not in the file.
pub fn compare(dir: &Path, made: &Made) -> Result<()> {
    let file = path();
    let called = called(dir, made)?;
    let text = format!("{}\n", serde_json::to_string_pretty(&called).context("operations cannot be told")?);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()));
    }
    let known = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let known: Operations = serde_json::from_str(&known).with_context(|| format!("{} is unreadable", file.display()))?;
    let new = beyond(&called, &known);
    let unseen = beyond(&known, &called);
    ensure!(new.is_empty(), "called, and not in {}: {new:?}; UPDATE_DOCS=1 scripts/deploy-local --auth records it", file.display());
    ensure!(unseen.is_empty(), "in {}, and not called: {unseen:?}; UPDATE_DOCS=1 scripts/deploy-local --auth removes it", file.display());
    note(&format!("{} operations of {} callers, as recorded", count(&called), called.len()));
    Ok(())
}

/// Whether a role called this operation on this target, as the emulator with its files in `dir` wrote it down.
///
/// # Errors
/// What it wrote cannot be read.
pub fn has_called(dir: &Path, made: &Made, (caller, target, operation): (&str, &str, &str)) -> Result<bool> {
    Ok(called(dir, made)?.get(caller).and_then(|targets| targets.get(target)).is_some_and(|operations| operations.contains(operation)))
}

fn path() -> PathBuf {
    repository().join("infra/lib/generated/operations.json")
}

fn count(operations: &Operations) -> usize {
    operations.values().flat_map(BTreeMap::values).map(BTreeSet::len).sum()
}

/// What `one` has and `other` has not.
fn beyond(one: &Operations, other: &Operations) -> Vec<String> {
    let each = one.iter().flat_map(|(caller, targets)| {
        targets.iter().flat_map(move |(target, operations)| operations.iter().map(move |operation| (caller, target, operation)))
    });
    let has = |caller: &String, target: &String, operation: &String| {
        other.get(caller).and_then(|targets| targets.get(target)).is_some_and(|operations| operations.contains(operation))
    };
    each.filter(|&(caller, target, operation)| !has(caller, target, operation))
        .map(|(caller, target, operation)| format!("{caller} {target} {operation}"))
        .collect()
}

fn called(dir: &Path, made: &Made) -> Result<Operations> {
    let file = dir.join("roles.jsonl");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let roles = made.of("AWS::IAM::Role");
    let mut found = Operations::new();
    for line in text.lines() {
        let allowed: Allowed = serde_json::from_str(line).with_context(|| format!("{line} is unreadable"))?;
        let Some(role) = roles.iter().find(|role| role.physical == allowed.role) else { continue };
        let Some((_, caller)) = CALLERS.iter().find(|(part, _)| role.logical.contains(part)) else { continue };
        let operation = allowed.action.rsplit(':').next().unwrap_or_default().to_owned();
        let Some(target) = target_of(&allowed.resource, &operation)? else { continue };
        found.entry((*caller).to_owned()).or_default().entry(target).or_default().insert(operation);
    }
    Ok(found)
}

/// The target's name; `None` for what is neither a table nor a queue. To ask for a queue's address is a target of its own: most configurations write it out.
fn target_of(arn: &str, operation: &str) -> Result<Option<String>> {
    if let Some((_, queue)) = arn.split_once(":sqs:") {
        let target = match (queue.ends_with("-dlq"), queue.ends_with(":orders"), operation) {
            (true, _, _) => "queue/dead_letters",
            (_, true, "GetQueueUrl") => "queue/source_by_name",
            (_, true, _) => "queue/source",
            _ => "queue/destination",
        };
        return Ok(Some(target.to_owned()));
    }
    let Some((_, table)) = arn.split_once(":table/") else { return Ok(None) };
    let (name, index) = table.split_once("/index/").map_or((table, None), |(name, index)| (name, Some(index)));
    let facts = schema::to_json();
    let role = facts["tables"].as_array().into_iter().flatten().find(|table| {
        let suffix = table["default_name"].as_str().unwrap_or_default().trim_start_matches("causeway");
        name.ends_with(suffix)
    });
    let role = role.and_then(|table| table["role"].as_str()).with_context(|| format!("{name} is none of the bridge's tables"))?;
    Ok(Some(index.map_or_else(|| role.to_owned(), |index| format!("{role}/{index}"))))
}
