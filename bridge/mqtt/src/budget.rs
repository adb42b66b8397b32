//! How much of one connection may have been received and not be done with, in bytes. Pure; a new connection begins with nothing.

use std::collections::VecDeque;

/// What was handed over and not acknowledged by the consumer, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Budget {
    most: usize,
    /// The number of each delivery, and what it weighs in bytes.
    open: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Budget {
    /// With room for `most` bytes.
    pub(crate) const fn new(most: usize) -> Self {
        Self { most, open: VecDeque::new(), bytes: 0 }
    }

    /// A delivery is on its way to the consumer. Their numbers ascend.
    pub(crate) fn handed_over(&mut self, ordinal: u64, weight: usize) {
        self.open.push_back((ordinal, weight));
        self.bytes = self.bytes.saturating_add(weight);
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
}
