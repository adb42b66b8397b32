//! The ledger of drops in DynamoDB. A batch is one transaction under a token, so that one whose answer got lost is counted once.

use crate::fault::classify;
use crate::items::{Item, ItemError, PK, SK, key, n, number, s, text};
use crate::schema::{self, LEDGER};
use crate::transaction::{Refused, refused};
use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use causeway_core::drops::ledger::{LedgerCount, LedgerKey, LedgerLimits, LedgerRow};
use causeway_core::drops::{Direction, DropReason};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::{DropLedger, LedgerBatch, LedgerPage};
use core::time::Duration;
use std::collections::HashMap;

const UPDATE: &str = "ADD #lost :lost, #dead :dead SET #first = if_not_exists(#first, :first), #last = :last, #key = :key, #reason = :reason, \
                      #topic = :topic, #direction = :direction, #route = :route, #qos = :qos, #detail = :detail, #ttl = :ttl";

/// A ledger in one DynamoDB table.
#[derive(Clone, Debug)]
pub struct DynamoDropLedger {
    client: Client,
    table: String,
    bridge: String,
    retention: Duration,
}

impl DynamoDropLedger {
    /// The ledger of `bridge` in `table`, whose rows go `retention` after the last message that they tell of.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>, bridge: impl Into<String>, retention: Duration) -> Self {
        Self { client, table: table.into(), bridge: bridge.into(), retention }
    }

    fn pk(&self) -> String {
        format!("DROPS#{}", self.bridge)
    }

    fn call(&self, operation: &str) -> String {
        format!("{operation} on table `{}`", self.table)
    }

    fn update(&self, row: &LedgerRow) -> Result<Update, Fault> {
        let LedgerRow { key: about, count } = row;
        let ttl = count.last.0 / 1_000 + self.retention.as_secs();
        Update::builder()
            .table_name(&self.table)
            .set_key(Some(key(self.pk(), about.name())))
            .update_expression(UPDATE)
            .expression_attribute_names("#lost", "lost")
            .expression_attribute_names("#dead", "dead_lettered")
            .expression_attribute_names("#first", "first")
            .expression_attribute_names("#last", "last")
            .expression_attribute_names("#key", "client_or_key")
            .expression_attribute_names("#reason", "reason")
            .expression_attribute_names("#topic", "topic")
            .expression_attribute_names("#direction", "direction")
            .expression_attribute_names("#route", "route_id")
            .expression_attribute_names("#qos", "qos")
            .expression_attribute_names("#detail", "detail")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":lost", n(count.lost))
            .expression_attribute_values(":dead", n(count.dead_lettered))
            .expression_attribute_values(":first", n(count.first.0))
            .expression_attribute_values(":last", n(count.last.0))
            .expression_attribute_values(":key", s(&about.key))
            .expression_attribute_values(":reason", s(about.reason.as_str()))
            .expression_attribute_values(":topic", s(&about.topic))
            .expression_attribute_values(":direction", s(about.direction.as_str()))
            .expression_attribute_values(":route", s(&count.route))
            .expression_attribute_values(":qos", n(count.qos))
            .expression_attribute_values(":detail", s(&count.detail))
            .expression_attribute_values(":ttl", n(ttl))
            .build()
            .map_err(|error| Fault::new(FaultCode::InvalidConfig, error.to_string()))
    }

    /// A page of the partition, with only the named attributes where some are named.
    async fn page(&self, projection: Option<&str>, start: Option<Item>) -> Result<(Vec<Item>, Option<Item>), Fault> {
        let mut query = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("#pk = :pk")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_values(":pk", s(self.pk()))
            .set_exclusive_start_key(start);
        if let Some(projection) = projection {
            query =
                query.projection_expression(projection).expression_attribute_names("#sk", SK).expression_attribute_names("#last", "last");
        }
        let answer = query.send().await.map_err(|error| classify(&self.call("Query"), &error).fault)?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key.filter(|key| !key.is_empty())))
    }
}

