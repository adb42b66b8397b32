//! What every [`Sink`] promises, seen from its other end.

use super::{incompressible, suite};
use crate::Sink;
use async_trait::async_trait;
use bytes::Bytes;
use causeway_core::identity::Id128;
use causeway_core::message::{Entry, Message, Properties};
use causeway_core::outcome::{FaultClass, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A destination of the case's own, and who reads what arrives there.
#[async_trait]
pub trait Destination: Send + Sync {
    /// The sink under test.
    fn sink(&self) -> &dyn Sink;

    /// Another one of its kind, at whose other end nobody is.
    fn astray(&self) -> Box<dyn Sink>;

    /// Waits, with patience, until `count` messages have arrived in all, and gives all that have, in their order.
    async fn arrived(&self, count: usize) -> Vec<Arrived>;
}

/// A message as its consumer reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The entry's id, as it was told with the message.
    pub id: String,
    /// The payload, decoded.
    pub payload: Bytes,
    /// Content type, response topic, correlation data and user properties. Those that the sink itself adds are left out.
    pub properties: Properties,
}

suite! { $
    /// Expands to one test per case. `$make` is an async function that answers `(Arc<dyn Destination>, what must live as long)`.
    sink_conformance, sink, Arc<dyn Destination>;
    the_probe_finds_the_destination,
    a_full_batch_arrives_and_each_entry_has_its_answer,
    nothing_to_send_is_no_fault_and_no_message,
    payloads_arrive_byte_for_byte,
    properties_arrive_whole,
    what_is_sent_again_is_told_by_its_id,
    a_message_as_large_as_the_limit_is_taken,
    what_is_larger_than_the_limit_is_refused_alone,
    order_keys_follow_the_topic,
    messages_of_one_key_arrive_in_their_order,
    what_was_surely_not_sent_in_time_never_arrives,
    where_nobody_is_nothing_is_done,
}

type Store = Arc<dyn Destination>;

/// Longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A case does not prepare messages above this, where the destination's own limit is far away.
const LARGEST: usize = 2 * 1024 * 1024;

fn entry(id: u128, payload: impl Into<Bytes>) -> Arc<Entry> {
    with(id, payload, Properties::default())
}

fn with(id: u128, payload: impl Into<Bytes>, properties: Properties) -> Arc<Entry> {
    let message = Message { topic: "plant/1/telemetry".to_owned(), payload: payload.into(), qos: 1, properties, ..Message::default() };
    Arc::new(Entry {
        id: Id128(id),
        route: "telemetry".into(),
        binding: "to-there".into(),
        address: None,
        refusal: None,
        source: "receiver-1".into(),
        received_at: UnixMillis(1_700_000_000_000),
        expires_at: None,
        redrive: None,
        message,
    })
}

/// Sends entries in as many batches as the limits ask for; all of them must be taken.
async fn send_all(destination: &Store, entries: &[Arc<Entry>]) {
    let limits = destination.sink().limits();
    for batch in entries.chunks(limits.batch_entries.min(10)) {
        for entry in batch {
            let size = destination.sink().size_of(entry);
            assert!(size <= limits.entry_bytes, "entry {} has {size} bytes of {}", entry.id, limits.entry_bytes);
        }
        // One by one where they do not fit together.
        let fits = batch.iter().map(|entry| destination.sink().size_of(entry)).sum::<usize>() <= limits.batch_bytes;
        for batch in batch.chunks(if fits { batch.len() } else { 1 }) {
            let outcomes = destination.sink().send(batch, PATIENCE).await;
            assert_eq!(outcomes, vec![Outcome::Done(()); batch.len()]);
        }
    }
}

fn find<'a>(arrived: &'a [Arrived], entry: &Entry) -> &'a Arrived {
    let id = entry.id.to_string();
    arrived.iter().find(|arrived| arrived.id == id).unwrap_or_else(|| panic!("entry {id} did not arrive"))
}

fn ids(arrived: &[Arrived]) -> Vec<String> {
    arrived.iter().map(|arrived| arrived.id.clone()).collect()
}

fn ids_of(entries: &[Arc<Entry>]) -> Vec<String> {
    entries.iter().map(|entry| entry.id.to_string()).collect()
}

async fn the_probe_finds_the_destination(destination: Store) {
    assert_eq!(destination.sink().probe().await, Ok(()));
    let limits = destination.sink().limits();
    assert!(limits.batch_entries >= 1 && limits.entry_bytes >= 1 && limits.batch_bytes >= limits.entry_bytes, "{limits:?}");
}

