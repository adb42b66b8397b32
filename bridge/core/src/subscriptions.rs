//! What a durable session may have subscribed to at its broker, and what follows when it is to subscribe to something else.
//!
//! A broker keeps the subscriptions of a session that nobody is connected to, and tells nobody which they are. So they are remembered before they
//! are made, and forgotten after the broker confirmed that they are gone: what is remembered is never less than what the broker has. Without a
//! memory (which is not the same as an empty one) nothing is done, because a filter that nobody knows of would deliver for ever.

use crate::config::model::SessionMode;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use thiserror::Error;

/// How often filters of a session were remembered: 1 the first time. What was decided under an earlier generation is out of date, see [`Plan::remember`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// A session as its broker tells it from others, and the options that decide what the broker keeps of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerSession<'a> {
    /// The broker's address in its canonical form, which is how [`crate::config::BrokerUrl`] is displayed.
    pub broker_url: &'a str,
    /// The client identifier that is sent, suffix included.
    pub client_id: &'a str,
    /// The session's mode.
    pub session_mode: SessionMode,
    /// Whether the broker is to forget what it kept.
    pub clean_start: bool,
    /// How many seconds the broker keeps the session, as it is sent.
    pub session_expiry: u32,
}

impl BrokerSession<'_> {
    /// Names the session in the store of managed subscriptions: hex SHA-256 over every field with its length, so that no two differ by where one
    /// field ends. Another value of any field is another session, of which nothing is known.
    #[must_use]
    pub fn storage_identity(&self) -> String {
        let expiry = self.session_expiry.to_be_bytes();
        let clean_start = [u8::from(self.clean_start)];
        let mut hash = Sha256::new();
        for part in
            [self.broker_url.as_bytes(), self.client_id.as_bytes(), self.session_mode.as_str().as_bytes(), &clean_start[..], &expiry[..]]
        {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            use core::fmt::Write;
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// What to do after a connection stands and before anything is subscribed, in this order: seed, remember, then unsubscribe and subscribe. Whatever
/// fails before the end of `remember`, nothing has been subscribed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Make the row, with nothing in it. Should somebody else have made it meanwhile, load it and plan again.
    pub seed: bool,
    /// Add these to the row: all that are wanted, those too that stand there. It begins a new [`Generation`], and a former owner's request to forget one
    /// of them may still be under way: before, it is undone by this; afterwards, it is refused. Nothing is subscribed before that succeeded.
    pub remember: BTreeSet<String>,
    /// Unsubscribe these; forget each one after the broker confirmed it, under the generation that remembering began.
    pub unsubscribe: BTreeSet<String>,
}

/// Nobody knows what the session has subscribed to.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum UnknownHistory {
    /// There is no row, and none is to be made without being told.
    #[error(
        "nothing is known of what this session has subscribed to: run `causeway baseline` once, or set `baseline: auto` where its client_id is new"
    )]
    NotSeeded,
    /// There is no row, and the broker kept a session from before.
    #[error(
        "the broker kept a session of this client_id, and nothing is known of what it has subscribed to: run `causeway baseline` with its filters, or remove the session from the broker"
    )]
    SessionPresent,
}

impl UnknownHistory {
    /// A stable name, for scripts and logs.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotSeeded => "SUBSCRIPTIONS_NOT_SEEDED",
            Self::SessionPresent => "SUBSCRIPTIONS_UNKNOWN",
        }
    }
}

/// Whether to connect at all, before anything is known of the broker's side.
///
/// # Errors
/// [`UnknownHistory::NotSeeded`] where there is no history and the connection could not prove one.
pub const fn may_connect(history: Option<&BTreeSet<String>>, baseline_auto: bool) -> Result<(), UnknownHistory> {
    match history {
        None if !baseline_auto => Err(UnknownHistory::NotSeeded),
        _ => Ok(()),
    }
}

