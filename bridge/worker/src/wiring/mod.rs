//! From the configuration to running parts: the only place that names adapters.

mod capped;
mod commands;
mod desk;
mod lease;
mod owner;
mod posts;
mod process;
mod receivers;
mod secrets;
mod senders;
mod sessions;
mod source;
mod stores;
mod subscriptions;
mod tasks;

pub use commands::{CommandsPlan, gateway as command_gateway};
pub use desk::{desk, fleet};
pub use lease::LeasePlan;
pub use owner::{LegPlan, OwnerPlan, SourcePlan};
pub use posts::{PostPlan, board as post_board};
pub use process::{AdminPlan, ProcessPlan, tls_files};
pub use receivers::{probe as probe_receiver, queue_options};
pub use secrets::{keep as keep_secrets, token as secret_token};
pub use senders::{SenderPlan, SenderWay, sinks};
pub use source::{MqttPlan, source_options};
pub use stores::{LettersPlan, Purpose, StorePart, StoreSet, StoresPlan};
pub use subscriptions::{SubscriptionPlan, storage_identity};
pub use tasks::tasks;

use crate::adoption::{Adoptable, Adoption};
use crate::hints::HintBoard;
use crate::parts::{LogKind, SessionParts};
use crate::secrets::SecretBoard;
use crate::status::StatusBoard;
use crate::step_down::StepDowns;
use crate::telemetry::Metrics;
use causeway_aws::{AwsClients, AwsOptions};
use causeway_core::adoption::Adopter;
use causeway_core::config::model::{Receiver, SessionMode};
use causeway_core::config::{Config, Secret, SecretPlace, StoreBackend};
use causeway_core::lease::row::OwnerFacts;
use causeway_core::outcome::Fault;
use causeway_ports::{Clock, Sink, Tasks};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A part that cannot be built: the configuration is unusable as it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{part}: {code}: {detail}")]
pub struct WiringError {
    /// The part, by its place in the configuration, such as `stores.outbox`.
    pub part: String,
    /// A stable code.
    pub code: &'static str,
    /// What is wrong and what to do.
    pub detail: String,
}

impl WiringError {
    /// An error of `part`.
    pub fn new(part: impl Into<String>, code: &'static str, detail: impl Into<String>) -> Self {
        Self { part: part.into(), code, detail: detail.into() }
    }

    /// What a fault means for `part`.
    pub fn of(part: impl Into<String>, fault: &Fault) -> Self {
        Self::new(part, fault.code.as_str(), fault.detail.clone())
    }
}

/// Whether anything in the configuration is reached through AWS.
#[must_use]
pub fn needs_aws(config: &Config) -> bool {
    let in_dynamodb = |backend: Option<StoreBackend>| matches!(backend, Some(StoreBackend::Dynamodb { .. }));
    in_dynamodb(config.stores.outbox_backend())
        || in_dynamodb(config.stores.dlq_backend())
        || in_dynamodb(config.stores.lease_backend())
        || in_dynamodb(config.stores.subscription_backend())
        || in_dynamodb(config.stores.ledger_backend())
        || in_dynamodb(config.stores.command_backend())
        || config.senders.iter().any(|sender| sender.sqs().is_some())
        || config.receivers.iter().any(Receiver::is_queue)
        || config.secret_places().iter().any(SecretPlace::is_in_aws)
}

/// AWS clients, where anything needs them.
pub async fn aws(config: &Config) -> Option<AwsClients> {
    let profiles = config.receivers.iter().filter_map(|receiver| receiver.options.profile.clone()).collect();
    if needs_aws(config) { Some(AwsClients::load(&AwsOptions { profiles, ..AwsOptions::default() }).await) } else { None }
}

/// What every session of the process shares.
#[derive(Clone)]
pub struct Shared {
    /// This process's name.
    pub instance_id: String,
    /// This process as an owner: its name and a number that no other process has, `instance_id#<boot nonce>`.
    pub owner: String,
    /// That number.
    pub nonce: u64,
    /// Whether it takes over only after the others had their chance (the control role).
    pub looks_late: bool,
    /// What leases and the member's row tell of it.
    pub facts: OwnerFacts,
    /// Who runs the tasks of owners, where that is to be asked and can be.
    pub tasks: Option<Arc<dyn Tasks>>,
    /// Where hints for its sessions come in.
    pub hints: HintBoard,
    /// Where operators ask its sessions to hand over.
    pub step_downs: StepDowns,
    /// Where operators tell that they have seen the notice of a spent budget.
    pub quota_seen: watch::Sender<u64>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Where observations go.
    pub metrics: Metrics,
    /// Where the status is published.
    pub status: StatusBoard,
    /// What the configuration names and does not hold.
    pub secrets: SecretBoard,
    /// Ends everything.
    pub stop: CancellationToken,
}

/// Everything that the program is built from. It is the whole of what the configuration does: besides what [`topology`] shows, and what `check` and
/// `budget` say, nothing else of it is used.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The process itself.
    pub process: ProcessPlan,
    /// The stores.
    pub stores: StoresPlan,
    /// The destinations, in the order of the configuration.
    pub senders: Vec<SenderPlan>,
    /// The owner loops, in the order of the configuration.
    pub owners: Vec<OwnerPlan>,
    /// The gateway of commands, if commands are taken.
    pub commands: Option<CommandsPlan>,
}

