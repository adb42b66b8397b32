//! Limits on what a leg sends: an entry that one of them does not admit yet waits here, and others pass it.
//!
//! Only the first attempt of an owner is asked about and charged; whatever is tried again is free. It is asked when it could leave, not before: while a
//! destination is left alone no budget is spent, and none is saved up for a burst afterwards.
//!
//! Entries that share all their keys stand in one line, in the order of their turn, and only the first of a line is asked about.

use super::Item;
use crate::flow::{LimitKey, Limiter, Mode, Pairs, Reason};
use crate::units::Instant;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// A limit on what a leg sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendLimit {
    /// Who shares one budget.
    pub key: LimitKey,
    /// The budget.
    pub pairs: Pairs,
    /// How it is kept.
    pub mode: Mode,
    /// Keys that have a budget of their own, at most.
    pub max_keys: usize,
    /// The key whose budget the others share.
    pub overflow_key: Arc<str>,
    /// Whether a message of quality of service 0 is dropped where it would have to wait.
    pub drops_qos_0: bool,
}

/// The keys of an entry, one for each limit.
type Keys = Arc<[String]>;

/// Entries that share all their keys.
#[derive(Debug, Default)]
struct Line {
    items: VecDeque<Item>,
    /// Whether a limit has said that the first of them has to wait.
    deferred: bool,
    /// So many of them, from the first on, were counted as deferred.
    counted: usize,
}

impl Line {
    fn weight(&self) -> usize {
        self.items.iter().map(|item| item.entry.message.weight()).sum()
    }
}

/// What one leg may not send yet.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    limits: Vec<(SendLimit, Limiter)>,
    lines: HashMap<Keys, Line>,
    /// The first of each line, by when it is asked about, and by turn.
    heads: BTreeSet<(Instant, u64, Keys)>,
    len: usize,
    deferred: usize,
    deferred_weight: usize,
    dropped: Vec<(Item, Reason)>,
    told: Vec<(Reason, u64)>,
}

impl Pacer {
    pub fn new(limits: Vec<SendLimit>) -> Self {
        let limiter =
            |limit: &SendLimit| Limiter::new(limit.pairs.clone(), limit.mode, limit.max_keys).sharing(Arc::clone(&limit.overflow_key));
        Self { limits: limits.into_iter().map(|limit| (limit.clone(), limiter(&limit))).collect(), ..Self::default() }
    }

    /// Entries that wait here.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Those of them that wait because a limit says so, and what they weigh in bytes.
    pub const fn deferred(&self) -> (usize, usize) {
        (self.deferred, self.deferred_weight)
    }

    /// What was dropped since it was last asked.
    pub fn take_dropped(&mut self) -> Vec<(Item, Reason)> {
        core::mem::take(&mut self.dropped)
    }

    /// How many have to wait that did not when it was last asked, by reason.
    pub fn take_told(&mut self) -> Vec<(Reason, u64)> {
        core::mem::take(&mut self.told)
    }

