//! What every [`ManagedSubscriptions`] store promises.

use super::{done, suite};
use crate::{Generation, ManagedSubscriptions};
use std::collections::BTreeSet;
use std::sync::Arc;

suite! { $
    /// Expands to one test per case. `$make` is an async function that answers `(Arc<dyn ManagedSubscriptions>, what must live as long)`.
    managed_subscriptions_conformance, managed_subscriptions, Arc<dyn ManagedSubscriptions>;
    what_nobody_told_is_not_the_same_as_none,
    the_first_telling_stands,
    of_many_who_tell_first_exactly_one_is_believed,
    nothing_is_remembered_without_a_first_telling,
    what_is_remembered_is_added,
    remembering_nothing_tells_whether_there_is_a_row,
    what_is_forgotten_is_gone,
    the_last_filter_leaves_a_known_empty_set,
    forgetting_makes_no_row,
    remembering_begins_a_new_generation_each_time,
    forgetting_late_takes_nothing_that_was_remembered_since,
    of_many_who_remember_only_the_last_may_forget,
    many_change_the_set_at_once,
    two_hundred_filters_come_back,
    filters_of_any_text_come_back,
    identities_do_not_touch_each_other,
    creating_again_creates_nothing_and_loses_nothing,
}

type Store = Arc<dyn ManagedSubscriptions>;

const SESSION: &str = "5f2c8a1e";

fn set<F: Into<String>>(filters: impl IntoIterator<Item = F>) -> BTreeSet<String> {
    filters.into_iter().map(Into::into).collect()
}

fn nothing() -> BTreeSet<String> {
    BTreeSet::new()
}

async fn load(store: &Store, identity: &str) -> Option<BTreeSet<String>> {
    store.load(identity).await.unwrap()
}

async fn seed(store: &Store, identity: &str, filters: &BTreeSet<String>) -> bool {
    done(store.seed(identity, filters).await, "seed")
}

async fn generation(store: &Store, identity: &str, filters: &BTreeSet<String>) -> Option<Generation> {
    done(store.remember(identity, filters).await, "remember")
}

async fn remember(store: &Store, identity: &str, filters: &BTreeSet<String>) -> bool {
    generation(store, identity, filters).await.is_some()
}

async fn forget_under(store: &Store, identity: &str, filter: &str, generation: Generation) -> bool {
    done(store.forget(identity, filter, generation).await, "forget")
}

/// Forgets a filter as whoever remembered last may.
async fn forget(store: &Store, identity: &str, filter: &str) {
    let generation = generation(store, identity, &nothing()).await.expect("a row");
    assert!(forget_under(store, identity, filter, generation).await);
}

async fn what_nobody_told_is_not_the_same_as_none(store: Store) {
    store.probe().await.unwrap();
    assert_eq!(load(&store, SESSION).await, None);
    assert!(seed(&store, SESSION, &nothing()).await);
    assert_eq!(load(&store, SESSION).await, Some(nothing()));
}

async fn the_first_telling_stands(store: Store) {
    let first = set(["a/#", "b/+"]);
    assert!(seed(&store, SESSION, &first).await);
    for again in [first.clone(), set(["c"]), nothing()] {
        assert!(!seed(&store, SESSION, &again).await);
        assert_eq!(load(&store, SESSION).await, Some(first.clone()));
    }
    // An empty first telling is one as well.
    assert!(seed(&store, "empty", &nothing()).await);
    assert!(!seed(&store, "empty", &first).await);
    assert_eq!(load(&store, "empty").await, Some(nothing()));
}

async fn of_many_who_tell_first_exactly_one_is_believed(store: Store) {
    let start = Arc::new(tokio::sync::Barrier::new(16));
    let tasks: Vec<_> = (0..16)
        .map(|nth| {
            let (store, start) = (Arc::clone(&store), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                let told = set([format!("of/{nth}")]);
                seed(&store, SESSION, &told).await.then_some(told)
            })
        })
        .collect();
    let mut believed = Vec::new();
    for task in tasks {
        believed.extend(task.await.unwrap());
    }
    assert_eq!(believed.len(), 1);
    assert_eq!(load(&store, SESSION).await, believed.pop());
}

async fn nothing_is_remembered_without_a_first_telling(store: Store) {
    assert!(!remember(&store, SESSION, &set(["a"])).await);
    assert_eq!(load(&store, SESSION).await, None, "it would hide that the rest is unknown");
    assert!(seed(&store, SESSION, &set(["b"])).await);
    assert_eq!(load(&store, SESSION).await, Some(set(["b"])));
}

