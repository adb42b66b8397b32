//! The outbox log in DynamoDB. Every read is consistent, every put is conditional, every answer says what it cost.

pub(crate) mod mailbox;

use crate::fault::{CallFault, classify};
use crate::items::{DRAINED, EPOCH, ID, Item, ItemError, PK, SK, head, id_value, key, n, registry, row, s, slot as slot_of};
use crate::meter::Meter;
use crate::schema::{self, OUTBOX};
use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{DeleteRequest, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure, WriteRequest};
use causeway_core::identity::{LogName, Slot};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{Head, Row, RowMeta};
use causeway_ports::{LogRecord, Outbox, Page, Put, Registration, StoreUsage};
use core::time::Duration;

/// What BatchWriteItem takes.
const DELETES_PER_CALL: usize = 25;
/// How often deletes that DynamoDB left undone are asked for again before the caller hears of it.
const DELETE_ROUNDS: u32 = 6;
/// The pause before the second round; it doubles from round to round.
const DELETE_PAUSE: Duration = Duration::from_millis(25);

/// The outbox log in one DynamoDB table.
#[derive(Debug)]
pub struct DynamoOutbox {
    client: Client,
    table: String,
    tags: Vec<(String, String)>,
    meter: Meter,
}

/// How a conditional put ended.
enum Conditional {
    Written,
    /// The condition failed; the row that stands, as far as DynamoDB gave it.
    Refused(Option<Item>),
}

impl DynamoOutbox {
    /// The log in `table`; [`schema::OUTBOX`] describes its shape.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into(), tags: Vec::new(), meter: Meter::default() }
    }

    /// Tags for the table, should it be created.
    #[must_use]
    pub fn with_tags(mut self, tags: Vec<(String, String)>) -> Self {
        self.tags = tags;
        self
    }

    /// The table's name.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    fn call(&self, operation: &str) -> String {
        format!("{operation} on table `{}`", self.table)
    }

    fn put(&self, item: Item) -> PutItemFluentBuilder {
        self.meter.count_write();
        self.client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    async fn send_put(&self, request: PutItemFluentBuilder) -> Result<Conditional, CallFault> {
        match request.send().await {
            Ok(answer) => {
                self.meter.add_write_units(answer.consumed_capacity());
                Ok(Conditional::Written)
            }
            Err(SdkError::ServiceError(refusal)) if refusal.err().is_conditional_check_failed_exception() => {
                let PutItemError::ConditionalCheckFailedException(failed) = refusal.into_err() else {
                    return Ok(Conditional::Refused(None));
                };
                Ok(Conditional::Refused(failed.item))
            }
            Err(error) => Err(classify(&self.call("PutItem"), &error)),
        }
    }

    /// Sends a put of which only matters whether its condition held.
    async fn conditional(&self, request: PutItemFluentBuilder) -> Outcome<bool> {
        match self.send_put(request).await {
            Ok(ended) => Outcome::Done(matches!(ended, Conditional::Written)),
            Err(fault) => fault.outcome(),
        }
    }

    fn query(&self) -> QueryFluentBuilder {
        self.client
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .expression_attribute_names("#pk", PK)
    }

    async fn send_query(&self, request: QueryFluentBuilder) -> Result<(Vec<Item>, Option<Item>), Fault> {
        let answer = request.send().await.map_err(|error| classify(&self.call("Query"), &error).fault)?;
        self.meter.add_read_units(answer.consumed_capacity());
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key.filter(|key| !key.is_empty())))
    }

    async fn get(&self, key: Item) -> Result<Option<Item>, Fault> {
        let answer = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(key))
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|error| classify(&self.call("GetItem"), &error).fault)?;
        self.meter.add_read_units(answer.consumed_capacity());
        Ok(answer.item)
    }

    fn unreadable(&self, item: &Item) -> impl FnOnce(ItemError) -> Fault {
        let table = self.table.clone();
        let key: Item =
            item.iter().filter(|(name, _)| *name == PK || *name == SK).map(|(name, value)| (name.clone(), value.clone())).collect();
        move |error| error.fault(&table, &key)
    }

    /// One BatchWriteItem and what it left undone.
    async fn delete_some(&self, requests: Vec<WriteRequest>) -> Result<Vec<WriteRequest>, CallFault> {
        self.meter.count_write();
        let answer = self
            .client
            .batch_write_item()
            .request_items(&self.table, requests)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|error| classify(&self.call("BatchWriteItem"), &error))?;
        self.meter.add_write_units(answer.consumed_capacity());
        Ok(answer.unprocessed_items.and_then(|mut items| items.remove(&self.table)).unwrap_or_default())
    }

    async fn delete_all(&self, mut requests: Vec<WriteRequest>) -> Result<(), CallFault> {
        let mut pause = DELETE_PAUSE;
        for round in 0..DELETE_ROUNDS {
            if round > 0 {
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2);
            }
            requests = self.delete_some(requests).await?;
            if requests.is_empty() {
                return Ok(());
            }
        }
        let detail = format!("{}: {} of the deletes were left undone", self.call("BatchWriteItem"), requests.len());
        Err(CallFault { fault: Fault::new(FaultCode::Throttled, detail), effect: crate::fault::Effect::None })
    }
}

