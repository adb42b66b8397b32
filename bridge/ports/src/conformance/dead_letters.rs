//! What every [`DeadLetters`] store promises.

use super::{done, incompressible, suite};
use crate::{DeadLetterFilter, DeadLetters};
use bytes::Bytes;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState};
use causeway_core::identity::Id128;
use causeway_core::message::{Message, Properties};
use causeway_core::outcome::FaultClass;
use causeway_core::units::UnixMillis;
use std::sync::Arc;

suite! { $
    /// Expands to one test per case. `$make` is an async function that answers `(Arc<dyn DeadLetters>, what must live as long)`.
    dead_letters_conformance, dead_letters, Arc<dyn DeadLetters>;
    an_empty_store_has_no_letters,
    a_letter_comes_back_whole,
    the_same_id_again_changes_nothing,
    a_letter_that_was_put_back_can_die_again_once,
    a_tombstone_comes_back_whole,
    concurrent_parks_of_one_letter_keep_one,
    payloads_come_back_byte_for_byte,
    large_payloads_come_back_byte_for_byte,
    properties_come_back_whole,
    every_category_and_state_comes_back,
    extreme_numbers_come_back,
    the_oldest_come_first,
    each_condition_selects,
    conditions_select_together,
    pages_keep_their_limit_and_miss_nothing,
    equal_milliseconds_do_not_stall_a_page,
    a_filtered_list_is_paged_too,
    deleting_what_was_read_does_not_disturb_the_next_page,
    a_foreign_continuation_is_a_fault,
    delete_answers_whether_there_was_one,
    a_deleted_large_letter_leaves_nothing_behind,
    creating_again_creates_nothing_and_loses_nothing,
}

type Store = Arc<dyn DeadLetters>;

const CATEGORIES: [FaultClass; 5] =
    [FaultClass::Transient, FaultClass::Permanent, FaultClass::Rejected, FaultClass::Expired, FaultClass::Poison];

fn letter(id: u128, failed_at: u64) -> DeadLetter {
    DeadLetter {
        id: Id128(id),
        bridge: "bridge".to_owned(),
        route: "telemetry".to_owned(),
        binding: "to-sqs".to_owned(),
        session: "plant-1".to_owned(),
        source: "receiver-1".to_owned(),
        address: "https://sqs.eu-west-1.amazonaws.com/000000000000/telemetry".to_owned(),
        category: FaultClass::Rejected,
        error_code: "INVALID_PAYLOAD".to_owned(),
        reason: "invalid_payload".to_owned(),
        last_error: "the queue refused it".to_owned(),
        attempts: 3,
        redrive_count: 0,
        state: DeadLetterState::Dead,
        failed_at: UnixMillis(failed_at),
        received_at: UnixMillis(1_700_000_000_000),
        message: Message {
            topic: "plant/1/telemetry".to_owned(),
            payload: Bytes::from(format!("{{\"id\":{id}}}")),
            qos: 1,
            retain: false,
            properties: Properties::default(),
        },
        redriven: None,
    }
}

async fn park(store: &Store, letter: &DeadLetter) {
    done(store.park(letter).await, "park");
}

async fn park_all(store: &Store, letters: &[DeadLetter]) {
    for letter in letters {
        park(store, letter).await;
    }
}

async fn get(store: &Store, id: u128) -> Option<DeadLetter> {
    store.get(Id128(id)).await.expect("get")
}

async fn delete(store: &Store, id: u128) -> bool {
    done(store.delete(Id128(id)).await, "delete")
}

/// Reads the whole list in pages of `limit`; checks what holds for each page.
async fn list(store: &Store, filter: &DeadLetterFilter, limit: usize) -> Vec<DeadLetter> {
    let mut all: Vec<DeadLetter> = Vec::new();
    let mut continuation: Option<String> = None;
    // A page may hold fewer than the limit, even none, and still have a next one; a list that never ends is caught here.
    for _ in 0..2_000 {
        let page = store.list(filter, limit, continuation.as_deref()).await.expect("list");
        assert!(page.letters.len() <= limit, "a page of {} letters where {limit} were allowed", page.letters.len());
        assert!(page.letters.iter().all(|letter| filter.matches(letter)), "a page holds only what the filter means");
        all.extend(page.letters);
        continuation = page.continuation;
        if continuation.is_none() {
            assert!(all.is_sorted_by_key(|letter| letter.failed_at), "the oldest come first, across pages too");
            return all;
        }
    }
    panic!("the list of pages has no end");
}

