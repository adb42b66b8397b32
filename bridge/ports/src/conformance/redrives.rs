//! What every [`Redrives`] promises, together with the letters and the mailbox that it spans.

use super::{done, incompressible, suite};
use crate::{DeadLetterFilter, DeadLetters, LogStore, Mail, MailboxName, Moved, PutBack, Redrives};
use bytes::Bytes;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState, TOMBSTONE_PAYLOAD_BYTES};
use causeway_core::identity::{Epoch, Id128, LogName, Slot};
use causeway_core::message::{Entry, Message, Properties, Redrive};
use causeway_core::outcome::{FaultClass, FaultCode, Outcome};
use causeway_core::rows::{CODEC_POSTCARD_ZSTD, Row, Segment, pack, unpack};
use causeway_core::units::UnixMillis;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The stores that a redrive spans.
#[derive(Clone)]
pub struct Stores {
    /// Where the letters are.
    pub letters: Arc<dyn DeadLetters>,
    /// What puts them back.
    pub redrives: Arc<dyn Redrives>,
    /// Where their mail goes.
    pub outbox: Arc<dyn LogStore>,
}

suite! { $
    /// Expands to one test per case. `$make` is an async function that answers `(Stores, what must live as long)`.
    redrives_conformance, redrives, Stores;
    a_letter_is_put_back_once,
    a_repeated_redrive_is_done_and_posts_nothing,
    another_redrive_meets_a_conflict,
    a_letter_that_is_not_as_it_was_seen_is_a_conflict,
    mail_that_stands_already_is_left_alone,
    a_large_letter_is_put_back_byte_for_byte,
    a_letter_larger_than_a_row_is_put_back_byte_for_byte,
    a_letter_that_cannot_be_put_back_stays_as_it_is,
    a_small_payload_stays_readable,
    a_letter_that_died_again_is_put_back_again,
    a_replayed_death_raises_nothing,
    a_letter_is_marked_without_mail,
    a_letter_is_set_aside,
    eight_redrivers_put_each_letter_back_once,
    eight_calls_of_one_redrive_are_one,
    redrivers_beside_an_owner_lose_and_double_nothing,
}

fn mailbox() -> MailboxName {
    MailboxName::new("bridge", "s").unwrap()
}

fn letter(id: u128, payload: impl Into<Bytes>) -> DeadLetter {
    DeadLetter {
        id: Id128(id),
        bridge: "bridge".to_owned(),
        route: "telemetry".to_owned(),
        binding: "to-sqs".to_owned(),
        session: "s".to_owned(),
        source: "receiver-1".to_owned(),
        address: "https://sqs.eu-west-1.amazonaws.com/000000000000/telemetry".to_owned(),
        category: FaultClass::Permanent,
        error_code: "NOT_FOUND".to_owned(),
        reason: "not_found".to_owned(),
        last_error: "there is no such queue".to_owned(),
        attempts: 3,
        redrive_count: 0,
        state: DeadLetterState::Dead,
        failed_at: UnixMillis(1_700_000_000_000 + id as u64),
        received_at: UnixMillis(1_700_000_000_000),
        message: Message {
            topic: "a/b".to_owned(),
            payload: payload.into(),
            qos: 1,
            retain: false,
            properties: Properties { user: vec![("k".to_owned(), "v".to_owned())], ..Properties::default() },
        },
        redriven: None,
    }
}

/// The mail by which `letter` is put back.
fn mail_of(letter: &DeadLetter, request: &str) -> Mail {
    let attempt = letter.redrive_count + 1;
    let entry = Entry {
        id: letter.id,
        route: letter.route.as_str().into(),
        binding: "b".into(),
        address: None,
        refusal: None,
        source: letter.source.as_str().into(),
        received_at: letter.received_at,
        expires_at: None,
        message: letter.message.clone(),
        redrive: Some(Redrive { attempt, causation: request.to_owned() }),
    };
    Mail { id: Mail::id_of_redrive(letter.id, attempt), posted_at: UnixMillis(1_800_000_000_000), entry: Arc::new(entry) }
}

