//! Commands in this process's memory: for tests and demonstrations.

use super::{locked, wall};
use async_trait::async_trait;
use causeway_core::commands::gateway::{Created, Written};
use causeway_core::commands::{Adoption, Command, CommandResult, Orphan};
use causeway_core::identity::Id128;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::source_id::ContentDigest;
use causeway_core::units::UnixMillis;
use causeway_ports::{Commands, DUE_SHARDS, Due, DuePage, OrphanAnswer};
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

fn shard_of(due: Due) -> u8 {
    let (Due::Command(id) | Due::Orphan(id)) = due;
    u8::try_from(id.0 % u128::from(DUE_SHARDS)).unwrap_or_default()
}

/// Where a page ended: `<due at>/command/<id>` or `<due at>/orphan/<id>`.
fn place_text((at, due): (UnixMillis, Due)) -> String {
    match due {
        Due::Command(id) => format!("{}/command/{id}", at.0),
        Due::Orphan(id) => format!("{}/orphan/{id}", at.0),
    }
}

fn place(text: &str) -> Result<(UnixMillis, Due), Fault> {
    let mut parts = text.splitn(3, '/');
    let at = parts.next().and_then(|at| at.parse().ok()).map(UnixMillis);
    let due = match (parts.next(), parts.next().and_then(|id| id.parse().ok())) {
        (Some("command"), Some(id)) => Some(Due::Command(id)),
        (Some("orphan"), Some(id)) => Some(Due::Orphan(id)),
        _ => None,
    };
    at.zip(due).ok_or_else(|| Fault::new(FaultCode::ProtocolError, "this is not where a page ended"))
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

    async fn standing(&self, id: Id128) -> Result<Option<Command>, Fault> {
        Ok(locked(&self.state).rows.get(&id).map(|row| row.command.clone()))
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

    async fn due(&self, shard: u8, until: UnixMillis, after: Option<&str>, limit: usize) -> Result<DuePage, Fault> {
        let after = after.map(place).transpose()?;
        let state = locked(&self.state);
        let commands = state.rows.values().map(|row| (row.command.due_at(self.retention), Due::Command(row.command.id)));
        let orphans = state.orphans.values().map(|orphan| (orphan.came_at.plus(self.orphans_kept), Due::Orphan(orphan.id)));
        let is_wanted = |due: &(UnixMillis, Due)| due.0 <= until && shard_of(due.1) == shard && after.is_none_or(|after| *due > after);
        let mut due: Vec<_> = commands.chain(orphans).filter(is_wanted).collect();
        due.sort_unstable();
        let next = if due.len() > limit { limit.checked_sub(1).map(|last| place_text(due[last])) } else { None };
        due.truncate(limit);
        Ok(DuePage { rows: due.into_iter().map(|(_, due)| due).collect(), next })
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