async fn what_is_remembered_is_added(store: Store) {
    assert!(seed(&store, SESSION, &nothing()).await);
    assert!(remember(&store, SESSION, &set(["a", "b"])).await);
    assert_eq!(load(&store, SESSION).await, Some(set(["a", "b"])));
    assert!(remember(&store, SESSION, &set(["b", "c"])).await);
    assert!(remember(&store, SESSION, &set(["b", "c"])).await);
    assert_eq!(load(&store, SESSION).await, Some(set(["a", "b", "c"])));
}

async fn remembering_nothing_tells_whether_there_is_a_row(store: Store) {
    assert!(!remember(&store, SESSION, &nothing()).await);
    assert_eq!(load(&store, SESSION).await, None);
    assert!(seed(&store, SESSION, &set(["a"])).await);
    assert!(remember(&store, SESSION, &nothing()).await);
    assert_eq!(load(&store, SESSION).await, Some(set(["a"])));
}

async fn what_is_forgotten_is_gone(store: Store) {
    assert!(seed(&store, SESSION, &set(["a", "a/#", "b"])).await);
    for _ in 0..2 {
        forget(&store, SESSION, "a").await;
        assert_eq!(load(&store, SESSION).await, Some(set(["a/#", "b"])));
    }
    forget(&store, SESSION, "never/there").await;
    assert_eq!(load(&store, SESSION).await, Some(set(["a/#", "b"])));
    assert!(remember(&store, SESSION, &set(["a"])).await);
    assert_eq!(load(&store, SESSION).await, Some(set(["a", "a/#", "b"])));
}

async fn the_last_filter_leaves_a_known_empty_set(store: Store) {
    assert!(seed(&store, SESSION, &set(["a"])).await);
    forget(&store, SESSION, "a").await;
    assert_eq!(load(&store, SESSION).await, Some(nothing()));
    forget(&store, SESSION, "a").await;
    assert!(!seed(&store, SESSION, &set(["b"])).await);
    assert!(remember(&store, SESSION, &set(["b"])).await);
    assert_eq!(load(&store, SESSION).await, Some(set(["b"])));
}

async fn forgetting_makes_no_row(store: Store) {
    assert!(!forget_under(&store, SESSION, "a", Generation(1)).await);
    assert_eq!(load(&store, SESSION).await, None);
    assert!(seed(&store, SESSION, &set(["a"])).await);
}

async fn remembering_begins_a_new_generation_each_time(store: Store) {
    assert!(seed(&store, SESSION, &set(["a"])).await);
    assert!(seed(&store, "other", &set(["a"])).await);
    assert_eq!(generation(&store, SESSION, &set(["b"])).await, Some(Generation(1)));
    assert_eq!(generation(&store, SESSION, &set(["b"])).await, Some(Generation(2)), "though nothing is added");
    assert_eq!(generation(&store, SESSION, &nothing()).await, Some(Generation(3)));
    // Forgetting begins none: it may be repeated, and others follow.
    for filter in ["a", "a", "b"] {
        assert!(forget_under(&store, SESSION, filter, Generation(3)).await);
    }
    assert_eq!(load(&store, SESSION).await, Some(nothing()));
    assert_eq!(generation(&store, SESSION, &set(["c"])).await, Some(Generation(4)));
    assert_eq!(generation(&store, "other", &nothing()).await, Some(Generation(1)));
}

/// A former owner unsubscribed the filter and is paused. Its successor wants it, and finds it remembered.
async fn forgetting_late_takes_nothing_that_was_remembered_since(store: Store) {
    let wanted = set(["wanted/again"]);
    assert!(seed(&store, SESSION, &wanted).await);
    let former = generation(&store, SESSION, &nothing()).await.unwrap();
    let successor = generation(&store, SESSION, &wanted).await.unwrap();
    assert!(former < successor);
    assert!(!forget_under(&store, SESSION, "wanted/again", former).await);
    assert_eq!(load(&store, SESSION).await, Some(wanted.clone()), "forgotten by one who may not, it were never unsubscribed");
    // Nor does one that comes from nowhere, or from before there were generations.
    for generation in [Generation(0), Generation(successor.0 + 1), Generation(u64::MAX)] {
        assert!(!forget_under(&store, SESSION, "wanted/again", generation).await);
    }
    assert_eq!(load(&store, SESSION).await, Some(wanted));
    assert!(forget_under(&store, SESSION, "wanted/again", successor).await);
    assert_eq!(load(&store, SESSION).await, Some(nothing()));
}