fn decode(item: &Item) -> Result<LedgerRow, ItemError> {
    Ok(LedgerRow {
        key: LedgerKey {
            key: text(item, "client_or_key")?.to_owned(),
            reason: DropReason::parse(text(item, "reason")?).ok_or(ItemError::Unreadable("reason"))?,
            topic: text(item, "topic")?.to_owned(),
            direction: Direction::parse(text(item, "direction")?).ok_or(ItemError::Unreadable("direction"))?,
        },
        count: LedgerCount {
            lost: number(item, "lost")?,
            dead_lettered: number(item, "dead_lettered")?,
            first: UnixMillis(number(item, "first")?),
            last: UnixMillis(number(item, "last")?),
            route: text(item, "route_id")?.to_owned(),
            qos: number(item, "qos")?,
            detail: text(item, "detail")?.to_owned(),
        },
    })
}

#[async_trait]
impl DropLedger for DynamoDropLedger {
    async fn add(&self, batch: &LedgerBatch) -> Outcome<()> {
        let updates: Result<Vec<TransactWriteItem>, Fault> =
            batch.rows.iter().map(|row| Ok(TransactWriteItem::builder().update(self.update(row)?).build())).collect();
        let updates = match updates {
            Ok(updates) if updates.is_empty() => return Outcome::Done(()),
            Ok(updates) => updates,
            Err(fault) => return Outcome::NotDone(fault),
        };
        let token = format!("{:032x}", batch.id);
        let request = self.client.transact_write_items().set_transact_items(Some(updates)).client_request_token(token);
        match request.send().await {
            Ok(_) => Outcome::Done(()),
            Err(error) => match refused(&self.call("TransactWriteItems"), error) {
                Refused::Conditions(_) => Outcome::NotDone(Fault::new(FaultCode::ProtocolError, "a condition failed where there is none")),
                Refused::OtherParameters(fault) | Refused::Fault(fault) => fault.outcome(),
            },
        }
    }

    async fn list(&self, limit: usize) -> Result<LedgerPage, Fault> {
        let (mut rows, mut start) = (Vec::new(), None);
        loop {
            let (items, next) = self.page(None, start).await?;
            for item in items {
                rows.push(decode(&item).map_err(|error| error.fault(&self.table, &item))?);
            }
            start = next;
            if start.is_none() || rows.len() >= limit {
                let complete = start.is_none() && rows.len() <= limit;
                return Ok(LedgerPage::newest(rows, limit, complete));
            }
        }
    }

    async fn prune(&self, limits: LedgerLimits) -> Outcome<usize> {
        let (mut rows, mut start) = (Vec::new(), None);
        loop {
            let (items, next) = match self.page(Some("#sk, #last"), start).await {
                Ok(page) => page,
                Err(fault) => return Outcome::NotDone(fault),
            };
            for item in &items {
                match (text(item, SK), number(item, "last")) {
                    (Ok(name), Ok(last)) => rows.push((UnixMillis(last), name.to_owned())),
                    (Err(error), _) | (_, Err(error)) => return Outcome::NotDone(error.fault(&self.table, item)),
                }
            }
            start = next;
            if start.is_none() {
                break;
            }
        }
        let last_of: HashMap<String, UnixMillis> = rows.iter().map(|(last, name)| (name.clone(), *last)).collect();
        let doomed = limits.doomed(rows);
        for name in &doomed {
            // A row that was counted up meanwhile is not the oldest any more.
            let delete = self
                .client
                .delete_item()
                .table_name(&self.table)
                .set_key(Some(key(self.pk(), name)))
                .condition_expression("#last = :last")
                .expression_attribute_names("#last", "last")
                .expression_attribute_values(":last", n(last_of.get(name).copied().unwrap_or_default().0));
            match delete.send().await {
                Err(error) if !error.as_service_error().is_some_and(|error| error.is_conditional_check_failed_exception()) => {
                    return classify(&self.call("DeleteItem"), &error).outcome();
                }
                Ok(_) | Err(_) => {}
            }
        }
        Outcome::Done(doomed.len())
    }

    async fn probe(&self) -> Result<(), Fault> {
        schema::verify(&self.client, &LEDGER, &self.table).await
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        schema::create_missing_tables(&self.client, &[(&LEDGER, self.table.as_str())], &[]).await
    }
}
