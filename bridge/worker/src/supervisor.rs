//! Owns every task of a running program: starts them, and ends them in order.
//!
//! The order of an end: not ready any more; the owner loops stop admitting, settle what is in flight, and disconnect; the last metrics go out;
//! the monitor closes. A second signal ends everything at once: nothing is lost by it, more may be delivered twice.

use crate::adoption::{Adoption, run_and_retire};
use crate::commands::CommandGateway;
use crate::commands::api::CommandDesk as _;
use crate::control::Control;
use crate::drop_ledger::LedgerKeeper;
use crate::fleet::FleetReader;
use crate::http::admin::{self, Admin};
use crate::http::commands::STORE_PATIENCE;
use crate::http::listeners::Listeners;
use crate::http::monitor::Monitor;
use crate::http::serve::{Bounds, serve_with};
use crate::http::tls::ListenerTls;
use crate::http::transport::Transport;
use crate::members::Membership;
use crate::parts::SessionParts;
use crate::protection::Protector;
use crate::retention::Retention;
use crate::run::{RunError, SessionEnd};
use crate::secrets::SecretKeeper;
use crate::status::StatusBoard;
use crate::telemetry::collect::Collector;
use crate::telemetry::emf::{self, Exporter};
use core::time::Duration;
use std::io;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, info, warn};

/// What closing the monitor and writing the last metrics may take on top of everything else.
const LAST_RITES: Duration = Duration::from_secs(2);

/// The share of a stop's time that commands under way may take to settle. Closing their connections may take as long again.
const SHARE_OF_COMMANDS: f64 = 0.4;

/// The same signal again so soon is one signal: `timeout` and process managers signal a process and its group.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// The signals that ask the program to stop: SIGTERM and SIGINT.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// Where the system refuses handlers.
    pub fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Everything that runs.
#[derive(Debug)]
pub struct Program {
    /// The owner loops.
    pub sessions: Vec<SessionParts>,
    /// Takes care of logs that other processes leave behind.
    pub adoption: Option<Adoption>,
    /// Takes commands to devices, where that is configured.
    pub commands: Option<CommandGateway>,
    /// The monitor.
    pub monitor: Monitor,
    /// The admin interface.
    pub admin: Option<Admin>,
    /// Where both listen.
    pub listeners: Listeners,
    /// Looks at the bridge as a whole, where there is more than this process.
    pub fleet_reader: Option<FleetReader>,
    /// Where other members' hints and posts are taken, and on what.
    pub transport: Option<(Transport, TcpListener)>,
    /// Keeps this process's row among the members.
    pub membership: Option<Membership>,
    /// Reads secrets again that the configuration names.
    pub secrets: SecretKeeper,
    /// Keeps deployments from stopping this process while it owns a session, where ECS can be asked for that.
    pub protector: Option<Protector>,
    /// Watches the whole bridge, where this process has that role.
    pub control: Option<Control>,
    /// Deletes dead letters once they are too old, where their store does not.
    pub retention: Option<Retention>,
    /// Writes the ledger of drops, where there is one.
    pub ledger: Option<LedgerKeeper>,
    /// Where embedded metrics are made, if they are wanted.
    pub exporter: Option<Exporter>,
    /// Where metrics are taken from.
    pub collector: Collector,
    /// The status.
    pub status: StatusBoard,
    /// Ends the owner loops.
    pub stop: CancellationToken,
    /// How long an end may take in all.
    pub shutdown_timeout: Duration,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As asked.
    Clean,
    /// A session could not go on, or did not end in time.
    Fault,
    /// At once, at a second signal.
    SecondSignal,
}

