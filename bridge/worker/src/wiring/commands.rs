//! Commands to devices: what their gateway is built from.

use super::source::{MqttPlan, mqtt_plan, starter};
use super::{Shared, WiringError, secret_token};
use crate::commands::api::{CommandDesk, CommandLimits};
use crate::commands::{CommandGateway, DIRECT_RECEIVER, EngineOptions, EnginePorts, NOTIFY_RECEIVER, SHARED_RECEIVER};
use crate::http::commands::CommandPort;
use causeway_core::commands::gateway::GatewayOptions;
use causeway_core::commands::{Correlation, ReplyReader, Rules, Topics};
use causeway_core::config::model::Session;
use causeway_core::config::{Config, Secret};
use causeway_core::drain::retry::Backoff;
use causeway_core::proxies::Proxies;
use causeway_mqtt::{Marks, MqttPublisher, PublisherOptions, SinglePublisher, Subscription};
use causeway_ports::Commands;
use core::time::Duration;
use std::sync::Arc;

/// The place in the configuration.
pub(super) const PART: &str = "commands";
/// The timeouts that callers may ask for.
const TIMEOUTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(43_200));
/// A packet is larger than its payload by topic and properties.
const PACKET_ROOM: usize = 128 * 1_024;

/// Commands that are entrusted to the broker at a time; many brokers announce that they take fewer.
const WINDOW: u16 = 1_000;
/// How long one publishing may take before it counts as failed, and is tried again.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses between attempts to connect: the first, and the longest.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// The pause after the broker said that a quota is exceeded.
const THROTTLED: Duration = Duration::from_secs(1);
/// Pauses between attempts of what failed: a caller waits.
const BACKOFF: Backoff = Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(5), multiplier: 2.0, jitter: 0.25 };

/// What the gateway of commands is built from.
#[derive(Clone, Debug)]
pub struct CommandsPlan {
    /// The connection on which replies and notices come. It subscribes to nothing yet: the filters have this process's name in them.
    pub listening: MqttPlan,
    /// The connection on which commands and notices go.
    pub publishing: MqttPlan,
    /// Where commands and replies go.
    pub topics: Topics,
    /// Where replicas tell each other of a result.
    pub broadcast: String,
    /// Where a reply says which command it answers.
    pub correlation: Correlation,
    /// What becomes of commands.
    pub rules: Rules,
    /// The bounds of what callers may ask.
    pub limits: CommandLimits,
    /// The largest result, in bytes.
    pub max_response_bytes: usize,
    /// The quality of service of commands.
    pub qos: u8,
    /// Commands to one target that this process has under way, at most.
    pub max_pending_per_target: usize,
    /// Whether a target gets one after the other.
    pub ordered: bool,
    /// Whether a call that is repeated while its command is not published yet is answered like one that comes later.
    pub replay: bool,
    /// What callers show.
    pub token: Secret,
}

impl CommandsPlan {
    /// What `config` says; `None` where no commands are taken.
    ///
    /// # Errors
    /// What cannot be had.
    pub fn of(config: &Config) -> Result<Option<Self>, WiringError> {
        let written = &config.commands;
        if !written.enabled {
            return Ok(None);
        }
        let missing = |what: &str| WiringError::new(PART, "E_REFERENCE", what.to_owned());
        let session = config.commands_session().ok_or_else(|| missing("`session_id` names no session"))?;
        let topics = config.commands_topics().map_err(|error| WiringError::new(PART, "E_CMD_TOPIC", error.to_string()))?;
        let max_response_bytes = written.max_response_bytes as usize;
        let mut listening = connection(config, session, "-commands")?;
        // What is too large shall be told as that, and not end the connection.
        listening.options.max_packet_bytes = listening.options.max_packet_bytes.max(bounded(2 * max_response_bytes + PACKET_ROOM));
        Ok(Some(Self {
            listening,
            publishing: connection(config, session, "-commands-out")?,
            topics,
            broadcast: written.broadcast(),
            correlation: written.correlation.into(),
            rules: Rules { late_window: written.late_result_window.get(), no_subscriber_fails: written.fail_without_subscriber },
            limits: CommandLimits {
                max_request_bytes: written.max_request_bytes as usize,
                sync_wait_max: written.sync_wait_max.get(),
                default_timeout: written.timeout.get(),
                min_timeout: TIMEOUTS.0,
                max_timeout: TIMEOUTS.1,
                retention: written.retention.get(),
            },
            max_response_bytes,
            qos: written.qos,
            max_pending_per_target: written.max_pending_per_target as usize,
            ordered: written.ordered,
            replay: written.replay,
            token: written.token.clone().ok_or_else(|| missing("`token` is missing"))?,
        }))
    }
}

