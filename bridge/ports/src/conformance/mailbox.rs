//! What every [`Mailbox`](crate::Mailbox) promises, together with the log that its mail is moved into.

use super::{done, incompressible, suite};
use crate::{LogStore, Mail, MailboxName, Moved, Put};
use bytes::Bytes;
use causeway_core::identity::{Epoch, Id128, LogName, Slot};
use causeway_core::mailbox::{MAX_MAIL_ID_BYTES, MAX_MOVE_BYTES, MAX_MOVE_ROWS};
use causeway_core::message::{Entry, Message, Properties, Redrive};
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::rows::{CODEC_PART, CODEC_POSTCARD_ZSTD, Row, RowMeta, Segment, pack, split, unpack};
use causeway_core::units::UnixMillis;
use std::collections::BTreeMap;
use std::sync::Arc;

suite! { $
    /// Expands to one test per case. `$make` is an async function that answers `(Arc<dyn LogStore>, what must live as long)`.
    mailbox_conformance, mailbox, Arc<dyn LogStore>;
    an_empty_mailbox_has_no_mail,
    mail_comes_back_whole,
    the_same_id_again_changes_nothing,
    of_many_who_post_one_id_exactly_one_does,
    mail_comes_in_the_order_of_its_ids_and_from_the_start,
    reading_keeps_its_limits,
    what_cannot_be_an_id_is_refused,
    mail_of_any_size_is_kept_whole,
    mail_in_parts_is_moved_and_leaves_nothing_behind,
    a_move_puts_the_segment_and_takes_the_mail,
    a_move_takes_as_much_as_a_transaction_holds,
    a_move_that_asks_too_much_is_refused,
    a_move_of_mail_that_is_gone_changes_nothing,
    a_move_to_a_taken_slot_changes_nothing,
    a_repeated_move_is_stored_and_changes_nothing,
    a_late_repeat_of_a_move_stores_nothing_twice,
    of_two_who_move_one_piece_exactly_one_does,
    of_two_who_move_to_one_slot_exactly_one_does,
    many_movers_put_each_piece_into_one_segment,
    mailboxes_do_not_see_each_other,
    mail_is_no_part_of_a_log,
}

type Store = Arc<dyn LogStore>;

fn log(partition: &str) -> LogName {
    LogName::new("bridge", partition, 0).unwrap()
}

fn mailbox() -> MailboxName {
    MailboxName::new("bridge", "s").unwrap()
}

fn entry(id: u128, payload: impl Into<Bytes>) -> Arc<Entry> {
    Arc::new(Entry {
        id: Id128(id),
        route: "telemetry".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "receiver-1".into(),
        received_at: UnixMillis(1_700_000_000_000),
        expires_at: None,
        message: Message { topic: "a/b".to_owned(), payload: payload.into(), qos: 1, ..Message::default() },
        redrive: None,
    })
}

fn mail(id: &str, entry: Arc<Entry>) -> Mail {
    Mail { id: id.to_owned(), posted_at: UnixMillis(1_700_000_000_123), entry }
}

fn small(id: u128) -> Mail {
    mail(&format!("{id:04}"), entry(id, format!("payload {id}")))
}

/// A segment that holds the entries of `mail`.
fn segment(id: u128, mail: &[Mail]) -> Row {
    let entries: Vec<Arc<Entry>> = mail.iter().map(|mail| Arc::clone(&mail.entry)).collect();
    Row::Segment(Segment {
        epoch: Epoch(3),
        segment_id: Id128(id),
        count: entries.len() as u32,
        codec: CODEC_POSTCARD_ZSTD,
        body: pack(&entries).unwrap(),
        created_at: UnixMillis(1_700_000_000_000),
        earliest_expiry: None,
        drained: Slot(0),
    })
}

fn ids(mail: &[Mail]) -> Vec<String> {
    mail.iter().map(|mail| mail.id.clone()).collect()
}

async fn post(store: &Store, mail: &Mail) -> bool {
    done(store.post(&mailbox(), mail).await, "post")
}

async fn post_all(store: &Store, mail: &[Mail]) {
    for mail in mail {
        assert!(post(store, mail).await);
    }
}

async fn read(store: &Store, limit: usize) -> Vec<Mail> {
    store.read_mail(&mailbox(), limit).await.expect("read_mail")
}

