//! Answers to nobody: what names a command that has no row.

use crate::units::UnixMillis;
use core::time::Duration;

/// An answer whose command had no row when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// When it came.
    pub came_at: UnixMillis,
}

/// What becomes of an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// A row that was made now takes it.
    Adopted,
    /// It is not believed any more: housekeeping deletes it.
    Expired,
}

impl Orphan {
    /// What becomes of it where a row is made, or housekeeping looks, `now`. Stores that delete by time do so late: what is read is asked.
    #[must_use]
    pub fn at(&self, now: UnixMillis, keep: Duration) -> Adoption {
        if now.since(self.came_at) > keep { Adoption::Expired } else { Adoption::Adopted }
    }
}

impl Adoption {
    /// What becomes of an orphan whose time is over. Where the command has a row by now, that row tells what became of it, and nobody was told nothing.
    #[must_use]
    pub const fn when_due(has_row: bool) -> Self {
        if has_row { Self::Adopted } else { Self::Expired }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rr3_an_answer_to_nobody_is_kept_for_a_while() {
        let orphan = Orphan { came_at: UnixMillis(1_000) };
        let at = |millis| orphan.at(UnixMillis(millis), Duration::from_secs(600));
        assert_eq!((at(1_000), at(601_000), at(601_001)), (Adoption::Adopted, Adoption::Adopted, Adoption::Expired));
        assert_eq!(at(602_000), Adoption::Expired);
    }

    #[test]
    fn an_answer_whose_command_has_a_row_by_now_was_not_to_nobody() {
        assert_eq!((Adoption::when_due(true), Adoption::when_due(false)), (Adoption::Adopted, Adoption::Expired));
    }
}
