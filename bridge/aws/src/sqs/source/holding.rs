//! Which messages are held, and what is owed for each: longer invisibility while it is in work, deletion once it is done with. Pure.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Entries that SQS takes in one call.
pub(super) const MAX_CALL_ENTRIES: usize = 10;
/// SQS hides a message no longer than this after it was received, however often that is asked for.
const HIDDEN_AT_MOST: Duration = Duration::from_secs(12 * 3_600);
/// A call that failed is tried again after so long.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A message that SQS hides from others for our sake.
#[derive(Debug)]
struct Held {
    receipt: String,
    /// When it was received.
    since: Instant,
    /// When it is to be hidden for longer; `None` where that is not wanted.
    extend_at: Option<Instant>,
    extending: bool,
}

/// What a call for one message came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It took effect.
    Done,
    /// It did not, or nobody knows: both calls may be repeated.
    Again,
    /// The receipt is not good any more: the message has become visible, and comes again.
    Gone,
}

/// The messages that were received and are not deleted yet, by the number of their delivery.
#[derive(Debug)]
pub(super) struct Holding {
    /// How often a message's invisibility is renewed; `None`: never.
    tick: Option<Duration>,
    held: BTreeMap<u64, Held>,
    /// Done with, to be deleted.
    done: BTreeSet<u64>,
    deleting: BTreeSet<u64>,
    delete_again_at: Option<Instant>,
    last: u64,
    deleted: u64,
}

impl Holding {
    pub(super) const fn new(tick: Option<Duration>) -> Self {
        Self { tick, held: BTreeMap::new(), done: BTreeSet::new(), deleting: BTreeSet::new(), delete_again_at: None, last: 0, deleted: 0 }
    }

    /// Takes a message that was asked for at `asked`; answers the number of its delivery.
    pub(super) fn take(&mut self, receipt: String, asked: Instant) -> u64 {
        self.last += 1;
        self.held.insert(self.last, Held { receipt, since: asked, extend_at: self.tick.map(|tick| asked + tick), extending: false });
        self.last
    }

    /// This delivery is done with.
    pub(super) fn settle(&mut self, ordinal: u64) {
        if self.held.contains_key(&ordinal) && !self.deleting.contains(&ordinal) {
            self.done.insert(ordinal);
        }
    }

    /// Messages that are held.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Messages that were deleted.
    pub(super) const fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Whether everything that is done with is deleted.
    pub(super) fn is_settled(&self) -> bool {
        self.done.is_empty() && self.deleting.is_empty()
    }

    /// What to delete now, as many as one call takes.
    pub(super) fn due_deletes(&mut self, now: Instant) -> Vec<(u64, String)> {
        if self.delete_again_at.is_some_and(|at| now < at) {
            return Vec::new();
        }
        self.delete_again_at = None;
        let due: Vec<u64> = self.done.iter().take(MAX_CALL_ENTRIES).copied().collect();
        for ordinal in &due {
            self.done.remove(ordinal);
            self.deleting.insert(*ordinal);
        }
        due.into_iter().filter_map(|ordinal| Some((ordinal, self.held.get(&ordinal)?.receipt.clone()))).collect()
    }

    /// What came of a delete.
    pub(super) fn deleted_answer(&mut self, now: Instant, ordinal: u64, answer: Answer) {
        self.deleting.remove(&ordinal);
        match answer {
            Answer::Done => {
                if self.held.remove(&ordinal).is_some() {
                    self.deleted += 1;
                }
            }
            Answer::Gone => {
                self.held.remove(&ordinal);
            }
            Answer::Again => {
                if self.held.contains_key(&ordinal) {
                    self.done.insert(ordinal);
                    self.delete_again_at = Some(now + RETRY_AFTER);
                }
            }
        }
    }

    /// Which messages are to be hidden for longer now, as many as one call takes, and each for how long: for `visibility`, or for what is left of
    /// [`HIDDEN_AT_MOST`]. Where nothing is left SQS shows the message again.
    pub(super) fn due_extensions(&mut self, now: Instant, visibility: Duration) -> Vec<(u64, String, Duration)> {
        let mut due = Vec::new();
        for (ordinal, held) in &mut self.held {
            if held.extending || held.extend_at.is_none_or(|at| at > now) {
                continue;
            }
            // A second of it passes until SQS has the call.
            let left = HIDDEN_AT_MOST.saturating_sub(now.duration_since(held.since) + Duration::from_secs(1));
            if left < Duration::from_secs(1) {
                held.extend_at = None;
                continue;
            }
            held.extending = true;
            due.push((*ordinal, held.receipt.clone(), visibility.min(left)));
            if due.len() == MAX_CALL_ENTRIES {
                break;
            }
        }
        due
    }

    /// What came of hiding a message, asked for at `asked`.
    pub(super) fn extended_answer(&mut self, now: Instant, asked: Instant, ordinal: u64, answer: Answer) {
        if answer == Answer::Gone {
            self.held.remove(&ordinal);
            self.done.remove(&ordinal);
            return;
        }
        let (tick, Some(held)) = (self.tick, self.held.get_mut(&ordinal)) else { return };
        held.extending = false;
        held.extend_at = match answer {
            Answer::Done => tick.map(|tick| asked + tick),
            Answer::Again | Answer::Gone => Some(now + RETRY_AFTER),
        };
    }

