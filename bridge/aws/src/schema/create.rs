//! Creating tables.

use super::{Index, Key, KeyType, Projection, Table, TimeToLive, verify};
use crate::fault::{classify, short_code};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata};
use aws_sdk_dynamodb::operation::create_table::CreateTableInput;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType as Role, PointInTimeRecoverySpecification,
    Projection as SdkProjection, ProjectionType, ScalarAttributeType, TableStatus, Tag, TimeToLiveSpecification,
};
use causeway_core::outcome::{Fault, FaultCode};
use core::time::Duration;

/// How long a new table may take until it can be used, and how often it is looked at.
const ACTIVE_ROUNDS: u32 = 120;
const ACTIVE_PAUSE: Duration = Duration::from_secs(1);

/// What creates `table` under `name`: on-demand billing, deletion protection, tags.
///
/// # Errors
/// [`BuildError`] where a name is missing, which no definition of ours does.
pub fn create_input(table: &Table, name: &str, tags: &[(String, String)]) -> Result<CreateTableInput, BuildError> {
    let mut input = CreateTableInput::builder()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .deletion_protection_enabled(true)
        .set_key_schema(Some(key_schema(&table.partition, table.sort.as_ref())?))
        .set_attribute_definitions(Some(table.key_attributes().iter().map(definition).collect::<Result<_, _>>()?));
    for index in table.indexes {
        input = input.global_secondary_indexes(secondary_index(index)?);
    }
    for (tag, value) in tags {
        input = input.tags(Tag::builder().key(tag).value(value).build()?);
    }
    input.build()
}

fn definition(key: &Key) -> Result<AttributeDefinition, BuildError> {
    AttributeDefinition::builder().attribute_name(key.name).attribute_type(scalar(key.kind)).build()
}

pub(super) const fn scalar(kind: KeyType) -> ScalarAttributeType {
    match kind {
        KeyType::S => ScalarAttributeType::S,
        KeyType::N => ScalarAttributeType::N,
    }
}

fn key_schema(partition: &Key, sort: Option<&Key>) -> Result<Vec<KeySchemaElement>, BuildError> {
    let element = |key: &Key, role| KeySchemaElement::builder().attribute_name(key.name).key_type(role).build();
    let partition = element(partition, Role::Hash);
    let sort = sort.map(|key| element(key, Role::Range));
    core::iter::once(partition).chain(sort).collect()
}

fn secondary_index(index: &Index) -> Result<GlobalSecondaryIndex, BuildError> {
    let projection = match index.projection {
        Projection::KeysOnly => SdkProjection::builder().projection_type(ProjectionType::KeysOnly),
        Projection::Include(names) => SdkProjection::builder()
            .projection_type(ProjectionType::Include)
            .set_non_key_attributes(Some(names.iter().map(|&name| name.to_owned()).collect())),
    };
    GlobalSecondaryIndex::builder()
        .index_name(index.name)
        .set_key_schema(Some(key_schema(&index.partition, Some(&index.sort))?))
        .projection(projection.build())
        .build()
}

