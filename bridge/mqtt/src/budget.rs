//! How much of one connection may have been received and not be done with, in bytes. Pure; a new connection begins with nothing.

use std::collections::VecDeque;

/// What was handed over and not acknowledged by the consumer, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Budget {
    most: i64,
    /// The number of each delivery, and what it weighs in bytes. Below 0 where what was dropped was heavier.
    open: VecDeque<(u64, i64)>,
    bytes: i64,
}

impl Budget {
    /// With room for `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: signed(most), open: VecDeque::new(), bytes: 0 }
    }

    /// A delivery is on its way to the consumer. Their numbers ascend.
    pub(crate) fn handed_over(&mut self, ordinal: u64, weight: usize) {
        let weight = signed(weight);
        self.open.push_back((ordinal, weight));
        self.bytes = self.bytes.saturating_add(weight);
    }

    /// A message took the place of an older one that was dropped. As many deliveries are on their way as before; the newest of them answers for the difference.
    pub(crate) fn replaced(&mut self, dropped: usize, weight: usize) {
        let Some((_, newest)) = self.open.back_mut() else { return };
        let difference = signed(weight).saturating_sub(signed(dropped));
        *newest = newest.saturating_add(difference);
        self.bytes = self.bytes.saturating_add(difference);
    }

    /// The consumer is done with every delivery up to and including `ordinal`.
    pub(crate) fn done(&mut self, ordinal: u64) {
        while let Some((_, weight)) = self.open.pop_front_if(|(open, _)| *open <= ordinal) {
            self.bytes = self.bytes.saturating_sub(weight);
        }
    }

    /// Whether nothing more is to be read.
    pub(crate) const fn is_spent(&self) -> bool {
        self.bytes >= self.most
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_spent_while_as_much_as_may_be_is_not_done_with() {
        let mut budget = Budget::new(100);
        budget.handed_over(1, 40);
        budget.handed_over(2, 59);
        assert!(!budget.is_spent());
        budget.handed_over(5, 1);
        assert!(budget.is_spent());
        budget.done(4);
        assert!(!budget.is_spent());
        budget.handed_over(6, 100);
        budget.done(4);
        assert!(budget.is_spent(), "what is done with counts once");
        budget.done(u64::MAX);
        budget.handed_over(7, 99);
        assert!(!budget.is_spent(), "nothing is left behind");
    }

    #[test]
    fn what_was_dropped_for_another_weighs_no_more() {
        let mut budget = Budget::new(100);
        budget.handed_over(1, 10);
        budget.handed_over(2, 10);
        for _ in 0..50 {
            budget.replaced(10, 80);
            assert!(!budget.is_spent());
            budget.replaced(80, 10);
        }
        budget.replaced(10, 90);
        assert!(budget.is_spent());
        budget.replaced(90, 0);
        budget.done(2);
        budget.replaced(50, 0);
        budget.handed_over(3, 99);
        assert!(!budget.is_spent());
        budget.handed_over(4, 1);
        assert!(budget.is_spent(), "whoever is done with everything begins anew");
    }
}
