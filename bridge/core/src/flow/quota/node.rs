//! One owner loop's part in a budget that others draw from too.

use super::notice::Notice;
use super::row::{DrawRequest, Drawn, QuotaRow, QuotaWrite, Terms};
use super::share::Share;
use crate::outcome::Outcome;
use crate::units::{Instant, UnixMillis};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// What is admitted while the store cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutagePolicy {
    /// The node's own share: the rate divided by the nodes that were known last.
    LocalShare,
    /// Everything, for so long after the first failure; then only tokens that are drawn already.
    FailOpen {
        /// How long. 0: nothing.
        grace: Duration,
    },
    /// Only tokens that are drawn already.
    FailClosed,
}

/// How a node draws.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// The budget.
    pub terms: Terms,
    /// Tokens of a draw, at least.
    pub block: u64,
    /// How often tokens that nobody waits for go back; `None`: never.
    pub lease_return: Option<Duration>,
    /// How long the store is left alone after a draw that found the budget spent.
    pub dry_backoff: Duration,
    /// How long the store is given for an answer.
    pub draw_timeout: Duration,
    /// How often the store is looked at when nothing is drawn, and tried when it failed.
    pub probe_interval: Duration,
    /// How far ahead a draw may take its turn: tokens that the budget does not have yet, to be spent when it has them. Of nodes that all want more than
    /// there is, each gets its block in turn with one write; without it each asks again and again.
    pub book_ahead: Duration,
    /// What is admitted while the store cannot be asked.
    pub outage: OutagePolicy,
    /// What becomes of a charge that finds the budget spent.
    pub on_exhausted: OnExhausted,
    /// How long the notice of a spent budget stands that nobody acknowledges.
    pub notice: Duration,
}

/// What becomes of a charge that finds the budget spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExhausted {
    /// It waits.
    #[default]
    Hold,
    /// What it is for is stored, and waits there.
    Park,
    /// What it is for is dropped.
    Drop,
}

/// What was granted, until it is fetched.
#[derive(Clone, Copy, Debug)]
struct Grant {
    cost: u64,
    /// Tokens of the budget were charged for it.
    metered: bool,
}

/// What a charge is known by, until it is granted or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A call to the store. One of a kind is under way at a time, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaCall {
    /// Draw tokens.
    Draw(DrawRequest),
    /// Give tokens back. Never repeated: what took effect without an answer must not do so twice.
    Return(QuotaWrite),
    /// Read the row.
    Look,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaReply {
    /// Of a draw.
    Drawn(Outcome<Drawn>),
    /// Of what was given back; whether the row took it.
    Returned(Outcome<bool>),
    /// Of a look; what stands there.
    Looked(Outcome<Option<QuotaRow>>),
}

/// Why the store counts as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It refused a call.
    Refused,
    /// It did not answer in time.
    Unanswered,
}

/// The notice that the budget is spent was raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSpent;

/// What a node did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Tokens charged, but for those of `unmetered`.
    pub charged: u64,
    /// Tokens admitted without a budget, while the store could not be asked.
    pub unmetered: u64,
    /// Tokens given back.
    pub returned: u64,
    /// Draws that brought what they asked for.
    pub draws_granted: u64,
    /// Draws that brought less.
    pub draws_partial: u64,
    /// Draws that brought nothing.
    pub draws_dry: u64,
    /// Draws that failed.
    pub draws_failed: u64,
    /// Calls that failed because the store refused them.
    pub refused: u64,
    /// Calls that failed because no answer came.
    pub unanswered: u64,
}

