//! All limits, asked about one message.

use super::key::LimitKey;
use super::limiter::{Limiter, Mode};
use super::pairs::Pairs;
use crate::message::Message;
use crate::units::Instant;
use std::sync::Arc;

/// What becomes of a message that a limit does not admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnExceed {
    /// It waits, unacknowledged, and all that came after it: the broker's own window bounds how much that is.
    Hold,
    /// It is dropped, acknowledged and counted.
    Drop,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Who shares one budget.
    pub key: LimitKey,
    /// The budget.
    pub pairs: Pairs,
    /// How it is kept.
    pub mode: Mode,
    /// What becomes of what exceeds it.
    pub on_exceed: OnExceed,
    /// Keys that have a budget of their own, at most.
    pub max_keys: usize,
    /// The key whose budget the others share.
    pub overflow_key: Arc<str>,
}

/// What is to become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every limit admits it, and has been charged.
    Admitted,
    /// A limit does not.
    Refused(Exceeded),
}

/// The limit that refused a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Its place among the limits.
    pub limit: usize,
    /// What becomes of the message.
    pub on_exceed: OnExceed,
    /// When every limit that holds would admit it, if none is admitted before.
    pub ready_at: Instant,
}

/// The limits of one session.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    limits: Vec<(Limit, Limiter)>,
}

impl Gate {
    /// Whole budgets.
    #[must_use]
    pub fn new(limits: Vec<Limit>) -> Self {
        let limiter =
            |limit: &Limit| Limiter::new(limit.pairs.clone(), limit.mode, limit.max_keys).sharing(Arc::clone(&limit.overflow_key));
        Self { limits: limits.into_iter().map(|limit| (limit.clone(), limiter(&limit))).collect() }
    }

    /// Whether there is no limit at all.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.limits.is_empty()
    }

    /// Asks every limit about a message that goes by `routes`, and charges each once for it, or none.
    #[must_use]
    pub fn ask(&mut self, message: &Message, routes: &[&str], now: Instant) -> Verdict {
        match self.refusal(message, routes, now) {
            Some(exceeded) => Verdict::Refused(exceeded),
            None => {
                self.charge(message, routes, now);
                Verdict::Admitted
            }
        }
    }

    /// Which limit does not admit a message that goes by `routes`, if one does not; nothing is charged. One that drops comes first, so that nothing waits
    /// for what will be dropped; of those that hold, the one that admits it last.
    #[must_use]
    pub fn refusal(&self, message: &Message, routes: &[&str], now: Instant) -> Option<Exceeded> {
        let mut refused: Option<Exceeded> = None;
        for (index, (limit, limiter)) in self.limits.iter().enumerate() {
            let keys = keys(&limit.key, message, routes);
            let ready_at = keys.iter().map(|key| limiter.ready_at(key, now)).max().unwrap_or(now);
            if ready_at <= now {
                continue;
            }
            let exceeded = Exceeded { limit: index, on_exceed: limit.on_exceed, ready_at };
            match (limit.on_exceed, refused) {
                (OnExceed::Drop, _) => return Some(exceeded),
                (OnExceed::Hold, Some(other)) if other.ready_at >= ready_at => {}
                (OnExceed::Hold, _) => refused = Some(exceeded),
            }
        }
        refused
    }

    /// Charges every limit once for a message that none of them refuses at `now`.
    pub fn charge(&mut self, message: &Message, routes: &[&str], now: Instant) {
        for (limit, limiter) in &mut self.limits {
            keys(&limit.key, message, routes).into_iter().for_each(|key| limiter.take(key, now));
        }
    }

    /// Charges every limit once for a message that is taken in although some do not admit it yet: each for the moment at which it does.
    pub fn charge_ahead(&mut self, message: &Message, routes: &[&str], now: Instant) {
        for (limit, limiter) in &mut self.limits {
            for key in keys(&limit.key, message, routes) {
                let at = limiter.ready_at(key, now);
                limiter.take_ahead(key, now, at);
            }
        }
    }

    /// The limits whose key a message lacks: it shares a budget with all others that lack it.
    #[must_use]
    pub fn missing_keys(&self, message: &Message) -> usize {
        self.limits.iter().filter(|(limit, _)| limit.key.is_missing(message)).count()
    }

    /// Who shares the budget of a limit.
    #[must_use]
    pub fn key_of(&self, limit: usize) -> Option<&LimitKey> {
        self.limits.get(limit).map(|(limit, _)| &limit.key)
    }
}

/// The keys that a message is charged to: one, or one for each of its routes.
fn keys<'m>(key: &LimitKey, message: &'m Message, routes: &[&'m str]) -> Vec<&'m str> {
    match key {
        LimitKey::Route => routes.to_vec(),
        LimitKey::Topic | LimitKey::TopicLevel(_) | LimitKey::UserProperty(_) | LimitKey::Connection => vec![key.of(message, "")],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn limit(key: &str, pairs: &str, on_exceed: OnExceed) -> Limit {
        Limit {
            key: LimitKey::parse(key).unwrap(),
            pairs: Pairs::parse(pairs).unwrap(),
            mode: Mode::StrictWindow,
            on_exceed,
            max_keys: 100,
            overflow_key: super::super::limiter::OVERFLOW_KEY.into(),
        }
    }

    fn message(topic: &str) -> Message {
        Message { topic: topic.to_owned(), ..Message::default() }
    }

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn all_limits_must_hold_and_nothing_is_charged_for_what_is_refused() {
        let mut gate = Gate::new(vec![limit("topic_level:2", "1:1", OnExceed::Hold), limit("route", "2:10", OnExceed::Hold)]);
        assert_eq!(gate.ask(&message("d/a"), &["r"], at(0)), Verdict::Admitted);
        let wait = |limit, millis| Verdict::Refused(Exceeded { limit, on_exceed: OnExceed::Hold, ready_at: at(millis) });
        assert_eq!(gate.ask(&message("d/a"), &["r"], at(1)), wait(0, 1_000));
        assert_eq!(gate.ask(&message("d/b"), &["r"], at(2)), Verdict::Admitted);
        assert_eq!(gate.ask(&message("d/c"), &["r"], at(3)), wait(1, 10_000));
        assert_eq!(gate.ask(&message("d/a"), &["r"], at(4)), wait(1, 10_000), "the later moment counts");
        assert_eq!(gate.ask(&message("d/c"), &["other"], at(5)), Verdict::Admitted);
    }

    #[test]
    fn what_is_dropped_is_not_waited_for() {
        let mut gate = Gate::new(vec![limit("route", "1:10", OnExceed::Hold), limit("topic", "1:1", OnExceed::Drop)]);
        assert_eq!(gate.ask(&message("t"), &["r"], at(0)), Verdict::Admitted);
        let Verdict::Refused(exceeded) = gate.ask(&message("t"), &["r"], at(1)) else { unreachable!() };
        assert_eq!((exceeded.limit, exceeded.on_exceed), (1, OnExceed::Drop));
    }

    #[test]
    fn without_limits_everything_passes() {
        let mut gate = Gate::default();
        assert!(gate.is_open());
        assert_eq!(gate.ask(&message("t"), &[], at(0)), Verdict::Admitted);
    }
}
