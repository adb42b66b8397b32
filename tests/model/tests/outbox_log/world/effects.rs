//! What the owners do, and what they learn.

use super::{Kind, World, key_of, message_number, route_number, topic_number};
use crate::check::Known;
use crate::knobs::TOPICS;
use crate::mutant::Mutant;
use causeway_core::identity::{DeliveryId, Id128, LaneId, Slot};
use causeway_core::log::{Answer, Call, PagePurpose, Put};
use causeway_core::outcome::Outcome;
use causeway_core::rows::{Row, Segment, part, unpack};
use causeway_core::units::UnixMillis;
use causeway_core::worker::{Effect, End, Event, Observation};
use std::collections::BTreeSet;

impl World {
    pub(super) fn event(&mut self, node: usize, event: Event) {
        self.remember(node, &event);
        let wall = self.wall();
        if self.tracing {
            self.mix(&format!("{node} {event:?}"));
        }
        let to = &mut self.nodes[node];
        let was_finished = to.finished;
        let effects = to.owner.apply(self.now, wall, event);
        let status = to.owner.status(wall);
        let bound = to.memory_bound;
        if self.tracing {
            self.mix(&format!("{effects:?}"));
        }
        self.ledger.ensure(!was_finished || effects.is_empty(), || format!("n{node} did something after its end: {effects:?}"));
        for (route, status) in status.legs.iter().enumerate() {
            self.ledger.ensure(status.imbalance() == 0, || format!("n{node}, route {route}: unbalanced: {status:?}"));
        }
        self.ledger.memory(status.in_memory, bound, status.lanes.len());
        self.nodes[node].epoch = status.epoch;
        for effect in effects {
            let after = self.nodes[node].finished;
            self.ledger.ensure(!after, || format!("n{node}: an effect follows the end: {effect:?}"));
            self.carry_out(node, effect);
        }
    }

    pub(super) fn mix(&mut self, text: &str) {
        for byte in text.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    /// What the node learns now: for lies, and for rules that need to know what it settled.
    pub(super) fn remember(&mut self, node: usize, event: &Event) {
        if let Event::Log { lane, answer } = event {
            let told = self.nodes[node].told.entry(*lane).or_default();
            match answer {
                Answer::Tail(Ok(tail)) => told.drained = tail.map_or(Slot(0), |meta| meta.drained),
                Answer::Put(Outcome::Done(Put::Occupied(meta))) => {
                    told.conflict = Some(*meta);
                    told.own_anchor = None;
                }
                Answer::Put(Outcome::Done(Put::Stored)) => self.send_early(node, *lane),
                _ => {}
            }
        }
        let of = &mut self.nodes[node];
        match event {
            Event::Sent { batch, outcomes } => {
                let entries = of.batches.remove(batch).unwrap_or_default();
                let done = entries.into_iter().zip(outcomes).filter(|(_, outcome)| matches!(outcome, Outcome::Done(())));
                of.settled.extend(done.map(|(entry, _)| entry));
            }
            Event::Parked { park, outcome: Outcome::Done(()) } => of.settled.extend(of.parks.remove(park)),
            _ => return,
        }
        let contents = &self.ledger.contents;
        let entries_of = &|row: Id128| contents.get(&row).map(|known| known.iter().map(|known| known.id).collect()).unwrap_or_default();
        let mut changed = false;
        for log in self.store.logs.values_mut() {
            changed |= self.mutant.settled(log, &of.settled, entries_of);
        }
        if changed {
            self.ledger.store_changed(&self.store);
        }
    }

    /// Where new segments are not held back behind what is being recovered.
    pub(super) fn send_early(&mut self, node: usize, lane: LaneId) {
        let of = &self.nodes[node];
        if self.mutant != Mutant::MemoryFirst || of.recovered || !of.opened {
            return;
        }
        let Some(row) = of.told.get(&lane).and_then(|told| told.last_put) else { return };
        for known in self.ledger.contents.get(&row.id).cloned().unwrap_or_default() {
            self.ledger.sends(known.id, known.key.0 % TOPICS, known.key.1);
        }
    }

    pub(super) fn carry_out(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Log { lane, call } => self.issue(node, lane, call),
            Effect::ReadMail { limit } => self.request(node, Kind::ReadMail(limit)),
            Effect::Acknowledge(delivery) => self.acknowledged(node, delivery),
            Effect::Send { batch, entries, .. } => {
                for entry in &entries {
                    let again = self.ledger.sends(entry.id, topic_number(entry), route_number(entry));
                    self.seen.repeated_sends += u64::from(again);
                }
                self.nodes[node].batches.insert(batch, entries.iter().map(|entry| entry.id).collect());
                self.request(node, Kind::Send(batch, entries));
            }
            Effect::Park { park, letter } => {
                self.nodes[node].parks.insert(park, letter.id);
                self.request(node, Kind::Park(park, letter.id));
            }
            Effect::Reconnect => panic!("nothing is held for long in this model"),
            Effect::CloseSource => {
                self.nodes[node].source_open = false;
                self.give_back(node);
            }
            Effect::Observe(Observation::Opened { .. }) => {
                let lanes = self.nodes[node].owner.status(UnixMillis(0)).lanes;
                self.seen.several_lanes += u64::from(lanes.len() > 1);
                self.nodes[node].anchors = (0..).map(LaneId).zip(lanes.iter().map(|lane| lane.tail)).collect();
                self.nodes[node].opened = true;
                self.nodes[node].source_open = true;
            }
            Effect::Observe(Observation::Recovered { entries }) => {
                self.nodes[node].recovered = true;
                self.seen.takeovers += u64::from(entries > 0);
            }
            Effect::Observe(_) | Effect::Quota(_) => {}
            Effect::Finished(end) => {
                self.nodes[node].finished = true;
                match end {
                    End::Stopped { .. } => self.seen.stops += 1,
                    End::Retired => self.closed_for_good(node),
                    End::Ended(_) => self.seen.fenced_owners += 1,
                    End::Unreadable(fault) => self.ledger.violated(|| format!("n{node} cannot read the log: {fault}")),
                }
                self.start_if_none();
            }
        }
    }