#[async_trait]
impl Outbox for DynamoOutbox {
    async fn read_tail(&self, log: &LogName) -> Result<Option<RowMeta>, Fault> {
        self.meter.count_read();
        let request = self
            .query()
            .key_condition_expression("#pk = :pk AND #sk > :head")
            .expression_attribute_names("#sk", SK)
            .expression_attribute_names("#epoch", EPOCH)
            .expression_attribute_names("#id", ID)
            .expression_attribute_names("#drained", DRAINED)
            .projection_expression("#pk, #sk, #epoch, #id, #drained")
            .expression_attribute_values(":pk", s(log.as_str()))
            .expression_attribute_values(":head", s(Slot::HEAD.sort_key()))
            .scan_index_forward(false)
            .limit(1);
        let (items, _) = self.send_query(request).await?;
        items.first().map(|item| row::decode_meta(item).map_err(self.unreadable(item))).transpose()
    }

    async fn read_head(&self, log: &LogName) -> Result<Option<Head>, Fault> {
        self.meter.count_read();
        let item = self.get(key(log.as_str(), Slot::HEAD.sort_key())).await?;
        item.map(|item| head::decode(&item).map_err(self.unreadable(&item))).transpose()
    }

    async fn put(&self, log: &LogName, slot: Slot, row: &Row) -> Outcome<Put> {
        let item = row::encode(log, slot, row);
        if let Err(fault) = mailbox::fits(&self.table, &item) {
            return Outcome::NotDone(fault);
        }
        let request = self
            .put(item)
            .condition_expression("attribute_not_exists(#pk) OR #id = :mine")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#id", ID)
            .expression_attribute_values(":mine", id_value(row.id()));
        match self.send_put(request).await {
            Ok(Conditional::Written) => Outcome::Done(Put::Stored),
            Ok(Conditional::Refused(Some(standing))) => match row::decode_meta(&standing) {
                Ok(meta) => Outcome::Done(Put::Occupied(meta)),
                Err(error) => Outcome::NotDone(error.fault(&self.table, &standing)),
            },
            Ok(Conditional::Refused(None)) => {
                let detail =
                    format!("{}: the slot is taken, and the endpoint does not return the row that stands there", self.call("PutItem"));
                Outcome::NotDone(Fault::new(FaultCode::ProtocolError, detail))
            }
            Err(fault) => fault.outcome(),
        }
    }

    async fn put_head(&self, log: &LogName, head: &Head) -> Outcome<bool> {
        // A row without a revision has revision 0.
        let unrevised = if head.revision > 0 { "attribute_not_exists(#revision) OR " } else { "" };
        let later = format!("#epoch < :epoch OR (#epoch = :epoch AND ({unrevised}#revision < :revision))");
        let request = self
            .put(head::encode(log, head))
            .condition_expression(format!("attribute_not_exists(#pk) OR (#drained <= :drained AND ({later}))"))
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#epoch", EPOCH)
            .expression_attribute_names("#revision", head::REVISION)
            .expression_attribute_names("#drained", DRAINED)
            .expression_attribute_values(":revision", n(head.revision))
            .expression_attribute_values(":epoch", n(head.epoch.0))
            .expression_attribute_values(":drained", n(head.drained.0));
        self.conditional(request).await
    }

