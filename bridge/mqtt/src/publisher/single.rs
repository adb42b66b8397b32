//! Single messages over a publisher's connection.

use super::MqttPublisher;
use super::answer::Answer;
use super::packet;
use async_trait::async_trait;
use causeway_core::outcome::Outcome;
use causeway_ports::{Publication, PublishAnswer, Publisher};
use core::time::Duration;
use rumqttc::PubAckReason;
use tokio::time::Instant;

/// A publisher of single messages.
#[derive(Debug)]
pub struct SinglePublisher {
    publisher: MqttPublisher,
    timeout: Duration,
    throttle_retry_after: Duration,
}

impl SinglePublisher {
    /// Publishes over `publisher`, and waits for `timeout` at most. What expires before it is sent is not sent. `throttle_retry_after`: the pause after the broker
    /// said that a quota is exceeded.
    #[must_use]
    pub const fn new(publisher: MqttPublisher, timeout: Duration, throttle_retry_after: Duration) -> Self {
        Self { publisher, timeout, throttle_retry_after }
    }
}

#[async_trait]
impl Publisher for SinglePublisher {
    async fn publish(&self, publication: Publication) -> Outcome<PublishAnswer> {
        // Not shortened by the message's own time: an acknowledgement that does not come by then ends the connection of all messages.
        let deadline = Instant::now() + self.timeout;
        let packet = match packet::of_publication(publication) {
            Ok(packet) => packet,
            Err(fault) => return Outcome::NotDone(fault),
        };
        let answer = match self.publisher.submit(packet, deadline).await {
            Ok(waiting) => waiting.answer().await,
            Err(answer) => answer,
        };
        let no_subscriber = answer == Answer::Acknowledged(PubAckReason::NoMatchingSubscribers);
        answer.outcome(self.throttle_retry_after).map(|()| PublishAnswer { no_subscriber })
    }
}
