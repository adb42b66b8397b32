//! The core's own owner of a log as an automaton of a model: equal states are found to be equal, and no step is computed twice.
//!
//! An [`Owner`] is a function of what it was told, in order. So a state is the list of inputs that led to it, named by the digest of all that the owner
//! prints; a step that was taken once is remembered. Its clock stands still, but for a tick, which moves it to where the owner asked to be woken: the
//! time of the lease is the model's, and reaches the owner as "may act" or "may not".

use crate::log::name_of;
use crate::named::{Named, digest};
use crate::protocol::Wanted;
use bytes::Bytes;
use causeway_core::dead_letter::Destination;
use causeway_core::drain::retry::Backoff;
use causeway_core::drain::{BatchId, BatchLimits};
use causeway_core::hold::Order;
use causeway_core::identity::{ConnectionEpoch, DeliveryId, Epoch, LaneId};
use causeway_core::log::writer::SegmentOptions;
use causeway_core::log::{Answer, Call, Channel};
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::Outcome;
use causeway_core::units::{Instant, UnixMillis};
use causeway_core::worker::options::{Delivery, Fate, LegOptions, OwnerOptions, Policy, to_first_legs};
use causeway_core::worker::{Effect, End, Event, Observation, Owner};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

const WALL: UnixMillis = UnixMillis(1);

/// What an owner is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// It begins, as the `term`-th owner of the whole run.
    Born {
        term: u64,
        epoch: Epoch,
    },
    Deliver {
        ordinal: u64,
        message: u8,
    },
    Log(Answer),
    Sent {
        batch: BatchId,
        entries: usize,
    },
    Tick,
}

/// What it wants done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Of its log, or of the destination.
    Wants(Named<Wanted>),
    Acknowledge(u64),
    Close,
    Opened,
    Finished(End),
}

#[derive(Debug)]
struct Path {
    before: Option<Arc<Self>>,
    may_act: bool,
    input: Input,
}

/// A state of an owner.
#[derive(Clone, Debug)]
pub struct Automaton {
    digest: u64,
    path: Arc<Path>,
    pub wants_input: bool,
}

impl PartialEq for Automaton {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}
impl Eq for Automaton {}
impl Hash for Automaton {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

type Taken = (Automaton, Arc<Vec<Output>>);

type Steps = HashMap<(u64, bool, u64), Taken>;

static TAKEN: LazyLock<Mutex<Steps>> = LazyLock::new(Mutex::default);

/// The number of a message of the model.
pub fn number_of(entry: &Entry) -> u8 {
    entry.message.payload[0]
}

impl Automaton {
    /// The `term`-th owner of a run, under the epoch that its lease gives it; and what it does first.
    pub fn born(term: u64, epoch: Epoch, may_act: bool) -> Taken {
        step(0, None, may_act, digest(&(term, epoch)), || Input::Born { term, epoch })
    }

    /// What follows when it is told `input`, which `name` names.
    pub fn told(&self, may_act: bool, name: u64, input: impl FnOnce() -> Input) -> Taken {
        step(self.digest, Some(&self.path), may_act, name, input)
    }

