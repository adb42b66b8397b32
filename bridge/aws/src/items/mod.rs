//! What stands in the tables: one file per kind of item, each with its key, how it is written and how it is read.

pub mod anchor;
pub mod chunk;
pub mod command;
pub mod head;
pub mod lease;
pub mod letter;
pub mod mail;
pub mod managed_subscriptions;
pub mod member;
pub mod quota;
pub mod registry;
pub mod row;
pub mod segment;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use causeway_core::identity::{Id128, Slot};
use causeway_core::outcome::{Fault, FaultCode};
use core::str::FromStr;
use std::collections::HashMap;
use thiserror::Error;

/// An item as the SDK has it.
pub type Item = HashMap<String, AttributeValue>;

/// The largest item that DynamoDB keeps: 400 KiB, counted as [`item_size`] counts.
pub const MAX_ITEM_BYTES: usize = 400 * 1024;

/// The attribute names that every table of ours shares.
pub(crate) const PK: &str = "pk";
pub(crate) const SK: &str = "sk";
/// What kind of row it is.
pub(crate) const KIND: &str = "kind";
/// The epoch of the owner that wrote it.
pub(crate) const EPOCH: &str = "epoch";
/// The random id by which its owner recognises it.
pub(crate) const ID: &str = "id";
/// The head as its writer knew it.
pub(crate) const DRAINED: &str = "drained";

/// An item that cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ItemError {
    /// An attribute that must be there is not, or has another type.
    #[error("attribute `{0}` is missing or has another type")]
    Missing(&'static str),
    /// An attribute holds what nobody writes there.
    #[error("attribute `{0}` cannot be read")]
    Unreadable(&'static str),
    /// A kind of row that this release does not know.
    #[error("kind `{0}` is unknown: a newer release wrote this row; run that release, or drain the log with it before going back")]
    UnknownKind(String),
}

impl ItemError {
    /// The fault of an item in `table`.
    pub(crate) fn fault(&self, table: &str, item: &Item) -> Fault {
        let key = |name| text(item, name).unwrap_or("?").to_owned();
        Fault::new(FaultCode::InvalidConfig, format!("table `{table}`, item {} / {}: {self}", key(PK), key(SK)))
    }
}

pub(crate) fn text<'i>(item: &'i Item, name: &'static str) -> Result<&'i str, ItemError> {
    item.get(name).and_then(|value| value.as_s().ok()).map(String::as_str).ok_or(ItemError::Missing(name))
}

pub(crate) fn number<T: FromStr>(item: &Item, name: &'static str) -> Result<T, ItemError> {
    let text = item.get(name).and_then(|value| value.as_n().ok()).ok_or(ItemError::Missing(name))?;
    text.parse().map_err(|_| ItemError::Unreadable(name))
}

/// A number that may be absent, but not unreadable.
pub(crate) fn number_if_any<T: FromStr>(item: &Item, name: &'static str) -> Result<Option<T>, ItemError> {
    if item.contains_key(name) { number(item, name).map(Some) } else { Ok(None) }
}

pub(crate) fn binary<'i>(item: &'i Item, name: &'static str) -> Result<&'i [u8], ItemError> {
    item.get(name).and_then(|value| value.as_b().ok()).map(AsRef::as_ref).ok_or(ItemError::Missing(name))
}

pub(crate) fn boolean(item: &Item, name: &'static str) -> Result<bool, ItemError> {
    item.get(name).and_then(|value| value.as_bool().ok()).copied().ok_or(ItemError::Missing(name))
}

pub(crate) fn id(item: &Item, name: &'static str) -> Result<Id128, ItemError> {
    let bytes = binary(item, name)?.try_into().map_err(|_| ItemError::Unreadable(name))?;
    Ok(Id128(u128::from_be_bytes(bytes)))
}

pub(crate) fn slot(item: &Item) -> Result<Slot, ItemError> {
    Slot::from_sort_key(text(item, SK)?).ok_or(ItemError::Unreadable(SK))
}

pub(crate) fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(crate) fn n(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(crate) fn b(bytes: impl Into<Vec<u8>>) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

pub(crate) fn id_value(id: Id128) -> AttributeValue {
    b(id.0.to_be_bytes())
}

pub(crate) fn key(pk: impl Into<String>, sk: impl Into<String>) -> Item {
    Item::from([(PK.to_owned(), s(pk)), (SK.to_owned(), s(sk))])
}

/// The size of an item as DynamoDB bills it, in bytes: names in UTF-8, texts and binaries by length, numbers by half a byte a digit.
/// Never below what DynamoDB counts for the types that our items use.
#[must_use]
pub fn item_size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(number) => number.len().div_ceil(2) + 1,
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::L(list) => 3 + list.iter().map(|value| 1 + value_size(value)).sum::<usize>(),
        AttributeValue::M(map) => 3 + map.iter().map(|(name, value)| 1 + name.len() + value_size(value)).sum::<usize>(),
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        _ => 1,
    }
}
