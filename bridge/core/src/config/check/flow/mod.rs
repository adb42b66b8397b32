//! Rules of `flow`. One file for each of its blocks.

mod inbound;

use super::Check;

pub(super) fn check(check: &mut Check<'_>) {
    inbound::check(check);
}
