//! Checking a table that exists against its definition.

use super::create::scalar;
use super::{Index, Key, Projection, Table, TimeToLive};
use crate::fault::classify;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, GlobalSecondaryIndexDescription, IndexStatus, KeySchemaElement, KeyType as Role, ProjectionType, TableDescription,
    TableStatus, TimeToLiveStatus,
};
use causeway_core::outcome::{Fault, FaultCode};

/// Checks the table called `name` against its definition.
///
/// # Errors
/// `NOT_FOUND` where there is none; `INVALID_CONFIG` where its keys or indexes differ, or where DynamoDB may remove what must stay: the text
/// names what was found, what is expected and what to run. `UNAVAILABLE` while it is being made.
pub async fn verify(client: &Client, table: &Table, name: &str) -> Result<(), Fault> {
    let answer = client.describe_table().table_name(name).send().await;
    let answer = answer.map_err(|error| {
        let mut fault = classify(&format!("DescribeTable `{name}`"), &error).fault;
        if fault.code == FaultCode::NotFound {
            fault.detail =
                format!("table `{name}` ({}) does not exist: run `causeway stores create -c FILE`, or deploy the stack", table.role);
        }
        fault
    })?;
    let Some(found) = answer.table() else {
        return Err(Fault::new(FaultCode::ProtocolError, format!("DescribeTable `{name}`: the answer describes no table")));
    };
    check_description(table, name, found)?;
    match table.time_to_live {
        TimeToLive::Forbidden(why) => refuse_ttl(client, name, why).await,
        TimeToLive::Unused | TimeToLive::Attribute(_) => Ok(()),
    }
}

fn check_description(table: &Table, name: &str, found: &TableDescription) -> Result<(), Fault> {
    if !matches!(found.table_status(), Some(TableStatus::Active | TableStatus::Updating)) {
        let status = found.table_status().map_or("unknown", TableStatus::as_str);
        return Err(Fault::new(FaultCode::Unavailable, format!("table `{name}` is {status}: wait until it is ACTIVE")));
    }
    let definitions = found.attribute_definitions();
    let expected = keys_in_words(&table.partition, table.sort.as_ref());
    let actual = schema_in_words(found.key_schema(), definitions);
    if actual != expected {
        return Err(Fault::new(
            FaultCode::InvalidConfig,
            format!(
                "table `{name}` has the keys {actual}, but the {} table needs {expected}: name another table in `table_name` and run \
                 `causeway stores create -c FILE` (keys of a table cannot be changed)",
                table.role
            ),
        ));
    }
    table.indexes.iter().try_for_each(|index| check_index(name, index, found.global_secondary_indexes(), definitions))
}

fn check_index(
    name: &str,
    index: &Index,
    found: &[GlobalSecondaryIndexDescription],
    definitions: &[AttributeDefinition],
) -> Result<(), Fault> {
    let expected = keys_in_words(&index.partition, Some(&index.sort));
    let Some(found) = found.iter().find(|candidate| candidate.index_name() == Some(index.name)) else {
        let command = add_index_command(name, index);
        return Err(Fault::new(
            FaultCode::InvalidConfig,
            format!("table `{name}` has no index `{}` on {expected}: run `{command}`", index.name),
        ));
    };
    let actual = schema_in_words(found.key_schema(), definitions);
    if actual != expected {
        let command = format!(
            "aws dynamodb update-table --table-name {name} --global-secondary-index-updates '[{{\"Delete\":{{\"IndexName\":\"{}\"}}}}]'",
            index.name
        );
        return Err(Fault::new(
            FaultCode::InvalidConfig,
            format!(
                "index `{}` of table `{name}` has the keys {actual}, but needs {expected}: run `{command}` and then `{}`",
                index.name,
                add_index_command(name, index)
            ),
        ));
    }
    if found.index_status().is_some_and(|status| !matches!(status, IndexStatus::Active | IndexStatus::Updating)) {
        return Err(Fault::new(FaultCode::Unavailable, format!("index `{}` of table `{name}` is not ACTIVE yet: wait", index.name)));
    }
    check_projection(name, index, found)
}

