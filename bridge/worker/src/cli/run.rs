//! `causeway run`: build everything, run it, and end it in order.

use super::error::{CliError, exit};
use super::{ConfigArgs, load};
use crate::control::{Control, Singleton, WatchedSession};
use crate::drop_ledger::{LedgerKeeper, LedgerView};
use crate::hints::HintBoard;
use crate::http::commands::CommandPort;
use crate::http::origins::Origins;
use crate::http::posts::PostBoard;
use crate::http::{self, admin::Admin, listeners::Listeners, monitor::Monitor, transport::Transport};
use crate::instance;
use crate::members::{Membership, stale_after};
use crate::parts::{LogKind, SessionParts};
use crate::protection::{Agent, Protector};
use crate::retention::Retention;
use crate::secrets::Token;
use crate::status::StatusBoard;
use crate::step_down::StepDowns;
use crate::supervisor::{self, End, Program, Signals};
use crate::telemetry::Metrics;
use crate::telemetry::collect::Collector;
use crate::telemetry::emf::Exporter;
use crate::telemetry::logs;
use crate::wiring::{self, ProcessPlan, Purpose, Shared, StoreSet, WiringError};
use causeway_core::config::{Config, Loaded};
use causeway_core::flow::capacity;
use causeway_core::outcome::{Fault, FaultClass, FaultCode};
use causeway_core::timing::Nanos;
use causeway_ports::{Leases, MemberRecord, Sink, SystemClock};
use clap::{Args, ValueEnum};
use core::time::Duration;
use futures_util::future::join_all;
use std::process::ExitCode;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long the first look at stores and queues may take. What does not answer by then is left to the owner loops, which go on trying.
const PREFLIGHT_TIMEOUT: Duration = Duration::from_secs(10);
/// One that watches looks every `evidence_poll`, within these bounds: well within the renewals of its own lease.
const WATCH_AT_MOST: Duration = Duration::from_secs(1);
const WATCH_AT_LEAST: Duration = Duration::from_secs(5);

/// What the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Moves messages.
    Worker,
    /// Watches over workers.
    Control,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// What the process does
    #[arg(long, value_enum, default_value_t = Role::Worker)]
    role: Role,
}

