//! Rules of `flow`: one file for each of its blocks.

mod store;

use super::Check;

pub(super) fn check(check: &mut Check<'_>) {
    store::check(check);
}
