//! See `tests/shell`.
