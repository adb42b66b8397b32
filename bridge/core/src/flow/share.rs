//! Leaving the group of a shared subscription, and coming back.
//!
//! A broker gives each member of a group its share, whether the member gets on or not. Who does not get on leaves, so that the others get everything, and
//! comes back as soon as it takes messages again. A group without members keeps nothing: what is published then is gone. So nobody leaves who does not
//! know of another one that takes messages, and who is away comes back when that is not known any more.

use crate::units::Instant;
use core::time::Duration;

/// Who looks for others asks so many times within the time after which it would leave.
const LOOKS: u32 = 4;
/// It asks at least this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// What was told of others is believed for so many pauses between two looks.
const BELIEVED_FOR: u32 = 3;
/// Between coming back and leaving again lie at least so many times the time after which it leaves.
const STAYS_FOR: u32 = 2;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Unsubscribe from the groups; what is held is acknowledged as before.
    Leave,
    /// Subscribe again.
    Return,
}

/// One process's place in the groups of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    unshare_after: Duration,
    /// Since when it has taken nothing and finished nothing.
    idle_since: Option<Instant>,
    acknowledged: u64,
    away: bool,
    returned_at: Option<Instant>,
    /// When another member was last known to take messages.
    other_at: Option<Instant>,
    asked_at: Option<Instant>,
}

impl Share {
    /// A member that leaves after it has not got on for `unshare_after`.
    #[must_use]
    pub const fn new(unshare_after: Duration) -> Self {
        Self { unshare_after, idle_since: None, acknowledged: 0, away: false, returned_at: None, other_at: None, asked_at: None }
    }

    /// How it stands now: whether it `takes` messages, and how many it has acknowledged in all.
    pub fn see(&mut self, now: Instant, takes: bool, acknowledged: u64) -> Option<Change> {
        if takes || acknowledged != self.acknowledged {
            self.acknowledged = acknowledged;
            self.idle_since = None;
        }
        if !takes {
            self.idle_since.get_or_insert(now);
        }
        if self.away {
            return (takes || !self.another_takes(now)).then(|| self.come_back(now));
        }
        if self.idle_since.is_none() {
            // What was told belongs to that time.
            (self.other_at, self.asked_at) = (None, None);
        }
        let leaves = self.leaves_at().is_some_and(|at| now >= at) && self.another_takes(now);
        leaves.then(|| {
            self.away = true;
            Change::Leave
        })
    }

    /// The answer to a look for others: whether one takes messages.
    pub fn told(&mut self, now: Instant, another_takes: bool) {
        self.other_at = another_takes.then_some(now);
    }

    /// Whether it is time to look for others. `true` counts as asked.
    pub fn asks(&mut self, now: Instant) -> bool {
        let due = self.asks_at().is_some_and(|at| now >= at);
        if due {
            self.asked_at = Some(now);
        }
        due
    }

    /// When to come back although nothing happened.
    #[must_use]
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let unbelieved = self.other_at.filter(|_| self.away).map(|at| at.plus(self.pause() * BELIEVED_FOR));
        let idles = self.idle_since.filter(|_| !self.away).map(|since| since.plus(self.unshare_after / LOOKS));
        [self.asks_at(), unbelieved, idles, self.leaves_at().filter(|_| !self.away)].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// Whether it has left.
    #[must_use]
    pub const fn is_away(&self) -> bool {
        self.away
    }

    /// Whether others are not to count on it: it is away, or does not get on. It is so well before it leaves, so that of several that stop getting on at once
    /// none counts on another.
    #[must_use]
    pub fn is_stuck(&self, now: Instant) -> bool {
        self.away || self.idle_since.is_some_and(|since| now.since(since) >= self.unshare_after / LOOKS)
    }

    fn come_back(&mut self, now: Instant) -> Change {
        self.away = false;
        self.returned_at = Some(now);
        self.idle_since = None;
        (self.other_at, self.asked_at) = (None, None);
        Change::Return
    }

    fn pause(&self) -> Duration {
        (self.unshare_after / LOOKS).min(LONGEST_PAUSE)
    }

    fn another_takes(&self, now: Instant) -> bool {
        self.other_at.is_some_and(|at| now.since(at) < self.pause() * BELIEVED_FOR)
    }

    fn leaves_at(&self) -> Option<Instant> {
        let idle = self.idle_since?.plus(self.unshare_after);
        Some(self.returned_at.map_or(idle, |at| idle.max(at.plus(self.unshare_after * STAYS_FOR))))
    }

