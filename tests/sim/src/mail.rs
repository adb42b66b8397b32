//! Mail: dead letters that somebody beside the owners puts back, twice, while owners come and go.
//!
//! What is put back is decided by the core's own redrive; a letter becomes a tombstone and its mail is posted in one transaction, as in the stores.

use crate::Mutant;
use crate::event::Event;
use crate::faults::{Knobs, MS, S};
use crate::rng::Rng;
use crate::seen::{Seen, Sight};
use crate::store::{Caller, Stores, Violation, number_of};
use crate::worker::destination;
use crate::world::World;
use bytes::Bytes;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::identity::{Id128, LaneId, Slot};
use causeway_core::log::{Moved, Put};
use causeway_core::mailbox::Mail;
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode};
use causeway_core::redrive::{self, Action, Filter, Mode, Request, Routes};
use causeway_core::rows::Row;
use causeway_core::units::UnixMillis;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The numbers of messages that were dead before the run began start above this.
const DEAD: u64 = 1_000_000;

/// The redriver's wall clock at the beginning.
const WALL: u64 = 1_750_000_000_000;

/// A transaction of a redrive that is on its way.
#[derive(Clone, Debug)]
pub struct PutBack {
    letter: DeadLetter,
    mail: Mail,
    request: String,
}

/// The mailbox, the dead letters, and the ledger of both.
#[derive(Debug, Default)]
pub(crate) struct Letterbox {
    letters: BTreeMap<Id128, DeadLetter>,
    /// What waits, and the version of the lease when it was posted.
    mail: BTreeMap<String, (Mail, u64)>,
    /// Mail that was ever posted, and the number of its message.
    posted: BTreeMap<String, u64>,
    /// Mail that entered the log.
    entered: BTreeSet<String>,
}

impl Letterbox {
    pub fn begin(letters: u64) -> Self {
        let letters = (1..=letters).map(|nth| {
            let entry = Entry {
                id: Id128(u128::from(DEAD) << 96 | u128::from(nth)),
                route: "r".into(),
                binding: "b".into(),
                address: None,
                refusal: None,
                source: "in".into(),
                received_at: UnixMillis(WALL),
                expires_at: None,
                message: crate::source::message(DEAD + nth),
                redrive: None,
            };
            let fault = Fault::new(FaultCode::InvalidPayload, "poison");
            (entry.id, DeadLetter::new(&entry, &destination(), &fault, 1, UnixMillis(WALL)))
        });
        Self { letters: letters.collect(), ..Self::default() }
    }

    /// A letter that an owner writes.
    pub fn park(&mut self, letter: &DeadLetter) {
        let standing = self.letters.get(&letter.id);
        if standing.is_none_or(|standing| standing.may_be_replaced_by(letter)) {
            self.letters.insert(letter.id, letter.clone());
        }
    }

    /// Whether the message waits among the dead for a decision.
    pub fn has_dead(&self, message: u64) -> bool {
        self.letters.values().any(|letter| letter.state != DeadLetterState::Redriven && payload_number(&letter.message.payload) == message)
    }

    /// The first pieces of mail, always from the start.
    pub fn read(&self, limit: usize) -> Vec<Mail> {
        self.mail.values().take(limit).map(|(mail, _)| mail.clone()).collect()
    }

    /// The messages of the mail that was posted.
    pub fn posted(&self) -> impl Iterator<Item = u64> {
        self.posted.values().copied()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.mail.is_empty()
    }

    fn put_back(&mut self, version: u64, put_back: &PutBack, seen: &mut Seen) -> bool {
        let PutBack { letter, mail, request } = put_back;
        let Some(standing) = self.letters.get(&letter.id) else { return false };
        if standing.is_as_seen(letter) {
            let tombstone = standing.tombstone(request, mail.posted_at);
            self.letters.insert(letter.id, tombstone);
            self.mail.insert(mail.id.clone(), (mail.clone(), version));
            self.posted.insert(mail.id.clone(), number_of(&mail.entry));
            return true;
        }
        seen.note(if standing.is_tombstone_of(letter, request) { Sight::RedriveRepeated } else { Sight::RedriveRefused });
        false
    }
}

