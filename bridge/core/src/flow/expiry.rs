//! How long messages are kept, and what a receiver is told of that.

use crate::config::model::FlowStore;
use core::time::Duration;

/// How long messages are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry {
    /// For those whose publisher says nothing; `None`: for ever.
    pub ttl: Option<Duration>,
    /// For any: longer ones are cut.
    pub most: Option<Duration>,
}

impl From<&FlowStore> for Expiry {
    fn from(store: &FlowStore) -> Self {
        let some = |span: crate::config::Span| (!span.is_zero()).then(|| span.get());
        Self { ttl: some(store.message_ttl), most: some(store.max_message_ttl) }
    }
}

impl Expiry {
    /// After how long a message expires. `told`: its Message Expiry Interval, in seconds.
    #[must_use]
    pub fn of(&self, told: Option<u32>) -> Option<Duration> {
        let wanted = told.map(|seconds| Duration::from_secs(u64::from(seconds))).or(self.ttl)?;
        Some(self.most.map_or(wanted, |most| wanted.min(most)))
    }
}

/// The Message Expiry Interval that a message is forwarded with, whose remaining time is `remaining`: whole seconds, rounded up, 1 at least.
#[must_use]
pub fn forwarded_expiry(remaining: Duration) -> u32 {
    let seconds = remaining.as_secs() + u64::from(remaining.subsec_nanos() > 0);
    u32::try_from(seconds.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_c5_expiry_is_forwarded_in_whole_seconds_rounded_up() {
        let expiry = Expiry { ttl: None, most: None }.of(Some(10)).unwrap_or_default();
        let left = |passed: u64| expiry.checked_sub(Duration::from_millis(passed)).filter(|left| !left.is_zero()).map(forwarded_expiry);
        assert_eq!([left(0), left(1), left(9_999), left(10_000)], [Some(10), Some(10), Some(1), None]);
        assert_eq!(forwarded_expiry(Duration::ZERO), 1);
        assert_eq!(forwarded_expiry(Duration::from_secs(u64::from(u32::MAX) + 5)), u32::MAX);
    }

    #[test]
    fn flow_c5_expiry_is_the_publishers_or_the_default_and_capped() {
        let week = Duration::from_secs(604_800);
        let expiry = Expiry { ttl: Some(week), most: Some(week * 2) };
        assert_eq!(expiry.of(None), Some(week));
        assert_eq!(expiry.of(Some(0)), Some(Duration::ZERO));
        assert_eq!(expiry.of(Some(10)), Some(Duration::from_secs(10)));
        assert_eq!(expiry.of(Some(u32::MAX)), Some(week * 2), "capped, not negative");
        assert_eq!(Expiry { ttl: None, most: None }.of(None), None);
    }
}