/// The ids on the whole list, in the order of the ids.
async fn ids(store: &Store, filter: &DeadLetterFilter, limit: usize) -> Vec<u128> {
    let mut ids: Vec<u128> = list(store, filter, limit).await.into_iter().map(|letter| letter.id.0).collect();
    ids.sort_unstable();
    ids
}

fn everything() -> DeadLetterFilter {
    DeadLetterFilter::default()
}

/// Reads the letter back in both ways; compares without printing payloads.
async fn comes_back(store: &Store, letter: &DeadLetter) {
    park(store, letter).await;
    assert!(get(store, letter.id.0).await.as_ref() == Some(letter), "letter {} came back changed from get", letter.id);
    let listed = list(store, &everything(), 10).await;
    assert!(listed.iter().find(|found| found.id == letter.id) == Some(letter), "letter {} came back changed from list", letter.id);
}

async fn an_empty_store_has_no_letters(store: Store) {
    assert_eq!(get(&store, 1).await, None);
    assert!(list(&store, &everything(), 10).await.is_empty());
    assert!(list(&store, &DeadLetterFilter { route: Some("telemetry".to_owned()), ..everything() }, 10).await.is_empty());
    assert!(!delete(&store, 1).await);
}

async fn a_letter_comes_back_whole(store: Store) {
    let wanted = letter(7, 1_700_000_000_123);
    park(&store, &wanted).await;
    assert_eq!(get(&store, 7).await, Some(wanted.clone()));
    assert_eq!(list(&store, &everything(), 10).await, [wanted]);
    assert_eq!(get(&store, 8).await, None);
    // Texts that may be empty, and texts that are no plain words.
    let odd = ["", "ünï ¬ 日本", "nul\u{0}inside", "\u{FFFF}", "it's \"quoted\" % _ #"];
    for (text, id) in odd.into_iter().zip(10..) {
        let text = text.to_owned();
        let mut odd = DeadLetter { address: text.clone(), reason: text.clone(), last_error: text.clone(), ..letter(id, 5) };
        odd.binding.clone_from(&text);
        odd.session.clone_from(&text);
        odd.source.clone_from(&text);
        odd.message.topic = text;
        comes_back(&store, &odd).await;
    }
}

async fn the_same_id_again_changes_nothing(store: Store) {
    let first = letter(1, 1_000);
    park(&store, &first).await;
    park(&store, &first).await;
    let mut second = letter(1, 2_000);
    second.route = "other".to_owned();
    second.attempts = 99;
    second.message.payload = Bytes::from_static(b"other");
    park(&store, &second).await;
    assert_eq!(get(&store, 1).await, Some(first.clone()));
    assert_eq!(list(&store, &everything(), 10).await, [first]);
    assert!(list(&store, &DeadLetterFilter { route: Some("other".to_owned()), ..everything() }, 10).await.is_empty());
}

/// The letter in `state`, put back `redrives` times, with a payload of `length` bytes.
fn again(state: DeadLetterState, redrives: u32, length: usize) -> DeadLetter {
    let mut letter = DeadLetter { state, redrive_count: redrives, ..letter(1, 1_000 + u64::from(redrives)) };
    letter.message.payload = incompressible(length, u64::from(redrives)).into();
    letter
}