fn check_projection(name: &str, index: &Index, found: &GlobalSecondaryIndexDescription) -> Result<(), Fault> {
    let Some(projection) = found.projection() else {
        return Ok(());
    };
    let holds = |attribute: &str| match projection.projection_type() {
        Some(ProjectionType::All) | None => true,
        _ => projection.non_key_attributes().iter().any(|name| name == attribute),
    };
    let wanted: &[&str] = match index.projection {
        Projection::KeysOnly => &[],
        Projection::Include(names) => names,
    };
    match wanted.iter().find(|attribute| !holds(attribute)) {
        None => Ok(()),
        Some(attribute) => Err(Fault::new(
            FaultCode::InvalidConfig,
            format!(
                "index `{}` of table `{name}` does not hold `{attribute}`: make it again with the projection {:?}",
                index.name, index.projection
            ),
        )),
    }
}

async fn refuse_ttl(client: &Client, name: &str, why: &str) -> Result<(), Fault> {
    let answer = client.describe_time_to_live().table_name(name).send().await;
    let answer = answer.map_err(|error| classify(&format!("DescribeTimeToLive `{name}`"), &error).fault)?;
    let Some(found) = answer.time_to_live_description() else {
        return Ok(());
    };
    if !matches!(found.time_to_live_status(), Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)) {
        return Ok(());
    }
    let attribute = found.attribute_name().unwrap_or("ttl");
    Err(Fault::new(
        FaultCode::InvalidConfig,
        format!(
            "table `{name}` has time to live enabled on `{attribute}`, which this table must never have ({why}): run `aws dynamodb \
             update-time-to-live --table-name {name} --time-to-live-specification Enabled=false,AttributeName={attribute}`"
        ),
    ))
}

fn keys_in_words(partition: &Key, sort: Option<&Key>) -> String {
    let one = |key: &Key, role| format!("{} {} {role}", key.name, scalar(key.kind).as_str());
    let mut words = one(partition, "HASH");
    if let Some(sort) = sort {
        words.push_str(", ");
        words.push_str(&one(sort, "RANGE"));
    }
    format!("({words})")
}

fn schema_in_words(schema: &[KeySchemaElement], definitions: &[AttributeDefinition]) -> String {
    let kind = |name: &str| {
        definitions.iter().find(|definition| definition.attribute_name() == name).map_or("?", |found| found.attribute_type().as_str())
    };
    let mut keys: Vec<_> = schema.iter().collect();
    keys.sort_by_key(|key| key.key_type() != &Role::Hash);
    let words: Vec<_> =
        keys.iter().map(|key| format!("{} {} {}", key.attribute_name(), kind(key.attribute_name()), key.key_type().as_str())).collect();
    format!("({})", words.join(", "))
}

fn add_index_command(name: &str, index: &Index) -> String {
    let definition = |key: &Key| format!("AttributeName={},AttributeType={}", key.name, scalar(key.kind).as_str());
    let projection = match index.projection {
        Projection::KeysOnly => r#"{"ProjectionType":"KEYS_ONLY"}"#.to_owned(),
        Projection::Include(names) => {
            format!(r#"{{"ProjectionType":"INCLUDE","NonKeyAttributes":{names:?}}}"#)
        }
    };
    format!(
        "aws dynamodb update-table --table-name {name} --attribute-definitions {} {} --global-secondary-index-updates \
         '[{{\"Create\":{{\"IndexName\":\"{}\",\"KeySchema\":[{{\"AttributeName\":\"{}\",\"KeyType\":\"HASH\"}},{{\"AttributeName\":\"{}\",\
         \"KeyType\":\"RANGE\"}}],\"Projection\":{projection}}}}}]'",
        definition(&index.partition),
        definition(&index.sort),
        index.name,
        index.partition.name,
        index.sort.name
    )
}
