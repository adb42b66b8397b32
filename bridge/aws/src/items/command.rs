//! A command, and what belongs to it. There is no sort key.
//!
//! | key | what |
//! |---|---|
//! | `CMD#<id>` | the command, with its answer where that is not too large |
//! | `PART#<id>#<answer>#<number>` | a part of an answer that is; written before the command that counts it |
//! | `IDEM#<name>` | the caller's name for a command |
//! | `ORPHAN#<id>` | an answer whose command has no row |

use super::{Item, ItemError, PK, b, binary, boolean, n, number, number_if_any, s, text};
use aws_sdk_dynamodb::types::AttributeValue;
use causeway_core::commands::{Command, CommandResult, State};
use causeway_core::identity::Id128;
use causeway_core::source_id::ContentDigest;
use causeway_core::units::UnixMillis;
use causeway_ports::{DUE_SHARDS, Due, OrphanAnswer};
use core::time::Duration;

/// The largest answer that stands in its command's row, in bytes.
pub const INLINE_BYTES: usize = 256 * 1024;
/// Bytes in one part of a larger one.
const PART_BYTES: usize = 350 * 1024;
/// DynamoDB deletes what housekeeping did not within a day, in seconds.
const BACKSTOP: u64 = 86_400;

pub(crate) const VERSION: &str = "version";
pub(crate) const FORGET_AT: &str = "forget_at";
const COMMAND: &str = "CMD#";
const NAME_OF: &str = "IDEM#";
const ORPHAN: &str = "ORPHAN#";
const TARGET: &str = "target";
const INSTANCE: &str = "instance";
const STATE: &str = "state";
const CREATED_AT: &str = "created_at";
const EXPIRES_AT: &str = "expires_at";
const PUBLISHED_AT: &str = "published_at";
const PUBLISHES: &str = "publishes";
const NO_SUBSCRIBER: &str = "no_subscriber";
const ANSWER: &str = "answer";
const LATE: &str = "late";
const DIGEST: &str = "digest";
const NAME: &str = "name";
const ID: &str = "id";
const PAYLOAD: &str = "result";
const PARTS: &str = "result_parts";
const CONTENT_TYPE: &str = "result_content_type";
const REASON: &str = "result_reason";
const PART: &str = "part";
const BY: &str = "by";
const CAME_AT: &str = "came_at";
pub(crate) const DUE_SHARD: &str = "due_shard";
pub(crate) const DUE_AT: &str = "due_at";
const TTL: &str = "ttl";

/// The key of a command.
#[must_use]
pub fn key(id: Id128) -> Item {
    Item::from([(PK.to_owned(), s(format!("{COMMAND}{id}")))])
}

/// The key of a caller's name.
#[must_use]
pub fn name_key(name: &str) -> Item {
    Item::from([(PK.to_owned(), s(format!("{NAME_OF}{name}")))])
}

/// The key of an answer to nobody.
#[must_use]
pub fn orphan_key(id: Id128) -> Item {
    Item::from([(PK.to_owned(), s(format!("{ORPHAN}{id}")))])
}

/// The key of a part of an answer, counted from 0.
#[must_use]
pub fn part_key(id: Id128, answer: &ContentDigest, number: usize) -> Item {
    let digest: String = answer.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Item::from([(PK.to_owned(), s(format!("PART#{id}#{digest}#{number}")))])
}

fn shard(id: Id128) -> AttributeValue {
    n(id.0 % u128::from(DUE_SHARDS))
}

fn ttl(forget_at: UnixMillis) -> AttributeValue {
    n(forget_at.0 / 1_000 + BACKSTOP)
}

/// A new command.
#[must_use]
pub fn encode(command: &Command, name: Option<&str>, digest: &ContentDigest, retention: Duration) -> Item {
    let mut item = key(command.id);
    item.extend([
        (TARGET.to_owned(), s(command.target.as_str())),
        (INSTANCE.to_owned(), s(command.instance.as_str())),
        (CREATED_AT.to_owned(), n(command.created_at.0)),
        (EXPIRES_AT.to_owned(), n(command.expires_at.0)),
        (FORGET_AT.to_owned(), n(command.forget_at(retention).0)),
        (DIGEST.to_owned(), b(*digest)),
        (DUE_SHARD.to_owned(), shard(command.id)),
        (TTL.to_owned(), ttl(command.forget_at(retention))),
    ]);
    if let Some(name) = name {
        item.insert(NAME.to_owned(), s(name));
    }
    item.extend(changing(command, retention));
    item
}

