//! What only housekeeping does to the tables.

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, Select};
use causeway_aws::fault::classify;
use causeway_core::identity::{LaneId, LogName, Slot};
use causeway_core::outcome::{Fault, FaultClass, Outcome};
use causeway_core::units::{Instant, UnixMillis};
use causeway_duties::housekeeping::{Chores, Depth, Pruned};
use causeway_ports::{Clock as _, LogRecord, SystemClock};
use std::collections::HashMap;

type Key = HashMap<String, AttributeValue>;

/// The categories that letters may have: one index partition each.
const CATEGORIES: [FaultClass; 5] =
    [FaultClass::Transient, FaultClass::Permanent, FaultClass::Rejected, FaultClass::Expired, FaultClass::Poison];
/// Rows deleted side by side.
const DELETES: usize = 16;
/// Rows that one call of a pruning looks at most.
const PRUNE_PAGE: usize = 1_000;

/// The tables of one bridge.
#[derive(Clone, Debug)]
pub struct TableChores {
    /// The client.
    pub client: Client,
    /// The outbox table.
    pub outbox: String,
    /// The table of dead letters.
    pub dlq: String,
    /// The ledger of drops.
    pub ledger: String,
}

fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn n(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn text<'a>(item: &'a Key, name: &str) -> &'a str {
    item.get(name).and_then(|value| value.as_s().ok()).map_or("", String::as_str)
}

impl TableChores {
    async fn depth_of(&self, category: FaultClass, deadline: Instant, depth: &mut Depth) -> Result<bool, Fault> {
        let query = || {
            self.client
                .query()
                .table_name(&self.dlq)
                .index_name(causeway_aws::schema::BY_CATEGORY)
                .key_condition_expression("#category = :category")
                .filter_expression("#state <> :redriven")
                .expression_attribute_names("#category", "category")
                .expression_attribute_names("#state", "state")
                .expression_attribute_values(":category", s(category.as_str()))
                .expression_attribute_values(":redriven", s("redriven"))
        };
        let failed = |error: &_| classify(&format!("Query on table `{}`", self.dlq), error).fault;
        let (mut start, mut found) = (None, 0_u64);
        loop {
            if SystemClock.now() >= deadline {
                return Ok(false);
            }
            // The first page names the oldest; the others only count.
            let oldest_wanted = found == 0;
            let request = query().set_exclusive_start_key(start);
            let request = if oldest_wanted { request.limit(100) } else { request.select(Select::Count) };
            let answer = request.send().await.map_err(|error| failed(&error))?;
            if let Some(first) = answer.items().first() {
                let at = text(first, "failed_sort").split('#').next().and_then(|millis| millis.parse().ok()).map(UnixMillis);
                depth.oldest = [depth.oldest, at].into_iter().flatten().min();
            }
            let count = u64::try_from(answer.count).unwrap_or_default();
            found += count;
            depth.letters += count;
            start = answer.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() {
                return Ok(true);
            }
        }
    }

    /// Deletes rows by their keys, each only if its retention is over; answers how many went and how many had been changed.
    async fn delete_over(&self, table: &str, keys: Vec<Key>, now_s: u64) -> Result<(u64, u64), Fault> {
        let (mut deleted, mut kept) = (0, 0);
        for some in keys.chunks(DELETES) {
            let deletes = some.iter().map(|key| {
                self.client
                    .delete_item()
                    .table_name(table)
                    .set_key(Some(key.clone()))
                    .condition_expression("attribute_exists(#ttl) AND #ttl <= :now")
                    .expression_attribute_names("#ttl", "ttl")
                    .expression_attribute_values(":now", n(now_s))
                    .send()
            });
            for answer in futures_util::future::join_all(deletes).await {
                match answer {
                    Ok(_) => deleted += 1,
                    Err(error) if error.as_service_error().is_some_and(|error| error.is_conditional_check_failed_exception()) => kept += 1,
                    Err(error) => return Err(classify(&format!("DeleteItem on table `{table}`"), &error).fault),
                }
            }
        }
        Ok((deleted, kept))
    }

    /// Every row of every lane, those included that were closed before. The record goes last, so that a run that ends halfway is taken up again.
    async fn try_remove(&self, record: &LogRecord) -> Result<bool, Fault> {
        for lane in 0.. {
            let rows = self.remove_rows(&record.log.in_lane(LaneId(lane))).await?;
            // A run that ended halfway went through them in this order too: none stands behind one without rows.
            if lane + 1 >= record.lanes && rows == 0 {
                break;
            }
        }
        let call = |operation: &str| format!("{operation} on table `{}`", self.outbox);
        let delete = self
            .client
            .delete_item()
            .table_name(&self.outbox)
            .key("pk", s("REGISTRY"))
            .key("sk", s(record.log.as_str()))
            .condition_expression("#epoch = :epoch")
            .expression_attribute_names("#epoch", "epoch")
            .expression_attribute_values(":epoch", n(record.epoch.0));
        match delete.send().await {
            Ok(_) => Ok(true),
            Err(error) if error.as_service_error().is_some_and(|error| error.is_conditional_check_failed_exception()) => Ok(false),
            Err(error) => Err(classify(&call("DeleteItem"), &error).fault),
        }
    }

