//! Commands in DynamoDB.

use crate::fault::{CallFault, classify};
use crate::items::command::{self, DUE_AT, DUE_SHARD, FORGET_AT, VERSION};
use crate::items::{Item, ItemError, PK, n};
use crate::schema::COMMANDS;
use crate::table::Table;
use crate::transaction::{Part, Refused, refused};
use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use causeway_core::commands::gateway::{Created, Written};
use causeway_core::commands::{Adoption, Command, CommandResult, Orphan};
use causeway_core::identity::Id128;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::source_id::ContentDigest;
use causeway_core::units::UnixMillis;
use causeway_ports::{Clock, Commands, DuePage, OrphanAnswer};
use core::time::Duration;
use std::sync::Arc;

/// A row may be made where there is none, or one that is older than its time.
const FREE: &str = "attribute_not_exists(#pk) OR #forget_at <= :now";

/// Commands in one DynamoDB table.
#[derive(Clone)]
pub struct DynamoCommands {
    table: Table,
    retention: Duration,
    orphans_kept: Duration,
    clock: Arc<dyn Clock>,
}

impl core::fmt::Debug for DynamoCommands {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DynamoCommands").field("table", &self.table.name).finish_non_exhaustive()
    }
}

impl DynamoCommands {
    /// The commands in `table`; [`COMMANDS`](crate::schema::COMMANDS) describes its shape. They are kept for `retention` after their time, and answers to nobody for
    /// `orphans_kept`.
    #[must_use]
    pub fn new(client: Client, table: impl Into<String>, retention: Duration, orphans_kept: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { table: Table::new(client, table), retention, orphans_kept, clock }
    }

    /// Tags for the table, should it be created.
    #[must_use]
    pub fn with_tags(mut self, tags: Vec<(String, String)>) -> Self {
        self.table = self.table.with_tags(tags);
        self
    }

    fn unreadable(&self, item: &Item) -> impl Fn(ItemError) -> Fault {
        let key = crate::items::text(item, PK).unwrap_or("?").to_owned();
        let table = self.table.name.clone();
        move |error| Fault::new(FaultCode::InvalidConfig, format!("table `{table}`, item {key}: {error}"))
    }

    async fn item(&self, key: Item) -> Result<Option<Item>, Fault> {
        self.table.item(key).await.map_err(|fault| fault.fault)
    }

    /// The row of a command that is not older than its time.
    async fn row(&self, id: Id128) -> Result<Option<Item>, Fault> {
        let Some(item) = self.item(command::key(id)).await? else { return Ok(None) };
        let forget_at = command::forget_at(&item).map_err(self.unreadable(&item))?;
        Ok((self.clock.wall() < forget_at).then_some(item))
    }

    fn before(&self, item: &Item) -> Result<Created, Fault> {
        let unreadable = self.unreadable(item);
        let command = command::decode(item).map_err(&unreadable)?;
        Ok(Created::Before { command: Box::new(command), digest: command::digest_of(item).map_err(&unreadable)? })
    }

    /// What stands there already, as the endpoint gave it or as it is read.
    async fn standing(&self, id: Id128, item: Option<Item>) -> Outcome<Created> {
        let item = match item {
            Some(item) => Ok(Some(item)),
            None => self.row(id).await,
        };
        match item {
            Ok(Some(item)) => self.before(&item).map_or_else(Outcome::NotDone, Outcome::Done),
            // It was deleted between the two calls.
            Ok(None) => Outcome::NotDone(Fault::new(FaultCode::Unavailable, "the command that had this name is just being deleted")),
            Err(fault) => Outcome::NotDone(fault),
        }
    }

    async fn create_alone(&self, command: &Command, item: Item) -> Outcome<Created> {
        let request = self
            .table
            .client
            .put_item()
            .table_name(&self.table.name)
            .set_item(Some(item))
            .condition_expression(FREE)
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#forget_at", FORGET_AT)
            .expression_attribute_values(":now", n(self.clock.wall().0))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match request.send().await {
            Ok(_) => Outcome::Done(Created::New(Box::new(command.clone()))),
            Err(SdkError::ServiceError(refusal)) if refusal.err().is_conditional_check_failed_exception() => {
                let item = match refusal.into_err() {
                    PutItemError::ConditionalCheckFailedException(failed) => failed.item,
                    _ => None,
                };
                self.standing(command.id, item).await
            }
            Err(error) => classify(&self.table.call("PutItem"), &error).outcome(),
        }
    }

