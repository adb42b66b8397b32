//! The tables and queues of everything local, made from the template that a deployment of `infra/settings.local.ts` would be made from: what runs here has
//! the keys, indexes, time to live and redrive policy of what is deployed. The file is synthesized and compared by a test in `infra/`, so that nothing
//! here needs Node. What it says and this module does not know is an error, not something to leave out silently.

use super::aws::{Aws, explain};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::types as ddb;
use aws_sdk_sqs::types::QueueAttributeName;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The synthesized template, `lib/generated/local-state.template.json` of `infra/`.
pub const TEMPLATE: &str = include_str!("../../../../infra/lib/generated/local-state.template.json");

/// The queue that the bridge delivers to; the others are received from, or somebody's dead letters.
const DELIVERED_TO: &str = "telemetry";
/// How often a new table is looked at until it can be used, and the pause between.
const ACTIVE_ROUNDS: u32 = 300;
const ACTIVE_PAUSE: Duration = Duration::from_millis(200);

/// A template with tables and queues.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Template {
    resources: BTreeMap<String, Resource>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "Type", content = "Properties")]
enum Resource {
    #[serde(rename = "AWS::DynamoDB::Table")]
    Table(Table),
    #[serde(rename = "AWS::SQS::Queue")]
    Queue(Queue),
    /// It asks for TLS, which nothing on loopback has.
    #[serde(rename = "AWS::SQS::QueuePolicy")]
    QueuePolicy {},
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Table {
    table_name: String,
    attribute_definitions: Vec<Attribute>,
    key_schema: Vec<KeyPart>,
    billing_mode: String,
    deletion_protection_enabled: bool,
    #[serde(default)]
    global_secondary_indexes: Vec<Index>,
    point_in_time_recovery_specification: PointInTimeRecovery,
    #[serde(rename = "SSESpecification")]
    encryption: Encryption,
    time_to_live_specification: Option<TimeToLive>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Attribute {
    attribute_name: String,
    attribute_type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct KeyPart {
    attribute_name: String,
    key_type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Index {
    index_name: String,
    key_schema: Vec<KeyPart>,
    projection: Projection,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Projection {
    projection_type: String,
    non_key_attributes: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct PointInTimeRecovery {
    point_in_time_recovery_enabled: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encryption {
    #[serde(rename = "SSEEnabled")]
    enabled: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct TimeToLive {
    attribute_name: String,
    enabled: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Queue {
    queue_name: String,
    message_retention_period: Option<u32>,
    visibility_timeout: Option<u32>,
    delay_seconds: Option<u32>,
    receive_message_wait_time_seconds: Option<u32>,
    maximum_message_size: Option<u32>,
    sqs_managed_sse_enabled: Option<bool>,
    fifo_queue: Option<bool>,
    content_based_deduplication: Option<bool>,
    deduplication_scope: Option<String>,
    fifo_throughput_limit: Option<String>,
    redrive_policy: Option<RedrivePolicy>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RedrivePolicy {
    dead_letter_target_arn: Reference,
    max_receive_count: u32,
}

/// An attribute of another resource of the template.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    #[serde(rename = "Fn::GetAtt")]
    resource_and_attribute: (String, String),
}

/// The template of everything local.
///
/// # Errors
/// It holds something that is not known here.
pub fn local() -> Result<Template> {
    parse(TEMPLATE)
}

/// Reads a template.
///
/// # Errors
/// It holds a resource, or a property of one, that is not known here.
pub fn parse(text: &str) -> Result<Template> {
    serde_json::from_str(text)
        .context("the template of the local stack has something that scripts/xtask/src/stack/template.rs does not know")
}

impl Template {
    /// Creates the tables that do not exist. One that does is left as it is.
    ///
    /// # Errors
    /// DynamoDB refuses or does not answer.
    pub async fn create_tables(&self, aws: &Aws) -> Result<()> {
        for resource in self.resources.values() {
            if let Resource::Table(table) = resource {
                let created = table.create(&aws.dynamodb).await;
                created.with_context(|| format!("cannot create the table {} at {}", table.table_name, aws.dynamodb_endpoint))?;
            }
        }
        Ok(())
    }

    /// Creates the queues, those first that others refer to, and answers the address of the one that the bridge delivers to. One that exists with the
    /// same attributes is taken.
    ///
    /// # Errors
    /// SQS refuses or does not answer; queues refer to each other; there is none that messages are sent to.
    pub async fn create_queues(&self, aws: &Aws) -> Result<String> {
        let queues = || {
            self.resources.iter().filter_map(|(id, resource)| if let Resource::Queue(queue) = resource { Some((id, queue)) } else { None })
        };
        let mut made: BTreeMap<&str, Made> = BTreeMap::new();
        while made.len() < queues().count() {
            let before = made.len();
            for (id, queue) in queues() {
                let target = queue.redrive_policy.as_ref().map(|policy| policy.dead_letter_target_arn.queue()).transpose()?;
                if !made.contains_key(id.as_str()) && target.is_none_or(|target| made.contains_key(target)) {
                    let dead_letters = target.and_then(|target| made.get(target)).map(|queue| queue.arn.as_str());
                    let created = queue.create(&aws.sqs, dead_letters).await;
                    let queue = created.with_context(|| format!("cannot create the queue {} at {}", queue.queue_name, aws.endpoint))?;
                    made.insert(id, queue);
                }
            }
            ensure!(made.len() > before, "queues of the template refer to each other, or to one that it does not have");
        }
        let destination = queues().find(|(_, queue)| queue.queue_name == DELIVERED_TO);
        let destination = destination.and_then(|(id, _)| made.remove(id.as_str()));
        destination.map(|queue| queue.url).with_context(|| format!("no queue of the template is called {DELIVERED_TO}"))
    }
}

impl Table {
    async fn create(&self, client: &aws_sdk_dynamodb::Client) -> Result<()> {
        let request = client
            .create_table()
            .table_name(&self.table_name)
            .billing_mode(ddb::BillingMode::from(self.billing_mode.as_str()))
            .deletion_protection_enabled(self.deletion_protection_enabled)
            .sse_specification(ddb::SseSpecification::builder().enabled(self.encryption.enabled).build())
            .set_attribute_definitions(Some(self.attribute_definitions.iter().map(Attribute::translated).collect::<Result<_>>()?))
            .set_key_schema(Some(key_schema(&self.key_schema)?));
        let indexes: Vec<_> = self.global_secondary_indexes.iter().map(Index::translated).collect::<Result<_>>()?;
        match request.set_global_secondary_indexes((!indexes.is_empty()).then_some(indexes)).send().await {
            Ok(_) => {}
            Err(fault) if fault.code().is_some_and(|code| code.ends_with("ResourceInUseException")) => return Ok(()),
            Err(fault) => return Err(anyhow!(explain(&fault))),
        }
        self.wait_until_active(client).await?;
        self.set_time_to_live(client).await?;
        self.set_recovery(client).await
    }

    async fn wait_until_active(&self, client: &aws_sdk_dynamodb::Client) -> Result<()> {
        for _ in 0..ACTIVE_ROUNDS {
            let described = client.describe_table().table_name(&self.table_name).send().await.map_err(|fault| anyhow!(explain(&fault)))?;
            if described.table().and_then(|table| table.table_status()) == Some(&ddb::TableStatus::Active) {
                return Ok(());
            }
            tokio::time::sleep(ACTIVE_PAUSE).await;
        }
        bail!("it is not active after {:?}", ACTIVE_PAUSE * ACTIVE_ROUNDS)
    }

    async fn set_time_to_live(&self, client: &aws_sdk_dynamodb::Client) -> Result<()> {
        let Some(wanted) = &self.time_to_live_specification else {
            return Ok(());
        };
        let specification =
            ddb::TimeToLiveSpecification::builder().attribute_name(&wanted.attribute_name).enabled(wanted.enabled).build()?;
        let set = client.update_time_to_live().table_name(&self.table_name).time_to_live_specification(specification).send().await;
        set.map(drop).map_err(|fault| anyhow!("UpdateTimeToLive: {}", explain(&fault)))
    }

    /// Amazon DynamoDB Local has no such call: nothing there can be recovered anyway.
    async fn set_recovery(&self, client: &aws_sdk_dynamodb::Client) -> Result<()> {
        let enabled = self.point_in_time_recovery_specification.point_in_time_recovery_enabled;
        let specification = ddb::PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(enabled).build()?;
        let request = client.update_continuous_backups().table_name(&self.table_name).point_in_time_recovery_specification(specification);
        match request.send().await {
            Ok(_) => Ok(()),
            Err(fault) if fault.code().is_some_and(|code| code.contains("UnknownOperation")) => Ok(()),
            Err(fault) => Err(anyhow!("UpdateContinuousBackups: {}", explain(&fault))),
        }
    }
}

impl Attribute {
    fn translated(&self) -> Result<ddb::AttributeDefinition> {
        let kind = ddb::ScalarAttributeType::from(self.attribute_type.as_str());
        Ok(ddb::AttributeDefinition::builder().attribute_name(&self.attribute_name).attribute_type(kind).build()?)
    }
}

impl Index {
    fn translated(&self) -> Result<ddb::GlobalSecondaryIndex> {
        let projection = ddb::Projection::builder()
            .projection_type(ddb::ProjectionType::from(self.projection.projection_type.as_str()))
            .set_non_key_attributes(self.projection.non_key_attributes.clone());
        let index = ddb::GlobalSecondaryIndex::builder().index_name(&self.index_name).set_key_schema(Some(key_schema(&self.key_schema)?));
        Ok(index.projection(projection.build()).build()?)
    }
}

fn key_schema(parts: &[KeyPart]) -> Result<Vec<ddb::KeySchemaElement>> {
    let element = |part: &KeyPart| {
        let role = ddb::KeyType::from(part.key_type.as_str());
        Ok(ddb::KeySchemaElement::builder().attribute_name(&part.attribute_name).key_type(role).build()?)
    };
    parts.iter().map(element).collect()
}

/// A queue that exists.
#[derive(Debug)]
struct Made {
    url: String,
    arn: String,
}

impl Queue {
    async fn create(&self, client: &aws_sdk_sqs::Client, dead_letters: Option<&str>) -> Result<Made> {
        let request = client.create_queue().queue_name(&self.queue_name).set_attributes(Some(self.attributes(dead_letters)));
        let url = request.send().await.map_err(|fault| anyhow!(explain(&fault)))?.queue_url.context("SQS answered without an address")?;
        let asked = client.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::QueueArn).send().await;
        let told = asked.map_err(|fault| anyhow!(explain(&fault)))?.attributes.unwrap_or_default();
        let arn = told.get(&QueueAttributeName::QueueArn).context("SQS does not tell the queue's ARN")?.clone();
        Ok(Made { url, arn })
    }

    fn attributes(&self, dead_letters: Option<&str>) -> std::collections::HashMap<QueueAttributeName, String> {
        use QueueAttributeName as Name;
        let number = |name: Name, value: Option<u32>| value.map(|value| (name, value.to_string()));
        let flag = |name: Name, value: Option<bool>| value.map(|value| (name, value.to_string()));
        let text = |name: Name, value: &Option<String>| value.clone().map(|value| (name, value));
        let policy = self.redrive_policy.as_ref().zip(dead_letters).map(|(policy, arn)| {
            let policy = serde_json::json!({ "deadLetterTargetArn": arn, "maxReceiveCount": policy.max_receive_count });
            (Name::RedrivePolicy, policy.to_string())
        });
        let attributes = [
            number(Name::MessageRetentionPeriod, self.message_retention_period),
            number(Name::VisibilityTimeout, self.visibility_timeout),
            number(Name::DelaySeconds, self.delay_seconds),
            number(Name::ReceiveMessageWaitTimeSeconds, self.receive_message_wait_time_seconds),
            number(Name::MaximumMessageSize, self.maximum_message_size),
            flag(Name::SqsManagedSseEnabled, self.sqs_managed_sse_enabled),
            // A queue that is not FIFO must not say so.
            flag(Name::FifoQueue, self.fifo_queue.filter(|fifo| *fifo)),
            flag(Name::ContentBasedDeduplication, self.content_based_deduplication),
            text(Name::DeduplicationScope, &self.deduplication_scope),
            text(Name::FifoThroughputLimit, &self.fifo_throughput_limit),
            policy,
        ];
        attributes.into_iter().flatten().collect()
    }
}

impl Reference {
    /// The queue whose ARN is meant.
    fn queue(&self) -> Result<&str> {
        let (resource, attribute) = &self.resource_and_attribute;
        ensure!(attribute == "Arn", "a dead-letter queue is named by its ARN, and the template says {resource}.{attribute}");
        Ok(resource)
    }
}
