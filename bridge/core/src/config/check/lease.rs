//! Rules.
pub(super) const fn check(_: &mut super::Check<'_>) {}