/// Runs the program to its end.
pub async fn run(program: Program, mut signals: Signals) -> End {
    let Program {
        sessions,
        adoption,
        commands,
        monitor,
        admin,
        listeners,
        fleet_reader,
        transport,
        membership,
        secrets,
        control,
        protector,
        retention,
        ledger,
        exporter,
        collector,
        status,
        stop,
        shutdown_timeout,
    } = program;
    let quit = CancellationToken::new();
    let mut services = JoinSet::new();
    let tls = listeners.tls.as_ref().map(ListenerTls::acceptor);
    services.spawn(monitor.recorder().run(status.clone(), quit.clone()));
    services.spawn(monitor.serve_with(listeners.monitor, tls.clone(), Bounds::default(), quit.clone()));
    if let Some((admin, listener)) = admin.zip(listeners.admin) {
        services.spawn(serve_with(
            listener,
            tls,
            admin.router(),
            Bounds { request: admin::CONNECTION_OF_REQUEST, ..Bounds::default() },
            quit.clone(),
        ));
    }
    if let Some(tls) = listeners.tls {
        services.spawn(tls.watch(quit.clone()));
    }
    if let Some(reader) = fleet_reader {
        services.spawn(reader.run(quit.clone()));
    }
    if let Some(exporter) = exporter {
        services.spawn(emf::run(exporter, collector, quit.clone()));
    }
    if let Some((transport, listener)) = transport {
        let waits = commands.as_ref().map(|gateway| gateway.limits().sync_wait_max.saturating_add(2 * STORE_PATIENCE));
        let bounds = waits.map_or_else(Bounds::of_posts, |waits| Bounds::of_posts().for_requests_of(waits));
        services.spawn(transport.serve(listener, bounds, quit.clone()));
    }
    services.spawn(secrets.run(quit.clone()));
    if let Some(membership) = membership {
        services.spawn(membership.run(quit.clone()));
    }
    if let Some(control) = control {
        services.spawn(control.run(quit.clone()));
    }
    if let Some(protector) = protector {
        services.spawn(protector.run(quit.clone()));
    }
    if let Some(retention) = retention {
        services.spawn(retention.run(quit.clone()));
    }
    if let Some(ledger) = ledger {
        services.spawn(ledger.run(quit.clone()));
    }
    let mut loops = JoinSet::new();
    for parts in sessions {
        let span = tracing::info_span!("session", session = %parts.session);
        loops.spawn(run_and_retire(parts).instrument(span));
    }
    if let Some(adoption) = adoption {
        loops.spawn(async {
            adoption.run().await;
            Ok(SessionEnd::Clean)
        });
    }
    if let Some(gateway) = commands {
        let stop = stop.clone();
        loops.spawn(async move {
            stop.cancelled().await;
            gateway.stop(shutdown_timeout.mul_f64(SHARE_OF_COMMANDS)).await;
            Ok(SessionEnd::Clean)
        });
    }
    let end = tend(&mut loops, &mut signals, &status, &stop, shutdown_timeout).await;
    if end == End::SecondSignal {
        return end;
    }
    quit.cancel();
    let closing = async { while services.join_next().await.is_some() {} };
    let closed = tokio::select! {
        closed = tokio::time::timeout(LAST_RITES, closing) => closed.is_ok(),
        _ = signals.next() => return End::SecondSignal,
    };
    if !closed {
        warn!("a client of the monitor holds its connection; closing without it");
    }
    info!(clean = end == End::Clean, "ended");
    end
}

/// Waits for the owner loops, and for what ends them.
async fn tend(
    loops: &mut JoinSet<Result<SessionEnd, RunError>>,
    signals: &mut Signals,
    status: &StatusBoard,
    stop: &CancellationToken,
    shutdown_timeout: Duration,
) -> End {
    let mut end = End::Clean;
    let mut signalled: Option<(&str, Instant)> = None;
    let mut deadline: Option<Instant> = None;
    loop {
        let late = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => core::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            name = signals.next() => {
                if signalled.is_some_and(|(first, at)| first == name && at.elapsed() < ONE_SIGNAL) {
                    continue;
                }
                if signalled.is_some() {
                    error!(signal = name, "second signal: ending at once");
                    return End::SecondSignal;
                }
                signalled = Some((name, Instant::now()));
                info!(signal = name, timeout_s = shutdown_timeout.as_secs(), "stopping");
            }
            ended = loops.join_next() => match ended {
                None => return end,
                Some(ended) => if !note(ended, stop.is_cancelled()) {
                    end = End::Fault;
                }
            },
            () = late => {
                error!("not ended within shutdown_timeout; what is left stands in the log or with the broker");
                return End::Fault;
            }
        }
        // The first signal and the first end both end the rest.
        status.begin_shutdown();
        stop.cancel();
        deadline.get_or_insert_with(|| Instant::now() + shutdown_timeout);
    }
}

/// Logs how a loop ended, and answers whether that was an end in order.
fn note(ended: Result<Result<SessionEnd, RunError>, JoinError>, asked: bool) -> bool {
    match ended {
        Ok(Ok(SessionEnd::Clean)) if asked => true,
        Ok(Ok(SessionEnd::DeadlinePassed)) if asked => {
            warn!("a session ended at drain_timeout with work left: it stands in the log and goes on with the next start");
            true
        }
        Ok(Ok(SessionEnd::Clean | SessionEnd::DeadlinePassed | SessionEnd::HandedOver)) => {
            error!("a session ended though nobody asked it to");
            false
        }
        Ok(Err(fault)) => {
            error!(%fault, "a session cannot go on");
            false
        }
        Err(panic) => {
            error!(%panic, "an owner loop broke: a defect, please report it with this log");
            false
        }
    }
}
