//! The gateway of one instance: takes commands, has them published, and tells those who wait what became of them.
//!
//! [`Gateway::apply`] takes one event, changes the state and returns the effects to carry out; it never waits. Of one command at most one call to the store is under way at a time,
//! so what happens to it here happens in an order. What other instances do to it shows in the row's version, and is decided anew.

mod events;
mod known;
#[cfg(test)]
mod tests;

pub use events::{Answer, Ask, Created, Effect, Event, Observation, Path, Refusal, Reply, Request, Written};

use super::command::{Command, Rules, State, Step, Why};
use super::repeat::{Repeat, repeat_of};
use super::waiters::{WaiterId, Waiters};
use crate::drain::retry::{Backoff, Jitter};
use crate::hold::{Deliveries, Order};
use crate::identity::Id128;
use crate::outcome::{Fault, FaultClass, Outcome};
use crate::units::{Instant, UnixMillis};
use core::time::Duration;
use known::{Known, Todo};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// What a gateway needs to know.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// This instance, as its reply topics call it.
    pub instance: String,
    /// What becomes of commands.
    pub rules: Rules,
    /// Commands to one target that this instance has under way, at most.
    pub max_pending_per_target: usize,
    /// Whether a target gets its next command from here only after the one before has ended.
    pub ordered: bool,
    /// Whether a call that is repeated while its command is not published yet is answered like one that comes later.
    pub replay: bool,
    /// Pauses between attempts of what failed.
    pub backoff: Backoff,
    /// Random bits that seed the jitter.
    pub jitter_seed: u64,
}

/// What cannot be published just now is looked at again after so long.
const SOON: Duration = Duration::from_millis(100);
/// A command of which it is not known whether it was recorded is recorded again so many times at most, under the same name.
const RECORDINGS: u32 = 5;

/// What waits for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// The recording.
    Create(Id128),
    /// The call to the store.
    Call(Id128),
    /// The publishing.
    Publish(Id128),
}

/// Commands from here to one target.
#[derive(Debug, Default)]
struct Target {
    /// Given and not over.
    pending: usize,
    /// Those that wait for their turn.
    in_line: VecDeque<Id128>,
    /// The one whose turn it is.
    turn: Option<Id128>,
}

/// The gateway of one instance.
#[derive(Debug)]
pub struct Gateway {
    options: GatewayOptions,
    waiters: Waiters,
    known: HashMap<Id128, Known>,
    targets: HashMap<String, Target>,
    deliveries: Deliveries,
    again: BTreeMap<(Instant, u64), Again>,
    ends: BTreeSet<(Instant, Id128)>,
    /// The commands that something happened to since they were last worked on.
    touched: BTreeSet<Id128>,
    jitter: Jitter,
    next_turn: u64,
    listening: bool,
    stop_at: Option<Instant>,
    finished: bool,
    effects: Vec<Effect>,
}

impl Gateway {
    /// A gateway that has nothing under way.
    #[must_use]
    pub fn new(options: GatewayOptions) -> Self {
        Self {
            waiters: Waiters::default(),
            known: HashMap::new(),
            targets: HashMap::new(),
            deliveries: Deliveries::new(Order::OfArrival),
            again: BTreeMap::new(),
            ends: BTreeSet::new(),
            touched: BTreeSet::new(),
            jitter: Jitter::new(options.jitter_seed),
            next_turn: 0,
            listening: false,
            stop_at: None,
            finished: false,
            effects: Vec::new(),
            options,
        }
    }

