//! A destination that does what the test says.

use super::Shared;
use crate::{Sink, SinkLimits};
use async_trait::async_trait;
use causeway_core::drain::OrderKey;
use causeway_core::identity::EntryId;
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use core::fmt;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What becomes of one entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkAnswer {
    /// Accepted.
    Accept,
    /// Not accepted, and the sender is told.
    Refuse(Fault),
    /// Accepted, and the answer gets lost.
    AcceptAndLoseAnswer,
    /// Not accepted, and the answer gets lost.
    LoseRequest,
}

/// Decides an entry's answer; the number says how often it was sent, this time included.
type Rule = Box<dyn FnMut(&Entry, u32) -> SinkAnswer + Send>;

/// A destination in memory. It accepts everything unless a script or a rule says otherwise.
#[derive(Debug)]
pub struct FakeSink {
    limits: SinkLimits,
    shared: Shared<State>,
}

#[derive(Default)]
struct State {
    rule: Option<Rule>,
    script: VecDeque<SinkAnswer>,
    shut: bool,
    out_of_order: Option<Fault>,
    attempts: HashMap<EntryId, u32>,
    batches: Vec<Vec<Arc<Entry>>>,
    accepted: Vec<Arc<Entry>>,
    at_gate: usize,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { script, shut, batches, accepted, .. } = self;
        write!(f, "State {{ script: {script:?}, shut: {shut}, batches: {}, accepted: {} }}", batches.len(), accepted.len())
    }
}

impl Default for FakeSink {
    /// With the limits of an SQS queue.
    fn default() -> Self {
        Self::new(SinkLimits { batch_entries: 10, batch_bytes: 1024 * 1024, entry_bytes: 1024 * 1024 })
    }
}

impl FakeSink {
    /// A destination with these limits.
    #[must_use]
    pub fn new(limits: SinkLimits) -> Self {
        Self { limits, shared: Shared::new(State::default()) }
    }

    /// The answers for the next entries, in the order in which they are sent; they come before the rule.
    pub fn script(&self, answers: impl IntoIterator<Item = SinkAnswer>) {
        self.shared.change(|state| state.script.extend(answers));
    }

    /// The answer for every entry that no script decides. The number says how often the entry was sent, this time included.
    pub fn answer_by(&self, rule: impl FnMut(&Entry, u32) -> SinkAnswer + Send + 'static) {
        self.shared.change(|state| state.rule = Some(Box::new(rule)));
    }

    /// Makes every send wait, from now on. One that waits longer than its timeout ends unknown and was not accepted.
    pub fn shut(&self) {
        self.shared.change(|state| state.shut = true);
    }

    /// Lets the waiting sends go on.
    pub fn open(&self) {
        self.shared.change(|state| state.shut = false);
    }

    /// What the probe answers from now on: a fault, or that all is well.
    pub fn set_probe(&self, fault: Option<Fault>) {
        self.shared.change(|state| state.out_of_order = fault);
    }

    /// Every batch that was sent, whatever became of it.
    #[must_use]
    pub fn batches(&self) -> Vec<Vec<Arc<Entry>>> {
        self.shared.look().batches.clone()
    }

    /// What a consumer of the destination sees: every entry accepted, repeats included, in order.
    #[must_use]
    pub fn accepted(&self) -> Vec<Arc<Entry>> {
        self.shared.look().accepted.clone()
    }

    /// Waits until at least `count` entries were accepted.
    pub async fn accepted_at_least(&self, count: usize) {
        self.shared.wait_for(|state| (state.accepted.len() >= count).then_some(())).await;
    }

    /// Waits until at least `count` sends wait because the sink is shut.
    pub async fn waiting_at_least(&self, count: usize) {
        self.shared.wait_for(|state| (state.at_gate >= count).then_some(())).await;
    }

    fn breaks_limits(&self, batch: &[Arc<Entry>]) -> bool {
        let sizes = batch.iter().map(|entry| self.size_of(entry)).filter(|size| *size <= self.limits.entry_bytes);
        batch.len() > self.limits.batch_entries || sizes.sum::<usize>() > self.limits.batch_bytes
    }

    /// Waits until the sink is open; answers whether it was within `timeout`.
    async fn pass_gate(&self, timeout: Duration) -> bool {
        if !self.shared.look().shut {
            return true;
        }
        let _waiting = AtGate::enter(&self.shared);
        tokio::time::timeout(timeout, self.shared.wait_for(|state| (!state.shut).then_some(()))).await.is_ok()
    }
}

/// Counted as waiting for as long as it lives, so that a send that is dropped counts no more.
struct AtGate<'a>(&'a Shared<State>);

impl<'a> AtGate<'a> {
    fn enter(shared: &'a Shared<State>) -> Self {
        shared.change(|state| state.at_gate += 1);
        Self(shared)
    }
}

impl Drop for AtGate<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.at_gate -= 1);
    }
}

impl State {
    fn answer(&mut self, entry: &Arc<Entry>) -> Outcome<()> {
        let attempts = self.attempts.entry(entry.id).or_default();
        *attempts += 1;
        let attempts = *attempts;
        let answer = self.script.pop_front().or_else(|| self.rule.as_mut().map(|rule| rule(entry, attempts))).unwrap_or(SinkAnswer::Accept);
        if matches!(answer, SinkAnswer::Accept | SinkAnswer::AcceptAndLoseAnswer) {
            self.accepted.push(Arc::clone(entry));
        }
        match answer {
            SinkAnswer::Accept => Outcome::Done(()),
            SinkAnswer::Refuse(fault) => Outcome::NotDone(fault),
            SinkAnswer::AcceptAndLoseAnswer | SinkAnswer::LoseRequest => {
                Outcome::Unknown(Fault::new(FaultCode::ConnectionLost, "the connection broke before an answer came"))
            }
        }
    }
}

#[async_trait]
impl Sink for FakeSink {
    fn limits(&self) -> SinkLimits {
        self.limits
    }

    /// Topic and payload.
    fn size_of(&self, entry: &Entry) -> usize {
        entry.message.topic.len() + entry.message.payload.len()
    }

    fn key_of(&self, _entry: &Entry) -> Option<OrderKey> {
        None
    }

    async fn send(&self, batch: &[Arc<Entry>], timeout: Duration) -> Vec<Outcome<()>> {
        self.shared.change(|state| state.batches.push(batch.to_vec()));
        if self.breaks_limits(batch) {
            let fault = Fault::new(FaultCode::InvalidConfig, "the batch breaks the limits of the destination");
            return vec![Outcome::NotDone(fault); batch.len()];
        }
        if !self.pass_gate(timeout).await {
            let fault = Fault::new(FaultCode::Timeout, "no answer in time");
            return vec![Outcome::Unknown(fault); batch.len()];
        }
        let fits = |entry: &Arc<Entry>| self.size_of(entry) <= self.limits.entry_bytes;
        let too_large = || Outcome::NotDone(Fault::new(FaultCode::PayloadTooLarge, "larger than the destination takes"));
        self.shared.change(|state| batch.iter().map(|entry| if fits(entry) { state.answer(entry) } else { too_large() }).collect())
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.shared.look().out_of_order.clone().map_or(Ok(()), Err)
    }

    fn requests(&self) -> u64 {
        self.shared.look().batches.len() as u64
    }
}
