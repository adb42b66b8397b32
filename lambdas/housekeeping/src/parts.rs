//! What the function is made of.

use crate::chores::TableChores;
use crate::handler;
use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use causeway_aws::{DynamoCommands, DynamoDeadLetters, DynamoLeases, DynamoOutbox};
use causeway_core::commands::Rules;
use causeway_core::config::Config;
use causeway_core::redrive::Routes;
use causeway_core::timing::Nanos;
use causeway_duties::housekeeping::{KeptCommands, Ports};
use causeway_lambda::{Emitter, Environment, Function, FunctionError, Invocation};
use causeway_ports::SystemClock;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The variables of the tables that it uses.
const TABLES: [&str; 5] =
    ["CAUSEWAY_LEASES_TABLE", "CAUSEWAY_OUTBOX_TABLE", "CAUSEWAY_DLQ_TABLE", "CAUSEWAY_COMMANDS_TABLE", "CAUSEWAY_LEDGER_TABLE"];

/// Everything that an invocation needs.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The bridge's routes.
    pub routes: Routes,
    /// How long each session's lease holds.
    pub lease_ttl: BTreeMap<String, Duration>,
    /// For how long the workers keep settled segments.
    pub keep_settled: Duration,
    /// What is called.
    pub ports: Ports,
    /// Where metrics go.
    pub metrics: Emitter,
}

#[async_trait]
impl Function for Parts {
    /// Reads the environment and makes clients. Nothing is asked of a table yet.
    async fn connect() -> Result<Self, FunctionError> {
        let environment = Environment::load(&TABLES).await?;
        let client = || environment.dynamodb();
        let ports = Ports {
            outbox: Arc::new(DynamoOutbox::new(client()?, environment.table("CAUSEWAY_OUTBOX_TABLE"))),
            leases: Some(Arc::new(DynamoLeases::new(client()?, environment.table("CAUSEWAY_LEASES_TABLE")))),
            letters: Arc::new(
                DynamoDeadLetters::new(client()?, environment.table("CAUSEWAY_DLQ_TABLE")).with_retention(retention(&environment)),
            ),
            commands: Some(commands(client()?, &environment)),
            chores: Arc::new(TableChores {
                client: client()?,
                outbox: environment.table("CAUSEWAY_OUTBOX_TABLE").to_owned(),
                dlq: environment.table("CAUSEWAY_DLQ_TABLE").to_owned(),
                ledger: environment.table("CAUSEWAY_LEDGER_TABLE").to_owned(),
            }),
            clock: Arc::new(SystemClock),
        };
        let metrics = Emitter::new(&environment.bridge_id, "housekeeping");
        let lease_ttl = environment.config.as_ref().map(lease_ttl).unwrap_or_default();
        let outbox = environment.config.as_ref().and_then(|config| config.stores.outbox.as_ref());
        let keep_settled = outbox.map(|outbox| outbox.options.keep_settled()).unwrap_or_default();
        Ok(Self { routes: environment.routes()?, lease_ttl, keep_settled, ports, metrics })
    }

    async fn handle(&self, event: &Value, invocation: &Invocation) -> Result<Value, FunctionError> {
        handler::handle(event, invocation, self).await
    }
}

/// The commands, by what the workers' configuration says of them. Without one, and while `commands` is off, what was taken before is tidied by what a configuration says
/// that says nothing.
fn commands(client: Client, environment: &Environment) -> KeptCommands {
    let said = environment.config.as_ref().map(|config| config.commands.clone()).unwrap_or_default();
    let retention = said.retention.get();
    let table = environment.table("CAUSEWAY_COMMANDS_TABLE");
    let store = DynamoCommands::new(client, table, retention, said.orphan_ttl.get(), Arc::new(SystemClock));
    let rules = Rules { late_window: said.late_result_window.get(), no_subscriber_fails: said.fail_without_subscriber };
    KeptCommands { store: Arc::new(store), rules, retention }
}

/// How long dead letters are kept, as the workers' configuration says.
fn retention(environment: &Environment) -> Option<Duration> {
    environment.config.as_ref()?.stores.dlq.as_ref()?.options.retention.map(causeway_core::config::Span::get)
}

fn lease_ttl(config: &Config) -> BTreeMap<String, Duration> {
    let span = |nanos: Nanos| Duration::from_nanos(nanos.unsigned_abs());
    let of = |session| config.session_timing(session).ok().map(|timing| span(timing.cadence.lease_ttl));
    config.sessions.iter().filter_map(|session| Some((session.id.to_string(), of(session)?))).collect()
}
