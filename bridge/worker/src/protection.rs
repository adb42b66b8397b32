//! Asks ECS to leave this task alone while it owns a session: through the agent's endpoint, which every task finds in its environment.

use crate::levels::ServiceLevel;
use crate::status::{SessionRole, SessionStatus, StatusBoard};
use causeway_core::protection::{Action, LASTS, Protection, Release, Situation};
use causeway_ports::{Clock, Leases, TaskRecord, Tasks};
use core::time::Duration;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use thiserror::Error;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Where the agent's endpoint is, in a task's environment.
pub const VARIABLE: &str = "ECS_AGENT_URI";

/// The agent is on the host; it asks ECS itself before it answers.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);
/// No answer is longer.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// How often a process that owns a session looks whether a later deployment is there.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// One call to the lease store or to ECS takes no longer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the agent did not do what it was asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AgentError {
    /// Nobody answers there, or not in time.
    #[error("the agent's endpoint does not answer: {0}")]
    NoAnswer(String),
    /// It answers without end.
    #[error("the agent's answer is longer than {MAX_BODY_BYTES} bytes")]
    TooLong,
    /// It is no answer of the agent.
    #[error("the agent's answer (status {status}) cannot be read: {detail}")]
    Malformed {
        /// The status of HTTP.
        status: u16,
        /// What is wrong with it.
        detail: String,
    },
    /// ECS refuses, and says why: the role may not, or the task belongs to no service.
    #[error("ECS does not change the protection: {code}: {detail}")]
    Refused {
        /// In a word.
        code: String,
        /// In words.
        detail: String,
    },
}

#[derive(Deserialize)]
struct Answer {
    protection: Option<Stands>,
    failure: Option<Failure>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Stands {
    protection_enabled: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    reason: Option<String>,
    detail: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refusal {
    code: Option<String>,
    message: Option<String>,
}

/// The agent's endpoint.
#[derive(Clone, Debug)]
pub struct Agent {
    url: String,
    client: reqwest::Client,
}

impl Agent {
    /// The endpoint at `base`.
    ///
    /// # Errors
    /// Where no HTTP client can be made.
    pub fn new(base: &str) -> Result<Self, AgentError> {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(AGENT_TIMEOUT).build();
        let client = client.map_err(|error| AgentError::NoAnswer(error.to_string()))?;
        Ok(Self { url: format!("{}/task-protection/v1/state", base.trim_end_matches('/')), client })
    }

    /// The endpoint that the environment names; `None` where it names none, which is told once.
    #[must_use]
    pub fn of_the_environment() -> Option<Self> {
        let Some(base) = std::env::var(VARIABLE).ok().filter(|base| !base.is_empty()) else {
            warn!("{VARIABLE} is not set: a deployment may stop this task while it owns a session");
            return None;
        };
        Self::new(&base).inspect_err(|error| warn!(%error, "the task cannot be protected")).ok()
    }

    /// Protects the task for a while that is always told, or drops its protection.
    ///
    /// # Errors
    /// [`AgentError`]; unless it is [`AgentError::Refused`] the request may have taken effect.
    pub async fn protect(&self, enabled: bool) -> Result<(), AgentError> {
        let minutes = enabled.then(|| LASTS.as_secs() / 60);
        let body = minutes.map_or_else(
            || json!({ "ProtectionEnabled": false }),
            |minutes| json!({ "ProtectionEnabled": true, "ExpiresInMinutes": minutes }),
        );
        let no_answer = |error: reqwest::Error| AgentError::NoAnswer(error.without_url().to_string());
        let mut answer = self.client.put(&self.url).json(&body).send().await.map_err(no_answer)?;
        let status = answer.status().as_u16();
        let mut text = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(no_answer)? {
            if text.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(AgentError::TooLong);
            }
            text.extend_from_slice(&chunk);
        }
        let malformed = |detail: String| AgentError::Malformed { status, detail };
        let refused = |code: Option<String>, detail: Option<String>| AgentError::Refused {
            code: code.unwrap_or_else(|| status.to_string()),
            detail: detail.unwrap_or_default(),
        };
        match serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))? {
            Answer { error: Some(Refusal { code, message }), .. } => Err(refused(code, message)),
            Answer { failure: Some(Failure { reason, detail }), .. } => Err(refused(reason, detail)),
            Answer { protection: Some(stands), .. } if stands.protection_enabled == enabled => Ok(()),
            Answer { .. } => Err(malformed("it does not say that the protection is as asked for".to_owned())),
        }
    }
}

/// How a process stands to the deployments of its service.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// The service goes on with another one.
    is_former: bool,
    /// And a process of that one is there.
    is_superseded: bool,
}

/// What was found out last. A look that fails changes nothing of it: a task that was seen to be of a former deployment is not protected anew because of that.
#[derive(Debug, Default)]
struct Found {
    standing: Standing,
    /// The deployment that the service goes on with, once it told.
    primary: Option<String>,
}

