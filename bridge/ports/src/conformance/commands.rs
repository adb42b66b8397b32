//! What every [`Commands`] store promises. The store keeps what has ended for [`RETENTION`], and answers to nobody for [`ORPHANS`].

use super::{done, incompressible, suite};
use crate::{Commands, DUE_SHARDS, Due, MAX_KEY_BYTES, OrphanAnswer};
use causeway_core::commands::gateway::{Created, Written};
use causeway_core::commands::{Command, CommandResult, Event, Rules, Step, Verdict};
use causeway_core::identity::Id128;
use causeway_core::units::UnixMillis;
use core::time::Duration;
use std::sync::Arc;
use std::time::SystemTime;

suite! { $
    /// Expands to one test per case. `$make` is an async function that answers `(Arc<dyn Commands>, what must live as long)`.
    commands_conformance, commands, Arc<dyn Commands>;
    what_is_recorded_comes_back_whole,
    an_id_is_taken_once,
    a_callers_name_is_taken_once,
    of_many_with_one_name_one_is_recorded,
    a_write_replaces_the_version_before_it_alone,
    of_many_who_answer_one_is_written,
    every_payload_is_a_result,
    a_large_result_comes_back,
    a_result_stands_with_its_row_or_not_at_all,
    what_is_open_is_due_at_the_end_of_its_time,
    what_is_due_is_read_in_pages,
    what_has_ended_is_due_when_it_is_to_be_forgotten,
    a_deleted_command_leaves_nothing,
    another_version_is_not_deleted,
    answers_to_nobody_are_kept_and_fall_due,
    what_is_too_old_is_not_given_out,
    creating_again_creates_nothing_and_loses_nothing,
}

type Store = Arc<dyn Commands>;

/// For how long after its time a command is kept.
pub const RETENTION: Duration = Duration::from_secs(86_400);
/// For how long an answer to nobody is.
pub const ORPHANS: Duration = Duration::from_secs(600);

const RULES: Rules = Rules { late_window: Duration::from_secs(3_600), no_subscriber_fails: false };

fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    UnixMillis(u64::try_from(since.as_millis()).unwrap())
}

fn command(id: u128) -> Command {
    Command::new(Id128(id), "pump 1", "instance", now(), Duration::from_secs(10))
}

async fn recorded(store: &Store, command: &Command) {
    assert!(matches!(done(store.create(command, None, &[1; 32]).await, "create"), Created::New(_)));
}

fn next(command: &Command, event: &Event<'_>) -> Command {
    let Step::Write(next) = command.on(event, now(), &RULES) else { panic!("{event:?} changes nothing") };
    *next
}

fn answered(command: &Command, digest: u8) -> Command {
    next(command, &Event::Answered { by: "pump 1", verdict: Verdict::Succeeded, answer: [digest; 32] })
}

async fn stands(store: &Store, command: &Command, result: Option<&CommandResult>) -> bool {
    match done(store.write(command, result).await, "write") {
        Written::Stands(row) => {
            assert_eq!(*row, *command);
            true
        }
        Written::Refused(_) => false,
    }
}

async fn what_is_recorded_comes_back_whole(store: Store) {
    store.probe().await.unwrap();
    let new = command(7);
    assert_eq!(store.read(new.id).await.unwrap(), None);
    recorded(&store, &new).await;
    assert_eq!(store.read(new.id).await.unwrap(), Some(new.clone()));
    let mut row = new;
    for event in [Event::Published { no_subscriber: true }, Event::Progress { by: "pump 1" }, Event::Published { no_subscriber: false }] {
        row = next(&row, &event);
        assert!(stands(&store, &row, None).await);
        assert_eq!(store.read(row.id).await.unwrap(), Some(row.clone()));
    }
    assert_eq!(store.result(row.id).await.unwrap(), None);
}

async fn an_id_is_taken_once(store: Store) {
    let first = command(1);
    recorded(&store, &first).await;
    let answer = done(store.create(&Command { target: "other".to_owned(), ..command(1) }, None, &[2; 32]).await, "create");
    let Created::Before { command, digest } = answer else { panic!("{answer:?}") };
    assert_eq!((*command, digest), (first, [1; 32]));
}

async fn a_callers_name_is_taken_once(store: Store) {
    for name in ["key", "Grüße # / \u{1f600}", &"k".repeat(MAX_KEY_BYTES)] {
        let id = 100 + name.len() as u128;
        let first = command(id);
        assert!(matches!(done(store.create(&first, Some(name), &[1; 32]).await, "create"), Created::New(_)));
        let answer = done(store.create(&command(id + 1_000), Some(name), &[2; 32]).await, "create");
        let Created::Before { command: before, digest } = answer else { panic!("{answer:?}") };
        assert_eq!((before.id, digest), (first.id, [1; 32]));
        assert_eq!(store.read(Id128(id + 1_000)).await.unwrap(), None, "nothing is recorded of a repeat");
    }
}

