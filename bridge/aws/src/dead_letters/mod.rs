//! Dead letters in DynamoDB.
//!
//! A letter is visible once its first row stands. Lists come from an index, which names the letters in the order in which they failed; the
//! letters themselves are then read by their keys.

mod listing;
mod redrive;

pub use redrive::DynamoRedrives;

use crate::fault::{CallFault, classify};
use crate::items::letter::{self, FIRST, REDRIVE_COUNT, STATE, partition_key};
use crate::items::{Item, ItemError, PK, SK, key, n, s, text};
use crate::schema::DLQ;
use crate::table::Table;
use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{DeleteRequest, ReturnValue, WriteRequest};
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::identity::EntryId;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_ports::{DeadLetterFilter, DeadLetterPage, DeadLetters};
use core::time::Duration;

/// What BatchWriteItem takes.
const DELETES_PER_CALL: usize = 25;
/// How often a batch call is repeated for what DynamoDB left undone.
const BATCH_ROUNDS: u32 = 8;
/// The pause before the second round; it doubles from round to round.
const BATCH_PAUSE: Duration = Duration::from_millis(25);

/// Dead letters in one DynamoDB table.
#[derive(Clone, Debug)]
pub struct DynamoDeadLetters {
    table: Table,
    retention: Option<Duration>,
    max_pages: u32,
}

