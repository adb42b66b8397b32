//! The mailbox, in the table of the logs: a move is one transaction.

use super::DynamoOutbox;
use crate::fault::classify;
use crate::items::{DRAINED, EPOCH, ID, Item, ItemError, MAX_ITEM_BYTES, PK, SK, item_size, key, mail as mail_item, row, s, text};
use crate::transaction::{Part, Refused, refused};
use async_trait::async_trait;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{Delete, Put, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use causeway_core::identity::{LogName, Slot};
use causeway_core::mailbox::{MAX_MOVE_BYTES, MAX_MOVE_ROWS, check_move};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{CODEC_PART, Row, RowMeta, Segment};
use causeway_ports::{Mail, Mailbox, MailboxName, Moved};

impl DynamoOutbox {
    /// Whose row stands at `slot`.
    async fn meta_at(&self, log: &LogName, slot: Slot) -> Result<Option<RowMeta>, Fault> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(key(log.as_str(), slot.sort_key())))
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .projection_expression("#pk, #sk, #epoch, #id, #drained")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#sk", SK)
            .expression_attribute_names("#epoch", EPOCH)
            .expression_attribute_names("#id", ID)
            .expression_attribute_names("#drained", DRAINED);
        let answer = request.send().await.map_err(|error| classify(&self.call("GetItem"), &error).fault)?;
        self.meter.add_read_units(answer.consumed_capacity());
        answer.item.map(|item| row::decode_meta(&item).map_err(self.unreadable(&item))).transpose()
    }

    /// The parts of a piece of mail; `None` where its row went away meanwhile, and they with it.
    async fn parts_of(&self, mailbox: &MailboxName, first: &Item) -> Result<Option<Vec<Item>>, Fault> {
        let count = mail_item::part_count(first).map_err(self.unreadable(first))?;
        let mut parts = Vec::with_capacity(count);
        for number in 1..=count {
            let id = text(first, SK).map_err(self.unreadable(first))?;
            self.meter.count_read();
            match self.get(mail_item::part_key(mailbox, id, number)).await? {
                Some(part) => parts.push(part),
                None if self.get(key(mailbox.as_str(), id)).await?.is_none() => return Ok(None),
                None => return Err(self.unreadable(first)(ItemError::Missing("part"))),
            }
        }
        Ok(Some(parts))
    }

    /// The keys of the parts that go with the mail whose segment this is. What is in parts in the mailbox does not fit into one row of the log either.
    async fn parts_to_delete(&self, segment: &Row, mailbox: &MailboxName, mail: &[String]) -> Result<Vec<Item>, Fault> {
        let ([id], Row::Segment(Segment { codec: CODEC_PART, .. })) = (mail, segment) else { return Ok(Vec::new()) };
        self.meter.count_read();
        let Some(first) = self.get(key(mailbox.as_str(), id.as_str())).await? else { return Ok(Vec::new()) };
        let count = mail_item::part_count(&first).map_err(self.unreadable(&first))?;
        Ok((1..=count).map(|number| mail_item::part_key(mailbox, id, number)).collect())
    }

    async fn post_in_parts(&self, mail: mail_item::Encoded) -> Outcome<bool> {
        let items = match post(&self.table, &mail) {
            Ok(items) => items,
            Err(error) => return Outcome::NotDone(Fault::new(FaultCode::InvalidConfig, error.to_string())),
        };
        match self.send_move(items, None).await {
            Ok(()) => Outcome::Done(true),
            Err(Refused::Conditions(_)) => Outcome::Done(false),
            Err(Refused::OtherParameters(fault) | Refused::Fault(fault)) => fault.outcome(),
        }
    }

    /// The segment and the mail, as a transaction has them.
    fn move_items(
        &self,
        item: Item,
        mailbox: &MailboxName,
        mail: &[String],
        parts: Vec<Item>,
    ) -> Result<Vec<TransactWriteItem>, BuildError> {
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(#pk)")
            .expression_attribute_names("#pk", PK)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()?;
        let mut items = vec![TransactWriteItem::builder().put(put).build()];
        for id in mail {
            let delete = Delete::builder()
                .table_name(&self.table)
                .set_key(Some(key(mailbox.as_str(), id.as_str())))
                .condition_expression("attribute_exists(#pk)")
                .expression_attribute_names("#pk", PK)
                .build()?;
            items.push(TransactWriteItem::builder().delete(delete).build());
        }
        for part in parts {
            let delete = Delete::builder().table_name(&self.table).set_key(Some(part)).build()?;
            items.push(TransactWriteItem::builder().delete(delete).build());
        }
        Ok(items)
    }

    async fn send_move(&self, items: Vec<TransactWriteItem>, token: Option<String>) -> Result<(), Refused> {
        self.meter.count_write();
        let request = self
            .client
            .transact_write_items()
            .set_transact_items(Some(items))
            .set_client_request_token(token)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let answer = request.send().await.map_err(|error| refused(&self.call("TransactWriteItems"), error))?;
        self.meter.add_write_units(answer.consumed_capacity());
        Ok(())
    }

    /// What a move came to whose slot is taken by `standing`, or by a row that the endpoint did not give.
    async fn taken(&self, log: &LogName, slot: Slot, segment: &Row, standing: Option<&Item>) -> Outcome<Moved> {
        let read = match standing {
            Some(item) => row::decode_meta(item).map(Some).map_err(self.unreadable(item)),
            None => self.meta_at(log, slot).await,
        };
        match read {
            Ok(Some(meta)) if meta.id == segment.id() => Outcome::Done(Moved::Stored),
            Ok(Some(meta)) => Outcome::Done(Moved::Occupied(meta)),
            Ok(None) => {
                let detail = format!("{}: the row at slot {slot} of `{log}` went away meanwhile", self.call("TransactWriteItems"));
                Outcome::NotDone(Fault::new(FaultCode::Unavailable, detail))
            }
            Err(fault) => Outcome::NotDone(fault),
        }
    }
}