async fn a_letter_that_was_put_back_can_die_again_once(store: Store) {
    // Large ones too, which a store may keep in parts: from small to large, and from large to small.
    for (first, second) in [(10, 20), (10, 1_000_000), (1_000_000, 900_000), (1_000_000, 10)] {
        let tombstone = again(DeadLetterState::Redriven, 2, first);
        park(&store, &tombstone).await;
        for replay in [0, 1, 3] {
            park(&store, &again(DeadLetterState::Dead, replay, second)).await;
            assert!(get(&store, 1).await.as_ref() == Some(&tombstone), "a replay of another count raised the dead");
        }
        let dead = again(DeadLetterState::Dead, 2, second);
        park(&store, &dead).await;
        assert!(get(&store, 1).await.as_ref() == Some(&dead), "the next death stands, whole");
        assert!(list(&store, &everything(), 10).await == [dead.clone()], "and is listed once, under its new age");
        for replay in [0, 1, 2, 3] {
            park(&store, &DeadLetter { attempts: 99, ..again(DeadLetterState::Dead, replay, first) }).await;
            assert!(get(&store, 1).await.as_ref() == Some(&dead), "a dead letter stays as it is");
        }
        assert!(delete(&store, 1).await);
        let parked = again(DeadLetterState::Parked, 2, first);
        park(&store, &parked).await;
        park(&store, &dead).await;
        assert!(get(&store, 1).await.as_ref() == Some(&parked), "a parked letter stays as it is");
        assert!(delete(&store, 1).await);
    }
}

async fn a_tombstone_comes_back_whole(store: Store) {
    for (id, length) in [(1, 10), (2, 1_000_000)] {
        let mut dead = letter(id, 1_000);
        dead.message.payload = incompressible(length, 1).into();
        let tombstone = dead.tombstone("op-1 \u{0} ünï", UnixMillis(1_700_000_000_999));
        assert_eq!(tombstone.redriven.as_ref().map(|redriven| redriven.dropped_bytes > 0), Some(length > 10));
        comes_back(&store, &tombstone).await;
    }
}

async fn concurrent_parks_of_one_letter_keep_one(store: Store) {
    let wanted = letter(1, 1_000);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (store, letter) = (Arc::clone(&store), wanted.clone());
        tasks.spawn(async move { park(&store, &letter).await });
    }
    tasks.join_all().await;
    assert_eq!(list(&store, &everything(), 10).await, [wanted]);
}

async fn payloads_come_back_byte_for_byte(store: Store) {
    let payloads: [Vec<u8>; 9] = [
        Vec::new(),
        vec![0],
        b"a\0b".to_vec(),
        (0..=255).collect(),
        vec![0xc3, 0x28, 0xff, 0xfe],
        "\u{FFFF}".as_bytes().to_vec(),
        "\u{0}\u{FFFE}\u{10FFFF}".as_bytes().to_vec(),
        b"  leading, trailing\r\n".to_vec(),
        b"{\"text\":\"json\"}".to_vec(),
    ];
    for (payload, id) in payloads.into_iter().zip(1..) {
        let mut letter = letter(id, 1_000);
        letter.message.payload = payload.into();
        comes_back(&store, &letter).await;
    }
}

async fn large_payloads_come_back_byte_for_byte(store: Store) {
    let sizes = [255 * 1024, 300 * 1024, 400 * 1024, 512 * 1024 + 1, 1024 * 1024];
    for (size, id) in sizes.into_iter().zip(1..) {
        let mut letter = letter(id, 1_000);
        letter.message.payload = incompressible(size, size as u64).into();
        comes_back(&store, &letter).await;
    }
    // Text as large as that, of characters of several bytes, cut wherever a chunk ends.
    let mut text = letter(100, 1_000);
    text.message.payload = Bytes::from("日本語".repeat(116_508));
    comes_back(&store, &text).await;
    assert_eq!(ids(&store, &everything(), 2).await, [1, 2, 3, 4, 5, 100], "each letter is listed once, however it is cut");
}

