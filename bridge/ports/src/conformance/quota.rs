//! What every [`Quota`] store promises.

use super::{done, suite};
use crate::Quota;
use causeway_core::flow::quota::{DrawRequest, Drawn, QuotaAnswer, QuotaRow, QuotaWrite, Terms};
use causeway_core::units::UnixMillis;
use core::time::Duration;
use std::sync::Arc;

suite! { $
    /// Expands to one test per case. `$make` is an async function that answers `(Arc<dyn Quota>, what must live as long)`.
    quota_conformance, quota, Arc<dyn Quota>;
    a_budget_that_nobody_drew_from_is_whole,
    a_draw_takes_and_a_return_gives_back,
    what_is_asked_beyond_the_budget_brings_what_is_there,
    the_budget_grows_with_time_up_to_its_burst,
    a_write_whose_condition_does_not_hold_changes_nothing_and_tells_the_row,
    tokens_may_be_drawn_ahead_in_turn,
    of_many_who_draw_at_once_nobody_gets_what_another_has,
    other_terms_replace_the_row_once,
    large_numbers_come_back_whole,
    budgets_do_not_touch_each_other,
}

type Store = Arc<dyn Quota>;

const NAME: &str = "default";
const TERMS: Terms = Terms { count: 100, period_ms: 1_000, burst: 100 };
/// A moment of today, so that the numbers have the size that they have.
const NOW: u64 = 1_780_000_000_000;

fn request(tokens: u64, after_ms: u64) -> DrawRequest {
    DrawRequest { terms: TERMS, tokens, at: UnixMillis(NOW + after_ms), ahead: Duration::ZERO, seen: None }
}

async fn draw(store: &Store, tokens: u64, after_ms: u64) -> u64 {
    done(store.draw(NAME, request(tokens, after_ms)).await, "draw").tokens
}

async fn available(store: &Store, after_ms: u64) -> u64 {
    let row = store.read(NAME).await.unwrap().expect("a row");
    row.terms.available(row.tat, UnixMillis(NOW + after_ms))
}

async fn a_budget_that_nobody_drew_from_is_whole(store: Store) {
    assert_eq!(store.read(NAME).await.unwrap(), None);
    assert_eq!(draw(&store, 10, 0).await, 10);
    assert_eq!(available(&store, 0).await, 90);
    let row = store.read(NAME).await.unwrap().expect("a row");
    assert_eq!((row.terms, row.revision), (TERMS, 1));
}

async fn a_draw_takes_and_a_return_gives_back(store: Store) {
    assert_eq!(draw(&store, 10, 0).await, 10);
    assert_eq!(draw(&store, 25, 0).await, 25);
    assert_eq!(available(&store, 0).await, 65);
    assert!(done(store.give_back(NAME, TERMS, 7).await, "give back"));
    assert_eq!(available(&store, 0).await, 72);
    assert_eq!(available(&store, 10_000).await, 100);
}

async fn what_is_asked_beyond_the_budget_brings_what_is_there(store: Store) {
    assert_eq!(draw(&store, 86, 0).await, 86);
    assert_eq!(draw(&store, 20, 0).await, 14);
    assert_eq!(draw(&store, 1, 0).await, 0);
    assert_eq!(available(&store, 0).await, 0);
}

async fn the_budget_grows_with_time_up_to_its_burst(store: Store) {
    assert_eq!(draw(&store, 100, 0).await, 100);
    assert_eq!(available(&store, 55).await, 5);
    assert_eq!(draw(&store, 10, 55).await, 5);
    assert_eq!(draw(&store, 500, 10_000).await, 100);
    assert_eq!(available(&store, 10_000).await, 0);
}