impl Stores {
    async fn park(&self, letter: &DeadLetter) {
        done(self.letters.park(letter).await, "park");
    }

    async fn get(&self, letter: &DeadLetter) -> DeadLetter {
        self.letters.get(letter.id).await.expect("get").expect("the letter stands")
    }

    async fn mail(&self) -> Vec<Mail> {
        self.outbox.read_mail(&mailbox(), 99).await.expect("read_mail")
    }

    /// Puts back; again as long as the store says that others are in the way, which it may, a while.
    async fn put_back(&self, letter: &DeadLetter, request: &str) -> PutBack {
        let mail = mail_of(letter, request);
        for _ in 0..500 {
            match self.redrives.put_back(letter, &mailbox(), &mail, request).await {
                Outcome::NotDone(fault) if fault.is_transient() => tokio::task::yield_now().await,
                other => return done(other, "put_back"),
            }
        }
        panic!("the redrive never gets through");
    }

    async fn mark(&self, letter: &DeadLetter, request: &str) -> PutBack {
        done(self.redrives.mark_redriven(letter, request).await, "mark_redriven")
    }

    async fn set_aside(&self, letter: &DeadLetter) -> PutBack {
        done(self.redrives.set_aside(letter).await, "set_aside")
    }

    /// Moves the mail that stands into the log `of`, as its owner does; answers whether there was any.
    async fn move_some(&self, of: &str, slot: &mut u64) -> bool {
        let found = self.outbox.read_mail(&mailbox(), 7).await.expect("read_mail");
        if found.is_empty() {
            return false;
        }
        let entries: Vec<Arc<Entry>> = found.iter().map(|mail| Arc::clone(&mail.entry)).collect();
        let segment = Row::Segment(Segment {
            epoch: Epoch(1),
            segment_id: Id128(u128::from(*slot)),
            count: entries.len() as u32,
            codec: CODEC_POSTCARD_ZSTD,
            body: pack(&entries).unwrap(),
            created_at: UnixMillis(1),
            earliest_expiry: None,
            drained: Slot(0),
        });
        let ids: Vec<String> = found.into_iter().map(|mail| mail.id).collect();
        match self.outbox.move_mail(&log(of), Slot(*slot), &segment, &mailbox(), &ids).await {
            Outcome::Done(Moved::Stored) => *slot += 1,
            Outcome::NotDone(fault) if fault.is_transient() => {}
            other => panic!("{other:?}"),
        }
        true
    }

    /// How often each entry stands in the log `of`.
    async fn entries(&self, of: &str) -> BTreeMap<u128, usize> {
        let mut found = BTreeMap::new();
        let mut after = Some(Slot::HEAD);
        while let Some(from) = after {
            let page = self.outbox.read_page(&log(of), from, Slot(u64::MAX)).await.expect("read_page");
            for (_, row) in page.rows {
                let Row::Segment(segment) = row else { continue };
                for entry in unpack(&segment).unwrap() {
                    *found.entry(entry.id.0).or_default() += 1;
                }
            }
            after = page.next_after;
        }
        found
    }
}

fn log(partition: &str) -> LogName {
    LogName::new("bridge", partition, 0).unwrap()
}

/// Compares a tombstone with what the core says of it; the moment is the store's own where nobody gave one.
#[track_caller]
fn is_tombstone(found: &DeadLetter, of: &DeadLetter, request: &str) {
    let redriven = found.redriven.clone().expect("a tombstone tells of its redrive");
    assert!(*found == of.tombstone(request, redriven.at), "not the tombstone of letter {}: {:?}", of.id, (found.state, redriven));
    assert!(redriven.at > UnixMillis(1_700_000_000_000), "{:?}", redriven.at);
}

async fn a_letter_is_put_back_once(stores: Stores) {
    let (one, other) = (letter(1, "payload"), letter(2, "other"));
    stores.park(&one).await;
    stores.park(&other).await;
    assert_eq!(stores.put_back(&one, "op-1").await, PutBack::Done);
    assert_eq!(stores.mail().await, [mail_of(&one, "op-1")]);
    is_tombstone(&stores.get(&one).await, &one, "op-1");
    assert_eq!(stores.get(&other).await, other);
    let redriven = DeadLetterFilter { state: Some(DeadLetterState::Redriven), ..DeadLetterFilter::default() };
    let listed = stores.letters.list(&redriven, 10, None).await.expect("list").letters;
    assert_eq!(listed.iter().map(|letter| letter.id).collect::<Vec<_>>(), [one.id], "it is listed among the redriven");
}