/// Moves; again as long as the store says that others are in the way, which it may, a while.
async fn move_to(store: &Store, log: &LogName, slot: u64, segment: &Row, mail: &[Mail]) -> Moved {
    for _ in 0..200 {
        match store.move_mail(log, Slot(slot), segment, &mailbox(), &ids(mail)).await {
            Outcome::NotDone(fault) if fault.is_transient() => tokio::task::yield_now().await,
            other => return done(other, "move_mail"),
        }
    }
    panic!("the move never gets through");
}

async fn rows(store: &Store, log: &LogName) -> Vec<(Slot, Row)> {
    let (mut found, mut after) = (Vec::new(), Some(Slot::HEAD));
    while let Some(from) = after {
        let page = store.read_page(log, from, Slot(u64::MAX)).await.expect("read_page");
        found.extend(page.rows);
        after = page.next_after;
    }
    found
}

fn meta(row: &Row, slot: u64) -> RowMeta {
    row.meta(Slot(slot))
}

async fn an_empty_mailbox_has_no_mail(store: Store) {
    assert!(read(&store, 99).await.is_empty());
    assert!(read(&store, 0).await.is_empty());
}

async fn mail_comes_back_whole(store: Store) {
    let full = Entry {
        id: Id128(u128::MAX),
        route: "ünï ¬ 日本".into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: "".into(),
        received_at: UnixMillis(u64::MAX),
        expires_at: Some(UnixMillis(0)),
        message: Message {
            topic: "nul\u{0}inside".to_owned(),
            payload: (0..=255).collect::<Vec<u8>>().into(),
            qos: 0,
            retain: true,
            properties: Properties {
                content_type: Some(String::new()),
                response_topic: Some("answers".to_owned()),
                correlation_data: Some(Bytes::from_static(&[0, 255])),
                payload_format: Some(1),
                expiry_seconds: Some(u32::MAX),
                user: vec![("a".to_owned(), "1".to_owned()), ("a".to_owned(), "\u{FFFF}".to_owned())],
                subscription_ids: vec![3, 1],
            },
        },
        redrive: Some(Redrive { attempt: u32::MAX, causation: "op-1".to_owned() }),
    };
    let wanted = [
        Mail { posted_at: UnixMillis(u64::MAX), ..mail("1", Arc::new(full)) },
        Mail { posted_at: UnixMillis(0), ..mail("2", entry(0, Bytes::new())) },
        mail("a # '\" ünï", entry(3, "x")),
        mail(&"z".repeat(MAX_MAIL_ID_BYTES), entry(4, "x")),
    ];
    post_all(&store, &wanted).await;
    assert_eq!(read(&store, 99).await, wanted);
}

async fn the_same_id_again_changes_nothing(store: Store) {
    let first = mail("one", entry(1, "first"));
    assert!(post(&store, &first).await);
    assert!(!post(&store, &first).await);
    assert!(!post(&store, &mail("one", entry(2, "second"))).await);
    assert_eq!(read(&store, 99).await, [first]);
}

async fn of_many_who_post_one_id_exactly_one_does(store: Store) {
    let mut tasks = tokio::task::JoinSet::new();
    for id in 1..=16 {
        let store = Arc::clone(&store);
        tasks.spawn(async move { (id, post(&store, &mail("one", entry(id, "x"))).await) });
    }
    let ends = tasks.join_all().await;
    let posted: Vec<u128> = ends.into_iter().filter(|(_, posted)| *posted).map(|(id, _)| id).collect();
    assert_eq!(posted.len(), 1);
    assert_eq!(read(&store, 99).await, [mail("one", entry(posted[0], "x"))]);
}

async fn mail_comes_in_the_order_of_its_ids_and_from_the_start(store: Store) {
    for id in ["b", "10", "9", "B", "a", "ä"] {
        assert!(post(&store, &mail(id, entry(1, "x"))).await);
    }
    assert_eq!(ids(&read(&store, 99).await), ["10", "9", "B", "a", "b", "ä"]);
    assert_eq!(ids(&read(&store, 2).await), ["10", "9"]);
    assert!(post(&store, &mail("0", entry(1, "x"))).await);
    assert_eq!(ids(&read(&store, 2).await), ["0", "10"], "what came in between is seen");
}

