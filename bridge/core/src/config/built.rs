//! What the schema knows and this release does not do yet.
use super::{Fault, Loaded};
/// Placeholder.
#[must_use]
pub fn not_built(_: &Loaded) -> Vec<Fault> {
    Vec::new()
}
