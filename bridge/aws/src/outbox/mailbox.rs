//! The mailbox, in the table of the logs: a move is one transaction.

use super::DynamoOutbox;
use crate::fault::classify;
use crate::items::{DRAINED, EPOCH, ID, Item, MAX_ITEM_BYTES, PK, SK, item_size, key, mail as mail_item, row, s};
use crate::transaction::{Part, Refused, refused};
use async_trait::async_trait;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{Delete, Put, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use causeway_core::identity::{LogName, Slot};
use causeway_core::mailbox::{MAX_MOVE_BYTES, MAX_MOVE_ROWS, check_move};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::rows::{Row, RowMeta};
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

    /// The segment and the mail, as a transaction has them.
    fn move_items(&self, item: Item, mailbox: &MailboxName, mail: &[String]) -> Result<Vec<TransactWriteItem>, BuildError> {
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
        let item = match mail_row(&self.table, mailbox, mail) {
            Ok(item) => item,
            Err(fault) => return Outcome::NotDone(fault),
        };
        let request = self.put(item).condition_expression("attribute_not_exists(#pk)").expression_attribute_names("#pk", PK);
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
                let mail = mail_item::decode(item).map_err(self.unreadable(item))?;
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
        let items = match self.move_items(item, mailbox, mail) {
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

/// The row of `mail`, if it is one.
pub(crate) fn mail_row(table: &str, mailbox: &MailboxName, mail: &Mail) -> Result<Item, Fault> {
    let body = mail.pack()?;
    let item = mail_item::encode(mailbox, mail, &body);
    fits(table, &item).map(|()| item)
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