/// The attributes of a command that change.
#[must_use]
pub fn changing(command: &Command, retention: Duration) -> Item {
    let mut item = Item::from([
        (VERSION.to_owned(), n(command.version)),
        (STATE.to_owned(), s(command.state.as_str())),
        (PUBLISHES.to_owned(), n(command.publishes)),
        (NO_SUBSCRIBER.to_owned(), AttributeValue::Bool(command.no_subscriber)),
        (LATE.to_owned(), AttributeValue::Bool(command.late)),
        (DUE_AT.to_owned(), n(command.due_at(retention).0)),
    ]);
    if let Some(at) = command.published_at {
        item.insert(PUBLISHED_AT.to_owned(), n(at.0));
    }
    if let Some(answer) = command.answer {
        item.insert(ANSWER.to_owned(), b(answer));
    }
    item
}

/// The attributes of an answer, and the parts that stand beside its command's row.
#[must_use]
pub fn answer(command: &Command, result: &CommandResult, retention: Duration) -> (Item, Vec<Item>) {
    let mut item = Item::new();
    if let Some(kind) = &result.content_type {
        item.insert(CONTENT_TYPE.to_owned(), s(kind.as_str()));
    }
    if let Some(reason) = &result.reason {
        item.insert(REASON.to_owned(), s(reason.as_str()));
    }
    if result.payload.len() <= INLINE_BYTES {
        item.insert(PAYLOAD.to_owned(), b(result.payload.to_vec()));
        return (item, Vec::new());
    }
    let digest = command.answer.unwrap_or_default();
    let part = |(number, bytes): (usize, &[u8])| {
        let mut part = part_key(command.id, &digest, number);
        part.insert(PART.to_owned(), b(bytes));
        part.insert(TTL.to_owned(), ttl(command.forget_at(retention)));
        part
    };
    let parts: Vec<Item> = result.payload.chunks(PART_BYTES).enumerate().map(part).collect();
    item.insert(PARTS.to_owned(), n(parts.len()));
    (item, parts)
}

/// The command in a row.
///
/// # Errors
/// [`ItemError`] where it is none.
pub fn decode(item: &Item) -> Result<Command, ItemError> {
    let unreadable = |name| move |_| ItemError::Unreadable(name);
    Ok(Command {
        id: text(item, PK)?.strip_prefix(COMMAND).unwrap_or_default().parse().map_err(unreadable(PK))?,
        version: number(item, VERSION)?,
        target: text(item, TARGET)?.to_owned(),
        instance: text(item, INSTANCE)?.to_owned(),
        state: State::named(text(item, STATE)?).ok_or(ItemError::Unreadable(STATE))?,
        created_at: UnixMillis(number(item, CREATED_AT)?),
        expires_at: UnixMillis(number(item, EXPIRES_AT)?),
        published_at: number_if_any(item, PUBLISHED_AT)?.map(UnixMillis),
        publishes: number(item, PUBLISHES)?,
        no_subscriber: boolean(item, NO_SUBSCRIBER)?,
        answer: if item.contains_key(ANSWER) { Some(digest(item, ANSWER)?) } else { None },
        late: boolean(item, LATE)?,
    })
}

/// When a row is to be forgotten.
///
/// # Errors
/// [`ItemError`] where it does not say.
pub fn forget_at(item: &Item) -> Result<UnixMillis, ItemError> {
    number(item, FORGET_AT).map(UnixMillis)
}

fn digest(item: &Item, name: &'static str) -> Result<ContentDigest, ItemError> {
    binary(item, name)?.try_into().map_err(|_| ItemError::Unreadable(name))
}