/// Runs until a signal, or until something cannot go on.
///
/// # Errors
/// An unusable configuration, before anything has started.
pub async fn execute(args: RunArgs) -> Result<ExitCode, CliError> {
    let loaded = load::load(&args.config)?;
    let config = &loaded.config;
    let process = ProcessPlan::of(config);
    start_logs(&process, &loaded);
    if args.role == Role::Control && !process.clustered {
        return Err(
            WiringError::new("--role control", "E_ROLE", "it stands by for other workers: it needs `deployment_mode: clustered`").into()
        );
    }
    // Signals are heard from here on: a stop during the start ends it in order too.
    let signals = Signals::new()?;
    let listeners = Listeners::open(&process).await?;
    let hints = HintBoard::default();
    let transport = match process.transport_addr {
        Some(addr) => Some(http::bind("http.transport_addr", addr).await?),
        None => None,
    };
    let task = instance::ecs_task().await;
    let instance_id = instance::instance_id(process.instance_name.as_deref(), task.as_ref());
    let agent = task.as_ref().filter(|_| args.role == Role::Worker).and_then(|_| Agent::of_the_environment());
    let listens_on = transport.as_ref().and_then(|listener| listener.local_addr().ok());
    let aws = wiring::aws(config).await;
    let stores = StoreSet::open(&config.stores, aws.as_ref(), Purpose::Run)?;
    let ledger = StoreSet::run_ledger(config, aws.as_ref())?;
    let nonce = boot_nonce()?;
    let (secrets, keeper) = wiring::keep_secrets(config, aws.as_ref(), nonce).await?;
    let sinks = wiring::sinks(config, aws.as_ref(), &secrets)?;
    preflight(&stores, &sinks).await?;
    if let Some((ledger, _)) = &ledger {
        preflight_one("stores.ledger", ledger.probe()).await?;
    }
    // Workers take commands; control stands by for the owners of sessions.
    let command_store = match args.role {
        Role::Worker if config.commands.enabled => StoreSet::open_commands(config, aws.as_ref(), Purpose::Run)?,
        Role::Worker | Role::Control => None,
    };
    if let Some(store) = &command_store {
        preflight_one("stores.commands", store.probe()).await?;
    }

    let clock = Arc::new(SystemClock);
    let (metrics, stop) = (Metrics::default(), CancellationToken::new());
    let status = StatusBoard::new(&process.bridge, &instance_id, clock.clone());
    let shared = Shared {
        instance_id: instance_id.clone(),
        owner: format!("{instance_id}#{nonce:016x}"),
        nonce,
        looks_late: args.role == Role::Control,
        tasks: wiring::tasks(config, aws.as_ref(), task.as_ref(), args.role == Role::Control || agent.is_some()),
        facts: instance::facts(&process.endpoints, task.as_ref(), listens_on),
        hints,
        step_downs: StepDowns::default(),
        quota_seen: tokio::sync::watch::Sender::default(),
        clock: clock.clone(),
        metrics: metrics.clone(),
        status: status.clone(),
        secrets: secrets.clone(),
        stop: stop.clone(),
    };
    let mut sessions = wiring::sessions(config, &stores, &sinks, aws.as_ref(), &shared)?;
    let key = process.monitor_key.as_ref().map(|key| wiring::secret_token("http.monitor_api_key", key, &secrets)).transpose()?;
    let hint_token = process.hint_token.as_ref().map(|token| wiring::secret_token("http.hint_token", token, &secrets)).transpose()?;
    let posts = wiring::post_board(&process.posts, &process.proxies, &sessions, &shared)?;
    let (gateway, command_port) = wiring::command_gateway(config, command_store, &process.proxies, &shared)?.unzip();
    let transport = transport.map(|listener| (transport_of(hint_token, posts, command_port, &shared.hints), listener));
    let adoption = wiring::adoption(config, &mut sessions, &shared);
    let membership = stores.leases.clone().zip(process.member_interval);
    let membership = membership.map(|(leases, interval)| membership_of(leases, interval, &process.bridge, args.role, &shared));
    let stale_after = stale_after(config.bridge.cluster.member_interval.get());
    let protector = agent.zip(task.as_ref()).zip(stores.leases.clone()).map(|((agent, task), leases)| {
        let asked = sessions.iter().filter(|parts| matches!(parts.kind, LogKind::OfSession)).filter_map(|parts| parts.lease.as_ref());
        Protector {
            agent,
            status: status.clone(),
            leases,
            tasks: shared.tasks.clone(),
            bridge: process.bridge.clone(),
            task: task.arn.clone(),
            stale_after,
            asked: asked.map(|lease| Arc::clone(&lease.asked)).collect(),
            clock: clock.clone(),
        }
    });
    let (fleet, fleet_reader) = wiring::fleet(&stores, &process, &shared);
    let admin = match &process.admin {
        Some(plan) => {
            let desk = wiring::desk(config, &stores, &sinks, &shared, fleet.clone())?;
            Some(Admin::new(plan.named_keys(&secrets)?, listeners.origins_of_admin(&process), desk).behind(process.proxies.clone()))
        }
        None => None,
    };
    let control = control_of(config, &process, args.role, stores.leases.as_ref(), &sessions, &shared);
    let retention =
        stores.old_letters.clone().map(|(letters, keep)| Retention { letters, keep, clock: clock.clone(), metrics: metrics.clone() });
    let ledger_view = ledger.as_ref().map(|(ledger, _)| LedgerView::new(Arc::clone(ledger), clock.clone()));
    let ledger = match ledger {
        Some((ledger, options)) => {
            let batch_ids = u128::from(nonce) << 64 | u128::from(boot_nonce()?);
            Some(LedgerKeeper { book: metrics.drops().clone(), ledger, options, clock: clock.clone(), batch_ids })
        }
        None => {
            metrics.drops().keep_none();
            None
        }
    };
    let (topics, queues) = sinks.into_iter().partition(|(id, _)| config.sender(id).is_some_and(|sender| sender.session_id.is_some()));
    let collector = Collector { metrics, status: status.clone(), outbox: stores.outbox.clone(), queues, topics, commands: gateway.clone() };
    let exporter = process.embedded_metrics.then(|| Exporter::new(&process.bridge, &instance_id));
    info!(bridge = %process.bridge, instance = %instance_id, version = env!("CARGO_PKG_VERSION"), sessions = sessions.len(), monitor = %process.monitor_addr, "starting");
    log_budgets(config);
    warn_of_capacity(config);
    let program = Program {
        sessions,
        adoption,
        commands: gateway,
        monitor: Monitor::new(collector.clone(), wiring::topology(config), None)
            .keyed(key)
            .with_fleet(fleet)
            .with_ledger(ledger_view)
            .with_admin_port(listeners.admin_port())
            .with_origins(Origins::named(&process.origins)),
        admin,
        listeners,
        fleet_reader,
        transport,
        membership,
        secrets: keeper,
        control,
        protector,
        retention,
        ledger,
        exporter,
        collector,
        status,
        stop,
        shutdown_timeout: process.shutdown_timeout,
    };
    Ok(ExitCode::from(match supervisor::run(program, signals).await {
        End::Clean => 0,
        End::Fault => exit::FAULT,
        End::SecondSignal => exit::SECOND_SIGNAL,
    }))
}

