//! A group of entries in a log. Key: `LOG#<bridge>#<partition>#<lane>` / the slot.
//!
//! A segment is what every message pays for, by the KiB: its attribute names are the shortest that still tell what they hold.

use super::{DRAINED, EPOCH, ID, Item, ItemError, KIND, b, binary, id, id_value, key, n, number, number_if_any, s};
use bytes::Bytes;
use causeway_core::identity::{Epoch, LogName, Slot};
use causeway_core::rows::Segment;
use causeway_core::units::UnixMillis;

/// The kind in the row.
pub(crate) const SEGMENT: &str = "segment";
const COUNT: &str = "n";
const CODEC: &str = "codec";
const BODY: &str = "body";
const CREATED_AT: &str = "at";
const EARLIEST_EXPIRY: &str = "expires";

/// The item of `segment` at `slot`.
#[must_use]
pub fn encode(log: &LogName, slot: Slot, segment: &Segment) -> Item {
    let mut item = key(log.as_str(), slot.sort_key());
    item.extend([
        (KIND.to_owned(), s(SEGMENT)),
        (EPOCH.to_owned(), n(segment.epoch.0)),
        (ID.to_owned(), id_value(segment.segment_id)),
        (COUNT.to_owned(), n(segment.count)),
        (CODEC.to_owned(), n(segment.codec)),
        (BODY.to_owned(), b(segment.body.to_vec())),
        (CREATED_AT.to_owned(), n(segment.created_at.0)),
        (DRAINED.to_owned(), n(segment.drained.0)),
    ]);
    if let Some(expiry) = segment.earliest_expiry {
        item.insert(EARLIEST_EXPIRY.to_owned(), n(expiry.0));
    }
    item
}

/// Reads it back.
///
/// # Errors
/// [`ItemError`] where the item is not a segment.
pub fn decode(item: &Item) -> Result<Segment, ItemError> {
    Ok(Segment {
        epoch: Epoch(number(item, EPOCH)?),
        segment_id: id(item, ID)?,
        count: number(item, COUNT)?,
        codec: number(item, CODEC)?,
        body: Bytes::copy_from_slice(binary(item, BODY)?),
        created_at: UnixMillis(number(item, CREATED_AT)?),
        earliest_expiry: number_if_any(item, EARLIEST_EXPIRY)?.map(UnixMillis),
        drained: Slot(number(item, DRAINED)?),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]
    use super::super::item_size;
    use super::*;
    use causeway_core::identity::Id128;
    use causeway_core::message::{Entry, Message};
    use causeway_core::rows::{CODEC_POSTCARD_ZSTD, pack, unpack};
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn what_is_written_is_read(epoch: u64, id: u128, count: u32, codec: u8, body: Vec<u8>, at: u64, expiry: Option<u64>, drained: u64, slot: u64) {
            let segment = Segment {
                epoch: Epoch(epoch), segment_id: Id128(id), count, codec, body: Bytes::from(body), created_at: UnixMillis(at),
                earliest_expiry: expiry.map(UnixMillis), drained: Slot(drained),
            };
            let log = LogName::new("bridge", "session", 0).unwrap();
            let item = encode(&log, Slot(slot), &segment);
            prop_assert_eq!(super::super::slot(&item).unwrap(), Slot(slot));
            prop_assert_eq!(decode(&item).unwrap(), segment);
        }
    }

    /// Telemetry as a plant sends it: JSON of 250 bytes, a few fields that change.
    fn telemetry(count: u32) -> Vec<Arc<Entry>> {
        let entry = |i: u32| {
            let noise = i.wrapping_mul(2_654_435_761);
            let mut json = format!(
                r#"{{"device":"line3-press-{:04}","ts":"2026-03-01T12:00:{:02}.{:03}Z","temperature":{}.{:02},"pressure":{}.{:03},"vibration":{{"x":0.{:04},"y":0.{:04},"z":0.{:04}}},"state":"running","seq":{}"#,
                noise % 400,
                i / 100 % 60,
                noise % 1000,
                60 + noise % 30,
                noise % 97,
                4 + noise % 3,
                noise % 991,
                noise % 9973,
                noise % 9967,
                noise % 9949,
                100_000 + i
            );
            let fill = 250_usize.saturating_sub(json.len() + 12);
            json.push_str(&format!(r#","note":"{}"}}"#, "ok-".repeat(fill)[..fill].to_owned()));
            Arc::new(Entry {
                id: Id128(0x8f3a_92c4_11d7_4e5b_9c60_1d2e_3f40_0000 + u128::from(i)),
                route: "telemetry-to-sqs".into(),
                binding: "b".into(),
                address: None,
                refusal: None,
                source: "plant-telemetry".into(),
                received_at: UnixMillis(1_772_366_400_000 + u64::from(i)),
                expires_at: None,
                redrive: None,
                message: Message {
                    topic: format!("plant/a/line3/press{:04}/telemetry", noise % 400),
                    payload: Bytes::from(json),
                    qos: 1,
                    ..Message::default()
                },
            })
        };
        (0..count).map(entry).collect()
    }

    fn size_of(count: u32) -> usize {
        let entries = telemetry(count);
        assert!(entries.iter().all(|entry| (245..=255).contains(&entry.message.payload.len())), "{}", entries[0].message.payload.len());
        let body = pack(&entries).unwrap();
        let segment = Segment {
            epoch: Epoch(12),
            segment_id: Id128(u128::MAX / 3),
            count,
            codec: CODEC_POSTCARD_ZSTD,
            body,
            created_at: UnixMillis(1_772_366_400_000),
            earliest_expiry: None,
            drained: Slot(1_000_000),
        };
        assert_eq!(unpack(&segment).unwrap().len(), entries.len());
        item_size(&encode(&LogName::new("plant-bridge", "plant-session", 0).unwrap(), Slot(1_000_001), &segment))
    }

    #[test]
    fn a_segment_of_ten_messages_costs_one_write_unit() {
        let (one, ten, hundred) = (size_of(1), size_of(10), size_of(100));
        println!("item bytes of 250-byte JSON messages: 1 -> {one}, 10 -> {ten}, 100 -> {hundred}");
        assert!(ten <= 1024, "{ten}");
        assert!(hundred <= 6 * 1024, "{hundred}");
    }
}
