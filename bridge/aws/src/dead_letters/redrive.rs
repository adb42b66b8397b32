//! Redrives: the letter becomes a tombstone and its mail is posted, in one transaction over both tables.

use super::{DynamoDeadLetters, ended};
use crate::fault::{CallFault, Effect, classify};
use crate::items::chunk::CHUNK_BYTES;
use crate::items::letter::{self, FIRST, REDRIVE_COUNT, STATE, TTL, partition_key};
use crate::items::{Item, key, mail as mail_item, n, s};
use crate::outbox::mailbox::{fits_transaction, mail_rows, post};
use crate::transaction::{Part, Refused, refused};
use async_trait::async_trait;
use aws_sdk_dynamodb::error::{BuildError, SdkError};
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{Delete, Put, TransactWriteItem};
use causeway_core::dead_letter::{DeadLetter, DeadLetterState, TOMBSTONE_KEPT};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::{Mail, MailboxName, PutBack, Redrives};
use std::time::{SystemTime, UNIX_EPOCH};

/// Letters that weigh less are kept in one row by every release.
const NEVER_IN_PARTS: usize = 64 * 1024;

/// Redrives from a table of dead letters to the mailboxes in a table of logs, both of one account and region.
#[derive(Debug)]
pub struct DynamoRedrives {
    letters: DynamoDeadLetters,
    mail_table: Option<String>,
}

/// How the attempt of a transaction ended.
enum Attempt {
    Done,
    /// The letter is not what the caller saw.
    Letter,
    /// Mail of that id stands.
    Mail,
}

impl DynamoRedrives {
    /// From `letters` to the mailboxes in `mail_table`, the table of the outbox. Without one, letters can be marked and set aside, not put back.
    #[must_use]
    pub fn new(letters: DynamoDeadLetters, mail_table: Option<String>) -> Self {
        Self { letters, mail_table }
    }

    /// Turns the letter into a tombstone, and posts `mail` if there is any: all or nothing.
    async fn bury(
        &self,
        letter: &DeadLetter,
        request: &str,
        at: UnixMillis,
        mail: Option<mail_item::Encoded>,
    ) -> Result<PutBack, CallFault> {
        // What the parts hold is in the mail. They go with the tombstone's own write: later, they might be those of the next death.
        let parts = if letter.message.weight() < NEVER_IN_PARTS { Vec::new() } else { self.letters.parts(letter.id, true).await? };
        let bytes = parts.len() * CHUNK_BYTES + mail.as_ref().map_or(0, mail_item::Encoded::size);
        fits_transaction(bytes).map_err(none_of)?;
        let mut posted = mail.as_ref();
        loop {
            match self.attempt(letter, request, at, posted, &parts).await? {
                Attempt::Done => return Ok(PutBack::Done),
                // The same mail, posted by whoever came before; only the tombstone is missing.
                Attempt::Mail if posted.is_some() => posted = None,
                Attempt::Mail | Attempt::Letter => return self.unlike(letter, |found| found.is_tombstone_of(letter, request)).await,
            }
        }
    }

    async fn attempt(
        &self,
        letter: &DeadLetter,
        request: &str,
        at: UnixMillis,
        mail: Option<&mail_item::Encoded>,
        parts: &[Item],
    ) -> Result<Attempt, CallFault> {
        let call = self.letters.table.call("TransactWriteItems");
        let mut items = vec![self.tombstone(letter, request, at).map_err(|error| self.letters.misbuilt(&error))?];
        if let (Some(mail), Some(table)) = (mail, &self.mail_table) {
            items.extend(post(table, mail).map_err(|error| self.letters.misbuilt(&error))?);
        }
        for part in parts {
            let delete = Delete::builder().table_name(&self.letters.table.name).set_key(Some(part.clone())).build();
            items.push(TransactWriteItem::builder().delete(delete.map_err(|error| self.letters.misbuilt(&error))?).build());
        }
        // A token of its own for each call: the conditions recognise a repeat, also one with another moment, and for longer than DynamoDB knows a token.
        let sent = self.letters.table.client.transact_write_items().set_transact_items(Some(items)).send().await;
        match sent.map_err(|error| refused(&call, error)) {
            Ok(_) => Ok(Attempt::Done),
            Err(Refused::Conditions(outcomes)) if matches!(outcomes.first(), Some(Part::Failed(_))) => Ok(Attempt::Letter),
            Err(Refused::Conditions(_)) => Ok(Attempt::Mail),
            Err(Refused::OtherParameters(fault) | Refused::Fault(fault)) => Err(fault),
        }
    }