/// What comes in by the transport port.
fn transport_of(hint_token: Option<Token>, posts: Option<PostBoard>, commands: Option<CommandPort>, hints: &HintBoard) -> Transport {
    let mut transport = hint_token.map_or_else(Transport::default, |token| Transport::new(hints.clone(), token));
    if let Some(posts) = posts {
        transport = transport.with_posts(posts);
    }
    if let Some(commands) = commands {
        transport = transport.with_commands(commands);
    }
    transport
}

/// This process among the members of its bridge.
fn membership_of(leases: Arc<dyn Leases>, interval: Duration, bridge: &str, role: Role, shared: &Shared) -> Membership {
    let record = MemberRecord {
        bridge: bridge.to_owned(),
        owner: shared.owner.clone(),
        role: match role {
            Role::Worker => "worker",
            Role::Control => "control",
        }
        .to_owned(),
        facts: shared.facts.clone(),
        started_at: shared.clock.wall(),
        ..MemberRecord::default()
    };
    Membership { leases, record, interval, status: shared.status.clone(), clock: Arc::clone(&shared.clock) }
}

/// What watches the whole bridge, where this process has that role and there is a store of leases.
fn control_of(
    config: &Config,
    process: &ProcessPlan,
    role: Role,
    leases: Option<&Arc<dyn Leases>>,
    sessions: &[SessionParts],
    shared: &Shared,
) -> Option<Control> {
    let leases = Arc::clone(leases.filter(|_| role == Role::Control)?);
    let watched = |parts: &SessionParts| {
        let lease = parts.lease.as_ref().filter(|_| matches!(parts.kind, LogKind::OfSession))?;
        Some(WatchedSession {
            id: parts.session.clone(),
            key: lease.member.candidate.key.clone(),
            hinter: lease.hinter.clone(),
            subscriptions: parts.subscriptions.clone(),
        })
    };
    let cluster = &config.bridge.cluster;
    let (clock, facts) = (Arc::clone(&shared.clock), shared.facts.clone());
    Some(Control {
        singleton: Singleton::new(Arc::clone(&leases), &process.bridge, &shared.owner, facts, Arc::clone(&clock), shared.nonce),
        leases,
        tasks: shared.tasks.clone(),
        bridge: process.bridge.clone(),
        sessions: sessions.iter().filter_map(watched).collect(),
        every: cluster.evidence_poll.get().clamp(WATCH_AT_MOST, WATCH_AT_LEAST),
        stale_after: stale_after(cluster.member_interval.get()),
        status: shared.status.clone(),
        metrics: shared.metrics.clone(),
        clock,
    })
}

/// Says where the configuration can come to need more memory than this process has.
fn warn_of_capacity(config: &Config) {
    let Some(limit) = memory_limit() else { return };
    for warning in capacity::warnings(&capacity::bounds(config), limit) {
        warn!(memory_limit = limit, "{warning}; `causeway check` shows every bound");
    }
}

/// How much memory the kernel gives the process's control group, in bytes, where it limits it: on Fargate and in most containers.
fn memory_limit() -> Option<u64> {
    let places = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let told = places.iter().find_map(|place| std::fs::read_to_string(place).ok())?;
    // Version 1 tells of no limit with a number that no machine has.
    told.trim().parse().ok().filter(|limit| *limit < 1 << 50)
}

