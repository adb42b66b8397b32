//! Commands to devices, and their answers: what becomes of a command, whoever learns of its answer first.
//!
//! A command is a row before it is published. Whoever gets the answer writes it into that row, and the row decides: every write names the version that it
//! changes ([`Command::version`]), and what is refused is decided anew from what stands there. So it does not matter which instance published, which
//! one got the answer, by how many ways it came, or which of them is gone.

mod command;
mod correlation;
pub mod gateway;
mod orphan;
mod repeat;
mod reply;
mod topics;
mod waiters;

pub use command::{Command, CommandResult, Event, Rules, State, Step, Sweep, Verdict, Why};
pub use correlation::{Correlation, CorrelationError, correlation_of};
pub use orphan::{Adoption, Orphan};
pub use repeat::{Repeat, repeat_of};
pub use reply::{Arrival, IgnoredReply, REASON, RESPONSE_TOO_LARGE, ReplyReader, STATUS};
pub use topics::{ReplyPlace, TargetError, TopicError, Topics, check_target};
pub use waiters::{WaiterId, Waiters};

use crate::units::UnixMillis;

/// What is left until `expires_at` as a Message Expiry Interval, in seconds, rounded up; `None`: nothing, and it is not to be published any more.
#[must_use]
pub fn remaining_expiry(expires_at: UnixMillis, now: UnixMillis) -> Option<u32> {
    let left = expires_at.since(now).as_millis();
    (left > 0).then(|| u32::try_from(left.div_ceil(1_000)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RR8.
    #[test]
    fn rr8_what_is_left_of_the_time_is_rounded_up_and_nothing_is_not_published() {
        let expiry = |now| remaining_expiry(UnixMillis(10_000), UnixMillis(now));
        assert_eq!((expiry(9_999), expiry(9_000), expiry(8_999), expiry(0)), (Some(1), Some(1), Some(2), Some(10)));
        assert_eq!((expiry(10_000), expiry(10_001)), (None, None));
        assert_eq!(remaining_expiry(UnixMillis(u64::MAX), UnixMillis(0)), Some(u32::MAX));
    }
}