impl DynamoDeadLetters {
    /// The letters in `table`; [`DLQ`](crate::schema::DLQ) describes its shape. They are kept until somebody deletes them.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { table: Table::new(client, table), retention: None, max_pages: 100 }
    }

    /// Lets DynamoDB remove letters this long after they failed.
    #[must_use]
    pub const fn with_retention(mut self, retention: Option<Duration>) -> Self {
        self.retention = retention;
        self
    }

    /// Reads at most so many index pages for one [`DeadLetters::list`], which then answers with what it has and where to go on.
    #[must_use]
    pub const fn with_max_pages(mut self, pages: u32) -> Self {
        self.max_pages = if pages == 0 { 1 } else { pages };
        self
    }

    /// Tags for the table, should it be created.
    #[must_use]
    pub fn with_tags(mut self, tags: Vec<(String, String)>) -> Self {
        self.table = self.table.with_tags(tags);
        self
    }

    async fn first_row(&self, id: EntryId) -> Result<Option<Item>, CallFault> {
        self.table.item(key(partition_key(id), FIRST)).await
    }

    /// The rows of a letter beside the first one: whole, or their keys alone.
    async fn parts(&self, id: EntryId, keys_only: bool) -> Result<Vec<Item>, CallFault> {
        let mut parts = Vec::new();
        let mut start = None;
        loop {
            let mut request = self
                .table
                .client
                .query()
                .table_name(&self.table.name)
                .consistent_read(true)
                .key_condition_expression("#pk = :pk AND #sk > :first")
                .expression_attribute_names("#pk", PK)
                .expression_attribute_names("#sk", SK)
                .expression_attribute_values(":pk", s(partition_key(id)))
                .expression_attribute_values(":first", s(FIRST))
                .set_exclusive_start_key(start);
            if keys_only {
                request = request.projection_expression("#pk, #sk");
            }
            let answer = request.send().await.map_err(|error| classify(&self.table.call("Query"), &error))?;
            parts.extend(answer.items.unwrap_or_default());
            start = answer.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() {
                return Ok(parts);
            }
        }
    }

    async fn read(&self, first: &Item) -> Result<DeadLetter, Fault> {
        let unreadable = |error: ItemError| error.fault(&self.table.name, first);
        let count = letter::chunk_count(first).map_err(unreadable)?;
        let mut parts = Vec::new();
        if count > 0 {
            let id = text(first, "message_id").map_err(unreadable)?.parse();
            let id = id.map_err(|_| unreadable(ItemError::Unreadable("message_id")))?;
            parts = self.parts(id, false).await.map_err(|fault| fault.fault)?;
            parts.truncate(count);
        }
        letter::decode(first, &parts).map_err(unreadable)
    }

    /// Writes the parts; whoever writes the same letter again writes the same parts.
    async fn put_parts(&self, parts: Vec<Item>) -> Result<(), CallFault> {
        for part in parts {
            let request = self.table.client.put_item().table_name(&self.table.name).set_item(Some(part));
            request.send().await.map_err(|error| classify(&self.table.call("PutItem"), &error))?;
        }
        Ok(())
    }

    /// Puts the first row if there is none, or if the letter was put back since and died again.
    async fn put_first(&self, first: Item, redrive_count: u32) -> Result<(), CallFault> {
        let request = self
            .table
            .client
            .put_item()
            .table_name(&self.table.name)
            .set_item(Some(first))
            .condition_expression("attribute_not_exists(#pk) OR (#state = :redriven AND #count = :count)")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#state", STATE)
            .expression_attribute_names("#count", REDRIVE_COUNT)
            .expression_attribute_values(":redriven", s(DeadLetterState::Redriven.as_str()))
            .expression_attribute_values(":count", n(redrive_count));
        match request.send().await {
            Ok(_) => Ok(()),
            Err(error) if error.as_service_error().is_some_and(|refusal| refusal.is_conditional_check_failed_exception()) => Ok(()),
            Err(error) => Err(classify(&self.table.call("PutItem"), &error)),
        }
    }

    async fn try_park(&self, letter: &DeadLetter) -> Result<(), CallFault> {
        let encoded = letter::encode(letter, self.retention);
        if !encoded.chunks.is_empty() {
            // Parts of a letter that stands must not be written over: another release may cut them differently.
            let standing = self.first_row(letter.id).await?;
            if let Some(first) = &standing {
                let unreadable =
                    |error: ItemError| CallFault { fault: error.fault(&self.table.name, first), effect: crate::fault::Effect::None };
                if !letter::decode_facts(first).map_err(unreadable)?.may_be_replaced_by(letter) {
                    return Ok(());
                }
            }
            self.put_parts(encoded.chunks).await?;
        }
        self.put_first(encoded.first, letter.redrive_count).await
    }

    async fn try_delete(&self, id: EntryId) -> Result<bool, CallFault> {
        let request = self
            .table
            .client
            .delete_item()
            .table_name(&self.table.name)
            .set_key(Some(key(partition_key(id), FIRST)))
            .return_values(ReturnValue::AllOld);
        let answer = request.send().await.map_err(|error| classify(&self.table.call("DeleteItem"), &error))?;
        let old = answer.attributes.filter(|item| !item.is_empty());
        // Without a first row an earlier delete may have ended halfway: what it left is removed now.
        let has_parts = old.as_ref().is_none_or(|item| item.contains_key(letter::CHUNKS));
        if has_parts {
            let keys = self.parts(id, true).await?;
            self.delete_keys(&keys).await?;
        }
        Ok(old.is_some())
    }

    async fn delete_keys(&self, keys: &[Item]) -> Result<(), CallFault> {
        for keys in keys.chunks(DELETES_PER_CALL) {
            let request = |key: &Item| {
                let delete = DeleteRequest::builder().set_key(Some(key.clone())).build();
                delete.map(|delete| WriteRequest::builder().delete_request(delete).build())
            };
            let mut requests = keys.iter().map(request).collect::<Result<Vec<_>, _>>().map_err(|error| self.misbuilt(&error))?;
            for round in 0..BATCH_ROUNDS {
                pause_before(round).await;
                let answer = self.table.client.batch_write_item().request_items(&self.table.name, requests).send().await;
                let answer = answer.map_err(|error| classify(&self.table.call("BatchWriteItem"), &error))?;
                requests = answer.unprocessed_items.and_then(|mut left| left.remove(&self.table.name)).unwrap_or_default();
                if requests.is_empty() {
                    break;
                }
            }
            if !requests.is_empty() {
                return Err(self.left_undone("BatchWriteItem"));
            }
        }
        Ok(())
    }

    fn misbuilt(&self, error: &aws_sdk_dynamodb::error::BuildError) -> CallFault {
        CallFault {
            fault: Fault::new(FaultCode::InvalidConfig, format!("table `{}`: {error}", self.table.name)),
            effect: crate::fault::Effect::None,
        }
    }

    fn left_undone(&self, operation: &str) -> CallFault {
        let fault = Fault::new(FaultCode::Throttled, format!("{}: a part was left undone", self.table.call(operation)));
        CallFault { fault, effect: crate::fault::Effect::None }
    }
}

async fn pause_before(round: u32) {
    if round > 0 {
        tokio::time::sleep(BATCH_PAUSE.saturating_mul(1 << round.min(8))).await;
    }
}

fn ended<T>(result: Result<T, CallFault>) -> Outcome<T> {
    match result {
        Ok(value) => Outcome::Done(value),
        Err(fault) => fault.outcome(),
    }
}

#[async_trait]
impl DeadLetters for DynamoDeadLetters {
    async fn park(&self, letter: &DeadLetter) -> Outcome<()> {
        ended(self.try_park(letter).await)
    }

    async fn get(&self, id: EntryId) -> Result<Option<DeadLetter>, Fault> {
        match self.first_row(id).await.map_err(|fault| fault.fault)? {
            Some(first) => self.read(&first).await.map(Some),
            None => Ok(None),
        }
    }

    async fn list(&self, filter: &DeadLetterFilter, limit: usize, continuation: Option<&str>) -> Result<DeadLetterPage, Fault> {
        self.page(filter, limit, continuation).await
    }

    async fn delete(&self, id: EntryId) -> Outcome<bool> {
        ended(self.try_delete(id).await)
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.table.verify(&DLQ).await
    }

    async fn create(&self) -> Result<Vec<String>, Fault> {
        self.table.create(&DLQ).await
    }
}