async fn a_repeated_redrive_is_done_and_posts_nothing(stores: Stores) {
    let one = letter(1, "payload");
    stores.park(&one).await;
    for _ in 0..3 {
        assert_eq!(stores.put_back(&one, "op-1").await, PutBack::Done);
        assert_eq!(stores.mail().await.len(), 1);
    }
    // Also after the owner took the mail.
    let mut slot = 1;
    assert!(stores.move_some("s", &mut slot).await);
    // A repeat of another process, whose clock shows another time.
    let later = Mail { posted_at: UnixMillis(1_900_000_000_000), ..mail_of(&one, "op-1") };
    assert_eq!(done(stores.redrives.put_back(&one, &mailbox(), &later, "op-1").await, "put_back"), PutBack::Done);
    assert_eq!(stores.put_back(&one, "op-1").await, PutBack::Done);
    assert!(stores.mail().await.is_empty());
    is_tombstone(&stores.get(&one).await, &one, "op-1");
}

async fn another_redrive_meets_a_conflict(stores: Stores) {
    let one = letter(1, "payload");
    stores.park(&one).await;
    assert_eq!(stores.put_back(&one, "op-1").await, PutBack::Done);
    assert_eq!(stores.put_back(&one, "op-2").await, PutBack::Conflict);
    assert_eq!(stores.mark(&one, "op-2").await, PutBack::Conflict);
    assert_eq!(stores.set_aside(&one).await, PutBack::Conflict);
    assert_eq!(stores.mail().await, [mail_of(&one, "op-1")]);
    is_tombstone(&stores.get(&one).await, &one, "op-1");
}

async fn a_letter_that_is_not_as_it_was_seen_is_a_conflict(stores: Stores) {
    let missing = letter(1, "x");
    let counted = DeadLetter { redrive_count: 2, ..letter(2, "x") };
    let parked = DeadLetter { state: DeadLetterState::Parked, redrive_count: 3, ..letter(3, "x") };
    stores.park(&counted).await;
    stores.park(&parked).await;
    for seen in
        [missing, letter(2, "x"), DeadLetter { redrive_count: 3, ..letter(2, "x") }, DeadLetter { redrive_count: 3, ..letter(3, "x") }]
    {
        assert_eq!(stores.put_back(&seen, "op-1").await, PutBack::Conflict, "{}", seen.id);
        assert_eq!(stores.mark(&seen, "op-1").await, PutBack::Conflict, "{}", seen.id);
    }
    assert_eq!(stores.set_aside(&letter(1, "x")).await, PutBack::Conflict);
    assert_eq!(stores.set_aside(&letter(2, "x")).await, PutBack::Conflict);
    assert!(stores.mail().await.is_empty());
    assert_eq!((stores.get(&counted).await, stores.get(&parked).await), (counted, parked));
    assert_eq!(stores.letters.get(Id128(1)).await.unwrap(), None, "nothing came of it");
}

async fn mail_that_stands_already_is_left_alone(stores: Stores) {
    let one = letter(1, "payload");
    stores.park(&one).await;
    let mail = mail_of(&one, "an earlier one");
    assert!(done(stores.outbox.post(&mailbox(), &mail).await, "post"));
    assert_eq!(stores.put_back(&one, "op-1").await, PutBack::Done);
    assert_eq!(stores.mail().await, [mail]);
    is_tombstone(&stores.get(&one).await, &one, "op-1");
}