async fn of_many_who_remember_only_the_last_may_forget(store: Store) {
    const MANY: u64 = 16;
    assert!(seed(&store, SESSION, &nothing()).await);
    let start = Arc::new(tokio::sync::Barrier::new(MANY as usize));
    let tasks: Vec<_> = (0..MANY)
        .map(|_| {
            let (store, start) = (Arc::clone(&store), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                generation(&store, SESSION, &set(["a"])).await.unwrap()
            })
        })
        .collect();
    let mut generations = BTreeSet::new();
    for task in tasks {
        generations.insert(task.await.unwrap());
    }
    assert_eq!(generations, (1..=MANY).map(Generation).collect(), "each has its own");
    for generation in generations {
        assert_eq!(forget_under(&store, SESSION, "a", generation).await, generation == Generation(MANY));
    }
    assert_eq!(load(&store, SESSION).await, Some(nothing()));
}

async fn many_change_the_set_at_once(store: Store) {
    let old: BTreeSet<_> = set((0..16).map(|nth| format!("old/{nth}")));
    let new: BTreeSet<_> = set((0..16).map(|nth| format!("new/{nth}")));
    let kept = set(["kept"]);
    assert!(seed(&store, SESSION, &old.union(&kept).cloned().collect()).await);
    let start = Arc::new(tokio::sync::Barrier::new(new.len()));
    let mut tasks = Vec::new();
    for filter in new.clone() {
        let (store, start) = (Arc::clone(&store), Arc::clone(&start));
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            assert!(remember(&store, SESSION, &set([filter])).await);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let generation = generation(&store, SESSION, &nothing()).await.unwrap();
    let start = Arc::new(tokio::sync::Barrier::new(old.len()));
    let mut tasks = Vec::new();
    for filter in old {
        let (store, start) = (Arc::clone(&store), Arc::clone(&start));
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            assert!(forget_under(&store, SESSION, &filter, generation).await);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(load(&store, SESSION).await, Some(new.union(&kept).cloned().collect()), "no change undoes another");
}

async fn two_hundred_filters_come_back(store: Store) {
    let many = set((0..200).map(|nth| format!("site/{nth:03}/{}/+/#", "level/".repeat(20))));
    assert!(seed(&store, SESSION, &many).await);
    assert_eq!(load(&store, SESSION).await, Some(many.clone()));
    assert!(seed(&store, "later", &nothing()).await);
    assert!(remember(&store, "later", &many).await);
    assert_eq!(load(&store, "later").await, Some(many));
}

async fn filters_of_any_text_come_back(store: Store) {
    let any = set([
        "#",
        "+",
        "/",
        " ",
        "a b/ c ",
        "Maß/Größe/温度/🌡",
        "$share/group/a/#",
        "quote'\"\\%_;--/`",
        "A/b",
        "a/B",
        "e\u{301}",
        "\u{e9}",
    ]);
    assert!(seed(&store, SESSION, &any).await);
    assert_eq!(load(&store, SESSION).await, Some(any.clone()));
    let mut left = any.clone();
    for filter in any {
        forget(&store, SESSION, &filter).await;
        left.remove(&filter);
        assert_eq!(load(&store, SESSION).await, Some(left.clone()), "{filter}");
    }
}

async fn identities_do_not_touch_each_other(store: Store) {
    let identities = ["ab", "abc", "a", "AB", "ab#", "ab\u{e9}"];
    for (nth, identity) in identities.into_iter().enumerate() {
        assert_eq!(load(&store, identity).await, None, "{identity}");
        assert!(seed(&store, identity, &set([format!("only/{nth}"), "shared".to_owned()])).await);
    }
    forget(&store, "ab", "shared").await;
    assert!(remember(&store, "ab", &set(["more"])).await);
    assert_eq!(load(&store, "ab").await, Some(set(["only/0", "more"])));
    for (nth, identity) in identities.into_iter().enumerate().skip(1) {
        assert_eq!(load(&store, identity).await, Some(set([format!("only/{nth}"), "shared".to_owned()])), "{identity}");
    }
}

async fn creating_again_creates_nothing_and_loses_nothing(store: Store) {
    assert!(seed(&store, SESSION, &set(["a"])).await);
    assert!(store.create().await.unwrap().is_empty());
    store.probe().await.unwrap();
    assert_eq!(load(&store, SESSION).await, Some(set(["a"])));
}
