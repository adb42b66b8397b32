//! MQTT destinations.

use super::capped::CappedSink;
use super::{WiringError, source};
use causeway_core::config::model::Sender;
use causeway_core::config::{Config, Id, MqttSenderSettings};
use causeway_mqtt::{MqttPublisher, MqttSink, MqttSinkOptions, PublisherOptions};
use causeway_ports::{Sink, SystemClock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Messages that a publisher entrusts to its broker at a time; many brokers announce that they take fewer.
const WINDOW: u16 = 1_000;

/// The connections for publishing: the senders of one session share one.
#[derive(Default)]
pub(super) struct Publishers(BTreeMap<Id, Arc<MqttPublisher>>);

impl Publishers {
    /// What `sender` publishes with, to the topics that bindings name. `part` names the sender in messages. Needs a Tokio runtime.
    ///
    /// # Errors
    /// What makes no sense or is not built of the session's settings.
    pub(super) fn sink(
        &mut self,
        config: &Config,
        sender: &Sender,
        settings: &MqttSenderSettings,
        part: &str,
    ) -> Result<Arc<dyn Sink>, WiringError> {
        if sender.options.default_topic.is_some() {
            return Err(WiringError::not_built(
                format!("{part}.options.default_topic"),
                "a topic for messages that a binding's address does not fit",
            ));
        }
        let publisher = self.publisher(config, &settings.session, part)?;
        let options = MqttSinkOptions {
            topic: String::new(),
            qos: settings.qos,
            retain: settings.retain,
            throttle_retry_after: settings.throttle_retry_after,
        };
        let sink = MqttSink::new(publisher, options, Arc::new(SystemClock));
        let entries = sink.limits().batch_entries;
        Ok(Arc::new(CappedSink::new(Arc::new(sink), entries, settings.timeout)))
    }

    fn publisher(&mut self, config: &Config, id: &Id, part: &str) -> Result<Arc<MqttPublisher>, WiringError> {
        if let Some(publisher) = self.0.get(id) {
            return Ok(Arc::clone(publisher));
        }
        let session =
            config.session(id).ok_or_else(|| WiringError::new(part, "E_REFERENCE", format!("session \"{id}\" does not exist")))?;
        let mut connection = source::source_options(config, session, part)?;
        // The session's own client must not be thrown out, nor that of another process: a destination is used by all that have something for it.
        connection.client_id = source::random_suffix(&format!("{}-out", connection.client_id), part)?;
        connection.subscriptions.clear();
        // Without random bits the pauses between attempts are those of every other process: unkind to the broker, not wrong.
        let seed = getrandom::u64().unwrap_or_default();
        let publisher = MqttPublisher::start(PublisherOptions { connection, window: WINDOW }, seed)
            .map_err(|error| WiringError::new(part, error.code(), error.to_string()))?;
        let publisher = Arc::new(publisher);
        self.0.insert(id.clone(), Arc::clone(&publisher));
        Ok(publisher)
    }
}