async fn a_full_batch_arrives_and_each_entry_has_its_answer(destination: Store) {
    let count = destination.sink().limits().batch_entries.min(100);
    let batch: Vec<_> = (1..=count as u128).map(|id| entry(id, format!("{id}"))).collect();
    let before = destination.sink().requests();
    assert_eq!(destination.sink().send(&batch, PATIENCE).await, vec![Outcome::Done(()); count]);
    assert!(destination.sink().requests() > before, "requests are counted");
    let arrived = destination.arrived(count).await;
    assert_eq!(ids(&arrived).into_iter().collect::<BTreeSet<_>>(), ids_of(&batch).into_iter().collect());
    assert_eq!(arrived.len(), count, "each once");
    for entry in &batch {
        assert_eq!(find(&arrived, entry).payload, entry.message.payload);
    }
}

async fn nothing_to_send_is_no_fault_and_no_message(destination: Store) {
    assert_eq!(destination.sink().send(&[], PATIENCE).await, []);
    let only = entry(1, "after it");
    send_all(&destination, std::slice::from_ref(&only)).await;
    assert_eq!(ids(&destination.arrived(1).await), ids_of(&[only]));
}

async fn payloads_arrive_byte_for_byte(destination: Store) {
    let payloads: Vec<Vec<u8>> = vec![
        b"{\"n\":1}".to_vec(),
        Vec::new(),
        b" ".to_vec(),
        b"\x07bell".to_vec(),
        vec![0],
        vec![0xff, 0xfe, 0x80],
        "\u{ffff}\u{fffe}".as_bytes().to_vec(),
        "gr\u{fc}n \u{1f600}\t\r\n".as_bytes().to_vec(),
        b"<xml attr=\"&amp;\"><![CDATA[]]>".to_vec(),
        b"aGVsbG8=".to_vec(),
        incompressible(10_241, 7),
        vec![b'x'; 100_000],
    ];
    let entries: Vec<_> = (1..).zip(payloads).map(|(id, payload)| entry(id, payload)).collect();
    send_all(&destination, &entries).await;
    let arrived = destination.arrived(entries.len()).await;
    for entry in &entries {
        assert!(find(&arrived, entry).payload == entry.message.payload, "payload of entry {}", entry.id);
    }
}

async fn properties_arrive_whole(destination: Store) {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let many: Vec<_> = (1..=14).map(|number| (format!("p {number}"), format!("value {number}"))).collect();
    let odd = vec![
        pair("note", ""),
        pair("k", "1"),
        pair("k", "2"),
        pair("AWS.x", "reserved elsewhere"),
        pair("gr\u{fc}n", "\u{1f600}"),
        pair("..", "dots"),
        pair(&"n".repeat(300), "a long name"),
    ];
    let every = Properties {
        content_type: Some("application/json".to_owned()),
        response_topic: Some("answers/1".to_owned()),
        correlation_data: Some(Bytes::from_static(&[0, 1, 255])),
        user: vec![pair("site", "north")],
        ..Properties::default()
    };
    let of_user = |user: Vec<(String, String)>| Properties { user, ..Properties::default() };
    let entries = [with(1, "{}", of_user(many)), with(2, "", of_user(odd)), with(3, "{}", every)];
    send_all(&destination, &entries).await;
    let arrived = destination.arrived(entries.len()).await;
    for entry in &entries {
        let (sent, told) = (&entry.message.properties, &find(&arrived, entry).properties);
        assert_eq!(told.content_type, sent.content_type, "entry {}", entry.id);
        assert_eq!(told.response_topic, sent.response_topic, "entry {}", entry.id);
        assert_eq!(told.correlation_data, sent.correlation_data, "entry {}", entry.id);
        // Some destinations know no order of names; that of values of one name is kept everywhere.
        let sorted = |user: &[(String, String)]| {
            let mut user = user.to_vec();
            user.sort_by(|one, other| one.0.cmp(&other.0));
            user
        };
        assert_eq!(sorted(&told.user), sorted(&sent.user), "entry {}", entry.id);
    }
}

async fn what_is_sent_again_is_told_by_its_id(destination: Store) {
    let (again, last) = (entry(1, "again"), entry(2, "last"));
    for _ in 0..2 {
        send_all(&destination, std::slice::from_ref(&again)).await;
    }
    send_all(&destination, std::slice::from_ref(&last)).await;
    // A destination may recognise the repetition by itself.
    let mut arrived = destination.arrived(2).await;
    while !arrived.iter().any(|arrived| arrived.id == last.id.to_string()) {
        arrived = destination.arrived(arrived.len() + 1).await;
    }
    let copies: Vec<_> = arrived.iter().filter(|arrived| arrived.id == again.id.to_string()).collect();
    assert!(matches!(copies.len(), 1 | 2) && copies.iter().all(|copy| copy.payload == again.message.payload), "{arrived:?}");
    assert_eq!(arrived.len(), copies.len() + 1);
}

