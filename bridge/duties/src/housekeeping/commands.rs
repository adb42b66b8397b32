//! The commands: what is overdue ends, what is older than its time is forgotten, and so are answers to nobody.

use super::Run;
use causeway_core::commands::gateway::Written;
use causeway_core::commands::{Adoption, Rules, Sweep};
use causeway_core::housekeeping::At;
use causeway_core::identity::Id128;
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::{Commands, DUE_SHARDS, Due};
use core::time::Duration;
use futures_util::future::join_all;
use std::sync::Arc;

/// Rows that are treated side by side.
const BATCH: usize = 25;

/// Commands, and what the workers' configuration says of them.
#[derive(Clone)]
pub struct KeptCommands {
    /// Where they are kept.
    pub store: Arc<dyn Commands>,
    /// What becomes of a command.
    pub rules: Rules,
    /// For how long after its time a command is kept.
    pub retention: Duration,
}

impl core::fmt::Debug for KeptCommands {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KeptCommands").field("rules", &self.rules).field("retention", &self.retention).finish_non_exhaustive()
    }
}

/// What was done about one row.
#[derive(Debug, Default)]
struct Done {
    timed_out: bool,
    deleted: bool,
    orphan: Option<Adoption>,
    conflict: bool,
    fault: Option<Fault>,
}

impl Run<'_> {
    /// All that is due, part by part, beginning where the run before stopped. Answers where it stopped, if it did.
    pub(super) async fn commands(&mut self, from: &str) -> Option<At> {
        let commands = self.ports.commands.clone()?;
        let (mut shard, mut after) = place(from);
        while shard < DUE_SHARDS {
            if !self.may_go_on() {
                return Some(At::Commands(place_text(shard, after.as_deref())));
            }
            let now = self.ports.clock.wall();
            let limit = usize::try_from(self.left).map_or(BATCH, |left| left.min(BATCH));
            let page = match commands.store.due(shard, now, after.as_deref(), limit).await {
                Ok(page) => page,
                Err(fault) => {
                    self.error("commands", &fault);
                    return None;
                }
            };
            let dry_run = self.request.dry_run;
            let done = join_all(page.rows.iter().map(|due| commands.treat(*due, now, dry_run))).await;
            for (due, done) in page.rows.iter().zip(done) {
                self.count(*due, &done);
            }
            after = page.next;
            if after.is_none() {
                shard += 1;
            }
        }
        None
    }

    fn count(&mut self, due: Due, done: &Done) {
        let swept = &mut self.report.swept;
        swept.commands_timed_out += u64::from(done.timed_out);
        swept.commands_deleted += u64::from(done.deleted);
        swept.command_orphans_adopted += u64::from(done.orphan == Some(Adoption::Adopted));
        swept.command_orphans_deleted += u64::from(done.orphan == Some(Adoption::Expired));
        swept.conflicts += u64::from(done.conflict);
        self.take(u64::from(done.timed_out || done.deleted || done.orphan.is_some()));
        if let Some(fault) = &done.fault {
            let (Due::Command(id) | Due::Orphan(id)) = due;
            self.error(format!("commands/{id}"), fault);
        }
    }
}

impl KeptCommands {
    async fn treat(&self, due: Due, now: UnixMillis, dry_run: bool) -> Done {
        let mut done = Done::default();
        let outcome = match due {
            Due::Command(id) => self.command(id, now, dry_run, &mut done).await,
            Due::Orphan(id) => self.orphan(id, dry_run, &mut done).await,
        };
        done.fault = outcome.err();
        done
    }

    /// What nobody looked at for long is overdue and older than its time at once: first it ends, then it is forgotten.
    async fn command(&self, id: Id128, now: UnixMillis, dry_run: bool, done: &mut Done) -> Result<(), Fault> {
        let Some(mut row) = self.store.standing(id).await? else { return Ok(()) };
        loop {
            match row.sweep(now, self.retention, &self.rules) {
                Sweep::Leave => return Ok(()),
                Sweep::Write(next) if dry_run => row = *next,
                Sweep::Write(next) => match self.store.write(&next, None).await {
                    Outcome::Done(Written::Stands(next)) => row = *next,
                    // Somebody answered it or took it back meanwhile: what stands there is due at another time.
                    Outcome::Done(Written::Refused(_)) => {
                        done.conflict = true;
                        return Ok(());
                    }
                    Outcome::NotDone(fault) | Outcome::Unknown(fault) => return Err(fault),
                },
                Sweep::Delete => {
                    let deleted = if dry_run { Outcome::Done(true) } else { self.store.delete(&row).await };
                    match deleted {
                        Outcome::Done(deleted) => (done.deleted, done.conflict) = (deleted, !deleted),
                        Outcome::NotDone(fault) | Outcome::Unknown(fault) => return Err(fault),
                    }
                    return Ok(());
                }
            }
            done.timed_out = true;
        }
    }

    /// One that is still given out came again after the index told of it.
    async fn orphan(&self, id: Id128, dry_run: bool, done: &mut Done) -> Result<(), Fault> {
        if self.store.orphan(id).await?.is_some() {
            return Ok(());
        }
        let adoption = Adoption::when_due(self.store.read(id).await?.is_some());
        if !dry_run {
            match self.store.delete_orphan(id).await {
                Outcome::Done(()) => {}
                Outcome::NotDone(fault) | Outcome::Unknown(fault) => return Err(fault),
            }
        }
        done.orphan = Some(adoption);
        Ok(())
    }
}

/// `<part>`, or `<part>/<where its page ended>`. What is no such place is the beginning.
fn place(text: &str) -> (u8, Option<String>) {
    let (shard, after) = text.split_once('/').map_or((text, None), |(shard, after)| (shard, Some(after.to_owned())));
    shard.parse().map_or((0, None), |shard| (shard, after))
}

fn place_text(shard: u8, after: Option<&str>) -> String {
    after.map_or_else(|| shard.to_string(), |after| format!("{shard}/{after}"))
}