    /// The receipts of what is held and not done with: it may be given back.
    pub(super) fn unfinished(&self) -> Vec<(u64, String)> {
        let open = self.held.iter().filter(|(ordinal, _)| !self.done.contains(ordinal) && !self.deleting.contains(ordinal));
        open.map(|(ordinal, held)| (*ordinal, held.receipt.clone())).collect()
    }

    /// When something is due next.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let delete = if self.done.is_empty() { None } else { self.delete_again_at };
        let extend = self.held.values().filter(|held| !held.extending).filter_map(|held| held.extend_at).min();
        delete.into_iter().chain(extend).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Duration = Duration::from_secs(10);
    const VISIBILITY: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_hidden_again_before_it_shows_until_it_is_deleted() {
        let start = Instant::now();
        let mut holding = Holding::new(Some(TICK));
        let (first, second) = (holding.take("a".into(), start), holding.take("b".into(), start));
        assert_eq!((holding.due_extensions(start, VISIBILITY), holding.wake_at()), (vec![], Some(start + TICK)));
        let due = holding.due_extensions(start + TICK, VISIBILITY);
        assert_eq!(due, [(first, "a".into(), VISIBILITY), (second, "b".into(), VISIBILITY)]);
        assert_eq!((holding.due_extensions(start + TICK, VISIBILITY), holding.wake_at()), (vec![], None), "it is asked for once");
        holding.extended_answer(start + TICK, start + TICK, first, Answer::Done);
        holding.extended_answer(start + TICK, start + TICK, second, Answer::Again);
        assert_eq!(holding.wake_at(), Some(start + TICK + RETRY_AFTER));
        assert_eq!(holding.due_extensions(start + TICK + RETRY_AFTER, VISIBILITY), [(second, "b".into(), VISIBILITY)]);
        holding.settle(first);
        assert_eq!(holding.due_deletes(start), [(first, "a".into())]);
        holding.deleted_answer(start, first, Answer::Done);
        assert_eq!((holding.len(), holding.deleted(), holding.is_settled()), (1, 1, true));
        holding.extended_answer(start, start, second, Answer::Gone);
        assert_eq!((holding.len(), holding.wake_at()), (0, None), "it is visible again, and comes again");
    }

    #[tokio::test(start_paused = true)]
    async fn flow_nothing_is_hidden_for_longer_than_sqs_allows() {
        let start = Instant::now();
        let mut holding = Holding::new(Some(TICK));
        let held = holding.take("a".into(), start);
        let mut shown_at = start + VISIBILITY;
        while let Some(at) = holding.wake_at() {
            for (ordinal, _, visibility) in holding.due_extensions(at, VISIBILITY) {
                assert!(at < shown_at, "it was hidden until it was hidden anew");
                shown_at = at + visibility;
                assert!(shown_at < start + HIDDEN_AT_MOST);
                holding.extended_answer(at, at, ordinal, Answer::Done);
            }
        }
        assert!(shown_at + VISIBILITY > start + HIDDEN_AT_MOST, "until the end of the twelve hours");
        assert_eq!((holding.len(), holding.unfinished()), (1, vec![(held, "a".into())]), "whoever has it may still be done with it");
    }

    #[tokio::test(start_paused = true)]
    async fn without_extension_nothing_is_due() {
        let mut holding = Holding::new(None);
        holding.take("a".into(), Instant::now());
        assert_eq!((holding.wake_at(), holding.due_extensions(Instant::now() + TICK * 100, VISIBILITY)), (None, vec![]));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take,
        Settle(u64),
        Delete(Vec<u8>),
        Extend(Vec<u8>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let answers = || prop::collection::vec(0_u8..3, 10);
        prop_oneof![
            Just(Step::Take),
            (0_u64..40).prop_map(Step::Settle),
            answers().prop_map(Step::Delete),
            answers().prop_map(Step::Extend)
        ]
    }

    const fn answer(code: u8) -> Answer {
        match code {
            0 => Answer::Done,
            1 => Answer::Again,
            _ => Answer::Gone,
        }
    }

    proptest! {
        /// Whatever the answers: nothing is deleted that was not settled, and everything that was settled is deleted or gone in the end.
        #[test]
        fn only_what_is_settled_is_deleted_and_all_of_it(steps in prop::collection::vec(step(), 0..80)) {
            let mut now = Instant::now();
            let mut holding = Holding::new(Some(TICK));
            let mut settled = BTreeSet::new();
            for step in steps {
                now += Duration::from_secs(3);
                match step {
                    Step::Take => { holding.take("r".into(), now); }
                    Step::Settle(ordinal) => {
                        if holding.held.contains_key(&ordinal) { settled.insert(ordinal); }
                        holding.settle(ordinal);
                    }
                    Step::Delete(codes) => for ((ordinal, _), code) in holding.due_deletes(now).into_iter().zip(codes) {
                        prop_assert!(settled.contains(&ordinal));
                        holding.deleted_answer(now, ordinal, answer(code));
                    },
                    Step::Extend(codes) => for ((ordinal, ..), code) in holding.due_extensions(now, VISIBILITY).into_iter().zip(codes) {
                        holding.extended_answer(now, now, ordinal, answer(code));
                    },
                }
            }
            for _ in 0..200 {
                now += RETRY_AFTER;
                for (ordinal, _) in holding.due_deletes(now) {
                    holding.deleted_answer(now, ordinal, Answer::Done);
                }
            }
            prop_assert!(holding.is_settled());
            prop_assert!(holding.is_settled());
            prop_assert!(holding.due_deletes(now).is_empty());
        }
    }
}
