//! The loop: a heap of events, one true time, and what each event does.

use crate::broker::{Broker, ConnectionId};
use crate::checks::Stopwatch;
use crate::event::{Event, Scheduled};
use crate::faults::{Knobs, MS, S};
use crate::queue::Queue;
use crate::rng::Rng;
use crate::seen::{Seen, Sight};
use crate::store::Stores;
use crate::wire::Wire;
use crate::worker::Worker;
use crate::{Mutant, Report};
use causeway_core::identity::EntryId;
use causeway_core::member;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The world.
#[derive(Debug)]
pub struct World {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) knobs: Knobs,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) stores: Stores,
    pub(crate) broker: Broker,
    pub(crate) queue: Queue,
    /// Entries that were sent past the log.
    pub(crate) direct: BTreeSet<EntryId>,
    pub(crate) seen: Seen,
    pub(crate) seed: u64,
    pub(crate) heap: BinaryHeap<Scheduled>,
    pub(crate) scheduled: u64,
    pub(crate) wires: BTreeMap<ConnectionId, Wire>,
    pub(crate) calls: u64,
    pub(crate) published: u64,
    pub(crate) throttled_until: u64,
    pub(crate) healed_at: Option<u64>,
    pub(crate) watch: Stopwatch,
    pub(crate) violation: Option<String>,
    pub(crate) trace: u64,
    pub(crate) events: u64,
}

impl World {
    /// A world at its beginning.
    #[must_use]
    pub fn new(seed: u64, mut rng: Rng, knobs: Knobs, mutant: Option<Mutant>) -> Self {
        let workers = (0..knobs.workers).map(|_| Worker::new(&mut rng, &knobs)).collect();
        let mut world = Self {
            now: 0,
            mutant,
            workers,
            stores: Stores::new(&knobs, mutant),
            broker: Broker::new(knobs.window, !knobs.new_session),
            queue: Queue::default(),
            direct: BTreeSet::new(),
            seen: Seen::default(),
            seed,
            heap: BinaryHeap::new(),
            scheduled: 0,
            wires: BTreeMap::new(),
            calls: 0,
            published: 0,
            throttled_until: 0,
            healed_at: None,
            watch: Stopwatch::default(),
            violation: None,
            trace: 0xcbf2_9ce4_8422_2325,
            events: 0,
            rng,
            knobs,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for _ in 0..self.knobs.settings_refused {
            self.seen.note(Sight::SettingsRefused);
        }
        if let Some(misjudged) = self.knobs.misjudged.take() {
            self.fail(format!("A1: {misjudged}"));
        }
        for worker in 0..self.workers.len() {
            let at = self.rng.between(0, 500 * MS);
            self.at(at, Event::Start { worker });
        }
        for nth in 0..self.knobs.schedule.len() {
            self.at(self.knobs.schedule[nth].0, Event::Strike(nth));
        }
        for nth in 0..self.knobs.redrives.len() {
            let (at, letter) = self.knobs.redrives[nth];
            self.at(at, Event::Redrive(letter));
        }
        let mut at = 0;
        for _ in 0..self.knobs.messages {
            // Bursts, and pauses between them.
            at += if self.rng.chance(0.7) {
                self.rng.between(0, 5 * MS)
            } else {
                self.rng.between(0, self.knobs.chaos_ends * 6 / self.knobs.messages)
            };
            self.at(at.min(self.knobs.chaos_ends), Event::Publish);
        }
        for late in 1..=5 {
            self.at(self.knobs.chaos_ends + late * 300 * MS, Event::Publish);
        }
        self.at(self.knobs.chaos_ends, Event::Heal);
    }

    /// Runs to the end: convergence, or the first violation.
    #[must_use]
    pub fn run(mut self) -> Report {
        while self.violation.is_none() {
            let Some(Scheduled { at, event, .. }) = self.heap.pop() else {
                self.fail("nothing will ever happen any more".to_owned());
                break;
            };
            self.now = at;
            self.events += 1;
            if matches!(event, Event::Check) && self.has_converged() {
                break;
            }
            self.happen(event);
            self.check_belief();
        }
        Report {
            seed: self.seed,
            violation: self.violation,
            seen: self.seen,
            trace: self.trace,
            events: self.events,
            simulated: self.now,
            duplicates: self.queue.duplicates(),
            failover: self.watch.took,
            announced: self.watch.announced,
        }
    }

    pub(crate) const fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }

    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// Whether the faults have not ended yet.
    pub(crate) const fn is_faulty(&self) -> bool {
        self.healed_at.is_none()
    }

    pub(crate) fn fail(&mut self, what: String) {
        let at = core::time::Duration::from_nanos(self.now);
        self.violation.get_or_insert_with(|| format!("at {at:?}: {what}"));
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.heap.push(Scheduled { at: at.max(self.now), nth: self.scheduled, event });
    }

    /// Adds to the hash of everything that happened.
    pub(crate) fn note(&mut self, what: &[u64]) {
        for word in what {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start { worker } => self.start(worker),
            Event::Arrive { worker, life, call, request } => self.arrive(worker, life, call, request),
            Event::AtBroker { connection, packet } => self.at_broker(connection, packet),
            Event::Publish => {
                self.published += 1;
                self.broker.publish(self.published);
                self.pump_broker();
            }
            Event::Strike(nth) => self.strike(self.knobs.schedule[nth].1),
            Event::Heal => self.heal(),
            Event::Check => self.at(self.now + S, Event::Check),
            Event::Redrive(letter) => self.redrive(letter),
            Event::PutBack(put_back) => self.put_back(&put_back),
            Event::Tick { worker, life, .. }
            | Event::Resume { worker, life }
            | Event::Answered { worker, life, .. }
            | Event::GivenUp { worker, life, .. }
            | Event::FromBroker { worker, life, .. }
            | Event::SourceTimer { worker, life, .. }
            | Event::MailHint { worker, life }
            | Event::Hint { worker, life } => {
                if self.workers[worker].life == life && self.workers[worker].member.is_some() {
                    self.at_worker(worker, event);
                }
            }
        }
    }

    fn start(&mut self, worker: usize) {
        if self.workers[worker].member.is_some() {
            return;
        }
        self.note(&[1, self.now, worker as u64]);
        let now = self.now;
        self.workers[worker].start(worker, now, &self.knobs, &mut self.rng);
        self.feed(worker, member::Event::Tick);
        self.go_on(worker);
    }
}