    /// The head row of a lane and what stands above it; answers how many rows there were.
    async fn remove_rows(&self, log: &LogName) -> Result<usize, Fault> {
        let call = |operation: &str| format!("{operation} on table `{}`", self.outbox);
        let (mut start, mut rows) = (None, 0);
        loop {
            let answer = self
                .client
                .query()
                .table_name(&self.outbox)
                .consistent_read(true)
                .key_condition_expression("#pk = :pk AND #sk >= :head")
                .projection_expression("#pk, #sk")
                .expression_attribute_names("#pk", "pk")
                .expression_attribute_names("#sk", "sk")
                .expression_attribute_values(":pk", s(log.as_str()))
                .expression_attribute_values(":head", s(Slot::HEAD.sort_key()))
                .set_exclusive_start_key(start)
                .send()
                .await
                .map_err(|error| classify(&call("Query"), &error).fault)?;
            let items = answer.items.unwrap_or_default();
            rows += items.len();
            for some in items.chunks(DELETES) {
                let deletes = some.iter().map(|key| self.client.delete_item().table_name(&self.outbox).set_key(Some(key.clone())).send());
                for answer in futures_util::future::join_all(deletes).await {
                    answer.map_err(|error| classify(&call("DeleteItem"), &error).fault)?;
                }
            }
            start = answer.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() {
                return Ok(rows);
            }
        }
    }

    /// Whether the log is retired under the record's epoch, now.
    async fn is_retired(&self, record: &LogRecord) -> Result<bool, Fault> {
        let request = self.client.get_item().table_name(&self.outbox).key("pk", s("REGISTRY")).key("sk", s(record.log.as_str()));
        let answer = request.consistent_read(true).send().await;
        let answer = answer.map_err(|error| classify(&format!("GetItem on table `{}`", self.outbox), &error).fault)?;
        let epoch = record.epoch.0.to_string();
        Ok(answer
            .item
            .is_some_and(|item| text(&item, "state") == "retired" && item.get("epoch").and_then(|value| value.as_n().ok()) == Some(&epoch)))
    }
}

#[async_trait]
impl Chores for TableChores {
    async fn dead_letters(&self, deadline: Instant) -> Result<Option<Depth>, Fault> {
        let mut depth = Depth::default();
        for category in CATEGORIES {
            if !self.depth_of(category, deadline, &mut depth).await? {
                return Ok(None);
            }
        }
        Ok(Some(depth))
    }

    async fn prune_ledger(&self, now: UnixMillis, after: Option<&str>, limit: usize, dry_run: bool) -> Result<Pruned, Fault> {
        let start =
            after.and_then(|key| key.split_once('\u{1f}')).map(|(pk, sk)| [("pk".to_owned(), s(pk)), ("sk".to_owned(), s(sk))].into());
        let answer = self
            .client
            .scan()
            .table_name(&self.ledger)
            .filter_expression("attribute_exists(#ttl) AND #ttl <= :now")
            .projection_expression("#pk, #sk")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_names("#pk", "pk")
            .expression_attribute_names("#sk", "sk")
            .expression_attribute_values(":now", n(now.0 / 1_000))
            .set_exclusive_start_key(start)
            .limit(i32::try_from(limit.clamp(1, PRUNE_PAGE)).unwrap_or(i32::MAX))
            .send()
            .await
            .map_err(|error| classify(&format!("Scan on table `{}`", self.ledger), &error).fault)?;
        let next = answer.last_evaluated_key.as_ref().filter(|key| !key.is_empty());
        let next = next.map(|key| format!("{}\u{1f}{}", text(key, "pk"), text(key, "sk")));
        let keys = answer.items.unwrap_or_default();
        if dry_run {
            return Ok(Pruned { deleted: keys.len() as u64, conflicts: 0, next });
        }
        let (deleted, conflicts) = self.delete_over(&self.ledger, keys, now.0 / 1_000).await?;
        Ok(Pruned { deleted, conflicts, next })
    }

    async fn remove_log(&self, record: &LogRecord) -> Outcome<bool> {
        match self.is_retired(record).await {
            Ok(true) => {}
            Ok(false) => return Outcome::Done(false),
            Err(fault) => return Outcome::NotDone(fault),
        }
        match self.try_remove(record).await {
            Ok(removed) => Outcome::Done(removed),
            Err(fault) => Outcome::Unknown(fault),
        }
    }
}