/// A connection of this process alone to the broker of `session`, of which the broker keeps nothing: what is lost with it the store, or the sender of a
/// reply, still has.
fn connection(config: &Config, session: &Session, suffix: &str) -> Result<MqttPlan, WiringError> {
    let mut plan = mqtt_plan(config, session, PART)?;
    plan.options.client_id.push_str(suffix);
    plan.random_suffix = true;
    plan.options.clean_start = true;
    plan.options.session_expiry = 0;
    plan.options.will = None;
    // A filter that the broker refuses is told of, and the others are listened to all the same.
    plan.options.strict_subscriptions = false;
    // The time of a command is short: what the session's own connection may wait for would use it up.
    plan.options.reconnect_delay = plan.options.reconnect_delay.min(RECONNECT.0);
    plan.options.reconnect_max_delay = plan.options.reconnect_max_delay.min(RECONNECT.1);
    plan.options.subscriptions.clear();
    Ok(plan)
}

/// The gateway of commands on its store, started, and the way in to it; `None` where no commands are taken. Needs a Tokio runtime.
///
/// # Errors
/// What cannot be built.
pub fn gateway(
    config: &Config,
    store: Option<Arc<dyn Commands>>,
    proxies: &Proxies,
    shared: &Shared,
) -> Result<Option<(CommandGateway, CommandPort)>, WiringError> {
    let Some((plan, store)) = CommandsPlan::of(config)?.zip(store) else { return Ok(None) };
    let token = secret_token("commands.token", &plan.token, &shared.secrets)?;
    let gateway = plan.start(store, shared)?;
    let port = CommandPort::new(Arc::new(gateway.clone()) as Arc<dyn CommandDesk>, token, proxies.clone(), Arc::clone(&shared.clock));
    Ok(Some((gateway, port)))
}

impl CommandsPlan {
    fn start(self, store: Arc<dyn Commands>, shared: &Shared) -> Result<CommandGateway, WiringError> {
        // Nobody else has this number, and a process that starts again is another instance: nobody waits there for what its predecessor asked.
        let instance = format!("{:016x}", shared.nonce);
        let mut listening = self.listening.named(PART, &shared.secrets)?;
        listening.subscriptions = subscriptions(&self.topics, &self.broadcast, &instance);
        listening.validate().map_err(|error| WiringError::new(PART, error.code(), error.to_string()))?;
        let publishing =
            PublisherOptions { connection: self.publishing.named(PART, &shared.secrets)?, window: WINDOW, marks: Marks::default() };
        let publisher =
            MqttPublisher::start(publishing, shared.nonce).map_err(|error| WiringError::new(PART, error.code(), error.to_string()))?;
        let options = EngineOptions {
            gateway: GatewayOptions {
                instance: instance.clone(),
                rules: self.rules,
                max_pending_per_target: self.max_pending_per_target,
                ordered: self.ordered,
                replay: self.replay,
                backoff: BACKOFF,
                jitter_seed: shared.nonce,
            },
            reader: ReplyReader {
                topics: self.topics,
                broadcast_topic: self.broadcast,
                instance,
                correlation: self.correlation,
                max_response_bytes: self.max_response_bytes,
            },
            qos: self.qos,
            limits: self.limits,
        };
        let ports = EnginePorts {
            store,
            publisher: Arc::new(SinglePublisher::new(publisher, PUBLISH_TIMEOUT, THROTTLED)),
            clock: Arc::clone(&shared.clock),
        };
        Ok(CommandGateway::start(options, ports, starter(listening)(None)))
    }
}

/// What this process listens to: its own replies, its share of everybody's, and what the others tell.
fn subscriptions(topics: &Topics, broadcast: &str, instance: &str) -> Vec<Subscription> {
    let own = Subscription::new(topics.direct_filter(instance), 1, DIRECT_RECEIVER);
    let shared = topics.shared_filters().into_iter().map(|filter| Subscription::new(filter, 1, SHARED_RECEIVER));
    core::iter::once(own).chain(shared).chain([Subscription::new(broadcast, 0, NOTIFY_RECEIVER)]).collect()
}

fn bounded(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