impl Plan {
    /// What `config` says; `nonce` is a number that no other process has.
    ///
    /// # Errors
    /// Everything that cannot be had.
    pub fn of(config: &Config, nonce: u64) -> Result<Self, Vec<WiringError>> {
        Ok(Self {
            process: ProcessPlan::of(config),
            stores: StoresPlan::of(config),
            senders: senders::plan(config)?,
            owners: owner::plan(config, nonce)?,
            commands: CommandsPlan::of(config).map_err(|error| vec![error])?,
        })
    }
}

/// The owner loops' parts, one for each session, queue and receiver of posts that feeds a route, in the order of the configuration. Each is published as not open yet.
///
/// # Errors
/// Every part that cannot be built.
pub fn sessions(
    config: &Config,
    stores: &StoreSet,
    sinks: &[(String, Arc<dyn Sink>)],
    aws: Option<&AwsClients>,
    shared: &Shared,
) -> Result<Vec<SessionParts>, Vec<WiringError>> {
    let (mut built, mut errors) = (Vec::new(), Vec::new());
    for plan in owner::plan(config, shared.nonce)? {
        match plan.parts(config, stores, sinks, aws, shared) {
            Ok(parts) => built.push(parts),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(built) } else { Err(errors) }
}

/// What takes care of the logs that other processes leave behind, where `sessions` have such logs. Connects them with what it will tell.
#[must_use]
pub fn adoption(config: &Config, sessions: &mut [SessionParts], shared: &Shared) -> Option<Adoption> {
    let mut adoption = Adoption { sessions: Vec::new(), adopter: Adopter::default(), jitter_seed: shared.nonce, stop: shared.stop.clone() };
    adoption.adopter.bridge = config.bridge.id.to_string();
    adoption.adopter.turn = shared.nonce;
    for parts in sessions.iter_mut().filter(|parts| matches!(parts.kind, LogKind::OfProcess(_))) {
        let report = watch::Sender::default();
        parts.kind = LogKind::OfProcess(report.subscribe());
        adoption.adopter.sessions.insert(parts.session.clone());
        adoption.adopter.own.insert(parts.log.partition().to_owned());
        adoption.sessions.push(Adoptable { parts: parts.clone(), report });
    }
    (!adoption.sessions.is_empty()).then_some(adoption)
}

/// Whether other processes may own a session of this one, or share its work: then it is a member of a bridge.
#[must_use]
pub fn is_member(config: &Config) -> bool {
    config.bridge.is_clustered() || config.sessions.iter().any(|session| session.session_mode == SessionMode::Exclusive)
}

/// The token of hints, where there are any: a member has a token, and leases to tell of.
#[must_use]
pub fn hint_token(config: &Config) -> Option<&Secret> {
    let exclusive = config.sessions.iter().any(|session| session.session_mode == SessionMode::Exclusive);
    config.http.hint_token.as_ref().filter(|_| exclusive)
}

/// What `/topology` shows of the configuration: ids and kinds, no addresses with secrets, no options.
#[must_use]
pub fn topology(config: &Config) -> Value {
    let kind = |backend: Option<StoreBackend>| match backend {
        Some(StoreBackend::Memory) => json!({ "type": "memory" }),
        Some(StoreBackend::Sqlite { path }) => json!({ "type": "sqlite", "path": path }),
        Some(StoreBackend::Dynamodb { table }) => json!({ "type": "dynamodb", "table": table }),
        None => Value::Null,
    };
    let senders: BTreeMap<&str, Option<String>> =
        config.senders.iter().map(|sender| (&*sender.id, sender.sqs().map(|sqs| sqs.queue_url))).collect();
    json!({
        "version": config.version,
        "deployment_mode": config.bridge.mode(),
        "stores": { "outbox": kind(config.stores.outbox_backend()), "dlq": kind(config.stores.dlq_backend()) },
        "sessions": config.sessions.iter().map(|session| json!({
            "id": session.id, "transport": session.transport, "session_mode": session.session_mode,
            "broker": session.options.session.urls().iter().map(ToString::to_string).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "receivers": config.receivers.iter().map(|receiver| json!({
            "id": receiver.id, "transport": receiver.transport, "session_id": receiver.session_id, "topics": receiver.topics.iter().map(|topic| &topic.topic).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "senders": config.senders.iter().map(|sender| json!({ "id": sender.id, "queue_url": senders.get(&*sender.id) })).collect::<Vec<_>>(),
        "bindings": config.bindings.iter().map(|binding| json!({ "id": binding.id, "sender_id": binding.sender_id, "address": binding.address })).collect::<Vec<_>>(),
        "routes": config.routes.iter().map(|route| json!({
            "id": route.id, "receiver_id": route.receiver_id, "delivery_mode": route.delivery_mode, "bindings": route.bindings,
        })).collect::<Vec<_>>(),
    })
}