async fn of_many_with_one_name_one_is_recorded(store: Store) {
    let tasks: Vec<_> = (0..8)
        .map(|nth| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                loop {
                    // Two at once may stand in each other's way.
                    if let Some(answer) = store.create(&command(nth), Some("one"), &[1; 32]).await.done() {
                        return match answer {
                            Created::New(command) => (true, command.id),
                            Created::Before { command, .. } => (false, command.id),
                        };
                    }
                }
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|(new, _)| *new).count(), 1);
    assert!(answers.iter().all(|(_, id)| *id == answers[0].1), "{answers:?}");
}

async fn a_write_replaces_the_version_before_it_alone(store: Store) {
    let first = command(3);
    assert!(!stands(&store, &next(&first, &Event::Cancelled), None).await, "there is nothing to replace");
    assert_eq!(store.read(first.id).await.unwrap(), None);
    recorded(&store, &first).await;
    let published = next(&first, &Event::Published { no_subscriber: false });
    assert!(stands(&store, &published, None).await);
    let refused = done(store.write(&next(&first, &Event::Cancelled), None).await, "write");
    let Written::Refused(Some(row)) = refused else { panic!("{refused:?}") };
    assert_eq!(*row, published);
}

async fn of_many_who_answer_one_is_written(store: Store) {
    let first = command(4);
    recorded(&store, &first).await;
    let tasks: Vec<_> = (1..9_u8)
        .map(|nth| {
            let (store, row) = (Arc::clone(&store), answered(&first, nth));
            tokio::spawn(async move {
                let result = CommandResult { payload: vec![nth].into(), ..CommandResult::default() };
                stands(&store, &row, Some(&result)).await.then_some(nth)
            })
        })
        .collect();
    let mut won = Vec::new();
    for task in tasks {
        won.extend(task.await.unwrap());
    }
    assert_eq!(won.len(), 1);
    let (row, result) = (store.read(first.id).await.unwrap().unwrap(), store.result(first.id).await.unwrap().unwrap());
    assert_eq!((row.answer, &result.payload[..]), (Some([won[0]; 32]), &won[..]));
}

/// RR9.
async fn every_payload_is_a_result(store: Store) {
    for (nth, payload) in ["0", "false", "\"\"", "", "null", "[]", "\u{7}"].into_iter().enumerate() {
        let first = command(10 + nth as u128);
        recorded(&store, &first).await;
        let result = CommandResult {
            payload: payload.into(),
            content_type: (nth % 2 == 0).then(|| "application/json".to_owned()),
            reason: (nth % 2 == 1).then(|| "because".to_owned()),
        };
        assert!(stands(&store, &answered(&first, 1), Some(&result)).await);
        assert_eq!(store.result(first.id).await.unwrap(), Some(result), "{payload:?}");
    }
}

/// RR10.
async fn a_large_result_comes_back(store: Store) {
    for (nth, length) in [262_144, 262_145, 1_048_576].into_iter().enumerate() {
        let first = command(20 + nth as u128);
        recorded(&store, &first).await;
        let result = CommandResult { payload: incompressible(length, 7).into(), ..CommandResult::default() };
        assert!(stands(&store, &answered(&first, 1), Some(&result)).await);
        assert!(store.result(first.id).await.unwrap() == Some(result), "{length} bytes");
    }
}

async fn a_result_stands_with_its_row_or_not_at_all(store: Store) {
    let first = command(30);
    recorded(&store, &first).await;
    let large = |seed| CommandResult { payload: incompressible(400_000, seed).into(), ..CommandResult::default() };
    assert!(stands(&store, &answered(&first, 1), Some(&large(1))).await);
    assert!(!stands(&store, &answered(&first, 2), Some(&large(2))).await);
    assert!(store.result(first.id).await.unwrap() == Some(large(1)), "the answer that came second left no trace");
}

async fn due(store: &Store, until: UnixMillis) -> Vec<Due> {
    let mut all = Vec::new();
    for shard in 0..DUE_SHARDS {
        all.extend(store.due(shard, until, None, 100).await.unwrap().rows);
    }
    all.sort_unstable();
    all
}

async fn what_is_open_is_due_at_the_end_of_its_time(store: Store) {
    let commands: Vec<Command> = (0..40).map(command).collect();
    for command in &commands {
        recorded(&store, command).await;
    }
    let (first, last) = (commands[0].expires_at, commands[39].expires_at);
    assert_eq!(due(&store, UnixMillis(first.0 - 1)).await, []);
    assert_eq!(due(&store, last).await.len(), 40);
}