async fn a_large_letter_is_put_back_byte_for_byte(stores: Stores) {
    // Kept in parts where rows are small, and yet its mail fits one row: 350 KB of noise, and as much text as SQS takes.
    let letters =
        [letter(1, incompressible(350_000, 1)), letter(2, "{\"device\":\"press-7\",\"temperature\":61.5}\n".repeat(1024 * 1024 / 40))];
    for (one, nth) in letters.iter().zip(1..) {
        stores.park(one).await;
        assert!(stores.get(one).await == *one);
        assert_eq!(stores.put_back(one, "op-1").await, PutBack::Done);
        let mail = stores.mail().await;
        assert!(mail.len() == nth && mail[nth - 1] == mail_of(one, "op-1"), "its mail has every byte");
        let tombstone = stores.get(one).await;
        is_tombstone(&tombstone, one, "op-1");
        assert!(tombstone.message.payload.is_empty());
    }
    // Dead again, large again.
    let again = DeadLetter { redrive_count: 1, ..letters[0].clone() };
    stores.park(&again).await;
    assert!(stores.get(&again).await == again);
    assert!(done(stores.letters.delete(again.id).await, "delete"));
    assert_eq!(stores.letters.get(again.id).await.unwrap(), None);
}

async fn a_letter_larger_than_a_row_is_put_back_byte_for_byte(stores: Stores) {
    for (nth, length) in [(1, 420_000), (2, 1_000_000), (3, 1_500_000)] {
        let large = letter(nth, incompressible(length, nth as u64));
        stores.park(&large).await;
        assert_eq!(stores.put_back(&large, "op-1").await, PutBack::Done);
        assert_eq!(stores.put_back(&large, "op-1").await, PutBack::Done, "a repeat");
        assert!(stores.mail().await.last() == Some(&mail_of(&large, "op-1")), "its mail has every byte");
        is_tombstone(&stores.get(&large).await, &large, "op-1");
    }
}

async fn a_letter_that_cannot_be_put_back_stays_as_it_is(stores: Stores) {
    let large = letter(1, incompressible(5_000_000, 1));
    stores.park(&large).await;
    match stores.redrives.put_back(&large, &mailbox(), &mail_of(&large, "op-1"), "op-1").await {
        Outcome::NotDone(fault) => {
            assert_eq!(fault.code, FaultCode::PayloadTooLarge);
            assert!(stores.get(&large).await == large && stores.mail().await.is_empty());
        }
        other => {
            assert_eq!(done(other, "put_back"), PutBack::Done);
            assert!(stores.mail().await == [mail_of(&large, "op-1")]);
        }
    }
}

async fn a_small_payload_stays_readable(stores: Stores) {
    for (id, length) in [(1, TOMBSTONE_PAYLOAD_BYTES), (2, TOMBSTONE_PAYLOAD_BYTES + 1)] {
        let one = letter(id, incompressible(length, 1));
        stores.park(&one).await;
        assert_eq!(stores.put_back(&one, "op-1").await, PutBack::Done);
        let tombstone = stores.get(&one).await;
        is_tombstone(&tombstone, &one, "op-1");
        assert_eq!(tombstone.message.payload.is_empty(), length > TOMBSTONE_PAYLOAD_BYTES);
    }
}

async fn a_letter_that_died_again_is_put_back_again(stores: Stores) {
    let first = letter(1, "payload");
    stores.park(&first).await;
    assert_eq!(stores.put_back(&first, "op-1").await, PutBack::Done);
    let second = DeadLetter { redrive_count: 1, failed_at: UnixMillis(1_800_000_000_000), ..first.clone() };
    stores.park(&second).await;
    assert_eq!(stores.get(&first).await, second, "nothing is left of the tombstone");
    assert_eq!(stores.put_back(&first, "op-1").await, PutBack::Conflict, "the first redrive is over");
    assert_eq!(stores.put_back(&second, "op-1").await, PutBack::Done, "a request may name both");
    is_tombstone(&stores.get(&first).await, &second, "op-1");
    assert_eq!(stores.mail().await, [mail_of(&first, "op-1"), mail_of(&second, "op-1")]);
}

async fn a_replayed_death_raises_nothing(stores: Stores) {
    let first = letter(1, "payload");
    stores.park(&first).await;
    assert_eq!(stores.put_back(&first, "op-1").await, PutBack::Done);
    stores.park(&first).await;
    stores.park(&DeadLetter { redrive_count: 2, ..first.clone() }).await;
    is_tombstone(&stores.get(&first).await, &first, "op-1");
}

