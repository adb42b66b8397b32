//! The logs: read all, then act on each.

use super::{Run, outbox_fault};
use crate::{Store, StoreFault};
use causeway_core::drain::retry::Jitter;
use causeway_core::housekeeping::{
    At, Collector, Judge, LEASE_TTL, Step, Survey, Sweep, SweepEnd, SweepOptions, claim, is_owned, kept_for, may_remove, release, upkeep,
    why_kept,
};
use causeway_core::identity::{Epoch, LaneId, LogName, Slot, lease_of, session_of};
use causeway_core::lease::holder::{Holder, Step as LeaseStep};
use causeway_core::lease::row::LeaseRow;
use causeway_core::lease::{Held, LeaseAnswer};
use causeway_core::log::{Answer, Call};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::{Instant, UnixMillis};
use causeway_ports::{Leases, LogRecord, LogState};
use core::time::Duration;
use futures_util::future::join_all;
use std::sync::Arc;

/// Rows that one delete call takes.
const DELETE_AT_ONCE: usize = 100;
/// Delete calls side by side.
const DELETES: usize = 4;
/// The ids of a lane's rows start so far behind those of the lane before.
const ROW_IDS_OF_A_LANE: u32 = 48;
/// What a sweep may still do after it was told to stop: its head, its deletes, its lease.
const TO_FINISH: Duration = Duration::from_secs(3);

/// A log as the survey found it.
struct Found {
    record: LogRecord,
    /// Its lanes that have rows.
    lanes: Vec<Lane>,
}

impl Found {
    /// The sum over its lanes.
    fn sum(&self, of: impl Fn(&Survey) -> u64) -> u64 {
        self.lanes.iter().map(|lane| of(&lane.survey)).sum()
    }
}

/// One lane of it.
struct Lane {
    id: LaneId,
    log: LogName,
    survey: Survey,
}