/// Keeps the task's protection as it should be.
pub struct Protector {
    /// The agent.
    pub agent: Agent,
    /// Tells what this process owns.
    pub status: StatusBoard,
    /// Finds the other processes of the bridge.
    pub leases: Arc<dyn Leases>,
    /// Tells what started them; `None`: nobody does, and then no later deployment is ever seen.
    pub tasks: Option<Arc<dyn Tasks>>,
    /// The bridge.
    pub bridge: String,
    /// This process's task.
    pub task: String,
    /// A member's row that is older tells of a process that is gone.
    pub stale_after: Duration,
    /// Ask the owner loops of the sessions that one process at a time owns to hand over.
    pub asked: Vec<Arc<Notify>>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
}

impl core::fmt::Debug for Protector {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Protector").field("task", &self.task).finish_non_exhaustive()
    }
}

impl Protector {
    /// Keeps it so until `quit`, and drops what still stands then.
    pub async fn run(self, quit: CancellationToken) {
        let mut changes = self.status.changes();
        let (mut protection, mut failing, mut found) = (Protection::default(), false, Found::default());
        let mut look_at = tokio::time::Instant::now();
        while !quit.is_cancelled() {
            changes.mark_unchanged();
            let mut situation = self.situation(found.standing);
            if situation.owns && !situation.is_stopping && tokio::time::Instant::now() >= look_at {
                self.look(&mut found).await;
                look_at = tokio::time::Instant::now() + LOOK_EVERY;
                situation = self.situation(found.standing);
            }
            self.act(&mut protection, situation, &mut failing).await;
            // Sessions publish about once a second; what ends an ownership is acted upon at once.
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { break },
                () = quit.cancelled() => {}
            }
        }
        self.act(&mut protection, Situation::default(), &mut failing).await;
    }

    fn situation(&self, Standing { is_former, is_superseded }: Standing) -> Situation {
        let status = self.status.snapshot();
        // Who owns a session and cannot serve it is in nobody's way: a deployment that is rolled back must be able to stop it.
        let serves = |session: &SessionStatus| session.role == SessionRole::Owner && session.service_level > ServiceLevel::None;
        let owns = status.sessions.iter().any(|session| serves(session) && session.lease.is_some());
        Situation { owns, is_stopping: status.shutting_down, is_former, is_superseded }
    }

    async fn act(&self, protection: &mut Protection, situation: Situation, failing: &mut bool) {
        let sent_at = self.clock.now();
        let Some(action) = protection.decide(sent_at, situation) else { return };
        let result = match action {
            Action::Protect => self.agent.protect(true).await,
            Action::Unprotect => self.agent.protect(false).await,
            Action::HandOver => {
                info!("a process of a later deployment is ready: handing the sessions over to it");
                self.asked.iter().for_each(|asked| asked.notify_one());
                Ok(())
            }
        };
        protection.answered(sent_at, self.clock.now(), action, result.is_ok());
        match (result, *failing) {
            (Err(error), false) => {
                *failing = true;
                warn!(%error, ?action, "the task's protection cannot be changed; a deployment may stop it while it owns a session, or wait for it for minutes");
            }
            (Ok(()), true) => {
                *failing = false;
                info!("the task's protection is changed again");
            }
            (Ok(()), false) | (Err(_), true) => {}
        }
    }

    /// Looks how this process stands to the deployments of its service. Until a look succeeded: as one that goes on.
    async fn look(&self, found: &mut Found) {
        let Some(tasks) = &self.tasks else { return };
        let members = tokio::time::timeout(CALL_TIMEOUT, self.leases.list_members(&self.bridge)).await;
        let Ok(Ok(members)) = members else { return };
        let now = self.clock.wall();
        let alive = members.into_iter().filter(|member| now.since(member.written_at) < self.stale_after);
        let others: Vec<String> = alive.filter_map(|member| member.facts.task_arn).filter(|task| *task != self.task).collect();
        let asked: Vec<String> = others.into_iter().chain([self.task.clone()]).collect();
        let Ok(Ok(described)) = tokio::time::timeout(CALL_TIMEOUT, tasks.describe(&asked)).await else { return };
        let Some(own) = described.tasks.iter().find(|task| task.arn == self.task).map(release) else { return };
        let Some(service) = own.service() else { return };
        // Where no answer came, what was told last holds. A role that may not ask is never told: then the times at which tasks started tell.
        if let Ok(Ok(primary)) = tokio::time::timeout(CALL_TIMEOUT, tasks.primary_deployment(service)).await {
            found.primary = primary;
        }
        let primary = found.primary.as_deref();
        let is_superseded = described.tasks.iter().any(|task| own.is_superseded_by(&release(task), primary));
        found.standing = Standing { is_former: own.is_former(primary), is_superseded };
    }
}

fn release(task: &TaskRecord) -> Release {
    Release { group: task.group.clone(), deployment: task.started_by.clone(), started_at: task.started_at, is_up: task.is_up() }
}