    /// Steps that were computed so far.
    pub fn computed() -> usize {
        TAKEN.lock().unwrap().len()
    }
}

fn step(from: u64, before: Option<&Arc<Path>>, may_act: bool, name: u64, input: impl FnOnce() -> Input) -> Taken {
    let key = (from, may_act, name);
    if let Some(taken) = TAKEN.lock().unwrap().get(&key) {
        return taken.clone();
    }
    let path = Arc::new(Path { before: before.cloned(), may_act, input: input() });
    let (owner, clock, outputs) = replay(&path);
    let automaton = Automaton { digest: digest(&(&owner, clock)), path, wants_input: owner.wants_input() };
    let taken = (automaton, Arc::new(outputs));
    TAKEN.lock().unwrap().insert(key, taken.clone());
    taken
}

fn replay(path: &Arc<Path>) -> (Owner, Instant, Vec<Output>) {
    let mut steps = Vec::new();
    let mut next = Some(path);
    while let Some(path) = next {
        steps.push(path);
        next = path.before.as_ref();
    }
    let mut clock = Instant::from_nanos(1_000_000_000);
    let mut owner = None;
    let mut effects = Vec::new();
    for step in steps.into_iter().rev() {
        let event = match &step.input {
            Input::Born { term, epoch } => {
                owner = Some(Owner::new(options(*term, *epoch)));
                Event::Tick
            }
            Input::Deliver { ordinal, message } => Event::Delivered {
                delivery: DeliveryId { connection: ConnectionEpoch(1), ordinal: *ordinal },
                receiver: "in".into(),
                message: Message { topic: "t".to_owned(), payload: Bytes::copy_from_slice(&[*message]), qos: 1, ..Message::default() },
            },
            Input::Log(answer) => Event::Log { lane: LaneId(0), answer: answer.clone() },
            Input::Sent { batch, entries } => Event::Sent { batch: *batch, outcomes: vec![Outcome::Done(()); *entries] },
            Input::Tick => {
                clock = owner.as_ref().and_then(|owner| owner.wake_at(clock)).unwrap_or(clock);
                Event::Tick
            }
        };
        let owner = owner.as_mut().unwrap();
        owner.act_until(Instant::from_nanos(if step.may_act { u64::MAX } else { 0 }));
        effects = with_registry(owner, clock, event);
    }
    (owner.unwrap(), clock, effects.into_iter().filter_map(output).collect())
}

/// The registry answers at once: with one lane it decides nothing that the log does not decide.
fn with_registry(owner: &mut Owner, clock: Instant, event: Event) -> Vec<Effect> {
    let mut effects = owner.apply(clock, WALL, event);
    while let Some(at) = effects.iter().position(|effect| matches!(effect, Effect::Log { call, .. } if call.channel() == Channel::Registry))
    {
        let Effect::Log { lane, call } = effects.remove(at) else { break };
        let answer = if matches!(call, Call::ReadRecord) { Answer::Record(Ok(None)) } else { Answer::Registered(Outcome::Done(true)) };
        effects.extend(owner.apply(clock, WALL, Event::Log { lane, answer }));
    }
    effects
}

fn output(effect: Effect) -> Option<Output> {
    Some(match effect {
        Effect::Log { call, .. } => Output::Wants(Named::new(Wanted::Log(call))),
        Effect::Acknowledge(delivery) => Output::Acknowledge(delivery.ordinal),
        Effect::Send { batch, entries, .. } => Output::Wants(Named::new(Wanted::Send(batch, entries))),
        Effect::CloseSource => Output::Close,
        Effect::Observe(Observation::Opened { .. }) => Output::Opened,
        Effect::Finished(end) => Output::Finished(end),
        Effect::Observe(_) | Effect::ReadMail { .. } | Effect::Quota(_) | Effect::Reconnect => return None,
        Effect::Park { .. } => panic!("nothing is dead-lettered in this model"),
    })
}

/// One entry to a segment, one segment in flight, one batch in flight, no pauses: the fewest steps in which everything can still happen.
fn options(term: u64, epoch: Epoch) -> OwnerOptions {
    let policy = Policy {
        max_in_flight: 1,
        max_replay_attempts: 0,
        replay_budget: Duration::ZERO,
        on_expired: Fate::DeadLetter,
        on_permanent_failure: Fate::DeadLetter,
        backoff: Backoff { initial: Duration::from_millis(20), max: Duration::from_millis(20), multiplier: 1.0, jitter: 0.0 },
        send_timeout: Duration::from_secs(1),
    };
    let route = LegOptions {
        route: "r".into(),
        receiver: "in".into(),
        destination: Destination { binding: "b".to_owned(), ..Destination::default() },
        delivery: Delivery::Logged,
        depth: None,
        breaker: None,
        send_limits: Vec::new(),
        sender: Default::default(),
        pacing: None,
        policy,
        limits: BatchLimits { entries: 1, bytes: 1_000, entry_bytes: 1_000 },
        size_of: Arc::new(|_| 10),
        key_of: Arc::new(|_| None),
    };
    let base = (u128::from(term) + 1) << 64;
    OwnerOptions {
        owner: name_of(term),
        dispatch: to_first_legs(core::slice::from_ref(&route)),
        legs: vec![route],
        epoch: Some(epoch),
        acknowledge: Order::OfArrival,
        limits: Vec::new(),
        ack_hold: None,
        quota: None,
        store: None,
        lanes: 1,
        mailbox_poll: None,
        retire_when_drained: false,
        segment: SegmentOptions { max_messages: 1, linger: Duration::ZERO, ..SegmentOptions::default() },
        send_linger: Duration::ZERO,
        max_settled_ahead: 10,
        keep_settled: Duration::ZERO,
        memory_entries: 100,
        memory_bytes: 1 << 20,
        entry_id_base: base,
        row_id_base: base,
        jitter_seed: 1,
    }
}