/// An entry of exactly `size` bytes, as the sink counts them.
fn of_size(sink: &dyn Sink, id: u128, size: usize) -> Arc<Entry> {
    let mut length = size.saturating_sub(sink.size_of(&entry(id, "")));
    loop {
        let made = entry(id, vec![b'x'; length]);
        match sink.size_of(&made).cmp(&size) {
            core::cmp::Ordering::Equal => return made,
            core::cmp::Ordering::Greater => length -= sink.size_of(&made) - size,
            core::cmp::Ordering::Less => length += size - sink.size_of(&made),
        }
    }
}

async fn a_message_as_large_as_the_limit_is_taken(destination: Store) {
    destination.sink().probe().await.expect("probe");
    let largest = of_size(destination.sink(), 1, destination.sink().limits().entry_bytes.min(LARGEST));
    send_all(&destination, std::slice::from_ref(&largest)).await;
    assert!(find(&destination.arrived(1).await, &largest).payload == largest.message.payload);
}

/// The drain sends nothing of the kind; where the limit is learned late, it may have.
async fn what_is_larger_than_the_limit_is_refused_alone(destination: Store) {
    destination.sink().probe().await.expect("probe");
    let limit = destination.sink().limits().entry_bytes;
    if limit > LARGEST {
        return;
    }
    let batch = [entry(1, "one"), entry(2, vec![b'x'; limit + 1]), entry(3, "three")];
    let outcomes = destination.sink().send(&batch, PATIENCE).await;
    assert_eq!((&outcomes[0], &outcomes[2], outcomes.len()), (&Outcome::Done(()), &Outcome::Done(()), 3), "{outcomes:?}");
    match &outcomes[1] {
        Outcome::NotDone(fault) => assert_eq!((fault.code, fault.code.class()), (FaultCode::PayloadTooLarge, FaultClass::Rejected)),
        other => panic!("a message that cannot be taken ended {other:?}"),
    }
    assert_eq!(ids(&destination.arrived(2).await), ids_of(&[Arc::clone(&batch[0]), Arc::clone(&batch[2])]));
}

async fn order_keys_follow_the_topic(destination: Store) {
    let key = |topic: &str, id: u128| {
        let mut entry = (*entry(id, "x")).clone();
        topic.clone_into(&mut entry.message.topic);
        destination.sink().key_of(&entry)
    };
    assert_eq!(key("a", 1), key("a", 2), "one topic, one key");
    assert!(key("a", 1).is_none() && key("b", 1).is_none() || key("a", 1) != key("b", 1), "two topics, two keys");
}

async fn messages_of_one_key_arrive_in_their_order(destination: Store) {
    if destination.sink().key_of(&entry(1, "x")).is_none() {
        return;
    }
    let entries: Vec<_> = (1..=12).map(|id| entry(id, format!("{id}"))).collect();
    for entry in &entries {
        send_all(&destination, std::slice::from_ref(entry)).await;
    }
    assert_eq!(ids(&destination.arrived(entries.len()).await), ids_of(&entries));
}

async fn what_was_surely_not_sent_in_time_never_arrives(destination: Store) {
    let hurried: Vec<_> = (1..=10).map(|id| entry(id, format!("{id}"))).collect();
    let outcomes = destination.sink().send(&hurried, Duration::from_millis(1)).await;
    assert_eq!(outcomes.len(), hurried.len());
    let last = entry(11, "last");
    // A destination that was late a moment ago may ask to come again.
    while destination.sink().send(std::slice::from_ref(&last), PATIENCE).await != [Outcome::Done(())] {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let done = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done(()))).count();
    let mut arrived = destination.arrived(done + 1).await;
    while !arrived.iter().any(|arrived| arrived.id == last.id.to_string()) {
        arrived = destination.arrived(arrived.len() + 1).await;
    }
    for (entry, outcome) in hurried.iter().zip(&outcomes) {
        let came = arrived.iter().filter(|arrived| arrived.id == entry.id.to_string()).count();
        let right = match outcome {
            Outcome::Done(()) => came == 1,
            Outcome::NotDone(_) => came == 0,
            Outcome::Unknown(_) => came <= 1,
        };
        assert!(right, "entry {} ended {outcome:?} and arrived {came} times", entry.id);
    }
}

async fn where_nobody_is_nothing_is_done(destination: Store) {
    let astray = destination.astray();
    let batch: Vec<_> = (1..=3).map(|id| entry(id, "x")).collect();
    let outcomes = astray.send(&batch, Duration::from_secs(2)).await;
    assert_eq!(outcomes.len(), batch.len());
    for outcome in outcomes {
        match outcome {
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => assert_eq!(fault.code.class(), FaultClass::Transient, "{fault}"),
            Outcome::Done(()) => panic!("nobody was there"),
        }
    }
    astray.probe().await.expect_err("the probe finds somebody");
}
