//! Commands in this process's memory: for tests and demonstrations.

use super::{locked, wall};
use async_trait::async_trait;
use causeway_core::commands::gateway::{Created, Written};
use causeway_core::commands::{Adoption, Command, CommandResult, Orphan};
use causeway_core::identity::Id128;
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::source_id::ContentDigest;
use causeway_core::units::UnixMillis;
use causeway_ports::{Commands, DUE_SHARDS, Due, OrphanAnswer};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Commands in memory.
#[derive(Debug)]
pub struct MemoryCommands {
    retention: Duration,
    orphans_kept: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<Id128, Row>,
    names: BTreeMap<String, Id128>,
    orphans: BTreeMap<Id128, OrphanAnswer>,
}

#[derive(Debug)]
struct Row {
    command: Command,
    digest: ContentDigest,
    name: Option<String>,
    result: Option<CommandResult>,
}

impl MemoryCommands {
    /// No commands yet. Those that end are kept for `retention` after their time, and answers to nobody for `orphans_kept`.
    #[must_use]
    pub fn new(retention: Duration, orphans_kept: Duration) -> Self {
        Self { retention, orphans_kept, state: Mutex::default() }
    }

    fn is_kept(&self, command: &Command, now: UnixMillis) -> bool {
        now < command.forget_at(self.retention)
    }
}

fn shard_of(id: Id128) -> u8 {
    u8::try_from(id.0 % u128::from(DUE_SHARDS)).unwrap_or_default()
}

#[async_trait]
impl Commands for MemoryCommands {
    async fn create(&self, command: &Command, key: Option<&str>, digest: &ContentDigest) -> Outcome<Created> {
        let (mut state, now) = (locked(&self.state), wall());
        let named = key.and_then(|name| state.names.get(name)).copied();
        for id in [Some(command.id), named].into_iter().flatten() {
            if let Some(row) = state.rows.get(&id).filter(|row| self.is_kept(&row.command, now)) {
                return Outcome::Done(Created::Before { command: Box::new(row.command.clone()), digest: row.digest });
            }
        }
        let name = key.map(str::to_owned);
        if let Some(name) = &name {
            state.names.insert(name.clone(), command.id);
        }
        state.rows.insert(command.id, Row { command: command.clone(), digest: *digest, name, result: None });
        Outcome::Done(Created::New(Box::new(command.clone())))
    }

    async fn read(&self, id: Id128) -> Result<Option<Command>, Fault> {
        let (state, now) = (locked(&self.state), wall());
        Ok(state.rows.get(&id).map(|row| row.command.clone()).filter(|command| self.is_kept(command, now)))
    }

    async fn write(&self, command: &Command, result: Option<&CommandResult>) -> Outcome<Written> {
        let mut state = locked(&self.state);
        let Some(row) = state.rows.get_mut(&command.id) else { return Outcome::Done(Written::Refused(None)) };
        if row.command.version + 1 != command.version {
            return Outcome::Done(Written::Refused(Some(Box::new(row.command.clone()))));
        }
        row.command = command.clone();
        if let Some(result) = result {
            row.result = Some(result.clone());
        }
        Outcome::Done(Written::Stands(Box::new(command.clone())))
    }

    async fn result(&self, id: Id128) -> Result<Option<CommandResult>, Fault> {
        Ok(locked(&self.state).rows.get(&id).and_then(|row| row.result.clone()))
    }

    async fn keep_orphan(&self, orphan: &OrphanAnswer) -> Outcome<()> {
        locked(&self.state).orphans.insert(orphan.id, orphan.clone());
        Outcome::Done(())
    }

    async fn orphan(&self, id: Id128) -> Result<Option<OrphanAnswer>, Fault> {
        let now = wall();
        let is_kept = |orphan: &OrphanAnswer| Orphan { came_at: orphan.came_at }.at(now, self.orphans_kept) == Adoption::Adopted;
        Ok(locked(&self.state).orphans.get(&id).filter(|orphan| is_kept(orphan)).cloned())
    }

    async fn due(&self, shard: u8, until: UnixMillis, limit: usize) -> Result<Vec<Due>, Fault> {
        let state = locked(&self.state);
        let commands = state.rows.values().map(|row| (row.command.due_at(self.retention), Due::Command(row.command.id), row.command.id));
        let orphans = state.orphans.values().map(|orphan| (orphan.came_at.plus(self.orphans_kept), Due::Orphan(orphan.id), orphan.id));
        let mut due: Vec<_> = commands.chain(orphans).filter(|(at, _, id)| *at <= until && shard_of(*id) == shard).collect();
        due.sort_unstable_by_key(|(at, ..)| *at);
        due.truncate(limit);
        Ok(due.into_iter().map(|(_, due, _)| due).collect())
    }

    async fn delete(&self, command: &Command) -> Outcome<bool> {
        let mut state = locked(&self.state);
        if state.rows.get(&command.id).is_none_or(|row| row.command.version != command.version) {
            return Outcome::Done(false);
        }
        let name = state.rows.remove(&command.id).and_then(|row| row.name);
        if let Some(name) = name.filter(|name| state.names.get(name) == Some(&command.id)) {
            state.names.remove(&name);
        }
        Outcome::Done(true)
    }

    async fn delete_orphan(&self, id: Id128) -> Outcome<()> {
        locked(&self.state).orphans.remove(&id);
        Outcome::Done(())
    }

    async fn probe(&self) -> Result<(), Fault> {
        Ok(())
    }

    async fn create_tables(&self) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_ports::conformance::commands::{ORPHANS, RETENTION};
    use std::sync::Arc;

    async fn fresh() -> (Arc<dyn Commands>, ()) {
        (Arc::new(MemoryCommands::new(RETENTION, ORPHANS)), ())
    }

    causeway_ports::commands_conformance!(fresh);
}
