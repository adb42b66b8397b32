//! What the stack made, as the emulator tells it.

use crate::cloud::Cloud;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// The stack that keeps data, and the one that can be made anew.
pub const STACKS: [&str; 2] = ["local-bridge-state", "local-bridge"];

/// A resource of the stack.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its name in the template.
    pub logical: String,
    /// Its name in the account.
    pub physical: String,
    /// Its type.
    pub kind: String,
}

/// Everything that both stacks made.
#[derive(Debug)]
pub struct Made {
    resources: Vec<Resource>,
}

impl Made {
    /// Asks the emulator.
    ///
    /// # Errors
    /// A stack is not there.
    pub async fn read(cloud: &Cloud) -> Result<Self> {
        let mut resources = Vec::new();
        for stack in STACKS {
            let answer = cloud.aws(&["cloudformation", "describe-stack-resources", "--stack-name", stack]).await?;
            for one in answer["StackResources"].as_array().into_iter().flatten() {
                let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
                resources.push(Resource {
                    logical: text("LogicalResourceId"),
                    physical: text("PhysicalResourceId"),
                    kind: text("ResourceType"),
                });
            }
        }
        Ok(Self { resources })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Those of a type.
    pub fn of(&self, kind: &str) -> Vec<&Resource> {
        self.resources.iter().filter(|resource| resource.kind == kind).collect()
    }

    /// The one of a type whose name in the template holds `part`.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn one(&self, kind: &str, part: &str) -> Result<&Resource> {
        let found: Vec<_> = self.of(kind).into_iter().filter(|resource| resource.logical.contains(part)).collect();
        ensure!(found.len() == 1, "{} resources of type {kind} are called …{part}…: {found:?}", found.len());
        found.first().copied().context("none")
    }

    /// The tables.
    pub fn tables(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|resource| ["AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable"].contains(&resource.kind.as_str()))
    }

    /// The name of the table that ends so.
    ///
    /// # Errors
    /// There is none.
    pub fn table(&self, suffix: &str) -> Result<String> {
        let found = self.tables().find(|table| table.physical.ends_with(suffix));
        found.map(|table| table.physical.clone()).with_context(|| format!("no table is called …{suffix}"))
    }
}

/// A container as its task definition describes it, with every secret resolved by the role that the platform would use.
#[derive(Debug)]
pub struct Container {
    /// Its environment, secrets included.
    pub environment: BTreeMap<String, String>,
    /// Its command line.
    pub command: Vec<String>,
    /// The role of what runs in it.
    pub role: String,
}

impl Container {
    /// Reads the task definition of a service.
    ///
    /// # Errors
    /// Something is missing, or a secret may not be read.
    pub async fn of(cloud: &Cloud, made: &Made, service: &Resource, enforced: bool) -> Result<Self> {
        let cluster = made.one("AWS::ECS::Cluster", "")?;
        let answer = cloud.aws(&["ecs", "describe-services", "--cluster", &cluster.physical, "--services", &service.physical]).await?;
        let definition = answer["services"][0]["taskDefinition"].as_str().context("the service has no task definition")?.to_owned();
        let answer = cloud.aws(&["ecs", "describe-task-definition", "--task-definition", &definition]).await?;
        let task = &answer["taskDefinition"];
        let role = |field: &str| task[field].as_str().map(str::to_owned).with_context(|| format!("the task has no {field}"));
        // What starts the container reads its secrets, not what runs in it.
        let platform = if enforced { cloud.in_role(&role("executionRoleArn")?).await? } else { cloud.clone() };
        let container = &task["containerDefinitions"][0];
        let mut environment = BTreeMap::new();
        for variable in container["environment"].as_array().into_iter().flatten() {
            environment.insert(text(variable, "name")?, text(variable, "value")?);
        }
        for secret in container["secrets"].as_array().into_iter().flatten() {
            environment.insert(text(secret, "name")?, resolve(&platform, &text(secret, "valueFrom")?).await?);
        }
        let command = container["command"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(Self { environment, command, role: role("taskRoleArn")? })
    }
}

fn text(value: &Value, field: &str) -> Result<String> {
    value[field].as_str().map(str::to_owned).with_context(|| format!("{field} is missing in {value}"))
}

async fn resolve(platform: &Cloud, arn: &str) -> Result<String> {
    if arn.contains(":secretsmanager:") {
        let answer = platform.aws(&["secretsmanager", "get-secret-value", "--secret-id", arn]).await?;
        return text(&answer, "SecretString");
    }
    let name = arn.split_once(":parameter").map_or(arn, |(_, name)| name);
    // By its list form, as ECS does: permissions differ.
    let answer = platform.aws(&["ssm", "get-parameters", "--with-decryption", "--names", name]).await?;
    text(&answer["Parameters"][0], "Value")
}