impl NodeCounters {
    /// What a draw may bring.
    pub const DRAW_RESULTS: [&'static str; 4] = ["granted", "partial", "dry", "failed"];
    /// How a call may fail.
    pub const FAILURES: [&'static str; 2] = ["refused", "unanswered"];

    /// Draws, by what they brought.
    #[must_use]
    pub const fn draws(&self) -> [(&'static str, u64); 4] {
        let [granted, partial, dry, failed] = Self::DRAW_RESULTS;
        [(granted, self.draws_granted), (partial, self.draws_partial), (dry, self.draws_dry), (failed, self.draws_failed)]
    }

    /// Calls that failed, by how.
    #[must_use]
    pub const fn failures(&self) -> [(&'static str, u64); 2] {
        let [refused, unanswered] = Self::FAILURES;
        [(refused, self.refused), (unanswered, self.unanswered)]
    }

    /// Both together: of one node and of its successor.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            charged: self.charged + other.charged,
            unmetered: self.unmetered + other.unmetered,
            returned: self.returned + other.returned,
            draws_granted: self.draws_granted + other.draws_granted,
            draws_partial: self.draws_partial + other.draws_partial,
            draws_dry: self.draws_dry + other.draws_dry,
            draws_failed: self.draws_failed + other.draws_failed,
            refused: self.refused + other.refused,
            unanswered: self.unanswered + other.unanswered,
        }
    }
}

/// A node as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Tokens at hand.
    pub tokens_local: u64,
    /// Since when the store cannot be asked.
    pub degraded_since: Option<Instant>,
    /// Since when the notice of a spent budget stands.
    pub reached_since: Option<UnixMillis>,
    /// Charges that wait.
    pub waiting: usize,
}

/// The store cannot be asked.
#[derive(Clone, Copy, Debug)]
struct Outage {
    /// The first failure. Later ones do not move it.
    since: Instant,
    last_failure: Instant,
    share: Share,
}

/// A node of the quota.
#[derive(Clone, Debug)]
pub struct Node {
    options: NodeOptions,
    /// Tokens at hand.
    local: u64,
    /// Tokens of its share that it admitted while the row could not be seen: the next draws pay them, so that the row does not give them again.
    debt: u64,
    seen: Option<i128>,
    /// When the draw that is under way was sent, and what it asked for.
    drawing: Option<(Instant, u64)>,
    /// Tokens that a draw took ahead, and from when on they may be spent.
    booked: Option<(u64, Instant)>,
    returning: Option<u64>,
    looking: Option<Instant>,
    dry_until: Option<Instant>,
    return_at: Instant,
    /// When the store is looked at, or tried.
    probe_at: Instant,
    outage: Option<Outage>,
    nodes: u32,
    waiting: VecDeque<(Ticket, u64)>,
    granted: BTreeMap<Ticket, Grant>,
    notice: Notice,
    raised: bool,
    stopped: bool,
    counters: NodeCounters,
    calls: Vec<QuotaCall>,
}

impl Node {
    /// A node without tokens, which looks at the store first.
    #[must_use]
    pub fn new(options: NodeOptions) -> Self {
        Self {
            options,
            local: 0,
            debt: 0,
            seen: None,
            drawing: None,
            booked: None,
            returning: None,
            looking: None,
            dry_until: None,
            return_at: Instant::default(),
            probe_at: Instant::default(),
            outage: None,
            nodes: 0,
            waiting: VecDeque::new(),
            granted: BTreeMap::new(),
            notice: Notice::default(),
            raised: false,
            stopped: false,
            counters: NodeCounters::default(),
            calls: Vec::new(),
        }
    }

    /// How many nodes draw from the budget, this one included. Counts from the next outage on. Before the first time, the node has no share.
    pub fn know_nodes(&mut self, nodes: u32) {
        self.nodes = nodes.max(1);
    }

    /// Whether a charge of `cost` tokens is granted: all of it or nothing. One that is not waits in its turn, and is asked for again under the same
    /// ticket. A charge wider than the burst costs the burst.
    pub fn ask(&mut self, now: Instant, wall: UnixMillis, ticket: Ticket, cost: u64) -> bool {
        if !self.granted.contains_key(&ticket) && !self.waiting.iter().any(|(waiting, _)| *waiting == ticket) {
            self.waiting.push_back((ticket, cost.min(self.options.terms.burst)));
        }
        self.settle(now, wall);
        self.granted.remove(&ticket).is_some()
    }

