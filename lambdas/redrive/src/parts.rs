//! What the function is made of.

use crate::handler;
use async_trait::async_trait;
use causeway_aws::{DynamoDeadLetters, DynamoRedrives, SqsOptions, SqsSink};
use causeway_core::redrive::Routes;
use causeway_duties::redrive::Ports;
use causeway_lambda::{Emitter, Environment, Function, FunctionError, Invocation};
use causeway_ports::{Sink, SystemClock};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The variables of the tables that it uses.
const TABLES: [&str; 2] = ["CAUSEWAY_DLQ_TABLE", "CAUSEWAY_OUTBOX_TABLE"];

/// Everything that an invocation needs.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The bridge's routes.
    pub routes: Routes,
    /// What is called.
    pub ports: Ports,
    /// For the queues' own dead letters.
    pub sqs: aws_sdk_sqs::Client,
    /// Where metrics go.
    pub metrics: Emitter,
}

#[async_trait]
impl Function for Parts {
    /// Reads the environment and makes clients. Nothing is asked of a table yet.
    async fn connect() -> Result<Self, FunctionError> {
        let environment = Environment::load(&TABLES).await?;
        let (dlq, outbox) = (environment.table("CAUSEWAY_DLQ_TABLE"), environment.table("CAUSEWAY_OUTBOX_TABLE"));
        let letters = DynamoDeadLetters::new(environment.dynamodb()?, dlq);
        let redrives = DynamoRedrives::new(letters.clone(), Some(outbox.to_owned()));
        let ports =
            Ports { letters: Arc::new(letters), redrives: Arc::new(redrives), sinks: sinks(&environment)?, clock: Arc::new(SystemClock) };
        let sqs = environment.aws.sqs(None).map_err(|fault| FunctionError::of("AWS_REGION", &fault))?;
        let metrics = Emitter::new(&environment.bridge_id, "redrive");
        Ok(Self { routes: environment.routes()?, ports, sqs, metrics })
    }

    async fn handle(&self, event: &Value, invocation: &Invocation) -> Result<Value, FunctionError> {
        handler::handle(event, invocation, self).await
    }
}

/// The destinations of routes without an outbox, by sender.
fn sinks(environment: &Environment) -> Result<BTreeMap<String, Arc<dyn Sink>>, FunctionError> {
    let mut sinks: BTreeMap<String, Arc<dyn Sink>> = BTreeMap::new();
    let Some(config) = &environment.config else { return Ok(sinks) };
    let direct = config.routes.iter().filter(|route| !route.delivery_mode.needs_outbox());
    let bindings = direct.flat_map(|route| &route.bindings).filter_map(|id| config.binding(id));
    for sender in bindings.filter_map(|binding| config.sender(&binding.sender_id)) {
        let Some(settings) = sender.sqs() else { continue };
        let sink =
            SqsSink::new(&environment.aws, SqsOptions::from(settings)).map_err(|fault| FunctionError::of("CAUSEWAY_CONFIG_SSM", &fault))?;
        sinks.insert(sender.id.to_string(), Arc::new(sink));
    }
    Ok(sinks)
}
