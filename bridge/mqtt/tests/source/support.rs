//! What all tests share: options with short pauses, and waiting for events with a generous deadline.

use causeway_core::outcome::Fault;
use causeway_mqtt::{BrokerUrl, MqttSource, SourceOptions, Subscription, start};
use causeway_ports::{ConnectionEpoch, Delivery, DeliveryId, Source, SourceEvent};
use core::time::Duration;
use tokio::time::timeout;

/// Long enough for a machine that does a hundred other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn options(port: u16, filters: &[(&str, &str)]) -> SourceOptions {
    let mut options = SourceOptions::new(BrokerUrl::parse(&format!("mqtt://127.0.0.1:{port}")).unwrap(), "worker-1");
    options.session_expiry = 3_600;
    options.reconnect_delay = Duration::from_millis(20);
    options.reconnect_max_delay = Duration::from_millis(200);
    options.loose.messages = 256;
    options.unmatched_grace = Duration::ZERO;
    // Most tests end connections right after the login, which looks like a rival. What that costs has tests of its own.
    (options.takeover_delay, options.takeover_max_delay) = (Duration::from_millis(1), Duration::from_millis(1));
    options.subscriptions = filters.iter().map(|(filter, receiver)| Subscription::new(*filter, 1, *receiver)).collect();
    options
}

pub fn source(options: SourceOptions) -> MqttSource {
    start(options, 7).unwrap()
}

pub async fn next(source: &mut MqttSource) -> SourceEvent {
    timeout(PATIENCE, source.next()).await.expect("no event came")
}

pub async fn connected(source: &mut MqttSource) -> (ConnectionEpoch, bool) {
    match next(source).await {
        SourceEvent::Connected { connection, session_present } => (connection, session_present),
        other => panic!("expected Connected, got {other:?}"),
    }
}

pub async fn subscribed(source: &mut MqttSource) -> (usize, Vec<(String, Fault)>) {
    match next(source).await {
        SourceEvent::Subscribed { granted, refused, .. } => (granted, refused),
        other => panic!("expected Subscribed, got {other:?}"),
    }
}

pub async fn disconnected(source: &mut MqttSource) -> (Fault, Duration) {
    match next(source).await {
        SourceEvent::Disconnected { fault, retry_in, .. } => (fault, retry_in),
        other => panic!("expected Disconnected, got {other:?}"),
    }
}

pub async fn delivery(source: &mut MqttSource) -> Delivery {
    match next(source).await {
        SourceEvent::Delivery(delivery) => delivery,
        other => panic!("expected a delivery, got {other:?}"),
    }
}

/// The next delivery, whatever is reported before it.
pub async fn any_delivery(source: &mut MqttSource) -> Delivery {
    let found = async {
        loop {
            if let SourceEvent::Delivery(delivery) = source.next().await {
                return delivery;
            }
        }
    };
    timeout(PATIENCE, found).await.expect("no delivery came")
}

/// Waits until the filters have their answers, whatever is reported before.
pub async fn ready(source: &mut MqttSource) {
    let answered = async { while !matches!(source.next().await, SourceEvent::Subscribed { .. }) {} };
    timeout(PATIENCE, answered).await.expect("never subscribed");
}

pub fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.message.payload.to_vec()).unwrap()
}

pub const fn id(connection: u64, ordinal: u64) -> DeliveryId {
    DeliveryId { connection: ConnectionEpoch(connection), ordinal }
}

/// Polls until `holds`.
pub async fn eventually(mut holds: impl FnMut() -> bool) {
    timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it never came true");
}