    /// Whether a charge waits because the budget is spent: the store was asked and did not have it, or it is still paying those that came before. While the store
    /// cannot be asked nobody knows that.
    #[must_use]
    pub fn is_spent(&self, now: Instant, ticket: Ticket) -> bool {
        let waits_behind = self.waiting.front().is_some_and(|(first, _)| *first != ticket);
        let refused = self.booked.is_some() || self.dry_until.is_some_and(|until| now < until);
        self.outage.is_none() && !self.waiting.is_empty() && (waits_behind || refused)
    }

    /// What becomes of a charge that finds the budget spent.
    #[must_use]
    pub const fn on_exhausted(&self) -> OnExhausted {
        self.options.on_exhausted
    }

    /// The charge is not wanted any more. What was granted and not fetched stays with the node.
    pub fn give_up(&mut self, ticket: Ticket) {
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
        if let Some(grant) = self.granted.remove(&ticket) {
            self.take_back(grant);
        }
    }

    /// A grant that nobody fetched. What was granted without a budget is none.
    fn take_back(&mut self, Grant { cost, metered }: Grant) {
        if metered {
            self.local = self.local.saturating_add(cost);
            self.counters.charged = self.counters.charged.saturating_sub(cost);
        } else {
            self.counters.unmetered = self.counters.unmetered.saturating_sub(cost);
        }
    }

    /// What became of a call.
    pub fn reply(&mut self, now: Instant, wall: UnixMillis, reply: QuotaReply) {
        self.probe_at = now.plus(self.options.probe_interval);
        match reply {
            QuotaReply::Drawn(outcome) => self.drawn(now, wall, outcome),
            QuotaReply::Returned(outcome) => {
                let tokens = self.returning.take().unwrap_or_default();
                match outcome {
                    Outcome::Done(true) => self.counters.returned += tokens,
                    // It certainly stands as before. Who stops tries once.
                    Outcome::NotDone(_) if !self.stopped => self.local = self.local.saturating_add(tokens),
                    // Forgotten: less is admitted once, and never more.
                    Outcome::Done(false) | Outcome::NotDone(_) | Outcome::Unknown(_) => {}
                }
            }
            QuotaReply::Looked(looked) => {
                let started = self.looking.take();
                match looked {
                    Outcome::Done(row) => {
                        self.seen = row.filter(|row| row.terms == self.options.terms).map(|row| row.tat);
                        self.succeeded(started);
                    }
                    Outcome::NotDone(_) => self.failed(now, Cause::Refused),
                    Outcome::Unknown(_) => self.failed(now, Cause::Unanswered),
                }
            }
        }
        self.settle(now, wall);
    }

    /// Somebody has seen the notice. Answers whether it stood.
    pub fn acknowledge(&mut self, now: Instant) -> bool {
        self.notice.acknowledge(now, self.options.notice)
    }

    /// Goes on: grants, gives back, draws.
    pub fn settle(&mut self, now: Instant, wall: UnixMillis) {
        if let Some((tokens, _)) = self.booked.take_if(|(_, at)| *at <= now) {
            self.credit(now, tokens);
        }
        self.serve(now);
        if self.stopped {
            // What a draw brought that was under way.
            if self.outage.is_none() {
                self.returns(self.local);
            }
        } else {
            self.give_back(now);
            self.draw(now, wall);
            self.look(now);
        }
    }

    /// Nothing is charged any more: what is at hand goes back.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.waiting.clear();
        core::mem::take(&mut self.granted).into_values().for_each(|grant| self.take_back(grant));
        if self.outage.is_none() {
            self.returns(self.local);
        }
    }

    /// The calls to make.
    pub fn take_calls(&mut self) -> Vec<QuotaCall> {
        core::mem::take(&mut self.calls)
    }

    /// Whether the notice of a spent budget was raised since this was asked last.
    pub fn take_raised(&mut self) -> Option<BudgetSpent> {
        core::mem::take(&mut self.raised).then_some(BudgetSpent)
    }