async fn properties_come_back_whole(store: Store) {
    let mut full = letter(1, 1_000);
    full.message.retain = true;
    full.message.properties = Properties {
        content_type: Some("application/json".to_owned()),
        response_topic: Some("answers/1".to_owned()),
        correlation_data: Some(Bytes::from_static(&[0, 255, 128])),
        payload_format: Some(1),
        expiry_seconds: Some(u32::MAX),
        user: vec![
            ("name".to_owned(), "first".to_owned()),
            ("name".to_owned(), "second".to_owned()),
            (String::new(), String::new()),
            ("ü\u{FFFF}".to_owned(), "nul\u{0}".to_owned()),
        ],
        subscription_ids: vec![3, 1, 268_435_455],
    };
    comes_back(&store, &full).await;
    // What is present and empty is not the same as what is absent.
    let mut empty = letter(2, 1_000);
    empty.message.qos = 0;
    empty.message.properties = Properties {
        content_type: Some(String::new()),
        response_topic: Some(String::new()),
        correlation_data: Some(Bytes::new()),
        payload_format: Some(0),
        expiry_seconds: Some(0),
        ..Properties::default()
    };
    comes_back(&store, &empty).await;
    comes_back(&store, &letter(3, 1_000)).await;
}

async fn every_category_and_state_comes_back(store: Store) {
    let states = [DeadLetterState::Dead, DeadLetterState::Redriven, DeadLetterState::Parked];
    let mut id = 0;
    for category in CATEGORIES {
        for state in states {
            id += 1;
            park(&store, &DeadLetter { category, state, ..letter(id, 1_000) }).await;
            let found = get(&store, id).await.expect("parked just now");
            assert_eq!((found.category, found.state), (category, state));
        }
    }
    for state in states {
        assert_eq!(list(&store, &DeadLetterFilter { state: Some(state), ..everything() }, 3).await.len(), CATEGORIES.len());
    }
}

async fn extreme_numbers_come_back(store: Store) {
    for (id, failed_at) in [(0, 0), (1, u64::from(u32::MAX)), (u128::MAX, 253_402_300_799_999), (1 << 64, i64::MAX as u64)] {
        let wanted = DeadLetter { attempts: u32::MAX, redrive_count: u32::MAX, received_at: UnixMillis(0), ..letter(id, failed_at) };
        park(&store, &wanted).await;
        assert_eq!(get(&store, id).await, Some(wanted));
    }
    assert_eq!(list(&store, &everything(), 1).await.len(), 4);
}

async fn the_oldest_come_first(store: Store) {
    let order = [500, 9, 10, 1_700_000_000_000, 100, 99, 1_000];
    for (failed_at, id) in order.into_iter().zip(1..) {
        park(&store, &DeadLetter { category: CATEGORIES[id as usize % 5], route: format!("route-{}", id % 3), ..letter(id, failed_at) })
            .await;
    }
    for limit in [1, 2, 100] {
        let found: Vec<u64> = list(&store, &everything(), limit).await.iter().map(|letter| letter.failed_at.0).collect();
        assert_eq!(found, [9, 10, 99, 100, 500, 1_000, 1_700_000_000_000], "in pages of {limit}");
    }
}

/// Letters that differ in what a filter can ask for.
fn varied() -> Vec<DeadLetter> {
    let mut letters = Vec::new();
    for id in 0..60_u64 {
        letters.push(DeadLetter {
            route: ["telemetry", "telemetry-2", "Telemetry"][id as usize % 3].to_owned(),
            category: CATEGORIES[id as usize % 5],
            error_code: ["TIMEOUT", "INVALID_PAYLOAD"][id as usize % 2].to_owned(),
            state: [DeadLetterState::Dead, DeadLetterState::Parked, DeadLetterState::Redriven, DeadLetterState::Dead][id as usize % 4],
            // Four letters to a millisecond.
            ..letter(u128::from(id), 1_000 + id / 4)
        });
    }
    letters
}

/// Compares the store's answer with what [`DeadLetterFilter::matches`] says of every letter.
async fn selects(store: &Store, letters: &[DeadLetter], filter: &DeadLetterFilter) -> usize {
    let wanted: Vec<u128> = letters.iter().filter(|letter| filter.matches(letter)).map(|letter| letter.id.0).collect();
    for limit in [7, 1_000] {
        assert_eq!(ids(store, filter, limit).await, wanted, "{filter:?} in pages of {limit}");
    }
    wanted.len()
}