async fn what_is_due_is_read_in_pages(store: Store) {
    let mut expected: Vec<Due> = (0..40_u128).map(|id| Due::Command(Id128(id * u128::from(DUE_SHARDS) + 3))).collect();
    for due in &expected {
        let Due::Command(id) = due else { continue };
        recorded(&store, &command(id.0)).await;
    }
    let orphan = OrphanAnswer { id: Id128(3), by: "pump 1".to_owned(), came_at: now() };
    done(store.keep_orphan(&orphan).await, "keep_orphan");
    expected.push(Due::Orphan(orphan.id));
    let (until, mut found, mut after) = (orphan.came_at.plus(ORPHANS), Vec::new(), None);
    loop {
        let page = store.due(3, until, after.as_deref(), 7).await.unwrap();
        assert!(page.rows.len() <= 7);
        // What is gone or due at another time meanwhile does not keep the next page from following.
        if let Some(Due::Command(id)) = page.rows.last() {
            let row = store.read(*id).await.unwrap().unwrap();
            assert!(done(store.delete(&row).await, "delete"));
        }
        found.extend(page.rows);
        after = page.next;
        if after.is_none() {
            break;
        }
        assert!(found.len() <= expected.len());
    }
    assert_eq!(found.last(), Some(&Due::Orphan(orphan.id)), "it is due last");
    found.sort_unstable();
    assert_eq!(found, expected);
}

async fn what_has_ended_is_due_when_it_is_to_be_forgotten(store: Store) {
    let first = command(1);
    recorded(&store, &first).await;
    let row = answered(&first, 1);
    assert!(stands(&store, &row, Some(&CommandResult::default())).await);
    assert_eq!(due(&store, UnixMillis(row.forget_at(RETENTION).0 - 1)).await, []);
    assert_eq!(due(&store, row.forget_at(RETENTION)).await, [Due::Command(row.id)]);
}

async fn a_deleted_command_leaves_nothing(store: Store) {
    let first = command(1);
    assert!(matches!(done(store.create(&first, Some("name"), &[1; 32]).await, "create"), Created::New(_)));
    let row = answered(&first, 1);
    let result = CommandResult { payload: incompressible(700_000, 3).into(), ..CommandResult::default() };
    assert!(stands(&store, &row, Some(&result)).await);
    assert!(done(store.delete(&row).await, "delete"));
    assert_eq!((store.read(row.id).await.unwrap(), store.result(row.id).await.unwrap()), (None, None));
    assert_eq!(store.standing(row.id).await.unwrap(), None);
    assert_eq!(due(&store, row.forget_at(RETENTION)).await, []);
    assert!(!done(store.delete(&row).await, "delete"));
    assert!(matches!(done(store.create(&command(2), Some("name"), &[1; 32]).await, "create"), Created::New(_)), "the name is free again");
}

async fn another_version_is_not_deleted(store: Store) {
    let first = command(1);
    recorded(&store, &first).await;
    let row = answered(&first, 1);
    assert!(stands(&store, &row, Some(&CommandResult::default())).await);
    assert!(!done(store.delete(&first).await, "delete"));
    assert_eq!(store.read(row.id).await.unwrap(), Some(row));
}

/// RR3.
async fn answers_to_nobody_are_kept_and_fall_due(store: Store) {
    let orphan = OrphanAnswer { id: Id128(5), by: "pump 1".to_owned(), came_at: now() };
    for _ in 0..2 {
        done(store.keep_orphan(&orphan).await, "keep_orphan");
        assert_eq!(store.orphan(orphan.id).await.unwrap(), Some(orphan.clone()));
    }
    assert_eq!(due(&store, UnixMillis(orphan.came_at.plus(ORPHANS).0 - 1)).await, []);
    assert_eq!(due(&store, orphan.came_at.plus(ORPHANS)).await, [Due::Orphan(orphan.id)]);
    for _ in 0..2 {
        done(store.delete_orphan(orphan.id).await, "delete_orphan");
    }
    assert_eq!(store.orphan(orphan.id).await.unwrap(), None);
    assert_eq!(due(&store, orphan.came_at.plus(ORPHANS)).await, []);
}

/// Stores that delete by time do so late.
async fn what_is_too_old_is_not_given_out(store: Store) {
    let long_ago = UnixMillis(now().0 - 2 * u64::try_from(RETENTION.as_millis()).unwrap());
    let old = Command::new(Id128(1), "pump 1", "instance", long_ago, Duration::from_secs(10));
    assert!(matches!(done(store.create(&old, Some("name"), &[1; 32]).await, "create"), Created::New(_)));
    assert_eq!(store.read(old.id).await.unwrap(), None);
    assert_eq!(store.standing(old.id).await.unwrap(), Some(old), "who deletes it sees it");
    assert!(matches!(done(store.create(&command(2), Some("name"), &[2; 32]).await, "create"), Created::New(_)), "its name is free");
    done(store.keep_orphan(&OrphanAnswer { id: Id128(3), by: "pump 1".to_owned(), came_at: long_ago }).await, "keep_orphan");
    assert_eq!(store.orphan(Id128(3)).await.unwrap(), None);
}

async fn creating_again_creates_nothing_and_loses_nothing(store: Store) {
    let first = command(1);
    recorded(&store, &first).await;
    assert_eq!(store.create_tables().await.unwrap(), Vec::<String>::new());
    assert_eq!(store.read(first.id).await.unwrap(), Some(first));
}