    /// When to settle again although nothing happened.
    #[must_use]
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        if self.stopped {
            return None;
        }
        let waiting = self.waiting.front();
        let shared = self.outage.filter(|_| self.options.outage == OutagePolicy::LocalShare);
        let share = shared.zip(waiting).and_then(|(outage, (_, cost))| outage.share.ready_at(cost.saturating_sub(self.local)));
        [
            self.booked.map(|(_, at)| at),
            self.dry_until.filter(|_| waiting.is_some() || self.debt > 0),
            Some(self.return_at).filter(|_| self.outage.is_none() && self.options.lease_return.is_some() && self.spare() > 0),
            Some(self.probe_at).filter(|_| self.drawing.is_none() && (self.outage.is_some() || self.looking.is_none())),
            share,
        ]
        .into_iter()
        .flatten()
        // What is due and still did not happen waits for an answer; it must not hide what is due next.
        .filter(|at| *at > now)
        .min()
    }

    /// As people see it.
    #[must_use]
    pub fn status(&self, now: Instant) -> NodeStatus {
        NodeStatus {
            tokens_local: self.local,
            degraded_since: self.outage.map(|outage| outage.since),
            reached_since: self.notice.standing(now, self.options.notice),
            waiting: self.waiting.len(),
        }
    }

    /// What it did so far.
    #[must_use]
    pub const fn counters(&self) -> NodeCounters {
        self.counters
    }

    /// The store failed at `now`.
    #[cfg(test)]
    pub(super) fn fail_for_test(&mut self, now: Instant) {
        self.failed(now, Cause::Refused);
        self.probe_at = now.plus(self.options.probe_interval);
    }

    /// The time to give back has come.
    #[cfg(test)]
    pub(super) fn return_now_for_test(&mut self, now: Instant) {
        self.return_at = now;
    }

    fn credit(&mut self, now: Instant, tokens: u64) {
        let pays = self.debt.min(tokens);
        self.debt -= pays;
        if self.local == 0 && self.return_at <= now {
            self.return_at = now.plus(self.options.lease_return.unwrap_or_default());
        }
        self.local = self.local.saturating_add(tokens - pays);
    }

    fn drawn(&mut self, now: Instant, wall: UnixMillis, outcome: Outcome<Drawn>) {
        let Some((started, asked)) = self.drawing.take() else { return };
        let drawn = match outcome {
            Outcome::Done(drawn) => drawn,
            // What was drawn without an answer is nobody's.
            Outcome::NotDone(_) => return self.draw_failed(now, Cause::Refused),
            Outcome::Unknown(_) => return self.draw_failed(now, Cause::Unanswered),
        };
        self.seen = drawn.tat;
        self.succeeded(Some(started));
        match drawn.tokens {
            0 => self.counters.draws_dry += 1,
            tokens if tokens < asked => self.counters.draws_partial += 1,
            _ => self.counters.draws_granted += 1,
        }
        let at = started.plus(drawn.wait);
        if at > now {
            self.booked = Some((drawn.tokens, at));
        } else {
            self.credit(now, drawn.tokens);
        }
        self.serve(now);
        if (!self.waiting.is_empty() || self.debt > 0) && self.booked.is_none() && drawn.tokens < asked {
            self.dry_until = Some(now.plus(self.options.dry_backoff));
        }
        if !self.waiting.is_empty() && self.outage.is_none() && (self.booked.is_some() || self.dry_until.is_some()) {
            self.raised |= self.notice.reached(now, wall, self.options.notice);
        }
    }

    fn draw_failed(&mut self, now: Instant, cause: Cause) {
        self.counters.draws_failed += 1;
        self.failed(now, cause);
    }

    fn failed(&mut self, now: Instant, cause: Cause) {
        match cause {
            Cause::Refused => self.counters.refused += 1,
            Cause::Unanswered => self.counters.unanswered += 1,
        }
        self.dry_until = None;
        let share = Share::new(self.options.terms, self.nodes, now);
        self.outage.get_or_insert(Outage { since: now, last_failure: now, share }).last_failure = now;
    }

    fn succeeded(&mut self, started: Option<Instant>) {
        // One that was sent before the last failure proves nothing.
        self.outage.take_if(|outage| started.is_some_and(|started| started > outage.last_failure));
    }

    /// Grants what waits, in its order.
    fn serve(&mut self, now: Instant) {
        while let Some(&(ticket, cost)) = self.waiting.front() {
            let unmetered = self.counters.unmetered;
            if !self.pay(now, cost) {
                return;
            }
            self.waiting.pop_front();
            self.granted.insert(ticket, Grant { cost, metered: self.counters.unmetered == unmetered });
        }
    }

    fn pay(&mut self, now: Instant, cost: u64) -> bool {
        let missing = cost.saturating_sub(self.local);
        if missing > 0 {
            let Some(outage) = &mut self.outage else { return false };
            match self.options.outage {
                OutagePolicy::FailOpen { grace } if now.since(outage.since) < grace => {
                    self.counters.unmetered += cost;
                    return true;
                }
                OutagePolicy::LocalShare if outage.share.take(now, missing, cost) => {
                    self.debt = self.debt.saturating_add(missing).min(self.most_debt());
                }
                OutagePolicy::LocalShare | OutagePolicy::FailOpen { .. } | OutagePolicy::FailClosed => return false,
            }
        }
        self.local -= cost - missing;
        self.counters.charged += cost;
        true
    }

    /// The node's part of what the row saves up during an outage: of the burst, and of what comes until the node sees that the store is back. More is not
    /// owed, since the row has no more to give twice.
    pub(super) fn most_debt(&self) -> u64 {
        let Terms { count, period_ms, burst } = self.options.terms;
        let unseen = (self.options.probe_interval + self.options.draw_timeout).as_millis().saturating_mul(u128::from(count));
        let saved = u128::from(burst).saturating_add(unseen.div_ceil(u128::from(period_ms.max(1))));
        u64::try_from(saved.div_ceil(u128::from(self.nodes.max(1)))).unwrap_or(u64::MAX)
    }

    /// Tokens that nobody waits for. A wide charge keeps what there is of it, or it never came.
    fn spare(&self) -> u64 {
        self.local - self.waiting.front().map_or(0, |(_, cost)| self.local.min(*cost))
    }

    fn give_back(&mut self, now: Instant) {
        let Some(every) = self.options.lease_return else { return };
        if now < self.return_at || self.outage.is_some() {
            return;
        }
        self.return_at = now.plus(every);
        self.returns(self.spare());
    }

    fn returns(&mut self, tokens: u64) {
        if tokens > 0 && self.returning.is_none() {
            self.local -= tokens;
            self.returning = Some(tokens);
            self.calls.push(QuotaCall::Return(self.options.terms.give_back(tokens)));
        }
    }

    fn draw(&mut self, now: Instant, wall: UnixMillis) {
        if self.drawing.is_some() || self.booked.is_some() {
            return;
        }
        // What is owed is paid whether anybody waits or not.
        let owes = (self.debt > 0).then_some(0);
        let shortfall = self.waiting.front().map(|(_, cost)| cost.saturating_sub(self.local)).or(owes);
        match (self.outage, shortfall) {
            // The store is tried whether anybody waits or not.
            (Some(_), _) if now < self.probe_at => return,
            (None, None) => return,
            (None, Some(_)) if self.dry_until.is_some_and(|until| now < until) => return,
            (Some(_), _) | (None, Some(_)) => {}
        }
        self.dry_until = None;
        let tokens = self.options.block.max(shortfall.unwrap_or_default()).saturating_add(self.debt).min(self.options.terms.burst);
        self.drawing = Some((now, tokens));
        let NodeOptions { terms, book_ahead, .. } = self.options;
        self.calls.push(QuotaCall::Draw(DrawRequest { terms, tokens, at: wall, ahead: book_ahead, seen: self.seen }));
    }

    /// A node that has nothing to draw looks at the store, so that it knows of an outage before a charge comes.
    fn look(&mut self, now: Instant) {
        let quiet = self.outage.is_none() && self.drawing.is_none() && self.looking.is_none() && self.returning.is_none();
        if quiet && now >= self.probe_at {
            self.looking = Some(now);
            self.calls.push(QuotaCall::Look);
        }
    }
}
