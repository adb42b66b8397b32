//! Who waits for the end of a command in this process: each is told exactly once.

use crate::identity::Id128;
use crate::units::Instant;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Pauses between looks at the row of a command that is waited for; the last one again and again. The row is looked at as a last resort: usually the answer
/// itself, or another instance, tells.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1_000),
];

/// Names one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

#[derive(Debug)]
struct Watched {
    waiters: BTreeMap<WaiterId, Instant>,
    looks: usize,
    next_look: Instant,
}

/// Who waits, for what, and until when.
#[derive(Debug, Default)]
pub struct Waiters {
    watched: HashMap<Id128, Watched>,
    looks: BTreeSet<(Instant, Id128)>,
    ends: BTreeSet<(Instant, WaiterId, Id128)>,
}

impl Waiters {
    /// Somebody waits for the end of a command, until `until` at most.
    pub fn wait(&mut self, now: Instant, id: Id128, waiter: WaiterId, until: Instant) {
        let looks = &mut self.looks;
        let watched = self.watched.entry(id).or_insert_with(|| {
            let next_look = now.plus(LOOKS[0]);
            looks.insert((next_look, id));
            Watched { waiters: BTreeMap::new(), looks: 0, next_look }
        });
        watched.waiters.insert(waiter, until);
        self.ends.insert((until, waiter, id));
    }

    /// Whether somebody here waits for it.
    #[must_use]
    pub fn is_awaited(&self, id: Id128) -> bool {
        self.watched.contains_key(&id)
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A command is over: who is to be told.
    pub fn over(&mut self, id: Id128) -> Vec<WaiterId> {
        let Some(watched) = self.watched.remove(&id) else { return Vec::new() };
        self.looks.remove(&(watched.next_look, id));
        for (waiter, until) in &watched.waiters {
            self.ends.remove(&(*until, *waiter, id));
        }
        watched.waiters.into_keys().collect()
    }

    /// One who waited went away.
    pub fn gone(&mut self, id: Id128, waiter: WaiterId) {
        let Some(watched) = self.watched.get_mut(&id) else { return };
        if let Some(until) = watched.waiters.remove(&waiter) {
            self.ends.remove(&(until, waiter, id));
        }
        if watched.waiters.is_empty() {
            self.over(id);
        }
    }

    /// Who has waited for long enough: each is told that the command goes on.
    pub fn timed_out(&mut self, now: Instant) -> Vec<(WaiterId, Id128)> {
        let mut told = Vec::new();
        while let Some((until, waiter, id)) = self.ends.first().copied().filter(|(until, ..)| *until <= now) {
            self.ends.remove(&(until, waiter, id));
            self.gone(id, waiter);
            told.push((waiter, id));
        }
        told
    }

    /// Whose row is to be looked at now; the next look is one pause later.
    pub fn to_look_at(&mut self, now: Instant) -> Vec<Id128> {
        let mut due = Vec::new();
        while let Some((at, id)) = self.looks.first().copied().filter(|(at, _)| *at <= now) {
            self.looks.remove(&(at, id));
            let Some(watched) = self.watched.get_mut(&id) else { continue };
            watched.looks += 1;
            watched.next_look = now.plus(LOOKS[watched.looks.min(LOOKS.len() - 1)]);
            self.looks.insert((watched.next_look, id));
            due.push(id);
        }
        due
    }

    /// The process stops: everybody is told that the command goes on without it.
    pub fn stop(&mut self) -> Vec<(WaiterId, Id128)> {
        self.watched.clear();
        self.looks.clear();
        core::mem::take(&mut self.ends).into_iter().map(|(_, waiter, id)| (waiter, id)).collect()
    }

    /// When to ask again although nothing happened.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let end = self.ends.first().map(|(at, ..)| *at);
        self.looks.first().map(|(at, _)| *at).into_iter().chain(end).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn rr11_a_stop_tells_everybody() {
        let mut waiters = Waiters::default();
        for nth in 0..3 {
            waiters.wait(at(0), Id128(u128::from(nth)), WaiterId(nth), at(25_000));
        }
        assert_eq!(waiters.stop().len(), 3);
        assert!(waiters.is_empty() && waiters.wake_at().is_none() && waiters.over(Id128(1)).is_empty());
    }

    #[test]
    fn rows_are_looked_at_with_growing_pauses() {
        let mut waiters = Waiters::default();
        waiters.wait(at(0), Id128(1), WaiterId(1), at(10_000));
        let mut looks = Vec::new();
        for now in 0..5_000 {
            if !waiters.to_look_at(at(now)).is_empty() {
                looks.push(now);
            }
        }
        assert_eq!(looks, [100, 300, 700, 1_500, 2_500, 3_500, 4_500]);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Wait { id: u8, patience: u64 },
        Over(u8),
        Gone(u8),
        Pass(u64),
        Stop,
    }

    fn acts() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (0_u8..4, 0_u64..3_000).prop_map(|(id, patience)| Act::Wait { id, patience }),
            2 => (0_u8..4).prop_map(Act::Over),
            1 => any::<u8>().prop_map(Act::Gone),
            3 => (0_u64..1_500).prop_map(Act::Pass),
            1 => Just(Act::Stop),
        ]
    }

    proptest! {
        /// P19: whoever waits is told exactly once, unless he went away.
        #[test]
        fn p19_everybody_who_waits_is_told_once(acts in prop::collection::vec(acts(), 1..80)) {
            let mut waiters = Waiters::default();
            let (mut now, mut next) = (0, 0_u64);
            let mut open: Vec<(WaiterId, Id128)> = Vec::new();
            let mut told: HashSet<WaiterId> = HashSet::new();
            let tell = |told: &mut HashSet<WaiterId>, open: &mut Vec<(WaiterId, Id128)>, waiter: WaiterId| {
                open.retain(|(other, _)| *other != waiter);
                told.insert(waiter)
            };
            for act in acts {
                match act {
                    Act::Wait { id, patience } => {
                        let (waiter, id) = (WaiterId(next), Id128(u128::from(id)));
                        next += 1;
                        waiters.wait(at(now), id, waiter, at(now + patience));
                        open.push((waiter, id));
                    }
                    Act::Over(id) => {
                        for waiter in waiters.over(Id128(u128::from(id))) {
                            prop_assert!(tell(&mut told, &mut open, waiter));
                        }
                        prop_assert!(open.iter().all(|(_, other)| *other != Id128(u128::from(id))));
                    }
                    Act::Gone(nth) => {
                        if !open.is_empty() {
                            let (waiter, id) = open.remove(usize::from(nth) % open.len());
                            waiters.gone(id, waiter);
                        }
                    }
                    Act::Pass(millis) => {
                        now += millis;
                        for (waiter, _) in waiters.timed_out(at(now)) {
                            prop_assert!(tell(&mut told, &mut open, waiter));
                        }
                        waiters.to_look_at(at(now));
                        prop_assert!(waiters.wake_at().is_none_or(|wake| wake > at(now)));
                    }
                    Act::Stop => {
                        for (waiter, _) in waiters.stop() {
                            prop_assert!(tell(&mut told, &mut open, waiter));
                        }
                        prop_assert!(open.is_empty());
                    }
                }
                prop_assert_eq!(waiters.len(), open.len());
                prop_assert!(open.iter().all(|(_, id)| waiters.is_awaited(*id)));
                prop_assert_eq!(waiters.is_empty(), waiters.wake_at().is_none());
            }
        }
    }
}