    async fn create_named(&self, command: &Command, item: Item, name: &str) -> Outcome<Created> {
        let now = n(self.clock.wall().0);
        let put = |item: Item| {
            Put::builder()
                .table_name(&self.table.name)
                .set_item(Some(item))
                .condition_expression(FREE)
                .expression_attribute_names("#pk", PK)
                .expression_attribute_names("#forget_at", FORGET_AT)
                .expression_attribute_values(":now", now.clone())
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
                .build()
        };
        let named = command::encode_name(name, command, self.retention);
        let mut request = self.table.client.transact_write_items();
        for put in [put(item), put(named)] {
            match put {
                Ok(put) => request = request.transact_items(TransactWriteItem::builder().put(put).build()),
                Err(error) => return Outcome::NotDone(Fault::new(FaultCode::InvalidConfig, error.to_string())),
            }
        }
        let error = match request.send().await {
            Ok(_) => return Outcome::Done(Created::New(Box::new(command.clone()))),
            Err(error) => error,
        };
        match refused(&self.table.call("TransactWriteItems"), error) {
            Refused::Conditions(mut parts) => match (parts.pop(), parts.pop()) {
                (Some(Part::Failed(name_row)), _) => match self.name_row(name, name_row).await {
                    Ok(id) => self.standing(id, None).await,
                    Err(fault) => Outcome::NotDone(fault),
                },
                (_, Some(Part::Failed(row))) => self.standing(command.id, row).await,
                _ => Outcome::NotDone(Fault::new(FaultCode::ProtocolError, "a condition failed, and the endpoint does not say which")),
            },
            Refused::OtherParameters(fault) | Refused::Fault(fault) => fault.outcome(),
        }
    }

    async fn name_row(&self, name: &str, row: Option<Item>) -> Result<Id128, Fault> {
        let row = match row {
            Some(row) => Some(row),
            None => self.item(command::name_key(name)).await?,
        };
        let row = row.ok_or_else(|| Fault::new(FaultCode::Unavailable, "the command that had this name is just being deleted"))?;
        command::named(&row).map_err(self.unreadable(&row))
    }

    async fn put_plain(&self, item: Item) -> Result<(), CallFault> {
        let request = self.table.client.put_item().table_name(&self.table.name).set_item(Some(item));
        request.send().await.map(drop).map_err(|error| classify(&self.table.call("PutItem"), &error))
    }

    async fn delete_plain(&self, key: Item) -> Result<(), CallFault> {
        let request = self.table.client.delete_item().table_name(&self.table.name).set_key(Some(key));
        request.send().await.map(drop).map_err(|error| classify(&self.table.call("DeleteItem"), &error))
    }

    async fn delete_parts(&self, id: Id128, answer: &ContentDigest, parts: usize) -> Result<(), CallFault> {
        for number in 0..parts {
            self.delete_plain(command::part_key(id, answer, number)).await?;
        }
        Ok(())
    }

    /// Parts are written first: nobody reads a part that no row counts. What a write that is refused left there is taken away, unless it is what stands.
    async fn update(&self, command: &Command, changes: Item) -> Result<Written, CallFault> {
        let mut request = self
            .table
            .client
            .update_item()
            .table_name(&self.table.name)
            .set_key(Some(command::key(command.id)))
            .condition_expression("#version_now = :before")
            .expression_attribute_names("#version_now", VERSION)
            .expression_attribute_values(":before", n(command.version - 1))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let mut sets = Vec::new();
        for (index, (name, value)) in changes.into_iter().enumerate() {
            sets.push(format!("#c{index} = :c{index}"));
            request =
                request.expression_attribute_names(format!("#c{index}"), name).expression_attribute_values(format!(":c{index}"), value);
        }
        let standing = match request.update_expression(format!("SET {}", sets.join(", "))).send().await {
            Ok(_) => return Ok(Written::Stands(Box::new(command.clone()))),
            Err(SdkError::ServiceError(refusal)) if refusal.err().is_conditional_check_failed_exception() => match refusal.into_err() {
                UpdateItemError::ConditionalCheckFailedException(failed) => failed.item.filter(|item| !item.is_empty()),
                _ => None,
            },
            Err(error) => return Err(classify(&self.table.call("UpdateItem"), &error)),
        };
        let none = |fault| CallFault { fault, effect: crate::fault::Effect::None };
        let row = match standing {
            Some(item) => Some(command::decode(&item).map_err(self.unreadable(&item)).map_err(none)?),
            None => self.read(command.id).await.map_err(none)?,
        };
        Ok(Written::Refused(row.map(Box::new)))
    }
}