async fn reading_keeps_its_limits(store: Store) {
    let many: Vec<Mail> = (0..MAX_MOVE_ROWS as u128 + 21).map(small).collect();
    post_all(&store, &many).await;
    assert_eq!(read(&store, 7).await, many[..7]);
    assert_eq!(read(&store, usize::MAX).await, many[..MAX_MOVE_ROWS], "no more than a move takes");
    // Twenty large pieces in front of them: together more than a move takes.
    let large: Vec<Mail> = (0..20).map(|n| mail(&format!(" {n:02}"), entry(n, incompressible(256 * 1024, n as u64)))).collect();
    post_all(&store, &large).await;
    let found = read(&store, 99).await;
    let bytes: usize = found.iter().map(|mail| mail.entry.message.weight()).sum();
    assert!(found.len() >= 6 && bytes <= MAX_MOVE_BYTES, "{} pieces, {bytes} bytes", found.len());
    assert!(found == large[..found.len()], "large mail comes back whole and in order");
}

async fn what_cannot_be_an_id_is_refused(store: Store) {
    for id in [String::new(), "x".repeat(MAX_MAIL_ID_BYTES + 1)] {
        let Outcome::NotDone(fault) = store.post(&mailbox(), &mail(&id, entry(1, "x"))).await else { panic!("an id was taken") };
        assert_eq!(fault.code, FaultCode::InvalidConfig);
    }
    assert!(read(&store, 99).await.is_empty());
}

async fn mail_of_any_size_is_kept_whole(store: Store) {
    // As large as an SQS message may be: as telemetry is, and what nothing shortens.
    let text = "{\"device\":\"press-7\",\"temperature\":61.5}\n".repeat(1024 * 1024 / 40);
    let kept = [
        mail("1", entry(1, text)),
        mail("2", entry(2, incompressible(350 * 1024, 1))),
        mail("3", entry(3, incompressible(1024 * 1024, 2))),
    ];
    post_all(&store, &kept).await;
    assert!(read(&store, 99).await == kept);
    let again = mail("3", entry(4, incompressible(900 * 1024, 3)));
    assert!(!done(store.post(&mailbox(), &again).await, "post"), "it stands already");
    assert!(read(&store, 99).await == kept);
    // Beyond what a transaction holds it is refused, or kept whole as well.
    let huge = mail("4", entry(5, incompressible(6 * 1024 * 1024, 4)));
    match store.post(&mailbox(), &huge).await {
        Outcome::Done(posted) => assert!(posted),
        Outcome::NotDone(fault) => assert_eq!(fault.code, FaultCode::PayloadTooLarge),
        Outcome::Unknown(fault) => panic!("{fault}"),
    }
    assert!(read(&store, 3).await == kept);
}

/// The rows of a segment that one row does not hold: its parts, the last of which is moved into the log.
fn parts(id: u128, mail: &Mail) -> Vec<Row> {
    let packed = pack(core::slice::from_ref(&mail.entry)).unwrap();
    let bodies = split(&packed, Id128(id), 300 * 1024).unwrap();
    let row = |(nth, body): (u128, Bytes)| {
        let Row::Segment(whole) = segment(id + nth, core::slice::from_ref(mail)) else { unreachable!() };
        Row::Segment(Segment { codec: CODEC_PART, count: u32::from(nth == 0), body, ..whole })
    };
    (0..).zip(bodies).map(row).collect()
}

async fn mail_in_parts_is_moved_and_leaves_nothing_behind(store: Store) {
    let (small, large) = (small(1), mail("zz", entry(2, incompressible(1024 * 1024, 2))));
    post_all(&store, &[small.clone(), large.clone()]).await;
    let rows = parts(10, &large);
    let last = rows.len() as u64;
    assert!(last > 3);
    for (slot, row) in (1..last).zip(&rows) {
        assert_eq!(done(store.put(&log("s"), Slot(slot), row).await, "put"), Put::Stored);
    }
    assert_eq!(move_to(&store, &log("s"), last, rows.last().unwrap(), core::slice::from_ref(&large)).await, Moved::Stored);
    assert_eq!(read(&store, 99).await, core::slice::from_ref(&small));
    assert_eq!(move_to(&store, &log("s"), last, rows.last().unwrap(), core::slice::from_ref(&large)).await, Moved::Stored, "a repeat");
    assert_eq!(store.read_tail(&log("s")).await.unwrap().map(|tail| tail.slot), Some(Slot(last)));
    // Of the same name again: nothing of the first one is in it.
    for length in [700 * 1024, 1_300 * 1024] {
        let again = mail("zz", entry(3, incompressible(length, length as u64)));
        post_all(&store, core::slice::from_ref(&again)).await;
        assert!(read(&store, 99).await == [small.clone(), again.clone()]);
        let slot = store.read_tail(&log("s")).await.unwrap().unwrap().slot.0;
        let row = parts(100 + length as u128, &again).pop().unwrap();
        assert_eq!(move_to(&store, &log("s"), slot + 1, &row, core::slice::from_ref(&again)).await, Moved::Stored);
        assert_eq!(move_to(&store, &log("s"), slot + 2, &segment(5, &[]), core::slice::from_ref(&again)).await, Moved::MailGone);
    }
}