impl Run<'_> {
    /// All logs of the bridge, beginning with the one named `from`. Answers where it stopped, if it did.
    pub(super) async fn logs(&mut self, from: String) -> Result<Option<At>, StoreFault> {
        let bridge = self.bridge.routes.bridge().to_owned();
        let mut records = self.ports.outbox.list_logs().await.map_err(outbox_fault)?;
        records.retain(|record| record.log.bridge() == bridge);
        records.sort_by(|one, other| one.log.cmp(&other.log));
        let leases = self.leases().await?;
        let found = self.survey_all(&records, &leases).await;
        let depth = self.ports.chores.dead_letters(self.share(1, 3)).await;
        let now = self.ports.clock.wall();
        match depth {
            Ok(Some(depth)) => {
                self.report.gauges.dlq_depth = Some(depth.letters);
                self.report.gauges.dlq_oldest_age_s = Some(depth.oldest.map_or(0, |at| now.since(at).as_secs()));
            }
            Ok(None) => {}
            Err(fault) => return Err(StoreFault { store: Store::DeadLetters, fault }),
        }
        // Begun anew, every run begins with another log, so that one that takes all the time does not hide the others for ever.
        let mut order: Vec<Found> = found;
        if from.is_empty() && !order.is_empty() {
            let first = usize::try_from(now.0 / 60_000).unwrap_or_default() % order.len();
            order.rotate_left(first);
        } else {
            order.retain(|found| found.record.log.as_str() >= from.as_str());
        }
        for found in order {
            let name = found.record.log.to_string();
            if !self.may_go_on() {
                return Ok(Some(At::Log(name)));
            }
            match self.one(found).await {
                Ok(true) => {}
                Ok(false) => return Ok(Some(At::Log(name))),
                Err(fault) => self.error(name, &fault),
            }
        }
        Ok(None)
    }

    async fn leases(&self) -> Result<Vec<(String, LeaseRow)>, StoreFault> {
        let Some(leases) = &self.ports.leases else { return Ok(Vec::new()) };
        let rows = leases.list().await.map_err(|fault| StoreFault { store: Store::Leases, fault })?;
        Ok(rows.into_iter().filter_map(|(key, raw)| Some((key, LeaseRow::try_from(raw).ok()?))).collect())
    }

    /// Reads what waits in every log. The gauges are told only if all of it could be read in half the time.
    async fn survey_all(&mut self, records: &[LogRecord], leases: &[(String, LeaseRow)]) -> Vec<Found> {
        let until = self.share(1, 2);
        let (mut found, mut complete) = (Vec::new(), true);
        let (mut pending, mut oldest, mut without_owner) = (0_u64, None::<UnixMillis>, 0_u64);
        for record in records {
            let mut of_record = Found { record: record.clone(), lanes: Vec::new() };
            for (id, log) in (0..).map(LaneId).zip(record.of_lanes()) {
                match self.survey(&log, until).await {
                    Ok(Some((survey, whole))) => {
                        complete &= whole;
                        oldest = [oldest, survey.oldest].into_iter().flatten().min();
                        of_record.lanes.push(Lane { id, log, survey });
                    }
                    Ok(None) => {}
                    Err(fault) => {
                        complete = false;
                        self.error(log.as_str(), &fault);
                    }
                }
            }
            let waiting = of_record.sum(|survey| survey.pending);
            pending += waiting;
            let key = lease_of(&record.log);
            let owner = leases.iter().find(|(of, _)| *of == key).map(|(_, row)| row);
            if waiting > 0 && !is_owned(owner, self.ports.clock.wall()) {
                without_owner += 1;
            }
            found.push(of_record);
        }
        if complete {
            let now = self.ports.clock.wall();
            let gauges = &mut self.report.gauges;
            gauges.outbox_pending = Some(pending);
            gauges.outbox_oldest_age_s = Some(oldest.map_or(0, |at| now.since(at).as_secs()));
            gauges.logs_without_owner = Some(without_owner);
        }
        found
    }

    /// Reads what waits in one lane; `None` where there is no row. The flag tells whether all of it was read.
    async fn survey(&mut self, log: &LogName, until: Instant) -> Result<Option<(Survey, bool)>, Fault> {
        let (outbox, clock) = (&self.ports.outbox, &self.ports.clock);
        let Some(tail) = outbox.read_tail(log).await? else { return Ok(None) };
        let head = outbox.read_head(log).await?;
        let mut survey = Survey::new(tail, head, self.judge(log));
        while let Some((after, up_to)) = survey.poll(clock.now(), clock.wall()) {
            if clock.now() >= until {
                return Ok(Some((survey, false)));
            }
            let page = outbox.read_page(log, after, up_to).await?;
            survey.answer(clock.now(), page);
        }
        if let Some(fault) = survey.unreadable().cloned() {
            self.error(log.as_str(), &fault);
            return Ok(Some((survey, false)));
        }
        Ok(Some((survey, true)))
    }

    fn judge(&self, log: &LogName) -> Judge {
        Judge { session: session_of(log.partition()).0.to_owned(), routes: self.bridge.routes.clone() }
    }

    /// Acts on one log; answers whether it is done with it.
    async fn one(&mut self, found: Found) -> Result<bool, Fault> {
        for lane in &found.lanes {
            if !self.below_head(lane).await? {
                return Ok(false);
            }
        }
        if found.record.state == LogState::Retired {
            self.remove(&found).await?;
        } else if found.lanes.iter().any(|lane| lane.survey.has_work()) {
            return self.adopt(&found).await;
        }
        Ok(true)
    }

    /// Deletes garbage at or below the durable head. Needs no lease: nobody looks there.
    async fn below_head(&mut self, lane: &Lane) -> Result<bool, Fault> {
        let (log, drained, tail) = (&lane.log, lane.survey.drained(), lane.survey.tail());
        let mut collector = Collector::new(drained, tail, self.kept_for(log).await?);
        let mut after = Slot::HEAD;
        loop {
            if !self.may_go_on() {
                return Ok(after >= drained);
            }
            let page = self.ports.outbox.read_page(log, after, drained).await?;
            let rows = collector.collect(&page, self.ports.clock.wall());
            let budget = usize::try_from(self.left).unwrap_or(usize::MAX);
            let slots: Vec<Slot> = rows.segments.iter().chain(&rows.anchors).copied().take(budget).collect();
            let cut = slots.len() < rows.segments.len() + rows.anchors.len();
            if !self.request.dry_run {
                self.delete(log, &slots).await?;
            }
            self.take(slots.len() as u64);
            let segments = slots.len().min(rows.segments.len());
            self.report.swept.segments_deleted += segments as u64;
            self.report.swept.anchors_pruned += (slots.len() - segments) as u64;
            match page.next_after {
                _ if cut => return Ok(false),
                None => return Ok(true),
                // What is kept is not read in each run.
                Some(_) if collector.is_through() => return Ok(true),
                Some(next) => after = next,
            }
        }
    }

    /// For how long what is settled in this log is kept. The lease is read after the head was: what the head tells was settled before.
    async fn kept_for(&self, log: &LogName) -> Result<Duration, Fault> {
        let keep = self.bridge.keep_settled;
        let Some(leases) = self.ports.leases.as_ref().filter(|_| !keep.is_zero()) else { return Ok(keep) };
        // Without a row that can be believed, rows of the log alone tell.
        let row = leases.read(&lease_of(log)).await?.and_then(|raw| LeaseRow::try_from(raw).ok());
        Ok(row.map_or(keep, |row| kept_for(keep, &row, self.ports.clock.wall())))
    }

    async fn delete(&self, log: &LogName, slots: &[Slot]) -> Result<(), Fault> {
        for some in slots.chunks(DELETE_AT_ONCE * DELETES) {
            let calls = some.chunks(DELETE_AT_ONCE).map(|slots| self.ports.outbox.delete(log, slots));
            for outcome in join_all(calls).await {
                match outcome {
                    Outcome::Done(()) => {}
                    // Deleting garbage twice changes nothing: the next run finds what is left.
                    Outcome::NotDone(fault) | Outcome::Unknown(fault) => return Err(fault),
                }
            }
        }
        Ok(())
    }

    async fn remove(&mut self, found: &Found) -> Result<(), Fault> {
        for lane in &found.lanes {
            let tail = lane.survey.tail();
            let last = self.ports.outbox.read_page(&lane.log, Slot(tail.0.saturating_sub(1)), tail).await?;
            let may = |row| may_remove(row, lane.survey.pending, self.ports.clock.wall());
            if !last.rows.last().is_some_and(|(slot, row)| *slot == tail && may(row)) {
                return Ok(());
            }
        }
        // Where a lane could not be read, nothing is known of it; a log without any row has nothing that tells its age.
        if found.lanes.len() != found.record.lanes as usize {
            return Ok(());
        }
        if self.request.dry_run {
            self.report.swept.logs_removed += 1;
            return Ok(());
        }
        match self.ports.chores.remove_log(&found.record).await {
            Outcome::Done(true) => {
                self.take(1);
                self.report.swept.logs_removed += 1;
            }
            Outcome::Done(false) => self.report.swept.conflicts += 1,
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Takes the lease of a log that nobody wants, sweeps the log, and gives the lease back.
    async fn adopt(&mut self, found: &Found) -> Result<bool, Fault> {
        let Some(leases) = self.ports.leases.clone() else { return Ok(true) };
        let log = &found.record.log;
        let key = lease_of(log);
        let Some(raw) = leases.read(&key).await? else { return Ok(true) };
        // A row that cannot be believed tells nothing about who owns the log: it is for an operator.
        let Ok(row) = LeaseRow::try_from(raw) else { return Ok(true) };
        let session = session_of(log.partition()).0;
        let ttl = self.bridge.lease_ttl.get(session).copied().unwrap_or_default();
        let members = leases.list_members(self.bridge.routes.bridge()).await?;
        let members: Vec<UnixMillis> = members.iter().map(|member| member.written_at).collect();
        if why_kept(Some(&row), ttl, &members, self.ports.clock.wall()).is_some() {
            return Ok(true);
        }
        if self.request.dry_run {
            self.report.swept.expired_to_dlq += found.sum(|survey| survey.expired);
            self.report.swept.orphans_to_dlq += found.sum(|survey| survey.orphaned);
            return Ok(true);
        }
        let began = self.ports.clock.now();
        let nonce = u64::try_from(self.bridge.random >> 64).unwrap_or_default();
        let write = claim(&row, nonce, self.ports.clock.wall());
        let held = match leases.write(&key, &write).await {
            Outcome::Done(LeaseAnswer::Written) => Held { row: write.row, deadline: began.plus(LEASE_TTL) },
            Outcome::Done(LeaseAnswer::Refused(_)) => {
                self.report.swept.conflicts += 1;
                return Ok(true);
            }
            // If it took effect, it ends by itself, and any worker takes it at once.
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => return Err(fault),
        };
        let mut holder = Holder::new(upkeep(), held, self.ports.clock.now(), Jitter::new(nonce));
        let swept = self.sweep_lanes(found, &*leases, &key, &mut holder).await;
        // Not held any more, or given up at its end: either way nobody waits for the answer.
        drop(leases.write(&key, &release(holder.row())).await);
        swept
    }

    /// All lanes under one lease: it is young once it was given back, and a young one is left alone.
    async fn sweep_lanes(&mut self, found: &Found, leases: &dyn Leases, key: &str, holder: &mut Holder) -> Result<bool, Fault> {
        for lane in found.lanes.iter().filter(|lane| lane.survey.has_work()) {
            if !self.may_go_on() || !self.sweep(lane, leases, key, holder).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn sweep(&mut self, lane: &Lane, leases: &dyn Leases, key: &str, holder: &mut Holder) -> Result<bool, Fault> {
        let log = &lane.log;
        let clock = Arc::clone(&self.ports.clock);
        let mut sweep = Sweep::new(SweepOptions {
            owner: holder.row().tuple.owner.clone(),
            epoch: Epoch(holder.version()),
            row_id_base: self.row_ids(holder.version(), lane.id),
            judge: self.judge(log),
            max_entries: self.left,
            keeps_settled: !self.bridge.keep_settled.is_zero(),
        });
        let stop_at = self.deadline;
        let end = loop {
            if !keep(leases, key, holder, &*clock).await {
                break SweepEnd::Fenced;
            }
            if clock.now() >= stop_at {
                sweep.stop();
            }
            if clock.now() >= stop_at.plus(TO_FINISH) {
                break SweepEnd::Stopped;
            }
            match sweep.poll(clock.now(), clock.wall()) {
                Step::Call(call) => {
                    let answer = self.call(log, &call).await;
                    sweep.answer(clock.now(), answer);
                }
                Step::Park(letters) => {
                    let parks = letters.iter().map(|(_, letter)| self.ports.letters.park(letter));
                    sweep.parked(join_all(parks).await);
                }
                Step::Wait(until) => {
                    tokio::time::sleep(until.since(clock.now()).clamp(Duration::from_millis(5), Duration::from_secs(1))).await
                }
                Step::Finished(end) => break end,
            }
        };
        self.report.swept.expired_to_dlq += sweep.expired;
        self.report.swept.orphans_to_dlq += sweep.orphaned;
        self.report.swept.segments_deleted += sweep.deleted;
        self.take(sweep.expired + sweep.orphaned);
        match end {
            SweepEnd::Complete => Ok(true),
            SweepEnd::Stopped => Ok(false),
            SweepEnd::Fenced => {
                self.report.swept.conflicts += 1;
                Ok(true)
            }
            SweepEnd::Failed(fault) => Err(fault),
        }
    }

    /// Where the ids of a sweep's rows begin: apart from those of every other sweep of this run.
    fn row_ids(&self, version: u64, lane: LaneId) -> u128 {
        self.bridge.random.wrapping_add(u128::from(version)).wrapping_add(u128::from(lane.0) << ROW_IDS_OF_A_LANE)
    }

    async fn call(&self, log: &LogName, call: &Call) -> Answer {
        let outbox = &self.ports.outbox;
        match call {
            Call::ReadTail => Answer::Tail(outbox.read_tail(log).await),
            Call::ReadHead => Answer::Head(outbox.read_head(log).await),
            // A sweep leaves the record and the mail to owners.
            Call::ReadRecord => Answer::Record(Err(not_of_a_sweep())),
            Call::Register { .. } => Answer::Registered(Outcome::NotDone(not_of_a_sweep())),
            Call::MoveMail { .. } => Answer::Moved(Outcome::NotDone(not_of_a_sweep())),
            Call::Put { slot, row } => Answer::Put(outbox.put(log, *slot, row).await),
            Call::ReadPage { purpose, after, up_to } => {
                Answer::Page { purpose: *purpose, page: outbox.read_page(log, *after, *up_to).await }
            }
            Call::PutHead { head } => Answer::HeadPut(outbox.put_head(log, head).await),
            Call::Delete { slots } => Answer::Deleted(outbox.delete(log, slots).await),
        }
    }
}

/// Renews the lease where that is due; answers whether it is held. Nothing begins without it.
async fn keep(leases: &dyn Leases, key: &str, holder: &mut Holder, clock: &dyn causeway_ports::Clock) -> bool {
    loop {
        match holder.poll(clock.now(), clock.wall()) {
            LeaseStep::Until(_) => return holder.may_act(clock.now()),
            LeaseStep::Renew(write) => {
                let outcome = leases.write(key, &write).await;
                if holder.renewed(clock.now(), outcome).is_some() {
                    return false;
                }
            }
            LeaseStep::Read => {
                let answer = leases.read(key).await;
                if holder.read(clock.now(), answer).is_some() {
                    return false;
                }
            }
            LeaseStep::StepDown(_) => return false,
        }
    }
}

fn not_of_a_sweep() -> Fault {
    Fault::new(FaultCode::ProtocolError, "a sweep neither writes the registry nor moves mail")
}