    /// In the second half of its patience, and all the time while it is away.
    fn asks_at(&self) -> Option<Instant> {
        let from = if self.away { Instant::default() } else { self.idle_since?.plus(self.unshare_after / 2) };
        Some(self.asked_at.map_or(from, |at| from.max(at.plus(self.pause()))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const AFTER: Duration = Duration::from_secs(15);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Runs a member until `until`, every 100 ms, and gives when it changed its place.
    fn run(share: &mut Share, from: u64, until: u64, takes: impl Fn(u64) -> bool, another: impl Fn(u64) -> bool) -> Vec<(u64, Change)> {
        let mut changes = Vec::new();
        for millis in (from..until).step_by(100) {
            if share.asks(at(millis)) {
                share.told(at(millis), another(millis));
            }
            changes.extend(share.see(at(millis), takes(millis), 0).map(|change| (millis, change)));
        }
        changes
    }

    #[test]
    fn who_does_not_get_on_for_fifteen_seconds_leaves_and_comes_back_with_the_first_message_it_takes() {
        let mut share = Share::new(AFTER);
        let changes = run(&mut share, 0, 120_000, |millis| millis >= 60_000, |_| true);
        assert_eq!(changes, [(15_000, Change::Leave), (60_000, Change::Return)]);
    }

    #[test]
    fn between_coming_back_and_leaving_again_lie_thirty_seconds() {
        let mut share = Share::new(AFTER);
        let changes = run(&mut share, 0, 120_000, |millis| (20_000..21_000).contains(&millis), |_| true);
        assert_eq!(changes, [(15_000, Change::Leave), (20_000, Change::Return), (50_000, Change::Leave)]);
    }

    #[test]
    fn nobody_leaves_who_knows_of_no_other_and_who_is_away_comes_back_when_the_other_is_gone() {
        let mut share = Share::new(AFTER);
        assert_eq!(run(&mut share, 0, 100_000, |_| false, |_| false), []);
        let changes = run(&mut share, 100_000, 140_000, |_| false, |millis| millis < 120_000);
        assert_eq!(changes.iter().map(|(_, change)| *change).collect::<Vec<_>>(), [Change::Leave, Change::Return]);
        assert!((120_000..=120_000 + 3 * 3_750 + 100).contains(&changes[1].0), "{changes:?}");
        // Nobody answers any more: that is no knowledge.
        let mut share = Share::new(AFTER);
        share.told(at(0), true);
        assert_eq!(run(&mut share, 0, 15_100, |_| false, |_| true), [(15_000, Change::Leave)]);
        assert_eq!(share.see(at(60_000), false, 0), Some(Change::Return));
    }

    #[test]
    fn who_gets_on_slowly_does_not_leave() {
        let mut share = Share::new(AFTER);
        for second in 0..600 {
            if share.asks(at(second * 1_000)) {
                share.told(at(second * 1_000), true);
            }
            assert_eq!(share.see(at(second * 1_000), false, second / 10), None, "{second}");
        }
    }

    #[test]
    fn no_moment_is_slept_through() {
        let mut share = Share::new(AFTER);
        assert_eq!((share.see(at(0), false, 0), share.wake_at(at(0))), (None, Some(at(3_750))));
        assert!(share.is_stuck(at(3_750)) && !share.is_stuck(at(3_749)));
        assert_eq!(share.wake_at(at(3_750)), Some(at(7_500)));
        assert!(share.asks(at(7_500)) && !share.asks(at(7_501)));
        share.told(at(7_600), true);
        assert_eq!(share.wake_at(at(7_600)), Some(at(11_250)));
        assert!(share.asks(at(11_250)));
        share.told(at(11_300), true);
        assert_eq!(share.wake_at(at(11_300)), Some(at(15_000)));
        assert_eq!(share.see(at(15_000), false, 0), Some(Change::Leave));
        assert!(share.wake_at(at(15_000)).is_some());
    }

    proptest! {
        /// However two members stop getting on, and however late each is told of the other: the group is never without both for longer than what was told is
        /// believed.
        #[test]
        fn two_that_stop_getting_on_do_not_both_leave(
            stops in prop::collection::vec((0_u64..60_000, 1_000_u64..40_000), 0..4),
            others in prop::collection::vec((0_u64..60_000, 1_000_u64..40_000), 0..4),
            told_after in 0_u64..2_000,
        ) {
            let stuck = |spans: &[(u64, u64)], millis: u64| spans.iter().any(|(from, length)| (*from..from + length).contains(&millis));
            let mut members = [Share::new(AFTER), Share::new(AFTER)];
            // What each wrote of itself, and when.
            let mut written: [Vec<(u64, bool)>; 2] = [vec![(0, true)], vec![(0, true)]];
            let mut nobody = 0_u64;
            for millis in (0..120_000).step_by(100) {
                let takes = [!stuck(&stops, millis), !stuck(&others, millis)];
                for index in [0, 1] {
                    let other = &written[1 - index];
                    let told = other.iter().rev().find(|(when, _)| when + told_after <= millis).is_some_and(|(_, gets_on)| *gets_on);
                    if members[index].asks(at(millis)) {
                        members[index].told(at(millis), told);
                    }
                    let _ = members[index].see(at(millis), takes[index], 0);
                    let gets_on = !members[index].is_stuck(at(millis));
                    if written[index].last().is_some_and(|(_, last)| *last != gets_on) {
                        written[index].push((millis, gets_on));
                    }
                }
                nobody = if members.iter().all(Share::is_away) { nobody + 100 } else { 0 };
                prop_assert!(nobody == 0, "both are away at {} ms", millis);
            }
        }
    }
}
