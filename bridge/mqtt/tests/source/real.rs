//! Against mosquitto.

use crate::mosquitto::Mosquitto;
use crate::packets::{Publish, Publisher, text_property, user_property};
use crate::support::{
    any_delivery, connected, delivery, disconnected, eventually, id, options, source, subscribed,
    text,
};
use causeway_core::message::Properties;
use causeway_ports::{Source, SourceEvent};
use core::time::Duration;

fn numbered(topic: &str, range: std::ops::Range<usize>) -> Vec<Publish> {
    range
        .map(|n| Publish::new(topic, 1, n.to_string()))
        .collect()
}

#[tokio::test]
async fn everything_arrives_in_order_and_is_acknowledged() {
    let broker = Mosquitto::start().await;
    let mut source = source(options(broker.port, &[("plant/#", "r")]));
    assert_eq!(
        connected(&mut source).await,
        (causeway_ports::ConnectionEpoch(1), false)
    );
    assert_eq!(subscribed(&mut source).await, (1, vec![]));
    let mut publisher = Publisher::connect(broker.port).await;
    let publishing =
        tokio::spawn(async move { publisher.publish_all(&numbered("plant/a", 0..3_000)).await });
    for n in 0..3_000 {
        let delivery = delivery(&mut source).await;
        assert_eq!(
            (text(&delivery), &*delivery.receiver, delivery.id),
            (n.to_string(), "r", id(1, n + 1))
        );
        source.acknowledge(delivery.id);
    }
    assert!(publishing.await.unwrap().iter().all(|code| *code == 0));
    eventually(|| source.counters().acknowledged == 3_000).await;
    assert_eq!(source.counters().unacknowledged, 0);
    source.close(Duration::from_secs(10)).await;
    assert!(matches!(source.next().await, SourceEvent::Closed));
}