#[async_trait]
impl Commands for DynamoCommands {
    async fn create(&self, command: &Command, key: Option<&str>, digest: &ContentDigest) -> Outcome<Created> {
        let item = command::encode(command, key, digest, self.retention);
        match key {
            None => self.create_alone(command, item).await,
            Some(name) => self.create_named(command, item, name).await,
        }
    }

    async fn read(&self, id: Id128) -> Result<Option<Command>, Fault> {
        let item = self.row(id).await?;
        item.map(|item| command::decode(&item).map_err(self.unreadable(&item))).transpose()
    }

    async fn standing(&self, id: Id128) -> Result<Option<Command>, Fault> {
        let item = self.item(command::key(id)).await?;
        item.map(|item| command::decode(&item).map_err(self.unreadable(&item))).transpose()
    }

    async fn write(&self, command: &Command, result: Option<&CommandResult>) -> Outcome<Written> {
        let mut changes = command::changing(command, self.retention);
        let mut parts = 0;
        if let Some(result) = result {
            let (answer, items) = command::answer(command, result, self.retention);
            changes.extend(answer);
            parts = items.len();
            for item in items {
                if let Err(fault) = self.put_plain(item).await {
                    return Outcome::NotDone(fault.fault);
                }
            }
        }
        let written = match self.update(command, changes).await {
            Ok(written) => written,
            Err(fault) => return fault.outcome(),
        };
        if let (Written::Refused(standing), Some(answer)) = (&written, &command.answer)
            && standing.as_ref().is_none_or(|row| row.answer != Some(*answer))
            && let Err(fault) = self.delete_parts(command.id, answer, parts).await
        {
            tracing::warn!(command = %command.id, error = %fault.fault, "parts of an answer that came too late are left; they expire by themselves");
        }
        Outcome::Done(written)
    }

    async fn result(&self, id: Id128) -> Result<Option<CommandResult>, Fault> {
        let Some(item) = self.row(id).await? else { return Ok(None) };
        let Some(mut result) = command::result(&item) else { return Ok(None) };
        let unreadable = self.unreadable(&item);
        let answer = command::decode(&item).map_err(&unreadable)?.answer.unwrap_or_default();
        let mut payload = Vec::new();
        for number in 0..command::part_count(&item).map_err(&unreadable)? {
            let part = self.item(command::part_key(id, &answer, number)).await?;
            let missing = || Fault::new(FaultCode::NotFound, format!("part {number} of the answer to command {id} is gone"));
            let part = part.ok_or_else(missing)?;
            payload.extend_from_slice(command::part(&part).map_err(self.unreadable(&part))?);
        }
        if !payload.is_empty() {
            result.payload = payload.into();
        }
        Ok(Some(result))
    }

    async fn keep_orphan(&self, orphan: &OrphanAnswer) -> Outcome<()> {
        match self.put_plain(command::encode_orphan(orphan, self.orphans_kept)).await {
            Ok(()) => Outcome::Done(()),
            Err(fault) => fault.outcome(),
        }
    }

    async fn orphan(&self, id: Id128) -> Result<Option<OrphanAnswer>, Fault> {
        let Some(item) = self.item(command::orphan_key(id)).await? else { return Ok(None) };
        let orphan = command::decode_orphan(id, &item).map_err(self.unreadable(&item))?;
        let adoption = Orphan { came_at: orphan.came_at }.at(self.clock.wall(), self.orphans_kept);
        Ok((adoption == Adoption::Adopted).then_some(orphan))
    }

