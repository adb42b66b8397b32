//! Devices that carry out commands: what tests and the demonstration give commands to.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use rumqttc::mqttbytes::QoS;
use rumqttc::{AsyncClient, Event, EventLoop, Incoming, MqttOptions, PublishOptions, PublishProperties, SessionMode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// What commands are published to: every device's topic.
const COMMANDS: &str = "causeway/+/command";

/// A command as it reached a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The device, as the topic names it.
    pub target: String,
    /// What it is to do.
    pub payload: Bytes,
    /// Where the answer is wanted.
    pub response_topic: Option<String>,
    /// What the answer has to repeat.
    pub correlation: Option<Bytes>,
    /// What is left of its time, in seconds, as the broker tells.
    pub expiry: Option<u32>,
    /// Properties of the caller's.
    pub user: Vec<(String, String)>,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// How long the device takes.
    pub after: Duration,
    /// Where it goes; `None`: where it is wanted.
    pub topic: Option<String>,
    /// What it repeats; `None`: what the command says.
    pub correlation: Option<Bytes>,
    /// What it says.
    pub payload: Bytes,
    /// Its content type.
    pub content_type: Option<String>,
    /// User properties, such as its `status`.
    pub user: Vec<(String, String)>,
}

impl Answer {
    /// One that says `payload`, as JSON.
    #[must_use]
    pub fn json(payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), content_type: Some("application/json".to_owned()), ..Self::default() }
    }

    /// The same, with a status.
    #[must_use]
    pub fn with_status(mut self, status: &str) -> Self {
        self.user.push(("status".to_owned(), status.to_owned()));
        self
    }

    /// The same, later.
    #[must_use]
    pub fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

/// What devices do when a command comes: the answers that they give.
pub type Behaviour = Arc<dyn Fn(&Received) -> Vec<Answer> + Send + Sync>;

/// All devices behind one connection.
#[derive(Debug)]
pub struct Devices {
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Devices {
    /// Connects, and returns once the broker would hand commands over.
    ///
    /// # Errors
    /// The broker cannot be reached.
    pub async fn start(broker_port: u16, behaviour: Behaviour) -> Result<Self> {
        let mut options = MqttOptions::new(format!("devices-{}", std::process::id()), ("127.0.0.1", broker_port));
        options.set_keep_alive(30).set_session_mode(SessionMode::Clean);
        let (client, mut event_loop) = AsyncClient::builder(options).capacity(256).build();
        client.subscribe(COMMANDS, QoS::AtLeastOnce).await.context("the devices cannot subscribe")?;
        let granted = async {
            loop {
                if let Event::Incoming(Incoming::SubAck(_)) = event_loop.poll().await.context("the devices cannot reach the broker")? {
                    return anyhow::Ok(());
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), granted).await.context("the broker does not answer the devices")??;
        let received = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(live(client, event_loop, behaviour, Arc::clone(&received)));
        Ok(Self { received, task })
    }

    /// Every command that came, in the order of their arrival.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn live(client: AsyncClient, mut event_loop: EventLoop, behaviour: Behaviour, received: Arc<Mutex<Vec<Received>>>) {
    // A connection that breaks ends the devices: nothing here loses one but the end of the broker.
    while let Ok(event) = event_loop.poll().await {
        let Event::Incoming(Incoming::Publish(publish)) = event else { continue };
        let properties = publish.properties.clone().unwrap_or_default();
        let topic = String::from_utf8_lossy(&publish.topic).into_owned();
        let command = Received {
            target: topic.split('/').nth(1).unwrap_or_default().to_owned(),
            payload: publish.payload.clone(),
            response_topic: properties.response_topic,
            correlation: properties.correlation_data,
            expiry: properties.message_expiry_interval,
            user: properties.user_properties,
        };
        received.lock().unwrap_or_else(PoisonError::into_inner).push(command.clone());
        for answer in behaviour(&command) {
            let (client, command) = (client.clone(), command.clone());
            tokio::spawn(async move {
                tokio::time::sleep(answer.after).await;
                let Some(topic) = answer.topic.or(command.response_topic) else { return };
                let properties = PublishProperties {
                    correlation_data: answer.correlation.or(command.correlation),
                    content_type: answer.content_type,
                    user_properties: answer.user,
                    ..PublishProperties::default()
                };
                // Without a connection there is nobody to answer to.
                let _ = client.publish(topic, answer.payload, PublishOptions::new(QoS::AtLeastOnce).properties(properties)).await;
            });
        }
    }
}
