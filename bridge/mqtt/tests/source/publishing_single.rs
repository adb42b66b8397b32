//! Single messages: what is carried, and what the broker's answers mean.

use crate::mosquitto::Mosquitto;
use crate::publishing::PATIENCE;
use crate::support::{any_delivery, options, ready, source};
use bytes::Bytes;
use causeway_core::outcome::{FaultClass, FaultCode, Outcome};
use causeway_mqtt::{Marks, MqttPublisher, PublisherOptions, SinglePublisher, SourceOptions};
use causeway_ports::{Publication, PublishAnswer, Publisher, Source};
use core::time::Duration;

fn publisher(port: u16) -> SinglePublisher {
    let connection = SourceOptions { client_id: "single-1".into(), ..options(port, &[]) };
    let publisher = MqttPublisher::start(PublisherOptions { connection, window: 10, marks: Marks::default() }, 7).unwrap();
    SinglePublisher::new(publisher, PATIENCE, Duration::from_millis(500))
}

fn publication(topic: &str) -> Publication {
    Publication {
        topic: topic.into(),
        payload: Bytes::from_static(b"x"),
        qos: 1,
        expiry_seconds: Some(60),
        response_topic: Some("answers/1".into()),
        correlation_data: Some(Bytes::from_static(&[0, 1, 255])),
        content_type: Some("text/plain".into()),
        user: vec![("k".into(), "1".into()), ("k".into(), String::new())],
    }
}

#[tokio::test]
async fn a_single_message_carries_what_the_caller_says_and_nothing_else() {
    let broker = Mosquitto::start().await;
    let mut subscriber = source(options(broker.port, &[("out/#", "r")]));
    ready(&mut subscriber).await;
    let outcome = publisher(broker.port).publish(publication("out/a")).await;
    assert_eq!(outcome, Outcome::Done(PublishAnswer { no_subscriber: false }));
    let message = any_delivery(&mut subscriber).await.message;
    let (wanted, got) = (publication("out/a"), &message.properties);
    assert_eq!((&message.topic, &message.payload, &got.response_topic), (&wanted.topic, &wanted.payload, &wanted.response_topic));
    assert_eq!((&got.correlation_data, &got.content_type, &got.user), (&wanted.correlation_data, &wanted.content_type, &wanted.user));
    assert!(got.expiry_seconds.is_some_and(|seconds| (1..=60).contains(&seconds)), "{got:?}");
    subscriber.close(PATIENCE).await;
}

#[tokio::test]
async fn a_message_that_nobody_subscribed_to_is_taken_and_told_so() {
    let broker = Mosquitto::start().await;
    let outcome = publisher(broker.port).publish(publication("nobody/here")).await;
    assert_eq!(outcome, Outcome::Done(PublishAnswer { no_subscriber: true }));
}

#[tokio::test]
async fn a_topic_that_cannot_be_published_to_is_refused_before_it_is_sent() {
    let publisher = publisher(1);
    for topic in ["", "a/+", "a/\0"] {
        let outcome = publisher.publish(publication(topic)).await;
        assert!(matches!(&outcome, Outcome::NotDone(fault) if fault.code.class() == FaultClass::Rejected), "{outcome:?}");
    }
}

#[tokio::test]
async fn without_a_connection_a_message_is_given_back_as_not_sent() {
    let outcome = publisher(1).publish(Publication { expiry_seconds: Some(1), ..publication("out/a") }).await;
    assert!(matches!(&outcome, Outcome::NotDone(fault) if fault.code == FaultCode::Unavailable), "{outcome:?}");
}
