//! Messages that go past the log while their destination keeps up, and through it when it does not.

use crate::support::{Rig, Store, at_ms, entry_of, fault, message, ms, options, route};
use causeway_core::drain::OrderKey;
use causeway_core::mailbox::Mail;
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_core::worker::Event;
use causeway_core::worker::options::{Delivery, LegOptions, OwnerOptions};
use std::sync::Arc;

fn spilled(nth: u64) -> OwnerOptions {
    let route = LegOptions {
        delivery: Delivery::Spilled { after: ms(250) },
        key_of: Arc::new(|entry| Some(OrderKey(u64::from(entry.message.topic.as_bytes()[0])))),
        ..route("r", "in")
    };
    OwnerOptions { legs: vec![route], ..options(nth) }
}

fn on(topic: &str, text: &str) -> Message {
    Message { topic: topic.to_owned(), ..message(text) }
}

fn refused() -> Outcome<()> {
    Outcome::NotDone(fault(FaultCode::Unavailable))
}

fn texts<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> Vec<String> {
    entries.into_iter().map(|entry| String::from_utf8(entry.message.payload.to_vec()).unwrap()).collect()
}

fn sent(rig: &Rig) -> Vec<String> {
    texts(rig.sends.iter().flat_map(|sent| &sent.entries).map(Arc::as_ref))
}

fn logged(rig: &Rig) -> Vec<String> {
    texts(rig.store.unsettled().iter().map(|(_, entry)| entry))
}

fn acked(rig: &Rig) -> u64 {
    rig.acks.last().map_or(0, |ack| ack.ordinal)
}

#[test]
fn while_the_destination_keeps_up_no_message_costs_a_write() {
    let mut rig = Rig::opened(spilled(1), Store::default());
    let writes = |rig: &Rig| (rig.calls.puts, rig.calls.head_writes, rig.calls.deletes);
    let before = writes(&rig);
    for nth in (0..40_u8).cycle().take(2_000) {
        rig.deliver("in", on(&char::from(b'0' + nth).to_string(), &format!("{nth}")));
        rig.run_for(ms(1));
    }
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), acked(&rig), writes(&rig)), (2_000, 2_000, before));
}

#[test]
fn a_failure_spills_what_is_held_of_its_key_and_what_comes_later_stands_behind_it() {
    let mut rig = Rig::opened(spilled(1), Store::default());
    let healed = rig.now.plus(ms(2_000));
    rig.on_send = Box::new(move |now, entry| if &*entry.message.topic == "a" && now < healed { refused() } else { Outcome::Done(()) });
    for text in ["a1", "a2", "b1"] {
        rig.deliver("in", on(&text[..1], text));
    }
    rig.run_for(ms(8));
    rig.deliver("in", on("a", "a3"));
    rig.deliver("in", on("b", "b2"));
    rig.run_for(ms(100));
    assert_eq!(logged(&rig), ["a1", "a2", "a3"], "those of other keys go past the log");
    assert_eq!(acked(&rig), 5, "the log has what the destination has not");
    rig.run_to_rest();
    assert_eq!(logged(&rig), Vec::<String>::new());
    let of_a: Vec<String> = sent(&rig).into_iter().filter(|text| text.starts_with('a') && text != "a1").collect();
    assert_eq!(of_a, ["a2", "a3"]);
    assert_eq!(rig.delivered.values().sum::<u32>(), 5);
    // Nothing of the key is in the log any more.
    let puts = rig.calls.puts;
    rig.deliver("in", on("a", "a4"));
    rig.run_to_rest();
    assert_eq!((rig.calls.puts, acked(&rig)), (puts, 6));
}

#[test]
fn what_is_held_for_too_long_is_logged_and_acknowledged_and_never_sent_twice_at_a_time() {
    let mut rig = Rig::opened(spilled(1), Store::default());
    rig.send_latency = ms(3_000);
    rig.deliver("in", on("a", "a1"));
    rig.run_for(ms(249));
    assert_eq!((acked(&rig), logged(&rig).len()), (0, 0));
    rig.run_for(ms(10));
    assert_eq!((acked(&rig), logged(&rig)), (1, vec!["a1".to_owned()]));
    rig.run_to_rest();
    assert_eq!((sent(&rig), logged(&rig).len()), (vec!["a1".to_owned()], 0), "its one send settled it");
}