    /// All that is here, what was dropped and is not taken away yet included.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.lines.values().flat_map(|line| &line.items).chain(self.dropped.iter().map(|(item, _)| item))
    }

    /// The same, to be changed.
    pub fn items_mut(&mut self) -> impl Iterator<Item = &mut Item> {
        self.lines.values_mut().flat_map(|line| &mut line.items).chain(self.dropped.iter_mut().map(|(item, _)| item))
    }

    /// When something that has to wait may be asked about again.
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        self.heads.iter().map(|(at, _, _)| *at).find(|at| *at > now)
    }

    fn keys_of(&self, item: &Item) -> Keys {
        self.limits.iter().map(|(limit, _)| limit.key.of(&item.entry.message, &item.entry.route).to_owned()).collect()
    }

    /// When all limits admit one more of these keys, and the one that does last.
    fn ready_at(&self, keys: &Keys, now: Instant) -> (Instant, Reason) {
        let each = self.limits.iter().zip(keys.iter());
        let ready = each.map(|((limit, limiter), key)| (limiter.ready_at(key, now), Reason::of(&limit.key)));
        ready.max().unwrap_or((now, Reason::RouteLimit))
    }

    /// Whether an entry that has to wait is dropped instead.
    fn drops(&self, item: &Item, keys: &Keys, now: Instant) -> bool {
        let mut each = self.limits.iter().zip(keys.iter());
        item.entry.message.qos == 0 && each.any(|((limit, limiter), key)| limit.drops_qos_0 && limiter.ready_at(key, now) > now)
    }

    /// An entry could be sent for the first time, as far as everything else is concerned.
    pub fn push(&mut self, item: Item) {
        let (now, keys) = (item.ready_at, self.keys_of(&item));
        let waits = self.lines.get(&keys).is_some_and(|line| line.deferred);
        if waits && self.drops(&item, &keys, now) {
            return self.dropped.push((item, Reason::RouteLimit));
        }
        self.len += 1;
        let weight = item.entry.message.weight();
        let line = self.lines.entry(Arc::clone(&keys)).or_default();
        line.items.push_back(item);
        if waits {
            line.counted += 1;
            (self.deferred, self.deferred_weight) = (self.deferred + 1, self.deferred_weight + weight);
            let (_, reason) = self.ready_at(&keys, now);
            self.told.push((reason, 1));
        } else if line.items.len() == 1 {
            self.line_up(now, &keys);
        }
    }

    /// The first of a line, which is among no heads, is asked about: now or when a limit says.
    fn line_up(&mut self, now: Instant, keys: &Keys) {
        loop {
            let (ready_at, reason) = self.ready_at(keys, now);
            let Some(first) = self.lines.get(keys).and_then(|line| line.items.front()) else {
                self.lines.remove(keys);
                return;
            };
            if self.drops(first, keys, now) {
                if let Some(item) = self.pop(keys) {
                    self.dropped.push((item, Reason::RouteLimit));
                }
                continue;
            }
            self.heads.insert((ready_at, first.turn, Arc::clone(keys)));
            if ready_at > now {
                self.defer(keys, reason);
            }
            return;
        }
    }

    fn defer(&mut self, keys: &Keys, reason: Reason) {
        let Some(line) = self.lines.get_mut(keys) else { return };
        if !line.deferred {
            line.deferred = true;
            self.deferred += line.items.len();
            self.deferred_weight += line.weight();
        }
        let uncounted = line.items.len() - line.counted;
        line.counted = line.items.len();
        if uncounted > 0 {
            self.told.push((reason, uncounted as u64));
        }
    }

    fn admit_again(&mut self, keys: &Keys) {
        let Some(line) = self.lines.get_mut(keys) else { return };
        if core::mem::take(&mut line.deferred) {
            self.deferred -= line.items.len();
            self.deferred_weight -= line.weight();
        }
    }

    /// Takes the first of a line out, which is among no heads.
    fn pop(&mut self, keys: &Keys) -> Option<Item> {
        let line = self.lines.get_mut(keys)?;
        let item = line.items.pop_front()?;
        line.counted = line.counted.saturating_sub(1);
        self.len -= 1;
        if line.deferred {
            self.deferred -= 1;
            self.deferred_weight -= item.entry.message.weight();
        }
        Some(item)
    }

    /// The next entry that may leave and that every limit admits; each was charged for it, unless `is_free`: it will not be sent.
    pub fn admit(&mut self, now: Instant, may_leave: impl Fn(&Item) -> bool, is_free: impl Fn(&Item) -> bool) -> Option<Item> {
        loop {
            let first = |keys: &Keys| self.lines.get(keys).and_then(|line| line.items.front());
            let mut due = self.heads.iter().take_while(|(at, _, _)| *at <= now);
            let head = due.find(|(_, _, keys)| first(keys).is_some_and(&may_leave))?.clone();
            let (asked_at, _, keys) = &head;
            let free = first(keys).is_some_and(&is_free);
            self.heads.remove(&head);
            if !free && self.ready_at(keys, now).0 > now {
                self.line_up(now, keys);
                continue;
            }
            self.admit_again(keys);
            let mut item = self.pop(keys)?;
            item.ready_at = item.ready_at.max(*asked_at);
            if !free {
                for ((_, limiter), key) in self.limits.iter_mut().zip(keys.iter()) {
                    limiter.take(key, now);
                }
            }
            self.line_up(now, keys);
            return Some(item);
        }
    }

    /// Takes out what `goes` means.
    pub fn extract(&mut self, goes: impl Fn(&Item) -> bool) -> Vec<Item> {
        let mut gone: Vec<Item> = self.dropped.extract_if(.., |(item, _)| goes(item)).map(|(item, _)| item).collect();
        let heads = core::mem::take(&mut self.heads);
        for (at, _, keys) in heads {
            let Some(line) = self.lines.get_mut(&keys) else { continue };
            let (counted, before) = (line.counted, core::mem::take(&mut line.items));
            for (nth, item) in before.into_iter().enumerate() {
                if goes(&item) {
                    line.counted -= usize::from(nth < counted);
                    self.len -= 1;
                    if line.deferred {
                        self.deferred -= 1;
                        self.deferred_weight -= item.entry.message.weight();
                    }
                    gone.push(item);
                } else {
                    line.items.push_back(item);
                }
            }
            match line.items.front() {
                Some(first) => {
                    self.heads.insert((at, first.turn, keys));
                }
                None => {
                    self.lines.remove(&keys);
                }
            }
        }
        gone
    }
}
