//! The list of logs. Key: `REGISTRY` / the log's name.

use super::{EPOCH, Item, ItemError, SK, key, n, number, s, text};
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use causeway_core::identity::{Epoch, LogName};
use causeway_ports::{LogRecord, LogState, Registration};

/// The partition key of every record.
pub const REGISTRY: &str = "REGISTRY";
const LANES: &str = "lanes";
const STATE: &str = "state";
const OPEN: &str = "open";
const RETIRED: &str = "retired";

/// The item of `record`.
#[must_use]
pub fn encode(record: &LogRecord) -> Item {
    let mut item = key(REGISTRY, record.log.as_str());
    item.extend([
        (EPOCH.to_owned(), n(record.epoch.0)),
        (LANES.to_owned(), n(record.lanes)),
        (STATE.to_owned(), s(state_name(record.state))),
    ]);
    item
}

const fn state_name(state: LogState) -> &'static str {
    match state {
        LogState::Open => OPEN,
        LogState::Retired => RETIRED,
    }
}

/// Lets the put go through only over the record `standing`.
#[must_use]
pub fn expect(request: PutItemFluentBuilder, standing: Registration) -> PutItemFluentBuilder {
    request
        .condition_expression("#epoch = :epoch AND #lanes = :lanes AND #state = :state")
        .expression_attribute_names("#epoch", EPOCH)
        .expression_attribute_names("#lanes", LANES)
        .expression_attribute_names("#state", STATE)
        .expression_attribute_values(":epoch", n(standing.epoch.0))
        .expression_attribute_values(":lanes", n(standing.lanes))
        .expression_attribute_values(":state", s(state_name(standing.state)))
}

/// Reads it back.
///
/// # Errors
/// [`ItemError`] where the item is not a record.
pub fn decode(item: &Item) -> Result<LogRecord, ItemError> {
    let state = match text(item, STATE)? {
        OPEN => LogState::Open,
        RETIRED => LogState::Retired,
        _ => return Err(ItemError::Unreadable(STATE)),
    };
    Ok(LogRecord {
        log: LogName::parse(text(item, SK)?).ok_or(ItemError::Unreadable(SK))?,
        epoch: Epoch(number(item, EPOCH)?),
        lanes: number(item, LANES)?,
        state,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(bridge in "[^#]{1,20}", partition in "[^#]{1,20}", lane: u32, epoch: u64, lanes: u32, retired: bool) {
            let record = LogRecord {
                log: LogName::new(&bridge, &partition, lane).unwrap(),
                epoch: Epoch(epoch),
                lanes,
                state: if retired { LogState::Retired } else { LogState::Open },
            };
            prop_assert_eq!(decode(&encode(&record)).unwrap(), record);
        }
    }
}