/// Plans how the session comes from `history` (`None`: unknown) to `desired`.
///
/// With `baseline_auto` a session that the broker reports as new (`session_present` is false) proves that its history is empty. A known history is
/// worked through even then: it may be more than the broker has, and unsubscribing what is not there is how it is forgotten.
///
/// # Errors
/// [`UnknownHistory`] where the history is unknown and cannot be proved empty: disconnect, and subscribe to nothing.
pub fn plan(
    history: Option<&BTreeSet<String>>,
    desired: &BTreeSet<String>,
    session_present: bool,
    baseline_auto: bool,
) -> Result<Plan, UnknownHistory> {
    may_connect(history, baseline_auto)?;
    match history {
        Some(history) => Ok(Plan { seed: false, remember: desired.clone(), unsubscribe: history.difference(desired).cloned().collect() }),
        None if session_present => Err(UnknownHistory::SessionPresent),
        None => Ok(Plan { seed: true, remember: desired.clone(), unsubscribe: BTreeSet::new() }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::Index;

    fn filters() -> impl Strategy<Value = BTreeSet<String>> {
        proptest::collection::btree_set("[a-d](/[+#])?", 0..6)
    }

    fn mode() -> impl Strategy<Value = SessionMode> {
        proptest::sample::select(vec![SessionMode::Ephemeral, SessionMode::Persistent, SessionMode::Exclusive])
    }

    type Fields = (String, String, SessionMode, bool, u32);

    fn fields() -> impl Strategy<Value = Fields> {
        ("[ab]{0,3}", "[ab]{0,3}", mode(), any::<bool>(), 0_u32..3)
    }

    fn identity(fields: &Fields) -> String {
        let (broker_url, client_id, session_mode, clean_start, session_expiry) = fields;
        BrokerSession { broker_url, client_id, session_mode: *session_mode, clean_start: *clean_start, session_expiry: *session_expiry }
            .storage_identity()
    }

    /// The row, the broker, and a worker that carries a plan out and may die between any two steps.
    #[derive(Clone, Debug, Default)]
    struct World {
        row: Option<BTreeSet<String>>,
        broker: Option<BTreeSet<String>>,
        generation: u64,
        /// Requests to forget that are still under way when their connection has ended, and the generation that each was made under.
        late: Vec<(String, u64)>,
        /// A store that asks for no generation.
        unfenced: bool,
    }

    impl World {
        fn forget(&mut self, filter: &str, generation: u64) {
            if self.unfenced || generation == self.generation {
                self.row.as_mut().unwrap().remove(filter);
            }
        }

        /// One connection that ends after `steps` steps; whether it came to its end.
        fn connect(&mut self, desired: &BTreeSet<String>, auto: bool, steps: usize) -> Option<bool> {
            may_connect(self.row.as_ref(), auto).ok()?;
            let session_present = self.broker.is_some();
            let planned = plan(self.row.as_ref(), desired, session_present, auto);
            self.broker.get_or_insert_default();
            let plan = planned.ok()?;
            let mut left = steps;
            let mut step = || {
                left = left.saturating_sub(1);
                left > 0
            };
            if plan.seed {
                if !step() {
                    return Some(false);
                }
                self.row = Some(BTreeSet::new());
            }
            if !step() {
                return Some(false);
            }
            self.row.as_mut().unwrap().extend(plan.remember.iter().cloned());
            self.generation += 1;
            let generation = self.generation;
            let mut broker = self.broker.take().unwrap();
            let ended = self.reconcile(&plan, desired, &mut broker, &mut step);
            self.broker = Some(broker);
            // A filter whose request came late is unsubscribed again, and forgotten then.
            for (filter, made_under) in core::mem::take(&mut self.late) {
                if made_under == generation { self.late.push((filter, made_under)) } else { self.forget(&filter, made_under) }
            }
            Some(ended)
        }

        fn reconcile(
            &mut self,
            plan: &Plan,
            desired: &BTreeSet<String>,
            broker: &mut BTreeSet<String>,
            step: &mut impl FnMut() -> bool,
        ) -> bool {
            for filter in &plan.unsubscribe {
                if !step() {
                    return false;
                }
                broker.remove(filter);
                if !step() {
                    self.late.push((filter.clone(), self.generation));
                    return false;
                }
                self.forget(filter, self.generation);
            }
            for filter in desired {
                if !step() {
                    return false;
                }
                broker.insert(filter.clone());
            }
            true
        }
    }

    proptest! {
        #[test]
        fn another_value_of_any_field_is_another_session(a in fields(), b in fields()) {
            prop_assert_eq!(identity(&a) == identity(&b), a == b);
            prop_assert!(identity(&a).len() == 64 && identity(&a).bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        }

        #[test]
        fn what_is_remembered_and_kept_covers_what_is_subscribed(history in filters(), desired in filters(), session_present: bool, auto: bool) {
            let plan = plan(Some(&history), &desired, session_present, auto).unwrap();
            prop_assert!(!plan.seed);
            let after: BTreeSet<_> = history.union(&plan.remember).cloned().collect();
            prop_assert!(after.is_superset(&desired));
            prop_assert_eq!(&plan.remember, &desired, "a late request to forget one of them is undone or refused");
            // Exactly history minus desired: in the history, not wanted, and all of them.
            prop_assert!(plan.unsubscribe.iter().all(|filter| history.contains(filter) && !desired.contains(filter)));
            prop_assert!(history.iter().all(|filter| desired.contains(filter) || plan.unsubscribe.contains(filter)));
        }

        #[test]
        fn an_unknown_history_is_never_guessed(desired in filters(), session_present: bool, auto: bool) {
            let planned = plan(None, &desired, session_present, auto);
            match (auto, session_present) {
                (false, _) => prop_assert_eq!(planned, Err(UnknownHistory::NotSeeded)),
                (true, true) => prop_assert_eq!(planned, Err(UnknownHistory::SessionPresent)),
                (true, false) => {
                    prop_assert_eq!(planned, Ok(Plan { seed: true, remember: desired, unsubscribe: BTreeSet::new() }));
                }
            }
            prop_assert_eq!(may_connect(None, auto).is_ok(), auto);
        }

        /// Wherever connections break off, and whatever is wanted by each: the row never names less than the broker has, and a connection that comes to
        /// its end leaves exactly what is wanted.
        #[test]
        fn the_row_covers_the_broker_at_every_break(
            known in proptest::option::of(filters()),
            auto: bool,
            connections in proptest::collection::vec((filters(), any::<Index>(), any::<bool>()), 1..12),
        ) {
            let mut world = World { broker: known.clone(), row: known, ..World::default() };
            for (desired, steps, broker_forgets) in connections {
                if broker_forgets {
                    world.broker = None;
                }
                let ended = world.connect(&desired, auto, steps.index(20) + 1);
                let at_broker = world.broker.clone().unwrap_or_default();
                match &world.row {
                    Some(row) => prop_assert!(row.is_superset(&at_broker), "{world:?}"),
                    None => prop_assert!(at_broker.is_empty(), "{world:?}"),
                }
                if ended == Some(true) {
                    prop_assert_eq!(&at_broker, &desired);
                    prop_assert_eq!(world.row.as_ref(), Some(&desired));
                }
            }
        }
    }

    /// One who unsubscribes `x` and whose request to forget it comes late, and a successor that wants `x`. Whether the row covers the broker afterwards.
    fn a_late_request_to_forget_leaves_the_row_covering_the_broker(unfenced: bool) -> bool {
        let filters = |filters: &[&str]| filters.iter().map(|filter| (*filter).to_owned()).collect::<BTreeSet<_>>();
        let known = Some(filters(&["x", "y"]));
        let mut world = World { row: known.clone(), broker: known, unfenced, ..World::default() };
        assert_eq!(world.connect(&filters(&["y"]), false, 3), Some(false));
        assert_eq!(world.late.len(), 1, "{world:?}");
        assert_eq!(world.connect(&filters(&["x", "y"]), false, 20), Some(true));
        assert!(world.late.is_empty());
        world.row.unwrap().is_superset(&world.broker.unwrap())
    }

    #[test]
    fn a_request_to_forget_that_comes_late_takes_nothing_from_a_successor() {
        assert!(a_late_request_to_forget_leaves_the_row_covering_the_broker(false));
        assert!(!a_late_request_to_forget_leaves_the_row_covering_the_broker(true), "without generations it does");
    }

    #[test]
    fn the_identity_does_not_change_from_release_to_release() {
        let session = BrokerSession {
            broker_url: "tls://broker.example.com:8883",
            client_id: "plant-1",
            session_mode: SessionMode::Exclusive,
            clean_start: false,
            session_expiry: 86_400,
        };
        assert_eq!(session.storage_identity(), "3da495264215d301ea5d6ac52114a1e6053626b9ee1cec268781d6739b5f362a");
    }
}
