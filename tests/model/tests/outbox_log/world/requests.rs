//! Requests: applied late, refused, given up, lost, answered.

use super::{Kind, Request, World, fault, key_of};
use crate::check::part_of;
use crate::mutant::Mutant;
use causeway_core::identity::{EntryId, LaneId, Slot};
use causeway_core::log::{Answer, Call, LogState, Moved, Put, Registration};
use causeway_core::message::Entry;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::Row;
use causeway_core::worker::Event;

impl World {
    pub(super) fn request_index(&mut self, mut wanted: impl FnMut(&Request) -> bool) -> Option<usize> {
        let found: Vec<usize> = self.requests.iter().enumerate().filter(|(_, request)| wanted(request)).map(|(index, _)| index).collect();
        (!found.is_empty()).then(|| self.dice.pick(&found))
    }

    /// A caller has waited long enough; its request is still on its way.
    pub(super) fn give_up(&mut self) {
        if let Some(index) = self.request_index(|request| !request.given_up) {
            self.requests[index].given_up = true;
            if self.dice.chance(0.4) {
                self.requests[index].not_before += self.dice.index(400);
            }
            let (node, event) = (self.requests[index].node, self.unanswered(index));
            self.answer(node, event);
        }
    }

    pub(super) fn lose_request(&mut self) {
        if let Some(index) = self.request_index(|request| !request.given_up) {
            let event = self.unanswered(index);
            let request = self.requests.remove(index);
            self.answer(request.node, event);
        }
    }

    pub(super) fn refuse(&mut self) {
        let Some(index) = self.request_index(|request| !request.given_up) else { return };
        let request = self.requests.remove(index);
        let event = match request.kind {
            Kind::Call(lane, call) => {
                let answer = match call {
                    Call::ReadRecord => Answer::Record(Err(fault())),
                    Call::ReadTail => Answer::Tail(Err(fault())),
                    Call::ReadHead => Answer::Head(Err(fault())),
                    Call::Register { .. } => Answer::Registered(Outcome::NotDone(fault())),
                    Call::Put { .. } => Answer::Put(Outcome::NotDone(fault())),
                    Call::MoveMail { .. } => Answer::Moved(Outcome::NotDone(fault())),
                    Call::ReadPage { purpose, .. } => Answer::Page { purpose, page: Err(fault()) },
                    Call::PutHead { .. } => Answer::HeadPut(Outcome::NotDone(fault())),
                    Call::Delete { .. } => Answer::Deleted(Outcome::NotDone(fault())),
                };
                Event::Log { lane, answer }
            }
            Kind::ReadMail(_) => Event::MailRead(Err(fault())),
            Kind::DeleteMail(_) => return,
            Kind::Send(batch, entries) => Event::Sent { batch, outcomes: vec![Outcome::NotDone(fault()); entries.len()] },
            Kind::Park(park, _) => Event::Parked { park, outcome: Outcome::NotDone(fault()) },
        };
        self.answer(request.node, event);
    }

    /// The event of a request that nobody will answer.
    pub(super) fn unanswered(&mut self, index: usize) -> Event {
        match &self.requests[index].kind {
            Kind::Call(lane, call) => {
                let answer = match call {
                    Call::ReadRecord => Answer::Record(Err(fault())),
                    Call::ReadTail => Answer::Tail(Err(fault())),
                    Call::ReadHead => Answer::Head(Err(fault())),
                    Call::Register { .. } => Answer::Registered(Outcome::Unknown(fault())),
                    Call::Put { row, .. } => {
                        if matches!(row.as_ref(), Row::Segment(_)) {
                            self.doubted.insert(row.id());
                        }
                        Answer::Put(Outcome::Unknown(fault()))
                    }
                    Call::MoveMail { .. } => {
                        self.seen.doubtful_moves += 1;
                        Answer::Moved(Outcome::Unknown(fault()))
                    }
                    Call::ReadPage { purpose, .. } => Answer::Page { purpose: *purpose, page: Err(fault()) },
                    Call::PutHead { .. } => Answer::HeadPut(Outcome::Unknown(fault())),
                    Call::Delete { .. } => Answer::Deleted(Outcome::Unknown(fault())),
                };
                Event::Log { lane: *lane, answer }
            }
            Kind::ReadMail(_) => Event::MailRead(Err(fault())),
            Kind::DeleteMail(_) => Event::Tick,
            Kind::Send(batch, entries) => Event::Sent { batch: *batch, outcomes: vec![Outcome::Unknown(fault()); entries.len()] },
            Kind::Park(park, _) => Event::Parked { park: *park, outcome: Outcome::Unknown(fault()) },
        }
    }

    pub(super) fn apply_one(&mut self) {
        let step = self.step;
        if let Some(index) = self.request_index(|request| request.not_before <= step) {
            self.apply(index);
        }
    }

