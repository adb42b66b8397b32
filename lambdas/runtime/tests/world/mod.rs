//! What the tests of both functions run in: Amazon DynamoDB Local (or what stands for it), and the function as Lambda starts it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use xtask::lambda::{Answer, Function};
use xtask::stack::aws::Aws;
use xtask::stack::emulators::{Emulator, dynamodb_local_home};
use xtask::stack::ports::free_port;
use xtask::stack::process::Lifetime;

/// A store of its own for one test, and the environment of a function of bridge `plant-1` on it.
pub struct Stack {
    pub aws: Aws,
    pub environment: BTreeMap<String, String>,
    _emulator: Emulator,
    _dir: tempfile::TempDir,
}

impl Stack {
    /// `tables`: the roles of the tables that the function is told of; each is called like its role.
    pub async fn start(tables: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port().unwrap();
        let emulator = match dynamodb_local_home() {
            Some(home) => Emulator::dynamodb_local(&home, dir.path(), port, Lifetime::Bound).await.unwrap(),
            None => Emulator::ministack(dir.path(), port, Lifetime::Bound).await.unwrap(),
        };
        let aws = Aws::new(emulator.endpoint(), emulator.endpoint()).await;
        let mut environment = aws.environment();
        environment.insert("CAUSEWAY_BRIDGE_ID".to_owned(), "plant-1".to_owned());
        for role in tables {
            environment.insert(format!("CAUSEWAY_{}_TABLE", role.to_uppercase()), (*role).to_owned());
        }
        Self { aws, environment, _emulator: emulator, _dir: dir }
    }

    /// Starts the function whose program this is.
    pub async fn function(&self, program: &str) -> Function {
        let program = Path::new(program);
        let name = program.file_name().unwrap().to_str().unwrap();
        Function::start(program, name, &self.environment).await.unwrap()
    }
}

/// Invokes it with an event that has so much time.
pub async fn invoke(function: &Function, event: &Value, timeout: Duration) -> Answer {
    function.invoke(&serde_json::to_vec(event).unwrap(), timeout).await.unwrap().0
}