async fn a_move_puts_the_segment_and_takes_the_mail(store: Store) {
    let all: Vec<Mail> = (1..=5).map(small).collect();
    post_all(&store, &all).await;
    let first = segment(1, &all[..3]);
    assert_eq!(move_to(&store, &log("s"), 1, &first, &all[..3]).await, Moved::Stored);
    assert_eq!(read(&store, 99).await, all[3..]);
    let second = segment(2, &all[4..]);
    assert_eq!(move_to(&store, &log("s"), 2, &second, &all[4..]).await, Moved::Stored, "not only the first");
    assert_eq!(read(&store, 99).await, all[3..4]);
    assert_eq!(rows(&store, &log("s")).await, [(Slot(1), first), (Slot(2), second.clone())]);
    assert_eq!(store.read_tail(&log("s")).await.unwrap(), Some(meta(&second, 2)));
    // Moving nothing is a put.
    assert_eq!(move_to(&store, &log("s"), 3, &segment(3, &all[..1]), &[]).await, Moved::Stored);
    assert_eq!(rows(&store, &log("s")).await.len(), 3);
}

async fn a_move_takes_as_much_as_a_transaction_holds(store: Store) {
    let many: Vec<Mail> = (0..MAX_MOVE_ROWS as u128).map(small).collect();
    post_all(&store, &many).await;
    assert_eq!(move_to(&store, &log("s"), 1, &segment(1, &many), &many).await, Moved::Stored);
    assert!(read(&store, 99).await.is_empty());
    // As many bytes of mail as a read gives, and a segment as large as a row takes.
    let large: Vec<Mail> = (0..11).map(|n| mail(&format!("{n:02}"), entry(n, incompressible(270 * 1024, n as u64)))).collect();
    post_all(&store, &large).await;
    let found = read(&store, 99).await;
    assert_eq!(found.len(), 11);
    let row = segment(2, &[mail("x", entry(1, incompressible(380 * 1024, 99)))]);
    assert_eq!(move_to(&store, &log("s"), 2, &row, &found).await, Moved::Stored);
    assert!(read(&store, 99).await.is_empty());
}

async fn a_move_that_asks_too_much_is_refused(store: Store) {
    let many: Vec<Mail> = (0..=MAX_MOVE_ROWS as u128).map(small).collect();
    post_all(&store, &many).await;
    let one = ids(&many[..1]);
    for (slot, mail) in [(1, ids(&many)), (0, one.clone()), (1, [&one[..], &one[..]].concat())] {
        let outcome = store.move_mail(&log("s"), Slot(slot), &segment(1, &many[..1]), &mailbox(), &mail).await;
        assert!(matches!(outcome, Outcome::NotDone(fault) if fault.code == FaultCode::InvalidConfig), "slot {slot}, {} pieces", mail.len());
    }
    assert!(rows(&store, &log("s")).await.is_empty());
    assert_eq!(read(&store, 99).await.len(), 99);
}

async fn a_move_of_mail_that_is_gone_changes_nothing(store: Store) {
    let all: Vec<Mail> = (1..=3).map(small).collect();
    post_all(&store, &all[..2]).await;
    assert_eq!(move_to(&store, &log("s"), 1, &segment(1, &all), &all).await, Moved::MailGone);
    assert_eq!(move_to(&store, &log("s"), 1, &segment(2, &all[2..]), &all[2..]).await, Moved::MailGone);
    assert_eq!(read(&store, 99).await, all[..2]);
    assert!(rows(&store, &log("s")).await.is_empty());
    assert_eq!(move_to(&store, &log("s"), 1, &segment(3, &all[..2]), &all[..2]).await, Moved::Stored, "the slot is free");
}

