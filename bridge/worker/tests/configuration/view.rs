//! What the parts of the program are built from, as texts that can be compared. Secrets are written out here, and nowhere else.

use bytes::Bytes;
use causeway_core::config::Config;
use causeway_core::dispatch::{Arrival, Dispatch};
use causeway_core::identity::IdSequence;
use causeway_core::message::{Message, Properties};
use causeway_core::units::UnixMillis;
use causeway_mqtt::CaSource;
use causeway_worker::wiring::{MqttPlan, OwnerPlan, Plan, SenderWay, SourcePlan, topology};
use core::fmt::Write as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;

/// A part of the program, and what it is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The process itself: logs, listeners, names, stop.
    Process,
    /// The stores.
    Stores,
    /// The destinations.
    Senders,
    /// The owner loops: sources, logs, leases, policies.
    Owners,
    /// What becomes of messages: bindings, headers, payloads.
    Messages,
    /// The failover budgets, which `check` judges and `budget` prints.
    Budget,
    /// What the monitor shows of the configuration.
    Shown,
    /// The gateway of commands.
    Commands,
}

pub fn of(config: &Config) -> BTreeMap<Part, String> {
    let plan = Plan::of(config, 7).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let process = format!(
        "{:#?} {:?} {:?} {:?}",
        plan.process,
        plan.process.admin.iter().flat_map(|admin| &admin.keys).map(|(name, key)| (name, key.reveal())).collect::<Vec<_>>(),
        plan.process.monitor_key.as_ref().map(|key| key.reveal()),
        (
            plan.process.hint_token.as_ref().map(|token| token.reveal()),
            plan.process.posts.iter().map(|posts| posts.token.reveal()).collect::<Vec<_>>()
        )
    );
    let mut senders = format!("{:#?}", plan.senders);
    for sender in &plan.senders {
        if let SenderWay::Mqtt { connection, .. } = &sender.way {
            senders += &hidden(connection);
        }
    }
    let mut commands = format!("{:#?}", plan.commands);
    if let Some(plan) = &plan.commands {
        commands += plan.token.reveal();
        commands += &hidden(&plan.listening);
    }
    BTreeMap::from([
        (Part::Process, process),
        (Part::Commands, commands),
        (Part::Stores, format!("{:#?}", plan.stores)),
        (Part::Senders, senders),
        (Part::Messages, plan.owners.iter().map(messages).collect()),
        (Part::Owners, plan.owners.into_iter().map(owner).collect()),
        (Part::Budget, format!("{:#?}", config.budgets())),
        (Part::Shown, topology(config).to_string()),
    ])
}

/// An owner loop without its dispatch, whose effect is compared instead.
fn owner(mut plan: OwnerPlan) -> String {
    plan.dispatch = Arc::new(Dispatch::default());
    let hidden = if let SourcePlan::Mqtt(connection) = &plan.source { hidden(connection) } else { String::new() };
    format!("{plan:#?}{hidden}")
}

/// What a connection is given and does not show.
fn hidden(connection: &MqttPlan) -> String {
    let options = &connection.options;
    let mut text = format!("{:?}", options.credentials.as_ref().map(|login| (&login.username, login.password.expose())));
    let _ = write!(text, "{:?}", options.will.as_ref().map(|will| &will.payload));
    let _ = write!(text, "{:?}", options.tls.client.as_ref().map(|client| (&client.cert_pem, &client.key_pem)));
    if let CaSource::Pem(pem) = &options.tls.ca {
        let _ = write!(text, "{pem:?}");
    }
    text
}

/// What becomes of some messages of each receiver.
fn messages(plan: &OwnerPlan) -> String {
    let mut text = String::new();
    for leg in &plan.legs {
        let receiver: Arc<str> = leg.receiver.as_str().into();
        for message in samples() {
            let arrival = Arrival { receiver: &receiver, received_at: UnixMillis(1_000), message: &message };
            let _ = writeln!(text, "{:?}", plan.dispatch.entries(&arrival, &mut IdSequence::new(1)));
        }
    }
    text
}

fn samples() -> [Message; 6] {
    let message = |topic: &str, payload: &str, user: &[(&str, &str)]| Message {
        topic: topic.to_owned(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        qos: 1,
        properties: Properties {
            user: user.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..Properties::default()
        },
        ..Message::default()
    };
    [
        message("a/b", r#"{"kind":"x","n":5}"#, &[("kind", "x"), ("site", "north")]),
        message("a/c", r#"{"kind":"y","n":7}"#, &[("kind", "y"), ("other", "south")]),
        message("a/d", "no JSON", &[("x-bridge.tenant-id", "told"), ("x-bridge.ordering-key", "k")]),
        message("a/e", "7", &[]),
        Message { retain: true, ..message("a/f", "kept", &[]) },
        Message { properties: Properties { expiry_seconds: Some(u32::MAX), ..Properties::default() }, ..message("a/g", "long", &[]) },
    ]
}

/// Certificates that configurations name.
pub struct Files(TempDir);

impl Files {
    pub fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let key = KeyPair::generate().unwrap();
        for name in ["one", "two"] {
            let mut params = CertificateParams::new(vec![format!("{name}.example.com")]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let pem = params.self_signed(&key).unwrap().pem();
            std::fs::write(folder.path().join(format!("{name}.pem")), &pem).unwrap();
        }
        std::fs::write(folder.path().join("one.key"), key.serialize_pem()).unwrap();
        // The same key: another one would not fit the certificate.
        std::fs::write(folder.path().join("two.key"), format!("{}\n\n", key.serialize_pem())).unwrap();
        Self(folder)
    }

    /// A document in which `{dir}` stands for the folder, and `{text:NAME}` for what a file in it holds.
    pub fn filled(&self, document: &str) -> String {
        let mut filled = document.replace("{dir}", self.0.path().to_str().unwrap());
        for name in ["one.pem", "two.pem", "one.key", "two.key"] {
            let place = format!("{{text:{name}}}");
            if filled.contains(&place) {
                let text = std::fs::read_to_string(self.0.path().join(name)).unwrap();
                filled = filled.replace(&place, &serde_json::to_string(&text).unwrap());
            }
        }
        filled
    }
}