    fn tombstone(&self, letter: &DeadLetter, request: &str, at: UnixMillis) -> Result<TransactWriteItem, BuildError> {
        let mut item = letter::encode_tombstone(&letter.tombstone(request, at));
        item.insert(TTL.to_owned(), n(at.plus(TOMBSTONE_KEPT).0 / 1000));
        let put = Put::builder()
            .table_name(&self.letters.table.name)
            .set_item(Some(item))
            .condition_expression(AS_SEEN)
            .expression_attribute_names("#state", STATE)
            .expression_attribute_names("#count", REDRIVE_COUNT)
            .expression_attribute_values(":dead", s(DeadLetterState::Dead.as_str()))
            .expression_attribute_values(":count", n(letter.redrive_count))
            .build()?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// What an attempt came to that did not find the letter as it was seen: what it wanted may be so already.
    async fn unlike(&self, letter: &DeadLetter, so_already: impl FnOnce(&DeadLetter) -> bool) -> Result<PutBack, CallFault> {
        let Some(first) = self.letters.first_row(letter.id).await.map_err(without_effect)? else { return Ok(PutBack::Conflict) };
        let facts = letter::decode_facts(&first).map_err(|error| none_of(error.fault(&self.letters.table.name, &first)))?;
        Ok(if so_already(&facts) { PutBack::Done } else { PutBack::Conflict })
    }

    async fn try_set_aside(&self, letter: &DeadLetter) -> Result<PutBack, CallFault> {
        let request = self
            .letters
            .table
            .client
            .update_item()
            .table_name(&self.letters.table.name)
            .set_key(Some(key(partition_key(letter.id), FIRST)))
            .update_expression("SET #state = :parked")
            .condition_expression(AS_SEEN)
            .expression_attribute_names("#state", STATE)
            .expression_attribute_names("#count", REDRIVE_COUNT)
            .expression_attribute_values(":parked", s(DeadLetterState::Parked.as_str()))
            .expression_attribute_values(":dead", s(DeadLetterState::Dead.as_str()))
            .expression_attribute_values(":count", n(letter.redrive_count));
        match request.send().await {
            Ok(_) => Ok(PutBack::Done),
            Err(error) if is_refused(&error) => self.unlike(letter, |found| found.is_set_aside(letter)).await,
            Err(error) => Err(classify(&self.letters.table.call("UpdateItem"), &error)),
        }
    }
}

/// The letter is dead, and was put back as often as the caller saw.
const AS_SEEN: &str = "#state = :dead AND #count = :count";

fn is_refused<R>(error: &SdkError<UpdateItemError, R>) -> bool {
    error.as_service_error().is_some_and(UpdateItemError::is_conditional_check_failed_exception)
}

const fn none_of(fault: Fault) -> CallFault {
    CallFault { fault, effect: Effect::None }
}

/// A read that failed after a write whose condition failed: nothing was changed.
fn without_effect(fault: CallFault) -> CallFault {
    none_of(fault.fault)
}

fn wall() -> UnixMillis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

#[async_trait]
impl Redrives for DynamoRedrives {
    async fn put_back(&self, letter: &DeadLetter, mailbox: &MailboxName, mail: &Mail, request: &str) -> Outcome<PutBack> {
        if self.mail_table.is_none() {
            return Outcome::NotDone(Fault::new(FaultCode::InvalidConfig, "there is no mailbox beside these letters"));
        }
        match mail_rows(mailbox, mail) {
            Ok(rows) => ended(self.bury(letter, request, mail.posted_at, Some(rows)).await),
            Err(fault) => Outcome::NotDone(fault),
        }
    }

    async fn mark_redriven(&self, letter: &DeadLetter, request: &str) -> Outcome<PutBack> {
        ended(self.bury(letter, request, wall(), None).await)
    }

    async fn set_aside(&self, letter: &DeadLetter) -> Outcome<PutBack> {
        ended(self.try_set_aside(letter).await)
    }
}