async fn a_move_to_a_taken_slot_changes_nothing(store: Store) {
    let all: Vec<Mail> = (1..=2).map(small).collect();
    post_all(&store, &all).await;
    let standing = segment(1, &all[..1]);
    assert_eq!(done(store.put(&log("s"), Slot(7), &standing).await, "put"), Put::Stored);
    let occupied = Moved::Occupied(meta(&standing, 7));
    assert_eq!(move_to(&store, &log("s"), 7, &segment(2, &all), &all).await, occupied);
    assert_eq!(read(&store, 99).await, all);
    // Whose slot it is comes first, whatever became of the mail.
    assert_eq!(move_to(&store, &log("s"), 7, &segment(2, &[small(9)]), &[small(9)]).await, occupied);
    assert_eq!(rows(&store, &log("s")).await, [(Slot(7), standing)]);
    // And the other way round: a put meets what a move stored.
    let moved = segment(3, &all);
    assert_eq!(move_to(&store, &log("s"), 8, &moved, &all).await, Moved::Stored);
    let met = done(store.put(&log("s"), Slot(8), &segment(4, &all)).await, "put");
    assert_eq!(met, Put::Occupied(meta(&moved, 8)));
    assert_eq!(done(store.put(&log("s"), Slot(8), &moved).await, "put"), Put::Stored, "a put recognises the row that a move stored");
}

async fn a_repeated_move_is_stored_and_changes_nothing(store: Store) {
    let all: Vec<Mail> = (1..=2).map(small).collect();
    post_all(&store, &all).await;
    let row = segment(1, &all);
    for _ in 0..3 {
        assert_eq!(move_to(&store, &log("s"), 1, &row, &all).await, Moved::Stored);
    }
    // Mail of the same name that came since is other mail.
    post_all(&store, &all[..1]).await;
    assert_eq!(move_to(&store, &log("s"), 1, &row, &all).await, Moved::Stored);
    assert_eq!(read(&store, 99).await, all[..1], "it stays");
    // A put of the row may have come first: it is the owner's own all the same.
    let put = segment(2, &all[..1]);
    assert_eq!(done(store.put(&log("s"), Slot(2), &put).await, "put"), Put::Stored);
    assert_eq!(move_to(&store, &log("s"), 2, &put, &all[..1]).await, Moved::Stored);
    assert_eq!(rows(&store, &log("s")).await, [(Slot(1), row), (Slot(2), put)]);
}

async fn a_late_repeat_of_a_move_stores_nothing_twice(store: Store) {
    let all: Vec<Mail> = (1..=3).map(small).collect();
    post_all(&store, &all).await;
    let (row, next) = (segment(1, &all[..2]), segment(2, &all[2..]));
    assert_eq!(move_to(&store, &log("s"), 1, &row, &all[..2]).await, Moved::Stored);
    assert_eq!(move_to(&store, &log("s"), 2, &next, &all[2..]).await, Moved::Stored);
    assert_eq!(move_to(&store, &log("s"), 1, &row, &all[..2]).await, Moved::Stored);
    // Settled and deleted meanwhile: the repeat finds neither its row nor its mail, and leaves both alone.
    done(store.delete(&log("s"), &[Slot(1)]).await, "delete");
    let late = move_to(&store, &log("s"), 1, &row, &all[..2]).await;
    assert!(matches!(late, Moved::Stored | Moved::MailGone), "{late:?}");
    assert_eq!(rows(&store, &log("s")).await, [(Slot(2), next)]);
    assert!(read(&store, 99).await.is_empty());
}

async fn of_two_who_move_one_piece_exactly_one_does(store: Store) {
    for round in 0..20_u64 {
        let one = small(u128::from(round));
        post_all(&store, core::slice::from_ref(&one)).await;
        let mut tasks = tokio::task::JoinSet::new();
        for mover in 0..2_u64 {
            let (store, one) = (Arc::clone(&store), one.clone());
            tasks.spawn(async move {
                let row = segment(u128::from(2 * round + mover), core::slice::from_ref(&one));
                move_to(&store, &log(&format!("of-{mover}")), round + 1, &row, &[one]).await
            });
        }
        let ends = tasks.join_all().await;
        assert!(ends.contains(&Moved::Stored) && ends.contains(&Moved::MailGone), "{ends:?}");
    }
    assert_eq!(rows(&store, &log("of-0")).await.len() + rows(&store, &log("of-1")).await.len(), 20);
    assert!(read(&store, 99).await.is_empty());
}