/// Says at every start what a failover may cost at most, whether an objective is declared or not.
fn log_budgets(config: &Config) {
    let seconds = |nanos: Nanos| Duration::from_nanos(nanos.unsigned_abs()).as_secs_f64();
    for session in config.budgets() {
        match session.budget {
            Some(Ok(budget)) => {
                let broker_path_failover = budget.broker_path.map_or_else(|| "off".to_owned(), |nanos| format!("{} s", seconds(nanos)));
                info!(session = %session.session_id, owner_death_s = seconds(budget.owner_death), %broker_path_failover, "worst-case failover budget");
            }
            Some(Err(error)) => warn!(session = %session.session_id, %error, "no failover budget can be computed"),
            None => {}
        }
    }
}

/// A number that no other process has: two replicas of one name are still two owners.
fn boot_nonce() -> Result<u64, CliError> {
    let none = |error| WiringError::new("the operating system", "E_RANDOM", format!("it has no random bits: {error}"));
    getrandom::u64().map_err(|error| none(error).into())
}

fn start_logs(process: &ProcessPlan, loaded: &Loaded) {
    logs::start(process.log_format, process.log_level);
    for warning in &loaded.warnings {
        warn!(code = warning.code, path = %warning.path, at = %warning.at, "{} ({})", warning.message, warning.remedy);
    }
}

/// Looks at every store and queue. What is wrong and will not pass by itself ends the start; what may pass is left to the owner loops.
async fn preflight(stores: &StoreSet, sinks: &[(String, Arc<dyn Sink>)]) -> Result<(), CliError> {
    let outbox = async {
        if let Some(store) = &stores.outbox { vec![("stores.outbox".to_owned(), bounded(store.probe()).await)] } else { Vec::new() }
    };
    let letters = async {
        if let Some(store) = &stores.dead_letters { vec![("stores.dlq".to_owned(), bounded(store.probe()).await)] } else { Vec::new() }
    };
    let queues = join_all(sinks.iter().map(|(id, sink)| async move { (format!("senders ({id})"), bounded(sink.probe()).await) }));
    let leases = async {
        if let Some(store) = &stores.leases { vec![("stores.lease".to_owned(), bounded(store.probe()).await)] } else { Vec::new() }
    };
    let subscriptions = async {
        if let Some(store) = &stores.subscriptions {
            vec![("stores.managed_subscriptions".to_owned(), bounded(store.probe()).await)]
        } else {
            Vec::new()
        }
    };
    let (outbox, letters, queues, leases, subscriptions) = tokio::join!(outbox, letters, queues, leases, subscriptions);
    let mut errors = Vec::new();
    for (part, result) in outbox.into_iter().chain(letters).chain(queues).chain(leases).chain(subscriptions) {
        match result {
            Ok(()) => {}
            Err(fault) if fault.code.class() == FaultClass::Permanent => errors.push(WiringError::of(part, &fault)),
            Err(fault) => warn!(part, code = fault.code.as_str(), detail = %fault.detail, "not reachable yet; it is tried again"),
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.into()) }
}

/// The same for one store more.
async fn preflight_one(part: &str, probe: impl Future<Output = Result<(), Fault>>) -> Result<(), CliError> {
    match bounded(probe).await {
        Ok(()) => Ok(()),
        Err(fault) if fault.code.class() == FaultClass::Permanent => Err(WiringError::of(part, &fault).into()),
        Err(fault) => {
            warn!(part, code = fault.code.as_str(), detail = %fault.detail, "not reachable yet; it is tried again");
            Ok(())
        }
    }
}

/// The probe's result, within [`PREFLIGHT_TIMEOUT`].
pub(super) async fn bounded(probe: impl Future<Output = Result<(), Fault>>) -> Result<(), Fault> {
    let late = || Fault::new(FaultCode::Timeout, format!("no answer within {} s", PREFLIGHT_TIMEOUT.as_secs()));
    tokio::time::timeout(PREFLIGHT_TIMEOUT, probe).await.unwrap_or_else(|_| Err(late()))
}