    pub(super) fn apply(&mut self, index: usize) {
        let lost = !self.requests[index].given_up && self.dice.chance(self.knobs.lost_answers);
        let unanswered = lost.then(|| self.unanswered(index));
        let request = self.requests.remove(index);
        let (node, given_up) = (request.node, request.given_up);
        let event = match request.kind {
            Kind::Call(lane, call) => Event::Log { lane, answer: self.call(node, lane, call, given_up) },
            Kind::ReadMail(limit) => Event::MailRead(Ok(self.store.mail.values().take(limit).cloned().collect())),
            Kind::DeleteMail(ids) => {
                self.store.mail.retain(|id, _| !ids.contains(id));
                return self.ledger.store_changed(&self.store);
            }
            Kind::Send(batch, entries) => Event::Sent { batch, outcomes: entries.iter().map(|entry| self.destination(entry)).collect() },
            Kind::Park(park, entry) => Event::Parked { park, outcome: self.bury(entry) },
        };
        if !given_up {
            self.answer(node, unanswered.unwrap_or(event));
        }
    }

    pub(super) fn answer(&mut self, node: usize, event: Event) {
        if self.nodes[node].alive {
            let delay = if self.dice.chance(self.knobs.laggards) { self.dice.index(150) } else { self.dice.index(6) };
            self.answers.push((node, event, self.step + delay));
        }
    }

    pub(super) fn answer_one(&mut self) {
        let due: Vec<usize> = self.answers.iter().enumerate().filter(|(_, (_, _, at))| *at <= self.step).map(|(index, _)| index).collect();
        if !due.is_empty() {
            let index = self.dice.pick(&due);
            let (node, event, _) = self.answers.remove(index);
            self.event(node, event);
        }
    }

    pub(super) fn destination(&mut self, entry: &Entry) -> Outcome<()> {
        let die = self.dice.fraction();
        let knobs = &self.knobs;
        if die < knobs.send_rejections {
            return Outcome::NotDone(Fault::new(FaultCode::InvalidPayload, ""));
        }
        if die < knobs.send_rejections + knobs.send_refusals {
            return Outcome::NotDone(fault());
        }
        let unknown = die < knobs.send_rejections + knobs.send_refusals + knobs.send_unknowns;
        if !(unknown && self.dice.chance(0.5)) {
            self.ledger.went(key_of(entry));
        }
        if unknown { Outcome::Unknown(fault()) } else { Outcome::Done(()) }
    }

    pub(super) fn bury(&mut self, entry: EntryId) -> Outcome<()> {
        if let Some(known) = self.ledger.contents.values().flatten().find(|known| known.id == entry).copied() {
            self.ledger.went(known.key);
        }
        self.seen.dead_letters += 1;
        Outcome::Done(())
    }

    pub(super) fn call(&mut self, node: usize, lane: LaneId, call: Call, given_up: bool) -> Answer {
        let mutant = self.mutant;
        match call {
            Call::ReadRecord => Answer::Record(Ok(mutant.record_told(self.store.record))),
            Call::Register { record, replaces } => Answer::Registered(Outcome::Done(self.register(record, replaces))),
            Call::ReadTail => {
                let tail = self.store.log(lane).tail_meta();
                if let Some((slot, Row::Anchor(anchor))) = self.store.log(lane).rows.last_key_value()
                    && anchor.owner == format!("n{node}")
                    && !given_up
                {
                    self.ledger.confirms(node, lane, *slot, anchor.epoch);
                }
                let last_put = self.nodes[node].told.get(&lane).and_then(|told| told.last_put);
                Answer::Tail(Ok(mutant.told(tail, last_put)))
            }
            Call::ReadHead => Answer::Head(Ok(self.store.log(lane).head.clone())),
            Call::Put { slot, row } => Answer::Put(Outcome::Done(self.put(node, lane, slot, &row, given_up))),
            Call::MoveMail { slot, row, ids } => Answer::Moved(Outcome::Done(self.move_mail(node, lane, slot, &row, &ids))),
            Call::ReadPage { purpose, after, up_to } => {
                Answer::Page { purpose, page: Ok(self.store.log(lane).page(after, up_to, self.knobs.page_rows)) }
            }
            Call::PutHead { mut head } => {
                mutant.head_row(self.store.log(lane), &mut head);
                self.seen.heads_with_ranges += u64::from(!head.settled_ahead.is_empty());
                let old = self.store.log(lane).head.clone();
                let written = self.store.log(lane).put_head(&head, mutant);
                if written {
                    let log = self.store.log(lane).clone();
                    self.ledger.head_written(&log, old.as_ref(), &head);
                }
                self.seen.refused_heads += u64::from(!written);
                mutant.tidied(self.store.log(lane), self.nodes[node].epoch);
                self.ledger.store_changed(&self.store);
                Answer::HeadPut(Outcome::Done(written))
            }
            Call::Delete { slots } => {
                for slot in slots {
                    self.store.log(lane).rows.remove(&slot);
                }
                mutant.tidied(self.store.log(lane), self.nodes[node].epoch);
                self.ledger.store_changed(&self.store);
                Answer::Deleted(Outcome::Done(()))
            }
        }
    }