fn payload_number(payload: &Bytes) -> u64 {
    core::str::from_utf8(payload).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

impl Stores {
    /// Moves mail into the log, in one transaction.
    ///
    /// # Errors
    /// Where a piece of mail is moved twice, or is lost.
    pub(crate) fn move_mail(
        &mut self,
        caller: Caller,
        (lane, slot): (LaneId, Slot),
        row: &Arc<Row>,
        ids: &[String],
        doubted: bool,
        seen: &mut Seen,
    ) -> Result<Moved, Violation> {
        let version = self.lease().map_or(0, |row| row.tuple.version);
        let gone = !ids.iter().all(|id| self.letterbox.mail.contains_key(id));
        let taken = self.lane(lane).lane.standing(slot).is_some();
        let moves = !taken && (!gone || self.mutant == Some(Mutant::MailStays));
        if !taken && !moves {
            seen.note(Sight::MailGone);
            return Ok(Moved::MailGone);
        }
        if moves && slot <= self.lane(lane).lane.effective_head() {
            return Err(format!("M2: mail {ids:?} is moved to slot {slot}, below the head, where nobody looks"));
        }
        let put = self.lane(lane).put(caller, slot, row, doubted, seen)?;
        if moves {
            if let Some(twice) = ids.iter().find(|id| self.letterbox.entered.contains(*id)) {
                return Err(format!("M1: mail {twice} enters the log a second time, at slot {slot} of lane {lane}"));
            }
            self.letterbox.entered.extend(ids.iter().cloned());
            if ids.iter().any(|id| self.letterbox.mail.get(id).is_some_and(|(_, posted_under)| *posted_under < version)) {
                seen.note(Sight::MailMovedAfterTakeover);
            }
        }
        let unconditional = self.mutant == Some(Mutant::MailGoesFirst);
        if moves && self.mutant != Some(Mutant::MailStays) || unconditional {
            self.letterbox.mail.retain(|id, _| !ids.contains(id));
        }
        if let Some(lost) = ids.iter().find(|id| !self.letterbox.mail.contains_key(*id) && !self.letterbox.entered.contains(*id)) {
            return Err(format!("M2: mail {lost} is gone and never entered the log"));
        }
        Ok(match put {
            Put::Stored => Moved::Stored,
            Put::Occupied(meta) => {
                seen.note(Sight::MailMoveRefused);
                Moved::Occupied(meta)
            }
        })
    }
}

impl World {
    /// Somebody puts the letter back: it is read, and the transaction is on its way, perhaps twice.
    pub(crate) fn redrive(&mut self, nth: usize) {
        let letters = &self.stores.letterbox.letters;
        let Some(letter) = letters.values().nth(nth % letters.len().max(1)).cloned() else { return };
        let request = Request {
            filter: Filter::default(),
            dry_run: false,
            limit: 1,
            rate: 1,
            max_redrives: 3,
            mode: Mode::Outbox,
            include_expired: false,
            resume: None,
            request_id: format!("request-{}", self.now),
            queue: None,
            destination: None,
        };
        let routes = Routes::unknown("b").expect("a name of a bridge");
        let planned = redrive::plan(&[letter], &request, &routes, UnixMillis(WALL + self.now / MS));
        for action in planned {
            let Action::PutBack { letter, mail, .. } = action else { continue };
            let put_back = Box::new(PutBack { letter, mail, request: request.request_id.clone() });
            let at = self.now + self.latency();
            if self.rng.chance(0.5) {
                // The answer got lost: the same again.
                let again = at + self.rng.between(MS, 3 * S);
                self.at(again, Event::PutBack(put_back.clone()));
            }
            self.at(at, Event::PutBack(put_back));
        }
    }

    pub(crate) fn put_back(&mut self, put_back: &PutBack) {
        let version = self.stores.lease().map_or(0, |row| row.tuple.version);
        if !self.stores.letterbox.put_back(version, put_back, &mut self.seen) {
            return;
        }
        let served = self.workers.iter().any(|worker| worker.may_act(self.now) && worker.source.is_some());
        if version > 0 && !served {
            self.seen.note(Sight::MailPostedDuringTakeover);
        }
        for worker in 0..self.workers.len() {
            if self.rng.chance(0.3) {
                let life = self.workers[worker].life;
                let at = self.now + self.latency();
                self.at(at, Event::MailHint { worker, life });
            }
        }
    }

    /// Messages of mail that neither arrived nor died again.
    pub(crate) fn undelivered_mail(&self) -> usize {
        let missing = |message: &u64| !self.queue.has(*message) && !self.stores.letterbox.has_dead(*message);
        self.stores.letterbox.posted().filter(missing).count()
    }
}

impl Knobs {
    /// The same world with dead letters, and somebody who puts them back. What the seed draws otherwise stays as it is.
    #[must_use]
    pub fn with_mail(mut self, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x4D41_494C);
        self.letters = rng.between(3, 12);
        self.mailbox_poll = Some(2 * S);
        let times = 2 * self.letters + rng.between(0, 12);
        self.redrives = (0..times).map(|_| (rng.between(0, self.chaos_ends + 2 * S), rng.index(1_000))).collect();
        self
    }
}
