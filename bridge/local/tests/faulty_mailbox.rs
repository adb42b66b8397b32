//! A mailbox whose answers get lost: the caller repeats, and nothing is moved twice.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use causeway_core::identity::Slot;
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_local::memory::MemoryOutbox;
use causeway_ports::fake::{FaultyMailbox, Injection, MailboxCall};
use causeway_ports::{Mail, Mailbox, MailboxName, Moved, Outbox};
use common::{entry, log, segment};
use std::sync::Arc;

fn lost() -> Fault {
    Fault::new(FaultCode::Timeout, "no answer in time")
}

fn mail(id: &str) -> Mail {
    Mail { id: id.to_owned(), posted_at: UnixMillis(1), entry: Arc::new(entry(1)) }
}

fn mailbox() -> MailboxName {
    MailboxName::new("bridge", "session").unwrap()
}

fn faulty() -> (FaultyMailbox<Arc<MemoryOutbox>>, Arc<MemoryOutbox>) {
    let store = Arc::new(MemoryOutbox::new());
    (FaultyMailbox::new(Arc::clone(&store)), store)
}

#[tokio::test]
async fn a_lost_answer_is_found_by_the_repeat() {
    let (mailbox_store, log_store) = faulty();
    mailbox_store.inject_next(MailboxCall::Post, Injection::LoseAnswer(lost()));
    assert_eq!(mailbox_store.post(&mailbox(), &mail("a")).await, Outcome::Unknown(lost()));
    assert_eq!(mailbox_store.post(&mailbox(), &mail("a")).await, Outcome::Done(false));
    let row = segment(7, "x");
    let ids = ["a".to_owned()];
    for injection in [Injection::LoseRequest(lost()), Injection::LoseAnswer(lost())] {
        mailbox_store.inject_next(MailboxCall::MoveMail, injection);
        assert_eq!(mailbox_store.move_mail(&log(), Slot(1), &row, &mailbox(), &ids).await, Outcome::Unknown(lost()));
    }
    assert_eq!(mailbox_store.move_mail(&log(), Slot(1), &row, &mailbox(), &ids).await, Outcome::Done(Moved::Stored));
    assert!(mailbox_store.read_mail(&mailbox(), 99).await.unwrap().is_empty());
    assert_eq!(log_store.read_page(&log(), Slot(0), Slot(9)).await.unwrap().rows, [(Slot(1), row)]);
    assert_eq!(mailbox_store.calls(MailboxCall::MoveMail), 3);
}

#[tokio::test]
async fn what_is_applied_late_moves_nothing_twice() {
    let (mailbox_store, log_store) = faulty();
    assert_eq!(mailbox_store.post(&mailbox(), &mail("a")).await, Outcome::Done(true));
    let ids = ["a".to_owned()];
    // The old owner's move is still under way when the new owner moves the same mail behind its own row.
    mailbox_store.inject_next(MailboxCall::MoveMail, Injection::ApplyLate(lost()));
    assert_eq!(mailbox_store.move_mail(&log(), Slot(1), &segment(1, "old"), &mailbox(), &ids).await, Outcome::Unknown(lost()));
    let new = segment(2, "new");
    assert_eq!(mailbox_store.move_mail(&log(), Slot(2), &new, &mailbox(), &ids).await, Outcome::Done(Moved::Stored));
    assert_eq!(mailbox_store.apply_late().await, 1);
    assert_eq!(log_store.read_page(&log(), Slot(0), Slot(9)).await.unwrap().rows, [(Slot(2), new)]);
    // Late, and first: then it is the new owner that finds nothing.
    assert_eq!(mailbox_store.post(&mailbox(), &mail("a")).await, Outcome::Done(true));
    mailbox_store.inject_next(MailboxCall::MoveMail, Injection::ApplyLate(lost()));
    assert_eq!(mailbox_store.move_mail(&log(), Slot(3), &segment(3, "old"), &mailbox(), &ids).await, Outcome::Unknown(lost()));
    assert_eq!(mailbox_store.apply_late().await, 1);
    let met = mailbox_store.move_mail(&log(), Slot(4), &segment(4, "new"), &mailbox(), &ids).await;
    assert_eq!(met, Outcome::Done(Moved::MailGone));
}

#[tokio::test]
async fn a_refused_call_does_nothing() {
    let (mailbox_store, _) = faulty();
    let refusal = Fault::new(FaultCode::Throttled, "slow down");
    mailbox_store.inject(MailboxCall::Post, 0, 1, Injection::Refuse(refusal.clone()));
    mailbox_store.inject(MailboxCall::ReadMail, 1, 1, Injection::Refuse(refusal.clone()));
    assert_eq!(mailbox_store.post(&mailbox(), &mail("a")).await, Outcome::NotDone(refusal.clone()));
    assert!(mailbox_store.read_mail(&mailbox(), 99).await.unwrap().is_empty());
    assert_eq!(mailbox_store.read_mail(&mailbox(), 99).await, Err(refusal));
}
