//! The contract of destinations, kept by a topic of mosquitto.

use crate::mosquitto::{Mosquitto, free_port};
use crate::publishing::{sink, sink_options, sink_with};
use crate::support::{any_delivery, options, ready, source};
use async_trait::async_trait;
use causeway_mqtt::{MqttSink, MqttSinkOptions, MqttSource};
use causeway_ports::conformance::sink::{Arrived, Destination};
use causeway_ports::{Sink, Source, SystemClock};
use std::sync::Arc;
use tokio::sync::Mutex;

/// The broker's own limit, so that one message may be as large as that.
const LIMIT: usize = 150_000;

struct Topic {
    sink: Arc<MqttSink>,
    consumer: Mutex<(MqttSource, Vec<Arrived>)>,
}

#[async_trait]
impl Destination for Topic {
    fn sink(&self) -> &dyn Sink {
        &*self.sink
    }

    fn astray(&self) -> Box<dyn Sink> {
        Box::new(Arc::into_inner(sink(free_port())).unwrap())
    }

    async fn arrived(&self, count: usize) -> Vec<Arrived> {
        let mut consumer = self.consumer.lock().await;
        while consumer.1.len() < count {
            let delivery = any_delivery(&mut consumer.0).await;
            consumer.0.acknowledge(delivery.id);
            let mut properties = delivery.message.properties;
            let told = properties.user.iter().position(|(name, _)| name == "causeway.message_id").expect("every message has an id");
            let (_, id) = properties.user.remove(told);
            consumer.1.push(Arrived { id, payload: delivery.message.payload, properties });
        }
        consumer.1.clone()
    }
}

async fn topic() -> (Arc<dyn Destination>, Mosquitto) {
    let broker = Mosquitto::with(&format!("allow_anonymous true\nmax_packet_size {LIMIT}\n"), |_| ()).await;
    let mut consumer = source(options(broker.port, &[("out/#", "r")]));
    ready(&mut consumer).await;
    let sink = sink_with(broker.port, 10, MqttSinkOptions { topic: "out/contract".into(), ..sink_options() }, Arc::new(SystemClock));
    (Arc::new(Topic { sink, consumer: Mutex::new((consumer, Vec::new())) }), broker)
}
causeway_ports::sink_conformance!(topic);
