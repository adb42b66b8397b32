//! Segments' bodies: what is packed comes back byte for byte, and what is not a body never harms the reader.

use bytes::Bytes;
use causeway_core::identity::{Epoch, Id128, Slot};
use causeway_core::message::{Entry, Message, Properties};
use causeway_core::rows::{CODEC_POSTCARD_ZSTD, PackError, Segment, pack, unpack};
use causeway_core::units::UnixMillis;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::sync::Arc;

fn properties() -> impl Strategy<Value = Properties> {
    (
        option::of(".*"),
        option::of(".*"),
        option::of(vec(any::<u8>(), 0..40)),
        option::of(0_u8..2),
        option::of(any::<u32>()),
        vec((".*", ".*"), 0..4),
        vec(any::<u32>(), 0..3),
    )
        .prop_map(|(content_type, response_topic, correlation, payload_format, expiry_seconds, user, subscription_ids)| Properties {
            content_type,
            response_topic,
            correlation_data: correlation.map(Bytes::from),
            payload_format,
            expiry_seconds,
            user,
            subscription_ids,
        })
}

fn entry() -> impl Strategy<Value = Arc<Entry>> {
    let message = (".*", vec(any::<u8>(), 0..600), 0_u8..2, any::<bool>(), properties())
        .prop_map(|(topic, payload, qos, retain, properties)| Message { topic, payload: Bytes::from(payload), qos, retain, properties });
    (any::<u128>(), "[a-z]{1,9}", "[a-z]{1,9}", any::<u64>(), option::of(any::<u64>()), message).prop_map(
        |(id, route, source, received, expires, message)| {
            Arc::new(Entry {
                id: Id128(id),
                route: route.into(),
                binding: "b".into(),
                address: None,
                refusal: None,
                source: source.into(),
                received_at: UnixMillis(received),
                expires_at: expires.map(UnixMillis),
                redrive: None,
                message,
            })
        },
    )
}

fn segment(count: usize, codec: u8, body: Bytes) -> Segment {
    Segment {
        epoch: Epoch(1),
        segment_id: Id128(1),
        count: u32::try_from(count).unwrap(),
        codec,
        body,
        created_at: UnixMillis(0),
        earliest_expiry: None,
        drained: Slot(0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_packed_comes_back(entries in vec(entry(), 0..12)) {
        let body = pack(&entries).unwrap();
        let back = unpack(&segment(entries.len(), CODEC_POSTCARD_ZSTD, body)).unwrap();
        prop_assert_eq!(back.len(), entries.len());
        prop_assert!(back.iter().zip(&entries).all(|(back, entry)| back == entry.as_ref()));
    }

    #[test]
    fn a_wrong_count_an_unknown_codec_and_a_cut_body_are_told_apart(entries in vec(entry(), 1..6), cut in any::<prop::sample::Index>(), codec in 2_u8..=255) {
        let body = pack(&entries).unwrap();
        let right = entries.len();
        prop_assert_eq!(unpack(&segment(right + 1, CODEC_POSTCARD_ZSTD, body.clone())), Err(PackError::Damaged));
        prop_assert_eq!(unpack(&segment(right - 1, CODEC_POSTCARD_ZSTD, body.clone())), Err(PackError::Damaged));
        prop_assert_eq!(unpack(&segment(right, codec, body.clone())), Err(PackError::UnknownCodec { codec }));
        let shorter = body.slice(..cut.index(body.len()));
        prop_assert_eq!(unpack(&segment(right, CODEC_POSTCARD_ZSTD, shorter)), Err(PackError::Damaged));
    }

    #[test]
    fn a_damaged_body_never_yields_another_count_and_never_panics(entries in vec(entry(), 1..6), at in any::<prop::sample::Index>(), bits in 1_u8..) {
        let mut body = pack(&entries).unwrap().to_vec();
        let index = at.index(body.len());
        body[index] ^= bits;
        if let Ok(back) = unpack(&segment(entries.len(), CODEC_POSTCARD_ZSTD, Bytes::from(body))) {
            prop_assert_eq!(back.len(), entries.len());
        }
    }

    #[test]
    fn noise_is_never_taken_for_a_body(noise in vec(any::<u8>(), 0..300), count in 1_usize..5) {
        prop_assert_eq!(unpack(&segment(count, CODEC_POSTCARD_ZSTD, Bytes::from(noise))), Err(PackError::Damaged));
    }
}

#[test]
fn a_body_that_would_unpack_to_a_gigabyte_is_refused_within_bounds() {
    // A gigabyte of zeros, a megabyte at a time, in one frame of some tens of kilobytes.
    let zeros = vec![0_u8; 1 << 20];
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    for _ in 0..1_024 {
        std::io::Write::write_all(&mut encoder, &zeros).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    let before = peak_kib();
    assert_eq!(unpack(&segment(1, CODEC_POSTCARD_ZSTD, Bytes::from(bomb))), Err(PackError::Damaged));
    if let (Some(before), Some(after)) = (before, peak_kib()) {
        assert!(after - before < 400 * 1024, "{} KiB more", after - before);
    }
}

/// The largest resident size of this process so far; `None` where the system does not tell.
#[expect(clippy::disallowed_methods, reason = "a test that measures its own process")]
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().split(' ').next()?.parse().ok()
}