#[async_trait]
impl Mailbox for DynamoOutbox {
    async fn post(&self, mailbox: &MailboxName, mail: &Mail) -> Outcome<bool> {
        let mail = match mail_rows(mailbox, mail) {
            Ok(mail) => mail,
            Err(fault) => return Outcome::NotDone(fault),
        };
        if !mail.parts.is_empty() {
            return match fits_transaction(mail.size()) {
                Ok(()) => self.post_in_parts(mail).await,
                Err(fault) => Outcome::NotDone(fault),
            };
        }
        let request = self.put(mail.first).condition_expression("attribute_not_exists(#pk)").expression_attribute_names("#pk", PK);
        self.conditional(request).await
    }

    async fn read_mail(&self, mailbox: &MailboxName, limit: usize) -> Result<Vec<Mail>, Fault> {
        let limit = limit.min(MAX_MOVE_ROWS);
        let (mut found, mut bytes, mut start) = (Vec::new(), 0, None);
        while found.len() < limit {
            self.meter.count_read();
            let request = self
                .query()
                .key_condition_expression("#pk = :pk")
                .expression_attribute_values(":pk", s(mailbox.as_str()))
                .limit(i32::try_from(limit - found.len()).unwrap_or(i32::MAX))
                .set_exclusive_start_key(start);
            let (items, last) = self.send_query(request).await?;
            for item in &items {
                let Some(parts) = self.parts_of(mailbox, item).await? else { continue };
                let mail = mail_item::decode(item, &parts).map_err(self.unreadable(item))?;
                bytes += mail.entry.message.weight();
                if bytes > MAX_MOVE_BYTES && !found.is_empty() {
                    return Ok(found);
                }
                found.push(mail);
            }
            start = last;
            if start.is_none() {
                break;
            }
        }
        Ok(found)
    }

    async fn move_mail(&self, log: &LogName, slot: Slot, segment: &Row, mailbox: &MailboxName, mail: &[String]) -> Outcome<Moved> {
        if let Err(fault) = check_move(slot, mail) {
            return Outcome::NotDone(fault);
        }
        let item = row::encode(log, slot, segment);
        if let Err(fault) = fits(&self.table, &item) {
            return Outcome::NotDone(fault);
        }
        let parts = match self.parts_to_delete(segment, mailbox, mail).await {
            Ok(parts) => parts,
            Err(fault) => return Outcome::NotDone(fault),
        };
        let items = match self.move_items(item, mailbox, mail, parts) {
            Ok(items) => items,
            Err(error) => return Outcome::NotDone(Fault::new(FaultCode::InvalidConfig, error.to_string())),
        };
        // By the segment's id a repeat of the next minutes is answered like the first, even where the segment was settled and deleted meanwhile.
        let mut sent = self.send_move(items.clone(), Some(segment.id().to_string())).await;
        if matches!(sent, Err(Refused::OtherParameters(_))) {
            // The id came with other mail before, or in another order of the same attributes. The conditions alone are safe as well.
            sent = self.send_move(items, None).await;
        }
        match sent {
            Ok(()) => Outcome::Done(Moved::Stored),
            // Whose slot it is decides, whatever became of the mail.
            Err(Refused::Conditions(parts)) => match parts.first() {
                Some(Part::Failed(standing)) => self.taken(log, slot, segment, standing.as_ref()).await,
                Some(Part::Held) | None => Outcome::Done(Moved::MailGone),
            },
            Err(Refused::OtherParameters(fault) | Refused::Fault(fault)) => fault.outcome(),
        }
    }
}

/// What a transaction takes of items, those included that it deletes.
const MAX_TRANSACTION_BYTES: usize = 4_000_000;

/// The rows of `mail`.
pub(crate) fn mail_rows(mailbox: &MailboxName, mail: &Mail) -> Result<mail_item::Encoded, Fault> {
    Ok(mail_item::encode(mailbox, mail, &mail.pack()?))
}

/// The put of a piece of mail that does not stand yet, its own row first.
pub(crate) fn post(table: &str, mail: &mail_item::Encoded) -> Result<Vec<TransactWriteItem>, BuildError> {
    let first = Put::builder()
        .table_name(table)
        .set_item(Some(mail.first.clone()))
        .condition_expression("attribute_not_exists(pk)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::None)
        .build()?;
    let mut items = vec![TransactWriteItem::builder().put(first).build()];
    for part in &mail.parts {
        let put = Put::builder().table_name(table).set_item(Some(part.clone())).build()?;
        items.push(TransactWriteItem::builder().put(put).build());
    }
    Ok(items)
}

/// Whether a transaction takes so many bytes.
pub(crate) fn fits_transaction(bytes: usize) -> Result<(), Fault> {
    if bytes > MAX_TRANSACTION_BYTES {
        let detail = format!("{bytes} bytes in one transaction: DynamoDB takes {MAX_TRANSACTION_BYTES}");
        return Err(Fault::new(FaultCode::PayloadTooLarge, detail));
    }
    Ok(())
}

/// Whether `item` is not larger than DynamoDB takes.
pub(crate) fn fits(table: &str, item: &Item) -> Result<(), Fault> {
    let size = item_size(item);
    if size > MAX_ITEM_BYTES {
        let detail = format!("a row of {size} bytes in table `{table}`: DynamoDB takes {MAX_ITEM_BYTES}");
        return Err(Fault::new(FaultCode::PayloadTooLarge, detail));
    }
    Ok(())
}
