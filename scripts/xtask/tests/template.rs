//! What is made from the deployment's template, as its interfaces describe it afterwards.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use aws_sdk_dynamodb::types::{KeySchemaElement, TableDescription};
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::{Value, json};
use xtask::stack::template::{TEMPLATE, local, parse};
use xtask::stack::{Stack, StackOptions, Store};

/// The resources of one type in the template.
fn resources(kind: &str) -> Vec<Value> {
    let template: Value = serde_json::from_str(TEMPLATE).unwrap();
    let all = template["Resources"].as_object().unwrap().values();
    all.filter(|resource| resource["Type"] == kind).map(|resource| resource["Properties"].clone()).collect()
}

fn keys(schema: &[KeySchemaElement]) -> Value {
    schema.iter().map(|key| json!({ "AttributeName": key.attribute_name(), "KeyType": key.key_type().as_str() })).collect()
}

/// A list whose order means nothing, in one order; the attributes that an index holds too.
fn sorted(value: &Value, by: &str) -> Vec<Value> {
    let mut list = value.as_array().cloned().unwrap_or_default();
    list.sort_by_key(|item| item[by].as_str().unwrap().to_owned());
    for item in &mut list {
        if let Some(held) = item.pointer_mut("/Projection/NonKeyAttributes").and_then(Value::as_array_mut) {
            held.sort_by_key(|name| name.as_str().unwrap().to_owned());
        }
    }
    list
}

/// A table as its interface describes it, in the template's words.
fn in_words_of_the_template(table: &TableDescription) -> Value {
    let attributes: Value = table
        .attribute_definitions()
        .iter()
        .map(|key| json!({ "AttributeName": key.attribute_name(), "AttributeType": key.attribute_type().as_str() }))
        .collect();
    let indexes: Value = table
        .global_secondary_indexes()
        .iter()
        .map(|index| {
            let projection = index.projection().unwrap();
            let mut described = json!({ "ProjectionType": projection.projection_type().unwrap().as_str() });
            if !projection.non_key_attributes().is_empty() {
                described["NonKeyAttributes"] = json!(projection.non_key_attributes());
            }
            json!({ "IndexName": index.index_name().unwrap(), "KeySchema": keys(index.key_schema()), "Projection": described })
        })
        .collect();
    json!({
        "AttributeDefinitions": sorted(&attributes, "AttributeName"),
        "KeySchema": keys(table.key_schema()),
        "GlobalSecondaryIndexes": sorted(&indexes, "IndexName"),
        "BillingMode": table.billing_mode_summary().unwrap().billing_mode().unwrap().as_str(),
        "DeletionProtectionEnabled": table.deletion_protection_enabled().unwrap(),
    })
}

#[tokio::test]
async fn tables_and_queues_are_those_of_the_template() {
    let dir = tempfile::tempdir().unwrap();
    let stack = Stack::start(&StackOptions::bound(dir.path(), Store::Dynamodb)).await.unwrap();
    let (dynamodb, sqs) = (&stack.aws.dynamodb, &stack.aws.sqs);

    let tables = resources("AWS::DynamoDB::Table");
    let mut names: Vec<&str> = tables.iter().map(|table| table["TableName"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert!(names.len() >= 6);
    assert_eq!(dynamodb.list_tables().send().await.unwrap().table_names(), names, "these and no others");
    for wanted in &tables {
        let name = wanted["TableName"].as_str().unwrap();
        let described = dynamodb.describe_table().table_name(name).send().await.unwrap().table.unwrap();
        let described = in_words_of_the_template(&described);
        assert_eq!(described["KeySchema"], wanted["KeySchema"], "{name}");
        for (list, by) in [("AttributeDefinitions", "AttributeName"), ("GlobalSecondaryIndexes", "IndexName")] {
            assert_eq!(sorted(&described[list], by), sorted(&wanted[list], by), "{name}");
        }
        for property in ["BillingMode", "DeletionProtectionEnabled"] {
            assert_eq!(described[property], wanted[property], "{name}");
        }
        let ttl = dynamodb.describe_time_to_live().table_name(name).send().await.unwrap().time_to_live_description.unwrap();
        let ttl = ttl.attribute_name.map(|attribute| json!({ "AttributeName": attribute, "Enabled": true }));
        assert_eq!(ttl.unwrap_or(Value::Null), wanted["TimeToLiveSpecification"], "{name}");
    }

    assert!(stack.queue_url.ends_with("/telemetry"), "messages go to {}", stack.queue_url);
    let queues = resources("AWS::SQS::Queue");
    assert_eq!(queues.len(), 4);
    for wanted in &queues {
        let name = wanted["QueueName"].as_str().unwrap();
        let url = sqs.get_queue_url().queue_name(name).send().await.unwrap().queue_url.unwrap();
        let told = sqs.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All).send().await.unwrap();
        let told = told.attributes.unwrap();
        for (property, value) in wanted.as_object().unwrap() {
            let attribute = QueueAttributeName::from(property.as_str());
            match property.as_str() {
                "QueueName" => {}
                "RedrivePolicy" => {
                    let policy: Value = serde_json::from_str(&told[&attribute]).unwrap();
                    assert_eq!(policy["maxReceiveCount"].to_string().trim_matches('"'), value["maxReceiveCount"].to_string());
                    assert!(policy["deadLetterTargetArn"].as_str().unwrap().ends_with(&format!(":{name}-dlq")), "{policy}");
                }
                _ => assert_eq!(told.get(&attribute).unwrap().to_lowercase(), value.to_string(), "{name}: {property}"),
            }
        }
    }

    // A second time everything is there already.
    let template = local().unwrap();
    template.create_tables(&stack.aws).await.unwrap();
    assert_eq!(template.create_queues(&stack.aws).await.unwrap(), stack.queue_url);
}

#[test]
fn what_the_translation_does_not_know_is_an_error() {
    for (known, unknown) in [
        ("\"BillingMode\"", "\"ProvisionedThroughput\""),
        ("\"VisibilityTimeout\"", "\"VisibilityTimeouts\""),
        ("\"AWS::DynamoDB::Table\"", "\"AWS::DynamoDB::GlobalTable\""),
        ("\"Fn::GetAtt\"", "\"Ref\""),
        ("\"ProjectionType\"", "\"Projections\""),
    ] {
        assert!(TEMPLATE.contains(known), "{known}");
        assert!(parse(&TEMPLATE.replace(known, unknown)).is_err(), "{unknown}");
    }
    parse(TEMPLATE).unwrap();
}
