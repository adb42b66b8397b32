//! Everything lands, and one owner without faults brings it to an end.

use super::{HEALING_STEPS, IDLE_READS, World};
use crate::knobs::ROUTES;
use causeway_core::rows::Row;
use causeway_core::units::UnixMillis;
use causeway_core::worker::Event;
use std::collections::BTreeMap;
use std::time::Duration;

impl World {
    /// Everything that is still on its way lands; then one new owner, alone and without faults, has to bring everything to an end.
    pub(super) fn heal(&mut self) {
        self.knobs.calm();
        for node in 0..self.nodes.len() {
            self.seen.returned +=
                self.nodes[node].owner.status(UnixMillis(0)).legs.iter().map(|route| route.counters.returned).sum::<u64>();
            self.nodes[node].alive = false;
            self.give_back(node);
        }
        self.answers.clear();
        while !self.requests.is_empty() && self.ledger.violation.is_none() {
            let index = self.dice.index(self.requests.len());
            self.apply(index);
        }
        self.ledger.nothing_lost(&self.store);
        let given = self.nodes.iter().map(|node| node.epoch_given).max().unwrap_or_default();
        self.start_with(given.next(), false);
        let last = self.nodes.len() - 1;
        self.settle_down(last);
        while let Some((message, receiver)) = self.undelivered.pop_front() {
            self.settle_while(last, |world| !world.nodes[last].owner.wants_input());
            self.deliver(last, message, receiver);
        }
        self.settle_down(last);
        self.check_healed(last);
        let drain_until = self.now.plus(Duration::from_secs(60));
        self.event(last, Event::Shutdown { drain_until });
        self.settle_down(last);
        let node = &self.nodes[last];
        let (finished, clean) = (node.finished, node.owner.exposed() == 0 && node.owner.status(UnixMillis(0)).in_memory == 0);
        self.ledger.ensure(finished && clean, || "the last owner does not end cleanly".to_owned());
    }

    pub(super) fn check_healed(&mut self, last: usize) {
        let recovered = self.nodes[last].recovered;
        self.ledger.ensure(recovered, || "the last owner never recovered the log".to_owned());
        let left = self.ledger.recoverable(&self.store);
        self.ledger.ensure(left.is_empty(), || format!("still in the log: {left:?}"));
        let lanes = self.store.record.map(|record| record.lanes);
        self.ledger.ensure(lanes == Some(self.lanes), || format!("{} lanes are configured, {lanes:?} registered", self.lanes));
        for (lane, log) in &self.store.logs {
            let (tail, head) = (log.tail(), log.effective_head());
            let retired = matches!(log.rows.get(&tail), Some(Row::Anchor(anchor)) if anchor.retired);
            self.ledger
                .ensure(tail == head || retired && head.next() == tail, || format!("lane {lane}: the head is {head}, the tail {tail}"));
            let used = lanes.is_some_and(|lanes| lane.0 < lanes);
            self.ledger.ensure(used || retired || log.rows.is_empty(), || format!("lane {lane} is registered no more, and was not closed"));
            let garbage = log.rows.iter().filter(|(slot, row)| used && matches!(row, Row::Segment(_)) && **slot < tail).count();
            self.ledger.ensure(garbage == 0, || format!("{garbage} settled segments were not deleted"));
        }
        let unmoved = self.store.mail.len();
        self.ledger.ensure(unmoved == 0, || format!("{unmoved} pieces of mail were not moved"));
        let dropped: Vec<_> =
            self.posted.iter().map(|(number, route)| (*number, *route)).filter(|key| !self.ledger.gone.contains(key)).collect();
        self.ledger.ensure(dropped.is_empty(), || format!("posted and never arrived: {dropped:?}"));
        self.seen.mail_moved += self.ledger.moved();
        let missing: BTreeMap<u64, &'static str> = (1..=self.published)
            .filter_map(|number| Some((number, *self.ledger.acknowledged.get(&number)?)))
            .filter(|(number, receiver)| {
                (0..ROUTES.len()).any(|route| ROUTES[route] == *receiver && !self.ledger.gone.contains(&(*number, route)))
            })
            .collect();
        self.ledger.ensure(missing.is_empty(), || format!("never arrived: {missing:?}"));
        let (promised, published) = (self.ledger.acknowledged.len() as u64, self.published - self.posted.len() as u64);
        self.ledger.ensure(promised == published, || format!("{published} published, {promised} acknowledged"));
    }

    pub(super) fn settle_down(&mut self, last: usize) {
        self.settle_while(last, |_| true);
    }

    /// Steps without faults while `wanted` holds and something can still happen.
    pub(super) fn settle_while(&mut self, last: usize, wanted: impl Fn(&Self) -> bool) {
        self.idle_reads = 0;
        for _ in 0..HEALING_STEPS {
            if !wanted(self) || self.ledger.violation.is_some() {
                return;
            }
            self.step += 200;
            if !self.requests.is_empty() {
                let index = self.dice.index(self.requests.len());
                self.apply(index);
            } else if !self.answers.is_empty() {
                self.answer_one();
            } else if self.idle_reads >= IDLE_READS {
                return;
            } else if let (false, Some(at)) = (self.nodes[last].finished, self.nodes[last].owner.wake_at(self.now)) {
                self.now = at;
                self.event(last, Event::Tick);
            } else {
                return;
            }
        }
        self.ledger.violated(|| format!("no end within {HEALING_STEPS} steps without faults"));
    }
}
