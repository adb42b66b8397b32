//! The tables, as their own interface describes them: a template may say what no table got.

use crate::cloud::Cloud;
use crate::stack::Made;
use anyhow::{Context as _, Result, ensure};
use causeway_aws::schema;

/// Compares every table with the program's definition of it. Answers how many there are.
///
/// # Errors
/// One differs.
pub async fn verify(cloud: &Cloud, made: &Made) -> Result<usize> {
    let facts = schema::to_json();
    let definitions = facts["tables"].as_array().context("no definitions")?;
    let mut tables = made.of("AWS::DynamoDB::Table");
    tables.extend(made.of("AWS::DynamoDB::GlobalTable"));
    ensure!(tables.len() == definitions.len(), "{} tables were made, {} are defined", tables.len(), definitions.len());
    for definition in definitions {
        let suffix = definition["default_name"].as_str().unwrap_or_default().trim_start_matches("causeway");
        let table = tables.iter().find(|table| table.physical.ends_with(suffix)).with_context(|| format!("no table …{suffix}"))?;
        let name = table.physical.as_str();
        let described = cloud.aws(&["dynamodb", "describe-table", "--table-name", name]).await?;
        ensure!(described["Table"]["DeletionProtectionEnabled"] == true, "{name} has no deletion protection");
        let keys: Vec<&str> =
            described["Table"]["KeySchema"].as_array().into_iter().flatten().filter_map(|key| key["AttributeName"].as_str()).collect();
        let wanted: Vec<&str> =
            [&definition["partition_key"], &definition["sort_key"]].into_iter().filter_map(|key| key["name"].as_str()).collect();
        ensure!(keys == wanted, "{name} has the keys {keys:?} instead of {wanted:?}");
        let backups = cloud.aws(&["dynamodb", "describe-continuous-backups", "--table-name", name]).await?;
        let recovery = &backups["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"];
        ensure!(recovery == "ENABLED", "{name}: point-in-time recovery is {recovery}");
        let ttl = cloud.aws(&["dynamodb", "describe-time-to-live", "--table-name", name]).await?;
        let ttl = &ttl["TimeToLiveDescription"];
        let attribute = (ttl["TimeToLiveStatus"] == "ENABLED").then(|| ttl["AttributeName"].as_str()).flatten();
        ensure!(attribute == definition["ttl_attribute"].as_str(), "{name}: its time-to-live attribute is {attribute:?}");
    }
    Ok(tables.len())
}