/// To a queue that keeps no order several of a key may be in one batch; the key's first failure spills those that were accepted with it, too.
#[test]
fn of_a_batch_that_failed_in_part_each_is_delivered_and_counted_once() {
    for accepted in ["a2", "a1"] {
        let mut options = spilled(1);
        options.legs[0].key_of = Arc::new(|_| None);
        let mut rig = Rig::opened(options, Store::default());
        let healed = rig.now.plus(ms(1_000));
        rig.on_send = Box::new(move |now, entry| {
            let refuses = now < healed && entry.message.payload.starts_with(b"a") && entry.message.payload != accepted.as_bytes();
            if refuses { refused() } else { Outcome::Done(()) }
        });
        for (topic, text) in [("b", "b1"), ("a", "a1"), ("a", "a2"), ("a", "a3")] {
            rig.deliver("in", on(topic, text));
        }
        rig.run_to_rest();
        assert!(rig.sends.iter().any(|sent| sent.entries.len() == 3), "they left together");
        assert_eq!((rig.delivered.len(), rig.delivered.values().sum::<u32>()), (4, 4));
        assert_eq!((acked(&rig), logged(&rig).len()), (4, 0));
    }
}

#[test]
fn the_successor_of_one_that_spilled_sends_everything_in_order() {
    let mut rig = Rig::opened(spilled(1), Store::default());
    rig.on_send = Box::new(|_, _| refused());
    for nth in 0..30 {
        rig.deliver("in", on("a", &format!("{nth:02}")));
        rig.run_for(ms(5));
    }
    rig.run_for(ms(500));
    assert_eq!(acked(&rig), 30);
    let mut next = rig.successor(spilled(2));
    next.event(Event::Tick);
    next.run_to_rest();
    assert_eq!(sent(&next), (0..30).map(|nth| format!("{nth:02}")).collect::<Vec<_>>());
}

#[test]
fn an_outage_fills_the_log_and_not_the_memory_and_afterwards_messages_go_past_it_again() {
    let mut options = spilled(1);
    options.memory_entries = 40;
    let mut rig = Rig::opened(options, Store::default());
    let healed = rig.now.plus(ms(20_000));
    rig.on_send = Box::new(move |now, _| if now < healed { refused() } else { Outcome::Done(()) });
    for nth in 0..1_000 {
        assert!(rig.owner.wants_input(), "the log takes what the destination does not: {nth}");
        rig.deliver("in", on(&format!("{}", nth % 7), &format!("{nth}")));
        rig.run_for(ms(10));
        assert!(rig.owner.status(rig.wall()).in_memory <= 300, "{:?}", rig.owner.status(rig.wall()));
    }
    rig.run_for(ms(100));
    assert_eq!((acked(&rig), rig.delivered.len()), (1_000, 0));
    rig.run_to_rest();
    assert_eq!((rig.delivered.len(), logged(&rig).len()), (1_000, 0));
    let puts = rig.calls.puts;
    rig.deliver("in", on("0", "last"));
    rig.run_to_rest();
    assert_eq!((rig.calls.puts, acked(&rig)), (puts, 1_001));
}

/// Mail of a key enters the log before a message of that key which is on its way past it. Later messages are settled around both, until no more may
/// be settled ahead of the mail: then the message that the mail waits for has to go all the same.
#[test]
fn mail_that_waits_for_a_message_behind_it_in_the_log_holds_nothing_up() {
    let options = OwnerOptions { max_settled_ahead: 2, mailbox_poll: Some(ms(2_000)), ..spilled(1) };
    let mut rig = Rig::opened(options, Store::default());
    rig.send_latency = ms(300);
    rig.on_send = Box::new(|now, entry| if entry.message.topic == "a" && now < at_ms(60_000) { refused() } else { Outcome::Done(()) });
    rig.deliver("in", on("a", "a1"));
    rig.run_for(ms(20));
    let letter = Entry { message: on("a", "mail"), ..Entry::clone(&entry_of("mail", 9 << 100)) };
    rig.store.mail.insert("1".to_owned(), Mail { id: "1".to_owned(), posted_at: UnixMillis(0), entry: Arc::new(letter) });
    rig.event(Event::MailHint);
    rig.run_for(ms(400));
    assert_eq!(logged(&rig), ["mail", "a1"]);
    for nth in 0..5 {
        rig.deliver("in", on("b", &format!("b{nth}")));
        rig.run_for(ms(700));
    }
    rig.run_for(ms(120_000));
    assert_eq!((rig.delivered.len(), logged(&rig).len()), (7, 0), "{:?}", sent(&rig));
    let of_a: Vec<String> = sent(&rig).into_iter().filter(|text| !text.starts_with('b')).collect();
    assert_eq!(of_a.last().map(String::as_str), Some("mail"), "{of_a:?}");
}