async fn each_condition_selects(store: Store) {
    let letters = varied();
    park_all(&store, &letters).await;
    let text = |text: &str| Some(text.to_owned());
    let filters = [
        (everything(), 60),
        (DeadLetterFilter { route: text("telemetry"), ..everything() }, 20),
        (DeadLetterFilter { route: text("telemetr%"), ..everything() }, 0),
        (DeadLetterFilter { category: text("rejected"), ..everything() }, 12),
        (DeadLetterFilter { category: text("no such category"), ..everything() }, 0),
        (DeadLetterFilter { error_code: text("TIMEOUT"), ..everything() }, 30),
        (DeadLetterFilter { error_code: text("timeout"), ..everything() }, 0),
        (DeadLetterFilter { state: Some(DeadLetterState::Dead), ..everything() }, 30),
        (DeadLetterFilter { since: Some(UnixMillis(1_014)), ..everything() }, 4),
        (DeadLetterFilter { since: Some(UnixMillis(1_015)), ..everything() }, 0),
        (DeadLetterFilter { before: Some(UnixMillis(1_001)), ..everything() }, 4),
        (DeadLetterFilter { before: Some(UnixMillis(1_000)), ..everything() }, 0),
        (DeadLetterFilter { before: Some(UnixMillis(0)), ..everything() }, 0),
        (DeadLetterFilter { since: Some(UnixMillis(0)), before: Some(UnixMillis(u64::MAX)), ..everything() }, 60),
    ];
    for (filter, count) in filters {
        assert_eq!(selects(&store, &letters, &filter).await, count, "{filter:?}");
    }
}

async fn conditions_select_together(store: Store) {
    let letters = varied();
    park_all(&store, &letters).await;
    let full = DeadLetterFilter {
        route: Some("telemetry".to_owned()),
        category: Some("transient".to_owned()),
        error_code: Some("TIMEOUT".to_owned()),
        since: Some(UnixMillis(1_000)),
        before: Some(UnixMillis(1_008)),
        state: Some(DeadLetterState::Dead),
    };
    assert_eq!(selects(&store, &letters, &full).await, 1);
    let pairs = [
        DeadLetterFilter { category: None, ..full.clone() },
        DeadLetterFilter { route: None, ..full.clone() },
        DeadLetterFilter { route: None, category: None, ..full.clone() },
        DeadLetterFilter { error_code: None, state: None, ..full.clone() },
        DeadLetterFilter { since: Some(UnixMillis(1_005)), before: Some(UnixMillis(1_006)), ..everything() },
        DeadLetterFilter { route: full.route.clone(), since: Some(UnixMillis(1_010)), ..everything() },
        DeadLetterFilter { category: full.category.clone(), before: Some(UnixMillis(1_010)), ..everything() },
    ];
    for filter in pairs {
        assert!(selects(&store, &letters, &filter).await > 0, "{filter:?} means nothing: the case is void");
    }
    // A range that is empty or turned around means nothing and is no fault.
    for (since, before) in [(1_005, 1_005), (1_009, 1_002)] {
        let filter = DeadLetterFilter { since: Some(UnixMillis(since)), before: Some(UnixMillis(before)), ..everything() };
        assert_eq!(selects(&store, &letters, &filter).await, 0);
        assert_eq!(selects(&store, &letters, &DeadLetterFilter { route: full.route.clone(), ..filter }).await, 0);
    }
}

async fn pages_keep_their_limit_and_miss_nothing(store: Store) {
    let letters: Vec<DeadLetter> = (0..23).map(|n| letter(n, 5_000 - n as u64)).collect();
    park_all(&store, &letters).await;
    for limit in [1, 2, 22, 23, 24, 10_000] {
        assert_eq!(ids(&store, &everything(), limit).await, (0..23).collect::<Vec<_>>(), "in pages of {limit}");
    }
}

