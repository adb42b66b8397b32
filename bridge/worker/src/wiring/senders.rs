//! Destinations: what each is made of, and the making.

use super::capped::CappedSink;
use super::source::MqttPlan;
use super::{WiringError, source};
use crate::parts::NamedSinks;
use crate::secrets::SecretBoard;
use causeway_aws::{AwsClients, SqsOptions, SqsSink};
use causeway_core::config::model::Sender;
use causeway_core::config::{Config, Id, MqttSenderSettings, SqsSenderSettings};
use causeway_mqtt::{Marks, MqttPublisher, MqttSink, MqttSinkOptions, PublisherOptions};
use causeway_ports::{Sink, SystemClock};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Messages that a publisher entrusts to its broker at a time; many brokers announce that they take fewer.
const WINDOW: u16 = 1_000;

/// What a destination is built from.
#[derive(Clone, Debug)]
pub struct SenderPlan {
    /// The sender's id.
    pub id: String,
    /// The place of the sender in the configuration, for messages.
    pub part: String,
    /// How long one send may take.
    pub timeout: Duration,
    /// How it gets there.
    pub way: SenderWay,
}

/// How a destination is reached.
#[derive(Clone, Debug)]
pub enum SenderWay {
    /// A queue.
    Sqs {
        /// Which one, and how.
        options: SqsOptions,
        /// The most messages in one request.
        batch_size: usize,
    },
    /// A broker. Senders of one session share a connection.
    Mqtt {
        /// The session.
        session: Id,
        /// The connection.
        connection: Box<MqttPlan>,
        /// How it is published there, to the topics that bindings name.
        options: MqttSinkOptions,
        /// When it takes no more for a connection that does not get rid of what it was given.
        marks: Marks,
    },
}

/// What the destinations are built from, in the order of the configuration.
///
/// # Errors
/// Every sender that cannot be had.
pub fn plan(config: &Config) -> Result<Vec<SenderPlan>, Vec<WiringError>> {
    let (mut plans, mut errors) = (Vec::new(), Vec::new());
    for (index, sender) in config.senders.iter().enumerate() {
        match plan_of(config, sender, format!("senders[{index}] ({})", sender.id)) {
            Ok(plan) => plans.push(plan),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(plans) } else { Err(errors) }
}

fn plan_of(config: &Config, sender: &Sender, part: String) -> Result<SenderPlan, WiringError> {
    let (timeout, way) = match (sender.sqs(), sender.mqtt()) {
        (Some(settings), _) => to_queue(settings),
        (None, Some(settings)) => to_broker(config, &settings, &part)?,
        (None, None) => return Err(WiringError::new(part, "E_REFERENCE", "it names neither a queue nor a session")),
    };
    Ok(SenderPlan { id: sender.id.to_string(), part, timeout, way })
}

fn to_queue(settings: SqsSenderSettings) -> (Duration, SenderWay) {
    let (timeout, batch_size) = (settings.timeout, settings.batch_size as usize);
    (timeout, SenderWay::Sqs { options: SqsOptions::from(settings), batch_size })
}

fn to_broker(config: &Config, settings: &MqttSenderSettings, part: &str) -> Result<(Duration, SenderWay), WiringError> {
    let missing = || WiringError::new(part, "E_REFERENCE", format!("session \"{}\" does not exist", settings.session));
    let session = config.session(&settings.session).ok_or_else(missing)?;
    let mut connection = source::mqtt_plan(config, session, part)?;
    // The session's own client must not be thrown out, nor that of another process: a destination is used by all that have something for it.
    connection.options.client_id.push_str("-out");
    connection.random_suffix = true;
    connection.options.subscriptions.clear();
    let options = MqttSinkOptions {
        topic: String::new(),
        qos: settings.qos,
        retain: settings.retain,
        throttle_retry_after: settings.throttle_retry_after,
    };
    let flow = config.sender_flow();
    let marks = Marks { high: flow.high_water, low: flow.low_water };
    Ok((settings.timeout, SenderWay::Mqtt { session: settings.session.clone(), connection: Box::new(connection), options, marks }))
}

/// The destinations by sender id, in the order of the configuration; those of MQTT without a topic yet, which bindings name. Needs a Tokio runtime.
///
/// # Errors
/// Every sender that cannot be built.
pub fn sinks(config: &Config, aws: Option<&AwsClients>, secrets: &SecretBoard) -> Result<NamedSinks, Vec<WiringError>> {
    let (mut built, mut errors) = (Vec::new(), Vec::new());
    let mut publishers = BTreeMap::new();
    for plan in plan(config)? {
        let id = plan.id.clone();
        match build(plan, aws, secrets, &mut publishers) {
            Ok(sink) => built.push((id, sink)),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(built) } else { Err(errors) }
}

fn build(
    plan: SenderPlan,
    aws: Option<&AwsClients>,
    secrets: &SecretBoard,
    publishers: &mut BTreeMap<Id, Arc<MqttPublisher>>,
) -> Result<Arc<dyn Sink>, WiringError> {
    let SenderPlan { part, timeout, way, .. } = plan;
    match way {
        SenderWay::Sqs { options, batch_size } => {
            let clients = aws.ok_or_else(|| WiringError::new(part.as_str(), "E_REFERENCE", "there are no clients of AWS"))?;
            let sink = SqsSink::new(clients, options).map_err(|fault| WiringError::of(part, &fault))?;
            Ok(Arc::new(CappedSink::new(Arc::new(sink), batch_size, timeout)))
        }
        SenderWay::Mqtt { session, connection, options, marks } => {
            let publisher = match publishers.get(&session) {
                Some(publisher) => Arc::clone(publisher),
                None => {
                    let publisher = Arc::new(publisher(*connection, marks, &part, secrets)?);
                    publishers.insert(session, Arc::clone(&publisher));
                    publisher
                }
            };
            let sink = MqttSink::new(publisher, options, Arc::new(SystemClock));
            let entries = sink.limits().batch_entries;
            Ok(Arc::new(CappedSink::new(Arc::new(sink), entries, timeout)))
        }
    }
}

fn publisher(connection: MqttPlan, marks: Marks, part: &str, secrets: &SecretBoard) -> Result<MqttPublisher, WiringError> {
    // Without random bits the pauses between attempts are those of every other process: unkind to the broker, not wrong.
    let seed = getrandom::u64().unwrap_or_default();
    let options = PublisherOptions { connection: connection.named(part, secrets)?, window: WINDOW, marks };
    MqttPublisher::start(options, seed).map_err(|error| WiringError::new(part, error.code(), error.to_string()))
}