    /// Commands that were given here and are not over.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.targets.values().map(|target| target.pending).sum()
    }

    /// Who waits for an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Takes one event; returns what to do.
    pub fn apply(&mut self, now: Instant, wall: UnixMillis, event: Event) -> Vec<Effect> {
        if self.finished {
            return Vec::new();
        }
        match event {
            Event::Asked(ask) => self.asked(wall, ask),
            Event::Created { id, outcome } => {
                self.touched.insert(id);
                self.created(now, wall, id, outcome);
            }
            Event::Read { id, outcome } => {
                self.touched.insert(id);
                self.read(now, id, outcome);
            }
            Event::Written { id, outcome } => {
                self.touched.insert(id);
                self.written(now, id, outcome);
            }
            Event::OrphanKept { id, outcome } => {
                self.touched.insert(id);
                self.orphan_kept(now, id, &outcome);
            }
            Event::Published { id, outcome } => {
                self.touched.insert(id);
                self.published(now, id, outcome);
            }
            Event::Replied(reply) => self.replied(reply),
            Event::Notified { id } => {
                let awaited = self.waiters.is_awaited(id);
                self.effects.push(Effect::Observe(Observation::Notified { awaited }));
                // Also where nobody waits: the end of one is the turn of another.
                if awaited || self.known.get(&id).is_some_and(|known| known.request.is_some()) {
                    self.push(id, Todo::Look);
                }
            }
            Event::Listening(listening) => self.listening = listening,
            Event::Cancelled { waiter, id } => self.push(id, Todo::Cancel(waiter)),
            Event::Gone { waiter, id } => self.waiters.gone(id, waiter),
            Event::Ignored { delivery } => {
                self.deliveries.arrived(delivery, 0);
            }
            Event::Disconnected { connection } => self.deliveries.forget(connection),
            Event::Tick => {}
            Event::Stop { until } => self.stop(until),
        }
        self.go_on(now, wall);
        core::mem::take(&mut self.effects)
    }

    /// When to come back with [`Event::Tick`] although nothing happened.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let again = self.again.first_key_value().map(|((at, _), _)| *at);
        let end = self.ends.first().map(|(at, _)| *at);
        [again, end, self.waiters.wake_at(), self.stop_at].into_iter().flatten().min()
    }

    fn answer(&mut self, waiter: WaiterId, answer: Answer) {
        self.effects.push(Effect::Answer { waiter, answer });
    }

    fn asked(&mut self, wall: UnixMillis, ask: Ask) {
        if self.stop_at.is_some() {
            return self.answer(ask.waiter, Answer::Refused(Refusal::Stopping));
        }
        let target = self.targets.entry(ask.request.target.clone()).or_default();
        if target.pending >= self.options.max_pending_per_target {
            return self.answer(ask.waiter, Answer::Refused(Refusal::TooManyPending));
        }
        if self.known.contains_key(&ask.id) {
            return self.answer(ask.waiter, Answer::Refused(Refusal::Running));
        }
        target.pending += 1;
        let command = Command::new(ask.id, &ask.request.target, &self.options.instance, wall, ask.timeout);
        let id = ask.id;
        self.known.insert(id, Known::given(ask, Box::new(command)));
        self.record(id);
    }

    fn record(&mut self, id: Id128) {
        let Some(known) = self.known.get(&id) else { return };
        let (Some(ask), Some(command)) = (&known.asked, &known.recording) else { return };
        self.effects.push(Effect::Create { command: command.clone(), key: ask.key.clone(), digest: ask.digest });
    }

    fn created(&mut self, now: Instant, wall: UnixMillis, id: Id128, outcome: Outcome<Created>) {
        let Some(Some(ask)) = self.known.get_mut(&id).map(|known| known.asked.take()) else { return };
        // What stands under its own name is what was recorded before, by an attempt whose answer was lost.
        let outcome = match outcome {
            Outcome::Done(Created::Before { command, .. }) if command.id == id => Outcome::Done(Created::New(command)),
            other => other,
        };
        match outcome {
            Outcome::Done(Created::New(command)) => {
                self.effects.push(Effect::Observe(Observation::Accepted));
                let ends_at = now.plus(command.expires_at.since(wall));
                self.ends.insert((ends_at, id));
                self.stand_in_line(&command);
                self.await_end(now, ask.waiter, ask.patience, &command);
                if let Some(known) = self.known.get_mut(&id) {
                    (known.busy, known.failures, known.ends_at, known.recording) = (false, 0, Some(ends_at), None);
                    known.row = Some(*command);
                }
            }
            Outcome::Done(Created::Before { command, digest }) => {
                self.take_back(id, &ask.request);
                match repeat_of(&digest, command.state, &ask.digest, self.options.replay) {
                    // One whose time is over is not published any more, whoever had it.
                    Repeat::Running if wall < command.expires_at => self.answer(ask.waiter, Answer::Refused(Refusal::Running)),
                    Repeat::Same | Repeat::Running => self.await_end(now, ask.waiter, ask.patience, &command),
                    Repeat::Other => self.answer(ask.waiter, Answer::Refused(Refusal::KeyReused)),
                }
            }
            Outcome::Unknown(fault) if self.stop_at.is_none() && self.known.get(&id).is_some_and(|known| known.failures < RECORDINGS) => {
                let Some(known) = self.known.get_mut(&id) else { return };
                (known.asked, known.failures) = (Some(ask), known.failures + 1);
                let failures = known.failures;
                self.effects.push(Effect::Observe(Observation::StoreFault(fault.clone())));
                self.later(now, failures, &fault, Again::Create(id));
            }
            // What may stand there all the same is not published, and housekeeping ends it.
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => {
                self.take_back(id, &ask.request);
                self.answer(ask.waiter, Answer::Refused(Refusal::Store(fault)));
            }
        }
    }

    /// Whoever gave a command waits for its end, or is told that it goes on.
    fn await_end(&mut self, now: Instant, waiter: WaiterId, patience: Option<Duration>, command: &Command) {
        match patience {
            Some(_) if self.stop_at.is_some() && !command.state.is_over() => {
                self.answer(waiter, Answer::Running { id: command.id, row: Some(Box::new(command.clone())) });
            }
            Some(patience) if !command.state.is_over() => self.waiters.wait(now, command.id, waiter, now.plus(patience)),
            Some(_) => self.answer(waiter, Answer::Over(Box::new(command.clone()))),
            None => self.answer(waiter, Answer::Accepted(Box::new(command.clone()))),
        }
    }

    /// A command that was not taken after all.
    fn take_back(&mut self, id: Id128, request: &Request) {
        self.known.remove(&id);
        self.leave(&request.target, id);
    }

    fn stand_in_line(&mut self, command: &Command) {
        let target = self.targets.entry(command.target.clone()).or_default();
        if self.options.ordered && target.turn.is_some() {
            target.in_line.push_back(command.id);
        } else {
            target.turn = Some(command.id);
            self.again.insert((Instant::default(), self.next_turn), Again::Publish(command.id));
            self.next_turn += 1;
        }
    }

    /// A command from here is over, or was not taken.
    fn leave(&mut self, name: &str, id: Id128) {
        let Some(target) = self.targets.get_mut(name) else { return };
        target.pending = target.pending.saturating_sub(1);
        target.in_line.retain(|other| *other != id);
        if target.turn == Some(id) {
            target.turn = target.in_line.pop_front();
            if let Some(next) = target.turn {
                self.again.insert((Instant::default(), self.next_turn), Again::Publish(next));
                self.next_turn += 1;
            }
        }
        if target.pending == 0 {
            self.targets.remove(name);
        }
    }

    fn publish(&mut self, now: Instant, wall: UnixMillis, id: Id128) {
        let listening = self.listening;
        let Some(known) = self.known.get_mut(&id) else { return };
        let Some(request) = &known.request else { return };
        let Some(row) = known.row.as_ref().filter(|_| !known.is_wanted_back()) else {
            // Its row is being read again, or taken back.
            return self.publish_soon(now, id);
        };
        if !row.state.is_open() || known.publishing {
            return;
        }
        match super::remaining_expiry(row.expires_at, wall) {
            None => self.push(id, Todo::Overdue),
            // Whoever answers now would not be heard.
            Some(_) if !listening => self.publish_soon(now, id),
            Some(expiry_seconds) => {
                known.publishing = true;
                self.effects.push(Effect::Publish { id, request: Arc::clone(request), expiry_seconds });
            }
        }
    }

    fn publish_soon(&mut self, now: Instant, id: Id128) {
        self.again.insert((now.plus(SOON), self.next_turn), Again::Publish(id));
        self.next_turn += 1;
    }

    fn published(&mut self, now: Instant, id: Id128, outcome: Outcome<bool>) {
        let Some(known) = self.known.get_mut(&id) else { return };
        known.publishing = false;
        match outcome {
            Outcome::Done(no_subscriber) => {
                known.failures = 0;
                known.before_it_is_wanted_back(Todo::Published { no_subscriber });
            }
            Outcome::NotDone(fault) if matches!(fault.code.class(), FaultClass::Rejected | FaultClass::Poison) => {
                known.before_it_is_wanted_back(Todo::Refused);
            }
            // Where the broker may have it, it is published again under the same name, and the target tells the copies by that.
            Outcome::NotDone(ref fault) | Outcome::Unknown(ref fault) => {
                known.may_be_out |= matches!(outcome, Outcome::Unknown(_));
                known.failures += 1;
                let failures = known.failures;
                self.later(now, failures, fault, Again::Publish(id));
            }
        }
    }

    fn later(&mut self, now: Instant, failures: u32, fault: &Fault, what: Again) {
        let pause = self.options.backoff.pause(failures, &mut self.jitter).max(fault.retry_after.unwrap_or_default());
        self.again.insert((now.plus(pause), self.next_turn), what);
        self.next_turn += 1;
    }

    fn replied(&mut self, reply: Reply) {
        self.deliveries.arrived(reply.delivery, 1);
        self.push(reply.id, Todo::Reply(Box::new(reply)));
    }

    fn push(&mut self, id: Id128, todo: Todo) {
        self.touched.insert(id);
        self.known.entry(id).or_default().todo.push_back(todo);
    }

    fn read(&mut self, now: Instant, id: Id128, outcome: Result<Option<Command>, Fault>) {
        let Some(known) = self.known.get_mut(&id) else { return };
        known.busy = false;
        match outcome {
            Ok(Some(row)) => {
                known.failures = 0;
                known.row = Some(row);
                if matches!(known.todo.front(), Some(Todo::Look)) {
                    known.todo.pop_front();
                }
            }
            Ok(None) => self.nothing_stands(id),
            Err(fault) => self.call_failed(now, id, &fault),
        }
    }

    /// The command has no row: what was to be done about it is not, but for an answer, which is kept for a while.
    fn nothing_stands(&mut self, id: Id128) {
        let Some(known) = self.known.get_mut(&id) else { return };
        match known.todo.front() {
            Some(Todo::Reply(reply)) => {
                known.busy = true;
                self.effects.push(Effect::KeepOrphan { id, reply: reply.clone() });
            }
            Some(Todo::Cancel(waiter)) => {
                let waiter = *waiter;
                known.todo.pop_front();
                self.answer(waiter, Answer::Refused(Refusal::Unknown));
            }
            Some(_) | None => {
                known.todo.pop_front();
            }
        }
    }

    fn orphan_kept(&mut self, now: Instant, id: Id128, outcome: &Outcome<()>) {
        let Some(known) = self.known.get_mut(&id) else { return };
        known.busy = false;
        match outcome {
            Outcome::Done(()) => {
                if let Some(Todo::Reply(reply)) = known.todo.pop_front() {
                    self.effects.push(Effect::Observe(Observation::Orphan));
                    self.deliveries.entry_done(reply.delivery);
                }
            }
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => self.call_failed(now, id, fault),
        }
    }

    /// What stands there is not known any more: it is read again, after a pause.
    fn call_failed(&mut self, now: Instant, id: Id128, fault: &Fault) {
        let Some(known) = self.known.get_mut(&id) else { return };
        known.row = None;
        known.busy = true;
        known.failures += 1;
        let failures = known.failures;
        self.effects.push(Effect::Observe(Observation::StoreFault(fault.clone())));
        self.later(now, failures, fault, Again::Call(id));
    }

    fn written(&mut self, now: Instant, id: Id128, outcome: Outcome<Written>) {
        let Some(known) = self.known.get_mut(&id) else { return };
        known.busy = false;
        match outcome {
            Outcome::Done(Written::Stands(row)) => {
                known.failures = 0;
                known.row = Some(*row);
                let todo = known.todo.pop_front();
                if let Some(todo) = todo {
                    self.done(id, todo, None);
                }
            }
            // Another instance was faster: what is to follow is decided from what stands there.
            Outcome::Done(Written::Refused(Some(row))) => {
                known.row = Some(*row);
                self.effects.push(Effect::Observe(Observation::Conflict));
            }
            Outcome::Done(Written::Refused(None)) => {
                known.row = None;
                self.nothing_stands(id);
            }
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => self.call_failed(now, id, &fault),
        }
    }

    /// Something is through, and led to a change or, as `why` says, to none.
    fn done(&mut self, id: Id128, todo: Todo, why: Option<Why>) {
        let row = self.known.get(&id).and_then(|known| known.row.clone());
        match todo {
            Todo::Reply(reply) => {
                self.deliveries.entry_done(reply.delivery);
                let late = row.as_ref().is_some_and(|row| row.late);
                self.effects.push(Effect::Observe(Observation::Replied { path: reply.path, why, late }));
                let theirs = row.as_ref().is_some_and(|row| row.instance != self.options.instance && row.state.is_over());
                if why.is_none() && theirs {
                    self.effects.push(Effect::Notify { id });
                }
            }
            Todo::Cancel(waiter) => {
                let answer = match (why, row) {
                    (None, Some(row)) => Answer::Over(Box::new(row)),
                    (Some(_), Some(row)) if row.state == State::Cancelled => Answer::Over(Box::new(row)),
                    (Some(why), _) => Answer::Refused(Refusal::NotCancelled(why)),
                    (None, None) => Answer::Refused(Refusal::Unknown),
                };
                self.answer(waiter, answer);
            }
            Todo::Published { .. } | Todo::Refused | Todo::Overdue | Todo::Look => {}
        }
    }

    /// Whatever can go on goes on.
    fn go_on(&mut self, now: Instant, wall: UnixMillis) {
        for (waiter, id) in self.waiters.timed_out(now) {
            let row = self.known.get(&id).and_then(|known| known.row.clone());
            self.answer(waiter, Answer::Running { id, row: row.map(Box::new) });
        }
        for id in self.waiters.to_look_at(now) {
            self.push(id, Todo::Look);
        }
        while let Some(&(at, id)) = self.ends.first().filter(|(at, _)| *at <= now) {
            self.ends.remove(&(at, id));
            self.push(id, Todo::Overdue);
        }
        loop {
            for again in self.due(now) {
                match again {
                    Again::Create(id) => self.record(id),
                    Again::Publish(id) => self.publish(now, wall, id),
                    Again::Call(id) => {
                        self.touched.insert(id);
                        if let Some(known) = self.known.get_mut(&id) {
                            known.busy = false;
                        }
                    }
                }
            }
            for id in core::mem::take(&mut self.touched) {
                self.work_off(id, now, wall);
                self.look_whether_over(id);
            }
            // The end of one may be the turn of another.
            if self.again.first_key_value().is_none_or(|((at, _), _)| *at > now) {
                break;
            }
        }
        let acknowledged = self.deliveries.take_due();
        self.effects.extend(acknowledged.into_iter().map(Effect::Acknowledge));
        self.finish(now);
    }

    fn due(&mut self, now: Instant) -> Vec<Again> {
        let mut due = Vec::new();
        while let Some(first) = self.again.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        due
    }

    /// Does what is to be done about a command, until a call is under way.
    fn work_off(&mut self, id: Id128, now: Instant, wall: UnixMillis) {
        while let Some(known) = self.known.get_mut(&id).filter(|known| !known.busy) {
            let Some(todo) = known.todo.front() else { return };
            if let Todo::Cancel(waiter) = todo {
                if known.publishing {
                    // What becomes of that decides.
                    return;
                }
                if known.may_be_out {
                    let waiter = *waiter;
                    known.todo.pop_front();
                    self.answer(waiter, Answer::Refused(Refusal::NotCancelled(Why::OnItsWay)));
                    continue;
                }
            }
            let row = known.row.as_ref().filter(|_| !matches!(todo, Todo::Look));
            let Some(row) = row else {
                known.busy = true;
                self.effects.push(Effect::Read { id });
                return;
            };
            match row.on(&todo.event(), wall, &self.options.rules) {
                Step::Write(next) => {
                    known.busy = true;
                    let result = match todo {
                        Todo::Reply(reply) if reply.verdict.is_some() => Some(reply.result.clone()),
                        _ => None,
                    };
                    self.effects.push(Effect::Write { command: next, result });
                    return;
                }
                Step::Nothing(why) => {
                    if matches!((todo, why), (Todo::Overdue, Why::NotDue)) {
                        // The wall clock was set back.
                        let ends_at = now.plus(row.expires_at.since(wall));
                        self.ends.insert((ends_at, id));
                        known.ends_at = Some(ends_at);
                    }
                    if let Some(todo) = known.todo.pop_front() {
                        self.done(id, todo, Some(why));
                    }
                }
            }
        }
    }

    /// Tells those who wait where a command is over, and forgets what need not be remembered.
    fn look_whether_over(&mut self, id: Id128) {
        let Some(known) = self.known.get(&id) else { return };
        let over = known.row.as_ref().filter(|row| row.state.is_over()).cloned();
        if let Some(row) = &over {
            for waiter in self.waiters.over(id) {
                self.answer(waiter, Answer::Over(Box::new(row.clone())));
            }
            if let Some(known) = self.known.get_mut(&id)
                && known.request.take().is_some()
            {
                if let Some(ends_at) = known.ends_at.take() {
                    self.ends.remove(&(ends_at, id));
                }
                self.effects.push(Effect::Observe(Observation::Ended { state: row.state }));
                self.leave(&row.target, id);
            }
        }
        let is_idle = |known: &Known| !known.busy && known.todo.is_empty() && known.request.is_none() && !known.publishing;
        if self.known.get(&id).is_some_and(is_idle) {
            self.known.remove(&id);
        }
    }

    fn stop(&mut self, until: Instant) {
        self.stop_at = Some(until);
        for (waiter, id) in self.waiters.stop() {
            let row = self.known.get(&id).and_then(|known| known.row.clone());
            self.answer(waiter, Answer::Running { id, row: row.map(Box::new) });
        }
    }

    /// The end: once nothing is under way any more, or there is no time left. Commands that go on are answered to other instances, and housekeeping ends those that are not.
    fn finish(&mut self, now: Instant) {
        let Some(until) = self.stop_at else { return };
        let is_under_way = |known: &Known| known.asked.is_some() || known.publishing || !known.todo.is_empty() || known.is_unpublished();
        if now >= until || !self.known.values().any(is_under_way) {
            // Who was just asking has no answer yet.
            let asking: Vec<WaiterId> = self.known.values_mut().filter_map(|known| known.asked.take()).map(|ask| ask.waiter).collect();
            for waiter in asking {
                self.answer(waiter, Answer::Refused(Refusal::Stopping));
            }
            self.finished = true;
            self.effects.push(Effect::Finished);
        }
    }
}