    /// A log is closed for good by an owner that nobody had replaced by then: nothing is left in any lane.
    pub(super) fn closed_for_good(&mut self, node: usize) {
        self.seen.retired += 1;
        let held = self.store.record.is_some_and(|record| record.epoch == self.nodes[node].epoch);
        if held && self.mutant == Mutant::None {
            for (lane, log) in self.store.registered() {
                let (head, tail) = (log.effective_head(), log.tail());
                self.ledger.ensure(head.next() >= tail, || format!("lane {lane} is closed, its head stands at {head}, its tail at {tail}"));
            }
        }
    }

    pub(super) fn issue(&mut self, node: usize, lane: LaneId, call: Call) {
        match &call {
            Call::Put { slot, row } | Call::MoveMail { slot, row, .. } => self.put_leaves(node, lane, *slot, row),
            // Where the world itself deletes what it must not, only the consequences count.
            Call::Delete { slots } if self.mutant == Mutant::None => {
                let log = self.store.log(lane).clone();
                slots.iter().for_each(|slot| self.ledger.deletes(lane, &log, *slot));
            }
            Call::ReadPage { purpose: PagePurpose::Load, after, .. } => {
                let own = self.nodes[node].anchors.get(&lane).is_some_and(|anchor| after >= anchor);
                self.seen.read_backs += u64::from(own);
            }
            Call::ReadTail => {
                let lie = self.mutant.tail_lie(self.nodes[node].told.entry(lane).or_default());
                if let Some(meta) = lie {
                    return self.answer(node, Event::Log { lane, answer: Answer::Tail(Ok(Some(meta))) });
                }
            }
            Call::ReadRecord
            | Call::Register { .. }
            | Call::ReadPage { .. }
            | Call::ReadHead
            | Call::PutHead { .. }
            | Call::Delete { .. } => {}
        }
        self.request(node, Kind::Call(lane, call));
    }

    pub(super) fn put_leaves(&mut self, node: usize, lane: LaneId, slot: Slot, row: &Row) {
        let told = self.nodes[node].told.entry(lane).or_default();
        let again = told.last_put.replace(row.meta(slot)).is_some_and(|last| last.id == row.id());
        let Row::Segment(segment) = row else {
            told.own_anchor = Some(row.meta(slot));
            return;
        };
        let whole = match part(segment).unwrap() {
            None => segment.clone(),
            Some(_) if again => return,
            Some((part, piece)) => match self.nodes[node].leaving.entry(lane).or_default().add(slot, segment, part, piece).whole {
                Some(whole) => Segment { segment_id: part.group, ..whole.segment },
                None => return,
            },
        };
        if self.ledger.contents.contains_key(&whole.segment_id) {
            return;
        }
        let entries = unpack(&whole).unwrap();
        let known = entries.iter().map(|entry| Known { id: entry.id, key: key_of(entry) }).collect();
        self.ledger.contents.insert(whole.segment_id, known);
        if self.mutant == Mutant::AckBeforeStored {
            let numbers: BTreeSet<u64> = entries.iter().map(|entry| message_number(&entry.message)).collect();
            let outstanding = &mut self.nodes[node].outstanding;
            for (_, number, receiver) in outstanding.iter().filter(|(_, number, _)| numbers.contains(number)) {
                self.ledger.acknowledge(*number, receiver);
            }
            outstanding.retain(|(_, number, _)| !numbers.contains(number));
        }
    }

    pub(super) fn acknowledged(&mut self, node: usize, delivery: DeliveryId) {
        let from = &mut self.nodes[node];
        let ascends = from.last_ack.is_none_or(|last| last < delivery);
        from.last_ack = Some(delivery);
        // An acknowledgement never crosses to another connection, and a source that was closed at the deadline of a stop takes none.
        if from.source_open && delivery.connection == from.connection {
            while let Some((_, message, receiver)) = from.outstanding.pop_front_if(|(ordinal, _, _)| *ordinal <= delivery.ordinal) {
                self.ledger.acknowledge(message, receiver);
            }
        }
        self.ledger.ensure(ascends, || format!("n{node}: acknowledgements descend to {delivery:?}"));
        self.ledger.nothing_lost(&self.store);
    }
}