async fn equal_milliseconds_do_not_stall_a_page(store: Store) {
    // Ids far apart, so that the order of the ids is not the order of writing.
    let letters: Vec<DeadLetter> =
        (1..=30_u128).map(|n| letter(n.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835), 1_000)).collect();
    park_all(&store, &letters).await;
    let mut wanted: Vec<u128> = letters.iter().map(|letter| letter.id.0).collect();
    wanted.sort_unstable();
    for limit in [1, 7, 30] {
        assert_eq!(ids(&store, &everything(), limit).await, wanted, "in pages of {limit}");
        let route = DeadLetterFilter { route: Some("telemetry".to_owned()), ..everything() };
        assert_eq!(ids(&store, &route, limit).await, wanted, "of one route in pages of {limit}");
    }
}

async fn a_filtered_list_is_paged_too(store: Store) {
    let letters = varied();
    park_all(&store, &letters).await;
    let filters = [
        DeadLetterFilter { route: Some("telemetry-2".to_owned()), ..everything() },
        DeadLetterFilter { category: Some("poison".to_owned()), ..everything() },
        DeadLetterFilter { state: Some(DeadLetterState::Redriven), ..everything() },
        DeadLetterFilter { since: Some(UnixMillis(1_003)), before: Some(UnixMillis(1_011)), ..everything() },
        DeadLetterFilter { error_code: Some("TIMEOUT".to_owned()), route: Some("Telemetry".to_owned()), ..everything() },
    ];
    for filter in filters {
        let whole = ids(&store, &filter, 1_000).await;
        assert!(!whole.is_empty());
        for limit in [1, 3] {
            assert_eq!(ids(&store, &filter, limit).await, whole, "{filter:?} in pages of {limit}");
        }
    }
}

async fn deleting_what_was_read_does_not_disturb_the_next_page(store: Store) {
    park_all(&store, &(0..12).map(|n| letter(n, 1_000 + n as u64 / 3)).collect::<Vec<_>>()).await;
    let mut seen = Vec::new();
    let mut continuation: Option<String> = None;
    for _ in 0..100 {
        let page = store.list(&everything(), 2, continuation.as_deref()).await.expect("list");
        for letter in page.letters {
            assert!(delete(&store, letter.id.0).await);
            seen.push(letter.id.0);
        }
        continuation = page.continuation;
        if continuation.is_none() {
            break;
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..12).collect::<Vec<_>>());
    assert!(list(&store, &everything(), 10).await.is_empty());
}

async fn a_foreign_continuation_is_a_fault(store: Store) {
    park_all(&store, &[letter(1, 1_000), letter(2, 2_000)]).await;
    for foreign in ["", "nonsense", "1#2", "{}", "ü\u{0}", "99999999999999999999999999#00000000000000000000000000000001"] {
        let answer = store.list(&everything(), 10, Some(foreign)).await;
        let fault = answer.expect_err("a continuation that the store never gave must not list anything");
        assert!(!fault.is_transient(), "trying `{foreign}` again cannot help");
    }
}

async fn delete_answers_whether_there_was_one(store: Store) {
    park_all(&store, &[letter(1, 1_000), letter(2, 1_000)]).await;
    assert!(delete(&store, 1).await);
    assert!(!delete(&store, 1).await);
    assert!(!delete(&store, 3).await);
    assert_eq!(get(&store, 1).await, None);
    assert_eq!(ids(&store, &everything(), 10).await, [2]);
    let again = letter(1, 3_000);
    park(&store, &again).await;
    assert_eq!(get(&store, 1).await, Some(again), "its id is free again");
}

async fn a_deleted_large_letter_leaves_nothing_behind(store: Store) {
    let mut large = letter(1, 1_000);
    large.message.payload = incompressible(1024 * 1024, 1).into();
    park(&store, &large).await;
    assert!(delete(&store, 1).await);
    assert!(list(&store, &everything(), 10).await.is_empty());
    let mut smaller = letter(1, 1_000);
    smaller.message.payload = incompressible(500 * 1024, 2).into();
    comes_back(&store, &smaller).await;
}

async fn creating_again_creates_nothing_and_loses_nothing(store: Store) {
    park(&store, &letter(1, 1_000)).await;
    store.probe().await.expect("a created store answers its probe");
    let created = store.create().await.expect("create");
    assert!(created.is_empty(), "it was there already: {created:?}");
    assert_eq!(ids(&store, &everything(), 10).await, [1]);
}
