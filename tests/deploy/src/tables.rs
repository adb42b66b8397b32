//! The tables, as their own interface describes them: a template may say what no table got.

use crate::cloud::Cloud;
use crate::stack::Made;
use anyhow::{Context as _, Result, ensure};
use aws_sdk_dynamodb::types::{PointInTimeRecoveryStatus, TimeToLiveStatus};
use causeway_aws::schema;

/// Compares every table with the program's definition of it. Answers how many there are.
///
/// # Errors
/// One differs.
pub async fn verify(cloud: &Cloud, made: &Made) -> Result<usize> {
    let facts = schema::to_json();
    let definitions = facts["tables"].as_array().context("no definitions")?;
    let tables: Vec<_> = made.tables().collect();
    let client = aws_sdk_dynamodb::Client::new(&cloud.sdk().await);
    ensure!(tables.len() == definitions.len(), "{} tables were made, {} are defined", tables.len(), definitions.len());
    for definition in definitions {
        let suffix = definition["default_name"].as_str().unwrap_or_default().trim_start_matches("causeway");
        let table = tables.iter().find(|table| table.physical.ends_with(suffix)).with_context(|| format!("no table …{suffix}"))?;
        let name = table.physical.as_str();
        let described = client.describe_table().table_name(name).send().await?.table.context("nothing is described")?;
        ensure!(described.deletion_protection_enabled == Some(true), "{name} has no deletion protection");
        let keys: Vec<&str> = described.key_schema().iter().map(|key| key.attribute_name()).collect();
        let wanted: Vec<&str> =
            [&definition["partition_key"], &definition["sort_key"]].into_iter().filter_map(|key| key["name"].as_str()).collect();
        ensure!(keys == wanted, "{name} has the keys {keys:?} instead of {wanted:?}");
        let backups = client.describe_continuous_backups().table_name(name).send().await?.continuous_backups_description;
        let recovery = backups.and_then(|backups| backups.point_in_time_recovery_description?.point_in_time_recovery_status);
        ensure!(recovery == Some(PointInTimeRecoveryStatus::Enabled), "{name}: point-in-time recovery is {recovery:?}");
        let ttl = client.describe_time_to_live().table_name(name).send().await?.time_to_live_description;
        let ttl = ttl.filter(|ttl| ttl.time_to_live_status == Some(TimeToLiveStatus::Enabled));
        let attribute = ttl.as_ref().and_then(|ttl| ttl.attribute_name());
        ensure!(attribute == definition["ttl_attribute"].as_str(), "{name}: its time-to-live attribute is {attribute:?}");
    }
    Ok(tables.len())
}