    pub(super) fn register(&mut self, record: Registration, replaces: Option<Registration>) -> bool {
        let (before, told) = (self.store.record, self.mutant.record_told(self.store.record));
        // Whoever believes in fewer lanes leaves the number alone that stands there.
        let lanes = if before == told { record.lanes } else { before.map_or(record.lanes, |before| before.lanes.max(record.lanes)) };
        let expected = if replaces == told { before } else { replaces };
        let written = self.store.register(Registration { lanes, ..record }, expected);
        self.seen.record_conflicts += u64::from(!written);
        if let (true, Some(before)) = (written, before) {
            self.seen.more_lanes += u64::from(lanes > before.lanes);
            self.seen.fewer_lanes += u64::from(lanes < before.lanes);
            self.seen.reopened += u64::from(before.state == LogState::Retired);
        }
        self.ledger.store_changed(&self.store);
        written
    }

    pub(super) fn move_mail(&mut self, node: usize, lane: LaneId, slot: Slot, row: &Row, ids: &[String]) -> Moved {
        let head = self.store.log(lane).effective_head();
        let had_landed = self.store.log(lane).rows.get(&slot).is_some_and(|standing| standing.id() == row.id());
        let moved = self.store.move_mail(lane, slot, row, ids, self.mutant);
        match &moved {
            Moved::Stored if !had_landed => {
                self.ledger.accepted(node, lane, slot, row, head);
                if self.mutant == Mutant::MoveWithoutDelete {
                    self.request(node, Kind::DeleteMail(ids.to_vec()));
                }
            }
            Moved::Stored => {}
            Moved::Occupied(_) => self.seen.refused_stale_writes += 1,
            Moved::MailGone => self.seen.mail_gone += 1,
        }
        self.ledger.store_changed(&self.store);
        moved
    }

    pub(super) fn put(&mut self, node: usize, lane: LaneId, slot: Slot, row: &Row, given_up: bool) -> Put {
        let log = self.store.log(lane);
        let head = log.effective_head();
        let had_landed = log.rows.values().any(|standing| standing.id() == row.id());
        let put = log.put(slot, row, self.mutant);
        let landed_at = log.rows.iter().find(|(_, standing)| standing.id() == row.id()).map(|(slot, _)| *slot);
        let segment = matches!(row, Row::Segment(_));
        let last_part = part_of(row).is_some_and(|part| part.index + 1 == part.of);
        let unfinished = |before: &Row| part_of(before).is_some_and(|part| part.index + 1 < part.of);
        let cut_off = !segment && slot > Slot(0) && log.rows.get(&Slot(slot.0 - 1)).is_some_and(unfinished);
        self.seen.stray_parts += u64::from(cut_off && put == Put::Stored && !had_landed);
        self.seen.segments_in_parts += u64::from(last_part && put == Put::Stored && !had_landed);
        match &put {
            Put::Stored if !had_landed => {
                self.seen.puts_landed_late += u64::from(given_up);
                self.seen.rows_raised_from_the_dead += u64::from(slot <= head);
                if segment && let Some(slot) = landed_at {
                    self.ledger.accepted(node, lane, slot, row, head);
                }
            }
            Put::Stored => {}
            Put::Occupied(meta) if segment => self.seen.refused_stale_writes += u64::from(meta.id != row.id()),
            Put::Occupied(_) => self.seen.anchor_conflicts += 1,
        }
        if segment && !given_up && self.doubted.remove(&row.id()) && put == Put::Stored {
            if had_landed {
                self.seen.unknown_puts_that_had_landed += 1;
            } else {
                self.seen.unknown_puts_that_had_not_landed += 1;
            }
        }
        self.ledger.store_changed(&self.store);
        put
    }

    pub(super) fn request(&mut self, node: usize, kind: Kind) {
        self.idle_reads = if matches!(kind, Kind::ReadMail(_)) && self.store.mail.is_empty() { self.idle_reads + 1 } else { 0 };
        if let Kind::Call(lane, Call::PutHead { .. }) = &kind
            && self.dice.chance(self.knobs.lagging_heads)
        {
            let event = Event::Log { lane: *lane, answer: Answer::HeadPut(Outcome::Unknown(fault())) };
            let not_before = self.step + self.dice.index(250);
            self.requests.push(Request { node, kind, not_before, given_up: true });
            return self.answer(node, event);
        }
        if let (Mutant::ParallelParts, Kind::Call(lane, Call::Put { row, .. })) = (self.mutant, &kind)
            && part_of(row).is_some_and(|part| part.index + 1 < part.of)
        {
            let event = Event::Log { lane: *lane, answer: Answer::Put(Outcome::Done(Put::Stored)) };
            let not_before = self.step + self.dice.index(30);
            self.requests.push(Request { node, kind, not_before, given_up: true });
            return self.answer(node, event);
        }
        let anchor = matches!(&kind, Kind::Call(_, Call::Put { row, .. }) if matches!(row.as_ref(), Row::Anchor(_)));
        let laggards = if anchor { self.knobs.lagging_anchors } else { self.knobs.laggards };
        let delay = if self.dice.chance(laggards) { self.dice.index(150) } else { self.dice.index(6) };
        self.requests.push(Request { node, kind, not_before: self.step + delay, given_up: false });
    }
}