    async fn read_page(&self, log: &LogName, after: Slot, up_to: Slot) -> Result<Page, Fault> {
        if after >= up_to {
            return Ok(Page::default());
        }
        self.meter.count_read();
        let request = self
            .query()
            .key_condition_expression("#pk = :pk AND #sk BETWEEN :from AND :to")
            .expression_attribute_names("#sk", SK)
            .expression_attribute_values(":pk", s(log.as_str()))
            .expression_attribute_values(":from", s(after.next().sort_key()))
            .expression_attribute_values(":to", s(up_to.sort_key()));
        let (items, last) = self.send_query(request).await?;
        let rows = items.iter().map(|item| row::decode(item).map_err(self.unreadable(item))).collect::<Result<Vec<_>, _>>()?;
        let next_after = match &last {
            Some(key) => Some(slot_of(key).map_err(self.unreadable(key))?).filter(|slot| *slot < up_to),
            None => None,
        };
        Ok(Page { rows, next_after })
    }

    async fn delete(&self, log: &LogName, slots: &[Slot]) -> Outcome<()> {
        let mut slots = slots.to_vec();
        slots.sort_unstable();
        slots.dedup();
        if slots.first() == Some(&Slot::HEAD) {
            return Outcome::NotDone(Fault::new(FaultCode::ProtocolError, format!("the head row of `{log}` is never deleted")));
        }
        for chunk in slots.chunks(DELETES_PER_CALL) {
            let request = |slot: &Slot| {
                let delete = DeleteRequest::builder().set_key(Some(key(log.as_str(), slot.sort_key()))).build();
                delete.map(|delete| WriteRequest::builder().delete_request(delete).build())
            };
            let requests = match chunk.iter().map(request).collect::<Result<Vec<_>, _>>() {
                Ok(requests) => requests,
                Err(error) => {
                    return Outcome::NotDone(Fault::new(FaultCode::InvalidConfig, error.to_string()));
                }
            };
            if let Err(fault) = self.delete_all(requests).await {
                return fault.outcome();
            }
        }
        Outcome::Done(())
    }

    async fn read_record(&self, log: &LogName) -> Result<Option<LogRecord>, Fault> {
        let item = self.get(key(registry::REGISTRY, log.as_str())).await?;
        item.map(|item| registry::decode(&item).map_err(self.unreadable(&item))).transpose()
    }

    async fn replace_record(&self, record: &LogRecord, replaces: Option<Registration>) -> Outcome<bool> {
        let request = self.put(registry::encode(record));
        let request = match replaces {
            None => request.condition_expression("attribute_not_exists(#pk)").expression_attribute_names("#pk", PK),
            Some(standing) => registry::expect(request, standing),
        };
        self.conditional(request).await
    }

    async fn list_logs(&self) -> Result<Vec<LogRecord>, Fault> {
        let mut logs = Vec::new();
        let mut start = None;
        loop {
            let request = self
                .query()
                .key_condition_expression("#pk = :pk")
                .expression_attribute_values(":pk", s(registry::REGISTRY))
                .set_exclusive_start_key(start);
            let (items, last) = self.send_query(request).await?;
            for item in &items {
                logs.push(registry::decode(item).map_err(self.unreadable(item))?);
            }
            start = last;
            if start.is_none() {
                return Ok(logs);
            }
        }
    }

    async fn probe(&self) -> Result<(), Fault> {
        schema::verify(&self.client, &OUTBOX, &self.table).await
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        schema::create_missing_tables(&self.client, &[(&OUTBOX, self.table.as_str())], &self.tags).await
    }

    fn usage(&self) -> StoreUsage {
        self.meter.usage()
    }
}