    async fn due(&self, shard: u8, until: UnixMillis, after: Option<&str>, limit: usize) -> Result<DuePage, Fault> {
        let not_a_place = || Fault::new(FaultCode::ProtocolError, "this is not where a page ended");
        let start = after.map(|after| command::due_place(shard, after).ok_or_else(not_a_place)).transpose()?;
        let index = COMMANDS.indexes.first().map(|index| index.name);
        let request = self
            .table
            .client
            .query()
            .table_name(&self.table.name)
            .set_index_name(index.map(str::to_owned))
            .key_condition_expression("#shard = :shard AND #due_at <= :until")
            .expression_attribute_names("#shard", DUE_SHARD)
            .expression_attribute_names("#due_at", DUE_AT)
            .expression_attribute_values(":shard", n(shard))
            .expression_attribute_values(":until", n(until.0))
            .set_exclusive_start_key(start)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let answer = request.send().await.map_err(|error| classify(&self.table.call("Query"), &error).fault)?;
        let next = answer.last_evaluated_key.as_ref().filter(|key| !key.is_empty()).map(command::due_place_text);
        let next =
            next.transpose().map_err(|error| Fault::new(FaultCode::ProtocolError, format!("table `{}`: {error}", self.table.name)))?;
        Ok(DuePage { rows: answer.items().iter().filter_map(command::due).collect(), next })
    }

    async fn delete(&self, command: &Command) -> Outcome<bool> {
        let item = match self.item(command::key(command.id)).await {
            Ok(Some(item)) => item,
            Ok(None) => return Outcome::Done(false),
            Err(fault) => return Outcome::NotDone(fault),
        };
        let parts = match command::part_count(&item) {
            Ok(parts) => parts,
            Err(error) => return Outcome::NotDone(self.unreadable(&item)(error)),
        };
        let row = Delete::builder()
            .table_name(&self.table.name)
            .set_key(Some(command::key(command.id)))
            .condition_expression("#version = :version")
            .expression_attribute_names("#version", VERSION)
            .expression_attribute_values(":version", n(command.version))
            .build();
        let name = command::name_of(&item).map(|name| {
            Delete::builder()
                .table_name(&self.table.name)
                .set_key(Some(command::name_key(name)))
                .condition_expression("attribute_not_exists(#pk) OR #id = :id")
                .expression_attribute_names("#pk", PK)
                .expression_attribute_names("#id", "id")
                .expression_attribute_values(":id", crate::items::s(command.id.to_string()))
                .build()
        });
        let mut request = self.table.client.transact_write_items();
        for delete in core::iter::once(row).chain(name) {
            match delete {
                Ok(delete) => request = request.transact_items(TransactWriteItem::builder().delete(delete).build()),
                Err(error) => return Outcome::NotDone(Fault::new(FaultCode::InvalidConfig, error.to_string())),
            }
        }
        if let Err(error) = request.send().await {
            return match refused(&self.table.call("TransactWriteItems"), error) {
                Refused::Conditions(_) => Outcome::Done(false),
                Refused::OtherParameters(fault) | Refused::Fault(fault) => fault.outcome(),
            };
        }
        if let Some(answer) = &command.answer
            && let Err(fault) = self.delete_parts(command.id, answer, parts).await
        {
            tracing::warn!(command = %command.id, error = %fault.fault, "parts of a deleted answer are left; they expire by themselves");
        }
        Outcome::Done(true)
    }

    async fn delete_orphan(&self, id: Id128) -> Outcome<()> {
        match self.delete_plain(command::orphan_key(id)).await {
            Ok(()) => Outcome::Done(()),
            Err(fault) => fault.outcome(),
        }
    }

    async fn probe(&self) -> Result<(), Fault> {
        self.table.verify(&COMMANDS).await
    }

    async fn create_tables(&self) -> Result<Vec<String>, Fault> {
        self.table.create(&COMMANDS).await
    }
}