async fn a_write_whose_condition_does_not_hold_changes_nothing_and_tells_the_row(store: Store) {
    let refused = |answer| if let QuotaAnswer::Refused(row) = answer { row } else { panic!("written") };
    let other = Terms { count: 7, ..TERMS };
    let busy = |terms, low, high| QuotaWrite::Busy { terms, add: 1_000, low, high };
    let give_back = TERMS.give_back(1);
    for write in [busy(TERMS, 0, i128::from(u64::MAX)), give_back] {
        assert_eq!(refused(done(store.write(NAME, &write).await, "write")), None, "there is no row");
    }
    assert_eq!(store.read(NAME).await.unwrap(), None);
    assert_eq!(draw(&store, 10, 0).await, 10);
    let row = store.read(NAME).await.unwrap().expect("a row");
    for write in [
        busy(TERMS, row.tat + 1, row.tat + 2),
        busy(TERMS, 0, row.tat - 1),
        busy(other, 0, row.tat),
        QuotaWrite::Idle { terms: TERMS, below: row.tat, tat: row.tat + 5 },
        QuotaWrite::Idle { terms: other, below: row.tat + 1, tat: row.tat + 5 },
        other.give_back(1),
        QuotaWrite::Replace { seen: QuotaRow { tat: row.tat + 1, ..row }, terms: other, tat: 5 },
        QuotaWrite::Replace { seen: QuotaRow { revision: row.revision + 1, ..row }, terms: other, tat: 5 },
    ] {
        assert_eq!(refused(done(store.write(NAME, &write).await, "write")), Some(row), "{write:?}");
    }
    assert_eq!(store.read(NAME).await.unwrap(), Some(row));
    for write in [busy(TERMS, row.tat, row.tat), give_back] {
        assert!(write.on(Some(row)).is_ok());
        assert!(matches!(done(store.write(NAME, &write).await, "write"), QuotaAnswer::Written(_)));
    }
    assert_eq!(store.read(NAME).await.unwrap(), Some(row), "one more and one less");
}

async fn tokens_may_be_drawn_ahead_in_turn(store: Store) {
    assert_eq!(draw(&store, 100, 0).await, 100);
    let mut waits = Vec::new();
    for _ in 0..3 {
        let seen = store.read(NAME).await.unwrap().map(|row| row.tat);
        let ahead = DrawRequest { ahead: Duration::from_millis(250), seen, ..request(10, 0) };
        let Drawn { tokens, wait, .. } = done(store.draw(NAME, ahead).await, "draw");
        waits.push((tokens, wait.as_millis()));
    }
    assert_eq!(waits, [(10, 100), (10, 200), (0, 0)], "a third one is beyond the horizon");
}

async fn of_many_who_draw_at_once_nobody_gets_what_another_has(store: Store) {
    assert_eq!(draw(&store, 4, 0).await, 4);
    let draws = (0..24).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { draw(&store, 5, 0).await })
    });
    let mut total = 4;
    for draw in draws.collect::<Vec<_>>() {
        total += draw.await.unwrap();
    }
    assert!(total <= 100, "{total} tokens of 100");
    total += draw(&store, 100, 0).await;
    assert_eq!(total, 100, "and nothing is lost");
}

async fn other_terms_replace_the_row_once(store: Store) {
    assert_eq!(draw(&store, 50, 0).await, 50);
    let other = Terms { count: 200, period_ms: 1_000, burst: 200 };
    let drawn = done(store.draw(NAME, DrawRequest { terms: other, ..request(20, 0) }).await, "draw");
    assert_eq!(drawn.tokens, 20);
    let row = store.read(NAME).await.unwrap().expect("a row");
    assert_eq!((row.terms, row.revision), (other, 2));
    assert_eq!(other.available(row.tat, UnixMillis(NOW)), 80);
    assert!(!done(store.give_back(NAME, TERMS, 9).await, "give back"), "of other terms");
}

async fn large_numbers_come_back_whole(store: Store) {
    let terms = Terms { count: 1_000_000_000, period_ms: 86_400_000, burst: 1_000_000_000 };
    let drawn = done(store.draw(NAME, DrawRequest { terms, ..request(1_000_000_000, 0) }).await, "draw");
    assert_eq!(drawn.tokens, 1_000_000_000);
    let row = store.read(NAME).await.unwrap().expect("a row");
    assert_eq!(row.tat, i128::from(NOW) * 1_000_000_000 + 1_000_000_000 * 86_400_000);
    assert_eq!(drawn.tat, Some(row.tat));
    assert!(done(store.give_back(NAME, terms, 1).await, "give back"));
    assert_eq!(store.read(NAME).await.unwrap().expect("a row").tat, row.tat - 86_400_000);
}

async fn budgets_do_not_touch_each_other(store: Store) {
    assert_eq!(draw(&store, 100, 0).await, 100);
    assert_eq!(done(store.draw("other", request(100, 0)).await, "draw").tokens, 100);
}