/// Creates those of `tables` (definition and name) that do not exist, and checks those that do. Answers the names of the new ones.
///
/// # Errors
/// The first fault; tables created before it stay.
pub async fn create_missing_tables(client: &Client, tables: &[(&Table, &str)], tags: &[(String, String)]) -> Result<Vec<String>, Fault> {
    let mut created = Vec::new();
    for (table, name) in tables {
        match verify(client, table, name).await {
            Ok(()) => {}
            Err(fault) if fault.code == FaultCode::NotFound => {
                if create(client, table, name, tags).await? {
                    created.push((*name).to_owned());
                }
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(created)
}

/// Creates one table and waits until it can be used; answers whether it was this call that created it.
async fn create(client: &Client, table: &Table, name: &str, tags: &[(String, String)]) -> Result<bool, Fault> {
    let call = format!("CreateTable `{name}`");
    let input = create_input(table, name, tags).map_err(|error| Fault::new(FaultCode::InvalidConfig, format!("{call}: {error}")))?;
    let request = client
        .create_table()
        .table_name(name)
        .set_billing_mode(input.billing_mode)
        .set_deletion_protection_enabled(input.deletion_protection_enabled)
        .set_key_schema(input.key_schema)
        .set_attribute_definitions(input.attribute_definitions)
        .set_global_secondary_indexes(input.global_secondary_indexes)
        .set_tags(input.tags);
    let ours = match request.send().await {
        Ok(_) => true,
        // Somebody else was faster: what stands is checked below like ours.
        Err(error) if error.code().map(short_code) == Some("ResourceInUseException") => false,
        Err(error) => return Err(classify(&call, &error).fault),
    };
    wait_until_active(client, name).await?;
    if ours {
        switch_on_ttl(client, table, name).await?;
        switch_on_recovery(client, name).await?;
    }
    verify(client, table, name).await?;
    Ok(ours)
}

async fn wait_until_active(client: &Client, name: &str) -> Result<(), Fault> {
    let call = format!("DescribeTable `{name}`");
    for _ in 0..ACTIVE_ROUNDS {
        match client.describe_table().table_name(name).send().await {
            Ok(answer) if answer.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active) => {
                return Ok(());
            }
            Ok(_) => {}
            Err(error) => {
                let found = classify(&call, &error).fault;
                // A table that was just asked for may not be visible yet.
                if found.code != FaultCode::NotFound && !found.is_transient() {
                    return Err(found);
                }
            }
        }
        tokio::time::sleep(ACTIVE_PAUSE).await;
    }
    Err(Fault::new(FaultCode::Timeout, format!("{call}: the new table is not active after {ACTIVE_ROUNDS} s")))
}

async fn switch_on_ttl(client: &Client, table: &Table, name: &str) -> Result<(), Fault> {
    let TimeToLive::Attribute(attribute) = table.time_to_live else {
        return Ok(());
    };
    let call = format!("UpdateTimeToLive `{name}`");
    let specification = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(true).build();
    let specification = specification.map_err(|error| Fault::new(FaultCode::InvalidConfig, format!("{call}: {error}")))?;
    let answer = client.update_time_to_live().table_name(name).time_to_live_specification(specification).send().await;
    answer.map(|_| ()).map_err(|error| classify(&call, &error).fault)
}

/// Local endpoints may not know point-in-time recovery: that is said, and is no fault.
async fn switch_on_recovery(client: &Client, name: &str) -> Result<(), Fault> {
    let call = format!("UpdateContinuousBackups `{name}`");
    let specification = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true).build();
    let specification = specification.map_err(|error| Fault::new(FaultCode::InvalidConfig, format!("{call}: {error}")))?;
    match client.update_continuous_backups().table_name(name).point_in_time_recovery_specification(specification).send().await {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.code().map(short_code), Some("UnknownOperationException" | "UnknownOperation" | "InvalidAction")) => {
            tracing::info!(table = name, "this endpoint has no point-in-time recovery: the table is created without it");
            Ok(())
        }
        Err(error) => Err(classify(&call, &error).fault),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::TABLES;
    use super::*;

    #[test]
    fn every_definition_makes_a_protected_on_demand_table() {
        for table in TABLES {
            let input = create_input(table, "x-table", &[("project".to_owned(), "causeway".to_owned())]).unwrap();
            assert_eq!(input.billing_mode(), Some(&BillingMode::PayPerRequest));
            assert_eq!(input.deletion_protection_enabled(), Some(true));
            assert_eq!(input.tags().len(), 1);
            assert_eq!(input.key_schema().len(), 1 + usize::from(table.sort.is_some()));
            assert_eq!(input.global_secondary_indexes().len(), table.indexes.len());
            assert_eq!(input.attribute_definitions().len(), table.key_attributes().len());
        }
    }
}