/// The digest of what a command says.
///
/// # Errors
/// [`ItemError`] where it is missing.
pub fn digest_of(item: &Item) -> Result<ContentDigest, ItemError> {
    digest(item, DIGEST)
}

/// The caller's name for a command, if it has one.
#[must_use]
pub fn name_of(item: &Item) -> Option<&str> {
    text(item, NAME).ok()
}

/// How many parts of its answer stand beside a row.
///
/// # Errors
/// [`ItemError`] where the number cannot be read.
pub fn part_count(item: &Item) -> Result<usize, ItemError> {
    Ok(number_if_any(item, PARTS)?.unwrap_or(0))
}

/// The answer in a row, but for the payload where that stands in parts; `None` where there is none.
#[must_use]
pub fn result(item: &Item) -> Option<CommandResult> {
    let payload = binary(item, PAYLOAD).ok();
    (payload.is_some() || item.contains_key(PARTS)).then(|| CommandResult {
        payload: payload.unwrap_or_default().to_vec().into(),
        content_type: text(item, CONTENT_TYPE).ok().map(str::to_owned),
        reason: text(item, REASON).ok().map(str::to_owned),
    })
}

/// The bytes of a part.
///
/// # Errors
/// [`ItemError`] where it is none.
pub fn part(item: &Item) -> Result<&[u8], ItemError> {
    binary(item, PART)
}

/// A caller's name for a command.
#[must_use]
pub fn encode_name(name: &str, command: &Command, retention: Duration) -> Item {
    let mut item = name_key(name);
    item.extend([
        (ID.to_owned(), s(command.id.to_string())),
        (FORGET_AT.to_owned(), n(command.forget_at(retention).0)),
        (TTL.to_owned(), ttl(command.forget_at(retention))),
    ]);
    item
}

/// The command that a caller's name stands for.
///
/// # Errors
/// [`ItemError`] where it does not say.
pub fn named(item: &Item) -> Result<Id128, ItemError> {
    text(item, ID)?.parse().map_err(|_| ItemError::Unreadable(ID))
}

/// An answer to nobody.
#[must_use]
pub fn encode_orphan(orphan: &OrphanAnswer, kept: Duration) -> Item {
    let forget_at = orphan.came_at.plus(kept);
    let mut item = orphan_key(orphan.id);
    item.extend([
        (BY.to_owned(), s(orphan.by.as_str())),
        (CAME_AT.to_owned(), n(orphan.came_at.0)),
        (DUE_SHARD.to_owned(), shard(orphan.id)),
        (DUE_AT.to_owned(), n(forget_at.0)),
        (TTL.to_owned(), ttl(forget_at)),
    ]);
    item
}

/// Reads it back.
///
/// # Errors
/// [`ItemError`] where it is none.
pub fn decode_orphan(id: Id128, item: &Item) -> Result<OrphanAnswer, ItemError> {
    Ok(OrphanAnswer { id, by: text(item, BY)?.to_owned(), came_at: UnixMillis(number(item, CAME_AT)?) })
}

/// What the index names; `None` where it is nothing of ours.
#[must_use]
pub fn due(item: &Item) -> Option<Due> {
    let key = text(item, PK).ok()?;
    let command = key.strip_prefix(COMMAND).and_then(|id| id.parse().ok()).map(Due::Command);
    command.or_else(|| key.strip_prefix(ORPHAN).and_then(|id| id.parse().ok()).map(Due::Orphan))
}

/// Where a page of the index by due time ended: `<due at>/<pk>`.
///
/// # Errors
/// [`ItemError`] where the key is none of that index.
pub fn due_place_text(key: &Item) -> Result<String, ItemError> {
    let at: u64 = number(key, DUE_AT)?;
    Ok(format!("{at}/{}", text(key, PK)?))
}

/// The key in that index after which the next page begins; `None` where the text tells of none.
#[must_use]
pub fn due_place(shard: u8, place: &str) -> Option<Item> {
    let (at, pk) = place.split_once('/')?;
    let at: u64 = at.parse().ok()?;
    Some(Item::from([(DUE_SHARD.to_owned(), n(shard)), (DUE_AT.to_owned(), n(at)), (PK.to_owned(), s(pk))]))
}
