//! The rules between fields: what each says by itself is right, and together it is not.

mod bridge;
mod commands;
mod drops;
mod ends;
mod flow;
mod lease;
mod processor;
mod route;
mod session;
mod stores;

use super::Positions;
use super::fault::{Fault, Severity};
use super::model::Config;
use std::collections::BTreeSet;

/// Every broken rule. A rule that reads a field which already has a fault of its own is silent.
pub(super) fn check(config: &Config, positions: &Positions, broken: BTreeSet<String>) -> Vec<Fault> {
    let mut check = Check { config, positions, broken, faults: Vec::new() };
    bridge::check(&mut check);
    stores::check(&mut check);
    drops::check(&mut check);
    commands::check(&mut check);
    session::check(&mut check);
    ends::check(&mut check);
    route::check(&mut check);
    processor::check(&mut check);
    lease::check(&mut check);
    flow::check(&mut check);
    check.faults
}

/// The configuration under examination, and what was found.
struct Check<'a> {
    config: &'a Config,
    positions: &'a Positions,
    broken: BTreeSet<String>,
    faults: Vec<Fault>,
}

impl<'a> Check<'a> {
    /// Reports a broken rule at `path` that reads the fields at `reads` too.
    fn error(&mut self, code: &'static str, path: &str, reads: &[&str], message: impl Into<String>, remedy: impl Into<String>) {
        self.report(Severity::Error, code, path, reads, message.into(), remedy.into());
    }

    /// Reports something that deserves a second look.
    fn warning(&mut self, code: &'static str, path: &str, reads: &[&str], message: impl Into<String>, remedy: impl Into<String>) {
        self.report(Severity::Warning, code, path, reads, message.into(), remedy.into());
    }

    fn report(&mut self, severity: Severity, code: &'static str, path: &str, reads: &[&str], message: String, remedy: String) {
        if self.is_broken(path) || reads.iter().any(|read| self.is_broken(read)) {
            return;
        }
        self.faults.push(Fault { code, severity, path: path.to_owned(), at: self.positions.of(path), message, remedy });
    }

    /// Whether the field, or something that holds it, already has a fault.
    fn is_broken(&self, path: &str) -> bool {
        let mut path = path;
        loop {
            if self.broken.contains(path) {
                return true;
            }
            let Some(cut) = path.rfind(['.', '[']) else {
                return false;
            };
            path = &path[..cut];
        }
    }

    fn is_set(&self, path: &str) -> bool {
        self.positions.is_set(path)
    }

    /// Names of a section: none empty, none twice.
    fn names(&mut self, section: &'static str, ids: impl Iterator<Item = &'a str>) {
        let mut seen = BTreeSet::new();
        for (index, id) in ids.enumerate() {
            let path = format!("{section}[{index}].id");
            if id.is_empty() {
                self.error("E_REQUIRED", &path, &[], format!("{path} is required"), "give it a name");
            } else if !seen.insert(id) {
                self.error("E_DUPLICATE_ID", &path, &[], format!("{section}: duplicate id \"{id}\""), "give each its own name");
            }
        }
    }

    /// A reference to a thing that must exist.
    fn reference(&mut self, path: &str, field: &str, id: &str, section: &'static str, exists: bool) {
        if id.is_empty() {
            self.error("E_REQUIRED", path, &[], format!("{path} is required"), format!("name one of {section}"));
        } else if !exists && !self.has_nameless(section) {
            self.error(
                "E_DANGLING",
                path,
                &[section],
                format!("{field} \"{id}\" not found in {section}"),
                format!("name one of {section}, or add it there"),
            );
        }
    }

    /// Whether something in a section could not be read, so that its name is not known.
    fn has_nameless(&self, section: &str) -> bool {
        self.broken.iter().filter_map(|path| path.strip_prefix(section)).any(|rest| rest.ends_with("].id") || rest.ends_with(']'))
    }

    /// A whole number with bounds.
    fn range(&mut self, path: &str, value: u64, least: u64, most: u64) {
        if value < least || value > most {
            self.error("E_RANGE", path, &[], "out of range", format!("write a number from {least} to {most}"));
        }
    }

    /// A duration that must not be zero.
    fn positive(&mut self, path: &str, span: super::values::Span) {
        if span.is_zero() {
            self.error("E_POSITIVE", path, &[], "must be a positive duration", "write a duration above zero, such as `30s`");
        }
    }
}
