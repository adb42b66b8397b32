//! Rules of `flow.outbound`.

use super::{Check, pairs};

pub(super) fn check(check: &mut Check<'_>) {
    let pace = &check.config.flow.outbound.pace;
    if !pace.is_empty() {
        pairs(check, "flow.outbound.pace", pace);
    }
}