async fn a_letter_is_marked_without_mail(stores: Stores) {
    let (small, large) = (letter(1, "payload"), letter(2, incompressible(1_000_000, 1)));
    for one in [&small, &large] {
        stores.park(one).await;
        for _ in 0..2 {
            assert_eq!(stores.mark(one, "op-1").await, PutBack::Done);
            is_tombstone(&stores.get(one).await, one, "op-1");
        }
        assert_eq!(stores.mark(one, "op-2").await, PutBack::Conflict);
        assert_eq!(stores.put_back(&letter(one.id.0, "payload"), "op-2").await, PutBack::Conflict);
    }
    assert!(stores.mail().await.is_empty());
}

async fn a_letter_is_set_aside(stores: Stores) {
    for one in [DeadLetter { redrive_count: 3, ..letter(1, "payload") }, letter(2, incompressible(1_000_000, 1))] {
        stores.park(&one).await;
        for _ in 0..2 {
            assert_eq!(stores.set_aside(&one).await, PutBack::Done);
        }
        assert!(stores.get(&one).await == DeadLetter { state: DeadLetterState::Parked, ..one.clone() }, "it keeps everything");
        assert_eq!(stores.put_back(&letter(one.id.0, "payload"), "op-1").await, PutBack::Conflict);
        assert_eq!(stores.set_aside(&DeadLetter { redrive_count: 9, ..one }).await, PutBack::Conflict);
    }
    assert!(stores.mail().await.is_empty());
}

/// Fifty letters, eight at work, each with the request that `request` gives it. Answers how often a put-back was done.
async fn eight_put_back(stores: &Stores, request: fn(u32) -> String) -> usize {
    let letters: Vec<DeadLetter> = (1..=50).map(|id| letter(id, format!("payload {id}"))).collect();
    for letter in &letters {
        stores.park(letter).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for redriver in 0..8 {
        let (stores, mut letters) = (stores.clone(), letters.clone());
        // Each in another order, so that they meet all over.
        letters.rotate_left(redriver as usize * 6);
        tasks.spawn(async move {
            let mut done = 0;
            for letter in &letters {
                done += usize::from(stores.put_back(letter, &request(redriver)).await == PutBack::Done);
            }
            done
        });
    }
    let done = tasks.join_all().await.into_iter().sum();
    for letter in &letters {
        let found = stores.get(letter).await;
        assert_eq!((found.state, found.redrive_count), (DeadLetterState::Redriven, 1));
    }
    done
}

async fn eight_redrivers_put_each_letter_back_once(stores: Stores) {
    assert_eq!(eight_put_back(&stores, |redriver| format!("op-{redriver}")).await, 50);
    let mail = stores.mail().await;
    assert_eq!(mail.len(), 50);
    for mail in mail {
        // The tombstone names the request whose mail was posted.
        let tombstone = stores.letters.get(mail.entry.id).await.unwrap().unwrap();
        let causation = mail.entry.redrive.as_ref().map(|redrive| redrive.causation.clone());
        assert_eq!(tombstone.redriven.map(|redriven| redriven.request), causation);
    }
}

async fn eight_calls_of_one_redrive_are_one(stores: Stores) {
    assert_eq!(eight_put_back(&stores, |_| "op".to_owned()).await, 400, "each of them is told that it is done");
    assert_eq!(stores.mail().await.len(), 50);
}

async fn redrivers_beside_an_owner_lose_and_double_nothing(stores: Stores) {
    let owner = {
        let stores = stores.clone();
        tokio::spawn(async move {
            let mut slot = 1;
            while stores.entries("s").await.len() < 50 {
                if !stores.move_some("s", &mut slot).await {
                    tokio::task::yield_now().await;
                }
            }
        })
    };
    assert_eq!(eight_put_back(&stores, |redriver| format!("op-{redriver}")).await, 50);
    owner.await.expect("the owner moves all of it");
    assert!(stores.mail().await.is_empty());
    assert_eq!(stores.entries("s").await, (1..=50).map(|id| (id, 1)).collect());
}