async fn of_two_who_move_to_one_slot_exactly_one_does(store: Store) {
    for slot in 1..=20_u64 {
        let both = [small(u128::from(2 * slot)), small(u128::from(2 * slot + 1))];
        post_all(&store, &both).await;
        let mut tasks = tokio::task::JoinSet::new();
        for one in both {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                let row = segment(one.entry.id.0, core::slice::from_ref(&one));
                let moved = move_to(&store, &log("s"), slot, &row, &[one]).await;
                (row, moved)
            });
        }
        let ends = tasks.join_all().await;
        let winner = ends.iter().find(|(_, moved)| *moved == Moved::Stored).map(|(row, _)| row).expect("one is stored");
        assert!(ends.iter().any(|(_, moved)| *moved == Moved::Occupied(meta(winner, slot))), "{ends:?}");
    }
    assert_eq!(read(&store, 99).await.len(), 20, "the mail of the losers stands");
    assert_eq!(rows(&store, &log("s")).await.len(), 20);
}

/// What an owner does, by several at once: read from the start, move what was read, read again.
async fn move_all(store: &Store, log: &LogName, first_id: u128) {
    let (mut slot, mut id) = (1, first_id);
    loop {
        let found = read(store, 7).await;
        if found.is_empty() {
            return;
        }
        id += 1;
        match move_to(store, log, slot, &segment(id, &found), &found).await {
            Moved::Stored => slot += 1,
            Moved::MailGone => {}
            Moved::Occupied(meta) => panic!("nobody else writes to {log}: {meta:?}"),
        }
    }
}

async fn many_movers_put_each_piece_into_one_segment(store: Store) {
    const MOVERS: u128 = 4;
    let all: Vec<Mail> = (0..60).map(small).collect();
    post_all(&store, &all).await;
    let mut tasks = tokio::task::JoinSet::new();
    for mover in 0..MOVERS {
        let store = Arc::clone(&store);
        tasks.spawn(async move { move_all(&store, &log(&format!("of-{mover}")), (mover + 1) << 64).await });
    }
    tasks.join_all().await;
    let mut found: BTreeMap<u128, usize> = BTreeMap::new();
    for mover in 0..MOVERS {
        for (_, row) in rows(&store, &log(&format!("of-{mover}"))).await {
            let Row::Segment(segment) = row else { panic!("only segments are moved") };
            for entry in unpack(&segment).unwrap() {
                *found.entry(entry.id.0).or_default() += 1;
            }
        }
    }
    assert_eq!(found, (0..60).map(|id| (id, 1)).collect());
}

async fn mailboxes_do_not_see_each_other(store: Store) {
    let parts = [("b", "s"), ("b", "s1"), ("b", "S"), ("b", "_"), ("b", "%"), ("bb", "s"), ("B", "s"), ("b", "ß"), ("b", "s'\"")];
    let boxes: Vec<MailboxName> = parts.iter().map(|(bridge, session)| MailboxName::new(bridge, session).unwrap()).collect();
    for (mailbox, id) in boxes.iter().zip(1..) {
        assert!(done(store.post(mailbox, &mail("same", entry(id, "x"))).await, "post"));
    }
    let moved = store.move_mail(&log("s"), Slot(1), &segment(1, &[small(1)]), &boxes[0], &["same".to_owned()]).await;
    assert_eq!(done(moved, "move_mail"), Moved::Stored);
    for (mailbox, id) in boxes.iter().zip(1..) {
        let wanted: &[Mail] = if id == 1 { &[] } else { &[mail("same", entry(id, "x"))] };
        assert_eq!(store.read_mail(mailbox, 99).await.unwrap(), wanted, "{mailbox}");
    }
}

async fn mail_is_no_part_of_a_log(store: Store) {
    let name = LogName::new("bridge", "s", 0).unwrap();
    post_all(&store, &[small(1)]).await;
    assert_eq!(store.read_tail(&name).await.unwrap(), None);
    assert_eq!(store.read_head(&name).await.unwrap(), None);
    assert!(store.list_logs().await.unwrap().is_empty());
    assert!(rows(&store, &name).await.is_empty());
}
